"""The ``battery`` section: the schema for outsiders and the typed readers judge it alike."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import jsonschema
import pytest

from eps_locked.domain.plan import Plan
from eps_locked.errors import EpsLockedError, MalformedInputError, RefusedError
from eps_locked.lock.freeze import schema_problems
from eps_locked.lock.provenance import schema_folder
from eps_locked.studies.battery.freeze import checked_section
from eps_locked.studies.battery.plan import BatteryPlan
from sim.battery import (
    battery_plan,
    gateway_model,
    gateway_plan,
    harmful_axis,
    openai_endpoint,
)
from sim.simulator import default_plan

Path = tuple[str | int, ...]


def whole_plan() -> dict[str, Any]:
    """Both kinds of endpoint and all six axes."""
    plan = battery_plan()
    section = plan["battery"]
    section["endpoints"].append(openai_endpoint())
    section["models"].append(gateway_model("stock", "vendor/stock"))
    section["axes"].append(harmful_axis())
    section["analysis"]["margins"]["harmful"] = 0.1
    return plan


def at_schema(plan: dict[str, Any]) -> bool:
    """Whether the schema takes a plan; read once, for these loops are long."""
    return bool(_validator().is_valid(plan))


@cache
def _validator() -> Any:
    schema = json.loads((schema_folder() / "plan.schema.json").read_bytes())
    return jsonschema.Draft202012Validator(schema)


def refused(plan: dict[str, Any]) -> bool:
    try:
        checked_section(Plan.from_dict(plan))
    except EpsLockedError:
        return True
    return False


def put(plan: dict[str, Any], path: Path, value: Any) -> dict[str, Any]:
    changed = copy.deepcopy(plan)
    target: Any = changed
    for part in path[:-1]:
        target = target[part]
    target[path[-1]] = value
    return changed


def paths(value: Any, at: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Of a list the first entry alone, but every endpoint and axis: their kinds differ. Recipes and
    judges are every study's, and the other studies' tests go into them."""
    if at:
        yield at, value
    if at and at[-1] in ("recipe", "judges"):
        return
    if isinstance(value, dict):
        for key, one in value.items():
            yield from paths(one, (*at, key))
    elif isinstance(value, list):
        whole = at[-1] in ("endpoints", "axes")
        for number, one in enumerate(value if whole else value[:1]):
            yield from paths(one, (*at, number))


ALL = list(paths(whole_plan()["battery"], ("battery",)))
# What a request is told about thinking is the service's own vocabulary.
FREE = ("chat_template_kwargs", "margins", "off", "on")
MAPPINGS = [
    ("battery",),
    *(path for path, value in ALL if isinstance(value, dict) and path[-1] not in FREE),
]


def test_the_plans_pass_both_doors() -> None:
    for plan in (battery_plan(), gateway_plan(), whole_plan()):
        assert schema_problems(plan) == ()
        assert not refused(plan)


@pytest.mark.parametrize("path", [path for path, _ in ALL], ids=lambda p: ".".join(map(str, p)))
def test_what_the_schema_refuses_the_typed_reader_refuses_too(path: Path) -> None:
    """The other way round does not hold: only the reader sees rules between fields."""
    for wrong in (None, True, 1.5, -3, "", "Two Words", "../x", [], [7], {"a": 1}):
        plan = put(whole_plan(), path, wrong)
        if not at_schema(plan):
            assert refused(plan), (path, wrong)


@pytest.mark.parametrize("path", MAPPINGS, ids=lambda p: ".".join(map(str, p)))
def test_unknown_and_missing_fields_are_refused_at_both_doors(path: Path) -> None:
    value: Any = whole_plan()
    for part in path:
        value = value[part]
    for key in value:
        plan = whole_plan()
        target: Any = plan
        for part in path:
            target = target[part]
        del target[key]
        assert refused(plan), (path, key)
        assert not at_schema(plan), (path, key)
    plan = put(whole_plan(), (*path, "surprise"), 1)
    assert refused(plan)
    assert not at_schema(plan)


ANALYSIS: Path = ("battery", "analysis")
SERVE: Path = ("battery", "endpoints", 0)
MODEL: Path = ("battery", "models", 0)
AXIS: Path = ("battery", "axes", 0)
SPEED: Path = ("battery", "axes", 4)
HARMFUL: Path = ("battery", "axes", 5)

