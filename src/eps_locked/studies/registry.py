"""Which studies there are, and what the rest of the house asks of each.

One lock, one run loop, one audit and one command line serve all of them; a study brings its plan
section, its freezer, its hands and its re-derivation, and is found here by the plan's ``study``.
A study's modules are imported when one of its plans is at hand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eps_locked.domain.execution import StepExecutor, StepInputs
from eps_locked.domain.judging import Judge, JudgePlan
from eps_locked.domain.plan import STUDIES, Plan
from eps_locked.domain.steps import Step
from eps_locked.errors import EpsLockedError, MalformedInputError
from eps_locked.lock.freeze import SourceReader, StudyFreezer, load_plan
from eps_locked.lock.workspace import FrozenManifest
from eps_locked.studies.common.rederiver import Derived, Outputs, Rederiver
from eps_locked.studies.common.wiring import ModelFolders

__all__ = ["Material", "Study", "StudyRederiver", "study_named", "study_of"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Material:
    """``files``: every file below ``plans/`` that a plan reads material from. ``forbidden``: texts
    that nothing drawn from a public source may hold."""

    files: Sequence[str]
    forbidden: Sequence[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Study:
    """One study, as the command line sees it.

    ``check`` holds a plan's section against the rest of the plan, without material. ``cost`` is
    what ``plan check`` prints, ``adapters_words`` its heading of the adapters. ``executor`` takes
    the plan, what finds its models' folders, and what makes a judge.
    ``asks_a_service``: a step whose judge answers over the network, so that nobody can repeat it.
    """

    name: str
    check: Callable[[Plan], object]
    freeze: StudyFreezer
    cost: Callable[[Plan], dict[str, Any]]
    adapters_words: str
    material: Callable[[Plan, SourceReader], Material]
    executor: Callable[[Plan, ModelFolders, Callable[[JudgePlan], Judge]], StepExecutor]
    asks_a_service: Callable[[Plan, Step], bool]
    rederiver: Callable[[], Rederiver]


def study_of(plan: Plan) -> Study:
    """The study of a plan."""
    return study_named(plan.study)


def study_named(name: str) -> Study:
    """Raises MalformedInputError for a name that is no study's."""
    if name not in _MAKERS:
        raise MalformedInputError("study", expected=" or ".join(STUDIES), found=name)
    return _MAKERS[name]()


class StudyRederiver(Rederiver):
    """Re-derives a run of any study, by the plan that is frozen in it."""

    def __init__(self) -> None:
        self._inner: dict[str, Rederiver] = {}
        self._studies: dict[bytes, str] = {}

    def derive(self, step: Step, inputs: StepInputs, outputs: Outputs) -> Derived | None:
        return self._of(inputs.frozen("plan")).derive(step, inputs, outputs)

    def manifest(self, frozen: FrozenManifest) -> list[str]:
        try:
            inner = self._of(frozen.read("frozen/plan.yaml"))
        except EpsLockedError as error:
            return [f"{frozen.folder}: cannot be frozen again from what it holds: {error}"]
        return inner.manifest(frozen)

    def _of(self, plan_bytes: bytes) -> Rederiver:
        if plan_bytes not in self._studies:
            self._studies[plan_bytes] = load_plan(plan_bytes, thing="frozen/plan.yaml").study
        name = self._studies[plan_bytes]
        if name not in self._inner:
            self._inner[name] = study_named(name).rederiver()
        return self._inner[name]


def _eps() -> Study:
    from eps_locked.studies.common.wiring import load_backends
    from eps_locked.studies.eps.cost import cost_report
    from eps_locked.studies.eps.execute import EpsExecutor
    from eps_locked.studies.eps.freeze import checked_section, freeze_eps
    from eps_locked.studies.eps.plan import EpsPlan
    from eps_locked.studies.eps.rederive import EpsRederiver
    from eps_locked.studies.eps.row_material import shown_texts
    from eps_locked.studies.eps.steplist import asks_a_service

    def executor(
        plan: Plan, folder: Callable[[], Path | None], load_judge: Callable[[JudgePlan], Judge]
    ) -> StepExecutor:
        ranks = [behaviour.recipe.rank for behaviour in EpsPlan.of(plan).behaviours]
        return EpsExecutor(load=lambda: load_backends(plan, folder(), ranks), load_judge=load_judge)

    def material(plan: Plan, reader: SourceReader) -> Material:
        section = EpsPlan.of(plan)
        return Material(files=section.material_files, forbidden=shown_texts(section, reader))

    return Study(
        name="eps",
        check=checked_section,
        freeze=freeze_eps,
        cost=cost_report,
        adapters_words="rows (train slots x seeds)",
        material=material,
        executor=executor,
        asks_a_service=lambda plan, step: asks_a_service(step, EpsPlan.of(plan)),
        rederiver=EpsRederiver,
    )


