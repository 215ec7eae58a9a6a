"""Intervals for single cells read under two or three seeds, the seed variance pooled over a row.

Two seeds of one cell say almost nothing about a third (see ``bootstrap``); a row of 16 adapters x
29 eval contexts has sixteen such pairs at least. A row is all cells of one behaviour. In each cell

    y[s, q] = mean + seed[s] + question[q] + residual[s, q]

and the mean's variance is seed / S + question / Q + residual / (S Q), by the method of moments.

*Seeds.* One variance for all cells. All cells of an adapter share its seed's accident, in part or
wholly, so the degrees of freedom lie between adapters x (S - 1) and cells x (S - 1): the
correlation of seed deviations within adapters says where (``_pooled_df``).

*Questions.* Each cell's own variance, drawn towards the row's as far as the cells agree
(``_moderated``): six questions say little by themselves, and cells do differ.

*The interval.* t, with Satterthwaite's degrees of freedom for the sum of both parts. A t interval
of a rate would leave [0, 1] and have no width at a rate of 0. For rates the variances are taken as
proportional to p (1 - p), for seeds to (p (1 - p))^1.5 (a seed shifts logits, and does less to a
rate near 0 or 1), with one factor per row; the interval is all p that the mean does not reject,
which for one factor alone is Wilson's. Near 0 it is somewhat conservative.

Measured at a nominal 95 %, 100 simulated tensors of 448 cells each (``python -m benchmarks
coverage``), four mixes from no seed effect to seeds above all:

                             2 seeds          3 seeds
    log-probs,  6 questions  94.3 to 95.2     95.0 to 95.2     5 % of readings missing
    log-probs, 20 questions  95.0 to 95.2     94.8 to 95.2
    log-probs, 40 questions  94.9 to 96.2     94.7 to 95.3
    rates, 20 questions      95.2 to 95.7     95.3 to 95.5
    rates, 40 questions      95.5 to 95.7     95.3 to 95.8
      where p < 0.1          94 to 97         95 to 97
      where p in 0.3 - 0.7   94 to 95         94 to 95
    less a base rate         96 to 97         (80 tensors, 40 questions)

The crossed percentile bootstrap of one cell with 2 seeds held 64 % where seeds dominate.

What it assumes: log-prob rows whose seed variance is about the same in all cells (if not, it is
right for the average cell only), readings missing at random, and for rates the shape above. A row
that reads nothing but 0 or 1 shows no variance at all; it is given one reading per question.

Shape letters: C cells, S seeds, Q questions.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import scipy.special
import scipy.stats

from eps_locked.errors import StatsInputError

__all__ = ["CellInterval", "pooled_cell_intervals"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

# A seed's effect on a rate near 0 or 1 is smaller than p (1 - p) would have it.
_SEED_POWER = 1.5


@dataclass(frozen=True, kw_only=True, slots=True)
class CellInterval:
    """One cell's mean with its interval.

    ``standard_error`` is that of the mean (of the rate, or of the difference of rates);
    ``degrees_of_freedom`` those of the t quantile used. ``n_seeds`` and ``n_readings`` count what
    was present in the cell itself.
    """

    value: float
    low: float
    high: float
    standard_error: float
    degrees_of_freedom: float
    confidence_level: float
    n_seeds: int
    n_readings: int
    method: str


def pooled_cell_intervals(
    values_CSQ: npt.ArrayLike,
    adapter_C: npt.ArrayLike,
    *,
    confidence_level: float,
    bounds: tuple[float, float] | None = None,
    variance: Literal["equal", "rate"] | None = None,
    base_CQ: npt.ArrayLike | None = None,
) -> tuple[CellInterval, ...]:
    """One interval per cell of a row; the seed variance is pooled over all of them.

    values_CSQ: readings, NaN where missing (at random). adapter_C: which adapter (train context)
    each cell was read from; cells of one adapter share its seeds. A cell may lack seeds, as long as
    two are present somewhere.

    bounds: no interval leaves them. variance: ``equal``, one seed variance for all cells and a
    question variance per cell, t interval; or ``rate``, variances proportional to p (1 - p),
    Wilson interval, for readings in [0, 1]. The default is ``rate`` for bounds (0, 1).

    base_CQ: readings of the base model on the same questions, for rates: the interval is then of
    the rate less the base's rate and lies in [-1, 1].

    Raises StatsInputError for a cell without readings, no cell with two seeds and two questions in
    common, readings outside the bounds, an infinite reading, or lengths that differ.
    """
    values = _readings(values_CSQ, "values_CSQ", 3)
    adapter = np.asarray(adapter_C)
    if adapter.ndim != 1 or len(adapter) != len(values) or adapter.dtype.kind not in "iu":
        raise StatsInputError(
            "adapter_C", expected=f"{len(values)} integers", found=f"{adapter.dtype}{adapter.shape}"
        )
    if not 0 < confidence_level < 1:
        raise StatsInputError(
            "confidence_level", expected="a number between 0 and 1", found=confidence_level
        )
    kind = variance or ("rate" if bounds == (0.0, 1.0) else "equal")
    if kind == "rate" and bounds not in (None, (0.0, 1.0)):
        raise StatsInputError("bounds", expected="(0, 1) for rates", found=bounds)
    limits = (0.0, 1.0) if kind == "rate" else bounds
    if limits is not None and (np.nanmin(values) < limits[0] or np.nanmax(values) > limits[1]):
        raise StatsInputError(
            "values_CSQ",
            expected=f"readings from {limits[0]:g} to {limits[1]:g}",
            found=f"{np.nanmin(values):g} to {np.nanmax(values):g}",
        )
    parts = _Parts.of(values, adapter, is_rate=kind == "rate")
    if kind == "equal":
        if base_CQ is not None:
            raise StatsInputError(
                "base_CQ",
                problem="is for rates",
                next_step="hand over differences of readings instead",
            )
        return _t_intervals(parts, confidence_level, bounds)
    if base_CQ is None:
        return _rate_intervals(parts, confidence_level)
    base = _readings(base_CQ, "base_CQ", 2)
    if base.shape != (values.shape[0], values.shape[2]):
        raise StatsInputError(
            "base_CQ", expected=(values.shape[0], values.shape[2]), found=base.shape
        )
    if np.nanmin(base) < 0 or np.nanmax(base) > 1:
        raise StatsInputError("base_CQ", expected="rates in [0, 1]", found="others")
    return _rate_difference_intervals(parts, values, base, confidence_level)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Parts:
    """Cell means, and the three parts of a mean's variance.

    A part's variance in cell c is its size times ``_unit(p, power)``: 1 for readings without
    bounds, p (1 - p) to some power for rates. Sizes already count the cell's own seeds and
    readings. ``question_spread_C`` is what the question part was computed from, before the
    residual was taken off it.
    """

    mean_C: FloatArray
    n_seeds_C: IntArray
    n_readings_C: IntArray
    n_questions_C: IntArray
    seed_C: FloatArray
    residual_C: FloatArray
    question_C: FloatArray
    question_spread_C: FloatArray
    seed_df: float
    question_df_C: FloatArray
    seed_power: float
    noise_power: float

    @classmethod
    def of(cls, values: FloatArray, adapter: IntArray, *, is_rate: bool) -> _Parts:
        seed_power, noise_power = (_SEED_POWER, 1.0) if is_rate else (0.0, 0.0)
        present = ~np.isnan(values)
        filled = np.where(present, values, 0.0)
        n_CS = present.sum(axis=2)
        n_seeds = (n_CS > 0).sum(axis=1)
        seed_mean = _divide(filled.sum(axis=2), n_CS)
        mean = seed_mean.sum(axis=1) / n_seeds
        between = _BetweenSeeds.of(filled, present, n_CS > 0)
        seed_unit, noise_unit = _unit(mean, seed_power), _unit(mean, noise_power)

        residual = _ratio(
            float(between.left_C.sum()), float((between.residual_df_C * noise_unit).sum())
        )
        squares = float(np.square(between.deviation_CS).sum())
        noise = float((between.df_C * noise_unit * _inverse(between.n_shared_C)).sum())
        weighted_df = float((between.df_C * seed_unit).sum())
        seed = max(_ratio(squares - residual * noise, weighted_df), 0.0)

        # Variance of question means over the seeds that answered each.
        n_CQ = present.sum(axis=1)
        question_mean = _divide(filled.sum(axis=1), n_CQ)
        n_questions = (n_CQ > 0).sum(axis=1)
        centre = question_mean.sum(axis=1) / n_questions
        deviation = np.where(n_CQ > 0, question_mean - centre[:, None], 0.0)
        df = n_questions - 1
        spread = _divide(np.square(deviation).sum(axis=1), df)
        own_residual = residual * _inverse(n_CQ).sum(axis=1) / n_questions
        if is_rate:
            spread = np.full_like(
                mean, _ratio(float((df * spread).sum()), float((df * noise_unit).sum()))
            )
            # The cells answer the same questions, so they may not count each.
            pooled_df = _pooled_df(deviation, df, spread * noise_unit, np.zeros_like(df))
            question_df = np.maximum(df.astype(np.float64), pooled_df)
        else:
            spread, question_df = _moderated(spread, df)
        question = np.maximum(spread - own_residual, 0.0)

        # Weight of a reading in its cell's mean: seeds count alike, and readings within a seed.
        weight = _divide(present.astype(np.float64), n_CS[:, :, None] * n_seeds[:, None, None])
        by_question = np.square(weight.sum(axis=1)).sum(axis=1)
        parts = cls(
            mean_C=mean,
            n_seeds_C=n_seeds,
            n_readings_C=n_CS.sum(axis=1),
            n_questions_C=n_questions,
            seed_C=seed / n_seeds,
            residual_C=residual * np.square(weight).sum(axis=(1, 2)),
            question_C=question * by_question,
            question_spread_C=spread * by_question,
            seed_df=_pooled_df(
                between.deviation_CS,
                between.df_C,
                seed * seed_unit + residual * noise_unit * _inverse(between.n_shared_C),
                adapter,
            ),
            question_df_C=np.maximum(question_df, 1.0),
            seed_power=seed_power,
            noise_power=noise_power,
        )
        if not is_rate:
            return parts
        # The estimates' m (1 - m) falls short of p (1 - p), on average by the variance of m, and
        # what was divided by it came out too large by that much.
        short = _ratio(float(parts.variance(mean).sum()), float(noise_unit.sum()))
        return dataclasses.replace(
            parts,
            seed_C=parts.seed_C / (1 + short) ** seed_power,
            residual_C=parts.residual_C / (1 + short),
            question_C=parts.question_C / (1 + short),
            question_spread_C=parts.question_spread_C / (1 + short),
        )

    def variance(self, mean_C: FloatArray) -> FloatArray:
        """Variance of the cells' means if their truth were ``mean_C``."""
        noise = (self.residual_C + self.question_C) * _unit(mean_C, self.noise_power)
        return self.seed_C * _unit(mean_C, self.seed_power) + noise

    def degrees_of_freedom(self) -> FloatArray:
        """Satterthwaite's, per cell."""
        # A mean of exactly 0 or 1 has no spread of its own: half a reading is added on either side.
        n = self.n_questions_C
        near = (self.mean_C * n + 0.5) / (n + 1)
        noise_unit = _unit(near, self.noise_power)
        between = self.seed_C * _unit(near, self.seed_power) + self.residual_C * noise_unit
        doubt = (
            between**2 / self.seed_df
            + (self.question_spread_C * noise_unit) ** 2 / self.question_df_C
        )
        total = np.square(self.variance(near))
        return np.asarray(np.maximum(np.where(doubt > 0, _divide(total, doubt), self.seed_df), 1.0))


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _BetweenSeeds:
    """Deviations of seed means from their cell's, on questions that all its seeds answered."""

    deviation_CS: FloatArray
    left_C: FloatArray
    n_shared_C: IntArray
    df_C: IntArray
    residual_df_C: IntArray

    @classmethod
    def of(
        cls, filled: FloatArray, present: npt.NDArray[np.bool_], seeded: npt.NDArray[np.bool_]
    ) -> _BetweenSeeds:
        n_seeds = seeded.sum(axis=1)
        shared = np.asarray((present | ~seeded[:, :, None]).all(axis=1))
        n_shared = shared.sum(axis=1)
        usable = (n_shared >= 2) & (n_seeds >= 2)
        if not usable.any():
            raise StatsInputError(
                "values_CSQ",
                problem="has no cell in which two seeds answered the same two questions",
                next_step="a seed variance needs a second seed; give one, or report no interval",
            )
        inside = shared[:, None, :] & seeded[:, :, None] & usable[:, None, None]
        y = np.where(inside, filled, 0.0)
        by_seed = y.sum(axis=2) / np.maximum(n_shared, 1)[:, None]
        by_question = y.sum(axis=1) / np.maximum(n_seeds, 1)[:, None]
        level = by_seed.sum(axis=1) / np.maximum(n_seeds, 1)
        left = y - by_seed[:, :, None] - by_question[:, None, :] + level[:, None, None]
        df = np.where(usable, n_seeds - 1, 0)
        return cls(
            deviation_CS=np.where(seeded & usable[:, None], by_seed - level[:, None], 0.0),
            left_C=np.square(np.where(inside, left, 0.0)).sum(axis=(1, 2)),
            n_shared_C=np.where(usable, n_shared, 0),
            df_C=df,
            residual_df_C=df * np.maximum(n_shared - 1, 0),
        )


