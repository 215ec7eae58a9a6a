"""Sizes of paired differences: standardised, and set against another family's.

Shape letters: B resamples, N and M stems of either family.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import scipy.optimize
import scipy.special

from eps_locked.errors import StatsInputError
from eps_locked.stats.checks import FloatArray, finite_vector
from eps_locked.stats.cliff import cliffs_delta
from eps_locked.stats.stem_bootstrap import LEAST_RESAMPLED, expanded_tail

__all__ = [
    "PairedD",
    "cliffs_delta_of_two",
    "difference_of_means",
    "paired_cohens_d",
    "ratio_of_means",
    "weighted_means",
]

Ends = tuple[float | None, float | None]
_NOTHING: Ends = (None, None)
# Differences this much smaller than the values they come from are rounding.
_ROUNDING = 1e-12
# The noncentral t is a mean over normal scores from -8 to 8, in so many steps a unit. Up to a t of
# 10 coarse steps do; then what is averaged turns into a cliff that only fine ones see, and beyond
# 200 the other of the two variables is averaged over, where there is none.
_COARSE, _FINE = 20, 200
_COARSE_UP_TO, _FINE_UP_TO = 10, 200


@dataclass(frozen=True, kw_only=True, slots=True)
class PairedD:
    """``d``: mean over standard deviation (ddof 1) of the differences; ``g``: the same without the
    bias of small samples. ``low`` and ``high`` bound the true value that both estimate."""

    n: int
    d: float
    g: float
    low: float
    high: float
    confidence_level: float


def paired_cohens_d(differences: npt.ArrayLike, confidence_level: float) -> PairedD | None:
    """Cohen's d of paired differences (d_z), Hedges' g, and an exact interval.

    None where it is not defined: fewer than two differences, or all of them equal. The correction
    is the exact one, not 1 - 3 / (4 df - 1). The interval inverts the noncentral t distribution,
    which is exact for normal differences.

    Raises StatsInputError for a difference that is not finite, none at all, or a level outside
    (0, 1).
    Source: Hedges 1981, J. Educ. Stat. 6(2), 107-128; Steiger and Fouladi 1997, in What If There
    Were No Significance Tests, 221-257 (interval).
    """
    values = finite_vector(differences, "differences")
    if not len(values):
        raise StatsInputError("differences", expected="at least one", found=0)
    _require_level(confidence_level)
    if len(values) < 2 or np.ptp(values) <= _ROUNDING * np.abs(values).max():
        return None
    n, freedom = len(values), len(values) - 1
    d = float(values.mean() / values.std(ddof=1))
    t, tail = d * math.sqrt(n), (1 - confidence_level) / 2
    return PairedD(
        n=n,
        d=d,
        g=d * _small_sample_correction(freedom),
        low=_noncentrality(t, freedom, 1 - tail) / math.sqrt(n),
        high=_noncentrality(t, freedom, tail) / math.sqrt(n),
        confidence_level=confidence_level,
    )


def weighted_means(values_N: npt.ArrayLike, weights_BN: npt.ArrayLike) -> FloatArray:
    """Mean of every resample, shape (B,); NaN for one that drew none of these stems."""
    values, weights = finite_vector(values_N, "values_N"), _weights(weights_BN, values_N)
    totals = weights.sum(axis=1)
    means: FloatArray = np.full(len(weights), np.nan)
    np.divide(weights @ values, totals, out=means, where=totals > 0)
    return means


def difference_of_means(
    x_N: npt.ArrayLike,
    y_M: npt.ArrayLike,
    weights_BN: npt.ArrayLike,
    weights_BM: npt.ArrayLike,
    confidence_level: float,
) -> tuple[float, float | None, float | None]:
    """Mean of x minus mean of y with its percentile interval over stems: (value, low, high).

    Row b of both sets of weights is one resample, so that stems which both have are drawn together.
    The percentiles are expanded for the smaller number of stems. No interval (None, None) below
    ``LEAST_RESAMPLED`` stems on a side, or where neither side varies.
    """
    x, y = _side(x_N, "x_N"), _side(y_M, "y_M")
    _require_level(confidence_level)
    resampled = weighted_means(x, weights_BN) - weighted_means(y, weights_BM)
    ends = _percentiles(resampled, min(len(x), len(y)), confidence_level)
    return float(x.mean() - y.mean()), *ends


def cliffs_delta_of_two(
    x_N: npt.ArrayLike,
    y_M: npt.ArrayLike,
    weights_BN: npt.ArrayLike,
    weights_BM: npt.ArrayLike,
    confidence_level: float,
) -> tuple[float, float | None, float | None]:
    """Cliff's delta of x over y with its interval over stems; weights and ends as
    ``difference_of_means``."""
    x, y = _side(x_N, "x_N"), _side(y_M, "y_M")
    _require_level(confidence_level)
    w_x, w_y = _weights(weights_BN, x), _weights(weights_BM, y)
    signs = np.sign(np.subtract.outer(x, y))
    pairs = w_x.sum(axis=1) * w_y.sum(axis=1)
    deltas: FloatArray = np.full(len(w_x), np.nan)
    np.divide(np.einsum("bm,bm->b", w_x @ signs, w_y), pairs, out=deltas, where=pairs > 0)
    return cliffs_delta(x, y), *_percentiles(deltas, min(len(x), len(y)), confidence_level)


def ratio_of_means(
    x: npt.ArrayLike, y: npt.ArrayLike, confidence_level: float, *, covariance: float = 0.0
) -> tuple[float, float, float] | None:
    """Mean of x over mean of y with Fieller's interval: (ratio, low, high).

    None where the interval of y's own mean holds 0: the ratio has no bounds then. ``covariance`` is
    that of the two means, 0 where they share no stem. Student's quantile is taken with the degrees
    of freedom of the smaller side, which errs towards wide.

    Raises StatsInputError for values that are not finite or a level outside (0, 1).
    Source: Fieller 1954, J. R. Statist. Soc. B 16(2), 175-185.
    """
    above, below = _side(x, "x"), _side(y, "y")
    _require_level(confidence_level)
    freedom = min(len(above), len(below)) - 1
    if freedom < 1:
        return None
    m_x, m_y = float(above.mean()), float(below.mean())
    v_x, v_y = (float(side.var(ddof=1)) / len(side) for side in (above, below))
    reach = float(scipy.special.stdtrit(freedom, (1 + confidence_level) / 2)) ** 2
    # (m_x - q m_y)^2 <= reach (v_x - 2 q covariance + q^2 v_y), solved for q.
    a = m_y**2 - reach * v_y
    b = m_x * m_y - reach * covariance
    c = m_x**2 - reach * v_x
    if a <= _ROUNDING * m_y**2:
        return None
    spread = math.sqrt(max(0.0, b * b - a * c))
    return m_x / m_y, (b - spread) / a, (b + spread) / a


def _small_sample_correction(freedom: int) -> float:
    if freedom < 2:
        # The mean of 1/s does not exist with one degree of freedom: nothing to correct by.
        return 0.0
    gammaln = scipy.special.gammaln
    return float(np.exp(gammaln(freedom / 2) - gammaln((freedom - 1) / 2)) / math.sqrt(freedom / 2))


def _noncentrality(t: float, freedom: int, share: float) -> float:
    """The noncentrality at which ``share`` of the distribution lies up to ``t``.

    That share is P(Z + noncentrality <= t S), Z standard normal and S the estimate of a standard
    deviation of 1.
    """
    if t < 0:
        return -_noncentrality(-t, freedom, 1 - share)
    if t > _FINE_UP_TO:
        nodes, weights = _nodes(_COARSE)

        def off(noncentrality: float) -> float:
            spreads = np.maximum(0.0, noncentrality + nodes) / t
            above = scipy.special.gammaincc(freedom / 2, np.square(spreads) * freedom / 2)
            return float(weights @ above) - share

    else:
        steps = _COARSE if t <= _COARSE_UP_TO else _FINE
        spreads, weights = _estimated_spreads(freedom, steps), _nodes(steps)[1]

        def off(noncentrality: float) -> float:
            return float(weights @ scipy.special.ndtr(t * spreads - noncentrality)) - share

    return _root(off, t, 10 * (1 + t))


@lru_cache(maxsize=2)
def _nodes(steps: int) -> tuple[FloatArray, FloatArray]:
    """Normal scores and their weights."""
    nodes = np.linspace(-8.0, 8.0, 16 * steps + 1)
    weights = np.exp(-np.square(nodes) / 2)
    return nodes, weights / weights.sum()


@lru_cache(maxsize=64)
def _estimated_spreads(freedom: int, steps: int) -> FloatArray:
    """The estimate of a standard deviation of 1 at each of the nodes' quantiles."""
    nodes = _nodes(steps)[0]
    below = scipy.special.gammaincinv(freedom / 2, scipy.special.ndtr(nodes[nodes < 0]))
    above = scipy.special.gammainccinv(freedom / 2, scipy.special.ndtr(-nodes[nodes >= 0]))
    spreads: FloatArray = np.sqrt(2 * np.concatenate([below, above]) / freedom)
    spreads.flags.writeable = False
    return spreads