# (path, value, whether both doors take it)
CASES: list[tuple[Path, Any, bool]] = [
    (("battery", "system_prompt"), "Answer briefly.", True),
    (("battery", "system_prompt"), "Answer briefly.\nIn English.", True),
    (("battery", "system_prompt"), "", False),
    (("battery", "system_prompt"), " Answer briefly.", False),
    (("battery", "decoding", "seed"), None, True),
    (("battery", "decoding", "seed"), -1, False),
    (("battery", "decoding", "top_p"), 0, False),
    (("battery", "decoding", "max_tokens"), 0, False),
    (("battery", "decoding", "temperature"), 0.7, True),
    (("battery", "thinking_modes"), [], False),
    (("battery", "thinking_modes"), ["off", "off"], False),
    (("battery", "thinking_modes"), ["off", "loud"], False),
    (("battery", "thinking_modes"), ["on"], True),
    (("battery", "models"), [], False),
    (("battery", "axes"), [], False),
    (("battery", "item_seed"), -1, False),
    ((*SERVE, "kind"), "vllm", False),
    ((*SERVE, "max_context"), 0, False),
    ((*SERVE, "url"), "https://host/v1", False),
    ((*SERVE, "max_transport_share"), 1.1, False),
    ((*SERVE, "timeout_seconds"), 0, False),
    ((*SERVE, "timeout_seconds"), 86_400, True),
    # No clock of a socket counts so far.
    ((*SERVE, "timeout_seconds"), 1e10, False),
    # It becomes part of a file's name.
    ((*MODEL, "name"), "m" * 64, False),
    ((*MODEL, "quantisation"), "", False),
    ((*MODEL, "quantisation"), " awq", False),
    ((*MODEL, "context_length"), None, False),
    ((*MODEL, "context_length"), 0, False),
    ((*MODEL, "route"), "two words", False),
    ((*MODEL, "thinking", "on"), {"temperature": 2}, False),
    ((*MODEL, "thinking", "on"), {"api_key": "word"}, False),
    ((*MODEL, "thinking", "on"), {"reasoning_effort": "high"}, True),
    ((*AXIS, "axis"), "wit", False),
    ((*AXIS, "n_items"), None, True),
    ((*AXIS, "n_items"), 0, False),
    ((*AXIS, "minimum_scored_share"), 0.49, False),
    ((*AXIS, "minimum_scored_share"), 1, True),
    ((*AXIS, "file"), "/etc/items.yaml", False),
    ((*SPEED, "n_requests"), 1, False),
    ((*SPEED, "warmup"), 0, True),
    ((*SPEED, "file"), "material/battery/capability.yaml", False),
    ((*HARMFUL, "source"), "material/requests.yaml", False),
    ((*HARMFUL, "source"), "sources/sampled/requests.json", False),
    ((*HARMFUL, "acknowledge"), "yes", False),
    ((*HARMFUL, "acknowledge"), None, False),
    (("battery", "refusal", "judge"), None, True),
    (("battery", "agreement", "judge"), None, False),
    (("battery", "calibrations", 0, "rubric_of"), "wit", False),
    ((*ANALYSIS, "confidence_level"), 1, False),
    ((*ANALYSIS, "equivalence_level"), 0.49, False),
    ((*ANALYSIS, "alpha"), 0, False),
    ((*ANALYSIS, "power"), 1, False),
    ((*ANALYSIS, "margins", "tools"), 0, False),
    ((*ANALYSIS, "margins", "tools"), 1, False),
    ((*ANALYSIS, "margins", "speed"), 0.1, False),
    ((*ANALYSIS, "minimum_items"), 1, False),
    ((*ANALYSIS, "n_resamples"), 99, False),
    (("study",), "drift", False),
    (("analyses",), [], True),
    (("analyses",), ["weather"], False),
]


@pytest.mark.parametrize(("path", "value", "good"), CASES, ids=str)
def test_both_doors_judge_a_case_alike(path: Path, value: Any, good: bool) -> None:
    plan = put(whole_plan(), path, value)
    assert at_schema(plan) is good
    assert refused(plan) is not good


def test_a_plan_has_the_section_of_its_study_and_no_other() -> None:
    both = {**battery_plan(), "eps": default_plan()["eps"]}
    for plan in (both, {**both, "study": "eps"}):
        assert schema_problems(plan)
        with pytest.raises(MalformedInputError):
            Plan.from_dict(plan)
    with pytest.raises(RefusedError, match="study battery, found eps"):
        BatteryPlan.of(Plan.from_dict(default_plan()))


