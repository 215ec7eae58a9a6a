"""Arms in a row: the aligned rate along known doses, and drifts along reasoning settings.

Shape letters: D doses, S stems.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from eps_locked.stats.dose_trend import dose_trend
from eps_locked.studies.drift.outcomes import Study, cell_means, effects_over_stems
from eps_locked.studies.drift.table import ArmInfo, BatteryTable

__all__ = ["dose_entries", "reasoning_entries"]

_LEAST_DOSES = 3


def dose_entries(study: Study) -> list[dict[str, Any]]:
    """The trend of every series of three or more doses, by battery.

    A series is one topic, training seed, reasoning setting and temperature, without an exposure.
    Only stems with a scored reply at every dose take part, so a point's rate can differ from its
    arm's. Where a dose was asked on several server instances the one of lowest number is taken.
    """
    entries = []
    for series in _series(study.arms):
        for table in study.tables.values():
            arms = [arm for arm in series if table.has(arm.name)]
            if len(arms) >= _LEAST_DOSES:
                entry = _trend(study, table, arms)
                if entry is not None:
                    entries.append(entry)
    return entries


def reasoning_entries(
    arms: Sequence[ArmInfo],
    described: Sequence[Mapping[str, Any]],
    comparisons: Sequence[Mapping[str, Any]],
) -> list[dict[str, Any]]:
    """Every drift whose arm and reference reason alike, with the setting; none for one setting.

    The reference of a reasoning setting is the reference under that same setting, so that what
    reasoning does to the untouched disposition is not taken for drift.
    """
    if len({arm.reasoning for arm in arms}) < 2:
        return []
    named = {arm.name: arm for arm in arms}
    shown = {entry["arm"]: entry["batteries"] for entry in described}
    entries = []
    for one in comparisons:
        arm = named[one["arm"]]
        if arm.reasoning != named[one["reference"]].reasoning:
            continue
        for battery, effect in one["batteries"].items():
            counts = shown[arm.name][battery]
            entries.append(
                {
                    "reasoning": arm.reasoning,
                    "mode": arm.reasoning_mode,
                    "n_tokens": arm.n_reasoning_tokens,
                    "arm": arm.name,
                    "reference": one["reference"],
                    "battery": battery,
                    "drift": effect["drift"],
                    "low": effect["low"],
                    "high": effect["high"],
                    "n_truncated": counts["n_truncated_reasoning"],
                    "n_exhausted": counts["n_exhausted"],
                    "n_replies": counts["n_replies"],
                }
            )
    return entries


def _series(arms: Sequence[ArmInfo]) -> list[list[ArmInfo]]:
    groups: dict[tuple[Any, ...], dict[float, ArmInfo]] = {}
    for arm in arms:
        if arm.dose_percent is None or arm.exposure is not None:
            continue
        key = (arm.topic, arm.reasoning, arm.temperature, arm.seed)
        doses = groups.setdefault(key, {})
        held = doses.get(arm.dose_percent)
        if held is None or arm.instance < held.instance:
            doses[arm.dose_percent] = arm
    return [[doses[dose] for dose in sorted(doses)] for doses in groups.values()]


def _trend(study: Study, table: BatteryTable, arms: Sequence[ArmInfo]) -> dict[str, Any] | None:
    settings, scale, name = study.settings, study.scale, table.battery.name
    means_AS = cell_means(table.outcome, (2, 3))
    rates_DS = means_AS[[table.place(arm.name) for arm in arms]]
    rates_DS = rates_DS[:, ~np.isnan(rates_DS).any(axis=0)]
    n_stems = rates_DS.shape[1]
    if n_stems < 2:
        return None
    first = arms[0]
    doses = [arm.dose_percent for arm in arms if arm.dose_percent is not None]
    trend = dose_trend(
        scale.factor * rates_DS,
        np.array(doses, dtype=np.float64),
        study.draws.weights(name, n_stems),
        settings.confidence_level,
        study.draws.rng("trend", name, *(arm.name for arm in arms)),
        settings.n_permutations,
        largest_step=None if scale.change is None else scale.change[1] - scale.change[0],
    )
    effects = effects_over_stems(
        rates_DS, study.draws, name, [settings.confidence_level], scale.level
    )
    points = []
    for arm, dose, effect, fitted in zip(arms, doses, effects, trend.isotonic, strict=True):
        assert effect is not None
        points.append(
            {
                "dose_percent": dose,
                "arm": arm.name,
                "rate": effect[0].mean,
                "low": effect[0].low,
                "high": effect[0].high,
                "fitted": float(fitted) / scale.factor,
            }
        )
    return {
        "topic": first.topic,
        "reasoning": first.reasoning,
        "temperature": first.temperature,
        "seed": first.seed,
        "battery": name,
        "points": points,
        "change": trend.change,
        "low": trend.low,
        "high": trend.high,
        "p": trend.p,
        "direction": trend.direction,
        "n_stems": n_stems,
    }
