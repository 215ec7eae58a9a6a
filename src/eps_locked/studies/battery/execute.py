"""The hands of the ``battery`` study: one function per step kind."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from eps_locked.domain.chat import ChatEndpoint
from eps_locked.domain.execution import Progress, StepInputs, StepResult
from eps_locked.domain.judging import Judge, JudgePlan
from eps_locked.domain.model import AdapterFiles, EngineIdentity
from eps_locked.domain.plan import Plan
from eps_locked.domain.steps import Step
from eps_locked.lock.freeze import load_plan
from eps_locked.studies.battery.asking import ask
from eps_locked.studies.battery.derive import (
    ask_flags,
    ask_status,
    power_files,
    speed_flags,
    speed_status,
)
from eps_locked.studies.battery.endpoints import open_endpoint
from eps_locked.studies.battery.parts import EndpointPlan, ModelPlan
from eps_locked.studies.battery.plan import BatteryPlan
from eps_locked.studies.battery.results import battery_files
from eps_locked.studies.battery.speed import measure_speed
from eps_locked.studies.battery.task import Task
from eps_locked.studies.battery.train import train
from eps_locked.studies.common.backends import Backends
from eps_locked.studies.common.calibrate import calibration_flags, run_calibration

__all__ = ["BatteryExecutor"]

# A plan's endpoint, its model and what the model wears, to where it answers.
Connect = Callable[
    [EndpointPlan, ModelPlan, AdapterFiles | None], AbstractContextManager[ChatEndpoint]
]
# What the ledger says where no engine of ours runs: the endpoints' own words stand in the records.
_ELSEWHERE = EngineIdentity(
    name="elsewhere",
    version="unknown",
    device="unknown",
    dtype="unknown",
    quantisation="unknown",
    instance_id="elsewhere",
    flags={},
    publishable=True,
)


@dataclass(kw_only=True, slots=True)
class BatteryExecutor:
    """Runs ``battery`` steps. ``load`` brings the plan's own model up, which happens on first need.

    ``lies_elsewhere``: there is no model to bring up. ``connect`` stands in for the plan's
    endpoints. A key is taken from ``environ`` where an endpoint is opened, and kept nowhere.
    """

    load: Callable[[], Backends]
    load_judge: Callable[[JudgePlan], Judge]
    lies_elsewhere: bool = False
    connect: Connect | None = None
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)
    _judges: dict[str, Judge] = field(default_factory=dict)
    _backends: Backends | None = None
    _plan: Plan | None = None
    _section: BatteryPlan | None = None
    _plan_bytes: bytes = b""

    def execute(self, step: Step, inputs: StepInputs, progress: Progress) -> StepResult:
        plan, section = self._read(inputs.frozen("plan"))
        task = Task(
            hands=self,
            step=step,
            inputs=inputs,
            section=section,
            is_promised="battery" in plan.analyses,
            progress=progress,
        )
        return _HANDLERS[step.kind](task)

    @property
    def identity(self) -> EngineIdentity:
        return _ELSEWHERE if self.lies_elsewhere else self.loaded().identity

    def loaded(self) -> Backends:
        if self._backends is None:
            self._backends = self.load()
        return self._backends

    def judge(self, name: str) -> Judge:
        if name not in self._judges:
            assert self._section is not None
            self._judges[name] = self.load_judge(self._section.judge(name))
        return self._judges[name]

    def endpoint(
        self, model: ModelPlan, adapter: AdapterFiles | None
    ) -> AbstractContextManager[ChatEndpoint]:
        assert self._section is not None
        plan = self._section.endpoint(model.endpoint)
        if self.connect is not None:
            return self.connect(plan, model, adapter)
        return open_endpoint(plan, model, adapter, load=self.loaded, environ=self.environ)

    def _read(self, plan_bytes: bytes) -> tuple[Plan, BatteryPlan]:
        if self._plan is None or self._section is None or plan_bytes != self._plan_bytes:
            self._plan = load_plan(plan_bytes, thing="frozen/plan.yaml")
            self._section = BatteryPlan.of(self._plan)
            self._plan_bytes = plan_bytes
            self._judges.clear()
        return self._plan, self._section


def _power(task: Task) -> StepResult:
    return StepResult(outputs={"power": power_files(task.step, task.inputs, task.section)})


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


def _ask(task: Task) -> StepResult:
    record = ask(task)
    share = task.section.axis(record.axis).minimum_scored_share
    assert share is not None
    return StepResult(
        outputs={"answers": record.to_files()},
        status=ask_status(record, share),
        flags=ask_flags(record, share),
    )


def _speed(task: Task) -> StepResult:
    record = measure_speed(task)
    return StepResult(
        outputs={"speed": record.to_files()},
        status=speed_status(record),
        flags=speed_flags(record),
    )


def _battery(task: Task) -> StepResult:
    """Every statistic, from what is stored; the audit calls the same function on its own."""
    files = battery_files(task.step, task.inputs, task.section, is_promised=task.is_promised)
    return StepResult(outputs={"battery": files})


_HANDLERS: Mapping[str, Callable[[Task], StepResult]] = {
    "power": _power,
    "calibration": _calibration,
    "train": train,
    "ask": _ask,
    "speed": _speed,
    "battery": _battery,
}