def _root(falling: Callable[[float], float], middle: float, reach: float) -> float:
    return float(
        scipy.optimize.brentq(falling, middle - reach, middle + reach, xtol=1e-12, rtol=1e-14)
    )


def _percentiles(resampled_B: FloatArray, n_stems: int, confidence_level: float) -> Ends:
    there = resampled_B[~np.isnan(resampled_B)]
    if n_stems < LEAST_RESAMPLED or not len(there):
        return _NOTHING
    if np.ptp(there) <= _ROUNDING * np.abs(there).max():
        return _NOTHING
    tail = expanded_tail(confidence_level, n_stems)
    low, high = np.quantile(there, [tail, 1 - tail], method="linear")
    return float(low), float(high)


def _side(values: npt.ArrayLike, name: str) -> FloatArray:
    side = finite_vector(values, name)
    if not len(side):
        raise StatsInputError(name, expected="at least one value", found=0)
    return side


def _weights(weights_BN: npt.ArrayLike, values_N: npt.ArrayLike) -> FloatArray:
    weights = np.asarray(weights_BN)
    n = len(np.asarray(values_N))
    if weights.ndim != 2 or weights.shape[1] != n or not len(weights):
        raise StatsInputError(
            "weights_BN", expected=f"rows of {n} weights", found=f"shape {weights.shape}"
        )
    return weights.astype(np.float64)


def _require_level(confidence_level: float) -> None:
    if not 0 < confidence_level < 1:
        raise StatsInputError(
            "confidence_level", expected="a number between 0 and 1", found=confidence_level
        )
