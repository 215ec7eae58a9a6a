"""Out-of-fold predictions of a design, many predictors (or relabellings of one) at a time.

Shape letters: N cells, M columns, F folds, T tests, C covariates.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from eps_locked.stats.fold_fits import simple_fold_predictions
from eps_locked.stats.folds import FoldMatrix
from eps_locked.stats.moments import standardised

__all__ = ["by_cell", "covariate_predictions", "leave_block_out", "line_predictions"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

# A leverage this close to 1: the value determines its own fit, nothing is left to predict it.
_OWN_FIT = 1e-9


def by_cell(predicted_TM: FloatArray, matrix: FoldMatrix) -> FloatArray:
    """Predictions in the order of the cells; a cell tested twice gets the mean of both; (N, M).

    Every cell of the folds used here is tested at least once.
    """
    n_cells = matrix.fit_FN.shape[1]
    order = np.argsort(matrix.cell_T, kind="stable")
    counts = np.bincount(matrix.cell_T, minlength=n_cells)
    starts = np.concatenate(([0], np.cumsum(counts)[:-1]))
    sums = np.add.reduceat(predicted_TM[order], starts, axis=0)
    return np.asarray(sums / counts[:, None])


def line_predictions(
    x_NM: FloatArray, y_N: FloatArray, matrix: FoldMatrix, *, intercept: bool = True
) -> FloatArray:
    """A least-squares line per column and fold, judged on the cells the fold tests; (N, M)."""
    return by_cell(simple_fold_predictions(x_NM, y_N, matrix, intercept=intercept), matrix)


def covariate_predictions(
    C_NC: FloatArray, x_NM: FloatArray, y_N: FloatArray, matrix: FoldMatrix
) -> tuple[FloatArray, FloatArray]:
    """Out-of-fold predictions of the covariates alone, (N,), and with each column added, (N, M).

    By the theorem of Frisch and Waugh, per fold: the column and y are freed of the covariates, and
    a line fitted to what is left. A column that the covariates determine in a fold adds nothing.
    """
    Z = np.column_stack([np.ones(len(y_N)), standardised(C_NC)])
    x, y = standardised(x_NM), y_N - y_N.mean()
    W = matrix.fit_FN
    q = Z.shape[1]
    gram = np.stack([[W @ (Z[:, a] * Z[:, b]) for b in range(q)] for a in range(q)])
    inverse = np.linalg.pinv(np.moveaxis(gram, 2, 0), rcond=1e-10, hermitian=True)
    on_y = np.stack([W @ (Z[:, a] * y) for a in range(q)], axis=1)
    on_x = np.stack([W @ (Z[:, a, None] * x) for a in range(q)], axis=1)
    gamma_y = np.einsum("fab,fb->fa", inverse, on_y)
    gamma_x = np.einsum("fab,fbm->fam", inverse, on_x)
    square = W @ np.square(x)
    left = square - np.einsum("fam,fam->fm", on_x, gamma_x)
    shared = W @ (x * y[:, None]) - np.einsum("fam,fa->fm", on_x, gamma_y)
    slope = np.divide(shared, left, out=np.zeros_like(left), where=left > _OWN_FIT * square)
    fold, cell = matrix.fold_T, matrix.cell_T
    alone = np.einsum("ta,ta->t", Z[cell], gamma_y[fold])
    offset = x[cell] - np.einsum("ta,tam->tm", Z[cell], gamma_x[fold])
    together = alone[:, None] + slope[fold] * offset
    both = by_cell(np.column_stack([alone, together]), matrix) + y_N.mean()
    return both[:, 0], both[:, 1:]


def leave_block_out(
    basis_NR: FloatArray, y_N: FloatArray, x_NM: FloatArray, block_N: IntArray
) -> tuple[FloatArray, FloatArray, BoolArray]:
    """Predictions of each block of one or two values from a fit on all others, in closed form.

    basis_NR: orthonormal columns of the model without the predictor. Returns its predictions (N,),
    those with each column of x added (N, M), and which values can be predicted at all: one whose
    row or column has no other cell cannot.
    e_out = (I - H_BB)^-1 e_B for block B; H the hat matrix, e the residuals of the whole fit.
    """
    left_y = y_N - basis_NR @ (basis_NR.T @ y_N)
    left_x = x_NM - basis_NR @ (basis_NR.T @ x_NM)
    size = np.sqrt(np.square(left_x).sum(axis=0))
    scale = np.sqrt(np.square(x_NM - x_NM.mean(axis=0)).sum(axis=0))
    moves = size > 1e-9 * scale
    unit = np.where(moves, left_x / np.where(moves, size, 1.0), 0.0)
    own = left_y[:, None] - unit * (left_y @ unit)
    partner = _partners(block_N)
    has_partner = partner != np.arange(len(y_N))
    lever = np.square(basis_NR).sum(axis=1)
    cross = np.where(has_partner, (basis_NR * basis_NR[partner]).sum(axis=1), 0.0)
    out_0, ok = _out_of_block(left_y[:, None], lever[:, None], cross[:, None], partner)
    lever_x = lever[:, None] + np.square(unit)
    cross_x = cross[:, None] + np.where(has_partner[:, None], unit * unit[partner], 0.0)
    out_x, ok_x = _out_of_block(own, lever_x, cross_x, partner)
    out_x = np.where(ok_x, out_x, out_0)
    return y_N - out_0[:, 0], y_N[:, None] - out_x, ok[:, 0]


def _out_of_block(
    e: FloatArray, lever: FloatArray, cross: FloatArray, partner: IntArray
) -> tuple[FloatArray, BoolArray]:
    """A block of one has cross 0; the 2 x 2 formula then is the well-known e / (1 - h)."""
    free = 1.0 - lever
    determinant = free * np.where(cross == 0, 1.0, free[partner]) - np.square(cross)
    ok = (determinant > _OWN_FIT) & (free > _OWN_FIT)
    numerator = np.where(cross == 0, e, free[partner] * e + cross * e[partner])
    return np.divide(numerator, determinant, out=np.zeros_like(e), where=ok), ok


def _partners(block_N: IntArray) -> IntArray:
    """The other value of each block, or the value itself where it is alone."""
    order = np.argsort(block_N, kind="stable")
    partner = np.arange(len(block_N))
    same = block_N[order][1:] == block_N[order][:-1]
    first, second = order[:-1][same], order[1:][same]
    partner[first], partner[second] = second, first
    return partner
