"""Two rates on the same items: against constrained likelihoods, statsmodels, and by enumeration."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.optimize
import scipy.stats
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.proportion import confint_proportions_2indep, proportion_confint

from eps_locked.errors import StatsInputError
from eps_locked.stats.paired_rates import (
    PairedRates,
    independent_rates,
    minimum_detectable_paired,
    paired_rates,
    power_of_pairs,
    rate_interval,
)

TABLES = [(40, 9, 2), (24, 0, 5), (24, 6, 6), (60, 1, 0), (15, 15, 0), (30, 0, 0), (12, 3, 8)]


def score(delta: float, n: int, up: int, down: int) -> float:
    """Tango's statistic with the constrained estimate found by a search, not by its formula."""

    def loss(share_down: float) -> float:
        share_up = share_down + delta
        rest = 1 - share_up - share_down
        total = 0.0
        for count, share in ((up, share_up), (down, share_down), (n - up - down, rest)):
            if count:
                total -= count * math.log(max(share, 1e-300))
        return total

    low, high = max(0.0, -delta), (1 - delta) / 2
    found = scipy.optimize.minimize_scalar(
        loss, bounds=(low, high), method="bounded", options={"xatol": 1e-13}
    )
    share_down = float(found.x)
    variance = n * (2 * share_down + delta - delta**2)
    return (up - down - n * delta) / math.sqrt(variance)


@pytest.mark.parametrize(("n", "up", "down"), [t for t in TABLES if 0 < t[1] + t[2] < t[0]])
@pytest.mark.parametrize("level", [0.9, 0.95])
def test_the_interval_ends_where_the_score_test_says_so(
    n: int, up: int, down: int, level: float
) -> None:
    pairs = PairedRates(n=n, n_up=up, n_down=down)
    low, high = pairs.interval(level)
    z = scipy.stats.norm.ppf((1 + level) / 2)
    assert low < pairs.delta < high
    assert score(low, n, up, down) == pytest.approx(z, abs=1e-4)
    assert score(high, n, up, down) == pytest.approx(-z, abs=1e-4)


@pytest.mark.parametrize(("n", "up", "down"), TABLES)
def test_swapping_the_conditions_swaps_the_ends(n: int, up: int, down: int) -> None:
    one = PairedRates(n=n, n_up=up, n_down=down).difference(0.95)
    other = PairedRates(n=n, n_up=down, n_down=up).difference(0.95)
    assert (other.delta, other.p) == (-one.delta, one.p)
    assert other.low == pytest.approx(-one.high, abs=1e-9)
    assert other.high == pytest.approx(-one.low, abs=1e-9)
    assert -1 <= one.low <= one.delta <= one.high <= 1


@pytest.mark.parametrize(("n", "up", "down"), TABLES)
def test_p_is_the_exact_one_of_mcnemar(n: int, up: int, down: int) -> None:
    expected = mcnemar([[n - up - down, up], [down, 0]], exact=True).pvalue if up + down else 1.0
    assert PairedRates(n=n, n_up=up, n_down=down).p == pytest.approx(float(expected), abs=1e-12)


def test_no_item_differs_and_the_interval_still_has_a_width() -> None:
    low, high = PairedRates(n=30, n_up=0, n_down=0).interval(0.95)
    assert low == pytest.approx(-high)
    assert 0.05 < high < 0.2


def test_counting() -> None:
    found = paired_rates([0, 0, 1, 1, 1], [1, 0, 0, 1, 0])
    assert (found.n, found.n_up, found.n_down, found.delta) == (5, 1, 2, -0.2)
    assert found.discordant_share == pytest.approx(0.6)


@pytest.mark.parametrize(
    ("first", "second"), [([], []), ([0, 1], [1]), ([0, 2], [1, 0]), ([0.5, 1], [1, 0])]
)
def test_bad_outcomes_are_refused(first: list[int], second: list[int]) -> None:
    with pytest.raises(StatsInputError, match=r"first|second"):
        paired_rates(first, second)


def test_rates_of_items_that_cannot_be_matched() -> None:
    found = independent_rates(70, 56, 80, 48, 0.95)
    low, high = confint_proportions_2indep(48, 80, 56, 70, method="newcomb", compare="diff")
    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-10)
    assert found.p == pytest.approx(
        scipy.stats.fisher_exact([[56, 14], [48, 32]]).pvalue, abs=1e-12
    )
    with pytest.raises(StatsInputError, match="second"):
        independent_rates(10, 3, 0, 0, 0.95)


@pytest.mark.parametrize(("k", "n"), [(0, 10), (7, 7), (3, 20)])
def test_a_rate_has_the_interval_of_wilson(k: int, n: int) -> None:
    expected = proportion_confint(k, n, method="wilson")
    assert rate_interval(k, n, 0.95) == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize(("delta", "n", "share"), [(0.2, 24, 0.3), (0.4, 12, 0.1), (0.0, 20, 0.5)])
def test_power_is_the_sum_over_all_outcomes(delta: float, n: int, share: float) -> None:
    differing = max(delta, share)
    ways = (differing + delta) / 2, (differing - delta) / 2
    total = 0.0
    for up in range(n + 1):
        for down in range(n + 1 - up):
            if PairedRates(n=n, n_up=up, n_down=down).p <= 0.05:
                total += scipy.stats.multinomial.pmf(
                    [up, down, n - up - down], n, [*ways, 1 - differing]
                )
    assert power_of_pairs(delta, n, share, 0.05) == pytest.approx(total, abs=1e-10)


@pytest.mark.parametrize("n", [8, 24, 60])
@pytest.mark.parametrize("share", [0.0, 0.2, 0.5])
def test_the_smallest_difference_found_has_the_power(n: int, share: float) -> None:
    smallest = minimum_detectable_paired(n, share, 0.05, 0.8)
    assert smallest is not None
    assert power_of_pairs(smallest, n, share, 0.05) == pytest.approx(0.8, abs=1e-6)
    rng = np.random.default_rng(n)
    differing = max(smallest, share)
    shares = [(differing + smallest) / 2, (differing - smallest) / 2, 1 - differing]
    drawn = rng.multinomial(n, shares, size=2000)
    found = [PairedRates(n=n, n_up=int(u), n_down=int(d)).p <= 0.05 for u, d, _ in drawn]
    assert np.mean(found) == pytest.approx(0.8, abs=0.03)


def test_five_items_find_nothing() -> None:
    assert minimum_detectable_paired(5, 0.0, 0.05, 0.8) is None


@pytest.mark.parametrize(("first", "change"), [(0.1, 0.0), (0.5, 0.2), (0.9, -0.3)])
def test_intervals_cover(first: float, change: float) -> None:
    """Coverage by enumeration: the exact probability that the interval holds the truth."""
    n, second = 24, first + change
    both = min(first, second) * 0.8
    shares = [second - both, first - both]
    covered = 0.0
    for up in range(n + 1):
        for down in range(n + 1 - up):
            probability = scipy.stats.multinomial.pmf(
                [up, down, n - up - down], n, [*shares, 1 - sum(shares)]
            )
            if probability > 1e-7:
                low, high = PairedRates(n=n, n_up=up, n_down=down).interval(0.95)
                covered += probability * (low <= change <= high)
    assert 0.93 <= covered <= 1
