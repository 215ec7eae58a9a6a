"""Intervals of judged rates: what they are of, where they may lie, and that each has a width."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import pytest
import scipy.stats

from eps_locked.errors import StatsInputError
from eps_locked.stats import rate_interval
from eps_locked.stats.bootstrap import generator_from_digest
from eps_locked.stats.rate_interval import (
    RateEstimate,
    minimum_detectable_rate_change,
    rate_change_intervals,
)


def rng(*labels: str) -> np.random.Generator:
    return generator_from_digest("blake3:test", "rates", *labels)


def row(
    trained=0.4, base=0.2, n_adapters=4, n_each=5, n_seeds=2, n_items=20, n_samples=3, label=""
):
    """Readings without any effect of seeds, with questions of their own difficulty."""
    source, n_cells = rng("row", label, str(n_seeds)), n_adapters * n_each
    chance = np.clip(source.normal(0, 0.15, size=(n_cells, n_items)), -min(trained, base), None)
    trained_CQ, base_CQ = (np.clip(rate + chance, 0, 1) for rate in (trained, base))
    shape = (n_cells, n_seeds, n_items)
    read = source.binomial(n_samples, np.broadcast_to(trained_CQ[:, None, :], shape)) / n_samples
    read_base = source.binomial(n_samples, base_CQ) / n_samples
    return read, read_base, np.repeat(np.arange(n_adapters), n_each)


def intervals(trained, base, adapter, level=0.95, share=0.5) -> list[RateEstimate | None]:
    return rate_change_intervals(
        trained, base, adapter, confidence_level=level, minimum_share=share
    )


def all_of(trained, base, adapter, **keywords) -> list[RateEstimate]:
    found = intervals(trained, base, adapter, **keywords)
    assert None not in found
    return found


def require_in_range(one: RateEstimate) -> None:
    assert 0 <= one.trained_low <= one.trained <= one.trained_high <= 1
    assert 0 <= one.base_low <= one.base <= one.base_high <= 1
    assert one.trained_low - one.base_high <= one.low <= one.value
    assert one.value <= one.high <= one.trained_high - one.base_low
    assert one.low < one.high
    assert one.standard_error > 0
    assert math.isfinite(one.standard_error)


# --- the value ------------------------------------------------------------------------------------


def test_the_change_is_the_mean_over_seeds_of_differences_that_have_both_sides():
    trained, base, adapter = row()
    source = rng("gaps")
    trained[source.random(trained.shape) < 0.2] = np.nan
    base[source.random(base.shape) < 0.1] = np.nan
    for one, cell, b in zip(all_of(trained, base, adapter), trained, base, strict=True):
        differences = [(seed - b)[~np.isnan(seed - b)] for seed in cell]
        assert one.value == pytest.approx(np.mean([d.mean() for d in differences]), abs=1e-12)
        assert one.value == pytest.approx(one.trained - one.base, abs=1e-12)
        assert one.n_questions == np.sum(~np.isnan(cell - b).all(axis=0))


def test_a_question_that_lacks_a_side_is_as_if_it_had_not_been_asked():
    trained, base, adapter = row()
    lacking = base.copy()
    lacking[:, 3] = np.nan
    fewer = all_of(np.delete(trained, 3, axis=2), np.delete(base, 3, axis=1), adapter)
    for one, other in zip(all_of(trained, lacking, adapter), fewer, strict=True):
        assert dataclasses.astuple(one) == pytest.approx(dataclasses.astuple(other), abs=1e-12)


def test_a_cell_needs_its_share_of_questions_in_every_seed_and_lends_nothing_otherwise():
    trained, base, adapter = row(n_items=20)
    trained[2, 1, 10:] = np.nan
    assert intervals(trained, base, adapter, share=0.5)[2] is not None
    found = intervals(trained, base, adapter, share=0.51)
    assert [number for number, one in enumerate(found) if one is None] == [2]
    others = np.arange(20) != 2
    assert found[:2] + found[3:] == intervals(trained[others], base[others], adapter[others])
    trained[3, 0, 1:] = np.nan
    assert intervals(trained, base, adapter, share=0.0)[3] is None
    base[:] = np.nan
    assert intervals(trained, base, adapter, share=0.0) == [None] * 20


# --- where the ends may lie -----------------------------------------------------------------------


@pytest.mark.parametrize("n_seeds", [1, 2, 3])
@pytest.mark.parametrize(
    ("trained", "base"), [(0.0, 0.0), (1.0, 1.0), (1.0, 0.0), (0.0, 1.0), (0.97, 0.9), (0.5, 0.02)]
)
def test_no_interval_leaves_what_rates_can_reach_and_none_is_without_width(trained, base, n_seeds):
    for n_items, n_samples, level in itertools.product((2, 6, 30), (1, 4), (0.8, 0.95, 0.9999)):
        read = row(trained, base, n_seeds=n_seeds, n_items=n_items, n_samples=n_samples)
        for one in all_of(*read, level=level):
            require_in_range(one)


def test_any_rates_at_all_give_intervals_in_range():
    for number in range(60):
        source = rng("any", str(number))
        shape = (*source.integers(1, 5, size=2), source.integers(2, 9))
        trained = np.round(source.beta(0.2, 0.2, size=shape) * 3) / 3
        base = np.round(source.beta(0.2, 0.2, size=(shape[0], shape[2])) * 3) / 3
        adapter = source.integers(0, 2, size=shape[0])
        for one in all_of(trained, base, adapter):
            require_in_range(one)


def test_the_published_rate_of_0_933_gets_no_end_above_1():
    # 14 of 15 questions; normal theory gave 1.023 upwards. Field notes, incident 31.
    trained = np.ones((1, 1, 15))
    trained[0, 0, 0] = 0.0
    (one,) = all_of(trained, np.zeros((1, 15)), np.zeros(1, dtype=int))
    assert one.trained == pytest.approx(0.933, abs=5e-4)
    assert 0.99 < one.trained_high < 1
    assert one.high < 1


def test_a_row_that_reads_one_thing_throughout_keeps_the_width_of_its_questions():
    zeros = np.zeros((6, 2, 20))
    for one in all_of(zeros, zeros[:, 0], np.arange(6)):
        wilson = scipy.stats.binomtest(0, 20).proportion_ci(method="wilson").high
        assert (one.value, one.base_low, one.trained_low) == (0.0, 0.0, 0.0)
        assert one.base_high == pytest.approx(wilson)
        assert wilson <= one.trained_high < 1.2 * wilson
        assert one.low == pytest.approx(-one.base_high)
        assert one.high == pytest.approx(one.trained_high)
        assert 0.02 < one.standard_error < 0.06


def test_answers_that_agree_throughout_still_leave_a_width():
    # Greedy answers of a model that did not change: the same half of the questions shows it.
    half = np.broadcast_to((np.arange(20) % 2 == 0).astype(float), (6, 2, 20))
    for one in all_of(half, half[:, 0], np.arange(6)):
        assert one.value == 0
        # No change among 20 questions excludes no change of one in twenty.
        assert one.low < -0.05
        assert one.high > 0.05
        assert one.high - one.low < 0.5


def test_rates_that_happen_to_be_equal_do_not_pass_for_certain():
    halves = np.full((3, 1, 8), 0.5)
    for one in all_of(halves, halves[:, 0], np.arange(3)):
        assert one.trained_high - one.trained_low > 0.15


def test_counting_the_other_outcome_mirrors_everything():
    for n_seeds in (1, 2):
        trained, base, adapter = row(0.9, 0.6, n_seeds=n_seeds)
        pairs = zip(
            all_of(trained, base, adapter), all_of(1 - trained, 1 - base, adapter), strict=True
        )
        for one, other in pairs:
            assert (one.low, one.high) == pytest.approx((-other.high, -other.low), abs=1e-9)
            ends = (1 - other.trained_high, 1 - other.trained_low)
            assert (one.trained_low, one.trained_high) == pytest.approx(ends, abs=1e-9)
            assert one.standard_error == pytest.approx(other.standard_error)


# --- one side -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("x", "n"), [(0, 12), (1, 12), (7, 12), (39, 40), (20, 40)])
def test_all_or_nothing_questions_get_the_outer_of_wilsons_and_the_mid_p_ends(x, n):
    answers = (np.arange(n) < x).astype(float)[None, :]
    (one,) = all_of(answers[:, None, :], np.zeros((1, n)), np.zeros(1, dtype=int))
    wilson = scipy.stats.binomtest(x, n).proportion_ci(method="wilson")
    assert one.trained_low <= wilson.low + 1e-12
    assert one.trained_high >= wilson.high - 1e-12
    tails = []
    for end, sign in ((one.trained_low, 1), (one.trained_high, -1)):
        if 0 < end < 1:
            tosses = scipy.stats.binom(n, end)
            beyond = tosses.sf(x) if sign > 0 else tosses.cdf(x - 1)
            is_wilson = end == pytest.approx(wilson.low if sign > 0 else wilson.high)
            tail = beyond + tosses.pmf(x) / 2
            tails.append(tail == pytest.approx(0.025, rel=1e-6) or (is_wilson and tail < 0.025))
    assert tails
    assert all(tails)


def test_mid_p_ends_exist_for_numbers_of_answers_that_are_not_whole():
    rate = np.array([0.0, 0.2, 0.2, 0.2, 1.0])
    found = rate_interval._mid_p_low(rate, np.array([9.5, 10.0, 10.5, 11.0, 9.5]), 0.95)
    assert found[0] == 0
    assert found[1] < found[2] < found[3]
    # All n answers show it: half of p^n is the tail.
    assert found[4] == pytest.approx(0.05 ** (1 / 9.5))


def test_more_answers_to_the_same_questions_help_only_as_far_as_questions_are_alike():
    def width(chance, n_samples):
        read = rng("alike", str(n_samples)).binomial(n_samples, chance, size=(20, 1, 30))
        found = all_of(read / n_samples, np.zeros((20, 30)), np.arange(20))
        return np.mean([one.trained_high - one.trained_low for one in found])

    coins, fixed = np.full(30, 0.5), np.arange(30) % 2
    assert width(coins, 9) < 0.5 * width(coins, 1)
    assert width(fixed, 9) == pytest.approx(width(fixed, 1))


def test_one_seed_speaks_of_itself_and_two_that_differ_of_more():
    trained, base, adapter = row(n_seeds=1)
    alone = all_of(trained, base, adapter)
    assert alone == all_of(trained, base, np.zeros_like(adapter))
    assert {one.degrees_of_freedom for one in alone} == {19.0}
    differing = np.concatenate([trained, np.clip(trained + 0.4, 0, 1)], axis=1)
    apart = all_of(differing, base, adapter)
    widths = [
        np.mean([one.trained_high - one.trained_low for one in found]) for found in (alone, apart)
    ]
    assert widths[1] > 1.5 * widths[0]


# --- both sides -----------------------------------------------------------------------------------


def test_questions_that_move_together_make_the_change_surer():
    easy = np.arange(40) % 2 == 0
    trained = np.where(easy, 1.0, (rng("pair").random((30, 2, 40)) < 0.2).astype(float))
    same = np.where(easy, 1.0, (rng("same").random((30, 40)) < 0.1).astype(float))
    found = [all_of(trained, base, np.arange(30)) for base in (same, same[:, ::-1])]
    paired, unpaired = (np.mean([one.high - one.low for one in cells]) for cells in found)
    assert paired < 0.6 * unpaired
    assert found[0][0].standard_error < 0.6 * found[1][0].standard_error


def test_one_cell_of_single_answers_has_newcombes_correlation():
    # Both, trained only, base only, neither.
    a, b, c, d = 20, 12, 3, 25
    trained = np.repeat([1.0, 1.0, 0.0, 0.0], (a, b, c, d))[None, :]
    base = np.repeat([1.0, 0.0, 1.0, 0.0], (a, b, c, d))[None, :]
    cells = rate_interval._Row.of(trained[:, None, :], base)
    sides = rate_interval._Sides.of(cells, np.zeros(1, dtype=int), 0.95)
    n = a + b + c + d
    phi = (a * d - b * c - n / 2) / math.sqrt((a + b) * (c + d) * (a + c) * (b + d))
    assert sides.correlation_C[0] == pytest.approx(phi, rel=1e-3)


def test_questions_that_move_apart_make_the_change_less_sure():
    easy = np.arange(40) % 2 == 0
    trained = np.broadcast_to(easy.astype(float), (10, 2, 40))
    found = [
        all_of(trained, base, np.arange(10))[0]
        for base in (trained[:, 0] * 0.5, 0.5 - trained[:, 0] * 0.5)
    ]
    assert found[1].high - found[1].low > found[0].high - found[0].low


# --- resolution -----------------------------------------------------------------------------------


def resolution(trained, base, adapter, **keywords):
    return minimum_detectable_rate_change(
        trained, base, adapter, confidence_level=0.95, minimum_share=0.5, **keywords
    )


def test_more_questions_resolve_smaller_effects_and_more_power_asks_for_larger_ones():
    few, many = (resolution(*row(0.2, 0.2, n_items=n)) for n in (8, 80))
    assert 0 < many.minimum_detectable_effect < 0.6 * few.minimum_detectable_effect
    surer = resolution(*row(0.2, 0.2, n_items=8), power=0.95)
    assert surer.minimum_detectable_effect > few.minimum_detectable_effect
    assert many.n_cells == many.n_complete == 20


def test_a_row_that_reads_0_throughout_promises_no_resolution_without_limit():
    zeros = np.zeros((6, 2, 20))
    found = resolution(zeros, zeros[:, 0], np.arange(6))
    assert 0.1 < found.minimum_detectable_effect < 0.6
    assert found.standard_error > 0.02
    assert (found.base_rate, found.question_variance) == (0.0, 0.0)


def test_a_base_without_room_above_it_has_no_detectable_rise():
    trained, base, adapter = row(0.95, 0.95, n_items=8, n_samples=1)
    assert resolution(trained, base, adapter).minimum_detectable_effect is None


def test_resolution_needs_seeds_and_says_when_variances_are_unknown():
    trained, base, adapter = row()
    assert resolution(trained[:, :1], base, adapter) is None
    base[:, 0] = np.nan
    found = resolution(trained, base, adapter)
    assert (found.n_complete, found.seed_variance) == (0, None)
    assert found.minimum_detectable_effect > 0
    base[:] = np.nan
    assert resolution(trained, base, adapter) is None


# --- refusals -------------------------------------------------------------------------------------


def test_inputs_without_an_answer_are_refused():
    trained, base, adapter = row()

    def refused(match, trained=trained, base=base, adapter=adapter, **keywords):
        with pytest.raises(StatsInputError, match=match):
            intervals(trained, base, adapter, **keywords)

    refused("3 dimensions", trained=trained[0])
    refused("not an array", trained="rates")
    refused(r"trained_CSQ: .*\[0, 1\]", trained=trained + 0.5)
    refused(r"base_CQ: .*\[0, 1\]", base=base - 0.5)
    refused("base_CQ", base=base[:, 1:])
    refused("adapter_C", adapter=adapter[1:])
    refused("adapter_C", adapter=adapter + 0.5)
    refused("confidence_level", level=95)
    refused("minimum_share", share=1.5)
    with pytest.raises(StatsInputError, match="power"):
        resolution(trained, base, adapter, power=80)
    apart = np.full((1, 2, 4), np.nan)
    apart[0, 0, :2] = apart[0, 1, 2:] = 0.5
    refused("two seeds answered the same", apart, base[:1, :4], adapter[:1])
