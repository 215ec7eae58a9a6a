"""Least squares, ridge and censored regression of cells on predictors, alone and fold by fold.

Shape letters: N cells, P predictors, M columns fitted one at a time (predictors, or permutations
of one), F folds, T tests (pairs of a fold and a cell it tests), A candidate penalties, G groups.

One rule holds in every fit: a predictor that is constant in the rows it is fitted on says nothing
about them, gets coefficient 0 and leaves the rest of the fit as it would be without it. With the
only predictor constant, the fit is the intercept.

The functions that work on many folds at once rest on sums over the fit cells of each fold, made
for all folds by one matrix product. They give what a loop over ``ols`` and ``ridge`` gives; the
tests hold them to it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import log_ndtr, ndtr

from eps_locked.errors import StatsInputError
from eps_locked.stats.folds import BoolArray, FoldMatrix
from eps_locked.stats.ranks import FloatArray, finite_matrix, finite_vector

__all__ = [
    "Fit",
    "RidgeChoice",
    "TobitFit",
    "fold_predictions",
    "ols",
    "r_squared",
    "r_squared_columns",
    "ridge",
    "ridge_choose",
    "ridge_fold_predictions",
    "select_fold_predictions",
    "simple_fold_predictions",
    "tobit",
    "tobit_fold_predictions",
]

IntArray = npt.NDArray[np.int64]

# A column whose values differ by less than this share of the largest is constant but for rounding.
_CONSTANT = 1e-12
# Where the sums say that a column's variance is below this share of its mean square, they have lost
# half their digits; the variance is then taken again from the values themselves.
_DOUBTFUL = 1e-8
_RECHECK_ENTRIES = 1 << 22
_NEWTON_STEPS = 100
_LOG_ROOT_TWO_PI = 0.5 * math.log(2 * math.pi)


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
        return _plane(X_NP, self.coefficients_P1)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class RidgeChoice:
    """``fit`` with the penalty that predicted best across the inner folds.

    mean_squared_error_A: of the inner folds' tests, one per candidate in ascending order.
    """

    fit: Fit
    alpha: float
    alphas: tuple[float, ...]
    mean_squared_error_A: FloatArray


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class TobitFit:
    """A censored regression. coefficients_P1 and ``sigma`` are of the uncensored variable.

    ``converged`` is False where the likelihood has no maximum: the rows between the bounds lie on
    one plane, and it grows without end as sigma falls. A predictor that varies in censored rows
    alone gets the coefficient beyond which nothing changes, of no meaning in itself. ``n_lower``
    and ``n_upper`` count the rows at a bound. ``constant`` as in ``Fit``.
    """

    coefficients_P1: FloatArray
    sigma: float
    log_likelihood: float
    converged: bool
    n_rows: int
    n_lower: int
    n_upper: int
    constant: tuple[int, ...]

    def predict(self, X_NP: npt.ArrayLike) -> FloatArray:
        """Mean of the uncensored variable, which may lie beyond the bounds. Raises as ``Fit``."""
        return _plane(X_NP, self.coefficients_P1)

    def predict_observed(
        self, X_NP: npt.ArrayLike, lower_N: npt.ArrayLike, upper_N: npt.ArrayLike
    ) -> FloatArray:
        """Mean of what is observed, between the bounds: what an observed value is compared with."""
        mean = self.predict(X_NP)
        lower, upper = _bounds(lower_N, upper_N, len(mean))
        return _observed_mean(mean, np.full(len(mean), self.sigma), lower, upper)


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
    X, y = _design(X_NP, y_N)
    if not (math.isfinite(alpha) and alpha >= 0):
        raise StatsInputError("alpha", expected="a finite number of 0 or more", found=alpha)
    centre, scale, constant = _standards(X)
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
    X, y = _design(X_NP, y_N)
    candidates = _penalties(alphas)
    errors_FA, tests_F = _inner_ridge_errors(X, y, np.ones((1, len(y))), candidates, touch_GN)
    alpha = float(candidates[_choose_last(errors_FA)[0]])
    return RidgeChoice(
        fit=ridge(X, y, alpha),
        alpha=alpha,
        alphas=tuple(float(candidate) for candidate in candidates),
        mean_squared_error_A=errors_FA[0] / tests_F[0],
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


def tobit(
    X_NP: npt.ArrayLike, y_N: npt.ArrayLike, lower_N: npt.ArrayLike, upper_N: npt.ArrayLike
) -> TobitFit:
    """Normal regression by maximum likelihood where values at a bound are known only to be beyond.

    lower_N, upper_N: a number or one per row; -inf and inf for no bound. A value at or below its
    lower bound counts as "somewhere at or below", one at or above its upper bound likewise. With
    no value at a bound the coefficients are those of ``ols`` and sigma^2 is SS_residual / N.

    Newton's method in (coefficients / sigma, 1 / sigma), where the log-likelihood is concave, so
    that there is one maximum and no starting value to choose. Raises as ``ols``; for bounds that
    are NaN or not lower < upper; and for fewer rows between the bounds than coefficients plus 2.
    Source: Tobin 1958, Econometrica 26, 24-36; Olsen 1978, Econometrica 46, 1211-1215.
    """
    X, y = _design(X_NP, y_N)
    lower, upper = _bounds(lower_N, upper_N, len(y))
    result = _maximise_tobit(X, y, lower, upper, np.ones((1, len(y))))
    return TobitFit(
        coefficients_P1=result.coefficients_FP1[0],
        sigma=float(result.sigma_F[0]),
        log_likelihood=float(result.log_likelihood_F[0]),
        converged=bool(result.converged_F[0]),
        n_rows=len(y),
        n_lower=int(np.count_nonzero(y <= lower)),
        n_upper=int(np.count_nonzero(y >= upper)),
        constant=tuple(int(p) for p in np.flatnonzero(result.constant_FP[0])),
    )


# --- fold by fold ---------------------------------------------------------------------------------


def fold_predictions(
    X_NP: npt.ArrayLike, y_N: npt.ArrayLike, matrix: FoldMatrix, *, alpha: float = 0.0
) -> FloatArray:
    """Predictions of a multiple regression, fitted in every fold anew; shape (T,).

    One number per test, in the order of ``matrix.cell_T``: compare with y[matrix.cell_T]. Least
    squares when ``alpha`` is 0, else ridge. Raises as ``ridge``.
    """
    X, y = _design(X_NP, y_N)
    _require_cells(matrix, len(y))
    predicted = np.empty(len(matrix.cell_T))
    for f, fit_N in enumerate(matrix.fit_FN > 0):
        tests = slice(*np.searchsorted(matrix.fold_T, [f, f + 1]))
        predicted[tests] = ridge(X[fit_N], y[fit_N], alpha).predict(X[matrix.cell_T[tests]])
    return predicted


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
    _require_cells(matrix, len(y))
    if not intercept:
        return _predict_through_zero(x, y, matrix)
    lines = _simple_lines(x, y, matrix.fit_FN)
    return lines.predict(matrix.fold_T, matrix.cell_T)


def select_fold_predictions(
    x_NM: npt.ArrayLike, y_N: npt.ArrayLike, matrix: FoldMatrix, *, touch_GN: BoolArray
) -> tuple[FloatArray, IntArray]:
    """The single predictor that does best inside each fold, and what it predicts outside.

    In each fold the M predictors are compared by the squared errors of the inner folds (as in
    ``ridge_choose``: one group of contexts left out at a time, within the fit cells), the best is
    fitted on all fit cells and predicts the tests. Returns predictions of shape (T,) and the index
    of the chosen predictor, shape (F,); of equal ones the first. Raises as
    ``simple_fold_predictions``, and where a fold has no usable inner fold.
    """
    x, y = finite_matrix(x_NM, "x_NM"), finite_vector(y_N, "y_N")
    if len(x) != len(y) or x.shape[1] < 1:
        raise StatsInputError(
            "x_NM", expected=f"{len(y)} rows and at least 1 column", found=f"{x.shape}"
        )
    _require_cells(matrix, len(y))
    _require_touch(touch_GN, len(y))
    errors_FM = np.zeros((len(matrix.fit_FN), x.shape[1]))
    tests_F = np.zeros(len(matrix.fit_FN))
    touch = touch_GN.astype(np.float64)
    for touches in touch:
        fit_FN, test_FN, usable_F = _inner_masks(matrix.fit_FN, touches)
        fold_T, cell_T = np.nonzero(test_FN[usable_F])
        lines = _simple_lines(x, y, fit_FN[usable_F])
        squared = np.square(lines.predict(fold_T, cell_T) - y[cell_T, None])
        owner_T = np.flatnonzero(usable_F)[fold_T]
        np.add.at(errors_FM, owner_T, squared)
        np.add.at(tests_F, owner_T, 1.0)
    _require_inner_tests(tests_F)
    chosen_F = np.argmin(errors_FM, axis=1)
    all_TM = simple_fold_predictions(x, y, matrix)
    return all_TM[np.arange(len(all_TM)), chosen_F[matrix.fold_T]], chosen_F.astype(np.int64)


def ridge_fold_predictions(
    X_NP: npt.ArrayLike,
    y_N: npt.ArrayLike,
    matrix: FoldMatrix,
    *,
    alphas: Sequence[float],
    touch_GN: BoolArray,
) -> tuple[FloatArray, FloatArray]:
    """``ridge_choose`` in every fold: predictions of shape (T,) and the penalties, shape (F,).

    The penalty of a fold is chosen within that fold's fit cells alone. Raises as ``ridge_choose``.
    """
    X, y = _design(X_NP, y_N)
    _require_cells(matrix, len(y))
    candidates = _penalties(alphas)
    errors_FA, _ = _inner_ridge_errors(X, y, matrix.fit_FN, candidates, touch_GN)
    alpha_F = candidates[_choose_last(errors_FA)]
    predicted = np.empty(len(matrix.cell_T))
    for f, fit_N in enumerate(matrix.fit_FN > 0):
        tests = slice(*np.searchsorted(matrix.fold_T, [f, f + 1]))
        fit = ridge(X[fit_N], y[fit_N], float(alpha_F[f]))
        predicted[tests] = fit.predict(X[matrix.cell_T[tests]])
    return predicted, alpha_F


def tobit_fold_predictions(
    X_NP: npt.ArrayLike,
    y_N: npt.ArrayLike,
    lower_N: npt.ArrayLike,
    upper_N: npt.ArrayLike,
    matrix: FoldMatrix,
) -> FloatArray:
    """``tobit`` fitted in every fold anew; what it expects to be observed at the tests, shape (T,).

    The folds are climbed side by side. Raises as ``tobit``, and where a fold has no maximum.
    """
    X, y = _design(X_NP, y_N)
    _require_cells(matrix, len(y))
    lower, upper = _bounds(lower_N, upper_N, len(y))
    result = _maximise_tobit(X, y, lower, upper, matrix.fit_FN)
    if not result.converged_F.all():
        raise StatsInputError(
            "y_N",
            problem="the censored likelihood has no maximum in some folds",
            expected="rows between the bounds that scatter about a plane",
            found=f"none in {int((~result.converged_F).sum())} of {len(result.converged_F)} folds",
        )
    tests = X[matrix.cell_T]
    coefficients_TP1 = result.coefficients_FP1[matrix.fold_T]
    mean = coefficients_TP1[:, 0] + np.einsum("tp,tp->t", coefficients_TP1[:, 1:], tests)
    return _observed_mean(
        mean, result.sigma_F[matrix.fold_T], lower[matrix.cell_T], upper[matrix.cell_T]
    )


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
    centre, scale, constant = _standards(x_NM)
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
        variance[highest - lowest <= _CONSTANT * size] = 0.0
        variance_FM[f, m] = variance
        covariance_FM[f, m] = (left @ y_N) / n


def _predict_through_zero(x_NM: FloatArray, y_N: FloatArray, matrix: FoldMatrix) -> FloatArray:
    size = np.abs(x_NM).max(axis=0, initial=0.0)
    z_NM = np.divide(x_NM, size, out=np.zeros_like(x_NM), where=size > 0)
    square = matrix.fit_FN @ np.square(z_NM)
    slope = np.zeros_like(square)
    np.divide(matrix.fit_FN @ (z_NM * y_N[:, None]), square, out=slope, where=square > 0)
    return np.asarray(slope[matrix.fold_T] * z_NM[matrix.cell_T])


def _inner_ridge_errors(
    X_NP: FloatArray,
    y_N: FloatArray,
    fit_FN: FloatArray,
    alphas_A: FloatArray,
    touch_GN: BoolArray,
) -> tuple[FloatArray, FloatArray]:
    """Squared errors of the inner folds' tests, summed, shape (F, A), and how many tests, (F,).

    Everything follows from the moments of [1, z, y] over the fit cells and over the test cells of
    each inner fold: the first give the coefficients, the second the errors.
    """
    _require_touch(touch_GN, len(y_N))
    centre, scale, constant = _standards(X_NP)
    Z = ((X_NP - centre) / scale)[:, ~constant]
    y_scale = float(np.ptp(y_N)) or 1.0
    augmented = np.column_stack((np.ones(len(y_N)), Z, (y_N - y_N.mean()) / y_scale))
    n_columns = augmented.shape[1]
    upper = np.triu_indices(n_columns)
    products = augmented[:, upper[0]] * augmented[:, upper[1]]

    def moments(masks_FN: FloatArray) -> FloatArray:
        result = np.empty((len(masks_FN), n_columns, n_columns))
        result[:, upper[0], upper[1]] = masks_FN @ products
        result[:, upper[1], upper[0]] = result[:, upper[0], upper[1]]
        return result

    errors_FA = np.zeros((len(fit_FN), len(alphas_A)))
    tests_F = np.zeros(len(fit_FN))
    for touches in touch_GN.astype(np.float64):
        inner_fit, inner_test, usable_F = _inner_masks(fit_FN, touches)
        if not usable_F.any():
            continue
        coefficients = _ridge_from_moments(moments(inner_fit[usable_F]), alphas_A)
        # With y as a column of its own, (y - c - z b)^2 is one quadratic form in (c, b, -1).
        signed = np.concatenate((coefficients, np.full_like(coefficients[..., :1], -1.0)), axis=-1)
        errors_FA[usable_F] += np.einsum(
            "fai,fij,faj->fa", signed, moments(inner_test[usable_F]), signed, optimize=True
        )
        tests_F += np.where(usable_F, inner_test.sum(axis=1), 0.0)
    _require_inner_tests(tests_F)
    return errors_FA * y_scale**2, tests_F


def _ridge_from_moments(moments_FCC: FloatArray, alphas_A: FloatArray) -> FloatArray:
    """Intercept and coefficients, shape (F, A, P + 1), standardised on each fold's fit cells."""
    n = moments_FCC[:, 0, 0]
    mean = moments_FCC[:, 0, 1:] / n[:, None]
    spread = moments_FCC[:, 1:, 1:] - n[:, None, None] * mean[:, :, None] * mean[:, None, :]
    mean_square = np.einsum("fpp->fp", moments_FCC[:, 1:, 1:])[:, :-1] / n[:, None]
    variance = np.einsum("fpp->fp", spread)[:, :-1] / n[:, None]
    # Below this the variance is rounding of its own sums: a predictor constant in this fold.
    moves = variance > _CONSTANT * mean_square
    inverse = np.where(moves, 1.0 / np.sqrt(np.where(moves, variance, 1.0)), 0.0)
    gram = spread[:, :-1, :-1] * inverse[:, :, None] * inverse[:, None, :]
    values, vectors = np.linalg.eigh(gram)
    rotated = np.einsum("fpk,fp->fk", vectors, spread[:, :-1, -1] * inverse)
    shrunk = rotated[:, None, :] / (np.maximum(values, 0.0)[:, None, :] + alphas_A[None, :, None])
    slopes = np.einsum("fpk,fak->fap", vectors, shrunk) * inverse[:, None, :]
    intercept = mean[:, None, -1] - np.einsum("fap,fp->fa", slopes, mean[:, :-1])
    return np.concatenate((intercept[..., None], slopes), axis=-1)


