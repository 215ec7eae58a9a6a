"""Rank correlations against scipy, and resamples against the samples they stand for."""

from __future__ import annotations

import time

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from eps_locked.errors import StatsInputError
from eps_locked.stats.bootstrap import generator_from_digest
from eps_locked.stats.ranks import (
    average_ranks,
    pearson,
    spearman,
    spearman_rows,
    weighted_spearman,
)


def rng(*labels: str) -> np.random.Generator:
    return generator_from_digest("blake3:ranks", *labels)


def tied(n: int, label: str) -> np.ndarray:
    """Numbers of which many are equal."""
    return rng(label).integers(0, max(2, n // 3), size=n).astype(float)


COLUMNS = {
    "without ties": (rng("x").normal(size=200), rng("y").normal(size=200)),
    "with ties": (tied(200, "x"), tied(200, "y")),
    "ties on one side": (tied(200, "x"), rng("y").normal(size=200)),
    "related": (np.arange(50.0), np.arange(50.0) + 9 * rng("related").normal(size=50)),
    "two values": (np.repeat([0.0, 1.0], 10), rng("two").normal(size=20)),
    "very large": (1e300 * rng("x").normal(size=30), 1e-300 * rng("y").normal(size=30)),
}


# --- against scipy --------------------------------------------------------------------------------


@pytest.mark.parametrize(("x", "y"), COLUMNS.values(), ids=COLUMNS)
def test_spearman_agrees_with_scipy(x, y):
    assert spearman(x, y) == pytest.approx(scipy.stats.spearmanr(x, y).statistic, abs=1e-12)


@pytest.mark.parametrize(("x", "y"), COLUMNS.values(), ids=COLUMNS)
def test_pearson_agrees_with_scipy(x, y):
    x, y = x / np.abs(x).max(), y / np.abs(y).max()
    assert pearson(x, y) == pytest.approx(scipy.stats.pearsonr(x, y).statistic, abs=1e-12)


def test_pearson_does_not_overflow_or_vanish():
    x, y = COLUMNS["very large"]
    assert pearson(x, y) == pytest.approx(pearson(x * 1e-300, y * 1e300), abs=1e-12)


def test_ranks_agree_with_scipys_rankdata_along_rows():
    table = np.stack([tied(40, str(row)) for row in range(7)])
    assert np.array_equal(average_ranks(table), scipy.stats.rankdata(table, axis=1))


def test_every_row_of_many_is_what_the_pair_alone_gives():
    y = tied(60, "y")
    rows = np.stack([rng(str(b)).permutation(tied(60, "x")) for b in range(20)])
    alone = [spearman(row, y) for row in rows]
    assert spearman_rows(rows, y) == pytest.approx(alone, abs=1e-14)


# --- resamples ------------------------------------------------------------------------------------


@given(data=st.data())
@settings(max_examples=200, deadline=None)
def test_weighted_spearman_is_that_of_the_expanded_sample(data):
    n = data.draw(st.integers(3, 12))
    numbers = st.lists(st.sampled_from([0.0, 0.1, 0.2, 0.3, -5.0]), min_size=n, max_size=n)
    x, y = np.array(data.draw(numbers)), np.array(data.draw(numbers))
    weights = np.array(data.draw(st.lists(st.integers(0, 4), min_size=n, max_size=n)))
    copies = np.repeat(np.arange(n), weights)
    (found,) = weighted_spearman(x, y, weights[None, :])
    expected = spearman(x[copies], y[copies]) if len(copies) >= 3 else None
    if expected is None:
        is_constant = len(set(x[copies])) < 2 or len(set(y[copies])) < 2
        assert np.isnan(found) or not is_constant
    else:
        assert found == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(("x", "y"), COLUMNS.values(), ids=COLUMNS)
def test_bootstrap_resamples_agree_with_scipy_on_the_expanded_samples(x, y):
    n = len(x)
    weights = rng("weights").multinomial(n, np.full(n, 1 / n), size=25)
    found = weighted_spearman(x, y, weights)
    for value, row in zip(found, weights, strict=True):
        copies = np.repeat(np.arange(n), row)
        expected = scipy.stats.spearmanr(x[copies], y[copies]).statistic
        assert value == pytest.approx(expected, abs=1e-12)


def test_uneven_weights_count_by_their_ratio_alone():
    x, y = COLUMNS["with ties"]
    weights = rng("uneven").integers(0, 5, size=(6, 200)).astype(float)
    assert weighted_spearman(x, y, weights / 7) == pytest.approx(
        weighted_spearman(x, y, weights), abs=1e-12
    )


@pytest.mark.parametrize("unit", [1.0, 0.1, 1 / 3], ids=str)
def test_a_resample_of_one_value_has_no_correlation_and_is_no_zero(unit):
    x, y = np.array([1.0, 1.0, 1.0, 2.0, 3.0]), np.array([1.0, 2.0, 3.0, 4.0, 4.0])
    weights = unit * np.array(
        [[1.0, 2.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 3.0, 1.0], [0.0] * 5, [1.0, 0.0, 0.0, 1.0, 1.0]]
    )
    found = weighted_spearman(x, y, weights)
    assert list(np.isnan(found)) == [True, True, True, False]


def test_two_thousand_resamples_of_a_full_row_take_well_under_a_second():
    # A row of the testbed: 16 x 29 cells, a predictor that knows the source alone (many ties).
    x, y = np.repeat(rng("sources").normal(size=16), 29), rng("cells").normal(size=464)
    weights = rng("speed").multinomial(464, np.full(464, 1 / 464), size=2000)
    started = time.process_time()
    assert np.isfinite(weighted_spearman(x, y, weights)).all()
    # About 0.025 s on one core; the bound is generous, a loop over resamples would break it.
    assert time.process_time() - started < 0.5


# --- laws -----------------------------------------------------------------------------------------

distinct = st.lists(st.integers(-1000, 1000), min_size=3, max_size=20, unique=True)


@given(x=distinct, seed=st.integers(0, 1000))
@settings(max_examples=50, deadline=None)
def test_only_the_order_of_the_values_counts(x, seed):
    y = np.random.default_rng(seed).normal(size=len(x))
    stretched = [value**3 + 0.5 for value in x]
    assert spearman(x, y) == spearman(stretched, y)
    assert spearman([-value for value in x], y) == pytest.approx(-spearman(x, y), abs=1e-15)
    assert spearman(x, x) == 1.0


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize("constant", [0.0, 0.1, -7.0])
@pytest.mark.parametrize("correlation", [spearman, pearson])
def test_a_constant_side_has_no_correlation(correlation, constant):
    assert correlation([constant] * 5, [1.0, 2.0, 3.0, 4.0, 5.0]) is None
    assert correlation([1.0, 2.0, 3.0, 4.0, 5.0], [constant] * 5) is None


BAD = {
    "two points": ([1.0, 2.0], [1.0, 2.0], "at least 3 points"),
    "unequal": ([1.0, 2.0, 3.0], [1.0, 2.0], "expected 3 values, as in x, found 2"),
    "nan": ([1.0, float("nan"), 3.0], [1.0, 2.0, 3.0], "x: expected finite numbers only"),
    "infinite": ([1.0, 2.0, 3.0], [1.0, float("inf"), 3.0], "y: expected finite numbers only"),
    "words": (["a", "b", "c"], [1.0, 2.0, 3.0], "is not an array of numbers"),
    "table": ([[1.0], [2.0], [3.0]], [1.0, 2.0, 3.0], "expected 1 dimensions, found 2"),
}


@pytest.mark.parametrize(("x", "y", "message"), BAD.values(), ids=BAD)
@pytest.mark.parametrize("correlation", [spearman, pearson])
def test_columns_without_a_correlation_are_refused(correlation, x, y, message):
    with pytest.raises(StatsInputError, match=message):
        correlation(x, y)


BAD_WEIGHTS = {
    "too few columns": ([[1.0, 1.0]], "expected 3 columns, found 2"),
    "below zero": ([[1.0, -1.0, 1.0]], "weights of 0 or more"),
    "nan": ([[1.0, float("nan"), 1.0]], "finite"),
    "one row without a table": ([1.0, 1.0, 1.0], "expected 2 dimensions"),
}


@pytest.mark.parametrize(("weights", "message"), BAD_WEIGHTS.values(), ids=BAD_WEIGHTS)
def test_weights_that_count_nothing_are_refused(weights, message):
    with pytest.raises(StatsInputError, match=message):
        weighted_spearman([1.0, 2.0, 3.0], [1.0, 3.0, 2.0], weights)
