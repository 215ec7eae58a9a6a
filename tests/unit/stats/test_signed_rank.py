"""The signed-rank test against scipy, against all 2^n choices of signs, and against its own law."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from eps_locked.errors import StatsInputError
from eps_locked.stats.bootstrap import generator_from_digest
from eps_locked.stats.signed_rank import EXACT_UP_TO, signed_rank, smallest_significant_sum

tied = st.lists(st.integers(-4, 4), min_size=1, max_size=12)


def rng(*labels: str) -> np.random.Generator:
    return generator_from_digest("blake3:signed-rank", *labels)


def enumerated(differences: list[int]) -> tuple[float, float, float]:
    """(W+, p greater, p less) by counting every choice of signs, with Pratt's zeros."""
    values = np.asarray(differences, dtype=float)
    ranks = scipy.stats.rankdata(np.abs(values))
    left, found = ranks[values != 0], ranks[values > 0].sum()
    sums = np.array([np.dot(signs, left) for signs in itertools.product((0, 1), repeat=len(left))])
    return found, float((sums >= found - 1e-9).mean()), float((sums <= found + 1e-9).mean())


@given(tied)
@settings(max_examples=60, deadline=None)
def test_ties_and_zeros_are_counted_as_all_choices_of_signs_say(differences):
    found = signed_rank(differences)
    w_plus, greater, less = enumerated(differences)
    assert found.w_plus == pytest.approx(w_plus, abs=1e-12)
    assert found.p_greater == pytest.approx(greater, abs=1e-12)
    assert found.p_less == pytest.approx(less, abs=1e-12)
    assert found.p_two_sided == pytest.approx(min(1, 2 * min(greater, less)), abs=1e-12)
    assert (found.n, found.n_zero) == (len(differences), differences.count(0))


@pytest.mark.parametrize("n", [1, 2, 5, 14, 40, 120])
def test_without_ties_every_p_is_scipys_exact_one(n):
    differences = rng(str(n)).normal(size=n) + 0.2
    found = signed_rank(differences)
    assert found.method == "exact"
    for alternative, p in (
        ("greater", found.p_greater),
        ("less", found.p_less),
        ("two-sided", found.p_two_sided),
    ):
        expected = scipy.stats.wilcoxon(differences, alternative=alternative, method="exact")
        assert p == pytest.approx(expected.pvalue, abs=1e-10)


@pytest.mark.parametrize("label", ["a", "b", "c"])
def test_with_ties_and_zeros_every_p_is_that_of_scipys_whole_permutation(label):
    differences = rng("tied", label).integers(-3, 6, size=9).astype(float)
    assert signed_rank(differences).method == "exact with ties"
    for alternative, name in (("greater", "p_greater"), ("less", "p_less")):
        expected = scipy.stats.wilcoxon(
            differences,
            alternative=alternative,
            zero_method="pratt",
            method=scipy.stats.PermutationMethod(n_resamples=np.inf),
        )
        assert getattr(signed_rank(differences), name) == pytest.approx(expected.pvalue, abs=1e-10)


def test_beyond_the_exact_range_it_is_the_corrected_normal_approximation_with_ties():
    differences = rng("many").integers(-20, 23, size=EXACT_UP_TO + 60).astype(float)
    found = signed_rank(differences)
    assert found.method == "normal"
    for alternative, p in (("greater", found.p_greater), ("less", found.p_less)):
        expected = scipy.stats.wilcoxon(
            differences,
            alternative=alternative,
            zero_method="pratt",
            correction=True,
            method="asymptotic",
        )
        assert p == pytest.approx(expected.pvalue, abs=1e-10)


def test_the_exact_and_the_normal_figure_meet_where_one_hands_over_to_the_other():
    differences = rng("border").normal(size=EXACT_UP_TO) + 0.1
    exact = signed_rank(differences)
    approximated = scipy.stats.wilcoxon(
        differences, alternative="greater", correction=True, method="asymptotic"
    )
    assert exact.method == "exact"
    assert exact.p_greater == pytest.approx(approximated.pvalue, rel=0.01)


@pytest.mark.parametrize("sizes", [[1, 2, 3, 4, 5, 6, 7, 8], [1, 1, 2, 2, 2, 5, 5, 9], [3] * 8])
def test_p_is_the_share_of_sign_patterns_that_are_at_least_as_extreme(sizes):
    """The law of an exact test: under the null P(p <= p0) = p0 for every p0 that it can give."""
    p = np.array(
        [
            signed_rank(np.multiply(signs, sizes)).p_greater
            for signs in itertools.product((-1, 1), repeat=8)
        ]
    )
    for p0 in np.unique(p):
        assert (p <= p0 + 1e-12).mean() == pytest.approx(p0, abs=1e-12)


@given(tied, st.integers(1, 9))
def test_signs_turned_round_exchange_the_sides_and_a_unit_changes_nothing(differences, factor):
    there = signed_rank(differences)
    back = signed_rank([-one for one in differences])
    assert (there.p_greater, there.p_less) == (back.p_less, back.p_greater)
    assert signed_rank([factor * one for one in differences]) == there


def test_nothing_but_zeros_says_nothing():
    found = signed_rank(np.zeros(14))
    assert (found.n_zero, found.w_plus) == (14, 0.0)
    assert (found.p_greater, found.p_less, found.p_two_sided) == (1.0, 1.0, 1.0)


def test_fourteen_differences_of_one_sign_have_the_smallest_p_there_is():
    assert signed_rank([2.5] * 14).p_greater == pytest.approx(2.0**-14, abs=1e-15)
    assert signed_rank([1.0]).p_greater == 0.5


@pytest.mark.parametrize(("n", "level"), [(5, 0.05), (8, 0.05 / 6), (9, 0.5), (12, 0.01)])
def test_smallest_significant_sum_is_the_first_that_reaches_the_level(n, level):
    c = smallest_significant_sum(n, level)
    sums = np.array([np.dot(s, range(1, n + 1)) for s in itertools.product((0, 1), repeat=n)])
    assert c is not None
    assert (sums >= c).mean() <= level < (sums >= c - 1).mean()


def test_too_few_differences_reach_no_level():
    assert smallest_significant_sum(6, 0.05 / 6) is None
    assert smallest_significant_sum(7, 0.05 / 6) is not None


@pytest.mark.parametrize(
    ("differences", "said"),
    [
        ([], "differences: expected at least one"),
        ([1.0, float("nan")], "differences: expected finite numbers only"),
        ([[1.0]], "differences: expected 1 dimensions"),
    ],
)
def test_what_is_no_sample_is_refused(differences, said):
    with pytest.raises(StatsInputError, match=said):
        signed_rank(differences)


@pytest.mark.parametrize(
    ("n", "level", "said"), [(0, 0.05, "n: "), (EXACT_UP_TO + 1, 0.05, "n: "), (8, 1.0, "level: ")]
)
def test_sums_that_cannot_be_counted_are_refused(n, level, said):
    with pytest.raises(StatsInputError, match=said):
        smallest_significant_sum(n, level)
