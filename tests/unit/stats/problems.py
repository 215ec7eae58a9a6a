"""Cells, predictors and folds to fit, and the slow way through the folds."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from eps_locked.stats.bootstrap import generator_from_digest
from eps_locked.stats.folds import (
    FoldMatrix,
    leave_one_context_out,
    leave_two_contexts_out,
    stack_folds,
)
from eps_locked.stats.regression import ols


def rng(*labels: str) -> np.random.Generator:
    return generator_from_digest("blake3:regression", *labels)


def problem(n: int = 60, n_predictors: int = 4, label: str = "problem"):
    """Predictors of very different units, correlated, with a level far from 0; and a response."""
    source = rng(label)
    common = source.normal(size=(n, 1))
    X = common + source.normal(size=(n, n_predictors))
    X = X * 10.0 ** np.arange(-3, n_predictors - 3) + 5.0
    y = 2.0 + common[:, 0] + source.normal(size=n)
    return X, y


def cells(n_train: int = 6, n_eval: int = 9):
    train, evaluated = np.divmod(np.arange(n_train * n_eval), n_eval)
    return train, evaluated


FOLDS = {
    "one": stack_folds(leave_one_context_out(*cells())),
    "two": stack_folds(leave_two_contexts_out(*cells())),
}
N_CELLS = len(cells()[0])
ALPHAS = (0.01, 0.3, 3.0, 30.0, 1000.0)


def loop(matrix: FoldMatrix) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The mask of a fold's fit cells and the places of its tests, fold by fold."""
    for f, fit in enumerate(matrix.fit_FN > 0):
        yield fit, matrix.cell_T[matrix.fold_T == f]


def one_fold_after_another(X: np.ndarray, y: np.ndarray, matrix: FoldMatrix) -> np.ndarray:
    """What a multiple regression, fitted in every fold anew, predicts at its tests."""
    return np.concatenate([ols(X[fit], y[fit]).predict(X[test]) for fit, test in loop(matrix)])


def inner_splits(touch: np.ndarray, rows: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """What scikit-learn takes as cv: places within ``rows``, one split per group that has both."""
    splits = []
    for touches in touch[:, rows]:
        if touches.any() and not touches.all():
            splits.append((np.flatnonzero(~touches), np.flatnonzero(touches)))
    return splits


def scaled_ridge(alpha: float):
    return make_pipeline(StandardScaler(), Ridge(alpha=alpha, solver="svd"))


def pooled_errors(X, y, splits, alpha) -> float:
    """Mean squared error of a ridge regression over the tests of all splits."""
    total, n = 0.0, 0
    for fit, test in splits:
        predicted = scaled_ridge(alpha).fit(X[fit], y[fit]).predict(X[test])
        total, n = total + np.square(predicted - y[test]).sum(), n + len(test)
    return total / n
