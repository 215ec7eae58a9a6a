"""Shares of a drift's noise against replies whose parts are known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eps_locked.errors import StatsInputError
from eps_locked.stats.bootstrap import generator_from_digest
from eps_locked.stats.noise_shares import noise_shares


def rng(*labels: str) -> np.random.Generator:
    return generator_from_digest("blake3:noise", *labels)


def two_arms(n_stems: int, item: float, flips: float, label: str, n_probes=6, n_samples=2):
    """Outcomes of two arms and a second classification of the first; classes flip with ``flips``.

    ``item``: standard deviation of a stem's rate in one arm around its rate in both.
    """
    draws = rng(label)
    rate = np.clip(0.6 + 0.15 * draws.normal(size=n_stems), 0.1, 0.9)

    def arm():
        own = np.clip(rate + item * draws.normal(size=n_stems), 0, 1)
        true = draws.random((n_stems, n_probes, n_samples)) < own[:, None, None]
        return [true ^ (draws.random(true.shape) < flips) for _ in range(2)]

    first, second = arm(), arm()
    return first[0] * 1.0, second[0] * 1.0, float((first[0] != first[1]).mean())


def split(arm, reference, q, n_twice=100):
    differences = np.nanmean(arm, axis=(1, 2)) - np.nanmean(reference, axis=(1, 2))
    return noise_shares(differences, arm, reference, q, n_twice)


def test_shares_by_hand():
    # Two stems, one probe, two samples. Stem means of the arm: 1, 0.5; of the reference: 0, 0.
    arm = np.array([[[1.0, 1.0]], [[1.0, 0.0]]])
    reference = np.zeros((2, 1, 2))
    found = split(arm, reference, 0.1)
    total = np.var([1.0, 0.5], ddof=1) / 2
    by_reply = (0.5 / 2) / 2 / 2  # mean probe variance, by replies of a stem, by stems
    by_classifier = 0.1 / 2 * (1 / 2 / 2) * 2
    assert found.variance_total == pytest.approx(total)
    assert found.classifier == pytest.approx(by_classifier / total)
    assert found.model == pytest.approx((by_reply - by_classifier) / total)
    assert found.item == pytest.approx((total - by_reply) / total)
    assert found.truncated == ()


def test_parts_of_a_large_study_come_back():
    item, flips, n_stems = 0.1, 0.03, 20_000
    arm, reference, q = two_arms(n_stems, item, flips, "large")
    found = split(arm, reference, q)
    # What flips do to one reply, twelve replies a stem, two arms.
    classifier = flips * (1 - flips) / 12 * 2
    assert q == pytest.approx(2 * flips * (1 - flips), rel=0.03)
    whole = found.variance_total * n_stems
    assert found.classifier * whole == pytest.approx(classifier, rel=0.05)
    # Both arms' own rates, shrunk by the flips.
    assert found.item * whole == pytest.approx(2 * (item * (1 - 2 * flips)) ** 2, rel=0.08)
    assert found.classifier + found.model + found.item == pytest.approx(1)


def test_missing_replies_count_by_what_is_there():
    arm, reference, q = two_arms(5000, 0.1, 0.03, "missing")
    whole = split(arm, reference, q)
    gaps = rng("gaps").random(arm.shape) < 0.3
    gaps[:, 0, 0] = False
    thinner = split(np.where(gaps, np.nan, arm), reference, q)
    assert thinner.model > whole.model
    assert thinner.item * thinner.variance_total == pytest.approx(
        whole.item * whole.variance_total, rel=0.1
    )


def test_without_a_second_classification_the_classifier_is_inside_the_model():
    arm, reference, q = two_arms(500, 0.1, 0.03, "once")
    known, unknown = split(arm, reference, q), split(arm, reference, None, 0)
    assert unknown.classifier is None
    assert unknown.model == pytest.approx(known.classifier + known.model)
    assert (unknown.item, unknown.n_twice, known.n_twice) == (known.item, 0, 100)


def test_what_comes_out_below_0_is_0_and_named():
    arm, reference, _ = two_arms(40, 0.0, 0.0, "still")
    # The same difference in every stem: less than the replies' own noise would make.
    flat = np.full(40, 0.25) + np.tile([0.001, -0.001], 20)
    found = noise_shares(flat, arm, reference, 5.0, 10)
    assert found.truncated == ("model", "item")
    assert (found.classifier, found.model, found.item) == (1.0, 0.0, 0.0)
    assert noise_shares(flat, arm, reference, 0.01, 10).truncated == ("item",)


def test_no_share_of_nothing_and_none_without_a_second_sample():
    still = np.ones((5, 2, 2))
    found = split(still, still, 0.0)
    assert (found.classifier, found.model, found.item, found.variance_total) == (None,) * 3 + (0,)
    once, _, _ = two_arms(10, 0.1, 0.0, "one sample", n_samples=1)
    found = split(once, np.ones((10, 6, 1)), None, 0)
    assert (found.model, found.item) == (None, None)
    assert found.variance_total > 0


@given(st.permutations(range(12)), st.floats(0.01, 1000))
@settings(max_examples=25, deadline=None)
def test_neither_the_order_of_stems_nor_the_unit_changes_a_share(order, factor):
    arm, reference, q = two_arms(12, 0.2, 0.05, "laws")
    plain = split(arm, reference, q)
    moved = split(factor * arm[list(order)], factor * reference[list(order)], factor**2 * q)
    for part in ("classifier", "model", "item"):
        assert getattr(moved, part) == pytest.approx(getattr(plain, part))
    assert moved.variance_total == pytest.approx(factor**2 * plain.variance_total)


ONES = np.ones((2, 3, 2))
GAP = np.where(np.arange(2)[:, None, None] == 0, np.nan, ONES)


@pytest.mark.parametrize(
    ("differences", "arm", "q", "n_twice", "message"),
    [
        ([1.0], ONES[:1], None, 0, "differences_S: expected at least 2 stems, found 1"),
        ([1.0, 2, 3], ONES, None, 0, "arm_SPK: expected 3 stems x probes x samples"),
        ([1.0, 2], ONES[0], None, 0, "arm_SPK: expected 2 stems x probes x samples"),
        ([1.0, 2], GAP, None, 0, "arm_SPK: expected at least one reply for every stem"),
        ([1.0, 2], ONES * np.inf, None, 0, "arm_SPK: expected finite outcomes, or NaN"),
        ([1.0, 2], "words", None, 0, "arm_SPK: is not an array of numbers"),
        ([1.0, 2], ONES, -0.1, 3, "disagreement: expected a number of 0 or more"),
        ([1.0, 2], ONES, 0.1, 0, "disagreement: expected a figure exactly if replies"),
        ([1.0, 2], ONES, None, 4, "disagreement: expected a figure exactly if replies"),
    ],
)
def test_outcomes_that_do_not_fit_are_refused(differences, arm, q, n_twice, message):
    with pytest.raises(StatsInputError, match=message):
        noise_shares(differences, arm, ONES[: len(differences)], q, n_twice)
