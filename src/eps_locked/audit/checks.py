"""What an auditor establishes about a run, numbered as in docs/lock.md, all failures at once.

    C1   manifest: canonical, self-digest, one name
    C2   frozen files: every listed byte, nothing unlisted
    C3   sources: the plan and material that were frozen are still what lies in plans/, if there
    C4   code: the checker's own sources are the ones the run was bound to
    C5   signers: every authorization and amendment carries a good signature and fits the record
    C6   ledger: chain, head, no torn line
    C7   history: every step promised, in order, once, with the inputs it should have read
    C8   artifacts: every recorded byte, nothing unrecorded
    C9   lineage: adapters say the cell they were trained for; no adapter serves two cells
    C10  derivation: every derived number recomputed from stored readings
    C11  completeness: every phase closed, every promised step there
    C12  layout: no stray file, nothing half-written
    C13  verdicts: earlier verdicts are whole and speak of this run
    C14  intention: the manifest is what its plan and sources give when frozen again
    C15  looks: submissions whole and for these cells, each look on a verdict of its own head

It reads a folder and trusts nothing in it; it never writes, and imports no engine, runner or
study. What a study derives is recomputed by the object the caller hands in.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from eps_locked import files
from eps_locked.audit.lineage import check_lineage
from eps_locked.audit.looks import check_looks
from eps_locked.audit.noting import TITLES, Check, Noting
from eps_locked.audit.verdicts import VERDICT_SCHEMA, check_verdicts
from eps_locked.canonical import DIGEST_PREFIX, decode, digest_bytes, digest_value
from eps_locked.domain.authorization import Authorization
from eps_locked.domain.clock import format_time, parse_time
from eps_locked.domain.ledger import Entry, OpenBody, StepBody
from eps_locked.domain.steps import Step
from eps_locked.errors import EpsLockedError, EvidenceError
from eps_locked.lock.decisions import undecided_openings
from eps_locked.lock.gate import (
    read_authorization,
    require_only_listed_files,
    self_authorization_refusal,
)
from eps_locked.lock.history import History, Terms
from eps_locked.lock.inputs import RecordedInputs
from eps_locked.lock.ledger import ChainReader, Line, read_chain
from eps_locked.lock.record import terms_of, verify_amendments, verify_artifact, verify_head
from eps_locked.lock.workspace import FrozenManifest, RunFolder, Workspace


@dataclass(kw_only=True, slots=True)
class AuditedRun:
    """What the audit established. ``ok`` says that everything named was found to hold."""

    name: str
    frozen: FrozenManifest | None
    history: History | None
    run: RunFolder
    checks: dict[int, Check]
    ledger_head: str | None
    n_entries: int
    complete: bool
    publishable: bool

    @property
    def ok(self) -> bool:
        return all(check.ok for check in self.checks.values())

    def failures(self) -> Iterator[tuple[int, str]]:
        for check in self.checks.values():
            for failure in check.failures:
                yield check.number, failure

    def artifact(self, step: str, output: str) -> Mapping[str, bytes]:
        """Files of a step's output. Only for runs whose artifacts were found whole."""
        if self.history is None or not self.checks[8].ok:
            raise EvidenceError(self.name, problem="has no verified artifacts")
        artifact = self.history.done[step].outputs[output]
        return {name: self.run.artifact_file(artifact, name) for name in artifact.files}


# Recomputes a finished step's outputs, status and flags where they follow from its inputs, and
# compares them with the entry's; yields one sentence per difference. Steps it cannot re-derive it
# passes over, saying so by None.
Outputs = Mapping[str, Mapping[str, bytes]]


class Rederive(Protocol):
    """A study's own derivations, from bytes the audit has verified."""

    def __call__(
        self, step: Step, inputs: RecordedInputs, outputs: Outputs, body: StepBody
    ) -> Iterable[str] | None: ...

    def manifest(self, frozen: FrozenManifest) -> Iterable[str]:
        """Differences between a manifest and what its own plan and sources give."""
        ...


