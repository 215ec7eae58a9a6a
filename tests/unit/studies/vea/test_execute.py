"""A vea study runs to its end, is whole, comes out the same again, and invents no score."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eps_locked.canonical import decode, encode
from eps_locked.cli.surroundings import ModelFolder
from eps_locked.domain.model import AdapterFiles
from eps_locked.domain.plan import ModelSource, Plan
from eps_locked.errors import BackendError, MalformedInputError, RefusedError
from eps_locked.lock.record import RunRecord, terms_of
from eps_locked.models.folder import digest_model_folder
from eps_locked.runners.replay import Replayed, draw_steps, replay_steps
from eps_locked.studies.vea.execute import VeaExecutor
from eps_locked.studies.vea.plan import VeaPlan
from eps_locked.studies.vea.policy import FrozenPolicy, require_policy
from eps_locked.studies.vea.wiring import Handed, Models
from sim.forge import output_files, payloads_of, steps_in
from sim.reward_server import reward_server
from sim.simulator import StudySimulator, fingerprint
from sim.vea import TABLE, gateway, implicit, table_plan, vea_files, vea_plan, with_files

KEY = "sk-test-3f9a1c77-not-a-real-key"
NOTHING = Handed(adapter=None, table=None, policy=None)


def simulator(root: Path, plan: dict[str, Any], **files: str) -> StudySimulator:
    return StudySimulator(root=root / "study", plan=plan, files=vea_files() | files)


@pytest.fixture(autouse=True)
def no_waiting_for_disks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> StudySimulator:
    """The full plan, run to its end. Not to be changed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        study = simulator(tmp_path_factory.mktemp("done"), vea_plan())
        study.run_all()
    return study


def output(study: StudySimulator, name: str, what: str) -> dict[str, bytes]:
    return output_files(study, payloads_of(study), name, what)


def document(study: StudySimulator) -> Any:
    return decode(output(study, "P3/breadth", "breadth")["breadth.json"], thing="breadth")


def entries(study: StudySimulator) -> Mapping[str, Any]:
    return {one["step"]: one for one in steps_in(payloads_of(study))}


def scores(study: StudySimulator, name: str) -> Any:
    files = output(study, f"P2/score/{name}", "scores")
    return decode(files["scores.json"], thing="scores")


# -- it runs, is whole, and comes out the same


def test_the_audit_finds_nothing_wrong_and_leaves_nothing_out(done: StudySimulator) -> None:
    audited = done.audit()
    assert list(audited.failures()) == []
    assert audited.complete
    assert audited.checks[9].n_examined == len(done.plan["vea"]["trainings"])
    assert audited.checks[10].n_examined == len(entries(done)) == 11


def test_every_step_gives_its_bytes_again(done: StudySimulator) -> None:
    before = fingerprint(done.root)
    history = RunRecord.load(done.run_folder, terms_of(done.load()), done.clock).history
    steps = draw_steps(history, 10**6, 1)
    rows: list[Replayed] = list(
        replay_steps(
            steps, history, done.load(), done.run_folder, done.executor(), lambda text: None
        )
    )
    assert {row.step.split("/")[1] for row in rows} == {"power", "train", "score", "breadth"}
    assert [row for row in rows if row.differences] == []
    assert fingerprint(done.root) == before


def test_arms_of_known_truth_get_their_headline(done: StudySimulator) -> None:
    found = {one["reward_model"]: one for one in document(done)["reward_models"]}
    told = {name: (one["expected"], one["headline"]) for name, one in found.items()}
    assert told == {
        "narrow": ("narrow", "narrow"),
        "broad": ("broad", "broad"),
        "length": ("confounded", "confounded"),
        "untrained": ("null", "null"),
        "own": (None, "null"),
        "elsewhere": (None, "undetermined"),
    }
    assert [one["agrees"] for one in found.values()] == [True] * 4 + [None] * 2
    assert document(done)["label"] == "confirmatory"
    assert found["narrow"]["identity"] == scores(done, "narrow")["identity"]


def test_deltas_are_differences_of_the_stored_scores(done: StudySimulator) -> None:
    text = output(done, "P3/breadth", "breadth")["deltas.csv"].decode()
    header, *lines = text.splitlines()
    assert header.startswith("reward_model,item,family,domain,stem,inserted,length_controlled,")
    assert len(lines) == 63 * 6
    row = dict(zip(header.split(","), lines[0].split(","), strict=True))
    base, vea, control = (one["value"] for one in scores(done, "narrow")["scores"][:3])
    assert float(row["inserted"]) == base - vea
    assert float(row["length_controlled"]) == control - vea
    assert {row[f"{name}_status"] for name in ("base", "vea", "control")} == {"scored"}


