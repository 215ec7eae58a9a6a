"""Somebody has had the bundle in hand: what they changed, added or took away is found, by name.

The first half are people who change files and leave the lists of sums alone, or do badly at them.
The second half rewrite both lists, which nobody signs; then the evidence itself has to tell.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from datetime import datetime
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest

from eps_locked import files
from eps_locked.audit.bundle import AuditedBundle, audit_bundle
from eps_locked.audit.checks import audit_run, verdict_payload
from eps_locked.audit.checksums import B3SUMS, SHA256SUMS, Sums, checksum_lists
from eps_locked.canonical import digest_value
from eps_locked.cli.bundle import write_bundle
from eps_locked.domain.clock import format_time, parse_time
from eps_locked.errors import EpsLockedError
from eps_locked.lock import gate, record, signatures
from eps_locked.lock.envelope import seal_document
from eps_locked.lock.provenance import source_tree
from eps_locked.report.page import report_files
from eps_locked.studies.eps.rederive import EpsRederiver
from sim.forge import flip, payloads_of, rebuild
from sim.simulator import NAME, StudySimulator, tiny_plan

# One file of each kind, and the checks that tell when the lists of sums are rewritten to fit.
# Nothing binds the page and the second verifier: an audit only says that they are not its own.
KINDS = {
    f"runs/{NAME}/ledger.jsonl": "C6",
    f"runs/{NAME}/head.json": "C6",
    f"runs/{NAME}/artifacts/*/readings.json": "C8",
    f"runs/{NAME}/artifacts/*/adapter_model.safetensors": "C8",
    f"runs/{NAME}/artifacts/*/readings.json.age": "C8",
    f"runs/{NAME}/artifacts/*/sealed.json": "C8",
    f"runs/{NAME}/authorizations/P0-0001/document.json": "C5",
    f"runs/{NAME}/authorizations/P1-0001/document.json.sig": "C5",
    f"runs/{NAME}/amendments/A-0001/document.json": "C5",
    f"runs/{NAME}/verdicts/*.json": "C13",
    f"manifests/{NAME}/manifest.json": "C1",
    f"manifests/{NAME}/frozen/plan.yaml": "C2",
    f"manifests/{NAME}/frozen/allowed_signers": "C2",
    f"plans/{NAME}.yaml": "C3",
    "plans/material/Fragen, zwölf Stück.yaml": "C3",
    "plans/keys/custodian": "C3",
    f"reports/{NAME}/index.html": "B5",
    f"reports/{NAME}/cells.csv": "B5",
    "schemas/plan.schema.json": "B5",
    "README.md": "B5",
    "docs/lock.md": "",
    "verify/second_verifier.py": "",
}
LISTS = (B3SUMS, SHA256SUMS)


@cache
def _verified(data: bytes, signature: bytes, at: str, **rest: Any) -> EpsLockedError | None:
    try:
        signatures.verify_signature(data, signature, at=parse_time(at, thing="at"), **rest)
    except EpsLockedError as error:
        return error
    return None


@pytest.fixture(autouse=True)
def remembered_signatures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask ssh-keygen once for equal bytes: hundreds of copies hold the same few signatures."""

    def verify(data: bytes, signature: bytes, *, at: datetime, **rest: Any) -> None:
        # Without the path in it, which each copy has another of.
        error = _verified(data, signature, format_time(at), **{**rest, "thing": "signature"})
        if error is not None:
            raise type(error)(f"{rest['thing']}.sig", problem=str(error))

    for module in (gate, record):
        monkeypatch.setattr(module, "verify_signature", verify)


