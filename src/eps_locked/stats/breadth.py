"""How many families show an effect, and how much that count owes to the prompts that were drawn.

A count of finds has no error of its own, so every resample of stems is tested again, from the
signed-rank tests to the adjustment over families. What comes out is a range of replication: the
scores that other prompts of the same kind could have given. It is not an interval for the share of
families with a true effect, and where an effect is weak it holds the noise of the prompts twice,
once in the sample and once in the resample.

Shape letters: B resamples, F families, S stems of a family.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import scipy.special

from eps_locked.errors import StatsInputError
from eps_locked.stats.checks import BoolArray, FloatArray, finite_vector

__all__ = ["breadth_interval", "resampled_signed_rank", "resampled_verdicts"]


def resampled_verdicts(
    families: Sequence[npt.ArrayLike],
    weights: Sequence[npt.ArrayLike],
    *,
    alpha: float,
    margin: float,
    equivalence_level: float,
) -> BoolArray:
    """Which families each resample finds; shape (B, F).

    families: the differences of each family's stems. weights: for each family how often a resample
    holds each of them, shape (B, S); row b of all families is one resample. A family is found by
    one-sided signed-rank tests adjusted after Benjamini and Hochberg, a mean above 0, and an
    interval (Student's, two-sided, of ``equivalence_level``) that does not end below ``margin``.

    Raises StatsInputError for no family, values that are not finite, or weights that do not fit.
    """
    if not families or len(families) != len(weights):
        raise StatsInputError(
            "families", expected="at least one, each with weights", found=len(families)
        )
    p_BF = np.stack(
        [resampled_signed_rank(one, w) for one, w in zip(families, weights, strict=True)], axis=1
    )
    ends_BF = np.stack(
        [
            _upper_ends(finite_vector(one, "families"), np.asarray(w), equivalence_level)
            for one, w in zip(families, weights, strict=True)
        ],
        axis=1,
    )
    found: BoolArray = (_adjusted(p_BF) <= alpha) & (ends_BF >= margin)
    return found


def breadth_interval(
    found_BF: npt.ArrayLike, score: float, confidence_level: float
) -> tuple[float, float]:
    """Percentiles of the share of families found, widened to hold the ``score`` that was read.

    Ends are shares that resamples gave: between two thirds and five sixths lies no score.
    """
    scores = np.asarray(found_BF, dtype=np.float64).mean(axis=1)
    tail = (1 - confidence_level) / 2
    low = float(np.quantile(scores, tail, method="lower"))
    high = float(np.quantile(scores, 1 - tail, method="higher"))
    return min(low, score), max(high, score)


def resampled_signed_rank(values_S: npt.ArrayLike, weights_BS: npt.ArrayLike) -> FloatArray:
    """One-sided p of each resample's signed-rank test, small where values are positive; shape (B,).

    Normal approximation with Pratt's zeros, the variance that ties leave, and a continuity
    correction: resamples are full of ties, and their p is only compared with a level. 1 where
    nothing but zeros was drawn.
    """
    values, weights = finite_vector(values_S, "values_S"), np.asarray(weights_BS, dtype=np.float64)
    if weights.ndim != 2 or weights.shape[1] != len(values) or not len(values):
        raise StatsInputError(
            "weights_BS",
            expected=f"rows of {max(len(values), 1)} weights",
            found=f"shape {weights.shape}",
        )
    magnitudes, group = np.unique(np.abs(values), return_inverse=True)
    sums = np.zeros((len(values), len(magnitudes)))
    sums[np.arange(len(values)), group] = 1.0
    all_BG = weights @ sums
    positive_BG = weights @ (sums * (values > 0)[:, None])
    # Twice the midrank: what lies below, twice, and the group's own first and last rank.
    ranks_BG = 2 * (np.cumsum(all_BG, axis=1) - all_BG) + all_BG + 1
    ranks_BG[:, magnitudes == 0] = 0.0
    away = (ranks_BG * positive_BG).sum(axis=1) - (ranks_BG * all_BG).sum(axis=1) / 2
    deviation = np.sqrt((ranks_BG**2 * all_BG).sum(axis=1)) / 2
    p: FloatArray = np.ones(len(weights))
    there = deviation > 0
    p[there] = scipy.special.ndtr((1 - away[there]) / deviation[there])
    return p


def _upper_ends(
    values_S: FloatArray, weights_BS: npt.NDArray[np.generic], level: float
) -> FloatArray:
    """Upper end of each resample's interval; -inf for a mean of 0 or less and below two draws."""
    weights = weights_BS.astype(np.float64)
    n = weights.sum(axis=1)
    enough = n >= 2
    ends: FloatArray = np.full(len(weights), -np.inf)
    weights, n = weights[enough], n[enough]
    mean = weights @ values_S / n
    left = np.square(values_S[None, :] - mean[:, None])
    error = np.sqrt((weights * left).sum(axis=1) / (n - 1) / n)
    reach = scipy.special.stdtrit(n - 1, (1 + level) / 2)
    ends[enough] = np.where(mean > 0, mean + reach * error, -np.inf)
    return ends


def _adjusted(p_BF: FloatArray) -> FloatArray:
    """Benjamini and Hochberg's adjustment of every row."""
    n_families = p_BF.shape[1]
    order = np.argsort(p_BF, axis=1, kind="stable")[:, ::-1]
    steps = n_families / np.arange(n_families, 0, -1)
    falling = np.minimum.accumulate(np.take_along_axis(p_BF, order, axis=1) * steps, axis=1)
    adjusted: FloatArray = np.empty_like(p_BF)
    np.put_along_axis(adjusted, order, np.minimum(falling, 1.0), axis=1)
    return adjusted
