"""Agreement of two raters: against scikit-learn, a published example, and where nothing is said."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import cohen_kappa_score, precision_recall_fscore_support
from sklearn.metrics import confusion_matrix as sklearn_confusion

from eps_locked.errors import StatsInputError
from eps_locked.stats.agreement import (
    agreement,
    cohen_kappa,
    confusion_matrix,
    kappa_interval,
    label_agreement,
    percent_agreement,
)

LABELS = ("low", "middle", "high")
SKLEARN_WEIGHTS = {"unweighted": None, "linear": "linear", "quadratic": "quadratic"}
pairs = st.lists(
    st.tuples(st.sampled_from(LABELS), st.sampled_from(LABELS)), min_size=1, max_size=40
)


def rng(seed: int = 7) -> np.random.Generator:
    return np.random.default_rng(seed)


def kappa_of(reference, judged, weights="unweighted"):
    return cohen_kappa(confusion_matrix(reference, judged, LABELS), weights=weights)


def test_worked_example_of_two_readers():
    # Cohen's kappa of 50 grant proposals read twice: 20 both yes, 15 both no, 5 and 10 between.
    kappa = cohen_kappa([[20, 5], [10, 15]])
    assert kappa.value == pytest.approx(0.4, abs=1e-12)
    assert percent_agreement([[20, 5], [10, 15]]) == pytest.approx(0.7)


@pytest.mark.parametrize("weights", SKLEARN_WEIGHTS)
@pytest.mark.parametrize("seed", range(5))
def test_kappa_agrees_with_scikit_learn(weights, seed):
    draw = rng(seed)
    reference = draw.choice(LABELS, size=60, p=[0.6, 0.3, 0.1])
    judged = np.where(draw.random(60) < 0.7, reference, draw.choice(LABELS, size=60))
    expected = cohen_kappa_score(
        reference, judged, labels=list(LABELS), weights=SKLEARN_WEIGHTS[weights]
    )
    assert kappa_of(reference, judged, weights).value == pytest.approx(expected, abs=1e-12)


@given(pairs)
@settings(max_examples=60, deadline=None)
def test_any_confusion_matrix_and_kappa_agree_with_scikit_learn(items):
    reference, judged = zip(*items, strict=True)
    expected = sklearn_confusion(reference, judged, labels=list(LABELS))
    found = confusion_matrix(reference, judged, LABELS)
    assert (found == expected).all()
    kappa = cohen_kappa(found)
    if len({*reference, *judged}) == 1:
        assert kappa.value is None
        assert "same one label" in str(kappa.reason)
    else:
        assert kappa.value == pytest.approx(cohen_kappa_score(reference, judged), abs=1e-12)
        assert kappa.reason is None


@given(pairs)
@settings(max_examples=40, deadline=None)
def test_per_label_figures_agree_with_scikit_learn(items):
    reference, judged = zip(*items, strict=True)
    expected = precision_recall_fscore_support(
        reference, judged, labels=list(LABELS), zero_division=np.nan
    )
    found = label_agreement(confusion_matrix(reference, judged, LABELS), LABELS)
    for column, name in enumerate(("precision", "recall", "f1")):
        values = [np.nan if getattr(one, name) is None else getattr(one, name) for one in found]
        assert values == pytest.approx(expected[column].tolist(), abs=1e-12, nan_ok=True)
    assert [one.n_reference for one in found] == expected[3].tolist()


def test_rows_of_the_confusion_matrix_are_the_reference():
    found = confusion_matrix(["low", "low", "high"], ["low", "high", "high"], LABELS)
    assert found.tolist() == [[1, 0, 1], [0, 0, 0], [0, 0, 1]]


def test_swapping_the_raters_transposes_and_keeps_kappa():
    first, second = ["low"] * 5 + ["high"] * 3, ["low"] * 4 + ["high"] * 2 + ["middle"] * 2
    assert (
        confusion_matrix(first, second, LABELS) == confusion_matrix(second, first, LABELS).T
    ).all()
    one, other = kappa_of(first, second).value, kappa_of(second, first).value
    assert one == pytest.approx(other, abs=1e-15)


def test_quadratic_weights_forgive_neighbours():
    reference = ["low", "middle", "high"] * 10
    near = ["middle", "middle", "high"] * 10
    far = ["high", "middle", "high"] * 10
    assert kappa_of(reference, near).value == pytest.approx(kappa_of(reference, far).value)
    assert (
        kappa_of(reference, near, "quadratic").value > kappa_of(reference, far, "quadratic").value
    )


def test_undefined_figures_are_none_with_a_reason():
    nothing = agreement([], [], LABELS, clusters=[], rng=rng())
    assert nothing.percent_agreement is None
    assert nothing.kappa.reason == "there are no items"
    assert nothing.interval.reason == "fewer than two clusters"
    one = agreement(["low"] * 4, ["low"] * 4, LABELS, clusters=list("abcd"), rng=rng())
    assert one.percent_agreement == 1.0
    assert one.kappa.value is None
    assert one.interval.low is None
    assert "2000 of 2000" in str(one.interval.reason)
    assert one.by_label[1].precision is None
    assert one.by_label[1].f1 is None


def test_two_raters_with_one_label_each_that_never_meet_have_kappa_zero():
    assert kappa_of(["low"] * 3, ["high"] * 3).value == 0.0


def test_interval_holds_kappa_and_depends_on_the_seed_alone():
    draw = rng(3)
    reference = draw.choice(LABELS, size=90)
    judged = np.where(draw.random(90) < 0.8, reference, draw.choice(LABELS, size=90))
    clusters = np.repeat(np.arange(30), 3).tolist()

    def interval(seed):
        return kappa_interval(reference, judged, LABELS, clusters=clusters, rng=rng(seed))

    found = interval(5)
    assert found.low < kappa_of(reference, judged).value < found.high
    assert found.n_clusters == 30
    assert interval(5) == found
    assert interval(6) != found


def test_items_of_one_cluster_are_drawn_together():
    # Every item three times over: as clusters the copies add nothing, as items they seem to.
    draw = rng(4)
    reference = draw.choice(LABELS, size=40)
    judged = np.where(draw.random(40) < 0.7, reference, draw.choice(LABELS, size=40))

    def width(times, clusters):
        found = kappa_interval(
            np.tile(reference, times), np.tile(judged, times), LABELS, clusters=clusters, rng=rng()
        )
        return found.high - found.low

    once = width(1, list(range(40)))
    assert width(3, list(range(40)) * 3) == pytest.approx(once, abs=1e-12)
    assert width(3, list(range(120))) < 0.75 * once


def test_interval_covers_the_true_kappa_about_as_often_as_it_says():
    draw = rng(11)
    # Right with 0.6, else one of four at random: chance agreement 1/4, agreement 0.7, kappa 0.6.
    truth, labels, hits, n_studies = 0.6, ("a", "b", "c", "d"), 0, 120
    for _ in range(n_studies):
        reference = draw.choice(labels, size=150)
        judged = np.where(draw.random(150) < 0.6, reference, draw.choice(labels, size=150))
        found = kappa_interval(
            reference, judged, labels, clusters=list(range(150)), rng=draw, n_resamples=200
        )
        hits += found.low <= truth <= found.high
    assert 0.88 <= hits / n_studies <= 1.0


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: confusion_matrix(["low"], ["low", "high"], LABELS), "judged"),
        (lambda: confusion_matrix(["low"], ["tall"], LABELS), "tall"),
        (lambda: confusion_matrix(["low"], ["low"], ["low", "low"]), "labels"),
        (lambda: confusion_matrix([], [], []), "labels"),
        (lambda: cohen_kappa([[1, 2, 3]]), "square"),
        (lambda: cohen_kappa([[1, -1], [0, 2]]), "counts"),
        (lambda: cohen_kappa([[0.5, 1], [0, 2]]), "counts"),
        (lambda: label_agreement([[1, 0], [0, 1]], LABELS), "labels"),
        (
            lambda: kappa_interval(["low"], ["low"], LABELS, clusters=[], rng=rng()),
            "clusters",
        ),
        (
            lambda: kappa_interval(
                ["low"], ["low"], LABELS, clusters=["a"], rng=rng(), confidence_level=1
            ),
            "confidence_level",
        ),
        (
            lambda: kappa_interval(
                ["low"], ["low"], LABELS, clusters=["a"], rng=rng(), n_resamples=0
            ),
            "n_resamples",
        ),
    ],
)
def test_what_no_agreement_may_be_computed_from_is_refused(call, named):
    with pytest.raises(StatsInputError, match=named):
        call()
