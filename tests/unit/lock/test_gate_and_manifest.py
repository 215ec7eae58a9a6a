"""Permits, and that every field of every frozen document counts."""

from __future__ import annotations

import copy
import dataclasses
import json
from typing import Any

import pytest

from eps_locked.canonical import digest_value
from eps_locked.domain.authorization import Authorization
from eps_locked.domain.ledger import Entry
from eps_locked.domain.manifest import Manifest
from eps_locked.errors import EpsLockedError, MalformedInputError, RefusedError
from eps_locked.lock.envelope import open_document, payload_bytes, seal_document
from eps_locked.lock.freeze import schema_problems
from eps_locked.lock.gate import Permit
from eps_locked.lock.ledger import ChainReader, write_line
from eps_locked.runners.loop import run_phase
from sim.forge import document_payload, find, payloads_of, resign
from sim.simulator import AUTHOR, StudySimulator, default_plan, tiny_plan

OTHER = "blake3:" + "7" * 64


def test_only_the_gate_issues_a_permit(half_way: StudySimulator) -> None:
    _, permit, _ = half_way.open("P1")
    assert permit.phase == "P1"
    fields = {field.name: getattr(permit, field.name) for field in dataclasses.fields(permit)} | {
        "phase": "P0"
    }
    with pytest.raises(TypeError, match="issuer"):
        Permit(**fields)
    with pytest.raises(TypeError, match="issued by gate"):
        Permit(**fields, issuer=object())
    with pytest.raises((TypeError, ValueError)):
        dataclasses.replace(permit, phase="P0")
    with pytest.raises(TypeError, match="issued by gate"):
        dataclasses.replace(permit, phase="P0", issuer=None)
    with pytest.raises(dataclasses.FrozenInstanceError):
        permit.phase = "P0"


def test_a_permit_of_one_manifest_runs_no_other(
    half_way: StudySimulator, study: StudySimulator, tmp_path: Any
) -> None:
    _, permit, _ = half_way.open("P1")
    other = StudySimulator(root=tmp_path / "other", plan=tiny_plan())
    other.freeze()
    other.authorize("P0")
    _, _, record = other.open("P0")
    with pytest.raises(RuntimeError, match="another manifest"):
        run_phase(permit, record, other.load(), None, other.observer)  # type: ignore[arg-type]


# -- every field of a manifest


def manifest_payload() -> dict[str, Any]:
    record = {"digest": OTHER, "size": 7}
    return {
        "schema": "eps-locked/manifest/1",
        "name": "small",
        "title": "t",
        "study": "eps",
        "author": AUTHOR,
        "frozen_at": "2026-06-09T12:00:00Z",
        "plan": OTHER,
        "phases": ["P0", "P1"],
        "files": {"frozen/plan.yaml": record},
        "sources": {"small.yaml": record},
        "model_files": {"model.safetensors": record},
        "code": OTHER,
        "environment": OTHER,
        "self_authorization": True,
        "auto_approve_ms": 1,
        "publication": False,
        "summary": {"cells": 8},
    }


