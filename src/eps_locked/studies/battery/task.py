"""What one step of a ``battery`` study may touch while it runs."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from eps_locked.domain.chat import ChatEndpoint
from eps_locked.domain.execution import Progress, StepInputs
from eps_locked.domain.judging import Judge
from eps_locked.domain.model import AdapterFiles
from eps_locked.domain.steps import Step
from eps_locked.studies.battery.parts import ModelPlan
from eps_locked.studies.battery.plan import BatteryPlan
from eps_locked.studies.common.backends import Backends

__all__ = ["StudyHands", "Task"]


class StudyHands(Protocol):
    """The executor, as its steps see it: everything here is loaded on first need."""

    def loaded(self) -> Backends:
        """The plan's own base model."""
        ...

    def judge(self, name: str) -> Judge:
        """The plan's judge of that name."""
        ...

    def endpoint(
        self, model: ModelPlan, adapter: AdapterFiles | None
    ) -> AbstractContextManager[ChatEndpoint]:
        """Where the model answers, for as long as the context lasts."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """One step to do, with everything it may touch. ``is_promised``: the plan's analyses list
    what the last step computes."""

    hands: StudyHands
    step: Step
    inputs: StepInputs
    section: BatteryPlan
    is_promised: bool
    progress: Progress

    @property
    def adapter(self) -> AdapterFiles | None:
        """What the step's model wears on our own server; None for the bare base, and elsewhere."""
        if "adapter" not in self.step.inputs:
            return None
        return AdapterFiles(
            digest=self.inputs.artifact_digest("adapter"), files=self.inputs.artifact("adapter")
        )
