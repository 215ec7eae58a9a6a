"""Correlations over stems against scipy, and when there is none to give."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats

from eps_locked.errors import StatsInputError
from eps_locked.stats.bootstrap import generator_from_digest
from eps_locked.stats.stem_bootstrap import expanded_tail, stem_weights
from eps_locked.stats.stem_correlation import detectable_correlation, stem_correlation


def rng(*labels: str) -> np.random.Generator:
    return generator_from_digest("blake3:stem correlation", *labels)


def test_value_and_ends_are_those_of_scipys_bootstrap_of_scipys_correlation():
    x = rng("x").integers(1, 8, size=25).astype(float)
    y = x + 3 * rng("y").normal(size=25)
    found = stem_correlation(x, y, stem_weights(25, 400, rng("draws")), 0.95)
    drawn = rng("draws").integers(0, 25, size=(400, 25))
    resampled = [scipy.stats.spearmanr(x[row], y[row]).statistic for row in drawn]
    tail = expanded_tail(0.95, 25)
    assert found.r == pytest.approx(scipy.stats.spearmanr(x, y).statistic)
    assert [found.low, found.high] == pytest.approx(
        np.quantile(resampled, [tail, 1 - tail]), abs=1e-12
    )
    assert (found.n, found.n_undefined, found.reason) == (25, 0, None)


def test_resamples_without_a_value_are_counted_and_too_many_leave_no_interval():
    x = np.array([1.0] * 7 + [2.0])
    y = np.arange(8.0)
    weights = stem_weights(8, 400, rng("draws"))
    found = stem_correlation(x, y, weights, 0.95)
    assert found.n_undefined == np.count_nonzero((weights[:, 7] == 0) | (weights[:, 7] == 8))
    assert found.r == pytest.approx(scipy.stats.spearmanr(x, y).statistic)
    assert (found.low, found.high) == (None, None)
    assert found.reason == f"{found.n_undefined} of 400 resamples hold one value on a side"


@pytest.mark.parametrize(
    ("x", "y", "has_value", "reason"),
    [
        ([1.0, 2.0], [1.0, 2.0], False, "2 stems; a rank correlation takes 3"),
        ([1.0] * 9, list(range(9)), False, "all stems have one value on a side"),
        ([1.0, 2.0, 4.0], [2.0, 1.0, 3.0], True, "3 stems; an interval takes 6"),
    ],
)
def test_what_cannot_be_said_has_a_reason(x, y, has_value, reason):
    found = stem_correlation(x, y, stem_weights(len(x), 50, rng("draws")), 0.95)
    assert (found.r is not None) == has_value
    assert (found.low, found.high, found.reason) == (None, None, reason)


def test_thirty_stems_find_a_correlation_of_a_half():
    assert detectable_correlation(30) == pytest.approx(0.504, abs=1e-3)
    found = stem_correlation(
        rng("x").normal(size=30), rng("y").normal(size=30), stem_weights(30, 99, rng("d")), 0.95
    )
    assert found.detectable == pytest.approx(detectable_correlation(30))
    assert detectable_correlation(100) < detectable_correlation(30) < detectable_correlation(10)


def test_a_correlation_of_the_detectable_size_is_found_about_as_often_as_said():
    draws, r = rng("power"), detectable_correlation(30)
    # Pearson's correlation of normal columns whose ranks correlate by r.
    rho = 2 * math.sin(math.pi * r / 6)
    x = draws.normal(size=(4000, 30))
    y = rho * x + math.sqrt(1 - rho**2) * draws.normal(size=(4000, 30))
    ranks = [scipy.stats.rankdata(side, axis=1) - 15.5 for side in (x, y)]
    found = (ranks[0] * ranks[1]).sum(axis=1) / np.square(ranks[0]).sum(axis=1)
    critical = scipy.stats.t.ppf(0.975, 28)
    t = found * np.sqrt(28 / (1 - found**2))
    assert 0.76 < np.mean(t > critical) < 0.84


def test_sides_that_do_not_fit_are_refused():
    weights = stem_weights(6, 10, rng("w"))
    with pytest.raises(StatsInputError, match="y_S: expected 6 stems, found 5"):
        stem_correlation(range(6), range(5), weights, 0.95)
    with pytest.raises(StatsInputError, match="y_S: expected finite numbers"):
        stem_correlation(range(6), [0, 1, 2, 3, 4, np.nan], weights, 0.95)
    with pytest.raises(StatsInputError, match="weights_BN: expected 7 columns"):
        stem_correlation(range(7), range(7), weights, 0.95)
    with pytest.raises(StatsInputError, match="confidence_level: expected a number between"):
        stem_correlation(range(6), range(6), weights, 1.5)
    with pytest.raises(StatsInputError, match="n_stems: expected at least 4, found 3"):
        detectable_correlation(3)
    with pytest.raises(StatsInputError, match="power: expected a number between 0 and 1"):
        detectable_correlation(30, power=1.0)
