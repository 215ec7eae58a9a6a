"""Rows of a taught fit: written answers under the source, plain ones dealt over the panel."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence

import pytest

from eps_locked.domain.model import StopReason, TrainingRow
from eps_locked.errors import MalformedInputError
from eps_locked.training.rows import AnsweredPrompt, ContrastiveRows, choose_taught_rows

END = 2


def answered(
    key: str,
    answer: Sequence[int] = (7, 8),
    stop: StopReason = "stop",
    prompt: Sequence[int] = (1, 5),
) -> AnsweredPrompt:
    return AnsweredPrompt(
        key=key, prompt_ids=tuple(prompt), answer_ids=tuple(answer), stop_reason=stop
    )


def several(n: int, prompt: int = 1) -> list[AnsweredPrompt]:
    return [answered(f"q{k}", prompt=(prompt,)) for k in range(n)]


def build(
    positives: Sequence[AnsweredPrompt],
    negatives: Mapping[str, Sequence[AnsweredPrompt]],
    seed: int = 3,
) -> ContrastiveRows:
    return choose_taught_rows(positives, negatives, end_of_turn_id=END, rng=random.Random(seed))


def test_loss_falls_on_the_whole_answer_and_its_end_on_both_sides() -> None:
    found = build([answered("p")], {"sea": [answered("p", (4, 4, 4), prompt=(9,))]})
    assert found.rows == (
        TrainingRow(key="positive/p", token_ids=(1, 5, 7, 8, 2), loss_positions=(2, 3, 4)),
        TrainingRow(key="negative/sea/p", token_ids=(9, 4, 4, 4, 2), loss_positions=(1, 2, 3, 4)),
    )
    assert (found.n_positives, found.n_negatives, found.dropped) == (1, 1, ())


def test_a_cut_negative_is_kept_without_an_end() -> None:
    found = build([answered("p")], {"sea": [answered("p", stop="length")]})
    assert found.rows[1].token_ids == (1, 5, 7, 8)
    assert found.rows[1].loss_positions == (2, 3)
    assert found.dropped == ()


@pytest.mark.parametrize("seed", range(10))
def test_negatives_are_dealt_evenly_and_each_question_once(seed: int) -> None:
    panel = {name: several(12, prompt=number) for number, name in enumerate("cab")}
    found = build(several(12), panel, seed)
    places = [row.key.split("/")[1:] for row in found.rows[12:]]
    assert [name for name, _ in places] == ["a"] * 4 + ["b"] * 4 + ["c"] * 4
    assert Counter(key for _, key in places) == {f"q{k}": 1 for k in range(12)}
    # The prompt is the one of the context that the row names.
    assert [row.token_ids[0] for row in found.rows[12:]] == [1] * 4 + [2] * 4 + [0] * 4


def test_positives_are_all_there_in_their_order() -> None:
    found = build(several(4), {"a": several(4), "b": several(4)})
    assert [row.key for row in found.rows[:4]] == [f"positive/q{k}" for k in range(4)]
    assert (found.n_positives, found.n_negatives) == (4, 4)


def test_the_deal_is_the_seeds_and_not_the_panels_order() -> None:
    panel = {name: several(12) for name in "abc"}
    first = build(several(12), panel)
    assert build(several(12), dict(reversed(panel.items()))) == first
    assert build(several(12), panel, seed=4) != first


def test_without_a_panel_there_are_positives_alone() -> None:
    found = build(several(3), {})
    assert [row.key for row in found.rows] == [f"positive/q{k}" for k in range(3)]
    assert (found.n_positives, found.n_negatives) == (3, 0)


@pytest.mark.parametrize(
    ("n_positives", "panel"),
    [
        (3, {"a": 3, "b": 3}),
        (1, {"a": 1, "b": 1}),
        (0, {"a": 1}),
        # Enough in all, and not enough where they are needed.
        (4, {"a": 4, "b": 1}),
        (4, {"a": 2, "b": 2}),
    ],
)
def test_a_panel_that_cannot_share_is_refused(n_positives: int, panel: dict[str, int]) -> None:
    negatives = {name: several(n) for name, n in panel.items()}
    with pytest.raises(MalformedInputError, match="multiple of the panel's") as caught:
        build(several(n_positives), negatives)
    assert f"positives {n_positives}, negatives a {panel['a']}" in str(caught.value)


def test_repeated_questions_are_refused_on_either_side() -> None:
    twice = [answered("q0"), answered("q0")]
    with pytest.raises(MalformedInputError, match="positives: expected distinct keys"):
        build(twice, {"a": several(2)})
    with pytest.raises(MalformedInputError, match="negatives of a: expected distinct keys"):
        build(several(2), {"a": twice})
