"""How much two trainings differ that should not: pairs of arms that only a seed or an instance
tells apart, and what the seed pairs add to the error of every drift between trained weights.

Shape letters: S stems.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from scipy import stats

from eps_locked.stats.equivalence import equivalence_bound
from eps_locked.stats.resolution import minimum_detectable_effect
from eps_locked.stats.stem_bootstrap import StemEffect
from eps_locked.studies.drift.outcomes import Span, Study, drifts_over_stems, effects_over_stems
from eps_locked.studies.drift.plan import AnalysisSettings
from eps_locked.studies.drift.table import ArmInfo

__all__ = [
    "TrainingNoise",
    "instance_entries",
    "instance_pairs",
    "n_trainings_between",
    "pooled_training_noise",
    "seed_entries",
    "seed_pairs",
    "with_training_noise",
]

Pair = tuple[ArmInfo, ArmInfo]


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingNoise:
    """What one training's result varies by, in the unit of a drift, from pairs of seeds.

    ``variance`` of one training around the mean of all seeds: half the mean square difference of
    a pair, less half the sampling variance that is in it. ``truncated``: that came out below 0 and
    was set to 0, which means that sampling noise alone explains the pairs, not that trainings
    agree. ``variance_error``: the variance of this estimate, for differences taken as normal.
    """

    battery: str
    variance: float
    variance_error: float
    n_pairs: int
    truncated: bool

    def entry(self) -> dict[str, Any]:
        return {
            "battery": self.battery,
            "standard_deviation": math.sqrt(self.variance),
            "n_pairs": self.n_pairs,
            "truncated": self.truncated,
        }


def seed_pairs(arms: Sequence[ArmInfo]) -> list[Pair]:
    """Trained arms of equal topic, dose and setting whose training seeds differ; every pair."""
    return _pairs(
        [arm for arm in arms if arm.topic is not None and arm.seed is not None],
        same=lambda arm: (arm.topic, arm.dose_percent, *_setting(arm), arm.instance),
        differ=lambda arm: arm.seed,
    )


def instance_pairs(arms: Sequence[ArmInfo]) -> list[Pair]:
    """Arms of the same weights and setting that ran on different server instances; every pair."""
    return _pairs(
        arms, same=lambda arm: (arm.model, *_setting(arm)), differ=lambda arm: arm.instance
    )


def seed_entries(study: Study) -> list[dict[str, Any]]:
    """The other seed minus the one, by battery: a drift whose truth is training noise alone."""
    return [
        _entry(one, other, battery, effects) | {"standard_error": effects[0].standard_error}
        for one, other, battery, effects in _differences(study, seed_pairs(study.arms))
    ]


def instance_entries(study: Study) -> list[dict[str, Any]]:
    """The other instance minus the one, by battery, with the bound of what instances may differ."""
    return [
        _entry(one, other, battery, effects) | {"equivalence_bound": _bound(effects[1])}
        for one, other, battery, effects in _differences(study, instance_pairs(study.arms))
    ]


def pooled_training_noise(study: Study) -> dict[str, TrainingNoise]:
    """By battery, over its seed pairs; batteries without a pair are absent.

    With drift d of a pair and its standard error e over stems, E[d^2] = 2 v + e^2, so v is the mean
    of (d^2 - e^2) / 2. Pairs of more than two seeds share trainings, and pairs of one training
    under several reasoning settings share both; the estimate stays right, its error is then
    larger than said.
    """
    found: dict[str, list[tuple[float, float]]] = {}
    for _, _, battery, effects in _differences(study, seed_pairs(study.arms)):
        error = effects[0].standard_error
        if error is not None:
            found.setdefault(battery, []).append((effects[0].mean, error))
    noise = {}
    for battery, pairs in found.items():
        drift_N, error_N = (np.array(column) for column in zip(*pairs, strict=True))
        raw = float(np.mean(drift_N**2 - error_N**2)) / 2
        variance = max(raw, 0.0)
        spread = 2 * variance + float(np.mean(error_N**2))
        noise[battery] = TrainingNoise(
            battery=battery,
            variance=variance,
            variance_error=spread**2 / (2 * len(pairs)),
            n_pairs=len(pairs),
            truncated=raw < 0,
        )
    return noise


def n_trainings_between(arm: ArmInfo, reference: ArmInfo) -> int:
    """How many trainings' accidents a drift between two arms holds: none on the same weights."""
    if arm.model == reference.model:
        return 0
    return (arm.topic is not None) + (reference.topic is not None)


