"""The same hands on a real model: what is trained is worn, and what speaks says who it is."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers", reason="the hf extra is not installed")
sys.path.insert(0, str(Path(__file__).parents[2] / "models"))

from tiny_llama import write_model, write_tokenizer

from eps_locked.canonical import encode
from eps_locked.domain.model import AdapterFiles
from eps_locked.domain.plan import ModelSource, Plan
from eps_locked.errors import BackendError
from eps_locked.lock.workspace import describe_artifact
from eps_locked.models.folder import digest_model_folder
from eps_locked.studies.vea.derive import FrozenItem, requests_of
from eps_locked.studies.vea.gather import frozen_item
from eps_locked.studies.vea.items import read_items
from eps_locked.studies.vea.plan import VeaPlan
from eps_locked.studies.vea.records import ScoresRecord
from eps_locked.studies.vea.rederive import score_differences
from eps_locked.studies.vea.training_pairs import pairs_for, read_training_pairs
from eps_locked.studies.vea.wiring import Handed, Models, engine_identity
from sim.vea import PAIRS, implicit, item, lines, vea_files, vea_plan, with_files

LENGTH = 256


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str | None, Path]:
    """The base model (under None), and a policy that differs from it in one weight."""
    import torch
    from safetensors.torch import load_file, save_file

    root = tmp_path_factory.mktemp("wiring")
    base, policy = root / "base", root / "policy"
    write_tokenizer(base)
    write_model(base)
    shutil.copytree(base, policy)
    weights = load_file(policy / "model.safetensors")
    weights["model.norm.weight"] = weights["model.norm.weight"] * torch.tensor(1.5)
    save_file(weights, policy / "model.safetensors", metadata={"format": "pt"})
    return {None: base, "models/policy": policy}


def plan() -> Plan:
    value = with_files(vea_plan())
    for one in value["vea"]["trainings"]:
        one.update(n_steps=2, max_length=LENGTH)
        one["recipe"].update(rows_per_step=2, warmup_steps=0)
    for one in value["vea"]["reward_models"]:
        if one["kind"] == "sequence_classification":
            one["max_length"] = LENGTH
    value["vea"]["reward_models"].append(implicit(max_length=LENGTH))
    return Plan.from_dict(value)


def frozen_items() -> tuple[FrozenItem, ...]:
    data = lines([item("wood_labs", 0), item("neutral_control", 1)])
    return tuple(frozen_item(one) for one in read_items(data.encode(), "items", ["test"], 0.2))


def test_every_kind_with_weights_is_made_scored_and_held_against_the_plan(
    folders: dict[str | None, Path],
) -> None:
    def folder(source: ModelSource | None = None) -> Path:
        return folders[None if source is None else source.where]

    models = Models(plan=plan(), folder=folder, environ={})
    section, items = VeaPlan.of(models.plan), frozen_items()
    training = section.training("wood_only")
    pairs = read_training_pairs(vea_files()[PAIRS].encode(), "pairs")
    outcome = models.trainer().fit(
        pairs_for("wood", pairs)[:6],
        training.recipe,
        (training.score_head.seed, training.score_head.std),
        n_steps=training.n_steps,
        max_length=training.max_length,
        seed=training.seed,
        provenance={"training": "wood_only"},
        on_step=lambda number, loss: None,
    )
    assert outcome.n_rows_seen == training.n_steps * training.recipe.rows_per_step
    assert len(outcome.losses) == outcome.stop_step == training.n_steps
    adapter = AdapterFiles(digest=describe_artifact(outcome.files).digest, files=outcome.files)
    files = {
        name: record["digest"]
        for name, record in digest_model_folder(folders["models/policy"]).items()
    }
    policy = {
        "schema": "eps-locked/vea-model/1",
        "reward_model": "dpo",
        "source": {"kind": "folder", "where": "models/policy", "revision": None},
        "files": files,
    }
    handed = {
        "narrow": Handed(adapter=adapter, table=None, policy=None),
        "untrained": Handed(adapter=None, table=None, policy=None),
        "dpo": Handed(adapter=None, table=None, policy=encode(policy)),
    }
    values: dict[str, Any] = {}
    for name, one in handed.items():
        rules = section.reward_model(name)
        model = models.reward_model(rules, one)
        record = ScoresRecord(
            reward_model=name,
            scores=model.score(requests_of(items)),
            identity=model.identity.to_dict(),
        )
        worn = None if one.adapter is None else one.adapter.digest
        assert score_differences(record, items, rules, models.plan, worn) == []
        assert all(score.is_scored for score in record.scores)
        values[name] = [score.value for score in record.scores]
    assert len({tuple(found) for found in values.values()}) == 3
    assert models._host is None  # dropped before the two models of the ratio came


def test_a_base_model_without_a_head_has_none_of_its_own(
    folders: dict[str | None, Path],
) -> None:
    models = Models(plan=plan(), folder=lambda source=None: folders[None], environ={})
    nothing = Handed(adapter=None, table=None, policy=None)
    with pytest.raises(BackendError, match="has no scalar head of its own"):
        models.reward_model(VeaPlan.of(models.plan).reward_model("own"), nothing)


def test_the_engine_is_named_with_its_versions_before_it_is_loaded() -> None:
    identity = engine_identity(plan())
    assert (identity.name, identity.publishable) == ("transformers", True)
    assert all(name in identity.version for name in ("peft ", "torch ", "transformers "))
