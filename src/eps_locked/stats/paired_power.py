"""What a number of paired differences can find, before any is there. Unit: their own SD.

The exact signed-rank test has no closed formula for its power, but with n differences it finds a
shift exactly if the shift is above minus the c-th largest of their n (n + 1) / 2 pairwise means
(Walsh averages), c being the smallest significant rank sum. One simulated study therefore gives the
smallest shift that it would find at a level, and the share of studies below a shift is its power.

Differences are taken as normal. Heavier tails at an equal SD are found more often, since ranks mind
outliers less than the SD does, lighter ones less often (uniform ones of 14 prompts: 76 % instead of
80). In the unit of an SD that was itself estimated the figure is low where the SD came out low: a
true difference as large as what 14 prompts print beside their own effect is found in 75 % of
studies on average. ``tests/slow/test_vea_simulation.py`` holds these numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import scipy.optimize
import scipy.special

from eps_locked.errors import StatsInputError
from eps_locked.stats.checks import FloatArray
from eps_locked.stats.signed_rank import smallest_significant_sum
from eps_locked.stats.stem_power import minimum_detectable_few

__all__ = [
    "MinimumDetectable",
    "found_share",
    "minimum_detectable_delta",
    "shown_within",
    "smallest_found",
]

# Above, a large-sample formula is within two percent of what simulation gives.
_SIMULATED_UP_TO: Final = 60
_BLOCK_ENTRIES = 1 << 22
# Of the squared signal-to-noise ratio of the t test, what ranks keep for normal differences.
_EFFICIENCY = 3 / math.pi


@dataclass(frozen=True, kw_only=True, slots=True)
class MinimumDetectable:
    """The smallest true mean difference that is found with the wanted probability.

    ``alone``: of the only family of ``n_families`` that is affected, at the level alpha /
    ``n_families``, which is what Benjamini and Hochberg ask of a single find. ``all_affected``: of
    each family on average where all have it, since finds make further ones easier. None where no
    result of so few differences reaches the level.
    """

    n: int
    n_families: int
    alone: float | None
    all_affected: float | None


def minimum_detectable_delta(
    sd: float,
    n: int,
    alpha: float,
    power: float,
    n_families: int,
    *,
    n_simulated: int,
    rng: np.random.Generator,
) -> MinimumDetectable:
    """For one-sided signed-rank tests of ``n_families`` families of ``n`` differences each, whose
    p-values are adjusted by Benjamini and Hochberg; in the unit of ``sd``.

    Hand over half of alpha and one family for a two-sided test. ``n_simulated`` studies leave the
    power of the answer uncertain by sqrt(power (1 - power) / n_simulated). Raises StatsInputError
    for numbers that cannot be.
    """
    if not (math.isfinite(sd) and sd > 0):
        raise StatsInputError("sd", expected="a finite number above 0", found=sd)
    for name, value in (("alpha", alpha), ("power", power)):
        if not 0 < value < 1:
            raise StatsInputError(name, expected="a number between 0 and 1", found=value)
    if n_families < 1:
        raise StatsInputError("n_families", expected="at least 1", found=n_families)
    levels = [alpha * (k + 1) / n_families for k in range(n_families)]
    points = smallest_found(n, levels, n_simulated, rng)
    return MinimumDetectable(
        n=n,
        n_families=n_families,
        alone=_scaled(_alone(points[0], power), sd),
        all_affected=_scaled(_all_affected(points, power), sd),
    )


def smallest_found(
    n: int, levels: Sequence[float], n_simulated: int, rng: np.random.Generator
) -> FloatArray:
    """The smallest shift, in SDs, that each simulated study finds at each level; ascending.

    Shape (levels, n_simulated); inf where no result of ``n`` differences reaches the level. All
    levels see the same studies. Raises StatsInputError for less than one difference or study.
    """
    for name, value in (("n", n), ("n_simulated", n_simulated)):
        if value < 1:
            raise StatsInputError(name, expected="at least 1", found=value)
    if n > _SIMULATED_UP_TO:
        return _large(n, levels, n_simulated)
    sums = [smallest_significant_sum(n, level) for level in levels]
    points = np.full((len(levels), n_simulated), np.inf)
    first, second = np.triu_indices(n)
    block = max(1, _BLOCK_ENTRIES // len(first))
    for begin in range(0, n_simulated, block):
        size = min(block, n_simulated - begin)
        noise = rng.standard_normal((size, n))
        walsh = np.sort((noise[:, first] + noise[:, second]) / 2, axis=1)
        for place, c in enumerate(sums):
            if c is not None:
                points[place, begin : begin + size] = -walsh[:, -c]
    return np.sort(points, axis=1)


def found_share(power_by_rank: Sequence[float]) -> float:
    """Share of families that Benjamini and Hochberg's procedure finds where all are affected.

    power_by_rank: the chance that one family's p is at most k alpha / m, for k from 1 to m;
    families are independent. Exact: from the largest level down, the number of p-values below a
    level, given how many are below the next larger one, is binomial; the procedure stops at the
    first level k that k p-values reach.
    """
    m = len(power_by_rank)
    if not m or any(not 0 <= one <= 1 for one in power_by_rank):
        raise StatsInputError(
            "power_by_rank", expected="numbers from 0 to 1", found=list(power_by_rank)
        )
    at_k = np.zeros(m + 1)
    at_k[m] = 1.0
    before, found = 1.0, 0.0
    for k in range(m, 0, -1):
        chance = min(1.0, power_by_rank[k - 1] / before) if before > 0 else 0.0
        at_k = _thinned(at_k, chance)
        found += k * at_k[k]
        at_k[k:] = 0.0
        before = power_by_rank[k - 1]
    return float(found) / m


def shown_within(n: int, level: float, power: float, *, two_sided: bool) -> float:
    """The smallest margin, in SDs, that n differences of true mean 0 are shown to lie within.

    Shown is what the interval of this level does: its upper end is below the margin, or
    (``two_sided``) both its ends lie inside. By Student's interval of normal differences. The
    larger the SD is against the margin, the more often nothing is decided.
    """
    wanted = (1 + power) / 2 if two_sided else power
    return minimum_detectable_few(1 / math.sqrt(n), n, 1 - level, wanted)


def _large(n: int, levels: Sequence[float], n_simulated: int) -> FloatArray:
    shares = (np.arange(n_simulated) + 0.5) / n_simulated
    noise, scale = scipy.special.ndtri(shares), math.sqrt(n * _EFFICIENCY)
    return np.stack([(noise - scipy.special.ndtri(level)) / scale for level in levels])


def _alone(points_E: FloatArray, power: float) -> float | None:
    if np.isinf(points_E[0]):
        return None
    return float(np.quantile(points_E, power, method="linear"))


def _all_affected(points_ME: FloatArray, power: float) -> float | None:
    n_simulated = points_ME.shape[1]
    # Families that reach the level of the last rank only are still found if all of them do.
    if np.isinf(points_ME[-1, 0]):
        return None

    def short(delta: float) -> float:
        powers = [float(np.searchsorted(row, delta)) / n_simulated for row in points_ME]
        return found_share(powers) - power

    low, high = float(points_ME[-1, 0]), float(points_ME[-1, -1])
    return float(scipy.optimize.bisect(short, low, high + 1.0, xtol=1e-9))


def _thinned(at_k: FloatArray, chance: float) -> FloatArray:
    """Each of k things kept with this chance: the distribution of how many are left."""
    kept = np.zeros_like(at_k)
    for n in np.flatnonzero(at_k):
        ks = np.arange(n + 1)
        kept[: n + 1] += (
            at_k[n] * scipy.special.binom(n, ks) * chance**ks * (1 - chance) ** (n - ks)
        )
    return kept


def _scaled(value: float | None, sd: float) -> float | None:
    return None if value is None else value * sd
