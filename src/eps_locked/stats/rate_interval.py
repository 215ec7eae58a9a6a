"""How much more often a trained model shows a behaviour than its base: intervals for rates.

A row is all cells of one judged behaviour. An answer shows the behaviour, does not, or has no
verdict; a question's rate is the mean over its answers that have one. A cell's change is

    G = mean over seeds of the mean over questions of (trained rate - base rate)

over the questions that both sides have. Normal theory gives such a difference an interval past
what rates can reach, and none at all where every answer reads the same. So each side gets an
interval that knows its range, and the change is put together from the two.

*Trained side, two seeds or more.* ``pooled_cell_intervals``: variances proportional to p (1 - p),
the seeds' pooled over the row, and all p that the mean does not reject.

*Base, and a trained side with one seed.* Questions are the sample. If they were all or nothing, a
mean of n rates would vary as p (1 - p) / n, and no rates vary more; the row says what share of
that they show (``_over_questions``). The effective number of answers is never below n for that
reason, and with one seed nothing is said of another training run.

*Ends.* A score interval of few answers misses rates near 0 or 1 too often. Its ends imply an
effective number of answers; of such a number the mid-P exact ends are taken as well, and the
outer ones count. They have a width even where all of a row reads 0.

*Change.* Newcombe's hybrid (MOVER) of the two sides. The same questions on both sides make the
change surer by their correlation, pooled over the row and reduced in each cell by Newcombe's
continuity correction, so that answers which happen to agree throughout still leave a width. No end
lies outside [trained_low - base_high, trained_high - base_low].

What it assumes: verdicts missing at random; questions and seeds about as variable, next to
p (1 - p), in all cells of a row (a cell that is more so than its row gets too narrow an interval);
and a right judge, whose own errors are no part of the width.

How often the intervals hold the truth is measured by ``python -m benchmarks rate-coverage``; the
table stands in ADR 15.

Shape letters: C cells, S seeds, Q questions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy.special
import scipy.stats

from eps_locked.errors import StatsInputError
from eps_locked.stats.bootstrap import standard_error_pooled_over_cells
from eps_locked.stats.cell_interval import pooled_cell_intervals

__all__ = [
    "RateEstimate",
    "RateResolution",
    "minimum_detectable_rate_change",
    "rate_change_intervals",
]

BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, slots=True)
class RateEstimate:
    """One cell: the change with its interval, and the two rates it is the difference of.

    ``value`` = ``trained`` - ``base``. ``standard_error`` is the change's and never 0: a rate of 0
    or 1 counts as if half an answer more had been seen on either side. ``degrees_of_freedom`` are
    those of the trained rate's variance. ``n_questions`` counts questions that the base and at
    least one seed answered.
    """

    value: float
    low: float
    high: float
    standard_error: float
    degrees_of_freedom: float
    trained: float
    trained_low: float
    trained_high: float
    base: float
    base_low: float
    base_high: float
    n_questions: int


@dataclass(frozen=True, kw_only=True, slots=True)
class RateResolution:
    """What one cell of a row could have shown.

    ``minimum_detectable_effect`` is a rise above ``base_rate``, the row's mean; None if not even a
    rise to 1 would be found often enough. ``standard_error`` is the cells' root mean square. The
    variances are of single questions' changes, from the ``n_complete`` cells in which no question
    is missing; None without such a cell.
    """

    minimum_detectable_effect: float | None
    base_rate: float
    standard_error: float
    n_cells: int
    seed_variance: float | None
    question_variance: float | None
    residual_variance: float | None
    n_complete: int


def rate_change_intervals(
    trained_CSQ: npt.ArrayLike,
    base_CQ: npt.ArrayLike,
    adapter_C: npt.ArrayLike,
    *,
    confidence_level: float,
    minimum_share: float,
) -> list[RateEstimate | None]:
    """Change of a rate, and both rates, in every cell of a row.

    trained_CSQ: each question's rate in [0, 1], NaN where no answer has a verdict. base_CQ: the
    base model's, under the cell's own context and on the same questions. adapter_C: which adapter
    (train context) a cell was read from; cells of one adapter share its seeds.

    None for a cell in which any seed has fewer than max(2, ``minimum_share`` * Q) questions on both
    sides; such a cell lends nothing to the others either. Seeds count alike, and questions within
    a seed, however many are missing.

    Raises StatsInputError for rates outside [0, 1], shapes that do not fit, a level or share out
    of range, and if there are seeds but in no cell two of them share two questions.
    Sources: Newcombe 1998, Stat. Med. 17, 873-890 (method 10) and 2635-2650 (paired); Korn and
    Graubard 1998, Survey Methodology 24, 193-201 (exact ends of an effective number); Berry and
    Armitage 1995, The Statistician 44, 417-423 (mid-P).
    """
    trained, base, adapter = _inputs(trained_CSQ, base_CQ, adapter_C)
    cells = _readable(trained, base, confidence_level, minimum_share)
    estimates: list[RateEstimate | None] = [None] * len(trained)
    if cells.any():
        row = _Row.of(trained[cells], base[cells])
        found = _Sides.of(row, adapter[cells], confidence_level).estimates(row.n_questions_C)
        for place, one in zip(np.flatnonzero(cells), found, strict=True):
            estimates[place] = one
    return estimates


def minimum_detectable_rate_change(
    trained_CSQ: npt.ArrayLike,
    base_CQ: npt.ArrayLike,
    adapter_C: npt.ArrayLike,
    *,
    confidence_level: float,
    minimum_share: float,
    power: float = 0.80,
) -> RateResolution | None:
    """The smallest true rise of a rate that a cell's interval tells from 0 with this ``power``.

    Arguments as for ``rate_change_intervals``. A rise is found if the interval's low end is above
    0, and a rate's variance changes with the rate, so a multiple of one standard error will not
    do: the rise d is sought at which an estimate that falls short of d by the power's normal
    quantile of its own standard error still has its low end at 0. The effective numbers of answers
    are the row's, cells' reciprocals averaged: right for the average cell only.

    None with one seed (nothing is then known of other training runs) or no readable cell.
    """
    trained, base, adapter = _inputs(trained_CSQ, base_CQ, adapter_C)
    _require_share("power", power, 0 < power < 1)
    cells = _readable(trained, base, confidence_level, minimum_share)
    if not cells.any() or trained.shape[1] < 2:
        return None
    row = _Row.of(trained[cells], base[cells])
    sides = _Sides.of(row, adapter[cells], confidence_level)
    base_rate = float(sides.base.rate_C.mean())
    changes = trained[cells] - base[cells][:, None, :]
    complete = changes[~np.isnan(changes).any(axis=(1, 2))]
    pooled = standard_error_pooled_over_cells(complete) if len(complete) else None
    return RateResolution(
        minimum_detectable_effect=_detectable_rise(sides, base_rate, confidence_level, power),
        base_rate=base_rate,
        standard_error=float(np.sqrt(np.square(sides.error_C).mean())),
        n_cells=len(changes),
        seed_variance=pooled.seed_variance if pooled else None,
        question_variance=pooled.question_variance if pooled else None,
        residual_variance=pooled.residual_variance if pooled else None,
        n_complete=len(complete),
    )


def _detectable_rise(
    sides: _Sides, base_rate: float, confidence_level: float, power: float
) -> float | None:
    rise = np.linspace(0.0, 1 - base_rate, 1001)[1:]
    shape = np.ones(len(rise))
    r = float(sides.correlation_C.mean())
    number, base_number = (_harmonic_mean(one.number_C) for one in (sides.trained, sides.base))
    answers, base_answers = (_harmonic_mean(one.answers_C) for one in (sides.trained, sides.base))
    level = base_rate * shape
    base_error = np.sqrt(np.maximum(level * (1 - level) / base_answers, 0.0))
    at = level + rise
    error = _apart(np.sqrt(np.maximum(at * (1 - at) / answers, 0.0)), base_error, r * shape)
    # What is read when luck is as bad as the power still allows for.
    read = np.clip(at - scipy.stats.norm.ppf(power) * error, level, 1.0)
    low, _ = _ends(read, number * shape, confidence_level)
    _, base_high = _ends(level, base_number * shape, confidence_level)
    found = read - level > _apart(read - low, base_high - level, r * shape)
    return float(rise[np.argmax(found)]) if found.any() else None


def _harmonic_mean(number_C: FloatArray) -> float:
    return float(1 / (1 / number_C).mean())


def _readable(
    trained: FloatArray, base: FloatArray, confidence_level: float, minimum_share: float
) -> BoolArray:
    """Which cells have enough questions on both sides in every seed, shape (C,)."""
    _require_share("confidence_level", confidence_level, 0 < confidence_level < 1)
    _require_share("minimum_share", minimum_share, 0 <= minimum_share <= 1)
    n_CS = _both(trained, base).sum(axis=2)
    return np.asarray((n_CS >= max(2.0, minimum_share * trained.shape[2])).all(axis=1))


def _both(trained: FloatArray, base: FloatArray) -> BoolArray:
    return np.asarray(~np.isnan(trained) & ~np.isnan(base)[:, None, :])


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Row:
    """The readable cells, NaN wherever one side of a question is missing.

    ``trained_CQ`` is the mean over the seeds that have the question, ``weight_CQ`` a question's
    share of the cell's mean: seeds count alike, and questions within a seed. The rates are those
    means, the base's over the questions of one seed after the other.
    """

    trained_CSQ: FloatArray
    trained_CQ: FloatArray
    base_CQ: FloatArray
    weight_CQ: FloatArray
    trained_C: FloatArray
    base_C: FloatArray

    @classmethod
    def of(cls, trained: FloatArray, base: FloatArray) -> _Row:
        present = _both(trained, base)
        n_CQ = present.sum(axis=1)
        n_CS = present.sum(axis=2)
        filled = np.where(present, trained, 0.0)
        paired = np.where(present, base[:, None, :], 0.0)
        weight = present / (n_CS[:, :, None] * present.shape[1])
        return cls(
            trained_CSQ=np.where(present, trained, np.nan),
            trained_CQ=np.where(n_CQ > 0, filled.sum(axis=1) / np.maximum(n_CQ, 1), np.nan),
            base_CQ=np.where(n_CQ > 0, base, np.nan),
            weight_CQ=weight.sum(axis=1),
            # Sums over counts, not of weights: all ones must come to 1 and not to a digit less.
            trained_C=(filled.sum(axis=2) / n_CS).mean(axis=1),
            base_C=(paired.sum(axis=2) / n_CS).mean(axis=1),
        )

    @property
    def n_questions_C(self) -> IntArray:
        return np.asarray((self.weight_CQ > 0).sum(axis=1))


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Side:
    """Rates of one side with their ends; ``error_C`` is above 0.

    ``answers_C``: how many independent answers would vary as the rate does. ``number_C``: the same
    less the doubt about that variance, what the ends are made of.
    """

    rate_C: FloatArray
    low_C: FloatArray
    high_C: FloatArray
    error_C: FloatArray
    df_C: FloatArray
    answers_C: FloatArray
    number_C: FloatArray


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Sides:
    trained: _Side
    base: _Side
    correlation_C: FloatArray

    @classmethod
    def of(cls, row: _Row, adapter: IntArray, confidence_level: float) -> _Sides:
        base = _over_questions(row.base_C, row.base_CQ, row.weight_CQ, confidence_level)
        if row.trained_CSQ.shape[1] == 1:
            trained = _over_questions(
                row.trained_C, row.trained_CQ, row.weight_CQ, confidence_level
            )
        else:
            trained = _over_seeds(row.trained_CSQ, adapter, confidence_level)
        return cls(trained=trained, base=base, correlation_C=_correlation(row, trained, base))

    @property
    def error_C(self) -> FloatArray:
        return _apart(self.trained.error_C, self.base.error_C, self.correlation_C)

    def estimates(self, n_questions_C: IntArray) -> list[RateEstimate]:
        one, other, r = self.trained, self.base, self.correlation_C
        value = one.rate_C - other.rate_C
        low = value - _apart(one.rate_C - one.low_C, other.high_C - other.rate_C, r)
        high = value + _apart(one.high_C - one.rate_C, other.rate_C - other.low_C, r)
        # Exact arithmetic would need no clip: it takes off rounding in the last digit and no more.
        low = np.clip(low, one.low_C - other.high_C, value)
        high = np.clip(high, value, one.high_C - other.low_C)
        error = self.error_C
        return [
            RateEstimate(
                value=float(value[c]),
                low=float(low[c]),
                high=float(high[c]),
                standard_error=float(error[c]),
                degrees_of_freedom=float(one.df_C[c]),
                trained=float(one.rate_C[c]),
                trained_low=float(one.low_C[c]),
                trained_high=float(one.high_C[c]),
                base=float(other.rate_C[c]),
                base_low=float(other.low_C[c]),
                base_high=float(other.high_C[c]),
                n_questions=int(n_questions_C[c]),
            )
            for c in range(len(value))
        ]


def _over_seeds(values_CSQ: FloatArray, adapter: IntArray, confidence_level: float) -> _Side:
    """Seeds and questions as the sample; the row's variances (``cell_interval``)."""
    found = pooled_cell_intervals(
        values_CSQ, adapter, confidence_level=confidence_level, bounds=(0.0, 1.0)
    )
    rate, low, high, error, df = np.array(
        [
            (one.value, one.low, one.high, one.standard_error, one.degrees_of_freedom)
            for one in found
        ]
    ).T
    z = _normal_quantile(confidence_level)
    # An end at 0 or 1 is where the rate is and implies no number of answers. The other one does.
    n_low, n_high = _implied_number(rate, low, z), _implied_number(rate, high, z)
    n_low, n_high = np.where(low > 0, n_low, n_high), np.where(high < 1, n_high, n_low)
    inner = np.where(rate < 0.5, n_high, n_low)
    answers = inner * np.square(scipy.stats.t.ppf((1 + confidence_level) / 2, df) / z)
    return _Side(
        rate_C=rate,
        low_C=np.minimum(low, _mid_p_low(rate, n_low, confidence_level)),
        high_C=np.maximum(high, 1 - _mid_p_low(1 - rate, n_high, confidence_level)),
        error_C=np.maximum(error, np.sqrt(_edge_variance(answers))),
        df_C=df,
        answers_C=answers,
        number_C=inner,
    )


