"""An outsider's afternoon: every command of a bundle's README, typed as it stands, in a shell.

The README is read as its reader would: an ``sh`` block is typed, the ``text`` block below it is
what must be seen, with ``...`` for any text. Blocks without one are listed here with what the
prose around them promises, so that a new block cannot go unwatched.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyrage
import pytest

from eps_locked.audit.bundle_readme import AUDIT_HOLDS
from eps_locked.audit.checks import AuditedRun
from eps_locked.canonical import digest_bytes, encode
from eps_locked.cli.bundle import write_bundle
from eps_locked.cli.check import audit
from eps_locked.cli.main import run as eps_locked
from eps_locked.files import read_bytes, walk_files
from eps_locked.lock.provenance import source_tree
from eps_locked.report.page import report_files
from sim.forge import flip
from sim.simulator import AUTHOR, COLLEAGUE, NAME, StudySimulator, fingerprint, make_key, tiny_plan

MISSING = [tool for tool in ("b3sum", "sha256sum", "ssh-keygen", "jq") if not shutil.which(tool)]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")
needs_age = pytest.mark.skipif(not shutil.which("age"), reason="not installed: age")

TEXT = '{"text":"Ein Satz – and a second one.\\n"}'


@dataclass(frozen=True)
class Block:
    """One command of the README, and what must be printed (None where prose says it)."""

    command: str
    expected: str | None


def blocks(folder: Path) -> list[Block]:
    text = (folder / "README.md").read_text("utf-8")
    pattern = r"^```sh\n(.*?)\n```$(?:\n\n```text\n(.*?)\n```$)?"
    found = [Block(m[1], m[2]) for m in re.finditer(pattern, text, re.MULTILINE | re.DOTALL)]
    assert len(found) == text.count("```sh\n")
    assert sum(block.expected is not None for block in found) == text.count("```text\n")
    return found


def typed(folder: Path, command: str, **more: str) -> subprocess.CompletedProcess[str]:
    """What a person sees who types it there, with the environment of these tests on the path."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["sh", "-c", command],
        cwd=folder,
        env={**os.environ, "PATH": path, **more},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def fits(expected: str, printed: str) -> bool:
    """Line by line; ``...`` stands for any text."""
    pattern = ".*".join(map(re.escape, expected.split("...")))
    return re.fullmatch(pattern, printed.rstrip("\n")) is not None


def n_ok(n: int) -> Callable[[str], bool]:
    return lambda printed: (
        len(printed.splitlines()) == n
        and all(line.endswith(": OK") for line in printed.splitlines())
    )


def promises(folder: Path) -> dict[str, Callable[[str], bool]]:
    """What the prose says of the commands that have no block of output, by how they begin."""
    n = len(list(walk_files(folder)))
    signers = (folder / f"manifests/{NAME}/frozen/allowed_signers").read_text()
    return {
        "b3sum --check B3SUMS": n_ok(n - 2),
        "sha256sum --check": n_ok(n - 1),
        "{ find . ! -type d": lambda printed: printed == "",
        "cat manifests/": lambda printed: printed == signers,
        "eps-locked audit .": lambda printed: printed.splitlines()[-1] == AUDIT_HOLDS,
        "age --decrypt": lambda printed: (
            len(printed.encode()) % 32768 == 0 and printed.startswith("{")
        ),
    }


def kept(folder: Path, block: Block, **more: str) -> bool:
    """Whether a command ends well and prints what the README says."""
    done = typed(folder, block.command, **more)
    if block.expected is not None:
        return done.returncode == 0 and fits(block.expected, done.stdout)
    words = [words for words in promises(folder) if block.command.startswith(words)]
    assert len(words) == 1, f"a command that nobody watches: {block.command}"
    return done.returncode == 0 and promises(folder)[words[0]](done.stdout)


def finish(study: StudySimulator) -> Path:
    """The bundle of a study that was planned: a colleague's leave, an amendment, a report."""
    study.plan["title"] = "The *smallest* study, `quoted`\n```sh\nexit 1\n```"
    study.plan["eps"]["material"]["eval_items"] = "material/Fragen, zwölf Stück.yaml"
    study.write_plan()
    material = study.root / "plans/material"
    (material / "eval.yaml").rename(material / "Fragen, zwölf Stück.yaml")
    study.freeze()
    study.authorize("P0", signer=COLLEAGUE)
    study.run("P0")
    study.amend()
    study.authorize("P1", signer=AUTHOR)
    study.run("P1")
    study.check()
    root = study.root
    assert eps_locked(["report", NAME, "--root", str(root)]) == 0
    assert eps_locked(["bundle", NAME, "--root", str(root), "--out", str(root / "a bundle")]) == 0
    return root / "a bundle"


