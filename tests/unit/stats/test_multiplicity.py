"""Adjusted p-values against statsmodels and against the published definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.stats.multitest import multipletests

from eps_locked.errors import StatsInputError
from eps_locked.stats.multiplicity import benjamini_hochberg, holm

METHODS = {"holm": holm, "fdr_bh": benjamini_hochberg}

probabilities = st.lists(
    st.one_of(st.floats(0, 1), st.sampled_from([0.0, 0.01, 0.05, 1.0])), min_size=1, max_size=30
)


# statsmodels collects garbage on every call, a tenth of a second each: a few cases, not hundreds.
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "p",
    [
        [0.2],
        [0.05] * 6,
        [0.0, 0.0, 1.0, 1.0, 0.5],
        np.random.default_rng(1).random(40),
        np.random.default_rng(2).random(300) ** 6,
        np.random.default_rng(3).integers(0, 5, size=50) / 20,
    ],
    ids=["one", "equal", "ends", "uniform", "small", "tied"],
)
def test_adjusted_values_agree_with_statsmodels(method, p):
    expected = multipletests(p, method=method)[1]
    assert METHODS[method](p) == pytest.approx(expected, abs=1e-10)


def test_worked_examples():
    # Holm: 4 x 0.005, 3 x 0.01, 2 x 0.03, then 0.04 raised to the value before it.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    # Benjamini & Hochberg: 4/4 x 0.04, 4/3 x 0.03, 4/2 x 0.01, 4 x 0.005.
    assert benjamini_hochberg([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.02, 0.04, 0.04, 0.02])


@pytest.mark.parametrize("adjust", METHODS.values(), ids=METHODS)
@given(p=probabilities, order=st.randoms(use_true_random=False))
@settings(max_examples=50, deadline=None)
def test_order_does_not_matter_and_nothing_gets_smaller(adjust, p, order):
    places = list(range(len(p)))
    order.shuffle(places)
    adjusted = adjust(p)
    assert np.array_equal(adjust([p[place] for place in places]), adjusted[places])
    assert (adjusted >= np.array(p)).all()
    assert (adjusted <= 1).all()


@pytest.mark.parametrize("adjust", METHODS.values(), ids=METHODS)
def test_one_look_costs_nothing_and_none_gives_none(adjust):
    assert adjust([0.03]) == pytest.approx([0.03])
    assert len(adjust([])) == 0


@pytest.mark.parametrize("p", [[0.5, 1.2], [-0.1], [float("nan")]], ids=str)
@pytest.mark.parametrize("adjust", METHODS.values(), ids=METHODS)
def test_what_is_no_probability_is_refused(adjust, p):
    with pytest.raises(StatsInputError):
        adjust(p)
