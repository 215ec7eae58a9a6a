"""One table, two faces: rows that are shown on the page and written beside it as CSV.

A page rounds; the CSV keeps every digit. Both are made from the same rows here, and the page's
table names its CSV and, at each column, the fields it shows, so that a reader (or a test) can
compare the two.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from eps_locked.report.html import Child, Html, join, scroller, tag
from eps_locked.report.marks import typeset

Row = Mapping[str, Any]
NOTHING = "–"
# So many rows are kept on one sheet of paper.
_ONE_SHEET = 14


@dataclass(frozen=True, kw_only=True, slots=True)
class Column:
    """A column of the page: which CSV fields it shows, and how. ``wide`` ones hold sentences."""

    head: str
    keys: tuple[str, ...]
    show: Callable[[Row], Child]
    kind: Literal["", "num", "wide"] = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sheet:
    """Rows of plain values. ``file`` is the CSV's name; ``what`` says in words what it holds.

    ``filters``: the fields by which the rows were picked from the whole table.
    """

    file: str
    what: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    filters: tuple[tuple[str, str], ...] = ()

    def where(self, **values: str) -> Sheet:
        """The rows with these values, as they stand in one place of the page."""
        rows = tuple(row for row in self.rows if all(row[k] == v for k, v in values.items()))
        return replace(self, rows=rows, filters=(*self.filters, *values.items()))

    def csv(self) -> bytes:
        """The rows as CSV, one column per field; the header alone where there is no row."""
        names = dict.fromkeys(key for row in self.rows for key in row)
        return csv_bytes(self.rows, list(names) or [k for c in self.columns for k in c.keys])


def sheet_table(sheet: Sheet, caption: Child) -> Html:
    """The table on the page; the first column is each row's header."""

    def cell(number: int, column: Column, row: Row) -> Html:
        kind = column.kind or None
        if number == 0:
            return tag("th", column.show(row), scope="row", class_=kind)
        return tag("td", column.show(row), class_=kind)

    heads = [
        tag("th", c.head, scope="col", class_=c.kind or None, data_keys=" ".join(c.keys))
        for c in sheet.columns
    ]
    lines = [
        tag("tr", [cell(number, column, row) for number, column in enumerate(sheet.columns)])
        for row in sheet.rows
    ]
    link = tag("a", "CSV", href=sheet.file, class_="csv", aria_label=f"this table: {sheet.file}")
    return scroller(
        tag(
            "table",
            tag("caption", tag("span", caption, " ", link)),
            tag("thead", tag("tr", heads)),
            tag("tbody", lines),
            class_="short" if len(sheet.rows) <= _ONE_SHEET else None,
            data_csv=sheet.file,
            **{f"data_where_{key}": value for key, value in sheet.filters},
        ),
        label=sheet.what,
    )


def csv_bytes(rows: Iterable[Row], columns: Sequence[str] | None = None) -> bytes:
    """Rows as CSV (UTF-8, LF, header first). ``None`` is an empty field."""
    rows = list(rows)
    names = columns or list(dict.fromkeys(key for row in rows for key in row))
    sink = io.StringIO()
    writer = csv.DictWriter(sink, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return sink.getvalue().encode("utf-8")


def words(head: str, key: str, *, wide: bool = False) -> Column:
    """A column of texts; a dash where there is none."""
    return Column(
        head=head,
        keys=(key,),
        show=lambda row: NOTHING if row[key] in (None, "") else str(row[key]),
        kind="wide" if wide else "",
    )


def count(head: str, key: str) -> Column:
    """A column of whole numbers."""
    return Column(
        head=head,
        keys=(key,),
        show=lambda row: NOTHING if row[key] is None else str(row[key]),
        kind="num",
    )


def number(head: str, key: str, digits: int = 2, *, sign: bool = False) -> Column:
    """A column of numbers with ``digits`` decimals, with a plus sign where ``sign`` is set."""
    return Column(
        head=head, keys=(key,), show=lambda row: figure(row[key], digits, sign=sign), kind="num"
    )


def with_interval(head: str, key: str, digits: int = 2, *, sign: bool = False) -> Column:
    """A number and its interval, fields ``KEY_low`` and ``KEY_high``.

    Where simulations found that the interval does not hold the truth as often as it says
    (``KEY_coverage_reached``), what it does reach stands beside it; where there is no number or no
    interval, ``KEY_reason``.
    """
    low, high, coverage = f"{key}_low", f"{key}_high", f"{key}_coverage"

    def show(row: Row) -> Child:
        value, reason = row[key], row.get(f"{key}_reason")
        parts: list[Child] = [figure(value, digits, sign=sign)]
        if row.get(low) is not None and row.get(high) is not None:
            ends = f"[{figure(row[low], digits)}, {figure(row[high], digits)}]"
            parts += [" ", tag("small", ends)]
        elif reason:
            parts += [" ", tag("small", reason, class_="why")]
        if row.get(f"{coverage}_reached") is False and row.get(coverage) is not None:
            parts += [" ", tag("small", f"covers {per_cent(row[coverage])}")]
        return join(*parts)

    return Column(head=head, keys=(key, low, high, coverage), show=show, kind="num")


def share(head: str, key: str, digits: int = 1) -> Column:
    """A column of shares, shown in per cent."""
    return Column(head=head, keys=(key,), show=lambda row: per_cent(row[key], digits), kind="num")


def figure(value: float | None, digits: int = 2, *, sign: bool = False) -> str:
    """A number for the page, with a true minus sign; a dash where there is none."""
    text = typeset(value, digits)
    return text if sign else text.removeprefix("+")


def per_cent(value: float | None, digits: int = 1) -> str:
    """``28.3 %``; a dash where there is none."""
    return NOTHING if value is None else f"{figure(value * 100, digits)} %"
