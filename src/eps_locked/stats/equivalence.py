"""How much may still be hidden where no drift was found."""

from __future__ import annotations

import math

from eps_locked.errors import StatsInputError

__all__ = ["equivalence_bound"]


def equivalence_bound(low: float, high: float) -> float:
    """The smallest range around 0 that holds the interval [low, high]: max(|low|, |high|).

    Hand over the 90 % interval. Two one-sided tests at 5 % find the drift inside a margin exactly
    if this bound is not above it; so a drift that really is as large as the margin or larger is
    called "within the margin" in 5 % of studies at most, and a true drift lies outside the bound in
    no more. The margin has to be older than the answers: one that is chosen for its bound proves
    nothing.

    Raises StatsInputError for ends that are not finite or the wrong way round.
    Source: Schuirmann 1987, J. Pharmacokinet. Biopharm. 15, 657-680 (two one-sided tests);
    Meyners 2007, Stat. Med. 26, 2219-2230 (smallest equivalence interval).
    """
    for name, value in (("low", low), ("high", high)):
        if not math.isfinite(value):
            raise StatsInputError(name, expected="a finite number", found=value)
    if low > high:
        raise StatsInputError("low, high", expected="low <= high", found=f"{low}, {high}")
    return max(abs(low), abs(high))
