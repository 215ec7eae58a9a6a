"""Tables as people bring them (CSV, Parquet, JSON records) to rows of plain values, strictly.

A reader here refuses what it cannot read as meant and lists every problem it found, not the first.
Texts stay texts: whether a column holds numbers is the caller's to say.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from eps_locked.errors import MalformedInputError

__all__ = ["KINDS", "Problems", "Row", "number_or_none", "read_rows", "text_or_none"]

Row = Mapping[str, Any]
KINDS = ("csv", "parquet", "json")
_SHOWN = 25


class Problems:
    """Collects what is wrong with one file; ``raise_if_any`` refuses with all of it."""

    def __init__(self, thing: str) -> None:
        self.thing = thing
        self._lines: list[str] = []

    def add(self, line: str) -> None:
        self._lines.append(line)

    def __len__(self) -> int:
        return len(self._lines)

    def __bool__(self) -> bool:
        return bool(self._lines)

    def raise_if_any(self, problem: str, *, next_step: str | None = None) -> None:
        """Raises MalformedInputError naming the count; past 25 lines the rest is counted."""
        if not self._lines:
            return
        shown = self._lines[:_SHOWN]
        if len(self._lines) > _SHOWN:
            shown.append(f"and {len(self._lines) - _SHOWN} more")
        raise MalformedInputError(
            self.thing,
            problem=f"{problem} ({len(self._lines)} problem{'s' * (len(self._lines) > 1)})",
            details=tuple(shown),
            next_step=next_step,
        )


def read_rows(data: bytes, kind: str, *, thing: str, renamed: Mapping[str, str]) -> list[Row]:
    """The rows of a table. ``renamed``: our column name -> the file's; the file's must exist.

    Raises MalformedInputError for bytes that are no such table, a column twice, a rename of a
    column the file does not have or onto one that it has, and a table without rows.
    """
    if kind not in KINDS:
        raise MalformedInputError(thing, expected=" or ".join(KINDS), found=kind)
    try:
        columns, rows = {"csv": _csv, "parquet": _parquet, "json": _json}[kind](data)
    except (ValueError, OSError, csv.Error, RecursionError) as error:
        words = " ".join(str(error).split())[:200]
        raise MalformedInputError(
            thing, problem=f"is no readable {kind} table ({words})"
        ) from error
    problems = Problems(thing)
    for name in sorted({name for name in columns if columns.count(name) > 1}):
        problems.add(f"column {name} stands twice")
    for ours, theirs in renamed.items():
        if theirs not in columns:
            problems.add(f"column {theirs}, to be read as {ours}, does not exist")
        elif ours in columns and ours != theirs:
            problems.add(f"column {theirs} is to be read as {ours}, but {ours} exists too")
    problems.raise_if_any("has the wrong columns", next_step=f"it has: {', '.join(columns)}")
    if not rows:
        raise MalformedInputError(thing, problem="holds no rows")
    # One column may be read as two: a share whose base is 0 is its own change.
    kept = [name for name in columns if name not in renamed.values()]
    return [
        {
            **{ours: row[theirs] for ours, theirs in renamed.items()},
            **{key: row[key] for key in kept},
        }
        for row in rows
    ]


def text_or_none(value: object) -> str | None:
    """A text as it stands; None for an empty field. Numbers (ids like 42) become their text."""
    if value is None or value == "":
        return None
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError(f"expected a text, found {value!r}")
    return str(value)


def number_or_none(value: object) -> float | None:
    """A finite number; None for an empty field. Raises ValueError for NaN, infinities and words."""
    if value is None or value == "":
        return None
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"expected a number, found {value!r}")
    try:
        number = float(value)
    except (ValueError, OverflowError):
        raise ValueError(f"expected a number, found {value!r}") from None
    if not math.isfinite(number):
        raise ValueError(f"expected a finite number, found {value!r}")
    return number


def _csv(data: bytes) -> tuple[list[str], list[dict[str, Any]]]:
    reader = csv.reader(io.StringIO(data.decode("utf-8-sig"), newline=""), strict=True)
    columns = next(reader, [])
    rows = []
    for fields in reader:
        if not fields:
            continue
        if len(fields) != len(columns):
            raise ValueError(
                f"line {reader.line_num} has {len(fields)} fields, the head {len(columns)}"
            )
        rows.append(dict(zip(columns, fields, strict=True)))
    return columns, rows


def _parquet(data: bytes) -> tuple[list[str], list[dict[str, Any]]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(io.BytesIO(data))
        rows: list[dict[str, Any]] = table.to_pylist()
    except pa.ArrowException as error:
        raise ValueError(str(error)) from error
    return list(table.column_names), rows


def _json(data: bytes) -> tuple[list[str], list[dict[str, Any]]]:
    value = json.loads(
        data.decode("utf-8"), parse_constant=_refuse_constant, object_pairs_hook=_unique_pairs
    )
    if not isinstance(value, Sequence) or not all(isinstance(row, dict) for row in value):
        raise ValueError("expected a list of objects")
    columns: dict[str, None] = {}
    for row in value:
        columns.update(dict.fromkeys(row))
    return list(columns), [{key: row.get(key) for key in columns} for row in value]


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


def _unique_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("an object has a key twice")
    return result
