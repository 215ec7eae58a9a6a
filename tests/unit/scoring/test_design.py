"""Which cells count, which contexts leave together, and what a relabelling keeps."""

from __future__ import annotations

import numpy as np
import pytest

from eps_locked.errors import StatsInputError
from eps_locked.scoring.design import build_design, build_pooled
from unit.scoring.worlds import QUICK, change, noise, predictor, table, world


def test_scored_are_the_cells_without_a_reason_against_them() -> None:
    found = build_design(
        change(
            table(world(1)),
            {
                ("c00", "c03"): {"flags": frozenset({"floor"})},
                ("c01", "c03"): {"flags": frozenset({"sealed"}), "g": None},
                ("c02", "c03"): {"split": "held_out"},
                ("c04", "c03"): {"g": None},
            },
        ),
        QUICK,
    )
    assert found.n == 6 * 9 - 6 - 4
    assert all(found.train_N != found.eval_N)


def test_cells_let_in_for_sensitivity_are_those_named_and_no_sealed_one() -> None:
    marked = change(
        table(world(1)),
        {
            ("c00", "c03"): {"flags": frozenset({"floor"})},
            ("c01", "c03"): {"flags": frozenset({"floor", "implant_failed"})},
            ("c02", "c03"): {"flags": frozenset({"floor", "sealed"}), "g": None},
        },
    )
    closed = build_design(marked, QUICK).n
    assert build_design(marked, QUICK, let_in=("floor",)).n == closed + 1
    assert build_design(marked, QUICK, let_in=("floor", "implant_failed")).n == closed + 2


def test_near_duplicates_leave_every_fold_together() -> None:
    design = build_design(table(world(1), groups={"c02": "twins", "c07": "twins"}), QUICK)
    matrix = design.two.matrix
    assert matrix is not None
    twins = [design.contexts.index(name) for name in ("c02", "c07")]
    touches = np.isin(design.train_N, twins) | np.isin(design.eval_N, twins)
    for fit in matrix.fit_FN:
        fitted = {t for t in twins if (fit * ((design.train_N == t) | (design.eval_N == t))).any()}
        assert len(fitted) in (0, 2)
    assert touches.any()


def test_a_relabelling_keeps_rows_rows_and_columns_columns() -> None:
    grid = table(world(1))
    design = build_design(grid, QUICK)
    rows = predictor([grid], lambda b, i, j: float(int(i[1:])))
    relabelled = design.relabelled(rows.values)
    assert relabelled.shape == (design.n, QUICK.n_permutations)
    for column in relabelled.T[:20]:
        values = {i: set(column[design.train_N == i]) for i in set(design.train_N.tolist())}
        assert all(len(found) == 1 for found in values.values())
        assert len(set.union(*values.values())) == 6
    assert any((column != relabelled[:, 0]).any() for column in relabelled.T)


def test_one_sided_contexts_change_places_among_themselves_only() -> None:
    design = build_design(table(world(1), n_train=4, n_eval=7), QUICK)
    both = {design.contexts.index(f"c{k:02d}") for k in range(4)}
    for row in design.relabelled_MK:
        assert set(row[sorted(both)]) == both


def test_pooling_normalises_each_behaviour_and_keeps_contexts_common() -> None:
    worlds = [table(world(1), behaviour="marker"), table(world(5, row=30.0), behaviour="fact")]
    pooled = build_pooled(worlds, QUICK)
    for piece in range(2):
        here = pooled.y_N[pooled.piece_N == piece]
        assert here.mean() == pytest.approx(0, abs=1e-12)
        assert here.std() == pytest.approx(1)
    values = predictor(worlds, noise(3)).values
    relabelled = pooled.relabelled(values)
    assert relabelled.shape == (pooled.n, QUICK.n_permutations)
    assert np.isfinite(relabelled).all()


def test_a_behaviour_without_spread_cannot_be_pooled() -> None:
    flat = table(lambda b, i, j: 1.0, behaviour="fact")
    with pytest.raises(StatsInputError, match="no spread"):
        build_pooled([table(world(1)), flat], QUICK)


def test_too_few_cells_are_a_reason_and_no_error() -> None:
    small = build_design(table(world(1), n_train=2, n_eval=3), QUICK)
    assert small.reason == "4 scored cells, at least 12 needed"
    assert small.two.matrix is None
    assert small.two.reason == small.reason


def test_streams_depend_on_the_seed_and_on_nothing_that_was_drawn_before() -> None:
    grid = table(world(1))
    first, second = build_design(grid, QUICK), build_design(grid, QUICK)
    second.rng("something else").random(100)
    np.testing.assert_array_equal(first.relabelled_MK, second.relabelled_MK)
