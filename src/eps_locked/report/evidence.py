"""What a page says about a run beside its numbers, gathered from an audited run: the part that
every study's page shares.

Signed documents and ledger lines are read once more, under their own rules (signature, chain), and
required to be the ones the audit saw: the ledger must end in the head the audit names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from eps_locked.audit.checks import AuditedRun
from eps_locked.canonical import decode, digest_bytes
from eps_locked.domain.authorization import Amendment, Authorization
from eps_locked.domain.ledger import Entry, OpenBody
from eps_locked.domain.manifest import Manifest
from eps_locked.errors import EvidenceError
from eps_locked.lock.decisions import DECISION_PREFIX
from eps_locked.lock.gate import read_authorization
from eps_locked.lock.history import History
from eps_locked.lock.ledger import ChainReader
from eps_locked.lock.record import verify_amendments
from eps_locked.lock.strict_yaml import parse_yaml
from eps_locked.lock.workspace import FrozenManifest


@dataclass(frozen=True, kw_only=True, slots=True)
class Session:
    """One ``open`` entry, and the authorization it names."""

    seq: int
    at: str
    body: OpenBody
    authorization: Authorization
    document: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """A step's finding that had to be decided by a signed amendment; ``decided_by`` is its number,
    None where no later phase needed it."""

    finding: str
    step: str
    phase: str
    decided_by: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """A file that the page's numbers come from: which step wrote it into which of its outputs.

    ``what`` is the word for it.
    """

    what: str
    step: str
    output: str
    file: str
    path: str


@dataclass(frozen=True, kw_only=True, slots=True)
class RunEvidence:
    """What every page needs of a run, parsed. A study's own evidence adds its results."""

    audited: AuditedRun
    frozen: FrozenManifest
    history: History
    plan: Mapping[str, Any]
    sessions: tuple[Session, ...]
    amendments: tuple[Amendment, ...]
    entries: tuple[Entry, ...]
    calibrations: tuple[Mapping[str, Any], ...]
    findings: tuple[Finding, ...]

    def parts(self) -> dict[str, Any]:
        """The fields by name, for the evidence of a study that adds its own."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

    @property
    def manifest(self) -> Manifest:
        return self.frozen.manifest

    @property
    def study(self) -> Mapping[str, Any]:
        """The plan's section of its own study."""
        section: Mapping[str, Any] = self.plan[self.plan["study"]]
        return section

    def is_confirmatory(self, analysis: str) -> bool:
        """Whether the frozen plan promised the analysis."""
        return analysis in self.plan["analyses"]

    @property
    def results(self) -> tuple[Result, ...]:
        """The files that the page's numbers come from."""
        return ()

    @property
    def calibrated_judges(self) -> tuple[Mapping[str, Any], ...]:
        """Every judge that was compared with people, as it says of itself."""
        return tuple(one["calibration"]["judge"] for one in self.calibrations)

    @property
    def judges(self) -> tuple[Mapping[str, Any], ...]:
        """Every judge of the run, as it says of itself."""
        return self.calibrated_judges

    @property
    def stand_in_judges(self) -> tuple[str, ...]:
        """Judges that say of themselves that their verdicts are not for publication."""
        names = (str(judge["model"]) for judge in self.judges if judge["publishable"] is not True)
        return tuple(dict.fromkeys(names))

    @property
    def stand_in_endpoints(self) -> tuple[str, ...]:
        """Models whose endpoint says of itself that it is not for publication."""
        return ()

    @property
    def has_judges(self) -> bool:
        return bool(self.judges)

    @property
    def publishable(self) -> bool:
        """Whether plan, engine, every judge and every endpoint allow it."""
        return self.audited.publishable and not self.stand_in_judges and not self.stand_in_endpoints

    @property
    def hours_word(self) -> str:
        """What the cap counts: hours of the plan's device."""
        return "GPU-hours" if self.plan["engine"]["device"].startswith("cuda") else "CPU-hours"


def gather_run(audited: AuditedRun) -> RunEvidence:
    """Raises EvidenceError for a run whose audit failed, is incomplete, or left out a check."""
    frozen, history = audited.frozen, audited.history
    if not audited.ok or not audited.complete or frozen is None or history is None:
        found = [f"C{number}: {failure}" for number, failure in audited.failures()]
        raise EvidenceError(
            f"report of {audited.name}",
            expected="a complete run whose checks all hold",
            found=f"{len(found)} failures",
            details=tuple(found),
            next_step=f"just check-evidence {audited.name}",
        )
    if not audited.checks[10].n_examined:
        raise EvidenceError(
            f"report of {audited.name}",
            expected="derived numbers that were recomputed (C10)",
            found="an audit that left this out",
            next_step="audit without --quick",
        )
    signers = frozen.read("frozen/allowed_signers")
    entries = _entries(audited)
    amendments = verify_amendments(audited.run, history, frozen, signers)
    return RunEvidence(
        audited=audited,
        frozen=frozen,
        history=history,
        plan=parse_yaml(frozen.read("frozen/plan.yaml"), thing="frozen/plan.yaml"),
        sessions=_sessions(audited, entries, signers),
        amendments=amendments,
        entries=entries,
        calibrations=tuple(
            decode(audited.artifact(step.id, "calibration")["record.json"], thing=step.id)
            for step in history.terms.steps.values()
            if step.kind == "calibration"
        ),
        findings=_findings(history, amendments),
    )


def frozen_json(frozen: FrozenManifest, name: str) -> dict[str, Any]:
    """A frozen document, by its name without folder and ending."""
    relative = f"frozen/{name}.json"
    value: dict[str, Any] = decode(frozen.read(relative), thing=relative)
    return value


def artifact_path(audited: AuditedRun, step: str, output: str, file: str) -> str:
    """Where a file of a step's output lies, from the folder that holds runs/."""
    assert audited.history is not None
    digest = audited.history.done[step].outputs[output].digest.partition(":")[2]
    return f"runs/{audited.name}/artifacts/{digest}/{file}"


def _entries(audited: AuditedRun) -> tuple[Entry, ...]:
    assert audited.frozen is not None
    thing = str(audited.run.ledger_path)
    reader = ChainReader(audited.frozen.digest, audited.run.root, thing=thing)
    entries = tuple(reader.accept(line).entry for line in audited.run.ledger_lines())
    if reader.head != audited.ledger_head:
        raise EvidenceError(
            thing,
            problem="changed since it was audited",
            expected=audited.ledger_head,
            found=reader.head,
            next_step="write the report again when nothing else writes to the run",
        )
    return entries


def _sessions(
    audited: AuditedRun, entries: tuple[Entry, ...], signers: bytes
) -> tuple[Session, ...]:
    documents = {
        digest_bytes(document.data): document
        for document in audited.run.signed_documents("authorizations")
    }
    sessions = []
    for entry in entries:
        if entry.kind == "open":
            body = OpenBody.from_dict(entry.body, f"entry {entry.seq}")
            document = documents[body.authorization["document"]]
            sessions.append(
                Session(
                    seq=entry.seq,
                    at=entry.at,
                    body=body,
                    authorization=read_authorization(document, signers),
                    document=document.name,
                )
            )
    return tuple(sessions)


def _findings(history: History, amendments: tuple[Amendment, ...]) -> tuple[Finding, ...]:
    """Every finding that waited for a decision, and the first amendment that lists it."""
    return tuple(
        Finding(
            finding=flag,
            step=body.step,
            phase=body.phase,
            decided_by=next((one.number for one in amendments if flag in one.changes), None),
        )
        for body in history.done.values()
        for flag in body.flags
        if flag.startswith(DECISION_PREFIX)
    )
