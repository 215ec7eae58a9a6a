"""The final score: lines fitted on open cells, judged on cells that nobody could read before.

Nothing is chosen on held-back cells: one predictor, one line per behaviour, evaluated as it is.

Shape letters: O open scored cells, H held-back scored cells, M columns (a predictor first, its
relabellings behind).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from eps_locked.errors import MalformedInputError, StatsInputError
from eps_locked.scoring.design import Design, build_design, build_pooled
from eps_locked.scoring.folded import line_predictions
from eps_locked.scoring.intervals import (
    Clusters,
    difference_measure,
    r2_measure,
    refitted_lines,
    spearman_measure,
)
from eps_locked.scoring.measures import Measure, absent, null_of, or_none
from eps_locked.scoring.predictor import Key, Predictor
from eps_locked.scoring.score import METHODS, predictor_head, require_scorable
from eps_locked.scoring.settings import ScoreSettings
from eps_locked.scoring.tensor import BehaviourTable, ScoreTensor, exclusion_counts
from eps_locked.stats.ranks import spearman_rows
from eps_locked.stats.regression import r_squared_columns

__all__ = ["FINAL_SCHEMA", "score_final"]

FINAL_SCHEMA = "eps-locked/final-scores/1"
SPLITS = ("all", "held_out", "quarantined")

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]


def score_final(
    tensor: ScoreTensor,
    submission: Predictor,
    references: Sequence[Predictor] = (),
    settings: ScoreSettings | None = None,
    *,
    label: str = "confirmatory",
) -> dict[str, Any]:
    """The final document of docs/scoring.md S10. ``tensor``: with the held-back cells' values.

    Raises MalformedInputError where a predictor does not cover the tensor, and for a tensor that
    holds nothing back.
    """
    settings = settings or ScoreSettings()
    everybody = (submission, *references)
    require_scorable(tensor, everybody, label)
    fields = [_field_of(table, settings) for table in tensor.tables]
    if not any(len(field.held_back) for field in fields):
        raise MalformedInputError(
            "tensor",
            problem="holds back no cell that has a value",
            next_step="unseal it first, or score it in the open",
        )
    roles = ("submission", *("reference" for _ in references))
    return {
        "schema": FINAL_SCHEMA,
        "label": label,
        "rounded": False,
        "settings": settings.document(),
        "methods": {**METHODS, "final": "line fitted on all open scored cells, evaluated as it is"},
        "submission": predictor_head(submission),
        "references": [predictor_head(reference) for reference in references],
        "behaviours": [
            {
                "behaviour": field.tables[0].behaviour,
                "unit": field.tables[0].unit,
                "cells": _counts(field),
                **_ranked(
                    [
                        _score(field, predictor, role)
                        for predictor, role in zip(everybody, roles, strict=True)
                    ]
                ),
            }
            for field in fields
        ],
        "pooled": _pooled(tensor, everybody, roles, settings),
    }


def published(document: Mapping[str, Any]) -> dict[str, Any]:
    """What a look may tell everybody: the submission alone, coarse, with its rank.

    Every exact score is an equation in the sealed values, and a baseline's predictions are known to
    all: a dozen exact scores of one look would give a small study's cells away. So the references'
    own scores stay out (only how many of them did better is told), and what depends on sealed
    values is rounded: below 1 to two decimals, else to three digits.
    """

    def block(found: Mapping[str, Any]) -> dict[str, Any]:
        kept = [
            {
                **one,
                "splits": _coarse(one["splits"]),
                "overfit_gap": _coarse(one["overfit_gap"]),
            }
            for one in found["scores"]
            if one["role"] == "submission"
        ]
        return {**found, "scores": kept}

    return {
        **document,
        "rounded": True,
        "behaviours": [block(found) for found in document["behaviours"]],
        "pooled": block(document["pooled"]),
    }


def _coarse(value: Any) -> Any:
    if isinstance(value, Mapping):
        # The percentile bootstrap is there for comparison only, and would tell more.
        return {k: None if k == "bootstrap" else _coarse(one) for k, one in value.items()}
    if isinstance(value, list):
        return [_coarse(one) for one in value]
    if not isinstance(value, float):
        return value
    return round(value, 2) if abs(value) < 1 else float(f"{value:.3g}")


def _ranked(scores: list[dict[str, Any]]) -> dict[str, Any]:
    """Scores, and the place of the submission among them by R2 on all held-back cells."""
    values = [one["splits"]["all"]["r2"] for one in scores]
    known = [found["value"] for found in values if found and found["value"] is not None]
    mine = next((one["splits"]["all"]["r2"] for one in scores if one["role"] == "submission"), None)
    place = None
    if mine and mine["value"] is not None:
        place = 1 + sum(value > mine["value"] for value in known)
    return {"scores": scores, "rank": {"by_r2": place, "of": len(known)}}


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Field:
    """Open and held-back cells of one behaviour, or of several pooled.

    ``both``: a design of all of them, in whose cells ``open_N`` marks the open ones. ``open``: the
    design of the open ones alone, for the open score. ``y_N``: g, z-normalised by the *open* cells
    when pooled.
    """

    tables: tuple[BehaviourTable, ...]
    both: Design
    open: Design
    open_N: BoolArray
    split_N: npt.NDArray[np.str_]
    y_N: FloatArray
    pooled: bool

    @property
    def held_back(self) -> npt.NDArray[np.int64]:
        return np.flatnonzero(~self.open_N)


def _field_of(table: BehaviourTable, settings: ScoreSettings) -> Field:
    both = build_design(table, settings, final=True)
    return _field((table,), both, build_design(table, settings), pooled=False)


def _field(
    tables: tuple[BehaviourTable, ...], both: Design, opened: Design, *, pooled: bool
) -> Field:
    splits = np.array([cell.split for piece in both.pieces for cell in piece.scored])
    open_N = splits == "open"
    y = []
    for number, piece in enumerate(both.pieces):
        g = np.array([float(cell.g if cell.g is not None else 0.0) for cell in piece.scored])
        if pooled:
            known = g[open_N[both.piece_N == number]]
            g = (g - known.mean()) / known.std()
        y.append(g)
    return Field(
        tables=tables,
        both=both,
        open=opened,
        open_N=open_N,
        split_N=splits,
        y_N=np.concatenate(y),
        pooled=pooled,
    )


def _pooled(
    tensor: ScoreTensor,
    everybody: Sequence[Predictor],
    roles: Sequence[str],
    settings: ScoreSettings,
) -> dict[str, Any]:
    empty: dict[str, Any] = {"behaviours": [], "cells": None, **_ranked([])}
    if len(tensor.tables) < 2:
        return {"reason": "one behaviour: there is nothing to pool", **empty}
    try:
        opened = build_pooled(tensor.tables, settings)
        both = build_pooled(tensor.tables, settings, final=True)
    except StatsInputError as error:
        return {"reason": f"{error.thing} {error.problem}", **empty}
    field = _field(tensor.tables, both, opened, pooled=True)
    return {
        "reason": None,
        "behaviours": list(tensor.behaviours),
        "cells": _counts(field),
        **_ranked(
            [
                _score(field, predictor, role)
                for predictor, role in zip(everybody, roles, strict=True)
            ]
        ),
    }


def _counts(field: Field) -> dict[str, Any]:
    cells = [cell for table in field.tables for cell in table.cells if cell.split != "open"]
    excluded, _ = exclusion_counts(cells, final=True)
    excluded.pop("set_apart")
    return {
        "open": int(field.open_N.sum()),
        "held_back": {split: int(_rows(field, split).sum()) for split in SPLITS},
        "excluded": excluded,
    }


def _rows(field: Field, split: str) -> BoolArray:
    rows = ~field.open_N if split == "all" else field.split_N == split
    return np.asarray(rows)


def _score(field: Field, predictor: Predictor, role: str) -> dict[str, Any]:
    settings = field.both.settings
    x_NM = _columns(field, predictor.values)
    opened = _open_scores(field, predictor)
    result: dict[str, Any] = {"metric": predictor.metric, "role": role, "open": opened}
    if int(field.open_N.sum()) < settings.minimum_cells:
        n = int(field.open_N.sum())
        reason = f"{n} open cells to fit on, at least {settings.minimum_cells} needed"
        splits = {split: _no_split(int(_rows(field, split).sum()), reason) for split in SPLITS}
    else:
        predicted = _line(x_NM, field.y_N, field.open_N)
        splits = {split: _split(field, split, x_NM, predicted, predictor.sign) for split in SPLITS}
    return {**result, "splits": splits, "overfit_gap": _gap(opened, splits["all"], predictor.sign)}


def _columns(field: Field, values: Mapping[Key, float]) -> FloatArray:
    """The predictor and its relabellings at all cells; when pooled, in z of the open cells."""
    design = field.both
    x_NM = np.column_stack([design.predictor(values), design.relabelled(values)])
    if field.pooled:
        for number in range(len(design.pieces)):
            here = design.piece_N == number
            known = x_NM[here & field.open_N]
            spread = known.std(axis=0)
            moves = spread > 1e-9
            x_NM[here] = np.where(
                moves, (x_NM[here] - known.mean(axis=0)) / np.where(moves, spread, 1.0), 0.0
            )
    return x_NM


def _line(x_NM: FloatArray, y_N: FloatArray, fit_N: BoolArray) -> FloatArray:
    """A least-squares line per column, fitted on the open cells, at all cells; (N, M)."""
    x, y = x_NM[fit_N], y_N[fit_N]
    centred = x - x.mean(axis=0)
    still = np.ptp(x, axis=0) <= 1e-12 * np.abs(x).max(axis=0, initial=0.0)
    square = np.square(centred).sum(axis=0)
    slope = np.where(still, 0.0, (y - y.mean()) @ centred / np.where(still, 1.0, square))
    return np.asarray(y.mean() + slope * (x_NM - x.mean(axis=0)))


def _open_scores(field: Field, predictor: Predictor) -> dict[str, Any]:
    """The development score of the same predictor: what it is to be compared with."""
    design = field.open
    if design.reason is not None or design.two.matrix is None:
        none = absent(design.n, str(design.reason or design.two.reason))
        return {"n": design.n, "spearman": {**none, "oriented": None}, "r2": none}
    x_NM = np.column_stack(
        [design.predictor(predictor.values), design.relabelled(predictor.values)]
    )
    predicted = line_predictions(x_NM, design.y_N, design.two.matrix)
    return {
        "n": design.n,
        "spearman": _spearman(
            x_NM, design.y_N, Clusters.of(design), predictor.sign, design.settings, levels=False
        ),
        "r2": _r2(
            predicted,
            design.y_N,
            Clusters.of(design),
            design.settings,
            levels=False,
            refitted_K=refitted_lines(design, x_NM[:, 0]),
        ),
    }


def _split(
    field: Field, split: str, x_NM: FloatArray, predicted_NM: FloatArray, sign: float
) -> dict[str, Any]:
    settings, rows = field.both.settings, _rows(field, split)
    n, least = int(rows.sum()), settings.minimum_cells
    if n < least:
        return _no_split(n, f"{n} cells, at least {least} needed")
    if np.ptp(field.y_N[rows]) == 0:
        return _no_split(n, "g has one value in all of these cells")
    clusters, y = Clusters.of(field.both, rows), field.y_N[rows]
    return {
        "n": n,
        "reason": None,
        "spearman": _spearman(x_NM[rows], y, clusters, sign, settings, levels=True),
        "r2": _r2(predicted_NM[rows], y, clusters, settings, levels=True, fitted_elsewhere=True),
        "additive": _additive(field, rows, x_NM),
    }


def _no_split(n: int, reason: str) -> dict[str, Any]:
    return {"n": n, "reason": reason, "spearman": None, "r2": None, "additive": None}


def _spearman(
    x_NM: FloatArray,
    y_N: FloatArray,
    clusters: Clusters,
    sign: float,
    settings: ScoreSettings,
    *,
    levels: bool,
) -> Measure:
    rho = spearman_rows(x_NM.T, y_N)
    null = null_of(or_none(float(rho[0])), rho[1:], settings.alpha, two_sided=True)
    found = spearman_measure(x_NM[:, 0], y_N, clusters, null=null, bootstrap=True, levels=levels)
    value = found["value"]
    return {**found, "oriented": None if value is None else sign * value}


def _r2(
    predicted_NM: FloatArray,
    y_N: FloatArray,
    clusters: Clusters,
    settings: ScoreSettings,
    *,
    levels: bool,
    refitted_K: FloatArray | None = None,
    fitted_elsewhere: bool = False,
) -> Measure:
    r2 = r_squared_columns(y_N, predicted_NM)
    null = null_of(or_none(float(r2[0])), r2[1:], settings.alpha)
    return r2_measure(
        y_N,
        predicted_NM[:, 0],
        clusters,
        null=null,
        bootstrap=True,
        levels=levels,
        refitted_K=refitted_K,
        fitted_elsewhere=fitted_elsewhere,
    )


def _additive(field: Field, rows: BoolArray, x_NM: FloatArray) -> dict[str, Any]:
    """Row and column effects of the open cells at held-back cells, alone and with the metric.

    With the metric: y and x freed of rows and columns on the open cells, a line through what is
    left, and the same line at the held-back cells. A row or column without an open cell is
    unknown, and so are the cells in it.
    """
    design, opened = field.both, field.open_N
    known = rows.copy()
    effects = np.zeros_like(field.y_N)
    x_left = np.zeros((len(field.y_N), x_NM.shape[1]))
    for number in range(len(design.pieces)):
        here = design.piece_N == number
        fit = here & opened
        train, evaluated = design.train_N, design.eval_N
        known &= ~here | (np.isin(train, train[fit]) & np.isin(evaluated, evaluated[fit]))
        effects[here] = _effects(train, evaluated, field.y_N[:, None], fit, here)[:, 0]
        x_left[here] = x_NM[here] - _effects(train, evaluated, x_NM, fit, here)
    n, least = int(known.sum()), design.settings.minimum_cells
    empty = {"n": n, "r2": None, "with_predictor_r2": None, "delta_r2": None}
    if n < least:
        reason = f"{n} cells whose row and column have an open cell, at least {least} needed"
        return {**empty, "reason": reason}
    y_left = (field.y_N - effects)[opened]
    square = np.square(x_left[opened]).sum(axis=0)
    moves = square > 1e-12 * np.square(x_NM[opened] - x_NM[opened].mean(axis=0)).sum(axis=0)
    slope = np.where(moves, y_left @ x_left[opened] / np.where(moves, square, 1.0), 0.0)
    together = effects[known, None] + slope * x_left[known]
    y = field.y_N[known]
    base = float(r_squared_columns(y, effects[known, None])[0])
    r2 = r_squared_columns(y, together)
    null = null_of(or_none(float(r2[0]) - base), r2[1:] - base, design.settings.alpha)
    return {
        "n": n,
        "reason": None,
        "r2": or_none(base),
        "with_predictor_r2": or_none(float(r2[0])),
        "delta_r2": difference_measure(
            y,
            together[:, 0],
            effects[known],
            Clusters.of(design, known),
            null=null,
            fitted_elsewhere=True,
        ),
    }


def _effects(
    train: npt.NDArray[np.int64],
    evaluated: npt.NDArray[np.int64],
    values_NM: FloatArray,
    fit: BoolArray,
    at: BoolArray,
) -> FloatArray:
    """Additive fit of every column on the ``fit`` cells, at the ``at`` cells; (at, M)."""
    rows, columns = np.unique(train[fit]), np.unique(evaluated[fit])

    def indicators(where: BoolArray) -> FloatArray:
        return np.concatenate(
            [
                (train[where][:, None] == rows).astype(np.float64),
                (evaluated[where][:, None] == columns).astype(np.float64),
            ],
            axis=1,
        )

    effects = np.linalg.lstsq(indicators(fit), values_NM[fit], rcond=None)[0]
    return np.asarray(indicators(at) @ effects)


def _gap(opened: Mapping[str, Any], final: Mapping[str, Any], sign: float) -> dict[str, Any]:
    """Open against final, and whether the intervals leave room for both to be one score."""
    open_r2, open_rho = opened["r2"], opened["spearman"]
    final_r2, final_rho = final["r2"], final["spearman"]
    result: dict[str, Any] = {
        "open_r2": open_r2["value"],
        "final_r2": None if final_r2 is None else final_r2["value"],
        "r2": None,
        "open_spearman": open_rho["value"],
        "final_spearman": None if final_rho is None else final_rho["value"],
        "spearman": None,
        "carries_over": "undetermined",
    }
    if result["open_r2"] is None or result["final_r2"] is None:
        why = open_r2["reason"] or final["reason"] or "no final score"
        return {**result, "statement": f"Open and final scores cannot be compared: {why}."}
    result["r2"] = result["open_r2"] - result["final_r2"]
    if result["open_spearman"] is not None and result["final_spearman"] is not None:
        result["spearman"] = sign * (result["open_spearman"] - result["final_spearman"])
    lead = f"Open cells: R2 {result['open_r2']:.2f}; held-back cells: R2 {result['final_r2']:.2f}."
    if open_r2["low"] is None or final_r2["high"] is None:
        return {**result, "statement": f"{lead} Without intervals nothing more can be said."}
    if open_r2["low"] > final_r2["high"]:
        words = "What the metric shows on open cells it does not show on cells nobody could read."
        return {**result, "carries_over": "no", "statement": f"{lead} {words}"}
    if final_r2["low"] > 0:
        words = "The score carries over: the intervals meet, and the final one is above 0."
        return {**result, "carries_over": "yes", "statement": f"{lead} {words}"}
    words = "The intervals meet, but the final one does not exclude 0."
    return {**result, "statement": f"{lead} {words}"}
