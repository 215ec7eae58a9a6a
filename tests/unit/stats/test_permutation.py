"""Relabelling contexts: which cell receives what, the two statistics, and the p value."""

from __future__ import annotations

import numpy as np
import pytest
import statsmodels.api as sm

from eps_locked.errors import StatsInputError
from eps_locked.stats.bootstrap import generator_from_digest
from eps_locked.stats.permutation import (
    additive_gain,
    context_permutations,
    permutation_p,
    permuted_predictor,
    spearman_columns,
)
from eps_locked.stats.ranks import spearman
from eps_locked.stats.simulate import off_diagonal


def rng(*labels: str) -> np.random.Generator:
    return generator_from_digest("blake3:test", "permutation", *labels)


def table(n_train: int = 5, n_eval: int = 8, *, diagonal: bool = False):
    train, evaluated = off_diagonal(n_train, n_eval)
    if diagonal:
        own = np.arange(min(n_train, n_eval))
        train, evaluated = np.concatenate([train, own]), np.concatenate([evaluated, own])
    return train, evaluated, rng("x").normal(size=len(train))


# --- which cell receives what ---------------------------------------------------------------------


def test_contexts_change_places_only_within_their_kind():
    # 3 and 5 are trained only, 0 and 1 in both roles, 7 to 9 evaluated only.
    train = np.array([0, 1, 3, 5, 0, 1, 3, 5])
    evaluated = np.array([1, 0, 7, 8, 9, 7, 0, 1])
    relabelled = context_permutations(train, evaluated, rng=rng("kinds"), n_permutations=200)
    assert relabelled.shape == (200, 7)
    for columns, ids in (([0, 1], {0, 1}), ([2, 3], {3, 5}), ([4, 5, 6], {7, 8, 9})):
        assert {frozenset(row) for row in relabelled[:, columns].tolist()} == {frozenset(ids)}
    assert len(np.unique(relabelled, axis=0)) == 2 * 2 * 6


def test_every_order_is_equally_likely():
    train, evaluated, _ = table(3, 3)
    relabelled = context_permutations(train, evaluated, rng=rng("even"), n_permutations=6000)
    _, counts = np.unique(relabelled, axis=0, return_counts=True)
    # Six orders, 1,000 each; five standard deviations are 144.
    assert len(counts) == 6
    assert counts == pytest.approx(1000, abs=144)


def test_a_cell_receives_the_predictor_of_the_cell_that_stands_in_for_it():
    train, evaluated, x = table(diagonal=True)
    relabelled = context_permutations(train, evaluated, rng=rng("cells"), n_permutations=20)
    found = permuted_predictor(x, train, evaluated, relabelled)
    value = {(i, j): v for i, j, v in zip(train.tolist(), evaluated.tolist(), x, strict=True)}
    for m, row in enumerate(relabelled):
        expected = [value[row[i], row[j]] for i, j in zip(train, evaluated, strict=True)]
        assert found[:, m].tolist() == expected
    # Both roles move together: what stood on the diagonal stays there.
    on_diagonal = train == evaluated
    assert set(found[on_diagonal].ravel()) == set(x[on_diagonal])


def test_scored_cells_draw_on_the_whole_table():
    train, evaluated, x = table()
    keep = np.arange(len(x)) % 3 != 0
    relabelled = context_permutations(train, evaluated, rng=rng("keep"), n_permutations=50)
    whole = permuted_predictor(x, train, evaluated, relabelled)
    kept = permuted_predictor(x, train, evaluated, relabelled, keep_N=keep)
    assert np.array_equal(kept, whole[keep])


def test_a_cell_the_table_lacks_receives_an_additive_value_when_the_predictor_is_additive():
    train, evaluated, _ = table(6, 9)
    row, column = rng("row").normal(size=6), rng("column").normal(size=9)
    x = row[train] + column[evaluated]
    has = rng("has").random(len(x)) > 0.2
    relabelled = context_permutations(train, evaluated, rng=rng("lacks"), n_permutations=30)
    complete = permuted_predictor(x, train, evaluated, relabelled, keep_N=has)
    found = permuted_predictor(x[has], train[has], evaluated[has], relabelled)
    assert found == pytest.approx(complete, abs=1e-9)