def _drift() -> Study:
    from eps_locked.studies.common.wiring import load_backends
    from eps_locked.studies.drift.cost import cost_report
    from eps_locked.studies.drift.execute import DriftExecutor
    from eps_locked.studies.drift.freeze import checked_section, freeze_drift
    from eps_locked.studies.drift.plan import DriftPlan
    from eps_locked.studies.drift.rederive import DriftRederiver
    from eps_locked.studies.drift.steplist import asks_a_service

    def executor(
        plan: Plan, folder: Callable[[], Path | None], load_judge: Callable[[JudgePlan], Judge]
    ) -> StepExecutor:
        ranks = [topic.recipe.rank for topic in DriftPlan.of(plan).topics] or [1]
        return DriftExecutor(
            load=lambda instance: load_backends(plan, folder(), ranks, instance),
            load_judge=load_judge,
        )

    def material(plan: Plan, reader: SourceReader) -> Material:
        return Material(files=DriftPlan.of(plan).material_files, forbidden=())

    return Study(
        name="drift",
        check=checked_section,
        freeze=freeze_drift,
        cost=cost_report,
        adapters_words="topics (doses x seeds)",
        material=material,
        executor=executor,
        asks_a_service=lambda plan, step: asks_a_service(step, DriftPlan.of(plan)),
        rederiver=DriftRederiver,
    )


def _vea() -> Study:
    from eps_locked.studies.vea.cost import cost_report
    from eps_locked.studies.vea.execute import VeaExecutor
    from eps_locked.studies.vea.freeze import checked_section, freeze_vea
    from eps_locked.studies.vea.plan import VeaPlan
    from eps_locked.studies.vea.rederive import VeaRederiver
    from eps_locked.studies.vea.steplist import asks_a_service

    def executor(
        plan: Plan, folder: ModelFolders, load_judge: Callable[[JudgePlan], Judge]
    ) -> StepExecutor:
        return VeaExecutor(plan=plan, folder=folder)

    def material(plan: Plan, reader: SourceReader) -> Material:
        return Material(files=VeaPlan.of(plan).material_files, forbidden=())

    return Study(
        name="vea",
        check=checked_section,
        freeze=freeze_vea,
        cost=cost_report,
        adapters_words="reward heads",
        material=material,
        executor=executor,
        asks_a_service=lambda plan, step: asks_a_service(step, VeaPlan.of(plan)),
        rederiver=VeaRederiver,
    )


def _battery() -> Study:
    from eps_locked.studies.battery.cost import cost_report
    from eps_locked.studies.battery.execute import BatteryExecutor
    from eps_locked.studies.battery.freeze import checked_section, freeze_battery
    from eps_locked.studies.battery.plan import BatteryPlan
    from eps_locked.studies.battery.rederive import BatteryRederiver
    from eps_locked.studies.battery.steplist import asks_a_service
    from eps_locked.studies.common.wiring import load_backends

    def executor(
        plan: Plan, folder: Callable[[], Path | None], load_judge: Callable[[JudgePlan], Judge]
    ) -> StepExecutor:
        ranks = [training.recipe.rank for training in BatteryPlan.of(plan).trainings] or [1]
        return BatteryExecutor(
            load=lambda: load_backends(plan, folder(), ranks),
            load_judge=load_judge,
            lies_elsewhere=plan.base_model.source.kind == "elsewhere",
        )

    def material(plan: Plan, reader: SourceReader) -> Material:
        return Material(files=BatteryPlan.of(plan).material_files, forbidden=())

    return Study(
        name="battery",
        check=checked_section,
        freeze=freeze_battery,
        cost=cost_report,
        adapters_words="adapters",
        material=material,
        executor=executor,
        asks_a_service=lambda plan, step: asks_a_service(step, BatteryPlan.of(plan)),
        rederiver=BatteryRederiver,
    )


_MAKERS: dict[str, Callable[[], Study]] = {
    "eps": _eps,
    "drift": _drift,
    "vea": _vea,
    "battery": _battery,
}
