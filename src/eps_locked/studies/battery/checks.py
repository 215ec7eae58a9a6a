"""How the parts of a ``battery`` section hang together, and how it fits the rest of its plan.

Needs no material. The first thing that is wrong is refused by its field, with what was expected and
found: what models are compared by must be one and the same before anything is asked.
"""

from __future__ import annotations

from eps_locked.domain.judging import family_overlap
from eps_locked.domain.plan import Plan
from eps_locked.errors import MalformedInputError, RefusedError
from eps_locked.studies.battery.check_models import check_models, require_known
from eps_locked.studies.battery.parts import BASE_ROUTE, RATE_AXES, TEXT_AXES
from eps_locked.studies.battery.plan import BatteryPlan
from eps_locked.studies.battery.steplist import phases_of, rubric_kind
from eps_locked.studies.common.judging import require_fair_judges

__all__ = ["ANALYSES", "check_section"]

# What a plan can promise to compute, and hence what is confirmatory.
ANALYSES = ("battery",)


def check_section(plan: Plan, section: BatteryPlan, path: str = "plan.battery") -> None:
    """Raises MalformedInputError or RefusedError at the first field that does not fit."""
    _check_names(section, path)
    _check_trainings(plan, section, path)
    _check_endpoints(plan, section, path)
    check_models(plan, section, path)
    _check_axes(section, path)
    _check_judging(plan, section, path)
    _check_calibrations(section, path)
    _check_margins(section, path)
    _check_phases(plan, section)
    _check_analyses(plan)


def _check_names(section: BatteryPlan, path: str) -> None:
    parts: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
        ("trainings", tuple(one.name for one in section.trainings), (BASE_ROUTE,)),
        ("endpoints", tuple(one.name for one in section.endpoints), ()),
        ("models", tuple(one.name for one in section.models), ()),
        ("judges", tuple(one.name for one in section.judges), ()),
        ("calibrations", tuple(one.name for one in section.calibrations), ()),
        ("axes", tuple(one.axis for one in section.axes), ()),
        ("thinking_modes", section.thinking_modes, ()),
    )
    for key, names, reserved in parts:
        for number, name in enumerate(names):
            if name in names[:number] or name in reserved:
                raise MalformedInputError(
                    f"{path}.{key}[{number}]",
                    expected="one that is there once"
                    + "".join(f" (not {one}, which is taken)" for one in reserved),
                    found=name,
                )
        if not names and key in ("models", "axes", "thinking_modes"):
            raise MalformedInputError(f"{path}.{key}", expected="at least one", found="none")


def _check_trainings(plan: Plan, section: BatteryPlan, path: str) -> None:
    used = {model.training for model in section.models}
    for number, training in enumerate(section.trainings):
        where = f"{path}.trainings[{number}]"
        if plan.base_model.source.kind == "elsewhere":
            raise MalformedInputError(
                where,
                expected="no training of a base model that lies elsewhere",
                found=training.name,
                next_step="take it out, or name a base model with files",
            )
        if training.seed not in plan.seeds:
            raise MalformedInputError(
                f"{where}.seed",
                expected=f"one of the plan's seeds: {', '.join(map(str, plan.seeds))}",
                found=training.seed,
            )
        if training.name not in used:
            raise MalformedInputError(
                where, expected="a training that a model of the plan has", found=training.name
            )


def _check_endpoints(plan: Plan, section: BatteryPlan, path: str) -> None:
    used = {model.endpoint for model in section.models}
    for number, endpoint in enumerate(section.endpoints):
        where = f"{path}.endpoints[{number}]"
        if endpoint.kind == "serve" and plan.base_model.source.kind == "elsewhere":
            raise MalformedInputError(
                f"{where}.kind",
                expected="openai, with a base model that lies elsewhere",
                found="serve",
                next_step="name a base model with files: our own server has to load it",
            )
        if endpoint.name not in used:
            raise MalformedInputError(
                where, expected="an endpoint that a model of the plan has", found=endpoint.name
            )


def _check_axes(section: BatteryPlan, path: str) -> None:
    minimum = section.analysis.minimum_items
    for number, axis in enumerate(section.axes):
        where = f"{path}.axes[{number}]"
        if axis.n_items is not None and axis.n_items < minimum:
            raise MalformedInputError(
                f"{where}.n_items",
                expected=f"at least {minimum} (analysis.minimum_items)",
                found=axis.n_items,
                next_step="ask more items, or take the axis out",
            )
        if axis.axis == "speed" and section.timed_axis is None:
            raise MalformedInputError(
                where,
                expected=f"an axis whose requests can be timed: {' or '.join(TEXT_AXES)}",
                found="none in the plan",
            )


