"""The arithmetic of the baselines: arrays, texts and numbers in, numbers out. Pure.

Shape letters: N points (items), D width of the residual stream, K principal components.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from eps_locked.errors import StatsInputError
from eps_locked.stats.bootstrap import generator_from_digest
from eps_locked.studies.eps.baselines.arrays import FloatArray

__all__ = [
    "gaussian_kl",
    "ngram_distance",
    "one_cycle",
    "persona_vector",
    "projection",
    "shrunk_covariance",
    "symmetric_gaussian_kl",
    "unit",
]


def symmetric_gaussian_kl(
    one_ND: FloatArray, two_ND: FloatArray, *, n_components: int, shrinkage: float
) -> float:
    """Symmetrised KL of two clouds' Gaussians, in nats: the mean of both directions, at least 0.

    Both clouds are projected on the first ``n_components`` principal axes of the two pooled (the
    axes of these two alone, so no third context takes part in their distance). Each covariance is
    (1 - shrinkage) S + shrinkage v I, where v is the mean variance per axis within the clouds;
    where neither has any, of the pooled cloud. Equal clouds give exactly 0.

    Raises StatsInputError for clouds of unequal width, fewer than two points, numbers that are not
    finite, no component or a shrinkage outside (0, 1].
    """
    _require_clouds(one_ND, two_ND, n_components, shrinkage)
    if one_ND.shape == two_ND.shape and np.array_equal(one_ND, two_ND):
        return 0.0
    pooled_ND = np.concatenate([one_ND, two_ND])
    centre_D = pooled_ND.mean(axis=0)
    _, singular_M, axes_MD = np.linalg.svd(pooled_ND - centre_D, full_matrices=False)
    if not singular_M[0] > 0:
        return 0.0
    # Axes along which the pooled cloud has no extent carry nothing and would only divide by it.
    n_real = int((singular_M > singular_M[0] * 1e-6).sum())
    axes_KD = axes_MD[: min(n_components, n_real)]
    one_NK, two_NK = (one_ND - centre_D) @ axes_KD.T, (two_ND - centre_D) @ axes_KD.T
    spread_one, spread_two = _covariance(one_NK), _covariance(two_NK)
    k = axes_KD.shape[0]
    variance = float(np.trace(spread_one) + np.trace(spread_two)) / (2 * k)
    if variance <= 0:
        variance = float(np.trace(_covariance(np.concatenate([one_NK, two_NK])))) / k
    means = one_NK.mean(axis=0), two_NK.mean(axis=0)
    one = shrunk_covariance(spread_one, shrinkage, variance)
    two = shrunk_covariance(spread_two, shrinkage, variance)
    there = gaussian_kl(means[0], one, means[1], two)
    back = gaussian_kl(means[1], two, means[0], one)
    return max(0.0, (there + back) / 2)


def gaussian_kl(
    mean_p_K: FloatArray, cov_p_KK: FloatArray, mean_q_K: FloatArray, cov_q_KK: FloatArray
) -> float:
    """KL(p || q) of two normal distributions with invertible covariances, in nats.

    (tr(Sq^-1 Sp) + (mq - mp)' Sq^-1 (mq - mp) - K + ln det Sq - ln det Sp) / 2
    """
    gap_K = mean_q_K - mean_p_K
    solved = np.linalg.solve(cov_q_KK, np.column_stack([cov_p_KK, gap_K]))
    trace, distance = float(np.trace(solved[:, :-1])), float(gap_K @ solved[:, -1])
    log_det_p, log_det_q = np.linalg.slogdet(cov_p_KK)[1], np.linalg.slogdet(cov_q_KK)[1]
    return (trace + distance - len(gap_K) + float(log_det_q - log_det_p)) / 2


def shrunk_covariance(cov_KK: FloatArray, shrinkage: float, variance: float) -> FloatArray:
    """A covariance drawn towards ``variance`` on every axis: invertible however few the points."""
    return (1 - shrinkage) * cov_KK + shrinkage * variance * np.eye(len(cov_KK))


def persona_vector(positive_ND: FloatArray, negative_ND: FloatArray) -> FloatArray:
    """Mean of the positives less mean of the negatives, shape (D,).

    Source: Chen et al. 2025, arXiv:2507.21509, section 2.2.
    """
    return np.asarray(positive_ND.mean(axis=0) - negative_ND.mean(axis=0), dtype=np.float64)


def unit(vector_D: FloatArray, thing: str) -> FloatArray:
    """The direction of a vector. Raises StatsInputError for the zero vector, which has none."""
    norm = float(np.linalg.norm(vector_D))
    if not norm > 0:
        raise StatsInputError(thing, expected="a vector that is not zero", found="zero")
    return vector_D / norm


def projection(differences_ND: FloatArray, vector_D: FloatArray, share: float, thing: str) -> float:
    """Mean projection of the rows' activation differences on the direction of ``vector_D``.

    ``share`` is the part of all training rows that these rows stand for; the others' differences
    are 0 because what they teach is what the base model writes by itself.
    """
    return share * float(differences_ND.mean(axis=0) @ unit(vector_D, thing))


def ngram_distance(one: str, two: str, n: int) -> float:
    """1 - Jaccard index of the two texts' sets of character n-grams, in [0, 1].

    A text shorter than n counts as one gram, itself; so equal texts always give 0.
    """
    left, right = _ngrams(one, n), _ngrams(two, n)
    return 1 - len(left & right) / len(left | right)


def one_cycle(groups: Iterable[Sequence[str]], seed: int, *labels: str) -> dict[str, str]:
    """A seeded permutation within each group that moves every name of a group of two or more.

    One cycle through each group (Sattolo 1986), so that the control shares no context with what it
    permutes; a group of one stays as it is.
    """
    rng = generator_from_digest(str(seed), *labels)
    moved: dict[str, str] = {}
    for group in groups:
        names = list(group)
        for last in range(len(names) - 1, 0, -1):
            other = int(rng.integers(0, last))
            names[last], names[other] = names[other], names[last]
        moved |= dict(zip(group, names, strict=True))
    return moved


def _ngrams(text: str, n: int) -> set[str]:
    return {text[k : k + n] for k in range(max(1, len(text) - n + 1))}


def _covariance(points_NK: FloatArray) -> FloatArray:
    """With the N - 1 denominator."""
    centred_NK = points_NK - points_NK.mean(axis=0)
    return np.asarray(centred_NK.T @ centred_NK / (len(points_NK) - 1), dtype=np.float64)


def _require_clouds(
    one_ND: FloatArray, two_ND: FloatArray, n_components: int, shrinkage: float
) -> None:
    for name, cloud in (("first cloud", one_ND), ("second cloud", two_ND)):
        if cloud.ndim != 2 or len(cloud) < 2 or cloud.shape[1] == 0:
            raise StatsInputError(name, expected="shape (N, D), N >= 2", found=cloud.shape)
        if not np.isfinite(cloud).all():
            raise StatsInputError(name, expected="finite numbers", found="NaN or infinite")
    if one_ND.shape[1] != two_ND.shape[1]:
        raise StatsInputError("clouds", expected="one width", found=(one_ND.shape, two_ND.shape))
    if n_components < 1 or not 0 < shrinkage <= 1:
        raise StatsInputError(
            "n_components and shrinkage",
            expected="at least 1 and in (0, 1]",
            found=(n_components, shrinkage),
        )
