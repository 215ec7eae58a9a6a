"""What a metric may claim of each part: symmetric ones no direction, row scalars nothing beyond."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from eps_locked.scoring.design import build_design
from eps_locked.scoring.single import ground_of, score_predictor
from unit.scoring.worlds import QUICK, Value, by_context, noise, predictor, table, world


def scored(g: Value, x: Value, **options: Any) -> dict[str, Any]:
    grid = table(g, n_train=10, n_eval=12, **options)
    return score_predictor(ground_of(build_design(grid, QUICK)), predictor([grid], x))


def symmetric(value: Value) -> Value:
    return lambda b, i, j: value(b, *sorted((i, j)))


def test_a_symmetric_metric_scores_exactly_zero_on_the_antisymmetric_part() -> None:
    found = scored(world(1), symmetric(noise(9)))["parts"]["antisymmetric"]
    assert found["zero_by_construction"]
    assert (found["r2"]["value"], found["delta_r2"]["value"]) == (0.0, 0.0)
    assert found["spearman"]["value"] is None


def test_rounding_in_a_symmetric_metric_is_not_fitted() -> None:
    exact, dust = symmetric(noise(9)), noise(10)
    found = scored(world(1), lambda b, i, j: exact(b, i, j) + 1e-7 * dust(b, i, j))
    assert found["parts"]["antisymmetric"]["r2"]["value"] == 0.0


def test_a_little_true_asymmetry_is_scored() -> None:
    exact, more = symmetric(noise(9)), noise(10)
    found = scored(world(1), lambda b, i, j: exact(b, i, j) + 1e-2 * more(b, i, j))
    assert not found["parts"]["antisymmetric"]["zero_by_construction"]


def test_a_row_scalar_wins_the_antisymmetric_part_and_adds_nothing_beyond_rows() -> None:
    rows = by_context(1)
    found = scored(world(1, column=0.1, pair=0.1), lambda b, i, j: rows(i))
    assert found["parts"]["antisymmetric"]["r2"]["value"] > 0.9
    assert found["parts"]["antisymmetric"]["additive_r2"] > 0.9
    assert found["parts"]["antisymmetric"]["delta_r2"]["value"] == pytest.approx(0, abs=1e-9)
    assert found["over_additive"]["delta_r2"]["value"] == pytest.approx(0, abs=1e-9)
    interaction = found["parts"]["interaction"]
    assert interaction["zero_by_construction"]
    assert interaction["r2"]["value"] == 0.0


def test_a_metric_of_the_pairs_own_part_wins_interaction_and_adds_beyond_rows() -> None:
    own = noise(3)
    found = scored(world(1), own)
    interaction, beyond = found["parts"]["interaction"], found["over_additive"]
    assert interaction["r2"]["value"] > 0.9
    assert interaction["r2"]["null"]["p"] == pytest.approx(1 / 50)
    assert beyond["delta_r2"]["value"] > 0.05
    assert beyond["with_predictor_r2"] > 0.99
    assert beyond["with_predictor_r2"] - beyond["additive_out_of_fold_r2"] == pytest.approx(
        beyond["delta_r2"]["value"]
    )


def test_beyond_rows_and_columns_a_mirror_pair_is_predicted_without_either_of_its_cells() -> None:
    grid, own = table(world(1), n_train=6, n_eval=8), noise(5)
    design = build_design(grid, QUICK)
    found = score_predictor(ground_of(design), predictor([grid], own))["over_additive"]
    i, j, y = design.train_N, design.eval_N, design.y_N
    x = np.array([own("marker", f"c{a:02d}", f"c{b:02d}") for a, b in zip(i, j, strict=True)])
    columns = np.column_stack(
        [(i[:, None] == np.arange(6)) * 1.0, (j[:, None] == np.arange(8)) * 1.0, x]
    )
    predicted = np.empty_like(y)
    for n in range(len(y)):
        pair = {int(i[n]), int(j[n])}
        out = np.array([{int(a), int(b)} == pair for a, b in zip(i, j, strict=True)])
        weights = np.linalg.lstsq(columns[~out], y[~out], rcond=None)[0]
        predicted[n] = columns[n] @ weights
    expected = 1 - np.square(y - predicted).sum() / np.square(y - y.mean()).sum()
    assert found["with_predictor_r2"] == pytest.approx(expected)


def test_every_delta_stands_beside_both_its_terms_and_a_null() -> None:
    found = scored(world(1), noise(5))
    for name in ("symmetric", "antisymmetric"):
        part = found["parts"][name]
        assert part["with_predictor_r2"] - part["additive_out_of_fold_r2"] == pytest.approx(
            part["delta_r2"]["value"]
        )
        assert part["delta_r2"]["null"]["n"] == QUICK.n_part_permutations
        assert part["additive_r2"] >= part["additive_out_of_fold_r2"]


def test_without_mirror_pairs_the_parts_say_so() -> None:
    grid = table(world(1), n_train=6, n_eval=9)
    apart = grid.with_cells([cell for cell in grid.cells if cell.eval > "c05"])
    found = score_predictor(ground_of(build_design(apart, QUICK)), predictor([apart], noise(5)))
    for part in found["parts"].values():
        assert part["r2"]["value"] is None
        assert "0 mirror pairs" in part["reason"]
    assert found["r2"]["leave_two_out"]["value"] is not None
