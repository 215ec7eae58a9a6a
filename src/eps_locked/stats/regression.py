"""Least squares and ridge regression of cells on predictors, and how well they predict.

Shape letters: N cells, P predictors, M columns of predictions, A candidate penalties, G groups.

One rule holds in every fit of this room: a predictor that is constant in the rows it is fitted on
says nothing about them, gets coefficient 0 and leaves the rest of the fit as it would be without
it. With the only predictor constant, the fit is the intercept.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from eps_locked.errors import StatsInputError
from eps_locked.stats.checks import (
    BoolArray,
    FloatArray,
    finite_matrix,
    finite_vector,
    predictors_and_response,
)
from eps_locked.stats.folds import inner_folds
from eps_locked.stats.moments import (
    least_with_largest_penalty,
    moments_over,
    ridges,
    squared_ridge_errors,
    standardised,
    standards,
)

__all__ = [
    "Fit",
    "RidgeChoice",
    "linear_prediction",
    "ols",
    "r_squared",
    "r_squared_columns",
    "ridge",
    "ridge_choose",
]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Fit:
    """A linear fit. coefficients_P1: the intercept, then one coefficient per predictor.

    ``alpha`` is the ridge penalty, 0 for least squares. ``constant`` lists the predictors that did
    not vary in the rows of the fit.
    """

    coefficients_P1: FloatArray
    alpha: float
    n_rows: int
    constant: tuple[int, ...]

    def predict(self, X_NP: npt.ArrayLike) -> FloatArray:
        """Raises StatsInputError for another number of predictors and for values not finite."""
        return linear_prediction(X_NP, self.coefficients_P1)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class RidgeChoice:
    """``fit`` with the penalty that predicted best across the inner folds.

    mean_squared_error_A: of the inner folds' tests, one per candidate in ascending order.
    """

    fit: Fit
    alpha: float
    alphas: tuple[float, ...]
    mean_squared_error_A: FloatArray


def ols(X_NP: npt.ArrayLike, y_N: npt.ArrayLike) -> Fit:
    """Ordinary least squares with an intercept.

    X_NP may have no columns. Where predictors determine one another the standardised coefficients
    of least norm are taken; predictions do not depend on that choice within the rows of the fit.
    Raises StatsInputError for values that are not finite, unequal lengths, or no row.
    """
    return ridge(X_NP, y_N, 0.0)


def ridge(X_NP: npt.ArrayLike, y_N: npt.ArrayLike, alpha: float) -> Fit:
    """Ridge regression: unpenalised intercept, predictors standardised on the rows of the fit.

    Minimises sum (y - c - Z b)^2 + alpha * sum b^2, with Z the predictors less their means, over
    their standard deviations (divisor N). Coefficients are returned in the predictors' own units.
    Raises as ``ols``, and for a penalty that is negative or not finite.
    Source: Hoerl & Kennard 1970, Technometrics 12(1), 55-67.
    """
    X, y = predictors_and_response(X_NP, y_N)
    if not (math.isfinite(alpha) and alpha >= 0):
        raise StatsInputError("alpha", expected="a finite number of 0 or more", found=alpha)
    centre, scale, constant = standards(X)
    Z = ((X - centre) / scale)[:, ~constant]
    U, singular, Vt = np.linalg.svd(Z, full_matrices=False)
    cutoff = np.finfo(np.float64).eps * max(Z.shape) * singular.max(initial=0.0)
    kept = singular > cutoff
    gain = np.zeros_like(singular)
    gain[kept] = singular[kept] / (np.square(singular[kept]) + alpha)
    mean = float(y.mean())
    slopes = np.zeros(X.shape[1])
    slopes[~constant] = (Vt.T @ (gain * (U.T @ (y - mean)))) / scale[~constant]
    return Fit(
        coefficients_P1=np.concatenate(([mean - centre @ slopes], slopes)),
        alpha=float(alpha),
        n_rows=len(y),
        constant=tuple(int(p) for p in np.flatnonzero(constant)),
    )


def ridge_choose(
    X_NP: npt.ArrayLike, y_N: npt.ArrayLike, *, alphas: Sequence[float], touch_GN: BoolArray
) -> RidgeChoice:
    """``ridge`` with the penalty chosen by leaving one group of contexts out at a time.

    touch_GN: from ``folds.touching`` for these N cells. The inner fold of group g tests every cell
    that touches g and fits on the rest, so no inner fit sees a cell of a held-out context; groups
    that leave nothing to test or nothing to fit on are passed over. Chosen is the least sum of
    squared errors over all inner tests; of equal ones the larger penalty.

    Raises as ``ridge``, for no candidate, one that is not above 0, or no usable inner fold.
    """
    X, y = predictors_and_response(X_NP, y_N)
    candidates = _penalties(alphas)
    errors_A, n_tests = _inner_errors(X, y, candidates, touch_GN)
    alpha = float(candidates[least_with_largest_penalty(errors_A)])
    return RidgeChoice(
        fit=ridge(X, y, alpha),
        alpha=alpha,
        alphas=tuple(float(candidate) for candidate in candidates),
        mean_squared_error_A=errors_A / n_tests,
    )


def r_squared(y_N: npt.ArrayLike, predicted_N: npt.ArrayLike) -> float | None:
    """1 - SS_residual / SS_total, SS_total about the mean of y; None when y is constant.

    Below 0 when the predictions do worse than that mean, without a lower bound. Raises
    StatsInputError for values that are not finite, unequal lengths, or fewer than 2 values.
    """
    predicted = finite_vector(predicted_N, "predicted_N")
    value = float(r_squared_columns(y_N, predicted[:, None])[0])
    return None if math.isnan(value) else value


def r_squared_columns(y_N: npt.ArrayLike, predicted_NM: npt.ArrayLike) -> FloatArray:
    """``r_squared`` of every column of ``predicted_NM``; shape (M,), all NaN when y is constant."""
    y, predicted = finite_vector(y_N, "y_N"), finite_matrix(predicted_NM, "predicted_NM")
    if len(y) != len(predicted) or len(y) < 2:
        raise StatsInputError(
            "predicted_NM", expected=f"{max(len(y), 2)} rows, as in y", found=len(predicted)
        )
    if np.ptp(y) == 0:
        return np.full(predicted.shape[1], np.nan)
    left = predicted - y[:, None]
    total = float(np.square(y - y.mean()).sum())
    return np.asarray(1.0 - np.einsum("nm,nm->m", left, left) / total)


def linear_prediction(X_NP: npt.ArrayLike, coefficients_P1: FloatArray) -> FloatArray:
    """Intercept plus predictors times slopes. Raises as ``Fit.predict``."""
    X = finite_matrix(X_NP, "X_NP")
    if X.shape[1] != len(coefficients_P1) - 1:
        raise StatsInputError(
            "X_NP", expected=f"{len(coefficients_P1) - 1} columns", found=X.shape[1]
        )
    return np.asarray(coefficients_P1[0] + X @ coefficients_P1[1:])


def _inner_errors(
    X_NP: FloatArray, y_N: FloatArray, alphas_A: FloatArray, touch_GN: BoolArray
) -> tuple[FloatArray, float]:
    """Squared errors of all inner folds' tests, summed, shape (A,), and how many tests."""
    unit = float(np.ptp(y_N)) or 1.0
    columns = (np.ones(len(y_N)), standardised(X_NP), (y_N - y_N.mean()) / unit)
    over = moments_over(np.column_stack(columns))
    errors_A, n_tests = np.zeros(len(alphas_A)), 0.0
    for inner in inner_folds(np.ones((1, len(y_N))), touch_GN):
        fits = ridges(over(inner.fit_UN), alphas_A)
        errors_A += squared_ridge_errors(fits, over(inner.test_UN))[0]
        n_tests += float(inner.test_UN.sum())
    return errors_A * unit**2, n_tests


def _penalties(alphas: Sequence[float]) -> FloatArray:
    candidates = np.unique(finite_vector(alphas, "alphas"))
    if len(candidates) == 0 or candidates[0] <= 0:
        raise StatsInputError(
            "alphas", expected="at least 1 penalty, all above 0", found=list(alphas)
        )
    return candidates