@pytest.fixture(scope="module")
def _folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("whole") / "study"
    return finish(StudySimulator(root=root, code=source_tree()))


@pytest.fixture
def folder(_folder: Path, tmp_path: Path) -> Path:
    """A private copy, as it would come out of somebody's mail."""
    return shutil.copytree(_folder, tmp_path / "from a stranger", copy_function=shutil.copyfile)


def watched(folder: Path, **more: str) -> list[Block]:
    """The blocks that do not keep their word. Nothing in the folder may change meanwhile."""
    paths = sorted(folder.rglob("*"), reverse=True)
    for path in (*paths, folder):
        path.chmod(0o555 if path.is_dir() else 0o444)
    before = fingerprint(folder), [path.stat().st_mtime_ns for path in paths]
    try:
        broken = [block for block in blocks(folder) if not kept(folder, block, **more)]
    finally:
        for path in (folder, *reversed(paths)):
            path.chmod(0o755 if path.is_dir() else 0o644)
    assert (fingerprint(folder), [path.stat().st_mtime_ns for path in paths]) == before
    return broken


def test_every_command_of_the_readme_does_what_it_says_and_writes_nothing(folder: Path) -> None:
    assert watched(folder) == []


@needs_age
def test_the_commands_of_a_sealed_study_do_what_they_say(tmp_path: Path) -> None:
    """With a submission and a look, which the README counts."""
    study = StudySimulator(root=tmp_path / "study", code=source_tree()).seal()
    first = finish(study)
    study.submit()
    study.check()
    study.look()
    shutil.rmtree(study.root / "reports")
    shutil.rmtree(first)
    assert eps_locked(["bundle", NAME, "--root", str(study.root), "--out", str(first)]) == 0
    text = (first / "README.md").read_text("utf-8")
    assert "| submissions frozen | 1 |" in text
    assert "| looks at the sealed cells | 1 |" in text
    n_sealed = len(list(first.rglob("*.age")))
    assert n_sealed > 1
    assert f"{n_sealed} of {n_sealed} texts are the committed ones" in text
    assert "encrypted to the keys in `manifests/small/frozen/sources/keys/custodian`" in text
    assert watched(first, KEY=str(study.custodian_key)) == []


def test_the_readme_has_a_command_for_each_signed_document_and_each_way_to_check(
    folder: Path,
) -> None:
    commands = [block.command for block in blocks(folder)]
    assert sum("ssh-keygen -Y verify" in command for command in commands) == 3
    assert sum("-n eps-locked-amendment" in command for command in commands) == 1
    for words in (
        "b3sum --check B3SUMS",
        "sha256sum --check SHA256SUMS",
        "tail -c +95 manifests/small/manifest.json | head -c -1 | b3sum",
        f"python3 verify/second_verifier.py . {NAME}",
        "eps-locked audit .",
    ):
        assert any(words in command for command in commands)


# One file of each kind; how the commands begin that must no longer say what they said.
TOLD_BY = {
    f"runs/{NAME}/ledger.jsonl": (
        "prev=",
        "b3sum --check",
        "sha256sum",
        "python3",
        "eps-locked audit",
    ),
    f"runs/{NAME}/artifacts/*/readings.json": (
        "jq -r '.payload | ((",
        "b3sum --check",
        "python3",
        "eps-locked audit",
    ),
    f"runs/{NAME}/authorizations/P0-0001/document.json": ("ssh-keygen", "python3"),
    f"runs/{NAME}/amendments/A-0001/document.json.sig": ("ssh-keygen", "python3"),
    f"manifests/{NAME}/manifest.json": ("tail -c +95", "python3"),
    f"manifests/{NAME}/frozen/rows/marker/items.json": ("jq -r '.payload.files", "python3"),
    f"reports/{NAME}/index.html": ("copy=", "eps-locked audit"),
    "plans/material/Fragen, zwölf Stück.yaml": ("b3sum --check", "python3", "eps-locked audit"),
    "docs/lock.md": ("b3sum --check", "sha256sum", "eps-locked audit"),
}


@pytest.mark.parametrize("kind", TOLD_BY)
def test_the_commands_tell_a_changed_bit(folder: Path, kind: str) -> None:
    flip(sorted(folder.glob(kind))[0], -40)
    for words in TOLD_BY[kind]:
        typed_ones = [block for block in blocks(folder) if block.command.startswith(words)]
        assert typed_ones
        assert not all(kept(folder, block) for block in typed_ones), words


def test_the_commands_tell_a_file_more(folder: Path) -> None:
    (folder / "runs" / NAME / "verdicts" / "ä b.json").write_text("{}")
    for block in blocks(folder):
        if block.command.startswith(("{ find", "python3", "eps-locked audit")):
            assert not kept(folder, block), block.command