def _over_questions(
    rate: FloatArray, values_CQ: FloatArray, weight_CQ: FloatArray, confidence_level: float
) -> _Side:
    """Questions alone as the sample.

    The variance of a cell's mean is share * p (1 - p) / n with one share for the row, at most 1
    (all questions all or nothing). One further question of that kind is added to what the row
    shows, so that rates which happen to agree do not pass for certain. n counts questions; if
    they weigh differently, as many as would give the same variance (Kish).
    """
    known = weight_CQ > 0
    values = np.where(known, values_CQ, 0.0)
    n = 1 / np.square(weight_CQ).sum(axis=1)
    df = known.sum(axis=1) - 1.0
    unit = rate * (1 - rate)
    squares = np.square(np.where(known, values - rate[:, None], 0.0)).sum()
    shown = (df * unit).sum()
    share = (squares + unit.mean()) / (shown + unit.mean()) if shown > 0 else 1.0
    # Estimates' own p (1 - p) falls short of the truth's by the variance of the estimate.
    share = min(share / (1 + share / n.mean()), 1.0)
    z = _normal_quantile(confidence_level)
    t = scipy.stats.t.ppf((1 + confidence_level) / 2, df)
    number = np.maximum(n / share * np.square(z / t), n)
    low, high = _ends(rate, number, confidence_level)
    return _Side(
        rate_C=rate,
        low_C=low,
        high_C=high,
        error_C=np.sqrt(np.maximum(share * unit / n, _edge_variance(n / share))),
        df_C=df,
        answers_C=n / share,
        number_C=number,
    )


