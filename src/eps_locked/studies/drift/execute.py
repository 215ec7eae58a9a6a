"""The hands of the ``drift`` study: one function per step kind."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from eps_locked.domain.execution import Progress, StepInputs, StepResult
from eps_locked.domain.judging import Judge, JudgePlan
from eps_locked.domain.model import EngineIdentity
from eps_locked.domain.plan import Plan
from eps_locked.domain.steps import Step
from eps_locked.lock.freeze import load_plan
from eps_locked.studies.common.backends import Backends
from eps_locked.studies.common.calibrate import calibration_flags, run_calibration
from eps_locked.studies.drift.asking import ask, rate
from eps_locked.studies.drift.derive import ask_flags, ask_status, rating_outcome
from eps_locked.studies.drift.plan import DriftPlan, ReadoutRules
from eps_locked.studies.drift.power import power_files
from eps_locked.studies.drift.readouts import find_directions, read_model
from eps_locked.studies.drift.results import drift_files
from eps_locked.studies.drift.task import FIRST, Task, instance_name
from eps_locked.studies.drift.train import train

__all__ = ["DriftExecutor"]


@dataclass(kw_only=True, slots=True)
class DriftExecutor:
    """Runs ``drift`` steps. ``load`` brings the model up on the instance it is told.

    One instance is up at a time: an arm of another instance drops the one before it.
    """

    load: Callable[[str], Backends]
    load_judge: Callable[[JudgePlan], Judge]
    _judges: dict[str, Judge] = field(default_factory=dict)
    _backends: Backends | None = None
    _instance: int = 0
    _identity: EngineIdentity | None = None
    _plan: Plan | None = None
    _section: DriftPlan | None = None
    _plan_bytes: bytes = b""

    def execute(self, step: Step, inputs: StepInputs, progress: Progress) -> StepResult:
        plan, section = self._read(inputs.frozen("plan"))
        task = Task(
            hands=self,
            step=step,
            inputs=inputs,
            section=section,
            is_promised="drift" in plan.analyses,
            progress=progress,
        )
        return _HANDLERS[step.kind](task)

    @property
    def identity(self) -> EngineIdentity:
        """The first instance's, whichever is up: it trains, is read and answers for most arms.
        What served an arm's replies stands beside them."""
        if self._identity is None:
            self._identity = self.loaded().identity
        return self._identity

    def loaded(self, instance: int = FIRST) -> Backends:
        if self._backends is None or instance != self._instance:
            # Gone before the next one comes: two models may not fit side by side.
            if self._backends is not None:
                self._backends.close()
                self._backends = None
                gc.collect()
            self._backends = self.load(instance_name(instance))
            self._instance = instance
        return self._backends

    def judge(self, name: str) -> Judge:
        if name not in self._judges:
            assert self._section is not None
            self._judges[name] = self.load_judge(self._section.judge(name))
        return self._judges[name]

    def _read(self, plan_bytes: bytes) -> tuple[Plan, DriftPlan]:
        if self._plan is None or self._section is None or plan_bytes != self._plan_bytes:
            self._plan = load_plan(plan_bytes, thing="frozen/plan.yaml")
            self._section = DriftPlan.of(self._plan)
            self._plan_bytes = plan_bytes
            self._judges.clear()
        return self._plan, self._section


def _power(task: Task) -> StepResult:
    return StepResult(outputs={"power": power_files(task.section)})


def _calibration(task: Task) -> StepResult:
    """A judge against labels that people gave."""
    rules = task.section.calibration(task.step.params["calibration"])
    files = run_calibration(
        rules,
        task.inputs,
        task.hands.judge(rules.judge),
        task.section.judge(rules.judge),
        task.section.item_seed,
    )
    return StepResult(outputs={"calibration": files}, flags=calibration_flags(rules, files))


def _awareness(task: Task) -> StepResult:
    ratings = rate(task)
    status, flags = rating_outcome(ratings, task.section)
    return StepResult(outputs={"awareness": ratings.to_files()}, status=status, flags=flags)


def _ask(task: Task) -> StepResult:
    record = ask(task)
    return StepResult(
        outputs={"answers": record.to_files()},
        status=ask_status(record, task.section),
        flags=ask_flags(record, task.section),
    )


def _directions(task: Task) -> StepResult:
    return find_directions(task, _rules(task))


def _rules(task: Task) -> ReadoutRules:
    assert task.section.readouts is not None
    return task.section.readouts


def _drift(task: Task) -> StepResult:
    """Every statistic, from what is stored; the audit calls the same function on its own."""
    files = drift_files(task.step, task.inputs, task.section, is_promised=task.is_promised)
    return StepResult(outputs={"drift": files})


_HANDLERS: Mapping[str, Callable[[Task], StepResult]] = {
    "power": _power,
    "calibration": _calibration,
    "awareness": _awareness,
    "train": train,
    "ask": _ask,
    "directions": _directions,
    "readout": read_model,
    "drift": _drift,
}
