"""Resampled tests against scipy and a plain loop over the samples that weights stand for."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats

from eps_locked.errors import StatsInputError
from eps_locked.stats.bootstrap import generator_from_digest
from eps_locked.stats.breadth import breadth_interval, resampled_signed_rank, resampled_verdicts
from eps_locked.stats.multiplicity import benjamini_hochberg
from eps_locked.stats.stem_bootstrap import stem_weights


def rng(*labels: str) -> np.random.Generator:
    return generator_from_digest("blake3:breadth", *labels)


def test_each_resamples_p_is_scipys_of_the_sample_it_stands_for():
    values = np.round(rng("values").normal(size=14) + 0.3, 1)
    values[3] = 0.0
    weights = stem_weights(14, 60, rng("weights"))
    for row, p in zip(weights, resampled_signed_rank(values, weights), strict=True):
        expected = scipy.stats.wilcoxon(
            np.repeat(values, row),
            alternative="greater",
            zero_method="pratt",
            correction=True,
            method="asymptotic",
        )
        assert p == pytest.approx(expected.pvalue, abs=1e-10)


def test_verdicts_are_those_of_a_plain_loop():
    draws = rng("loop")
    families = [draws.normal(shift, 0.6, size=10) for shift in (0.0, 0.4, 0.8)]
    weights = [stem_weights(10, 80, rng("w", str(n))) for n in range(3)]
    found = resampled_verdicts(families, weights, alpha=0.05, margin=0.5, equivalence_level=0.9)
    expected = []
    for b in range(80):
        samples = [np.repeat(v, w[b]) for v, w in zip(families, weights, strict=True)]
        p = benjamini_hochberg(
            [
                resampled_signed_rank(v, w[b : b + 1])[0]
                for v, w in zip(families, weights, strict=True)
            ]
        )
        ends = [
            one.mean() + scipy.stats.t.ppf(0.95, 9) * one.std(ddof=1) / math.sqrt(10)
            for one in samples
        ]
        expected.append(
            [
                bool(q <= 0.05 and one.mean() > 0 and end >= 0.5)
                for q, one, end in zip(p, samples, ends, strict=True)
            ]
        )
    assert found.tolist() == expected
    assert 0 < found.mean() < 1


def test_a_resample_of_zeros_or_without_stems_finds_nothing():
    weights = np.array([[2, 0], [0, 0], [0, 2]])
    found = resampled_verdicts(
        [[0.0, 1.0]], [weights], alpha=0.9, margin=0.5, equivalence_level=0.9
    )
    assert found[:, 0].tolist() == [False, False, True]
    assert resampled_signed_rank([0.0, 0.0], weights).tolist() == [1.0, 1.0, 1.0]


def test_significant_and_wholly_below_the_margin_is_not_found():
    values = [np.linspace(0.1, 0.2, 12)]
    weights = [stem_weights(12, 50, rng("small"))]
    usual = {"alpha": 0.05, "equivalence_level": 0.9}
    assert not resampled_verdicts(values, weights, margin=0.5, **usual).any()
    assert resampled_verdicts(values, weights, margin=0.05, **usual).all()


def test_the_interval_has_ends_that_resamples_gave_and_holds_the_score():
    found = np.zeros((100, 6), dtype=bool)
    found[:40, 0] = True
    found[:3, :4] = True
    assert breadth_interval(found, 1 / 6, 0.95) == (0.0, pytest.approx(4 / 6))
    assert breadth_interval(found, 1.0, 0.95) == (0.0, 1.0)
    assert breadth_interval(np.ones((50, 6)), 1.0, 0.95) == (1.0, 1.0)


@pytest.mark.parametrize(
    ("families", "weights", "said"),
    [
        ([], [], "families: expected at least one"),
        ([[1.0]], [], "families: expected at least one, each with weights"),
        ([[1.0, 2.0]], [[[1]]], "weights_BS: expected rows of 2 weights"),
        ([[float("nan")]], [[[1]]], "values_S: expected finite numbers"),
    ],
)
def test_what_does_not_fit_is_refused(families, weights, said):
    with pytest.raises(StatsInputError, match=said):
        resampled_verdicts(families, weights, alpha=0.05, margin=0.5, equivalence_level=0.9)
