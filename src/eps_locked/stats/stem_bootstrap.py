"""A mean over stems with its interval: whole stems are resampled, never replies.

Rewordings of one question are answered alike, and two samples of one rewording more so, so the
replies are not independent evidence; the questions (stems) are. What comes in is one number a stem:
the difference of two arms, or an arm's rate. All replies of a stem stay together in every resample.

*Interval.* At either end the outer of two bootstrap percentiles: the plain one and the one
corrected for bias and skewness (BCa). A drift that few stems make is skewed, and in the studies
that happen to miss those stems the plain percentile says too little; where there is no drift, BCa
takes the chance skewness of a sample for the truth and leaves out 0 too often. The outer of both
has neither fault. Both are taken further out than the level says: a bootstrap of n stems has
(n - 1) / n of the variance it should have and no tails of its own, and both are mended by asking
for the percentile at which a t interval's end would lie (Hesterberg's expanded percentile). At 30
stems, 95 % asks for the percentiles 1.88 and 98.12. What each construction was measured to hold
stands in ADR 17.

*Few stems.* Resamples cannot reach past the smallest and largest difference, so below
``LEAST_RESAMPLED`` stems the t interval is given, and wherever the wanted percentile lies outside
what so many resamples can show, the outer of the t interval and the range of the resamples.

*No spread.* Where all stems have the same difference every resample gives it again, and the
interval would be a point. Instead: had a share q of all stems another difference, n drawn stems
would all agree with probability (1 - q)^n; the q at which that falls to 1 - level, times the
largest change a stem can make, is how far the mean over all stems can lie from what was read.

``p`` is the smallest 1 - level at which the interval, whichever of these it is, leaves out 0.

Shape letters: A arms or effects, S stems, B resamples.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy.special

from eps_locked.errors import StatsInputError
from eps_locked.stats.checks import FloatArray, IntArray, finite_matrix, finite_vector

__all__ = [
    "LEAST_RESAMPLED",
    "StemEffect",
    "expanded_tail",
    "stem_effect",
    "stem_effects",
    "stem_means",
    "stem_weights",
]

LEAST_RESAMPLED = 6
"""Below so many stems the interval is a t interval."""

BOOTSTRAP = "bootstrap over stems, outer of expanded percentile and expanded BCa"
T_INTERVAL = "t over stems (too few to resample)"
T_BEYOND = "t over stems, at least the range of the resamples"
RULE_OF_THREE = "rule of three on stems"
NO_STEP = "none: all stems agree and the largest step of a stem is not known"
ONE_STEM = "none: one stem"

# Means this close to 0, next to the largest difference, are 0 that rounding has moved: an interval
# that ends at 0 must not be said to leave it out.
_ROUNDING = 1e-12
_BLOCK_ENTRIES = 1 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class StemEffect:
    """The mean over ``n_stems`` stems, in the unit of what was handed over.

    ``standard_error`` is the standard deviation over stems, ddof 1, by the root of their number;
    None with one stem. ``low``, ``high`` and ``p`` are None exactly if ``method`` begins with
    "none". ``p`` is two-sided and belongs to the interval, whatever its level.
    """

    n_stems: int
    mean: float
    standard_error: float | None
    low: float | None
    high: float | None
    confidence_level: float
    p: float | None
    method: str

    @property
    def excludes_zero(self) -> bool:
        """Whether 0 lies outside the interval; without an interval it does not."""
        if self.low is None or self.high is None:
            return False
        return self.low > 0 or self.high < 0


def stem_weights(n_stems: int, n_resamples: int, rng: np.random.Generator) -> IntArray:
    """How often each stem is drawn in ``n_stems`` draws with replacement; shape (B, S).

    Draws from ``rng`` exactly what scipy.stats.bootstrap draws for one sample of this size, so its
    percentile interval of the mean can be compared to the last digit. Use one array for all arms
    of a battery: their resamples then hold the same stems. Raises StatsInputError for less than
    one stem or resample.
    """
    for name, value in (("n_stems", n_stems), ("n_resamples", n_resamples)):
        if value < 1:
            raise StatsInputError(name, expected="at least 1", found=value)
    weights = np.empty((n_resamples, n_stems), dtype=np.int64)
    block = max(1, _BLOCK_ENTRIES // n_stems)
    for begin in range(0, n_resamples, block):
        size = min(block, n_resamples - begin)
        drawn = rng.integers(0, n_stems, size=(size, n_stems), dtype=np.int64)
        drawn += n_stems * np.arange(size, dtype=np.int64)[:, None]
        counts = np.bincount(drawn.ravel(), minlength=size * n_stems)
        weights[begin : begin + size] = counts.reshape(size, n_stems)
    return weights


def stem_means(values_AS: npt.ArrayLike, weights_BS: npt.ArrayLike) -> FloatArray:
    """Mean over the stems of every resample; shape (B, A).

    Raises StatsInputError for values that are not finite, other numbers of stems, and a weight
    below 0 or a resample without any.
    """
    values = finite_matrix(values_AS, "values_AS")
    return _means(values, _weights(weights_BS, values.shape[1])).T


def stem_effect(
    differences_S: npt.ArrayLike,
    weights_BS: npt.ArrayLike,
    confidence_level: float,
    *,
    largest_step: float | None = None,
    bounds: tuple[float, float] | None = None,
) -> StemEffect:
    """``stem_effects`` of one effect at one level."""
    differences = finite_vector(differences_S, "differences_S")
    found = stem_effects(
        differences[None],
        weights_BS,
        (confidence_level,),
        largest_step=largest_step,
        bounds=bounds,
    )
    return found[0][0]


def stem_effects(
    differences_AS: npt.ArrayLike,
    weights_BS: npt.ArrayLike,
    levels: Sequence[float],
    *,
    largest_step: float | None = None,
    bounds: tuple[float, float] | None = None,
) -> tuple[tuple[StemEffect, ...], ...]:
    """Mean over stems of each row, with an interval at each level; outer A, inner levels.

    differences_AS: one number a stem, no NaN: leave out the stems that lack one, and hand over the
    weights of as many as are left (``stem_weights``). largest_step: the largest difference a stem
    can have from another, in the same unit (200 for drifts in points from -100 to 100, 1 for
    rates); used where all stems agree, and without it there is no interval then. bounds: what the
    mean cannot lie outside of; intervals are cut there.

    Raises StatsInputError for values that are not finite, no stem, weights that do not fit, a
    level outside (0, 1), or a step that is not above 0.
    Source: Hesterberg 2015, The American Statistician 69(4), 371-386 (expanded percentiles); Efron
    1987, J. Am. Stat. Assoc. 82, 171-185 (BCa); Hanley and Lippman-Hand 1983, JAMA 249, 1743-1745
    (rule of three).
    """
    differences = finite_matrix(differences_AS, "differences_AS")
    n_stems = differences.shape[1]
    weights = _weights(weights_BS, n_stems)
    for level in levels:
        if not 0 < level < 1:
            raise StatsInputError("levels", expected="numbers between 0 and 1", found=level)
    if largest_step is not None and not (math.isfinite(largest_step) and largest_step > 0):
        raise StatsInputError(
            "largest_step", expected="a finite number above 0, or none", found=largest_step
        )
    largest_A = np.abs(differences).max(axis=1)
    varies_A = np.ptp(differences, axis=1) > _ROUNDING * np.maximum(1.0, largest_A)
    resampled = varies_A & (n_stems >= LEAST_RESAMPLED)
    sorted_AB = _means(differences[resampled], weights)
    is_dust = np.abs(sorted_AB) <= _ROUNDING * largest_A[resampled][:, None]
    np.copyto(sorted_AB, 0.0, where=is_dust)
    sorted_AB.sort(axis=1)
    rows = iter(sorted_AB)
    found = []
    for values, varies in zip(differences, varies_A, strict=True):
        if n_stems == 1:
            one: _Agreeing | _TInterval | _Resampled | _OneStem = _OneStem(values)
        elif not varies:
            one = _Agreeing(values, largest_step)
        elif n_stems < LEAST_RESAMPLED:
            one = _TInterval(values)
        else:
            one = _Resampled(values, next(rows))
        found.append(tuple(_effect(values, one, level, bounds) for level in levels))
    return tuple(found)


def expanded_tail(confidence_level: float, n_stems: int) -> float:
    """Share of the resamples to be cut off at either end; below (1 - level) / 2.

    Phi(-sqrt(n / (n - 1)) t), with t the quantile of Student's distribution with n - 1 degrees of
    freedom that belongs to the level. Raises StatsInputError for fewer than 2 stems.
    """
    if n_stems < 2:
        raise StatsInputError("n_stems", expected="at least 2", found=n_stems)
    reach = _t_quantile(confidence_level, n_stems)
    return float(scipy.special.ndtr(-math.sqrt(n_stems / (n_stems - 1)) * reach))


def _effect(
    values_S: FloatArray,
    source: _Agreeing | _TInterval | _Resampled | _OneStem,
    level: float,
    bounds: tuple[float, float] | None,
) -> StemEffect:
    ends, method = source.ends(level)
    low, high = (None, None) if ends is None else ends
    if bounds is not None and low is not None and high is not None:
        low, high = (min(max(end, bounds[0]), bounds[1]) for end in (low, high))
    n_stems = len(values_S)
    return StemEffect(
        n_stems=n_stems,
        mean=float(values_S.mean()),
        standard_error=_standard_error(values_S) if n_stems > 1 else None,
        low=low,
        high=high,
        confidence_level=level,
        p=source.p(),
        method=method,
    )


Ends = tuple[float, float] | None


class _OneStem:
    def __init__(self, values_S: FloatArray) -> None:
        del values_S

    def ends(self, level: float) -> tuple[Ends, str]:
        del level
        return None, ONE_STEM

    def p(self) -> float | None:
        return None


class _Agreeing:
    """All stems have the same difference."""

    def __init__(self, values_S: FloatArray, largest_step: float | None) -> None:
        self._n_stems = len(values_S)
        mean = float(values_S.mean())
        self._mean = 0.0 if abs(mean) <= _ROUNDING else mean
        self._step = largest_step

    def ends(self, level: float) -> tuple[Ends, str]:
        if self._step is None:
            return None, NO_STEP
        reach = -math.expm1(math.log1p(-level) / self._n_stems) * self._step
        return (self._mean - reach, self._mean + reach), RULE_OF_THREE

    def p(self) -> float | None:
        if self._step is None:
            return None
        return float(max(0.0, 1 - abs(self._mean) / self._step) ** self._n_stems)


class _TInterval:
    def __init__(self, values_S: FloatArray) -> None:
        self._n_stems = len(values_S)
        self._mean, self._error = float(values_S.mean()), _standard_error(values_S)

    def ends(self, level: float) -> tuple[Ends, str]:
        reach = _t_quantile(level, self._n_stems) * self._error
        return (self._mean - reach, self._mean + reach), T_INTERVAL

    def p(self) -> float:
        return _two_sided(abs(self._mean) / self._error, self._n_stems)


class _Resampled:
    def __init__(self, values_S: FloatArray, sorted_B: FloatArray) -> None:
        self._n_stems = len(values_S)
        self._sorted_B = sorted_B
        self._least_tail = 1 / (len(sorted_B) + 1)
        self._t = _TInterval(values_S)
        self._correction = _Correction.of(values_S, sorted_B)

    def ends(self, level: float) -> tuple[Ends, str]:
        tail = expanded_tail(level, self._n_stems)
        if tail >= self._least_tail:
            low_share, high_share = self._correction.shares(tail)
            low = self._quantile(min(tail, low_share))
            high = self._quantile(max(1 - tail, high_share))
            return (low, high), BOOTSTRAP
        wide, _ = self._t.ends(level)
        assert wide is not None
        low, high = float(self._sorted_B[0]), float(self._sorted_B[-1])
        return (min(low, wide[0]), max(high, wide[1])), T_BEYOND

    def p(self) -> float:
        tail = self._tail_at_zero()
        if tail >= self._least_tail:
            return self._level_left(tail)
        if self._sorted_B[0] <= 0 <= self._sorted_B[-1]:
            return self._level_left(self._least_tail)
        return min(self._t.p(), self._level_left(self._least_tail))

    def _quantile(self, share: float) -> float:
        """As numpy.quantile by its method 'linear'."""
        place = share * (len(self._sorted_B) - 1)
        below = math.floor(place)
        above = min(below + 1, len(self._sorted_B) - 1)
        first, second = float(self._sorted_B[below]), float(self._sorted_B[above])
        return first + (second - first) * (place - below)

    def _tail_at_zero(self) -> float:
        """The tail at which an end of the interval comes to lie on 0; at most 0.5."""
        means, correction = self._sorted_B, self._correction
        from_below = correction.outer_tail(_share_up_to_zero(means))
        from_above = correction.mirrored().outer_tail(_share_down_to_zero(means))
        return min(from_below, from_above, 0.5)

    def _level_left(self, tail: float) -> float:
        """``expanded_tail`` the other way round: 1 - level."""
        reach = -float(scipy.special.ndtri(tail)) * math.sqrt(1 - 1 / self._n_stems)
        return _two_sided(reach, self._n_stems)


@dataclass(frozen=True, slots=True)
class _Correction:
    """BCa's two numbers: how far the resamples' median is off, and how the error grows."""

    bias: float
    acceleration: float

    @classmethod
    def of(cls, values_S: FloatArray, sorted_B: FloatArray) -> _Correction:
        mean = float(values_S.mean())
        left = values_S - mean
        dust = _ROUNDING * max(abs(float(values_S.min())), abs(float(values_S.max())))
        # Resamples that hit the mean count half: with few stems that moved there are many.
        n_below = int(np.searchsorted(sorted_B, mean - dust, side="left"))
        n_up_to = int(np.searchsorted(sorted_B, mean + dust, side="right"))
        share = (n_below + n_up_to) / 2 / len(sorted_B)
        least = 1 / (len(sorted_B) + 1)
        return cls(
            bias=float(scipy.special.ndtri(min(max(share, least), 1 - least))),
            # For a mean, the jackknife's acceleration is the skewness over 6 sqrt(n): at most 1/6.
            acceleration=float((left**3).sum() / (left @ left) ** 1.5) / 6,
        )

    def shares(self, tail: float) -> tuple[float, float]:
        """The shares at which BCa's two ends lie."""
        reach = float(scipy.special.ndtri(tail))
        return self._share(reach), self._share(-reach)

    def outer_tail(self, share: float) -> float:
        """The largest tail at which the lower end, the outer of both, is not above ``share``."""
        if share in (0, 1):
            return share
        shift = float(scipy.special.ndtri(share)) - self.bias
        score = shift / (1 + self.acceleration * shift) - self.bias
        return max(share, float(scipy.special.ndtr(score)))

    def mirrored(self) -> _Correction:
        """That of the same differences with the other sign."""
        return _Correction(-self.bias, -self.acceleration)

    def _share(self, reach: float) -> float:
        moved = self.bias + reach
        return float(scipy.special.ndtr(self.bias + moved / (1 - self.acceleration * moved)))


