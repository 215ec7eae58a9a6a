"""Pooled seed variance, its degrees of freedom, and intervals that stay where rates are."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.special
import scipy.stats

from eps_locked.errors import StatsInputError
from eps_locked.stats import cell_interval
from eps_locked.stats.bootstrap import generator_from_digest, standard_error_pooled_over_cells
from eps_locked.stats.cell_interval import pooled_cell_intervals
from eps_locked.stats.simulate import ReadingSpread, simulate_rates, simulate_readings


def rng(*labels: str) -> np.random.Generator:
    return generator_from_digest("blake3:test", "cells", *labels)


def log_probs(n_adapters=4, n_each=5, n_seeds=2, n_items=12, label="readings", **spread):
    adapter = np.repeat(np.arange(n_adapters), n_each)
    sizes = {"adapter_seed": 0.5, "cell_seed": 0.3, "question": 0.8, "residual": 0.6, **spread}
    values = simulate_readings(
        rng(label),
        rng("truth").normal(size=len(adapter)),
        adapter,
        n_seeds=n_seeds,
        n_items=n_items,
        spread=ReadingSpread(**sizes),
    )
    return values, adapter


def rates(n_adapters=4, n_each=5, n_seeds=2, n_items=20, centre=0.0):
    adapter = np.repeat(np.arange(n_adapters), n_each)
    logit = centre + 1.5 * rng("logit").normal(size=len(adapter))
    values, _ = simulate_rates(rng("rates"), logit, adapter, n_seeds=n_seeds, n_items=n_items)
    return values, adapter


def ends(found) -> np.ndarray:
    return np.array([(one.low, one.high) for one in found])


# --- the variance and its degrees of freedom ------------------------------------------------------


def test_with_one_question_variance_for_all_cells_the_error_is_that_of_pooled_components():
    # So many cells with equal variances that the moderated question variance is the pooled one.
    values, adapter = log_probs(n_adapters=30, n_each=4, n_seeds=3, n_items=15)
    expected = standard_error_pooled_over_cells(values)
    found = pooled_cell_intervals(values, adapter, confidence_level=0.95)
    assert expected.truncated == ()
    assert [one.standard_error for one in found] == pytest.approx(
        [expected.standard_error] * len(found), rel=0.03
    )
    assert [one.value for one in found] == pytest.approx(values.mean(axis=(1, 2)), abs=1e-12)


def test_the_interval_is_t_with_the_stated_error_and_degrees_of_freedom():
    values, adapter = log_probs()
    for one in pooled_cell_intervals(values, adapter, confidence_level=0.9):
        reach = scipy.stats.t.ppf(0.95, one.degrees_of_freedom) * one.standard_error
        assert (one.low, one.high) == pytest.approx((one.value - reach, one.value + reach))
        assert (one.n_seeds, one.n_readings, one.confidence_level) == (2, 24, 0.9)


def test_cells_that_share_their_seeds_accident_count_as_one():
    # The same deviation in every cell of an adapter, and no other noise at all.
    adapter = np.repeat(np.arange(6), 8)
    deviation = rng("shared").normal(size=(6, 2, 1))[adapter] + np.zeros((48, 2, 3))
    found = pooled_cell_intervals(deviation, adapter, confidence_level=0.95)
    assert {round(one.degrees_of_freedom, 9) for one in found} == {6.0}
    # One adapter per cell: as many degrees of freedom as cells.
    found = pooled_cell_intervals(deviation, np.arange(48), confidence_level=0.95)
    assert {round(one.degrees_of_freedom, 9) for one in found} == {48.0}


def test_independent_accidents_of_one_adapters_cells_count_each():
    values, adapter = log_probs(
        n_adapters=8, n_each=20, adapter_seed=0.0, cell_seed=1.0, question=0.0, residual=0.01
    )
    df = pooled_cell_intervals(values, adapter, confidence_level=0.95)[0].degrees_of_freedom
    assert 100 < df <= 160


def test_degrees_of_freedom_of_the_pooled_variance_are_those_it_varies_with():
    # Half of the seed variance shared by an adapter's five cells: r = 0.5, 4 partners, so 20 cells
    # vary as 20 / (1 + 0.25 * 4) = 10.
    adapter = np.repeat(np.arange(4), 5)
    pooled = []
    for t in range(2000):
        source = rng("df", str(t))
        z = source.normal(size=4)[adapter] + source.normal(size=20)
        pooled.append(np.mean(z**2))
    varies_with = 2 * np.mean(pooled) ** 2 / np.var(pooled)
    assert varies_with == pytest.approx(10, rel=0.12)
    shared = np.array([1.0, 1.0, 1.0, 1.0, 0.0])
    deviation = np.zeros((20, 2))
    deviation[:, 0] = np.tile(shared, 4)
    # Products of an adapter sum to 4 * 3 over 20 ordered pairs, so r = 0.6 of an expected square
    # of 1: 20 / (1 + 0.36 * 4).
    ones = np.ones(20, dtype=np.int64)
    df = cell_interval._pooled_df(deviation, ones, np.ones(20), adapter)
    assert df == pytest.approx(20 / (1 + 0.36 * 4))


def test_more_alike_accidents_leave_fewer_degrees_of_freedom():
    df = []
    for shared in (0.0, 0.6, 1.0):
        values, adapter = log_probs(
            n_adapters=8,
            n_each=10,
            n_items=40,
            adapter_seed=shared,
            cell_seed=math.sqrt(1 - shared**2),
        )
        df.append(pooled_cell_intervals(values, adapter, confidence_level=0.95)[0])
    df = [one.degrees_of_freedom for one in df]
    assert df[0] > df[1] > df[2] > 7


# --- question variances drawn towards the row's ---------------------------------------------------


def test_equal_variances_are_pooled_and_unequal_ones_are_kept():
    source = rng("moderated")
    df = np.full(400, 9)
    alike = source.chisquare(9, size=400) / 9
    pooled, pooled_df = cell_interval._moderated(alike, df)
    assert np.ptp(pooled) < 0.2
    assert pooled_df.min() > 200
    unlike = alike * np.exp(source.normal(scale=2.0, size=400))
    kept, kept_df = cell_interval._moderated(unlike, df)
    assert kept_df.max() < 12
    assert np.corrcoef(np.log(kept), np.log(unlike))[0, 1] > 0.98


def test_the_prior_of_the_variances_is_found_again():
    # Scaled inverse chi-square with 6 degrees of freedom around 2.
    source = rng("prior")
    truth = 6 * 2.0 / source.chisquare(6, size=20_000)
    spread = truth * source.chisquare(9, size=20_000) / 9
    moderated, df = cell_interval._moderated(spread, np.full(20_000, 9))
    assert df[0] - 9 == pytest.approx(6, rel=0.06)
    prior = (moderated[0] * df[0] - 9 * spread[0]) / (df[0] - 9)
    assert prior == pytest.approx(2.0, rel=0.03)


@pytest.mark.parametrize("x", [0.05, 0.7, 3.0, 400.0])
def test_trigamma_is_inverted(x):
    y = float(scipy.special.polygamma(1, x))
    assert cell_interval._inverse_trigamma(y) == pytest.approx(x, rel=1e-8)


# --- missing readings -----------------------------------------------------------------------------


def test_a_question_missing_everywhere_is_as_if_it_had_not_been_asked():
    values, adapter = log_probs()
    gap = np.concatenate([values, np.full((20, 2, 1), np.nan)], axis=2)
    found = pooled_cell_intervals(gap, adapter, confidence_level=0.95)
    expected = pooled_cell_intervals(values, adapter, confidence_level=0.95)
    assert ends(found) == pytest.approx(ends(expected), abs=1e-12)


def test_a_cell_with_one_seed_borrows_the_rows_seed_variance():
    values, adapter = log_probs(n_each=10, n_items=40)
    whole = pooled_cell_intervals(values, adapter, confidence_level=0.95)[3]
    values[3, 1] = np.nan
    one = pooled_cell_intervals(values, adapter, confidence_level=0.95)[3]
    assert (one.n_seeds, one.n_readings) == (1, 40)
    assert one.value == pytest.approx(values[3, 0].mean())
    assert 1.2 * whole.standard_error < one.standard_error < 1.6 * whole.standard_error


def test_seeds_count_alike_however_many_readings_each_lost():
    values, adapter = log_probs()
    values[0, 0, 3:] = np.nan
    found = pooled_cell_intervals(values, adapter, confidence_level=0.95)[0]
    assert found.value == pytest.approx((values[0, 0, :3].mean() + values[0, 1].mean()) / 2)


# --- rates ----------------------------------------------------------------------------------------


def rate_intervals(values, adapter, level=0.95):
    return pooled_cell_intervals(values, adapter, confidence_level=level, bounds=(0.0, 1.0))


@pytest.mark.parametrize("centre", [0.0, -4.0, 5.0])
def test_a_rates_interval_never_leaves_0_to_1(centre):
    values, adapter = rates(centre=centre)
    for one in rate_intervals(values, adapter, level=0.9999):
        assert 0 <= one.low <= one.value <= one.high <= 1
        assert one.high - one.low > 0.05


def test_a_cell_at_the_edge_has_its_one_end_there_and_the_other_inside():
    values, adapter = rates()
    values[0], values[1] = 0.0, 1.0
    found = rate_intervals(values, adapter)
    assert found[0].low == found[0].value == 0.0
    assert 0.02 < found[0].high < 0.5
    assert found[1].high == found[1].value == 1.0
    assert 0.5 < found[1].low < 0.98


def test_the_end_of_a_rates_interval_is_the_rate_that_just_would_not_be_rejected():
    values, adapter = rates()
    parts = cell_interval._Parts.of(values, adapter, is_rate=True)
    t = scipy.stats.t.ppf(0.975, parts.degrees_of_freedom())
    for one, end in zip(rate_intervals(values, adapter), range(20), strict=True):
        for p in (one.low, one.high):
            if 0 < p < 1:
                error = math.sqrt(parts.variance(np.full(20, p))[end])
                assert abs(one.value - p) == pytest.approx(t[end] * error, rel=1e-6)


def test_the_variance_at_the_true_rate_is_that_of_the_means_error():
    adapter = np.repeat(np.arange(16), 12)
    spread = ReadingSpread(adapter_seed=0.8, cell_seed=0.3, question=1.0, residual=0.0)
    said, seen, at = [], [], []
    for t in range(40):
        source = rng("error", str(t))
        logit = -1.5 + 1.5 * source.normal(size=192)
        values, truth = simulate_rates(source, logit, adapter, n_seeds=2, n_items=12, spread=spread)
        parts = cell_interval._Parts.of(values, adapter, is_rate=True)
        said.append(parts.variance(truth))
        seen.append((parts.mean_C - truth) ** 2)
        at.append(truth)
    said, seen, at = (np.concatenate(a) for a in (said, seen, at))
    assert said.mean() == pytest.approx(seen.mean(), rel=0.07)
    low = at < 0.1
    assert said[low].mean() == pytest.approx(seen[low].mean(), rel=0.15)


def test_counting_failures_mirrors_the_interval():
    values, adapter = rates(centre=-1.5)
    mirrored = ends(rate_intervals(1 - values, adapter))
    assert mirrored == pytest.approx(1 - ends(rate_intervals(values, adapter))[:, ::-1], abs=1e-9)


def test_coin_tosses_with_nothing_else_give_wilsons_interval():
    # Independent readings: neither seeds nor questions matter, so 2 x 400 tosses.
    values = (rng("coin").random((40, 2, 400)) < 0.3).astype(float)
    found = rate_intervals(values, np.arange(40))
    for one in found:
        wilson = scipy.stats.binomtest(round(one.value * 800), 800).proportion_ci(method="wilson")
        assert (one.low, one.high) == pytest.approx((wilson.low, wilson.high), abs=0.008)


def test_a_row_that_only_ever_reads_0_keeps_an_interval_of_its_questions_size():
    found = rate_intervals(np.zeros((6, 2, 20)), np.arange(6))
    expected = scipy.stats.binomtest(0, 20).proportion_ci(method="wilson").high
    for one in found:
        assert (one.value, one.low) == (0.0, 0.0)
        assert one.high == pytest.approx(expected, rel=0.15)


def test_bounds_cut_a_t_interval_of_differences():
    values, adapter = rates(centre=-3.0)
    found = pooled_cell_intervals(
        values - 0.02, adapter, confidence_level=0.999, bounds=(-0.02, 0.98)
    )
    assert min(one.low for one in found) == -0.02
    assert "cut at the bounds" in found[0].method


def test_cells_that_fail_the_same_questions_do_not_count_each():
    hard = rng("hard").random(30) < 0.4
    easy_or_hard = np.where(hard, 0.1, 0.9)
    alike = (rng("alike").random((40, 2, 30)) < easy_or_hard).astype(float)
    own = np.stack([rng("own", str(c)).permutation(easy_or_hard) for c in range(40)])
    apart = (rng("apart").random((40, 2, 30)) < own[:, None, :]).astype(float)
    few, many = (rate_intervals(v, np.arange(40))[0].degrees_of_freedom for v in (alike, apart))
    assert 29 <= few < 100
    assert many > 300


# --- rate less base rate --------------------------------------------------------------------------


def with_base(values, adapter, base, level=0.95):
    return pooled_cell_intervals(
        values, adapter, confidence_level=level, bounds=(0.0, 1.0), base_CQ=base
    )


def test_a_difference_of_rates_stays_in_its_range_and_keeps_its_value():
    values, adapter = rates(centre=4.0)
    base = (rng("base").random((20, 20)) < 0.02).astype(float)
    for one, cell, b in zip(with_base(values, adapter, base, 0.9999), values, base, strict=True):
        assert one.value == pytest.approx(cell.mean() - b.mean())
        assert -1 <= one.low <= one.value <= one.high <= 1


def test_questions_that_move_together_make_the_difference_surer():
    # Half of the questions are always passed, by the base as well.
    easy = np.arange(40) % 2 == 0
    values = np.where(easy, 1.0, (rng("pair").random((30, 2, 40)) < 0.2).astype(float))
    same = np.where(easy, 1.0, (rng("same").random((30, 40)) < 0.1).astype(float))
    other = same[:, ::-1].copy()  # the same base rates, on questions of the other kind
    paired = np.diff(ends(with_base(values, np.arange(30), same)), axis=1)
    unpaired = np.diff(ends(with_base(values, np.arange(30), other)), axis=1)
    assert paired.mean() < 0.6 * unpaired.mean()


# --- refusals -------------------------------------------------------------------------------------


def test_inputs_without_an_answer_are_refused():
    values, adapter = log_probs()
    yes = (values > 0).astype(float)

    def refused(match, values=values, adapter=adapter, level=0.95, **keywords):
        with pytest.raises(StatsInputError, match=match):
            pooled_cell_intervals(values, adapter, confidence_level=level, **keywords)

    refused("no cell in which two seeds", values[:, :1])
    refused("adapter_C", adapter=adapter[1:])
    refused("adapter_C", adapter=adapter + 0.5)
    refused("confidence_level", level=95)
    refused("3 dimensions", values[0])
    refused("readings from 0 to 1", bounds=(0.0, 1.0))
    refused(r"\(0, 1\) for rates", yes, bounds=(0.0, 2.0), variance="rate")
    refused("is for rates", base_CQ=values[:, 0])
    refused("base_CQ", yes, bounds=(0.0, 1.0), base_CQ=yes[:, 0, 1:])
    refused("rates in", yes, bounds=(0.0, 1.0), base_CQ=2 * yes[:, 0] + 1)
    values = values.copy()
    values[0] = np.nan
    refused("none in 1 of 20", values)
    values[0] = np.inf
    refused("infinite", values)
