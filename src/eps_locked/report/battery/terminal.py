"""Every model in one table, as a terminal shows it."""

from __future__ import annotations

import io
import shutil
from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from eps_locked.report.marks import plain_text

__all__ = ["models_table", "rate_words"]

_SHORT: Final[Mapping[str, str]] = {
    "over_refusal": "refuses",
    "capability": "correct",
    "sycophancy": "agrees",
    "tools": "tools",
    "harmful": "complies",
}


def models_table(rows: Sequence[tuple[str, Mapping[str, Any]]], width: int | None = None) -> str:
    """(run, model entry of its document) pairs as one table; the run is left out where all are "".

    A rate stands with its interval; a mode is named where there are several. ``width`` None: the
    terminal's.
    """
    keys = list(
        dict.fromkeys((axis["axis"], axis["thinking"]) for _, m in rows for axis in m["axes"])
    )
    several = len({thinking for _, thinking in keys}) > 1
    table = Table(title=None, show_lines=False, pad_edge=False, expand=False)
    with_runs = any(name for name, _ in rows)
    if with_runs:
        table.add_column("run", overflow="fold")
    table.add_column("model", overflow="fold")
    table.add_column("weights", overflow="fold")
    for axis, thinking in keys:
        head = _SHORT.get(axis, axis)
        table.add_column(f"{head}\nthinking {thinking}" if several else head, justify="right")
    table.add_column("tokens/s", justify="right")
    for name, model in rows:
        found = {(axis["axis"], axis["thinking"]): axis for axis in model["axes"]}
        cells = [rate_words(found[key]) if key in found else "-" for key in keys]
        start = [name, model["model"]] if with_runs else [model["model"]]
        line = [*start, model["quantisation"], *cells, _speed(model["speed"])]
        table.add_row(*map(plain_text, line))
    text = io.StringIO()
    columns = width or max(shutil.get_terminal_size((100, 24)).columns, 60)
    Console(file=text, width=columns, highlight=False, markup=False, no_color=True).print(table)
    return text.getvalue()


def rate_words(axis: Mapping[str, Any]) -> str:
    """``12% [4, 30] n=24``; without a rate how many items have a verdict."""
    if not axis["measured"]:
        return f"not measured {axis['n_scored']}/{axis['n_items']}"
    return (
        f"{axis['rate']:.0%} [{axis['low'] * 100:.0f}, {axis['high'] * 100:.0f}] "
        f"n={axis['n_scored']}"
    )


def _speed(speed: Mapping[str, Any] | None) -> str:
    if speed is None or speed["tokens_per_second"] is None:
        return "-"
    return f"{speed['tokens_per_second']['median']:.1f}"
