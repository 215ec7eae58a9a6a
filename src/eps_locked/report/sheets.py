"""One table, two faces: rows that are shown on the page and written beside it as CSV.

A page rounds; the CSV keeps every digit. Both are made from the same rows here, and the page's
table names its CSV and, at each column, the fields it shows, so that a reader (or a test) can
compare the two. The page says a thing once: rows without a value, a column without one and a
remark that every row would repeat become sentences below the table. The CSV keeps them all.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from eps_locked.report.absent import Blank, parted, sentences
from eps_locked.report.html import Child, Html, join, scroller, tag
from eps_locked.report.units import Unit, for_page, score_signed, typeset, unit_named

Row = Mapping[str, Any]
NOTHING = "–"
# So many rows are kept on one sheet of paper.
_ONE_SHEET = 14
# So many letters of a remark stand on one line.
_ONE_LINE = 24


@dataclass(frozen=True, kw_only=True, slots=True)
class Remark:
    """A small text below a cell's value; below the table where it is the same in all of them.

    of: the text; empty where a row has none, None where it could have none. ``every`` says in words
    which rows could. again: whether a later cell of the row repeats it.
    """

    of: Callable[[Row], str | None]
    every: str = "Every row"
    again: bool = False

    def shared(self, rows: Sequence[Row]) -> str | None:
        """The one text of all rows that could have one, if there are several of them."""
        texts = [text for text in map(self.of, rows) if text is not None]
        return texts[0] or None if len(texts) > 1 and len(set(texts)) == 1 else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Column:
    """A column of the page: which CSV fields it shows, and how. ``wide`` ones hold sentences.

    aside: words which need no column where all rows have the same ones, or none.
    """

    head: str
    keys: tuple[str, ...]
    show: Callable[[Row], Child]
    kind: Literal["", "num", "wide"] = ""
    remarks: tuple[Remark, ...] = ()
    aside: bool = False

    def is_empty(self, rows: Sequence[Row]) -> bool:
        """Whether the column is about fields and none of them holds anything."""
        found = [row.get(key) for row in rows for key in self.keys]
        return bool(found) and all(value in (None, "") for value in found)

    def is_same(self, rows: Sequence[Row]) -> bool:
        """Whether the rows, if there are several, have the same in it; or none has anything."""
        found = {tuple(row.get(key) for key in self.keys) for row in rows}
        return self.is_empty(rows) or (len(rows) > 1 and len(found) == 1)

    def cell(self, row: Row, said: Sequence[Remark], before: set[str]) -> Child:
        """What stands in a row, less what is said below the table or ``before`` in the row."""
        texts = []
        for one in self.remarks:
            text = one.of(row)
            if text and one not in said and (one.again or text not in before):
                texts.append(text)
        before.update(texts)
        return join(self.show(row), *(join(" ", _small(text)) for text in texts))


@dataclass(frozen=True, kw_only=True, slots=True)
class Sheet:
    """Rows of plain values. ``file`` is the CSV's name; ``what`` says in words what it holds.

    ``filters``: the fields by which the rows were picked from the whole table. ``blank``: which
    rows the page leaves out because they hold nothing.
    """

    file: str
    what: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    filters: tuple[tuple[str, str], ...] = ()
    blank: Blank | None = None

    def where(self, **values: str) -> Sheet:
        """The rows with these values, as they stand in one place of the page."""
        rows = tuple(row for row in self.rows if all(row[k] == v for k, v in values.items()))
        return replace(self, rows=rows, filters=(*self.filters, *values.items()))

    def csv(self) -> bytes:
        """The rows as CSV, one column per field; the header alone where there is no row."""
        names = dict.fromkeys(key for row in self.rows for key in row)
        return csv_bytes(self.rows, list(names) or [k for c in self.columns for k in c.keys])


def sheet_table(sheet: Sheet, caption: Child) -> Html:
    """The table on the page, and below it what holds for all of it; that alone if no row is left.

    The first column is each row's header.
    """
    rows, out = parted(sheet.rows, sheet.blank)
    missing = [] if sheet.blank is None else sentences(out, sheet.rows, sheet.blank)
    left_out = [tag("span", f"{text} ", data_left_out=n) for text, n in missing]
    link = tag("a", "CSV", href=sheet.file, class_="csv", aria_label=f"this table: {sheet.file}")
    if missing and not rows:
        return _sentences(sheet, [tag("b", caption, ". "), *left_out, link])
    columns, notes = _said_once(sheet, rows)
    said = [one for column in columns for one in column.remarks if one.shared(rows)]

    def line(row: Row) -> Html:
        before: set[str] = set()
        cells = []
        for number, column in enumerate(columns):
            name, scope = ("th", "row") if number == 0 else ("td", None)
            content = column.cell(row, said, before)
            cells.append(tag(name, content, scope=scope, class_=column.kind or None))
        return tag("tr", cells)

    heads = [
        tag("th", c.head, scope="col", class_=c.kind or None, data_keys=" ".join(c.keys))
        for c in columns
    ]
    table = scroller(
        tag(
            "table",
            tag("caption", tag("span", caption, " ", link)),
            tag("thead", tag("tr", heads)),
            tag("tbody", map(line, rows)),
            class_="short" if len(rows) <= _ONE_SHEET else None,
            data_csv=sheet.file,
            **_where(sheet),
        ),
        label=sheet.what,
    )
    return join(table, _sentences(sheet, [*left_out, *notes]) if left_out or notes else None)


def _sentences(sheet: Sheet, children: Iterable[Child]) -> Html:
    """Sentences about the rows of a sheet, with the sheet's own address for who counts them."""
    values = "" if sheet.blank is None else " ".join(sheet.blank.values)
    return tag(
        "p",
        children,
        class_="small absent",
        data_about=sheet.file,
        data_values=values,
        **_where(sheet),
    )


