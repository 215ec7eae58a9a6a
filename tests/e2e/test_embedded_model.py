"""The main path on the real embedded model, through the commands a person types, made very small.

Real weights, LoRA, generation, signatures and seals; a plan derived from ``plans/demo.yaml``.
Skipped where the model is neither cached nor to be fetched.
"""

from __future__ import annotations

import json
import math
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from eps_locked.cli.main import run
from eps_locked.errors import BackendError
from eps_locked.lock.strict_yaml import parse_yaml
from eps_locked.models.source import SMOLLM2_135M, cache_root, cached

PLANS = Path(__file__).resolve().parents[2] / "plans"

pytestmark = pytest.mark.model


def embedded_model() -> Path:
    """The cached model's folder; ``./eps test`` fetches it before the tests start."""
    try:
        folder = cached(SMOLLM2_135M, cache_root(os.environ))
    except BackendError as error:
        pytest.skip(f"no embedded model: {error}")
    if folder is None:
        pytest.skip("no embedded model in the cache: run `eps-locked model demo` once")
    return folder


def small_plan() -> dict[str, Any]:
    plan: dict[str, Any] = parse_yaml((PLANS / "demo.yaml").read_bytes(), thing="demo")
    plan["name"] = "tiny"
    plan["engine"]["threads"] = 1
    section = plan["eps"]
    section["items"] |= {"n_train": 6, "n_eval": 3}
    section["behaviours"][0] |= {"n_rows": 4, "n_strength_items": 2}
    section["slots"] |= {
        "train": ["default_none", "instruction_own"],
        "eval": [
            "default_none",
            "instruction_own",
            "rephrase_formal",
            "instruction_marker",
            "rephrase_imperative",
        ],
        "held_out": ["rephrase_formal"],
        "negative_panel": ["persona_police_officer", "default_empty"],
    }
    section["decoding"]["max_new_tokens"] = 28
    section["quarantine"] |= {"recipients": "keys/custodian"}
    baselines = section["baselines"]
    baselines["activations"] |= {"n_items": 6, "pca_components": 3}
    baselines["divergence"] |= {"n_items": 2}
    baselines["persona"] |= {"n_pairs": 1, "n_questions": 2, "n_rows": 4}
    section["scoring"] |= {
        "n_resamples": 100,
        "n_permutations": 19,
        "n_part_permutations": 19,
        "n_combiner_permutations": 19,
        "minimum_cells": 6,
    }
    plan["authorization"]["allowed_signers"] = "keys/signers"
    return plan


