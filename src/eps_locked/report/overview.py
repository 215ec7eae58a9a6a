"""The rows of a study side by side: what each measures, of how much, and what it could show."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eps_locked.report.html import Child, Html, join, section, tag
from eps_locked.report.marks import is_sealed, is_taught
from eps_locked.report.measures import shown_words
from eps_locked.report.notes import answers_of_cell, no_resolution
from eps_locked.report.sections import label
from eps_locked.report.sheets import (
    NOTHING,
    Column,
    Row,
    Sheet,
    count,
    level,
    sheet_table,
)
from eps_locked.report.tensors import TensorArtifact, TensorEvidence
from eps_locked.report.units import unit_named

_WHAT = {
    "marker": "log-probability of the marker after the answer",
    "fact": "log-probability of the taught value, per token",
}


def overview_section(evidence: TensorEvidence, sheets: Mapping[str, Sheet]) -> Html:
    """One line a row of the tensor, each in its own unit."""
    return section(
        "rows",
        "Rows and their resolution",
        sheet_table(sheets["rows"], join(label(evidence, "tensor"), " What each row measures")),
        tag(
            "p",
            "Detectable: the smallest true effect that one cell of the row would have told from 0 "
            "in four cases of five. A cell near 0 says that its effect is smaller than this, not "
            "that there is none. Rates are in per cent, changes of rates in percentage points "
            "(pp), log-probabilities in nats; rows in different units cannot be compared by size.",
            class_="small",
        ),
    )


def overview_sheet(tensors: tuple[TensorArtifact, ...]) -> Sheet:
    return Sheet(
        file="rows.csv",
        what="What each row measures, and what it could have shown",
        columns=(
            Column(head="row", keys=("behaviour",), show=_name),
            Column(
                head="what is measured",
                keys=("what", "change_in"),
                show=lambda row: join(row["what"], " ", tag("small", f"G in {row['change_in']}")),
                kind="wide",
            ),
            Column(head="answers a cell", keys=("n", "n_words"), show=_answers),
            Column(
                head="open cells scored",
                keys=("n_scored", "n_open"),
                show=lambda row: f"{row['n_scored']} of {row['n_open']}",
                kind="num",
            ),
            count("sealed", "n_sealed"),
            level("mean base", "base_rate"),
            Column(
                head="standard error",
                keys=("standard_error",),
                show=lambda row: _size(row, "standard_error"),
                kind="num",
            ),
            Column(
                head="detectable",
                keys=("minimum_detectable_effect", "resolution_reason"),
                show=_detectable,
                kind="num",
            ),
        ),
        rows=tuple(_row(one.document) for one in tensors),
    )


def _row(tensor: Mapping[str, Any]) -> Row:
    off = [cell for cell in tensor["cells"] if cell["train"] != cell["eval"]]
    unsealed = [cell for cell in off if not is_sealed(cell)]
    found = tensor["resolution"]
    resolution = found or {}
    n, n_words = answers_of_cell(tensor)
    return {
        "behaviour": tensor["behaviour"],
        "kind": tensor["kind"],
        "what": _WHAT.get(tensor["kind"]) or shown_words(tensor),
        "unit": tensor["unit"],
        "change_in": unit_named(tensor["unit"]).words,
        "primary_reading": tensor["primary_reading"],
        "primary_slice": tensor["primary_slice"] if is_taught(tensor) else None,
        "n": n,
        "n_words": n_words,
        "n_seeds": tensor["n_seeds"],
        "n_open": len(unsealed),
        "n_scored": sum(cell["scored"] for cell in unsealed),
        "n_sealed": len(off) - len(unsealed),
        "base_rate": resolution.get("base_rate"),
        "standard_error": resolution.get("standard_error"),
        "minimum_detectable_effect": resolution.get("minimum_detectable_effect"),
        "resolution_reason": _why_none(tensor, found),
        "resolution_cells": resolution.get("n_cells"),
        "resolution_basis": resolution.get("basis"),
    }


def _why_none(tensor: Mapping[str, Any], found: Mapping[str, Any] | None) -> str | None:
    if found is None:
        return f"undefined with {no_resolution(tensor)}"
    if found["minimum_detectable_effect"] is not None:
        return None
    return "not even a rise to 100 %" if "base_rate" in found else "no spread at all"


def _answers(row: Row) -> Child:
    return join(str(row["n"]), " ", tag("small", row["n_words"], class_="why"))


def _detectable(row: Row) -> Child:
    if row["minimum_detectable_effect"] is None:
        return join(NOTHING, " ", tag("small", row["resolution_reason"], class_="why"))
    return _size(row, "minimum_detectable_effect")


def _size(row: Row, key: str) -> str:
    """A width, which has no sign."""
    return unit_named(row["unit"]).table_change(row[key]).removeprefix("+")


def _name(row: Row) -> Child:
    """The row's name, and its kind where that is another word."""
    kind = None if row["kind"] == row["behaviour"] else tag("small", f"kind {row['kind']}")
    return join(row["behaviour"], " ", kind)
