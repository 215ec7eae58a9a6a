"""Wilcoxon's signed-rank test of paired differences, exact also where differences are tied.

Under the null hypothesis each difference is as likely to be positive as negative, whatever its
size. The sizes are therefore taken as they are, ties and all, and the distribution of the positive
rank sum is counted over all 2^n choices of signs: a sum over ranks that may be halves, so ranks are
doubled and the count runs over integers.

*Zeros.* By Pratt's rule they are ranked with the others and then left out: a zero says that a
difference is small, so the ones that are left should not move down for it. Dropping zeros before
ranking, as Wilcoxon did, lets a sample look more decided the more of it shows nothing.

What is tested is symmetry about 0. A skewed distribution with mean 0 is not symmetric, and is found
more often than the level says where its long tail is on the other side.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

import numpy as np
import numpy.typing as npt
import scipy.special

from eps_locked.errors import StatsInputError
from eps_locked.stats.checks import FloatArray, IntArray, finite_vector
from eps_locked.stats.ranks import average_ranks

__all__ = ["EXACT_UP_TO", "SignedRank", "signed_rank", "smallest_significant_sum"]

EXACT_UP_TO: Final = 300
"""Up to so many differences that are not zero the distribution is counted, not approximated."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SignedRank:
    """``w_plus``: sum of the ranks of the positive differences, with Pratt's rule for zeros.

    ``n`` counts all differences, ``n_zero`` those that are exactly 0. ``p_greater`` is small where
    differences are positive. ``p_two_sided`` is twice the smaller of the two, at most 1.
    """

    n: int
    n_zero: int
    w_plus: float
    p_greater: float
    p_less: float
    p_two_sided: float
    method: Literal["exact", "exact with ties", "normal"]


def signed_rank(differences: npt.ArrayLike) -> SignedRank:
    """The test of one sample of paired differences; shape (n,), n at least 1.

    Where all differences are 0 there is nothing to reorder, and every p is 1. Above
    ``EXACT_UP_TO`` the normal approximation is used, with the variance that ties leave and a
    continuity correction of half a rank.

    Raises StatsInputError for a difference that is not finite, and for none at all.
    Source: Wilcoxon 1945, Biometrics Bulletin 1(6), 80-83; Pratt 1959, J. Am. Stat. Assoc. 54,
    655-667 (zeros); Streitberg and Roehmel 1986, Stat. Software Newsletter 12, 10-17 (counting).
    """
    values = finite_vector(differences, "differences")
    if not len(values):
        raise StatsInputError("differences", expected="at least one", found=0)
    doubled = _doubled_ranks(np.abs(values))
    is_zero = values == 0
    ranks, found = doubled[~is_zero], int(doubled[values > 0].sum())
    if len(ranks) <= EXACT_UP_TO:
        greater, less = _exact(ranks, found)
        untied = np.array_equal(np.sort(ranks), 2 * np.arange(1, len(values) + 1))
        method: Literal["exact", "exact with ties", "normal"] = (
            "exact" if untied else "exact with ties"
        )
    else:
        greater, less = _normal(ranks, found)
        method = "normal"
    return SignedRank(
        n=len(values),
        n_zero=int(is_zero.sum()),
        w_plus=found / 2,
        p_greater=greater,
        p_less=less,
        p_two_sided=min(1.0, 2 * min(greater, less)),
        method=method,
    )


def smallest_significant_sum(n: int, level: float) -> int | None:
    """The smallest positive rank sum of ``n`` untied differences with ``p_greater`` <= ``level``.

    None where not even n positive differences get there. Raises StatsInputError for an ``n``
    outside 1 to ``EXACT_UP_TO`` or a level outside (0, 1).
    """
    if not 1 <= n <= EXACT_UP_TO:
        raise StatsInputError("n", expected=f"from 1 to {EXACT_UP_TO}", found=n)
    if not 0 < level < 1:
        raise StatsInputError("level", expected="a number between 0 and 1", found=level)
    tails = _tails(tuple(range(2, 2 * n + 1, 2)))[::2]
    if tails[-1] > level:
        return None
    return int(np.argmax(tails <= level))


def _doubled_ranks(magnitudes: FloatArray) -> IntArray:
    return np.rint(2 * average_ranks(magnitudes)).astype(np.int64)


def _exact(doubled: IntArray, found: int) -> tuple[float, float]:
    tails = _tails(tuple(sorted(doubled.tolist())))
    # With every sign turned round, a sum becomes what is left of the total.
    return float(tails[found]), float(tails[len(tails) - 1 - found])


@lru_cache(maxsize=256)
def _tails(doubled: tuple[int, ...]) -> FloatArray:
    """P(sum of the positive ranks >= s) for s from 0 to the total, all in doubled ranks."""
    chances = np.zeros(sum(doubled) + 1)
    chances[0] = 1.0
    reached = 0
    for rank in doubled:
        chances[: reached + 1] /= 2
        # The right side is a copy: where the two parts overlap, a sum must not be added twice.
        chances[rank : rank + reached + 1] += chances[: reached + 1].copy()
        reached += rank
    tails: FloatArray = np.minimum(np.cumsum(chances[::-1])[::-1], 1.0)
    tails.flags.writeable = False
    return tails


def _normal(doubled: IntArray, found: int) -> tuple[float, float]:
    ranks = doubled.astype(np.float64)
    away = found - float(ranks.sum()) / 2
    deviation = math.sqrt(float(ranks @ ranks)) / 2
    # One doubled rank is half a rank.
    return tuple(float(scipy.special.ndtr((side * away + 1) / deviation)) for side in (-1, 1))  # type: ignore[return-value]
