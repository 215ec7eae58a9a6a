"""Crossed bootstrap, pooled variance components and seeded generators against other routes."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from eps_locked.errors import StatsInputError
from eps_locked.stats import bootstrap
from eps_locked.stats.bootstrap import (
    Interval,
    crossed_bootstrap_interval,
    generator_from_digest,
    standard_error_pooled_over_cells,
)


def rng(*labels: str) -> np.random.Generator:
    return generator_from_digest("blake3:test", *labels)


def readings(n_seeds: int, n_questions: int, label: str = "readings") -> np.ndarray:
    source = rng(label)
    return (
        source.normal(size=(n_seeds, 1))
        + source.normal(size=(1, n_questions))
        + source.normal(size=(n_seeds, n_questions))
    )


def interval(values, label: str = "draw", n_resamples: int = 400, level: float = 0.95) -> Interval:
    return crossed_bootstrap_interval(
        values, rng=rng(label), n_resamples=n_resamples, confidence_level=level
    )


# --- against other routes -------------------------------------------------------------------------


def test_interval_equals_a_loop_that_copies_the_drawn_readings():
    values = readings(3, 7)
    n = 200
    seed_rng, question_rng = bootstrap._child_generators(rng("draw"))
    means = []
    for w_s, w_q in zip(
        bootstrap._multinomial_weights(seed_rng, 3, n),
        bootstrap._multinomial_weights(question_rng, 7, n),
        strict=True,
    ):
        rows = np.repeat(np.arange(3), w_s.astype(int))
        columns = np.repeat(np.arange(7), w_q.astype(int))
        means.append(values[np.ix_(rows, columns)].mean())
    found = interval(values, n_resamples=n, level=0.9)
    assert (found.low, found.high) == pytest.approx(np.percentile(means, [5, 95]), abs=1e-12)
    assert (found.confidence_level, found.n_resamples) == (0.9, n)


def test_weights_are_multinomial_counts():
    weights = bootstrap._multinomial_weights(rng("weights"), 5, 20_000)
    assert weights.shape == (20_000, 5)
    assert (weights.sum(axis=1) == 5).all()
    # Mean 1, variance (n - 1) / n, covariance -1 / n; the tolerances are five standard errors.
    covariance = np.cov(weights.T)
    assert weights.mean(axis=0) == pytest.approx(1.0, abs=0.035)
    assert np.diag(covariance) == pytest.approx(0.8, abs=0.05)
    assert covariance[np.triu_indices(5, 1)] == pytest.approx(-0.2, abs=0.035)


def test_one_seed_agrees_with_scipys_percentile_bootstrap():
    values = readings(1, 40)
    ours = interval(values, n_resamples=20_000)
    theirs = scipy.stats.bootstrap(
        (values[0],), np.mean, n_resamples=20_000, method="percentile", rng=rng("scipy")
    ).confidence_interval
    # One 2.5 % quantile of 20,000 has a Monte Carlo error of 0.019 standard errors of the mean;
    # five times the error of a difference of two is 0.13.
    tolerance = 0.13 * values.std() / math.sqrt(40)
    assert ours.low == pytest.approx(theirs.low, abs=tolerance)
    assert ours.high == pytest.approx(theirs.high, abs=tolerance)


def test_pure_residual_is_counted_three_times_as_owen_says():
    values = rng("residual").normal(size=(60, 60))
    found = interval(values, n_resamples=4000)
    half_width = (found.high - found.low) / 2
    exact = 1.96 * values.std() / 60
    assert half_width / exact == pytest.approx(math.sqrt(3), rel=0.08)


def test_coverage_with_six_seeds_is_below_nominal_as_documented():
    source = rng("coverage")
    n_simulations = 300
    covered = 0
    for _ in range(n_simulations):
        values = (
            source.normal(size=(6, 1)) + source.normal(size=(1, 40)) + source.normal(size=(6, 40))
        )
        found = crossed_bootstrap_interval(
            values, rng=source, n_resamples=500, confidence_level=0.95
        )
        covered += found.low <= 0.0 <= found.high
    # Documented: 88 %. Three standard errors of 300 simulations are 5.6 points.
    assert 0.82 <= covered / n_simulations <= 0.94


# --- laws -----------------------------------------------------------------------------------------


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_interval_never_leaves_the_range_of_the_data(data):
    n_seeds = data.draw(st.integers(1, 4))
    n_questions = data.draw(st.integers(2, 6))
    number = st.one_of(st.sampled_from([0.0, 1.0, 0.1]), st.floats(-1e6, 1e6))
    row = st.lists(number, min_size=n_questions, max_size=n_questions)
    values = np.array(data.draw(st.lists(row, min_size=n_seeds, max_size=n_seeds)))
    found = interval(values, n_resamples=50)
    assert values.min() <= found.low <= found.high <= values.max()


def test_equal_readings_give_a_point_without_rounding():
    found = interval(np.full((3, 7), 0.1))
    assert (found.low, found.high) == (0.1, 0.1)


def test_same_generator_state_gives_the_same_interval_and_another_state_another():
    values = readings(3, 9)
    assert interval(values) == interval(values)
    assert interval(values) != interval(values, label="another")


def test_golden_interval_does_not_move_between_versions():
    found = interval(np.array([[0.0, 1.0, 2.0], [1.0, 3.0, 5.0]]), n_resamples=1000)
    assert (found.low, found.high) == pytest.approx((1 / 3, 13 / 3), abs=1e-12)


def test_block_size_does_not_change_the_result(monkeypatch):
    values = readings(3, 9)
    whole = interval(values)
    monkeypatch.setattr(bootstrap, "_BLOCK_ENTRIES", 70)
    assert interval(values) == whole


def test_order_of_questions_and_of_seeds_is_only_monte_carlo_noise():
    values = readings(6, 30)
    one = interval(values, n_resamples=20_000)
    order = rng("order")
    two = interval(values[order.permutation(6)][:, order.permutation(30)], n_resamples=20_000)
    width = one.high - one.low
    assert (two.low, two.high) == pytest.approx((one.low, one.high), abs=0.04 * width)


def test_seeds_are_resampled_too():
    """Questions that all agree within a seed leave the seeds as the only spread."""
    values = np.repeat([[0.0], [1.0]], 10, axis=1)
    found = interval(values, n_resamples=1000)
    assert (found.low, found.high) == (0.0, 1.0)
    assert interval(values, n_resamples=1000, level=0.4).low == 0.5  # both seeds in half of them


# --- missing readings -----------------------------------------------------------------------------


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([[1.0, math.nan], [1.0, 2.0]], "found 1 of 4 that are not"),
        ([[1.0, math.inf], [1.0, 2.0]], "found 1 of 4 that are not"),
        ([[1.0], [2.0]], "expected at least 1 seed and 2 questions, found 2 and 1"),
        (np.zeros((0, 3)), "expected at least 1 seed and 2 questions, found 0 and 3"),
        ([1.0, 2.0], "expected 2 dimensions, found 1"),
        ([[1.0, 2.0], [1.0]], "is not an array of numbers"),
    ],
)
def test_readings_without_a_mean_are_refused(values, words):
    with pytest.raises(StatsInputError, match=words):
        interval(values)


@pytest.mark.parametrize("level", [0.0, 1.0, 95.0, math.nan])
def test_confidence_level_outside_0_to_1_is_refused(level):
    with pytest.raises(StatsInputError, match=r"^confidence_level: expected"):
        interval(readings(2, 3), level=level)


def test_no_resamples_are_refused():
    with pytest.raises(StatsInputError, match="n_resamples: expected at least 1, found 0"):
        interval(readings(2, 3), n_resamples=0)


# --- generators -----------------------------------------------------------------------------------


def test_generator_depends_on_every_label_and_on_where_it_ends():
    labels = [("a", "bc"), ("ab", "c"), ("abc",), ("abc", ""), ("a", "b", "c"), ('a","bc',), ()]
    first = {generator_from_digest("d", *row).integers(2**62) for row in labels}
    assert len(first) == len(labels)
    assert generator_from_digest("d", "a").integers(2**62) != generator_from_digest(
        "e", "a"
    ).integers(2**62)


def test_generator_is_the_same_in_every_process_and_version():
    assert generator_from_digest("blake3:00", "cell", "é").integers(2**62) == 3406806740557129515


def test_generator_refuses_labels_that_are_not_text():
    with pytest.raises(TypeError, match="must be strings"):
        generator_from_digest("d", 3)  # type: ignore[arg-type]


# --- variance components --------------------------------------------------------------------------


def test_components_recover_known_values_in_simulation():
    source = rng("components")
    n_cells, n_seeds, n_questions = 4000, 2, 10
    values = (
        source.normal(scale=0.3, size=(n_cells, 1, 1))
        + source.normal(scale=0.7, size=(n_cells, n_seeds, 1))
        + source.normal(scale=1.5, size=(n_cells, 1, n_questions))
        + source.normal(scale=1.0, size=(n_cells, n_seeds, n_questions))
    )
    found = standard_error_pooled_over_cells(values)
    # Relative error of a variance with 4,000 degrees of freedom: 2.2 %; of the cells' own share,
    # a little more.
    assert found.seed_variance == pytest.approx(0.49, rel=0.10)
    assert found.question_variance == pytest.approx(2.25, rel=0.05)
    assert found.residual_variance == pytest.approx(1.0, rel=0.05)
    assert found.standard_error == pytest.approx(
        math.sqrt(0.49 / 2 + 2.25 / 10 + 1.0 / 20), rel=0.03
    )
    # What it promises is seen: cell means spread by it beside the cells' own levels.
    spread = values.mean(axis=(1, 2)).std()
    assert spread == pytest.approx(math.hypot(0.3, found.standard_error), rel=0.04)
    assert (found.seed_degrees_of_freedom, found.truncated) == (4000, ())


def test_components_of_a_small_table_worked_by_hand():
    # Means: seeds 2 and 4, questions 2 and 4, all 3. MS_seed 4, MS_question 4, MS_residual 1.
    found = standard_error_pooled_over_cells([[[1.5, 2.5], [2.5, 5.5]]])
    assert (found.residual_variance, found.seed_variance, found.question_variance) == (1, 1.5, 1.5)
    assert found.standard_error == pytest.approx(math.sqrt(1.5 / 2 + 1.5 / 2 + 1 / 4))


def test_two_cells_pool_their_mean_squares():
    one, two = readings(2, 5, "one")[None], readings(2, 5, "two")[None]
    both = standard_error_pooled_over_cells(np.concatenate([one, two]))
    parts = [standard_error_pooled_over_cells(cell) for cell in (one, two)]
    assert both.residual_variance == pytest.approx(
        sum(part.residual_variance for part in parts) / 2
    )
    assert both.seed_degrees_of_freedom == 2


def test_a_negative_component_is_set_to_zero_and_named():
    # Seeds differ by question but not on average: no seed effect, much residual.
    found = standard_error_pooled_over_cells([[[0.0, 2.0], [2.0, 0.0]]])
    assert (found.seed_variance, found.question_variance, found.residual_variance) == (0, 0, 4)
    assert found.truncated == ("seed", "question")
    assert found.standard_error == 1.0


@pytest.mark.parametrize("shape", [(0, 2, 2), (3, 1, 2), (3, 2, 1)])
def test_components_need_two_seeds_and_two_questions(shape):
    with pytest.raises(StatsInputError, match="at least 1 cell, 2 seeds and 2 questions, found"):
        standard_error_pooled_over_cells(np.zeros(shape))


def test_components_refuse_nan():
    with pytest.raises(StatsInputError, match="found 1 of 4 that are not"):
        standard_error_pooled_over_cells([[[0.0, 2.0], [math.nan, 0.0]]])