def _inner_masks(
    fit_FN: FloatArray, touches_N: FloatArray
) -> tuple[FloatArray, FloatArray, BoolArray]:
    inner_fit, inner_test = fit_FN * (1.0 - touches_N), fit_FN * touches_N
    usable_F = np.asarray(inner_fit.any(axis=1) & inner_test.any(axis=1))
    return inner_fit, inner_test, usable_F


def _choose_last(errors_FA: FloatArray) -> IntArray:
    """Index of the least error in each row; of equal ones the last, which shrinks most."""
    n = errors_FA.shape[1]
    return np.asarray(n - 1 - np.argmin(errors_FA[:, ::-1], axis=1), dtype=np.int64)


# --- the censored likelihood ----------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _TobitMaxima:
    coefficients_FP1: FloatArray
    sigma_F: FloatArray
    log_likelihood_F: FloatArray
    converged_F: BoolArray
    constant_FP: BoolArray


def _maximise_tobit(
    X_NP: FloatArray,
    y_N: FloatArray,
    lower_N: FloatArray,
    upper_N: FloatArray,
    fit_FN: FloatArray,
) -> _TobitMaxima:
    """The maximum over the fit cells of each fold.

    A fold's parameters are d = (-c, -b, 1) / sigma in standardised units, and each cell has a row
    w = (1, z, value or bound), so that w . d is its standardised residual.
    """
    centre, scale, _ = _standards(X_NP)
    below, above = y_N <= lower_N, y_N >= upper_N
    target = np.where(below, lower_N, np.where(above, upper_N, y_N))
    level, y_scale = float(target.mean()), float(target.std()) or 1.0
    rows_NQ = np.column_stack(
        (np.ones(len(y_N)), (X_NP - centre) / scale, (target - level) / y_scale)
    )
    likelihood = _TobitLikelihood(rows_NQ=rows_NQ, below=below, above=above, fit_FN=fit_FN)
    constant_FP = np.zeros((len(fit_FN), X_NP.shape[1]), dtype=bool)
    for p in range(X_NP.shape[1]):
        constant_FP[:, p] = _is_constant_in(fit_FN, X_NP[:, p])
    n_needed = np.count_nonzero(~constant_FP, axis=1) + 2
    if (likelihood.n_free_F < n_needed).any():
        raise StatsInputError(
            "y_N",
            problem="too few values between the bounds",
            expected=f"at least {n_needed.max()}",
            found=int(likelihood.n_free_F.min()),
        )
    d_FQ, converged_F = likelihood.climb(constant_FP)
    precision = d_FQ[:, -1]
    slopes = -d_FQ[:, 1:-1] / precision[:, None] * y_scale / scale
    intercept = level - d_FQ[:, 0] / precision * y_scale - slopes @ centre
    return _TobitMaxima(
        coefficients_FP1=np.column_stack((intercept, slopes)),
        sigma_F=y_scale / precision,
        log_likelihood_F=likelihood.value(d_FQ) - likelihood.n_free_F * math.log(y_scale),
        converged_F=converged_F,
        constant_FP=constant_FP,
    )


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _TobitLikelihood:
    """Log-likelihood of F folds; ``rows_NQ`` and the parameters as in ``_maximise_tobit``."""

    rows_NQ: FloatArray
    below: BoolArray
    above: BoolArray
    fit_FN: FloatArray

    @property
    def free(self) -> BoolArray:
        return np.asarray(~(self.below | self.above))

    @property
    def n_free_F(self) -> FloatArray:
        return np.asarray(self.fit_FN[:, self.free].sum(axis=1))

    def value(self, d_FQ: FloatArray) -> FloatArray:
        residual_FN = d_FQ @ self.rows_NQ.T
        term = np.empty_like(residual_FN)
        term[:, self.free] = -0.5 * np.square(residual_FN[:, self.free]) - _LOG_ROOT_TWO_PI
        term[:, self.below] = log_ndtr(residual_FN[:, self.below])
        term[:, self.above] = log_ndtr(-residual_FN[:, self.above])
        log_precision = self.n_free_F * np.log(d_FQ[:, -1])
        return np.asarray(np.einsum("fn,fn->f", self.fit_FN, term) + log_precision)

    def slope_and_curvature(self, d_FQ: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Gradient, shape (F, Q), and minus the Hessian, shape (F, Q, Q), positive semidefinite."""
        residual_FN = d_FQ @ self.rows_NQ.T
        first, second = -residual_FN, np.ones_like(residual_FN)
        for mask, sign in ((self.below, 1.0), (self.above, -1.0)):
            t = sign * residual_FN[:, mask]
            hazard = np.exp(-0.5 * np.square(t) - _LOG_ROOT_TWO_PI - log_ndtr(t))
            first[:, mask] = sign * hazard
            second[:, mask] = np.clip(hazard * (hazard + t), 0.0, 1.0)
        gradient = (self.fit_FN * first) @ self.rows_NQ
        n_q = self.rows_NQ.shape[1]
        products = (self.rows_NQ[:, :, None] * self.rows_NQ[:, None, :]).reshape(-1, n_q * n_q)
        curvature = ((self.fit_FN * second) @ products).reshape(-1, n_q, n_q)
        gradient[:, -1] += self.n_free_F / d_FQ[:, -1]
        curvature[:, -1, -1] += self.n_free_F / np.square(d_FQ[:, -1])
        return gradient, curvature

    def climb(self, constant_FP: BoolArray) -> tuple[FloatArray, BoolArray]:
        """Newton's method with halved steps, each fold at its own pace; d and whether converged."""
        n_folds, n_q = len(self.fit_FN), self.rows_NQ.shape[1]
        d = np.zeros((n_folds, n_q))
        d[:, -1] = 1.0
        n_F = self.fit_FN.sum(axis=1)
        # Columns of constants stay at 0: no slope there, and a curvature that mixes with none.
        held = np.zeros((n_folds, n_q), dtype=bool)
        held[:, 1:-1] = constant_FP
        value, converged = self.value(d), np.zeros(n_folds, dtype=bool)
        for _ in range(_NEWTON_STEPS):
            gradient, curvature = self.slope_and_curvature(d)
            gradient[held] = 0.0
            curvature[held[:, :, None] | held[:, None, :]] = 0.0
            # The dust lets predictors determine one another; it slows the climb by nothing.
            dust = np.where(held, 1.0, 1e-12 * n_F[:, None])
            curvature[:, np.arange(n_q), np.arange(n_q)] += dust
            step = np.linalg.solve(curvature, gradient[..., None])[..., 0]
            gain = np.einsum("fq,fq->f", gradient, step)
            size = np.ones(n_folds)
            for _ in range(60):
                trial = d + size[:, None] * step
                is_valid = trial[:, -1] > 0
                trial[~is_valid, -1] = 1.0
                found = self.value(trial)
                slack = 1e-12 * (1 + np.abs(value))
                is_better = is_valid & (found >= value + 1e-4 * size * gain - slack)
                if is_better.all():
                    break
                size[~is_better] /= 2
            d, value = np.where(is_better[:, None], trial, d), np.where(is_better, found, value)
            # Checked after the step that this gain promised: the error left is its square.
            converged = gain <= 1e-15 * n_F
            if converged.all():
                break
        return d, converged


def _is_constant_in(fit_FN: FloatArray, x_N: FloatArray) -> BoolArray:
    highest = np.where(fit_FN > 0, x_N, -np.inf).max(axis=1)
    lowest = np.where(fit_FN > 0, x_N, np.inf).min(axis=1)
    size = np.maximum(np.abs(highest), np.abs(lowest))
    return np.asarray(highest - lowest <= _CONSTANT * size)


def _observed_mean(
    mean_N: FloatArray, sigma_N: FloatArray, lower_N: FloatArray, upper_N: FloatArray
) -> FloatArray:
    """E[min(max(y, lower), upper)] for y normal."""
    a, b = (lower_N - mean_N) / sigma_N, (upper_N - mean_N) / sigma_N
    # An absent bound has probability 0 and would make 0 * inf of it.
    at_lower = np.where(np.isfinite(lower_N), lower_N, 0.0) * ndtr(a)
    at_upper = np.where(np.isfinite(upper_N), upper_N, 0.0) * ndtr(-b)
    density = np.exp(-0.5 * np.square(a)) - np.exp(-0.5 * np.square(b))
    between = mean_N * (ndtr(b) - ndtr(a)) + sigma_N * density / math.sqrt(2 * math.pi)
    return np.asarray(at_lower + at_upper + between)


def _plane(X_NP: npt.ArrayLike, coefficients_P1: FloatArray) -> FloatArray:
    X = finite_matrix(X_NP, "X_NP")
    if X.shape[1] != len(coefficients_P1) - 1:
        raise StatsInputError(
            "X_NP", expected=f"{len(coefficients_P1) - 1} columns", found=X.shape[1]
        )
    return np.asarray(coefficients_P1[0] + X @ coefficients_P1[1:])


# --- what may come in -----------------------------------------------------------------------------


def _standards(X_NP: FloatArray) -> tuple[FloatArray, FloatArray, BoolArray]:
    """Mean, standard deviation (1 where constant) and whether constant, of every column."""
    width = np.ptp(X_NP, axis=0)
    constant = width <= _CONSTANT * np.abs(X_NP).max(axis=0, initial=0.0)
    centre, unit = X_NP.mean(axis=0), np.where(constant, 1.0, width)
    # Over the width first: squares of very small or very large values would vanish or overflow.
    return centre, np.where(constant, 1.0, unit * ((X_NP - centre) / unit).std(axis=0)), constant


def _design(X_NP: npt.ArrayLike, y_N: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
    X, y = finite_matrix(X_NP, "X_NP"), finite_vector(y_N, "y_N")
    if len(X) != len(y) or len(y) == 0:
        raise StatsInputError("X_NP", expected=f"{max(len(y), 1)} rows, as in y", found=len(X))
    return X, y


def _bounds(
    lower_N: npt.ArrayLike, upper_N: npt.ArrayLike, n_rows: int
) -> tuple[FloatArray, FloatArray]:
    bounds = []
    for name, given in (("lower_N", lower_N), ("upper_N", upper_N)):
        bound = np.asarray(given, dtype=np.float64)
        if bound.shape not in ((), (n_rows,)) or np.isnan(bound).any():
            raise StatsInputError(
                name, expected=f"a number or {n_rows} of them, none NaN", found=bound.shape
            )
        bounds.append(np.broadcast_to(bound, (n_rows,)))
    lower, upper = bounds
    if not (lower < upper).all():
        raise StatsInputError("lower_N", expected="below upper_N in every row", found="not so")
    return lower, upper


def _penalties(alphas: Sequence[float]) -> FloatArray:
    candidates = np.unique(finite_vector(alphas, "alphas"))
    if len(candidates) == 0 or candidates[0] <= 0:
        raise StatsInputError(
            "alphas", expected="at least 1 penalty, all above 0", found=list(alphas)
        )
    return candidates


def _require_cells(matrix: FoldMatrix, n_cells: int) -> None:
    if matrix.fit_FN.shape[1] != n_cells:
        raise StatsInputError("matrix", expected=f"{n_cells} cells", found=matrix.fit_FN.shape[1])


def _require_touch(touch_GN: BoolArray, n_cells: int) -> None:
    if touch_GN.ndim != 2 or touch_GN.shape[1] != n_cells:
        raise StatsInputError(
            "touch_GN", expected=f"groups x {n_cells} cells", found=touch_GN.shape
        )


def _require_inner_tests(tests_F: FloatArray) -> None:
    if (tests_F == 0).any():
        raise StatsInputError(
            "touch_GN",
            problem="too few contexts to choose within the fit",
            expected="an inner fold with something to fit on and to test, in every fold",
            found=f"none in {int((tests_F == 0).sum())} of {len(tests_F)} folds",
        )
