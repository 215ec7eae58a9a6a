"""Trends over doses: lines by hand and by numpy, sign flips by enumeration, monotone curves."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from eps_locked.errors import StatsInputError
from eps_locked.stats.bootstrap import generator_from_digest
from eps_locked.stats.dose_trend import dose_trend, sign_flip_p
from eps_locked.stats.stem_bootstrap import stem_effect, stem_weights


def rng(*labels: str) -> np.random.Generator:
    return generator_from_digest("blake3:dose", *labels)


DOSES = np.array([0.0, 50.0, 75.0, 90.0, 100.0])


def rates(n_stems: int, slope: float, label: str) -> np.ndarray:
    """Points, (D, S): a line over the ranks of the doses, with noise and a level a stem."""
    draws = rng(label)
    line = slope * np.arange(len(DOSES)) / (len(DOSES) - 1)
    level = 80 + 10 * draws.normal(size=n_stems)
    return line[:, None] + level + 5 * draws.normal(size=(len(DOSES), n_stems))


def trend(rates_DS, doses=DOSES, n_permutations=2000, **changed):
    n_stems = np.shape(rates_DS)[1]
    weights = stem_weights(n_stems, 1000, rng("draws"))
    return dose_trend(rates_DS, doses, weights, 0.95, rng("flips"), n_permutations, **changed)


def test_change_is_the_rise_of_each_stems_least_squares_line():
    values = rates(20, -12.0, "line")
    lines = np.polynomial.polynomial.polyfit(np.arange(5), values, 1)
    rises = 4 * lines[1]
    found = trend(values)
    expected = stem_effect(rises, stem_weights(20, 1000, rng("draws")), 0.95)
    assert found.change == pytest.approx(rises.mean())
    assert found.low == pytest.approx(expected.low)
    assert found.high == pytest.approx(expected.high)
    assert found.direction == "decreasing"
    assert found.p < 0.01
    assert found.n_stems == 20


def test_a_line_gives_its_own_rise_whatever_the_distance_of_the_doses():
    line = np.array([90.0, 85.0, 80.0])[:, None] * np.ones(12)
    for doses in ([0, 50, 100], [0, 1, 2], [0, 99, 100]):
        found = trend(line, doses, largest_step=100.0)
        assert found.change == pytest.approx(-10)
        assert found.isotonic == pytest.approx((90, 85, 80))


def test_two_doses_are_the_drift_between_them():
    values = rates(15, 0.0, "two")[[0, 4]]
    found = trend(values, [0, 100])
    assert found.change == pytest.approx((values[1] - values[0]).mean())


@given(st.permutations(range(5)))
@settings(max_examples=20, deadline=None)
def test_order_of_the_doses_never_matters(order):
    values = rates(10, 8.0, "order")
    plain, shuffled = trend(values), trend(values[list(order)], DOSES[list(order)])
    assert shuffled.change == pytest.approx(plain.change)
    assert shuffled.p == pytest.approx(plain.p)
    assert [shuffled.isotonic[order.index(n)] for n in range(5)] == pytest.approx(plain.isotonic)


def test_the_monotone_curve_is_the_nearest_of_its_direction():
    values = np.array([90.0, 92.0, 70.0, 71.0, 40.0])[:, None] * np.ones(8)
    found = trend(values, largest_step=100.0)
    # Pools of adjacent violators: 90 and 92, 70 and 71.
    assert found.isotonic == pytest.approx((91, 91, 70.5, 70.5, 40))
    assert found.direction == "decreasing"
    assert trend(-values, largest_step=100.0).direction == "increasing"
    flat = trend(np.full((5, 8), 70.0), largest_step=100.0)
    assert (flat.direction, flat.p, flat.change) == ("flat", 1.0, pytest.approx(0))


def test_few_stems_try_every_sign_and_agree_with_enumeration_and_scipy():
    values = rng("signs").normal(size=9) + 0.4
    p, is_exact = sign_flip_p(values, rng("unused"), 512)
    sums = [abs(np.dot(signs, values)) for signs in itertools.product([-1, 1], repeat=9)]
    assert is_exact
    assert p == np.mean(np.array(sums) >= abs(values.sum()) - 1e-12)
    scipys = scipy.stats.permutation_test(
        (values,), np.mean, permutation_type="samples", n_resamples=np.inf, vectorized=True
    )
    assert p == pytest.approx(scipys.pvalue)


def test_many_stems_draw_signs_and_come_near_the_exact_p():
    values = rng("many").normal(size=12) + 0.4
    exact, _ = sign_flip_p(values, rng("unused"), 4096)
    drawn, is_exact = sign_flip_p(values, rng("drawn"), 4095)
    assert not is_exact
    assert drawn == pytest.approx(exact, abs=4 * np.sqrt(exact * (1 - exact) / 4095))
    assert sign_flip_p(values, rng("drawn"), 4095) == (drawn, False)


def test_signs_of_equal_changes_count_as_equal_though_doubles_round():
    p, _ = sign_flip_p([0.1, 0.2, 0.3], rng("unused"), 100)
    assert p == 2 / 8
    assert sign_flip_p([0.0] * 5, rng("unused"), 100) == (1.0, True)


def test_the_drawn_test_keeps_its_level_under_skewed_but_symmetric_noise():
    draws = rng("level")
    p = [
        sign_flip_p(draws.standard_t(3, size=20) * draws.integers(0, 2, size=20), draws, 199)[0]
        for _ in range(2000)
    ]
    assert np.mean(np.array(p) <= 0.05) < 0.05 + 2.6 * np.sqrt(0.05 * 0.95 / 2000)


@pytest.mark.parametrize(
    ("values", "doses", "n_permutations", "message"),
    [
        (np.ones((3, 6)), [0, 50], 10, "rates_DS: expected 2 doses, at least 2, found 3"),
        (np.ones((1, 6)), [0], 10, "rates_DS: expected 2 doses, at least 2, found 1"),
        (np.ones((2, 6)), [50, 50], 10, "doses_D: expected doses that differ"),
        (np.full((2, 6), np.nan), [0, 50], 10, "rates_DS: expected finite numbers"),
        (np.ones((2, 6)), [0, 50], 0, "n_permutations: expected at least 1, found 0"),
    ],
)
def test_doses_that_make_no_series_are_refused(values, doses, n_permutations, message):
    with pytest.raises(StatsInputError, match=message):
        trend(values, doses, n_permutations)


def test_no_stems_have_no_signs():
    with pytest.raises(StatsInputError, match="values_S: expected at least 1 value, found 0"):
        sign_flip_p([], rng("none"), 10)
