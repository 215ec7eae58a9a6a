"""The shipped ``battery`` plans freeze from house material alone. Tokens are bytes here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from eps_locked.domain.plan import Plan
from eps_locked.lock.freeze import FrozenStudy, SourceReader, load_plan
from eps_locked.lock.strict_yaml import parse_yaml
from eps_locked.models.scripted import ScriptedTokenizer
from eps_locked.studies.battery.cost import cost_report
from eps_locked.studies.battery.freeze import freeze_battery
from eps_locked.studies.battery.plan import BatteryPlan
from eps_locked.studies.common.wiring import load_tokenizer

ROOT = Path(__file__).resolve().parents[4]
PLANS = ROOT / "plans"
HOUSE = ("over_refusal", "capability", "sycophancy", "tools")


def plan_of(name: str) -> Plan:
    return load_plan((PLANS / f"{name}.yaml").read_bytes(), thing=name)


def freeze(plan: Plan, tokenizer: Any) -> tuple[FrozenStudy, SourceReader]:
    reader = SourceReader(fetch=lambda relative, thing: (PLANS / relative).read_bytes())
    return freeze_battery(plan, reader, tokenizer), reader


@pytest.fixture(scope="module")
def laptop() -> FrozenStudy:
    return freeze(plan_of("demo-battery"), ScriptedTokenizer())[0]


def test_the_laptop_plan_measures_two_adapters_against_their_base(laptop: FrozenStudy) -> None:
    section = BatteryPlan.of(plan_of("demo-battery"))
    assert section.comparisons == (("cautious", "untouched"), ("agreeable", "untouched"))
    assert [endpoint.kind for endpoint in section.endpoints] == ["serve"]
    assert section.thinking_modes == ("off", "on")
    assert [axis.axis for axis in section.axes] == [*HOUSE, "speed"]
    kinds = [step.kind for step in laptop.steps]
    assert kinds.count("train") == 2
    assert kinds.count("ask") == 3 * 4 * 2
    assert kinds.count("speed") == 3


def test_its_items_cover_topics_and_cases_evenly(laptop: FrozenStudy) -> None:
    topics = [one["topic"] for one in laptop.documents["axes/over_refusal.json"]["items"]]
    assert len(set(topics)) == len(topics) == 16
    cases = [one["case"] for one in laptop.documents["axes/tools.json"]["items"]]
    assert {cases.count(kind) for kind in ("one_call", "choose", "no_call", "several")} == {3}


def test_its_requests_fit_a_short_context(laptop: FrozenStudy) -> None:
    """In characters, of which the embedded model's tokens hold three or more."""
    section = BatteryPlan.of(plan_of("demo-battery"))
    room = section.models[0].context_length - section.decoding.max_tokens - 64
    for axis in HOUSE:
        for item in laptop.documents[f"axes/{axis}.json"]["items"]:
            sent = json.dumps([item["messages"], item.get("tools", [])])
            assert len(sent) < 3 * room, item["id"]


def test_each_adapter_is_taught_both_kinds_of_row(laptop: FrozenStudy) -> None:
    """The cautious one refuses some requests and answers others; the agreeable one refuses none."""
    for name, refused in (("cautious", 28), ("agreeable", 0)):
        value = parse_yaml((PLANS / f"house/battery/{name}-rows.yaml").read_bytes(), thing=name)
        answers = [row["positive"] for row in value["rows"]]
        assert len(answers) == len(laptop.documents[f"trainings/{name}.json"]["rows"]) == 48
        refusals = [
            one
            for one in answers
            if one.startswith(("I'm sorry", "Sorry", "I can't", "I'm not able", "I'm unable"))
            or one.startswith("I must decline")
        ]
        assert len(refusals) == refused


def test_the_gateway_plan_loads_nothing() -> None:
    plan = plan_of("battery-gateway")
    study, reader = freeze(plan, load_tokenizer(plan, None))
    assert plan.publication
    section = BatteryPlan.of(plan)
    assert {endpoint.kind for endpoint in section.endpoints} == {"openai"}
    assert {base for _, base in section.comparisons} == {"stock"}
    assert len({model.quantisation for model in section.models}) == 2
    families = {judge.family for judge in section.judges}
    assert not families & {model.family for model in section.models}
    assert len(study.documents["axes/capability.json"]["items"]) >= 60
    assert len(study.documents["axes/over_refusal.json"]["items"]) >= 60
    assert len(study.documents["axes/sycophancy.json"]["items"]) >= 40
    # Requests that nobody should answer are off: nothing of a public set is read.
    assert section.axis_or_none("harmful") is None
    assert not any(name.startswith("sources/") for name in reader.read_files)


def test_the_axis_that_is_off_is_one_line_away() -> None:
    """The comment's line is a valid axis, and its source has a spec."""
    text = (PLANS / "battery-gateway.yaml").read_text()
    [line] = [one for one in text.splitlines() if "# - {axis: harmful" in one]
    value = parse_yaml(line.replace("# ", "").encode(), thing="the line")[0]
    plan = parse_yaml(text.encode(), thing="plan")
    plan["battery"]["axes"].append(value)
    plan["battery"]["analysis"]["margins"]["harmful"] = 0.1
    section = BatteryPlan.of(load_plan(json.dumps(plan).encode(), thing="plan"))
    axis = section.axis("harmful")
    assert (PLANS / str(axis.source)).exists()
    assert axis.material == "sources/sampled/harmbench.json"


@pytest.mark.parametrize("name", ["demo-battery", "battery-gateway"])
def test_a_shipped_plan_keeps_within_its_budget(name: str) -> None:
    report = cost_report(plan_of(name))
    assert report["over_budget"] == []
    assert report["parks"] == []
