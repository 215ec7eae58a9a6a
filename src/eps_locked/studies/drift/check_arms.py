"""What is compared with what: the rules for arms, their references and their controls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from eps_locked.errors import MalformedInputError
from eps_locked.studies.drift.plan import BASE, NO_REASONING, Arm, DriftPlan

__all__ = ["check_arms", "require_known"]

# What an arm is made of. Two arms may differ in several of these at once, but a difference in the
# second group is a question of its own and is asked alone.
_MADE_OF = ("model", "exposure", "instance", "reasoning", "temperature")
_ALONE = ("reasoning", "temperature")


class _Named(Protocol):
    @property
    def name(self) -> str: ...


def require_known(name: str, parts: Sequence[_Named], path: str, what: str) -> None:
    """Require that a name is one of the plan's parts of that kind; ``what`` has its article."""
    known = [part.name for part in parts]
    if name not in known:
        raise MalformedInputError(
            path,
            expected=f"{what} of the plan",
            found=name,
            next_step=f"known: {', '.join(known) or 'none'}",
        )


def check_arms(section: DriftPlan, path: str) -> None:
    """Raises MalformedInputError at the first arm that cannot be asked or compared."""
    for number, arm in enumerate(section.arms):
        where = f"{path}.arms[{number}]"
        _check_parts(section, arm, where)
        twin = next((one for one in section.arms[:number] if not differences(one, arm)), None)
        if twin is not None:
            raise MalformedInputError(
                where,
                expected="an arm that differs from every other in model, reasoning, temperature, "
                "exposure or instance",
                found=f"{arm.name}, which asks what {twin.name} asks",
                next_step="ask it of a second instance, or remove it; samples repeat it already",
            )
    for number, arm in enumerate(section.arms):
        _check_reference(section, arm, f"{path}.arms[{number}].reference")
    _check_controls(section, f"{path}.arms")
    _check_zero_doses(section, path)


def differences(one: Arm, other: Arm) -> tuple[str, ...]:
    """In what two arms differ, of all that an arm is made of."""
    return tuple(key for key in _MADE_OF if getattr(one, key) != getattr(other, key))


def _check_parts(section: DriftPlan, arm: Arm, where: str) -> None:
    if arm.model != BASE:
        require_known(arm.model, section.trainings, f"{where}.model", "a training")
    if arm.exposure is not None:
        require_known(arm.exposure, section.exposures, f"{where}.exposure", "an exposure")
    settings = () if section.reasoning is None else section.reasoning.settings
    if arm.reasoning != NO_REASONING:
        require_known(arm.reasoning, settings, f"{where}.reasoning", "a reasoning setting")
    elif section.reasoning is not None and section.reasoning.in_template:
        raise MalformedInputError(
            f"{where}.reasoning",
            expected="a setting of plan.drift.reasoning",
            found=NO_REASONING,
            next_step="the template opens a reasoning block itself: without a setting the "
            "reasoning would be judged as the reply",
        )
    if arm.temperature == 0:
        raise MalformedInputError(
            f"{where}.temperature",
            expected="above 0",
            found=0,
            next_step="greedy replies do not differ from sample to sample, and then there is no "
            "null test",
        )


def _check_reference(section: DriftPlan, arm: Arm, where: str) -> None:
    if arm.reference is None:
        if not arm.is_untouched:
            raise MalformedInputError(
                where,
                expected=f"the arm that {arm.name} drifts from",
                found="null",
                next_step="name one; only the untouched model stands for itself",
            )
        return
    reference = next((one for one in section.arms if one.name == arm.reference), None)
    if reference is None:
        raise MalformedInputError(
            where,
            expected=f"an arm of the plan for {arm.name} to be compared with",
            found=f"{arm.reference}, which is missing",
            next_step=f"add it, or name one of: {', '.join(one.name for one in section.arms)}",
        )
    differing = differences(arm, reference)
    if not differing:
        raise MalformedInputError(
            where, expected="another arm", found=f"{arm.reference}, which is {arm.name} itself"
        )
    alone = [key for key in differing if key in _ALONE]
    if alone and len(differing) > 1:
        raise MalformedInputError(
            where,
            expected=f"an arm of equal reasoning and temperature, or one that differs from "
            f"{arm.name} in {alone[0]} alone",
            found=f"{arm.reference}, which differs in {' and '.join(differing)}",
            next_step="a drift between reasoning settings is no drift of the weights: compare "
            "like with like",
        )


def _check_controls(section: DriftPlan, where: str) -> None:
    """The untouched model is asked in every reasoning setting that anything is asked in."""
    for setting in dict.fromkeys(arm.reasoning for arm in section.arms):
        controls = [
            arm
            for arm in section.arms
            if arm.is_untouched and arm.reasoning == setting and arm.instance == 1
        ]
        if not controls:
            raise MalformedInputError(
                where,
                expected=f"an untouched arm (model base, exposure null, instance 1) with reasoning "
                f"{setting}",
                found="none",
                next_step="add it: the untouched model is the control of every run",
            )


def _check_zero_doses(section: DriftPlan, path: str) -> None:
    """Every trained topic has a dose of 0, asked in every reasoning setting that it is asked in."""
    for topic in section.topics:
        trainings = {one.name for one in section.trainings_of(topic.name)}
        zero = {one.name for one in section.trainings_of(topic.name) if one.dose_percent == 0}
        if trainings and not zero:
            raise MalformedInputError(
                f"{path}.trainings",
                expected=f"a training of topic {topic.name} with dose_percent 0",
                found="none",
                next_step="add it: harm is told from training itself by a benign training alone",
            )
        for setting in dict.fromkeys(a.reasoning for a in section.arms if a.model in trainings):
            if not any(
                arm.model in zero and arm.reasoning == setting and arm.exposure is None
                for arm in section.arms
            ):
                raise MalformedInputError(
                    f"{path}.arms",
                    expected=f"an arm of topic {topic.name}'s dose 0 with reasoning {setting}",
                    found="none",
                    next_step="add it: it is what the other doses are compared with",
                )
