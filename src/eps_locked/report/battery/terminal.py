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
_NARROWEST: Final = 60
# A rule and a space on either side of each cell.
_BORDER: Final = 3


def models_table(rows: Sequence[tuple[str, Mapping[str, Any]]], width: int | None = None) -> str:
    """(run, model entry of its document) pairs as one table, a line for each thinking mode; run and
    mode are left out where there is only one.

    A rate stands with its interval. ``width`` in columns; None: the terminal's. Where the table
    does not fit without breaking words it is a list of the same lines: half a number misleads.
    """
    axes = list(dict.fromkeys(axis["axis"] for _, model in rows for axis in model["axes"]))
    modes = {axis["thinking"] for _, model in rows for axis in model["axes"]}
    with_runs = any(name for name, _ in rows)
    names = [*(["run"] if with_runs else []), "model", "weights"]
    names += ["thinking"] if len(modes) > 1 else []
    heads = [*names, *(_SHORT.get(axis, axis) for axis in axes), "tokens/s"]
    lines = []
    for name, model in rows:
        for number, mode in enumerate(dict.fromkeys(axis["thinking"] for axis in model["axes"])):
            found = {axis["axis"]: axis for axis in model["axes"] if axis["thinking"] == mode}
            line = [
                *([name] if with_runs else []),
                model["model"],
                model["quantisation"],
                *([mode] if len(modes) > 1 else []),
                *(rate_words(found[axis]) if axis in found else "-" for axis in axes),
                # Models are timed in one mode, the first.
                _speed(model["speed"]) if number == 0 else "-",
            ]
            lines.append(list(map(plain_text, line)))
    columns = width or max(shutil.get_terminal_size((100, 24)).columns, _NARROWEST)
    if _needed(heads, lines) > columns:
        return "".join(_listed(heads, line, len(names)) for line in lines)
    return _table(heads, lines, len(names), columns)


def _needed(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> int:
    """Columns that a table of these needs without breaking a word."""
    longest = (
        max(len(word) for cell in column for word in cell.split() or [""])
        for column in zip(heads, *lines, strict=True)
    )
    return sum(word + _BORDER for word in longest) + 1


def _table(heads: Sequence[str], lines: Sequence[Sequence[str]], n_names: int, columns: int) -> str:
    table = Table(title=None, show_lines=False, expand=False)
    for number, head in enumerate(heads):
        longest = max(len(w) for one in (head, *(ln[number] for ln in lines)) for w in one.split())
        table.add_column(head, justify="left" if number < n_names else "right", min_width=longest)
    for line in lines:
        table.add_row(*line)
    text = io.StringIO()
    Console(file=text, width=columns, highlight=False, markup=False, no_color=True).print(table)
    return text.getvalue()


def _listed(heads: Sequence[str], line: Sequence[str], n_names: int) -> str:
    """One line of the table, its rates below one another."""
    rates = zip(heads[n_names:], line[n_names:], strict=True)
    named = ", ".join(
        cell if head in ("run", "model") else f"{head} {cell}"
        for head, cell in zip(heads[:n_names], line[:n_names], strict=True)
    )
    return f"{named}\n" + "".join(f"  {head:<10}{cell}\n" for head, cell in rates)


def rate_words(axis: Mapping[str, Any]) -> str:
    """``12% [4,30] n=24``; without a rate how many items have a verdict."""
    if not axis["measured"]:
        return f"not measured {axis['n_scored']}/{axis['n_items']}"
    return (
        f"{axis['rate']:.0%} [{axis['low'] * 100:.0f},{axis['high'] * 100:.0f}] "
        f"n={axis['n_scored']}"
    )


def _speed(speed: Mapping[str, Any] | None) -> str:
    if speed is None or speed["tokens_per_second"] is None:
        return "-"
    return f"{speed['tokens_per_second']['median']:.1f}"
