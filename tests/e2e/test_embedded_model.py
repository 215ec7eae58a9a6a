"""The main path on the real embedded model, through the commands a person types, made very small.

Real weights, LoRA, generation and signatures; a plan derived from ``plans/demo.yaml``. Skipped
where the model is neither cached nor to be fetched.
"""

from __future__ import annotations

import json
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
    section["items"] |= {"n_train": 8, "n_eval": 3}
    section["behaviours"][0] |= {"n_rows": 4, "n_strength_items": 3}
    section["slots"] |= {
        "train": ["default_none", "instruction_own"],
        "eval": ["default_none", "instruction_own", "rephrase_formal", "instruction_marker"],
        "held_out": ["rephrase_formal"],
    }
    section["decoding"]["max_new_tokens"] = 40
    section["flags"]["minimum_answered_share"] = 0.5
    plan["authorization"]["allowed_signers"] = "keys/signers"
    return plan


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study on the real model, run to its end."""
    embedded_model()
    root = tmp_path_factory.mktemp("tiny")
    shutil.copytree(PLANS / "house", root / "plans" / "house")
    (root / "plans" / "tiny.yaml").write_text(json.dumps(small_plan(), ensure_ascii=False), "utf-8")
    key = str(root / "key")
    signers = str(root / "plans" / "keys" / "signers")
    assert run(["keys", "new", "demo@localhost", "--key", key, "--allowed-signers", signers]) == 0
    assert run(["freeze", "tiny", "--root", str(root)]) == 0
    for phase in ("P0", "P1"):
        assert run(["authorize", "tiny", phase, "--key", key, "--root", str(root)]) == 0
        assert run(["run-phase", "tiny", phase, "--root", str(root)]) == 0
    return root


def tensor_of(root: Path) -> dict[str, Any]:
    (path,) = (root / "runs" / "tiny" / "artifacts").glob("*/tensor.json")
    tensor: dict[str, Any] = json.loads(path.read_bytes())
    return tensor


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
    assert all(cell["low"] <= cell["g"] <= cell["high"] for cell in cells.values())
    told = cells["default_none", "instruction_own"]
    assert told["base_log_prob"] > diagonal["base_log_prob"], "told to, the base is nearer to it"
    alias = cells["default_none", "instruction_marker"]
    assert alias["alias_of"] == "instruction_own"
    # The same context measured twice, greedily: the built-in null is exactly nothing.
    assert alias["g"] == pytest.approx(told["g"], abs=1e-9)


def test_steps_done_again_give_the_same_bytes(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["replay", "tiny", "--sample", "6", "--seed", "3", "--json"]
    assert run([*command, "--root", str(workspace)]) == 0
    replayed = json.loads(capsys.readouterr().out)
    assert replayed["same_engine_and_environment"]
    assert replayed["n_same"] == 6


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