def _share_up_to_zero(ascending_B: FloatArray) -> float:
    """The largest share whose (linear) quantile is not above 0; 0 if every mean is above it."""
    n_up_to = int(np.searchsorted(ascending_B, 0.0, side="right"))
    if n_up_to in (0, len(ascending_B)):
        return n_up_to / len(ascending_B)
    return _place_of_zero(ascending_B, n_up_to) / (len(ascending_B) - 1)


def _share_down_to_zero(ascending_B: FloatArray) -> float:
    """The same from the upper end: what is left of it at the quantile that is not below 0."""
    n_below = int(np.searchsorted(ascending_B, 0.0, side="left"))
    if n_below in (0, len(ascending_B)):
        return 1 - n_below / len(ascending_B)
    return 1 - _place_of_zero(ascending_B, n_below) / (len(ascending_B) - 1)


def _place_of_zero(ascending_B: FloatArray, after: int) -> float:
    """Where the line from the mean before number ``after`` to that mean meets 0."""
    before, following = float(ascending_B[after - 1]), float(ascending_B[after])
    return after - 1 - before / (following - before)


def _standard_error(values_S: FloatArray) -> float:
    return float(values_S.std(ddof=1)) / math.sqrt(len(values_S))


def _t_quantile(confidence_level: float, n_stems: int) -> float:
    return float(scipy.special.stdtrit(n_stems - 1, (1 + confidence_level) / 2))


