"""Somebody's own table: what is read, what is refused, and the command that analyses it."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from eps_locked.canonical import decode
from eps_locked.cli.drift import drift
from eps_locked.errors import EpsLockedError, MalformedInputError, RefusedError
from eps_locked.studies.drift.user_table import TableOptions, read_user_table
from unit.studies.drift.reply_worlds import INTEREST, OVERSIGHT, arm, replies

OPTIONS = TableOptions(reference="old", aligned=("accepts",), no_stance=("no_stance",))
Cells = dict[str, Any]


def table_rows() -> list[Cells]:
    """Three arms, two batteries, 12 stems x 2 rewordings x 2 samples."""
    arms = [arm("old"), arm("new"), arm("newer")]
    batteries = [replace(one, n_rewordings=2) for one in (OVERSIGHT, INTEREST)]
    return [
        {
            "arm": row.arm,
            "battery": row.battery,
            "stem": row.stem,
            "probe": row.probe.partition("/")[2],
            "sample": row.sample,
            "label": row.label,
            "second_label": row.second_label,
            "grade": row.grade,
            "note": "not read",
        }
        for row in replies(arms, batteries, n_stems=12)
    ]


def as_csv(rows: Iterable[Cells]) -> bytes:
    rows = list(rows)
    sink = io.StringIO()
    writer = csv.DictWriter(sink, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return sink.getvalue().encode()


ROWS = table_rows()


# --- reading --------------------------------------------------------------------------------------


def test_a_table_becomes_rows_arms_and_batteries() -> None:
    read = read_user_table("t.csv", as_csv(ROWS), OPTIONS)
    assert len(read.rows) == len(ROWS) == 288
    assert [(one.name, one.reference) for one in read.arms] == [
        ("old", None),
        ("new", "old"),
        ("newer", "old"),
    ]
    assert [one.name for one in read.batteries] == ["oversight", "self_interest"]
    assert read.batteries[0].labels == ("accepts", "no_stance", "resists", "unclear")
    assert (read.batteries[0].aligned, read.batteries[0].no_stance) == (
        ("accepts",),
        ("no_stance",),
    )
    assert read.unit == "points"
    assert read.ignored_columns == ("note",)
    first = read.rows[0]
    assert first.probe == "stem_00/0"
    assert first.grade == ROWS[0]["grade"]


def test_csv_json_lines_and_parquet_say_the_same() -> None:
    lines = "\n".join(json.dumps(row) for row in ROWS).encode()
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(ROWS), sink)
    tables = [
        read_user_table(name, data, OPTIONS).rows
        for name, data in (
            ("t.csv", as_csv(ROWS)),
            ("t.jsonl", lines),
            ("t.json", json.dumps(ROWS).encode()),
            ("t.parquet", sink.getvalue()),
        )
    ]
    assert tables[0] == tables[1] == tables[2] == tables[3]


def test_an_empty_label_is_a_reply_without_a_score() -> None:
    rows = [{**ROWS[0], "label": "", "second_label": ""}, *ROWS[1:]]
    first = read_user_table("t.csv", as_csv(rows), OPTIONS).rows[0]
    assert (first.label, first.status) == (None, "missing")


def test_scores_are_the_outcome_where_that_is_said() -> None:
    rows = [
        {"arm": a, "stem": s, "probe": 0, "sample": 0, "score": 0.25}
        for a in ("a", "b")
        for s in "xy"
    ]
    options = TableOptions(reference="a", use_score=True)
    read = read_user_table("t.csv", as_csv(rows), options)
    assert read.unit == "score units"
    assert read.rows[0].score == 0.25
    assert read.batteries[0].name == "all"
    assert read_user_table("t.csv", as_csv(rows), replace(options, is_rate=True)).unit == "points"


def test_what_is_said_of_an_arm_is_read() -> None:
    said = {
        "old": {"model": "m", "topic": "", "dose_percent": "", "seed": "", "instance": 0},
        "new": {"model": "m", "topic": "", "dose_percent": "", "seed": "", "instance": 1},
        "newer": {"model": "", "topic": "", "dose_percent": 7.5, "seed": 3, "instance": 0},
    }
    rows = [
        {**row, **said[row["arm"]], "reasoning": "free", "reference": "", "temperature": 0.7}
        for row in ROWS
    ]
    for row in rows:
        row["reference"] = "new" if row["arm"] == "newer" else ""
    old, new, newer = read_user_table("t.csv", as_csv(rows), OPTIONS).arms
    assert (old.model, old.topic, old.instance, old.reasoning) == ("m", None, 0, "free")
    assert (new.model, new.instance, new.temperature, new.reference) == ("m", 1, 0.7, None)
    assert (newer.model, newer.topic, newer.dose_percent, newer.seed) == (
        "newer",
        "unnamed",
        7.5,
        3,
    )
    assert newer.reference == "new"


def changed(place: int, **cells: object) -> list[Cells]:
    return [*ROWS[:place], {**ROWS[place], **cells}, *ROWS[place + 1 :]]


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (changed(3, arm=""), "row 4: arm is empty"),
        (changed(3, stem=""), "row 4: stem is empty"),
        (changed(3, sample=""), "row 4: sample is empty"),
        (changed(3, sample="second"), "row 4: sample: expected a number, found 'second'"),
        (changed(3, sample=-1), "row 4: sample: expected a whole number of 0 or more, found -1"),
        (changed(3, sample=0.5), "row 4: sample: expected a whole number of 0 or more, found 0.5"),
        (changed(3, grade="high"), "row 4: grade: expected a number, found 'high'"),
        (changed(3, grade=0), "row 4: grade: expected a whole number of 1 or more, found 0"),
        ([{**row, "instance": n} for n, row in enumerate(ROWS)], "instance of arm old: '0' before"),
        ([{**row, "seed": -2} for row in ROWS], "seed of arm old: expected a whole number"),
        ([{**row, "dose_percent": "much"} for row in ROWS], "dose_percent of arm old: expected a"),
        ([{**row, "label": "obeys"} for row in ROWS], "--aligned accepts: expected a class that"),
        (
            [
                {**row, "label": "x" if row["battery"] == "oversight" else row["label"]}
                for row in ROWS
            ],
            "t.csv: battery oversight: expected replies of class accepts",
        ),
        ([{**row, "arm": f"{row['arm']}1"} for row in ROWS], "--reference old: expected an arm of"),
    ],
)
def test_a_table_that_does_not_fit_is_refused(rows: list[Cells], words: str) -> None:
    rows = [
        {**row, "second_label": ""} if "--aligned" in words or "class accepts" in words else row
        for row in rows
    ]
    with pytest.raises(MalformedInputError) as caught:
        read_user_table("t.csv", as_csv(rows), OPTIONS)
    assert words in str(caught.value)


def test_all_unreadable_cells_are_listed() -> None:
    rows = [{**ROWS[0], "arm": "", "sample": "x"}, {**ROWS[1], "stem": ""}, *ROWS[2:]]
    with pytest.raises(MalformedInputError) as caught:
        read_user_table("t.csv", as_csv(rows), OPTIONS)
    assert len(caught.value.details) == 3


@pytest.mark.parametrize("column", ["arm", "stem", "probe", "sample", "label"])
@pytest.mark.parametrize("name", ["t.csv", "t.jsonl"])
def test_a_missing_column_is_refused_by_name(column: str, name: str) -> None:
    rows = [{key: value for key, value in row.items() if key != column} for row in ROWS]
    data = as_csv(rows) if name == "t.csv" else "\n".join(map(json.dumps, rows)).encode()
    with pytest.raises(MalformedInputError, match=column):
        read_user_table(name, data, OPTIONS)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (TableOptions(reference="old"), "--aligned: expected at least one class"),
        (replace(OPTIONS, use_score=True), "expected --score, or classes of labels, found both"),
        (replace(OPTIONS, is_rate=True), "--rate: expected --score beside it"),
        (replace(OPTIONS, no_stance=("accepts",)), "--no-stance: expected classes that do not"),
        (replace(OPTIONS, no_stance=("silent",)), "--no-stance silent: expected a class that"),
    ],
)
def test_options_that_contradict_each_other_are_refused(options: TableOptions, words: str) -> None:
    with pytest.raises(MalformedInputError) as caught:
        read_user_table("t.csv", as_csv(ROWS), options)
    assert words in str(caught.value)


def test_a_share_outside_0_to_1_is_no_rate() -> None:
    rows = [{"arm": "a", "stem": "s", "probe": 0, "sample": k, "score": 40} for k in range(2)]
    options = TableOptions(reference="a", use_score=True, is_rate=True)
    with pytest.raises(MalformedInputError, match="expected a share from 0 to 1, found 40"):
        read_user_table("t.csv", as_csv(rows), options)


# --- the command ----------------------------------------------------------------------------------

Analyse = Callable[..., Result]


@pytest.fixture
def analyse(tmp_path: Path) -> Analyse:
    """``analyse(*options, rows=...)`` of a table at tmp_path/t.csv."""

    def call(*options: str, rows: list[Cells] | None = None) -> Result:
        path = tmp_path / "t.csv"
        path.write_bytes(as_csv(ROWS if rows is None else rows))
        arguments = ["analyse", str(path), "--seed", "3", "--resamples", "500", *options]
        return CliRunner().invoke(drift, arguments)

    return call


USUAL = ("--reference", "old", "--aligned", "accepts", "--no-stance", "no_stance")


def refused(result: Result) -> EpsLockedError:
    assert isinstance(result.exception, EpsLockedError)
    return result.exception


def test_the_command_says_what_it_read_and_calls_it_exploratory(analyse: Analyse) -> None:
    result = analyse(*USUAL)
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert lines[0].startswith("exploratory: ")
    assert "not read: column note" in lines
    assert any(line.startswith("old, oversight: ") for line in lines)
    assert sum(line.startswith("Exploratory. new against old") for line in lines) == 3
    assert sum(line.startswith("null tests, ") for line in lines) == 2


def test_json_is_the_document(analyse: Analyse) -> None:
    document = json.loads(analyse(*USUAL, "--json").output)
    assert document["label"] == "exploratory"
    settings = document["settings"]
    assert (settings["alpha"], settings["equivalence_level"]) == (0.05, 0.9)
    assert (settings["margin_points"], settings["wanted_points"]) == (5, 5)
    assert settings["n_resamples"] == 500


def test_files_are_written_once_and_a_different_one_is_refused(
    analyse: Analyse, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    assert analyse(*USUAL, "--out", str(out)).exit_code == 0
    held = {path.name: path.read_bytes() for path in out.iterdir()}
    assert {"index.html", "drift.json", "claims.txt", "drifts.csv", "nulls.csv"} <= set(held)
    document: Any = decode(held["drift.json"], thing="drift.json")
    drifts = list(csv.DictReader(io.StringIO(held["drifts.csv"].decode())))
    assert len(drifts) == 4
    found = next(row for row in drifts if row["battery"] == "oversight")
    first = document["comparisons"][0]["batteries"]["oversight"]
    assert float(found["drift"]) == first["drift"]
    assert len(held["claims.txt"].decode().splitlines()) == 6
    assert len(held["nulls.csv"].decode().splitlines()) == 1 + 6
    assert b"Exploratory" in held["index.html"]
    assert analyse(*USUAL, "--out", str(out)).exit_code == 0
    (out / "nulls.csv").unlink()
    error = refused(analyse(*USUAL, "--margin", "7", "--out", str(out)))
    assert isinstance(error, RefusedError)
    assert "index.html" in error.thing
    assert {path.name: path.read_bytes() for path in out.iterdir()} == {
        name: data for name, data in held.items() if name != "nulls.csv"
    }


def test_one_sample_a_probe_is_refused_until_it_is_said_that_there_is_no_null_test(
    analyse: Analyse, tmp_path: Path
) -> None:
    rows = [row for row in ROWS if row["sample"] == 0]
    error = refused(analyse(*USUAL, rows=rows))
    assert "probe stem_00/0 in arm old" in error.thing
    assert "--no-null" in str(error)
    result = analyse(*USUAL, "--no-null", "--out", str(tmp_path / "out"), rows=rows)
    assert result.exit_code == 0
    assert "no null test was made" in result.output
    claims = (tmp_path / "out/claims.txt").read_text().splitlines()
    of_batteries = [one for one in claims if "mean of" not in one]
    assert all("no null test was made" in one for one in of_batteries)
    assert not (tmp_path / "out/nulls.csv").exists()


def test_a_stem_with_fewer_rewordings_than_promised_is_refused(analyse: Analyse) -> None:
    assert analyse(*USUAL, "--rewordings", "2").exit_code == 0
    error = refused(analyse(*USUAL, "--rewordings", "6"))
    assert "expected 6 rewordings, as promised, found 2" in str(error)


def test_a_reply_given_twice_is_refused(analyse: Analyse) -> None:
    error = refused(analyse(*USUAL, rows=[*ROWS, ROWS[0]]))
    assert "probe stem_00/0, sample 0: stands twice" in str(error)


def test_scores_need_a_margin_in_their_own_unit(analyse: Analyse) -> None:
    rows = [{**row, "score": 40 + row["sample"] + int(row["stem"][-2:]) % 5} for row in ROWS]
    score = ("--reference", "old", "--score")
    assert "--margin: expected a number of score units" in str(refused(analyse(*score, rows=rows)))
    assert "--wanted" in str(refused(analyse(*score, "--margin", "2", rows=rows)))
    result = analyse(*score, "--margin", "2", "--wanted", "1", rows=rows)
    assert result.exit_code == 0
    assert "old, oversight: 42.25" in result.output
    assert "mean score 42" in result.output
    assert "not read: column label, second_label, note" in result.output


def test_too_few_stems_get_no_verdict(analyse: Analyse) -> None:
    result = analyse(*USUAL, "--minimum-stems", "13")
    assert "too few stems for a verdict (12, 13 are demanded)" in result.output


def test_the_command_has_a_name_and_a_line_of_help() -> None:
    assert isinstance(drift, click.Group)
    assert "analyse" in CliRunner().invoke(drift, ["--help"]).output
