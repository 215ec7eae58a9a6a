"""What a page says about a run beside its numbers, gathered from an audited run.

Signed documents and ledger lines are read once more, under their own rules (signature, chain), and
required to be the ones the audit saw: the ledger must end in the head the audit names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from eps_locked.audit.checks import AuditedRun
from eps_locked.canonical import decode, digest_bytes
from eps_locked.domain.authorization import Amendment, Authorization
from eps_locked.domain.ledger import Entry, OpenBody
from eps_locked.domain.manifest import Manifest
from eps_locked.domain.steps import STEP_REF
from eps_locked.errors import EvidenceError
from eps_locked.lock.decisions import DECISION_PREFIX
from eps_locked.lock.gate import read_authorization
from eps_locked.lock.history import History
from eps_locked.lock.ledger import ChainReader
from eps_locked.lock.looks import RESULT_FILE
from eps_locked.lock.record import verify_amendments
from eps_locked.lock.strict_yaml import parse_yaml
from eps_locked.lock.workspace import FrozenManifest
from eps_locked.report.marks import is_sealed


@dataclass(frozen=True, kw_only=True, slots=True)
class Session:
    """One ``open`` entry, and the authorization it names."""

    seq: int
    at: str
    body: OpenBody
    authorization: Authorization
    document: str


@dataclass(frozen=True, kw_only=True, slots=True)
class TensorArtifact:
    """One behaviour's tensor: the document, its exact bytes, and the step that wrote it.

    ``headroom``: the record of what the base model does by itself, which the step read.
    """

    step: str
    document: Mapping[str, Any]
    headroom: Mapping[str, Any]
    data: bytes
    path: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """A step's finding that had to be decided by a signed amendment; ``decided_by`` is its number,
    None where no later phase needed it."""

    finding: str
    step: str
    phase: str
    decided_by: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class RunEvidence:
    """Everything the page needs, parsed. ``contexts`` by behaviour, then by name."""

    audited: AuditedRun
    frozen: FrozenManifest
    history: History
    plan: Mapping[str, Any]
    contexts: Mapping[str, Mapping[str, Any]]
    split: Mapping[str, Any]
    sessions: tuple[Session, ...]
    amendments: tuple[Amendment, ...]
    entries: tuple[Entry, ...]
    tensors: tuple[TensorArtifact, ...]
    calibrations: tuple[Mapping[str, Any], ...]
    findings: tuple[Finding, ...]
    submissions: tuple[Mapping[str, Any], ...]
    looks: tuple[Mapping[str, Any], ...]
    recipients: str | None

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
    def stand_in_judges(self) -> tuple[str, ...]:
        """Judges that say of themselves that their verdicts are not for publication."""
        judges = [one.document["judge"] for one in self.tensors if "judge" in one.document]
        judges += [one["calibration"]["judge"] for one in self.calibrations]
        names = (str(judge["model"]) for judge in judges if judge["publishable"] is not True)
        return tuple(dict.fromkeys(names))

    @property
    def has_judges(self) -> bool:
        return any("judge" in one.document for one in self.tensors)

    @property
    def publishable(self) -> bool:
        """Whether plan, engine and every judge allow it."""
        return self.audited.publishable and not self.stand_in_judges

    def behaviour_plan(self, name: str) -> Mapping[str, Any]:
        """One row as the plan writes it."""
        rows: list[Mapping[str, Any]] = self.study["behaviours"]
        return next(row for row in rows if row["name"] == name)

    @property
    def hours_word(self) -> str:
        """What the cap counts: hours of the plan's device."""
        return "GPU-hours" if self.plan["engine"]["device"].startswith("cuda") else "CPU-hours"


def gather(audited: AuditedRun) -> RunEvidence:
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
    split = _frozen_json(frozen, "split")
    plan = parse_yaml(frozen.read("frozen/plan.yaml"), thing="frozen/plan.yaml")
    names = [row["name"] for row in plan[plan["study"]]["behaviours"]]
    amendments = verify_amendments(audited.run, history, frozen, signers)
    return RunEvidence(
        audited=audited,
        frozen=frozen,
        history=history,
        plan=plan,
        contexts={
            name: _frozen_json(frozen, f"rows/{name}/contexts")["contexts"] for name in names
        },
        split=split,
        sessions=_sessions(audited, entries, signers),
        amendments=amendments,
        entries=entries,
        tensors=tuple(
            _tensor(audited, history, split, step.id)
            for step in history.terms.steps.values()
            if step.kind == "tensor"
        ),
        calibrations=tuple(
            decode(audited.artifact(step.id, "calibration")["record.json"], thing=step.id)
            for step in history.terms.steps.values()
            if step.kind == "calibration"
        ),
        findings=_findings(history, amendments),
        submissions=_submissions(entries, history),
        looks=_looks(audited, entries, history),
        recipients=_recipients(frozen, plan),
    )


