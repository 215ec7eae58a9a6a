"""Ridge and the best single predictor, chosen and fitted inside every fold at once, from sums.

What ``stats.regression.ridge_fold_predictions`` and ``select_fold_predictions`` give one fold after
the other, for a null that refits everything many times. Everything follows from the moments of
[1, z, y]: over a fold's inner fit cells they give coefficients, over its inner test cells errors,
over all its fit cells the final fit. The tests hold this to those two functions.

Shape letters: N cells, P predictors, F folds, T tests, A penalties, B inner blocks, C = P + 2.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from eps_locked.errors import StatsInputError
from eps_locked.stats.folds import BoolArray, FoldMatrix

__all__ = ["InnerFolds", "Stacked", "stack"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

# A column whose variance in the fit cells is below this share of its mean square is constant there.
_CONSTANT = 1e-12


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Stacked:
    """ridge_T, best_T: predictions per test. alpha_F: chosen penalty. best_F: chosen predictor."""

    ridge_T: FloatArray
    alpha_F: FloatArray
    best_T: FloatArray
    best_F: IntArray


class InnerFolds:
    """Masks of the inner fits and tests of every fold, made once for all relabellings."""

    def __init__(self, matrix: FoldMatrix, touch_BN: BoolArray) -> None:
        self.matrix = matrix
        self.inner: list[tuple[FloatArray, FloatArray, BoolArray]] = []
        n_tests = np.zeros(len(matrix.fit_FN))
        for touches in touch_BN.astype(np.float64):
            fit, test = matrix.fit_FN * (1.0 - touches), matrix.fit_FN * touches
            usable = fit.any(axis=1) & test.any(axis=1)
            self.inner.append((fit, test, usable))
            n_tests += np.where(usable, test.sum(axis=1), 0.0)
        if (n_tests == 0).any():
            raise StatsInputError(
                "folds",
                problem="too few contexts to choose within the fit",
                expected="an inner fold in every fold",
                found=f"none in {int((n_tests == 0).sum())} of {len(n_tests)}",
            )


def stack(
    X_NP: FloatArray, y_N: FloatArray, inner: InnerFolds, alphas: tuple[float, ...]
) -> Stacked:
    """Penalty and best predictor by squared inner error, then both fitted on all fit cells.

    Of equal penalties the larger is taken, of equal predictors the first.
    """
    matrix = inner.matrix
    spread = X_NP.std(axis=0)
    still = np.ptp(X_NP, axis=0) <= _CONSTANT * np.abs(X_NP).max(axis=0, initial=0.0)
    Z = np.where(still, 0.0, (X_NP - X_NP.mean(axis=0)) / np.where(still, 1.0, spread))
    level, unit = float(y_N.mean()), float(y_N.std()) or 1.0
    columns = np.column_stack([np.ones(len(y_N)), Z, (y_N - level) / unit])
    upper = np.triu_indices(columns.shape[1])
    products = columns[:, upper[0]] * columns[:, upper[1]]

    def moments(masks_FN: FloatArray) -> FloatArray:
        n_columns = columns.shape[1]
        result = np.empty((len(masks_FN), n_columns, n_columns))
        result[:, upper[0], upper[1]] = masks_FN @ products
        result[:, upper[1], upper[0]] = result[:, upper[0], upper[1]]
        return result

    candidates = np.unique(np.asarray(alphas, dtype=np.float64))
    n_folds, n_predictors = len(matrix.fit_FN), X_NP.shape[1]
    ridge_errors = np.zeros((n_folds, len(candidates)))
    line_errors = np.zeros((n_folds, n_predictors))
    for fit_FN, test_FN, usable in inner.inner:
        fitted, tested = moments(fit_FN[usable]), moments(test_FN[usable])
        ridge_errors[usable] += _ridge_errors(_ridges(fitted, candidates), tested)
        line_errors[usable] += _line_errors(*_lines(fitted), tested)
    whole = moments(matrix.fit_FN)
    chosen = len(candidates) - 1 - np.argmin(ridge_errors[:, ::-1], axis=1)
    best = np.argmin(line_errors, axis=1)
    rows = np.arange(n_folds)
    ridge = _ridges(whole, candidates)[rows, chosen]
    intercepts, slopes = _lines(whole)
    fold, cell = matrix.fold_T, matrix.cell_T
    design = columns[cell, :-1]
    by_ridge = np.einsum("tc,tc->t", design, ridge[fold])
    by_line = intercepts[rows, best][fold] + slopes[rows, best][fold] * Z[cell, best[fold]]
    return Stacked(
        ridge_T=by_ridge * unit + level,
        alpha_F=candidates[chosen],
        best_T=by_line * unit + level,
        best_F=best.astype(np.int64),
    )


def _ridges(moments_FCC: FloatArray, alphas_A: FloatArray) -> FloatArray:
    """Intercept and slopes, (F, A, P + 1); predictors standardised on each fold's own cells."""
    n, mean, spread = _centred(moments_FCC)
    inverse = _inverse_deviation(moments_FCC, n, spread)
    gram = spread[:, :-1, :-1] * inverse[:, :, None] * inverse[:, None, :]
    values, vectors = np.linalg.eigh(gram)
    rotated = np.einsum("fpk,fp->fk", vectors, spread[:, :-1, -1] * inverse)
    shrunk = rotated[:, None, :] / (np.maximum(values, 0.0)[:, None, :] + alphas_A[None, :, None])
    slopes = np.einsum("fpk,fak->fap", vectors, shrunk) * inverse[:, None, :]
    intercept = mean[:, None, -1] - np.einsum("fap,fp->fa", slopes, mean[:, :-1])
    return np.concatenate([intercept[..., None], slopes], axis=-1)


