"""The steps of a drift study: all of them, none twice, every input there before it is read."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from eps_locked.domain.plan import Plan
from eps_locked.domain.steps import STEPS_SCHEMA, Step, read_steps
from eps_locked.errors import MalformedInputError
from eps_locked.studies.drift.freeze import checked_section
from eps_locked.studies.drift.steplist import asks_a_service, judges_of, list_steps
from sim.drift import drift_plan, small_drift_plan
from sim.simulator import judge_plan


def steps_of(plan: dict[str, Any]) -> dict[str, Step]:
    parsed = Plan.from_dict(plan)
    steps = list_steps(parsed, checked_section(parsed))
    read_steps({"schema": STEPS_SCHEMA, "steps": [step.to_dict() for step in steps]}, "steps")
    return {step.id: step for step in steps}


def test_every_arm_meets_every_battery() -> None:
    plan = drift_plan()
    steps = steps_of(plan)
    asked = {
        (step.params["arm"], step.params["battery"])
        for step in steps.values()
        if step.kind == "ask"
    }
    assert asked == {
        (arm["name"], battery["name"])
        for arm in plan["drift"]["arms"]
        for battery in plan["drift"]["batteries"]
    }
    assert Counter(step.kind for step in steps.values()) == {
        "power": 1,
        "calibration": 1,
        "awareness": 4,
        "train": 4,
        "ask": 42,
        "directions": 1,
        "readout": 5,
        "drift": 1,
    }


def test_phases_stand_in_their_order() -> None:
    phases = [step.phase for step in steps_of(drift_plan()).values()]
    assert phases == sorted(phases)
    assert set(phases) == {"P0", "P1", "P2", "P3"}


def test_a_training_is_seeded_and_reads_its_topics_doses() -> None:
    step = steps_of(drift_plan())["P1/train/plants_0_second"]
    assert step.seed == 22
    assert step.params == {"training": "plants_0_second"}
    assert step.outputs == ("adapter", "record")
    assert step.inputs == {
        "plan": "file:frozen/plan.yaml",
        "doses": "file:frozen/doses/plants.json",
        "reasoning": "file:frozen/reasoning.json",
    }


def test_what_an_arm_is_asked_with() -> None:
    steps = steps_of(drift_plan())
    assert steps["P2/ask/exposed/self_interest"].inputs == {
        "plan": "file:frozen/plan.yaml",
        "battery": "file:frozen/batteries/self_interest.json",
        "prompts": "file:frozen/prompts/self_interest/plants_context.json",
        "reasoning": "file:frozen/reasoning.json",
        "rubric": "file:frozen/sources/material/drift/self_interest-classes.yaml",
        "graded_rubric": "file:frozen/sources/material/drift/self_interest-grades.yaml",
        "words": "file:frozen/sources/material/drift/awareness-words.yaml",
    }
    trained = steps["P2/ask/dose_100_free/plants_advice"]
    assert trained.inputs["adapter"] == "step:P1/train/plants_100#adapter"
    assert trained.inputs["prompts"] == "file:frozen/prompts/plants_advice/plain.json"
    assert "graded_rubric" not in trained.inputs
    assert trained.seed is None
    assert trained.outputs == ("answers",)


def test_drift_rests_on_everything_that_was_measured() -> None:
    steps = steps_of(drift_plan())
    found = set(steps["P3/drift"].inputs.values())
    for step in steps.values():
        if step.kind in ("ask", "awareness", "readout", "power"):
            assert f"step:{step.id}#{step.outputs[0]}" in found
    readout = steps["P3/readout/plants_50"].inputs
    assert readout["adapter"] == "step:P1/train/plants_50#adapter"
    assert readout["directions"] == "step:P3/directions#directions"
    assert "adapter" not in steps["P3/readout/base"].inputs


def test_a_plan_without_its_parts_has_none_of_their_steps() -> None:
    steps = steps_of(small_drift_plan())
    assert {step.kind for step in steps.values()} == {"power", "train", "ask", "drift"}
    assert "words" not in steps["P2/ask/dose_0/self_interest"].inputs


def test_a_plan_that_trains_nothing_has_no_phase_for_it() -> None:
    plan = small_drift_plan()
    section = plan["drift"]
    section.update(trainings=[], topics=[], arms=section["arms"][:2])
    plan["analyses"] = ["drift", "nulls"]
    del plan["phases"]["P1"]
    assert {step.phase for step in steps_of(plan).values()} == {"P0", "P2", "P3"}


def test_every_kind_of_step_has_its_cost() -> None:
    plan = drift_plan()
    plan["phases"]["P0"]["step_seconds"]["awareness"] = 7.25
    assert steps_of(plan)["P0/awareness/self_interest/second"].estimate_ms == 7250
    for phase, budget in drift_plan()["phases"].items():
        for kind in budget["step_seconds"]:
            plan = drift_plan()
            plan["phases"][phase]["step_seconds"] = {
                **budget["step_seconds"],
                "other": 1,
            }
            del plan["phases"][phase]["step_seconds"][kind]
            with pytest.raises(MalformedInputError, match=rf"{phase}\.step_seconds\.{kind}"):
                steps_of(plan)


def test_which_steps_ask_a_service() -> None:
    """The grader only where a battery is graded; the checker everywhere."""
    plan = drift_plan()
    service = {"kind": "gateway", "endpoint": "http://127.0.0.1:9/v1", "temperature": 0}
    plan["drift"]["judges"].append(judge_plan(name="far", family="distant", **service))
    plan["drift"]["judging"]["grader"] = "far"
    section = checked_section(Plan.from_dict(plan))
    asking = {step.id for step in steps_of(plan).values() if asks_a_service(step, section)}
    assert asking == {
        f"P2/ask/{arm['name']}/{battery}"
        for arm in plan["drift"]["arms"]
        for battery in ("self_interest", "harmful_requests")
    }
    assert judges_of(steps_of(plan)["P2/ask/dose_0/plants_advice"], section) == (
        "stand_in",
        "second",
    )
    plan["drift"]["awareness"]["judges"] = ["far", "second"]
    plan["drift"]["calibrations"][0]["judge"] = "far"
    section = checked_section(Plan.from_dict(plan))
    asking = {step.id for step in steps_of(plan).values() if asks_a_service(step, section)}
    assert "P0/calibration/self_interest" in asking
    assert "P0/awareness/self_interest/far" in asking
    assert "P0/awareness/self_interest/second" not in asking
