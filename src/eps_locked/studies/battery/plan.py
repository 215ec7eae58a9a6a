"""The ``battery`` section of a plan: adapters, endpoints, models, axes, judging, statistics.

Each part is read on its own here; how the parts hang together is checked in ``checks``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, cast

from eps_locked.domain.fields import Fields
from eps_locked.domain.judging import JudgePlan
from eps_locked.domain.plan import Plan
from eps_locked.errors import MalformedInputError, RefusedError
from eps_locked.studies.battery.parts import (
    AXES,
    BASE_ROUTE,
    RATE_AXES,
    TEXT_AXES,
    THINKING_MODES,
    AxisPlan,
    EndpointPlan,
    ModelPlan,
    Thinking,
    TrainingPlan,
    nullable,
)
from eps_locked.studies.battery.settings import (
    AGREEMENT_LABELS,
    REFUSAL_LABELS,
    AgreementRules,
    AnalysisSettings,
    CalibrationRules,
    Decoding,
    RefusalRules,
)

__all__ = [
    "AGREEMENT_LABELS",
    "AXES",
    "BASE_ROUTE",
    "RATE_AXES",
    "REFUSAL_LABELS",
    "TEXT_AXES",
    "AgreementRules",
    "AnalysisSettings",
    "AxisPlan",
    "BatteryPlan",
    "CalibrationRules",
    "Decoding",
    "EndpointPlan",
    "ModelPlan",
    "RefusalRules",
    "Thinking",
    "TrainingPlan",
]


_SOMETHING = re.compile(r"\S(?:.*\S)?", re.DOTALL)


@dataclass(frozen=True, kw_only=True, slots=True)
class BatteryPlan:
    """The whole section.

    ``system_prompt`` stands before every request that has no system turn of its own, for all models
    alike; None: there is none.
    """

    trainings: tuple[TrainingPlan, ...]
    endpoints: tuple[EndpointPlan, ...]
    models: tuple[ModelPlan, ...]
    system_prompt: str | None
    decoding: Decoding
    thinking_modes: tuple[Thinking, ...]
    axes: tuple[AxisPlan, ...]
    item_seed: int
    judges: tuple[JudgePlan, ...]
    refusal: RefusalRules | None
    agreement: AgreementRules | None
    calibrations: tuple[CalibrationRules, ...]
    analysis: AnalysisSettings

    @classmethod
    def of(cls, plan: Plan) -> BatteryPlan:
        """The section of a plan of this study; raises RefusedError for one of another."""
        if plan.study != "battery":
            raise RefusedError(
                f"plan {plan.name}",
                problem="is of another study",
                expected="a plan of study battery",
                found=plan.study,
                next_step=f"this reads batteries; what speaks of {plan.study} runs stands in "
                "the README",
            )
        return cls.from_section(plan.study_section)

    @classmethod
    def from_section(cls, section: Mapping[str, Any], path: str = "plan.battery") -> BatteryPlan:
        """Raises MalformedInputError naming the field. ``checks`` holds the parts together."""
        with Fields(section, path) as fields:
            return cls(
                trainings=fields.each("trainings", TrainingPlan.from_dict),
                endpoints=fields.each("endpoints", EndpointPlan.from_dict),
                models=fields.each("models", ModelPlan.from_dict),
                system_prompt=nullable(
                    fields, "system_prompt", lambda: fields.text("system_prompt", shape=_SOMETHING)
                ),
                decoding=Decoding.from_dict(fields.raw("decoding"), fields.path("decoding")),
                thinking_modes=fields.each("thinking_modes", _mode),
                axes=fields.each("axes", AxisPlan.from_dict),
                item_seed=fields.integer("item_seed", low=0),
                judges=fields.each("judges", JudgePlan.from_dict),
                refusal=nullable(
                    fields,
                    "refusal",
                    lambda: RefusalRules.from_dict(fields.raw("refusal"), fields.path("refusal")),
                ),
                agreement=nullable(
                    fields,
                    "agreement",
                    lambda: AgreementRules.from_dict(
                        fields.raw("agreement"), fields.path("agreement")
                    ),
                ),
                calibrations=fields.each("calibrations", CalibrationRules.from_dict),
                analysis=AnalysisSettings.from_dict(
                    fields.raw("analysis"), fields.path("analysis")
                ),
            )

    def training(self, name: str) -> TrainingPlan:
        return _named(self.trainings, name, "training")

    def endpoint(self, name: str) -> EndpointPlan:
        return _named(self.endpoints, name, "endpoint")

    def model(self, name: str) -> ModelPlan:
        return _named(self.models, name, "model")

    def judge(self, name: str) -> JudgePlan:
        return _named(self.judges, name, "judge")

    def calibration(self, name: str) -> CalibrationRules:
        return _named(self.calibrations, name, "calibration")

    def axis(self, name: str) -> AxisPlan:
        found = self.axis_or_none(name)
        if found is None:
            raise MalformedInputError(
                f"plan.battery: axis {name}",
                expected="an axis of the plan",
                found="none of that name",
                next_step=f"known: {', '.join(one.axis for one in self.axes) or 'none'}",
            )
        return found

    def axis_or_none(self, name: str) -> AxisPlan | None:
        return next((one for one in self.axes if one.axis == name), None)

    def rubric_of(self, what: str) -> str:
        """The path of the rubric that ``refusal`` or ``agreement`` names."""
        rules = self.refusal if what == "refusal" else self.agreement
        if rules is None:
            raise MalformedInputError(
                f"plan.battery.{what}", expected="a part of the plan", found="null"
            )
        return rules.rubric

    @property
    def rate_axes(self) -> tuple[AxisPlan, ...]:
        """The axes that come to a rate, in the plan's order."""
        return tuple(one for one in self.axes if one.axis in RATE_AXES)

    @property
    def speed(self) -> AxisPlan | None:
        return self.axis_or_none("speed")

    @property
    def timed_axis(self) -> AxisPlan | None:
        """The axis whose items are asked again to be timed: the plan's first in plain text."""
        return next((one for one in self.axes if one.axis in TEXT_AXES), None)

    @property
    def speed_thinking(self) -> Thinking:
        """The mode in which models are timed: the plan's first."""
        return self.thinking_modes[0]

    @property
    def comparisons(self) -> tuple[tuple[str, str], ...]:
        """(model, base) of every model that is compared with another, in the plan's order."""
        return tuple((one.name, one.base) for one in self.models if one.base is not None)

    @property
    def material_files(self) -> tuple[str, ...]:
        """Every file below ``plans/`` that material is read from, in the plan's order, once."""
        paths = [training.rows for training in self.trainings]
        paths += [axis.material for axis in self.axes if axis.material is not None]
        paths += [rules.file for rules in self.calibrations]
        return tuple(dict.fromkeys(paths))


class _Named(Protocol):
    @property
    def name(self) -> str: ...


N = TypeVar("N", bound=_Named)


def _named(parts: tuple[N, ...], name: str, what: str) -> N:
    found = next((part for part in parts if part.name == name), None)
    if found is None:
        raise MalformedInputError(
            f"plan.battery: {what} {name}",
            expected=f"a {what} of the plan",
            found="none of that name",
            next_step=f"known: {', '.join(part.name for part in parts) or 'none'}",
        )
    return found


def _mode(value: object, path: str) -> Thinking:
    if value not in THINKING_MODES:
        raise MalformedInputError(
            path, expected=" or ".join(THINKING_MODES), found=repr(value)[:60]
        )
    return cast(Thinking, value)
