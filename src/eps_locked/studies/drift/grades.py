"""The graded scale, 1 to 7, beside the classes: mean difference, Cliff's delta, and the ceiling."""

from __future__ import annotations

from typing import Any

import numpy as np

from eps_locked.stats.cliff import stem_cliffs_delta
from eps_locked.stats.equivalence import equivalence_bound
from eps_locked.studies.drift.outcomes import GRADE_CHANGE, Study, cell_means, effects_over_stems
from eps_locked.studies.drift.table import TOP_GRADE, BatteryTable

__all__ = ["grade_entry"]


def grade_entry(
    study: Study, table: BatteryTable, arm: int, reference: int
) -> dict[str, Any] | None:
    """Arm minus reference in grades, over the stems graded in both; None where there are none.

    Cliff's delta is the chance that a reply of the arm has the higher grade, less the chance of the
    lower one. ``ceiling_share``: of the reference's graded replies, those that have the top grade
    and so could show no drift upwards; where most do, small drifts downwards are squeezed as well.
    """
    grades = table.grade[[arm, reference]]
    means_S = cell_means(grades, (2, 3))
    there = ~np.isnan(means_S).any(axis=0)
    if not there.any():
        return None
    settings, name = study.settings, table.battery.name
    levels = [settings.confidence_level, settings.equivalence_level]
    difference_S = np.where(there, means_S[0] - means_S[1], np.nan)
    effects = effects_over_stems(difference_S[None], study.draws, name, levels, GRADE_CHANGE)[0]
    assert effects is not None
    at_confidence, at_equivalence = effects
    of_arm, of_reference = (
        [one[~np.isnan(one)] for one in side[there].reshape(int(there.sum()), -1)]
        for side in grades
    )
    weights = study.draws.weights(name, int(there.sum()))
    delta, low, high = stem_cliffs_delta(of_arm, of_reference, weights, settings.confidence_level)
    bound = None
    if at_equivalence.low is not None and at_equivalence.high is not None:
        bound = equivalence_bound(at_equivalence.low, at_equivalence.high)
    graded = grades[1][~np.isnan(grades[1])]
    return {
        "n_stems": at_confidence.n_stems,
        "difference": at_confidence.mean,
        "low": at_confidence.low,
        "high": at_confidence.high,
        "cliffs_delta": delta,
        "cliffs_low": low,
        "cliffs_high": high,
        "margin": settings.margin_grade,
        "equivalence_bound": bound,
        "within_margin": bound is not None and bound <= settings.margin_grade,
        "ceiling_share": float((graded == TOP_GRADE).mean()),
    }
