"""The final document: fitted on open cells, judged on held-back ones, a fraud shown as one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from eps_locked.canonical import encode
from eps_locked.errors import MalformedInputError
from eps_locked.scoring.final import score_final
from eps_locked.scoring.predictor import Predictor
from eps_locked.scoring.tensor import BehaviourTable
from unit.scoring.worlds import QUICK, Value, noise, predictor, table, tensor, world

ROOT = Path(__file__).parents[3]
SCHEMA = json.loads((ROOT / "schemas/final-scores.schema.json").read_text("utf-8"))
N_TRAIN, N_EVAL = 12, 18
HELD_OUT = ("c14", "c15", "c16", "c17")
OWN = noise(3)


def held_back(behaviour: str = "marker", g: Value | None = None) -> BehaviourTable:
    """Four columns held out, ten mirror pairs quarantined, all with their values."""
    grid = table(
        g or world(1, row=0.5, pair=1.0), behaviour=behaviour, n_train=N_TRAIN, n_eval=N_EVAL
    )
    pairs = {(f"c{k:02d}", f"c{k + 2:02d}") for k in range(10)}

    def fate(i: str, j: str) -> str:
        if j in HELD_OUT:
            return "held_out"
        return "quarantined" if {(i, j), (j, i)} & pairs else "open"

    return grid.with_cells([replace(c, split=fate(c.train, c.eval)) for c in grid.cells])


def honest(tables: list[BehaviourTable], metric: str = "honest") -> Predictor:
    more = noise(31)
    return predictor(tables, lambda b, i, j: OWN(b, i, j) + 0.2 * more(b, i, j), metric=metric)


def cheat(tables: list[BehaviourTable]) -> Predictor:
    """The answer where it can be read, noise where it cannot."""
    dice = noise(41)
    known = {
        (t.behaviour, c.train, c.eval): float(c.g or 0.0)
        for t in tables
        for c in t.cells
        if c.split == "open"
    }
    value: Value = lambda b, i, j: known.get((b, i, j), 2 + dice(b, i, j))  # noqa: E731
    return predictor(tables, value, metric="cheat")


@pytest.fixture(scope="module")
def tables() -> list[BehaviourTable]:
    return [held_back(), held_back("fact", world(1, row=0.5, pair=1.2))]


@pytest.fixture(scope="module")
def document(tables: list[BehaviourTable]) -> Any:
    return score_final(tensor(*tables), cheat(tables), [honest(tables)], QUICK)


def scores(block: Mapping[str, Any]) -> dict[str, Any]:
    return {score["metric"]: score for score in block["scores"]}


def test_the_document_holds_its_schema_and_has_canonical_bytes(document: Any) -> None:
    jsonschema.Draft202012Validator(SCHEMA).validate(document)
    assert encode(document)


def test_a_metric_that_copies_open_cells_is_shown_as_one_that_does_not_carry_over(
    document: Any,
) -> None:
    for block in (*document["behaviours"], document["pooled"]):
        found = scores(block)["cheat"]
        gap = found["overfit_gap"]
        assert gap["open_r2"] > 0.999
        assert gap["final_r2"] < 0.1
        assert abs(found["splits"]["all"]["spearman"]["value"]) < 0.35
        assert gap["carries_over"] == "no"
        assert "does not show" in gap["statement"]


def test_an_honest_metric_carries_over(document: Any) -> None:
    for block in document["behaviours"]:
        gap = scores(block)["honest"]["overfit_gap"]
        assert gap["carries_over"] == "yes"
        assert abs(gap["r2"]) < 0.2
    assert scores(document["behaviours"][0])["honest"]["role"] == "reference"


def test_held_back_cells_are_counted_by_fate(document: Any) -> None:
    cells = document["behaviours"][0]["cells"]
    assert cells["held_back"]["held_out"] == N_TRAIN * len(HELD_OUT)
    assert cells["held_back"]["quarantined"] == 20
    assert cells["held_back"]["all"] == N_TRAIN * len(HELD_OUT) + 20
    assert cells["open"] == N_TRAIN * (N_EVAL - len(HELD_OUT)) - N_TRAIN - 20


def test_intervals_widen_with_the_number_of_looks(document: Any) -> None:
    found = scores(document["behaviours"][0])["honest"]["splits"]["all"]["r2"]
    looks = found["levels"]
    assert [one["looks"] for one in looks] == list(range(1, 21))
    assert (looks[0]["low"], looks[0]["high"]) == (found["low"], found["high"])
    widths = [one["high"] - one["low"] for one in looks]
    assert widths == sorted(widths)
    assert widths[-1] > 1.2 * widths[0]


def test_the_additive_model_is_known_where_row_and_column_are_and_not_in_held_out_columns(
    document: Any,
) -> None:
    splits = scores(document["behaviours"][0])["honest"]["splits"]
    assert splits["quarantined"]["additive"]["n"] == 20
    additive = splits["quarantined"]["additive"]
    # Each pair's own part dominates this world: rows and columns know little, the metric the rest.
    assert additive["r2"] < 0.3 < 0.8 < additive["with_predictor_r2"]
    assert additive["delta_r2"]["value"] == pytest.approx(
        additive["with_predictor_r2"] - additive["r2"]
    )
    assert "0 cells whose row and column" in splits["held_out"]["additive"]["reason"]


def test_the_line_is_that_of_the_open_cells(tables: list[BehaviourTable]) -> None:
    metric = honest(tables[:1])
    found = score_final(tensor(tables[0]), metric, [], QUICK)["behaviours"][0]
    scored = [c for c in tables[0].cells if c.train != c.eval]
    x = np.array([metric.values["marker", c.train, c.eval] for c in scored])
    y = np.array([float(c.g or 0) for c in scored])
    is_open = np.array([c.split == "open" for c in scored])
    slope, intercept = np.polyfit(x[is_open], y[is_open], 1)
    left = y[~is_open] - intercept - slope * x[~is_open]
    total = y[~is_open] - y[~is_open].mean()
    expected = 1 - np.square(left).sum() / np.square(total).sum()
    assert found["scores"][0]["splits"]["all"]["r2"]["value"] == pytest.approx(expected)


def test_held_back_values_do_not_move_the_open_score_or_the_line(
    tables: list[BehaviourTable],
) -> None:
    metric = honest(tables[:1])
    other = tables[0].with_cells(
        [replace(c, g=float(c.g or 0) * -3) if c.split != "open" else c for c in tables[0].cells]
    )
    first, second = (
        score_final(tensor(one), metric, [], QUICK)["behaviours"][0]["scores"][0]
        for one in (tables[0], other)
    )
    assert first["open"] == second["open"]
    assert first["splits"]["all"] != second["splits"]["all"]


def test_pooled_units_are_those_of_the_open_cells(
    tables: list[BehaviourTable], document: Any
) -> None:
    """Else one held-back value would move the scale on which all others are judged."""
    moved = tables[1].with_cells(
        [
            replace(c, g=float(c.g or 0) + 100) if c.split == "held_out" else c
            for c in tables[1].cells
        ]
    )
    other = score_final(tensor(tables[0], moved), cheat(tables), [honest(tables)], QUICK)
    first, second = (scores(d["pooled"])["honest"]["splits"] for d in (document, other))
    assert second["quarantined"]["r2"]["value"] == pytest.approx(
        first["quarantined"]["r2"]["value"]
    )
    assert second["held_out"]["r2"]["value"] != first["held_out"]["r2"]["value"]


def test_the_submission_scores_the_same_whatever_references_stand_beside_it(
    tables: list[BehaviourTable], document: Any
) -> None:
    alone = score_final(tensor(*tables), cheat(tables), [], QUICK)
    for one, other in zip(alone["behaviours"], document["behaviours"], strict=True):
        assert one["scores"][0] == other["scores"][0]


def test_saturated_held_back_cells_are_left_out_and_counted(tables: list[BehaviourTable]) -> None:
    marked = tables[0].with_cells(
        [
            replace(c, flags=frozenset({"floor"})) if (c.train, c.eval) == ("c00", "c14") else c
            for c in tables[0].cells
        ]
    )
    cells = score_final(tensor(marked), honest([marked]), [], QUICK)["behaviours"][0]["cells"]
    assert cells["excluded"]["floor"] == 1
    assert cells["held_back"]["held_out"] == N_TRAIN * len(HELD_OUT) - 1


def test_a_tensor_that_holds_nothing_back_is_refused() -> None:
    grid = table(world(1))
    with pytest.raises(MalformedInputError, match="holds back no cell"):
        score_final(tensor(grid), predictor([grid], OWN), [], QUICK)


def test_a_sealed_cell_without_its_value_is_not_scored_as_anything() -> None:
    grid = held_back()
    sealed = grid.with_cells(
        [
            replace(c, g=None, by_seed={}, flags=frozenset({"sealed"}))
            if c.split == "held_out"
            else c
            for c in grid.cells
        ]
    )
    found = score_final(tensor(sealed), honest([sealed]), [], QUICK)["behaviours"][0]
    assert found["cells"]["excluded"]["sealed"] == N_TRAIN * len(HELD_OUT)
    assert found["scores"][0]["splits"]["held_out"]["reason"] == "0 cells, at least 12 needed"
    assert found["scores"][0]["splits"]["quarantined"]["r2"] is not None
