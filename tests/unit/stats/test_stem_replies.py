"""Simulated replies have the rates, variances and correlations that they are said to have."""

from __future__ import annotations

import numpy as np
import pytest

from eps_locked.errors import StatsInputError
from eps_locked.stats.bootstrap import generator_from_digest
from eps_locked.stats.stem_replies import ReplyModel, simulate_replies

N_EXPERIMENTS, N_STEMS, N_SAMPLES = 400, 50, 2


def fitted(rate, drift, stem_sd, within, n_probes=6, **changed):
    return ReplyModel.fitting(
        rate=rate,
        drift=drift,
        stem_sd=stem_sd,
        within_variance=within,
        n_probes=n_probes,
        **changed,
    )


def replies(model, label):
    rng = generator_from_digest("blake3:replies", label)
    return simulate_replies(model, rng, (N_EXPERIMENTS, N_STEMS, N_SAMPLES))


@pytest.mark.parametrize(
    ("rate", "drift", "stem_sd", "within"),
    [
        (0.5, 0.0, 8.0, 1500.0),
        (0.5, -10.0, 15.0, 1000.0),
        (0.85, 0.0, 6.0, 800.0),
        (0.95, 0.0, 4.0, 300.0),
        (0.95, -6.0, 12.0, 350.0),
        (0.3, 20.0, 20.0, 1200.0),
        (0.8, 0.0, 0.0, 1600.0),
    ],
)
def test_rates_and_variances_are_those_asked_for(rate, drift, stem_sd, within):
    model = fitted(rate, drift, stem_sd, within)
    assert model.drift == pytest.approx(drift, abs=1e-3)
    assert model.stem_sd == pytest.approx(stem_sd, abs=1e-6)
    assert model.within_variance == pytest.approx(within, rel=1e-3)
    reference, arm = replies(model, str((rate, drift, stem_sd)))
    n_all = N_EXPERIMENTS * N_STEMS
    differences = 100 * (arm.mean(axis=(2, 3)) - reference.mean(axis=(2, 3))).ravel()
    per_stem = stem_sd**2 + 2 * within / 12
    assert 100 * reference.mean() == pytest.approx(100 * rate, abs=5 * 50 / np.sqrt(n_all))
    assert differences.mean() == pytest.approx(drift, abs=5 * np.sqrt(per_stem / n_all))
    assert differences.var() == pytest.approx(per_stem, rel=0.06)
    between_samples = 1e4 * np.square(arm[..., 0] * 1.0 - arm[..., 1]).mean() / 2
    between_samples += 1e4 * np.square(reference[..., 0] * 1.0 - reference[..., 1]).mean() / 2
    assert between_samples / 2 == pytest.approx(within, rel=0.03)


def test_rewordings_of_a_stem_are_alike_and_stems_are_not():
    reference, arm = replies(fitted(0.7, 0.0, 6.0, 1200.0), "alike")
    rates = reference.mean(axis=3)
    within_stem = np.corrcoef(rates[:, :, 0].ravel(), rates[:, :, 1].ravel())[0, 1]
    across_stems = np.corrcoef(rates[:, 0].ravel(), rates[:, 1].ravel())[0, 1]
    across_arms = np.corrcoef(rates.mean(axis=2).ravel(), arm.mean(axis=(2, 3)).ravel())[0, 1]
    assert within_stem > 0.15
    assert abs(across_stems) < 0.1
    assert across_arms > 0.5


def test_a_drift_brings_the_least_variation_over_stems_that_it_can_have():
    even = fitted(0.95, -10.0, 0.0, 300.0)
    assert even.stem_sd > 5
    assert even.in_arm == 0
    assert fitted(0.95, -10.0, even.stem_sd + 3, 300.0).stem_sd == pytest.approx(even.stem_sd + 3)


def test_without_variation_between_probes_every_probe_has_the_arms_rate():
    coins = fitted(0.5, 0.0, 0.0, 2500.0)
    assert all((table == 0.5).all() for table in coins.rates)
    still = fitted(0.5, 0.0, 0.0, 0.0)
    assert {float(rate) for table in still.rates for rate in np.unique(table)} == {0.0, 1.0}


@pytest.mark.parametrize(
    ("rate", "drift", "stem_sd", "within"),
    [(0.9, 10.0, 5.0, 300.0), (0.9, 0.0, 5.0, 1000.0), (0.9, 0.0, 40.0, 800.0)],
)
def test_what_rates_cannot_do_has_no_model(rate, drift, stem_sd, within):
    assert fitted(rate, drift, stem_sd, within) is None


def test_rates_and_shares_out_of_range_are_refused():
    with pytest.raises(StatsInputError, match="rate: expected a number between 0 and 1, found 1"):
        fitted(1.0, 0.0, 5.0, 300.0)
    with pytest.raises(StatsInputError, match="rewording: expected from 0 to below 1"):
        fitted(0.5, 0.0, 5.0, 300.0, rewording=1.0)
