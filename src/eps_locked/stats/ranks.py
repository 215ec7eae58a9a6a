"""Rank correlation, for one pair of columns, for many permutations, and for many resamples.

Shape letters: N cells, B resamples or permutations.

A correlation with a constant is undefined. For one pair the answer is then ``None``; in an array
of resamples it is NaN, because a resample without an answer must not be counted as a correlation
of 0, and whoever takes percentiles has to see how many there are.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from eps_locked.errors import StatsInputError
from eps_locked.stats.checks import FloatArray, finite_matrix, finite_vector

__all__ = [
    "average_ranks",
    "pearson",
    "spearman",
    "spearman_rows",
    "weighted_spearman",
]

_LEAST_POINTS = 3


def spearman(x: npt.ArrayLike, y: npt.ArrayLike) -> float | None:
    """Spearman's rank correlation, ties by average ranks; None when a side is constant.

    Raises StatsInputError for fewer than 3 points (two always agree or disagree perfectly), for
    values that are not finite, and for unequal lengths.
    """
    x_N, y_N = _pair(x, y)
    value = float(spearman_rows(x_N[None, :], y_N)[0])
    return None if np.isnan(value) else value


def spearman_rows(x_BN: npt.ArrayLike, y_N: npt.ArrayLike) -> FloatArray:
    """``spearman`` of every row of ``x_BN`` with ``y_N``; shape (B,), NaN where a side is constant.

    For permutation nulls: row b is the predictor under relabelling b. Raises as ``spearman``.
    """
    rows, y = finite_matrix(x_BN, "x_BN"), finite_vector(y_N, "y_N")
    _require_length(rows.shape[1], len(y))
    # Centred ranks are whole or half numbers, so the sums below are exact in doubles and a
    # constant side has a spread of exactly 0.
    centre = (len(y) + 1) / 2
    ranks_BN, ranks_N = average_ranks(rows) - centre, average_ranks(y) - centre
    spread = np.einsum("bn,bn->b", ranks_BN, ranks_BN) * (ranks_N @ ranks_N)
    return _ratio(ranks_BN @ ranks_N, np.sqrt(spread))


def pearson(x: npt.ArrayLike, y: npt.ArrayLike) -> float | None:
    """Pearson's correlation; None when a side is constant. Raises as ``spearman``."""
    x_N, y_N = _pair(x, y)
    if np.ptp(x_N) == 0 or np.ptp(y_N) == 0:
        return None
    # Scaled first: squares of very large or very small values would overflow or vanish.
    u = (x_N - x_N.mean()) / np.ptp(x_N)
    v = (y_N - y_N.mean()) / np.ptp(y_N)
    value = float(u @ v) / float(np.sqrt((u @ u) * (v @ v)))
    return min(1.0, max(-1.0, value))


def weighted_spearman(x: npt.ArrayLike, y: npt.ArrayLike, weights_BN: npt.ArrayLike) -> FloatArray:
    """Spearman's correlation of B resamples, each given by how often it holds each of N points.

    weights_BN: shape (B, N), at least 0; a bootstrap's counts. Equals ``spearman`` of the sample
    in which point n stands weights_BN[b, n] times, without making that sample: its average ranks
    are weighted mid-ranks (the weight below, plus half the weight at the value, plus one half,
    which drops out). Weights need not be whole; multiplying a row by a constant changes nothing.

    Returns shape (B,). NaN in a row that gives weight to fewer than two distinct values of x or
    of y. Raises StatsInputError as ``spearman``, and for a weight that is negative or not finite.
    """
    x_N, y_N = _pair(x, y)
    weights = finite_matrix(weights_BN, "weights_BN")
    if weights.shape[1] != len(x_N):
        raise StatsInputError("weights_BN", expected=f"{len(x_N)} columns", found=weights.shape[1])
    if weights.size and weights.min() < 0:
        raise StatsInputError("weights_BN", expected="weights of 0 or more", found=weights.min())
    weights_NB = np.ascontiguousarray(weights.T)
    rank_x, spread_x = _centred_mid_ranks(x_N, weights_NB)
    rank_y, spread_y = _centred_mid_ranks(y_N, weights_NB)
    rank_x *= weights_NB
    return _ratio(np.einsum("nb,nb->b", rank_x, rank_y), np.sqrt(spread_x * spread_y))


def _centred_mid_ranks(x_N: FloatArray, weights_NB: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Weighted mid-ranks less their weighted mean, shape (N, B), and their weighted squares' sum.

    The weighted mean of mid-ranks is half the total weight, whatever the ties. A resample with one
    value only gets ranks of exactly 0, also where rounding of uneven weights could leave dust: its
    total is then that value's weight to the last digit.
    """
    order = np.argsort(x_N, kind="stable")
    ascending = x_N[order]
    starts = np.flatnonzero(np.concatenate(([True], ascending[1:] != ascending[:-1])))
    rank_NB = np.empty_like(weights_NB)
    below = np.zeros(weights_NB.shape[1])
    # A loop over values with whole rows of resamples inside is faster than a cumsum down columns.
    for equals in np.split(order, starts[1:]):
        is_tied = len(equals) > 1
        here = weights_NB[equals].sum(axis=0) if is_tied else weights_NB[equals[0]]
        rank_NB[equals if is_tied else equals[0]] = below + here / 2
        below += here
    rank_NB -= below / 2
    return rank_NB, np.einsum("nb,nb,nb->b", rank_NB, rank_NB, weights_NB)


def average_ranks(x: FloatArray) -> FloatArray:
    """Ranks from 1 along the last axis; equal values share the mean of the ranks they fill."""
    order = np.argsort(x, axis=-1, kind="stable")
    ascending = np.take_along_axis(x, order, axis=-1)
    n = x.shape[-1]
    differs = ascending[..., 1:] != ascending[..., :-1]
    edge = np.ones((*x.shape[:-1], 1), dtype=bool)
    place = np.broadcast_to(np.arange(n), x.shape)
    first = np.maximum.accumulate(
        np.where(np.concatenate((edge, differs), axis=-1), place, 0), axis=-1
    )
    last_reversed = np.where(np.concatenate((differs, edge), axis=-1), place, n)[..., ::-1]
    last = np.minimum.accumulate(last_reversed, axis=-1)[..., ::-1]
    ranks = np.empty(x.shape, dtype=np.float64)
    np.put_along_axis(ranks, order, (first + last) / 2 + 1, axis=-1)
    return ranks


def _ratio(covariance: FloatArray, spread: FloatArray) -> FloatArray:
    result = np.full(covariance.shape, np.nan)
    np.divide(covariance, spread, out=result, where=spread > 0)
    return np.clip(result, -1.0, 1.0, out=result)


def _pair(x: npt.ArrayLike, y: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
    x_N, y_N = finite_vector(x, "x"), finite_vector(y, "y")
    _require_length(len(x_N), len(y_N))
    return x_N, y_N


def _require_length(n_x: int, n_y: int) -> None:
    if n_x != n_y:
        raise StatsInputError("y", expected=f"{n_x} values, as in x", found=n_y)
    if n_x < _LEAST_POINTS:
        raise StatsInputError("x", expected=f"at least {_LEAST_POINTS} points", found=n_x)
