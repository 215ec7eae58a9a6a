"""How often intervals of a drift hold the truth, and null tests reject, in simulated studies.

Replies to reworded questions (``stats.stem_replies``): 6 rewordings a stem, 2 samples each, rates
that vary over stems and rewordings, and differences of the arms that vary over stems. Every
condition is played without a drift in the mean and with one of 2.8 standard errors. Seven ways to
an interval see the same studies:

    rows          percentile bootstrap of replies, as if each were independent
    percentile    of resampled stems
    expanded      the same, taken further out (Hesterberg)
    BCa           expanded, corrected for bias and skewness
    bootstrap-t   of resampled stems
    t             over stems
    ours          the outer of "expanded" and "BCa": ``stem_effects`` itself

Ours is held at 30 stems: 93.5 to 96.5 % of intervals, and 3.5 to 6.5 % of null tests. With fewer
stems, and near the ceiling, where few stems move at all, the figures are printed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy.special

from benchmarks.rows import Row
from eps_locked.stats.bootstrap import generator_from_digest
from eps_locked.stats.resolution import minimum_detectable_effect
from eps_locked.stats.stem_bootstrap import expanded_tail, stem_effects, stem_weights
from eps_locked.stats.stem_power import Assumptions
from eps_locked.stats.stem_replies import ReplyModel, simulate_replies

N_EXPERIMENTS = 10_000
N_RESAMPLES = 2_000
_LEVEL = 0.95
_N_PROBES, _N_SAMPLES = 6, 2
_BLOCK = 100
_STEMS = (8, 12, 30)
_HELD_AT = 30
_COVERAGE, _REJECTION = (0.935, 0.965), (0.035, 0.065)


@dataclass(frozen=True, kw_only=True, slots=True)
class Condition:
    """Rates in [0, 1]; ``stem_sd`` in points, ``within_variance`` in points squared."""

    rate: float
    stem_sd: float
    within_variance: float
    is_held: bool = True


CONDITIONS = (
    Condition(rate=0.5, stem_sd=8, within_variance=1500),
    Condition(rate=0.5, stem_sd=18, within_variance=1000),
    Condition(rate=0.85, stem_sd=6, within_variance=800),
    Condition(rate=0.85, stem_sd=12, within_variance=600),
    Condition(rate=0.95, stem_sd=4, within_variance=300),
    Condition(rate=0.95, stem_sd=7, within_variance=250),
    Condition(rate=0.97, stem_sd=3, within_variance=150, is_held=False),
)


def bench_drift_coverage(n_experiments: int = N_EXPERIMENTS) -> list[Row]:
    rows = []
    for n_stems in _STEMS:
        for condition in CONDITIONS:
            rows += _rows(condition, n_stems, n_experiments)
    return rows


def _rows(condition: Condition, n_stems: int, n_experiments: int) -> list[Row]:
    is_held = condition.is_held and n_stems == _HELD_AT
    named = (
        f"{n_stems} stems, rate {condition.rate:g}, stem sd {condition.stem_sd:g}, "
        f"within {condition.within_variance:g}"
    )
    rows = []
    rng = generator_from_digest("drift coverage", named)
    for drift_name, n_errors in (("no drift", 0.0), ("2.8 standard errors", 2.8)):
        model = model_of(condition, n_stems, n_errors)
        holds, rejects = played(model, n_stems, n_experiments, rng)
        band = _band(_COVERAGE, n_experiments)
        rows.append(
            Row(
                what=f"{named}, {drift_name} ({model.drift:.1f} points): intervals that hold it",
                value=_listed(holds, n_experiments),
                target="ours 93.5-96.5 %" if is_held else "none",
                holds=not is_held or band[0] <= holds["ours"] <= band[1],
            )
        )
        if n_errors == 0:
            band = _band(_REJECTION, n_experiments)
            rows.append(
                Row(
                    what=f"{named}: null tests that reject",
                    value=_listed(rejects, n_experiments),
                    target="ours 3.5-6.5 %" if is_held else "none",
                    holds=not is_held or band[0] <= rejects["ours"] <= band[1],
                )
            )
    return rows


def model_of(condition: Condition, n_stems: int, n_errors: float) -> ReplyModel:
    """A drift of so many of its own standard errors, towards the middle of the scale."""
    size = 0.0
    for _ in range(100):
        model = ReplyModel.fitting(
            rate=condition.rate,
            drift=-size,
            stem_sd=condition.stem_sd,
            within_variance=condition.within_variance,
            n_probes=_N_PROBES,
        )
        assert model is not None, condition
        assumed = Assumptions(
            stem_sd=model.stem_sd,
            within_variance=condition.within_variance,
            n_probes=_N_PROBES,
            n_samples=_N_SAMPLES,
        )
        before = size
        size = n_errors / 2.8 * minimum_detectable_effect(assumed.standard_error(n_stems))
        if abs(size - before) <= 1e-3 * size:
            break
    return model


def played(
    model: ReplyModel, n_stems: int, n_experiments: int, rng: np.random.Generator
) -> tuple[dict[str, float], dict[str, float]]:
    """Shares of the intervals that hold the drift, and of null tests that leave out 0."""
    n_held: dict[str, int] = {}
    n_rejected: dict[str, int] = {}
    for begin in range(0, n_experiments, _BLOCK):
        size = min(_BLOCK, n_experiments - begin)
        reference, arm = simulate_replies(model, rng, (size, n_stems, _N_SAMPLES))
        drifts = 100 * (arm.astype(np.float64) - reference)
        for name, (low, high) in intervals(drifts, rng).items():
            held = (low - 1e-9 <= model.drift) & (model.drift <= high + 1e-9)
            n_held[name] = n_held.get(name, 0) + int(held.sum())
        null = 100 * (reference[..., 1:].astype(np.float64) - reference[..., :1])
        for name, (low, high) in intervals(null, rng).items():
            n_rejected[name] = n_rejected.get(name, 0) + int(((low > 1e-9) | (high < -1e-9)).sum())
    return (
        {name: n / n_experiments for name, n in n_held.items()},
        {name: n / n_experiments for name, n in n_rejected.items()},
    )


def intervals(
    differences_ESPK: np.ndarray, rng: np.random.Generator
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Lower and upper ends, (E,) each, by construction."""
    n_stems = differences_ESPK.shape[1]
    rows_ER = differences_ESPK.reshape(len(differences_ESPK), -1)
    by_row = rows_ER @ stem_weights(rows_ER.shape[1], N_RESAMPLES, rng).T / rows_ER.shape[1]
    tail = (1 - _LEVEL) / 2
    found = {"rows": _quantiles(by_row, tail, 1 - tail)}

    values_ES = differences_ESPK.mean(axis=(2, 3))
    weights_BS = stem_weights(n_stems, N_RESAMPLES, rng)
    means_EB = values_ES @ weights_BS.T / n_stems
    found["percentile"] = _quantiles(means_EB, tail, 1 - tail)
    out = expanded_tail(_LEVEL, n_stems)
    found["expanded"] = _quantiles(means_EB, out, 1 - out)
    found["BCa"] = _bca(values_ES, means_EB, out)

    mean_E, error_E = values_ES.mean(axis=1), values_ES.std(axis=1, ddof=1) / math.sqrt(n_stems)
    squares_EB = np.square(values_ES) @ weights_BS.T / n_stems
    errors_EB = np.sqrt(np.maximum(squares_EB - np.square(means_EB), 0) / (n_stems - 1))
    # A resample without spread has no t; it counts as 0.
    t_EB = np.divide(
        means_EB - mean_E[:, None], errors_EB, out=np.zeros_like(means_EB), where=errors_EB > 1e-9
    )
    low_t, high_t = _quantiles(t_EB, tail, 1 - tail)
    found["bootstrap-t"] = mean_E - high_t * error_E, mean_E - low_t * error_E
    reach = scipy.special.stdtrit(n_stems - 1, 1 - tail) * error_E
    found["t"] = mean_E - reach, mean_E + reach
    ours = [one for (one,) in stem_effects(values_ES, weights_BS, (_LEVEL,), largest_step=200)]
    found["ours"] = np.array([one.low for one in ours]), np.array([one.high for one in ours])
    return found


