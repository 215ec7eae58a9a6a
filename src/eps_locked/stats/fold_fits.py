"""Lines through one predictor each, many predictors in many folds at once.

Shape letters: N cells, M columns fitted one at a time (predictors, or permutations of one),
F folds, T tests (pairs of a fold and a cell it tests).

They rest on sums over the fit cells of each fold, made for all folds by one matrix product, and
give what a loop over ``regression.ols`` gives; the tests hold them to it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from eps_locked.errors import StatsInputError
from eps_locked.stats.checks import BoolArray, FloatArray, IntArray, finite_matrix, finite_vector
from eps_locked.stats.folds import FoldMatrix, require_cells
from eps_locked.stats.moments import CONSTANT, standards

__all__ = ["simple_fold_predictions"]

# Where the sums say that a column's variance is below this share of its mean square, they have lost
# half their digits; the variance is then taken again from the values themselves.
_DOUBTFUL = 1e-8
_RECHECK_ENTRIES = 1 << 22


def simple_fold_predictions(
    x_NM: npt.ArrayLike, y_N: npt.ArrayLike, matrix: FoldMatrix, *, intercept: bool = True
) -> FloatArray:
    """Predictions of M regressions on one predictor each, fitted in every fold anew; shape (T, M).

    Column m is the least-squares line of y on x_NM[:, m] within each fold, at the cells that fold
    tests. Without an intercept the line goes through 0: for antisymmetric parts, whose sign is a
    choice of direction, so that a level would mean nothing. A predictor constant in the fit cells
    predicts their mean; without an intercept, one that is 0 in all of them predicts 0.

    Raises StatsInputError for values that are not finite and unequal lengths.
    """
    x, y = finite_matrix(x_NM, "x_NM"), finite_vector(y_N, "y_N")
    if len(x) != len(y):
        raise StatsInputError("y_N", expected=f"{len(x)} values, as in x", found=len(y))
    require_cells(matrix, len(y))
    if not intercept:
        return _predict_through_zero(x, y, matrix)
    lines = _simple_lines(x, y, matrix.fit_FN)
    return lines.predict(matrix.fold_T, matrix.cell_T)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Lines:
    """Least-squares lines of F fits on M predictors, in the standardised units of ``z_NM``."""

    z_NM: FloatArray
    mean_x_FM: FloatArray
    mean_y_F: FloatArray
    slope_FM: FloatArray

    def predict(self, fold_T: IntArray, cell_T: IntArray) -> FloatArray:
        offset_TM = self.z_NM[cell_T] - self.mean_x_FM[fold_T]
        return np.asarray(self.mean_y_F[fold_T, None] + self.slope_FM[fold_T] * offset_TM)


def _simple_lines(x_NM: FloatArray, y_N: FloatArray, fit_FN: FloatArray) -> _Lines:
    # Centred and scaled over all cells: that changes no prediction and keeps the digits that the
    # differences of sums below would lose.
    centre, scale, constant = standards(x_NM)
    z_NM = (x_NM - centre) / scale
    z_NM[:, constant] = 0.0
    level = float(y_N.mean())
    y = y_N - level
    n_F = fit_FN.sum(axis=1)
    mean_x = (fit_FN @ z_NM) / n_F[:, None]
    mean_y = (fit_FN @ y) / n_F
    square = (fit_FN @ np.square(z_NM)) / n_F[:, None]
    variance = square - np.square(mean_x)
    covariance = (fit_FN @ (z_NM * y[:, None])) / n_F[:, None] - mean_x * mean_y[:, None]
    doubtful = (variance <= _DOUBTFUL * square) & ~constant
    if doubtful.any():
        _recheck(doubtful, z_NM, y, fit_FN, variance, covariance)
    slope = np.zeros_like(variance)
    np.divide(covariance, variance, out=slope, where=(variance > 0) & ~constant)
    return _Lines(z_NM=z_NM, mean_x_FM=mean_x, mean_y_F=mean_y + level, slope_FM=slope)


def _recheck(
    doubtful_FM: BoolArray,
    z_NM: FloatArray,
    y_N: FloatArray,
    fit_FN: FloatArray,
    variance_FM: FloatArray,
    covariance_FM: FloatArray,
) -> None:
    """Take the doubtful variances again, about the fold's own mean, and write them in place."""
    folds, columns = np.nonzero(doubtful_FM)
    block = max(1, _RECHECK_ENTRIES // len(y_N))
    for begin in range(0, len(folds), block):
        f, m = folds[begin : begin + block], columns[begin : begin + block]
        fit, z = fit_FN[f], z_NM.T[m]
        n = fit.sum(axis=1)
        highest = np.where(fit > 0, z, -np.inf).max(axis=1)
        lowest = np.where(fit > 0, z, np.inf).min(axis=1)
        size = np.maximum(np.abs(highest), np.abs(lowest))
        left = fit * (z - (np.einsum("kn,kn->k", fit, z) / n)[:, None])
        variance = np.einsum("kn,kn->k", left, left) / n
        variance[highest - lowest <= CONSTANT * size] = 0.0
        variance_FM[f, m] = variance
        covariance_FM[f, m] = (left @ y_N) / n


def _predict_through_zero(x_NM: FloatArray, y_N: FloatArray, matrix: FoldMatrix) -> FloatArray:
    size = np.abs(x_NM).max(axis=0, initial=0.0)
    z_NM = np.divide(x_NM, size, out=np.zeros_like(x_NM), where=size > 0)
    square = matrix.fit_FN @ np.square(z_NM)
    slope = np.zeros_like(square)
    np.divide(matrix.fit_FN @ (z_NM * y_N[:, None]), square, out=slope, where=square > 0)
    return np.asarray(slope[matrix.fold_T] * z_NM[matrix.cell_T])