def _correlation(row: _Row, trained: _Side, base: _Side) -> FloatArray:
    """Correlation of the two means of each cell, from the questions they share.

    One estimate for the row, because a cell's own says little. A positive one is then reduced cell
    by cell as Newcombe does, by half an answer's worth: in a cell that reads 0 or 1 nothing is left
    of it, and never all of the width is lost.
    """
    n, known = row.n_questions_C, row.weight_CQ > 0

    def centred(values_CQ: FloatArray) -> FloatArray:
        filled = np.where(known, values_CQ, 0.0)
        return np.where(known, filled - (filled.sum(axis=1) / n)[:, None], 0.0)

    products = (centred(row.trained_CQ) * centred(row.base_CQ)).sum(axis=1)
    size = math.sqrt(float(np.square(trained.error_C).sum() * np.square(base.error_C).sum()))
    r = min(max(float((products / n**2).sum()) / size, -1.0), 1.0)
    units = trained.rate_C * (1 - trained.rate_C) * base.rate_C * (1 - base.rate_C)
    one_answer = np.divide(0.5 / n, np.sqrt(units), out=np.ones(len(n)), where=units > 0)
    return np.asarray(np.maximum(r - one_answer, min(r, 0.0)))


def _apart(a: FloatArray, b: FloatArray, r: FloatArray) -> FloatArray:
    """Length of the difference of two lengths that correlate by ``r``."""
    return np.asarray(np.sqrt(np.maximum(a**2 + b**2 - 2 * r * a * b, 0.0)))