def _pooled_df(
    deviation_CX: FloatArray, df_C: IntArray, expected_C: FloatArray, group_C: IntArray
) -> float:
    """Degrees of freedom of the summed squares, given each cell's expected mean square.

    Deviations of two cells of one group correlate, by r say. The pooled mean square of C cells then
    varies as one of df * C / (1 + r^2 * partners), where partners is how many other cells share a
    cell's group: every cell counts if r is 0, and every group if it is 1.
    """
    group = np.unique(group_C, return_inverse=True)[1]
    summed = np.zeros((int(group.max()) + 1, deviation_CX.shape[1]))
    np.add.at(summed, group, deviation_CX)
    products = float(np.square(summed).sum() - np.square(deviation_CX).sum())
    r = _ratio(products, _pairs(np.sqrt(df_C * expected_C), group))
    alone = float((df_C * expected_C**2).sum())
    together = _pairs(np.sqrt(df_C) * expected_C, group)
    size = float((df_C * expected_C).sum()) ** 2
    if size == 0:
        return float(df_C.sum())
    return size / (alone + min(max(r, 0.0), 1.0) ** 2 * together)


def _pairs(values_C: FloatArray, adapter: IntArray) -> float:
    """Sum of products over ordered pairs of cells of one adapter."""
    return float(np.square(np.bincount(adapter, values_C)).sum() - np.square(values_C).sum())


