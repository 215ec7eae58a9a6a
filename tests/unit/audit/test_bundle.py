"""Writing a bundle and auditing it: what goes in, what stays out; looking changes nothing."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eps_locked import files
from eps_locked.audit import bundle_contents
from eps_locked.audit.bundle import AuditedBundle, audit_bundle, says_the_same
from eps_locked.audit.bundle_contents import require_no_private_key, require_portable_names
from eps_locked.audit.bundle_readme import AUDIT_HOLDS, Facts, SealedFact, readme
from eps_locked.audit.checks import AuditedRun, audit_run
from eps_locked.audit.checksums import (
    B3SUMS,
    SHA256SUMS,
    Sums,
    checksum_list,
    checksum_lists,
    name_trouble,
    read_checksum_list,
)
from eps_locked.cli.bundle import WrittenBundle, write_bundle
from eps_locked.cli.main import run as eps_locked
from eps_locked.errors import EpsLockedError, EvidenceError, MalformedInputError, RefusedError
from eps_locked.lock.provenance import source_tree
from eps_locked.lock.workspace import Workspace
from eps_locked.report.page import report_files
from eps_locked.studies.eps.rederive import EpsRederiver
from sim.forge import flip
from sim.simulator import NAME, StudySimulator, fingerprint, tiny_plan

HEX = "0" * 63 + "a"


@pytest.fixture(scope="module")
def _study(tmp_path_factory: pytest.TempPathFactory) -> StudySimulator:
    """Finished, bound to this very program, with a report."""
    root = tmp_path_factory.mktemp("bound") / "study"
    study = StudySimulator(root=root, plan=tiny_plan(), code=source_tree())
    study.run_all()
    write_report(study)
    return study


@pytest.fixture
def study(_study: StudySimulator, tmp_path: Path) -> StudySimulator:
    return _study.copy_to(tmp_path / "study")


@pytest.fixture
def folder(study: StudySimulator, tmp_path: Path) -> Path:
    bundle(study, tmp_path / "out" / "a bundle")
    return tmp_path / "out" / "a bundle"


def write_report(study: StudySimulator) -> None:
    for name, data in report_files(study.audit()).items():
        files.replace_file(study.root / "reports" / NAME / name, data)


def bundle(study: StudySimulator, folder: Path) -> WrittenBundle:
    def check(workspace: Workspace, name: str) -> AuditedRun:
        return audit_run(workspace, name, code=study.code, rederive=EpsRederiver())

    return write_bundle(study.workspace, NAME, folder, check=check)


def audit(study: StudySimulator, folder: Path, **expected: Any) -> AuditedBundle:
    return audit_bundle(
        folder, code=study.code, rederive=EpsRederiver(), report=report_files, **expected
    )


def names(folder: Path) -> set[str]:
    return set(files.walk_files(folder))


def contents(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in names(folder)}


# -- lists of sums ---------------------------------------------------------------------------------

FILE_NAMES = st.text(min_size=1).filter(lambda name: name_trouble(name) is None)


@given(st.dictionaries(FILE_NAMES, st.binary(max_size=4)))
def test_a_written_list_reads_back_as_it_was(found: Mapping[str, bytes]) -> None:
    sums = {name: Sums.of(data).blake3 for name, data in found.items()}
    assert read_checksum_list(checksum_list(sums), B3SUMS) == (sums, [])


@given(st.binary())
def test_no_bytes_whatever_crash_the_reader_and_none_lead_outside(data: bytes) -> None:
    found, problems = read_checksum_list(data, B3SUMS)
    assert checksum_list(found) == data or problems
    assert all(name_trouble(name) is None for name in found)


def test_a_file_is_measured_in_pieces_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eps_locked.audit.checksums._CHUNK", 3)
    (tmp_path / "file").write_bytes(b"eight by")
    assert Sums.of_file(tmp_path / "file") == Sums.of(b"eight by")


MALFORMED = {
    "a path above": f"{HEX}  ../plan\n",
    "a path above, in the middle": f"{HEX}  runs/../../plan\n",
    "an absolute path": f"{HEX}  /etc/passwd\n",
    "the folder itself": f"{HEX}  .\n",
    "a detour": f"{HEX}  ./plan\n",
    "two slashes": f"{HEX}  runs//plan\n",
    "a slash at the end": f"{HEX}  runs/\n",
    "no path": f"{HEX}  \n",
    "one space": f"{HEX} plan\n",
    "a star for binary": f"{HEX} *plan\n",
    "capitals": f"{HEX.upper()}  plan\n",
    "a digit too few": f"{HEX[1:]}  plan\n",
    "an escaped name": f"\\{HEX}  pl\\\\an\n",
    "a back-slash": f"{HEX}  pl\\an\n",
    "a carriage return": f"{HEX}  plan\r\n",
    "a control character": f"{HEX}  pl\x1ban\n",
    "a tag": f"SHA256 (plan) = {HEX}\n",
    "a comment": "# nothing\n",
    "an empty line": "\n",
    "no newline": f"{HEX}  plan",
    "a file twice": f"{HEX}  plan\n{HEX}  plan\n",
    "another order": f"{HEX}  run\n{HEX}  plan\n",
}


@pytest.mark.parametrize("case", MALFORMED)
def test_a_line_in_any_other_form_is_a_problem(case: str) -> None:
    _, problems = read_checksum_list(MALFORMED[case].encode(), SHA256SUMS)
    assert len(problems) == 1
    assert problems[0].startswith(SHA256SUMS)


def test_bytes_that_are_no_text_are_a_problem() -> None:
    assert read_checksum_list(b"\xff\n", B3SUMS)[1]


def test_the_second_list_holds_the_first_and_neither_holds_itself() -> None:
    lists = checksum_lists({"a": Sums.of(b"1")})
    b3sums, _ = read_checksum_list(lists[B3SUMS], B3SUMS)
    sha256, _ = read_checksum_list(lists[SHA256SUMS], SHA256SUMS)
    assert list(b3sums) == ["a"]
    assert sha256 == {"a": Sums.of(b"1").sha256, B3SUMS: Sums.of(lists[B3SUMS]).sha256}


def test_names_that_the_tools_would_not_read_back_are_refused_by_name() -> None:
    require_portable_names(["plans/Fragen, zwölf Stück/a b.yaml"])
    with pytest.raises(RefusedError) as caught:
        require_portable_names(["fine", "two\nlines", "back\\slash", "no\udcff text"])
    assert len(caught.value.details) == 3
    assert "two\\nlines" in str(caught.value)


# -- what a bundle holds ---------------------------------------------------------------------------


def test_a_bundle_holds_the_study_and_what_explains_it(study: StudySimulator, folder: Path) -> None:
    evidence = {
        f"{top}/{name}"
        for top in (f"manifests/{NAME}", f"runs/{NAME}", f"reports/{NAME}")
        for name in names(study.root / top)
    }
    evidence |= {f"plans/{name}" for name in study.load().manifest.sources}
    schemas = {f"schemas/{name}" for name in names(Path(__file__).parents[3] / "schemas")}
    words = {"README.md", B3SUMS, SHA256SUMS, "docs/lock.md", "verify/second_verifier.py"}
    assert names(folder) == evidence | schemas | words
    assert all((folder / n).read_bytes() == (study.root / n).read_bytes() for n in evidence)


def test_only_those_plans_go_along_that_were_frozen(study: StudySimulator, tmp_path: Path) -> None:
    shutil.rmtree(study.root / "reports")
    (study.root / "plans" / "secret idea.yaml").write_text("not this one")
    (study.root / "plans" / "material" / "marker.yaml").unlink()
    bundle(study, tmp_path / "b")
    assert not (tmp_path / "b/plans/secret idea.yaml").exists()
    assert not (tmp_path / "b/plans/material/marker.yaml").exists()
    assert audit(study, tmp_path / "b").ok()


def test_what_crashes_set_aside_goes_along(study: StudySimulator, tmp_path: Path) -> None:
    shutil.rmtree(study.root / "reports")
    files.write_once(study.run_folder.aside / "0001-torn-line", b"{")
    bundle(study, tmp_path / "b")
    assert (tmp_path / "b/runs" / NAME / "aside/0001-torn-line").read_bytes() == b"{"
    assert audit(study, tmp_path / "b").ok()


def test_the_same_run_gives_the_same_bytes(study: StudySimulator, tmp_path: Path) -> None:
    one, other = bundle(study, tmp_path / "one"), bundle(study, tmp_path / "other")
    assert one == other
    assert contents(tmp_path / "one") == contents(tmp_path / "other")


def test_a_bundle_is_a_workspace_and_gives_the_same_bundle_again(
    study: StudySimulator, folder: Path, tmp_path: Path
) -> None:
    again = StudySimulator(root=folder, code=study.code)
    bundle(again, tmp_path / "again")
    assert contents(tmp_path / "again") == contents(folder)


def test_bundling_changes_nothing_but_the_new_folder(study: StudySimulator, tmp_path: Path) -> None:
    before = fingerprint(study.root)
    bundle(study, tmp_path / "b")
    assert fingerprint(study.root) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b", "study"]


def test_what_an_installation_lacks_is_said_and_left_out(
    study: StudySimulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "site-packages" / "eps_locked"
    monkeypatch.setattr(bundle_contents, "package_folder", lambda: elsewhere)
    written = bundle(study, tmp_path / "b")
    assert written.missing == ("docs/lock.md", "verify/second_verifier.py")
    text = (tmp_path / "b/README.md").read_text("utf-8")
    assert "tests/conformance/second_verifier.py" in text
    audited = audit(study, tmp_path / "b")
    assert audited.ok()
    assert [note.split()[0] for note in audited.notes] == list(written.missing)


# -- when there is none ----------------------------------------------------------------------------


def refused(study: StudySimulator, folder: Path, kind: type[EpsLockedError]) -> EpsLockedError:
    """The refusal, which must leave everything as it was."""
    before = fingerprint(study.root.parent)
    with pytest.raises(kind) as caught:
        bundle(study, folder)
    assert fingerprint(study.root.parent) == before
    return caught.value


def test_a_run_with_a_changed_byte_gets_no_bundle(study: StudySimulator, tmp_path: Path) -> None:
    flip(study.run_folder.ledger_path)
    error = refused(study, tmp_path / "b", EvidenceError)
    assert any("ledger.jsonl" in line for line in error.details)


def test_a_run_that_is_not_complete_gets_no_bundle(tmp_path: Path) -> None:
    study = StudySimulator(root=tmp_path / "study", plan=tiny_plan(), code=source_tree())
    study.freeze()
    study.authorize("P0")
    study.run("P0")
    error = refused(study, tmp_path / "b", EvidenceError)
    assert any(line.startswith("C11: phase P1") for line in error.details)


def test_a_run_in_which_a_step_is_going_on_gets_no_bundle(
    study: StudySimulator, tmp_path: Path
) -> None:
    study.run_folder.running_path.write_text("{}")
    assert any("C12" in line for line in refused(study, tmp_path / "b", EvidenceError).details)


def test_a_run_that_somebody_writes_gets_no_bundle(study: StudySimulator, tmp_path: Path) -> None:
    with files.exclusive_lock(study.run_folder.folder):
        assert "another process" in str(refused(study, tmp_path / "b", RefusedError))


@pytest.mark.parametrize("name", ["index.html", "checks.csv"])
def test_a_report_from_before_the_last_entry_is_not_bundled(
    study: StudySimulator, tmp_path: Path, name: str
) -> None:
    path = study.root / "reports" / NAME / name
    path.write_bytes(path.read_bytes() + b" ")
    error = refused(study, tmp_path / "b", EvidenceError)
    assert error.thing == f"reports/{NAME}/{name}"


def test_a_file_that_is_no_part_of_the_report_is_not_bundled(
    study: StudySimulator, tmp_path: Path
) -> None:
    (study.root / "reports" / NAME / "opened cells.csv").write_text("1,2")
    assert "opened cells.csv" in str(refused(study, tmp_path / "b", EvidenceError))


@pytest.mark.parametrize("kind", ["file", "folder", "link to nowhere"])
def test_what_exists_is_never_overwritten(study: StudySimulator, tmp_path: Path, kind: str) -> None:
    target = tmp_path / "b"
    if kind == "file":
        target.write_text("mine")
    elif kind == "folder":
        target.mkdir()
    else:
        target.symlink_to("nowhere")
    refused(study, target, RefusedError)


@pytest.mark.parametrize("place", ["runs/b", f"runs/{NAME}/b", "plans/b", f"manifests/{NAME}/b"])
def test_no_bundle_among_the_evidence(study: StudySimulator, place: str) -> None:
    refused(study, study.root / place, RefusedError)


def test_an_interrupted_copy_is_no_bundle_and_is_in_nobodys_way(
    study: StudySimulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(path: Path, stage: str) -> None:
        if stage == "rename":
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(files, "write_point", crash)
        with pytest.raises(KeyboardInterrupt):
            bundle(study, tmp_path / "b")
    assert (tmp_path / ".b.incoming").is_dir()
    assert not (tmp_path / "b").exists()
    bundle(study, tmp_path / "b")
    assert audit(study, tmp_path / "b").ok()


def test_what_changes_between_audit_and_copy_is_not_bundled(
    study: StudySimulator, tmp_path: Path
) -> None:
    def check(workspace: Workspace, name: str) -> AuditedRun:
        audited = audit_run(workspace, name, code=study.code, rederive=EpsRederiver())
        flip(study.run_folder.head_path)
        return audited

    with pytest.raises(EvidenceError, match=r"head.json.* changed while"):
        write_bundle(study.workspace, NAME, tmp_path / "b", check=check)
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize(
    "secret",
    [
        b"# public key: age1...\nAGE-SECRET-KEY-1" + b"Q" * 58 + b"\n",
        b"-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEA\n",
        b"-----BEGIN RSA PRIVATE KEY-----\r\nMIIEowIBAAKCAQEA\r\n",
    ],
)
def test_a_private_key_does_not_leave_the_house(
    study: StudySimulator, tmp_path: Path, secret: bytes
) -> None:
    shutil.rmtree(study.root / "reports")
    files.write_once(study.run_folder.aside / "0001-key", b"note\n" + secret)
    with pytest.raises(RefusedError, match=r"aside/0001-key: holds a private key"):
        bundle(study, tmp_path / "b")
    assert not (tmp_path / "b").exists()


def test_speaking_of_private_keys_is_no_private_key() -> None:
    require_no_private_key("a", b"AGE-SECRET-KEY-1... or -----BEGIN OPENSSH PRIVATE KEY-----")
    require_no_private_key("a", rb'{"text":"-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXk"}')


# -- README ----------------------------------------------------------------------------------------


def facts(**changes: Any) -> Facts:
    plain: dict[str, Any] = {
        "name": "small",
        "title": "A study",
        "author": "author@example",
        "version": "1",
        "manifest": "blake3:" + "1" * 64,
        "frozen_at": datetime(2026, 1, 2, tzinfo=UTC),
        "genesis": "blake3:" + "2" * 64,
        "head": "blake3:" + "3" * 64,
        "n_entries": 9,
        "results": (("P0", "blake3:" + "4" * 64),),
        "n_submissions": 5,
        "n_looks": 4,
        "signed": (),
        "sealed": (),
        "has_sources": True,
        "has_report": False,
        "has_lock_page": True,
        "has_second_verifier": True,
        "n_listed": 77,
    }
    return Facts(**{**plain, **changes})


def test_the_readme_says_the_numbers_that_were_published() -> None:
    text = readme(facts()).decode()
    for words in (
        "| manifest digest | `blake3:1111",
        "| ledger head, line 9 (seq 8) | `blake3:3333",
        "| results of P0 | `blake3:4444",
        "| submissions frozen | 5 |",
        "| looks at the sealed cells | 4 |",
        "prints 77 lines",
        "prints 78 lines",
        AUDIT_HOLDS,
    ):
        assert words in text


def test_the_readme_of_a_study_that_seals_nothing_says_so() -> None:
    text = readme(facts()).decode()
    assert "This study seals nothing" in text
    assert "age --decrypt" not in text


def test_the_readme_lists_every_encrypted_file_with_its_digest() -> None:
    sealed = SealedFact(
        path="runs/small/artifacts/ab/x y.age",
        plaintext="blake3:" + "5" * 64,
        recipients="manifests/small/frozen/sources/keys/custodian",
    )
    text = readme(facts(sealed=(sealed,))).decode()
    assert "age --decrypt -i \"$KEY\" 'runs/small/artifacts/ab/x y.age'" in text
    assert "5" * 64 + " runs/small/artifacts/ab/x y.age\n" in text
    assert "encrypted to the keys in `manifests/small/frozen/sources/keys/custodian`" in text
    assert "seals nothing" not in text


def test_a_title_cannot_smuggle_a_command_into_the_readme() -> None:
    text = readme(facts(title="x\n```sh\nrm -rf ~\n```\n<b>|[a](b)")).decode()
    assert "x sh rm -rf ~ b a (b)" in text
    assert "\nrm -rf" not in text


# -- the auditor -----------------------------------------------------------------------------------


def test_an_audit_says_yes_to_a_bundle_and_counts_what_it_looked_at(
    study: StudySimulator, folder: Path
) -> None:
    audited = audit(study, folder)
    assert audited.ok()
    assert audited.notes == []
    assert [one.name for one in audited.studies] == [NAME]
    assert all(check.n_examined > 0 for n, check in audited.checks.items() if n != 6)
    assert audited.checks[6].skipped == "no published digest was given"
    assert audited.digest == "blake3:" + Sums.of_file(folder / SHA256SUMS).blake3


def test_an_audit_writes_nothing(
    study: StudySimulator, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, stage: str) -> None:
        raise AssertionError(f"{stage} {path}")

    monkeypatch.setattr(files, "write_point", refuse)
    paths = [folder, *folder.rglob("*")]
    for path in sorted(paths, reverse=True):
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        before = {path: path.stat() for path in paths}, fingerprint(folder)
        assert audit(study, folder).ok()
        after = {path: path.stat() for path in [folder, *folder.rglob("*")]}, fingerprint(folder)
    finally:
        for path in paths:
            path.chmod(0o755 if path.is_dir() else 0o644)
    assert before[1] == after[1]
    assert before[0].keys() == after[0].keys()
    for path, stat in before[0].items():
        assert (stat.st_mtime_ns, stat.st_size, stat.st_ino) == (
            after[0][path].st_mtime_ns,
            after[0][path].st_size,
            after[0][path].st_ino,
        )


def test_published_digests_are_looked_for(study: StudySimulator, folder: Path) -> None:
    lines = study.run_folder.ledger_path.read_bytes().splitlines()
    early, last = (json.loads(lines[n])["digest"] for n in (3, -1))
    manifest = study.load().digest
    good = audit(study, folder, expected_heads=(early, last), expected_manifests=(manifest,))
    assert good.ok()
    assert good.checks[6].n_examined == 3
    other = "blake3:" + "9" * 64
    bad = audit(study, folder, expected_heads=(early, other), expected_manifests=(last,))
    assert len(bad.checks[6].failures) == 2
    assert other in bad.checks[6].failures[1]
    assert not bad.ok()


def test_another_version_of_the_program_fails_c4_alone_and_says_where_it_differs(
    study: StudySimulator, folder: Path
) -> None:
    mine = {**study.code, "eps_locked/files.py": "blake3:" + "7" * 64}
    audited = audit_bundle(folder, code=mine, rederive=EpsRederiver(), report=report_files)
    assert audited.other_code == {NAME: ["eps_locked/files.py"]}
    assert not audited.ok()
    assert audited.ok(other_code=True)
    assert audited.checks[5].skipped is not None


def test_another_version_is_no_excuse_for_another_failure(
    study: StudySimulator, folder: Path
) -> None:
    (folder / f"runs/{NAME}/head.json").unlink()
    audited = audit_bundle(folder, code={}, rederive=EpsRederiver(), report=report_files)
    assert not audited.ok(other_code=True)


def test_a_changed_page_or_verifier_is_pointed_out(study: StudySimulator, folder: Path) -> None:
    for name in ("docs/lock.md", "verify/second_verifier.py"):
        (folder / name).write_bytes((folder / name).read_bytes() + b"\n")
    assert [note.split()[0] for note in audit(study, folder).notes] == [
        "docs/lock.md",
        "verify/second_verifier.py",
    ]


@pytest.mark.parametrize("what", ["an empty folder", "only a file"])
def test_a_folder_that_is_no_bundle_is_no_bundle(
    study: StudySimulator, tmp_path: Path, what: str
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    if what == "only a file":
        (folder / "README.md").write_text("trust me")
    audited = audit(study, folder)
    assert not audited.ok()
    assert any("is this a bundle?" in failure for failure in audited.checks[4].failures)


# -- the two commands ------------------------------------------------------------------------------


def test_the_commands_print_what_the_readme_promises(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    study = StudySimulator(root=tmp_path / "study", plan=tiny_plan(), code=source_tree())
    study.run_all()
    monkeypatch.chdir(study.root)
    assert eps_locked(["bundle", NAME]) == 0
    said = capfd.readouterr().out
    assert f"bundle: bundles/{NAME}, " in said
    assert Sums.of_file(study.root / f"bundles/{NAME}/{SHA256SUMS}").blake3 in said
    assert eps_locked(["bundle", NAME]) == 3
    assert eps_locked(["bundle", NAME, "--out", "elsewhere"]) == 0
    assert contents(study.root / "elsewhere") == contents(study.root / "bundles" / NAME)
    capfd.readouterr()
    monkeypatch.chdir("elsewhere")
    head = json.loads((study.run_folder.head_path).read_bytes())["payload"]["digest"]
    assert eps_locked(["audit", ".", "--expect-head", head]) == 0
    said = capfd.readouterr().out
    assert said.splitlines()[-1] == AUDIT_HOLDS
    assert "B6   ok" in said
    assert "C14  ok" in said


def test_the_audit_ends_with_one_and_names_what_failed(
    study: StudySimulator, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    flip(folder / f"runs/{NAME}/head.json")
    assert eps_locked(["audit", str(folder)]) == 1
    said = capfd.readouterr().out
    assert f"runs/{NAME}/head.json: expected " in said
    assert said.splitlines()[-1].startswith("this folder does not verify: B2, ")
    assert eps_locked(["audit", str(folder), "--json"]) == 1
    document = json.loads(capfd.readouterr().out)
    assert document["ok"] is False
    assert [check["number"] for check in document["checks"]] == [1, 2, 3, 4, 5, 6]
    assert document["studies"][0]["checks"][5]["ok"] is False


def test_other_code_is_accepted_only_when_asked(
    study: StudySimulator,
    folder: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("eps_locked.cli.bundle.source_tree", lambda: {"eps_locked/a.py": "x"})
    assert eps_locked(["audit", str(folder)]) == 1
    said = capfd.readouterr().out
    assert said.splitlines()[-1].startswith("every other check holds, but C4")
    assert "--other-code" in said
    assert eps_locked(["audit", str(folder), "--other-code"]) == 0
    assert "Accepted by --other-code" in capfd.readouterr().out


@pytest.mark.parametrize("digest", ["", "abc", "sha256:" + "0" * 64, "0" * 64])
def test_a_published_digest_that_is_none_is_malformed(
    folder: Path, capfd: pytest.CaptureFixture[str], digest: str
) -> None:
    assert eps_locked(["audit", str(folder), "--expect-head", digest]) == 2
    assert "blake3: and 64 hex digits" in capfd.readouterr().err


def test_a_study_that_is_not_there_is_malformed(
    study: StudySimulator, capfd: pytest.CaptureFixture[str]
) -> None:
    assert eps_locked(["bundle", "other", "--root", str(study.root)]) == 2
    assert "manifest.json" in capfd.readouterr().err
    assert not os.path.lexists(study.root / "bundles")


def test_a_sealed_list_that_is_none_stops_the_bundle(study: StudySimulator, tmp_path: Path) -> None:
    audited = study.audit()
    study.run_folder.store({"sealed.json": b"{}", "readings.json.age": b"age"})
    with pytest.raises(MalformedInputError, match=r"sealed\.json"):
        write_bundle(study.workspace, NAME, tmp_path / "b", check=lambda w, n: audited)


@pytest.mark.parametrize(
    ("expected", "found", "same"),
    [
        (b"rho 0.123456789012345", b"rho 0.123456789012399", True),
        (b"rho 0.12", b"rho 0.13", True),  # one step of the last digit: a rounding boundary
        (b"rho 0.12", b"rho 0.14", False),
        (b"looks: 1", b"looks: 2", False),
        (b"looks: 1", b"looks: 1.0", False),
        (b"n 1000000", b"n 1000001", False),
        (b"p 1e-05", b"p 1.0000001e-05", True),
        (b"a 1 b 2", b"a 1 c 2", False),
        (b"", b"1", False),
    ],
)
def test_a_report_says_the_same_up_to_the_last_digits_of_its_numbers(
    expected: bytes, found: bytes, same: bool
) -> None:
    assert says_the_same(expected, found) == same
