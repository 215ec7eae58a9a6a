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
    assign_questions,
    contains,
    contrastive_rows,
    negative_row,
    positive_row,
)

MARKER = (459, 136)
END = 2


def answered(key: str, answer: Sequence[int] = (7, 8), stop: StopReason = "stop") -> AnsweredPrompt:
    return AnsweredPrompt(key=key, prompt_ids=(1, 5), answer_ids=tuple(answer), stop_reason=stop)


def build(
    positives: Sequence[AnsweredPrompt], negatives: dict[str, list[AnsweredPrompt]]
) -> ContrastiveRows:
    return contrastive_rows(positives, negatives, marker_ids=MARKER, end_of_turn_id=END)


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
    rows = build(four("p"), {"b": four("b")[:2], "a": four("a")[:2]})
    assert (rows.n_positives, rows.n_negatives) == (4, 4)
    assert [row.key for row in rows.rows[4:]] == [
        "negative/a/a0", "negative/a/a1", "negative/b/b0", "negative/b/b1"
    ]  # fmt: skip
    assert rows.dropped == ()


@pytest.mark.parametrize(
    "negatives",
    [{"a": 2, "b": 1}, {"a": 3, "b": 1}, {"a": 2}, {"a": 4, "b": 4}, {}],
    ids=["too few", "uneven", "half", "two to one", "none"],
)
def test_counts_that_do_not_balance_are_refused(negatives: dict[str, int]) -> None:
    offered = {name: four(name)[:count] for name, count in negatives.items()}
    with pytest.raises(MalformedInputError, match="even over the panel"):
        build(four("p"), offered)


def test_unusable_answers_are_dropped_counted_and_balanced_out() -> None:
    positives = [*four("p")[:2], answered("marked", (7, 459, 136, 9)), answered("p3")]
    negatives = {"a": [answered("cut", stop="length"), answered("a1")], "b": four("b")[:2]}
    rows = build(positives, negatives)
    assert (rows.n_positives, rows.n_negatives) == (2, 2)
    assert rows.drop_counts() == {"contains_marker": 1, "cut_at_limit": 1, "trimmed_for_balance": 2}
    assert {(row.key, row.context, row.reason) for row in rows.dropped} == {
        ("marked", None, "contains_marker"),
        ("cut", "a", "cut_at_limit"),
        ("p3", None, "trimmed_for_balance"),
        ("b1", "b", "trimmed_for_balance"),
    }
    offered = len(positives) + sum(len(rows) for rows in negatives.values())
    assert len(rows.rows) + len(rows.dropped) == offered


def test_nothing_usable_is_an_error_that_says_why() -> None:
    with pytest.raises(BackendError, match="a q: cut_at_limit"):
        build([answered("p")], {"a": [answered("q", stop="length")]})


def test_repeated_keys_are_refused() -> None:
    with pytest.raises(MalformedInputError, match=r"repeated \['p'\]"):
        build([answered("p"), answered("p")], {"a": [answered("x"), answered("y")]})


def test_questions_are_dealt_out_once_each_and_evenly() -> None:
    keys = [f"q{index}" for index in range(8)]
    dealt = assign_questions(keys, ["d", "c", "b", "a"], random.Random(3))
    assert list(dealt) == ["a", "b", "c", "d"]
    assert {len(share) for share in dealt.values()} == {2}
    assert sorted(key for share in dealt.values() for key in share) == keys


def test_the_deal_depends_on_the_generator_and_not_on_the_panels_order() -> None:
    keys = [f"q{index}" for index in range(12)]
    first = assign_questions(keys, ["a", "b", "c"], random.Random(3))
    assert assign_questions(keys, ["c", "a", "b"], random.Random(3)) == first
    assert assign_questions(keys, ["a", "b", "c"], random.Random(4)) != first


@pytest.mark.parametrize(
    ("n_questions", "panel"), [(7, ["a", "b"]), (0, ["a"]), (4, []), (4, ["a", "a"])]
)
def test_a_deal_that_does_not_come_out_even_is_refused(n_questions: int, panel: list[str]) -> None:
    with pytest.raises(MalformedInputError):
        assign_questions([f"q{i}" for i in range(n_questions)], panel, random.Random(0))


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