def _moderated(spread_C: FloatArray, df_C: IntArray) -> tuple[FloatArray, FloatArray]:
    """Each cell's variance drawn towards the row's, as far as the row's cells agree.

    The true variances are taken as scaled inverse chi-square; its two parameters come from the
    mean and variance of the log variances. Cells whose variances differ as chance would have them
    end up with the pooled variance, others keep their own. A cell without any (one question) gets
    the row's. Source: Smyth 2004, Stat. Appl. Genet. Mol. Biol. 3(1), article 3, section 6.2.
    """
    df = df_C.astype(np.float64)
    known = (df > 0) & (spread_C > 0)
    if known.sum() < 2:
        return spread_C, df
    half = df[known] / 2
    log = np.log(spread_C[known]) - scipy.special.digamma(half) + np.log(half)
    excess = float(np.var(log, ddof=1) - scipy.special.polygamma(1, half).mean())
    if excess <= 1e-6:
        prior_df, prior = np.inf, float((df * spread_C).sum() / df.sum())
        return np.full_like(spread_C, prior), np.full_like(df, df.sum())
    prior_df = 2 * _inverse_trigamma(excess)
    prior = float(np.exp(log.mean() + scipy.special.digamma(prior_df / 2) - np.log(prior_df / 2)))
    return (prior_df * prior + df * spread_C) / (prior_df + df), np.minimum(prior_df + df, df.sum())


