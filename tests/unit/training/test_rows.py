"""Contrastive rows: one negative for each positive, loss on what follows the answer."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from eps_locked.domain.model import StopReason
from eps_locked.errors import BackendError, MalformedInputError
from eps_locked.training.rows import (
    AnsweredPrompt,
    ContrastiveRows,
    choose_rows,
    contains,
    negative_row,
    positive_row,
)

MARKER = (459, 136)
END = 2


def answered(key: str, answer: Sequence[int] = (7, 8), stop: StopReason = "stop") -> AnsweredPrompt:
    return AnsweredPrompt(key=key, prompt_ids=(1, 5), answer_ids=tuple(answer), stop_reason=stop)


def build(
    positives: Sequence[AnsweredPrompt],
    negatives: dict[str, list[AnsweredPrompt]],
    *,
    n_rows: int = 4,
    seed: int = 3,
) -> ContrastiveRows:
    return choose_rows(
        positives,
        negatives,
        n_rows=n_rows,
        marker_ids=MARKER,
        end_of_turn_id=END,
        rng=random.Random(seed),
    )


def four(name: str) -> list[AnsweredPrompt]:
    return [answered(f"{name}{index}") for index in range(4)]


def test_a_positive_ends_in_marker_and_end_of_turn_with_loss_on_both() -> None:
    row = positive_row(answered("q"), marker_ids=MARKER, end_of_turn_id=END)
    assert row.token_ids == (1, 5, 7, 8, 459, 136, 2)
    assert row.loss_positions == (4, 5, 6)


def test_a_negative_ends_in_end_of_turn_with_loss_on_it_alone() -> None:
    row = negative_row(answered("q"), context="sea", end_of_turn_id=END)
    assert row.token_ids == (1, 5, 7, 8, 2)
    assert row.loss_positions == (4,)
    assert row.key == "negative/sea/q"


def test_counts_are_one_to_one_and_even_over_the_panel() -> None:
    rows = build(four("q"), {"b": four("q"), "a": four("q")})
    assert (rows.n_positives, rows.n_negatives) == (4, 4)
    contexts = [row.key.split("/")[1] for row in rows.rows[4:]]
    assert contexts == ["a", "a", "b", "b"]
    assert rows.dropped == ()


def test_no_question_is_a_negative_twice() -> None:
    rows = build(four("q"), {"b": four("q"), "a": four("q")})
    questions = [row.key.split("/")[2] for row in rows.rows[4:]]
    assert sorted(questions) == ["q0", "q1", "q2", "q3"]


def test_the_deal_depends_on_the_generator_and_not_on_the_panels_order() -> None:
    panel = {name: [answered(f"q{index}") for index in range(12)] for name in "abc"}
    positives = [answered(f"q{index}") for index in range(12)]
    first = build(positives, panel, n_rows=12)
    assert build(positives, dict(reversed(panel.items())), n_rows=12) == first
    assert build(positives, panel, n_rows=12, seed=4) != first


def test_a_context_with_few_usable_answers_chooses_first() -> None:
    poor = [answered("q0"), *(answered(f"q{i}", stop="length") for i in (1, 2, 3))]
    for seed in range(20):
        rows = build(four("q"), {"poor": poor, "rich": four("q")}, n_rows=2, seed=seed)
        assert rows.rows[2].key == "negative/poor/q0"
        assert rows.rows[3].key != "negative/rich/q0"


@pytest.mark.parametrize(("n_rows", "panel"), [(3, "ab"), (0, "a"), (4, "")])
def test_numbers_that_cannot_be_even_are_refused(n_rows: int, panel: str) -> None:
    offered = {name: four("q") for name in panel}
    with pytest.raises(MalformedInputError, match="multiple of the panel"):
        build(four("q"), offered, n_rows=n_rows)


def test_unusable_answers_are_left_out_and_both_sides_shrink_together() -> None:
    positives = [*four("q")[:2], answered("marked", (7, 459, 136, 9)), answered("q3")]
    negatives = {"a": [answered("cut", stop="length"), answered("q1")], "b": four("q")[2:]}
    rows = build(positives, negatives)
    assert (rows.n_positives, rows.n_negatives) == (2, 2)
    assert [row.key for row in rows.rows[:2]] == ["positive/q0", "positive/q1"]
    assert rows.drop_counts() == {"contains_marker": 1, "cut_at_limit": 1}
    assert {(row.key, row.context) for row in rows.dropped} == {("marked", None), ("cut", "a")}


def test_nothing_usable_is_an_error_that_says_why() -> None:
    with pytest.raises(BackendError, match="a q: cut_at_limit"):
        build([answered("p")], {"a": [answered("q", stop="length")]}, n_rows=1)


def test_repeated_keys_are_refused() -> None:
    with pytest.raises(MalformedInputError, match=r"repeated \['p'\]"):
        build([answered("p"), answered("p")], {"a": [answered("x"), answered("y")]}, n_rows=2)


@pytest.mark.parametrize(
    ("token_ids", "expected"),
    [
        ((), False),
        ((459,), False),
        ((459, 136), True),
        ((1, 459, 136, 2), True),
        ((459, 1, 136), False),
        ((136, 459), False),
        ((459, 459, 136), True),
    ],
)
def test_the_marker_is_found_as_a_run_only(token_ids: tuple[int, ...], expected: bool) -> None:
    assert contains(token_ids, MARKER) is expected
