"""What a table of contexts adds to a tensor that lacks it: families, groups, fates of columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from eps_locked.scoring.tables import Problems, read_rows, text_or_none

__all__ = ["SPLITS", "ContextFacts", "read_contexts"]

SPLITS = ("open", "held_out", "quarantined")
_TRUE, _FALSE = ("1", "true", "yes"), ("0", "false", "no", "")


@dataclass(frozen=True, kw_only=True, slots=True)
class ContextFacts:
    """``group``: contexts of one group stand for one another (aliases, near-duplicates)."""

    family: str | None
    group: str
    split: str


def read_contexts(
    data: bytes, kind: str, *, thing: str, renamed: Mapping[str, str] | None = None
) -> dict[str, ContextFacts]:
    """Columns ``id`` (or ``context_id``), ``family``, ``group``, ``split`` or ``held_out`` (0, 1).

    Raises MalformedInputError with every problem: an id missing or twice, a split that is none.
    """
    rows = read_rows(data, kind, thing=thing, renamed=renamed or {})
    problems = Problems(thing)
    found: dict[str, ContextFacts] = {}
    for number, row in enumerate(rows, start=1):
        name = row.get("id", row.get("context_id"))
        try:
            identity = text_or_none(name)
            family, group = text_or_none(row.get("family")), text_or_none(row.get("group"))
            split = text_or_none(row.get("split")) or _held_out(row.get("held_out"))
        except ValueError as error:
            problems.add(f"row {number}: {error}")
            continue
        if identity is None:
            problems.add(f"row {number}: no id")
        elif identity in found:
            problems.add(f"row {number}: context {identity} stands twice")
        elif split not in SPLITS:
            problems.add(f"row {number}: split {split}, expected {' or '.join(SPLITS)}")
        else:
            found[identity] = ContextFacts(family=family, group=group or identity, split=split)
    problems.raise_if_any("is no table of contexts")
    return found


def _held_out(value: object) -> str:
    word = "" if value is None else str(value).lower()
    if word not in _TRUE + _FALSE:
        raise ValueError(f"held_out {value!r}, expected 0 or 1")
    return "held_out" if word in _TRUE else "open"