def _inverse_trigamma(y: float) -> float:
    """x with trigamma(x) = y, for y > 0, by Newton's method on 1 / trigamma (convex)."""
    x = 0.5 + 1 / y
    for _ in range(50):
        value = float(scipy.special.polygamma(1, x))
        step = value * (1 - value / y) / float(scipy.special.polygamma(2, x))
        x += step
        if abs(step) < 1e-10 * x:
            break
    return x


def _t_intervals(
    parts: _Parts, confidence_level: float, bounds: tuple[float, float] | None
) -> tuple[CellInterval, ...]:
    error, df = np.sqrt(parts.variance(parts.mean_C)), parts.degrees_of_freedom()
    reach = scipy.stats.t.ppf((1 + confidence_level) / 2, df) * error
    low, high = parts.mean_C - reach, parts.mean_C + reach
    method = "t, seed variance pooled over the row, Satterthwaite degrees of freedom"
    if bounds is not None:
        low, high = np.clip(low, *bounds), np.clip(high, *bounds)
        method += ", cut at the bounds"
    return _cells(parts, parts.mean_C, low, high, error, df, confidence_level, method)


def _rate_intervals(parts: _Parts, confidence_level: float) -> tuple[CellInterval, ...]:
    low, high, df = _rate_bounds(parts, confidence_level)
    error = np.sqrt(parts.variance(parts.mean_C))
    method = "score interval (Wilson's, with the row's variances), t"
    return _cells(parts, parts.mean_C, low, high, error, df, confidence_level, method)


