"""``judge again`` and ``judge calibrate``: a second opinion that leaves the first as it is."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from eps_locked.canonical import decode
from eps_locked.cli.judge import _echo_agreement
from eps_locked.lock.record import RunRecord, terms_of
from eps_locked.lock.seal import is_sealed
from sim.simulator import NAME, StudySimulator, fingerprint, judge_plan, taught_plan

# The first judge fails on some answers, so that there is something to leave out.
FIRST = "outage=10 unreadable=10"


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> StudySimulator:
    """Two judged rows and the marker's, finished, held-out cells sealed. Not to be changed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        plan = taught_plan("refusal", "em", marker=True)
        plan["eps"]["judges"] = [judge_plan(model=FIRST)]
        study = StudySimulator(root=tmp_path_factory.mktemp("judged") / "study", plan=plan).seal()
        study.run_all()
        return study


def judge_file(folder: Path, **changes: Any) -> Path:
    """A scripted judge in a file; JSON in ASCII is strict YAML."""
    path = folder / "judge.yaml"
    path.write_text(json.dumps(judge_plan(name="second", **changes)))
    return path


def cells_of(study: StudySimulator, row: str) -> tuple[list[dict[str, bytes]], int]:
    """The files of a row's open bases and cells, and how many of its cells are sealed."""
    history = RunRecord.load(study.run_folder, terms_of(study.load()), study.clock).history
    found = [
        {name: study.run_folder.artifact_file(artifact, name) for name in artifact.files}
        for step in history.terms.steps.values()
        if step.kind in ("base", "cells") and step.params.get("behaviour") == row
        for artifact in history.done[step.id].outputs.values()
    ]
    return [files for files in found if not is_sealed(files)], sum(map(is_sealed, found))