SECRET = "sk-live-0123456789"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("api_key_env", SECRET),
        ("api_key_env", f"KEY={SECRET}"),
        ("api_key_env", ""),
        ("url", f"https://user:{SECRET}@host/v1"),
        ("url", f"https://{SECRET}@host/v1"),
        ("url", f"https://host/v1?key={SECRET}"),
        ("url", f"https://host/v1#{SECRET}"),
        ("url", f"ftp://host/{SECRET}"),
        ("url", f"https:///{SECRET}"),
        ("url", f"https://host /{SECRET}"),
        ("url", f"https://[host/{SECRET}"),
    ],
)
def test_an_endpoint_holds_no_secret_and_none_is_shown(key: str, value: str) -> None:
    plan = gateway_plan()
    plan["battery"]["endpoints"] = [openai_endpoint(**{key: value, "max_tries": 0})]
    # Neither by the schema's complaint about another field, nor by the reader's about this one.
    problems = schema_problems(plan)
    assert any("max_tries" in one for one in problems)
    assert SECRET not in "".join(problems)
    plan["battery"]["endpoints"] = [openai_endpoint(**{key: value})]
    with pytest.raises(MalformedInputError) as caught:
        checked_section(Plan.from_dict(plan))
    assert caught.value.thing == f"plan.battery.endpoints[0].{key}"
    assert SECRET not in str(caught.value)


def test_a_key_among_the_fields_of_a_request_is_refused_and_not_shown() -> None:
    plan = battery_plan()
    plan["battery"]["models"][0]["thinking"]["on"] = {"api_key": SECRET}
    with pytest.raises(MalformedInputError, match="no field that turns thinking on") as caught:
        checked_section(Plan.from_dict(plan))
    assert SECRET not in str(caught.value)
    assert SECRET not in "".join(schema_problems(plan))


@pytest.mark.parametrize(
    "fields",
    [
        {"chat_template_kwargs": {"api_key": SECRET}},
        {"reasoning": {"effort": "high", "headers": [{"Authorization": SECRET}]}},
    ],
)
def test_a_key_deep_in_the_fields_of_a_request_is_refused_and_not_shown(fields: Any) -> None:
    plan = battery_plan()
    plan["battery"]["models"][0]["thinking"]["on"] = fields
    with pytest.raises(MalformedInputError, match="named like a secret") as caught:
        checked_section(Plan.from_dict(plan))
    assert SECRET not in str(caught.value)


def test_what_the_parts_say_of_each_other() -> None:
    section = checked_section(Plan.from_dict(whole_plan()))
    assert section.comparisons == (("cautious", "untouched"), ("agreeable", "untouched"))
    assert [axis.axis for axis in section.rate_axes] == [
        "over_refusal",
        "capability",
        "sycophancy",
        "tools",
        "harmful",
    ]
    assert section.speed == section.axis("speed")
    assert section.timed_axis == section.axis("over_refusal")
    assert section.speed_thinking == "off"
    assert section.axis("harmful").material == "sources/sampled/requests.json"
    assert not section.axis("harmful").is_benign
    assert section.axis("tools").is_benign
    assert section.rubric_of("agreement") == "material/battery/premise-rubric.yaml"
    assert section.model("cautious").extra("off") == {}
    assert section.training("cautious").recipe.rank == 8
    assert section.endpoint("gateway").api_key_env is None
    assert section.judge("stand_in").family == "arithmetic"
    assert section.calibration("refusal").about == ("rubric_of", "refusal")
    assert section.material_files == (
        "material/battery/cautious-rows.yaml",
        "material/battery/agreeable-rows.yaml",
        "material/battery/over_refusal.yaml",
        "material/battery/capability.yaml",
        "material/battery/sycophancy.yaml",
        "material/battery/tools.yaml",
        "sources/sampled/requests.json",
        "material/battery/refusal-labelled.yaml",
    )
    with pytest.raises(MalformedInputError, match="known: untouched, cautious"):
        section.model("reckless")


def test_what_is_not_in_the_plan_is_named() -> None:
    section = checked_section(Plan.from_dict(gateway_plan()))
    assert section.axis_or_none("harmful") is None
    with pytest.raises(MalformedInputError, match="axis harmful"):
        section.axis("harmful")
    plan = gateway_plan()
    plan["battery"]["axes"] = [one for one in plan["battery"]["axes"] if one["axis"] == "tools"]
    plan["battery"].update(refusal=None, agreement=None, judges=[], calibrations=[])
    plan["battery"]["analysis"]["margins"] = {"tools": 0.1}
    section = checked_section(Plan.from_dict(plan))
    assert (section.timed_axis, section.speed) == (None, None)
    with pytest.raises(MalformedInputError, match=r"plan\.battery\.refusal"):
        section.rubric_of("refusal")