def _rate_bounds(
    parts: _Parts, confidence_level: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """All p with |mean - p| <= t * sqrt(variance at p), and the degrees of freedom."""
    df = parts.degrees_of_freedom()
    if not (parts.variance(np.full_like(parts.mean_C, 0.5)) > 0).any():
        # Every cell reads 0 or 1 throughout: nothing tells how alike questions or seeds are. One
        # effective reading per question, and no help from further seeds.
        parts = dataclasses.replace(parts, residual_C=1.0 / parts.n_questions_C)
        df = np.maximum(parts.n_questions_C - 1.0, 1.0)
    t = scipy.stats.t.ppf((1 + confidence_level) / 2, df)
    ends = []
    for end in (0.0, 1.0):
        inside, outside = parts.mean_C.copy(), np.full_like(parts.mean_C, end)
        for _ in range(50):
            p = (inside + outside) / 2
            holds = np.abs(parts.mean_C - p) <= t * np.sqrt(parts.variance(p))
            inside, outside = np.where(holds, p, inside), np.where(holds, outside, p)
        ends.append(outside)
    return ends[0], ends[1], df


def _rate_difference_intervals(
    parts: _Parts, values: FloatArray, base: FloatArray, confidence_level: float
) -> tuple[CellInterval, ...]:
    """Rate less base rate from the two rates' intervals, whose questions are the same.

    MOVER: each end of the difference is as far out as the two ends that make it, combined with the
    correlation of the two means. Source: Newcombe 1998, Stat. Med. 17, 2635-2650, method 10.
    """
    known = ~np.isnan(base)
    n = known.sum(axis=1)
    if (n < 2).any():
        raise StatsInputError("base_CQ", expected="two readings or more per cell", found=n.min())
    b = np.where(known, base, 0.0)
    rate = b.sum(axis=1) / n
    centred_base = np.where(known, b - rate[:, None], 0.0)
    ratio = _ratio(
        float((np.square(centred_base).sum(axis=1) / (n - 1)).sum()),
        float(_unit(rate, 1.0).sum()),
    )
    base_t = scipy.stats.t.ppf((1 + confidence_level) / 2, n - 1)
    base_low, base_high = _wilson(rate, (ratio or 1.0) / n, base_t)
    m = parts.mean_C
    low, high, df = _rate_bounds(parts, confidence_level)

    # Only questions are shared by the two means; their correlation is pooled over the row.
    present = ~np.isnan(values)
    n_CQ = present.sum(axis=1)
    question_mean = _divide(np.where(present, values, 0.0).sum(axis=1), n_CQ)
    both = known & (n_CQ > 0)
    centred = np.where(both, question_mean - m[:, None], 0.0)
    product = (centred * np.where(both, centred_base, 0.0)).sum(axis=1)
    shared = np.maximum(both.sum(axis=1) - 1, 1)
    covariance = float((product / shared / n).sum())
    base_variance = ratio / n * _unit(rate, 1.0)
    variance = parts.variance(m)
    norm = math.sqrt(float(variance.sum()) * float(base_variance.sum()))
    r = min(max(_ratio(covariance, norm), -1.0), 1.0)

    def combined(a: FloatArray, c: FloatArray) -> FloatArray:
        return np.asarray(np.sqrt(np.maximum(a**2 + c**2 - 2 * r * a * c, 0.0)))

    difference = m - rate
    return _cells(
        parts,
        difference,
        np.maximum(difference - combined(m - low, base_high - rate), -1.0),
        np.minimum(difference + combined(high - m, rate - base_low), 1.0),
        combined(np.sqrt(variance), np.sqrt(base_variance)),
        df,
        confidence_level,
        "difference of two score intervals over the same questions (MOVER), t",
    )


def _wilson(mean: FloatArray, factor: FloatArray, t: FloatArray) -> tuple[FloatArray, FloatArray]:
    """All p with (mean - p)^2 <= t^2 * factor * p (1 - p)."""
    wide = t**2 * factor
    reach = np.sqrt(wide * mean * (1 - mean) + wide**2 / 4)
    low, high = mean + wide / 2 - reach, mean + wide / 2 + reach
    return np.clip(low / (1 + wide), 0.0, mean), np.clip(high / (1 + wide), mean, 1.0)


def _cells(
    parts: _Parts,
    value: FloatArray,
    low: FloatArray,
    high: FloatArray,
    error: FloatArray,
    df: FloatArray,
    confidence_level: float,
    method: str,
) -> tuple[CellInterval, ...]:
    return tuple(
        CellInterval(
            value=float(value[c]),
            low=float(low[c]),
            high=float(high[c]),
            standard_error=float(error[c]),
            degrees_of_freedom=float(df[c]),
            confidence_level=confidence_level,
            n_seeds=int(parts.n_seeds_C[c]),
            n_readings=int(parts.n_readings_C[c]),
            method=method,
        )
        for c in range(len(value))
    )


def _readings(values: npt.ArrayLike, name: str, n_dims: int) -> FloatArray:
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise StatsInputError(name, problem=f"is not an array of numbers ({error})") from error
    if array.ndim != n_dims or array.size == 0:
        raise StatsInputError(
            name, expected=f"{n_dims} dimensions, not empty", found=f"shape {array.shape}"
        )
    if np.isinf(array).any():
        raise StatsInputError(name, expected="finite readings or NaN", found="an infinite one")
    empty = np.isnan(array).reshape(len(array), -1).all(axis=1)
    if empty.any():
        raise StatsInputError(
            name,
            expected="readings in every cell",
            found=f"none in {int(empty.sum())} of {len(array)}",
            next_step="leave those cells out; they have no value either",
        )
    return array


def _unit(mean_C: FloatArray, power: float) -> FloatArray:
    return np.asarray((mean_C * (1 - mean_C)) ** power) if power else np.ones_like(mean_C)


def _ratio(top: float, bottom: float) -> float:
    return top / bottom if bottom > 0 else 0.0


def _divide(top: FloatArray, bottom: npt.ArrayLike) -> FloatArray:
    """``top / bottom``, 0 where the bottom is 0."""
    bottom = np.broadcast_to(np.asarray(bottom, dtype=np.float64), np.shape(top))
    return np.asarray(np.divide(top, bottom, out=np.zeros(np.shape(top)), where=bottom > 0))


def _inverse(counts: IntArray) -> FloatArray:
    """1 / counts, 0 where a count is 0."""
    return _divide(np.ones(counts.shape), counts)
