"""The one form in which a number leaves the scoring: value, interval, n, null, reason."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from eps_locked.stats.dyadic import ScoreInterval
from eps_locked.stats.permutation import permutation_p

__all__ = ["Measure", "absent", "counted", "measure", "null_of", "or_none"]

FloatArray = npt.NDArray[np.float64]
Measure = dict[str, Any]


def measure(
    value: float | None,
    n: int,
    *,
    interval: ScoreInterval | None = None,
    null: Measure | None = None,
    reason: str | None = None,
) -> Measure:
    """A number with what belongs beside it. ``reason``: why the value or interval is missing."""
    coverage = interval.simulated_coverage if interval is not None else None
    bootstrap = interval.bootstrap if interval is not None else None
    return {
        "value": or_none(value),
        "low": None if interval is None else interval.low,
        "high": None if interval is None else interval.high,
        "n": n,
        "reason": reason,
        "simulated_coverage": None if coverage is None else coverage.value,
        "coverage_reached": None if coverage is None else coverage.reached,
        "bootstrap": None if bootstrap is None else {"low": bootstrap.low, "high": bootstrap.high},
        "null": null,
    }


def absent(n: int, reason: str) -> Measure:
    """A measure that is undefined, and why."""
    return measure(None, n, reason=reason)


def null_of(
    observed: float | None, null_M: FloatArray, alpha: float, *, two_sided: bool = False
) -> Measure | None:
    """What relabelled contexts give: mean, (1 - alpha) quantile, p. None when nothing is defined.

    A relabelling whose score is undefined (NaN: a side constant) counts as reaching the observed
    one: nothing is concluded from it. two_sided compares absolute values, and ``high`` is then a
    quantile of those.
    """
    known = null_M[np.isfinite(null_M)]
    if observed is None or not math.isfinite(observed) or len(known) == 0:
        return None
    sizes = np.abs(known) if two_sided else known
    filled = np.where(np.isfinite(null_M), null_M, 2 * max(1.0, abs(observed)))
    return {
        "mean": float(known.mean()),
        "high": float(np.quantile(sizes, 1 - alpha, method="higher")),
        "p": permutation_p(observed, filled, alternative="two_sided" if two_sided else "greater"),
        "n": len(null_M),
    }


def or_none(value: float | None) -> float | None:
    """A finite number, or None: NaN never enters a document."""
    return None if value is None or not math.isfinite(value) else float(value)


def counted(names: Sequence[str]) -> dict[str, int]:
    """How often each name occurs."""
    return {name: names.count(name) for name in sorted(set(names))}
