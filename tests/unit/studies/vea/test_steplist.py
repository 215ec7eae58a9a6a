"""The steps of a vea study: all of them, none twice, every input there before it is read."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from eps_locked.domain.plan import Plan
from eps_locked.domain.steps import STEPS_SCHEMA, Step, read_steps
from eps_locked.errors import MalformedInputError
from eps_locked.studies.vea.freeze import checked_section
from eps_locked.studies.vea.steplist import asks_a_service, list_steps
from sim.vea import gateway, implicit, table_plan, vea_plan, with_files


def steps_of(plan: dict[str, Any]) -> dict[str, Step]:
    parsed = Plan.from_dict(plan)
    steps = list_steps(parsed, checked_section(parsed))
    read_steps({"schema": STEPS_SCHEMA, "steps": [step.to_dict() for step in steps]}, "steps")
    return {step.id: step for step in steps}


def test_every_arm_is_trained_and_every_reward_model_scores() -> None:
    plan = vea_plan()
    steps = steps_of(plan)
    assert Counter(step.kind for step in steps.values()) == {
        "power": 1,
        "train": 3,
        "score": 6,
        "breadth": 1,
    }
    scored = [step.params["reward_model"] for step in steps.values() if step.kind == "score"]
    assert scored == [model["name"] for model in plan["vea"]["reward_models"]]
    phases = [step.phase for step in steps.values()]
    assert phases == sorted(phases)
    assert set(phases) == {"P0", "P1", "P2", "P3"}


def test_power_is_known_before_any_score() -> None:
    power = steps_of(vea_plan())["P0/power"]
    assert power.params == {}
    assert power.inputs == {
        "plan": "file:frozen/plan.yaml",
        "items": "file:frozen/items.json",
    }
    assert power.needs() == ()


def test_a_training_is_seeded_and_reads_the_frozen_pairs() -> None:
    step = steps_of(vea_plan())["P1/train/all_talk"]
    assert step.seed == 21
    assert step.params == {"training": "all_talk"}
    assert step.outputs == ("adapter", "record")
    assert step.inputs == {
        "plan": "file:frozen/plan.yaml",
        "training": "file:frozen/training.json",
    }


def test_what_each_kind_of_reward_model_rests_on() -> None:
    plan = with_files(vea_plan())
    plan["vea"]["reward_models"] += [gateway(), implicit()]
    steps = steps_of(plan)
    common = {"plan": "file:frozen/plan.yaml", "items": "file:frozen/items.json"}
    for name, own in (
        ("narrow", {"adapter": "step:P1/train/wood_only#adapter"}),
        ("untrained", {}),
        ("own", {}),
        ("elsewhere", {"table": "file:frozen/sources/material/vea/made-elsewhere.csv"}),
        ("served", {}),
        ("dpo", {"policy": "file:frozen/models/dpo.json"}),
    ):
        step = steps[f"P2/score/{name}"]
        assert step.inputs == common | own
        assert step.outputs == ("scores",)
        assert step.seed is None


def test_breadth_rests_on_everything_that_was_measured() -> None:
    plan = vea_plan()
    assert steps_of(plan)["P3/breadth"].inputs == {
        "plan": "file:frozen/plan.yaml",
        "power": "step:P0/power#power",
        "items": "file:frozen/items.json",
        **{
            f"scores:{model['name']}": f"step:P2/score/{model['name']}#scores"
            for model in plan["vea"]["reward_models"]
        },
    }


def test_a_plan_that_trains_nothing_has_no_phase_for_it() -> None:
    assert list(steps_of(table_plan())) == ["P0/power", "P2/score/elsewhere", "P3/breadth"]


def test_every_kind_of_step_has_its_cost() -> None:
    plan = vea_plan()
    plan["phases"]["P2"]["step_seconds"]["score"] = 7.25
    assert steps_of(plan)["P2/score/own"].estimate_ms == 7250
    for phase, budget in vea_plan()["phases"].items():
        for kind in budget["step_seconds"]:
            plan = vea_plan()
            plan["phases"][phase]["step_seconds"] = {"other": 1}
            with pytest.raises(MalformedInputError, match=rf"{phase}\.step_seconds\.{kind}"):
                steps_of(plan)


def test_which_steps_ask_a_service() -> None:
    plan = with_files(vea_plan())
    plan["vea"]["reward_models"] += [gateway(), implicit()]
    section = checked_section(Plan.from_dict(plan))
    asking = {step.id for step in steps_of(plan).values() if asks_a_service(step, section)}
    assert asking == {"P2/score/served"}
