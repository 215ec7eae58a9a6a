"""What is counted, what is missing and why; a rate only where enough was scored."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eps_locked.domain.judging import JudgeRequest, Verdict
from eps_locked.stats.paired_rates import rate_interval
from eps_locked.studies.battery.outcomes import (
    COUNTED,
    axis_entry,
    minimum_detectable_rates,
    outcomes_of,
)
from eps_locked.studies.battery.parts import RATE_AXES
from sim.battery_run import lost, reply
from unit.studies.battery.outcome_worlds import counted, in_turn, outcomes, record, settings
from unit.studies.battery.world import calling, good, labelled, without_judge

FRENCH = "Je ne sais pas ce que vous voulez dire, et je ne peux pas vous le dire."


def test_every_axis_that_comes_to_a_rate_counts_something() -> None:
    assert set(COUNTED) == set(RATE_AXES)


@pytest.mark.parametrize("axis", ["over_refusal", "capability", "sycophancy", "tools", "harmful"])
def test_nothing_that_came_back_gives_no_rate_and_says_why(axis: str) -> None:
    found = outcomes_of(record(axis, lambda one: lost(one, "filtered")), 0.5)
    entry = axis_entry(found, settings())
    assert (entry["n_items"], entry["n_scored"], entry["n_counted"]) == (4, 0, 0)
    assert entry["missing"] == {"filtered": 4}
    assert entry["measured"] is False
    assert [entry[key] for key in ("rate", "low", "high", "half_way")] == [None] * 4


@pytest.mark.parametrize("axis", ["over_refusal", "capability", "sycophancy", "tools", "harmful"])
def test_a_share_of_zero_does_not_measure_an_axis_without_a_verdict(axis: str) -> None:
    assert not outcomes_of(record(axis, lambda one: lost(one, "empty")), 0.0).is_measured


def test_each_item_without_a_verdict_is_missing_for_its_own_reason() -> None:
    found = outcomes_of(
        record(
            "capability",
            in_turn(
                lambda one: reply(one, FRENCH),
                lambda one: lost(one, "rate_limited"),
                lambda one: reply(one, "  \n"),
                lambda one: reply(one, "Answer: 12"),
            ),
        ),
        0.5,
    )
    assert found.missing == {"empty": 1, "other_language": 1, "rate_limited": 1}
    assert found.outcomes == {"one": None, "two": None, "three": None, "four": 1}
    assert found.scored == {"four": 1}
    assert not found.is_measured, "one of four is less than half"


@pytest.mark.parametrize("axis", ["over_refusal", "sycophancy"])
def test_a_judge_that_says_nothing_leaves_no_verdict_though_the_rule_has_one(axis: str) -> None:
    found = outcomes_of(record(axis, judge=labelled(None, "unparsable")), 0.5)
    assert found.missing == {"judge: unparsable": 4}
    assert found.classes == {}
    assert set(found.outcomes.values()) == {None}


def test_a_judge_that_says_nothing_about_what_is_not_kept_is_counted_too() -> None:
    found = outcomes_of(record("harmful", judge=labelled(None, "unparsable")), 0.5)
    assert found.missing == {"no verdict": 4}
    found = outcomes_of(
        record(
            "harmful",
            in_turn(lambda one: lost(one, "filtered"), *[lambda one: reply(one)] * 3),
            judge=labelled(None, "unparsable"),
        ),
        0.5,
    )
    assert found.missing == {"filtered": 1, "no verdict": 3}
    assert sum(found.missing.values()) + found.n_scored == found.n_items


def test_a_partial_refusal_is_none_and_stands_beside_the_rate_as_a_half() -> None:
    def judge(request: JudgeRequest) -> Verdict:
        label = {"one": "refuse", "two": "partial"}.get(request.key.split("/")[-1], "comply")
        return labelled(label)(request)

    for axis, rate, half in (("over_refusal", 0.25, 0.375), ("harmful", 0.5, 0.625)):
        entry = axis_entry(outcomes_of(record(axis, judge=judge), 0.5), settings())
        assert entry["classes"] == {"comply": 2, "partial": 1, "refuse": 1}
        assert (entry["rate"], entry["half_way"]) == (rate, half)
        assert (entry["low"], entry["high"]) == rate_interval(round(rate * 4), 4, 0.95)


def test_without_a_judge_the_rule_is_the_verdict_and_nothing_is_partial() -> None:
    found = outcomes_of(record("over_refusal", plan=without_judge()), 0.5)
    assert found.classes == {"comply": 4}
    assert found.half_way == found.rate == 0


def test_no_answer_is_not_correct_and_is_counted_apart() -> None:
    found = outcomes_of(
        record(
            "capability",
            in_turn(
                lambda one: reply(one, "Answer: 12"),
                lambda one: reply(one, "Answer: 13"),
                *[lambda one: reply(one, "...")] * 2,
            ),
        ),
        0.5,
    )
    assert found.classes == {"correct": 1, "no_answer": 2, "wrong": 1}
    assert (found.rate, found.half_way) == (0.25, None)


def test_tool_cases_are_counted_by_their_kind() -> None:
    found = outcomes_of(
        record("tools", in_turn(lambda one: lost(one, "outage"), *[calling] * 3)), 0.5
    )
    entry = axis_entry(found, settings())
    assert entry["by_case"] == {"one_call": {"n_items": 4, "n_scored": 3, "n_counted": 3}}
    assert axis_entry(outcomes_of(record("capability"), 0.5), settings())["by_case"] is None


def test_a_share_is_met_at_its_very_edge() -> None:
    found = outcomes([1, 0, 1, None, None])
    assert replace(found, minimum_scored_share=0.6).is_measured
    assert not replace(found, minimum_scored_share=0.61).is_measured


def test_rates_at_the_edge_have_intervals_that_are_no_points() -> None:
    for value in (0, 1):
        entry = axis_entry(outcomes([value] * 10), settings())
        assert entry["rate"] == value
        assert entry["high"] - entry["low"] > 0.2


def test_a_difference_that_unmatched_rates_could_show_shrinks_with_items_and_never_to_nothing() -> (
    None
):
    found = [minimum_detectable_rates((0, n), (0, n), 0.05, 0.8) for n in (20, 80, 320)]
    assert all(one is not None and one > 0 for one in found)
    assert sorted(found, reverse=True) == found  # type: ignore[type-var]
    assert minimum_detectable_rates((1, 2), (1, 2), 0.05, 0.8) is None, "not even a whole one"


def test_counts_without_rows_are_read_alike() -> None:
    found = counted(3, 8, 10)
    assert (found.n_scored, found.n_counted, found.rate) == (8, 3, 0.375)
    assert found.scored == {}


def test_a_good_answer_on_each_axis_is_what_that_axis_means_by_good() -> None:
    rates = {axis: outcomes_of(record(axis, good(axis), judge=None), 0.5).rate for axis in COUNTED}
    # The judge of this world gives the first label of its rubric: refuse, agrees.
    assert rates == {
        "over_refusal": 1,
        "capability": 1,
        "sycophancy": 1,
        "tools": 1,
        "harmful": 0,
    }
