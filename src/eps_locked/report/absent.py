"""What a table of the page leaves out because it holds nothing: one sentence for every reason.

The CSV beside the table keeps every row. Pure functions of rows; what they say counts the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Row = Mapping[str, Any]
# What a field holds that says nothing.
_VOID = (None, "", "undetermined", "not applicable")


@dataclass(frozen=True, kw_only=True, slots=True)
class Blank:
    """Which rows of a table hold nothing, and how a sentence speaks of them.

    values: a row in which all these fields are void is left out. reasons: the first of these that
    it has says why. item: whose row it is; ``items`` is the word for several, ``apart`` are those
    that the word does not cover. kind: which of the item's rows, with ``noun`` (one, several)
    behind it.
    """

    values: tuple[str, ...]
    reasons: tuple[str, ...] = ("reason",)
    item: Callable[[Row], str] = lambda row: str(row["title"])
    items: str = "predictors"
    apart: tuple[str, ...] = ()
    kind: Callable[[Row], str] | None = None
    noun: tuple[str, str] = ("", "")


def is_void(value: Any) -> bool:
    """Whether a field says nothing. 0 and False say something."""
    return any(value is one or (isinstance(value, str) and value == one) for one in _VOID)


def parted(rows: Iterable[Row], blank: Blank | None) -> tuple[tuple[Row, ...], tuple[Row, ...]]:
    """The rows that hold something and those that do not, each in order."""
    rows = tuple(rows)
    if blank is None:
        return rows, ()
    out = [all(is_void(row.get(key)) for key in blank.values) for row in rows]
    return (
        tuple(row for row, gone in zip(rows, out, strict=True) if not gone),
        tuple(row for row, gone in zip(rows, out, strict=True) if gone),
    )


def sentences(out: Sequence[Row], everything: Sequence[Row], blank: Blank) -> list[tuple[str, int]]:
    """A sentence for every reason among the rows left out of ``everything``; its count of rows."""
    everybody = list(dict.fromkeys(map(blank.item, everything)))
    by_reason: dict[str, list[Row]] = {}
    for row in out:
        known = [str(row[key]) for key in blank.reasons if not is_void(row.get(key))]
        by_reason.setdefault(known[0] if known else "no reason recorded", []).append(row)
    return [
        (
            f"Not computed for {'; '.join(_phrases(rows, everybody, blank))} "
            f"({len(rows)} row{'' if len(rows) == 1 else 's'}): {reason.rstrip('.')}.",
            len(rows),
        )
        for reason, rows in by_reason.items()
    ]


def listed(names: Sequence[str], last: str = "and") -> str:
    """``a, b and c``."""
    return f" {last} ".join(part for part in (", ".join(names[:-1]), *names[-1:]) if part)


def _phrases(rows: Sequence[Row], everybody: Sequence[str], blank: Blank) -> list[str]:
    """Kinds that the same items lack stand together."""
    by_kind: dict[str, list[str]] = {}
    for row in rows:
        kind = "" if blank.kind is None else blank.kind(row)
        by_kind.setdefault(kind, []).append(blank.item(row))
    by_items: dict[tuple[str, ...], list[str]] = {}
    for kind, items in by_kind.items():
        by_items.setdefault(tuple(dict.fromkeys(items)), []).append(kind)
    phrases = []
    for found, kinds in by_items.items():
        whose = _items(found, everybody, blank)
        what = f"{listed(kinds)} {blank.noun[len(kinds) > 1]}".strip()
        phrases.append(f"{what} of {whose}" if what else whose)
    return phrases


def _items(found: Sequence[str], everybody: Sequence[str], blank: Blank) -> str:
    """All, all but a few, or each by its name."""
    apart = [name for name in found if name in blank.apart]
    named = [name for name in found if name not in blank.apart]
    missing = [name for name in everybody if name not in (*found, *blank.apart)]
    if len(named) > 1 and not missing:
        named = [f"all {len(named)} {blank.items}"]
    elif len(named) > 2 and len(missing) <= 2:
        named = [f"all {blank.items} but {listed(missing)}"]
    return listed([*apart, *named])
