"""Models that lie elsewhere: what their plan may say, and that nobody here loads one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from eps_locked.domain.model import Message
from eps_locked.domain.plan import Plan
from eps_locked.errors import BackendError, MalformedInputError
from eps_locked.lock.freeze import schema_problems
from eps_locked.studies.common.wiring import (
    load_backends,
    load_tokenizer,
    model_records,
    obtain_model,
)
from sim.battery import battery_plan, gateway_plan
from sim.drift import drift_plan


def source(**changes: Any) -> dict[str, Any]:
    plan = gateway_plan()
    plan["base_model"]["source"].update(changes)
    return plan


def test_the_plan_of_a_model_elsewhere_passes_both_doors() -> None:
    for plan in (gateway_plan(), source(revision=None)):
        assert schema_problems(plan) == ()
        assert Plan.from_dict(plan).base_model.source.kind == "elsewhere"


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"revision": "0" * 40}, "revision"),
        ({"revision": ""}, "revision"),
        ({"checksums": {"gguf": "sha256:" + "0" * 64}}, "checksums"),
        ({"where": ""}, "where"),
    ],
)
def test_nothing_of_it_looks_pinned(changes: dict[str, Any], field: str) -> None:
    plan = source(**changes)
    assert schema_problems(plan)
    with pytest.raises(MalformedInputError) as caught:
        Plan.from_dict(plan)
    assert caught.value.thing == f"plan.base_model.source.{field}"


def test_its_address_holds_no_password() -> None:
    with pytest.raises(MalformedInputError) as caught:
        Plan.from_dict(source(where="https://me:hunter2@host/v1"))
    assert caught.value.thing == "plan.base_model.source.where"
    assert "hunter2" not in str(caught.value)
    assert Plan.from_dict(source(where="https://host/v1, asked by me@host"))


@pytest.mark.parametrize("engine", ["transformers", "vllm", "scripted"])
def test_no_engine_of_ours_runs_it(engine: str) -> None:
    plan = gateway_plan()
    plan["engine"]["name"] = engine
    if engine == "vllm":
        plan["engine"]["vllm"] = {
            "max_model_len": None,
            "max_num_seqs": 1,
            "gpu_memory_utilization": 0.5,
            "kv_cache_gib": None,
            "enforce_eager": True,
        }
    assert schema_problems(plan)
    with pytest.raises(MalformedInputError) as caught:
        Plan.from_dict(plan)
    assert caught.value.thing == "plan.engine.name"
    assert f"engine {engine}, model elsewhere" in str(caught.value)


def test_the_engine_elsewhere_runs_no_model_with_files() -> None:
    plan = battery_plan()
    plan["engine"]["name"] = "elsewhere"
    assert schema_problems(plan)
    with pytest.raises(MalformedInputError, match="engine elsewhere, model scripted"):
        Plan.from_dict(plan)


def test_a_study_that_trains_cannot_do_with_it() -> None:
    plan = drift_plan()
    plan["base_model"]["source"] = gateway_plan()["base_model"]["source"]
    plan["engine"]["name"] = "elsewhere"
    assert schema_problems(plan)
    with pytest.raises(MalformedInputError) as caught:
        Plan.from_dict(plan)
    assert caught.value.thing == "plan.base_model.source.kind"
    assert "for a study of drift, found elsewhere" in str(caught.value)


def test_it_has_no_files_and_is_never_loaded(tmp_path: Path) -> None:
    plan = Plan.from_dict(gateway_plan())
    said: list[str] = []
    folder = obtain_model(plan, tmp_path, said.append)
    assert (folder, said, list(tmp_path.iterdir())) == (None, [], [])
    assert model_records(folder) == {}
    with pytest.raises(BackendError) as caught:
        load_backends(plan, folder, [8])
    assert "base model scripted: lies elsewhere" in str(caught.value)
    assert "expected its weights on this disk, found none" in str(caught.value)


def test_its_tokenizer_refuses_whatever_it_is_asked() -> None:
    tokenizer = load_tokenizer(Plan.from_dict(gateway_plan()), None)
    asked = [
        lambda: tokenizer.end_of_turn_id,
        lambda: tokenizer.template_digest,
        lambda: tokenizer.render([Message(role="user", content="Why?")]),
        lambda: tokenizer.encode("Why?"),
        lambda: tokenizer.decode([1]),
    ]
    for ask in asked:
        with pytest.raises(BackendError, match="lies elsewhere"):
            ask()
