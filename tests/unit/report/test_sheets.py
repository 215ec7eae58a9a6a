"""Every table of the page stands beside it as CSV, and the two say the same."""

from __future__ import annotations

import csv
import io
import re
from typing import Any

import pytest
from reader import PageReader, Table, TableReader

from eps_locked.report.sheets import Sheet, number, sheet_table, with_interval, words

_NUMBER = re.compile(r"[+−]?\d+(?:\.\d+)?(?: %)?")


def rows_under(table: Table, files: dict[str, bytes]) -> list[dict[str, str]]:
    """The CSV's rows that the table shows."""
    text = files[table.attributes["data-csv"]].decode("utf-8")
    rows = list(csv.DictReader(io.StringIO(text)))
    return [row for row in rows if all(row[k] == v for k, v in table.filters.items())]


def shown_as(raw: str, text: str) -> bool:
    """Whether a CSV field can be read in the cell's text: a rounded number, or the very words."""
    if raw in ("", "False"):
        return True
    if raw == "True":
        return text != ""
    try:
        value = float(raw)
    except ValueError:
        return raw in text
    for found in _NUMBER.findall(text.replace("-", "−")):
        plain = found.replace("−", "-").removesuffix(" %")
        digits = len(plain.partition(".")[2])
        scaled = value * 100 if found.endswith("%") else value
        if round(scaled, digits) == float(plain):
            return True
    return False


def test_every_table_of_the_page_names_a_csv_that_says_the_same(
    full_report: tuple[bytes, dict[str, bytes]],
) -> None:
    data, files = full_report
    tables = TableReader(data).tables
    assert len({table.attributes["data-csv"] for table in tables}) >= 18
    n_compared = 0
    for table in tables:
        rows = rows_under(table, files)
        assert len(rows) == len(table.rows) > 0, table.caption
        for row, texts in zip(rows, table.rows, strict=True):
            assert len(texts) == len(table.keys)
            for keys, text in zip(table.keys, texts, strict=True):
                # Coverage is said beside an interval only where it falls short.
                for key in (k for k in keys if not k.endswith("_coverage")):
                    assert shown_as(row[key], text), f"{table.caption}: {key}: {row[key]!r} {text}"
                    n_compared += 1
    assert n_compared > 1500


def test_the_comparison_can_fail() -> None:
    assert shown_as("0.4249", "0.42 [0.1, 0.7]")
    assert shown_as("-0.2", "−0.20")
    assert shown_as("0.2849", "28.5 %")
    assert not shown_as("0.4349", "0.42 [0.1, 0.7]")
    assert not shown_as("0.2", "−0.20")
    assert not shown_as("gauss_kl", "output_kl")


def test_heat_maps_say_what_cells_csv_says(full_report: tuple[bytes, dict[str, bytes]]) -> None:
    data, files = full_report
    rows = list(csv.DictReader(io.StringIO(files["cells.csv"].decode("utf-8"))))
    by_place = {(r["behaviour"], r["train"], r["eval"]): r for r in rows}
    titles = [a["title"].split("\n") for a in PageReader(data).heat_cells()]
    assert len(titles) == 2 * len(rows)
    shown = 0
    for title in titles[: len(rows) // 2]:
        train, _, evaluated = title[0].partition(" → ")
        row = by_place["marker", train, evaluated]
        if row["flags"] == "sealed":
            assert row["g"] == ""
            assert title[1] == "sealed"
        elif row["g"]:
            assert title[1].startswith(f"G {float(row['g']):+.2f}".replace("+0.00", "0.00")[:6])
            shown += 1
    assert shown > 100


def test_the_list_of_files_is_complete(full_report: tuple[bytes, dict[str, bytes]]) -> None:
    data, files = full_report
    links = {a["href"] for a in PageReader(data).all("a") if not a["href"].startswith("#")}
    assert links == set(files) - {"index.html"}


def test_a_filter_keeps_its_rows_and_the_csv_keeps_all() -> None:
    rows = tuple(
        {"behaviour": b, "x": n, "x_low": None, "x_high": None} for n, b in enumerate("ab")
    )
    sheet = Sheet(
        file="t.csv",
        what="A table",
        columns=(words("behaviour", "behaviour"), with_interval("x", "x")),
        rows=rows,
    )
    one = sheet.where(behaviour="b")
    assert [row["x"] for row in one.rows] == [1]
    table = TableReader(sheet_table(one, "c")).tables[0]
    assert (table.filters, table.rows) == ({"behaviour": "b"}, [["b", "1.00"]])
    assert sheet.csv() == b"behaviour,x,x_low,x_high\na,0,,\nb,1,,\n"


def test_an_empty_sheet_still_has_a_header() -> None:
    sheet = Sheet(file="t.csv", what="t", columns=(number("x", "x"),), rows=())
    assert sheet.csv() == b"x\n"


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ({"x": None, "x_reason": "6 cells"}, "– 6 cells"),
        ({"x": 0.5, "x_low": 0.1, "x_high": 0.9}, "0.50 [0.10, 0.90]"),
        ({"x": 0.5, "x_low": None, "x_high": None, "x_reason": "no interval"}, "0.50 no interval"),
        (
            {
                "x": 0.5,
                "x_low": 0.1,
                "x_high": 0.9,
                "x_coverage": 0.91,
                "x_coverage_reached": False,
            },
            "0.50 [0.10, 0.90] covers 91.0 %",
        ),
        (
            {
                "x": 0.5,
                "x_low": 0.1,
                "x_high": 0.9,
                "x_coverage": 0.95,
                "x_coverage_reached": True,
            },
            "0.50 [0.10, 0.90]",
        ),
    ],
)
def test_an_interval_says_what_it_lacks(row: dict[str, Any], text: str) -> None:
    column = with_interval("x", "x")
    sheet = Sheet(file="t.csv", what="t", columns=(column,), rows=(row,))
    assert TableReader(sheet_table(sheet, "c")).tables[0].rows == [[text]]
