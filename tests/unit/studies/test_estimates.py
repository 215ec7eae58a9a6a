"""A cell's numbers where answers are cut: hand-computed, counted, and never 0 for nothing."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.stats

from eps_locked.domain.model import SlotReading
from eps_locked.errors import BackendError, EvidenceError
from eps_locked.studies.eps.analysis import implant_failed
from eps_locked.studies.eps.derive import strength_answers
from eps_locked.studies.eps.estimates import (
    Pair,
    changes,
    mean_change,
    pair_answers,
    row_estimates,
)
from eps_locked.studies.eps.plan import EpsPlan
from eps_locked.studies.eps.readings import Answer, mean_log_prob
from sim.simulator import StudySimulator, default_plan

PLACE = ("a", "x")
BEHAVIOUR = EpsPlan.from_section(default_plan()["eps"]).behaviours[0]


def reading(log_prob: float, end_of_turn: float = 0.0) -> SlotReading:
    return SlotReading(
        log_prob=log_prob,
        marker_logits=(log_prob + 30,),
        log_z=(30.0,),
        end_of_turn_logit=end_of_turn,
    )


def answer(
    log_prob: float,
    *,
    item: str = "q",
    cut: bool = False,
    emitted: bool = False,
    frozen: float | None = None,
) -> Answer:
    return Answer(
        item=item,
        token_ids=(1, 2),
        text="",
        stop_reason="length" if cut else "stop",
        marker_emitted=emitted,
        slot_index=2,
        own=reading(log_prob),
        frozen=None if frozen is None else reading(frozen),
    )


def answers(*rows: tuple[float, bool], frozen: Sequence[float] = ()) -> list[Answer]:
    """(log-prob, whether cut) in the order of items q0, q1, ..."""
    second = frozen or [None] * len(rows)
    return [
        answer(value, item=f"q{n}", cut=cut, frozen=other)
        for n, ((value, cut), other) in enumerate(zip(rows, second, strict=True))
    ]


BASE = answers((-20, False), (-18, False), (-10, True), (-16, False))
ONE = answers((-14, False), (-15, False), (-9, False), (-15, False), frozen=(-15, -16, -9, -13))
TWO = answers((-16, True), (-12, False), (-8, False), (-14, False), frozen=(-13, -14, -8, -15))


def pairs() -> list[tuple[Pair, ...]]:
    return [pair_answers(BASE, trained, "a cell") for trained in (ONE, TWO)]


def test_the_example_computed_by_hand() -> None:
    own = changes(pairs(), "own")
    nan = math.nan
    np.testing.assert_array_equal(own, [[6, 3, nan, 1], [nan, 6, nan, 2]])
    # The second reading follows the base's answer, so the trained model's own length is no matter.
    np.testing.assert_array_equal(changes(pairs(), "frozen"), [[5, 2, nan, 3], [7, 4, nan, 1]])
    assert mean_change(own, 0.5) == ((6 + 3 + 1) / 3 + (6 + 2) / 2) / 2
    assert mean_change(own[:1], 0.5) == (6 + 3 + 1) / 3
    assert mean_change(own[1:], 0.5) == (6 + 2) / 2


def test_a_seed_with_too_few_readings_takes_the_cells_value_away() -> None:
    own = changes(pairs(), "own")
    assert mean_change(own, 0.75) is None  # the second seed has two of four
    assert mean_change(own[:1], 0.75) is not None
    assert row_estimates({PLACE: own}, 0.75, 0.95) == {}
    assert PLACE in row_estimates({PLACE: own}, 0.5, 0.95)


def test_one_reading_is_never_enough_and_none_is_not_zero() -> None:
    row = np.asarray([[1.0, np.nan, np.nan, np.nan]])
    assert mean_change(row, 0.01) is None
    assert mean_change(np.full((1, 4), np.nan), 0.01) is None
    assert row_estimates({PLACE: np.full((2, 4), np.nan)}, 0.01, 0.95) == {}
    assert mean_change(np.asarray([[1.0, 2.0, np.nan]]), 0.01) == 1.5


def test_which_answers_have_a_slot() -> None:
    assert answer(-1).has_slot
    assert answer(-1, emitted=True).has_slot
    assert answer(-1, cut=True, emitted=True).has_slot
    assert not answer(-1, cut=True).has_slot
    whole, cut = answer(-1, frozen=-2), answer(-1, cut=True, frozen=-2)
    assert Pair(base=whole, trained=whole).has_slots("own")
    assert not Pair(base=whole, trained=cut).has_slots("own")
    assert Pair(base=whole, trained=cut).has_slots("frozen")
    assert not Pair(base=cut, trained=whole).has_slots("frozen")


def test_pairs_are_refused_unless_the_items_are_the_same() -> None:
    for trained in (BASE[:-1], BASE[::-1]):
        with pytest.raises(EvidenceError, match="the base's items in order"):
            pair_answers(BASE, trained, "a cell")


def test_a_second_reading_that_is_not_there_is_an_error_and_no_gap() -> None:
    pair = Pair(base=answer(-2), trained=answer(-1))
    with pytest.raises(EvidenceError, match="a second reading"):
        pair.log_prob_change("frozen")


def test_the_margins_change_is_free_of_log_z() -> None:
    before = Pair(base=answer(-20), trained=answer(-14))
    shifted = replace(
        before.trained, own=replace(before.trained.own, end_of_turn_logit=4.0, log_z=(99.0,))
    )
    assert before.margin_change() == 6
    assert Pair(base=before.base, trained=shifted).margin_change() == 2


@pytest.mark.parametrize("seed", range(12))
def test_the_interval_is_centred_on_the_value(seed: int) -> None:
    rng = np.random.default_rng(seed)
    row = {}
    for place in (("a", "x"), ("a", "y"), ("b", "x"), ("b", "y")):
        values = rng.normal(2, 1, size=(1 + seed % 3, 12))
        values[rng.random(values.shape) < seed / 24] = np.nan
        row[place] = values
    found = row_estimates(row, 0.2, 0.95)
    for place, values in row.items():
        value = mean_change(values, 0.2)
        assert (value is None) == (place not in found)
        if value is not None:
            one = found[place]
            assert one.value == pytest.approx(value)
            assert (one.low + one.high) / 2 == pytest.approx(value)
            assert one.low < value < one.high


def test_one_seed_gives_the_t_interval_of_the_textbook() -> None:
    values = np.asarray([[3.0, 5.0, np.nan, 7.0]])
    found = row_estimates({PLACE: values}, 0.5, 0.95)[PLACE]
    expected = scipy.stats.ttest_1samp([3.0, 5.0, 7.0], 0).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
    assert found.degrees_of_freedom == 2


def test_cells_of_one_row_share_what_is_known_of_the_seeds() -> None:
    """Two seeds that agree by chance in one cell do not make its interval narrow."""
    rng = np.random.default_rng(3)
    row = {(f"t{n}", "x"): rng.normal(size=(2, 20)) + rng.normal(size=(2, 1)) for n in range(8)}
    agreeing = row["t0", "x"]
    agreeing += agreeing.mean() - agreeing.mean(axis=1, keepdims=True)
    together = row_estimates(row, 0.5, 0.95)["t0", "x"]
    alone = row_estimates({("t0", "x"): agreeing}, 0.5, 0.95)["t0", "x"]
    assert together.standard_error > 2 * alone.standard_error


def test_an_implant_that_cannot_be_shown_has_failed() -> None:
    one = pair_answers(BASE, ONE, "a cell")
    assert not implant_failed(one, BEHAVIOUR, 0.5)  # 10 / 3 against 3
    assert implant_failed(one, replace(BEHAVIOUR, implant_threshold=3.5), 0.5)
    assert implant_failed(one, BEHAVIOUR, 0.9)  # three of four questions are too few


def test_strength_is_read_at_the_first_answers_that_have_a_slot() -> None:
    rows = answers((-9, True), (-1, False), (-9, True), (-2, False), (-3, False))
    for wanted, items in ((1, ["q1"]), (2, ["q1", "q3"]), (9, ["q1", "q3", "q4"])):
        found = strength_answers(rows, replace(BEHAVIOUR, n_strength_items=wanted))
        assert [one.item for one in found] == items


def test_a_headroom_leaves_cut_answers_out_and_refuses_nothing_but_those() -> None:
    assert mean_log_prob(answers((-9, True), (-1, False), (-2, False)), "base") == -1.5
    with pytest.raises(BackendError, match="max_new_tokens") as caught:
        mean_log_prob(answers((-9, True), (-8, True)), "base in plain")
    assert "base in plain" in str(caught.value)
    assert "2 cut at the length limit" in str(caught.value)


def test_a_limit_that_cuts_every_answer_ends_p0_and_is_recorded(study: StudySimulator) -> None:
    study.plan["eps"]["decoding"]["max_new_tokens"] = 12
    study.freeze()
    study.authorize("P0")
    with pytest.raises(BackendError, match="max_new_tokens in a new plan"):
        study.run("P0")
    audited = study.audit()
    assert {number for number, _ in audited.failures()} == {11}
    assert audited.history is not None
    assert [body.step for body in audited.history.aborted] == ["P0/headroom/marker"]


@pytest.fixture
def tensor(study: StudySimulator) -> dict[str, Any]:
    """Of a whole run in which about a quarter of the answers are cut, audited."""
    study.eval_questions += [f"What is number {number} about?" for number in range(12)]
    section = study.plan["eps"]
    section["items"]["n_eval"] = 16
    section["decoding"]["max_new_tokens"] = 43
    section["flags"]["minimum_answered_share"] = 0.9
    study.run_all()
    audited = study.audit()
    assert list(audited.failures()) == []
    found: dict[str, Any] = json.loads(
        audited.artifact("P1/tensor/marker", "tensor")["tensor.json"]
    )
    return found


def test_a_whole_run_with_cut_answers_passes_its_audit_and_counts_them(
    tensor: dict[str, Any],
) -> None:
    cells = tensor["cells"]
    assert all(cell["n"] + cell["n_truncated"] == 2 * 16 for cell in cells)
    assert any(cell["n_truncated"] for cell in cells)
    assert {"unscored" in cell["flags"] for cell in cells} == {True, False}
    for cell in cells:
        without = "unscored" in cell["flags"]
        assert {cell[key] is None for key in ("g", "low", "high")} == {without}
        ends = {cell[key] is None for key in ("low_base_answer", "high_base_answer")}
        assert ends == {cell["g_base_answer"] is None}
        assert not (without and cell["scored"])
        assert not (without and {"floor", "ceiling", "divergence"} & set(cell["flags"]))
        seeds = [one["g"] for one in cell["by_seed"]]
        assert (None in seeds) == (cell["g"] is None)
        assert cell["base_log_prob"] < 0


def test_resolution_speaks_of_the_cells_that_were_read_in_full(tensor: dict[str, Any]) -> None:
    n_complete = sum(cell["n_truncated"] == 0 for cell in tensor["cells"])
    assert n_complete < len(tensor["cells"])
    if n_complete == 0:
        assert tensor["resolution"] is None
    else:
        assert tensor["resolution"]["n_cells"] == n_complete