def _check_judging(plan: Plan, section: BatteryPlan, path: str) -> None:
    rules = {"refusal": section.refusal, "agreement": section.agreement}
    for kind, part in rules.items():
        axes = [axis for axis in RATE_AXES if rubric_kind(axis) == kind]
        there = [axis for axis in axes if section.axis_or_none(axis) is not None]
        if bool(there) != (part is not None):
            raise MalformedInputError(
                f"{path}.{kind}",
                expected=f"a part where the plan has an axis {' or '.join(axes)}, else null",
                found=f"{'null' if part is None else 'a part'} with "
                f"{' and '.join(there) or 'no such axis'}",
            )
        if part is not None and part.judge is not None:
            require_known(part.judge, section.judges, f"{path}.{kind}.judge", "a judge")
            _require_cold(section, part.judge, f"{path}.{kind}.judge")
    require_fair_judges(plan, section.judges, f"{path}.judges")
    for model in section.models:
        overlap = family_overlap(model.family, section.judges)
        if overlap is not None:
            raise RefusedError(
                f"{path}.judges: {overlap.name}",
                problem=f"is of the family of model {model.name}, which it would judge",
                expected=f"a family other than {model.family}",
                found=overlap.family,
                next_step="name a judge of another family; a model is no fair judge of its own "
                "kind",
            )
    used = {part.judge for part in rules.values() if part is not None}
    used |= {one.judge for one in section.calibrations}
    for number, judge in enumerate(section.judges):
        if judge.name not in used:
            raise MalformedInputError(
                f"{path}.judges[{number}]",
                expected="a judge that something of the plan asks",
                found=judge.name,
            )


def _require_cold(section: BatteryPlan, name: str, path: str) -> None:
    """A judge that can be asked at temperature 0 is."""
    judge = section.judge(name)
    if judge.kind == "gateway" and judge.temperature != 0:
        raise MalformedInputError(
            f"{path}: {name}",
            expected="temperature: 0 for a judge of kind gateway",
            found="none" if judge.temperature is None else judge.temperature,
            next_step="write it into the judge: nothing sent is the service's own choice",
        )


def _check_calibrations(section: BatteryPlan, path: str) -> None:
    for number, rules in enumerate(section.calibrations):
        where = f"{path}.calibrations[{number}]"
        require_known(rules.judge, section.judges, f"{where}.judge", "a judge")
        part = section.refusal if rules.rubric_of == "refusal" else section.agreement
        if part is None:
            raise MalformedInputError(
                f"{where}.rubric_of",
                expected="a rubric that the plan has",
                found=f"{rules.rubric_of}, which is null",
            )


def _check_margins(section: BatteryPlan, path: str) -> None:
    axes = tuple(axis.axis for axis in section.rate_axes)
    for axis in axes:
        if axis not in section.analysis.margins:
            raise MalformedInputError(
                f"{path}.analysis.margins.{axis}",
                problem="is missing",
                expected="a difference of rates that would not matter",
                next_step="choose it before anything is asked: without it no two models can be "
                "called alike",
            )
    extra = next((axis for axis in section.analysis.margins if axis not in axes), None)
    if extra is not None:
        raise MalformedInputError(
            f"{path}.analysis.margins.{extra}",
            expected=f"axes of the plan: {', '.join(axes)}",
            found=extra,
        )


def _check_phases(plan: Plan, section: BatteryPlan) -> None:
    phases = phases_of(section)
    if tuple(plan.phases) != phases:
        raise MalformedInputError(
            "plan.phases",
            expected=" then ".join(phases),
            found=" then ".join(plan.phases),
            next_step="P0 comes before the data, P1 trains (if anything is), P2 asks, P3 computes",
        )


def _check_analyses(plan: Plan) -> None:
    for analysis in plan.analyses:
        if analysis not in ANALYSES:
            raise MalformedInputError(
                "plan.analyses",
                expected=" or ".join(ANALYSES),
                found=analysis,
                next_step="an analysis that is not implemented cannot be promised",
            )