def test_power_stands_before_any_score(done: StudySimulator) -> None:
    order = list(entries(done))
    assert order.index("P0/power") == 0
    assert set(entries(done)["P0/power"]["inputs"]) == {"plan", "items"}


# -- scores that are missing


def test_too_few_scores_make_the_step_unscored_and_the_family_unmeasured(
    tmp_path: Path,
) -> None:
    """One control is missing and one number is none."""
    rows = vea_files()[TABLE].splitlines()
    gone = next(n for n, row in enumerate(rows) if row.startswith("exam_interview-2,control,"))
    odd = next(n for n, row in enumerate(rows) if row.startswith("wood_labs-1,vea,"))
    rows[gone] = "exam_interview-2,control,"
    rows[odd] = "wood_labs-1,vea,nan"
    study = simulator(tmp_path, table_plan(), **{TABLE: "\n".join(rows) + "\n"})
    study.run_all()
    assert list(study.audit().failures()) == []
    entry = entries(study)["P2/score/elsewhere"]
    assert entry["status"] == "unscored"
    assert entry["flags"] == [
        "missing:not_finite",
        "missing:absent",
        "too_few:wood_labs",
        "too_few:exam_interview",
    ]
    (model,) = document(study)["reward_models"]
    assert model["statuses"] == {"absent": 1, "not_finite": 1, "scored": 187}
    families = {one["family"]: one for one in model["families"]}
    assert families["wood_labs"]["inserted"]["verdict"] == "too_few_items"
    assert families["exam_interview"]["inserted"]["verdict"] != "too_few_items"
    assert families["exam_interview"]["length_controlled"]["verdict"] == "too_few_items"
    text = output(study, "P3/breadth", "breadth")["deltas.csv"].decode()
    assert ",,,scored,not_finite,scored" in text


# -- a service


