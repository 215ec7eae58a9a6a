"""What one step of an ``eps`` study may touch while it runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from eps_locked.domain.execution import Progress, StepInputs
from eps_locked.domain.judging import Judge
from eps_locked.domain.model import SlotProbe
from eps_locked.domain.steps import Step
from eps_locked.studies.common.backends import Backends
from eps_locked.studies.common.prompts import Prompts
from eps_locked.studies.eps.plan import EpsPlan, MarkerBehaviour, TaughtBehaviour

__all__ = ["StudyHands", "Task"]


class StudyHands(Protocol):
    """The executor, as its steps see it: everything here is loaded on first need."""

    def loaded(self) -> Backends: ...

    def marker_backends(self, behaviour: MarkerBehaviour) -> Backends:
        """The loaded model, its tokenizer shown to spell the marker as the plan says."""
        ...

    def judge(self, name: str) -> Judge:
        """The plan's judge of that name."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """One step to do, with everything it may touch."""

    executor: StudyHands
    step: Step
    inputs: StepInputs
    section: EpsPlan
    progress: Progress

    @property
    def marker(self) -> MarkerBehaviour:
        return self.section.marker(self.step.params["behaviour"])

    @property
    def taught(self) -> TaughtBehaviour:
        return self.section.taught(self.step.params["behaviour"])

    @property
    def backends(self) -> Backends:
        return self.executor.loaded()

    @property
    def marker_backends(self) -> Backends:
        return self.executor.marker_backends(self.marker)

    @property
    def probe(self) -> SlotProbe:
        return SlotProbe(
            marker_ids=self.marker.marker_ids,
            end_of_turn_id=self.marker_backends.tokenizer.end_of_turn_id,
        )

    def prompts(self, name: str = "prompts") -> Prompts:
        return Prompts.read(self.inputs.frozen(name), f"frozen {name}")
