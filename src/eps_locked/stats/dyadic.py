"""Intervals for scores over tables of cells (i -> j) whose cells share contexts.

A score on 16 x 29 cells rests on 29 contexts, not on 448 cells: cells of one row or column rise
and fall together, and a bootstrap that draws cells as if they were independent held the truth of a
row-dominated table in about a third of simulated tables, at a nominal 95 %. What is asked here is
how the score would come out on another draw of contexts of the same kind; the truth is its value
on a huge table.

What ships, for every score:

1. The scale: Fisher's z for Spearman, log(1 - R2) for R2, none for differences.
2. The jackknife over contexts. Context k leaves with its row and its column; the kinds (in both
   roles, only trained, only evaluated) are strata. For what contexts contribute, it is right even
   for few of them. What belongs to single cells it counts twice, once in the row and once in the
   column.
3. So the cells' own share is taken off again: from the influence of each cell on the score, less
   its row and column means, come the variance v of a cell's residual and its covariance c with the
   mirror cell j -> i, and from those what they add to the jackknife (J) and what they truly add to
   the score's variance (R). The variance is  jackknife - 0.85 (J - R),  at least R / 2.
4. t quantiles. Degrees of freedom by Satterthwaite's formula from 0.6 (n - 1) for each kind of
   contexts and those of the residual, at most n - 1 of the larger kind.

Full correction (1, not 0.85) with the floor R and n - 1 degrees of freedom is what theory says for
normal parts. The three constants allow for skew and for the correction's own noise; they were
chosen by simulation, on other draws than those below, as the ones that serve all scores alike.

Measured (``python -m benchmarks coverage``; four generators x four pairs of predictor strengths,
4,800 tables a design; the range is over generators, 1,200 tables each, simulation error 0.6 %):

    nominal 95 %                      Spearman        R2 from 0.1     difference of R2
    16 x 29                           95.4 (95-96)    95.2 (93-96)    95.3 (94-96)
    16 x 16                           94.9 (94-96)    94.5 (94-95)    94.6 (94-95)
    16 x 21 less a fifth              95.0 (93-97)    94.1 (94-95)    94.7 (93-95)
    that fifth and 8 new columns      95.2 (95-96)    95.2 (94-96)    95.5 (95-96)
    8 x 16                            95.6 (95-96)    94.8 (94-96)    95.5 (95-96)
    4 x 10                            96.2 (93-97)    94.4 (91-96)    96.2 (96-97)

The 20th look, nominal 99.75 %, held in 99.4 to 99.9 %. Where R2 is near 0 the interval is too wide
(96 to 98 % below 0.1, 99 to 100 % for a constant). Plain percentiles of the bootstrap over
contexts held Spearman in 91 % (a table of rows), 96 % (mixed) and 99.7 % (noise); they are given in
``bootstrap`` for comparison. Drawing cells as if independent: 32, 69 and 94 %.

The weakest single cases, on 2,000 tables of their own: Spearman of a middling predictor (strength
0.5) on a mixed or latent 16 x 21 table less a fifth, 93.1 %.

Predictions fitted in folds of the very table they are scored on. Another draw of contexts would
also move the fit, which an interval that takes predictions as given cannot see: it held the mean
R2 of such fits in 83 to 95 %, and the mean difference in 87 to 95 %. ``line_r2_without_contexts``
does the fits again without each context; handed over as ``refitted_K`` it brings differences to
95 % (91 to 97) and R2 itself to 95 % (90 to 99). (600 tables a case, three generators and three
strengths, 16 x 29 and 16 x 16.) Such an R2 is that of lines fitted on so few contexts; the best
line's is higher, and no such interval speaks of it.

Shape letters: N cells, K contexts, B resamples, P row and column effects.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy.special
import scipy.stats

from eps_locked.errors import StatsInputError
from eps_locked.stats.bootstrap import Interval
from eps_locked.stats.checks import finite_vector
from eps_locked.stats.ranks import average_ranks, spearman, weighted_spearman

__all__ = [
    "MAX_LOOKS",
    "ScoreInterval",
    "SimulatedCoverage",
    "line_r2_without_contexts",
    "node_weights",
    "r2_difference_interval",
    "r2_interval",
    "spearman_difference_interval",
    "spearman_interval",
]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

MAX_LOOKS = 20
# Fewer contexts of a kind leave no jackknife to speak of.
_LEAST_CONTEXTS = 3
_LEAST_CELLS = 6
# The constants chosen by simulation; see the head of this file.
_EXCESS_TAKEN_OFF = 0.85
_RESIDUAL_FLOOR = 0.5
_CONTEXT_DF_SHARE = 0.6
_TINY = 1e-12

# What ``python -m benchmarks coverage`` measured: (score, design) to the share of intervals that
# held the truth, over all cases and in the lowest and highest of the generators (of the cases, for
# fits in folds). The benchmark prints these very figures.
_COVERAGE = {
    ("Spearman", "16 x 29"): (0.954, 0.947, 0.963),
    ("Spearman", "16 x 16"): (0.949, 0.940, 0.957),
    ("Spearman", "16 x 21 less a fifth in mirror pairs"): (0.950, 0.932, 0.966),
    ("Spearman", "that fifth and 8 new columns"): (0.952, 0.950, 0.956),
    ("Spearman", "16 x 8 new columns"): (0.954, 0.948, 0.964),
    ("Spearman", "8 x 16"): (0.956, 0.948, 0.964),
    ("Spearman", "4 x 10"): (0.962, 0.932, 0.973),
    ("difference of Spearman", "16 x 29"): (0.949, 0.946, 0.953),
    ("difference of Spearman", "16 x 16"): (0.946, 0.934, 0.952),
    ("difference of Spearman", "16 x 21 less a fifth in mirror pairs"): (0.948, 0.935, 0.958),
    ("difference of Spearman", "that fifth and 8 new columns"): (0.955, 0.948, 0.961),
    ("difference of Spearman", "16 x 8 new columns"): (0.953, 0.942, 0.966),
    ("difference of Spearman", "8 x 16"): (0.954, 0.942, 0.962),
    ("difference of Spearman", "4 x 10"): (0.956, 0.943, 0.963),
    ("R2", "16 x 29"): (0.952, 0.930, 0.959),
    ("R2", "16 x 16"): (0.945, 0.942, 0.948),
    ("R2", "16 x 21 less a fifth in mirror pairs"): (0.941, 0.937, 0.948),
    ("R2", "that fifth and 8 new columns"): (0.952, 0.943, 0.958),
    ("R2", "16 x 8 new columns"): (0.952, 0.947, 0.956),
    ("R2", "8 x 16"): (0.948, 0.939, 0.956),
    ("R2", "4 x 10"): (0.944, 0.908, 0.960),
    ("R2 below 0.1", "16 x 29"): (0.956, 0.930, 0.987),
    ("R2 below 0.1", "16 x 16"): (0.957, 0.943, 0.973),
    ("R2 below 0.1", "16 x 21 less a fifth in mirror pairs"): (0.958, 0.942, 0.980),
    ("R2 below 0.1", "that fifth and 8 new columns"): (0.963, 0.950, 0.970),
    ("R2 below 0.1", "16 x 8 new columns"): (0.973, 0.965, 0.990),
    ("R2 below 0.1", "8 x 16"): (0.978, 0.967, 0.983),
    ("R2 below 0.1", "4 x 10"): (0.970, 0.957, 0.980),
    ("R2 of a constant", "16 x 29"): (1.000, 1.000, 1.000),
    ("R2 of a constant", "16 x 16"): (0.998, 0.997, 1.000),
    ("R2 of a constant", "16 x 21 less a fifth in mirror pairs"): (0.997, 0.993, 1.000),
    ("R2 of a constant", "that fifth and 8 new columns"): (0.997, 0.993, 1.000),
    ("R2 of a constant", "16 x 8 new columns"): (0.998, 0.997, 1.000),
    ("R2 of a constant", "8 x 16"): (0.993, 0.987, 0.997),
    ("R2 of a constant", "4 x 10"): (0.987, 0.963, 1.000),
    ("difference of R2", "16 x 29"): (0.953, 0.942, 0.960),
    ("difference of R2", "16 x 16"): (0.946, 0.939, 0.950),
    ("difference of R2", "16 x 21 less a fifth in mirror pairs"): (0.947, 0.935, 0.952),
    ("difference of R2", "that fifth and 8 new columns"): (0.955, 0.950, 0.965),
    ("difference of R2", "16 x 8 new columns"): (0.954, 0.946, 0.961),
    ("difference of R2", "8 x 16"): (0.955, 0.952, 0.960),
    ("difference of R2", "4 x 10"): (0.962, 0.957, 0.969),
    ("R2, fitted in folds", "16 x 29"): (0.914, 0.855, 0.930),
    ("R2, fitted in folds", "16 x 16"): (0.901, 0.828, 0.952),
    ("R2, fitted in folds and refitted", "16 x 29"): (0.950, 0.915, 0.992),
    ("R2, fitted in folds and refitted", "16 x 16"): (0.949, 0.898, 0.990),
    ("difference of R2, fitted in folds", "16 x 29"): (0.918, 0.903, 0.953),
    ("difference of R2, fitted in folds", "16 x 16"): (0.904, 0.873, 0.953),
    ("difference of R2, fitted in folds and refitted", "16 x 29"): (0.945, 0.915, 0.967),
    ("difference of R2, fitted in folds and refitted", "16 x 16"): (0.954, 0.945, 0.960),
}
# Trained contexts, evaluated contexts and cells of the designs simulated.
_SIMULATED = {
    "16 x 29": (16, 29, 448),
    "16 x 16": (16, 16, 240),
    "16 x 21 less a fifth in mirror pairs": (16, 21, 256),
    "that fifth and 8 new columns": (16, 29, 192),
    "16 x 8 new columns": (16, 8, 128),
    "8 x 16": (8, 16, 120),
    "4 x 10": (4, 10, 36),
}
# 2.6 standard errors of a share near 0.95 of 1,200 tables.
_SIMULATION_ERROR = 0.0164


@dataclass(frozen=True, kw_only=True, slots=True)
class SimulatedCoverage:
    """How often the interval held the truth in simulation, of a nominal 0.95.

    ``value`` is the mean over what was tried for the nearest design, ``lowest`` and ``highest`` the
    extremes; ``what`` says in words what was simulated. ``reached``: the mean is within 0.935 ..
    0.965 and no extreme beyond that by more than the simulation's error. Where it is False, print
    this beside the interval.
    """

    value: float
    lowest: float
    highest: float
    nominal: float
    what: str
    reached: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoreInterval:
    """A score with its interval, and the intervals that hold over several looks.

    ``levels``: (k, low, high) at confidence 1 - (1 - confidence_level) / k for k = 1 .. 20, the
    Bonferroni reading of the k-th look. ``standard_error`` and ``degrees_of_freedom`` belong to
    the scale the interval is symmetric on (``method`` names it). ``bootstrap`` is the percentile
    interval of the plain bootstrap over contexts, for comparison; None without resamples.
    """

    value: float
    low: float
    high: float
    confidence_level: float
    levels: tuple[tuple[int, float, float], ...]
    method: str
    standard_error: float
    degrees_of_freedom: float
    n_cells: int
    n_contexts: int
    simulated_coverage: SimulatedCoverage
    bootstrap: Interval | None


def node_weights(
    train_N: npt.ArrayLike,
    eval_N: npt.ArrayLike,
    *,
    rng: np.random.Generator,
    n_resamples: int,
) -> FloatArray:
    """How often each resample of the *contexts* holds each cell; shape (B, N).

    Contexts are drawn with replacement within their kind (in both roles, only trained, only
    evaluated), so every resample has the table's shape. With m_i how often context i was drawn,
    cell (i, j) counts m_i * m_j times and cell (i, i) m_i times: a context drawn twice makes no
    cell with its own copy. Source: Davezies, D'Haultfoeuille & Guyonvarch 2021, Ann. Stat. 49(2).
    """
    design = _Design.build(train_N, eval_N, None)
    if n_resamples < 1:
        raise StatsInputError("n_resamples", expected="at least 1", found=n_resamples)
    return _node_weights(design, rng, n_resamples)


def spearman_interval(
    x: npt.ArrayLike,
    y: npt.ArrayLike,
    train_N: npt.ArrayLike,
    eval_N: npt.ArrayLike,
    *,
    rng: np.random.Generator,
    n_resamples: int,
    confidence_level: float,
    stratum_N: npt.ArrayLike | None = None,
) -> ScoreInterval | None:
    """Spearman's correlation over the cells, with an interval on Fisher's z scale.

    train_N, eval_N: integer context ids (hand over group ids where aliases count as one context).
    stratum_N: integer behaviour of each cell where several behaviours are pooled.

    None where the score or its jackknife is not defined: a constant side, now or with one context
    left out, fewer than 6 cells or 3 contexts of a kind. Raises StatsInputError for values that
    are not finite, unequal lengths, or ids that are not integers.
    """
    design = _Design.build(train_N, eval_N, stratum_N)
    x_N, y_N = _column(x, "x", design), _column(y, "y", design)

    def score(weights_BN: FloatArray) -> FloatArray:
        return weighted_spearman(x_N, y_N, weights_BN)

    value = spearman(x_N, y_N) if design.allows_an_interval else None
    if value is None:
        return None
    # Fisher's z of 1 is infinite; what stands in for it is half a step above the largest value
    # below 1 that so many untied cells can have.
    top = 1 - 3 / (design.n_cells**3 - design.n_cells)

    def to_scale(r: FloatArray) -> FloatArray:
        return np.arctanh(np.clip(r, -top, top))

    slope = 1 / (1 - min(value**2, top**2))
    return _interval(
        design,
        value=value,
        score=score,
        without_K=_spearman_subsets(x_N, y_N, design.without_KN),
        to_scale=to_scale,
        from_scale=np.tanh,
        influence_N=_spearman_influence(x_N, y_N) * slope,
        rng=rng,
        n_resamples=n_resamples,
        confidence_level=confidence_level,
        method="jackknife over contexts, residual-corrected, t, on Fisher's z",
        statistic="Spearman",
    )


def spearman_difference_interval(
    x_first: npt.ArrayLike,
    x_second: npt.ArrayLike,
    y: npt.ArrayLike,
    train_N: npt.ArrayLike,
    eval_N: npt.ArrayLike,
    *,
    rng: np.random.Generator,
    n_resamples: int,
    confidence_level: float,
    stratum_N: npt.ArrayLike | None = None,
) -> ScoreInterval | None:
    """Spearman of the first predictor less that of the second, on the same cells; paired.

    Orient both predictors first (larger = more transfer). None and errors as
    ``spearman_interval``.
    """
    design = _Design.build(train_N, eval_N, stratum_N)
    y_N = _column(y, "y", design)
    first, second = _column(x_first, "x_first", design), _column(x_second, "x_second", design)

    def score(weights_BN: FloatArray) -> FloatArray:
        return weighted_spearman(first, y_N, weights_BN) - weighted_spearman(
            second, y_N, weights_BN
        )

    if not design.allows_an_interval:
        return None
    value_first, value_second = spearman(first, y_N), spearman(second, y_N)
    if value_first is None or value_second is None:
        return None
    return _interval(
        design,
        value=value_first - value_second,
        score=score,
        without_K=_spearman_subsets(first, y_N, design.without_KN)
        - _spearman_subsets(second, y_N, design.without_KN),
        to_scale=_identity,
        from_scale=_identity,
        influence_N=_spearman_influence(first, y_N) - _spearman_influence(second, y_N),
        rng=rng,
        n_resamples=n_resamples,
        confidence_level=confidence_level,
        method="jackknife over contexts, residual-corrected, t",
        statistic="difference of Spearman",
        bounds=(-2.0, 2.0),
    )


def r2_interval(
    y: npt.ArrayLike,
    predicted: npt.ArrayLike,
    train_N: npt.ArrayLike,
    eval_N: npt.ArrayLike,
    *,
    rng: np.random.Generator,
    n_resamples: int,
    confidence_level: float,
    stratum_N: npt.ArrayLike | None = None,
    refitted_K: npt.ArrayLike | None = None,
    fitted_elsewhere: bool = False,
) -> ScoreInterval | None:
    """R2 = 1 - SS_res / SS_tot of given predictions (out of fold), on the scale log(1 - R2).

    fitted_elsewhere: the predictions come from other data (a line fitted on open cells, for cells
    that were held back). Otherwise they are taken to be fitted in folds of this table, and
    refitted_K should say what R2 all the fits give when context k is left out of everything, in
    ascending order of ids (``line_r2_without_contexts``); without it the interval takes the
    predictions as given and is too narrow, as ``simulated_coverage`` will say.

    Other arguments, None and errors as ``spearman_interval``; None also where a refit has no R2.
    """
    design = _Design.build(train_N, eval_N, stratum_N)
    y_N, p_N = _column(y, "y", design), _column(predicted, "predicted", design)
    deviation = y_N - y_N.mean()
    total = float(np.mean(deviation**2))
    error = (y_N - p_N) ** 2
    if not design.allows_an_interval or not total > 0:
        return None
    unit = math.sqrt(total)
    scores = _r2_scores(deviation / unit, [error / total])

    def score(weights_BN: FloatArray) -> FloatArray:
        return scores(weights_BN)[0]

    def to_scale(r2: FloatArray) -> FloatArray:
        return np.asarray(np.log(np.maximum(1 - r2, _TINY)))

    residual = max(float(error.mean()), _TINY * total)
    spread = float(np.var(p_N)) / total
    near_zero = "R2" if spread >= 0.1 else "R2 below 0.1" if spread >= 0.01 else "R2 of a constant"
    return _interval(
        design,
        value=float(score(np.ones((1, design.n_cells)))[0]),
        score=score,
        without_K=_without(refitted_K, score, design),
        to_scale=to_scale,
        from_scale=lambda z: 1 - np.exp(z),
        influence_N=error / residual - deviation**2 / total,
        rng=rng,
        n_resamples=n_resamples,
        confidence_level=confidence_level,
        method="jackknife over contexts, residual-corrected, t, on log(1 - R2)",
        statistic=_fit(near_zero if fitted_elsewhere else "R2", refitted_K, fitted_elsewhere),
    )


def r2_difference_interval(
    y: npt.ArrayLike,
    first: npt.ArrayLike,
    second: npt.ArrayLike,
    train_N: npt.ArrayLike,
    eval_N: npt.ArrayLike,
    *,
    rng: np.random.Generator,
    n_resamples: int,
    confidence_level: float,
    stratum_N: npt.ArrayLike | None = None,
    refitted_K: npt.ArrayLike | None = None,
    fitted_elsewhere: bool = False,
) -> ScoreInterval | None:
    """R2 of the first predictions less R2 of the second, on the same cells; paired.

    refitted_K: the difference without each context, fits done again. Equal predictions give 0 with
    an interval of no width. Other arguments, None and errors as ``r2_interval``.
    """
    design = _Design.build(train_N, eval_N, stratum_N)
    y_N = _column(y, "y", design)
    p_N, q_N = _column(first, "first", design), _column(second, "second", design)
    deviation = y_N - y_N.mean()
    total = float(np.mean(deviation**2))
    if not design.allows_an_interval or not total > 0:
        return None
    unit = math.sqrt(total)
    errors = [(y_N - p_N) ** 2 / total, (y_N - q_N) ** 2 / total]
    scores = _r2_scores(deviation / unit, errors)

    def score(weights_BN: FloatArray) -> FloatArray:
        r2 = scores(weights_BN)
        return r2[0] - r2[1]

    gain = errors[1] - errors[0]
    return _interval(
        design,
        value=float(score(np.ones((1, design.n_cells)))[0]),
        score=score,
        without_K=_without(refitted_K, score, design),
        to_scale=_identity,
        from_scale=_identity,
        influence_N=gain - float(gain.mean()) * deviation**2 / total,
        rng=rng,
        n_resamples=n_resamples,
        confidence_level=confidence_level,
        method="jackknife over contexts, residual-corrected, t",
        statistic=_fit("difference of R2", refitted_K, fitted_elsewhere),
    )


def line_r2_without_contexts(
    x: npt.ArrayLike, y: npt.ArrayLike, train_N: npt.ArrayLike, eval_N: npt.ArrayLike
) -> FloatArray:
    """R2 of leave-two-contexts-out lines y ~ x, all of it done again without each context; (K,).

    The predictions scored are those of ``folds.leave_two_contexts_out``: cell i -> j by the least
    squares line through the cells that touch neither i nor j (a diagonal cell: not i). Entry k is
    their R2 when context k (ascending ids) has never existed. From sums over the cells that touch
    one context or two, so no line is fitted twice. NaN where a fit has no cells. A fit in which x
    does not vary predicts the mean.

    For a difference, subtract the results of both predictors.
    """
    design = _Design.build(train_N, eval_N, None)
    x_N, y_N = _column(x, "x", design), _column(y, "y", design)
    # Sums of squares lose fewer digits around 0, and R2 does not mind where that is.
    x_N, y_N = x_N - x_N.mean(), y_N - y_N.mean()
    row, column, n_contexts = design.row_N, design.column_N, design.n_contexts
    terms = np.stack([np.ones_like(x_N), x_N, y_N, x_N * x_N, x_N * y_N], axis=1)
    pair = np.zeros((n_contexts, n_contexts, 5))
    np.add.at(pair, (row, column), terms)
    off = row != column
    np.add.at(pair, (column[off], row[off]), terms[off])
    own = pair.sum(axis=1)
    place = np.arange(n_contexts)
    pair[place, place] = own  # the cells that touch i and i are those that touch i
    both = np.where(off[:, None], own[row] + own[column] - pair[row, column], own[row])
    scores = np.full(n_contexts, np.nan)
    for k in range(n_contexts):
        here = (row != k) & (column != k)
        if not here.any():
            continue
        i, j = row[here], column[here]
        touching_k = own[k] - np.where((i != j)[:, None], pair[i, k] + pair[j, k], pair[i, k])
        n, sum_x, sum_y, sum_xx, sum_xy = (terms.sum(axis=0) - both[here] - touching_k).T
        if (n < 1).any():
            continue
        spread = sum_xx - sum_x**2 / n
        varies = spread > 1e-9 * np.maximum(sum_xx, _TINY)
        slope = np.where(varies, (sum_xy - sum_x * sum_y / n) / np.where(varies, spread, 1.0), 0.0)
        predicted = sum_y / n + slope * (x_N[here] - sum_x / n)
        total = np.square(y_N[here] - y_N[here].mean()).sum()
        if total > 0:
            scores[k] = 1 - np.square(y_N[here] - predicted).sum() / total
    return scores


def _without(
    refitted_K: npt.ArrayLike | None,
    score: Callable[[FloatArray], FloatArray],
    design: _Design,
) -> FloatArray:
    if refitted_K is None:
        return score(design.without_KN)
    refitted = np.asarray(refitted_K, dtype=np.float64)
    if refitted.shape != (design.n_contexts,):
        raise StatsInputError(
            "refitted_K", expected=f"{design.n_contexts} values", found=refitted.shape
        )
    return refitted


def _fit(score: str, refitted_K: npt.ArrayLike | None, fitted_elsewhere: bool) -> str:
    if fitted_elsewhere:
        return score
    return f"{score}, fitted in folds" + ("" if refitted_K is None else " and refitted")


def _interval(
    design: _Design,
    *,
    value: float,
    score: Callable[[FloatArray], FloatArray],
    without_K: FloatArray,
    to_scale: Callable[[FloatArray], FloatArray],
    from_scale: Callable[[FloatArray], FloatArray],
    influence_N: FloatArray,
    rng: np.random.Generator,
    n_resamples: int,
    confidence_level: float,
    method: str,
    statistic: str,
    bounds: tuple[float, float] = (-math.inf, math.inf),
) -> ScoreInterval | None:
    if not 0 < confidence_level < 1:
        raise StatsInputError(
            "confidence_level", expected="a number between 0 and 1", found=confidence_level
        )
    if n_resamples < 0:
        raise StatsInputError("n_resamples", expected="at least 0", found=n_resamples)
    if not (math.isfinite(value) and np.isfinite(without_K).all()):
        return None
    centre, leaving = float(to_scale(np.array([value]))[0]), to_scale(without_K)
    variance, df = design.variance(leaving, influence_N)
    # A perfect score, or a difference of a predictor with itself: whatever leaves, it stays.
    error = 0.0 if (leaving == centre).all() else math.sqrt(variance)
    looks = np.arange(1, MAX_LOOKS + 1)
    reach = error * scipy.stats.t.ppf(1 - (1 - confidence_level) / (2 * looks), df)
    ends = np.sort(from_scale(centre + np.array([-1.0, 1.0])[:, None] * reach), axis=0)
    if error == 0:
        ends[:] = value
    low, high = np.clip(ends, *bounds)
    return ScoreInterval(
        value=value,
        low=float(low[0]),
        high=float(high[0]),
        confidence_level=confidence_level,
        levels=tuple(
            (int(k), float(a), float(b)) for k, a, b in zip(looks, low, high, strict=True)
        ),
        method=method,
        standard_error=error,
        degrees_of_freedom=df,
        n_cells=design.n_cells,
        n_contexts=design.n_contexts,
        simulated_coverage=_nearest_coverage(statistic, design),
        bootstrap=_percentiles(design, score, rng, n_resamples, confidence_level),
    )


def _percentiles(
    design: _Design,
    score: Callable[[FloatArray], FloatArray],
    rng: np.random.Generator,
    n_resamples: int,
    confidence_level: float,
) -> Interval | None:
    """Plain percentile bootstrap over contexts; resamples without a score are left out."""
    if n_resamples == 0:
        return None
    scores = score(_node_weights(design, rng, n_resamples))
    scores = scores[np.isfinite(scores)]
    if len(scores) == 0:
        return None
    tail = (1 - confidence_level) / 2
    low, high = np.quantile(scores, [tail, 1 - tail], method="linear")
    return Interval(
        low=float(low),
        high=float(high),
        confidence_level=confidence_level,
        n_resamples=len(scores),
        method="percentile bootstrap over contexts",
    )


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Design:
    """Which cells share which contexts, and what the jackknife needs to know of it.

    ``kinds_H``: positions of the contexts of each kind. ``without_KN``: 1 where a cell stays when
    context k leaves. ``basis_NP``: orthonormal columns spanning row and column effects (of each
    stratum). ``dyad_N``: number of the unordered pair a cell belongs to.
    """

    n_cells: int
    n_contexts: int
    n_trained: int
    n_evaluated: int
    kinds: tuple[IntArray, ...]
    row_N: IntArray
    column_N: IntArray
    without_KN: FloatArray
    stratum_N: IntArray

    @classmethod
    def build(
        cls, train_N: npt.ArrayLike, eval_N: npt.ArrayLike, stratum_N: npt.ArrayLike | None
    ) -> _Design:
        train, evaluated = _ids(train_N, "train_N"), _ids(eval_N, "eval_N")
        if len(train) != len(evaluated):
            raise StatsInputError("eval_N", expected=f"{len(train)} ids", found=len(evaluated))
        stratum = np.zeros_like(train) if stratum_N is None else _ids(stratum_N, "stratum_N")
        if len(stratum) != len(train):
            raise StatsInputError("stratum_N", expected=f"{len(train)} ids", found=len(stratum))
        contexts = np.unique(np.concatenate([train, evaluated]))
        is_train, is_eval = np.isin(contexts, train), np.isin(contexts, evaluated)
        kinds = (is_train & is_eval, is_train & ~is_eval, ~is_train & is_eval)
        row, column = np.searchsorted(contexts, train), np.searchsorted(contexts, evaluated)
        touched = np.zeros((len(contexts), len(train)), dtype=bool)
        cells = np.arange(len(train))
        touched[row, cells] = True
        touched[column, cells] = True
        return cls(
            n_cells=len(train),
            n_contexts=len(contexts),
            n_trained=int(is_train.sum()),
            n_evaluated=int(is_eval.sum()),
            kinds=tuple(np.flatnonzero(kind) for kind in kinds if kind.any()),
            row_N=row,
            column_N=column,
            without_KN=(~touched).astype(np.float64),
            stratum_N=np.unique(stratum, return_inverse=True)[1],
        )

    @property
    def allows_an_interval(self) -> bool:
        return (
            self.n_cells >= _LEAST_CELLS
            and min(self.n_trained, self.n_evaluated) >= _LEAST_CONTEXTS
            and all(len(kind) >= 2 for kind in self.kinds)
        )

    def variance(self, without_K: FloatArray, influence_N: FloatArray) -> tuple[float, float]:
        """Variance of the score and its degrees of freedom; see the head of this file."""
        by_kind = np.array(
            [
                (len(k) - 1) / len(k) * np.square(without_K[k] - without_K[k].mean()).sum()
                for k in self.kinds
            ]
        )
        df_by_kind = np.array([len(k) - 1 for k in self.kinds])
        jackknife = float(by_kind.sum())
        in_jackknife, residual, df_residual = self._residual_parts(influence_N)
        taken_off = _EXCESS_TAKEN_OFF * (in_jackknife - residual)
        variance = max(jackknife - taken_off, _RESIDUAL_FLOOR * residual)
        contexts = max(jackknife - in_jackknife, 0.0)
        # Kinds add up as Satterthwaite's parts do; what they leave is the contexts' own part.
        doubt = residual**2 / df_residual
        if contexts > 0:
            relative = float((by_kind**2 / df_by_kind).sum()) / jackknife**2
            doubt += contexts**2 * relative / _CONTEXT_DF_SHARE
        df = variance**2 / doubt if doubt > 0 else math.inf
        return variance, max(min(df, float(df_by_kind.max())), 1.0)

    def _residual_parts(self, influence_N: FloatArray) -> tuple[float, float, float]:
        """What cells' own noise adds to the jackknife, what it truly adds, and its df.

        The residual of a cell after row and column effects has variance v, and covariance c with
        every other cell of the same unordered pair; both by the method of moments.
        """
        basis = self._additive_basis()
        n, rank = basis.shape
        low, high = np.minimum(self.row_N, self.column_N), np.maximum(self.row_N, self.column_N)
        pair = np.unique(low * self.n_contexts + high, return_inverse=True)[1]
        n_pairs = int(pair.max()) + 1
        size = np.bincount(pair).astype(np.float64)
        partners = float((size**2).sum()) - n  # ordered pairs of cells within one dyad

        left = influence_N - basis @ (basis.T @ influence_N)
        own = float(np.square(left).sum())
        df_residual = max(n - rank, 1)
        cross = float(np.square(np.bincount(pair, left)).sum()) - own
        v, c = own / df_residual, 0.0
        if partners > 0 and n > rank:
            basis_pairs = np.zeros((n_pairs, rank))
            np.add.at(basis_pairs, pair, basis)
            trace_pairs = n - float(np.square(basis_pairs).sum())
            inner = np.diag(size) - basis_pairs @ basis_pairs.T
            a12 = trace_pairs - df_residual
            a22 = float(np.square(inner).sum()) - 2 * trace_pairs + df_residual
            moments = np.array([[df_residual, a12], [a12, a22]])
            if np.linalg.det(moments) > _TINY * df_residual * max(a22, 1.0):
                v, c = np.linalg.solve(moments, np.array([own, cross]))
                v = max(float(v), 0.0)
                c = float(np.clip(c, -v / max(size.max() - 1, 1), v))

        # The jackknife value without context k is, to first order, linear in the influences:
        # minus the centred sum of its cells over the number of cells that stay.
        cells = 1 - self.without_KN
        count = cells.sum(axis=1, keepdims=True)
        effect = (count / n - cells) / (n - count)
        trace = trace_partners = 0.0
        for kind in self.kinds:
            centred = effect[kind] - effect[kind].mean(axis=0)
            factor = (len(kind) - 1) / len(kind)
            squares = float(np.square(centred).sum())
            pairs = np.zeros((len(kind), n_pairs))
            np.add.at(pairs.T, pair, centred.T)
            trace += factor * squares
            trace_partners += factor * (float(np.square(pairs).sum()) - squares)
        in_jackknife = max(v * trace + c * trace_partners, 0.0)
        residual = max(v * n + c * partners, 0.0) / n**2
        return in_jackknife, residual, float(df_residual)

    def _additive_basis(self) -> FloatArray:
        n_strata = int(self.stratum_N.max()) + 1
        parts = []
        for position in (self.row_N, self.column_N):
            distinct, where = np.unique(position * n_strata + self.stratum_N, return_inverse=True)
            parts.append(np.eye(len(distinct))[where])
        indicators = np.concatenate(parts, axis=1)
        values, vectors = np.linalg.eigh(indicators.T @ indicators)
        kept = values > 1e-9 * values[-1]
        return np.asarray(indicators @ (vectors[:, kept] / np.sqrt(values[kept])))


def _node_weights(design: _Design, rng: np.random.Generator, n_resamples: int) -> FloatArray:
    counts = np.zeros((n_resamples, design.n_contexts))
    for kind in design.kinds:
        drawn = rng.integers(0, len(kind), size=(n_resamples, len(kind)))
        drawn += len(kind) * np.arange(n_resamples)[:, None]
        found = np.bincount(drawn.ravel(), minlength=n_resamples * len(kind))
        counts[:, kind] = found.reshape(n_resamples, len(kind))
    weights = counts[:, design.row_N]
    other = design.row_N != design.column_N
    weights[:, other] *= counts[:, design.column_N[other]]
    return weights


def _r2_scores(
    deviation_N: FloatArray, errors: list[FloatArray]
) -> Callable[[FloatArray], list[FloatArray]]:
    """R2 of each error column in every resample; NaN where y does not vary."""
    columns = np.stack([np.ones_like(deviation_N), deviation_N, deviation_N**2, *errors], axis=1)

    def scores(weights_BN: FloatArray) -> list[FloatArray]:
        sums = weights_BN @ columns
        n = np.where(sums[:, 0] > 0, sums[:, 0], np.nan)
        total = sums[:, 2] / n - (sums[:, 1] / n) ** 2
        total = np.where(total > _TINY, total, np.nan)
        return [1 - sums[:, 3 + e] / n / total for e in range(len(errors))]

    return scores


def _spearman_subsets(x_N: FloatArray, y_N: FloatArray, keep_KN: FloatArray) -> FloatArray:
    """Spearman over the cells each row keeps (1) of those it leaves out (0); shape (K,).

    ``weighted_spearman`` for weights of 0 and 1, several times faster: what is left out ranks last,
    so the ranks of the rest are their own. NaN where a side is constant.
    """
    kept = keep_KN > 0
    centre = (kept.sum(axis=1, keepdims=True) + 1) / 2
    ranks = [
        np.where(kept, average_ranks(np.where(kept, values, np.inf)) - centre, 0.0)
        for values in (x_N, y_N)
    ]
    covariance, spread_x, spread_y = (
        np.einsum("kn,kn->k", ranks[a], ranks[b]) for a, b in ((0, 1), (0, 0), (1, 1))
    )
    spread = np.sqrt(spread_x * spread_y)
    return np.asarray(
        np.divide(covariance, spread, out=np.full(len(kept), np.nan), where=spread > 0)
    )


def _spearman_influence(x_N: FloatArray, y_N: FloatArray) -> FloatArray:
    """First-order effect of each cell's weight on Spearman's correlation; mean 0; shape (N,).

    A cell acts through its own ranks and by shifting the ranks of the cells above it, which the
    second and third term of each line count. Ties by mid-ranks.
    """
    n = len(x_N)
    f = (average_ranks(x_N) - (n + 1) / 2) / n
    g = (average_ranks(y_N) - (n + 1) / 2) / n
    var_f, var_g, covariance = float(f @ f) / n, float(g @ g) / n, float(f @ g) / n
    spread = math.sqrt(var_f * var_g)
    joint = f * g + _mean_above(x_N, g) + _mean_above(y_N, f)
    own_f = f * f + 2 * _mean_above(x_N, f)
    own_g = g * g + 2 * _mean_above(y_N, g)
    return np.asarray(
        (joint - joint.mean()) / spread
        - covariance
        / spread
        / 2
        * ((own_f - own_f.mean()) / var_f + (own_g - own_g.mean()) / var_g)
    )


def _mean_above(x_N: FloatArray, values_N: FloatArray) -> FloatArray:
    """(1 / N) * sum of values over the cells whose x is larger, those with equal x by half."""
    order = np.argsort(x_N, kind="stable")
    ascending = x_N[order]
    sums = np.concatenate(([0.0], np.cumsum(values_N[order])))
    below = sums[np.searchsorted(ascending, x_N, "left")]
    up_to = sums[np.searchsorted(ascending, x_N, "right")]
    return np.asarray((sums[-1] - (below + up_to) / 2) / len(x_N))


def _identity(values: FloatArray) -> FloatArray:
    return values


def _column(values: npt.ArrayLike, name: str, design: _Design) -> FloatArray:
    array = finite_vector(values, name)
    if len(array) != design.n_cells:
        raise StatsInputError(name, expected=f"{design.n_cells} values", found=len(array))
    return array


def _ids(ids: npt.ArrayLike, name: str) -> IntArray:
    array = np.asarray(ids)
    if array.ndim != 1 or array.size == 0 or array.dtype.kind not in "iu":
        raise StatsInputError(
            name,
            expected="a list of integers",
            found=f"{array.dtype} in {array.ndim} dimensions, {array.size} long",
        )
    return array.astype(np.int64)


def _nearest_coverage(statistic: str, design: _Design) -> SimulatedCoverage:
    """The simulated design with the most alike numbers of contexts and cells."""

    def distance(key: tuple[str, str]) -> float:
        n_trained, n_evaluated, n_cells = _SIMULATED[key[1]]
        return (
            abs(math.log(design.n_trained / n_trained))
            + abs(math.log(design.n_evaluated / n_evaluated))
            + abs(math.log(design.n_cells / n_cells)) / 2
        )

    nearest = min((key for key in _COVERAGE if key[0] == statistic), key=distance)
    value, lowest, highest = _COVERAGE[nearest]
    return SimulatedCoverage(
        value=value,
        lowest=lowest,
        highest=highest,
        nominal=0.95,
        what=f"{statistic}, {nearest[1]}",
        reached=0.935 <= value <= 0.965
        and lowest >= 0.935 - _SIMULATION_ERROR
        and highest <= 0.965 + _SIMULATION_ERROR,
    )
