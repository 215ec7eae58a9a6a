"""Every table of the page stands beside it as CSV, and the two say the same."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from placed import compared, places, shown_as
from reader import Note, PageReader, TableReader, filters

from eps_locked.report.absent import Blank, is_void, listed, parted, sentences
from eps_locked.report.page import files_of
from eps_locked.report.sheets import (
    Remark,
    Sheet,
    figure,
    number,
    score_column,
    score_figure,
    sheet_table,
    with_interval,
    words,
)
from eps_locked.report.tensors import gather
from eps_locked.scoring.score import score_open
from sim.simulator import StudySimulator
from unit.scoring.worlds import QUICK, noise, predictor, table, tensor


@pytest.fixture(scope="session")
def scant_files(_finished: StudySimulator) -> dict[str, bytes]:
    """The report of a study with too few cells to score anything."""
    tables = [table(noise(n), behaviour=b, n_train=3, n_eval=4) for n, b in enumerate("ab")]
    metrics = [
        predictor(tables, noise(8), metric="one", blind=noise(10)),
        predictor(tables, noise(9), metric="two"),
    ]
    return files_of(gather(_finished.audit()), score_open(tensor(*tables), metrics, QUICK))


@pytest.fixture(params=["full", "scant"])
def files(
    request: pytest.FixtureRequest,
    full_report: tuple[bytes, dict[str, bytes]],
    scant_files: dict[str, bytes],
) -> dict[str, bytes]:
    return full_report[1] if request.param == "full" else scant_files


def test_every_table_of_the_page_names_a_csv_that_says_the_same(files: dict[str, bytes]) -> None:
    n_compared = compared(files)
    assert n_compared > (1500 if "looks.csv" in files else 100)


def test_every_row_of_a_csv_is_shown_or_counted_in_a_sentence(files: dict[str, bytes]) -> None:
    n_rows: Counter[str] = Counter()
    n_gone = 0
    for file, place in places(files):
        n_rows[file] += len(place.rows)
        kept, gone = place.parts()
        n_shown = 0 if place.table is None else len(place.table.rows)
        said = {} if place.note is None else place.note.left_out
        assert n_shown + sum(said.values()) == len(place.rows), file
        assert (n_shown, sum(said.values())) == (len(kept), len(gone)), file
        for text, n in said.items():
            assert f"({n} row{'' if n == 1 else 's'}): " in text
            reason = text.rpartition("): ")[2].strip().removesuffix(".")
            matching = [row for row in gone if reason in row.values()]
            assert len(matching) == n, f"{file}: {text}"
            for row in matching:
                name = row.get("title") or row.get("combiner") or row.get("metric") or ""
                assert name in text or re.search(r"all (\d+ )?(predictors|combiners|metrics)", text)
                assert row.get("part", "") in text
        n_gone += len(gone)
    assert n_gone > (20 if "looks.csv" in files else 40)
    for file, n in n_rows.items():
        assert n == files[file].count(b"\n") - 1, f"{file}: a row has no place on the page"


def test_no_number_is_left_out_with_a_row(files: dict[str, bytes]) -> None:
    """But counts, the share that the reason itself names, and the leaderboard's own R²."""
    board = list(csv.DictReader(io.StringIO(files["leaderboard.csv"].decode("utf-8"))))
    own = {(row["behaviour"], row["metric"]): row["r2"] for row in board}
    known = {"n", "rank", "look", "share_at_a_bound", "open_r2", "open_spearman"}
    for file, place in places(files):
        for row in place.parts()[1]:
            for key, raw in row.items():
                if key in known or key.startswith("n_") or not re.fullmatch(r"-?[\d.e+-]+", raw):
                    continue
                assert raw == own[row["behaviour"], row["metric"]], f"{file}: {key}: {raw}"


def test_what_every_row_says_is_said_once_and_nothing_is_lost(files: dict[str, bytes]) -> None:
    n_once = 0
    for file, place in places(files):
        if place.table is None:
            continue
        kept, _ = place.parts()
        note = place.note or Note(attributes={})
        for key in note.keys("data-empty"):
            assert {row[key] for row in kept} == {""}, f"{file}: {key}"
        for key in note.keys("data-same"):
            (said,) = {row[key] for row in kept}
            assert said in note.text, f"{file}: {key}"
        keys = {key for group in place.table.keys for key in group}
        for row, texts in zip(kept, place.table.rows, strict=True):
            everything = " ".join([*texts, note.text])
            for key in keys & {k.removesuffix("_coverage") for k in keys}:
                reason = row.get(f"{key}_reason", "")
                if reason and row.get(f"{key}_low") == "":
                    assert reason in everything, f"{file}: {key}: {reason}"
                if row.get(f"{key}_coverage_reached") == "False":
                    words = f"covers {float(row[f'{key}_coverage']):.1%}".replace("%", " %")
                    assert words in everything, f"{file}: {key}: {words}"
                    n_once += words in note.text
    assert n_once > 0 or "looks.csv" not in files


