"""People's labels on a run's own replies: the sheet, and what it says of the classifier."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from eps_locked.cli.drift_group import drift
from eps_locked.errors import EpsLockedError, MalformedInputError, RefusedError
from sim.drift import drift_files, drift_plan
from sim.simulator import NAME, StudySimulator, default_plan

Run = Callable[..., str]


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> StudySimulator:
    study = StudySimulator(
        tmp_path_factory.mktemp("labels"), plan=drift_plan(), files=drift_files()
    )
    study.run_all()
    return study


@pytest.fixture
def run(study: StudySimulator) -> Run:
    def call(*arguments: object) -> str:
        words = [*map(str, arguments), "--root", str(study.root)]
        result = CliRunner().invoke(drift, words, catch_exceptions=True)
        if isinstance(result.exception, EpsLockedError):
            raise result.exception
        assert result.exit_code == 0, result.output
        return result.output

    return call


def rows(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(path.read_text("utf-8"))))


def write(path: Path, lines: list[dict[str, str]]) -> Path:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(lines[0]))
    writer.writeheader()
    writer.writerows(lines)
    path.write_text(text.getvalue(), "utf-8")
    return path


@pytest.fixture
def sheet(run: Run, tmp_path: Path) -> Path:
    path = tmp_path / "sheet.csv"
    run("label-sheet", NAME, "--n", 12, "--seed", 3, "--out", path)
    return path


def test_the_sheet_shows_replies_and_neither_arm_nor_label(
    sheet: Path, study: StudySimulator
) -> None:
    found = rows(sheet)
    assert [row["battery"] for row in found] == ["self_interest"] * 12 + ["plants_advice"] * 12
    assert len({row["key"] for row in found}) == 24
    assert all(row["question"] and row["reply"] and not row["label"] for row in found)
    text = sheet.read_text("utf-8")
    for arm in study.plan["drift"]["arms"]:
        assert arm["name"] not in text


def test_replies_kept_as_excerpts_are_not_on_it(run: Run, tmp_path: Path) -> None:
    said = run("label-sheet", NAME, "--n", 2, "--seed", 3, "--out", tmp_path / "a.csv")
    assert "not on it" in said
    assert "harmful_requests" not in (tmp_path / "a.csv").read_text("utf-8")


def test_the_same_seed_draws_the_same_sheet_and_another_another(run: Run, tmp_path: Path) -> None:
    drawn = []
    for number, seed in enumerate((3, 3, 4)):
        path = tmp_path / f"{number}.csv"
        run("label-sheet", NAME, "--n", 12, "--seed", seed, "--out", path)
        drawn.append(path.read_bytes())
    assert drawn[0] == drawn[1] != drawn[2]


def test_a_sheet_is_never_written_over(run: Run, sheet: Path) -> None:
    before = sheet.read_bytes()
    with pytest.raises(RefusedError):
        run("label-sheet", NAME, "--n", 5, "--seed", 9, "--out", sheet)
    assert sheet.read_bytes() == before


def test_more_than_there_are_is_refused(run: Run, tmp_path: Path) -> None:
    with pytest.raises(MalformedInputError, match="replies of"):
        run("label-sheet", NAME, "--n", 10_000, "--seed", 1, "--out", tmp_path / "x.csv")
    assert not (tmp_path / "x.csv").exists()


def test_people_who_say_what_the_classifier_said_agree_with_it(
    run: Run, sheet: Path, tmp_path: Path
) -> None:
    """First one class throughout tells the classifier's labels; then those are given back."""
    lines = rows(sheet)
    everything = [{**row, "label": row["classes"].split()[0]} for row in lines]
    found = json.loads(
        run("labels", NAME, write(tmp_path / "one.csv", everything), "--seed", 1, "--json")
    )
    assert found["label"] == "exploratory"
    for one in found["batteries"]:
        assert one["n"] == 12
        assert one["n_without_label"] == 0
        given = sum(one["confusion"][0])
        assert given == 12  # every row is the class that was given
        assert one["percent_agreement"] == pytest.approx(one["confusion"][0][0] / 12)


def test_rows_without_a_label_are_counted_and_take_no_part(
    run: Run, sheet: Path, tmp_path: Path
) -> None:
    lines = rows(sheet)
    for row in lines[:5]:
        row["label"] = row["classes"].split()[-1]
    path = write(tmp_path / "some.csv", lines)
    [one] = json.loads(run("labels", NAME, path, "--seed", 1, "--json"))["batteries"]
    assert (one["battery"], one["n"], one["n_without_label"]) == ("self_interest", 5, 7)
    assert "rows without a label: 7" in run("labels", NAME, path, "--seed", 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"label": "splendid"}, "a class of self_interest"),
        ({"key": "0" * 16, "label": ""}, "a reply of this run"),
    ],
)
def test_a_class_or_a_reply_that_is_not_there_is_refused(
    run: Run, sheet: Path, tmp_path: Path, change: dict[str, str], message: str
) -> None:
    lines = rows(sheet)
    lines[0] = {**lines[0], **change}
    with pytest.raises(MalformedInputError, match=message) as told:
        run("labels", NAME, write(tmp_path / "bad.csv", lines), "--seed", 1)
    assert "line 2" in told.value.thing


def test_a_reply_labelled_twice_is_refused(run: Run, sheet: Path, tmp_path: Path) -> None:
    lines = rows(sheet)
    path = write(tmp_path / "twice.csv", [lines[0], *lines])
    with pytest.raises(MalformedInputError, match="again"):
        run("labels", NAME, path, "--seed", 1)


def test_a_table_without_the_columns_is_refused(run: Run, tmp_path: Path) -> None:
    path = write(tmp_path / "other.csv", [{"a": "1"}])
    with pytest.raises(MalformedInputError, match="columns key and label"):
        run("labels", NAME, path, "--seed", 1)


def test_a_run_of_another_study_is_refused(tmp_path: Path) -> None:
    study = StudySimulator(tmp_path / "eps", plan=default_plan())
    study.freeze()
    study.authorize("P0")
    study.run("P0")
    words = ["label-sheet", NAME, "--n", "1", "--seed", "1", "--out", str(tmp_path / "s.csv")]
    result = CliRunner().invoke(drift, [*words, "--root", str(study.root)])
    assert isinstance(result.exception, EpsLockedError)
    assert "drift" in str(result.exception)
