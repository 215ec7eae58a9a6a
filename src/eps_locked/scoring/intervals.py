"""Scores of a design with their intervals: contexts are drawn, not cells, near-duplicates as one.

Every interval of a design starts the same stream, so that two predictors are compared on the same
resamples and none depends on which others are scored.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from eps_locked.scoring.design import Design
from eps_locked.scoring.measures import Measure, absent, measure
from eps_locked.scoring.settings import LOOKS
from eps_locked.stats.dyadic import (
    ScoreInterval,
    line_r2_without_contexts,
    r2_difference_interval,
    r2_interval,
    spearman_interval,
)
from eps_locked.stats.ranks import spearman
from eps_locked.stats.regression import r_squared

__all__ = ["Clusters", "difference_measure", "r2_measure", "refitted_lines", "spearman_measure"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

NO_INTERVAL = "no interval: too few contexts, or a score that one context alone decides"
_LEAST = 3


class Clusters:
    """Which contexts, and which behaviour, each compared value belongs to; and how to resample."""

    def __init__(
        self, design: Design, train_N: IntArray, eval_N: IntArray, stratum_N: IntArray
    ) -> None:
        self._design = design
        self._ids = (train_N, eval_N, stratum_N)

    @classmethod
    def of(cls, design: Design, keep: BoolArray | IntArray | None = None) -> Clusters:
        """The scored cells of a design, or those of ``keep``."""
        everything = slice(None) if keep is None else keep
        return cls(
            design,
            design.group_train_N[everything],
            design.group_eval_N[everything],
            design.piece_N[everything],
        )

    def doubled(self) -> Clusters:
        """Every value under both directions of its pair.

        A pair has no first context. And an antisymmetric part, taken both ways, has mean 0.
        """
        train, evaluated, stratum = self._ids
        return Clusters(
            self._design,
            np.concatenate([train, evaluated]),
            np.concatenate([evaluated, train]),
            np.concatenate([stratum, stratum]),
        )

    def interval(
        self,
        make: Callable[..., ScoreInterval | None],
        bootstrap: bool,
        *columns: FloatArray,
        **fitted: Any,
    ) -> ScoreInterval | None:
        """``fitted``: where the predictions come from, as ``stats.dyadic.r2_interval`` asks."""
        train, evaluated, stratum = self._ids
        settings = self._design.settings
        options: dict[str, Any] = {
            "rng": self._design.rng("resamples"),
            "n_resamples": settings.n_resamples if bootstrap else 0,
            "confidence_level": settings.confidence_level,
            "stratum_N": stratum,
            **fitted,
        }
        return make(*columns, train, evaluated, **options)


def spearman_measure(
    x_N: FloatArray,
    y_N: FloatArray,
    clusters: Clusters,
    *,
    null: Measure | None = None,
    bootstrap: bool = False,
    levels: bool = False,
) -> Measure:
    """Spearman with its interval; absent where a side is constant or there are too few cells."""
    n = len(x_N)
    if n < _LEAST:
        return absent(n, f"{n} cells, at least {_LEAST} needed")
    value = spearman(x_N, y_N)
    if value is None:
        side = "the metric gives" if np.ptp(x_N) == 0 else "g has"
        return absent(n, f"{side} one value in all of these cells")
    return _found(value, n, clusters.interval(spearman_interval, bootstrap, x_N, y_N), null, levels)


def r2_measure(
    y_N: FloatArray,
    predicted_N: FloatArray,
    clusters: Clusters,
    *,
    n: int | None = None,
    null: Measure | None = None,
    bootstrap: bool = False,
    levels: bool = False,
    refitted_K: FloatArray | None = None,
    fitted_elsewhere: bool = False,
) -> Measure:
    """R2 with its interval. ``n`` where it is not the number of values (doubled pairs).

    refitted_K, fitted_elsewhere: where the predictions come from (``stats.dyadic.r2_interval``).
    """
    n = len(y_N) if n is None else n
    value = r_squared(y_N, predicted_N) if len(y_N) >= _LEAST else None
    if value is None:
        return absent(n, _why_not(n))
    interval = clusters.interval(
        r2_interval,
        bootstrap,
        y_N,
        predicted_N,
        refitted_K=refitted_K,
        fitted_elsewhere=fitted_elsewhere,
    )
    return _found(value, n, interval, null, levels)


def difference_measure(
    y_N: FloatArray,
    predicted_N: FloatArray,
    baseline_N: FloatArray,
    clusters: Clusters,
    *,
    n: int | None = None,
    null: Measure | None = None,
    bootstrap: bool = False,
    refitted_K: FloatArray | None = None,
    fitted_elsewhere: bool = False,
) -> Measure:
    """R2 of ``predicted`` less R2 of ``baseline`` on the same cells, with a paired interval."""
    n = len(y_N) if n is None else n
    if len(y_N) < _LEAST:
        return absent(n, _why_not(n))
    own, other = r_squared(y_N, predicted_N), r_squared(y_N, baseline_N)
    if own is None or other is None:
        return absent(n, _why_not(n))
    interval = clusters.interval(
        r2_difference_interval,
        bootstrap,
        y_N,
        predicted_N,
        baseline_N,
        refitted_K=refitted_K,
        fitted_elsewhere=fitted_elsewhere,
    )
    return _found(own - other, n, interval, null, False)


def refitted_lines(design: Design, x_N: FloatArray) -> FloatArray | None:
    """R2 of the design's leave-two-out lines when each context is left out of everything.

    None for pooled behaviours, whose pieces the closed form does not know.
    """
    if len(design.pieces) > 1:
        return None
    return line_r2_without_contexts(x_N, design.y_N, design.group_train_N, design.group_eval_N)


def _why_not(n: int) -> str:
    return (
        f"{n} cells, at least {_LEAST} needed" if n < _LEAST else "g has one value in these cells"
    )


def _found(
    value: float, n: int, interval: ScoreInterval | None, null: Measure | None, levels: bool
) -> Measure:
    reason = NO_INTERVAL if interval is None else None
    found = measure(value, n, interval=interval, null=null, reason=reason)
    if levels:
        known = (
            interval.levels
            if interval is not None
            else tuple((k, None, None) for k in range(1, LOOKS + 1))
        )
        found["levels"] = [{"looks": k, "low": low, "high": high} for k, low, high in known]
    return found
