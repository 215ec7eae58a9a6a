"""What is refused of a ``battery`` section before any material is read: by its field, with both
values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from eps_locked.domain.plan import Plan
from eps_locked.errors import EpsLockedError, MalformedInputError, RefusedError
from eps_locked.studies.battery.freeze import checked_section
from sim.battery import (
    axis,
    battery_plan,
    gateway_model,
    gateway_plan,
    openai_endpoint,
    serve_endpoint,
    served_model,
    training,
)
from sim.simulator import judge_plan

Change = Callable[[dict[str, Any]], object]


def refusal(plan: dict[str, Any]) -> EpsLockedError:
    with pytest.raises((MalformedInputError, RefusedError)) as caught:
        checked_section(Plan.from_dict(plan))
    return caught.value


def changed(change: Change, make: Callable[[], dict[str, Any]] = battery_plan) -> dict[str, Any]:
    plan = make()
    change(plan["battery"])
    return plan


def gateway_judge(**changes: Any) -> dict[str, Any]:
    kind = {"kind": "gateway", "endpoint": "http://127.0.0.1:1/v1", "temperature": 0}
    return judge_plan(**kind, **changes)


# (change, field, what the refusal says)
CASES: dict[str, tuple[Change, str, str]] = {
    "a model's name twice": (
        lambda s: s["models"][1].update(name="untouched"),
        "models[1]",
        "found untouched",
    ),
    "a training of the name of the bare base's route": (
        lambda s: (
            s["trainings"][0].update(name="base"),
            s["models"][1].update(training="base", route="base"),
        ),
        "trainings[0]",
        "not base, which is taken",
    ),
    "an axis twice": (lambda s: s["axes"].append(axis("tools")), "axes[5]", "found tools"),
    "an unknown endpoint": (
        lambda s: s["models"][0].update(endpoint="cloud"),
        "models[0].endpoint",
        "known: local",
    ),
    "an unknown training": (
        lambda s: s["models"].append(served_model("bold", "bold")),
        "models[3].training",
        "known: cautious, agreeable",
    ),
    "an unknown judge": (
        lambda s: s["refusal"].update(judge="nobody"),
        "refusal.judge",
        "known: stand_in",
    ),
    "an unknown judge of a calibration": (
        lambda s: s["calibrations"][0].update(judge="nobody"),
        "calibrations[0].judge",
        "known: stand_in",
    ),
    "a route that no served adapter has": (
        lambda s: s["models"][1].update(route="prudent"),
        "models[1].route",
        "prudent, which no adapter at local has",
    ),
    "the route of another adapter": (
        lambda s: s["models"][1].update(route="agreeable"),
        "models[1].route",
        "expected cautious",
    ),
    "an adapter's route without the adapter": (
        lambda s: s["models"].append(served_model("again", None, route="cautious")),
        "models[3].route",
        "expected base: the route of the model without adapter, found cautious",
    ),
    "a family that is not the served model's": (
        lambda s: s["models"][0].update(family="other"),
        "models[0].family",
        "expected scripted, as base_model says, found other",
    ),
    "a context that is not the server's": (
        lambda s: s["models"][0].update(context_length=512),
        "models[0].context_length",
        "expected 16384, as endpoint local says, found 512",
    ),
    "another quantisation on one server": (
        lambda s: s["models"][2].update(quantisation="awq-4bit"),
        "models[2].quantisation",
        "expected float32, as of untouched: one server, one base model, found awq-4bit",
    ),
    "a mode that a model has no way into": (
        lambda s: s["models"][1]["thinking"].update(on=None),
        "models[1].thinking.on",
        "found null",
    ),
    "a mode that changes nothing": (
        lambda s: s["models"][1]["thinking"].update(on={}),
        "models[1].thinking.on",
        "found the same",
    ),
    "a reply as long as the context": (
        lambda s: s["decoding"].update(max_tokens=16384),
        "models[0].context_length",
        "decoding.max_tokens",
    ),
    "a timed reply as long as the context": (
        lambda s: s["axes"][4].update(max_tokens=16384),
        "models[0].context_length",
        "max_tokens of axis speed",
    ),
    "one model under two names": (
        lambda s: s["models"].append(served_model("twin")),
        "models[3]",
        "twin, which asks what untouched asks",
    ),
    "a base that is missing": (
        lambda s: s["models"][1].update(base="stock"),
        "models[1].base",
        "known: untouched, agreeable",
    ),
    "a model as its own base": (
        lambda s: s["models"][1].update(base="cautious"),
        "models[1].base",
        "cautious -> cautious",
    ),
    "bases in a circle": (
        lambda s: s["models"][0].update(base="agreeable"),
        "models[0].base",
        "untouched -> agreeable -> untouched",
    ),
    "a base that is itself compared": (
        lambda s: s["models"][2].update(base="cautious"),
        "models[2].base",
        "cautious, which is compared with untouched",
    ),
    "an endpoint that nothing uses": (
        lambda s: s["endpoints"].append(openai_endpoint()),
        "endpoints[1]",
        "found gateway",
    ),
    "a training that nothing uses": (
        lambda s: s["trainings"].append(training("bold")),
        "trainings[2]",
        "found bold",
    ),
    "a judge that nothing asks": (
        lambda s: s["judges"].append(judge_plan(name="idle")),
        "judges[1]",
        "found idle",
    ),
    "a seed that is not the plan's": (
        lambda s: s["trainings"][0].update(seed=12),
        "trainings[0].seed",
        "one of the plan's seeds: 11, found 12",
    ),
    "fewer items than the minimum": (
        lambda s: s["axes"][1].update(n_items=3),
        "axes[1].n_items",
        "at least 4 (analysis.minimum_items), found 3",
    ),
    "nothing to time": (
        lambda s: (
            s.update(axes=s["axes"][3:], refusal=None, agreement=None, judges=[], calibrations=[]),
            s["analysis"].update(margins={"tools": 0.1}),
        ),
        "axes[1]",
        "over_refusal or capability or sycophancy, found none",
    ),
    "no rubric for refusals": (
        lambda s: s.update(refusal=None, calibrations=[]),
        "refusal",
        "null with over_refusal",
    ),
    "a rubric without its axis": (
        lambda s: (s["axes"].pop(2), s["analysis"]["margins"].pop("sycophancy")),
        "agreement",
        "a part with no such axis",
    ),
    "a calibration of a rubric that is not there": (
        lambda s: (
            s["axes"].pop(2),
            s["analysis"]["margins"].pop("sycophancy"),
            s.update(agreement=None),
            s["calibrations"][0].update(rubric_of="agreement"),
        ),
        "calibrations[0].rubric_of",
        "agreement, which is null",
    ),
    "a judge that is asked warm": (
        lambda s: s.update(judges=[{**gateway_judge(), "temperature": 1}]),
        "refusal.judge: stand_in",
        "temperature: 0",
    ),
    "a margin that is missing": (
        lambda s: s["analysis"]["margins"].pop("tools"),
        "analysis.margins.tools",
        "is missing",
    ),
    "a margin of an axis that is not there": (
        lambda s: s["analysis"]["margins"].update(harmful=0.1),
        "analysis.margins.harmful",
        "found harmful",
    ),
}


@pytest.mark.parametrize(("change", "field", "said"), CASES.values(), ids=list(CASES))
def test_a_hole_in_the_design_is_refused(change: Change, field: str, said: str) -> None:
    error = refusal(changed(change))
    assert error.thing == f"plan.battery.{field}"
    assert said in str(error)


def test_a_judge_of_a_models_own_family_is_refused() -> None:
    """Of any model's: not only of the family that base_model names."""

    def change(section: dict[str, Any]) -> None:
        section["models"][1].update(family="Llama")
        section["judges"] = [gateway_judge(family="llama")]

    error = refusal(changed(change, gateway_plan))
    assert isinstance(error, RefusedError)
    assert error.thing == "plan.battery.judges: stand_in"
    assert "of the family of model ablated" in str(error)
    assert "expected a family other than Llama, found llama" in str(error)
    own = changed(lambda s: s["judges"][0].update(family="scripted"))
    assert isinstance(refusal(own), RefusedError)