def _two_sided(statistic: float, n_stems: int) -> float:
    return min(1.0, 2 * float(scipy.special.stdtr(n_stems - 1, -statistic)))


def _means(values_AS: FloatArray, weights_BS: FloatArray | IntArray) -> FloatArray:
    """Shape (A, B)."""
    n_stems = values_AS.shape[1]
    means = np.empty((len(values_AS), len(weights_BS)))
    if not len(values_AS):
        return means
    block = max(1, _BLOCK_ENTRIES // n_stems)
    for begin in range(0, len(weights_BS), block):
        some = weights_BS[begin : begin + block].astype(np.float64)
        np.matmul(values_AS, some.T, out=means[:, begin : begin + block])
    means /= n_stems
    return means


def _weights(weights_BS: npt.ArrayLike, n_stems: int) -> FloatArray | IntArray:
    weights = np.asarray(weights_BS)
    if n_stems < 1:
        raise StatsInputError("differences_AS", expected="at least 1 stem", found=n_stems)
    if weights.ndim != 2 or weights.shape[1] != n_stems or not len(weights):
        raise StatsInputError(
            "weights_BS",
            expected=f"one or more rows of {n_stems} weights, one for each stem",
            found=f"shape {weights.shape}",
            next_step="make the weights for the stems that are left (stem_weights)",
        )
    if weights.dtype.kind not in "iu" or weights.min() < 0:
        raise StatsInputError("weights_BS", expected="counts of 0 or more", found="others")
    if (weights.sum(axis=1) != n_stems).any():
        raise StatsInputError(
            "weights_BS",
            expected=f"rows that add up to the {n_stems} stems",
            found="a row that does not",
        )
    return weights
