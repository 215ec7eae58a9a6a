"""Closed forms against loops that do the same thing slowly."""

from __future__ import annotations

import numpy as np
import pytest

from eps_locked.scoring.folded import by_cell, covariate_predictions, leave_block_out
from eps_locked.scoring.gateform import factor_fold_predictions, factor_weights
from eps_locked.stats.fold_fits import simple_fold_predictions
from eps_locked.stats.folds import leave_one_context_out, leave_two_contexts_out, stack_folds
from eps_locked.stats.regression import ols
from unit.stats.problems import one_fold_after_another

RNG = np.random.default_rng(7)
TRAIN, EVAL = (side.ravel() for side in np.meshgrid(np.arange(6), np.arange(10), indexing="ij"))
OFF = TRAIN != EVAL
TRAIN, EVAL = TRAIN[OFF], EVAL[OFF]
N = len(TRAIN)
X = RNG.normal(size=(N, 4))
X[:, 1] = RNG.normal(size=10)[EVAL]
X[:, 3] = 2.0
Y = 5 + X[:, 0] + 0.5 * X[:, 1] + RNG.normal(size=N)
TWO = stack_folds(leave_two_contexts_out(TRAIN, EVAL))


def test_a_cell_that_two_folds_test_gets_the_mean_of_both_predictions() -> None:
    one = stack_folds(leave_one_context_out(TRAIN, EVAL))
    raw = simple_fold_predictions(X[:, :1], Y, one)[:, 0]
    for cell in (0, 17, N - 1):
        assert by_cell(raw[:, None], one)[cell, 0] == pytest.approx(raw[one.cell_T == cell].mean())


def test_covariates_with_a_predictor_equal_a_multiple_regression_in_every_fold() -> None:
    covariates = X[:, 1:]
    alone, together = covariate_predictions(covariates, X[:, :1], Y, TWO)
    slow = one_fold_after_another(covariates, Y, TWO)
    np.testing.assert_allclose(alone[TWO.cell_T], slow, atol=1e-10)
    slow = one_fold_after_another(np.column_stack([covariates, X[:, 0]]), Y, TWO)
    np.testing.assert_allclose(together[TWO.cell_T, 0], slow, atol=1e-10)


def test_a_predictor_that_the_covariates_determine_adds_exactly_nothing() -> None:
    twice = 2 * X[:, 1:2] + 3
    alone, together = covariate_predictions(X[:, 1:2], twice, Y, TWO)
    np.testing.assert_array_equal(together[:, 0], alone)


def additive(train: np.ndarray, evaluated: np.ndarray) -> np.ndarray:
    rows = (train[:, None] == np.arange(6)).astype(float)
    return np.column_stack([rows, (evaluated[:, None] == np.arange(10)).astype(float)])


def test_leaving_mirror_pairs_out_equals_refitting_without_each_pair() -> None:
    mirror = {(i, j): n for n, (i, j) in enumerate(zip(TRAIN, EVAL, strict=True))}
    block = np.array(
        [min(n, mirror.get((j, i), n)) for (i, j), n in mirror.items()], dtype=np.int64
    )
    design = additive(TRAIN, EVAL)
    basis = np.linalg.svd(design, full_matrices=False)
    basis = basis[0][:, basis[1] > 1e-9]
    alone, together, ok = leave_block_out(basis, Y, X[:, :1], block)
    assert ok.all()
    for held in np.unique(block)[::5]:
        out = block == held
        for columns, found in (
            (design, alone),
            (np.column_stack([design, X[:, 0]]), together[:, 0]),
        ):
            weights = np.linalg.lstsq(columns[~out], Y[~out], rcond=None)[0]
            np.testing.assert_allclose(found[out], columns[out] @ weights, atol=1e-9)


def test_a_cell_alone_in_its_row_cannot_be_predicted_without_itself() -> None:
    train = np.append(TRAIN, 7)
    design = np.column_stack([additive(train, np.append(EVAL, 2)), (train == 7).astype(float)])
    left, singular, _ = np.linalg.svd(design, full_matrices=False)
    x, y = RNG.normal(size=(N + 1, 1)), RNG.normal(size=N + 1)
    _, _, ok = leave_block_out(left[:, singular > 1e-9], y, x, np.arange(N + 1))
    assert ok[:-1].all()
    assert not ok[-1]


def standard(columns: np.ndarray) -> np.ndarray:
    return (columns - columns.mean(axis=0)) / columns.std(axis=0)


def test_the_multiplicative_form_finds_factors_that_made_the_values() -> None:
    x = standard(np.column_stack([X[:, 0], RNG.normal(size=6)[TRAIN], RNG.normal(size=10)[EVAL]]))
    y = 1 + (1 + 0.4 * x[:, 1]) * (2 + 0.7 * x[:, 0]) * (1 - 0.3 * x[:, 2])
    offset, level, gate, source, reader = factor_weights(x, y)
    made = offset + (1 + source * x[:, 1]) * (level + gate * x[:, 0]) * (1 + reader * x[:, 2])
    assert np.square(y - made).sum() < 0.002 * np.square(y - y.mean()).sum()
    predicted = factor_fold_predictions(x[None], y, TWO)[:, 0]
    line = one_fold_after_another(x, y, TWO)
    assert np.square(predicted - y[TWO.cell_T]).sum() < 0.1 * np.square(line - y[TWO.cell_T]).sum()


def test_with_the_gate_alone_the_form_is_a_line() -> None:
    x = standard(X[:, :1])
    line = ols(x, Y).coefficients_P1
    offset, level, slope = factor_weights(x, Y)
    assert offset + level == pytest.approx(line[0], rel=1e-2)
    assert slope == pytest.approx(line[1], rel=1e-2)


def test_the_form_knows_only_the_fit_cells_of_a_fold() -> None:
    x = standard(np.column_stack([X[:, 0], RNG.normal(size=6)[TRAIN]]))
    before = factor_fold_predictions(x[None], Y, TWO)[:, 0]
    fold = 3
    tests = TWO.fold_T == fold
    changed = Y.copy()
    changed[TWO.fit_FN[fold] == 0] += 100 * RNG.normal(size=int((TWO.fit_FN[fold] == 0).sum()))
    after = factor_fold_predictions(x[None], changed, TWO)[:, 0]
    np.testing.assert_allclose(after[tests], before[tests], atol=1e-4)
    assert np.abs(after[~tests] - before[~tests]).max() > 1
