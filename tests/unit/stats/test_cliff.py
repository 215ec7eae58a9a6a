"""Cliff's delta against all pairs, and its resamples against the samples they stand for."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from eps_locked.errors import StatsInputError
from eps_locked.stats.bootstrap import generator_from_digest
from eps_locked.stats.cliff import cliffs_delta, stem_cliffs_delta
from eps_locked.stats.stem_bootstrap import expanded_tail, stem_weights

grades = st.lists(st.integers(1, 7), min_size=1, max_size=30)


def rng(*labels: str) -> np.random.Generator:
    return generator_from_digest("blake3:cliff", *labels)


def all_pairs(x, y) -> float:
    return float(np.sign(np.subtract.outer(np.asarray(x, float), np.asarray(y, float))).mean())


def graded_stems(n_stems: int, label: str, top: int = 7) -> list[np.ndarray]:
    """Between 1 and 12 grades a stem."""
    drawn = rng(label)
    return [drawn.integers(1, top + 1, size=drawn.integers(1, 13)) for _ in range(n_stems)]


@given(grades, grades)
def test_delta_is_the_mean_sign_over_all_pairs(x, y):
    assert cliffs_delta(x, y) == pytest.approx(all_pairs(x, y), abs=1e-12)
    assert cliffs_delta(y, x) == pytest.approx(-cliffs_delta(x, y), abs=1e-12)


def test_delta_is_what_mann_and_whitneys_u_says():
    x, y = rng("x").normal(size=40), rng("y").normal(size=33) + 0.3
    u = scipy.stats.mannwhitneyu(x, y).statistic
    assert cliffs_delta(x, y) == pytest.approx(2 * u / (40 * 33) - 1)


@pytest.mark.parametrize(
    ("x", "y", "delta"),
    [([7, 7], [1, 2, 3], 1.0), ([1], [2], -1.0), ([4, 4], [4], 0.0), ([1, 3], [2], 0.0)],
)
def test_delta_by_hand(x, y, delta):
    assert cliffs_delta(x, y) == delta


def test_a_resample_has_the_delta_of_the_sample_in_which_its_stems_stand_as_often_as_drawn():
    x, y = graded_stems(8, "x"), graded_stems(8, "y", top=6)
    weights = stem_weights(8, 300, rng("draws"))
    deltas = []
    for row in weights:
        drawn = np.repeat(np.arange(8), row)
        deltas.append(
            all_pairs(
                np.concatenate([x[stem] for stem in drawn]),
                np.concatenate([y[stem] for stem in drawn]),
            )
        )
    tail = expanded_tail(0.9, 8)
    value, low, high = stem_cliffs_delta(x, y, weights, 0.9)
    assert value == pytest.approx(all_pairs(np.concatenate(x), np.concatenate(y)), abs=1e-12)
    assert [low, high] == pytest.approx(np.quantile(deltas, [tail, 1 - tail]), abs=1e-12)


@given(st.permutations(range(10)))
@settings(max_examples=20, deadline=None)
def test_order_of_stems_never_matters_and_sides_may_be_exchanged(order):
    x, y = graded_stems(10, "x"), graded_stems(10, "y")
    weights = stem_weights(10, 200, rng("draws"))
    there = stem_cliffs_delta(x, y, weights, 0.95)
    shuffled = stem_cliffs_delta(
        [x[n] for n in order], [y[n] for n in order], weights[:, list(order)], 0.95
    )
    back = stem_cliffs_delta(y, x, weights, 0.95)
    assert shuffled == pytest.approx(there, abs=1e-12)
    assert back == pytest.approx((-there[0], -there[2], -there[1]), abs=1e-12)


def test_no_interval_where_every_resample_says_the_same_or_stems_are_few():
    top = [[7, 7]] * 10
    assert stem_cliffs_delta(top, top, stem_weights(10, 50, rng("a")), 0.95) == (0.0, None, None)
    x, y = graded_stems(5, "x"), graded_stems(5, "y")
    value, low, high = stem_cliffs_delta(x, y, stem_weights(5, 50, rng("b")), 0.95)
    assert -1 <= value <= 1
    assert (low, high) == (None, None)


WEIGHTS = stem_weights(6, 10, rng("w"))


@pytest.mark.parametrize(
    ("x", "y", "weights", "level", "message"),
    [
        ([[1]] * 6, [[1]] * 5, WEIGHTS, 0.95, "grades_y: expected 6 stems, found 5"),
        ([], [], WEIGHTS, 0.95, "grades_y: expected 1 stems, found 0"),
        ([[1]] * 5 + [[]], [[1]] * 6, WEIGHTS, 0.95, "grades_x: expected at least one grade"),
        ([[1]] * 6, [[1]] * 5 + [[np.nan]], WEIGHTS, 0.95, "grades_y: expected finite numbers"),
        ([[1]] * 7, [[1]] * 7, WEIGHTS, 0.95, "weights_BS: expected rows of 7 weights"),
        ([[1]] * 6, [[1]] * 6, WEIGHTS, 1.0, "confidence_level: expected a number between"),
    ],
)
def test_sides_that_do_not_fit_are_refused(x, y, weights, level, message):
    with pytest.raises(StatsInputError, match=message):
        stem_cliffs_delta(x, y, weights, level)