def _bca(values_ES: np.ndarray, means_EB: np.ndarray, tail: float) -> tuple[np.ndarray, np.ndarray]:
    mean = values_ES.mean(axis=1, keepdims=True)
    left = values_ES - mean
    spread = np.maximum(np.square(left).sum(axis=1), 1e-100)
    acceleration = (left**3).sum(axis=1) / spread**1.5 / 6
    below = ((means_EB < mean - 1e-9).mean(axis=1) + (means_EB <= mean + 1e-9).mean(axis=1)) / 2
    bias = scipy.special.ndtri(below)
    ends = []
    for score in (scipy.special.ndtri(tail), -scipy.special.ndtri(tail)):
        share = scipy.special.ndtr(bias + (bias + score) / (1 - acceleration * (bias + score)))
        ends.append([np.quantile(row, q) for row, q in zip(means_EB, share, strict=True)])
    return np.array(ends[0]), np.array(ends[1])


def _quantiles(values_EB: np.ndarray, low: float, high: float) -> tuple[np.ndarray, np.ndarray]:
    ends = np.quantile(values_EB, [low, high], axis=1)
    return ends[0], ends[1]


def _band(limits: tuple[float, float], n_experiments: int) -> tuple[float, float]:
    """The limits, with 2.6 standard errors of the simulation on either side."""
    return (
        limits[0] - 2.6 * math.sqrt(limits[0] * (1 - limits[0]) / n_experiments),
        limits[1] + 2.6 * math.sqrt(limits[1] * (1 - limits[1]) / n_experiments),
    )


def _listed(shares: dict[str, float], n_experiments: int) -> str:
    error = 100 * math.sqrt(shares["ours"] * (1 - shares["ours"]) / n_experiments)
    listed = ", ".join(f"{name} {100 * share:.1f}" for name, share in shares.items())
    return f"{listed} % (simulation error {error:.2f})"
