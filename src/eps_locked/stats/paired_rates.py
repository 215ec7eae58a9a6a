"""Two rates on the same items, and two rates on items that cannot be matched.

Each item has one outcome under either condition, so only the items on which the two differ say
anything: ``n_up`` are 1 in the second and 0 in the first, ``n_down`` the reverse.

The test is exact (McNemar's, a sign test on the items that differ): with a few of them a resampled
interval leaves zero out far too easily. The interval inverts Tango's score test, which holds its
level in small samples and at rates near 0 and 1. The two belong together but are not one: at the
edge the one may say yes where the other says no.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.optimize
import scipy.special
import scipy.stats

from eps_locked.errors import StatsInputError

__all__ = [
    "PairedRates",
    "RateDifference",
    "independent_rates",
    "minimum_detectable_paired",
    "paired_rates",
    "power_of_pairs",
    "rate_interval",
]

_EDGE = 1e-9


@dataclass(frozen=True, kw_only=True, slots=True)
class RateDifference:
    """``delta`` is the second rate minus the first, within [-1, 1]; ``low`` and ``high`` its
    interval; ``p`` two-sided and exact."""

    delta: float
    low: float
    high: float
    confidence_level: float
    p: float


@dataclass(frozen=True, kw_only=True, slots=True)
class PairedRates:
    """Outcomes of ``n`` items under two conditions, counted."""

    n: int
    n_up: int
    n_down: int

    @property
    def delta(self) -> float:
        return (self.n_up - self.n_down) / self.n

    @property
    def discordant_share(self) -> float:
        """Share of the items on which the conditions differ."""
        return (self.n_up + self.n_down) / self.n

    @property
    def p(self) -> float:
        """McNemar's exact two-sided p; 1 where no item differs."""
        differing = self.n_up + self.n_down
        if differing == 0:
            return 1.0
        return float(scipy.stats.binomtest(self.n_up, differing, 0.5).pvalue)

    def interval(self, confidence_level: float) -> tuple[float, float]:
        """Tango's score interval of ``delta``.

        Source: Tango 1998, Statistics in Medicine 17, 891-908.
        """
        _require_level(confidence_level)
        z = float(scipy.special.ndtri((1 + confidence_level) / 2))
        return (
            self._end(lambda delta: self._score(delta) - z, upper=False),
            self._end(lambda delta: self._score(delta) + z, upper=True),
        )

    def difference(self, confidence_level: float) -> RateDifference:
        low, high = self.interval(confidence_level)
        return RateDifference(
            delta=self.delta, low=low, high=high, confidence_level=confidence_level, p=self.p
        )

    def _score(self, delta: float) -> float:
        """Standardised distance of what was seen from ``delta``; falls as ``delta`` grows."""
        n, up, down = self.n, self.n_up, self.n_down
        # The share that goes down, estimated under this delta: the larger root of a quadratic.
        b = -up - down + (2 * n - up + down) * delta
        c = -down * delta * (1 - delta)
        share_down = (math.sqrt(max(0.0, b * b - 8 * n * c)) - b) / (4 * n)
        variance = n * (2 * share_down + delta * (1 - delta))
        distance = up - down - n * delta
        if variance <= 0:
            return math.copysign(math.inf, distance) if distance else 0.0
        return distance / math.sqrt(variance)

    def _end(self, crossing: Callable[[float], float], *, upper: bool) -> float:
        inside, edge = self.delta, (1.0 if upper else -1.0)
        limit = edge * (1 - _EDGE)
        if abs(inside) >= 1 and inside * edge > 0:
            return edge
        if crossing(limit) * edge >= 0:
            # The score never gets so far: every delta up to the edge is compatible.
            return edge
        return float(scipy.optimize.brentq(crossing, inside, limit, xtol=1e-12))


def paired_rates(first: Sequence[int], second: Sequence[int]) -> PairedRates:
    """Counts of two rows of outcomes, 0 or 1, item by item.

    Raises StatsInputError for no item, rows of other lengths, and anything but 0 and 1.
    """
    one, other = _outcomes(first, "first"), _outcomes(second, "second")
    if len(one) != len(other):
        raise StatsInputError("second", expected=f"{len(one)} outcomes", found=len(other))
    if len(one) == 0:
        raise StatsInputError("first", expected="at least one outcome", found="none")
    return PairedRates(n=len(one), n_up=int((other > one).sum()), n_down=int((one > other).sum()))


