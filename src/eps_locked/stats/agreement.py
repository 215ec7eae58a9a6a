"""How far two raters agree on labels: confusion matrix, Cohen's kappa, and figures per label.

One rater is the reference (rows), the other is judged against it (columns). Items are not always
independent: several answers to one question share what makes it hard, so intervals resample
clusters. A figure that is not defined is None with a reason, never 0 and never NaN.

Shape letters: N items, K labels, G clusters, B resamples.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from eps_locked.errors import StatsInputError
from eps_locked.stats.checks import FloatArray, IntArray

__all__ = [
    "Agreement",
    "Kappa",
    "KappaInterval",
    "LabelAgreement",
    "agreement",
    "cohen_kappa",
    "confusion_matrix",
    "kappa_interval",
    "label_agreement",
    "percent_agreement",
]

Weights = Literal["unweighted", "linear", "quadratic"]
# Beyond this share of resamples without a kappa, percentiles of the others say little.
_MAX_UNDEFINED_SHARE = 0.05


@dataclass(frozen=True, kw_only=True, slots=True)
class Kappa:
    """``value`` is None exactly if ``reason`` says why."""

    value: float | None
    reason: str | None
    weights: Weights


@dataclass(frozen=True, kw_only=True, slots=True)
class KappaInterval:
    """Bounds are None exactly if ``reason`` says why. ``n_undefined`` resamples had no kappa and
    are left out of the percentiles."""

    low: float | None
    high: float | None
    reason: str | None
    confidence_level: float
    n_resamples: int
    n_undefined: int
    n_clusters: int


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelAgreement:
    """One label against all others. A ratio over nothing is None.

    ``precision``: of items judged so, the share the reference calls so. ``recall``: of items the
    reference calls so, the share judged so. ``f1`` is their harmonic mean, 2 TP / (2 TP + FP + FN).
    """

    label: str
    n_reference: int
    n_judged: int
    precision: float | None
    recall: float | None
    f1: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Agreement:
    """Two raters on the same items. ``confusion`` rows are the reference, in order of labels."""

    labels: tuple[str, ...]
    n: int
    confusion: tuple[tuple[int, ...], ...]
    percent_agreement: float | None
    kappa: Kappa
    interval: KappaInterval
    by_label: tuple[LabelAgreement, ...]

    def to_dict(self) -> dict[str, Any]:
        return {
            "labels": list(self.labels),
            "n": self.n,
            "confusion": [list(row) for row in self.confusion],
            "percent_agreement": self.percent_agreement,
            "kappa": {
                "value": self.kappa.value,
                "reason": self.kappa.reason,
                "weights": self.kappa.weights,
                "low": self.interval.low,
                "high": self.interval.high,
                "interval_reason": self.interval.reason,
                "confidence_level": self.interval.confidence_level,
                "n_resamples": self.interval.n_resamples,
                "n_undefined": self.interval.n_undefined,
                "n_clusters": self.interval.n_clusters,
            },
            "by_label": [
                {
                    "label": one.label,
                    "n_reference": one.n_reference,
                    "n_judged": one.n_judged,
                    "precision": one.precision,
                    "recall": one.recall,
                    "f1": one.f1,
                }
                for one in self.by_label
            ],
        }


def agreement(
    reference: Sequence[str],
    judged: Sequence[str],
    labels: Sequence[str],
    *,
    clusters: Sequence[Hashable],
    rng: np.random.Generator,
    weights: Weights = "unweighted",
    n_resamples: int = 2000,
    confidence_level: float = 0.95,
) -> Agreement:
    """All figures of this file at once, for N items; N may be 0, and then none is defined.

    ``clusters``: which items belong together, one name for each item. With weights other than
    ``unweighted`` the order of ``labels`` is their scale.
    """
    confusion = confusion_matrix(reference, judged, labels)
    return Agreement(
        labels=tuple(labels),
        n=len(reference),
        confusion=tuple(tuple(int(count) for count in row) for row in confusion),
        percent_agreement=percent_agreement(confusion),
        kappa=cohen_kappa(confusion, weights=weights),
        interval=kappa_interval(
            reference,
            judged,
            labels,
            clusters=clusters,
            rng=rng,
            weights=weights,
            n_resamples=n_resamples,
            confidence_level=confidence_level,
        ),
        by_label=label_agreement(confusion, labels),
    )


def confusion_matrix(
    reference: Sequence[str], judged: Sequence[str], labels: Sequence[str]
) -> IntArray:
    """Counts, shape (K, K): rows reference, columns judged, both in the order of ``labels``.

    Raises StatsInputError for lists of different length, labels given twice, or an item whose
    label is none of them: leaving it out would raise the agreement of the rest.
    """
    first, second = _coded(reference, judged, labels)
    counts = np.bincount(first * len(labels) + second, minlength=len(labels) ** 2)
    return counts.reshape(len(labels), len(labels)).astype(np.int64)


def percent_agreement(confusion_KK: npt.ArrayLike) -> float | None:
    """Share of items on the diagonal, from 0 to 1; None without items."""
    counts = _counts(confusion_KK)
    total = int(counts.sum())
    return float(np.trace(counts)) / total if total else None


def cohen_kappa(confusion_KK: npt.ArrayLike, *, weights: Weights = "unweighted") -> Kappa:
    """1 - observed over chance disagreement, each weighted by the distance of the two labels.

    The distance is 1 for any two labels (unweighted), |i - j| (linear) or (i - j)^2 (quadratic),
    so weighted kappas take all K labels as a scale of equal steps, used or not. Undefined without
    items, and if both raters give everything the same one label: chance then never disagrees.
    Source: Cohen 1960, Educ. Psychol. Meas. 20(1), 37-46, and 1968, Psychol. Bull. 70(4), 213-220.
    """
    counts = _counts(confusion_KK).astype(np.float64)
    if not counts.sum():
        return Kappa(value=None, reason="there are no items", weights=weights)
    value = float(_kappas(counts[None], _distances(len(counts), weights))[0])
    if np.isnan(value):
        reason = "both raters give every item the same one label"
        return Kappa(value=None, reason=reason, weights=weights)
    return Kappa(value=value, reason=None, weights=weights)


def label_agreement(
    confusion_KK: npt.ArrayLike, labels: Sequence[str]
) -> tuple[LabelAgreement, ...]:
    """Precision, recall and F1 of each label against the others."""
    counts = _counts(confusion_KK)
    if len(counts) != len(labels):
        raise StatsInputError("labels", expected=len(counts), found=len(labels))
    found = []
    for place, label in enumerate(labels):
        hits = int(counts[place, place])
        n_reference, n_judged = int(counts[place].sum()), int(counts[:, place].sum())
        found.append(
            LabelAgreement(
                label=label,
                n_reference=n_reference,
                n_judged=n_judged,
                precision=hits / n_judged if n_judged else None,
                recall=hits / n_reference if n_reference else None,
                f1=2 * hits / (n_reference + n_judged) if n_reference + n_judged else None,
            )
        )
    return tuple(found)


def kappa_interval(
    reference: Sequence[str],
    judged: Sequence[str],
    labels: Sequence[str],
    *,
    clusters: Sequence[Hashable],
    rng: np.random.Generator,
    weights: Weights = "unweighted",
    n_resamples: int = 2000,
    confidence_level: float = 0.95,
) -> KappaInterval:
    """Percentile interval of kappa over clusters drawn with replacement, whole.

    ``clusters`` has one name for each item. A resample without a kappa (one label only) is counted
    and left out; from 5 % of them on, and with fewer than two clusters, there is no interval.
    With few clusters, or a label in very few of them, it is too short, as any bootstrap is.

    Equal input and an equal state of ``rng`` give equal bounds.
    """
    if not 0 < confidence_level < 1:
        raise StatsInputError(
            "confidence_level", expected="a number between 0 and 1", found=confidence_level
        )
    if n_resamples < 1:
        raise StatsInputError("n_resamples", expected="at least 1", found=n_resamples)
    by_cluster = _confusion_by_cluster(reference, judged, labels, clusters)
    n_clusters = len(by_cluster)

    def answer(
        reason: str | None, bounds: tuple[float | None, float | None], n_undefined: int
    ) -> KappaInterval:
        return KappaInterval(
            low=bounds[0],
            high=bounds[1],
            reason=reason,
            confidence_level=confidence_level,
            n_resamples=n_resamples if n_clusters > 1 else 0,
            n_undefined=n_undefined,
            n_clusters=n_clusters,
        )

    if n_clusters < 2:
        return answer("fewer than two clusters", (None, None), 0)
    drawn = rng.integers(0, n_clusters, size=(n_resamples, n_clusters), dtype=np.int64)
    distances = _distances(len(labels), weights)
    # One resample at a time: a block of them would hold B x G x K x K counts.
    kappas = np.array([_kappas(by_cluster[row].sum(axis=0)[None], distances)[0] for row in drawn])
    defined = kappas[~np.isnan(kappas)]
    n_undefined = n_resamples - len(defined)
    if n_undefined > _MAX_UNDEFINED_SHARE * n_resamples:
        reason = f"{n_undefined} of {n_resamples} resamples hold a single label"
        return answer(reason, (None, None), n_undefined)
    tail = (1 - confidence_level) / 2
    low, high = np.quantile(defined, [tail, 1 - tail], method="linear")
    return answer(None, (float(low), float(high)), n_undefined)


def _kappas(counts_BKK: FloatArray, distances_KK: FloatArray) -> FloatArray:
    """Shape (B,); NaN where chance cannot disagree."""
    total = counts_BKK.sum(axis=(1, 2))
    chance = np.einsum("bi,bj->bij", counts_BKK.sum(axis=2), counts_BKK.sum(axis=1))
    observed = (counts_BKK * distances_KK).sum(axis=(1, 2)) * total
    expected = (chance * distances_KK).sum(axis=(1, 2))
    undefined = expected == 0
    ratios: FloatArray = observed / np.where(undefined, 1, expected)
    return np.where(undefined, np.nan, 1 - ratios)


def _distances(n_labels: int, weights: Weights) -> FloatArray:
    places = np.arange(n_labels, dtype=np.float64)
    apart = np.abs(places[:, None] - places)
    return {"unweighted": (apart > 0).astype(np.float64), "linear": apart, "quadratic": apart**2}[
        weights
    ]


def _confusion_by_cluster(
    reference: Sequence[str],
    judged: Sequence[str],
    labels: Sequence[str],
    clusters: Sequence[Hashable],
) -> FloatArray:
    """Shape (G, K, K), clusters in the order in which they first occur."""
    first, second = _coded(reference, judged, labels)
    if len(clusters) != len(first):
        raise StatsInputError("clusters", expected=f"{len(first)} names", found=len(clusters))
    number: dict[Hashable, int] = {}
    for name in clusters:
        number.setdefault(name, len(number))
    which = np.array([number[name] for name in clusters], dtype=np.int64)
    n_cells = len(labels) ** 2
    counts = np.bincount(
        which * n_cells + first * len(labels) + second, minlength=len(number) * n_cells
    )
    return counts.reshape(len(number), len(labels), len(labels)).astype(np.float64)


def _coded(
    reference: Sequence[str], judged: Sequence[str], labels: Sequence[str]
) -> tuple[IntArray, IntArray]:
    place = {label: number for number, label in enumerate(labels)}
    if len(place) != len(labels) or not labels:
        raise StatsInputError("labels", expected="distinct labels", found=list(labels))
    if len(reference) != len(judged):
        raise StatsInputError("judged", expected=f"{len(reference)} labels", found=len(judged))
    for name, given in (("reference", reference), ("judged", judged)):
        unknown = next((label for label in given if label not in place), None)
        if unknown is not None:
            raise StatsInputError(name, expected=f"labels of {list(labels)}", found=unknown)
    return (
        np.array([place[label] for label in reference], dtype=np.int64),
        np.array([place[label] for label in judged], dtype=np.int64),
    )


def _counts(confusion: npt.ArrayLike) -> IntArray:
    counts = np.asarray(confusion)
    if counts.ndim != 2 or counts.shape[0] != counts.shape[1] or not counts.size:
        raise StatsInputError("confusion_KK", expected="a square matrix", found=counts.shape)
    if not np.issubdtype(counts.dtype, np.integer) or (counts < 0).any():
        raise StatsInputError("confusion_KK", expected="counts of 0 or more", found="others")
    return counts.astype(np.int64)
