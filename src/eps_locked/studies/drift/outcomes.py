"""What each arm showed, and what two samples of one arm differ by: means over whole stems.

A stem's value is the mean over its scored replies, an arm's the mean over its stems, and only
stems are resampled: rewordings of a stem are one question asked again and carry no evidence of
their own. All arms of a battery are resampled by the same draws of stems, so that differences
between arms are paired.

Shape letters: A arms, S stems, P rewordings, K samples, B resamples.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from eps_locked.stats.bootstrap import generator_from_digest
from eps_locked.stats.checks import FloatArray, IntArray
from eps_locked.stats.stem_bootstrap import StemEffect, stem_effects, stem_weights
from eps_locked.studies.drift.plan import AnalysisSettings
from eps_locked.studies.drift.table import EXHAUSTED, SCORED, TOP_GRADE, ArmInfo, BatteryTable

__all__ = [
    "GRADE_CHANGE",
    "RATE",
    "Draws",
    "Scale",
    "Span",
    "Study",
    "Unit",
    "arm_entries",
    "cell_means",
    "drifts_over_stems",
    "effects_over_stems",
    "null_entries",
    "null_summary",
    "number_or_none",
]

Unit = Literal["points", "score units"]
# The least and the most a value can be; None where nobody knows.
Span = tuple[float, float] | None
RATE: Span = (0.0, 1.0)
GRADE_CHANGE: Span = (float(1 - TOP_GRADE), float(TOP_GRADE - 1))
# Differences of means that should be equal, as rounding leaves them.
_ROUNDING = 1e-9


@dataclass(frozen=True, kw_only=True, slots=True)
class Scale:
    """The unit of a drift. Points are 100 times a difference of rates; scores stay as they are."""

    unit: Unit

    @property
    def factor(self) -> float:
        return 100.0 if self.unit == "points" else 1.0

    @property
    def level(self) -> Span:
        """Of one arm's mean outcome."""
        return RATE if self.unit == "points" else None

    @property
    def change(self) -> Span:
        """Of a drift."""
        return (-100.0, 100.0) if self.unit == "points" else None


@dataclass(frozen=True, slots=True)
class Draws:
    """The resamples of stems: one matrix (B, S) for each battery and number of stems, drawn once.

    Batteries have draws of their own: their stems are different questions, and a total over
    batteries would be wrong if one battery's resamples went with another's.
    """

    settings: AnalysisSettings
    _made: dict[tuple[str, int], IntArray] = field(default_factory=dict)

    def weights(self, battery: str, n_stems: int) -> IntArray:
        key = (battery, n_stems)
        if key not in self._made:
            rng = self.rng("stems", battery, str(n_stems))
            self._made[key] = stem_weights(n_stems, self.settings.n_resamples, rng)
        return self._made[key]

    def rng(self, *labels: str) -> np.random.Generator:
        """A stream for one purpose, from the frozen seed."""
        return generator_from_digest(str(self.settings.seed), "drift", *labels)


@dataclass(frozen=True, kw_only=True, slots=True)
class Study:
    """What every part of the analysis is computed from."""

    tables: Mapping[str, BatteryTable]
    arms: tuple[ArmInfo, ...]
    draws: Draws
    scale: Scale

    @property
    def settings(self) -> AnalysisSettings:
        return self.draws.settings


def cell_means(values: FloatArray, axes: tuple[int, ...]) -> FloatArray:
    """Means over ``axes`` of what is not NaN; NaN where nothing is left."""
    there = ~np.isnan(values)
    counts = there.sum(axis=axes)
    sums = np.where(there, values, 0.0).sum(axis=axes)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


def effects_over_stems(
    values_AS: FloatArray,
    draws: Draws,
    battery: str,
    levels: Sequence[float],
    span: Span,
) -> list[tuple[StemEffect, ...] | None]:
    """The mean over stems of each row, with its interval at each of ``levels``.

    NaN: the stem has no value in that row and is left out of it; a row without any gives None.
    Bounds are kept within ``span``. Where all stems agree exactly, no resample differs, and the
    interval says instead how far unseen stems could move the mean within ``span``.
    """
    found: list[tuple[StemEffect, ...] | None] = [None] * len(values_AS)
    by_stems: dict[bytes, list[int]] = {}
    for a, there in enumerate(~np.isnan(values_AS)):
        by_stems.setdefault(there.tobytes(), []).append(a)
    for members in by_stems.values():
        there = ~np.isnan(values_AS[members[0]])
        n_stems = int(there.sum())
        if n_stems == 0:
            continue
        weights = draws.weights(battery, n_stems)
        values = values_AS[members][:, there]
        even = np.ptp(values, axis=1) <= _ROUNDING
        # Rows of one set of stems share a product; a row without spread has a step of its own.
        blocks: list[tuple[list[int], float | None]] = [
            ([n], _step(float(values[n, 0]), span)) for n in np.flatnonzero(even)
        ]
        if not even.all():
            blocks.append((list(np.flatnonzero(~even)), None))
        for block, step in blocks:
            effects = stem_effects(values[block], weights, levels, largest_step=step, bounds=span)
            for n, of_row in zip(block, effects, strict=True):
                found[members[n]] = of_row
    return found