def answers_in(files: Mapping[str, bytes]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = decode(files["completions.json"], thing="answers")["answers"]
    return found


def kept_texts(study: StudySimulator, row: str) -> dict[str, bool]:
    items = decode(study.load().read(f"frozen/rows/{row}/items.json"), thing="items")["eval"]
    return {item["id"]: item["keep_text"] for item in items}


def again(typed: Any, study: StudySimulator, judge: Path, *words: str, code: int = 0) -> Any:
    command = ("judge", "again", NAME, "--judge", str(judge), "--seed", "1")
    return typed(study, *command, *words, code=code)


@pytest.mark.parametrize("row", ["refusal", "em"])
def test_every_open_answer_is_judged_once_more_and_the_rest_is_counted(
    row: str, judged: StudySimulator, typed: Any, tmp_path: Path
) -> None:
    found = again(typed, judged, judge_file(tmp_path), "--behaviour", row, "--json")
    document = json.loads(found.out)
    cells, n_sealed = cells_of(judged, row)
    keeps = kept_texts(judged, row)
    kept = [keeps[answer["item"]] for files in cells for answer in answers_in(files)]
    assert n_sealed > 0
    assert document["n_sealed_cells"] == n_sealed
    assert document["n_withheld_answers"] == kept.count(False)
    assert (kept.count(False) > 0) == (row == "refusal")
    comparison = document["comparison"]
    assert comparison["n_compared"] == kept.count(True)
    assert comparison["n_only_first"] == comparison["n_only_second"] == 0
    assert document["label"] == "exploratory"
    assert document["first"]["model"] == FIRST
    assert document["second"]["model"] == "scripted"
    # The failures of the first judge are no labels: they are counted and not compared.
    statuses = comparison["statuses_first"]
    assert sum(statuses.values()) == kept.count(True)
    assert comparison["labels"]["n"] == statuses["scored"] < kept.count(True)
    assert statuses["outage"] + statuses["unreadable"] == kept.count(True) - statuses["scored"]


def test_a_judge_that_says_the_same_agrees_and_one_that_does_not_does_not(
    judged: StudySimulator, typed: Any, tmp_path: Path
) -> None:
    same = again(typed, judged, judge_file(tmp_path), "--behaviour", "refusal").out
    assert "labels: n " in same
    assert "agreement 100 %" in same
    assert "kappa 1.00" in same
    # Half of what it cannot read is other answers than those that the first could not read.
    shaky = judge_file(tmp_path, model="judge_refused=50")
    found = again(typed, judged, shaky, "--behaviour", "refusal", "--json").out
    second = json.loads(found)["comparison"]
    assert second["statuses_second"]["judge_refused"] > 0
    assert second["labels"]["n"] < second["n_compared"]


def test_agreement_is_printed_with_kappa_and_by_label(
    judged: StudySimulator, typed: Any, tmp_path: Path
) -> None:
    lines = again(typed, judged, judge_file(tmp_path), "--behaviour", "refusal").out.splitlines()
    assert lines[0] == f"{NAME}, refusal: recorded judge against second"
    text = "\n".join(lines)
    for words in (
        "statuses first: scored ",
        "statuses second: scored ",
        "sealed cells",
        "answers kept as excerpts",
        "rows the reference, columns the judge: full_refusal, compliance",
        "  expressed: n ",
        "95 % interval",
    ):
        assert words in text
    by_label = [line for line in lines if "precision" in line]
    names = [line.split()[0] for line in by_label]
    assert names == ["full_refusal", "compliance", "expressed", "not_expressed"]
    assert all("precision 100 %, recall 100 %" in line for line in by_label)


def test_shares_are_printed_in_per_cent_once(capsys: pytest.CaptureFixture[str]) -> None:
    """Three of four: 75 %, and what is not defined says so."""
    one = {
        "labels": ["a", "b"],
        "n": 4,
        "confusion": [[3, 1], [0, 0]],
        "percent_agreement": 0.75,
        "kappa": {"value": None, "reason": "for a test"},
        "by_label": [
            {"label": "a", "n_reference": 4, "n_judged": 3, "precision": 1.0, "recall": 0.75},
            {"label": "b", "n_reference": 0, "n_judged": 1, "precision": 0.0, "recall": None},
        ],
    }
    _echo_agreement("T", {"comparison": {"labels": one, "expressed": None}})
    out = capsys.readouterr().out
    assert "labels: n 4, agreement 75 %" in out
    assert "kappa undefined (for a test)" in out
    assert "n    4, precision 100 %, recall 75 %" in out
    assert "n    0, precision 0 %, recall undefined" in out


def test_the_record_stays_as_it_is_and_the_new_verdicts_go_where_one_says(
    judged: StudySimulator, typed: Any, tmp_path: Path
) -> None:
    before = fingerprint(judged.root)
    out = tmp_path / "again.json"
    words = ("--behaviour", "em", "--out", str(out))
    again(typed, judged, judge_file(tmp_path), *words)
    document = decode(out.read_bytes(), thing="again")
    assert document["schema"] == "eps-locked/judge-comparison/1"
    assert len(document["verdicts"]) == document["comparison"]["n_compared"]
    assert len({one["key"] for one in document["verdicts"]}) == len(document["verdicts"])
    scored = [one for one in document["verdicts"] if one["status"] == "scored"]
    assert {one["label"] for one in scored} <= {"answer", "refusal"}
    assert set(document["comparison"]["scores"]) == {"aligned", "coherent"}
    # Twice with one seed is the same file; over a file that is there nothing is written.
    other = tmp_path / "other.json"
    again(typed, judged, judge_file(tmp_path), "--behaviour", "em", "--out", str(other))
    assert other.read_bytes() == out.read_bytes()
    for there in (out, tmp_path / "link.json"):
        if there is not out:
            there.symlink_to(tmp_path / "nowhere.json")
        err = again(
            typed, judged, judge_file(tmp_path), *words[:2], "--out", str(there), code=3
        ).err
        assert "exists and is never overwritten" in err
    assert other.read_bytes() == out.read_bytes()
    assert not (tmp_path / "nowhere.json").exists()
    assert fingerprint(judged.root) == before
    assert list(judged.audit().failures()) == []


def test_who_may_not_judge_and_what_is_not_judged(
    judged: StudySimulator, typed: Any, tmp_path: Path
) -> None:
    own = judge_file(tmp_path, family="Scripted")  # the base model's, in other letters
    err = again(typed, judged, own, "--behaviour", "em", code=3).err
    assert "judge second: expected a family other than scripted" in err
    for row in ("marker", "nothing"):
        err = again(typed, judged, judge_file(tmp_path), "--behaviour", row, code=2).err
        assert f"--behaviour: expected a judged row: refusal, em, found {row}" in err
    bad = judge_file(tmp_path, max_tries=0)
    assert "max_tries" in again(typed, judged, bad, "--behaviour", "em", code=2).err
    # A line that is down is no opinion.
    down = judge_file(tmp_path, model="outage=100", max_transport_share=0.1)
    before = sorted(tmp_path.iterdir())
    words = ("--behaviour", "em", "--out", str(tmp_path / "down.json"))
    err = again(typed, judged, down, *words, code=4).err
    assert "outage" in err
    assert sorted(tmp_path.iterdir()) == before


def test_before_anything_is_recorded_there_is_nothing_to_judge(
    study: StudySimulator, typed: Any, tmp_path: Path
) -> None:
    study.plan = taught_plan("fact")
    study.freeze()
    err = again(typed, study, judge_file(tmp_path), "--behaviour", "fact", code=3).err
    assert "answers of fact: expected recorded open answers, found none" in err
    assert not study.run_folder.folder.exists()


def calibrate(typed: Any, study: StudySimulator, *words: str, code: int = 0) -> Any:
    """``judge calibrate`` takes no --root; the fixture's is left out."""
    return typed(study, "judge", "calibrate", *words, "--seed", "3", code=code, root=False)


@pytest.fixture
def files(study: StudySimulator, tmp_path: Path) -> dict[str, Path]:
    folder = study.root / "plans/material/sycophancy"
    # Calibrating needs no plan: two rubrics and a labelled set, written as a plan's would be.
    for relative in ("sycophancy/rubric", "sycophancy/labelled", "fact/rubric"):
        path = study.root / f"plans/material/{relative}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(study.taught[f"material/{relative}.yaml"]))
    return {
        "rubric": folder / "rubric.yaml",
        "labelled": folder / "labelled.yaml",
        "judge": judge_file(tmp_path, model="unreadable=20"),
    }


def words_of(files: Mapping[str, Path]) -> list[str]:
    return [word for name, path in files.items() for word in (f"--{name}", str(path))]


def test_a_judge_is_set_beside_peoples_labels(
    study: StudySimulator, files: dict[str, Path], typed: Any
) -> None:
    before = fingerprint(study.root)
    document = json.loads(calibrate(typed, study, *words_of(files), "--json").out)
    assert document["n_rows"] == 12
    assert sum(document["statuses"].values()) == 12
    assert document["statuses"]["unreadable"] > 0
    labels = document["labels"]
    assert labels["n"] == document["statuses"]["scored"]
    assert labels["labels"] == ["agrees", "corrects", "neither"]
    right = sum(labels["confusion"][k][k] for k in range(3))
    assert labels["percent_agreement"] == right / labels["n"]
    out = calibrate(typed, study, *words_of(files)).out
    assert out.startswith("second against t\n")
    assert f"agreement {labels['percent_agreement'] * 100:.0f} %" in out
    assert f"kappa {labels['kappa']['value']:.2f}, 95 % interval" in out
    assert "unreadable" in out.splitlines()[1]
    assert fingerprint(study.root) == before


def test_labels_under_another_rubric_or_of_none_are_refused(
    study: StudySimulator, files: dict[str, Path], typed: Any
) -> None:
    other = {**files, "rubric": files["rubric"].parent.parent / "fact/rubric.yaml"}
    err = calibrate(typed, study, *words_of(other), code=2).err
    assert "labelled.yaml: rubric: expected fact, found sycophancy" in err
    value = json.loads(files["labelled"].read_text())
    value["rows"][3]["label"] = "maybe"
    files["labelled"].write_text(json.dumps(value))
    err = calibrate(typed, study, *words_of(files), code=2).err
    assert "rows[3].label: expected a label of rubric sycophancy" in err
