"""Gates: passed by what they ask for, failed by its opposite, and by chance no more than alpha."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from eps_locked.scoring.design import Design, build_design, build_pooled
from eps_locked.scoring.gates import inoculation_in_g, inoculation_of_metric, proximity
from unit.scoring.worlds import (
    QUICK,
    Value,
    by_context,
    change,
    contexts,
    noise,
    predictor,
    table,
    world,
)

FAMILIES = contexts(12, 14)[2]


def grid(g: Value | None = None, **options: Any) -> Any:
    return table(world(1) if g is None else g, n_train=12, n_eval=14, **options)


def near(b: str, i: str, j: str) -> float:
    return float(FAMILIES[i] == FAMILIES[j])


def proximity_of(value: Value, sign: float = 1.0) -> dict[str, Any]:
    own = grid()
    design = build_design(own, QUICK)
    return proximity(design, design.predictor(predictor([own], value).values), sign)


def test_a_metric_that_rises_within_families_passes_proximity() -> None:
    own = noise(3)
    found = proximity_of(lambda b, i, j: 2 * near(b, i, j) + own(b, i, j))
    assert (found["status"], found["effect"] > 0) == ("passed", True)


def test_polarity_is_applied_and_the_opposite_gradient_fails() -> None:
    own = noise(3)
    away = lambda b, i, j: -2 * near(b, i, j) + own(b, i, j)  # noqa: E731
    assert proximity_of(away, -1.0)["status"] == "passed"
    assert proximity_of(away, 1.0)["status"] == "failed"


def test_without_families_proximity_is_undetermined_and_says_why() -> None:
    own = table(world(1), families=dict.fromkeys(contexts(6, 9)[1]))
    found = proximity(build_design(own, QUICK), np.zeros(6 * 9 - 6))
    assert found["status"] == "undetermined"
    assert found["reason"] == "the families of the contexts are not known"


def test_a_constant_metric_passes_nothing() -> None:
    assert proximity_of(lambda b, i, j: 4.0)["status"] == "undetermined"
    own = grid()
    metric = predictor([own], lambda b, i, j: float(int(j[1:])))
    found = inoculation_of_metric(build_design(own, QUICK), metric.values, 1.0)
    assert found["status"] == "undetermined"
    assert "rows cannot differ" in found["reason"]


def rows_metric(low: float) -> Value:
    """The instructed row (c01) far below (low) or above the others, the default (c00) high."""
    own = noise(8)
    level = {"c00": 2.0, "c01": low}
    return lambda b, i, j: level.get(i, 0.0) + 0.1 * own(b, i, j)


@pytest.mark.parametrize(("low", "sign", "status"), [(-2, 1, "passed"), (-2, -1, "failed")])
def test_inoculation_asks_whether_the_instructed_row_lies_lowest(
    low: float, sign: float, status: str
) -> None:
    own = grid()
    metric = predictor([own], rows_metric(low))
    found = inoculation_of_metric(build_design(own, QUICK), metric.values, sign)
    assert found["status"] == status
    assert found["n_row_pairs"] == 12 * 11
    assert found["n_columns"] == 14 - 2


def test_two_rows_in_the_middle_of_the_others_leave_inoculation_undetermined() -> None:
    own = grid()
    level = {"c00": 0.2, "c01": 0.1}
    rows = by_context(4)
    metric = predictor([own], lambda b, i, j: level.get(i, 5 * rows(i)))
    found = inoculation_of_metric(build_design(own, QUICK), metric.values, 1.0)
    assert found["status"] == "undetermined"


def test_with_few_rows_inoculation_cannot_pass_and_says_so() -> None:
    own = table(world(1), n_train=4, n_eval=9)
    found = inoculation_of_metric(
        build_design(own, QUICK), predictor([own], rows_metric(-9)).values, 1.0
    )
    assert found["status"] == "undetermined"
    assert "12 ordered pairs of rows" in found["reason"]


def test_without_an_instructed_row_inoculation_names_what_is_missing() -> None:
    own = grid(families=dict.fromkeys(FAMILIES, "persona"))
    found = inoculation_in_g(build_design(own, QUICK))
    assert found["reason"] == "0 train contexts of family default, exactly 1 needed"


def test_inoculation_in_g_reads_both_rows_with_saturated_cells_in_and_sealed_out() -> None:
    own = change(
        grid(rows_metric(0.0)),
        {
            ("c01", "c05"): {"flags": frozenset({"floor"}), "g": -0.4},
            ("c00", "c06"): {"flags": frozenset({"sealed"}), "g": None},
        },
    )
    found = inoculation_in_g(build_design(own, QUICK))
    row = [c.g for c in own.cells if c.train == "c01" and c.eval != "c01"]
    assert found["instruction_mean"] == pytest.approx(np.mean(row))
    assert found["n_columns"] == 14 - 2 - 1
    assert found["status"] == "passed"
    assert found["low"] < found["effect"] < found["high"]


def test_a_failed_implant_leaves_inoculation_in_g_undetermined() -> None:
    own = grid(rows_metric(0.0))
    failed = {("c01", c.eval): {"flags": frozenset({"implant_failed"})} for c in own.cells}
    found = inoculation_in_g(build_design(change(own, failed), QUICK))
    assert (found["status"], found["reason"]) == ("undetermined", "the implant failed in c01")


def passes(gate: Any, make: Any, n: int) -> float:
    return sum(gate(make(seed)) == "passed" for seed in range(n)) / n


def structured(seed: int) -> Value:
    """A metric without information, but with rows and columns: cells alone would be no null."""
    return world(1000 + 7 * seed, row=1.0, column=1.0, pair=0.3)


@pytest.mark.parametrize("name", ["proximity", "inoculation"])
def test_a_null_metric_with_rows_and_columns_passes_at_most_at_alpha(name: str) -> None:
    own = grid()
    design = build_design(own, replace(QUICK, n_permutations=199))

    def status(value: Value) -> str:
        metric = predictor([own], value)
        if name == "proximity":
            return str(proximity(design, design.predictor(metric.values))["status"])
        return str(inoculation_of_metric(design, metric.values, 1.0)["status"])

    n = 400
    rate = passes(status, structured, n)
    # Three standard errors of a share of 0.05 in 400.
    assert rate <= 0.05 + 3 * (0.05 * 0.95 / n) ** 0.5
    assert rate > 0.01


def test_pooled_behaviours_with_common_rows_are_not_counted_as_independent() -> None:
    worlds = [grid(behaviour=name) for name in ("marker", "fact", "refusal")]
    design: Design = build_pooled(worlds, QUICK)
    rows = by_context(6)
    common = predictor(worlds, lambda b, i, j: rows(i))
    alone = predictor(worlds[:1], lambda b, i, j: rows(i))
    pooled = inoculation_of_metric(design, common.values, 1.0)
    single = inoculation_of_metric(build_design(worlds[0], QUICK), alone.values, 1.0)
    assert pooled["p"] == single["p"]
