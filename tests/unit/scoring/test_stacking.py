"""Choices inside all folds at once against a loop over the folds."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

from eps_locked.scoring.stacking import stack
from eps_locked.stats.folds import inner_folds, touching
from eps_locked.stats.regression import ridge_choose
from unit.stats.problems import (
    ALPHAS,
    FOLDS,
    N_CELLS,
    cells,
    inner_splits,
    loop,
    pooled_errors,
    problem,
    rng,
)


@pytest.mark.parametrize("matrix", FOLDS.values(), ids=FOLDS)
def test_penalties_chosen_in_every_fold_agree_with_a_loop(matrix):
    train, evaluated = cells()
    # Columns that are constant in some inner folds, and a weak relation, so that choices differ.
    X = np.column_stack((problem(N_CELLS)[0], train == 2, evaluated == 7))
    y = X[:, 1] * 40 + (train == 3) + rng("weak").normal(size=N_CELLS)
    _, touch = touching(train, evaluated)
    stacked = stack(X, y, matrix, inner_folds(matrix.fit_FN, touch), ALPHAS)
    predicted, alphas = stacked.ridge_T, stacked.alpha_F
    for f, (fit, test) in enumerate(loop(matrix)):
        rows = np.flatnonzero(fit)
        errors = [
            pooled_errors(X[rows], y[rows], inner_splits(touch, rows), alpha) for alpha in ALPHAS
        ]
        assert alphas[f] == ALPHAS[int(np.argmin(errors))]
        alone = ridge_choose(X[rows], y[rows], alphas=ALPHAS, touch_GN=touch[:, rows])
        assert alone.alpha == alphas[f]
        assert predicted[matrix.fold_T == f] == pytest.approx(alone.fit.predict(X[test]), abs=1e-12)
    assert len(set(alphas)) > 1, "a case in which every fold agrees shows little"


@pytest.mark.parametrize("matrix", FOLDS.values(), ids=FOLDS)
def test_single_predictor_chosen_in_every_fold_agrees_with_a_loop(matrix):
    x = problem(N_CELLS)[0]
    y = x[:, 0] * 200 + x[:, 1] * 20 + rng("weak").normal(size=N_CELLS) * 3
    _, touch = touching(*cells())
    stacked = stack(x, y, matrix, inner_folds(matrix.fit_FN, touch), ALPHAS)
    predicted, chosen = stacked.best_T, stacked.best_F
    for f, (fit, test) in enumerate(loop(matrix)):
        rows = np.flatnonzero(fit)
        errors = np.zeros(x.shape[1])
        for m in range(x.shape[1]):
            column = x[rows][:, [m]]
            for inner_fit, inner_test in inner_splits(touch, rows):
                model = LinearRegression().fit(column[inner_fit], y[rows][inner_fit])
                left = model.predict(column[inner_test]) - y[rows][inner_test]
                errors[m] += np.square(left).sum()
        assert chosen[f] == np.argmin(errors)
        column = x[:, [chosen[f]]]
        expected = LinearRegression().fit(column[fit], y[fit]).predict(column[test])
        assert predicted[matrix.fold_T == f] == pytest.approx(expected, abs=1e-10)
    assert len(set(chosen)) > 1, "a case in which every fold agrees shows little"


def test_contexts_may_leave_in_blocks_and_a_predictor_may_be_constant():
    X = np.column_stack((np.full(N_CELLS, 2.0), problem(N_CELLS)[0]))
    y = X[:, 1] * 200 + rng("weak").normal(size=N_CELLS) * 3
    matrix, (_, touch) = FOLDS["two"], touching(*cells())
    blocks = np.stack([touch[block::4].any(axis=0) for block in range(4)])
    found = stack(X, y, matrix, inner_folds(matrix.fit_FN, blocks), ALPHAS)
    for f, (fit, test) in enumerate(loop(matrix)):
        alone = ridge_choose(X[fit], y[fit], alphas=ALPHAS, touch_GN=blocks[:, fit])
        assert found.alpha_F[f] == alone.alpha
        assert found.ridge_T[matrix.fold_T == f] == pytest.approx(
            alone.fit.predict(X[test]), abs=1e-10
        )
    assert len(set(found.alpha_F)) > 1, "a case in which every fold agrees shows little"


@pytest.mark.parametrize("kind", ["ridge", "single"])
def test_what_is_tested_never_reaches_its_own_prediction(kind):
    """Cells that touch a held-out context may say anything; the prediction there stays."""
    train, evaluated = cells()
    X, y = problem(N_CELLS)
    matrix, (_, touch) = FOLDS["two"], touching(train, evaluated)
    inner = inner_folds(matrix.fit_FN, touch)

    def predict(response):
        stacked = stack(X, response, matrix, inner, ALPHAS)
        return stacked.ridge_T if kind == "ridge" else stacked.best_T

    before = predict(y)
    for f in (0, 7, len(matrix.fit_FN) - 1):
        spoiled = np.where(matrix.fit_FN[f] > 0, y, 50 + 9 * rng("spoiled").normal(size=N_CELLS))
        after = predict(spoiled)
        mine = matrix.fold_T == f
        assert after[mine] == pytest.approx(before[mine], abs=1e-9)
        assert np.abs(after[~mine] - before[~mine]).max() > 1.0
