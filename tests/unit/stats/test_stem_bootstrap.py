"""Resampled stems against scipy, the p against its interval, and the ends where nothing varies."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from eps_locked.errors import StatsInputError
from eps_locked.stats.bootstrap import generator_from_digest
from eps_locked.stats.stem_bootstrap import (
    LEAST_RESAMPLED,
    expanded_tail,
    stem_effect,
    stem_effects,
    stem_means,
    stem_weights,
)

N_RESAMPLES = 4000


def rng(*labels: str) -> np.random.Generator:
    return generator_from_digest("blake3:stems", *labels)


def differences(n_stems: int, label: str) -> np.ndarray:
    """Skewed, and multiples of 1/1024: sums are exact, so resamples that tie do so in doubles."""
    return np.round(1024 * (rng(label).exponential(size=n_stems) - 0.6)) / 1024


def replies_in_twelfths(n_stems: int, label: str) -> np.ndarray:
    """Drifts of stems with twelve replies an arm, in points: few values, many ties."""
    return 100 * rng(label).integers(-2, 3, size=n_stems) / 12


def scipy_ends(values, level, method, *labels):
    found = scipy.stats.bootstrap(
        (values,),
        np.mean,
        n_resamples=N_RESAMPLES,
        confidence_level=level,
        method=method,
        rng=rng(*labels),
    )
    return found.confidence_interval.low, found.confidence_interval.high


@pytest.mark.parametrize("n_stems", [6, 12, 30, 77])
@pytest.mark.parametrize("level", [0.8, 0.9, 0.95])
def test_ends_are_the_outer_ones_of_scipys_percentile_and_bca_interval(n_stems, level):
    values = differences(n_stems, f"values {n_stems}")
    found = stem_effect(values, stem_weights(n_stems, N_RESAMPLES, rng("draws")), level)
    asked = 1 - 2 * expanded_tail(level, n_stems)
    ends = [scipy_ends(values, asked, method, "draws") for method in ("percentile", "BCa")]
    assert found.low == pytest.approx(min(low for low, _ in ends), abs=1e-12)
    assert found.high == pytest.approx(max(high for _, high in ends), abs=1e-12)


def test_resampled_means_are_scipys_resampled_means_in_their_order():
    values = differences(30, "order")
    scipys = scipy.stats.bootstrap(
        (values,), np.mean, n_resamples=N_RESAMPLES, method="percentile", rng=rng("draws")
    ).bootstrap_distribution
    ours = stem_means(values[None], stem_weights(30, N_RESAMPLES, rng("draws")))
    np.testing.assert_allclose(ours[:, 0], scipys, atol=1e-12, rtol=0)


def test_weights_do_not_depend_on_how_they_are_made_in_blocks():
    n_stems, n_resamples = 1500, 900
    drawn = rng("blocks").integers(0, n_stems, size=(n_resamples, n_stems))
    weights = stem_weights(n_stems, n_resamples, rng("blocks"))
    for place in (0, 698, 699, 700, n_resamples - 1):
        assert (weights[place] == np.bincount(drawn[place], minlength=n_stems)).all()


def test_arms_together_are_arms_one_by_one_at_every_level():
    values = np.stack([differences(20, name) for name in "abcd"] + [np.zeros(20), np.ones(20)])
    weights = stem_weights(20, N_RESAMPLES, rng("draws"))
    together = stem_effects(values, weights, (0.9, 0.95), largest_step=2.0)
    for row, of_row in zip(values, together, strict=True):
        for level, one in zip((0.9, 0.95), of_row, strict=True):
            alone = stem_effect(row, weights, level, largest_step=2.0)
            assert (one.method, one.n_stems) == (alone.method, alone.n_stems)
            for name in ("mean", "standard_error", "low", "high", "p"):
                assert getattr(one, name) == pytest.approx(getattr(alone, name), abs=1e-12), name
        assert of_row[0].p == of_row[1].p
        assert of_row[1].low <= of_row[0].low <= of_row[0].high <= of_row[1].high


def test_expanded_tail_lies_where_a_t_interval_ends():
    for n_stems, tail in ((10, 0.0085), (20, 0.0159), (30, 0.0188), (100, 0.0231)):
        reach = math.sqrt(n_stems / (n_stems - 1)) * scipy.stats.t.ppf(0.975, n_stems - 1)
        assert expanded_tail(0.95, n_stems) == pytest.approx(scipy.stats.norm.sf(reach))
        assert expanded_tail(0.95, n_stems) == pytest.approx(tail, abs=5e-4)
    assert expanded_tail(0.95, 100_000) == pytest.approx(0.025, abs=1e-5)


CASES = {
    "clear": differences(30, "p") + 0.2,
    "near 0": differences(30, "p") - 0.35,
    "few stems moved": np.concatenate([np.zeros(26), [-25.0, -50.0, -8.3, -8.3]]),
    "one stem moved": np.concatenate([np.zeros(29), [-50.0]]),
    "in twelfths": replies_in_twelfths(30, "p") - 100 / 12,
    "eight stems": differences(8, "p"),
    "six stems": differences(6, "p") + 0.1,
    "three stems": np.array([1.0, 2.0, 4.0]),
    "far from 0": differences(30, "p") + 0.9,
    "no spread": np.full(10, 0.1),
}


@pytest.mark.parametrize("case", CASES)
def test_p_is_where_the_interval_comes_to_leave_out_0(case):
    values = CASES[case]
    weights = stem_weights(len(values), N_RESAMPLES, rng("draws"))

    def effect(level):
        return stem_effect(values, weights, level, largest_step=2.0)

    p = effect(0.95).p
    assert 0 < p <= 1
    if p < 0.999:
        assert effect(1 - p * 1.001).excludes_zero
        for share in (1.1, 2.0, 10.0):
            if p * share < 1:
                assert effect(1 - p * share).excludes_zero
    for share in (0.9, 0.5, 0.1):
        assert not effect(1 - p * share).excludes_zero


def test_an_interval_that_ends_at_0_does_not_leave_it_out():
    # 0.1 + 0.2 - 0.3 is not 0 in doubles: the resamples without a stem that moved are 1e-17 off.
    values = np.concatenate([np.full(27, 0.1 + 0.2 - 0.3), [10.0, 10.0, 10.0]])
    found = stem_effect(values, stem_weights(30, N_RESAMPLES, rng("draws")), 0.95)
    assert found.low == 0
    assert not found.excludes_zero
    assert found.p > 0.05


@given(
    st.lists(st.integers(-12, 12), min_size=LEAST_RESAMPLED, max_size=40),
    st.integers(0, 2**32),
    st.sampled_from([0.9, 0.95]),
)
@settings(max_examples=60, deadline=None)
def test_turning_the_arms_round_turns_the_interval_round(twelfths, seed, level):
    values = np.array(twelfths) / 12
    weights = stem_weights(len(values), 500, np.random.default_rng(seed))
    there = stem_effect(values, weights, level, largest_step=2.0)
    back = stem_effect(-values, weights, level, largest_step=2.0)
    assert there.low == pytest.approx(-back.high, abs=1e-12)
    assert there.high == pytest.approx(-back.low, abs=1e-12)
    assert there.p == pytest.approx(back.p, rel=1e-9)
    assert there.excludes_zero == (there.p < 1 - level)
    assert there.low <= there.mean <= there.high


@given(st.permutations(range(15)), st.floats(-50, 50), st.floats(0.1, 100))
@settings(max_examples=40, deadline=None)
def test_order_of_stems_never_matters_and_the_unit_only_scales(order, shift, factor):
    values = differences(15, "order of stems")
    weights = stem_weights(15, 500, rng("draws"))
    plain = stem_effect(values, weights, 0.95)
    shuffled = stem_effect(values[list(order)], weights[:, list(order)], 0.95)
    moved = stem_effect(factor * (values + shift), weights, 0.95)
    assert shuffled.low == pytest.approx(plain.low, abs=1e-12)
    assert shuffled.p == pytest.approx(plain.p, rel=1e-9)
    for end in ("low", "high", "mean"):
        expected = factor * (getattr(plain, end) + shift)
        assert getattr(moved, end) == pytest.approx(expected, rel=1e-9, abs=1e-9 * factor)


def test_what_both_arms_share_leaves_every_number_as_it_is():
    arm, reference = differences(24, "arm"), differences(24, "reference")
    weights = stem_weights(24, N_RESAMPLES, rng("draws"))
    hard = 5 * differences(24, "how hard a stem is")
    plain = stem_effect(arm - reference, weights, 0.95)
    harder = stem_effect((arm + hard) - (reference + hard), weights, 0.95)
    assert harder.low == pytest.approx(plain.low, abs=1e-12)
    assert harder.high == pytest.approx(plain.high, abs=1e-12)


@pytest.mark.parametrize("level", [0.9, 0.95])
def test_stems_that_all_agree_get_the_rule_of_three(level):
    found = stem_effect(np.zeros(30), stem_weights(30, 100, rng("draws")), level, largest_step=100)
    # The share of stems that could be otherwise: 30 agree with probability 1 - level.
    share = found.high / 100
    assert (1 - share) ** 30 == pytest.approx(1 - level)
    assert found.low == -found.high
    assert (found.mean, found.p, found.standard_error) == (0, 1, 0)
    assert found.method == "rule of three on stems"
    assert not found.excludes_zero


def test_agreement_needs_the_largest_step_and_keeps_to_the_bounds():
    weights = stem_weights(12, 100, rng("draws"))
    unknown = stem_effect(np.ones(12), weights, 0.95)
    assert (unknown.low, unknown.high, unknown.p) == (None, None, None)
    assert unknown.method.startswith("none: all stems agree")
    assert not unknown.excludes_zero
    rate = stem_effect(np.ones(12), weights, 0.95, largest_step=1, bounds=(0, 1))
    assert rate.high == 1
    assert rate.low == pytest.approx(0.05 ** (1 / 12))


@pytest.mark.parametrize("n_stems", [2, 3, 5])
def test_few_stems_get_a_t_interval(n_stems):
    values = differences(n_stems, "few")
    found = stem_effect(values, stem_weights(n_stems, 100, rng("draws")), 0.95)
    test = scipy.stats.ttest_1samp(values, 0)
    expected = test.confidence_interval(0.95)
    assert found.low == pytest.approx(expected.low)
    assert found.high == pytest.approx(expected.high)
    assert found.p == pytest.approx(test.pvalue)
    assert found.standard_error == pytest.approx(scipy.stats.sem(values))


def test_one_stem_has_a_mean_and_nothing_else():
    found = stem_effect([3.0], stem_weights(1, 10, rng("draws")), 0.95, largest_step=100)
    assert (found.mean, found.low, found.high, found.p, found.standard_error) == (
        3,
        None,
        None,
        None,
        None,
    )
    assert found.method == "none: one stem"


def test_a_level_beyond_the_resamples_gets_the_outer_of_t_and_their_range():
    values = differences(10, "beyond")
    weights = stem_weights(10, 50, rng("draws"))
    found = stem_effect(values, weights, 0.999)
    means = stem_means(values[None], weights)
    t = scipy.stats.ttest_1samp(values, 0).confidence_interval(0.999)
    assert found.low == pytest.approx(min(t.low, means.min()))
    assert found.high == pytest.approx(max(t.high, means.max()))
    assert found.method.startswith("t over stems, at least")


WEIGHTS = stem_weights(6, 20, rng("draws"))


@pytest.mark.parametrize(
    ("values", "weights", "level", "changed", "message"),
    [
        ([1.0, np.nan, 2, 3, 4, 5], WEIGHTS, 0.95, {}, "differences_S: expected finite numbers"),
        ([1.0, 2, 3], WEIGHTS, 0.95, {}, "one or more rows of 3 weights"),
        ([], np.zeros((3, 0), dtype=int), 0.95, {}, "at least 1 stem"),
        (range(6), WEIGHTS[:0], 0.95, {}, "one or more rows of 6 weights"),
        (range(6), WEIGHTS * 1.0, 0.95, {}, "counts of 0 or more"),
        (range(6), WEIGHTS - 1, 0.95, {}, "counts of 0 or more"),
        (range(6), WEIGHTS + 1, 0.95, {}, "rows that add up to the 6 stems"),
        (range(6), WEIGHTS, 95, {}, "numbers between 0 and 1, found 95"),
        (range(6), WEIGHTS, 0.95, {"largest_step": 0.0}, "largest_step: expected a finite number"),
    ],
)
def test_what_is_not_a_sample_of_stems_is_refused(values, weights, level, changed, message):
    with pytest.raises(StatsInputError, match=message):
        stem_effect(list(values), weights, level, **changed)


def test_weights_and_tails_need_something_to_draw_from():
    with pytest.raises(StatsInputError, match="n_stems: expected at least 1, found 0"):
        stem_weights(0, 10, rng("none"))
    with pytest.raises(StatsInputError, match="n_resamples: expected at least 1, found 0"):
        stem_weights(10, 0, rng("none"))
    with pytest.raises(StatsInputError, match="n_stems: expected at least 2, found 1"):
        expanded_tail(0.95, 1)
