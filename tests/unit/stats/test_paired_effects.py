"""Sizes of paired differences against second implementations and the distributions they invert."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
import scipy.integrate
import scipy.stats

from eps_locked.errors import StatsInputError
from eps_locked.stats.bootstrap import generator_from_digest
from eps_locked.stats.paired_effects import (
    cliffs_delta_of_two,
    difference_of_means,
    paired_cohens_d,
    ratio_of_means,
    weighted_means,
)
from eps_locked.stats.stem_bootstrap import expanded_tail, stem_weights


def rng(*labels: str) -> np.random.Generator:
    return generator_from_digest("blake3:paired-effects", *labels)


def repeated(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    return np.repeat(values, weights)


@pytest.mark.parametrize(("n", "shift"), [(2, 0.3), (5, -1.0), (14, 0.5), (14, 6.0), (60, 0.0)])
def test_d_and_g_are_those_of_a_second_implementation(n, shift):
    differences = rng(str(n)).normal(size=n) + shift
    found = paired_cohens_d(differences, 0.95)
    assert found is not None
    plain = list(map(float, differences))
    d = statistics.fmean(plain) / statistics.stdev(plain)
    df = n - 1
    # With one degree of freedom the correction is gamma(1/2) over gamma(0): nothing is left.
    j = 0.0 if df == 1 else math.gamma(df / 2) / math.gamma((df - 1) / 2) / math.sqrt(df / 2)
    assert found.d == pytest.approx(d, rel=1e-10)
    assert found.g == pytest.approx(d * j, rel=1e-10, abs=1e-300)


def test_the_correction_is_near_the_usual_approximation():
    for n in (9, 14, 31):
        found = paired_cohens_d(rng("usual", str(n)).normal(size=n) + 1, 0.95)
        assert found is not None
        assert found.g / found.d == pytest.approx(1 - 3 / (4 * (n - 1) - 1), abs=2e-3)


@pytest.mark.parametrize(("n", "shift"), [(3, 0.2), (14, 0.5), (14, -2.0), (14, 8.0), (80, 0.1)])
def test_the_interval_inverts_scipys_noncentral_t(n, shift):
    differences = rng("nct", str(n)).normal(size=n) + shift
    found = paired_cohens_d(differences, 0.9)
    assert found is not None
    t, root = found.d * math.sqrt(n), math.sqrt(n)
    assert scipy.stats.nct.cdf(t, n - 1, found.low * root) == pytest.approx(0.95, abs=1e-8)
    assert scipy.stats.nct.cdf(t, n - 1, found.high * root) == pytest.approx(0.05, abs=1e-8)
    assert found.low < found.d < found.high


@pytest.mark.parametrize("n", [5, 14])
@pytest.mark.parametrize("t", [9.9, 10.1, 60.0, 199.0, 201.0, -201.0, 1e4])
def test_the_interval_is_exact_where_differences_hardly_vary(n, t):
    """The definition, integrated over the noise by another library."""

    def share_up_to(t: float, noncentrality: float) -> float:
        def at(z: float) -> float:
            spread = max(0.0, (noncentrality + z) / t) * math.sqrt(n - 1)
            return scipy.stats.norm.pdf(z) * scipy.stats.chi.sf(spread, n - 1)

        return scipy.integrate.quad(at, -9, 9, points=[0], epsabs=1e-13, limit=200)[0]

    noise = rng("hardly", str(n)).normal(size=n)
    noise = (noise - noise.mean()) / noise.std(ddof=1)
    found = paired_cohens_d(noise + t / math.sqrt(n), 0.95)
    assert found is not None
    ends = [found.low * math.sqrt(n), found.high * math.sqrt(n)]
    if t < 0:
        t, ends = -t, [-ends[1], -ends[0]]
    assert share_up_to(t, ends[0]) == pytest.approx(0.975, abs=1e-10)
    assert share_up_to(t, ends[1]) == pytest.approx(0.025, abs=1e-10)


def test_a_d_that_is_not_defined_is_none():
    assert paired_cohens_d([1.5], 0.95) is None
    assert paired_cohens_d([2.0] * 8, 0.95) is None
    assert paired_cohens_d(np.zeros(8), 0.95) is None
    # Rounding is no spread.
    assert paired_cohens_d([0.1 + 0.2, 0.3, 0.3], 0.95) is None


def test_difference_of_means_resamples_both_sides_together():
    x, y = rng("x").normal(size=9), rng("y").normal(size=7) + 1
    w_x, w_y = stem_weights(9, 200, rng("wx")), stem_weights(7, 200, rng("wy"))
    value, low, high = difference_of_means(x, y, w_x, w_y, 0.9)
    drawn = [repeated(x, a).mean() - repeated(y, b).mean() for a, b in zip(w_x, w_y, strict=True)]
    tail = expanded_tail(0.9, 7)
    assert value == pytest.approx(x.mean() - y.mean(), rel=1e-12)
    assert [low, high] == pytest.approx(np.quantile(drawn, [tail, 1 - tail]), rel=1e-10)


def test_stems_that_both_sides_have_are_drawn_together():
    x = rng("shared").normal(size=12)
    y = x + 0.05 * rng("own").normal(size=12)
    together, apart = stem_weights(12, 400, rng("w")), stem_weights(12, 400, rng("v"))
    _, low, high = difference_of_means(x, y, together, together, 0.95)
    _, low_apart, high_apart = difference_of_means(x, y, together, apart, 0.95)
    assert None not in (low, high, low_apart, high_apart)
    assert high - low < 0.1 * (high_apart - low_apart)


def test_cliffs_delta_of_two_is_the_mean_sign_over_drawn_pairs():
    x = rng("cx").integers(0, 5, size=8).astype(float)
    y = rng("cy").integers(1, 6, size=10).astype(float)
    w_x, w_y = stem_weights(8, 150, rng("wx")), stem_weights(10, 150, rng("wy"))
    value, low, high = cliffs_delta_of_two(x, y, w_x, w_y, 0.95)

    def plain(a, b) -> float:
        return sum(int(p > q) - int(p < q) for p in a for q in b) / (len(a) * len(b))

    drawn = [plain(repeated(x, a), repeated(y, b)) for a, b in zip(w_x, w_y, strict=True)]
    tail = expanded_tail(0.95, 8)
    assert value == pytest.approx(plain(x, y), abs=1e-12)
    assert [low, high] == pytest.approx(np.quantile(drawn, [tail, 1 - tail]), abs=1e-12)


def test_too_few_stems_and_no_spread_have_no_interval():
    few, many = np.arange(5.0), np.arange(8.0)
    w_few, w_many = stem_weights(5, 50, rng("few")), stem_weights(8, 50, rng("many"))
    for of in (difference_of_means, cliffs_delta_of_two):
        assert of(few, many, w_few, w_many, 0.95)[1:] == (None, None)
        assert of(np.ones(8), np.zeros(8), w_many, w_many, 0.95)[1:] == (None, None)


def test_a_resample_without_any_of_the_stems_has_no_mean():
    means = weighted_means([1.0, 3.0], [[2, 0], [0, 0], [1, 1]])
    assert means[[0, 2]] == pytest.approx([1.0, 2.0])
    assert np.isnan(means[1])


def test_fiellers_interval_is_where_the_t_test_of_x_less_q_y_does_not_reject():
    x, y = rng("fx").normal(size=14) + 0.4, rng("fy").normal(size=11) / 3 + 1.2
    found = ratio_of_means(x, y, 0.95, covariance=0.002)
    assert found is not None
    ratio, low, high = found
    assert ratio == pytest.approx(x.mean() / y.mean())
    reach = scipy.stats.t.ppf(0.975, 10)
    for q in (low, high):
        error = math.sqrt(x.var(ddof=1) / 14 - 2 * q * 0.002 + q * q * y.var(ddof=1) / 11)
        assert abs(x.mean() - q * y.mean()) == pytest.approx(reach * error, rel=1e-9)
    assert low < ratio < high


def test_a_ratio_to_a_mean_that_may_be_zero_has_no_bounds():
    noise = rng("noise").normal(size=14)
    assert ratio_of_means(noise + 1, noise - noise.mean() + 0.1, 0.95) is None
    assert ratio_of_means([1.0], [1.0], 0.95) is None


def test_fiellers_interval_holds_the_ratio_as_often_as_it_says():
    draws = rng("coverage")
    held = 0
    for _ in range(1000):
        found = ratio_of_means(draws.normal(0.6, 1, 14), draws.normal(2.0, 1, 14), 0.95)
        held += found is not None and found[1] <= 0.3 <= found[2]
    assert 0.93 <= held / 1000 <= 0.975


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: paired_cohens_d([], 0.95), "differences: expected at least one"),
        (lambda: paired_cohens_d([1.0, 2.0], 1.0), "confidence_level: expected a number"),
        (lambda: paired_cohens_d([1.0, float("inf")], 0.9), "differences: expected finite"),
        (lambda: ratio_of_means([], [1.0], 0.95), "x: expected at least one value"),
        (lambda: weighted_means([1.0, 2.0], [[1]]), "weights_BN: expected rows of 2 weights"),
    ],
)
def test_what_has_no_size_is_refused(call, said):
    with pytest.raises(StatsInputError, match=said):
        call()
