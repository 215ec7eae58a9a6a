"""Cliff's delta: how much more often one side's grade is the higher one.

Grades on a scale of 1 to 7 have an order and no unit, and where most replies have the top grade a
mean hides how few are lower. Delta is P(x > y) - P(x < y) over all pairs, from -1 to 1.

Shape letters: S stems, B resamples, G distinct grades.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from eps_locked.errors import StatsInputError
from eps_locked.stats.checks import FloatArray, finite_vector
from eps_locked.stats.stem_bootstrap import LEAST_RESAMPLED, expanded_tail

__all__ = ["cliffs_delta", "stem_cliffs_delta"]


def cliffs_delta(x: npt.ArrayLike, y: npt.ArrayLike) -> float:
    """P(x > y) - P(x < y) over all pairs of an ``x`` and a ``y``; ties count for neither.

    Raises StatsInputError for an empty side or a value that is not finite.
    Source: Cliff 1993, Psychological Bulletin 114(3), 494-509.
    """
    x_N, y_M = _side(x, "x"), _side(y, "y")
    ascending = np.sort(y_M)
    below = np.searchsorted(ascending, x_N, side="left").sum()
    up_to = np.searchsorted(ascending, x_N, side="right").sum()
    n_pairs = len(x_N) * len(y_M)
    # below: pairs with y < x; n_pairs - up_to: pairs with y > x.
    return float(int(below) + int(up_to) - n_pairs) / n_pairs


def stem_cliffs_delta(
    grades_x: Sequence[npt.ArrayLike],
    grades_y: Sequence[npt.ArrayLike],
    weights_BS: npt.ArrayLike,
    confidence_level: float,
) -> tuple[float, float | None, float | None]:
    """Delta of all grades, and its interval over stems: (value, low, high).

    grades_x, grades_y: the grades of every stem on either side, at least one each; the same stems
    in the same order, so that a resample takes a stem's grades on both sides. weights_BS: from
    ``stem_weights``. The interval is the expanded percentile one. No interval (None, None) below
    ``LEAST_RESAMPLED`` stems, and where every resample gives the same delta: a point would claim
    certainty.

    Raises StatsInputError as ``cliffs_delta`` and for sides or weights that do not fit.
    """
    x = [_side(one, "grades_x") for one in grades_x]
    y = [_side(one, "grades_y") for one in grades_y]
    weights = np.asarray(weights_BS)
    if len(x) != len(y) or not x:
        raise StatsInputError("grades_y", expected=f"{max(len(x), 1)} stems", found=len(y))
    if weights.ndim != 2 or weights.shape[1] != len(x) or not len(weights):
        raise StatsInputError(
            "weights_BS", expected=f"rows of {len(x)} weights", found=f"shape {weights.shape}"
        )
    if not 0 < confidence_level < 1:
        raise StatsInputError(
            "confidence_level", expected="a number between 0 and 1", found=confidence_level
        )
    value = cliffs_delta(np.concatenate(x), np.concatenate(y))
    if len(x) < LEAST_RESAMPLED:
        return value, None, None
    grades = np.unique(np.concatenate([*x, *y]))
    counts_x, counts_y = (
        weights.astype(np.float64) @ np.stack([_counts(one, grades) for one in side])
        for side in (x, y)
    )
    deltas = _deltas(counts_x, counts_y)
    if np.ptp(deltas) <= 1e-12:
        return value, None, None
    tail = expanded_tail(confidence_level, len(x))
    low, high = np.quantile(deltas, [tail, 1 - tail], method="linear")
    return value, float(low), float(high)


def _deltas(x_BG: FloatArray, y_BG: FloatArray) -> FloatArray:
    """Shape (B,), from counts of the grades in ascending order."""
    up_to = np.cumsum(y_BG, axis=1)
    total = up_to[:, -1:]
    # Twice the share of y below a grade, ties by half, less one.
    lead = 2 * up_to - y_BG - total
    deltas: FloatArray = (x_BG * lead).sum(axis=1) / (x_BG.sum(axis=1) * total[:, 0])
    return deltas


def _counts(values: FloatArray, grades_G: FloatArray) -> FloatArray:
    return np.bincount(np.searchsorted(grades_G, values), minlength=len(grades_G)).astype(
        np.float64
    )


def _side(values: npt.ArrayLike, name: str) -> FloatArray:
    side = finite_vector(values, name)
    if not len(side):
        raise StatsInputError(
            name,
            expected="at least one grade",
            found=0,
            next_step="leave out the stems that a side has no grade for",
        )
    return side
