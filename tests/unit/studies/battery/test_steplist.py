"""Every step of a battery: what it reads, what it makes, and which of them nobody can repeat."""

from __future__ import annotations

from typing import Any

import pytest

from eps_locked.domain.plan import Plan
from eps_locked.domain.steps import STEPS_SCHEMA, Step, read_steps
from eps_locked.errors import MalformedInputError
from eps_locked.studies.battery.plan import BatteryPlan
from eps_locked.studies.battery.steplist import (
    asks_a_service,
    judges_of,
    list_steps,
    phases_of,
)
from sim.battery import battery_plan, gateway_model, gateway_plan, harmful_axis, openai_endpoint
from sim.simulator import judge_plan


def listed(plan: dict[str, Any]) -> tuple[BatteryPlan, dict[str, Step]]:
    parsed = Plan.from_dict(plan)
    section = BatteryPlan.of(parsed)
    steps = list_steps(parsed, section)
    assert len({step.id for step in steps}) == len(steps)
    return section, {step.id: step for step in steps}


def test_every_model_is_asked_every_axis_in_every_mode() -> None:
    _, steps = listed(battery_plan())
    asked = [step for step in steps.values() if step.kind == "ask"]
    axes = ("over_refusal", "capability", "sycophancy", "tools")
    assert [step.id for step in asked] == [
        f"P2/ask/{model}/{axis}/{thinking}"
        for model in ("untouched", "cautious", "agreeable")
        for axis in axes
        for thinking in ("off", "on")
    ]
    assert asked[1].params == {"model": "untouched", "axis": "over_refusal", "thinking": "on"}
    assert all(step.outputs == ("answers",) for step in asked)
    assert [step.id for step in steps.values() if step.kind == "speed"] == [
        "P2/speed/untouched",
        "P2/speed/cautious",
        "P2/speed/agreeable",
    ]


def test_what_a_step_reads() -> None:
    _, steps = listed(battery_plan())
    rubric = "file:frozen/sources/material/battery"
    assert steps["P2/ask/cautious/over_refusal/off"].inputs == {
        "plan": "file:frozen/plan.yaml",
        "axis": "file:frozen/axes/over_refusal.json",
        "rubric": f"{rubric}/refusal-rubric.yaml",
        "adapter": "step:P1/train/cautious#adapter",
    }
    assert steps["P2/ask/untouched/sycophancy/on"].inputs["rubric"].endswith("premise-rubric.yaml")
    for axis in ("capability", "tools"):
        assert set(steps[f"P2/ask/untouched/{axis}/off"].inputs) == {"plan", "axis"}
    assert set(steps["P2/speed/cautious"].inputs) == {"plan", "axis", "adapter"}
    train = steps["P1/train/cautious"]
    assert (train.seed, train.outputs) == (11, ("adapter", "record"))
    assert train.inputs["rows"] == "file:frozen/trainings/cautious.json"
    assert set(steps["P0/power"].inputs) == {
        "plan",
        "axis:over_refusal",
        "axis:capability",
        "axis:sycophancy",
        "axis:tools",
    }
    assert set(steps["P0/calibration/refusal"].inputs) == {"plan", "labelled", "rubric"}


def test_the_last_step_reads_all_that_was_measured() -> None:
    _, steps = listed(battery_plan())
    last = list(steps.values())[-1]
    assert (last.id, last.outputs) == ("P3/battery", ("battery",))
    made = {
        f"step:{step.id}#{step.outputs[0]}" for step in steps.values() if step.phase in ("P0", "P2")
    }
    assert {ref for ref in last.inputs.values() if ref.startswith("step:")} == made
    assert last.inputs["answers:cautious/tools/on"] == "step:P2/ask/cautious/tools/on#answers"
    assert last.inputs["axis:tools"] == "file:frozen/axes/tools.json"


def test_the_list_can_be_read_back() -> None:
    _, steps = listed(battery_plan())
    document = {"schema": STEPS_SCHEMA, "steps": [step.to_dict() for step in steps.values()]}
    assert [step.id for step in read_steps(document, "steps")] == list(steps)


def test_nothing_is_trained_where_everything_lies_elsewhere() -> None:
    section, steps = listed(gateway_plan())
    assert phases_of(section) == ("P0", "P2", "P3")
    assert {step.phase for step in steps.values()} == {"P0", "P2", "P3"}
    assert "adapter" not in steps["P2/ask/ablated/tools/off"].inputs


def test_a_kind_of_step_without_a_cost_is_refused() -> None:
    plan = battery_plan()
    del plan["phases"]["P2"]["step_seconds"]["speed"]
    with pytest.raises(MalformedInputError, match=r"P2\.step_seconds\.speed"):
        listed(plan)


def test_no_speed_no_step() -> None:
    plan = battery_plan()
    plan["battery"]["axes"].pop()
    _, steps = listed(plan)
    assert not any(step.kind == "speed" for step in steps.values())
    assert not any(name.startswith("speed:") for name in steps["P3/battery"].inputs)


def test_who_judges_what() -> None:
    plan = battery_plan()
    plan["battery"]["judges"].append(judge_plan(name="second"))
    plan["battery"]["agreement"]["judge"] = "second"
    plan["battery"]["axes"].append(harmful_axis())
    section, steps = listed(plan)
    for step, judges in (
        ("P2/ask/untouched/over_refusal/on", ("stand_in",)),
        ("P2/ask/untouched/harmful/on", ("stand_in",)),
        ("P2/ask/untouched/sycophancy/on", ("second",)),
        ("P2/ask/untouched/capability/on", ()),
        ("P2/ask/untouched/tools/on", ()),
        ("P2/speed/untouched", ()),
        ("P0/calibration/refusal", ("stand_in",)),
        ("P0/power", ()),
        ("P3/battery", ()),
    ):
        assert judges_of(steps[step], section) == judges, step
    plan["battery"]["refusal"]["judge"] = None
    section, steps = listed(plan)
    assert judges_of(steps["P2/ask/untouched/over_refusal/on"], section) == ()


def test_nobody_can_repeat_what_a_service_said_or_a_clock_showed() -> None:
    plan = battery_plan()
    section, steps = listed(plan)
    assert {one.kind for one in steps.values() if asks_a_service(one, section)} == {"speed"}

    plan["battery"]["endpoints"].append(openai_endpoint())
    plan["battery"]["models"].append(gateway_model("stock", "vendor/stock"))
    section, steps = listed(plan)
    asked = {one.params["model"] for one in steps.values() if one.kind == "ask"}
    assert asked == {"untouched", "cautious", "agreeable", "stock"}
    service = [one for one in steps.values() if asks_a_service(one, section)]
    assert {one.params["model"] for one in service if one.kind == "ask"} == {"stock"}

    plan = battery_plan()
    plan["battery"]["judges"] = [
        judge_plan(kind="gateway", endpoint="http://127.0.0.1:1/v1", temperature=0)
    ]
    section, steps = listed(plan)
    service = [one for one in steps.values() if asks_a_service(one, section)]
    assert {one.params["axis"] for one in service if one.kind == "ask"} == {
        "over_refusal",
        "sycophancy",
    }
    assert {one.kind for one in service} == {"ask", "speed", "calibration"}
