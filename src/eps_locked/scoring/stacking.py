"""Ridge and the best single predictor, chosen and fitted inside every fold at once, from sums.

Made for a null that refits everything many times. Everything follows from the moments of
[1, z, y]: over a fold's inner fit cells they give coefficients, over its inner test cells errors,
over all its fit cells the final fit. The tests hold this to a loop over the folds.

Shape letters: F folds, T tests; N cells, P predictors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from eps_locked.stats.folds import FoldMatrix, InnerFold
from eps_locked.stats.moments import (
    least_with_largest_penalty,
    lines,
    moments_over,
    ridges,
    squared_line_errors,
    squared_ridge_errors,
    standardised,
)

__all__ = ["Stacked", "stack"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Stacked:
    """ridge_T, best_T: predictions per test. alpha_F: chosen penalty. best_F: chosen predictor."""

    ridge_T: FloatArray
    alpha_F: FloatArray
    best_T: FloatArray
    best_F: IntArray


def stack(
    X_NP: FloatArray,
    y_N: FloatArray,
    matrix: FoldMatrix,
    inner: Sequence[InnerFold],
    alphas: tuple[float, ...],
) -> Stacked:
    """Penalty and best predictor by squared inner error, then both fitted on all fit cells.

    inner: ``inner_folds`` of the same folds, made once for all relabellings. Of equal penalties the
    larger is taken, of equal predictors the first.
    """
    Z = standardised(X_NP)
    level, unit = float(y_N.mean()), float(y_N.std()) or 1.0
    columns = np.column_stack([np.ones(len(y_N)), Z, (y_N - level) / unit])
    over = moments_over(columns)
    candidates = np.unique(np.asarray(alphas, dtype=np.float64))
    n_folds, n_predictors = len(matrix.fit_FN), X_NP.shape[1]
    ridge_errors = np.zeros((n_folds, len(candidates)))
    line_errors = np.zeros((n_folds, n_predictors))
    for fold in inner:
        fitted, tested = over(fold.fit_UN), over(fold.test_UN)
        ridge_errors[fold.usable_F] += squared_ridge_errors(ridges(fitted, candidates), tested)
        line_errors[fold.usable_F] += squared_line_errors(*lines(fitted), tested)
    whole = over(matrix.fit_FN)
    chosen = least_with_largest_penalty(ridge_errors)
    best = np.argmin(line_errors, axis=1)
    rows = np.arange(n_folds)
    ridge = ridges(whole, candidates)[rows, chosen]
    intercepts, slopes = lines(whole)
    fold_T, cell_T = matrix.fold_T, matrix.cell_T
    by_ridge = np.einsum("tc,tc->t", columns[cell_T, :-1], ridge[fold_T])
    intercept_T, slope_T = intercepts[rows, best][fold_T], slopes[rows, best][fold_T]
    by_line = intercept_T + slope_T * Z[cell_T, best[fold_T]]
    return Stacked(
        ridge_T=by_ridge * unit + level,
        alpha_F=candidates[chosen],
        best_T=by_line * unit + level,
        best_F=best.astype(np.int64),
    )
