"""The page's sections about what a taught row measures besides its G: every slice of its questions,
and for a fact the judged rate, and where its value was read.

Slices stand side by side and are never added up: a row that refuses more of everything has a rise
in both of them, one that refuses the wrong things a rise in one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from eps_locked.report.heatmap import colour_bar, heat_map
from eps_locked.report.html import Html, join, section, tag
from eps_locked.report.marks import Tensor, is_sealed, is_taught
from eps_locked.report.measures import (
    Measure,
    measures_of,
    secondary_of,
    shown_words,
    slice_words,
)
from eps_locked.report.sections import label
from eps_locked.report.sheets import Row, Sheet, change, count, level, sheet_table, words
from eps_locked.report.tables import families, grid
from eps_locked.report.tensors import TensorArtifact, TensorEvidence
from eps_locked.report.units import unit_of

# Named, so that the label is computed: means over cells are of this page's making.
_SLICE_MEANS = "slice-means"


def secondary_section(
    evidence: TensorEvidence, artifact: TensorArtifact, sheets: Mapping[str, Sheet], number: int
) -> Html | None:
    """None for the marker's row, which asks all its questions for one thing."""
    tensor = artifact.document
    if not is_taught(tensor):
        return None
    name = tensor["behaviour"]
    measures = secondary_of(tensor)
    return section(
        f"secondary-{number}",
        f"Secondary measures of “{name}”",
        tag(
            "p",
            f"A judged rate counts {shown_words(tensor)}. {_slices(tensor)} Each slice is read "
            "apart, with intervals of its own; none is part of another.",
        ),
        sheet_table(
            sheets["slices"].where(behaviour=name),
            join(
                label(evidence, _SLICE_MEANS),
                " Each adapter in its own context, and on average in the others",
            ),
        ),
        tag(
            "p",
            "Own context: the cell in which the adapter was trained, with its intervals. Others: "
            "the plain mean over its open cells off the diagonal, aliases left out, scored or not.",
            class_="small",
        ),
        _framings(evidence, tensor, sheets["framings"]),
        *_maps(evidence, tensor, measures, number),
    )


def secondary_sheets(tensors: Iterable[TensorArtifact]) -> dict[str, Sheet]:
    """The tables of all taught rows."""
    documents = [one.document for one in tensors if is_taught(one.document)]
    return {
        "slices": Sheet(
            file="slices.csv",
            what="Every slice of a taught row, by train context",
            columns=(
                words("trained in", "train"),
                words("measure", "measure"),
                level("own context: base", "base", ends=True),
                level("trained", "trained", ends=True),
                change("change", "change", ends=True),
                count("asked", "n_questions"),
                change("others: mean change", "mean_others"),
                count("cells", "n_others"),
            ),
            rows=tuple(row for one in documents for row in _slice_rows(one)),
        ),
        "framings": Sheet(
            file="framings.csv",
            what="Where a fact's value was read, by train context",
            columns=(
                words("trained in", "train"),
                words("cells", "cells"),
                count("answers", "n_answers"),
                count("states the taught value", "taught"),
                count("states another value", "alternative"),
                count("states neither", "bridge"),
            ),
            rows=tuple(row for one in documents for row in _framing_rows(one)),
        ),
    }


def _slices(tensor: Tensor) -> str:
    parts = []
    for name, n in tensor["slices"].items():
        what = slice_words(tensor, name)
        roles = [
            role
            for role, one in (("G", tensor["primary_slice"]), ("implant", tensor["implant_slice"]))
            if one == name
        ]
        about = ", ".join([*([what] if what else []), *_ROLES[tuple(roles)]])
        parts.append(f"“{name}”: {n} questions{f', {about}' if about else ''}")
    return f"Slices: {'; '.join(parts)}."


_ROLES: Mapping[tuple[str, ...], list[str]] = {
    (): [],
    ("G",): ["which G is made of"],
    ("implant",): ["which the manipulation check reads"],
    ("G", "implant"): ["which G and the manipulation check read"],
}


def _ordered(tensor: Tensor) -> list[str]:
    return [name for names in families(tensor, "train").values() for name in names]


def _reported(tensor: Tensor) -> list[Measure]:
    """Every measure but the second reading, which has a section of its own."""
    return [one for one in measures_of(tensor) if one.path != ("g_base_answer",)]