@pytest.fixture(scope="module")
def _study(tmp_path_factory: pytest.TempPathFactory) -> StudySimulator:
    """Finished, with an amendment, a sealed cell, a verdict, a report; file names of all sorts."""
    root = tmp_path_factory.mktemp("tampered") / "ein Ordner – büro"
    study = StudySimulator(root=root, plan=tiny_plan(), code=source_tree())
    study.seal()
    study.plan["eps"]["material"]["eval_items"] = "material/Fragen, zwölf Stück.yaml"
    study.write_plan()
    path = study.root / "plans/material"
    (path / "eval.yaml").rename(path / "Fragen, zwölf Stück.yaml")
    study.freeze()
    study.authorize("P0")
    study.run("P0")
    study.amend()
    study.authorize("P1")
    study.run("P1")
    verdict = verdict_payload(study.audit(), digest_value(study.code))
    files.write_once(study.run_folder.verdicts / "1.json", seal_document(verdict)[0])
    for name, data in report_files(study.audit()).items():
        files.replace_file(study.root / "reports" / NAME / name, data)
    return study


@pytest.fixture(scope="module")
def _bundle(_study: StudySimulator, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bundled") / "bundle"
    write_bundle(
        _study.workspace,
        NAME,
        folder,
        check=lambda workspace, name: audit_run(
            workspace, name, code=_study.code, rederive=EpsRederiver()
        ),
    )
    return folder


@pytest.fixture
def folder(_bundle: Path, tmp_path: Path) -> Path:
    return shutil.copytree(_bundle, tmp_path / "bundle")


Audit = Callable[..., AuditedBundle]


@pytest.fixture
def audit(_study: StudySimulator) -> Audit:
    return partial(audit_bundle, code=_study.code, rederive=EpsRederiver(), report=report_files)


def failures(audited: AuditedBundle) -> list[str]:
    found = [f"B{c.number} {f}" for c in audited.checks.values() for f in c.failures]
    for study in audited.studies:
        found += [f"C{number} {failure}" for number, failure in study.failures()]
    return found


def one(folder: Path, pattern: str) -> Path:
    return sorted(folder.glob(pattern))[0]


def relist(folder: Path) -> None:
    """What a careful forger does last: write both lists anew for what now lies there."""
    names = [name for name in files.walk_files(folder) if name not in LISTS]
    for name, data in checksum_lists({n: Sums.of_file(folder / n) for n in names}).items():
        (folder / name).write_bytes(data)


def test_the_bundle_that_the_attacks_begin_with_is_good(folder: Path, audit: Audit) -> None:
    assert failures(audit(folder)) == []
    relist(folder)
    audited = audit(folder)
    assert (audited.ok(), audited.notes) == (True, [])


# -- files are changed, the lists are not ----------------------------------------------------------


def flip_first(path: Path) -> None:
    flip(path, 0)


def flip_last(path: Path) -> None:
    flip(path, -1)


def append(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\n")


@pytest.mark.parametrize("edit", [flip_first, append, Path.unlink])
@pytest.mark.parametrize("kind", [*KINDS, *LISTS])
def test_an_edited_file_is_found_and_named(
    folder: Path, audit: Audit, kind: str, edit: Callable[[Path], None]
) -> None:
    path = one(folder, kind)
    name = path.relative_to(folder).as_posix()
    edit(path)
    audited = audit(folder)
    assert not audited.ok(other_code=True)
    assert any(name in f for f in failures(audited) if f.startswith(("B1", "B2", "B4")))


@pytest.mark.parametrize(
    "name",
    [
        "note.txt",
        ".hidden",
        "B3SUMS.old",
        "docs/page.md",
        "schemas/ledger/schema.json",
        "plans/other.yaml",
        f"manifests/{NAME}/frozen/more.json",
        "manifests/stray",
        "runs/stray",
        f"runs/{NAME}/running.json",
        f"runs/{NAME}/artifacts/{'0' * 64}/tensor.json",
        f"runs/{NAME}/authorizations/P0-0001/more",
        f"reports/{NAME}/a b.csv",
        "smoke/small/ledger.jsonl",
        "plans/keys/signing_key",
    ],
)
def test_an_added_file_is_found_with_old_lists_and_with_new_ones(
    folder: Path, audit: Audit, name: str
) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(b"{}")
    assert any(f.startswith("B3") and name in f for f in failures(audit(folder)))
    relist(folder)
    assert any(name in f or name.split("/tensor")[0] in f for f in failures(audit(folder)))


def test_another_study_beside_the_first_is_looked_at_as_well(folder: Path, audit: Audit) -> None:
    shutil.copytree(folder / "runs" / NAME, folder / "runs" / "twin")
    relist(folder)
    audited = audit(folder)
    assert [study.name for study in audited.studies] == [NAME, "twin"]
    assert any(f.startswith("C1 ") and "twin" in f for f in failures(audited))


def test_a_folder_with_no_name_of_a_study_is_named(folder: Path, audit: Audit) -> None:
    (folder / "manifests" / "Not A Name").mkdir()
    assert any("Not A Name" in f for f in failures(audit(folder)))


# -- the lists themselves --------------------------------------------------------------------------


def edit_list(folder: Path, name: str, change: Callable[[list[str]], object]) -> None:
    lines = (folder / name).read_text("utf-8").splitlines(keepends=True)
    change(lines)
    (folder / name).write_text("".join(lines), "utf-8")


@pytest.mark.parametrize("which", LISTS)
@pytest.mark.parametrize("place", ["..", "runs/..", f"runs/{NAME}/artifacts/../../.."])
def test_a_list_that_leads_out_of_the_folder_is_refused_and_not_followed(
    folder: Path, audit: Audit, which: str, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even where the digest is right: nobody learns from an audit whether such a file exists."""
    outside = folder.parent / "outside"
    outside.write_bytes(b"private")
    sums = Sums.of(b"private")
    wanted = {B3SUMS: sums.blake3, SHA256SUMS: sums.sha256}[which]
    path = f"{place}/outside" if place == ".." else f"{place}/../outside"
    edit_list(folder, which, lambda lines: lines.append(f"{wanted}  {path}\n"))
    opened: list[Path] = []
    really = files.open_regular
    monkeypatch.setattr(files, "open_regular", lambda p: opened.append(p) or really(p))
    found = failures(audit(folder))
    assert any(f.startswith(f"B1 {which}: line ") and "leads out" in f for f in found)
    assert opened
    assert not any("outside" in str(path) for path in opened)


@pytest.mark.parametrize("which", LISTS)
def test_an_absolute_path_in_a_list_is_refused(folder: Path, audit: Audit, which: str) -> None:
    edit_list(folder, which, lambda lines: lines.insert(0, f"{'0' * 64}  /etc/hostname\n"))
    assert any(f"{which}: line 1: '/etc/hostname' leads out" in f for f in failures(audit(folder)))


@pytest.mark.parametrize("which", LISTS)
def test_a_line_taken_from_one_list_is_missed(folder: Path, audit: Audit, which: str) -> None:
    edit_list(folder, which, lambda lines: lines.pop(5))
    assert any(f.startswith(f"B1 {which}: does not list") for f in failures(audit(folder)))


def test_a_file_taken_from_both_lists_lies_beside_them(folder: Path, audit: Audit) -> None:
    name = f"runs/{NAME}/head.json"
    for which in LISTS:
        edit_list(
            folder, which, lambda lines: lines.remove(next(x for x in lines if x[66:-1] == name))
        )
    assert any(f.startswith(f"B3 {name}") for f in failures(audit(folder)))


def test_a_file_that_only_the_lists_know_is_missed(folder: Path, audit: Audit) -> None:
    for which in LISTS:
        edit_list(folder, which, lambda lines: lines.append(f"{'0' * 64}  z\n"))
    assert any(
        f.startswith("B2") and f"{folder / 'z'}: is missing" in f for f in failures(audit(folder))
    )


@pytest.mark.parametrize("which", LISTS)
def test_lines_in_another_order_or_twice_are_refused(
    folder: Path, audit: Audit, which: str
) -> None:
    edit_list(folder, which, lambda lines: lines.insert(0, lines[7]))
    assert any(f.startswith(f"B1 {which}: line ") for f in failures(audit(folder)))


@pytest.mark.parametrize("which", LISTS)
def test_every_single_byte_of_a_list_counts(tmp_path: Path, which: str) -> None:
    """In a folder with nothing but two files and the lists, so that only they can tell."""
    (tmp_path / "a").write_bytes(b"1")
    (tmp_path / "b ü").write_bytes(b"2")
    relist(tmp_path)
    whole = (tmp_path / which).read_bytes()

    def found() -> list[str]:
        audited = audit_bundle(tmp_path, code={}, rederive=EpsRederiver(), report=report_files)
        return [f for number in (1, 2, 3) for f in audited.checks[number].failures]

    assert found() == []
    for position in range(len(whole)):
        changed = bytearray(whole)
        changed[position] ^= 1 << position % 8
        (tmp_path / which).write_bytes(bytes(changed))
        assert found(), f"byte {position} of {which}: {bytes(changed)!r}"


# -- links and devices -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [*KINDS, *LISTS])
def test_a_link_in_the_place_of_a_file_is_refused_even_to_the_same_bytes(
    folder: Path, audit: Audit, kind: str
) -> None:
    path = one(folder, kind)
    elsewhere = folder.parent / "elsewhere"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)
    found = failures(audit(folder))
    name = path.relative_to(folder).as_posix()
    assert any(f.startswith(f"B3 {name}: is a symbolic link") for f in found)


@pytest.mark.parametrize(
    "place", ["runs", f"runs/{NAME}", "manifests", f"manifests/{NAME}/frozen", "schemas", "plans"]
)
def test_a_link_in_the_place_of_a_folder_is_refused(folder: Path, audit: Audit, place: str) -> None:
    (folder / place).rename(folder.parent / "elsewhere")
    (folder / place).symlink_to(folder.parent / "elsewhere")
    assert any(f.startswith(f"B3 {place}: is a symbolic link") for f in failures(audit(folder)))


def test_a_link_to_nowhere_and_a_pipe_are_refused(folder: Path, audit: Audit) -> None:
    (folder / "docs/link").symlink_to("nowhere")
    os.mkfifo(folder / "docs/pipe")
    (folder / "README.md").unlink()
    os.mkfifo(folder / "README.md")
    found = failures(audit(folder))
    for name in ("docs/link", "docs/pipe", "README.md"):
        assert any(f.startswith(f"B3 {name}: ") for f in found)


# -- a forger who writes the lists anew ------------------------------------------------------------


@pytest.mark.parametrize("edit", [flip_last, append])
@pytest.mark.parametrize("kind", KINDS)
def test_with_new_lists_the_evidence_itself_tells(
    folder: Path, audit: Audit, kind: str, edit: Callable[[Path], None]
) -> None:
    path = one(folder, kind)
    name = path.relative_to(folder).as_posix()
    edit(path)
    relist(folder)
    audited = audit(folder)
    if KINDS[kind]:
        assert not audited.ok(other_code=True)
        assert any(f.startswith(f"{KINDS[kind]} ") and path.name in f for f in failures(audited))
    else:
        assert audited.ok()
        assert [note.split()[0] for note in audited.notes] == [name]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if not kind.startswith("plans/")])
def test_with_new_lists_a_file_taken_away_is_missed(folder: Path, audit: Audit, kind: str) -> None:
    """Plans may be absent (docs/lock.md, L6.6); then README and report no longer fit."""
    one(folder, kind).unlink()
    relist(folder)
    assert not audit(folder).ok()


def test_a_shorter_ledger_with_new_lists_is_found_by_the_published_head(
    folder: Path, audit: Audit
) -> None:
    """The chain alone cannot tell; completeness and a digest from outside can."""
    published = audit(folder).studies[0].ledger_head
    assert published is not None
    forger = StudySimulator(root=folder)
    rebuild(forger, payloads_of(forger)[:-1])
    relist(folder)
    found = failures(audit(folder, expected_heads=[published]))
    assert not any(f.startswith("C6 ") for f in found)
    assert any(f.startswith("C11 ") for f in found)
    assert any(f.startswith("B6 ") and published in f for f in found)
