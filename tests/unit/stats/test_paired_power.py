"""Minimum detectable differences: each against the test it speaks of, and the adjustment's power
against simulated p-values. The promise itself is kept in tests/slow/test_vea_simulation.py."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats

from eps_locked.errors import StatsInputError
from eps_locked.stats.bootstrap import generator_from_digest
from eps_locked.stats.multiplicity import benjamini_hochberg
from eps_locked.stats.paired_power import (
    found_share,
    minimum_detectable_delta,
    shown_within,
    smallest_found,
)
from eps_locked.stats.signed_rank import signed_rank


def rng(*labels: str) -> np.random.Generator:
    return generator_from_digest("blake3:paired-power", *labels)


def minimum(n: int, *, alpha: float = 0.05, n_families: int = 6, sd: float = 1.0):
    return minimum_detectable_delta(
        sd, n, alpha, 0.8, n_families, n_simulated=4000, rng=rng("minimum", str(n))
    )


@pytest.mark.parametrize(("n", "level"), [(8, 0.05), (14, 0.05 / 6)])
def test_a_study_finds_exactly_the_shifts_above_its_point(n, level):
    noise = rng("noise").standard_normal((1, n))[0]
    (point,) = smallest_found(n, [level], 1, rng("noise"))[0]
    assert signed_rank(noise + point + 1e-9).p_greater <= level
    assert signed_rank(noise + point - 1e-9).p_greater > level


def test_one_family_alone_is_found_as_often_as_promised():
    delta, draws = minimum(14).alone, rng("alone")
    n_found = sum(
        signed_rank(draws.standard_normal(14) + delta).p_greater <= 0.05 / 6 for _ in range(2000)
    )
    assert 0.77 <= n_found / 2000 <= 0.83


def test_all_affected_families_are_found_as_often_as_promised():
    delta, draws = minimum(14).all_affected, rng("all")
    found = [
        benjamini_hochberg([signed_rank(one + delta).p_greater for one in study]) <= 0.05
        for study in draws.standard_normal((400, 6, 14))
    ]
    assert 0.77 <= np.mean(found) <= 0.83


@pytest.mark.parametrize("m", [1, 2, 6])
def test_found_share_is_what_the_adjustment_finds_of_simulated_p_values(m):
    """p-values that are cubes of uniform ones are at most t with probability t^(1/3)."""
    expected = found_share([(0.1 * k / m) ** (1 / 3) for k in range(1, m + 1)])
    p = rng("cubes", str(m)).random((4000, m)) ** 3
    found = np.mean([benjamini_hochberg(row) <= 0.1 for row in p])
    assert expected == pytest.approx(found, abs=4 * math.sqrt(0.25 / 4000))


def test_found_share_of_one_family_is_its_power_and_of_sure_finds_is_one():
    assert found_share([0.37]) == pytest.approx(0.37)
    assert found_share([1.0] * 6) == pytest.approx(1.0)
    assert found_share([0.0] * 6) == 0.0
    # Only together: nobody reaches the first two levels, and all three have to reach the last.
    assert found_share([0.0, 0.0, 0.5]) == pytest.approx(0.125)


def test_more_differences_find_less_and_more_families_ask_for_more():
    alone = [minimum(n).alone for n in (8, 14, 28, 60)]
    assert alone == sorted(alone, reverse=True)
    by_families = [minimum(14, n_families=m).alone for m in (1, 3, 6, 12)]
    assert by_families == sorted(by_families)
    found = minimum(14)
    assert minimum(14, n_families=1).alone < found.all_affected < found.alone


def test_the_unit_is_the_sd_that_was_given():
    assert minimum(14, sd=2.5).alone == pytest.approx(2.5 * minimum(14).alone)
    assert minimum(14, sd=2.5).all_affected == pytest.approx(2.5 * minimum(14).all_affected)


def test_one_family_has_one_figure():
    found = minimum(14, n_families=1)
    assert found.alone == pytest.approx(found.all_affected, abs=1e-3)


def test_six_differences_cannot_reach_a_sixth_of_alpha_alone_but_can_together():
    found = minimum(6)
    assert found.alone is None
    assert found.all_affected is not None
    assert minimum(4).all_affected is None


def test_the_large_sample_formula_takes_over_without_a_step():
    simulated = minimum_detectable_delta(1.0, 60, 0.05, 0.8, 6, n_simulated=4000, rng=rng("edge"))
    formula = minimum_detectable_delta(1.0, 61, 0.05, 0.8, 6, n_simulated=4000, rng=rng("edge"))
    assert formula.alone / simulated.alone == pytest.approx(1, abs=0.03)
    assert formula.all_affected / simulated.all_affected == pytest.approx(1, abs=0.03)


@pytest.mark.parametrize("two_sided", [False, True])
def test_a_mean_of_zero_is_shown_within_the_margin_as_often_as_promised(two_sided):
    n, n_studies = 14, 20_000
    margin = shown_within(n, 0.9, 0.8, two_sided=two_sided)
    noise = rng("shown", str(two_sided)).standard_normal((n_studies, n))
    mean, error = noise.mean(axis=1), noise.std(axis=1, ddof=1) / math.sqrt(n)
    reach = scipy.stats.t.ppf(0.95, n - 1) * error
    shown = mean + reach < margin
    if two_sided:
        shown &= mean - reach > -margin
    assert shown.mean() == pytest.approx(0.8, abs=0.012)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"sd": 0.0}, "sd: expected a finite number above 0"),
        ({"n": 0}, "n: expected at least 1"),
        ({"alpha": 0.0}, "alpha: expected a number between"),
        ({"power": 1.0}, "power: expected a number between"),
        ({"n_families": 0}, "n_families: expected at least 1"),
        ({"n_simulated": 0}, "n_simulated: expected at least 1"),
    ],
)
def test_what_cannot_be_planned_is_refused(changed, said):
    usual = {"sd": 1.0, "n": 14, "alpha": 0.05, "power": 0.8, "n_families": 6, "n_simulated": 10}
    with pytest.raises(StatsInputError, match=said):
        minimum_detectable_delta(**{**usual, **changed}, rng=rng("refused"))


@pytest.mark.parametrize("powers", [[], [0.5, 1.2], [float("nan")]])
def test_powers_that_are_no_probabilities_are_refused(powers):
    with pytest.raises(StatsInputError, match="power_by_rank: expected numbers from 0 to 1"):
        found_share(powers)


def test_the_false_discovery_rate_holds_where_nothing_is_affected():
    """The full simulation is slow; this one would still see a rate of twice the level."""
    n_studies = 600
    found = [
        (benjamini_hochberg([signed_rank(one).p_greater for one in study]) <= 0.05).any()
        for study in rng("null").standard_normal((n_studies, 6, 14))
    ]
    assert np.mean(found) <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / n_studies)
    assert np.mean(found) > 0.02
