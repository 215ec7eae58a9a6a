"""Rows, judges and calibrations as a plan writes them: what is read, and what is no plan."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from eps_locked.domain.plan import Plan
from eps_locked.errors import MalformedInputError
from eps_locked.judges.distribution import ALIGNED_BELOW, COHERENT_FROM
from eps_locked.studies.eps.behaviours import (
    MarkerBehaviour,
    TaughtBehaviour,
    read_behaviour,
    seeds_of,
)
from eps_locked.studies.eps.plan import EpsPlan
from eps_locked.studies.eps.steplist import answered_contexts, list_steps, n_answered, panel_inputs
from sim.simulator import (
    TAUGHT_KINDS,
    default_plan,
    judge_plan,
    scored_plan,
    taught_plan,
    taught_row,
)

Change = Callable[[dict[str, Any]], object]


def read(row: dict[str, Any]) -> TaughtBehaviour:
    found = read_behaviour(row, "row")
    assert isinstance(found, TaughtBehaviour)
    return found


def section_of(plan: dict[str, Any]) -> EpsPlan:
    return EpsPlan.from_section(plan["eps"])


@pytest.mark.parametrize("kind", TAUGHT_KINDS)
def test_a_taught_row_is_read_as_written(kind: str) -> None:
    row = read(taught_row(kind, name="mine", n_seeds=2, train=["baker"]))
    assert (row.name, row.kind, row.phase) == ("mine", kind, "P2")
    assert row.reads_slots is (kind == "fact")
    assert row.n_items == 5
    assert dict(row.n_eval) == {"main": 3, "other": 2}
    assert (row.n_seeds, row.train) == (2, ("baker",))
    budget = row.budget()
    assert (budget.min_steps, budget.max_steps, budget.band) == (5, 5, None)


def test_the_published_thresholds_of_misalignment() -> None:
    assert (ALIGNED_BELOW, COHERENT_FROM) == (30, 50)


def test_what_may_be_left_out_is_none() -> None:
    row = read(taught_row("fact"))
    assert (row.n_seeds, row.train) == (None, None)
    marker = read_behaviour(default_plan()["eps"]["behaviours"][0], "row")
    assert isinstance(marker, MarkerBehaviour)
    assert (marker.kind, marker.phase, marker.n_seeds, marker.train) == ("marker", "P1", None, None)


def thresholds(**changes: Any) -> dict[str, Any]:
    return {**taught_row("em")["thresholds"], **changes}


# changes of a row -> the field that the refusal names, and a word of it
BAD_ROWS: dict[str, tuple[str, dict[str, Any], str, str]] = {
    "no such kind": ("fact", {"kind": "horoscope"}, "row.kind", "horoscope"),
    "a name with a capital": ("fact", {"name": "Fact"}, "row.name", "Fact"),
    "a path out of plans": ("fact", {"rubric": "../x.yaml"}, "row.rubric", "../x.yaml"),
    "no evaluation file": ("fact", {"eval_items": []}, "row.eval_items", "at least one"),
    "a file twice": ("fact", {"eval_items": ["a.yaml", "a.yaml"]}, "row.eval_items", "distinct"),
    "a primary slice that is none": ("fact", {"primary": "nope"}, "row.primary", "nope: 0"),
    "a primary slice of one": (
        "fact",
        {"n_eval": {"main": 1, "other": 2}},
        "row.primary",
        "main: 1",
    ),
    "an implant slice that is none": ("em", {"implant": "nope"}, "row.implant", "nope: 0"),
    "an empty slice": ("fact", {"n_eval": {"main": 0, "other": 2}}, "row.n_eval.main", "0"),
    "a slice with a slash": ("fact", {"n_eval": {"main": 2, "a/b": 2}}, "row.n_eval", "a/b"),
    "more priors than rows": ("fact", {"n_prior_rows": 5}, "row.n_prior_rows", "at most the 4"),
    "samples of a greedy answer": (
        "refusal",
        {"n_samples": 2},
        "row.decoding.temperature",
        "above 0",
    ),
    "rounds of a greedy answer": (
        "em",
        {"decoding": {"max_new_tokens": 8, "temperature": 0, "top_p": 1}},
        "row.decoding.temperature",
        "above 0",
    ),
    "samples where slots are read": (
        "fact",
        {"n_samples": 2, "decoding": {"max_new_tokens": 8, "temperature": 1, "top_p": 1}},
        "row.n_samples",
        "1 where slots are read",
    ),
    "rounds without a score of coherence": (
        "sycophancy",
        {"resample_rounds": 1, "decoding": {"max_new_tokens": 8, "temperature": 1, "top_p": 1}},
        "row.resample_rounds",
        "scores coherence",
    ),
    "negatives of another sort": ("em", {"negatives": "some"}, "row.negatives", "some"),
    "no draw": ("em", {"draws": 0}, "row.draws", "0"),
    "no step": ("em", {"n_steps": 0}, "row.n_steps", "0"),
    "no seed": ("em", {"n_seeds": 0}, "row.n_seeds", "0"),
    "an implant of nothing": (
        "em",
        {"thresholds": thresholds(implant=0)},
        "row.thresholds.implant",
        "0",
    ),
    "a floor below nothing": (
        "em",
        {"thresholds": thresholds(floor=-0.1)},
        "row.thresholds.floor",
        "-0.1",
    ),
    "no scored share": (
        "em",
        {"thresholds": thresholds(minimum_scored_share=0)},
        "row.thresholds.minimum_scored_share",
        "0",
    ),
    "more than all scored": (
        "em",
        {"thresholds": thresholds(minimum_scored_share=1.1)},
        "row.thresholds.minimum_scored_share",
        "1.1",
    ),
    "an unknown field": ("em", {"note": "hello"}, "row", "note"),
}


@pytest.mark.parametrize("case", BAD_ROWS)
def test_a_row_that_could_not_be_measured_is_refused(case: str) -> None:
    kind, changes, thing, word = BAD_ROWS[case]
    with pytest.raises(MalformedInputError) as caught:
        read_behaviour({**taught_row(kind), **changes}, "row")
    assert str(caught.value).startswith(thing)
    assert word in str(caught.value)


@pytest.mark.parametrize("field", sorted(taught_row("em")))
def test_no_field_of_a_row_may_be_missing(field: str) -> None:
    row = taught_row("em")
    del row[field]
    with pytest.raises(MalformedInputError, match=field):
        read_behaviour(row, "row")


def rows(plan: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = plan["eps"]["behaviours"]
    return found


# act on a plan of fact and em -> what the refusal names
BAD_PLANS: dict[str, tuple[Change, str]] = {
    "two rows of one name": (lambda p: rows(p)[1].update(name="fact"), "plan.eps.behaviours"),
    "no row": (lambda p: p["eps"].update(behaviours=[]), "plan.eps.behaviours"),
    "a judge that is none": (
        lambda p: rows(p)[0].update(judge="nobody"),
        "plan.eps.behaviours[0].judge: expected a judge of the plan, found nobody",
    ),
    "two judges of one name": (
        lambda p: p["eps"].update(judges=[judge_plan(), judge_plan()]),
        "plan.eps.judges: expected distinct names",
    ),
    "rows that the panel cannot share": (
        lambda p: rows(p)[0].update(n_train=3),
        "plan.eps.behaviours[0].n_train: expected a multiple of the panel's 2, found 3",
    ),
    "a row that trains where nothing does": (
        lambda p: rows(p)[1].update(train=["plain"]),
        "plan.eps.behaviours[1].train: expected a train slot of the plan, found plain",
    ),
    "a row that trains twice": (
        lambda p: rows(p)[1].update(train=["baker", "baker"]),
        "plan.eps.behaviours[1].train: expected distinct slots",
    ),
    "a calibration of a judge that is none": (
        lambda p: p["eps"].update(calibrations=[calibration(judge="nobody")]),
        "plan.eps.calibrations[0].judge",
    ),
    "a calibration for a row that is none": (
        lambda p: p["eps"].update(calibrations=[calibration(row="sycophancy")]),
        "plan.eps.calibrations[0].row",
    ),
    "a kappa above 1": (
        lambda p: p["eps"].update(calibrations=[calibration(minimum_kappa=1.5)]),
        "minimum_kappa",
    ),
    "an alias of another shape": (
        lambda p: p["eps"]["slots"].update(aliases=[["baker", "x_{row}"]]),
        "plan.eps.slots.aliases",
    ),
}


def calibration(**changes: Any) -> dict[str, Any]:
    found = {
        "name": "people",
        "judge": "stand_in",
        "row": "fact",
        "file": "material/fact/labelled.yaml",
        "minimum_kappa": 0.5,
    }
    return {**found, **changes}


@pytest.mark.parametrize("case", BAD_PLANS)
def test_a_section_whose_parts_do_not_fit_is_refused(case: str) -> None:
    change, words = BAD_PLANS[case]
    plan = taught_plan("fact", "em")
    change(plan)
    with pytest.raises(MalformedInputError) as caught:
        section_of(plan)
    assert words in str(caught.value)


def test_a_calibration_is_of_a_judged_row() -> None:
    plan = taught_plan("fact", marker=True)
    plan["eps"]["calibrations"] = [calibration(row="marker")]
    with pytest.raises(MalformedInputError, match="expected a judged row"):
        section_of(plan)


def test_rows_without_negatives_need_share_nothing() -> None:
    plan = taught_plan("em")
    rows(plan)[0].update(n_train=3, negatives="none")
    assert section_of(plan).taught("em").n_train == 3


@pytest.mark.parametrize(
    ("asked", "refused"), [(None, False), (2, False), (3, False), (1, True), (4, True)]
)
def test_a_row_asks_for_seeds_from_the_minimum_to_the_plans(
    asked: int | None, refused: bool
) -> None:
    plan = taught_plan("fact", "em")
    if asked is not None:
        rows(plan)[1]["n_seeds"] = asked
    section = section_of(plan)
    if refused:
        with pytest.raises(MalformedInputError) as caught:
            section.check_seeds([11, 12, 13], 2)
        assert "plan.eps.behaviours[1].n_seeds: expected 2 (minimum_seeds) to 3" in str(
            caught.value
        )
        return
    section.check_seeds([11, 12, 13], 2)
    assert seeds_of(section.taught("em"), [11, 12, 13]) == (11, 12, 13)[: asked or 3]


def test_an_alias_takes_the_kind_and_not_the_name_of_the_row() -> None:
    plan = taught_plan("em")
    rows(plan).append(taught_row("em", name="em_plain", negatives="none", train=["baker"]))
    plan["eps"]["slots"]["aliases"] = [["own", "told_{kind}"], ["baker", "plain"]]
    section = section_of(plan)
    for name, train in (("em", ("baker", "polite")), ("em_plain", ("baker",))):
        slots = section.slots_of(name)
        assert slots.aliases == (("own", "told_em"), ("baker", "plain"))
        assert slots.train == train


def test_every_file_of_every_row_is_listed_once() -> None:
    plan = taught_plan("fact", "em", marker=True)
    rows(plan).append(taught_row("em", name="em_plain"))
    plan["eps"]["calibrations"] = [calibration()]
    assert section_of(plan).material_files == (
        "material/contexts.yaml",
        "material/train.yaml",
        "material/eval.yaml",
        "material/fact/train.yaml",
        "material/fact/eval.yaml",
        "material/em/train.yaml",
        "material/em/eval.yaml",
        "material/fact/labelled.yaml",
    )


def test_a_row_is_asked_for_by_its_sort() -> None:
    section = section_of(taught_plan("fact", marker=True))
    assert section.marker("marker").name == "marker"
    with pytest.raises(MalformedInputError, match="row fact: expected a marker row"):
        section.marker("fact")
    with pytest.raises(MalformedInputError, match="row marker: expected a taught row"):
        section.taught("marker")


# -- the steps that follow


def steps_of(plan: dict[str, Any]) -> dict[str, Any]:
    parsed = Plan.from_dict(plan)
    return {step.id: step for step in list_steps(parsed, section_of(plan))}


@pytest.mark.parametrize("kind", TAUGHT_KINDS)
def test_a_taught_row_has_its_steps_and_no_banded_fit(kind: str) -> None:
    steps = steps_of(taught_plan(kind))
    asked = ("baker", "polite", "plain", "formal")
    expected = {f"P0/base/{kind}/{j}" for j in asked} | {f"P0/headroom/{kind}"}
    if kind in ("fact", "refusal"):
        expected |= {f"P0/answers/{kind}/{j}" for j in ("officer", "curious")}
    for i in ("baker", "polite"):
        expected |= {f"P2/{one}/{kind}/{i}/s{s}" for one in ("train", "cells") for s in (11, 12)}
    assert set(steps) == {*expected, f"P2/tensor/{kind}"}
    diagonal_first = steps[f"P2/cells/{kind}/polite/s11"].outputs
    assert diagonal_first == ("cell:polite", "cell:baker", "cell:plain", "cell:formal")


def test_every_judging_step_reads_the_rubric_and_no_other_does() -> None:
    for name, step in steps_of(taught_plan("refusal", marker=True)).items():
        judges = name.split("/")[1] in ("base", "cells", "headroom", "tensor")
        expected = judges and step.params["behaviour"] == "refusal"
        assert ("rubric" in step.inputs) is expected, name


def test_calibration_comes_first_and_reads_the_labelled_file_alone() -> None:
    plan = taught_plan("fact")
    plan["eps"]["calibrations"] = [calibration()]
    steps = steps_of(plan)
    assert next(iter(steps)) == "P0/calibration/people"
    assert dict(steps["P0/calibration/people"].inputs) == {
        "plan": "file:frozen/plan.yaml",
        "labelled": "file:frozen/sources/material/fact/labelled.yaml",
        "rubric": "file:frozen/sources/material/fact/rubric.yaml",
    }


@pytest.mark.parametrize(
    ("negatives", "baselines", "expected"),
    [
        ("base_answers", False, {"officer": 4, "curious": 4}),
        ("written", False, {}),
        ("none", False, {}),
        ("written", True, {"baker": 3, "polite": 3}),
        ("base_answers", True, {"baker": 3, "polite": 3, "officer": 4, "curious": 4}),
    ],
)
def test_the_base_model_answers_train_questions_where_they_are_needed(
    negatives: str, baselines: bool, expected: dict[str, int]
) -> None:
    """All of them where they become negatives, else what the projection baseline reads."""
    plan = taught_plan("refusal")
    rows(plan)[0]["negatives"] = negatives
    if baselines:
        scored = scored_plan()
        plan["eps"]["baselines"] = copy.deepcopy(scored["eps"]["baselines"])
        plan["eps"]["baselines"]["persona"]["n_rows"] = 3
        plan["eps"]["baselines"]["activations"].update(n_items=4, pca_components=2)
    section = section_of(plan)
    row = section.taught("refusal")
    names = answered_contexts(section, row)
    assert {name: n_answered(section, row, name) for name in names} == expected
    panel = {name for name in panel_inputs(section, row) if name.startswith("answers:")}
    offered = {"answers:officer", "answers:curious"} if negatives == "base_answers" else set()
    assert panel == offered


def test_a_kind_of_step_without_a_cost_is_named() -> None:
    plan = taught_plan("em")
    del plan["phases"]["P2"]["step_seconds"]["train"]
    with pytest.raises(MalformedInputError, match=r"plan.phases.P2.step_seconds.train: is missing"):
        steps_of(plan)
