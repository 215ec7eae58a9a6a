"""Checked batteries beside one another: one table for every model ever measured alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eps_locked.audit.checks import AuditedRun
from eps_locked.canonical import decode
from eps_locked.errors import EvidenceError, RefusedError
from eps_locked.lock.freeze import load_plan
from eps_locked.studies.battery.comparing import compare, keys_of
from eps_locked.studies.battery.compatibility import SHOWN, first_difference
from eps_locked.studies.battery.outcomes import outcomes_of
from eps_locked.studies.battery.plan import BatteryPlan
from eps_locked.studies.battery.records import AskRecord
from eps_locked.studies.battery.results import BATTERY_FILE
from eps_locked.studies.battery.sentences import sentence
from eps_locked.studies.battery.steplist import BATTERY_STEP, ask_step
from eps_locked.studies.common.rounding import rounded

__all__ = ["FinishedBattery", "compare_across", "require_compatible", "unmet"]


@dataclass(frozen=True, kw_only=True, slots=True)
class FinishedBattery:
    """A complete run whose checks hold. ``files`` are its last step's, ``document`` what they
    say."""

    name: str
    section: BatteryPlan
    files: Mapping[str, bytes]
    document: Mapping[str, Any]
    audited: AuditedRun

    @classmethod
    def of(cls, audited: AuditedRun) -> FinishedBattery:
        """Raises EvidenceError for a run that failed its checks or is not complete, RefusedError
        for one of another study."""
        name = audited.name
        if not audited.ok or audited.frozen is None:
            raise EvidenceError(
                f"run {name}",
                expected="a run whose checks all hold",
                found=f"{sum(1 for _ in audited.failures())} failures",
                next_step=f"just check-evidence {name} lists them",
            )
        plan = load_plan(audited.frozen.read("frozen/plan.yaml"), thing="frozen/plan.yaml")
        section = BatteryPlan.of(plan)
        if not audited.complete:
            raise EvidenceError(
                f"run {name}",
                expected="a complete run",
                found="phases that are not closed",
                next_step=f"eps-locked status {name} says what is next",
            )
        files = audited.artifact(BATTERY_STEP, "battery")
        return cls(
            name=name,
            section=section,
            files=files,
            document=decode(files[BATTERY_FILE], thing=f"{name}: {BATTERY_FILE}"),
            audited=audited,
        )

    def records(self, model: str) -> tuple[AskRecord, ...]:
        """What one model answered, axis by axis and mode by mode."""
        steps = [
            ask_step(model, axis.axis, thinking)
            for axis in self.section.rate_axes
            for thinking in self.section.thinking_modes
        ]
        return tuple(
            AskRecord.from_files(self.audited.artifact(step, "answers"), step) for step in steps
        )


def unmet(document: Mapping[str, Any]) -> list[str]:
    """One sentence for each axis that too few verdicts came in on, with what is missing."""
    return [
        f"{model['model']}, {axis['axis']}, thinking {axis['thinking']}: {axis['n_scored']} of "
        f"{axis['n_items']} items have a verdict, the plan asks for "
        f"{axis['minimum_scored_share']:.0%} (missing: "
        + (", ".join(f"{n} {status}" for status, n in axis["missing"].items()) or "none")
        + ")"
        for model in document["models"]
        for axis in model["axes"]
        if not axis["measured"]
    ]


def require_compatible(batteries: Sequence[FinishedBattery]) -> None:
    """Raises RefusedError naming the first thing in which two runs differ."""
    for other in batteries[1:]:
        first = batteries[0]
        found = first_difference(first.document["compatibility"], other.document["compatibility"])
        if found is not None:
            key, one, another = found
            part = SHOWN.get(key.partition(".")[0], key)
            raise RefusedError(
                f"{first.name} and {other.name}: {key}",
                problem=f"their {part} differ, so their numbers are not of one kind",
                expected=one,
                found=another,
                next_step="measure again under one plan, or make a table of each",
            )


def compare_across(
    battery: FinishedBattery, model: str, other: FinishedBattery, base: str
) -> dict[str, Any]:
    """A comparison that no plan had promised, also of models from two compatible runs.

    By the settings of ``battery``. Raises RefusedError for runs that cannot stand together.
    """
    require_compatible([battery, other])
    settings = battery.section.analysis
    shares = {axis.axis: axis.minimum_scored_share for axis in battery.section.rate_axes}
    found, base_found = (
        keys_of([outcomes_of(one, shares[one.axis] or 0.0) for one in finished.records(name)])
        for finished, name in ((battery, model), (other, base))
    )
    entry = compare(
        battery.section.model(model), other.section.model(base), found, base_found, settings
    )
    for row in entry["axes"]:
        row["sentence"] = sentence(model, base, row, settings)
    document: dict[str, Any] = rounded({**entry, "label": "exploratory"})
    return document