# -- the custodian ---------------------------------------------------------------------------------


def sealed_by_hand(recipients: bytes) -> dict[str, bytes]:
    """An artifact of one sealed file, as docs/lock.md describes it, without our own sealing."""
    text = TEXT.encode()
    key = recipients.decode().strip()
    padded = text + b"\n" * (-len(text) % 32768)
    recipient = (pyrage.ssh if key.startswith("ssh-") else pyrage.x25519).Recipient.from_str(key)
    commitment = {
        "schema": "eps-locked/sealed/1",
        "recipients": digest_bytes(recipients),
        "files": {"readings.json": {"plaintext": digest_bytes(text)}},
    }
    return {
        "readings.json.age": pyrage.encrypt(padded, [recipient]),
        "sealed.json": encode(commitment),
    }


def key_pair(kind: str, folder: Path) -> tuple[Path, bytes]:
    """(private key's path, recipients file) of a custodian."""
    path = folder / "custodian key"
    if kind == "ssh-ed25519":
        make_key(path, "custodian@example")
        words = path.with_suffix(".pub").read_text().split()
        return path, f"{words[0]} {words[1]}\n".encode()
    identity = pyrage.x25519.Identity.generate()
    path.write_text(f"{identity}\n")
    return path, f"{identity.to_public()}\n".encode()


@pytest.fixture
def tiny_bound(tmp_path: Path) -> StudySimulator:
    study = StudySimulator(root=tmp_path / "study", plan=tiny_plan(), code=source_tree())
    study.run_all()
    return study


def bundle_with_sealed(study: StudySimulator, recipients: bytes, n: int) -> Path:
    """A bundle with n sealed artifacts that no entry names: only their reading is tested here."""
    audited: AuditedRun = audit(study.workspace, NAME)
    for _ in range(n):
        study.run_folder.store(sealed_by_hand(recipients))
    write_bundle(study.workspace, NAME, study.root / "b", check=lambda w, name: audited)
    return study.root / "b"


@needs_age
@pytest.mark.parametrize("kind", ["age", "ssh-ed25519"])
def test_the_custodian_can_compare_every_sealed_text_with_what_was_committed_to(
    tiny_bound: StudySimulator, tmp_path: Path, kind: str
) -> None:
    key, recipients = key_pair(kind, tmp_path)
    folder = bundle_with_sealed(tiny_bound, recipients, 3)
    custodian = [block for block in blocks(folder) if "age --decrypt" in block.command]
    assert len(custodian) == 2
    for block in custodian:
        assert kept(folder, block, KEY=str(key)), typed(folder, block.command, KEY=str(key))
    assert "3 of 3 texts" in str(custodian[1].expected)
    first = blocks(folder)[0]
    assert kept(folder, first)


@needs_age
def test_another_text_and_another_key_are_told(tiny_bound: StudySimulator, tmp_path: Path) -> None:
    key, recipients = key_pair("age", tmp_path)
    folder = bundle_with_sealed(tiny_bound, recipients, 2)
    loop = [block for block in blocks(folder) if "age --decrypt" in block.command][1]
    victim = sorted((folder / "runs" / NAME / "artifacts").glob("*/readings.json.age"))[1]
    other = pyrage.x25519.Recipient.from_str(recipients.decode().strip())
    victim.write_bytes(pyrage.encrypt(b"another text\n", [other]))
    done = typed(folder, loop.command, KEY=str(key))
    name = victim.relative_to(folder).as_posix()
    assert done.stdout.splitlines() == [
        f"{name}: not the text that was committed to",
        "1 of 2 texts are the committed ones",
    ]
    (tmp_path / "x").mkdir()
    stranger, _ = key_pair("age", tmp_path / "x")
    done = typed(folder, loop.command, KEY=str(stranger))
    assert done.stdout.splitlines()[-1] == "0 of 2 texts are the committed ones"


def test_sealed_texts_stay_sealed_in_a_bundle(tiny_bound: StudySimulator, tmp_path: Path) -> None:
    _, recipients = key_pair("age", tmp_path)
    folder = bundle_with_sealed(tiny_bound, recipients, 1)
    for name in walk_files(folder):
        assert TEXT.encode() not in read_bytes(folder / name), name


def test_the_report_that_a_bundle_holds_is_the_one_of_its_evidence(folder: Path) -> None:
    study = StudySimulator(root=folder)
    expected = report_files(audit(study.workspace, NAME))
    found = {name: read_bytes(folder / "reports" / NAME / name) for name in expected}
    assert found == expected
