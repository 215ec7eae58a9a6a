"""Intervals of judged rates hold the truth near 0 and 1 too, where normal theory does not.

A short version of ``python -m benchmarks rate-coverage`` with a simpler source of verdicts: both
sides' question rates are beta distributed and unrelated, and every seed moves a cell's logit.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.special
import scipy.stats

from eps_locked.stats.bootstrap import generator_from_digest
from eps_locked.stats.rate_interval import minimum_detectable_rate_change, rate_change_intervals

pytestmark = pytest.mark.slow

ADAPTER = np.repeat(np.arange(6), 8)
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(41)
RATES = (0.0, 0.02, 0.1, 0.3, 0.6, 0.9, 1.0)
SEED_SPREAD = 0.5
ALIKE = 0.3
N_PLACES = 40


def question_rates(rng, mean):
    """Beta distributed around ``mean``, (C, S, 1); a question keeps its place from seed to seed."""
    size, place = 1 / ALIKE - 1, rng.random((len(mean), 1, N_PLACES))
    inside = np.clip(mean, 1e-9, 1 - 1e-9)
    drawn = scipy.special.betaincinv(inside * size, (1 - inside) * size, place)
    return np.where((mean > 0) & (mean < 1), drawn, mean)


def verdicts(rng, trained_C, base_C, n_seeds, n_items, n_samples):
    """Question rates (C, S, Q) and (C, Q), and the true trained rates over unseen seeds.

    With one seed there is no seed effect: the truth is that of the run.
    """
    spread = SEED_SPREAD if n_seeds > 1 else 0.0
    with np.errstate(divide="ignore"):
        logit = scipy.special.logit(trained_C)
    truth = scipy.special.expit(logit[:, None] + spread * NODES) @ (WEIGHTS / WEIGHTS.sum())
    shift = spread * rng.standard_normal((len(trained_C), n_seeds))
    chance = question_rates(rng, scipy.special.expit(logit[:, None] + shift)[:, :, None])
    base = question_rates(rng, base_C[:, None, None])[:, 0]
    read = rng.binomial(n_samples, chance[:, :, :n_items]) / n_samples
    return read, rng.binomial(n_samples, base[:, :n_items]) / n_samples, truth


def found(trained, base, adapter=ADAPTER):
    cells = rate_change_intervals(trained, base, adapter, confidence_level=0.95, minimum_share=0.5)
    assert None not in cells
    return cells


def share_and_error(holds) -> tuple[float, float]:
    """Mean over rows; cells of a row miss together."""
    by_row = np.array([np.mean(row) for row in holds])
    return float(by_row.mean()), float(by_row.std() / math.sqrt(len(by_row)))


@pytest.mark.parametrize(
    ("n_seeds", "n_items", "n_samples"), [(2, 6, 1), (2, 20, 3), (3, 40, 5), (1, 6, 1), (1, 30, 2)]
)
def test_changes_and_rates_hold_their_truth_from_0_to_1(n_seeds, n_items, n_samples):
    rng = generator_from_digest("blake3:test", "rate coverage", f"{n_seeds} {n_items} {n_samples}")
    holds = {"change": [], "trained": [], "base": [], "trained near the edges": []}
    for _ in range(60):
        trained, base = rng.choice(RATES, size=48), rng.choice(RATES, size=48)
        read, read_base, truth = verdicts(rng, trained, base, n_seeds, n_items, n_samples)
        cells = found(read, read_base)
        changes = [
            one.low - 1e-9 <= t - b <= one.high + 1e-9
            for one, t, b in zip(cells, truth, base, strict=True)
        ]
        rates = np.array(
            [one.trained_low <= t <= one.trained_high for one, t in zip(cells, truth, strict=True)]
        )
        holds["change"].append(changes)
        holds["trained"].append(rates)
        holds["base"].append(
            [one.base_low <= b <= one.base_high for one, b in zip(cells, base, strict=True)]
        )
        holds["trained near the edges"].append(rates[(truth < 0.06) | (truth > 0.94)])
    for what, rows in holds.items():
        share, error = share_and_error(rows)
        assert share >= 0.93 - 2.6 * error, what
    share, error = share_and_error(holds["change"])
    assert n_items < 20 or share <= 0.99 + 2.6 * error


def test_normal_theory_of_the_same_readings_fails_near_0():
    rng = generator_from_digest("blake3:test", "rate coverage", "normal")
    ours, normal = [], []
    trained, base = np.full(48, 0.03), np.zeros(48)
    for _ in range(30):
        read, read_base, _ = verdicts(rng, trained, base, 1, 20, 1)
        ours.append([one.low <= 0.03 <= one.high for one in found(read, read_base)])
        change = read[:, 0] - read_base
        reach = scipy.stats.t.ppf(0.975, 19) * change.std(axis=1, ddof=1) / math.sqrt(20)
        normal.append(np.abs(change.mean(axis=1) - 0.03) <= reach)
    assert np.mean(ours) > 0.93
    assert np.mean(normal) < 0.6


@pytest.mark.parametrize("base", [0.0, 0.1, 0.4])
def test_an_effect_of_the_stated_detectable_size_is_found_about_as_often_as_stated(base):
    rng = generator_from_digest("blake3:test", "rate coverage", "power", str(base))
    at_base = np.full(48, base)
    stated = []
    for _ in range(15):
        read, read_base, _ = verdicts(rng, at_base, at_base, 2, 24, 3)
        resolution = minimum_detectable_rate_change(
            read, read_base, ADAPTER, confidence_level=0.95, minimum_share=0.5
        )
        stated.append(resolution.minimum_detectable_effect)
    effect, hits = float(np.mean(stated)), []
    for _ in range(30):
        read, read_base, _ = verdicts(rng, at_base + effect, at_base, 2, 24, 3)
        hits.append([one.low > 0 for one in found(read, read_base)])
    assert 0.65 <= np.mean(hits) <= 0.97
