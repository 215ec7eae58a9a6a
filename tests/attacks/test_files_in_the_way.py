"""Links, folders, pipes and strangers' files where a file of the record should lie; smoke runs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eps_locked.errors import EpsLockedError, MalformedInputError, RefusedError
from sim.simulator import NAME, StudySimulator

Place = Callable[[Path], None]


def _link(path: Path) -> None:
    # Outside the study, so that nothing but the link itself is out of place.
    elsewhere = next(p for p in path.parents if p.name == "study").with_name("elsewhere")
    path.rename(elsewhere)
    path.symlink_to(elsewhere)


def _dangling(path: Path) -> None:
    _remove(path)
    path.symlink_to(path.with_name("nowhere"))


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def _folder(path: Path) -> None:
    _remove(path)
    path.mkdir()


def _pipe(path: Path) -> None:
    _remove(path)
    os.mkfifo(path)


PLACES = [
    "plans/small.yaml",
    "plans/keys/allowed_signers",
    "plans/material/contexts.yaml",
    "manifests/small/manifest.json",
    "manifests/small/frozen/plan.yaml",
    "manifests/small/frozen/steps.json",
    "manifests/small/frozen/rows/marker/prompts/baker.json",
    "runs/small/ledger.jsonl",
    "runs/small/head.json",
    "runs/small/artifacts/*/readings.json",
    "runs/small/authorizations/P1-0001/document.json",
    "runs/small/authorizations/P1-0001/document.json.sig",
]
FOLDERS = [
    "plans/keys",
    "plans/material",
    "manifests/small",
    "manifests/small/frozen",
    "manifests/small/frozen/rows/marker/prompts",
    "runs/small",
    "runs/small/artifacts",
    "runs/small/artifacts/*",
    "runs/small/authorizations",
    "runs/small/authorizations/P1-0001",
]


def place(study: StudySimulator, pattern: str) -> Path:
    return sorted(study.root.glob(pattern))[0]


def fails_audit(study: StudySimulator, path: Path) -> None:
    """The audit says so too, and names the place; a run folder that is a link is no run at all."""
    try:
        failures = [failure for _, failure in study.audit().failures()]
    except RefusedError as error:
        failures = [str(error)]
    assert any(path.name in failure for failure in failures), failures


@pytest.mark.parametrize("act", [_link, _dangling, _folder, _pipe])
@pytest.mark.parametrize("pattern", PLACES)
def test_something_else_in_a_files_place_refuses_by_name(
    half_way: StudySimulator, refuses: Any, pattern: str, act: Place
) -> None:
    path = place(half_way, pattern)
    act(path)
    with pytest.raises((RefusedError, MalformedInputError)) as first:
        half_way.run("P1")
    with refuses(half_way, type(first.value)) as caught:
        half_way.run("P1")
    assert path.name in str(caught.value)
    fails_audit(half_way, path)


@pytest.mark.parametrize("pattern", FOLDERS)
def test_a_linked_folder_refuses_although_its_bytes_are_right(
    half_way: StudySimulator, refuses: Any, pattern: str
) -> None:
    path = place(half_way, pattern)
    _link(path)
    with refuses(half_way) as caught:
        half_way.run("P1")
    assert path.name in str(caught.value)
    assert "symbolic link" in str(caught.value)
    fails_audit(half_way, path)


@pytest.mark.parametrize("pattern", FOLDERS)
def test_a_file_in_a_folders_place_is_a_named_failure(
    half_way: StudySimulator, pattern: str
) -> None:
    path = place(half_way, pattern)
    _remove(path)
    path.write_text("no folder")
    with pytest.raises(EpsLockedError) as caught:
        half_way.run("P1")
    assert isinstance(caught.value, RefusedError | MalformedInputError)
    if not pattern.startswith("plans/"):  # absent sources are no failure: a bundle has none
        fails_audit(half_way, path)


@pytest.mark.parametrize(
    "relative",
    [
        "manifests/small/note.txt",
        "manifests/small/.hidden",
        "manifests/small/frozen/extra.json",
        "manifests/small/frozen/rows/marker/prompts/stranger.json",
        "manifests/small/frozen/sources/material/more.yaml",
    ],
)
def test_an_unlisted_file_in_the_manifest_folder_refuses(
    half_way: StudySimulator, refuses: Any, relative: str
) -> None:
    (half_way.root / relative).write_text("{}")
    with refuses(half_way) as caught:
        half_way.run("P1")
    assert relative.rpartition("/")[2] in str(caught.value)
    assert any(relative in failure for failure in half_way.audit().checks[2].failures)


@pytest.mark.parametrize(
    "relative",
    [
        "note.txt",
        ".hidden",
        "ledger.jsonl~",
        "more/ledger.jsonl",
        "artifacts/readme.md",
        "artifacts/.hidden/readings.json",
        "artifacts/" + "0" * 64 + "/readings.json",
        "authorizations/note.txt",
        "authorizations/.hidden/document.json",
        "authorizations/P1-0001/note.txt",
        "authorizations/P1-0001/more/document.json",
        "amendments/note.txt",
        "verdicts/note.txt",
        "verdicts/.hidden",
        ".head.json.incoming",
        "artifacts/.x.incoming/readings.json",
        "running.json",
    ],
)
def test_a_stray_file_in_the_run_folder_fails_the_audit_by_name(
    finished: StudySimulator, relative: str
) -> None:
    path = finished.run_folder.folder / relative
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{}")
    name = relative.split("/")[1] if relative.startswith("artifacts/") else path.name
    failures = [failure for _, failure in finished.audit().failures()]
    assert any(name in failure or "more" in failure for failure in failures)


def test_an_extra_file_beside_a_recorded_one_refuses(
    half_way: StudySimulator, refuses: Any
) -> None:
    folder = place(half_way, "runs/small/artifacts/*")
    (folder / "extra.json").write_text("{}")
    with refuses(half_way) as caught:
        half_way.run("P1")
    assert "extra.json" in str(caught.value)
    assert any("extra.json" in f for f in half_way.audit().checks[8].failures)


def test_a_smoke_run_is_no_evidence(half_way: StudySimulator, refuses: Any) -> None:
    """A smoke run's ledger begins elsewhere, so a copy of it opens and proves nothing."""
    smoke = half_way.workspace.run(NAME, "smoke")
    half_way.authorize("P0", smoke=True)
    assert half_way.run("P0", limit=3) is None
    assert len(half_way.observer.finished) == 3
    shutil.rmtree(half_way.run_folder.folder)
    shutil.copytree(smoke.folder, half_way.run_folder.folder)
    with refuses(half_way) as caught:
        half_way.run("P0")
    assert "ledger.jsonl:1: prev" in str(caught.value)
    audited = half_way.audit()
    assert not audited.checks[6].ok
    assert not audited.complete
    assert not audited.publishable


