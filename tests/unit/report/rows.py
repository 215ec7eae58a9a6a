"""Puts made-up rows into gathered evidence, as if the plan had asked for them."""

from __future__ import annotations

from dataclasses import replace

from taught import plan_row

from eps_locked.report.tensors import TensorArtifact, TensorEvidence


def of_rows(evidence: TensorEvidence, tensors: tuple[TensorArtifact, ...]) -> TensorEvidence:
    """The evidence with these tensors; every row has the frozen contexts of the real one."""
    (contexts, *_) = evidence.contexts.values()
    names = [one.document["behaviour"] for one in tensors]
    section = {**evidence.study, "behaviours": [plan_row(dict(one.document)) for one in tensors]}
    return replace(
        evidence,
        tensors=tensors,
        contexts=dict.fromkeys(names, contexts),
        plan={**evidence.plan, evidence.plan["study"]: section},
    )
