"""Fits against scikit-learn and simulated truth; many folds at once against one at a time."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import pytest
import scipy.optimize
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.metrics import r2_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from eps_locked.errors import StatsInputError
from eps_locked.stats.bootstrap import generator_from_digest
from eps_locked.stats.folds import (
    FoldMatrix,
    leave_one_context_out,
    leave_two_contexts_out,
    stack_folds,
    touching,
)
from eps_locked.stats.regression import (
    fold_predictions,
    ols,
    r_squared,
    r_squared_columns,
    ridge,
    ridge_choose,
    ridge_fold_predictions,
    select_fold_predictions,
    simple_fold_predictions,
    tobit,
    tobit_fold_predictions,
)


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


def scaled_ridge(alpha: float):
    return make_pipeline(StandardScaler(), Ridge(alpha=alpha, solver="svd"))


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


# --- fold by fold ---------------------------------------------------------------------------------

FOLDS = {
    "one": stack_folds(leave_one_context_out(*cells())),
    "two": stack_folds(leave_two_contexts_out(*cells())),
}
N_CELLS = len(cells()[0])


def loop(matrix: FoldMatrix) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for f, fit in enumerate(matrix.fit_FN > 0):
        yield fit, matrix.cell_T[matrix.fold_T == f]


@pytest.mark.parametrize("matrix", FOLDS.values(), ids=FOLDS)
def test_folds_of_a_multiple_regression_agree_with_scikit_learn(matrix):
    X, y = problem(N_CELLS)
    for alpha, model in ((0.0, LinearRegression()), (3.0, scaled_ridge(3.0))):
        expected = [model.fit(X[fit], y[fit]).predict(X[test]) for fit, test in loop(matrix)]
        found = fold_predictions(X, y, matrix, alpha=alpha)
        assert found == pytest.approx(np.concatenate(expected), abs=1e-10)


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


# --- choices inside the folds ---------------------------------------------------------------------

ALPHAS = (0.01, 0.3, 3.0, 30.0, 1000.0)


def inner_splits(touch: np.ndarray, rows: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """What scikit-learn takes as cv: places within ``rows``, one split per group that has both."""
    splits = []
    for touches in touch[:, rows]:
        if touches.any() and not touches.all():
            splits.append((np.flatnonzero(~touches), np.flatnonzero(touches)))
    return splits


def pooled_errors(X, y, splits, alpha) -> float:
    total, n = 0.0, 0
    for fit, test in splits:
        predicted = scaled_ridge(alpha).fit(X[fit], y[fit]).predict(X[test])
        total, n = total + np.square(predicted - y[test]).sum(), n + len(test)
    return total / n


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


@pytest.mark.parametrize("matrix", FOLDS.values(), ids=FOLDS)
def test_penalties_chosen_in_every_fold_agree_with_a_loop(matrix):
    train, evaluated = cells()
    # Columns that are constant in some inner folds, and a weak relation, so that choices differ.
    X = np.column_stack((problem(N_CELLS)[0], train == 2, evaluated == 7))
    y = X[:, 1] * 40 + (train == 3) + rng("weak").normal(size=N_CELLS)
    _, touch = touching(train, evaluated)
    predicted, alphas = ridge_fold_predictions(X, y, matrix, alphas=ALPHAS, touch_GN=touch)
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
    predicted, chosen = select_fold_predictions(x, y, matrix, touch_GN=touch)
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


@pytest.mark.parametrize("kind", ["ridge", "single"])
def test_what_is_tested_never_reaches_its_own_prediction(kind):
    """Cells that touch a held-out context may say anything; the prediction there stays."""
    train, evaluated = cells()
    X, y = problem(N_CELLS)
    matrix, (_, touch) = FOLDS["two"], touching(train, evaluated)

    def predict(response):
        if kind == "ridge":
            return ridge_fold_predictions(X, response, matrix, alphas=ALPHAS, touch_GN=touch)[0]
        return select_fold_predictions(X, response, matrix, touch_GN=touch)[0]

    before = predict(y)
    for f in (0, 7, len(matrix.fit_FN) - 1):
        spoiled = np.where(matrix.fit_FN[f] > 0, y, 50 + 9 * rng("spoiled").normal(size=N_CELLS))
        after = predict(spoiled)
        mine = matrix.fold_T == f
        assert after[mine] == pytest.approx(before[mine], abs=1e-9)
        assert np.abs(after[~mine] - before[~mine]).max() > 1.0


def test_a_full_row_chooses_its_penalties_in_seconds():
    train, evaluated = cells(16, 29)
    matrix, (_, touch) = (
        stack_folds(leave_two_contexts_out(train, evaluated)),
        touching(train, evaluated),
    )
    X, y = problem(464, 10)
    started = time.process_time()
    ridge_fold_predictions(X, y, matrix, alphas=np.logspace(-2, 4, 13), touch_GN=touch)
    # About 0.4 s on one core for 120,000 inner fits.
    assert time.process_time() - started < 5.0


# --- censored regression --------------------------------------------------------------------------


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
    "no rows": (lambda: ols(np.zeros((0, 1)), []), "expected 1 rows"),
    "unequal": (lambda: ols(X_OK, Y_OK[:3]), "expected 3 rows, as in y, found 4"),
    "nan": (lambda: ols(X_OK, [1.0, 2.0, float("nan"), 3.0]), "y_N: expected finite"),
    "infinite predictor": (lambda: ols([[np.inf]] * 4, Y_OK), "X_NP: expected finite"),
    "negative penalty": (lambda: ridge(X_OK, Y_OK, -1.0), "a finite number of 0 or more"),
    "nan penalty": (lambda: ridge(X_OK, Y_OK, float("nan")), "a finite number of 0 or more"),
    "other columns": (lambda: ols(X_OK, Y_OK).predict([[1.0, 2.0]]), "expected 1 columns, found 2"),
    "r2 unequal": (lambda: r_squared(Y_OK, [1.0]), "expected 4 rows"),
    "r2 of one": (lambda: r_squared([1.0], [1.0]), "expected 2 rows"),
    "other cells": (lambda: fold_predictions(X_OK, Y_OK, FOLDS["one"]), "expected 4 cells"),
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
    "bounds crossed": (lambda: tobit(X_OK, Y_OK, 2.0, 1.0), "below upper_N"),
    "bound nan": (lambda: tobit(X_OK, Y_OK, float("nan"), 1.0), "none NaN"),
    "bounds of another length": (lambda: tobit(X_OK, Y_OK, [0.0], 9.0), "a number or 4 of them"),
    "all censored": (lambda: tobit(X_OK, Y_OK, 5.0, 9.0), "too few values between the bounds"),
}


@pytest.mark.parametrize(("act", "message"), BAD.values(), ids=BAD)
def test_numbers_without_a_fit_are_refused(act, message):
    with pytest.raises(StatsInputError, match=message):
        act()