def with_training_noise(
    effect: StemEffect,
    noise: TrainingNoise,
    n_trainings: int,
    span: Span,
    settings: AnalysisSettings,
) -> dict[str, Any] | None:
    """The same drift as a statement about trainings of that kind, not about these adapters.

    Variance of sampling plus ``n_trainings`` times that of a training; the interval is Student's
    with Satterthwaite's degrees of freedom, which are few where the seed pairs are, and nowhere
    narrower than the interval without this noise. None without a standard error.
    Source: Satterthwaite 1946, Biometrics Bull. 2(6), 110-114.
    """
    if effect.standard_error is None or effect.n_stems < 2:
        return None
    sampling = effect.standard_error**2
    total = sampling + n_trainings * noise.variance
    if total == 0:
        return None
    uncertainty = 2 * sampling**2 / (effect.n_stems - 1) + n_trainings**2 * noise.variance_error
    freedom = 2 * total**2 / uncertainty
    error = math.sqrt(total)
    reach = float(stats.t.ppf((1 + effect.confidence_level) / 2, freedom)) * error
    low, high = effect.mean - reach, effect.mean + reach
    if effect.low is not None and effect.high is not None:
        low, high = min(low, effect.low), max(high, effect.high)
    if span is not None:
        low, high = max(low, span[0]), min(high, span[1])
    return {
        "standard_error": error,
        "low": low,
        "high": high,
        "minimum_detectable": minimum_detectable_effect(
            error, alpha=settings.alpha, power=settings.power
        ),
    }


def _pairs(
    arms: Sequence[ArmInfo],
    *,
    same: Callable[[ArmInfo], Hashable],
    differ: Callable[[ArmInfo], Hashable],
) -> list[Pair]:
    groups: dict[Hashable, list[ArmInfo]] = {}
    for arm in arms:
        groups.setdefault(same(arm), []).append(arm)
    return [
        (one, other)
        for group in groups.values()
        for one, other in combinations(group, 2)
        if differ(one) != differ(other)
    ]


def _setting(arm: ArmInfo) -> tuple[Hashable, ...]:
    return (arm.reasoning, arm.temperature, arm.exposure)


def _differences(
    study: Study, pairs: Sequence[Pair]
) -> list[tuple[ArmInfo, ArmInfo, str, tuple[StemEffect, ...]]]:
    """Effects at the two levels of the settings, confidence first, for every pair and battery."""
    found = []
    settings = study.settings
    for name, table in study.tables.items():
        here = [
            (one, other) for one, other in pairs if table.has(one.name) and table.has(other.name)
        ]
        if not here:
            continue
        effects = effects_over_stems(
            drifts_over_stems(study, table, [(other, one) for one, other in here], table.outcome),
            study.draws,
            name,
            [settings.confidence_level, settings.equivalence_level],
            study.scale.change,
        )
        found += [
            (one, other, name, effect)
            for (one, other), effect in zip(here, effects, strict=True)
            if effect is not None
        ]
    return found


def _entry(
    one: ArmInfo, other: ArmInfo, battery: str, effects: Sequence[StemEffect]
) -> dict[str, Any]:
    return {
        "one": one.name,
        "other": other.name,
        "battery": battery,
        "drift": effects[0].mean,
        "low": effects[0].low,
        "high": effects[0].high,
    }


def _bound(effect: StemEffect) -> float | None:
    if effect.low is None or effect.high is None:
        return None
    return equivalence_bound(effect.low, effect.high)
