"""Columns on one scale, and fits on many sets of cells at once from sums of their products.

Of the columns [1, z, y], the products of every two, summed over a set of cells, give least-squares
and ridge fits on that set and, summed over another set, the squared errors there of any such fit.
All sets take one matrix product.

Shape letters: N cells, P predictors, F sets of cells, A penalties, C = P + 2 columns.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from eps_locked.stats.checks import BoolArray, FloatArray, IntArray

__all__ = [
    "CONSTANT",
    "least_with_largest_penalty",
    "lines",
    "moments_over",
    "ridges",
    "squared_line_errors",
    "squared_ridge_errors",
    "standardised",
    "standards",
]

# A column whose values differ by less than this share of the largest is constant but for rounding.
CONSTANT = 1e-12


def standards(X_NP: FloatArray) -> tuple[FloatArray, FloatArray, BoolArray]:
    """Mean, standard deviation (1 where constant) and whether constant, of every column."""
    width = np.ptp(X_NP, axis=0)
    constant = width <= CONSTANT * np.abs(X_NP).max(axis=0, initial=0.0)
    centre, unit = X_NP.mean(axis=0), np.where(constant, 1.0, width)
    # Over the width first: squares of very small or very large values would vanish or overflow.
    return centre, np.where(constant, 1.0, unit * ((X_NP - centre) / unit).std(axis=0)), constant


def standardised(X_NP: FloatArray) -> FloatArray:
    """Every column less its mean and over its standard deviation; 0 where it is constant."""
    centre, scale, constant = standards(X_NP)
    z_NP = (X_NP - centre) / scale
    z_NP[:, constant] = 0.0
    return np.asarray(z_NP)


def moments_over(columns_NC: FloatArray) -> Callable[[FloatArray], FloatArray]:
    """From masks of sets of cells, (F, N), to the sums of products over each set, (F, C, C)."""
    n_columns = columns_NC.shape[1]
    upper = np.triu_indices(n_columns)
    products = columns_NC[:, upper[0]] * columns_NC[:, upper[1]]

    def over(masks_FN: FloatArray) -> FloatArray:
        result = np.empty((len(masks_FN), n_columns, n_columns))
        result[:, upper[0], upper[1]] = masks_FN @ products
        result[:, upper[1], upper[0]] = result[:, upper[0], upper[1]]
        return result

    return over


def ridges(moments_FCC: FloatArray, alphas_A: FloatArray) -> FloatArray:
    """Intercept and slopes, (F, A, P + 1); predictors standardised on each set's own cells.

    alphas_A: above 0, so that predictors may determine one another.
    """
    n, mean, spread = _centred(moments_FCC)
    inverse = _inverse_deviation(moments_FCC, n, spread)
    gram = spread[:, :-1, :-1] * inverse[:, :, None] * inverse[:, None, :]
    values, vectors = np.linalg.eigh(gram)
    rotated = np.einsum("fpk,fp->fk", vectors, spread[:, :-1, -1] * inverse)
    shrunk = rotated[:, None, :] / (np.maximum(values, 0.0)[:, None, :] + alphas_A[None, :, None])
    slopes = np.einsum("fpk,fak->fap", vectors, shrunk) * inverse[:, None, :]
    intercept = mean[:, None, -1] - np.einsum("fap,fp->fa", slopes, mean[:, :-1])
    return np.concatenate([intercept[..., None], slopes], axis=-1)


def squared_ridge_errors(coefficients_FAC: FloatArray, tested_FCC: FloatArray) -> FloatArray:
    """Summed over the tested cells, (F, A): one quadratic form in (c, b, -1), y being a column."""
    minus = np.full((*coefficients_FAC.shape[:2], 1), -1.0)
    signed = np.concatenate([coefficients_FAC, minus], axis=-1)
    return np.asarray(np.einsum("fac,fac->fa", signed @ tested_FCC, signed))


def least_with_largest_penalty(errors_FA: FloatArray) -> IntArray:
    """Index of the least error along the last axis; of equal ones the last."""
    n = errors_FA.shape[-1]
    return np.asarray(n - 1 - np.argmin(errors_FA[..., ::-1], axis=-1), dtype=np.int64)


def lines(moments_FCC: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Intercept and slope of the line on each predictor alone; (F, P) each."""
    n, mean, spread = _centred(moments_FCC)
    inverse = _inverse_deviation(moments_FCC, n, spread)
    slope = spread[:, :-1, -1] * np.square(inverse) / n[:, None]
    return mean[:, -1:] - slope * mean[:, :-1], slope


def squared_line_errors(
    intercept_FP: FloatArray, slope_FP: FloatArray, tested_FCC: FloatArray
) -> FloatArray:
    """Of each line, summed over the tested cells; (F, P)."""
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
    """1 / standard deviation of every predictor in the set; 0 where it is constant there."""
    variance = np.einsum("fpp->fp", spread_FCC)[:, :-1] / n_F[:, None]
    mean_square = np.einsum("fpp->fp", moments_FCC[:, 1:, 1:])[:, :-1] / n_F[:, None]
    moves = variance > CONSTANT * mean_square
    return np.where(moves, 1.0 / np.sqrt(np.where(moves, variance, 1.0)), 0.0)
