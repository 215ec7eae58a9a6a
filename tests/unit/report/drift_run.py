"""Puts a made-up drift document into an audited run, as if its last step had written it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from taught import JUDGE, RUBRIC

from eps_locked.audit.checks import AuditedRun
from eps_locked.canonical import digest_bytes, encode
from eps_locked.domain.ledger import Artifact, FileRecord
from eps_locked.domain.steps import Step
from eps_locked.report.drift.evidence import DriftEvidence, gather

ANALYSES = ("drift", "doses", "nulls")
ASK, AWARE, DRIFT = "P2/ask/untouched/self_interest", "P0/awareness/oversight/words", "P3/drift"
CHECKER = {**JUDGE, "model": "some-words-1", "family": "counting", "publishable": False}


@dataclass(kw_only=True, slots=True)
class WithDrift(AuditedRun):
    """The audit of another study's run, with outputs of drift steps in it."""

    outputs: Mapping[str, Mapping[str, bytes]]

    def artifact(self, step: str, output: str) -> Mapping[str, bytes]:
        if step in self.outputs:
            return self.outputs[step]
        # Not super(): a slotted dataclass is another class than the one its body sees.
        return AuditedRun.artifact(self, step, output)


def with_drift(audited: AuditedRun, document: Mapping[str, Any]) -> WithDrift:
    """The run with a drift document, verdicts of a classifier and a checker, rated probes."""
    outputs = {
        AWARE: {"awareness.json": _judged(CHECKER)},
        ASK: {
            "answers.json": b"{}",
            "verdicts.json": _judged(JUDGE),
            "checks.json": _judged(CHECKER),
        },
        DRIFT: {"drift.json": encode(document), "replies.csv": b"arm,battery\n"},
    }
    kinds = {AWARE: ("awareness", "awareness"), ASK: ("ask", "answers"), DRIFT: ("drift", "drift")}
    history = audited.history
    assert history is not None
    other = next(body for body in history.done.values() if "tensor" in body.outputs)
    done, steps = dict(history.done), dict(history.terms.steps)
    for name, (kind, output) in kinds.items():
        files = {
            file: FileRecord(digest=digest_bytes(data), size=len(data))
            for file, data in outputs[name].items()
        }
        artifact = Artifact(digest=digest_bytes(name.encode()), files=files)
        done[name] = replace(other, step=name, outputs={output: artifact})
        steps[name] = Step(
            id=name,
            phase=name[:2],
            kind=kind,
            seed=None,
            params={},
            inputs={},
            outputs=(output,),
            estimate_ms=1,
        )
    terms = replace(history.terms, steps=steps)
    parts = {one.name: getattr(audited, one.name) for one in fields(AuditedRun)}
    parts["history"] = replace(history, done=done, terms=terms)
    return WithDrift(**parts, outputs=outputs)


def drift_evidence(
    audited: AuditedRun, document: Mapping[str, Any], analyses: tuple[str, ...] = ANALYSES
) -> DriftEvidence:
    """Evidence of a drift run whose plan promised ``analyses``."""
    found = gather(with_drift(audited, {**document, "label": "exploratory"}))
    plan = {**found.plan, "study": "drift", "drift": {}, "analyses": list(analyses)}
    return replace(found, plan=plan, document=document)


def _judged(judge: Mapping[str, Any]) -> bytes:
    return encode({"judge": judge, "rubric": RUBRIC, "verdicts": []})
