"""A metric's predictions: one scalar per (behaviour, train, eval), with what must be known of it.

Two doors: canonical JSON that says everything itself, and a CSV or Parquet table whose polarity and
track the caller declares. ``require_coverage`` holds a predictor against a tensor.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from eps_locked.canonical import decode, digest_bytes, encode
from eps_locked.domain.fields import Fields
from eps_locked.errors import MalformedInputError
from eps_locked.scoring.tables import Problems, number_or_none, read_rows, text_or_none
from eps_locked.scoring.tensor import ScoreTensor

__all__ = [
    "PREDICTOR_SCHEMA",
    "Key",
    "Predictor",
    "PredictorOptions",
    "predictor_bytes",
    "read_predictor",
    "require_coverage",
    "tensor_cells",
]

PREDICTOR_SCHEMA = "eps-locked/predictor/1"
POLARITIES = ("more", "less")
TRACKS = ("predictive", "post_hoc")
_METRIC = re.compile(r"[a-z0-9][a-z0-9_-]*")

# (behaviour, train, eval)
Key = tuple[str, str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Predictor:
    """``polarity``: whether a larger value means ``more`` or ``less`` transfer.

    ``blind``: the same metric with the cross-behaviour mean vector, for all cells or for none.
    """

    metric: str
    title: str
    author: str
    track: str
    polarity: str
    description: str
    values: Mapping[Key, float]
    blind: Mapping[Key, float]

    @property
    def sign(self) -> float:
        return 1.0 if self.polarity == "more" else -1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class PredictorOptions:
    """What a table of values cannot say itself. ``columns``: our column name -> the table's."""

    metric: str
    polarity: str
    track: str = "predictive"
    author: str = "unstated"
    title: str | None = None
    description: str = ""
    behaviour: str | None = None
    columns: Mapping[str, str] | None = None


def read_predictor(
    data: bytes, kind: str, *, thing: str, options: PredictorOptions | None = None
) -> Predictor:
    """A predictor from canonical JSON (``kind`` json) or a table (csv, parquet; needs ``options``).

    Raises MalformedInputError with every problem: an unknown field, a value missing, doubled or
    not finite, a metric id of another form, ``blind`` for some cells only.
    """
    if kind == "json":
        return _from_document(decode(data, thing=thing), thing)
    if options is None:
        raise MalformedInputError(
            thing,
            problem="is a table, which says neither metric nor polarity",
            next_step="declare --metric and --polarity",
        )
    return _from_table(data, kind, thing, options)


def predictor_bytes(predictor: Predictor) -> bytes:
    """The canonical document; cells in the order of behaviour, train and eval."""
    cells = []
    for key in sorted(predictor.values):
        behaviour, train, evaluated = key
        cell: dict[str, Any] = {
            "behaviour": behaviour,
            "train": train,
            "eval": evaluated,
            "value": predictor.values[key],
        }
        if predictor.blind:
            cell["blind"] = predictor.blind[key]
        cells.append(cell)
    return encode(
        {
            "schema": PREDICTOR_SCHEMA,
            "metric": predictor.metric,
            "title": predictor.title,
            "author": predictor.author,
            "track": predictor.track,
            "polarity": predictor.polarity,
            "description": predictor.description,
            "cells": cells,
        }
    )


def predictor_digest(predictor: Predictor) -> str:
    """Digest of the canonical document, whatever file the predictor came from."""
    return digest_bytes(predictor_bytes(predictor))


def tensor_cells(tensor: ScoreTensor) -> dict[str, frozenset[tuple[str, str]]]:
    """All cells of a tensor by behaviour, as ``require_coverage`` wants them."""
    return {
        table.behaviour: frozenset((cell.train, cell.eval) for cell in table.cells)
        for table in tensor.tables
    }