def audit_run(
    workspace: Workspace,
    name: str,
    *,
    code: Mapping[str, str],
    rederive: Rederive,
    quick: bool = False,
) -> AuditedRun:
    """Run every check. Raises only for a name that is no name; all else becomes a failure.

    ``code``: digests of the checker's own source files. ``quick`` leaves out C10.
    """
    run = workspace.run(name)
    checks = {number: Check(number=number) for number in TITLES}
    audited = AuditedRun(
        name=name,
        frozen=None,
        history=None,
        run=run,
        checks=checks,
        ledger_head=None,
        n_entries=0,
        complete=False,
        publishable=False,
    )
    frozen, terms = _check_manifest(workspace, name, checks)
    if frozen is None or terms is None:
        return audited
    audited.frozen = frozen
    _check_sources(workspace, frozen, checks[3])
    if checks[1].ok and checks[2].ok:
        checks[14].n_examined = len(frozen.manifest.files)
        checks[14].failures += rederive.manifest(frozen)
    lines = _check_ledger(run, terms, checks[6], audited)
    history, entries_ok = _check_history(run, terms, lines, checks[7])
    audited.history = history
    _check_code(frozen, history, code, checks[4])
    _check_signers(run, frozen, history, lines, checks[5])
    _check_artifacts(run, history, checks[8])
    if checks[8].ok and entries_ok:
        check_lineage(run, history, checks[9])
        if not quick:
            _check_derivation(run, frozen, history, rederive, checks[10])
    _check_completeness(terms, history, checks[11], audited)
    _check_layout(run, checks[12])
    check_verdicts(run, name, frozen, lines, checks[13])
    if checks[8].ok and entries_ok:
        check_looks(run, frozen, history, checks[15])
    audited.publishable = audited.ok and audited.complete and _is_publishable(frozen, history)
    return audited


def verdict_payload(audited: AuditedRun, code: str) -> dict[str, Any]:
    """The document ``check-evidence`` writes: bound to this ledger head, free of times."""
    if audited.frozen is None or audited.ledger_head is None:
        raise EvidenceError(audited.name, problem="has no manifest and ledger to give a verdict on")
    return {
        "schema": VERDICT_SCHEMA,
        "name": audited.name,
        "manifest": audited.frozen.digest,
        "ledger_head": audited.ledger_head,
        "n_entries": audited.n_entries,
        "complete": audited.complete,
        "publishable": audited.publishable,
        "code": code,
        "ok": audited.ok,
        "checks": [check.to_dict() for check in audited.checks.values()],
    }


def _check_manifest(
    workspace: Workspace, name: str, checks: Mapping[int, Check]
) -> tuple[FrozenManifest | None, Terms | None]:
    frozen = terms = None
    with Noting(checks[1]):
        frozen = workspace.load_manifest(name)
    if frozen is None:
        return None, None
    for relative in frozen.manifest.files:
        with Noting(checks[2]):
            frozen.read(relative)
    if checks[2].ok:
        with Noting(checks[2]):
            require_only_listed_files(frozen)
    with Noting(checks[1]):
        if "frozen/steps.json" in frozen.manifest.files:
            _same_digest(frozen, "frozen/plan.yaml", frozen.manifest.plan)
            _same_digest(frozen, "frozen/code.json", frozen.manifest.code)
            _same_digest(frozen, "frozen/environment.json", frozen.manifest.environment)
        terms = terms_of(frozen)
    return frozen, terms


def _same_digest(frozen: FrozenManifest, relative: str, expected: str) -> None:
    found = digest_bytes(frozen.read(relative))
    if found != expected:
        raise EvidenceError(str(frozen.folder / relative), expected=expected, found=found)


def _check_sources(workspace: Workspace, frozen: FrozenManifest, check: Check) -> None:
    """A bundle without ``plans/`` is whole too: absent sources are not failures, others are."""
    for relative, record in frozen.manifest.sources.items():
        path = workspace.plans / relative
        if not path.exists() and not path.is_symlink():
            continue
        with Noting(check):
            found = digest_bytes(workspace.read_source(relative, thing=f"plans/{relative}"))
            if found != record.digest:
                raise EvidenceError(str(path), expected=record.digest, found=found)


