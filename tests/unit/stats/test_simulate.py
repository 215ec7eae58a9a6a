"""The simulator's tables and readings have the parts, truths and strengths they are said to."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.special

from eps_locked.errors import StatsInputError
from eps_locked.stats.bootstrap import generator_from_digest
from eps_locked.stats.simulate import (
    TABLE_SPREADS,
    ReadingSpread,
    TableSpread,
    draw_cells,
    off_diagonal,
    simulate_rates,
    simulate_readings,
    simulate_table,
    simulate_tensor,
)

N_HUGE = 200_000


def rng(*labels: str) -> np.random.Generator:
    return generator_from_digest("blake3:test", "simulate", *labels)


def only(**sizes: float) -> TableSpread:
    return TableSpread(
        **{
            **dict.fromkeys(("row", "column", "row_column", "interaction", "mirror", "cell"), 0.0),
            **sizes,
        }
    )


def test_cells_of_a_table_and_of_new_columns():
    train, evaluated = off_diagonal(3, 5)
    cells = list(zip(train.tolist(), evaluated.tolist(), strict=True))
    assert cells[:5] == [(0, 1), (0, 2), (0, 3), (0, 4), (1, 0)]
    assert len(set(cells)) == 12
    train, evaluated = off_diagonal(2, 3, n_shared=0)
    assert sorted(set(evaluated.tolist())) == [2, 3, 4]
    assert len(train) == 6


@pytest.mark.parametrize("name", TABLE_SPREADS)
def test_variance_of_a_cell_is_the_sum_of_its_parts(name):
    spread = TABLE_SPREADS[name]
    huge = draw_cells(rng(name), N_HUGE, spread=spread)
    parts = (spread.row, spread.column, spread.interaction, spread.mirror, spread.cell)
    assert huge.g_N.var() == pytest.approx(sum(s**2 for s in parts), rel=0.02)
    assert huge.g_N.mean() == pytest.approx(0, abs=0.02)


def test_each_part_joins_the_cells_it_should():
    train, evaluated = off_diagonal(300, 300)
    g = {
        part: simulate_table(rng(part), train, evaluated, spread=only(**{part: 1.0})).g_N
        for part in ("row", "column", "mirror", "cell")
    }
    square = {part: np.full((300, 300), np.nan) for part in g}
    for part, values in g.items():
        square[part][train, evaluated] = values
    off = ~np.eye(300, dtype=bool)
    assert np.nanmax(np.nanstd(square["row"], axis=1)) < 1e-12
    assert np.nanmax(np.nanstd(square["column"], axis=0)) < 1e-12
    assert np.array_equal(square["mirror"][off], square["mirror"].T[off])
    mirrored = np.corrcoef(square["cell"][off], square["cell"].T[off])[0, 1]
    assert abs(mirrored) < 0.02


def test_breadth_as_source_and_as_target_correlate_as_asked():
    # Rows and columns of one context: G[i, .] less G[., i] has no row-column part left.
    spread = only(row=1.0, column=1.0, row_column=0.6)
    train, evaluated = off_diagonal(700, 700)
    table = simulate_table(rng("breadth"), train, evaluated, spread=spread)
    row = np.bincount(train, table.g_N) / 699
    column = np.bincount(evaluated, table.g_N) / 699
    assert np.corrcoef(row, column)[0, 1] == pytest.approx(0.6, abs=0.09)


def test_a_predictors_strength_is_the_correlation_of_its_letters():
    huge = draw_cells(
        rng("strength"), N_HUGE, spread=only(row=1.0, cell=1.0), strengths=(0.0, 0.6, 1.0, -1.0)
    )
    found = [np.corrcoef(x, huge.g_N)[0, 1] for x in huge.predictors_PN]
    assert found == pytest.approx([0.0, 0.6, 1.0, -1.0], abs=0.02)
    with pytest.raises(StatsInputError, match="strengths"):
        draw_cells(rng("strength"), 10, spread=only(cell=1.0), strengths=(1.5,))


def test_a_predictor_may_have_parts_of_other_sizes_than_the_table():
    train, evaluated = off_diagonal(40, 40)
    table = simulate_table(
        rng("sizes"),
        train,
        evaluated,
        spread=only(row=1.0),
        strengths=(0.0,),
        predictor_spread=only(cell=2.0),
    )
    assert table.predictors_PN[0].std() == pytest.approx(2.0, rel=0.06)


def test_readings_have_the_parts_they_are_said_to_have():
    adapter = np.repeat(np.arange(400), 3)
    spread = ReadingSpread(adapter_seed=1.0, cell_seed=0.5, question=0.8, residual=0.6)
    y = simulate_readings(
        rng("parts"), np.zeros(1200), adapter, n_seeds=2, n_items=50, spread=spread
    )
    between = (y[:, 0] - y[:, 1]).mean(axis=1) / np.sqrt(2)  # seed variance + residual / 50
    assert between.var() == pytest.approx(1.0 + 0.25 + 0.36 / 50, rel=0.12)
    by_adapter = between.reshape(400, 3)
    shared = np.mean(by_adapter[:, 0] * by_adapter[:, 1])
    assert shared == pytest.approx(1.0, rel=0.2)
    left = y - y.mean(axis=2, keepdims=True)
    assert np.mean(left[:, 0] * left[:, 1]) == pytest.approx(0.64 * 49 / 50, rel=0.05)


def test_true_rate_is_that_of_unseen_seeds_and_questions():
    spread = ReadingSpread(adapter_seed=0.6, cell_seed=0.4, question=1.0, residual=0.0)
    logit = np.array([-4.0, -1.0, 0.0, 2.0])
    readings, truth = simulate_rates(
        rng("rates"), logit, np.arange(4), n_seeds=3, n_items=5, spread=spread
    )
    assert readings.shape == (4, 3, 5)
    assert set(np.unique(readings)) <= {0.0, 1.0}
    noise = np.sqrt(0.36 + 0.16 + 1.0) * rng("unseen").normal(size=400_000)
    assert truth == pytest.approx([scipy.special.expit(m + noise).mean() for m in logit], abs=2e-3)


def test_a_tensor_is_a_table_with_readings_around_it_and_equal_for_equal_seeds():
    one, other = (
        simulate_tensor(
            rng("tensor"), n_train=6, n_eval=9, n_seeds=2, n_items=300, strengths=(0.5,)
        )
        for _ in range(2)
    )
    assert one.readings_CSQ.shape == (48, 2, 300)
    assert np.array_equal(one.readings_CSQ, other.readings_CSQ)
    assert np.array_equal(one.adapter_C, one.table.train_N)
    assert np.corrcoef(one.readings_CSQ.mean(axis=(1, 2)), one.table.g_N)[0, 1] > 0.97
