"""The minimum detectable effect against its textbook factor and against simulated tests."""

from __future__ import annotations

import math

import numpy as np
import pytest

from eps_locked.errors import StatsInputError
from eps_locked.stats.bootstrap import generator_from_digest
from eps_locked.stats.resolution import minimum_detectable_effect


def test_factor_at_the_defaults_is_the_published_two_point_eight():
    assert minimum_detectable_effect(1.0) == pytest.approx(1.959964 + 0.841621, abs=1e-6)
    assert minimum_detectable_effect(0.3) == pytest.approx(0.3 * minimum_detectable_effect(1.0))


def test_a_test_finds_this_effect_as_often_as_promised():
    estimates = generator_from_digest("power").normal(
        loc=minimum_detectable_effect(2.0, alpha=0.10, power=0.70), scale=2.0, size=20_000
    )
    found = np.mean(np.abs(estimates) > 1.644854 * 2.0)
    assert found == pytest.approx(0.70, abs=0.013)  # four standard errors


@pytest.mark.parametrize("standard_error", [0.0, -1.0, math.nan, math.inf])
def test_a_standard_error_that_promises_everything_is_refused(standard_error):
    with pytest.raises(StatsInputError, match=r"^standard_error: expected a finite number above 0"):
        minimum_detectable_effect(standard_error)


@pytest.mark.parametrize("name", ["alpha", "power"])
@pytest.mark.parametrize("value", [0.0, 1.0, -0.1, 5.0, math.nan])
def test_alpha_and_power_lie_between_0_and_1(name, value):
    with pytest.raises(StatsInputError, match=f"^{name}: expected a number between 0 and 1"):
        minimum_detectable_effect(1.0, **{name: value})
