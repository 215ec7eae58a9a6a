"""Checked batteries beside one another: one table for every model ever measured alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eps_locked.audit.checks import AuditedRun
from eps_locked.canonical import decode, short
from eps_locked.errors import EvidenceError, RefusedError
from eps_locked.lock.freeze import load_plan
from eps_locked.studies.battery.comparing import compare, keys_of
from eps_locked.studies.battery.compatibility import ABSENT, SHOWN, first_difference
from eps_locked.studies.battery.outcomes import outcomes_of
from eps_locked.studies.battery.plan import BatteryPlan
from eps_locked.studies.battery.records import AskRecord
from eps_locked.studies.battery.results import BATTERY_FILE
from eps_locked.studies.battery.sentences import sentence
from eps_locked.studies.battery.served import differences
from eps_locked.studies.battery.steplist import BATTERY_STEP, ask_step
from eps_locked.studies.common.rounding import rounded

__all__ = ["FinishedBattery", "compare_across", "promised", "require_compatible", "shown"]


@dataclass(frozen=True, kw_only=True, slots=True)
class FinishedBattery:
    """A complete run whose checks hold. ``document`` is what its last step says."""

    name: str
    section: BatteryPlan
    document: Mapping[str, Any]
    audited: AuditedRun

    @classmethod
    def of(cls, audited: AuditedRun) -> FinishedBattery:
        """Raises EvidenceError for a run that failed its checks or is not complete, RefusedError
        for one of another study."""
        name = audited.name
        if not audited.ok or audited.frozen is None:
            failures = [text for _, text in audited.failures()]
            raise EvidenceError(
                f"run {name}",
                expected="a complete run whose checks all hold",
                found=f"{len(failures)} failures"
                + (f", the first: {failures[0]}" if failures else ""),
                next_step=f"just check-evidence {name} lists them",
            )
        plan = load_plan(audited.frozen.read("frozen/plan.yaml"), thing="frozen/plan.yaml")
        section = BatteryPlan.of(plan)
        data = audited.artifact(BATTERY_STEP, "battery")[BATTERY_FILE]
        return cls(
            name=name,
            section=section,
            document=decode(data, thing=f"{name}: {BATTERY_FILE}"),
            audited=audited,
        )

    @property
    def evidence(self) -> str:
        """Where the record is, for whoever reads a number of it elsewhere."""
        assert self.audited.frozen is not None
        assert self.audited.ledger_head is not None
        return (
            f"Evidence: run {self.name}, manifest {short(self.audited.frozen.digest)}, ledger head "
            f"{short(self.audited.ledger_head)}; check-evidence {self.name} checks it again."
        )

    def entry(self, model: str) -> Mapping[str, Any]:
        """What the document says of a model. Raises MalformedInputError for one it does not
        have."""
        name = self.section.model(model).name
        return next(one for one in self.document["models"] if one["model"] == name)

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
                expected=f"{shown(one)} ({first.name})",
                found=f"{shown(another)} ({other.name})",
                next_step="measure again under one plan, or make a table of each",
            )


def promised(battery: FinishedBattery, model: str, base: str) -> dict[str, Any] | None:
    """The comparison of two models of one run as its plan promised it; None for any other."""
    for one in battery.document["comparisons"]:
        if (one["model"], one["base"]) == (model, base):
            return {**one, "label": battery.document["label"]}
    return None


def compare_across(
    battery: FinishedBattery, model: str, other: FinishedBattery, base: str
) -> dict[str, Any]:
    """A comparison that no plan had promised, also of models from two compatible runs.

    By the settings of ``battery``. Raises RefusedError for runs that cannot stand together and for
    a model beside itself, MalformedInputError for a model that a run does not have.
    """
    if (battery.name, model) == (other.name, base):
        raise RefusedError(
            f"compare {model} with {base}",
            expected="two models",
            found="one, beside its own answers",
            next_step="name another model, or another run with --of",
        )
    require_compatible([battery, other])
    settings = battery.section.analysis
    entries = battery.entry(model), other.entry(base)
    shares = {axis.axis: axis.minimum_scored_share for axis in battery.section.rate_axes}
    found, base_found = (
        keys_of([outcomes_of(one, shares[one.axis] or 0.0) for one in finished.records(name)])
        for finished, name in ((battery, model), (other, base))
    )
    names = (model, base)
    if battery.name != other.name:
        names = (f"{model} of {battery.name}", f"{base} of {other.name}")
    entry = compare(
        battery.section.model(model), other.section.model(base), found, base_found, settings, names
    )
    for row in entry["axes"]:
        row["sentence"] = sentence(*names, row, settings)
    document: dict[str, Any] = rounded(
        {**entry, "differs": differences(*entries), "label": "exploratory"}
    )
    return document


def shown(value: Any) -> str:
    """In words; nothing is ``none``, as ABSENT is."""
    if value is None:
        return ABSENT
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {shown(one)}" for key, one in value.items() if one != {})
    return " and ".join(map(shown, value)) if isinstance(value, list) else str(value)