def changed(value: Any) -> Any:
    """Another value of the same type."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, str):
        if value.startswith("blake3:"):
            return "blake3:" + "8" * 64
        if value.endswith("Z") and value[:4].isdigit():
            return "2026-06-09T12:00:01Z"
        return value + "x"
    if isinstance(value, list):
        return value[:-1] if value else ["x"]
    if isinstance(value, dict):
        return {key: changed(one) for key, one in value.items()} or {"x": OTHER}
    assert value is None
    return 1


def test_the_fields_tried_are_those_of_a_manifest(half_way: StudySimulator) -> None:
    names = {field.name for field in dataclasses.fields(Manifest)} | {"schema"}
    assert set(manifest_payload()) == names
    assert Manifest.from_payload(manifest_payload(), "m").to_payload() == manifest_payload()


@pytest.mark.parametrize("field", manifest_payload())
def test_every_field_of_a_manifest_counts(
    half_way: StudySimulator, refuses: Any, field: str
) -> None:
    """Changed and sealed anew, so that its own digest is right: authorization, ledger and frozen
    files still name the other manifest."""
    path = half_way.manifest_folder / "manifest.json"
    payload = json.loads(path.read_bytes())["payload"]
    payload[field] = changed(payload[field])
    data, digest = seal_document(payload)
    assert digest != half_way.load().digest
    path.write_bytes(data)
    # A manifest that promises no P1 has no P1 to refuse: that is a wrong word.
    with refuses(half_way, MalformedInputError if field == "phases" else RefusedError):
        half_way.run("P1")
    assert not half_way.audit().ok


@pytest.mark.parametrize("field", manifest_payload())
@pytest.mark.parametrize("act", ["removed", "null", "wrong type"])
def test_every_field_of_a_manifest_has_to_be_right(field: str, act: str) -> None:
    payload = manifest_payload()
    if act == "removed":
        del payload[field]
    elif act == "null":
        payload[field] = None
    else:
        payload[field] = 7.5
    with pytest.raises(MalformedInputError, match=field):
        Manifest.from_payload(payload, "manifest")
    assert schema_problems({"digest": OTHER, "payload": payload}, schema="manifest.schema.json"), (
        "the schema agrees"
    )


def test_an_unknown_field_of_a_manifest_is_refused() -> None:
    with pytest.raises(MalformedInputError, match=r"manifest\.extra"):
        Manifest.from_payload({**manifest_payload(), "extra": 1}, "manifest")


# -- every field of a ledger entry


def entry_fields() -> list[tuple[str, str]]:
    common = ("schema", "seq", "prev", "kind", "at")
    fields = {
        "open": "phase authorization cap_ms self_authorized lock_head code environment engine",
        "step": "step phase status seed inputs outputs flags code environment engine started "
        "ended compute_ms",
        "close": "phase results n_steps compute_ms",
        "amendment": "number amendment signature lock_head rebind",
        "aborted": "step phase reason compute_ms",
    }
    return [(kind, name) for kind, names in fields.items() for name in (*common, *names.split())]


@pytest.fixture(scope="session")
def entries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """One genuine entry of each kind."""
    from eps_locked.engines.scripted import ScriptedEngine

    study = StudySimulator(root=tmp_path_factory.mktemp("entries") / "study", plan=tiny_plan())
    study.freeze()
    study.amend(rebind=frozenset({"code"}))
    study.authorize("P0")
    study.engine = ScriptedEngine(fail_after=2)
    with pytest.raises(EpsLockedError):
        study.run("P0")
    study.engine = ScriptedEngine()
    study.run("P0")
    payloads = payloads_of(study)
    kinds = ("open", "step", "aborted", "amendment", "close")
    return {kind: find(payloads, kind) for kind in kinds}


def entry_of(payload: dict[str, Any]) -> Entry:
    return Entry.from_payload(payload, "entry")


def test_the_fields_tried_are_those_of_the_entries(entries: dict[str, dict[str, Any]]) -> None:
    assert {(kind, name) for kind, one in entries.items() for name in one} == set(entry_fields())


@pytest.mark.parametrize(("kind", "field"), entry_fields())
def test_every_field_of_an_entry_counts(
    entries: dict[str, dict[str, Any]], kind: str, field: str
) -> None:
    payload = copy.deepcopy(entries[kind])
    line, digest = write_line(entry_of(payload))
    other = {**payload, field: changed(payload[field])}
    assert digest_value(other) != digest
    for bad in ({k: v for k, v in payload.items() if k != field}, {**payload, field: 7.5}):
        if field == "seed" and field not in bad:
            continue  # a step without a seed says so by null, or by saying nothing
        with pytest.raises(MalformedInputError, match="entry"):
            entry_of(bad)
        assert schema_problems({"digest": digest, "payload": bad}, schema="ledger.schema.json"), (
            "the schema agrees"
        )
    with pytest.raises(MalformedInputError, match="extra"):
        entry_of({**payload, "extra": 1})
    assert schema_problems(json.loads(line), schema="ledger.schema.json") == ()
    # The line as it stands, with another value and the old digest, is no line.
    data = seal_document(other)[0].replace(digest_value(other).encode(), digest.encode())
    reader = ChainReader(OTHER, "runs", thing="ledger")
    with pytest.raises(EpsLockedError, match="ledger:1"):
        reader.accept(data)


# -- signed documents, and what the schemas say of everything we write


def test_the_schemas_take_everything_that_is_written(
    finished: StudySimulator, tmp_path: Any
) -> None:
    from eps_locked.audit.checks import verdict_payload

    finished.amend("why not", rebind=frozenset({"code", "environment"}))
    run = finished.run_folder.folder
    documents = {
        "manifest.schema.json": [finished.manifest_folder / "manifest.json"],
        "authorization.schema.json": sorted(run.glob("authorizations/*/document.json")),
        "amendment.schema.json": sorted(run.glob("amendments/*/document.json")),
    }
    for schema, paths in documents.items():
        assert paths
        for path in paths:
            assert schema_problems(json.loads(path.read_bytes()), schema=schema) == ()
    for line in finished.run_folder.ledger_lines():
        assert schema_problems(json.loads(line), schema="ledger.schema.json") == ()
    for study in (finished, finished.copy_to(tmp_path / "torn")):
        verdict = json.loads(seal_document(verdict_payload(study.audit(), OTHER))[0])
        assert schema_problems(verdict, schema="verdict.schema.json") == ()
        (tmp_path / "torn/runs/small/note.txt").write_text("") if study is finished else None
    assert schema_problems(default_plan()) == ()


@pytest.mark.parametrize(
    "field", [field.name for field in dataclasses.fields(Authorization)] + ["schema"]
)
def test_every_field_of_an_authorization_counts(
    half_way: StudySimulator, refuses: Any, field: str
) -> None:
    """Without the signer's key no field can be changed; with it, most of them still cannot."""
    folder = half_way.run_folder.folder / "authorizations/P1-0001"
    payload = document_payload(folder)
    payload[field] = changed(payload[field])
    (folder / "document.json").write_bytes(seal_document(payload)[0])
    with refuses(half_way) as caught:
        half_way.run("P1")
    assert "P1-0001" in str(caught.value)
    resign(folder, payload, key=half_way.key(AUTHOR))
    if field in ("cap_ms", "expires_at"):
        assert half_way.run("P1"), "the author may sign another cap and another time"
    else:
        with refuses(half_way):
            half_way.run("P1")


@pytest.mark.parametrize(
    "data",
    [b"", b"null", b"[]", b"{}", b'{"digest":"x","payload":{}}', b'{"digest":1,"payload":[]}'],
)
def test_an_envelope_is_digest_and_payload(data: bytes) -> None:
    with pytest.raises(EpsLockedError, match=r"doc\.json"):
        open_document(data, thing="doc.json", schema="s")


def test_an_envelope_of_another_schema_is_not_opened() -> None:
    data, digest = seal_document({"schema": "a", "x": 1})
    assert open_document(data, thing="d", schema="a") == ({"schema": "a", "x": 1}, digest)
    with pytest.raises(MalformedInputError, match="d: schema: expected b, found a"):
        open_document(data, thing="d", schema="b")
    with pytest.raises(ValueError, match="not a canonical envelope"):
        payload_bytes(b'{"payload":{}}', digest)