def _where(sheet: Sheet) -> dict[str, str]:
    return {f"data_where_{key}": value for key, value in sheet.filters}


def _said_once(sheet: Sheet, rows: Sequence[Row]) -> tuple[list[Column], list[Html]]:
    """The columns that stay, and sentences for what every row would repeat.

    A column without any value goes, with its reason if all rows give the same one.
    """
    stay: list[Column] = []
    same: list[Column] = []
    gone: dict[str, list[Column]] = {}
    shared: dict[tuple[str, str], list[str]] = {}
    for column in sheet.columns:
        remarks = [(one, one.shared(rows)) for one in column.remarks]
        texts = [(one.every, text) for one, text in remarks if text]
        if column.aside and column.is_same(rows):
            same.append(column)
        elif sheet.blank is not None and column.is_empty(rows) and _is_simple(remarks, rows):
            reason = ": ".join(text for _, text in texts)
            gone.setdefault(reason, []).append(column)
        else:
            stay.append(column)
            for found in texts:
                shared.setdefault(found, []).append(column.head)
    notes = [
        tag("span", f"Every row ({c.head}): {c.show(rows[0])}. ", data_same=" ".join(c.keys))
        for c in same
        if not c.is_empty(rows)
    ]
    notes += [
        tag(
            "span",
            f"In no row: {'; '.join(dict.fromkeys(c.head for c in columns))}"
            f"{f' ({reason})' if reason else ''}. ",
            data_empty=" ".join(key for c in columns for key in c.keys),
        )
        for reason, columns in gone.items()
    ]
    notes += [
        tag("span", f"{every} ({'; '.join(heads)}): {text}. ")
        for (every, text), heads in shared.items()
    ]
    return stay, notes


def _is_simple(remarks: Iterable[tuple[Remark, str | None]], rows: Sequence[Row]) -> bool:
    """Whether nothing is lost with the column: each remark is that of all rows, or of none."""
    return all(text or not any(map(one.of, rows)) for one, text in remarks)


def _small(text: str) -> Html:
    return tag("small", text, class_="why" if len(text) > _ONE_LINE else None)


