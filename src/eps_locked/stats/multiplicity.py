"""p-values adjusted for how many were looked at, to be compared with the level itself."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from eps_locked.errors import StatsInputError
from eps_locked.stats.checks import FloatArray, finite_vector

__all__ = ["benjamini_hochberg", "holm"]


def holm(p: npt.ArrayLike) -> FloatArray:
    """Holm's step-down adjustment: the chance of any false claim stays below the level.

    p: shape (n,), each in [0, 1]. Returns the adjusted p-values in the order given, at most 1. It
    holds under any dependence. No p-value gives none back. Raises StatsInputError for a value that
    is not a probability.
    Source: Holm 1979, Scand. J. Statist. 6, 65-70.
    """
    p_n = _probabilities(p)
    order = np.argsort(p_n, kind="stable")
    n = len(p_n)
    return _restore(np.maximum.accumulate(p_n[order] * np.arange(n, 0, -1)), order)


def benjamini_hochberg(p: npt.ArrayLike) -> FloatArray:
    """Step-up adjustment: the expected share of false claims among all claims stays below it.

    As ``holm`` in form. It holds for independent or positively dependent tests; metrics scored on
    one tensor are usually that, but nobody has proved it of them.
    Source: Benjamini & Hochberg 1995, J. R. Statist. Soc. B 57(1), 289-300.
    """
    p_n = _probabilities(p)
    order = np.argsort(p_n, kind="stable")[::-1]
    n = len(p_n)
    return _restore(np.minimum.accumulate(p_n[order] * (n / np.arange(n, 0, -1))), order)


def _probabilities(p: npt.ArrayLike) -> FloatArray:
    p_n = finite_vector(p, "p")
    if len(p_n) and (p_n.min() < 0 or p_n.max() > 1):
        raise StatsInputError(
            "p", expected="numbers from 0 to 1", found=f"{p_n.min()} to {p_n.max()}"
        )
    return p_n


def _restore(adjusted: FloatArray, order: npt.NDArray[np.intp]) -> FloatArray:
    result = np.empty_like(adjusted)
    result[order] = np.minimum(adjusted, 1.0)
    return result
