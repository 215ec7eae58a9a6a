"""From a plan to engines and judges: what is missing is named, and named before any work."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eps_locked.domain.judging import JudgePlan
from eps_locked.domain.plan import Plan
from eps_locked.errors import BackendError
from eps_locked.judges.scripted import ScriptedJudge
from eps_locked.studies.common.wiring import load_backends, load_judge, load_tokenizer, model_source
from eps_locked.studies.eps.execute import EpsExecutor
from sim.simulator import StudySimulator, default_plan, judge_plan

HEAVY = (
    "torch",
    "transformers",
    "peft",
    "vllm",
    "anthropic",
    "openai",
    "wordllama",
    "datasets",
    "huggingface_hub",
    "pyarrow",
)
VLLM = {
    "max_model_len": 512,
    "max_num_seqs": 8,
    "gpu_memory_utilization": 0.5,
    "kv_cache_gib": 1,
    "enforce_eager": True,
}
NO_VLLM = pytest.mark.skipif(
    importlib.util.find_spec("vllm") is not None, reason="vLLM is installed here"
)
FAMILY, MODEL = "wordllama", "wordllama-l2-supercat-256"
KEYS = ("A_KEY", "ANTHROPIC_CUSTOM_HEADERS", "OPENAI_CUSTOM_HEADERS")


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in KEYS:
        monkeypatch.delenv(variable, raising=False)


def vllm_plan(**engine: Any) -> Plan:
    plan = default_plan()
    plan["base_model"]["source"] = {"kind": "folder", "where": "model", "checksums": {}}
    plan["engine"] = {
        "name": "vllm",
        "dtype": "float32",
        "device": "cpu",
        "threads": 1,
        "vllm": VLLM,
    } | engine
    return Plan.from_dict(plan)


@pytest.fixture(scope="module")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("transformers", reason="the hf extra is not installed")
    from unit.models.tiny_llama import write_folder

    return write_folder(tmp_path_factory.mktemp("tiny") / "model")


@NO_VLLM
def test_vllm_that_is_not_installed_is_said_in_plain_words(tiny_folder: Path) -> None:
    with pytest.raises(BackendError) as told:
        load_backends(vllm_plan(), tiny_folder, [8])
    text = str(told.value)
    assert "vllm" in text.lower()
    assert "not installed" in text
    assert "next: " in text
    assert told.value.exit_code == 4


@NO_VLLM
def test_an_engine_that_does_not_come_up_opens_no_phase(
    study: StudySimulator, monkeypatch: pytest.MonkeyPatch, tiny_folder: Path
) -> None:
    """No entry, no artifact, no training: the same command runs once the engine is there."""
    study.freeze()
    study.authorize("P0")
    before = sorted(study.run_folder.folder.rglob("*"))
    monkeypatch.setattr(
        StudySimulator, "backends", lambda self: load_backends(vllm_plan(), tiny_folder, [8])
    )
    with pytest.raises(BackendError, match="not installed"):
        study.run("P0")
    after = {path for path in study.run_folder.folder.rglob("*") if path not in before}
    assert not study.run_folder.ledger_path.exists()
    assert not any(path.is_file() and path.stat().st_size for path in after)
    assert study.n_model_calls() == 0
    monkeypatch.undo()
    assert study.run("P0") is not None


def test_half_precision_is_refused_for_vllm(tiny_folder: Path) -> None:
    plan = vllm_plan()
    plan = replace(plan, engine=replace(plan.engine, dtype="float16"))
    with pytest.raises(BackendError, match="expected float32 or bfloat16, found float16"):
        load_backends(plan, tiny_folder, [8])


def test_the_scripted_model_needs_nothing_and_reads_for_itself() -> None:
    backends = load_backends(Plan.from_dict(default_plan()), None, [8])
    assert backends.engine is backends.readout
    assert backends.engine.identity.name == "scripted"
    assert load_tokenizer(Plan.from_dict(default_plan()), None).end_of_turn_id == 257


def test_a_model_is_found_below_the_root_and_nowhere_else(tmp_path: Path) -> None:
    source = model_source(vllm_plan().base_model, tmp_path)
    assert source.path == tmp_path / "model"  # type: ignore[union-attr]


def judge(**changes: Any) -> JudgePlan:
    return JudgePlan.from_dict(judge_plan(**changes), "judge")


SERVICE = {
    "anthropic": {"api_key_env": "A_KEY", "api_version": "2026-10-21"},
    "gateway": {"api_key_env": "A_KEY", "endpoint": "http://127.0.0.1:9/v1"},
}


def test_a_judge_of_every_kind_is_made_by_its_name() -> None:
    assert isinstance(load_judge(judge()), ScriptedJudge)
    for kind, more in SERVICE.items():
        with pytest.raises(BackendError, match="the environment variable A_KEY is not set"):
            load_judge(judge(kind=kind, **more))


@pytest.mark.parametrize("kind", ["anthropic", "gateway"])
def test_a_key_from_the_environment_makes_a_judge_that_does_not_tell_it(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip({"anthropic": "anthropic", "gateway": "openai"}[kind])
    monkeypatch.setenv("A_KEY", "sk-not-to-be-seen")
    made = load_judge(judge(kind=kind, **SERVICE[kind]))
    told = json.dumps(made.identity.to_dict()) + repr(made)
    assert "sk-not-to-be-seen" not in told


@pytest.mark.parametrize(
    ("kind", "module"),
    [("anthropic", "anthropic"), ("gateway", "openai"), ("prototype", "wordllama")],
)
def test_an_extra_that_is_not_installed_is_said_in_plain_words(
    kind: str, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_KEY", "k")
    for name in list(sys.modules):
        if name.split(".")[0] == module or name.startswith("eps_locked.judges."):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    named = {"family": FAMILY, "model": MODEL} if kind == "prototype" else SERVICE[kind]
    with pytest.raises(BackendError) as told:
        load_judge(judge(kind=kind, **named))
    assert "not installed" in str(told.value)
    assert "next: install" in str(told.value)
    assert kind in str(told.value)


def test_a_judge_is_loaded_once_and_only_when_a_row_is_judged(study: StudySimulator) -> None:
    """The marker row asks no judge; nothing is loaded for it."""

    def never(plan: JudgePlan) -> Any:
        raise AssertionError("a judge was loaded")

    study.load_judge = never  # type: ignore[method-assign]
    study.freeze()
    study.authorize("P0")
    assert study.run("P0") is not None
    assert EpsExecutor(load=study.backends, load_judge=never)._judges == {}


WATCHED = """
import sys
import eps_locked.cli.{module}
import eps_locked.studies.common.wiring
print(*(name for name in sys.argv[1].split(",") if name in sys.modules))
"""


def test_commands_import_no_model_judge_or_hub_library() -> None:
    """What ``plan check``, ``run-phase``, ``judge`` and ``freeze`` bring in before they act."""
    modules = ("plan", "run", "judge", "replay", "show")
    code = "\n".join(WATCHED.format(module=module) for module in modules)
    result = subprocess.run(
        [sys.executable, "-c", code, ",".join(HEAVY)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert result.stdout.split() == []
