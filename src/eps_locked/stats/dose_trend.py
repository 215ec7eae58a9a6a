"""Does the rate follow the dose? One line a stem, one test over stems.

Doses stand at their ranks, so nothing is said of the distance between 50 and 75 %. A stem's line
through its rates, read from the lowest to the highest dose, is one number; stems are the sample, as
everywhere. Beside it stands the monotone curve that fits the mean rates best, in either direction:
a response with a threshold is monotone and not straight.

Shape letters: D doses, S stems, B resamples.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import scipy.optimize

from eps_locked.errors import StatsInputError
from eps_locked.stats.checks import FloatArray, finite_matrix, finite_vector
from eps_locked.stats.permutation import permutation_p
from eps_locked.stats.stem_bootstrap import stem_effect

__all__ = ["Direction", "DoseTrend", "dose_trend", "sign_flip_p"]

Direction = Literal["increasing", "decreasing", "flat"]

_ROUNDING = 1e-12
_BLOCK_ENTRIES = 1 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class DoseTrend:
    """``change`` from the lowest to the highest dose along the fitted line, in the rates' unit.

    ``low`` and ``high`` are its interval over stems (None, ``method`` saying why, as in
    ``StemEffect``); ``p`` is from sign flips, two-sided. ``isotonic`` holds the monotone curve's
    value at every dose, in the order given, and ``direction`` which way it goes; ``flat`` if both
    ways fit alike.
    """

    change: float
    low: float | None
    high: float | None
    confidence_level: float
    p: float
    is_exact: bool
    method: str
    isotonic: tuple[float, ...]
    direction: Direction
    n_stems: int


def dose_trend(
    rates_DS: npt.ArrayLike,
    doses_D: npt.ArrayLike,
    weights_BS: npt.ArrayLike,
    confidence_level: float,
    rng: np.random.Generator,
    n_permutations: int,
    *,
    largest_step: float | None = None,
) -> DoseTrend:
    """Trend of the rates over the ranks of their doses, paired by stem.

    rates_DS: every stem's rate at every dose, no NaN. largest_step: as for ``stem_effects``.
    Raises StatsInputError for fewer than 2 doses, doses that are equal, or what ``stem_effects``
    and ``sign_flip_p`` refuse.
    """
    rates, doses = finite_matrix(rates_DS, "rates_DS"), finite_vector(doses_D, "doses_D")
    if len(rates) != len(doses) or len(doses) < 2:
        raise StatsInputError(
            "rates_DS", expected=f"{max(len(doses), 2)} doses, at least 2", found=len(rates)
        )
    if len(np.unique(doses)) != len(doses):
        raise StatsInputError("doses_D", expected="doses that differ", found=doses.tolist())
    changes_S = _contrast(doses) @ rates
    effect = stem_effect(changes_S, weights_BS, confidence_level, largest_step=largest_step)
    p, is_exact = sign_flip_p(changes_S, rng, n_permutations)
    order = np.argsort(doses, kind="stable")
    fitted, direction = _monotone(rates.mean(axis=1)[order])
    isotonic = np.empty(len(doses))
    isotonic[order] = fitted
    return DoseTrend(
        change=effect.mean,
        low=effect.low,
        high=effect.high,
        confidence_level=confidence_level,
        p=p,
        is_exact=is_exact,
        method=effect.method,
        isotonic=tuple(float(value) for value in isotonic),
        direction=direction,
        n_stems=effect.n_stems,
    )


def sign_flip_p(
    values_S: npt.ArrayLike, rng: np.random.Generator, n_permutations: int
) -> tuple[float, bool]:
    """Two-sided p of a mean of 0, and whether all sign patterns were tried.

    If a stem's change is as likely to be up as down, its sign says nothing, and the mean is
    compared with the means under flipped signs: all 2^S of them if they are no more than
    ``n_permutations``, else so many drawn from ``rng``. Exact under that symmetry, whatever the
    distribution. Raises StatsInputError for no value or no permutation.
    Source: Fisher 1935, The Design of Experiments, section 21.
    """
    values = finite_vector(values_S, "values_S")
    if not len(values):
        raise StatsInputError("values_S", expected="at least 1 value", found=0)
    if n_permutations < 1:
        raise StatsInputError("n_permutations", expected="at least 1", found=n_permutations)
    observed = abs(float(values.sum()))
    # Sums of the same sizes differ by rounding only; they have to count as equal.
    observed -= _ROUNDING * float(np.abs(values).sum())
    if 2 ** min(len(values), 62) <= n_permutations:
        sums = np.zeros(1)
        for value in values:
            sums = np.concatenate([sums - value, sums + value])
        return float(np.mean(np.abs(sums) >= observed)), True
    null = np.concatenate(_flipped(values, rng, n_permutations))
    return permutation_p(max(0.0, observed), null), False


def _flipped(
    values_S: FloatArray, rng: np.random.Generator, n_permutations: int
) -> list[FloatArray]:
    block = max(1, _BLOCK_ENTRIES // len(values_S))
    parts = []
    for begin in range(0, n_permutations, block):
        size = min(block, n_permutations - begin)
        signs = 2.0 * rng.integers(0, 2, size=(size, len(values_S)), dtype=np.int8) - 1
        parts.append(signs @ values_S)
    return parts


def _contrast(doses_D: FloatArray) -> FloatArray:
    """Weights that give a least-squares line's rise over the whole range of ranks."""
    ranks = np.empty(len(doses_D))
    ranks[np.argsort(doses_D, kind="stable")] = np.arange(len(doses_D))
    centred = ranks - ranks.mean()
    contrast: FloatArray = centred * ((len(doses_D) - 1) / (centred @ centred))
    return contrast


def _monotone(means_D: FloatArray) -> tuple[FloatArray, Direction]:
    """The least-squares monotone curve through the means of ascending doses."""
    up, down = (
        np.asarray(scipy.optimize.isotonic_regression(means_D, increasing=way).x, dtype=np.float64)
        for way in (True, False)
    )
    miss_up, miss_down = (float(np.square(means_D - fit).sum()) for fit in (up, down))
    if math.isclose(miss_up, miss_down, rel_tol=1e-9, abs_tol=_ROUNDING):
        return up, "flat"
    return (up, "increasing") if miss_up < miss_down else (down, "decreasing")