def _ends(
    rate: FloatArray, number: FloatArray, confidence_level: float
) -> tuple[FloatArray, FloatArray]:
    """Wilson's ends or the mid-P exact ones of so many answers, whichever are further out."""
    wide = _normal_quantile(confidence_level) ** 2 / number
    reach = np.sqrt(wide * rate * (1 - rate) + wide**2 / 4)
    low, high = (rate + wide / 2 - reach) / (1 + wide), (rate + wide / 2 + reach) / (1 + wide)
    return (
        np.minimum(np.clip(low, 0.0, rate), _mid_p_low(rate, number, confidence_level)),
        np.maximum(np.clip(high, rate, 1.0), 1 - _mid_p_low(1 - rate, number, confidence_level)),
    )


def _implied_number(rate: FloatArray, end: FloatArray, z: float) -> FloatArray:
    """The n with which ``end`` would be an end of Wilson's interval."""
    gap = np.square(end - rate)
    n = np.divide(z**2 * end * (1 - end), gap, out=np.ones_like(rate), where=gap > 0)
    return np.asarray(np.maximum(n, 1e-6))


def _mid_p_low(rate: FloatArray, n: FloatArray, confidence_level: float) -> FloatArray:
    """The p at which P(X > x) + P(X = x) / 2 is the tail, for x = n * rate of n answers.

    n need not be whole: binomial tails are incomplete beta functions. 0 for a rate of 0.
    """
    tail = (1 - confidence_level) / 2
    x, rest = n * rate, n * (1 - rate)
    seen = x > 0
    x = np.where(seen, x, 1.0)
    low, high = np.zeros_like(rate), rate.copy()
    for _ in range(40):
        p = (low + high) / 2
        at_least = scipy.special.betainc(x, rest + 1, p)
        more = np.where(rest > 0, scipy.special.betainc(x + 1, np.maximum(rest, 1e-300), p), 0.0)
        below = (at_least + more) / 2 < tail
        low, high = np.where(below, p, low), np.where(below, high, p)
    return np.asarray(np.where(seen, low, 0.0))


