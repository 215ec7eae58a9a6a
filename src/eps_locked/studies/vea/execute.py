"""The hands of the ``vea`` study: one function per step kind."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from eps_locked.domain.execution import Progress, StepInputs, StepResult
from eps_locked.domain.model import EngineIdentity
from eps_locked.domain.plan import Plan
from eps_locked.domain.steps import Step
from eps_locked.lock.freeze import load_plan
from eps_locked.studies.common.wiring import ModelFolders
from eps_locked.studies.vea.plan import VeaPlan
from eps_locked.studies.vea.results import breadth_files, power_files
from eps_locked.studies.vea.scoring import score
from eps_locked.studies.vea.task import Task
from eps_locked.studies.vea.train import train
from eps_locked.studies.vea.wiring import Models, engine_identity

__all__ = ["VeaExecutor"]


@dataclass(kw_only=True, slots=True)
class VeaExecutor:
    """Runs ``vea`` steps. Nothing is loaded before a step needs it, and one model at a time.

    ``folder`` gives the base model's folder, or that of another source; ``environ`` holds the keys
    of services.
    """

    plan: Plan
    folder: ModelFolders
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    _models: Models | None = None
    _section: VeaPlan | None = None
    _frozen: Plan | None = None
    _plan_bytes: bytes = b""

    def execute(self, step: Step, inputs: StepInputs, progress: Progress) -> StepResult:
        plan, section = self._read(inputs.frozen("plan"))
        task = Task(
            models=self._loaded(plan),
            step=step,
            inputs=inputs,
            section=section,
            is_promised="breadth" in plan.analyses,
            progress=progress,
        )
        return _HANDLERS[step.kind](task)

    @property
    def identity(self) -> EngineIdentity:
        """What runs models in this process. Which reward model spoke stands beside its scores."""
        return engine_identity(self.plan)

    def _loaded(self, plan: Plan) -> Models:
        if self._models is None:
            self._models = Models(plan=plan, folder=self.folder, environ=self.environ)
        return self._models

    def _read(self, plan_bytes: bytes) -> tuple[Plan, VeaPlan]:
        if self._frozen is None or self._section is None or plan_bytes != self._plan_bytes:
            self._frozen = load_plan(plan_bytes, thing="frozen/plan.yaml")
            self._section = VeaPlan.of(self._frozen)
            self._plan_bytes = plan_bytes
            self._models = None
        return self._frozen, self._section


def _power(task: Task) -> StepResult:
    return StepResult(outputs={"power": power_files(task.section)})


def _breadth(task: Task) -> StepResult:
    """Every statistic, from what is stored; the audit calls the same function on its own."""
    files = breadth_files(task.inputs, task.section, is_promised=task.is_promised)
    return StepResult(outputs={"breadth": files})


_HANDLERS: Mapping[str, Callable[[Task], StepResult]] = {
    "power": _power,
    "train": train,
    "score": score,
    "breadth": _breadth,
}
