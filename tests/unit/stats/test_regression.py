"""Single fits against scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.metrics import r2_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from eps_locked.errors import StatsInputError
from eps_locked.stats.folds import touching
from eps_locked.stats.regression import ols, r_squared, r_squared_columns, ridge, ridge_choose
from unit.stats.problems import (
    ALPHAS,
    N_CELLS,
    cells,
    inner_splits,
    pooled_errors,
    problem,
    rng,
    scaled_ridge,
)

# --- one fit --------------------------------------------------------------------------------------


def test_least_squares_agree_with_scikit_learn():
    X, y = problem()
    fit, theirs = ols(X, y), LinearRegression().fit(X, y)
    assert fit.coefficients_P1[0] == pytest.approx(theirs.intercept_, rel=1e-10)
    assert fit.coefficients_P1[1:] == pytest.approx(theirs.coef_, rel=1e-10)
    assert fit.predict(X[:5]) == pytest.approx(theirs.predict(X[:5]), abs=1e-10)
    assert (fit.alpha, fit.n_rows, fit.constant) == (0.0, 60, ())


@pytest.mark.parametrize("alpha", [1e-3, 1.0, 30.0, 1e4])
def test_ridge_agrees_with_scikit_learn_on_standardised_predictors(alpha):
    X, y = problem()
    others = problem(label="others")[0]
    theirs = scaled_ridge(alpha).fit(X, y)
    assert ridge(X, y, alpha).predict(others) == pytest.approx(theirs.predict(others), abs=1e-10)


def test_ridge_without_penalty_is_least_squares():
    X, y = problem()
    assert np.array_equal(ridge(X, y, 0.0).coefficients_P1, ols(X, y).coefficients_P1)


@pytest.mark.parametrize("alpha", [0.0, 2.0])
@pytest.mark.parametrize("level", [0.0, 0.1, -1e6])
def test_a_constant_predictor_changes_nothing(alpha, level):
    X, y = problem()
    # 0.1 is not a double: sums of it do not give back its mean, and the spread would be dust.
    with_constant = np.insert(X, 1, level, axis=1)
    fit, alone = ridge(with_constant, y, alpha), ridge(X, y, alpha)
    assert fit.constant == (1,)
    assert fit.coefficients_P1[2] == 0.0
    assert np.delete(fit.coefficients_P1, 2) == pytest.approx(alone.coefficients_P1, rel=1e-9)


@pytest.mark.parametrize("X", [np.full((5, 1), 0.1), np.zeros((5, 0))], ids=["constant", "none"])
def test_without_a_predictor_that_varies_the_fit_is_the_mean(X):
    y = np.array([1.0, 2.0, 3.0, 4.0, 7.0])
    fit = ols(X, y)
    assert fit.predict(X + 3.0) == pytest.approx([3.4] * 5, abs=1e-12)


def test_a_predictor_given_twice_predicts_as_once():
    X, y = problem()
    twice = np.column_stack((X, X[:, 0] * 2 + 1))
    assert ols(twice, y).predict(twice) == pytest.approx(ols(X, y).predict(X), abs=1e-9)


@given(
    shift=st.floats(-100, 100),
    stretch=st.floats(0.01, 100),
    alpha=st.sampled_from([0.0, 0.5, 20.0]),
)
@settings(max_examples=40, deadline=None)
def test_units_and_levels_of_predictors_do_not_matter(shift, stretch, alpha):
    X, y = problem()
    moved = X * [1.0, -stretch, 1.0, 1.0] + [0.0, shift, 0.0, 0.0]
    assert ridge(moved, y, alpha).predict(moved) == pytest.approx(
        ridge(X, y, alpha).predict(X), abs=1e-8
    )


# --- how well it predicts -------------------------------------------------------------------------


def test_r_squared_agrees_with_scikit_learn():
    _, y = problem()
    for label in ("near", "far"):
        predicted = y + (0.1 if label == "near" else 9.0) * rng(label).normal(size=len(y))
        assert r_squared(y, predicted) == pytest.approx(r2_score(y, predicted), abs=1e-12)
    assert r_squared(y, np.full(len(y), y.mean())) == pytest.approx(0.0, abs=1e-12)
    assert r_squared(y, y) == 1.0


def test_r_squared_of_many_columns_is_that_of_each():
    _, y = problem()
    predicted = rng("columns").normal(size=(len(y), 4))
    expected = [r2_score(y, predicted[:, m]) for m in range(4)]
    assert r_squared_columns(y, predicted) == pytest.approx(expected, abs=1e-12)


def test_nothing_to_explain_has_no_r_squared():
    assert r_squared([0.1, 0.1, 0.1], [0.1, 0.2, 0.3]) is None
    assert np.isnan(r_squared_columns([0.1, 0.1], np.zeros((2, 3)))).all()


# --- the penalty ----------------------------------------------------------------------------------


def test_chosen_penalty_has_the_least_error_of_scikit_learns_inner_folds():
    X, y = problem(N_CELLS)
    _, touch = touching(*cells())
    choice = ridge_choose(X, y, alphas=ALPHAS[::-1], touch_GN=touch)
    splits = inner_splits(touch, np.arange(N_CELLS))
    expected = [pooled_errors(X, y, splits, alpha) for alpha in ALPHAS]
    assert choice.alphas == ALPHAS
    assert choice.mean_squared_error_A == pytest.approx(expected, rel=1e-10)
    assert choice.alpha == ALPHAS[int(np.argmin(expected))]
    assert np.array_equal(choice.fit.coefficients_P1, ridge(X, y, choice.alpha).coefficients_P1)


def test_chosen_penalty_agrees_with_grid_search_where_inner_folds_are_of_one_size():
    # GridSearchCV averages folds, we average tests: the same where every fold tests equally many.
    train, evaluated = cells(7, 7)
    X, y = problem(49, label="square")
    _, touch = touching(train, evaluated)
    search = GridSearchCV(
        make_pipeline(StandardScaler(), Ridge(solver="svd")),
        {"ridge__alpha": ALPHAS},
        cv=inner_splits(touch, np.arange(49)),
        scoring="neg_mean_squared_error",
    ).fit(X, y)
    choice = ridge_choose(X, y, alphas=ALPHAS, touch_GN=touch)
    assert choice.alpha == search.best_params_["ridge__alpha"]
    assert choice.mean_squared_error_A == pytest.approx(
        -search.cv_results_["mean_test_score"], rel=1e-10
    )


# --- refusals -------------------------------------------------------------------------------------

X_OK, Y_OK = [[1.0], [2.0], [4.0], [3.0]], [1.0, 2.0, 3.0, 5.0]
BAD = {
    "no rows": (lambda: ols(np.zeros((0, 1)), []), "expected 1 rows"),
    "unequal": (lambda: ols(X_OK, Y_OK[:3]), "expected 3 rows, as in y, found 4"),
    "nan": (lambda: ols(X_OK, [1.0, 2.0, float("nan"), 3.0]), "y_N: expected finite"),
    "infinite predictor": (lambda: ols([[np.inf]] * 4, Y_OK), "X_NP: expected finite"),
    "negative penalty": (lambda: ridge(X_OK, Y_OK, -1.0), "a finite number of 0 or more"),
    "nan penalty": (lambda: ridge(X_OK, Y_OK, float("nan")), "a finite number of 0 or more"),
    "other columns": (lambda: ols(X_OK, Y_OK).predict([[1.0, 2.0]]), "expected 1 columns, found 2"),
    "r2 unequal": (lambda: r_squared(Y_OK, [1.0]), "expected 4 rows"),
    "r2 of one": (lambda: r_squared([1.0], [1.0]), "expected 2 rows"),
    "no penalties": (
        lambda: ridge_choose(X_OK, Y_OK, alphas=[], touch_GN=np.eye(4, dtype=bool)),
        "at least 1 penalty",
    ),
    "penalty of zero": (
        lambda: ridge_choose(X_OK, Y_OK, alphas=[0.0, 1.0], touch_GN=np.eye(4, dtype=bool)),
        "all above 0",
    ),
    "no inner fold": (
        lambda: ridge_choose(X_OK, Y_OK, alphas=[1.0], touch_GN=np.ones((2, 4), dtype=bool)),
        "too few contexts to choose",
    ),
}


@pytest.mark.parametrize(("act", "message"), BAD.values(), ids=BAD)
def test_numbers_without_a_fit_are_refused(act, message):
    with pytest.raises(StatsInputError, match=message):
        act()
