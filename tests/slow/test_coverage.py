"""What ships holds the truth as often as it says, and what it replaced does not.

A short version of ``python -m benchmarks coverage``: the same checks on fewer tables, with the
band widened by the error of so few.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from eps_locked.stats.bootstrap import crossed_bootstrap_interval, generator_from_digest
from eps_locked.stats.cell_interval import pooled_cell_intervals
from eps_locked.stats.dyadic import (
    line_r2_without_contexts,
    node_weights,
    r2_difference_interval,
    r2_interval,
    spearman_interval,
)
from eps_locked.stats.folds import leave_two_contexts_out
from eps_locked.stats.permutation import (
    additive_gain,
    context_permutations,
    permutation_p,
    permuted_predictor,
    spearman_columns,
)
from eps_locked.stats.ranks import spearman, weighted_spearman
from eps_locked.stats.simulate import (
    TABLE_SPREADS,
    ReadingSpread,
    TableSpread,
    draw_cells,
    off_diagonal,
    simulate_rates,
    simulate_readings,
    simulate_table,
)

pytestmark = pytest.mark.slow

N_TABLES = 400
WIDER = 2.6 * math.sqrt(0.95 * 0.05 / N_TABLES)
NOISE = TableSpread(row=0, column=0, row_column=0, interaction=0, mirror=0, cell=1)


def rng(*labels: str) -> np.random.Generator:
    return generator_from_digest("blake3:test", "coverage", *labels)


def in_band(share: float) -> bool:
    return 0.935 - WIDER <= share <= 0.965 + WIDER


def r2(y, p) -> float:
    return 1 - float(np.mean((y - p) ** 2) / np.var(y))


# --- scores ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("spread", ["rows", "mixed", "latent"])
@pytest.mark.parametrize("shape", [(16, 29), (16, 16)], ids=["16x29", "16x16"])
def test_score_intervals_hold_the_value_of_the_huge_table(shape, spread):
    source = rng(spread, str(shape))
    strengths, parts = (0.8, 0.5), TABLE_SPREADS[spread]
    huge = draw_cells(source, 300_000, spread=parts, strengths=strengths)
    lines = [np.polyfit(x, huge.g_N, 1) for x in huge.predictors_PN]
    true_rho = spearman(huge.predictors_PN[0], huge.g_N)
    true_r2 = [
        r2(huge.g_N, np.polyval(line, x)) for line, x in zip(lines, huge.predictors_PN, strict=True)
    ]
    cells = off_diagonal(*shape)
    rest = {"rng": source, "n_resamples": 0, "confidence_level": 0.95}
    held = np.zeros(3)
    for _ in range(N_TABLES):
        table = simulate_table(source, *cells, spread=parts, strengths=strengths)
        y = table.g_N
        p, q = (np.polyval(line, x) for line, x in zip(lines, table.predictors_PN, strict=True))
        found = (
            (spearman_interval(p, y, *cells, **rest), true_rho),
            (r2_interval(y, p, *cells, fitted_elsewhere=True, **rest), true_r2[0]),
            (
                r2_difference_interval(y, p, q, *cells, fitted_elsewhere=True, **rest),
                true_r2[0] - true_r2[1],
            ),
        )
        held += [one.low <= truth <= one.high for one, truth in found]
    assert all(map(in_band, held / N_TABLES)), held / N_TABLES


def test_a_bootstrap_that_ignores_the_clusters_fails_the_same_check_clearly():
    source, parts = rng("naive"), TABLE_SPREADS["rows"]
    huge = draw_cells(source, 300_000, spread=parts, strengths=(0.5,))
    truth = spearman(huge.predictors_PN[0], huge.g_N)
    train, evaluated = off_diagonal(16, 29)
    held = np.zeros(2)
    for _ in range(N_TABLES // 2):
        table = simulate_table(source, train, evaluated, spread=parts, strengths=(0.5,))
        x, y = table.predictors_PN[0], table.g_N
        over_cells = source.multinomial(len(y), np.full(len(y), 1 / len(y)), size=200)
        over_contexts = node_weights(train, evaluated, rng=source, n_resamples=200)
        for k, weights in enumerate((over_cells, over_contexts)):
            low, high = np.quantile(weighted_spearman(x, y, weights), [0.025, 0.975])
            held[k] += low <= truth <= high
    over_cells, over_contexts = held / (N_TABLES // 2)
    assert over_cells < 0.6
    assert over_contexts > 0.8


def test_a_gain_of_lines_fitted_in_the_folds_needs_the_fits_done_again():
    source, cells, n = rng("refit"), off_diagonal(16, 16), 200
    groups = {k: k for k in range(16)}
    folds = leave_two_contexts_out(*cells, groups)
    gains, ends = [], []
    for _ in range(n):
        table = simulate_table(source, *cells, spread=TABLE_SPREADS["rows"], strengths=(0.8, 0.5))
        y, predicted = table.g_N, np.empty((2, len(table.g_N)))
        for fold in folds:
            for p, x in zip(predicted, table.predictors_PN, strict=True):
                p[fold.test] = np.polyval(np.polyfit(x[fold.fit], y[fold.fit], 1), x[fold.test])
        first, second = (line_r2_without_contexts(x, y, *cells) for x in table.predictors_PN)
        found = [
            r2_difference_interval(
                y,
                *predicted,
                *cells,
                refitted_K=refitted,
                rng=source,
                n_resamples=0,
                confidence_level=0.95,
            )
            for refitted in (None, first - second)
        ]
        gains.append(found[0].value)
        ends.append([(one.low, one.high) for one in found])
    truth, ends = np.mean(gains), np.array(ends)
    as_given, refitted = np.mean((ends[..., 0] <= truth) & (truth <= ends[..., 1]), axis=0)
    assert refitted >= 0.935 - 2.6 * math.sqrt(0.95 * 0.05 / n)
    assert as_given < refitted - 0.02


# --- cells ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_seeds", [2, 3])
@pytest.mark.parametrize(
    "spread",
    [
        ReadingSpread(adapter_seed=0.3, cell_seed=0.2, question=0.8, residual=0.6),
        ReadingSpread(adapter_seed=1.0, cell_seed=0.3, question=0.8, residual=0.6),
        ReadingSpread(adapter_seed=0.0, cell_seed=0.0, question=1.0, residual=1.0),
    ],
    ids=["seeds and questions", "seeds above all", "no seed effect"],
)
def test_a_cells_interval_holds_its_truth_with_two_or_three_seeds(n_seeds, spread):
    source = rng("cells", str(n_seeds), str(spread))
    train, _ = off_diagonal(16, 29)
    shares = []
    for _ in range(60):
        truth = source.normal(size=len(train))
        y = simulate_readings(source, truth, train, n_seeds=n_seeds, n_items=20, spread=spread)
        y[source.random(y.shape) < 0.05] = np.nan
        found = pooled_cell_intervals(y, train, confidence_level=0.95)
        shares.append(np.mean([a.low <= g <= a.high for a, g in zip(found, truth, strict=True)]))
    # Cells of one adapter miss together: the error is that of the tensors' shares.
    error = np.std(shares) / math.sqrt(len(shares))
    assert 0.935 - 2.6 * error <= np.mean(shares) <= 0.965 + 2.6 * error


@pytest.mark.parametrize("centre", [0.0, -3.0])
def test_a_rates_interval_holds_its_truth_and_near_0_not_too_seldom(centre):
    source = rng("rates", str(centre))
    train, _ = off_diagonal(16, 29)
    holds, truths = [], []
    for _ in range(40):
        logit = centre + source.normal(size=16)[train] + 1.5 * source.normal(size=len(train))
        y, truth = simulate_rates(source, logit, train, n_seeds=2, n_items=40)
        found = pooled_cell_intervals(y, train, confidence_level=0.95, bounds=(0.0, 1.0))
        holds.append([a.low <= p <= a.high for a, p in zip(found, truth, strict=True)])
        truths.append(truth)
    holds, truths = np.array(holds), np.array(truths)
    error = holds.mean(axis=1).std() / math.sqrt(len(holds))
    assert 0.935 - 2.6 * error <= holds.mean() <= 0.965 + 2.6 * error
    # Conservative at the edges, never the other way.
    assert holds[truths < 0.05].mean() > 0.94


def test_percentiles_over_two_seeds_alone_do_not():
    source = rng("crossed")
    spread = ReadingSpread(adapter_seed=1.0, cell_seed=0.3, question=0.8, residual=0.6)
    held = 0
    for _ in range(300):
        y = simulate_readings(
            source, np.zeros(1), np.zeros(1, dtype=np.int64), n_seeds=2, n_items=20, spread=spread
        )
        found = crossed_bootstrap_interval(y[0], rng=source, n_resamples=200, confidence_level=0.95)
        held += found.low <= 0 <= found.high
    assert held / 300 < 0.8


# --- null predictors ------------------------------------------------------------------------------


@pytest.mark.parametrize("own", ["structured", "noise"])
@pytest.mark.parametrize("spread", ["rows", "mixed"])
def test_a_null_predictor_is_rejected_as_often_as_it_should_be(spread, own):
    source, parts = rng("null", spread, own), TABLE_SPREADS[spread]
    train, evaluated = off_diagonal(16, 29)
    n, n_permutations = 600, 99
    rejected = np.zeros(3)
    for _ in range(n):
        table = simulate_table(
            source,
            train,
            evaluated,
            spread=parts,
            strengths=(0.0,),
            predictor_spread=parts if own == "structured" else NOISE,
        )
        x, y = table.predictors_PN[0], table.g_N
        relabelled = context_permutations(
            train, evaluated, rng=source, n_permutations=n_permutations
        )
        columns = np.column_stack([x, permuted_predictor(x, train, evaluated, relabelled)])
        rho, gain = spearman_columns(columns, y), additive_gain(columns, y, train, evaluated)
        p = [
            permutation_p(rho[0], rho[1:]),
            permutation_p(gain[0], gain[1:], alternative="greater"),
        ]
        if own == "structured" and spread == "rows":
            shuffled = source.permuted(np.tile(x, (n_permutations, 1)), axis=1).T
            p.append(permutation_p(rho[0], spearman_columns(shuffled, y)))
        rejected[: len(p)] += np.array(p) <= 0.05
    wider = 2.6 * math.sqrt(0.05 * 0.95 / n)
    by_rank, by_gain, by_shuffling = rejected / n
    assert 0.035 - wider <= by_rank <= 0.065 + wider
    assert 0.035 - wider <= by_gain <= 0.065 + wider
    if own == "structured" and spread == "rows":
        assert by_shuffling > 0.3  # cells shuffled as if they were independent
