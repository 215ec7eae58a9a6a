"""The ``drift`` section of a plan: batteries, doses, arms, judging, statistics, readouts.

Each part is read on its own here; how the parts hang together is checked in ``checks``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, Self, TypeVar

from eps_locked.domain.fields import Fields
from eps_locked.domain.judging import JudgePlan
from eps_locked.domain.plan import Plan
from eps_locked.errors import MalformedInputError, RefusedError
from eps_locked.studies.drift.parts import (
    BASE,
    NO_REASONING,
    PLAIN,
    Arm,
    Battery,
    Exposure,
    Reasoning,
    ReasoningMode,
    ReasoningSetting,
    Topic,
    Training,
)
from eps_locked.studies.drift.rules import (
    AnalysisSettings,
    AwarenessRules,
    CalibrationRules,
    JudgingRules,
    PowerAssumptions,
    ReadoutRules,
    nullable,
)

__all__ = [
    "BASE",
    "NO_REASONING",
    "PLAIN",
    "AnalysisSettings",
    "Arm",
    "AwarenessRules",
    "Battery",
    "CalibrationRules",
    "DriftPlan",
    "Exposure",
    "JudgingRules",
    "PowerAssumptions",
    "ReadoutRules",
    "Reasoning",
    "ReasoningMode",
    "ReasoningSetting",
    "Topic",
    "Training",
]


@dataclass(frozen=True, kw_only=True, slots=True)
class DriftPlan:
    """The whole section."""

    batteries: tuple[Battery, ...]
    item_seed: int
    n_samples: int
    max_new_tokens: int
    top_p: float
    reasoning: Reasoning | None
    topics: tuple[Topic, ...]
    trainings: tuple[Training, ...]
    exposures: tuple[Exposure, ...]
    arms: tuple[Arm, ...]
    judges: tuple[JudgePlan, ...]
    judging: JudgingRules
    calibrations: tuple[CalibrationRules, ...]
    analysis: AnalysisSettings
    power: PowerAssumptions
    readouts: ReadoutRules | None
    awareness: AwarenessRules | None

    @classmethod
    def of(cls, plan: Plan) -> DriftPlan:
        """The section of a plan of this study; raises RefusedError for one of another."""
        if plan.study != "drift":
            raise RefusedError(
                f"plan {plan.name}",
                problem="is of another study",
                expected="a plan of study drift",
                found=plan.study,
                next_step=f"this reads dispositions; what speaks of {plan.study} runs stands in "
                "the README",
            )
        return cls.from_section(plan.study_section)

    @classmethod
    def from_section(cls, section: Mapping[str, Any], path: str = "plan.drift") -> DriftPlan:
        """Raises MalformedInputError naming the field. ``checks`` holds the parts together."""
        with Fields(section, path) as fields:
            with fields.sub("decoding") as decoding:
                max_new_tokens = decoding.integer("max_new_tokens", low=1)
                top_p = decoding.number("top_p", above=0, high=1)
            return cls(
                batteries=fields.each("batteries", Battery.from_dict),
                item_seed=fields.integer("item_seed", low=0),
                n_samples=_samples(fields),
                max_new_tokens=max_new_tokens,
                top_p=top_p,
                reasoning=_part(fields, "reasoning", Reasoning),
                topics=fields.each("topics", Topic.from_dict),
                trainings=fields.each("trainings", Training.from_dict),
                exposures=fields.each("exposures", Exposure.from_dict),
                arms=fields.each("arms", Arm.from_dict),
                judges=fields.each("judges", JudgePlan.from_dict),
                judging=_whole(fields, "judging", JudgingRules),
                calibrations=fields.each("calibrations", CalibrationRules.from_dict),
                analysis=AnalysisSettings.from_dict(
                    fields.raw("analysis"), fields.path("analysis")
                ),
                power=PowerAssumptions.from_dict(fields.raw("power"), fields.path("power")),
                readouts=_part(fields, "readouts", ReadoutRules),
                awareness=_part(fields, "awareness", AwarenessRules),
            )

    def battery(self, name: str) -> Battery:
        return _named(self.batteries, name, "battery")

    def topic(self, name: str) -> Topic:
        return _named(self.topics, name, "topic")

    def training(self, name: str) -> Training:
        return _named(self.trainings, name, "training")

    def exposure(self, name: str) -> Exposure:
        return _named(self.exposures, name, "exposure")

    def arm(self, name: str) -> Arm:
        return _named(self.arms, name, "arm")

    def judge(self, name: str) -> JudgePlan:
        return _named(self.judges, name, "judge")

    def calibration(self, name: str) -> CalibrationRules:
        return _named(self.calibrations, name, "calibration")

    def setting(self, name: str) -> ReasoningSetting:
        """A reasoning setting by name; ``none`` is always there."""
        if name == NO_REASONING:
            return ReasoningSetting(name=NO_REASONING, mode="none")
        settings = () if self.reasoning is None else self.reasoning.settings
        return _named(settings, name, "reasoning setting")

    @property
    def dispositions(self) -> tuple[Battery, ...]:
        """The batteries that drift is measured on."""
        return tuple(one for one in self.batteries if one.role == "disposition")

    def trainings_of(self, topic: str) -> tuple[Training, ...]:
        return tuple(one for one in self.trainings if one.topic == topic)

    def doses_of(self, topic: str) -> tuple[float, ...]:
        """The doses that a topic is trained at, in percent, rising."""
        return tuple(sorted({one.dose_percent for one in self.trainings_of(topic)}))

    @property
    def material_files(self) -> tuple[str, ...]:
        """Every file below ``plans/`` that material is read from, in the plan's order, once."""
        paths = [battery.file for battery in self.batteries]
        for topic in self.topics:
            paths += [topic.rows] if topic.dose_sets is None else [topic.rows, topic.dose_sets]
        paths += [rules.file for rules in self.calibrations]
        if self.readouts is not None:
            paths += [self.readouts.prompts, self.readouts.traits]
        if self.awareness is not None:
            paths.append(self.awareness.words)
        return tuple(dict.fromkeys(paths))


class _Named(Protocol):
    @property
    def name(self) -> str: ...


class _Part(Protocol):
    @classmethod
    def from_dict(cls, value: object, path: str) -> Self: ...


N = TypeVar("N", bound=_Named)
P = TypeVar("P", bound=_Part)


def _named(parts: tuple[N, ...], name: str, what: str) -> N:
    found = next((part for part in parts if part.name == name), None)
    if found is None:
        raise MalformedInputError(
            f"plan.drift: {what} {name}",
            expected=f"a {what} of the plan",
            found="none of that name",
            next_step=f"known: {', '.join(part.name for part in parts) or 'none'}",
        )
    return found


def _whole(fields: Fields, key: str, kind: type[P]) -> P:
    return kind.from_dict(fields.raw(key), fields.path(key))


def _part(fields: Fields, key: str, kind: type[P]) -> P | None:
    return nullable(fields, key, lambda: _whole(fields, key, kind))


def _samples(fields: Fields) -> int:
    n_samples = fields.integer("samples")
    if n_samples < 2:
        raise MalformedInputError(
            fields.path("samples"),
            expected="2 or more independent replies to every probe",
            found=n_samples,
            next_step="ask twice: the null test compares a model's two samples with each other, "
            "and without it nobody knows what no drift looks like",
        )
    return n_samples