def test_with_too_few_cells_a_table_is_a_sentence(scant_files: dict[str, bytes]) -> None:
    read = TableReader(scant_files["index.html"])
    one = {"behaviour": "a"}
    named = {n.attributes["data-about"]: n for n in read.notes if filters(n.attributes) == one}
    shown = {t.attributes["data-csv"] for t in read.tables if t.filters == one}
    for file in ("leaderboard.csv", "over-additive.csv", "parts.csv", "combiners.csv"):
        assert file not in shown
        assert "9 scored cells, at least 12 needed" in named[file].text
        assert "exploratory" in named[file].text
        assert f'this table: {file}"' in scant_files["index.html"].decode()
    assert (
        "Not computed for symmetric, antisymmetric and interaction parts of all 2 predictors "
        "(6 rows): 9 scored cells, at least 12 needed."
    ) in " ".join(named["parts.csv"].text.split())
    text = PageReader(scant_files["index.html"]).text
    assert text.count("No R² out of fold: 9 scored cells, at least 12 needed.") == 2
    assert "None" not in text


def test_the_comparison_can_fail() -> None:
    assert shown_as("0.4249", "0.42 [0.1, 0.7]")
    assert shown_as("-0.2", "−0.20")
    assert shown_as("0.2849", "28.5 %")
    assert shown_as("-0.352", "+50.0 pp [−35.2, 85.8]")
    assert not shown_as("-35.2", "+50.0 pp [−35.2, 85.8]")
    assert not shown_as("0.4349", "0.42 [0.1, 0.7]")
    assert not shown_as("0.2", "−0.20")
    assert not shown_as("gauss_kl", "output_kl")
    assert shown_as("-3817372.39", "−62.78 [below −99, 1.00]")
    assert not shown_as("-98.2", "below −99")
    assert shown_as("0.00003", "below 0.0001")
    assert not shown_as("0.0002", "below 0.0001")
    assert not shown_as("-120", "95 % below −99.00")


def test_heat_maps_say_what_cells_csv_says(full_report: tuple[bytes, dict[str, bytes]]) -> None:
    data, files = full_report
    rows = list(csv.DictReader(io.StringIO(files["cells.csv"].decode("utf-8"))))
    by_place = {(r["behaviour"], r["train"], r["eval"]): r for r in rows}
    shown: Counter[tuple[str, str]] = Counter()
    n_sealed = 0
    for map_, cells in heat_maps(data):
        behaviour, column = map_["data-where-behaviour"], map_["data-value"]
        assert len(cells) == sum(row["behaviour"] == behaviour for row in rows)
        for cell in cells:
            head, value, *_ = cell["title"].split("\n")
            train, _, evaluated = head.partition(" → ")
            row = by_place[behaviour, train, evaluated]
            if row["flags"] == "sealed":
                assert (row[column], value) == ("", "sealed")
                n_sealed += 1
                continue
            # The marker's two maps tell all of a cell, G first.
            raw = row["g" if behaviour == "marker" else column]
            found = re.search(r"([+-]?\d+\.\d+) (nats per token|nats|percentage points),", value)
            assert (found is not None) == (raw != ""), f"{behaviour} {column}: {raw} {value}"
            if found is not None:
                factor = 100 if found[2] == "percentage points" else 1
                digits = len(found[1].partition(".")[2])
                assert round(float(raw) * factor, digits) == float(found[1])
                shown[behaviour, column] += 1
    assert n_sealed > 1000
    assert set(shown) == {
        *(("marker", column) for column in ("g", "g_base_answer")),
        *(("fact", column) for column in ("g", "g_base_answer", "slot_slices_framing_g")),
        *(("fact", column) for column in ("rate_g", "secondary_framing_rate_g")),
        *(("refusal", column) for column in ("g", "secondary_improper_rate_g")),
    }
    assert min(shown.values()) > 100


def heat_maps(data: bytes) -> list[tuple[dict[str, str], list[dict[str, str]]]]:
    """Every heat map's attributes with those of its cells."""
    found: list[tuple[dict[str, str], list[dict[str, str]]]] = []
    for name, attributes in PageReader(data).elements:
        if name == "table" and attributes.get("class") == "heat":
            found.append((attributes, []))
        elif name == "td" and "tabindex" in attributes:
            found[-1][1].append(attributes)
    return found


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


def test_a_score_far_from_0_says_only_that_it_is_far() -> None:
    row = {"x": -62.777, "x_low": -3817372.39, "x_high": 1.0}
    sheet = Sheet(file="t.csv", what="t", columns=(with_interval("x", "x"),), rows=(row,))
    assert TableReader(sheet_table(sheet, "c")).tables[0].rows == [["−62.78 [below −99, 1.00]"]]
    assert b"-3817372.39" in sheet.csv()
    texts = [score_figure(x) for x in (-99.0, -99.01, 99.0, 1863.89, -0.001, None)]
    assert texts == ["−99.00", "below −99", "99.00", "1864", "0.00", "–"]
    # What is no score keeps its size: a log-probability, or an effect in a metric's own unit.
    assert figure(-120.5) == "−120.50"


