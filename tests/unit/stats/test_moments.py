"""Fits from sums over sets of cells against fits on those cells."""

from __future__ import annotations

import numpy as np
import pytest

from eps_locked.stats.moments import (
    least_with_largest_penalty,
    lines,
    moments_over,
    ridges,
    squared_line_errors,
    squared_ridge_errors,
    standardised,
)
from eps_locked.stats.regression import ols, ridge
from unit.stats.problems import problem, rng

N = 60
SETS = np.stack([np.ones(N), np.arange(N) % 3 > 0, np.arange(N) < 25]).astype(float)
X = np.column_stack((problem(N)[0], np.arange(N) >= 25))
Y = problem(N)[1]
Z = standardised(X)
ALPHAS = np.array([0.1, 3.0, 200.0])
OVER = moments_over(np.column_stack((np.ones(N), Z, Y)))


def test_sums_over_a_set_are_the_products_of_its_cells():
    columns = np.column_stack((np.ones(N), Z, Y))
    for mask, found in zip(SETS > 0, OVER(SETS), strict=True):
        assert found == pytest.approx(columns[mask].T @ columns[mask], abs=1e-10)


def test_ridge_from_sums_is_ridge_on_the_cells_also_where_a_predictor_is_constant():
    fits = ridges(OVER(SETS), ALPHAS)
    errors = squared_ridge_errors(fits, OVER(1 - SETS))
    for f, mask in enumerate(SETS > 0):
        for a, alpha in enumerate(ALPHAS):
            alone = ridge(Z[mask], Y[mask], float(alpha))
            assert fits[f, a] == pytest.approx(alone.coefficients_P1, abs=1e-10)
            left = Y[~mask] - alone.predict(Z[~mask])
            assert errors[f, a] == pytest.approx(np.square(left).sum(), abs=1e-9)
    assert fits[2, :, -1] == pytest.approx(0.0)


def test_lines_from_sums_are_lines_on_the_cells():
    found = np.stack(lines(OVER(SETS)))
    errors = squared_line_errors(*found, OVER(1 - SETS))
    for f, mask in enumerate(SETS > 0):
        for p in range(Z.shape[1]):
            alone = ols(Z[mask, p : p + 1], Y[mask])
            assert found[:, f, p] == pytest.approx(alone.coefficients_P1, abs=1e-10)
            left = Y[~mask] - alone.predict(Z[~mask, p : p + 1])
            assert errors[f, p] == pytest.approx(np.square(left).sum(), abs=1e-9)


def test_of_equal_errors_the_largest_penalty_is_taken():
    errors = np.array([[2.0, 1.0, 1.0, 3.0], [0.0, 1.0, 1.0, 3.0]])
    assert least_with_largest_penalty(errors).tolist() == [2, 0]


@pytest.mark.parametrize("unit", [1e-200, 1.0, 1e200])
def test_columns_of_any_unit_get_one_scale_and_constants_get_none(unit):
    columns = unit * np.column_stack((rng("unit").normal(size=N), np.full(N, 0.1)))
    found = standardised(columns)
    assert found[:, 0].mean() == pytest.approx(0.0, abs=1e-12)
    assert found[:, 0].std() == pytest.approx(1.0)
    assert (found[:, 1] == 0.0).all()
