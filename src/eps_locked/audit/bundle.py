"""A bundle: one study in a folder that outsiders verify offline. What is in it, and whether it is.

A bundle has the layout of a workspace, so every check of a run holds for it as it stands. What is
checked beyond the run's own C1 to C14:

    B1   lists: B3SUMS and SHA256SUMS are well formed and name the same files of this folder
    B2   bytes: every listed file has both of its digests
    B3   nothing else: no file, link, pipe or device that the lists do not name
    B4   layout: every file is of a kind that belongs into a bundle; there is a study in it
    B5   words: README, schemas and report are what the program the run is bound to writes
    B6   published: the digests that the auditor brought are the manifest's, or a ledger line's

Nothing here writes. Nobody signs the lists: they find damage, and the rest finds forgery.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eps_locked import files
from eps_locked.audit.bundle_contents import README, read_facts, shipped_files
from eps_locked.audit.bundle_readme import LOCK_PAGE, SECOND_VERIFIER, readme
from eps_locked.audit.checks import AuditedRun, Rederive, audit_run
from eps_locked.audit.checksums import B3SUMS, SHA256SUMS, Sums, name_trouble, read_checksum_list
from eps_locked.audit.noting import Check, Noting
from eps_locked.canonical import decode, digest_bytes
from eps_locked.errors import EpsLockedError, EvidenceError, MalformedInputError, RefusedError
from eps_locked.lock.ledger import ChainReader
from eps_locked.lock.workspace import FrozenManifest, Workspace, check_name, safe_join

TITLES = {
    1: "both lists of sums are well formed and name the same files",
    2: "every listed file has both of its digests",
    3: "no file, link or device lies beside the listed files",
    4: "every file belongs into a bundle, and a study is there",
    5: "README, schemas and report are what this program writes",
    6: "the published digests are this study's",
}


_NUMBER = re.compile(rb"(-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)")

# A run's report by file name, from audited bytes. The room that writes it lies above this one.
Report = Callable[[AuditedRun], Mapping[str, bytes]]


@dataclass(kw_only=True, slots=True)
class BundleCheck(Check):
    """One numbered check of the folder; ``skipped`` says why it was not made."""

    skipped: str | None = None

    @property
    def title(self) -> str:
        return TITLES[self.number]

    def to_dict(self) -> dict[str, Any]:
        return {**Check.to_dict(self), "skipped": self.skipped}


@dataclass(kw_only=True, slots=True)
class AuditedBundle:
    """What was found. ``digest``: of SHA256SUMS, one number for the folder (None without it).

    ``other_code``: by study, the source files in which the checker differs from what the run is
    bound to (C4), for studies where it does. ``notes``: no failures, and yet
    worth knowing.
    """

    folder: Path
    checks: dict[int, BundleCheck]
    studies: list[AuditedRun] = field(default_factory=list)
    digest: str | None = None
    other_code: dict[str, list[str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def ok(self, *, other_code: bool = False) -> bool:
        """Whether everything holds; with ``other_code``, whether all but C4 does."""
        return all(check.ok for check in self.checks.values()) and all(
            check.ok or (other_code and check.number == 4)
            for study in self.studies
            for check in study.checks.values()
        )


def audit_bundle(
    folder: Path,
    *,
    code: Mapping[str, str],
    rederive: Rederive,
    report: Report,
    expected_heads: Collection[str] = (),
    expected_manifests: Collection[str] = (),
) -> AuditedBundle:
    """Every check of the folder and of every study in it. Writes nothing, lists every failure.

    ``code``: digests of the checker's own source files. ``report``: writes a run's report.
    ``expected_heads``: published digests, each to be that of some line of a ledger here. Raises
    BackendError for a disk that cannot be read.
    """
    audited = AuditedBundle(folder=folder, checks={n: BundleCheck(number=n) for n in TITLES})
    present = set(files.walk_files(folder))
    _check_sums(folder, present, audited)
    workspace = Workspace(root=folder)
    for name in _study_names(folder, audited.checks[4]):
        with Noting(audited.checks[4]):
            audited.studies.append(audit_run(workspace, name, code=code, rederive=rederive))
    _check_layout(present, audited)
    for study in audited.studies:
        if study.frozen is not None and not study.checks[4].ok:
            audited.other_code[study.name] = _differing(study.frozen, code)
    _check_words(workspace, present, code, report, audited)
    audited.notes += _notes(folder, present)
    _check_published(audited, expected_heads, expected_manifests)
    return audited


def _check_sums(folder: Path, present: set[str], audited: AuditedBundle) -> None:
    """B1 to B3: two lists, one set of files, every byte."""
    lists: dict[str, dict[str, str]] = {}
    for name in (B3SUMS, SHA256SUMS):
        lists[name] = {}
        with Noting(audited.checks[1]):
            data = files.read_bytes(folder / name)
            lists[name], problems = read_checksum_list(data, name)
            audited.checks[1].failures += problems
            if name == SHA256SUMS:
                audited.digest = digest_bytes(data)
    expected = set(lists[SHA256SUMS]) - {B3SUMS}
    audited.checks[1].failures += [
        f"{B3SUMS if name in expected else SHA256SUMS}: does not list {name}, as the other one does"
        for name in sorted(expected ^ set(lists[B3SUMS]))
    ]
    if lists[SHA256SUMS] and B3SUMS not in lists[SHA256SUMS]:
        audited.checks[1].failures.append(f"{SHA256SUMS}: does not list {B3SUMS}")
    for name in sorted({*lists[B3SUMS], *lists[SHA256SUMS]}):
        with Noting(audited.checks[2]):
            sums = Sums.of_file(safe_join(folder, name, thing=name))
            for which, found in ((B3SUMS, sums.blake3), (SHA256SUMS, sums.sha256)):
                stated = lists[which].get(name, found)
                if stated != found:
                    raise EvidenceError(name, expected=f"{stated} by {which}", found=found)
    for name in sorted(present):
        audited.checks[3].n_examined += 1
        path = folder / name
        trouble = name_trouble(name)
        if path.is_symlink():
            audited.checks[3].failures.append(f"{name}: is a symbolic link; none is followed")
        elif trouble is not None:
            audited.checks[3].failures.append(f"{name!r}: {trouble}")
        elif not path.is_file():
            audited.checks[3].failures.append(f"{name}: expected a regular file, found another")
        elif name not in (SHA256SUMS, B3SUMS) and not any(name in one for one in lists.values()):
            audited.checks[3].failures.append(f"{name}: lies here and is on neither list")


def _study_names(folder: Path, check: BundleCheck) -> list[str]:
    """Names of every study of which there is a manifest or a run."""
    found = set()
    for top in ("manifests", "runs"):
        if (folder / top).is_dir() and not (folder / top).is_symlink():
            found |= {path.name for path in (folder / top).iterdir() if path.is_dir()}
    names = []
    for name in sorted(found):
        with Noting(check):
            names.append(check_name(name))
    if not names:
        check.failures.append("manifests/: expected a study, found none; is this a bundle?")
    return names


def _check_layout(present: set[str], audited: AuditedBundle) -> None:
    """B4. A path is judged by its name alone; what lies there is for the other checks."""
    check = audited.checks[4]
    names = {study.name for study in audited.studies}
    sources = {
        f"plans/{relative}"
        for study in audited.studies
        if study.frozen is not None
        for relative in study.frozen.manifest.sources
    }
    alone = {README, B3SUMS, SHA256SUMS, LOCK_PAGE, SECOND_VERIFIER, *sources}
    for name in (README, B3SUMS, SHA256SUMS):
        if name not in present:
            check.failures.append(f"{name}: expected this file, found none")
    for name in sorted(present):
        check.n_examined += 1
        top, _, rest = name.partition("/")
        second, _, below = rest.partition("/")
        belongs = (
            name in alone
            or (top == "schemas" and bool(rest) and not below)
            or (top in ("manifests", "runs", "reports") and second in names and bool(below))
        )
        if not belongs:
            check.failures.append(f"{name}: expected no such file in a bundle, found one")


def _differing(frozen: FrozenManifest, code: Mapping[str, str]) -> list[str]:
    """Source files in which the checker is not what was frozen (before any amendment)."""
    try:
        listed = decode(frozen.read("frozen/code.json"), thing="frozen/code.json")
    except EpsLockedError:
        return []
    return sorted(one for one in {*listed, *code} if listed.get(one) != code.get(one))


def _check_words(
    workspace: Workspace,
    present: set[str],
    code: Mapping[str, str],
    report: Report,
    audited: AuditedBundle,
) -> None:
    """B5: what tells an auditor how to check is itself what the bound program says.

    Only that very program can tell; another version has other words. And only of evidence that
    holds: the words are read from it.
    """
    check = audited.checks[5]
    if len(audited.studies) != 1 or not all(c.ok for c in audited.studies[0].checks.values()):
        check.skipped = "only for one study whose checks all hold"
        return
    names = present - {README, B3SUMS, SHA256SUMS}
    with Noting(check):
        expected = readme(read_facts(workspace, audited.studies[0].name, names))
        if files.read_bytes(workspace.root / README) != expected:
            raise EvidenceError(
                README,
                expected="what this evidence gives",
                found="another text",
                next_step="do not follow its commands; docs/lock.md of eps-locked has them too",
            )
    with Noting(check):
        require_report(workspace, audited.studies[0], report)
    schemas = {n for n in {*names, *code} if n.startswith("schemas/")}
    for name in sorted(schemas):
        with Noting(check):
            path = safe_join(workspace.root, name, thing=name)
            found = digest_bytes(files.read_bytes(path)) if name in names else "none"
            if found != code.get(name, "none"):
                raise EvidenceError(name, expected=code.get(name, "no such file"), found=found)


def require_report(workspace: Workspace, study: AuditedRun, report: Report) -> None:
    """Require that ``reports/NAME``, if it is there, is what this evidence gives.

    A page from before the last look would say that there was none. Raises EvidenceError.
    """
    folder = safe_join(workspace.root, f"reports/{study.name}", thing="report")
    present = set(files.walk_files(folder))
    if not present:
        return
    expected = report(study)
    for name in sorted({*present, *expected}):
        if name not in present or not says_the_same(
            expected.get(name, b""), files.read_bytes(folder / name)
        ):
            raise EvidenceError(
                f"reports/{study.name}/{name}",
                expected="what this evidence gives" if name in expected else "no such file",
                found="another file" if name in present else "none",
                next_step=f"move reports/{study.name} away, then: just report {study.name}",
            )


def says_the_same(expected: bytes, found: bytes) -> bool:
    """Equal but for the last digits of numbers.

    Scores come out of sums and decompositions whose last digits follow the processor and its
    libraries (some 1e-14 of a value); every word must be equal, and every number to a part in a
    million, or to one step of its own last digit. Whole numbers count things and must be equal as
    they are written.
    """
    if expected == found:
        return True
    mine, theirs = _NUMBER.split(expected), _NUMBER.split(found)
    if len(mine) != len(theirs) or mine[::2] != theirs[::2]:
        return False
    return all(
        a == b
        or (
            not (_is_whole(a) or _is_whole(b))
            and abs(float(a) - float(b)) <= max(1e-6 * abs(float(a)), 1.01 * _step(a))
        )
        for a, b in zip(mine[1::2], theirs[1::2], strict=True)
    )


def _is_whole(number: bytes) -> bool:
    """Written without decimals and exponent: it has no last digit to spare."""
    return number.lstrip(b"-").isdigit()


def _step(number: bytes) -> float:
    """One step of the last decimal; none where there are no decimals."""
    digits, _, exponent = number.lower().partition(b"e")
    decimals = len(digits.partition(b".")[2])
    if decimals == 0:
        return 0.0
    power = int(exponent or b"0") - decimals
    return float(10.0**power) if abs(power) < 300 else 0.0


def _notes(folder: Path, present: set[str]) -> Iterator[str]:
    """The page and the second verifier are bound by nothing: say where they are not ours."""
    shipped, _ = shipped_files()
    for name in (LOCK_PAGE, SECOND_VERIFIER):
        if name not in present:
            yield f"{name} is not in this folder"
        elif name in shipped and not _same_bytes(folder / name, shipped[name]):
            yield f"{name} is not the one this installation has: read it before you rely on it"


def _same_bytes(path: Path, ours: Path) -> bool:
    try:
        return files.read_bytes(path) == files.read_bytes(ours)
    except (MalformedInputError, RefusedError):
        return False  # no regular file; B3 says so


def _check_published(
    audited: AuditedBundle, heads: Collection[str], manifests: Collection[str]
) -> None:
    """B6: a published head fixes every line up to its own (docs/lock.md, L22)."""
    check = audited.checks[6]
    if not heads and not manifests:
        check.skipped = "no published digest was given"
        return
    frozen = {study.frozen.digest for study in audited.studies if study.frozen is not None}
    lines = {digest for study in audited.studies for digest in line_digests(study)}
    for what, wanted, known in (("manifest", manifests, frozen), ("ledger line", heads, lines)):
        for digest in wanted:
            check.n_examined += 1
            if digest not in known:
                check.failures.append(f"{digest}: expected a {what} of this digest, found none")


def line_digests(study: AuditedRun) -> list[str]:
    """Digest of each ledger line, as far as the chain is whole."""
    if study.frozen is None or study.ledger_head is None:
        return []
    reader = ChainReader(study.frozen.digest, study.run.root, thing=str(study.run.ledger_path))
    return [reader.accept(line).digest for line in study.run.ledger_lines()]