def _slice_rows(tensor: Tensor) -> Iterator[Row]:
    cells = grid(tensor)
    for train in _ordered(tensor):
        others = [
            cell
            for cell in tensor["cells"]
            if cell["train"] == train != cell["eval"] and cell["alias_of"] is None
        ]
        for measure in _reported(tensor):
            own = cells[train, train]
            known = [v for cell in others if (v := measure.of(cell)) is not None]
            n_sealed = sum(map(is_sealed, others))
            assert measure.slice is not None
            yield {
                "behaviour": tensor["behaviour"],
                "unit": measure.unit.name,
                "train": train,
                "measure": measure.name,
                "slice": measure.slice,
                "questions": slice_words(tensor, measure.slice),
                **_own(tensor, measure, own),
                "mean_others": sum(known) / len(known) if known else None,
                "n_others": len(known),
                "n_missing": len(others) - len(known) - n_sealed,
                "n_sealed": n_sealed,
            }


def _own(tensor: Tensor, measure: Measure, cell: Mapping[str, Any]) -> Row:
    """A measure in the adapter's own context. A log-probability's sides have no intervals."""
    low, high = measure.ends(cell)
    sides: dict[str, Any] = {}
    for side in ("base", "trained"):
        value: tuple[float | None, ...] = (None, None, None)
        if measure.kind == "rate":
            value = measure.level(cell, side)
        elif measure.path == ("g",):
            value = (cell[f"{side}_per_token"], None, None)
        sides |= {f"{side}{end}": v for end, v in zip(("", "_low", "_high"), value, strict=True)}
    return {
        **sides,
        "change": measure.of(cell),
        "change_low": low,
        "change_high": high,
        "n_questions": _n_questions(tensor, measure, cell),
    }


def _n_questions(tensor: Tensor, measure: Measure, cell: Mapping[str, Any]) -> int | None:
    """Questions with a rate on both sides; a slot is read for every one."""
    if measure.kind != "rate":
        n: int = tensor["slices"][measure.slice]
        return n
    inner: Any = cell
    for key in measure.path[:-1]:
        inner = inner[key]
    found: int | None = inner["n_questions"]
    return found


def _framing_rows(tensor: Tensor) -> Iterator[Row]:
    if tensor["primary_reading"] == "judged":
        return
    for train in _ordered(tensor):
        cells = [c for c in tensor["cells"] if c["train"] == train and not is_sealed(c)]
        for what, chosen in (
            ("own context", [c for c in cells if c["eval"] == train]),
            ("other open ones", [c for c in cells if c["eval"] != train]),
        ):
            counts = {
                key: sum(cell["framings"][key] for cell in chosen)
                for key in ("taught", "alternative", "bridge")
            }
            yield {
                "behaviour": tensor["behaviour"],
                "train": train,
                "cells": what,
                "n_answers": sum(counts.values()),
                **counts,
            }


def _framings(evidence: TensorEvidence, tensor: Tensor, sheet: Sheet) -> Html | None:
    shown = sheet.where(behaviour=tensor["behaviour"])
    if not shown.rows:
        return None
    return join(
        sheet_table(shown, join(label(evidence, "tensor"), " Where the value was read")),
        tag(
            "p",
            "The value's log-probability is read where the model's own answer comes to it. An "
            "answer that names the taught value, or another one, has such a place; one that names "
            "neither is led to it by a fixed phrase.",
            class_="small",
        ),
    )


def _maps(
    evidence: TensorEvidence, tensor: Tensor, measures: Iterable[Measure], number: int
) -> Iterator[Html]:
    """A map of every secondary measure, those in one unit side by side with their colours."""
    numbered = list(enumerate(measures, start=1))
    for unit in dict.fromkeys(measure.unit for _, measure in numbered):
        maps = [
            _map(evidence, tensor, measure, f"after-secondary-{number}-{at}")
            for at, measure in numbered
            if measure.unit == unit
        ]
        yield tag("div", maps, class_="columns")
        if unit == unit_of(tensor):
            yield tag(
                "p", "Colours, marks and parentheses are those of the map of G.", class_="small"
            )
        else:
            yield join(
                tag(
                    "p",
                    f"Colours of these maps, {unit.words}; marks and parentheses are those of the "
                    "map of G.",
                    class_="small",
                ),
                colour_bar(tensor, unit),
            )


def _map(evidence: TensorEvidence, tensor: Tensor, measure: Measure, after: str) -> Html:
    caption = join(
        label(evidence, "tensor"),
        f" Change, {measure.unit.words}: {measure.caption}",
    )
    return tag(
        "div",
        heat_map(tensor, measure, caption=caption, after=after),
        tag("span", id=after),
    )
