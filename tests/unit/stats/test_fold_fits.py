"""Many lines in many folds at once against one at a time."""

from __future__ import annotations

import time

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

from eps_locked.errors import StatsInputError
from eps_locked.stats.fold_fits import simple_fold_predictions
from eps_locked.stats.folds import leave_two_contexts_out, stack_folds
from eps_locked.stats.regression import ols
from unit.stats.problems import FOLDS, N_CELLS, cells, loop, problem, rng


@pytest.mark.parametrize("matrix", FOLDS.values(), ids=FOLDS)
@pytest.mark.parametrize("level", [0.0, 1e5], ids=["centred", "far from 0"])
def test_folds_of_single_predictors_agree_with_scikit_learn(matrix, level):
    X, y = problem(N_CELLS)
    X = X + level
    found = simple_fold_predictions(X, y, matrix)
    for m in range(X.shape[1]):
        x = X[:, [m]]
        expected = [
            LinearRegression().fit(x[fit], y[fit]).predict(x[test]) for fit, test in loop(matrix)
        ]
        # At a level of 1e5 a predictor of unit 1e-3 keeps eight digits of its own.
        assert found[:, m] == pytest.approx(
            np.concatenate(expected), abs=1e-10 if not level else 1e-6
        )


@pytest.mark.parametrize("matrix", FOLDS.values(), ids=FOLDS)
def test_folds_without_intercept_agree_with_scikit_learn(matrix):
    X, y = problem(N_CELLS)
    found = simple_fold_predictions(X, y, matrix, intercept=False)
    for m in range(X.shape[1]):
        x = X[:, [m]]
        model = LinearRegression(fit_intercept=False)
        expected = [model.fit(x[fit], y[fit]).predict(x[test]) for fit, test in loop(matrix)]
        assert found[:, m] == pytest.approx(np.concatenate(expected), abs=1e-10)


def awkward_columns() -> np.ndarray:
    """Predictors that are constant, or nearly so, in some folds and not in others."""
    train, evaluated = cells()
    source = rng("awkward")
    return np.column_stack(
        (
            np.full(N_CELLS, 0.1),
            (train == 2) * 0.7,
            0.1 + (evaluated == 7) * 1e6,
            np.where(evaluated == 7, 1e9, source.normal(size=N_CELLS)),
            1e9 + source.normal(size=N_CELLS),
            np.where((train == 2) | (evaluated == 2), 0.3, 0.1) * 3,
            1e-200 * source.normal(size=N_CELLS),
        )
    )


@pytest.mark.parametrize("matrix", FOLDS.values(), ids=FOLDS)
def test_predictors_constant_in_some_folds_give_the_mean_of_those(matrix):
    X, (_, y) = awkward_columns(), problem(N_CELLS)
    found = simple_fold_predictions(X, y, matrix)
    n_constant = 0
    for m in range(X.shape[1]):
        x = X[:, [m]]
        for f, (fit, test) in enumerate(loop(matrix)):
            single = ols(x[fit], y[fit])
            n_constant += len(single.constant)
            assert found[matrix.fold_T == f, m] == pytest.approx(
                single.predict(x[test]), rel=1e-6, abs=1e-6
            ), m
            if single.constant:
                assert found[matrix.fold_T == f, m] == pytest.approx(y[fit].mean(), abs=1e-12)
    assert n_constant > len(matrix.fit_FN), "the columns should be constant in some folds"


def test_without_intercept_a_predictor_of_zeros_predicts_zero():
    matrix = FOLDS["two"]
    x = np.zeros((N_CELLS, 1))
    x[cells()[0] == 2] = 1.0
    y = problem(N_CELLS)[1]
    found = simple_fold_predictions(x, y, matrix, intercept=False)[:, 0]
    held = np.array([not fit[x[:, 0] > 0].any() for fit, _ in loop(matrix)])[matrix.fold_T]
    assert held.any()
    assert (found[held] == 0.0).all()


def test_antisymmetric_parts_are_predicted_antisymmetrically():
    train, evaluated = cells(6, 6)
    off = train != evaluated
    train, evaluated = train[off], evaluated[off]
    source = rng("antisymmetric")
    table, response = source.normal(size=(6, 6)), source.normal(size=(6, 6))
    x, y = (table - table.T)[train, evaluated], (response - response.T)[train, evaluated]
    matrix = stack_folds(leave_two_contexts_out(train, evaluated))
    predicted = np.zeros((6, 6))
    found = simple_fold_predictions(x[:, None], y, matrix, intercept=False)[:, 0]
    predicted[train[matrix.cell_T], evaluated[matrix.cell_T]] = found
    assert predicted == pytest.approx(-predicted.T, abs=1e-14)
    assert np.abs(predicted).max() > 0.01


def test_hundreds_of_permutations_in_hundreds_of_folds_take_a_moment():
    train, evaluated = cells(16, 29)
    matrix = stack_folds(leave_two_contexts_out(train, evaluated))
    x, y = rng("x").normal(size=(464, 500)), rng("y").normal(size=464)
    started = time.process_time()
    simple_fold_predictions(x, y, matrix)
    # About 0.04 s on one core for 172,000 fits; the bound catches a loop over them.
    assert time.process_time() - started < 1.0


def test_columns_that_are_not_of_the_folds_cells_are_refused():
    X, y = problem(4)
    with pytest.raises(StatsInputError, match="expected 4 values, as in x, found 3"):
        simple_fold_predictions(X, y[:3], FOLDS["one"])
    with pytest.raises(StatsInputError, match="expected 4 cells, found 54"):
        simple_fold_predictions(X, y, FOLDS["one"])