def drifts_over_stems(
    study: Study, table: BatteryTable, pairs: Sequence[tuple[ArmInfo, ArmInfo]], values: FloatArray
) -> FloatArray:
    """Arm minus reference for every stem, shape (C, S), in the unit of a drift; NaN where either
    has no scored reply. ``values``: outcomes of shape (A, S, P, K)."""
    means_AS = study.scale.factor * cell_means(values, (2, 3))
    return np.stack(
        [
            means_AS[table.place(arm.name)] - means_AS[table.place(reference.name)]
            for arm, reference in pairs
        ]
    )


def arm_entries(study: Study) -> list[dict[str, Any]]:
    """One entry for each arm: what it is, and for each battery counts, rate and interval."""
    shown = {name: _battery_entries(study, table) for name, table in study.tables.items()}
    return [
        {
            "arm": arm.name,
            "model": arm.model,
            "topic": arm.topic,
            "dose_percent": arm.dose_percent,
            "seed": arm.seed,
            "reasoning": arm.reasoning,
            "reasoning_mode": arm.reasoning_mode,
            "temperature": arm.temperature,
            "exposure": arm.exposure,
            "instance": arm.instance,
            "reference": arm.reference,
            "batteries": {
                name: entries[arm.name] for name, entries in shown.items() if arm.name in entries
            },
        }
        for arm in study.arms
    ]


def null_entries(study: Study) -> list[dict[str, Any]]:
    """Each arm against itself: the later sample minus the earlier, for neighbouring samples.

    The true difference is zero, so what is found is noise, and about 1 - confidence_level of the
    intervals may leave zero out. A stem counts where both samples have a scored reply to it.
    """
    entries: list[dict[str, Any]] = []
    for name, table in study.tables.items():
        means_ASK = study.scale.factor * cell_means(table.outcome, (2,))
        pairs = list(pairwise(range(len(table.samples))))
        if not pairs:
            continue
        differences = [means_ASK[:, :, k] - means_ASK[:, :, j] for j, k in pairs]
        effects = effects_over_stems(
            np.concatenate(differences),
            study.draws,
            name,
            [study.settings.confidence_level],
            study.scale.change,
        )
        for n, found in enumerate(effects):
            if found is None:
                continue
            which, a = divmod(n, len(table.arms))
            effect = found[0]
            entries.append(
                {
                    "arm": table.arms[a].name,
                    "battery": name,
                    "samples": [table.samples[place] for place in pairs[which]],
                    "n_stems": effect.n_stems,
                    "difference": effect.mean,
                    "low": effect.low,
                    "high": effect.high,
                    "excludes_zero": effect.excludes_zero,
                    "standard_error": effect.standard_error,
                    "method": effect.method,
                }
            )
    return entries


def null_summary(nulls: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """By battery: how many intervals leave zero out, the mean, and the median absolute value."""
    summary = []
    for name in dict.fromkeys(one["battery"] for one in nulls):
        of_battery = [one for one in nulls if one["battery"] == name]
        differences = [one["difference"] for one in of_battery]
        summary.append(
            {
                "battery": name,
                "n": len(of_battery),
                "n_excluding": sum(one["excludes_zero"] for one in of_battery),
                "mean": statistics.fmean(differences),
                "typical_absolute": statistics.median(map(abs, differences)),
            }
        )
    return summary


def _battery_entries(study: Study, table: BatteryTable) -> dict[str, dict[str, Any]]:
    level = study.settings.confidence_level
    name = table.battery.name
    means_AS = cell_means(table.outcome, (2, 3))
    effects = effects_over_stems(means_AS, study.draws, name, [level], study.scale.level)
    left_out_A = cell_means(cell_means(table.without_no_stance, (2, 3)), (1,))
    grades_A = cell_means(cell_means(table.grade, (2, 3)), (1,))
    entries = {}
    for a, arm in enumerate(table.arms):
        rows = table.rows[arm.name]
        found = effects[a]
        effect = None if found is None else found[0]
        classes = Counter(row.label for row in rows if row.label is not None)
        statuses = Counter(row.status for row in rows)
        unscored = sorted(set(statuses) - {SCORED, EXHAUSTED})
        n_no_stance = int(table.no_stance[a].sum())
        entries[arm.name] = {
            "n_stems": int((~np.isnan(means_AS[a])).sum()),
            "n_probes": len({row.probe for row in rows}),
            "n_replies": len(rows),
            "n_scored": statuses[SCORED],
            "n_no_stance": n_no_stance,
            "n_exhausted": statuses[EXHAUSTED],
            "n_truncated_reasoning": sum(row.truncated_reasoning for row in rows),
            "unscored": {status: statuses[status] for status in unscored},
            "rate": None if effect is None else effect.mean,
            "low": None if effect is None else effect.low,
            "high": None if effect is None else effect.high,
            "rate_left_out": number_or_none(left_out_A[a]),
            "n_left_out": n_no_stance,
            "classes": {label: classes[label] for label in table.battery.labels},
            "grade_mean": number_or_none(grades_A[a]),
            "n_graded": sum(row.grade is not None for row in rows),
            "n_mentioning": sum(row.mentions > 0 for row in rows),
            "n_reasoned": sum(row.reasoned for row in rows),
        }
    return entries


def number_or_none(value: float) -> float | None:
    """None for NaN: a value that nothing was left to compute from."""
    return None if math.isnan(value) else float(value)


def _step(middle: float, span: Span) -> float | None:
    return None if span is None else max(middle - span[0], span[1] - middle)