def _edge_variance(n: FloatArray) -> FloatArray:
    """Variance of a rate that read 0 (or 1) throughout, half an answer added on either side."""
    return np.asarray(0.5 * (n + 0.5) / np.square(n + 1) / n)


def _normal_quantile(confidence_level: float) -> float:
    return float(scipy.stats.norm.ppf((1 + confidence_level) / 2))


def _inputs(
    trained_CSQ: npt.ArrayLike, base_CQ: npt.ArrayLike, adapter_C: npt.ArrayLike
) -> tuple[FloatArray, FloatArray, IntArray]:
    trained, base = _rates(trained_CSQ, "trained_CSQ", 3), _rates(base_CQ, "base_CQ", 2)
    if base.shape != (trained.shape[0], trained.shape[2]):
        raise StatsInputError(
            "base_CQ", expected=(trained.shape[0], trained.shape[2]), found=base.shape
        )
    adapter = np.asarray(adapter_C)
    if adapter.shape != (len(trained),) or adapter.dtype.kind not in "iu":
        raise StatsInputError(
            "adapter_C",
            expected=f"{len(trained)} integers",
            found=f"{adapter.dtype}{adapter.shape}",
        )
    return trained, base, adapter


def _rates(values: npt.ArrayLike, name: str, n_dims: int) -> FloatArray:
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise StatsInputError(name, problem=f"is not an array of numbers ({error})") from error
    if array.ndim != n_dims or array.size == 0:
        raise StatsInputError(
            name, expected=f"{n_dims} dimensions, not empty", found=f"shape {array.shape}"
        )
    n_bad = int(((array < 0) | (array > 1)).sum())
    if n_bad:
        raise StatsInputError(
            name, expected="rates in [0, 1], NaN where missing", found=f"{n_bad} others"
        )
    return array


def _require_share(name: str, value: float, holds: bool) -> None:
    if not holds:
        raise StatsInputError(name, expected="a share between 0 and 1", found=value)
