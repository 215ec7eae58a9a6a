"""The bound against two one-sided tests."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from eps_locked.errors import StatsInputError
from eps_locked.stats.bootstrap import generator_from_digest
from eps_locked.stats.equivalence import equivalence_bound


@pytest.mark.parametrize(
    ("low", "high", "bound"),
    [(-9.2, 0.3, 9.2), (-1.0, 4.0, 4.0), (2.0, 5.0, 5.0), (-5.0, -2.0, 5.0), (0.0, 0.0, 0.0)],
)
def test_the_bound_is_the_farther_end(low, high, bound):
    assert equivalence_bound(low, high) == bound


@pytest.mark.parametrize("margin", [0.3, 0.6, 1.0])
def test_within_the_margin_is_what_two_one_sided_tests_at_5_percent_find(margin):
    rng = generator_from_digest("blake3:equivalence", str(margin))
    found = set()
    for _ in range(200):
        values = rng.normal(0.2, 1, size=15)
        interval = scipy.stats.ttest_1samp(values, 0).confidence_interval(0.9)
        p = max(
            scipy.stats.ttest_1samp(values, -margin, alternative="greater").pvalue,
            scipy.stats.ttest_1samp(values, margin, alternative="less").pvalue,
        )
        within = equivalence_bound(interval.low, interval.high) < margin
        assert within == (p < 0.05)
        found.add(within)
    assert found == {True, False} or margin == 0.3


@given(st.floats(-100, 100), st.floats(0, 100))
def test_the_range_holds_the_interval_and_no_smaller_one_does(low, width):
    bound = equivalence_bound(low, low + width)
    assert -bound <= low
    assert low + width <= bound
    assert bound in (-low, low + width, low, abs(low + width))
    assert equivalence_bound(-low - width, -low) == bound


@pytest.mark.parametrize(
    ("ends", "message"),
    [
        ((1.0, -1.0), "expected low <= high, found 1.0, -1.0"),
        ((math.nan, 1.0), "low: expected a finite number, found nan"),
        ((0.0, np.inf), "high: expected a finite number, found inf"),
    ],
)
def test_ends_that_are_no_interval_are_refused(ends, message):
    with pytest.raises(StatsInputError, match=message):
        equivalence_bound(*ends)
