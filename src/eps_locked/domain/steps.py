"""The complete list of steps a manifest promises, and how a step's inputs are named.

An input is a reference, written as text so that an auditor can follow it without our code:
``file:frozen/steps.json`` (a frozen file by its path below the manifest folder) or
``step:P0/base/default#base`` (an output of an earlier step).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eps_locked.canonical import digest_value
from eps_locked.domain.fields import Fields
from eps_locked.errors import MalformedInputError

STEPS_SCHEMA = "eps-locked/steps/1"
FILE_REF = "file:"
STEP_REF = "step:"


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One unit of work: what it is, what it reads, what it will write.

    ``kind`` chooses the function that runs it; ``params`` are that function's arguments, all text;
    ``outputs`` are the names of its artifacts, each a folder in the store; ``estimate_ms`` is the
    device time the plan expects of it, which must fit under the cap before it starts.
    """

    id: str
    phase: str
    kind: str
    seed: int | None
    params: Mapping[str, str]
    inputs: Mapping[str, str]
    outputs: tuple[str, ...]
    estimate_ms: int

    @classmethod
    def from_dict(cls, value: object, path: str) -> Step:
        with Fields(value, path) as fields:
            return cls(
                id=fields.text("id"),
                phase=fields.text("phase"),
                kind=fields.text("kind"),
                seed=fields.integer_or_none("seed"),
                params=fields.text_map("params"),
                inputs=fields.text_map("inputs"),
                outputs=fields.texts("outputs"),
                estimate_ms=fields.integer("estimate_ms", low=0),
            )

    def to_dict(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "phase": self.phase,
            "kind": self.kind,
            "seed": self.seed,
            "params": dict(self.params),
            "inputs": dict(self.inputs),
            "outputs": list(self.outputs),
            "estimate_ms": self.estimate_ms,
        }

    def needs(self) -> tuple[tuple[str, str], ...]:
        """The (step id, output name) pairs this step reads."""
        pairs = []
        for reference in self.inputs.values():
            if reference.startswith(STEP_REF):
                step_id, _, output = reference[len(STEP_REF) :].partition("#")
                pairs.append((step_id, output))
        return tuple(pairs)


def read_steps(value: object, thing: str) -> tuple[Step, ...]:
    """Parse a frozen step list and check that it can be run in its order.

    Raises MalformedInputError for a duplicate id, an input that no earlier step writes, or a
    reference of an unknown form.
    """
    with Fields(value, thing) as fields:
        fields.text("schema", one_of=(STEPS_SCHEMA,))
        steps = fields.each("steps", Step.from_dict)
    written: dict[str, tuple[str, ...]] = {}
    for step in steps:
        if step.id in written:
            raise MalformedInputError(f"{thing}: {step.id}", problem="is listed twice")
        for name, reference in step.inputs.items():
            if not reference.startswith((FILE_REF, STEP_REF)):
                raise MalformedInputError(
                    f"{thing}: {step.id}.inputs.{name}",
                    expected="file:PATH or step:ID#OUTPUT",
                    found=reference,
                )
        for needed, output in step.needs():
            if output not in written.get(needed, ()):
                raise MalformedInputError(
                    f"{thing}: {step.id}",
                    expected=f"an earlier step {needed} with output {output}",
                    found="none",
                )
        written[step.id] = step.outputs
    return steps


def results_digest(phase: str, rows: Sequence[tuple[str, str, Mapping[str, str]]]) -> str:
    """Digest of what a phase found: (step id, status, output digests) in the promised order.

    Times, machines, interruptions and the order of execution do not enter.
    """
    return digest_value(
        {
            "schema": "eps-locked/results/1",
            "phase": phase,
            "steps": [
                {"step": step_id, "status": status, "outputs": dict(outputs)}
                for step_id, status, outputs in rows
            ],
        }
    )