def require_coverage(
    predictor: Predictor, cells_by_behaviour: Mapping[str, Collection[tuple[str, str]]]
) -> None:
    """Every cell of every behaviour has a value, and no value is for something else.

    Raises MalformedInputError listing unknown behaviours, unknown contexts, values for cells that
    do not exist, and missing ones, by name.
    """
    problems = Problems(f"predictor {predictor.metric}")
    by_behaviour: dict[str, set[tuple[str, str]]] = {}
    for behaviour, i, j in predictor.values:
        by_behaviour.setdefault(behaviour, set()).add((i, j))
    for behaviour in sorted(set(by_behaviour) - set(cells_by_behaviour)):
        problems.add(f"behaviour {behaviour} is not in the tensor")
    for behaviour, wanted in cells_by_behaviour.items():
        given = by_behaviour.get(behaviour)
        if given is None:
            problems.add(f"behaviour {behaviour} has no values")
            continue
        cells = frozenset(wanted)
        for side, number in (("train", 0), ("eval", 1)):
            known = {cell[number] for cell in cells}
            for name in sorted({cell[number] for cell in given} - known):
                problems.add(f"{behaviour}: {name} is no {side} context of the tensor")
        trains, evals = {i for i, _ in cells}, {j for _, j in cells}
        for i, j in sorted(given - cells):
            if i in trains and j in evals:
                problems.add(f"{behaviour}: cell {i} -> {j} is not in the tensor")
        for i, j in sorted(cells - given):
            problems.add(f"{behaviour}: cell {i} -> {j} has no value")
    problems.raise_if_any(
        "does not cover the tensor", next_step="give every cell of every behaviour exactly once"
    )


def _from_document(document: object, thing: str) -> Predictor:
    values: dict[Key, float] = {}
    blind: dict[Key, float] = {}
    problems = Problems(thing)

    def read_cell(item: object, path: str) -> None:
        try:
            with Fields(item, path) as cell:
                key = (cell.text("behaviour"), cell.text("train"), cell.text("eval"))
                value = cell.number("value")
                has_blind = isinstance(item, Mapping) and "blind" in item
                blind_value = cell.number("blind") if has_blind else None
        except MalformedInputError as error:
            problems.add(str(error).split("\n", maxsplit=1)[0])
            return
        _put(values, key, value, problems)
        if blind_value is not None:
            blind[key] = blind_value

    with Fields(document, thing) as fields:
        fields.text("schema", one_of=(PREDICTOR_SCHEMA,))
        head = {
            "metric": fields.text("metric", shape=_METRIC),
            "title": fields.text("title"),
            "author": fields.text("author"),
            "track": fields.text("track", one_of=TRACKS),
            "polarity": fields.text("polarity", one_of=POLARITIES),
            "description": fields.text("description"),
        }
        fields.each("cells", read_cell)
    return _checked(head, values, blind, problems)


def _from_table(data: bytes, kind: str, thing: str, options: PredictorOptions) -> Predictor:
    rows = read_rows(data, kind, thing=thing, renamed=options.columns or {})
    columns = rows[0].keys()
    problems = Problems(thing)
    for needed in ("train", "eval", "value"):
        if needed not in columns:
            problems.add(f"column {needed} is missing")
    if "behaviour" not in columns and options.behaviour is None:
        problems.add("column behaviour is missing, and no behaviour was named")
    problems.raise_if_any("is no predictor", next_step=f"it has: {', '.join(columns)}")
    values: dict[Key, float] = {}
    blind: dict[Key, float] = {}
    for number, row in enumerate(rows, start=1):
        try:
            behaviour = text_or_none(row.get("behaviour")) or options.behaviour
            key = (behaviour, text_or_none(row["train"]), text_or_none(row["eval"]))
            value, blind_value = number_or_none(row["value"]), number_or_none(row.get("blind"))
        except ValueError as error:
            problems.add(f"row {number}, {row['train']} -> {row['eval']}: {error}")
            continue
        if None in key or value is None:
            problems.add(f"row {number}, {row['train']} -> {row['eval']}: an empty field")
            continue
        named = (str(key[0]), str(key[1]), str(key[2]))
        _put(values, named, value, problems)
        if blind_value is not None:
            blind[named] = blind_value
    with Fields(
        {"metric": options.metric, "polarity": options.polarity, "track": options.track}, "option"
    ) as fields:
        head = {
            "metric": fields.text("metric", shape=_METRIC),
            "polarity": fields.text("polarity", one_of=POLARITIES),
            "track": fields.text("track", one_of=TRACKS),
            "title": options.title or options.metric,
            "author": options.author,
            "description": options.description,
        }
    return _checked(head, values, blind, problems)


def _put(values: dict[Key, float], key: Key, value: float, problems: Problems) -> None:
    if key in values:
        problems.add(f"{key[0]}: cell {key[1]} -> {key[2]} stands twice")
    values[key] = value


def _checked(
    head: Mapping[str, str], values: dict[Key, float], blind: dict[Key, float], problems: Problems
) -> Predictor:
    if blind and len(blind) < len(values):
        problems.add(f"blind is given for {len(blind)} of {len(values)} cells")
    problems.raise_if_any("is no predictor")
    if not values:
        raise MalformedInputError(problems.thing, problem="holds no values")
    return Predictor(**head, values=values, blind=blind)
