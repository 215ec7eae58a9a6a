"""``bundle`` and ``audit``: hand a checked study to a stranger, and be that stranger."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from eps_locked import __version__, files
from eps_locked.audit.bundle import AuditedBundle, audit_bundle, require_report
from eps_locked.audit.bundle_contents import (
    README,
    read_facts,
    require_no_private_key,
    require_portable_names,
    shipped_files,
    study_files,
)
from eps_locked.audit.bundle_readme import AUDIT_HOLDS, readme
from eps_locked.audit.checks import AuditedRun
from eps_locked.audit.checksums import SHA256SUMS, Sums, checksum_lists
from eps_locked.canonical import digest_bytes, is_digest
from eps_locked.cli.check import audit, print_checks, report_contents
from eps_locked.cli.common import echo_json, json_option, root_option, workspace_at
from eps_locked.errors import EvidenceError, MalformedInputError, RefusedError
from eps_locked.lock.provenance import source_tree
from eps_locked.lock.workspace import Workspace
from eps_locked.studies.registry import StudyRederiver

# A bundle in one of these would be a stray file there, or be bundled itself the next time.
_OCCUPIED = ("plans", "manifests", "runs", "smoke", "reports")


@click.command("bundle")
@click.argument("name")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="The new folder.  [default: bundles/NAME]",
)
@root_option
def bundle_command(name: str, out: Path | None, root: Path) -> None:
    """Write a new folder with all that an outsider needs to verify NAME offline.

    Its README says what to type. A run whose checks do not all hold gets no bundle. The same run
    gives the same bytes. Sealed cells stay sealed; no private key goes along.
    """
    workspace = workspace_at(root)
    folder = (out or workspace.root / "bundles" / name).absolute()
    written = write_bundle(workspace, name, folder, check=audit)
    click.echo(f"bundle: {out or folder.relative_to(workspace.root)}, {written.n_files} files")
    click.echo(f"digest: {written.digest} of {SHA256SUMS}: hand it over apart from the folder")
    for missing in written.missing:
        click.echo(f"left out: {missing}, which this installation does not have", err=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class WrittenBundle:
    """``digest``: of SHA256SUMS, so of everything. ``missing``: what could not be put in."""

    n_files: int
    digest: str
    missing: tuple[str, ...]


def write_bundle(
    workspace: Workspace,
    name: str,
    folder: Path,
    *,
    check: Callable[[Workspace, str], AuditedRun],
) -> WrittenBundle:
    """Write the bundle of a run whose checks hold; ``check`` is the audit.

    The run is held against other writers. What is copied is what was audited: each file is
    measured before the audit and has to have the same digests when it is copied. Raises
    RefusedError if ``folder`` exists, EvidenceError for a failed check.
    """
    _require_free(workspace, folder)
    frozen = workspace.load_manifest(name)
    with files.exclusive_lock(workspace.run(name).folder):
        shipped, missing = shipped_files()
        sources = {**study_files(workspace, frozen), **shipped}
        require_portable_names(sources)
        sums = {one: Sums.of_file(path) for one, path in sources.items()}
        audited = check(workspace, name)
        _require_holds(audited)
        require_report(workspace, audited, report_contents)
        texts = {README: readme(read_facts(workspace, name, set(sources)))}
        texts |= checksum_lists({**sums, README: Sums.of(texts[README])})
        files.publish_folder(folder, _Contents(sources=sources, sums=sums, texts=texts))
    return WrittenBundle(
        n_files=len(sources) + len(texts),
        digest=digest_bytes(texts[SHA256SUMS]),
        missing=tuple(missing),
    )


def _require_free(workspace: Workspace, folder: Path) -> None:
    if os.path.lexists(folder):
        raise RefusedError(
            str(folder),
            problem="exists; a bundle is written once",
            next_step="name another folder with --out, or move this one away",
        )
    place = folder.resolve()
    for top in _OCCUPIED:
        if place.is_relative_to((workspace.root / top).resolve()):
            raise RefusedError(
                str(folder),
                expected="a folder outside of what is bundled",
                found=f"one in {top}/",
                next_step="name a folder elsewhere with --out",
            )


def _require_holds(audited: AuditedRun) -> None:
    failures = [f"C{number}: {failure}" for number, failure in audited.failures()]
    if failures:
        raise EvidenceError(
            f"bundle of {audited.name}",
            expected="a run whose checks all hold",
            found=f"{len(failures)} failures",
            details=tuple(failures),
            next_step=f"just check-evidence {audited.name}",
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Contents(Mapping[str, bytes]):
    """The bundle's files by name, each read when it is asked for: a run may be larger than memory.

    Texts come last, so that an interrupted copy has no list of sums.
    """

    sources: Mapping[str, Path]
    sums: Mapping[str, Sums]
    texts: Mapping[str, bytes]

    def __iter__(self) -> Iterator[str]:
        yield from sorted(self.sources)
        yield from self.texts

    def __len__(self) -> int:
        return len(self.sources) + len(self.texts)

    def __getitem__(self, name: str) -> bytes:
        if name in self.texts:
            return self.texts[name]
        data = files.read_bytes(self.sources[name], limit=1 << 40)
        if Sums.of(data) != self.sums[name]:
            raise EvidenceError(
                str(self.sources[name]),
                problem="changed while it was being bundled",
                next_step="find out what writes there, then bundle again",
            )
        require_no_private_key(name, data)
        return data


@click.command("audit")
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--expect-head",
    "heads",
    metavar="DIGEST",
    multiple=True,
    help="A published ledger head: some line here must have this digest. May be repeated.",
)
@click.option(
    "--expect-manifest",
    "manifests",
    metavar="DIGEST",
    multiple=True,
    help="A published manifest digest: the manifest here must have it.",
)
@click.option(
    "--other-code",
    is_flag=True,
    help="Go on with another version of eps-locked than the run is bound to (C4 may fail).",
)
@json_option
def audit_command(
    folder: Path,
    heads: tuple[str, ...],
    manifests: tuple[str, ...],
    other_code: bool,
    as_json: bool,
) -> int:
    """Verify a bundle: every byte, then every claim of the study in it. Writes nothing there.

    Digests that were published while the outcome was unknown are worth more than anything in the
    folder: bring them along.
    """
    for digest in (*heads, *manifests):
        if not is_digest(digest):
            raise MalformedInputError(
                "published digest", expected="blake3: and 64 hex digits", found=repr(digest)
            )
    audited = audit_bundle(
        folder.resolve(),
        code=source_tree(),
        rederive=StudyRederiver(),
        report=report_contents,
        expected_heads=heads,
        expected_manifests=manifests,
    )
    ok = audited.ok(other_code=other_code)
    if as_json:
        echo_json(_as_json(audited, ok))
    else:
        _print(audited, other_code)
        click.echo(AUDIT_HOLDS if ok else _why_not(audited))
    return 0 if ok else 1


def _print(audited: AuditedBundle, other_code: bool) -> None:
    click.echo(f"{audited.folder}: {audited.digest or 'no digest'} of {SHA256SUMS}")
    for check in audited.checks.values():
        word = "FAIL" if not check.ok else "skip" if check.skipped else "ok"
        about = check.skipped or f"{check.n_examined} examined"
        click.echo(f"  B{check.number:<3} {word:<5} {check.title} ({about})")
        for failure in check.failures:
            click.echo("           " + failure.replace("\n", "\n           "))
    for note in audited.notes:
        click.echo(f"  note: {note}")
    for study in audited.studies:
        click.echo(f"study {study.name}:")
        print_checks(study)
        if study.frozen is not None:
            click.echo(f"  manifest    {study.frozen.digest}")
        if study.ledger_head is not None:
            click.echo(f"  ledger head {study.ledger_head}, line {study.n_entries}")
        if study.name in audited.other_code:
            _print_other_code(audited.other_code[study.name], accepted=other_code)


def _print_other_code(differing: list[str], *, accepted: bool) -> None:
    """C4 says something about the checker: keep it apart from what is said about the folder."""
    click.echo(f"  C4: this is eps-locked {__version__}, not the code the run is bound to.")
    for name in differing[:5]:
        click.echo(f"      differs: {name}")
    if len(differing) > 5:
        click.echo(f"      and {len(differing) - 5} more")
    if accepted:
        click.echo("      Accepted by --other-code: the checks above are this version's.")
    else:
        click.echo("      Failures of C10 or C14 may come from that alone. Audit again with the")
        click.echo("      version that the README names, or accept this one with --other-code.")


def _why_not(audited: AuditedBundle) -> str:
    if audited.ok(other_code=True):
        return "every other check holds, but C4: this is not the program that the run is bound to"
    failed = [f"B{c.number}" for c in audited.checks.values() if not c.ok]
    for study in audited.studies:
        failed += [f"C{c.number} of {study.name}" for c in study.checks.values() if not c.ok]
    return f"this folder does not verify: {', '.join(failed)}"


def _as_json(audited: AuditedBundle, ok: bool) -> dict[str, Any]:
    return {
        "folder": str(audited.folder),
        "digest": audited.digest,
        "ok": ok,
        "checks": [check.to_dict() for check in audited.checks.values()],
        "notes": audited.notes,
        "studies": [
            {
                "name": study.name,
                "ok": study.ok,
                "complete": study.complete,
                "publishable": study.publishable,
                "manifest": study.frozen.digest if study.frozen else None,
                "ledger_head": study.ledger_head,
                "n_entries": study.n_entries,
                "other_code": audited.other_code.get(study.name, []),
                "checks": [check.to_dict() for check in study.checks.values()],
            }
            for study in audited.studies
        ],
    }
