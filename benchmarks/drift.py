"""Drifts of 40 arms with their intervals, from the replies: how long, beside scipy.stats.bootstrap.

One battery: 30 stems, six rewordings, two samples, 40 arms and their reference, 10,000 resamples of
stems. Each drift gets the interval of ``stem_effects``, which is the outer of scipy's percentile
and BCa intervals at the expanded level; scipy is asked for both from one set of resamples, with the
same generator, and the ends have to agree.

scipy is timed three ways: with a statistic that averages the replies of the stems it is handed, one
resample a call (what scipy does with a plain function); with the same, vectorised; and vectorised
on one difference a stem. The last is told beforehand what makes ours fast, that replies need to be
averaged once only. The first ratio is held, the others are printed.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import scipy.stats

from benchmarks.rows import Row
from eps_locked.stats.bootstrap import generator_from_digest
from eps_locked.stats.stem_bootstrap import expanded_tail, stem_effects, stem_weights
from eps_locked.stats.stem_replies import ReplyModel, simulate_replies

N_ARMS, N_STEMS, N_PROBES, N_SAMPLES = 40, 30, 6, 2
N_RESAMPLES = 10_000
_LEVEL = 0.95
_REPEATS = 5


def bench_drift() -> list[Row]:
    """Best of five for ours, one run of all 40 arms for scipy."""
    reference_SPK, arms_ASPK = _replies()
    seconds, ours = _best(lambda: _ours(reference_SPK, arms_ASPK))
    rows = [
        Row(
            what=f"{N_RESAMPLES:,} stem resamples, {N_ARMS} arms x {N_STEMS * N_PROBES} probes "
            f"x {N_SAMPLES} samples",
            value=f"{1000 * seconds:.0f} ms",
            target="< 1 s",
            holds=seconds < 1,
        )
    ]
    for name, statistic_of, least in (
        ("on replies", _one_by_one, 50.0),
        ("on replies, vectorised,", _from_replies, 0.0),
        ("on stem means, vectorised,", _from_stem_means, 0.0),
    ):
        begun = time.perf_counter()
        theirs = np.array([_scipy(*statistic_of(reference_SPK, arm)) for arm in arms_ASPK])
        ratio = (time.perf_counter() - begun) / seconds
        apart = float(np.abs(theirs - ours).max())
        rows.append(
            Row(
                what=f"scipy.stats.bootstrap {name} / ours",
                value=f"{ratio:.0f}, ends at most {apart:.0e} apart",
                target=(f">= {least:g} and " if least else "no ratio; ") + "ends within 1e-12",
                holds=ratio >= least and apart <= 1e-12,
            )
        )
    return rows


def _replies() -> tuple[np.ndarray, np.ndarray]:
    """The reference's replies (S, P, K) and the arms' (A, S, P, K)."""
    rng = generator_from_digest("drift benchmark")
    model = ReplyModel.fitting(
        rate=0.9, drift=-4.0, stem_sd=8.0, within_variance=700.0, n_probes=N_PROBES
    )
    assert model is not None
    reference, arms = simulate_replies(model, rng, (N_ARMS, N_STEMS, N_SAMPLES))
    return reference[0].astype(np.float64), arms.astype(np.float64)


def _resampling_rng() -> np.random.Generator:
    return generator_from_digest("drift benchmark", "stems")


def _ours(reference_SPK: np.ndarray, arms_ASPK: np.ndarray) -> np.ndarray:
    """Ends of every arm's interval, (A, 2)."""
    differences = arms_ASPK.mean(axis=(2, 3)) - reference_SPK.mean(axis=(1, 2))
    weights = stem_weights(N_STEMS, N_RESAMPLES, _resampling_rng())
    found = stem_effects(differences, weights, (_LEVEL,), largest_step=2)
    return np.array([[one.low, one.high] for (one,) in found])


# scipy calls one that has an ``axis`` with all resamples at once.
Statistic = Callable[..., np.ndarray | float]


def _one_by_one(reference_SPK: np.ndarray, arm_SPK: np.ndarray) -> tuple[np.ndarray, Statistic]:
    """Stems by their number, and the drift over all replies of the stems drawn."""

    def drift(stems: np.ndarray) -> float:
        return float(arm_SPK[stems].sum() - reference_SPK[stems].sum()) / arm_SPK.size

    return np.arange(N_STEMS), drift


def _from_replies(reference_SPK: np.ndarray, arm_SPK: np.ndarray) -> tuple[np.ndarray, Statistic]:
    """``_one_by_one`` for all resamples at once."""

    def drift(stems: np.ndarray, axis: int) -> np.ndarray:
        replies = (axis - 2, -2, -1)
        aligned = arm_SPK[stems].sum(axis=replies) - reference_SPK[stems].sum(axis=replies)
        # Divided last: whole numbers tie where they should, and BCa counts ties.
        return aligned / arm_SPK.size

    return np.arange(N_STEMS), drift


def _from_stem_means(
    reference_SPK: np.ndarray, arm_SPK: np.ndarray
) -> tuple[np.ndarray, Statistic]:
    aligned_S = arm_SPK.sum(axis=(1, 2)) - reference_SPK.sum(axis=(1, 2))

    def drift(drawn: np.ndarray, axis: int) -> np.ndarray:
        return drawn.sum(axis=axis) / arm_SPK.size

    return aligned_S, drift


def _scipy(data: np.ndarray, statistic: Statistic) -> tuple[float, float]:
    """The outer of the percentile and the BCa interval, at the level that ours are taken at."""
    level = 1 - 2 * expanded_tail(_LEVEL, N_STEMS)
    resampled = scipy.stats.bootstrap(
        (data,),
        statistic,
        n_resamples=N_RESAMPLES,
        confidence_level=level,
        method="percentile",
        rng=_resampling_rng(),
    )
    corrected = scipy.stats.bootstrap(
        (data,),
        statistic,
        n_resamples=0,
        confidence_level=level,
        method="BCa",
        bootstrap_result=resampled,
    )
    ends = resampled.confidence_interval, corrected.confidence_interval
    return min(one.low for one in ends), max(one.high for one in ends)


def _best(run: Callable[[], np.ndarray]) -> tuple[float, np.ndarray]:
    times = []
    for _ in range(_REPEATS):
        begun = time.perf_counter()
        result = run()
        times.append(time.perf_counter() - begun)
    return min(times), result