def csv_bytes(rows: Iterable[Row], columns: Sequence[str] | None = None) -> bytes:
    """Rows as CSV (UTF-8, LF, header first). ``None`` is an empty field."""
    rows = list(rows)
    names = columns or list(dict.fromkeys(key for row in rows for key in row))
    sink = io.StringIO()
    writer = csv.DictWriter(sink, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return sink.getvalue().encode("utf-8")


def words(head: str, key: str, *, wide: bool = False, aside: bool = False) -> Column:
    """A column of texts; a dash where there is none."""
    return Column(
        head=head,
        keys=(key,),
        show=lambda row: NOTHING if row[key] in (None, "") else str(row[key]),
        kind="wide" if wide else "",
        aside=aside,
    )


def why_not() -> Column:
    """A column that says why a row lacks something."""
    return words("why not", "reason", wide=True, aside=True)


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


def score_column(head: str, key: str, *, sign: bool = False, reason: str | None = None) -> Column:
    """A column of correlations or R²; ``reason`` is the field that says why there is none."""
    return Column(
        head=head,
        keys=(key,),
        show=lambda row: score_figure(row[key], sign=sign),
        kind="num",
        remarks=() if reason is None else (Remark(of=lambda row: str(row[reason] or "")),),
    )


def with_interval(
    head: str, key: str, *, sign: bool = False, shown: Callable[..., str] | None = None
) -> Column:
    """A score and its interval, fields ``KEY_low`` and ``KEY_high``.

    Where simulations found that the interval does not hold the truth as often as it says
    (``KEY_coverage_reached``), what it does reach stands beside it; where there is no number or no
    interval, ``KEY_reason``, if the row has not said it. ``shown``: another form of the numbers.
    """
    low, high, coverage = f"{key}_low", f"{key}_high", f"{key}_coverage"
    written = shown or score_figure

    def has_interval(row: Row) -> bool:
        return row.get(low) is not None and row.get(high) is not None

    def show(row: Row) -> Child:
        text = written(row[key], sign=sign)
        if not has_interval(row):
            return text
        return join(text, " ", tag("small", f"[{written(row[low])}, {written(row[high])}]"))

    def reason(row: Row) -> str:
        found = None if has_interval(row) else row.get(f"{key}_reason")
        return "" if found == row.get("reason") else str(found or "")

    def covers(row: Row) -> str | None:
        if not has_interval(row):
            return None
        short = row.get(f"{coverage}_reached") is False and row.get(coverage) is not None
        return f"covers {per_cent(row[coverage])}" if short else ""

    return Column(
        head=head,
        keys=(key, low, high, coverage),
        show=show,
        kind="num",
        remarks=(Remark(of=reason), Remark(of=covers, every="Every interval", again=True)),
    )


def change(head: str, key: str, *, ends: bool = False) -> Column:
    """A column of changes, each in the unit that its row names; ``ends``: with the interval of the
    fields ``KEY_low`` and ``KEY_high``."""
    return _in_unit(head, key, lambda unit, value: unit.table_change(value), ends)


def level(head: str, key: str, *, ends: bool = False) -> Column:
    """A column of what models do by themselves: rates in per cent, nats with their sign."""
    return _in_unit(head, key, lambda unit, value: unit.table_level(value), ends)


def _in_unit(
    head: str, key: str, written: Callable[[Unit, float | None], str], ends: bool
) -> Column:
    low, high = f"{key}_low", f"{key}_high"

    def show(row: Row) -> Child:
        unit = unit_named(row["unit"])
        text = written(unit, row[key])
        if not ends or row[low] is None or row[high] is None:
            return text
        return join(text, " ", tag("small", for_page(unit.ends(row[low], row[high]))))

    keys = (key, low, high) if ends else (key,)
    return Column(head=head, keys=keys, show=show, kind="num")


def share(head: str, key: str, digits: int = 1) -> Column:
    """A column of shares, shown in per cent."""
    return Column(head=head, keys=(key,), show=lambda row: per_cent(row[key], digits), kind="num")


def figure(value: float | None, digits: int = 2, *, sign: bool = False) -> str:
    """A number for the page, with a true minus sign; a dash where there is none."""
    text = typeset(value, digits)
    return text if sign else text.removeprefix("+")


def score_figure(value: float | None, *, sign: bool = False) -> str:
    """``figure`` for a correlation, an R² or a difference of two, cut short far from 0."""
    if value is None:
        return NOTHING
    text = score_signed(value).replace("-", "−")
    return text if sign else text.removeprefix("+")


def per_cent(value: float | None, digits: int = 1) -> str:
    """``28.3 %``; a dash where there is none."""
    return NOTHING if value is None else f"{figure(value * 100, digits)} %"