def _ridge_errors(coefficients_FAC: FloatArray, tested_FCC: FloatArray) -> FloatArray:
    """With y as a column, sum (y - c - z b)^2 is one quadratic form in (c, b, -1)."""
    minus = np.full((*coefficients_FAC.shape[:2], 1), -1.0)
    signed = np.concatenate([coefficients_FAC, minus], axis=-1)
    return np.asarray(np.einsum("fac,fac->fa", signed @ tested_FCC, signed))


def _lines(moments_FCC: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Intercept and slope of the line on each predictor alone; (F, P) each."""
    n, mean, spread = _centred(moments_FCC)
    inverse = _inverse_deviation(moments_FCC, n, spread)
    slope = spread[:, :-1, -1] * np.square(inverse) / n[:, None]
    return mean[:, -1:] - slope * mean[:, :-1], slope


def _line_errors(
    intercept_FP: FloatArray, slope_FP: FloatArray, tested_FCC: FloatArray
) -> FloatArray:
    one, x, y = 0, slice(1, -1), -1
    n, on_y = tested_FCC[:, one, one, None], tested_FCC[:, x, y]
    sum_x, sum_y = tested_FCC[:, one, x], tested_FCC[:, one, y, None]
    square_x = np.einsum("fpp->fp", tested_FCC)[:, x]
    square_y = tested_FCC[:, y, y, None]
    return np.asarray(
        square_y
        + n * np.square(intercept_FP)
        + square_x * np.square(slope_FP)
        - 2 * intercept_FP * sum_y
        - 2 * slope_FP * on_y
        + 2 * intercept_FP * slope_FP * sum_x
    )


def _centred(moments_FCC: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    n = moments_FCC[:, 0, 0]
    mean = moments_FCC[:, 0, 1:] / n[:, None]
    spread = moments_FCC[:, 1:, 1:] - n[:, None, None] * mean[:, :, None] * mean[:, None, :]
    return n, mean, spread


def _inverse_deviation(
    moments_FCC: FloatArray, n_F: FloatArray, spread_FCC: FloatArray
) -> FloatArray:
    """1 / standard deviation of every predictor in the fit cells; 0 where it is constant there."""
    variance = np.einsum("fpp->fp", spread_FCC)[:, :-1] / n_F[:, None]
    mean_square = np.einsum("fpp->fp", moments_FCC[:, 1:, 1:])[:, :-1] / n_F[:, None]
    moves = variance > _CONSTANT * mean_square
    return np.where(moves, 1.0 / np.sqrt(np.where(moves, variance, 1.0)), 0.0)