def _check_code(
    frozen: FrozenManifest, history: History, code: Mapping[str, str], check: Check
) -> None:
    with Noting(check):
        if digest_value(dict(code)) in history.allowed_code:
            return
        listed = decode(frozen.read("frozen/code.json"), thing="frozen/code.json")
        odd = sorted(n for n in {*listed, *code} if listed.get(n) != code.get(n))
        raise EvidenceError(
            f"source file {odd[0] if odd else '?'}",
            expected=listed.get(odd[0], "absent") if odd else "the bound sources",
            found=code.get(odd[0], "absent") if odd else "others",
            next_step="check this run with the version of eps_locked it is bound to",
        )


def _check_ledger(
    run: RunFolder, terms: Terms, check: Check, audited: AuditedRun
) -> list[Line | None]:
    reader = ChainReader(terms.manifest_digest, run.root, thing=str(run.ledger_path))
    lines: list[Line | None] = []
    last_two: deque[tuple[int, str]] = deque([(-2, ""), (-1, reader.head)], maxlen=2)
    with Noting(check):
        for item in read_chain(run.ledger_lines(), reader):
            if isinstance(item, EpsLockedError):
                check.n_examined += 1
                check.failures.append(str(item))
                lines.append(None)
            else:
                check.n_examined += 1
                lines.append(item)
            last_two.append((len(lines) - 1, reader.head))
        torn = run.torn_end()
        if torn:
            raise EvidenceError(
                str(run.ledger_path),
                problem="ends in a torn line",
                expected="a newline at the end",
                found=f"{len(torn)} bytes after the last one",
                next_step="resume the phase; it sets the torn line aside and redoes the step",
            )
    with Noting(check):
        if not lines:
            raise EvidenceError(
                str(run.ledger_path), expected="at least one entry", found="an empty ledger"
            )
        verify_head(run, before_last=last_two[0], last=last_two[1])
    # A broken or torn ledger has no head that a verdict could name.
    audited.ledger_head = reader.head if check.ok else None
    audited.n_entries = len(lines)
    return lines


def _check_history(
    run: RunFolder, terms: Terms, lines: list[Line | None], check: Check
) -> tuple[History, bool]:
    history = History(terms=terms)
    for number, line in enumerate(lines, start=1):
        if line is None:
            continue
        with Noting(check):
            history.accept(line.entry, where=f"{run.ledger_path}:{number}")
    return history, check.ok


def _check_signers(
    run: RunFolder,
    frozen: FrozenManifest,
    history: History,
    lines: list[Line | None],
    check: Check,
) -> None:
    signers = b""
    with Noting(check):
        signers = frozen.read("frozen/allowed_signers")
    if not signers:
        return
    with Noting(check):
        amendments = verify_amendments(run, history, frozen, signers)
        entries = [line.entry for line in lines if line is not None]
        check.failures += undecided_openings(entries, amendments, str(run.ledger_path))
    documents: dict[str, tuple[Authorization, str]] = {}
    with Noting(check):
        for document in run.signed_documents("authorizations"):
            with Noting(check):
                authorization = read_authorization(document, signers)
                digest = digest_bytes(document.data)
                documents[digest] = (authorization, digest_bytes(document.signature))
                for name, expected, found in (
                    ("name", frozen.manifest.name, authorization.name),
                    ("root", run.root, authorization.root),
                    ("manifest", frozen.digest, authorization.manifest),
                ):
                    if expected != found:
                        raise EvidenceError(
                            f"{document.path}: {name}", expected=expected, found=found
                        )
    for line in lines:
        if line is not None and line.entry.kind == "open":
            with Noting(check):
                _check_open(run, frozen, line.entry, documents)