def _frozen_json(frozen: FrozenManifest, name: str) -> dict[str, Any]:
    relative = f"frozen/{name}.json"
    value: dict[str, Any] = decode(frozen.read(relative), thing=relative)
    return value


def _recipients(frozen: FrozenManifest, plan: Mapping[str, Any]) -> str | None:
    """The frozen file of the custodian's public keys; None where the plan seals nothing."""
    relative = plan[plan["study"]]["quarantine"].get("recipients")
    return None if relative is None else frozen.read(f"frozen/sources/{relative}").decode("utf-8")


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


def require_sealed(tensor: Mapping[str, Any], split: Mapping[str, Any], step: str) -> None:
    """Raises EvidenceError for a cell that the manifest sealed and the tensor shows."""
    if split["seal"] == "none":
        return
    for cell in tensor["cells"]:
        fate = split["cells"][f"{tensor['behaviour']}/{cell['train']}/{cell['eval']}"]
        if fate in ("held_out", "quarantined") and not is_sealed(cell):
            raise EvidenceError(
                f"{step}: cell {cell['train']} -> {cell['eval']}",
                expected=f"a sealed cell, since the manifest lists it as {fate}",
                found="a cell in plain text",
                next_step="treat the cell as seen; the seal of this run is broken",
            )


def _tensor(
    audited: AuditedRun, history: History, split: Mapping[str, Any], step: str
) -> TensorArtifact:
    data = audited.artifact(step, "tensor")["tensor.json"]
    digest = history.done[step].outputs["tensor"].digest.partition(":")[2]
    source = history.terms.steps[step].inputs["headroom"].removeprefix(STEP_REF).partition("#")[0]
    headroom = decode(audited.artifact(source, "headroom")["record.json"], thing=source)
    document = decode(data, thing=f"{step}: tensor.json")
    require_sealed(document, split, step)
    return TensorArtifact(
        step=step,
        document=document,
        headroom=headroom,
        data=data,
        path=f"runs/{audited.name}/artifacts/{digest}/tensor.json",
    )


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


def _submissions(entries: tuple[Entry, ...], history: History) -> tuple[Mapping[str, Any], ...]:
    """Every frozen submission as plain values, and when it was frozen."""
    times = [entry.at for entry in entries if entry.kind == "submission"]
    return tuple(
        {
            "number": body.number,
            "at": at,
            "author": body.author,
            "metric": body.metric,
            "track": body.track,
            "digest": body.submission.digest,
            "looks_before_by_author": body.looks_before["author"],
            "looks_before_by_anybody": body.looks_before["any"],
        }
        for at, body in zip(times, history.submissions, strict=True)
    )


def _looks(
    audited: AuditedRun, entries: tuple[Entry, ...], history: History
) -> tuple[Mapping[str, Any], ...]:
    """Every look with how it ended; one that never ended was cut short and counts all the same.

    ``result`` is the final score document, or None where the look gave no score.
    """
    times = [entry.at for entry in entries if entry.kind == "look"]
    looks = []
    for at, body in zip(times, history.looks, strict=True):
        submission = history.submissions[body.submission - 1]
        ended = history.scores.get(body.number)
        artifact = None if ended is None else ended.result
        result = None
        if artifact is not None:
            data = audited.run.artifact_file(artifact, RESULT_FILE)
            result = decode(data, thing=f"look {body.number}: {RESULT_FILE}")["scores"]
        looks.append(
            {
                "number": body.number,
                "at": at,
                "submission": body.submission,
                "author": submission.author,
                "metric": submission.metric,
                "track": submission.track,
                "informed": body.informed,
                "verdict": body.verdict,
                "status": "aborted" if ended is None else ended.status,
                "reason": "cut short: no end was recorded" if ended is None else ended.reason,
                "digest": None if artifact is None else artifact.digest,
                "result": result,
            }
        )
    return tuple(looks)