def test_a_stand_in_judges_nothing_for_publication() -> None:
    plan = gateway_plan()
    plan["publication"] = True
    assert refusal(plan).thing == "plan.publication"
    plan["battery"]["judges"] = [gateway_judge()]
    assert checked_section(Plan.from_dict(plan)).judges[0].kind == "gateway"


def test_what_lies_elsewhere_is_neither_served_nor_trained() -> None:
    served = changed(
        lambda s: (
            s["endpoints"].append(serve_endpoint()),
            s["models"].append(served_model("local")),
        ),
        gateway_plan,
    )
    error = refusal(served)
    assert error.thing == "plan.battery.endpoints[1].kind"
    assert "expected openai, with a base model that lies elsewhere, found serve" in str(error)
    trained = changed(lambda s: s["trainings"].append(training("cautious")), gateway_plan)
    error = refusal(trained)
    assert error.thing == "plan.battery.trainings[0]"
    assert "lies elsewhere" in str(error)


def test_an_adapter_answers_on_our_own_server_alone() -> None:
    def change(section: dict[str, Any]) -> None:
        section["endpoints"].append(openai_endpoint())
        section["models"][1].update(endpoint="gateway")

    error = refusal(changed(change))
    assert error.thing == "plan.battery.models[1].training"
    assert "null at gateway, which is not our own server" in str(error)


def test_one_route_may_be_asked_with_two_kinds_of_thinking_and_is_described_once() -> None:
    effort = {"off": {}, "on": {"reasoning_effort": "high"}}
    other = gateway_model("stock_high", "vendor/stock", thinking=effort)
    assert checked_section(
        Plan.from_dict(changed(lambda s: s["models"].append(other), gateway_plan))
    ).model("stock_high")
    error = refusal(
        changed(lambda s: s["models"].append({**other, "quantisation": "awq-4bit"}), gateway_plan)
    )
    assert error.thing == "plan.battery.models[2].quantisation"
    assert "expected float32, as stock on the same route has it, found awq-4bit" in str(error)


def test_one_mode_needs_no_other_way_of_thinking() -> None:
    def change(section: dict[str, Any]) -> None:
        section["thinking_modes"] = ["off"]
        for model in section["models"]:
            model["thinking"]["on"] = None

    section = checked_section(Plan.from_dict(changed(change)))
    assert section.thinking_modes == ("off",)
    with pytest.raises(KeyError):
        section.models[0].extra("on")


def test_phases_and_analyses_are_those_of_a_battery() -> None:
    plan = battery_plan()
    del plan["phases"]["P1"]
    error = refusal(plan)
    assert error.thing == "plan.phases"
    assert "P0 then P1 then P2 then P3" in str(error)
    plan = gateway_plan()
    plan["phases"] = {phase: battery_plan()["phases"][phase] for phase in ("P0", "P1", "P2", "P3")}
    assert "expected P0 then P2 then P3" in str(refusal(plan))
    plan = battery_plan()
    plan["analyses"] = ["battery", "drift"]
    assert "expected battery, found drift" in str(refusal(plan))
