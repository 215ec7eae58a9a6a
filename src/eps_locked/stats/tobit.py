"""Censored regression: values at a bound are known only to lie somewhere beyond it.

Shape letters: N cells, P predictors, F folds, T tests (pairs of a fold and a cell it tests),
Q = P + 2 parameters of a fit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import log_ndtr, ndtr

from eps_locked.errors import StatsInputError
from eps_locked.stats.checks import BoolArray, FloatArray, predictors_and_response
from eps_locked.stats.folds import FoldMatrix, require_cells
from eps_locked.stats.moments import CONSTANT, standards
from eps_locked.stats.regression import linear_prediction

__all__ = ["TobitFit", "tobit", "tobit_fold_predictions"]

_NEWTON_STEPS = 100
_LOG_ROOT_TWO_PI = 0.5 * math.log(2 * math.pi)


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
        return linear_prediction(X_NP, self.coefficients_P1)

    def predict_observed(
        self, X_NP: npt.ArrayLike, lower_N: npt.ArrayLike, upper_N: npt.ArrayLike
    ) -> FloatArray:
        """Mean of what is observed, between the bounds: what an observed value is compared with."""
        mean = self.predict(X_NP)
        lower, upper = _bounds(lower_N, upper_N, len(mean))
        return _observed_mean(mean, np.full(len(mean), self.sigma), lower, upper)


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
    X, y = predictors_and_response(X_NP, y_N)
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
    X, y = predictors_and_response(X_NP, y_N)
    require_cells(matrix, len(y))
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
    centre, scale, _ = standards(X_NP)
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
    return np.asarray(highest - lowest <= CONSTANT * size)


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