def independent_rates(
    n_first: int, k_first: int, n_second: int, k_second: int, confidence_level: float
) -> RateDifference:
    """``k`` of ``n`` twice, on items that cannot be matched: Newcombe's interval, Fisher's p.

    Wider than a paired one. Raises StatsInputError for counts that make no sense.
    Source: Newcombe 1998, Statistics in Medicine 17, 873-890 (method 10).
    """
    _require_level(confidence_level)
    rates, ends = [], []
    for name, n, k in (("first", n_first, k_first), ("second", n_second, k_second)):
        ends.append(rate_interval(k, n, confidence_level, name=name))
        rates.append(k / n)
    delta = rates[1] - rates[0]
    low = delta - math.hypot(rates[1] - ends[1][0], ends[0][1] - rates[0])
    high = delta + math.hypot(ends[1][1] - rates[1], rates[0] - ends[0][0])
    table = [[k_first, n_first - k_first], [k_second, n_second - k_second]]
    return RateDifference(
        delta=delta,
        low=max(-1.0, low),
        high=min(1.0, high),
        confidence_level=confidence_level,
        p=float(scipy.stats.fisher_exact(table).pvalue),
    )


def rate_interval(
    k: int, n: int, confidence_level: float, *, name: str = "rate"
) -> tuple[float, float]:
    """Wilson's interval of ``k`` of ``n``. Raises StatsInputError for counts that make no sense."""
    _require_level(confidence_level)
    if n < 1 or not 0 <= k <= n:
        raise StatsInputError(name, expected="k of n, 0 <= k <= n and n >= 1", found=f"{k} of {n}")
    found = scipy.stats.binomtest(k, n).proportion_ci(confidence_level, method="wilson")
    return float(found.low), float(found.high)


def power_of_pairs(delta: float, n: int, discordant_share: float, alpha: float) -> float:
    """Probability that McNemar's exact test on ``n`` items finds a true difference.

    delta: the true difference of the rates. discordant_share: the true share of items on which the
    conditions differ; where it is less than ``|delta|`` the difference needs more than that, and
    ``|delta|`` is taken. Exact: the number of differing items is binomial, and so is how many of
    them go up. Raises StatsInputError for a share outside [0, 1], a delta outside [-1, 1], or no
    item.
    """
    _require_share("alpha", alpha)
    if not 0 <= discordant_share <= 1:
        raise StatsInputError("discordant_share", expected="0 to 1", found=discordant_share)
    if not -1 <= delta <= 1:
        raise StatsInputError("delta", expected="-1 to 1", found=delta)
    if n < 1:
        raise StatsInputError("n", expected="at least 1", found=n)
    differing = max(abs(delta), discordant_share)
    if differing == 0:
        return 0.0
    up = (1 + abs(delta) / differing) / 2
    numbers = np.arange(n + 1)
    weights = scipy.stats.binom.pmf(numbers, n, differing)
    # The largest count in a tail whose two-sided p is still at most alpha; -1 where there is none.
    reach = scipy.stats.binom.ppf(alpha / 2, numbers, 0.5)
    reach = np.where(2 * scipy.stats.binom.cdf(reach, numbers, 0.5) > alpha, reach - 1, reach)
    rejected = scipy.stats.binom.cdf(reach, numbers, up)
    rejected += scipy.stats.binom.cdf(reach, numbers, 1 - up)
    return float(weights @ np.minimum(rejected, 1.0))


def minimum_detectable_paired(
    n: int, discordant_share: float, alpha: float, power: float
) -> float | None:
    """The smallest true difference of rates that is found with probability ``power``.

    As ``power_of_pairs``; None where not even a difference of 1 would be found, as with fewer than
    six items at a level of 5 %.
    """
    _require_share("power", power)

    def short(delta: float) -> float:
        return power_of_pairs(delta, n, discordant_share, alpha) - power

    if short(1.0) < 0:
        return None
    if short(_EDGE) >= 0:
        return 0.0
    # Far below the ten digits that documents keep, so that no processor rounds to another one.
    return float(scipy.optimize.brentq(short, _EDGE, 1.0, xtol=1e-14))


def _outcomes(values: Sequence[int], name: str) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    found = np.asarray(list(values), dtype=object)
    if any(type(value) not in (int, bool) or value not in (0, 1) for value in found):
        raise StatsInputError(name, expected="outcomes that are 0 or 1", found="something else")
    return found.astype(np.int64)


def _require_level(confidence_level: float) -> None:
    _require_share("confidence_level", confidence_level)


def _require_share(name: str, value: float) -> None:
    if not 0 < value < 1:
        raise StatsInputError(name, expected="a number between 0 and 1", found=value)
