"""Jackknife intervals over contexts: scores, influences and variance parts by other routes."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import scipy.stats
from sklearn.metrics import r2_score

from eps_locked.errors import StatsInputError
from eps_locked.stats import dyadic
from eps_locked.stats.bootstrap import generator_from_digest
from eps_locked.stats.dyadic import (
    ScoreInterval,
    line_r2_without_contexts,
    node_weights,
    r2_difference_interval,
    r2_interval,
    spearman_difference_interval,
    spearman_interval,
)
from eps_locked.stats.folds import leave_two_contexts_out
from eps_locked.stats.ranks import weighted_spearman
from eps_locked.stats.simulate import TABLE_SPREADS, off_diagonal, simulate_table


def rng(*labels: str) -> np.random.Generator:
    return generator_from_digest("blake3:test", "dyadic", *labels)


def table(n_train: int = 8, n_eval: int = 13, label: str = "table"):
    train, evaluated = off_diagonal(n_train, n_eval)
    made = simulate_table(
        rng(label), train, evaluated, spread=TABLE_SPREADS["mixed"], strengths=(0.7, 0.4)
    )
    return train, evaluated, made.g_N, made.predictors_PN[0], made.predictors_PN[1]


def rest(n_resamples: int = 0, level: float = 0.95):
    return {"rng": rng("draw"), "n_resamples": n_resamples, "confidence_level": level}


def design(train, evaluated, stratum=None):
    return dyadic._Design.build(train, evaluated, stratum)


# --- the bootstrap over contexts ------------------------------------------------------------------


def test_a_resample_counts_a_cell_as_often_as_it_drew_both_contexts():
    train, evaluated = off_diagonal(4, 6)
    train, evaluated = np.append(train, 2), np.append(evaluated, 2)  # a diagonal cell
    weights = node_weights(train, evaluated, rng=rng("weights"), n_resamples=500)
    assert weights.shape == (500, len(train))
    where = {
        (i, j): n for n, (i, j) in enumerate(zip(train.tolist(), evaluated.tolist(), strict=True))
    }
    for row in weights:
        drawn = {2: row[where[2, 2]]}
        # m_i m_j of two cells of one row stand in the ratio of their columns' counts.
        for j in (4, 5):
            if drawn[2]:
                drawn[j] = row[where[2, j]] / drawn[2]
        if drawn[2]:
            assert drawn[4] + drawn[5] == 2
            assert row[where[0, 4]] * drawn[2] == row[where[0, 2]] * drawn[4]
    # Contexts are drawn four of four, two of two: mean weight 1 for all but off-diagonal pairs
    # of one kind, whose counts compete: (1 - 1/4).
    same_kind = (evaluated < 4) & (train != evaluated)
    assert weights[:, same_kind].mean() == pytest.approx(0.75, abs=0.06)
    assert weights[:, evaluated >= 4].mean() == pytest.approx(1.0, abs=0.06)


def test_the_bootstrap_beside_the_interval_is_a_loop_over_copied_cells():
    train, evaluated, y, x, _ = table()
    found = spearman_interval(x, y, train, evaluated, **rest(200))
    scores = []
    for w in node_weights(train, evaluated, rng=rng("draw"), n_resamples=200).astype(int):
        copied = np.repeat(np.arange(len(y)), w)
        scores.append(scipy.stats.spearmanr(x[copied], y[copied]).statistic)
    expected = np.quantile(scores, [0.025, 0.975])
    assert (found.bootstrap.low, found.bootstrap.high) == pytest.approx(expected, abs=1e-12)
    assert found.bootstrap.n_resamples == 200
    assert spearman_interval(x, y, train, evaluated, **rest(0)).bootstrap is None


# --- scores and their jackknife -------------------------------------------------------------------


def test_values_equal_those_of_scipy_and_scikit_learn():
    train, evaluated, y, p, q = table()
    rho_p, rho_q = (scipy.stats.spearmanr(x, y).statistic for x in (p, q))
    r2_p, r2_q = r2_score(y, p), r2_score(y, q)
    cells = (train, evaluated)
    assert spearman_interval(p, y, *cells, **rest()).value == pytest.approx(rho_p, abs=1e-12)
    assert r2_interval(y, p, *cells, **rest()).value == pytest.approx(r2_p, abs=1e-10)
    found = spearman_difference_interval(p, q, y, *cells, **rest())
    assert found.value == pytest.approx(rho_p - rho_q, abs=1e-12)
    found = r2_difference_interval(y, p, q, *cells, **rest())
    assert found.value == pytest.approx(r2_p - r2_q, abs=1e-10)


def test_leaving_a_context_out_leaves_out_its_row_and_its_column():
    train, evaluated, y, x, _ = table()
    x = np.round(x)  # ties
    found = dyadic._spearman_subsets(x, y, design(train, evaluated).without_KN)
    for k, context in enumerate(np.unique([*train, *evaluated])):
        stays = (train != context) & (evaluated != context)
        expected = scipy.stats.spearmanr(x[stays], y[stays]).statistic
        assert found[k] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("decimals", [0, 9])
def test_influence_on_spearman_is_the_derivative_by_a_cells_weight(decimals):
    _, _, y, x, _ = table()
    x, y = np.round(x, decimals), np.round(y, decimals)
    n, step = len(x), 1e-5
    up, down = 1 + step * np.eye(n), 1 - step * np.eye(n)
    slope = (weighted_spearman(x, y, up) - weighted_spearman(x, y, down)) / (2 * step)
    assert dyadic._spearman_influence(x, y) == pytest.approx(n * slope, abs=1e-6)


def test_noise_parts_are_right_on_average_for_a_mean_of_noise_with_mirrored_cells():
    # A mean is linear, so what the jackknife adds for noise is known in expectation: here the
    # residual has variance 1 and covariance 0.5 with its mirror cell.
    train, evaluated = off_diagonal(7, 10)
    n = len(train)
    made = design(train, evaluated)
    low, high = np.minimum(train, evaluated), np.maximum(train, evaluated)
    pair = np.unique(low * 99 + high, return_inverse=True)[1]
    source = rng("mirror")
    jackknife, counted, residual, means = [], [], [], []
    for _ in range(1500):
        y = np.sqrt(0.5) * (source.normal(size=pair.max() + 1)[pair] + source.normal(size=n))
        without = made.without_KN @ y / made.without_KN.sum(axis=1)
        jackknife.append(sum((len(k) - 1) * without[k].var() for k in made.kinds))
        in_jackknife, own, _ = made._residual_parts(y - y.mean())
        counted.append(in_jackknife)
        residual.append(own)
        means.append(y.mean())
    assert np.mean(counted) == pytest.approx(np.mean(jackknife), rel=0.06)
    assert np.mean(residual) == pytest.approx(np.var(means), rel=0.12)
    # Without the correction the jackknife counts noise about twice.
    assert np.mean(jackknife) > 1.7 * np.var(means)


def test_the_variance_is_the_jackknife_less_most_of_what_it_counts_twice():
    train, evaluated, y, x, _ = table()
    made = design(train, evaluated)
    without = dyadic._spearman_subsets(x, y, made.without_KN)
    influence = dyadic._spearman_influence(x, y)
    in_jackknife, residual, df_residual = made._residual_parts(influence)
    both, only_evaluated = without[:8], without[8:]
    assert len(only_evaluated) == 5
    jackknife = 7 * both.var() + 4 * only_evaluated.var()
    variance, df = made.variance(without, influence)
    assert variance == pytest.approx(jackknife - 0.85 * (in_jackknife - residual), rel=1e-9)
    of_kinds = ((7 * both.var()) ** 2 / 7 + (4 * only_evaluated.var()) ** 2 / 4) / jackknife**2
    own = jackknife - in_jackknife
    doubt = own**2 * of_kinds / 0.6 + residual**2 / df_residual
    assert df == pytest.approx(min(variance**2 / doubt, 7), rel=1e-9)
    # Where the jackknife says less than the cells' own noise must leave, half of that stays.
    assert made.variance(0 * without, influence)[0] == pytest.approx(residual / 2, rel=1e-9)


def test_several_cells_of_one_dyad_are_told_apart_from_independent_ones():
    train, evaluated = (np.tile(side, 3) for side in off_diagonal(7, 10))
    stratum = np.repeat(np.arange(3), len(train) // 3)
    made = design(train, evaluated, stratum)
    low, high = np.minimum(train, evaluated), np.maximum(train, evaluated)
    pair = np.unique(low * 99 + high, return_inverse=True)[1]
    source = rng("pooled")
    residual, means = [], []
    for _ in range(800):
        y = source.normal(size=pair.max() + 1)[pair] + 0.5 * source.normal(size=len(train))
        residual.append(made._residual_parts(y - y.mean())[1])
        means.append(y.mean())
    assert np.mean(residual) == pytest.approx(np.var(means), rel=0.15)


def test_lines_refitted_without_a_context_are_those_of_the_folds_without_it():
    train, evaluated, y, x, _ = table(5, 7)
    train, evaluated = np.append(train, [0, 3]), np.append(evaluated, [0, 3])  # diagonal cells
    x, y = np.append(x, [0.3, -1.0]), np.append(y, [1.0, 0.2])
    found = line_r2_without_contexts(x, y, train, evaluated)
    for k in range(7):
        stays = (train != k) & (evaluated != k)
        predicted = np.full(len(y), np.nan)
        groups = {c: c for c in range(7)}
        numbers = np.flatnonzero(stays)
        for fold in leave_two_contexts_out(train[stays], evaluated[stays], groups):
            fit, test = numbers[fold.fit], numbers[fold.test]
            predicted[test] = np.polyval(np.polyfit(x[fit], y[fit], 1), x[test])
        assert found[k] == pytest.approx(r2_score(y[stays], predicted[stays]), abs=1e-10)


def test_a_refit_takes_the_place_of_the_scores_without_each_context():
    train, evaluated, y, p, q = table()
    cells = (train, evaluated)
    refitted = np.linspace(0.1, 0.5, 13)
    plain = r2_interval(y, p, *cells, **rest())
    found = r2_interval(y, p, *cells, refitted_K=refitted, **rest())
    assert (found.value, found.method) == (plain.value, plain.method)
    assert found.high - found.low > plain.high - plain.low
    own = [1 - r2_score(y[k], p[k]) for k in map(np.flatnonzero, design(*cells).without_KN)]
    same = r2_interval(y, p, *cells, refitted_K=1 - np.array(own), **rest())
    assert (same.low, same.high) == pytest.approx((plain.low, plain.high), abs=1e-9)
    gap = np.where(np.arange(13) == 4, np.nan, refitted)
    assert r2_difference_interval(y, p, q, *cells, refitted_K=gap, **rest()) is None
    with pytest.raises(StatsInputError, match="refitted_K: expected 13 values"):
        r2_interval(y, p, *cells, refitted_K=refitted[1:], **rest())


# --- the interval ---------------------------------------------------------------------------------


def every(p=None, q=None, y=None, cells=None, **keywords) -> list[ScoreInterval | None]:
    train, evaluated, y0, p0, q0 = table()
    p, q, y = (b if a is None else a for a, b in ((p, p0), (q, q0), (y, y0)))
    train, evaluated = cells or (train, evaluated)
    keywords = {**rest(), **keywords}
    return [
        spearman_interval(p, y, train, evaluated, **keywords),
        r2_interval(y, p, train, evaluated, **keywords),
        spearman_difference_interval(p, q, y, train, evaluated, **keywords),
        r2_difference_interval(y, p, q, train, evaluated, **keywords),
    ]


def test_each_look_is_the_interval_at_its_share_of_the_error():
    for found, at_third in zip(every(), every(confidence_level=1 - 0.05 / 3), strict=True):
        assert [k for k, _, _ in found.levels] == list(range(1, 21))
        assert found.levels[0] == (1, found.low, found.high)
        assert found.levels[2][1:] == pytest.approx((at_third.low, at_third.high), abs=1e-12)
        lows, highs = zip(*[(low, high) for _, low, high in found.levels], strict=True)
        assert all(np.diff(lows) < 0)
        assert all(np.diff(highs) > 0)
        assert found.low < found.value < found.high


def test_the_order_of_cells_and_the_names_of_contexts_do_not_matter():
    train, evaluated, y, p, q = table()
    order = rng("order").permutation(len(y))
    names = rng("names").permutation(100)[:20]
    moved = every(p[order], q[order], y[order], (names[train][order], names[evaluated][order]))
    for found, expected in zip(moved, every(), strict=True):
        assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=1e-9)


def test_scores_keep_their_interval_under_what_does_not_change_them():
    _, _, y, p, q = table()
    rank_based = every(np.exp(p), 3 * q - 1, y**3)
    for k in (0, 2):
        found, expected = rank_based[k], every()[k]
        assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=1e-9)
    scaled = every(2 * p + 5, 2 * q + 5, 2 * y + 5)
    for k in (1, 3):
        found, expected = scaled[k], every()[k]
        assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=1e-9)


def test_a_difference_turns_its_sign_with_the_order_of_its_predictors():
    _, _, _, p, q = table()
    for k in (2, 3):
        one, other = every(p, q)[k], every(q, p)[k]
        assert (one.low, one.high) == pytest.approx((-other.high, -other.low), abs=1e-12)


def test_a_perfect_predictor_has_an_interval_without_width():
    _, _, y, _, _ = table()
    spearman_found, r2_found, _, _ = every(p=y)
    assert (spearman_found.value, spearman_found.low, spearman_found.high) == (1.0, 1.0, 1.0)
    assert (r2_found.value, r2_found.low, r2_found.high) == (1.0, 1.0, 1.0)


def test_equal_predictors_do_not_differ():
    _, _, _, p, _ = table()
    for k in (2, 3):
        found = every(p, p)[k]
        assert (found.value, found.low, found.high) == (0.0, 0.0, 0.0)


def test_correlations_stay_in_their_range():
    train, evaluated = off_diagonal(3, 5)
    y = np.arange(len(train), dtype=float)
    x = y.copy()
    x[[0, 1]] = x[[1, 0]]
    found = spearman_interval(x, y, train, evaluated, **rest())
    assert -1 <= found.low < found.value < found.high <= 1


def test_pooled_behaviours_are_not_more_contexts():
    train, evaluated, y, p, _ = table()
    alone = spearman_interval(p, y, train, evaluated, **rest())
    twice = spearman_interval(
        np.tile(p, 2),
        np.tile(y, 2),
        np.tile(train, 2),
        np.tile(evaluated, 2),
        stratum_N=np.repeat([0, 1], len(y)),
        **rest(),
    )
    assert twice.n_contexts == alone.n_contexts
    assert twice.value == pytest.approx(alone.value, abs=1e-12)
    assert twice.high - twice.low == pytest.approx(alone.high - alone.low, rel=0.02)


def test_no_interval_where_the_score_or_its_jackknife_has_none():
    train, evaluated, y, p, _ = table()
    constant = np.ones(len(y))
    assert spearman_interval(constant, y, train, evaluated, **rest()) is None
    assert r2_interval(constant, p, train, evaluated, **rest()) is None
    assert r2_difference_interval(constant, p, y, train, evaluated, **rest()) is None
    # Constant once context 0 is left out.
    step = (train == 0).astype(float)
    assert spearman_interval(step, y, train, evaluated, **rest()) is None
    few = train < 2
    assert spearman_interval(p[few], y[few], train[few], evaluated[few], **rest()) is None


def test_inputs_without_an_answer_are_refused():
    train, evaluated, y, p, _ = table()
    with pytest.raises(StatsInputError, match="x: expected finite"):
        spearman_interval(np.append(p[1:], np.nan), y, train, evaluated, **rest())
    with pytest.raises(StatsInputError, match="predicted: expected 96 values"):
        r2_interval(y, p[1:], train, evaluated, **rest())
    with pytest.raises(StatsInputError, match="eval_N"):
        r2_interval(y, p, train, evaluated[1:], **rest())
    with pytest.raises(StatsInputError, match="train_N"):
        r2_interval(y, p, train.astype(float), evaluated, **rest())
    with pytest.raises(StatsInputError, match="confidence_level"):
        r2_interval(y, p, train, evaluated, **rest(level=1.0))
    with pytest.raises(StatsInputError, match="n_resamples"):
        r2_interval(y, p, train, evaluated, **rest(-1))
    with pytest.raises(StatsInputError, match="n_resamples"):
        node_weights(train, evaluated, rng=rng("none"), n_resamples=0)


def test_equal_input_gives_equal_numbers():
    one, other = (every(n_resamples=50, rng=rng("again")) for _ in range(2))
    assert [dataclasses.asdict(a) for a in one] == [dataclasses.asdict(b) for b in other]


# --- what is printed beside -----------------------------------------------------------------------


def test_a_design_that_reached_the_band_says_so_and_a_poor_one_says_what_was_simulated():
    train, evaluated = off_diagonal(16, 29)
    made = simulate_table(
        rng("big"), train, evaluated, spread=TABLE_SPREADS["mixed"], strengths=(0.7,)
    )
    big = spearman_interval(made.predictors_PN[0], made.g_N, train, evaluated, **rest())
    assert big.simulated_coverage.reached
    assert "16 x 29" in big.simulated_coverage.what
    y, flat = made.g_N, np.full(len(train), 0.1)
    given = r2_interval(y, flat, train, evaluated, fitted_elsewhere=True, **rest())
    assert not given.simulated_coverage.reached
    assert given.simulated_coverage.lowest > 0.965
    taken_as_given = r2_interval(y, 0.5 * y, train, evaluated, **rest())
    assert not taken_as_given.simulated_coverage.reached
    assert taken_as_given.simulated_coverage.highest < 0.95
    assert "fitted in folds" in taken_as_given.simulated_coverage.what


def test_the_nearest_simulated_design_is_chosen_by_its_contexts():
    for n_train, n_eval, expected in ((5, 9, "4 x 10"), (15, 15, "16 x 16"), (20, 40, "16 x 29")):
        train, evaluated = off_diagonal(n_train, n_eval)
        made = simulate_table(
            rng("near"), train, evaluated, spread=TABLE_SPREADS["mixed"], strengths=(0.7,)
        )
        found = spearman_interval(made.predictors_PN[0], made.g_N, train, evaluated, **rest())
        assert expected in found.simulated_coverage.what
