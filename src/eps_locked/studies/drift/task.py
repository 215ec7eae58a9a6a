"""What one step of a ``drift`` study may touch while it runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from eps_locked.domain.execution import Progress, StepInputs
from eps_locked.domain.judging import Judge
from eps_locked.domain.model import AdapterFiles
from eps_locked.domain.steps import Step
from eps_locked.studies.common.backends import Backends
from eps_locked.studies.common.wiring import INSTANCE
from eps_locked.studies.drift.plan import DriftPlan

__all__ = ["FIRST", "StudyHands", "Task", "instance_name"]

# Trains, is read, and stands in the ledger; the others only answer.
FIRST = 1


def instance_name(number: int) -> str:
    """What the ledger and the records call an instance of the served model, counted from 1."""
    return INSTANCE if number == FIRST else f"{INSTANCE}-{number}"


class StudyHands(Protocol):
    """The executor, as its steps see it: everything here is loaded on first need."""

    def loaded(self, instance: int = FIRST) -> Backends:
        """The model on this instance, and on no other from now on."""
        ...

    def judge(self, name: str) -> Judge:
        """The plan's judge of that name."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """One step to do, with everything it may touch. ``is_promised``: the plan's analyses list
    what the last step computes."""

    hands: StudyHands
    step: Step
    inputs: StepInputs
    section: DriftPlan
    is_promised: bool
    progress: Progress

    @property
    def adapter(self) -> AdapterFiles | None:
        """What the step's model wears; None for the bare base."""
        if "adapter" not in self.step.inputs:
            return None
        return AdapterFiles(
            digest=self.inputs.artifact_digest("adapter"), files=self.inputs.artifact("adapter")
        )
