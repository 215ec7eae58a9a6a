"""What the page of study ``drift`` needs beside what every page needs: its document, its judges."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from eps_locked.audit.checks import AuditedRun
from eps_locked.canonical import decode
from eps_locked.errors import EvidenceError
from eps_locked.report.drift.view import Document, require_document
from eps_locked.report.evidence import Result, RunEvidence, artifact_path, gather_run

STEP, OUTPUT, FILE = "P3/drift", "drift", "drift.json"
# What else that step writes, and what it holds.
WRITTEN = {FILE: "the step's own bytes", "replies.csv": "one line a reply, without its text"}
# Files that say who judged: in which kind of step, in which of its outputs, and as what.
_VERDICTS = (
    ("ask", "answers", "verdicts.json", "classifies"),
    ("ask", "answers", "grades.json", "grades"),
    ("ask", "answers", "checks.json", "checks the classifier"),
    ("awareness", "awareness", "awareness.json", "rates probes for looking like a test"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Role:
    """A judge, as it says of itself, and what it did. ``rubrics`` are digests."""

    judge: Mapping[str, Any]
    does: str
    rubrics: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class DriftEvidence(RunEvidence):
    """Everything the page needs, parsed. ``written``: the last step's files, their exact bytes."""

    document: Document
    written: Mapping[str, bytes]
    path: str
    roles: tuple[Role, ...]

    @property
    def results(self) -> tuple[Result, ...]:
        return (Result(what="document", step=STEP, output=OUTPUT, file=FILE, path=self.path),)

    @property
    def judges(self) -> tuple[Mapping[str, Any], ...]:
        return (*(one.judge for one in self.roles), *self.calibrated_judges)


def gather(audited: AuditedRun) -> DriftEvidence:
    """Raises EvidenceError for a run whose audit failed, is incomplete, or left out a check; for a
    document that calls confirmatory what the frozen plan did not promise."""
    run = gather_run(audited)
    written = audited.artifact(STEP, OUTPUT)
    document = decode(written[FILE], thing=f"{STEP}: {FILE}")
    require_document(document)
    require_promised(run, document)
    return DriftEvidence(
        **run.parts(),
        document=document,
        written=written,
        path=artifact_path(audited, STEP, OUTPUT, FILE),
        roles=_roles(audited),
    )


def require_promised(run: RunEvidence, document: Document) -> None:
    """Raises EvidenceError for a document called confirmatory that the plan did not promise."""
    if document["label"] == "confirmatory" and not run.is_confirmatory("drift"):
        raise EvidenceError(
            f"report of {run.manifest.name}: {FILE}",
            expected="exploratory, since the plan's analyses do not list drift",
            found=document["label"],
        )


def _roles(audited: AuditedRun) -> tuple[Role, ...]:
    """Every judge with every part it played, in the order of the plan's steps."""
    found: dict[tuple[str, str], tuple[Mapping[str, Any], list[str]]] = {}
    for does, value in _verdict_files(audited):
        judge = value["judge"]
        _, rubrics = found.setdefault((does, repr(sorted(judge.items()))), (judge, []))
        if value["rubric"] not in rubrics:
            rubrics.append(value["rubric"])
    return tuple(
        Role(judge=judge, does=does, rubrics=tuple(rubrics))
        for (does, _), (judge, rubrics) in found.items()
    )


def _verdict_files(audited: AuditedRun) -> Iterator[tuple[str, Mapping[str, Any]]]:
    assert audited.history is not None
    for kind, output, file, does in _VERDICTS:
        for step in audited.history.terms.steps.values():
            if step.kind == kind:
                files = audited.artifact(step.id, output)
                # A plan without a grader or a checker has no such file.
                if file in files:
                    yield does, decode(files[file], thing=f"{step.id}: {file}")
