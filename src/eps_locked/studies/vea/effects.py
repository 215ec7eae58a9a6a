"""What a family's differences amount to: entries of the document, without verdicts. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from eps_locked.stats.bootstrap import generator_from_digest
from eps_locked.stats.checks import FloatArray, IntArray
from eps_locked.stats.cliff import cliffs_delta
from eps_locked.stats.paired_effects import (
    cliffs_delta_of_two,
    difference_of_means,
    paired_cohens_d,
    ratio_of_means,
)
from eps_locked.stats.paired_power import MinimumDetectable, minimum_detectable_delta
from eps_locked.stats.signed_rank import signed_rank
from eps_locked.stats.stem_bootstrap import stem_effects, stem_weights
from eps_locked.studies.vea.deltas import FamilyDeltas, role_of
from eps_locked.studies.vea.items import FAMILIES, Family
from eps_locked.studies.vea.settings import VeaSettings

__all__ = ["Draws", "against_anchor", "effect_entry", "joint_weights"]

_NO_DELTAS: dict[str, Any] = dict.fromkeys(
    (
        "mean",
        "low",
        "high",
        "low_equivalence",
        "high_equivalence",
        "standard_error",
        "sd",
        "p",
        "p_adjusted",
        "cohens_d",
        "cohens_d_corrected",
        "d_low",
        "d_high",
        "cliffs_delta",
        "minimum_detectable_alone",
        "minimum_detectable_all",
    )
)


@dataclass(frozen=True, slots=True)
class Draws:
    """Everything random, from the frozen seed, each drawn once: resamples of stems for a family and
    a number of stems, and simulated studies for a number of differences."""

    settings: VeaSettings
    _weights: dict[tuple[Family, int], IntArray] = field(default_factory=dict)
    _minima: dict[tuple[int, float, int], MinimumDetectable] = field(default_factory=dict)

    def weights(self, family: Family, n_stems: int) -> IntArray:
        key = (family, n_stems)
        if key not in self._weights:
            rng = self._rng("stems", family, str(n_stems))
            self._weights[key] = stem_weights(n_stems, self.settings.n_resamples, rng)
        return self._weights[key]

    def minimum(self, n: int, family: Family, n_others: int) -> MinimumDetectable:
        """In SDs of the difference. The anchor and the gates are tested by themselves, a gate on
        both sides."""
        role, alpha = role_of(family), self.settings.alpha
        n_families = max(n_others, 1) if role == "other" else 1
        level = alpha / 2 if role == "gate" else alpha
        key = (n, level, n_families)
        if key not in self._minima:
            self._minima[key] = minimum_detectable_delta(
                1.0,
                n,
                level,
                self.settings.power,
                n_families,
                n_simulated=self.settings.n_simulated,
                rng=self._rng("power", str(n)),
            )
        return self._minima[key]

    def _rng(self, *labels: str) -> np.random.Generator:
        return generator_from_digest(str(self.settings.seed), "vea", *labels)


def effect_entry(deltas: FamilyDeltas, draws: Draws, n_others: int) -> dict[str, Any]:
    """Mean difference over stems, its intervals, its test and its sizes; None for what is not
    defined. ``p`` is one-sided, small where the reward model dislikes the clause; two-sided for
    gates, which fail on either side. ``p_adjusted`` and the verdict are not known here.

    Without spread over stems there is no interval: every resample would give the same mean again.
    """
    n = len(deltas.deltas)
    if not n:
        nothing = {"n": 0, "n_zero": 0, "w_plus": 0.0, "method": "exact with ties"}
        return {**_NO_DELTAS, "wilcoxon": nothing}
    settings, role = draws.settings, role_of(deltas.family)
    levels = (settings.confidence_level, settings.equivalence_level)
    at_confidence, at_equivalence = stem_effects(
        deltas.deltas[None], draws.weights(deltas.family, n), levels
    )[0]
    test = signed_rank(deltas.deltas)
    size = paired_cohens_d(deltas.deltas, settings.confidence_level)
    sd = float(deltas.deltas.std(ddof=1)) if n > 1 else None
    if size is None and sd is not None:
        # Equal differences: what is left is rounding.
        sd = 0.0
    smallest = draws.minimum(n, deltas.family, n_others) if sd else None
    return {
        "mean": at_confidence.mean,
        "low": at_confidence.low,
        "high": at_confidence.high,
        "low_equivalence": at_equivalence.low,
        "high_equivalence": at_equivalence.high,
        "standard_error": None if sd is None else sd / n**0.5,
        "sd": sd,
        "p": test.p_two_sided if role == "gate" else test.p_greater,
        "p_adjusted": None,
        "wilcoxon": {
            "n": test.n,
            "n_zero": test.n_zero,
            "w_plus": test.w_plus,
            "method": test.method,
        },
        "cohens_d": None if size is None else size.d,
        "cohens_d_corrected": None if size is None else size.g,
        "d_low": None if size is None else size.low,
        "d_high": None if size is None else size.high,
        "cliffs_delta": cliffs_delta(deltas.reference, deltas.vea),
        "minimum_detectable_alone": _in_unit(None if smallest is None else smallest.alone, sd),
        "minimum_detectable_all": _in_unit(
            smallest.all_affected if smallest is not None and role == "other" else None, sd
        ),
    }


def joint_weights(families: Sequence[FamilyDeltas], draws: Draws) -> dict[Family, IntArray]:
    """For each family with stems how often each resample holds each of them, shape (B, S).

    Row b of all families is one resample of prompts: a prompt that several families share is drawn
    for all of them at once. Prompts are drawn within the first family (in the order of families)
    that has them, so families that share none keep their sizes.
    """
    homes: dict[str, Family] = {}
    for deltas in sorted(families, key=lambda one: FAMILIES.index(one.family)):
        for stem in deltas.stems:
            homes.setdefault(stem, deltas.family)
    columns: dict[str, IntArray] = {}
    for home in FAMILIES:
        stems = sorted(stem for stem, family in homes.items() if family == home)
        if stems:
            columns.update(zip(stems, draws.weights(home, len(stems)).T, strict=True))
    return {
        deltas.family: np.stack([columns[stem] for stem in deltas.stems], axis=1)
        for deltas in families
        if deltas.stems
    }


def against_anchor(
    deltas: FamilyDeltas,
    anchor: FamilyDeltas,
    weights: dict[Family, IntArray],
    settings: VeaSettings,
) -> dict[str, Any] | None:
    """The family's mean less the anchor's, as a share of it, and Cliff's delta of their
    differences; None where either has none.

    The share has no bounds, and is not given, where the anchor's own mean may be 0.
    """
    if not deltas.stems or not anchor.stems:
        return None
    level = settings.confidence_level
    sides = (deltas.deltas, anchor.deltas)
    draws = (weights[deltas.family], weights[anchor.family])
    difference, low, high = difference_of_means(*sides, *draws, level)
    delta, delta_low, delta_high = cliffs_delta_of_two(*sides, *draws, level)
    # An anchor without spread has a mean that is known; without both spreads there is no interval.
    ratio = None
    if low is not None:
        ratio = ratio_of_means(*sides, level, covariance=_covariance(deltas, anchor))
    share, share_low, share_high = ratio or (None, None, None)
    return {
        "difference": difference,
        "low": low,
        "high": high,
        "share_of_anchor": share,
        "share_low": share_low,
        "share_high": share_high,
        "cliffs_delta": delta,
        "cliffs_low": delta_low,
        "cliffs_high": delta_high,
    }


def _covariance(x: FamilyDeltas, y: FamilyDeltas) -> float:
    """Of the two means, from the stems that both have."""
    shared = sorted(set(x.stems) & set(y.stems))
    if len(shared) < 2:
        return 0.0
    x_left, y_left = _left(x, shared), _left(y, shared)
    unbiased = float(x_left @ y_left) * len(shared) / (len(shared) - 1)
    return unbiased / (len(x.stems) * len(y.stems))


def _left(deltas: FamilyDeltas, stems: Sequence[str]) -> FloatArray:
    place = {stem: n for n, stem in enumerate(deltas.stems)}
    values: FloatArray = deltas.deltas[[place[stem] for stem in stems]] - deltas.deltas.mean()
    return values


def _in_unit(sds: float | None, sd: float | None) -> float | None:
    return None if sds is None or sd is None else sds * sd
