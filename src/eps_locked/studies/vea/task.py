"""What one step of a ``vea`` study may touch while it runs."""

from __future__ import annotations

from dataclasses import dataclass

from eps_locked.domain.execution import Progress, StepInputs
from eps_locked.domain.model import AdapterFiles
from eps_locked.domain.steps import Step
from eps_locked.studies.vea.derive import FrozenItem, read_frozen_items
from eps_locked.studies.vea.plan import VeaPlan
from eps_locked.studies.vea.wiring import Handed, Models

__all__ = ["Task"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """One step to do, with everything it may touch. ``is_promised``: the plan's analyses list
    what the last step computes."""

    models: Models
    step: Step
    inputs: StepInputs
    section: VeaPlan
    is_promised: bool
    progress: Progress

    @property
    def items(self) -> tuple[FrozenItem, ...]:
        return read_frozen_items(self.inputs.frozen("items"), "frozen items")

    @property
    def handed(self) -> Handed:
        """What the step hands its reward model."""
        names = self.step.inputs
        adapter = None
        if "adapter" in names:
            adapter = AdapterFiles(
                digest=self.inputs.artifact_digest("adapter"),
                files=self.inputs.artifact("adapter"),
            )
        return Handed(
            adapter=adapter,
            table=self.inputs.frozen("table") if "table" in names else None,
            policy=self.inputs.frozen("policy") if "policy" in names else None,
        )
