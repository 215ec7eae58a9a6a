"""Where fewer verdicts came in than the plan asks for: then an axis is not measured, and whoever
runs the battery is told so by an exit code as well."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from eps_locked.domain.steps import Step
from eps_locked.studies.battery.outcomes import outcomes_of
from eps_locked.studies.battery.plan import BatteryPlan
from eps_locked.studies.battery.records import AskRecord, SpeedRecord
from eps_locked.studies.battery.sentences import axis_name, missing_words

__all__ = ["short_steps", "unmet", "unmet_of"]


def unmet(document: Mapping[str, Any]) -> list[str]:
    """One sentence for each axis that too few verdicts came in on, with what is missing; for each
    model that was not timed though the plan times; and for each comparison of measured axes that
    rests on too few items."""
    found = [one for model in document["models"] for one in unmet_of(document, model["model"])]
    measured = {
        (model["model"], axis["axis"], axis["thinking"])
        for model in document["models"]
        for axis in model["axes"]
        if axis["measured"]
    }
    for comparison in document["comparisons"]:
        names = comparison["model"], comparison["base"]
        found += [
            row["sentence"].rstrip(".")
            for row in comparison["axes"]
            if row["verdict"] == "not_measured"
            and all((name, row["axis"], row["thinking"]) in measured for name in names)
        ]
    return found


def unmet_of(document: Mapping[str, Any], model: str) -> list[str]:
    """Of one model: its axes and its speed."""
    entry = next(one for one in document["models"] if one["model"] == model)
    found = [
        _axis_short(model, axis, axis["minimum_scored_share"], axis["missing"])
        for axis in entry["axes"]
        if not axis["measured"]
    ]
    speed = entry["speed"]
    if speed is not None and speed["n_timed"] == 0:
        found.append(_speed_short(model, speed["n_requests"]))
    return found


def short_steps(
    section: BatteryPlan,
    steps: Iterable[Step],
    read: Callable[[str, str], Mapping[str, bytes]],
) -> list[str]:
    """As ``unmet``, of finished steps that are ``unscored``, before the last step has computed
    anything. ``read`` gives the files of a step's output."""
    found = []
    for step in steps:
        model = str(step.params.get("model", ""))
        if step.kind == "ask":
            share = section.axis(step.params["axis"]).minimum_scored_share or 0.0
            outcomes = outcomes_of(AskRecord.from_files(read(step.id, "answers"), step.id), share)
            axis = {
                "axis": outcomes.axis,
                "thinking": outcomes.thinking,
                "n_scored": outcomes.n_scored,
                "n_items": outcomes.n_items,
            }
            found.append(_axis_short(model, axis, share, outcomes.missing))
        elif step.kind == "speed":
            record = SpeedRecord.from_files(read(step.id, "speed"), step.id)
            found.append(_speed_short(model, len(record.rows)))
    return found


def _axis_short(
    model: str, axis: Mapping[str, Any], share: float, missing: Mapping[str, int]
) -> str:
    return (
        f"{model}, {axis_name(axis['axis'], axis['thinking'])}: {axis['n_scored']} of "
        f"{axis['n_items']} items have a verdict, the plan asks for {share * 100:.4g}% (missing: "
        f"{missing_words(missing)})"
    )


def _speed_short(model: str, n_requests: int) -> str:
    return f"{model}, speed: none of {n_requests} requests could be timed"