def test_a_service_is_asked_and_its_key_is_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("httpx2", reason="the judges extra is not installed")
    for name in list(os.environ):
        if name.upper().endswith("_PROXY"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("REWARD_KEY", KEY)
    with reward_server() as service:
        service.form = lambda score: {"score": score / 64, "model": "rm-2"}
        plan = table_plan()
        plan["vea"]["reward_models"] = [gateway(endpoint=service.url, max_concurrency=4)]
        study = simulator(tmp_path, plan)
        study.run_all()
        assert len(service.seen) == 189
        assert service.seen[0][1]["Authorization"] == f"Bearer {KEY}"
    assert list(study.audit().failures()) == []
    found = scores(study, "served")
    assert found["identity"]["settings"]["answered_by"] == "rm-2"
    assert {one["status"] for one in found["scores"]} == {"scored"}
    kept = [path for path in study.root.rglob("*") if path.is_file()]
    assert kept
    assert [path for path in kept if KEY.encode() in path.read_bytes()] == []


def test_a_service_that_is_down_records_nothing_and_can_be_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("httpx2", reason="the judges extra is not installed")
    monkeypatch.setenv("REWARD_KEY", KEY)
    with reward_server() as service:
        service.form = lambda score: {"score": score / 64}
        service.script = [(500, {}, {"x-should-retry": "false"})]
        plan = table_plan()
        plan["vea"]["reward_models"] = [gateway(endpoint=service.url, max_tries=1)]
        study = simulator(tmp_path, plan)
        study.freeze()
        study.authorize("P0")
        study.run("P0")
        study.authorize("P2")
        with pytest.raises(BackendError, match="too many scores were lost on the line"):
            study.run("P2")
        assert "P2/score/served" not in entries(study)
        study.run("P2")
        assert entries(study)["P2/score/served"]["status"] == "done"


# -- models


def test_hands_and_audit_import_nothing_heavy() -> None:
    code = (
        "import sys; import eps_locked.studies.vea.execute, eps_locked.studies.vea.rederive; "
        "print(sorted({'torch', 'transformers', 'peft', 'httpx2'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("kind", "name", "publishable"),
    [("scripted", "scripted", False), ("elsewhere", "elsewhere", True)],
)
def test_the_identity_is_told_without_loading_a_model(
    kind: str, name: str, publishable: bool
) -> None:
    value = table_plan()
    value["base_model"]["source"]["kind"] = kind
    value["engine"]["name"] = name

    def folder(source: ModelSource | None = None) -> Path | None:
        raise AssertionError("a model was looked for")

    executor = VeaExecutor(plan=Plan.from_dict(value), folder=folder, environ={})
    assert (executor.identity.name, executor.identity.publishable) == (name, publishable)


class FakeHost:
    """Stands for a model in memory."""


def models_of(value: dict[str, Any], folders: Mapping[str | None, Path | None]) -> Models:
    def folder(source: ModelSource | None = None) -> Path | None:
        return folders[None if source is None else source.where]

    return Models(plan=Plan.from_dict(value), folder=folder, environ={})


def test_a_model_is_dropped_before_another_kind_is_asked() -> None:
    value = vea_plan()
    models = models_of(value, {None: None})
    models._host = FakeHost()  # type: ignore[assignment]
    section = VeaPlan.of(models.plan)
    models.reward_model(section.reward_model("own"), NOTHING)
    assert models._host is not None
    table = Handed(adapter=None, table=vea_files()[TABLE].encode(), policy=None)
    models.reward_model(section.reward_model("elsewhere"), table)
    assert models._host is None


def test_a_base_model_that_lies_elsewhere_is_never_loaded() -> None:
    value = table_plan()
    value["base_model"]["source"]["kind"] = "elsewhere"
    value["engine"]["name"] = "elsewhere"
    models = models_of(value, {})
    with pytest.raises(BackendError, match="lies elsewhere"):
        models.host()


def test_an_adapter_of_another_make_is_refused() -> None:
    models = models_of(vea_plan(), {None: None})
    adapter = AdapterFiles(digest="d", files={"adapter_model.safetensors": b"1" * 20})
    with pytest.raises(MalformedInputError, match="is not a scripted adapter"):
        models.reward_model(
            VeaPlan.of(models.plan).reward_model("narrow"),
            Handed(adapter=adapter, table=None, policy=None),
        )


# -- the policy of an implicit reward


def write_model(folder: Path, weights: bytes) -> Path:
    folder.mkdir()
    (folder / "config.json").write_bytes(b"{}")
    (folder / "tokenizer.json").write_bytes(b"{}")
    (folder / "model.safetensors").write_bytes(weights)
    return folder


def test_a_policy_lies_below_the_workspace_as_the_base_model_does(tmp_path: Path) -> None:
    value = with_files(vea_plan())
    (tmp_path / "models").mkdir()
    base = write_model(tmp_path / "models" / "base", b"1")
    policy = write_model(tmp_path / "models" / "policy", b"2")
    found = ModelFolder(Plan.from_dict(value), tmp_path)
    source = ModelSource(kind="folder", where="models/policy", revision=None, checksums={})
    assert found.path() == base
    assert found.path(source) == policy
    assert set(found.records()) == {"config.json", "model.safetensors", "tokenizer.json"}
    missing = replace(source, where="models/none")
    with pytest.raises(BackendError, match="none"):
        found.path(missing)


def frozen_policy(folder: Path) -> FrozenPolicy:
    files = {name: one["digest"] for name, one in digest_model_folder(folder).items()}
    return FrozenPolicy(reward_model="dpo", where="models/policy", files=files)


def test_the_frozen_policy_is_used(tmp_path: Path) -> None:
    base, policy = write_model(tmp_path / "base", b"1"), write_model(tmp_path / "policy", b"2")
    require_policy(frozen_policy(policy), policy, base)


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("model.safetensors", b"3", r"policy of dpo: model\.safetensors: expected blake3:"),
        ("config.json", None, r"policy of dpo: config\.json: .* found no such file"),
        ("generation_config.json", b"{}", r"generation_config\.json: expected no such file"),
    ],
)
def test_another_policy_is_refused_naming_the_file(
    tmp_path: Path, name: str, data: bytes | None, words: str
) -> None:
    base, policy = write_model(tmp_path / "base", b"1"), write_model(tmp_path / "policy", b"2")
    frozen = frozen_policy(policy)
    if data is None:
        (policy / name).unlink()
    else:
        (policy / name).write_bytes(data)
    with pytest.raises(RefusedError, match=words):
        require_policy(frozen, policy, base)


def test_a_policy_that_is_its_own_reference_is_refused(tmp_path: Path) -> None:
    base, policy = write_model(tmp_path / "base", b"1"), write_model(tmp_path / "policy", b"1")
    with pytest.raises(RefusedError, match="every reward would be 0"):
        require_policy(frozen_policy(policy), policy, base)


def test_the_policy_is_checked_before_anything_of_it_is_read(tmp_path: Path) -> None:
    value = with_files(vea_plan())
    value["vea"]["reward_models"].append(implicit())
    base, policy = write_model(tmp_path / "base", b"1"), write_model(tmp_path / "policy", b"2")
    models = models_of(value, {None: base, "models/policy": policy})
    frozen = {
        "schema": "eps-locked/vea-model/1",
        "reward_model": "dpo",
        "source": {"kind": "folder", "where": "models/policy", "revision": None},
        "files": {"config.json": "blake3:" + "c" * 64},
    }
    with pytest.raises(RefusedError, match=r"policy of dpo: config\.json"):
        models.reward_model(
            VeaPlan.of(models.plan).reward_model("dpo"),
            Handed(adapter=None, table=None, policy=encode(frozen)),
        )
