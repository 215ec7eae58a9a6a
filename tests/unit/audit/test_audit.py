"""The audit as a whole: each check can fail alone, none can crash, and it imports no runner."""

from __future__ import annotations

import ast
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import eps_locked.audit.checks as checks
from eps_locked.audit.checks import audit_run, verdict_payload
from eps_locked.audit.lineage import safetensors_metadata
from eps_locked.audit.noting import TITLES
from eps_locked.errors import BackendError, EvidenceError
from eps_locked.studies.eps.rederive import EpsRederiver
from sim.forge import flip, payloads_of, rebuild, reseal, resign, step, strangers_key
from sim.simulator import StudySimulator, fingerprint


def unsigned(study: StudySimulator) -> None:
    folder = study.run_folder.folder / "authorizations/P1-0001"
    from sim.forge import document_payload

    resign(folder, document_payload(folder), key=strangers_key(study))


def history(study: StudySimulator) -> None:
    payloads = payloads_of(study)
    payloads[5]["seed"] = 7
    rebuild(study, payloads)


def claim(study: StudySimulator) -> None:
    payloads = payloads_of(study)
    step(payloads, "P1/match/marker/s11")["flags"] = ["fine"]
    rebuild(study, payloads)


def artifact(study: StudySimulator) -> None:
    flip(sorted(study.run_folder.artifacts.rglob("readings.json"))[0])


def incomplete(study: StudySimulator) -> None:
    shutil.rmtree(study.run_folder.folder)
    study.authorize("P0")
    study.run("P0")


def verdict(study: StudySimulator) -> None:
    study.run_folder.verdicts.mkdir()
    (study.run_folder.verdicts / "a.json").write_text("{}")


def edited_between_freezing_and_signing(study: StudySimulator) -> None:
    """A promise of fewer cells, sealed anew before anything was signed; the gate looked away."""
    shutil.rmtree(study.run_folder.folder)
    reseal(study, summary={**study.load().manifest.summary, "cells": 1})
    study.refreeze = lambda frozen: []  # type: ignore[method-assign]
    for phase in ("P0", "P1"):
        study.authorize(phase)
        study.run(phase)


def other_code(study: StudySimulator) -> None:
    study.code = {"eps_locked/a.py": "blake3:" + "c" * 64}


def stray(study: StudySimulator) -> None:
    (study.run_folder.folder / "note.txt").write_text("")


# What makes a check fail, and which other checks cannot help failing with it.
FAILURES: dict[int, tuple[Callable[[StudySimulator], object], set[int]]] = {
    1: (lambda s: flip(s.manifest_folder / "manifest.json"), set()),
    2: (lambda s: flip(s.manifest_folder / "frozen/rows/marker/items.json"), {10}),
    3: (lambda s: flip(s.root / "plans/small.yaml"), set()),
    4: (other_code, set()),
    5: (unsigned, set()),
    6: (lambda s: flip(s.run_folder.ledger_path), {7, 8, 11}),
    7: (history, {8, 11}),
    8: (artifact, set()),
    10: (claim, set()),
    11: (incomplete, set()),
    12: (stray, set()),
    13: (verdict, set()),
    14: (edited_between_freezing_and_signing, set()),
}


@pytest.mark.parametrize("number", FAILURES)
def test_a_check_fails_for_what_it_is_about_and_not_for_others(
    finished: StudySimulator, number: int
) -> None:
    act, company = FAILURES[number]
    act(finished)
    before = fingerprint(finished.root)
    failing = {check for check, _ in finished.audit().failures()}
    assert number in failing
    assert failing <= {number} | company
    assert fingerprint(finished.root) == before, "an audit only looks"


def test_every_check_is_tried_here_or_in_the_attacks() -> None:
    """C9 needs a rebuilt chain (test_rebuilt_chain.py), C15 a sealed run (test_looks.py)."""
    assert set(TITLES) == set(FAILURES) | {9, 15}


def test_the_docstring_numbers_the_checks_as_the_code_does() -> None:
    listed = [int(n) for n in re.findall(r"^    C(\d+) ", checks.__doc__ or "", re.MULTILINE)]
    assert listed == list(TITLES)


def test_every_check_looks_at_something(finished: StudySimulator) -> None:
    counts = {number: check.n_examined for number, check in finished.audit().checks.items()}
    assert all(counts.values()), counts


def test_the_auditor_does_not_import_what_it_audits() -> None:
    tree = ast.parse(Path(checks.__file__).read_text())
    imported = {
        node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module is not None
    } | {
        name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names
    }
    for room in ("runners", "engines", "studies", "training", "models", "report", "cli"):
        assert not any(module.startswith(f"eps_locked.{room}") for module in imported)


def test_a_bundle_without_plans_is_whole(finished: StudySimulator) -> None:
    shutil.rmtree(finished.root / "plans")
    assert finished.audit().ok


def test_a_disk_that_cannot_be_read_is_no_verdict(
    finished: StudySimulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    from eps_locked import files

    def broken(path: Path) -> object:
        raise BackendError(str(path), problem="cannot be read (Input/output error)")

    monkeypatch.setattr(files, "open_regular", broken)
    with pytest.raises(BackendError):
        finished.audit()


def test_a_verdict_names_its_head_and_holds_no_time(finished: StudySimulator) -> None:
    code = "blake3:" + "a" * 64
    payload = verdict_payload(finished.audit(), code)
    assert payload["ok"] is True
    assert payload["publishable"] is False
    assert payload["ledger_head"] == finished.audit().ledger_head
    assert "2026" not in str(payload)
    assert verdict_payload(finished.audit(), code) == payload
    finished.run_folder.ledger_path.unlink()
    with pytest.raises(EvidenceError, match="to give a verdict on"):
        verdict_payload(finished.audit(), code)


def test_artifacts_of_an_unsound_run_are_not_handed_out(finished: StudySimulator) -> None:
    assert finished.audit().artifact("P1/tensor/marker", "tensor")
    artifact(finished)
    with pytest.raises(EvidenceError, match="no verified artifacts"):
        finished.audit().artifact("P1/tensor/marker", "tensor")


def test_a_quick_audit_leaves_out_only_the_derivation(finished: StudySimulator) -> None:
    claim(finished)
    audited = audit_run(
        finished.workspace, "small", code=finished.code, rederive=EpsRederiver(), quick=True
    )
    assert audited.ok
    assert audited.checks[10].n_examined == 0
    assert not finished.audit().ok


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"1234567",
        b"\xff" * 8,
        (5).to_bytes(8, "little") + b"{}",
        (2).to_bytes(8, "little") + b"[]",
        (2).to_bytes(8, "little") + b"\xff\xff",
        (4).to_bytes(8, "little") + b"null",
        (20).to_bytes(8, "little") + b'{"__metadata__":[1]}',
        (50_000).to_bytes(8, "little") + b"[" * 50_000,
    ],
)
def test_what_is_no_safetensors_header(data: bytes) -> None:
    with pytest.raises(EvidenceError, match="the step"):
        safetensors_metadata(data, thing="the step")


def test_a_header_without_metadata_says_nothing() -> None:
    assert safetensors_metadata((2).to_bytes(8, "little") + b"{}", thing="x") == {}