def test_a_smoke_run_leaves_the_real_run_alone(half_way: StudySimulator) -> None:
    from sim.simulator import fingerprint

    before = fingerprint(half_way.run_folder.folder)
    half_way.authorize("P0", smoke=True)
    half_way.run("P0", limit=2)
    assert fingerprint(half_way.run_folder.folder) == before


def test_leave_for_a_smoke_run_is_no_leave_for_evidence(
    half_way: StudySimulator, refuses: Any
) -> None:
    folder = half_way.authorize("P1", smoke=True)
    shutil.rmtree(half_way.run_folder.folder / "authorizations" / "P1-0001")
    shutil.copytree(folder, half_way.run_folder.folder / "authorizations" / "P1-0001")
    with refuses(half_way) as caught:
        half_way.run("P1")
    assert "root: expected runs, found smoke" in str(caught.value)


def test_an_audit_of_nothing_lists_what_is_missing(study: StudySimulator) -> None:
    study.root.mkdir()
    audited = study.audit()
    assert not audited.ok
    assert any("manifest.json: is missing" in f for f in audited.checks[1].failures)


def test_an_audit_without_a_run_lists_what_is_missing(study: StudySimulator) -> None:
    study.freeze()
    audited = study.audit()
    assert audited.ledger_head is None
    assert any("empty ledger" in f for f in audited.checks[6].failures)
    assert any("expected a run folder" in f for f in audited.checks[12].failures)
    assert not study.run_folder.folder.exists()


@pytest.mark.parametrize("name", ["", "..", "../small", "Small", "a/b", "small\n", "a" * 64, "-a"])
def test_a_name_that_is_none_is_malformed(study: StudySimulator, name: str) -> None:
    from eps_locked.lock.gate import read_manifest

    study.root.mkdir()
    with pytest.raises(EpsLockedError) as caught:
        read_manifest(study.workspace, name)
    assert "lower-case letters" in str(caught.value)
