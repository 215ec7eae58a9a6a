"""The ``vea`` section: the schema for outsiders and the typed readers judge it alike."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest

from eps_locked.domain.plan import Plan
from eps_locked.errors import EpsLockedError, MalformedInputError, RefusedError
from eps_locked.lock.freeze import load_plan, schema_problems
from eps_locked.studies.drift.plan import DriftPlan
from eps_locked.studies.vea.freeze import checked_section
from eps_locked.studies.vea.parts import read_reward_model
from eps_locked.studies.vea.plan import (
    ClassifierReward,
    GatewayReward,
    ImplicitReward,
    TableReward,
    VeaPlan,
)
from sim.drift import small_drift_plan
from sim.vea import gateway, implicit, table_plan, vea_plan, with_files

Path = tuple[str | int, ...]
SECRET = "sk-live-0a1b2c3d"


def whole_plan() -> dict[str, Any]:
    """Every kind of reward model at once."""
    plan = with_files(vea_plan())
    plan["vea"]["reward_models"] += [gateway(), implicit()]
    return plan


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
    """Of a list the first entry alone, but every reward model: their kinds differ."""
    if at:
        yield at, value
    if isinstance(value, dict):
        for key, one in value.items():
            yield from paths(one, (*at, key))
    elif isinstance(value, list):
        for number, one in enumerate(value if at[-1] == "reward_models" else value[:1]):
            yield from paths(one, (*at, number))


# Of the classifiers one trained and one with a fresh head; recipes are every study's, and decoys
# have the form of items.
ELSEWHERE = (("vea", "decoys"), *(("vea", "reward_models", n) for n in (1, 2, 4)))
ALL = [
    (path, value)
    for path, value in paths(whole_plan()["vea"], ("vea",))
    if "recipe" not in path[:-1] and not any(path[: len(one)] == one for one in ELSEWHERE)
]
MAPPINGS = [("vea",), *(path for path, value in ALL if isinstance(value, dict))]
WRONG = (None, True, 1.5, -3, "", "Two Words", "../x", [7], {"a": 1})
# Names of families and of files, not fields.
OPEN_MAPS = ("counts", "checksums")


@pytest.mark.parametrize("path", [path for path, _ in ALL], ids=lambda p: ".".join(map(str, p)))
def test_what_the_schema_refuses_the_typed_reader_refuses_too(path: Path) -> None:
    """The other way round does not hold: only the reader sees rules between fields."""
    for wrong in WRONG:
        plan = put(whole_plan(), path, wrong)
        if not refused(plan):
            assert schema_problems(plan) == (), (path, wrong)


@pytest.mark.parametrize("path", MAPPINGS, ids=lambda p: ".".join(map(str, p)))
def test_unknown_and_missing_fields_are_refused_at_both_doors(path: Path) -> None:
    if path[-1] in OPEN_MAPS:
        pytest.skip("its keys are names")
    value: Any = whole_plan()
    for part in path:
        value = value[part]
    for key in value:
        if key == "expected":
            continue
        plan = whole_plan()
        target: Any = plan
        for part in path:
            target = target[part]
        del target[key]
        assert refused(plan), (path, key)
        assert schema_problems(plan), (path, key)
    plan = put(whole_plan(), (*path, "surprise"), 1)
    assert refused(plan)
    assert schema_problems(plan)


def test_the_plans_that_the_changes_start_from_are_good() -> None:
    for plan in (whole_plan(), vea_plan(), table_plan()):
        assert schema_problems(plan) == ()
        assert not refused(plan)


COUNTS: Path = ("vea", "items", "counts")
MODELS: Path = ("vea", "reward_models")
ANALYSIS: Path = ("vea", "analysis")
OWN, TABLE, SERVED, DPO = 4, 5, 6, 7

# (path, value, whether both doors take it)
CASES: list[tuple[Path, Any, bool]] = [
    (("vea", "tolerance"), 1, False),
    (("vea", "tolerance"), 0, True),
    (("vea", "words"), "/etc/words.yaml", False),
    (("vea", "decoys"), None, True),
    (("vea", "training_pairs"), "a/../b", False),
    ((*COUNTS, "wood_labs"), 0, False),
    ((*COUNTS, "wood_labs"), 7.5, False),
    ((*COUNTS, "other_family"), 7, False),
    (COUNTS, {}, False),
    (("vea", "items", "licence"), " ", False),
    (("vea", "items", "provenance"), "", False),
    (("vea", "trainings", 0, "target"), "weather", False),
    (("vea", "trainings", 0, "name"), "Wood", False),
    (("vea", "trainings", 0, "n_steps"), 0, False),
    (("vea", "trainings", 0, "max_length"), 0, False),
    (("vea", "trainings", 0, "seed"), 2**31, False),
    (("vea", "trainings", 0, "score_head", "std"), 0, False),
    (("vea", "trainings", 0, "score_head", "seed"), 2**31, False),
    (("vea", "trainings", 0, "recipe", "rank"), 0, False),
    (MODELS, [], False),
    ((*MODELS, OWN, "kind"), "oracle", False),
    ((*MODELS, OWN, "batch_rows"), 0, False),
    ((*MODELS, OWN, "max_length"), 0, False),
    ((*MODELS, OWN, "head"), {"seed": 1, "std": 0.1}, True),
    ((*MODELS, OWN, "expected"), "null", True),
    ((*MODELS, OWN, "expected"), None, False),
    ((*MODELS, OWN, "expected"), "partial", False),
    ((*MODELS, OWN, "expected"), True, False),
    ((*MODELS, TABLE, "file"), "../scores.csv", False),
    ((*MODELS, TABLE, "max_length"), 512, False),
    ((*MODELS, SERVED, "api"), "telepathy", False),
    ((*MODELS, SERVED, "api"), "pooling", True),
    ((*MODELS, SERVED, "api_key_env"), None, True),
    ((*MODELS, SERVED, "model"), "", False),
    ((*MODELS, SERVED, "max_tries"), 0, False),
    ((*MODELS, SERVED, "timeout_seconds"), 0, False),
    ((*MODELS, SERVED, "max_transport_share"), 1.1, False),
    ((*MODELS, DPO, "beta"), 0, False),
    ((*MODELS, DPO, "length_average"), 1, False),
    ((*MODELS, DPO, "length_average"), True, True),
    ((*MODELS, DPO, "policy", "checksums", "config.json"), "md5:aa", False),
    ((*ANALYSIS, "primary"), "both", False),
    ((*ANALYSIS, "primary"), "length_controlled", True),
    ((*ANALYSIS, "normalise"), "per_prompt", True),
    ((*ANALYSIS, "normalise"), "per_week", False),
    ((*ANALYSIS, "margin"), 0, False),
    ((*ANALYSIS, "gate_margin"), -1, False),
    ((*ANALYSIS, "alpha"), 0.21, False),
    ((*ANALYSIS, "alpha"), 0, False),
    ((*ANALYSIS, "confidence_level"), 0.5, False),
    ((*ANALYSIS, "equivalence_level"), 1, False),
    ((*ANALYSIS, "power"), 0.4, False),
    ((*ANALYSIS, "broad_from"), 1, True),
    ((*ANALYSIS, "broad_from"), 0, False),
    ((*ANALYSIS, "narrow_to"), 0, True),
    ((*ANALYSIS, "narrow_to"), 1, False),
    ((*ANALYSIS, "minimum_items"), 4, False),
    ((*ANALYSIS, "n_resamples"), 99, False),
    (("study",), "drift", False),
    (("analyses",), [], True),
    (("analyses",), ["weather"], False),
]


@pytest.mark.parametrize(("path", "value", "good"), CASES, ids=str)
def test_both_doors_judge_a_case_alike(path: Path, value: Any, good: bool) -> None:
    plan = put(whole_plan(), path, value)
    assert (schema_problems(plan) == ()) is good
    assert refused(plan) is not good


FIELDS = {
    "training": "wood_only",
    "head": {"seed": 1, "std": 0.1},
    "beta": 0.1,
    "policy": implicit()["policy"],
    "length_average": False,
    "endpoint": "https://a.example",
    "api": "plain",
    "api_key_env": "REWARD_KEY",
    "file": "a.csv",
    "batch_rows": 8,
    "max_tries": 1,
}


@pytest.mark.parametrize("number", [OWN, TABLE, SERVED, DPO])
def test_a_field_of_another_kind_is_refused_by_name(number: int) -> None:
    model = whole_plan()["vea"]["reward_models"][number]
    foreign = [name for name in FIELDS if name not in model]
    assert foreign
    for name in foreign:
        plan = put(whole_plan(), (*MODELS, number, name), FIELDS[name])
        assert schema_problems(plan)
        with pytest.raises(MalformedInputError) as caught:
            VeaPlan.of(Plan.from_dict(plan))
        assert caught.value.thing == f"plan.vea.reward_models[{number}].{name}"
        assert caught.value.problem == "is not a known field"
        assert "max_" in str(caught.value.next_step) or "file" in str(caught.value.next_step)


def test_a_trained_classifier_brings_its_own_head() -> None:
    plan = put(whole_plan(), (*MODELS, 0, "head"), {"seed": 1, "std": 0.1})
    with pytest.raises(MalformedInputError, match="training wood_only, which brings") as caught:
        VeaPlan.of(Plan.from_dict(plan))
    assert caught.value.thing == "plan.vea.reward_models[0].head"


def test_the_bare_word_null_is_no_known_truth() -> None:
    """YAML reads it as nothing: the arm would go unchecked without anybody noticing."""
    with pytest.raises(MalformedInputError, match='"null" in quotes') as caught:
        read_reward_model({"name": "a", "kind": "table", "file": "a.csv", "expected": None}, "m")
    assert caught.value.expected == "narrow or broad or confounded or null"
    assert caught.value.found == "YAML's null"


@pytest.mark.parametrize(
    "endpoint",
    [
        f"https://someone:{SECRET}@rewards.example/v1",
        f"https://{SECRET}@rewards.example/v1",
        f"https://rewards.example/v1?key={SECRET}",
        f"https://rewards.example/v1#{SECRET}",
        f"ftp://rewards.example/{SECRET}",
        f"rewards.example/{SECRET}",
        f"https://[{SECRET}/v1",
        f"https:///{SECRET}",
        f"https://rewards.example:port/{SECRET}",
        f" https://rewards.example/{SECRET}",
    ],
)
def test_an_endpoint_with_a_secret_is_refused_and_not_shown(endpoint: str) -> None:
    plan = put(whole_plan(), (*MODELS, SERVED, "endpoint"), endpoint)
    with pytest.raises(MalformedInputError) as caught:
        VeaPlan.of(Plan.from_dict(plan))
    assert caught.value.thing == f"plan.vea.reward_models[{SERVED}].endpoint"
    assert caught.value.expected
    assert caught.value.found
    assert SECRET not in str(caught.value)
    assert not any(SECRET in problem for problem in schema_problems(plan))


@pytest.mark.parametrize("key", [SECRET, "0A1B2C3D", "hunter2", "TWO WORDS", "", "A" * 65])
def test_a_key_in_the_place_of_its_variable_is_refused_and_not_shown(key: str) -> None:
    """At both doors, and whatever else is wrong with the same reward model."""
    for changes in ({}, {"max_tries": 0}, {"surprise": 1}, {"kind": "table"}):
        plan = put(whole_plan(), (*MODELS, SERVED), gateway(api_key_env=key, **changes))
        with pytest.raises(MalformedInputError) as caught:
            VeaPlan.of(load_plan(json.dumps(plan).encode(), thing="plan"))
        if not changes:
            assert caught.value.thing == f"plan.vea.reward_models[{SERVED}].api_key_env"
            assert "environment variable" in str(caught.value.expected)
            assert "have it replaced" in str(caught.value.next_step)
        if key:
            assert key not in str(caught.value)
            assert not any(key in detail for detail in caught.value.details)


def test_a_plan_has_the_section_of_its_study_and_no_other() -> None:
    both = {**vea_plan(), "drift": small_drift_plan()["drift"]}
    for plan in (both, {**both, "study": "drift"}):
        assert schema_problems(plan)
        with pytest.raises(MalformedInputError):
            Plan.from_dict(plan)


def test_a_study_reads_its_own_plans_alone() -> None:
    vea, drift = Plan.from_dict(vea_plan()), Plan.from_dict(small_drift_plan())
    with pytest.raises(RefusedError, match="study vea, found drift"):
        VeaPlan.of(drift)
    with pytest.raises(RefusedError, match="study drift, found vea"):
        DriftPlan.of(vea)


def test_what_the_parts_say_of_each_other() -> None:
    section = VeaPlan.of(Plan.from_dict(whole_plan()))
    kinds = [type(one) for one in section.reward_models]
    assert kinds == [*5 * [ClassifierReward], TableReward, GatewayReward, ImplicitReward]
    assert [one.expected for one in section.reward_models[:5]] == [
        "narrow",
        "broad",
        "confounded",
        "null",
        None,
    ]
    assert section.n_items == 9 * 7
    assert section.counts["lexical_wood_decoy"] == 7
    assert section.training("all_talk").target == "evaluation"
    assert section.reward_model("untrained").head.std == 0.002  # type: ignore[union-attr]
    with pytest.raises(MalformedInputError, match="known: narrow, broad"):
        section.reward_model("nobody")
    with pytest.raises(MalformedInputError, match="known: wood_only"):
        section.training("nobody")
    assert section.material_files == (
        "material/vea/items.jsonl",
        "material/vea/decoys.jsonl",
        "material/vea/words.yaml",
        "material/vea/training-pairs.jsonl",
        "material/vea/made-elsewhere.csv",
    )
    bare = VeaPlan.of(Plan.from_dict(put(table_plan(), ("vea", "decoys"), None)))
    assert bare.material_files == (
        "material/vea/items.jsonl",
        "material/vea/words.yaml",
        "material/vea/made-elsewhere.csv",
    )
    assert bare.n_items == 8 * 7


def test_a_packages_own_checksums_are_no_files_of_its_folder() -> None:
    digests = implicit()["policy"]["checksums"]
    pinned = {"wheel": "sha256:" + "a" * 64, "gguf": "sha256:" + "b" * 64}
    package = {"kind": "package", "where": "p", "revision": "1.0", "checksums": pinned | digests}
    model = read_reward_model(implicit(policy=package), "model")
    assert isinstance(model, ImplicitReward)
    assert model.policy_files == digests
    folder = read_reward_model(implicit(), "model")
    assert isinstance(folder, ImplicitReward)
    assert folder.policy_files == digests
