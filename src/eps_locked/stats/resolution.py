"""What a design could have seen: the smallest effect it finds often enough.

Printed beside every estimate, so that "no effect found" is read together with the size of effect
that would have been found.
"""

from __future__ import annotations

import math
from statistics import NormalDist

from eps_locked.errors import StatsInputError

__all__ = ["minimum_detectable_effect"]


def minimum_detectable_effect(
    standard_error: float, alpha: float = 0.05, power: float = 0.80
) -> float:
    """The true effect that a two-sided test at ``alpha`` finds with probability ``power``.

    (z[1 - alpha/2] + z[power]) * standard_error, about 2.80 standard errors at the defaults, in
    the unit of the standard error. The estimate is taken as normal and its standard error as
    known: with a standard error from few degrees of freedom the true figure is larger. The
    rejections on the wrong side are not counted as found (about 1e-6 of power at the defaults).

    Raises StatsInputError for a standard error that is not finite and above 0 (a zero would
    promise a resolution without limit) and for alpha or power outside (0, 1).
    Source: Bloom 1995, Evaluation Review 19(5), 547-556.
    """
    if not (math.isfinite(standard_error) and standard_error > 0):
        raise StatsInputError(
            "standard_error", expected="a finite number above 0", found=standard_error
        )
    for name, value in (("alpha", alpha), ("power", power)):
        if not 0 < value < 1:
            raise StatsInputError(name, expected="a number between 0 and 1", found=value)
    normal = NormalDist()
    return (normal.inv_cdf(1 - alpha / 2) + normal.inv_cdf(power)) * standard_error
