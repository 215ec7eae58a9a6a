"""What the page of study ``vea`` needs beside what every page needs: its document, its
trainings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from eps_locked.audit.checks import AuditedRun
from eps_locked.canonical import decode
from eps_locked.errors import EvidenceError
from eps_locked.report.evidence import Result, RunEvidence, artifact_path, gather_run
from eps_locked.report.vea.view import Document, require_document

STEP, OUTPUT, FILE = "P3/breadth", "breadth", "breadth.json"
# What that step writes, and what it holds.
WRITTEN = {
    FILE: "the step's own bytes",
    "deltas.csv": "one line for each item and reward model: both differences, without any text",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class VeaEvidence(RunEvidence):
    """Everything the page needs, parsed. ``written``: the last step's files, their exact bytes.
    ``trainings``: what each training said of itself, in the plan's order."""

    document: Document
    written: Mapping[str, bytes]
    path: str
    trainings: tuple[Mapping[str, Any], ...]

    @property
    def results(self) -> tuple[Result, ...]:
        return (Result(what="document", step=STEP, output=OUTPUT, file=FILE, path=self.path),)


def gather(audited: AuditedRun) -> VeaEvidence:
    """Raises EvidenceError for a run whose audit failed, is incomplete, or left out a check; for a
    document that calls confirmatory what the frozen plan did not promise."""
    run = gather_run(audited)
    written = audited.artifact(STEP, OUTPUT)
    document = decode(written[FILE], thing=f"{STEP}: {FILE}")
    require_document(document)
    if document["label"] == "confirmatory" and not run.is_confirmatory("breadth"):
        raise EvidenceError(
            f"report of {run.manifest.name}: {FILE}",
            expected="exploratory, since the plan's analyses do not list breadth",
            found=document["label"],
        )
    return VeaEvidence(
        **run.parts(),
        document=document,
        written=written,
        path=artifact_path(audited, STEP, OUTPUT, FILE),
        trainings=tuple(
            decode(audited.artifact(step.id, "record")["record.json"], thing=step.id)
            for step in run.history.terms.steps.values()
            if step.kind == "train"
        ),
    )