def _check_open(
    run: RunFolder,
    frozen: FrozenManifest,
    entry: Entry,
    documents: Mapping[str, tuple[Authorization, str]],
) -> None:
    where = f"{run.ledger_path}:{entry.seq + 1}"
    body = OpenBody.from_dict(entry.body, where)
    named = body.authorization.get("document", "")
    if named not in documents:
        raise EvidenceError(
            f"{where}: authorization",
            expected=f"a good document with digest {named} in {run.folder / 'authorizations'}",
            found="none",
        )
    authorization, signature = documents[named]
    for name, expected, found in (
        ("authorization.signature", signature, body.authorization.get("signature")),
        ("phase", authorization.phase, body.phase),
        ("cap_ms", authorization.cap_ms, body.cap_ms),
        ("lock_head", authorization.lock_head, body.lock_head),
        ("self_authorized", authorization.self_authorized, body.self_authorized),
    ):
        if expected != found:
            raise EvidenceError(f"{where}: {name}", expected=expected, found=found)
    at = parse_time(entry.at, thing=f"{where}: at")
    if not authorization.issued_at <= at < authorization.expires_at:
        raise EvidenceError(
            f"{where}: at",
            expected=f"within {format_time(authorization.issued_at)} "
            f"to {format_time(authorization.expires_at)}",
            found=entry.at,
        )
    refusal = self_authorization_refusal(authorization, frozen.manifest, where)
    if refusal is not None:
        raise refusal


def _check_artifacts(run: RunFolder, history: History, check: Check) -> None:
    recorded: set[str] = set()
    for artifact in history.artifacts():
        recorded.add(artifact.digest)
        with Noting(check):
            verify_artifact(run, artifact)
    for digest in run.stored_artifacts():
        if digest not in recorded:
            check.failures.append(
                f"{run.artifacts / digest.removeprefix(DIGEST_PREFIX)}: expected an artifact that "
                "an entry names, found one that none does"
            )


def _check_derivation(
    run: RunFolder, frozen: FrozenManifest, history: History, rederive: Rederive, check: Check
) -> None:
    for body in history.done.values():
        step = history.terms.steps[body.step]
        inputs = RecordedInputs(step=step, frozen_manifest=frozen, run=run, done=history.done)
        try:
            outputs = {
                name: {file: run.artifact_file(artifact, file) for file in artifact.files}
                for name, artifact in body.outputs.items()
            }
            differences = rederive(step, inputs, outputs, body)
            if differences is not None:
                check.n_examined += 1
                check.failures += [f"{step.id}: {difference}" for difference in differences]
        except EpsLockedError as error:
            check.failures.append(f"{step.id}: {error}")


def _check_completeness(terms: Terms, history: History, check: Check, audited: AuditedRun) -> None:
    for phase in terms.phases:
        check.n_examined += 1
        left = history.remaining(phase)
        if left:
            check.failures.append(
                f"phase {phase}: expected {len(terms.of_phase(phase))} finished steps, "
                f"found {len(terms.of_phase(phase)) - len(left)}; the first open one is "
                f"{left[0].id}"
            )
        elif phase not in history.closed:
            check.failures.append(f"phase {phase}: expected a close entry, found none")
    audited.complete = check.ok


def _check_layout(run: RunFolder, check: Check) -> None:
    allowed_tops = {"artifacts", "authorizations", "amendments", "verdicts", "aside"}
    allowed_files = {"ledger.jsonl", "head.json"}
    check.n_examined += 1
    if not run.folder.is_dir():
        check.failures.append(f"{run.folder}: expected a run folder, found none")
        return
    for path in sorted(run.folder.iterdir()):
        # Verdicts, what lies aside and empty folders do not count: the same run is to get the same
        # verdict each time, also from a copy that dropped empty folders.
        is_empty = path.is_dir() and not any(path.iterdir())
        check.n_examined += path.name not in ("verdicts", "aside") and not is_empty
        if path.name == "running.json":
            check.failures.append(
                f"{path}: expected no step in progress, found the note of one; "
                "resume the phase first"
            )
        elif path.is_symlink() or path.name not in (
            allowed_tops if path.is_dir() else allowed_files
        ):
            check.failures.append(f"{path}: expected no such file here, found one")
    for kind in ("authorizations", "amendments"):
        folder = run.folder / kind
        for relative in files.walk_files(folder):
            name, _, file = relative.partition("/")
            if name.startswith(".") or file not in ("document.json", "document.json.sig"):
                check.failures.append(f"{folder / relative}: expected no such file, found one")
    for leftover in run.leftovers():
        check.failures.append(f"{leftover}: expected nothing half-written, found a leftover")


def _is_publishable(frozen: FrozenManifest, history: History) -> bool:
    return frozen.manifest.publication and all(
        body.engine.get("publishable") is True for body in history.opens
    )
