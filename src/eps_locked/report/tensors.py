"""What the page of study ``eps`` needs beside what every page needs: tensors, contexts, looks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from eps_locked.audit.checks import AuditedRun
from eps_locked.canonical import decode
from eps_locked.domain.ledger import Entry
from eps_locked.domain.steps import STEP_REF
from eps_locked.errors import EvidenceError
from eps_locked.lock.history import History
from eps_locked.lock.looks import RESULT_FILE
from eps_locked.lock.workspace import FrozenManifest
from eps_locked.report.evidence import (
    Result,
    RunEvidence,
    artifact_path,
    frozen_json,
    gather_run,
)
from eps_locked.report.marks import is_sealed


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
class TensorEvidence(RunEvidence):
    """Everything the page needs, parsed. ``contexts`` by behaviour, then by name."""

    contexts: Mapping[str, Mapping[str, Any]]
    split: Mapping[str, Any]
    tensors: tuple[TensorArtifact, ...]
    submissions: tuple[Mapping[str, Any], ...]
    looks: tuple[Mapping[str, Any], ...]
    recipients: str | None

    @property
    def results(self) -> tuple[Result, ...]:
        return tuple(
            Result(what="tensor", step=one.step, output="tensor", file="tensor.json", path=one.path)
            for one in self.tensors
        )

    @property
    def judges(self) -> tuple[Mapping[str, Any], ...]:
        asked = (one.document["judge"] for one in self.tensors if "judge" in one.document)
        return (*asked, *self.calibrated_judges)

    @property
    def has_judges(self) -> bool:
        """Whether a row is judged."""
        return any("judge" in one.document for one in self.tensors)

    def behaviour_plan(self, name: str) -> Mapping[str, Any]:
        """One row as the plan writes it."""
        rows: list[Mapping[str, Any]] = self.study["behaviours"]
        return next(row for row in rows if row["name"] == name)


def gather(audited: AuditedRun) -> TensorEvidence:
    """Raises EvidenceError for a run whose audit failed, is incomplete, or left out a check."""
    run = gather_run(audited)
    frozen, history, plan = run.frozen, run.history, run.plan
    split = frozen_json(frozen, "split")
    names = [row["name"] for row in run.study["behaviours"]]
    return TensorEvidence(
        **run.parts(),
        contexts={name: frozen_json(frozen, f"rows/{name}/contexts")["contexts"] for name in names},
        split=split,
        tensors=tuple(
            _tensor(audited, history, split, step.id)
            for step in history.terms.steps.values()
            if step.kind == "tensor"
        ),
        submissions=_submissions(run.entries, history),
        looks=_looks(audited, run.entries, history),
        recipients=_recipients(frozen, plan),
    )


def _recipients(frozen: FrozenManifest, plan: Mapping[str, Any]) -> str | None:
    """The frozen file of the custodian's public keys; None where the plan seals nothing."""
    relative = plan[plan["study"]]["quarantine"].get("recipients")
    return None if relative is None else frozen.read(f"frozen/sources/{relative}").decode("utf-8")


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
    source = history.terms.steps[step].inputs["headroom"].removeprefix(STEP_REF).partition("#")[0]
    headroom = decode(audited.artifact(source, "headroom")["record.json"], thing=source)
    document = decode(data, thing=f"{step}: tensor.json")
    require_sealed(document, split, step)
    return TensorArtifact(
        step=step,
        document=document,
        headroom=headroom,
        data=data,
        path=artifact_path(audited, step, "tensor", "tensor.json"),
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