# What the plan's draw sets apart, by (train, eval).
SEALED = {
    ("default_none", "rephrase_formal"): "held_out",
    ("instruction_own", "rephrase_formal"): "held_out",
    ("default_none", "rephrase_imperative"): "quarantined",
}


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study on the real model, run to its end."""
    embedded_model()
    root = tmp_path_factory.mktemp("tiny")
    shutil.copytree(PLANS / "house", root / "plans" / "house")
    (root / "plans" / "tiny.yaml").write_text(json.dumps(small_plan(), ensure_ascii=False), "utf-8")
    key = str(root / "key")
    signers = str(root / "plans" / "keys" / "signers")
    recipients = str(root / "plans" / "keys" / "custodian")
    assert run(["keys", "new", "demo@localhost", "--key", key, "--allowed-signers", signers]) == 0
    custodian = str(root / "custodian_key")
    assert run(["keys", "custodian", "--key", custodian, "--recipients", recipients]) == 0
    assert run(["freeze", "tiny", "--root", str(root)]) == 0
    for phase in ("P0", "P1", "P3"):
        assert run(["authorize", "tiny", phase, "--key", key, "--root", str(root)]) == 0
        assert run(["run-phase", "tiny", phase, "--root", str(root)]) == 0
    return root


def tensor_of(root: Path) -> dict[str, Any]:
    (path,) = (root / "runs" / "tiny" / "artifacts").glob("*/tensor.json")
    tensor: dict[str, Any] = json.loads(path.read_bytes())
    return tensor


def entries_of(root: Path) -> list[dict[str, Any]]:
    lines = (root / "runs" / "tiny" / "ledger.jsonl").read_bytes().splitlines()
    return [json.loads(line)["payload"] for line in lines]


def test_the_evidence_holds(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check-evidence", "tiny", "--json", "--root", str(workspace)]) == 0
    verdict = json.loads(capsys.readouterr().out)
    assert verdict["ok"]
    assert verdict["complete"]
    assert not verdict["publishable"]


def test_the_marker_was_taught_and_the_instructed_context_was_step_matched(
    workspace: Path,
) -> None:
    cells = {(c["train"], c["eval"]): c for c in tensor_of(workspace)["cells"]}
    diagonal = cells["default_none", "default_none"]
    assert diagonal["g"] > 3, "the implant shows in its own context"
    assert diagonal["base_log_prob"] < -15, "the base model does not use the marker"
    readable = [cell for place, cell in cells.items() if place not in SEALED]
    assert len(readable) == 7
    assert all(cell["low"] <= cell["g"] <= cell["high"] for cell in readable)
    told = cells["default_none", "instruction_own"]
    assert told["base_log_prob"] > diagonal["base_log_prob"], "told to, the base is nearer to it"
    alias = cells["default_none", "instruction_marker"]
    assert alias["alias_of"] == "instruction_own"
    # The same context measured twice, greedily: the built-in null is exactly nothing.
    assert alias["g"] == pytest.approx(told["g"], abs=1e-9)


def test_what_is_set_apart_lies_there_as_ciphertext_alone(workspace: Path) -> None:
    apart = {}
    for cell in tensor_of(workspace)["cells"]:
        if "sealed" in cell["flags"]:
            apart[cell["train"], cell["eval"]] = cell["split"]
            assert cell["g"] is cell["base_log_prob"] is cell["n"] is None
            assert {one["g"] for one in cell["by_seed"]} == {None}
        else:
            assert cell["split"] in ("open", "diagonal")
    assert apart == SEALED
    steps = [one for one in entries_of(workspace) if one.get("step", "").startswith("P1/cells/")]
    assert len(steps) == 4, "one step an adapter: two contexts, two seeds"
    for step in steps:
        train = step["step"].split("/")[3]
        assert len(step["outputs"]) == 5
        for name, artifact in step["outputs"].items():
            readable = [file for file in artifact["files"] if not file.endswith(".age")]
            is_sealed = (train, name.removeprefix("cell:")) in SEALED
            assert (readable == ["sealed.json"]) == is_sealed
            assert (len(readable) < len(artifact["files"])) == is_sealed


def test_the_baselines_predict_every_cell_and_tell_contexts_apart(workspace: Path) -> None:
    (path,) = (workspace / "runs" / "tiny" / "artifacts").glob("*/predictors.json")
    found = {
        one["metric"]: {(c["train"], c["eval"]): c["value"] for c in one["cells"]}
        for one in json.loads(path.read_bytes())["predictors"]
    }
    assert len(found) == 12
    places = {(cell["train"], cell["eval"]) for cell in tensor_of(workspace)["cells"]}
    for values in found.values():
        assert set(values) == places
        assert all(math.isfinite(value) for value in values.values())
    plain, told = ("default_none", "default_none"), ("default_none", "instruction_own")
    alias = ("default_none", "instruction_marker")
    assert found["bystander_prior"][told] > found["bystander_prior"][plain]
    for metric in ("gaussian_kl", "output_kl_forward"):
        values = found[metric]
        assert values[plain] == pytest.approx(0, abs=1e-6), "a context is no distance from itself"
        assert values[told] > 0.01
        assert values[alias] == pytest.approx(values[told], rel=1e-6), "one context, two names"


def test_steps_done_again_give_the_same_bytes(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["replay", "tiny", "--sample", "6", "--seed", "27", "--json"]
    assert run([*command, "--root", str(workspace)]) == 0
    replayed = json.loads(capsys.readouterr().out)
    assert replayed["same_engine_and_environment"]
    assert replayed["n_same"] == 6
    steps = {one["step"] for one in replayed["steps"]}
    assert "P1/cells/marker/default_none/s11" in steps, "drawn among others: one that seals"
    assert "P3/elicitation/marker" in steps


def test_one_changed_character_refuses_the_next_start(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = workspace / "plans" / "tiny.yaml"
    before = plan.read_bytes()
    plan.write_bytes(before.replace(b'"n_eval": 3', b'"n_eval": 4'))
    try:
        assert run(["run-phase", "tiny", "P1", "--root", str(workspace)]) == 3
    finally:
        plan.write_bytes(before)
    assert "plans/tiny.yaml" in capsys.readouterr().err


def test_a_look_is_taken_on_a_fresh_verdict_and_counted(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cells = tensor_of(workspace)["cells"]
    rows = [f"marker,{c['train']},{c['eval']},{number}" for number, c in enumerate(cells)]
    table = workspace / "guess.csv"
    table.write_text("\n".join(["behaviour,train,eval,value", *rows]) + "\n", "utf-8")
    root = ["--root", str(workspace)]
    declared = ["--metric", "guess", "--polarity", "more", "--track", "predictive"]
    assert run(["submit", "tiny", str(table), *declared, "--author", "a@localhost", *root]) == 0
    look = ["final-test", "tiny", "1", "--custodian-key", str(workspace / "custodian_key"), *root]
    assert run(look) == 3, "no verdict yet on a ledger that holds the submission"
    assert [one["kind"] for one in entries_of(workspace)][-1] == "submission"
    assert run(["check-evidence", "tiny", *root]) == 0
    capsys.readouterr()
    assert run([*look, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["look"] == 1
    assert found["scores"]["label"] == "confirmatory"
    assert found["scores"]["submission"]["metric"] == "guess"
    taken, ended = entries_of(workspace)[-2:]
    assert (taken["kind"], taken["number"], taken["informed"]) == ("look", 1, False)
    assert (ended["kind"], ended["status"]) == ("score", "scored")
    assert run(["check-evidence", "tiny", "--no-verdict", *root]) == 0
