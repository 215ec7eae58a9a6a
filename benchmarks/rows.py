"""One measured figure beside the number it is held to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """``holds`` is None for a figure that nothing is held to."""

    what: str
    value: str
    target: str
    holds: bool


def print_rows(rows: Sequence[Row]) -> None:
    for row in rows:
        print(f"{'ok  ' if row.holds else 'MISS'}  {row.what}: {row.value} (target {row.target})")