def test_what_is_filled_in_varies_as_much_as_the_predictor_does():
    train, evaluated, x = table(12, 20)
    has = rng("has").random(len(x)) > 0.2
    relabelled = context_permutations(train, evaluated, rng=rng("spread"), n_permutations=300)
    found = permuted_predictor(x[has], train[has], evaluated[has], relabelled)
    assert found.std() == pytest.approx(x[has].std(), rel=0.05)


# --- the statistics -------------------------------------------------------------------------------


def test_columns_of_correlations_equal_single_ones():
    train, evaluated, x = table()
    y = np.round(rng("y").normal(size=len(x)))
    relabelled = context_permutations(train, evaluated, rng=rng("columns"), n_permutations=7)
    columns = permuted_predictor(x, train, evaluated, relabelled)
    singles = [spearman(column, y) for column in columns.T]
    assert spearman_columns(columns, y) == pytest.approx(singles, abs=1e-12)


def test_gain_is_what_a_regression_on_row_and_column_dummies_gains():
    train, evaluated, x = table(6, 9)
    y = 0.4 * x + rng("y").normal(size=len(x)) + train - 0.5 * evaluated
    dummies = np.column_stack([np.eye(6)[train], np.eye(9)[evaluated][:, 1:]])
    without = sm.OLS(y, dummies).fit()
    with_x = sm.OLS(y, np.column_stack([dummies, x])).fit()
    total = np.square(y - y.mean()).sum()
    expected = (without.ssr - with_x.ssr) / total
    assert additive_gain(x[:, None], y, train, evaluated)[0] == pytest.approx(expected, abs=1e-10)


def test_a_predictor_of_rows_and_columns_alone_gains_nothing():
    train, evaluated, _ = table()
    x = train**2 - 3.7 * evaluated
    y = rng("y").normal(size=len(train))
    relabelled = context_permutations(train, evaluated, rng=rng("none"), n_permutations=20)
    columns = permuted_predictor(x, train, evaluated, relabelled)
    assert additive_gain(columns, y, train, evaluated).tolist() == [0.0] * 20


def test_nothing_is_gained_on_a_constant():
    train, evaluated, x = table()
    assert additive_gain(x[:, None], np.ones(len(x)), train, evaluated).tolist() == [0.0]


# --- the p value ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("alternative", "reached"), [("greater", 2), ("less", 5), ("two_sided", 3)]
)
def test_p_counts_what_reaches_the_observed_value(alternative, reached):
    null = [-3.0, -1.0, 2.0, 2.0, 0.0]
    assert permutation_p(2.0, null, alternative=alternative) == (1 + reached) / 6


def test_p_is_never_zero():
    assert permutation_p(10.0, np.zeros(199)) == 1 / 200


def test_a_tie_up_to_rounding_counts_as_reached():
    assert permutation_p(0.3, [0.1 + 0.2, 0.3 - 1e-16]) == 1.0


# --- refusals -------------------------------------------------------------------------------------


def test_inputs_without_an_answer_are_refused():
    train, evaluated, x = table()
    relabelled = context_permutations(train, evaluated, rng=rng("bad"), n_permutations=2)
    with pytest.raises(StatsInputError, match="n_permutations"):
        context_permutations(train, evaluated, rng=rng("bad"), n_permutations=0)
    with pytest.raises(StatsInputError, match="train_N"):
        context_permutations(train.astype(float), evaluated, rng=rng("bad"), n_permutations=1)
    with pytest.raises(StatsInputError, match="name a cell twice"):
        permuted_predictor(
            np.append(x, 0.0),
            np.append(train, train[0]),
            np.append(evaluated, evaluated[0]),
            relabelled,
        )
    with pytest.raises(StatsInputError, match="finite"):
        permuted_predictor(np.append(x[1:], np.nan), train, evaluated, relabelled)
    with pytest.raises(StatsInputError, match="8 columns"):
        permuted_predictor(x, train, evaluated, relabelled[:, :-1])
    with pytest.raises(StatsInputError, match="null_M"):
        permutation_p(0.5, [])
    with pytest.raises(StatsInputError, match="null_M"):
        permutation_p(0.5, [0.1, np.nan])
    with pytest.raises(StatsInputError, match="observed"):
        permutation_p(np.nan, [0.1])
