"""The document's tables as flat rows, one value a cell, for CSV files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["NULL_COLUMNS", "arm_rows", "effect_rows", "null_rows"]

Row = dict[str, Any]
# Named, so that a file without a null test still says what it would hold.
NULL_COLUMNS = (
    "arm",
    "battery",
    "samples",
    "n_stems",
    "difference",
    "low",
    "high",
    "excludes_zero",
    "standard_error",
    "method",
    "unit",
)
_NESTED = ("left_out", "training_noise", "noise", "grades")


def effect_rows(document: Mapping[str, Any]) -> list[Row]:
    """One row for each comparison and battery; parts of a part have its name before theirs."""
    rows = []
    for one in document["comparisons"]:
        head = {"arm": one["arm"], "reference": one["reference"], "kind": one["kind"]}
        for battery, effect in one["batteries"].items():
            row: Row = {**head, "battery": battery}
            for key, value in effect.items():
                if key in _NESTED:
                    row |= _flat(key, value)
                else:
                    row[key] = value
            rows.append({**row, "unit": document["unit"], "label": document["label"]})
    return rows


def null_rows(document: Mapping[str, Any]) -> list[Row]:
    """One row for each null test."""
    return [
        {**null, "samples": " ".join(map(str, null["samples"])), "unit": document["unit"]}
        for null in document["nulls"]
    ]


def arm_rows(document: Mapping[str, Any]) -> list[Row]:
    """One row for each arm and battery; a column for each class and each unscored status."""
    rows = []
    for arm in document["arms"]:
        head = {key: value for key, value in arm.items() if key != "batteries"}
        for battery, found in arm["batteries"].items():
            flat = {key: value for key, value in found.items() if not isinstance(value, Mapping)}
            row = {**head, "battery": battery, **flat}
            for part in ("classes", "unscored"):
                row |= _flat(part, found[part])
            rows.append(row)
    return rows


def _flat(name: str, part: Mapping[str, Any] | None) -> Row:
    return {
        f"{name}_{key}": " ".join(value) if isinstance(value, list) else value
        for key, value in (part or {}).items()
    }
