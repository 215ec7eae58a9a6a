"""Parts of a table against other routes, laws of sums of squares, noise, and published matrices."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LinearRegression

from eps_locked.errors import StatsInputError
from eps_locked.stats.bootstrap import generator_from_digest
from eps_locked.stats.decomposition import (
    ROUNDING_SHARE,
    Decomposition,
    additive_fit,
    decompose,
    square_table,
    transpose_index,
)
from eps_locked.stats.fold_fits import simple_fold_predictions
from eps_locked.stats.folds import leave_two_contexts_out, stack_folds
from eps_locked.stats.ranks import pearson, spearman
from eps_locked.stats.regression import r_squared

DATA = Path(__file__).resolve().parents[3].parent / "shared" / "data" / "eps_leakage"


def rng(*labels: str) -> np.random.Generator:
    return generator_from_digest("blake3:decomposition", *labels)


def off(K: int) -> np.ndarray:
    return ~np.eye(K, dtype=bool)


def known_table(K: int, label: str = "table") -> np.ndarray:
    source = rng(label)
    rows, columns = source.normal(size=(K, 1)), source.normal(size=(1, K))
    return 3.0 + 2 * rows + columns + source.normal(size=(K, K))


@st.composite
def gappy_squares(draw) -> np.ndarray:
    K = draw(st.integers(2, 7))
    numbers = st.floats(-100, 100).map(lambda value: round(value, 3))
    cell = st.one_of(numbers, numbers, numbers, st.just(float("nan")))
    row = st.lists(cell, min_size=K, max_size=K)
    table = np.array(draw(st.lists(row, min_size=K, max_size=K)))
    present = ~np.isnan(table) & ~np.isnan(table.T) & off(K)
    if not present.any():
        table[0, 1], table[1, 0] = 1.0, 2.0
    return table


# --- against other routes -------------------------------------------------------------------------


def test_a_worked_example_by_hand():
    # Off the diagonal: 1, 2, 3, 4, 5, 6 in reading order; the diagonal would spoil everything.
    found = decompose([[99.0, 1.0, 2.0], [3.0, 99.0, 4.0], [5.0, 6.0, 99.0]])
    assert (found.n_cells, found.mean) == (6, 3.5)
    assert found.ss_total == pytest.approx(17.5)
    # A is -1, -1.5 and -1 above the diagonal.
    assert found.A_KK[0, 1] == found.A_KK[1, 2] == -1.0
    assert found.ss_antisymmetric == pytest.approx(2 * (1 + 2.25 + 1))
    assert found.antisymmetric_share == pytest.approx(8.5 / 17.5)
    assert found.symmetric_cap == pytest.approx(9 / 17.5)
    # Three contexts leave 6 - 5 = 1 degree of freedom, the cycle: (1 - 3 + 4 - 6 + 5 - 2) / 6.
    assert found.ss_interaction == pytest.approx(1 / 6)
    assert np.isnan(np.diag(found.S_KK)).all()


@pytest.mark.parametrize(
    ("n_train", "n_eval", "share"), [(16, 16, 1.0), (16, 29, 1.0), (9, 9, 0.7)]
)
def test_additive_fit_agrees_with_scikit_learn_on_indicators(n_train, n_eval, share):
    train, evaluated = np.divmod(np.arange(n_train * n_eval), n_eval)
    kept = (train != evaluated) & (rng("kept").random(len(train)) < share)
    train, evaluated = train[kept] * 7 + 3, evaluated[kept] * 7 + 3
    g = rng("g").normal(size=len(train)) + train + np.sin(evaluated)
    indicators = np.column_stack(
        [train == i for i in np.unique(train)] + [evaluated == j for j in np.unique(evaluated)]
    ).astype(float)
    theirs = LinearRegression().fit(indicators, g)
    found = additive_fit(train, evaluated, g)
    assert found.fitted_N == pytest.approx(theirs.predict(indicators), abs=1e-10)
    assert found.r_squared == pytest.approx(theirs.score(indicators, g), abs=1e-10)
    assert found.n_parameters == len(np.unique(train)) + len(np.unique(evaluated)) - 1
    assert found.mean == pytest.approx(g.mean())
    assert found.predict(train, evaluated) == pytest.approx(found.fitted_N, abs=1e-12)


def test_additive_fit_gives_unseen_contexts_the_mean():
    found = additive_fit([0, 0, 1, 1], [2, 3, 2, 3], [1.0, 2.0, 3.0, 4.0])
    assert found.row_effects == pytest.approx([-1.0, 1.0])
    assert found.column_effects == pytest.approx([-0.5, 0.5])
    assert found.predict([0, 9, 0, 9], [2, 2, 9, 9]) == pytest.approx([1.0, 2.0, 1.5, 2.5])


def test_differences_explain_what_their_own_least_squares_explain():
    table = known_table(7)
    found = decompose(table)
    i, j = np.nonzero(off(7))
    differences = np.eye(7)[i] - np.eye(7)[j]
    A = found.A_KK[i, j]
    a = np.linalg.lstsq(differences, A, rcond=None)[0]
    left = np.square(A - differences @ a).sum()
    assert found.antisymmetric_additive_r2 == pytest.approx(1 - left / found.ss_antisymmetric)


def test_what_is_put_in_comes_out():
    K, source = 9, rng("put in")
    a = source.normal(size=K)
    symmetric = source.normal(size=(K, K))
    symmetric = symmetric + symmetric.T
    only_direction = decompose(5.0 + a[:, None] - a[None, :])
    assert only_direction.antisymmetric_share == pytest.approx(1.0)
    assert only_direction.antisymmetric_additive_r2 == pytest.approx(1.0)
    assert only_direction.additive_r2 == pytest.approx(1.0)
    no_direction = decompose(symmetric)
    assert no_direction.antisymmetric_share == 0.0
    assert no_direction.symmetric_cap == 1.0
    assert no_direction.antisymmetric_additive_r2 is None
    cycle = np.sign((np.arange(K)[None, :] - np.arange(K)[:, None] + K // 2) % K - K // 2)
    around = decompose(cycle.astype(float))
    assert around.antisymmetric_share == pytest.approx(1.0)
    assert around.antisymmetric_additive_r2 == pytest.approx(0.0, abs=1e-12)


def test_the_cap_is_what_the_best_symmetric_predictor_reaches():
    table = known_table(8)
    found = decompose(table)
    cells = off(8)
    assert r_squared(table[cells], found.S_KK[cells]) == pytest.approx(found.symmetric_cap)


def test_a_symmetric_table_is_called_so_despite_rounding():
    distances = np.abs(known_table(6) + known_table(6).T) * 1000
    printed = np.round(distances + 1e-6 * rng("print").normal(size=(6, 6)), 6)
    assert 0 < decompose(printed).antisymmetric_share < ROUNDING_SHARE
    assert decompose(printed).is_symmetric
    assert decompose(np.ones((4, 4))).is_symmetric
    assert not decompose(known_table(6)).is_symmetric


# --- laws -----------------------------------------------------------------------------------------


@given(table=gappy_squares())
@settings(max_examples=150, deadline=None)
def test_parts_rebuild_the_table_and_their_squares_add_up(table):
    found = decompose(table)
    cells = ~np.isnan(found.S_KK)
    assert np.array_equal(cells, ~np.isnan(table) & ~np.isnan(table.T) & off(len(table)))
    for parts in (found.S_KK + found.A_KK, found.additive_KK + found.interaction_KK):
        assert parts[cells] == pytest.approx(table[cells], abs=1e-9)
    effects = found.mean + found.row_K[:, None] + found.column_K[None, :]
    assert effects[cells] == pytest.approx(found.additive_KK[cells], abs=1e-9)
    assert np.array_equal(found.S_KK, found.S_KK.T, equal_nan=True)
    assert np.array_equal(found.A_KK, -found.A_KK.T, equal_nan=True)
    scale = 1e-9 * (1 + found.ss_total)
    total = found.ss_total
    assert found.ss_symmetric + found.ss_antisymmetric == pytest.approx(total, abs=scale)
    assert found.ss_additive + found.ss_interaction == pytest.approx(total, abs=scale)
    assert found.ss_antisymmetric_additive <= found.ss_antisymmetric + scale
    assert found.ss_antisymmetric_additive <= found.ss_additive + scale


@given(table=gappy_squares(), order=st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_renaming_contexts_permutes_the_tables_and_nothing_else(table, order):
    places = list(range(len(table)))
    order.shuffle(places)
    before, after = decompose(table), decompose(table[np.ix_(places, places)])
    scale = 1e-9 * (1 + before.ss_total)
    for name in Decomposition.__dataclass_fields__:
        was, now = getattr(before, name), getattr(after, name)
        if name.endswith("_KK"):
            assert now == pytest.approx(was[np.ix_(places, places)], abs=scale, nan_ok=True), name
    for name in ("total", "symmetric", "antisymmetric", "additive", "interaction"):
        assert getattr(after, f"ss_{name}") == pytest.approx(
            getattr(before, f"ss_{name}"), abs=scale
        )


@given(table=gappy_squares())
@settings(max_examples=40, deadline=None)
def test_turning_the_table_over_turns_the_direction_round(table):
    found, turned = decompose(table), decompose(table.T)
    assert np.array_equal(turned.A_KK, -found.A_KK, equal_nan=True)
    assert turned.ss_antisymmetric == pytest.approx(found.ss_antisymmetric, rel=1e-12)
    assert turned.row_K == pytest.approx(found.column_K, abs=1e-9, nan_ok=True)


def test_a_missing_cell_takes_its_mirror_along():
    table = known_table(6)
    table[1, 4] = np.nan
    found = decompose(table)
    assert found.n_cells == 28
    assert np.isnan(found.S_KK[4, 1])
    assert np.isnan(found.additive_KK[4, 1])
    table[4, 1] = 1e6
    assert decompose(table).ss_total == found.ss_total


def test_a_level_table_has_no_shares():
    found = decompose(np.full((4, 4), 0.1))
    assert (found.mean, found.ss_total) == (0.1, 0.0)
    assert (found.antisymmetric_share, found.symmetric_cap, found.additive_r2) == (None,) * 3
    # Equal but for the last digit, as 0.3 - 0.2 and 0.1 are: shares of dust are not shares.
    almost = decompose(np.where(np.arange(16).reshape(4, 4) % 3, 0.1, 0.3 - 0.2))
    assert almost.ss_total > 0
    assert (almost.antisymmetric_share, almost.additive_r2) == (None, None)


# --- noise ----------------------------------------------------------------------------------------


def test_expected_noise_of_each_part_is_what_simulation_gives():
    K, n = 6, 3000
    truth, source = known_table(K, "truth"), rng("noise")
    variance = source.uniform(0.1, 2.0, size=(K, K))
    expected = decompose(truth, variance_KK=variance).noise
    bare = decompose(truth)
    sums = dict.fromkeys(("total", "symmetric", "antisymmetric", "additive", "interaction"), 0.0)
    for _ in range(n):
        noisy = decompose(truth + np.sqrt(variance) * source.normal(size=(K, K)))
        for part in sums:
            sums[part] += getattr(noisy, f"ss_{part}") / n
    for part, mean in sums.items():
        found = mean - getattr(bare, f"ss_{part}")
        assert found == pytest.approx(getattr(expected, f"expected_{part}"), abs=1.5), part


def test_corrected_shares_recover_the_truth_on_average():
    K, R, n = 12, 3, 200
    source = rng("recover")
    mutual = source.normal(size=(K, K))
    truth = mutual + mutual.T + 0.4 * known_table(K, "recover")
    bare = decompose(truth)
    corrected, raw = [], []
    for _ in range(n):
        replicates = truth + source.normal(size=(R, K, K))
        found = decompose(replicates.mean(axis=0), replicates_RKK=replicates)
        corrected.append(found.noise.antisymmetric_share)
        raw.append(found.antisymmetric_share)
        assert {"total", "symmetric", "antisymmetric"}.isdisjoint(found.noise.truncated)
    assert np.mean(corrected) == pytest.approx(bare.antisymmetric_share, abs=0.01)
    assert np.mean(raw) > bare.antisymmetric_share + 0.02


def test_noise_shared_by_a_row_is_booked_as_the_rows():
    """Cells of one adapter err together; replicates see it, a variance per cell cannot."""
    K, R, n = 10, 2, 300
    source = rng("adapters")
    truth = known_table(K, "adapters")
    bare = decompose(truth)
    by_replicates, by_variance = [], []
    for _ in range(n):
        replicates = truth + 1.5 * source.normal(size=(R, K, 1)) + np.zeros((1, K, K))
        mean = replicates.mean(axis=0)
        by_replicates.append(decompose(mean, replicates_RKK=replicates).noise.ss_additive)
        by_variance.append(
            decompose(mean, variance_KK=np.full((K, K), 1.5**2 / R)).noise.ss_additive
        )
    error = np.std(by_replicates) / np.sqrt(n)
    assert np.mean(by_replicates) == pytest.approx(bare.ss_additive, abs=4 * error)
    assert np.mean(by_variance) > bare.ss_additive + 8 * error


def test_variances_and_replicates_add():
    table, source = known_table(5), rng("add")
    replicates = table + 0.1 * source.normal(size=(3, 5, 5))
    variance = np.full((5, 5), 0.2)
    both = decompose(table, variance_KK=variance, replicates_RKK=replicates).noise
    parts = (decompose(table, variance_KK=variance), decompose(table, replicates_RKK=replicates))
    assert both.expected_antisymmetric == pytest.approx(
        sum(part.noise.expected_antisymmetric for part in parts)
    )
    # v / 2 per cell goes to the antisymmetric part, whatever the design.
    assert parts[0].noise.expected_antisymmetric == pytest.approx(20 * 0.2 / 2)
    assert parts[0].noise.expected_total == pytest.approx(19 * 0.2)


def test_a_table_of_noise_alone_leaves_nothing():
    table = rng("alone").normal(size=(8, 8))
    found = decompose(table, variance_KK=np.full((8, 8), 4.0)).noise
    assert found.ss_total == found.ss_antisymmetric == 0.0
    assert found.antisymmetric_share is None
    assert found.symmetric_cap is None
    assert found.reliability == 0.0
    assert set(found.truncated) >= {"total", "symmetric", "antisymmetric", "interaction"}


def test_without_noise_the_corrected_shares_are_the_raw_ones():
    table = known_table(6)
    table[2, 3] = np.nan
    found = decompose(table, variance_KK=np.zeros((6, 6)))
    assert found.noise.antisymmetric_share == pytest.approx(found.antisymmetric_share)
    assert found.noise.additive_r2 == pytest.approx(found.additive_r2)
    assert found.noise.antisymmetric_additive_r2 == pytest.approx(found.antisymmetric_additive_r2)
    assert found.noise.reliability == 1.0
    assert decompose(table).noise is None


# --- cells and tables -----------------------------------------------------------------------------


def test_square_table_keeps_what_is_on_both_sides():
    contexts, table = square_table([5, 5, 2, 2, 9], [5, 2, 5, 7, 2], [1.0, 2.0, 3.0, 4.0, 5.0])
    assert contexts.tolist() == [2, 5]
    assert table == pytest.approx(np.array([[np.nan, 3.0], [2.0, 1.0]]), nan_ok=True)


def test_mirrors_are_found():
    assert transpose_index([0, 1, 2, 0], [1, 0, 2, 7]).tolist() == [1, 0, 2, -1]


BAD = {
    "not square": (lambda: decompose(np.zeros((2, 3))), "a square table"),
    "no dyad": (lambda: decompose([[1.0, 2.0], [np.nan, 3.0]]), "both directions"),
    "one context": (lambda: decompose([[1.0]]), "both directions"),
    "infinite": (lambda: decompose([[0.0, np.inf], [1.0, 0.0]]), "NaN for absent"),
    "negative variance": (
        lambda: decompose(np.eye(3), variance_KK=-np.ones((3, 3))),
        "variance_KK: expected 0 or more",
    ),
    "missing variance": (
        lambda: decompose(np.eye(3), variance_KK=np.full((3, 3), np.nan)),
        "variance_KK: expected finite",
    ),
    "variance of another shape": (
        lambda: decompose(np.eye(3), variance_KK=np.ones((2, 2))),
        r"shape \(3, 3\)",
    ),
    "one replicate": (
        lambda: decompose(np.eye(3), replicates_RKK=np.ones((1, 3, 3))),
        "at least 2 tables",
    ),
    "no cells": (lambda: additive_fit([], [], []), "1 context ids"),
    "nan cell": (lambda: additive_fit([0], [1], [np.nan]), "finite"),
    "cell twice": (lambda: square_table([0, 0], [1, 1], [1.0, 2.0]), r"the cell \(0, 1\) twice"),
    "unequal": (lambda: square_table([0, 0], [1], [1.0, 2.0]), "2 context ids"),
}


@pytest.mark.parametrize(("act", "message"), BAD.values(), ids=BAD)
def test_tables_without_parts_are_refused(act, message):
    with pytest.raises(StatsInputError, match=message):
        act()


# --- published matrices ---------------------------------------------------------------------------


def rows_of(folder: str, file: str) -> list[dict[str, str]]:
    path = DATA / folder / file
    if not path.exists():
        pytest.skip(f"the public data set {folder} is not on disk")
    with path.open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def as_table(rows, train: str, evaluated: str, value: str) -> np.ndarray:
    names = sorted({row[train] for row in rows} | {row[evaluated] for row in rows})
    number = {name: k for k, name in enumerate(names)}
    return square_table(
        [number[row[train]] for row in rows],
        [number[row[evaluated]] for row in rows],
        [float(row[value]) for row in rows],
    )[1]


@pytest.mark.realdata
def test_marker_matrix_gives_its_published_figures():
    G = as_table(
        rows_of("i474_marker_16x16", "cells.csv"), "train_context", "eval_context", "delta"
    )
    kl = as_table(
        rows_of("i474_marker_16x16", "gauss_kl_last_prompt_L22.csv"),
        "context_a",
        "context_b",
        "gauss_kl",
    )
    cells = off(16)
    found = decompose(G)
    assert (G.shape, found.n_cells) == ((16, 16), 240)
    assert spearman(kl[cells], G[cells]) == pytest.approx(-0.7952, abs=5e-5)
    assert found.antisymmetric_share == pytest.approx(0.2832, abs=5e-5)
    assert found.symmetric_cap == pytest.approx(0.717, abs=5e-4)
    assert found.additive_r2 == pytest.approx(0.943, abs=5e-4)
    # "Asymmetry" is here mostly how widely each source spreads.
    breadth = np.where(cells, G, 0.0).sum(axis=1) / 15
    difference = (breadth[:, None] - breadth[None, :])[cells]
    assert pearson(found.A_KK[cells], difference) == pytest.approx(0.87, abs=5e-3)
    assert found.antisymmetric_additive_r2 == pytest.approx(0.955, abs=5e-4)


@pytest.mark.realdata
def test_symmetric_kl_scores_nothing_on_the_antisymmetric_part():
    G = as_table(
        rows_of("i474_marker_16x16", "cells.csv"), "train_context", "eval_context", "delta"
    )
    kl = as_table(
        rows_of("i474_marker_16x16", "gauss_kl_last_prompt_L22.csv"),
        "context_a",
        "context_b",
        "gauss_kl",
    )
    parts = decompose(kl)
    assert parts.antisymmetric_share < 1e-13
    assert np.nanmax(np.abs(parts.A_KK)) < 1e-3
    assert parts.is_symmetric
    # Its rounding set to 0, the prediction is 0 and so is what it explains.
    i, j = np.nonzero(off(16))
    matrix = stack_folds(leave_two_contexts_out(i, j))
    A = decompose(G).A_KK[i, j]
    predicted = simple_fold_predictions(np.zeros((240, 1)), A, matrix, intercept=False)[:, 0]
    assert r_squared(A[matrix.cell_T], predicted) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.realdata
def test_taught_fact_matrices_give_their_published_figures():
    rows = rows_of("i537_fact_16x30_two_seeds", "cells.csv")
    by_seed = {seed: [row for row in rows if row["seed"] == seed] for seed in ("42", "1042")}
    first, second = (
        {(row["train_context"], row["eval_context"]): float(row["delta"]) for row in seed_rows}
        for seed_rows in by_seed.values()
    )
    assert len(first) == len(second) == 480
    x, y = np.array([(first[cell], second[cell]) for cell in first]).T
    assert pearson(x, y) == pytest.approx(0.82235, abs=5e-6)
    assert np.sqrt(np.square(x - y).mean()) == pytest.approx(0.24448, abs=5e-6)

    tables = {
        seed: as_table(seed_rows, "train_context", "eval_context", "delta")
        for seed, seed_rows in by_seed.items()
    }
    found = {seed: decompose(table) for seed, table in tables.items()}
    assert [part.n_cells for part in found.values()] == [240, 240]
    # Stated as 0.378 and 0.351; from the printed counts the first is 0.3775.
    assert found["42"].antisymmetric_share == pytest.approx(0.378, abs=6e-4)
    assert found["1042"].antisymmetric_share == pytest.approx(0.351, abs=6e-4)
    assert found["42"].additive_r2 == pytest.approx(0.77, abs=5e-3)
    assert found["1042"].additive_r2 == pytest.approx(0.76, abs=5e-3)
    # Part of that direction is the noise of training: the two seeds say how much.
    replicates = np.stack(list(tables.values()))
    pooled = decompose(replicates.mean(axis=0), replicates_RKK=replicates)
    assert pooled.noise.antisymmetric_share < pooled.antisymmetric_share
    assert 0.8 < pooled.noise.reliability < 1.0
