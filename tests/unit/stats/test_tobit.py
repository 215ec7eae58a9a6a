"""Censored regression against simulated truth, a general optimiser, and least squares."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from eps_locked.errors import StatsInputError
from eps_locked.stats.folds import FoldMatrix
from eps_locked.stats.regression import ols
from eps_locked.stats.tobit import tobit, tobit_fold_predictions
from unit.stats.problems import FOLDS, N_CELLS, cells, loop, problem, rng


def censored_problem(n: int, label: str, lower: float = -0.5, upper: float = 1.5):
    """Truth: y = 0.5 + 1.0 x1 - 0.7 x2 + 0.8 e, seen between the bounds; nearly half is not."""
    source = rng("tobit", label)
    X = source.normal(size=(n, 2))
    latent = 0.5 + X @ [1.0, -0.7] + 0.8 * source.normal(size=n)
    return X, np.clip(latent, lower, upper), latent


def test_tobit_finds_the_truth_where_least_squares_are_far_off():
    X, y, _ = censored_problem(20_000, "large")
    fit = tobit(X, y, -0.5, 1.5)
    assert fit.converged
    assert 0.2 < fit.n_lower / fit.n_rows < 0.3
    assert 0.2 < fit.n_upper / fit.n_rows < 0.3
    # Standard errors at this size are near 0.008.
    assert fit.coefficients_P1 == pytest.approx([0.5, 1.0, -0.7], abs=0.03)
    assert fit.sigma == pytest.approx(0.8, abs=0.03)
    assert ols(X, y).coefficients_P1[1] < 0.6


def test_tobit_has_little_bias_at_the_size_of_a_row():
    slopes = []
    for repeat in range(60):
        X, y, _ = censored_problem(240, f"row {repeat}")
        slopes.append(tobit(X, y, -0.5, 1.5).coefficients_P1[1])
    # The standard error of the mean is near 0.01.
    assert np.mean(slopes) == pytest.approx(1.0, abs=0.04)


def log_likelihood(parameters, X, y, lower, upper) -> float:
    """Written anew from the definition, in the plain parameters."""
    mean, sigma = parameters[0] + X @ parameters[1:-1], np.exp(parameters[-1])
    free = (y > lower) & (y < upper)
    return (
        scipy.stats.norm.logpdf(y[free], mean[free], sigma).sum()
        + scipy.stats.norm.logcdf(lower, mean[y <= lower], sigma).sum()
        + scipy.stats.norm.logsf(upper, mean[y >= upper], sigma).sum()
    )


@pytest.mark.parametrize(
    ("lower", "upper"), [(-0.5, 1.5), (-0.5, np.inf), (-np.inf, 0.8), (0.4, 0.7)], ids=str
)
def test_tobit_agrees_with_a_general_optimiser(lower, upper):
    X, _, latent = censored_problem(300, "optimiser")
    y = np.clip(latent, lower, upper)
    fit = tobit(X, y, lower, upper)
    best = scipy.optimize.minimize(
        lambda p: -log_likelihood(p, X, y, lower, upper),
        x0=np.zeros(4),
        method="BFGS",
        options={"gtol": 1e-4},
    )
    found = np.append(fit.coefficients_P1, np.log(fit.sigma))
    assert found == pytest.approx(best.x, abs=2e-4)
    assert fit.log_likelihood == pytest.approx(-best.fun, abs=1e-6)
    assert fit.log_likelihood == pytest.approx(log_likelihood(found, X, y, lower, upper), abs=1e-9)
    # A maximum: every step away from it goes down.
    for k, step in ((k, step) for k in range(4) for step in (-1e-3, 1e-3)):
        moved = found.copy()
        moved[k] += step
        assert log_likelihood(moved, X, y, lower, upper) < fit.log_likelihood


def test_tobit_without_a_value_at_a_bound_is_least_squares():
    X, y = problem()
    fit = tobit(X, y, -np.inf, 1e9)
    plain = ols(X, y)
    residual = y - plain.predict(X)
    assert fit.coefficients_P1 == pytest.approx(plain.coefficients_P1, rel=1e-9)
    assert fit.sigma == pytest.approx(np.sqrt(np.square(residual).mean()), rel=1e-10)
    assert (fit.n_lower, fit.n_upper, fit.converged) == (0, 0, True)


def test_tobit_bounds_may_differ_from_row_to_row():
    # A rate less its base rate: the floor of the difference is minus the base.
    X, _, latent = censored_problem(4000, "rows")
    base = rng("base").choice([0.0, 0.3, 0.6], size=4000)
    y = np.maximum(latent, -base)
    fit = tobit(X, y, -base, np.inf)
    assert fit.coefficients_P1 == pytest.approx([0.5, 1.0, -0.7], abs=0.06)
    assert fit.n_lower == np.count_nonzero(latent <= -base)


def test_values_beyond_a_bound_count_as_at_the_bound():
    X, y, latent = censored_problem(300, "beyond")
    at, beyond = tobit(X, y, -0.5, 1.5), tobit(X, latent, -0.5, 1.5)
    assert beyond.coefficients_P1 == pytest.approx(at.coefficients_P1, abs=1e-12)


def test_tobit_expects_between_the_bounds_what_simulation_gives():
    X, y, _ = censored_problem(300, "expected")
    fit = tobit(X, y, -0.5, 1.5)
    noise = rng("noise").normal(size=(200_000, 1)) * fit.sigma
    for lower, upper in ((-0.5, 1.5), (-np.inf, 1.5), (-0.5, np.inf), (-np.inf, np.inf)):
        found = fit.predict_observed(X[:4], lower, upper)
        simulated = np.clip(fit.predict(X[:4]) + noise, lower, upper).mean(axis=0)
        assert found == pytest.approx(simulated, abs=0.01)


@given(
    shift=st.floats(-1e3, 1e3),
    stretch=st.floats(1e-4, 1e4),
    x_shift=st.floats(-1e3, 1e3),
)
@settings(max_examples=40, deadline=None)
def test_tobit_knows_no_units(shift, stretch, x_shift):
    X, y, _ = censored_problem(120, "units")
    fit = tobit(X, y, -0.5, 1.5)
    lower, upper = (bound * stretch + shift for bound in (-0.5, 1.5))
    # Clipped again, as rounding may push a value at a bound off it.
    moved_y = np.where(y <= -0.5, lower, np.where(y >= 1.5, upper, y * stretch + shift))
    moved = tobit(X + np.array([x_shift, 0.0]), moved_y, lower, upper)
    assert moved.sigma == pytest.approx(fit.sigma * stretch, rel=1e-6)
    assert moved.coefficients_P1[1:] == pytest.approx(fit.coefficients_P1[1:] * stretch, rel=1e-6)


def test_tobit_gives_a_constant_predictor_no_weight():
    X, y, _ = censored_problem(200, "constant")
    fit, alone = tobit(np.insert(X, 1, 0.1, axis=1), y, -0.5, 1.5), tobit(X, y, -0.5, 1.5)
    assert fit.constant == (1,)
    assert fit.coefficients_P1[2] == 0.0
    assert np.delete(fit.coefficients_P1, 2) == pytest.approx(alone.coefficients_P1, abs=1e-9)


@pytest.mark.parametrize("matrix", FOLDS.values(), ids=FOLDS)
def test_folds_climbed_side_by_side_agree_with_one_after_another(matrix):
    X, y, _ = censored_problem(N_CELLS, "folds")
    X = np.column_stack((X, cells()[0] == 2))
    found = tobit_fold_predictions(X, y, -0.5, 1.5, matrix)
    for f, (fit, test) in enumerate(loop(matrix)):
        alone = tobit(X[fit], y[fit], -0.5, 1.5)
        expected = alone.predict_observed(X[test], -0.5, 1.5)
        assert found[matrix.fold_T == f] == pytest.approx(expected, abs=1e-9)


def test_tobit_says_when_there_is_no_maximum():
    x = np.arange(8.0)[:, None]
    # The rows between the bounds lie on a line: the likelihood grows without end as sigma falls.
    y = np.clip(x[:, 0], 1.0, 6.0)
    assert not tobit(x, y, 1.0, 6.0).converged
    matrix = FoldMatrix(
        fit_FN=np.ones((1, 8)), fold_T=np.zeros(1, dtype=np.int64), cell_T=np.zeros(1, np.int64)
    )
    with pytest.raises(StatsInputError, match="no maximum in some folds"):
        tobit_fold_predictions(x, y, 1.0, 6.0, matrix)


# --- refusals -------------------------------------------------------------------------------------

X_OK, Y_OK = [[1.0], [2.0], [4.0], [3.0]], [1.0, 2.0, 3.0, 5.0]
BAD = {
    "bounds crossed": (lambda: tobit(X_OK, Y_OK, 2.0, 1.0), "below upper_N"),
    "bound nan": (lambda: tobit(X_OK, Y_OK, float("nan"), 1.0), "none NaN"),
    "bounds of another length": (lambda: tobit(X_OK, Y_OK, [0.0], 9.0), "a number or 4 of them"),
    "all censored": (lambda: tobit(X_OK, Y_OK, 5.0, 9.0), "too few values between the bounds"),
    "unequal": (lambda: tobit(X_OK, Y_OK[:3], 0.0, 9.0), "expected 3 rows, as in y, found 4"),
    "other cells": (
        lambda: tobit_fold_predictions(X_OK, Y_OK, 0.0, 9.0, FOLDS["one"]),
        "expected 4 cells",
    ),
}


@pytest.mark.parametrize(("act", "message"), BAD.values(), ids=BAD)
def test_numbers_without_a_censored_fit_are_refused(act, message):
    with pytest.raises(StatsInputError, match=message):
        act()
