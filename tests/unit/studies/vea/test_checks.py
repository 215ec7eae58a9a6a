"""What ``plan check`` refuses: every hole in a vea plan, by field, with what was expected."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from eps_locked.domain.plan import Plan
from eps_locked.errors import MalformedInputError
from eps_locked.studies.vea.freeze import checked_section
from sim.vea import DECOY, classifier, gateway, implicit, table_plan, training, vea_plan, with_files

Change = Callable[[dict[str, Any], dict[str, Any]], object]


def refusal(plan: dict[str, Any]) -> MalformedInputError:
    with pytest.raises(MalformedInputError) as caught:
        checked_section(Plan.from_dict(plan))
    return caught.value


# (what is changed, the thing named, what was expected, what was found), each but the first a part
CASES: list[tuple[Change, str, str, str]] = [
    (
        lambda plan, vea: vea["decoys"]["counts"].update(wood_labs=7),
        "plan.vea.decoys.counts",
        "lexical_wood_decoy alone",
        "wood_labs",
    ),
    (
        lambda plan, vea: vea["items"]["counts"].update({DECOY: 7}),
        "plan.vea.decoys",
        "in one of the two files",
        "items count 7",
    ),
    (
        lambda plan, vea: vea["decoys"].update(file=vea["items"]["file"]),
        "plan.vea.decoys",
        "a file of its own",
        "items.jsonl",
    ),
    (
        lambda plan, vea: vea["items"]["counts"].pop("wood_labs"),
        "plan.vea.items.counts",
        "wood_labs",
        "none",
    ),
    (
        lambda plan, vea: vea["items"]["counts"].pop("neutral_control"),
        "plan.vea.items.counts",
        "neutral_control",
        "none",
    ),
    (
        lambda plan, vea: vea["items"].update(counts={"wood_labs": 7, "neutral_control": 7}),
        "plan.vea.items.counts",
        "a family besides wood_labs and the gates",
        "wood_labs, neutral_control",
    ),
    (
        lambda plan, vea: vea["items"]["counts"].update(exam_interview=6),
        "plan.vea.items.counts.exam_interview",
        "at least 7 (analysis.minimum_items)",
        "6",
    ),
    (
        lambda plan, vea: vea["decoys"]["counts"].update({DECOY: 6}),
        "plan.vea.decoys.counts.lexical_wood_decoy",
        "at least 7 (analysis.minimum_items)",
        "6",
    ),
    (
        # Six pairs of one sign: 1/64 is above 0.05 / 6.
        lambda plan, vea: (
            vea["items"]["counts"].update(exam_interview=6),
            vea["analysis"].update(minimum_items=6),
        ),
        "plan.vea.items.counts.exam_interview",
        "at least 7 items",
        "6",
    ),
    (
        lambda plan, vea: vea["analysis"].update(narrow_to=0.8),
        "plan.vea.analysis.narrow_to",
        "below broad_from",
        "0.8",
    ),
    (
        lambda plan, vea: vea["trainings"][1].update(name="wood_only"),
        "plan.vea.trainings[1].name",
        "a name of its own",
        "wood_only",
    ),
    (
        lambda plan, vea: vea["reward_models"][5].update(name="own"),
        "plan.vea.reward_models[5].name",
        "a name of its own",
        "own",
    ),
    (
        lambda plan, vea: vea.update(training_pairs=None),
        "plan.vea.training_pairs",
        "exactly where something is trained",
        "null with 3 trainings",
    ),
    (
        lambda plan, vea: vea.update(trainings=[], reward_models=vea["reward_models"][3:]),
        "plan.vea.training_pairs",
        "exactly where something is trained",
        "training-pairs.jsonl with 0 trainings",
    ),
    (
        lambda plan, vea: vea["trainings"][0].update(seed=5),
        "plan.vea.trainings[0].seed",
        "one of the plan's seeds: 21",
        "5",
    ),
    (
        lambda plan, vea: vea["trainings"].append(training("idle", "wood", n_steps=9)),
        "plan.vea.trainings[3]",
        "a training that a reward model of the plan names",
        "idle",
    ),
    (
        lambda plan, vea: (
            vea["trainings"].append(training("twin", "wood")),
            vea["reward_models"].append(classifier("twin", training="twin")),
        ),
        "plan.vea.trainings[3]",
        "another target, seed or recipe",
        "those of wood_only",
    ),
    (
        lambda plan, vea: plan.update(seeds=[21, 22], minimum_seeds=2),
        "plan.vea.trainings",
        "at least 2 seeds",
        "1",
    ),
    (
        lambda plan, vea: vea["reward_models"][0].update(training="nobody"),
        "plan.vea.reward_models[0].training",
        "wood_only, all_talk, length_only",
        "nobody, which is missing",
    ),
    (
        lambda plan, vea: vea["reward_models"].append(implicit()),
        "plan.vea.reward_models[6].kind",
        "another kind with the scripted base model",
        "implicit",
    ),
    (
        lambda plan, vea: plan["phases"].pop("P1"),
        "plan.phases",
        "P0 then P1 then P2 then P3",
        "P0 then P2 then P3",
    ),
    (
        lambda plan, vea: plan.update(analyses=["drift"]),
        "plan.analyses",
        "breadth",
        "drift",
    ),
]


@pytest.mark.parametrize(("change", "thing", "expected", "found"), CASES)
def test_a_hole_in_the_design_is_refused_by_its_field(
    change: Change, thing: str, expected: str, found: str
) -> None:
    plan = vea_plan()
    checked_section(Plan.from_dict(plan))
    change(plan, plan["vea"])
    error = refusal(plan)
    assert error.thing == thing
    assert expected in str(error.expected)
    assert found in str(error.found)


def test_every_refusal_that_can_be_mended_says_how() -> None:
    plan = vea_plan()
    del plan["vea"]["items"]["counts"]["wood_labs"]
    assert "compared with this anchor" in str(refusal(plan).next_step)
    plan = vea_plan()
    plan["vea"]["decoys"]["counts"]["wood_labs"] = 7
    assert "under items" in str(refusal(plan).next_step)
    plan = vea_plan()
    plan["analyses"] = ["nulls"]
    assert "cannot be promised" in str(refusal(plan).next_step)


def test_as_few_items_as_can_ever_be_found_are_enough() -> None:
    """Of two other families each needs 1/2^n of at most 0.025: six pairs, and five do not do."""
    plan = table_plan()
    vea = plan["vea"]
    few = ("wood_labs", "exam_interview", "domain_varied", "neutral_control")
    vea["items"]["counts"] = dict.fromkeys(few, 6)
    vea.update(decoys=None)
    vea["analysis"]["minimum_items"] = 5
    checked_section(Plan.from_dict(plan))
    vea["items"]["counts"]["domain_varied"] = 5
    assert refusal(plan).thing == "plan.vea.items.counts.domain_varied"
    # A gate is no test that must be able to find something.
    vea["items"]["counts"].update(domain_varied=6, neutral_control=5)
    checked_section(Plan.from_dict(plan))


def test_decoys_may_stand_among_the_items() -> None:
    plan = vea_plan()
    plan["vea"]["items"]["counts"][DECOY] = 7
    plan["vea"]["decoys"] = None
    assert checked_section(Plan.from_dict(plan)).counts[DECOY] == 7


def elsewhere(plan: dict[str, Any]) -> dict[str, Any]:
    plan["base_model"]["source"] = {"kind": "elsewhere", "where": "a gateway", "checksums": {}}
    plan["engine"]["name"] = "elsewhere"
    return plan


def test_a_base_model_elsewhere_has_no_files_to_score_with() -> None:
    plan = elsewhere(table_plan())
    plan["vea"]["reward_models"].append(gateway())
    checked_section(Plan.from_dict(plan))
    for model in (classifier("own"), implicit()):
        plan = elsewhere(table_plan())
        plan["vea"]["reward_models"].append(model)
        error = refusal(plan)
        assert error.thing == f"plan.vea.reward_models[1] ({model['name']}, kind {model['kind']})"
        assert "gateway or table" in str(error.expected)
        assert "own files" in str(error.found)
        assert "have this reward model served" in str(error.next_step)


def test_heads_are_not_read_by_vllm() -> None:
    plan = with_files(vea_plan())
    plan["engine"] = {
        **plan["engine"],
        "name": "vllm",
        "vllm": {
            "max_model_len": None,
            "max_num_seqs": 8,
            "gpu_memory_utilization": 0.5,
            "kv_cache_gib": None,
            "enforce_eager": True,
        },
    }
    error = refusal(plan)
    assert error.thing == "plan.engine.name"
    assert (str(error.expected)[:12], error.found) == ("transformers", "vllm")


def with_policy(policy: dict[str, Any]) -> dict[str, Any]:
    plan = with_files(vea_plan())
    plan["vea"]["reward_models"].append(implicit(policy=policy))
    return plan


@pytest.mark.parametrize(
    "where", ["models/base", "./models/base", "models/x/../base", "models/base/"]
)
def test_a_policy_is_not_its_own_reference(where: str) -> None:
    error = refusal(with_policy({**implicit()["policy"], "where": where}))
    assert error.thing == "plan.vea.reward_models[6].policy"
    assert "every reward would be 0" in str(error.problem)
    assert error.found == f"folder {where}"
    assert "base_model" in str(error.next_step)


def test_two_commits_of_one_repository_are_two_models() -> None:
    hub = {"kind": "hub", "where": "a/b", "revision": "a" * 40}
    plan = with_policy({**hub, "checksums": implicit()["policy"]["checksums"]})
    plan["base_model"]["source"] = {**hub, "checksums": {}}
    assert refusal(plan).thing == "plan.vea.reward_models[6].policy"
    plan["base_model"]["source"]["revision"] = "b" * 40
    checked_section(Plan.from_dict(plan))


def test_a_policy_needs_files_and_a_digest_of_each() -> None:
    good = implicit()["policy"]
    checked_section(Plan.from_dict(with_policy(good)))
    for kind in ("scripted", "elsewhere"):
        error = refusal(with_policy({"kind": kind, "where": "models/policy", "checksums": {}}))
        assert error.thing == "plan.vea.reward_models[6].policy.kind"
        assert (error.expected, error.found) == ("folder or hub or package", kind)
    for name, missing in (
        ("config.json", "config.json"),
        ("tokenizer.json", "tokenizer.json"),
        ("model.safetensors", "*.safetensors"),
    ):
        checksums = {key: value for key, value in good["checksums"].items() if key != name}
        error = refusal(with_policy({**good, "checksums": checksums}))
        assert error.thing == "plan.vea.reward_models[6].policy.checksums"
        assert "every file of the policy's folder" in str(error.expected)
        assert error.found == f"none of {missing}"
    other = good["checksums"] | {"config.json": "sha256:" + "d" * 64}
    error = refusal(with_policy({**good, "checksums": other}))
    assert error.thing == "plan.vea.reward_models[6].policy.checksums.config.json"
    assert error.expected == "blake3: and 64 hex digits"


def test_a_plan_scores_with_something() -> None:
    plan = table_plan()
    plan["vea"]["reward_models"] = []
    error = refusal(plan)
    assert error.thing == "plan.vea.reward_models"
    assert (error.expected, error.found) == ("at least one reward model", "none")
