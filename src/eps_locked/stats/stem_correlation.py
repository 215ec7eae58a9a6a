"""Does something known of a stem go with its drift? Rank correlation over stems.

Thirty stems find little: the smallest correlation they could have found is part of the answer.

Shape letters: S stems, B resamples.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from eps_locked.errors import StatsInputError
from eps_locked.stats.checks import finite_vector
from eps_locked.stats.ranks import spearman, weighted_spearman
from eps_locked.stats.stem_bootstrap import LEAST_RESAMPLED, expanded_tail

__all__ = ["StemCorrelation", "detectable_correlation", "stem_correlation"]

# As for kappa: beyond this share of resamples without a value, percentiles of the others say
# little.
_MAX_UNDEFINED_SHARE = 0.05
# Fieller, Hartley and Pearson: of the variance of Fisher's z of a rank correlation, n - 3 times.
_SPEARMAN_VARIANCE = 1.06


@dataclass(frozen=True, kw_only=True, slots=True)
class StemCorrelation:
    """``r``, ``low`` and ``high`` are None only if ``reason`` says why.

    ``n_undefined`` resamples held one value only on a side and are left out of the percentiles.
    ``detectable``: ``detectable_correlation`` of so many stems, None below 4.
    """

    r: float | None
    low: float | None
    high: float | None
    reason: str | None
    confidence_level: float
    n: int
    n_undefined: int
    detectable: float | None


def stem_correlation(
    x_S: npt.ArrayLike, y_S: npt.ArrayLike, weights_BS: npt.ArrayLike, confidence_level: float
) -> StemCorrelation:
    """Spearman's correlation of ``x`` and ``y`` with its interval over stems.

    weights_BS: from ``stem_weights``. The interval is the expanded percentile one; like any of a
    rank correlation from few stems it is rough. None below ``LEAST_RESAMPLED`` stems and from 5 %
    of undefined resamples on. Raises StatsInputError for values that are not finite, sides or
    weights that do not fit, or a level outside (0, 1).
    """
    x, y = finite_vector(x_S, "x_S"), finite_vector(y_S, "y_S")
    n = len(x)
    if len(y) != n:
        raise StatsInputError("y_S", expected=f"{n} stems", found=len(y))
    if not 0 < confidence_level < 1:
        raise StatsInputError(
            "confidence_level", expected="a number between 0 and 1", found=confidence_level
        )

    def answer(
        r: float | None,
        reason: str | None,
        ends: tuple[float | None, float | None] = (None, None),
        n_undefined: int = 0,
    ) -> StemCorrelation:
        return StemCorrelation(
            r=r,
            low=ends[0],
            high=ends[1],
            reason=reason,
            confidence_level=confidence_level,
            n=n,
            n_undefined=n_undefined,
            detectable=detectable_correlation(n, 1 - confidence_level) if n > 3 else None,
        )

    if n < 3:
        return answer(None, f"{n} stems; a rank correlation takes 3")
    r = spearman(x, y)
    if r is None:
        return answer(None, "all stems have one value on a side")
    if n < LEAST_RESAMPLED:
        return answer(r, f"{n} stems; an interval takes {LEAST_RESAMPLED}")
    resampled = weighted_spearman(x, y, weights_BS)
    defined = resampled[~np.isnan(resampled)]
    n_undefined = len(resampled) - len(defined)
    if n_undefined > _MAX_UNDEFINED_SHARE * len(resampled) or not len(defined):
        reason = f"{n_undefined} of {len(resampled)} resamples hold one value on a side"
        return answer(r, reason, n_undefined=n_undefined)
    tail = expanded_tail(confidence_level, n)
    low, high = np.quantile(defined, [tail, 1 - tail], method="linear")
    return answer(r, None, (float(low), float(high)), n_undefined)


def detectable_correlation(n_stems: int, alpha: float = 0.05, power: float = 0.80) -> float:
    """The smallest true rank correlation, up or down, that so many stems find with this power.

    tanh((z[1 - alpha/2] + z[power]) sqrt(1.06 / (n - 3))); 0.50 for 30 stems at the defaults.
    Raises StatsInputError for fewer than 4 stems or a share outside (0, 1).
    Source: Fisher 1921, Metron 1, 3-32; Fieller, Hartley and Pearson 1957, Biometrika 44, 470-481
    (the 1.06 for ranks).
    """
    if n_stems < 4:
        raise StatsInputError("n_stems", expected="at least 4", found=n_stems)
    for name, value in (("alpha", alpha), ("power", power)):
        if not 0 < value < 1:
            raise StatsInputError(name, expected="a number between 0 and 1", found=value)
    normal = NormalDist()
    reach = normal.inv_cdf(1 - alpha / 2) + normal.inv_cdf(power)
    return math.tanh(reach * math.sqrt(_SPEARMAN_VARIANCE / (n_stems - 3)))