_NAMED = Blank(values=("x", "word"), kind=lambda row: str(row["part"]), noun=("part", "parts"))


def part(title: str, kind: str, x: float | None = None, **more: Any) -> dict[str, Any]:
    row = {"title": title, "part": kind, "x": x, "word": "undetermined", "reason": "too few"}
    return {**row, **more}


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (
            [part(t, k) for t in "AB" for k in ("first", "last")],
            ["Not computed for first and last parts of all 2 predictors (4 rows): too few."],
        ),
        (
            [part(t, "first", 0.0 if t == "D" else None) for t in "ABCD"],
            ["Not computed for first part of all predictors but D (3 rows): too few."],
        ),
        (
            [part(t, "first", 0.0 if t > "B" else None) for t in "ABCDE"],
            ["Not computed for first part of A and B (2 rows): too few."],
        ),
        (
            [part("A", "first"), part("B", "last")],
            ["Not computed for first part of A; last part of B (2 rows): too few."],
        ),
        (
            [part("A", "first"), part("B", "first", reason="none.")],
            [
                "Not computed for first part of A (1 row): too few.",
                "Not computed for first part of B (1 row): none.",
            ],
        ),
        ([part("A", "first", reason=None)], ["first part of A (1 row): no reason recorded."]),
        ([part("A", "first", word="passed")], []),
        ([part("A", "first", word="failed")], []),
    ],
)
def test_rows_that_hold_nothing_are_named_and_counted(
    rows: list[dict[str, Any]], said: list[str]
) -> None:
    kept, out = parted(rows, _NAMED)
    found = sentences(out, rows, _NAMED)
    assert len(kept) + sum(n for _, n in found) == len(rows)
    assert len(found) == len(said)
    assert all(text.endswith(end) for (text, _), end in zip(found, said, strict=True))


def test_0_and_false_say_something() -> None:
    assert [is_void(one) for one in (0, 0.0, False, None, "", "undetermined")] == [False] * 3 + [
        True
    ] * 3
    assert [listed("abc"[:n]) for n in range(4)] == ["", "a", "a and b", "a, b and c"]


def test_a_remark_of_all_rows_stands_below_and_one_of_some_stays() -> None:
    assert Remark(of=lambda row: row["r"]).shared([{"r": "so"}, {"r": None}, {"r": "so"}]) == "so"
    assert Remark(of=lambda row: row["r"]).shared([{"r": "so"}, {"r": ""}]) is None
    assert Remark(of=lambda row: row["r"]).shared([{"r": "so"}]) is None
    row = {"title": "t", "x_reason": "so", "y": None}
    rows = tuple({**row, "n": n, "x": float(n)} for n in (1, 2))
    columns = (words("n", "n"), with_interval("x", "x"), score_column("y", "y"))
    sheet = Sheet(file="t.csv", what="t", columns=columns, rows=rows, blank=Blank(values=("x",)))
    read = TableReader(sheet_table(sheet, "c"))
    assert read.tables[0].rows == [["1", "1.00"], ["2", "2.00"]]
    assert " ".join(read.notes[0].text.split()) == "In no row: y. Every row (x): so."
    other = replace(sheet, rows=({**rows[0], "x_reason": ""}, rows[1]), blank=None)
    assert TableReader(sheet_table(other, "c")).tables[0].rows == [
        ["1", "1.00", "–"],
        ["2", "2.00 so", "–"],
    ]


def test_a_row_gives_a_reason_once_and_every_coverage() -> None:
    row = {key: None for name in "ab" for key in (name, f"{name}_low", f"{name}_high")}
    row |= {"a_reason": "too few", "b_reason": "too few"}
    columns = (with_interval("a", "a"), with_interval("b", "b"))
    sheet = Sheet(file="t.csv", what="t", columns=columns, rows=(row,))
    assert TableReader(sheet_table(sheet, "c")).tables[0].rows == [["– too few", "–"]]
    known = dict.fromkeys(row, 0.5) | {
        key: value
        for name in "ab"
        for key, value in ((f"{name}_coverage", 0.9), (f"{name}_coverage_reached", False))
    }
    cells = TableReader(sheet_table(replace(sheet, rows=(known,)), "c")).tables[0].rows[0]
    assert cells == ["0.50 [0.50, 0.50] covers 90.0 %"] * 2


def test_words_that_all_rows_share_need_no_column() -> None:
    rows = tuple({"x": str(n), "w": "same", "v": None} for n in (1, 2))
    columns = (words("x", "x"), words("w", "w", aside=True), words("v", "v", aside=True))
    read = TableReader(sheet_table(Sheet(file="t.csv", what="t", columns=columns, rows=rows), "c"))
    assert read.tables[0].rows == [["1"], ["2"]]
    assert read.notes[0].text.strip() == "Every row (w): same."
