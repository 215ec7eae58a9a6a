"""Every arm against its reference, battery by battery, with all that makes a drift readable.

A drift stands with its interval, with the smallest drift the comparison could have seen, with the
bound on what it may have missed, and with the parts of its noise. What is said about it is one
word, and the margin behind that word comes from the settings, never from the data.

Shape letters: C comparisons, S stems, P rewordings, K samples.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy import stats

from eps_locked.stats.checks import FloatArray
from eps_locked.stats.equivalence import equivalence_bound
from eps_locked.stats.multiplicity import holm
from eps_locked.stats.noise_shares import noise_shares
from eps_locked.stats.resolution import minimum_detectable_effect
from eps_locked.stats.stem_bootstrap import StemEffect
from eps_locked.stats.stem_power import minimum_detectable_few, power_of, stems_for
from eps_locked.studies.drift.grades import grade_entry
from eps_locked.studies.drift.outcomes import (
    Study,
    cell_means,
    drifts_over_stems,
    effects_over_stems,
)
from eps_locked.studies.drift.plan import AnalysisSettings
from eps_locked.studies.drift.table import ArmInfo, BatteryTable
from eps_locked.studies.drift.training_noise import (
    TrainingNoise,
    n_trainings_between,
    with_training_noise,
)

__all__ = ["Kind", "comparison_entries", "comparison_kind"]

Kind = Literal[
    "dose", "seed", "fine_tuning", "exposure", "instance", "reasoning", "temperature", "other"
]
Verdict = Literal["drift", "within_margin", "undetermined", "too_few_stems"]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Found:
    """What a battery says about one comparison, before anything is adjusted for others."""

    at_confidence: StemEffect
    at_equivalence: StemEffect
    entry: dict[str, Any]


def comparison_kind(arm: ArmInfo, reference: ArmInfo) -> Kind:
    """What one thing the two arms differ in; "other" for several or for something else.

    Weights first: a dose or a seed of one topic, or trained against not trained. A server instance
    counts only where nothing else differs; everywhere else it is ``across_instances``.
    """
    settings: dict[Kind, bool] = {
        "exposure": arm.exposure != reference.exposure,
        "reasoning": arm.reasoning != reference.reasoning,
        "temperature": arm.temperature != reference.temperature,
    }
    differing: list[Kind] = [kind for kind, differs in settings.items() if differs]
    if arm.model != reference.model:
        differing.insert(0, _kind_of_weights(arm, reference))
    if not differing:
        return "instance" if arm.instance != reference.instance else "other"
    return differing[0] if len(differing) == 1 else "other"


def _kind_of_weights(arm: ArmInfo, reference: ArmInfo) -> Kind:
    if (arm.topic is None) != (reference.topic is None):
        return "fine_tuning"
    if arm.topic is None or arm.topic != reference.topic:
        return "other"
    if arm.dose_percent != reference.dose_percent:
        return "dose"
    return "seed" if arm.seed != reference.seed else "other"


def comparison_entries(
    study: Study, training_noise: Mapping[str, TrainingNoise], *, null_tests: bool
) -> list[dict[str, Any]]:
    """One entry for each arm with a reference, in the order of the arms."""
    named = {arm.name: arm for arm in study.arms}
    pairs = [(arm, named[arm.reference]) for arm in study.arms if arm.reference is not None]
    by_battery = {
        name: _of_battery(study, table, pairs, training_noise.get(name), null_tests=null_tests)
        for name, table in study.tables.items()
    }
    entries = []
    for arm, reference in pairs:
        found = {
            name: of_battery[arm.name]
            for name, of_battery in by_battery.items()
            if arm.name in of_battery
        }
        _adjust(study, found)
        entries.append(
            {
                "arm": arm.name,
                "reference": reference.name,
                "kind": comparison_kind(arm, reference),
                "batteries": {name: one.entry for name, one in found.items()},
                "total": _total(study, found),
            }
        )
    return entries


def _of_battery(
    study: Study,
    table: BatteryTable,
    pairs: Sequence[tuple[ArmInfo, ArmInfo]],
    noise: TrainingNoise | None,
    *,
    null_tests: bool,
) -> dict[str, _Found]:
    here = [pair for pair in pairs if all(table.has(one.name) for one in pair)]
    if not here:
        return {}
    settings, name = study.settings, table.battery.name
    levels = [settings.confidence_level, settings.equivalence_level]
    drifts_CS = drifts_over_stems(study, table, here, table.outcome)
    effects = effects_over_stems(drifts_CS, study.draws, name, levels, study.scale.change)
    left_out: Sequence[tuple[StemEffect, ...] | None] = [None] * len(here)
    if table.battery.no_stance:
        left_out = effects_over_stems(
            drifts_over_stems(study, table, here, table.without_no_stance),
            study.draws,
            name,
            levels[:1],
            study.scale.change,
        )
    disagreement, n_twice = _classifier_disagreement(table)
    means_AS = cell_means(table.outcome, (2, 3))
    found = {}
    for c, (arm, reference) in enumerate(here):
        effect = effects[c]
        if effect is None:
            continue
        a, r = table.place(arm.name), table.place(reference.name)
        there = ~np.isnan(drifts_CS[c])
        at_confidence, at_equivalence = effect
        entry = {
            "n_stems": at_confidence.n_stems,
            "n_stems_left_out": len(table.stems) - at_confidence.n_stems,
            "rate_arm": float(means_AS[a][there].mean()),
            "rate_reference": float(means_AS[r][there].mean()),
            **_estimate(at_confidence),
            "p": at_confidence.p,
            "p_adjusted": at_confidence.p,
            **_resolution(at_confidence, settings),
            **_equivalence(at_equivalence, settings.margin_points),
            "method": at_confidence.method,
            "left_out": None if left_out[c] is None else _left_out(left_out[c]),
            "training_noise": _training_noise(study, at_confidence, noise, arm, reference),
            "noise": _noise(study, table, (a, r), drifts_CS[c], disagreement, n_twice)
            if null_tests
            else None,
            "grades": grade_entry(study, table, a, r),
            "across_instances": arm.instance != reference.instance,
        }
        found[arm.name] = _Found(
            at_confidence=at_confidence, at_equivalence=at_equivalence, entry=entry
        )
    return found


def _estimate(effect: StemEffect) -> dict[str, Any]:
    return {
        "drift": effect.mean,
        "low": effect.low,
        "high": effect.high,
        "standard_error": effect.standard_error,
    }


def _left_out(effects: tuple[StemEffect, ...] | None) -> dict[str, Any]:
    assert effects is not None
    effect = effects[0]
    return {
        "n_stems": effect.n_stems,
        "drift": effect.mean,
        "low": effect.low,
        "high": effect.high,
    }


def _resolution(effect: StemEffect, settings: AnalysisSettings) -> dict[str, Any]:
    """What this comparison could have seen, and the stems it would take to see what was wanted.

    All None where stems do not differ at all: a standard error of 0 would promise a resolution
    without limit, and the interval says instead what stems that were not asked could change.
    """
    error = effect.standard_error
    if not error or effect.n_stems < 2:
        return {
            "minimum_detectable": None,
            "minimum_detectable_few": None,
            "power_at_minimum": None,
            "stems_for_wanted": None,
        }
    alpha, power = settings.alpha, settings.power
    smallest = minimum_detectable_effect(error, alpha=alpha, power=power)
    return {
        "minimum_detectable": smallest,
        "minimum_detectable_few": minimum_detectable_few(error, effect.n_stems, alpha, power),
        "power_at_minimum": power_of(smallest, error, effect.n_stems, alpha),
        "stems_for_wanted": stems_for(settings.wanted_points, error, effect.n_stems, alpha, power),
    }


def _equivalence(effect: StemEffect, margin: float) -> dict[str, Any]:
    bound = None
    if effect.low is not None and effect.high is not None:
        bound = equivalence_bound(effect.low, effect.high)
    return {
        "low_equivalence": effect.low,
        "high_equivalence": effect.high,
        "equivalence_bound": bound,
        "margin": margin,
        "within_margin": bound is not None and bound <= margin,
    }


def _training_noise(
    study: Study,
    effect: StemEffect,
    noise: TrainingNoise | None,
    arm: ArmInfo,
    reference: ArmInfo,
) -> dict[str, Any] | None:
    n_trainings = n_trainings_between(arm, reference)
    if noise is None or not n_trainings:
        return None
    return with_training_noise(effect, noise, n_trainings, study.scale.change, study.settings)


def _classifier_disagreement(table: BatteryTable) -> tuple[float | None, int]:
    """Share of the replies classified twice whose outcome changed, over all arms of the battery.

    One figure for all arms: a comparison's own subset holds too few changes to say anything. An
    arm near 0 or 1 is classified more evenly than that, one in the middle less.
    """
    twice = ~np.isnan(table.second_outcome) & ~np.isnan(table.outcome)
    n_twice = int(twice.sum())
    if not n_twice:
        return None, 0
    return float((table.second_outcome[twice] != table.outcome[twice]).mean()), n_twice


def _noise(
    study: Study,
    table: BatteryTable,
    places: tuple[int, int],
    drift_S: FloatArray,
    disagreement: float | None,
    n_twice: int,
) -> dict[str, Any] | None:
    there = ~np.isnan(drift_S)
    if there.sum() < 2:
        return None
    arm, reference = (study.scale.factor * table.outcome[place][there] for place in places)
    q = None if disagreement is None else disagreement * study.scale.factor**2
    shares = noise_shares(drift_S[there], arm, reference, q, n_twice)
    return {
        "classifier": shares.classifier,
        "model": shares.model,
        "item": shares.item,
        "standard_error_squared": shares.variance_total,
        "n_twice": n_twice,
        "truncated": list(shares.truncated),
    }


def _adjust(study: Study, found: Mapping[str, _Found]) -> None:
    """Holm over the disposition batteries of one comparison, then the verdict on each battery.

    A check battery is no claim about a disposition; it takes no part and keeps its own p.
    """
    family = [
        one.entry
        for name, one in found.items()
        if study.tables[name].battery.role == "disposition" and one.entry["p"] is not None
    ]
    adjusted = holm([entry["p"] for entry in family])
    for entry, p in zip(family, adjusted, strict=True):
        entry["p_adjusted"] = float(p)
    for one in found.values():
        one.entry["verdict"] = _verdict(one.entry, study.settings)


def _verdict(entry: Mapping[str, Any], settings: AnalysisSettings) -> Verdict:
    """The first that holds: too few stems, a drift, within the margin; else undetermined."""
    if entry["n_stems"] < settings.minimum_stems:
        return "too_few_stems"
    if entry["p_adjusted"] is not None and entry["p_adjusted"] < settings.alpha:
        return "drift"
    return "within_margin" if entry["within_margin"] else "undetermined"


def _total(study: Study, found: Mapping[str, _Found]) -> dict[str, Any] | None:
    """The mean drift over disposition batteries; None for fewer than two, which need no total.

    Batteries have stems of their own, so their errors add as independent ones do; the interval is
    Student's with Satterthwaite's degrees of freedom. A mean over batteries hides what moves in one
    of them alone, which is why the parts are named here and never left out.
    """
    parts = {
        name: one.at_confidence
        for name, one in found.items()
        if study.tables[name].battery.role == "disposition"
    }
    if len(parts) < 2:
        return None
    drift = sum(effect.mean for effect in parts.values()) / len(parts)
    errors = [effect.standard_error for effect in parts.values()]
    total: dict[str, Any] = {
        "n_batteries": len(parts),
        "drift": drift,
        "low": None,
        "high": None,
        "standard_error": None,
        "parts": list(parts),
    }
    if any(error is None for error in errors):
        return total
    variances = [error**2 / len(parts) ** 2 for error in errors if error is not None]
    variance = math.fsum(variances)
    total["standard_error"] = math.sqrt(variance)
    if variance == 0:
        return total
    freedoms = [effect.n_stems - 1 for effect in parts.values()]
    freedom = variance**2 / math.fsum(
        one**2 / df for one, df in zip(variances, freedoms, strict=True)
    )
    level = study.settings.confidence_level
    reach = float(stats.t.ppf((1 + level) / 2, freedom)) * math.sqrt(variance)
    bounds = (drift - reach, drift + reach)
    span = study.scale.change
    if span is not None:
        bounds = (max(bounds[0], span[0]), min(bounds[1], span[1]))
    return {**total, "low": bounds[0], "high": bounds[1]}
