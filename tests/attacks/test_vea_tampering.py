"""Scores, adapters, tables and numbers of a vea study edited after the run, with a chain made to
fit.

The attacker may write every file and rebuilds every digest and sum (docs/lock.md, L16.5). What a
reward model said cannot be checked without it; that there is one score for each frozen response, in
order, by the reward model that the plan names, and that every number follows from it, can.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sim.forge import (
    carry_on,
    edit_entry,
    edit_files,
    edit_output,
    output_files,
    payloads_of,
    put_output,
    rebuild,
)
from sim.simulator import StudySimulator
from sim.vea import vea_files, vea_plan

Change = Callable[[Any], object]
Files = dict[str, bytes]
NARROW, TABLE, FRESH = "P2/score/narrow", "P2/score/elsewhere", "P2/score/untrained"
NO_DIGEST = "blake3:" + "0" * 64


def plan() -> dict[str, Any]:
    """The full plan with fewer arms: each test audits it."""
    made = vea_plan()
    section = made["vea"]
    section["trainings"] = [one for one in section["trainings"] if one["name"] != "length_only"]
    section["reward_models"] = [
        one for one in section["reward_models"] if one["name"] not in ("length", "own")
    ]
    section["analysis"]["n_resamples"] = 100
    return made


@pytest.fixture(scope="module")
def _done(tmp_path_factory: pytest.TempPathFactory) -> StudySimulator:
    study = StudySimulator(
        root=tmp_path_factory.mktemp("done") / "study", plan=plan(), files=vea_files()
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        study.run_all()
    assert list(study.audit().failures()) == []
    return study


@pytest.fixture
def done(_done: StudySimulator, tmp_path: Path) -> StudySimulator:
    """A finished vea study; a private copy."""
    return _done.copy_to(tmp_path / "study")


def failures(study: StudySimulator) -> dict[tuple[int, str], str]:
    """(check, step it names) -> the sentences."""
    found: dict[tuple[int, str], str] = {}
    for number, text in study.audit().failures():
        key = (number, text.split(": ")[0])
        found[key] = f"{found.get(key, '')}{text}\n"
    return found


def named(study: StudySimulator, name: str, *words: str, check: int = 10) -> None:
    """The step is named, with these words; whatever else is."""
    found = failures(study)
    assert (check, name) in found, found
    for each in words:
        assert each in found[check, name]


# -- scores


def dropped(document: Any) -> None:
    del document["scores"][4]


def items_swapped(document: Any) -> None:
    scores = document["scores"]
    scores[0:3], scores[3:6] = scores[3:6], scores[0:3]


def with_another_head(document: Any) -> None:
    document["identity"]["settings"]["head"] = NO_DIGEST


def cut_at_will(document: Any) -> None:
    """A score that counts against the reward model is said not to have fitted."""
    document["scores"][1].update(status="truncated", value=None, note="too long")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (dropped, "expected base, vea and control of every item, 189 in frozen order, found 188"),
        (items_swapped, "wood_labs-2/base where wood_labs-1/base should stand"),
        (with_another_head, "identity.head: expected blake3:"),
        (cut_at_will, "expected truncated exactly beyond 1024 tokens, found truncated at"),
    ],
)
def test_a_score_edited_after_the_run_is_named(
    done: StudySimulator, change: Change, words: str
) -> None:
    edit_output(done, NARROW, "scores", "scores.json", change)
    named(done, NARROW, words)


def test_another_number_is_another_breadth(done: StudySimulator) -> None:
    """A number that the reward model can have given is its word; what rests on it is named."""

    def kinder(document: Any) -> None:
        for one in document["scores"]:
            if one["key"].startswith("wood_labs") and one["key"].endswith("/vea"):
                one["value"] += 2

    edit_output(done, NARROW, "scores", "scores.json", kinder)
    found = failures(done)
    assert set(found) == {(10, "P3/breadth")}
    assert (
        "breadth/breadth.json: holds other values than its inputs give" in found[10, "P3/breadth"]
    )
    assert "breadth/deltas.csv: holds other values" in found[10, "P3/breadth"]


def test_a_table_is_read_again_number_by_number(done: StudySimulator) -> None:
    before = vea_files()["material/vea/made-elsewhere.csv"].splitlines()[2].split(",")[-1]
    edit_output(
        done, TABLE, "scores", "scores.json", lambda document: document["scores"][1].update(value=9)
    )
    named(done, TABLE, f"wood_labs-1/vea: expected {before}, found 9.0")


def test_the_bytes_of_another_table_are_named(done: StudySimulator) -> None:
    edit_output(
        done,
        TABLE,
        "scores",
        "scores.json",
        lambda document: document["identity"].update(version=NO_DIGEST),
    )
    named(done, TABLE, "identity: expected", NO_DIGEST)


def test_the_scores_of_another_arm_are_named(done: StudySimulator) -> None:
    """The untrained head stands in for the trained one, with its name put right."""
    payloads = payloads_of(done)
    files = output_files(done, payloads, FRESH, "scores")
    files["scores.json"] = files["scores.json"].replace(b'"untrained"', b'"narrow"')
    put_output(done, payloads, NARROW, "scores", files)
    carry_on(done, payloads)
    rebuild(done, payloads)
    named(done, NARROW, "identity.head: expected blake3:", "found fresh, seed 5, std 0.002")


# -- adapters


def test_the_adapter_of_another_target_is_named(done: StudySimulator) -> None:
    """The broad head stands in for the narrow one, record and all."""
    payloads = payloads_of(done)
    for output in ("adapter", "record"):
        files = output_files(done, payloads, "P1/train/all_talk", output)
        put_output(done, payloads, "P1/train/wood_only", output, files)
    carry_on(done, payloads)
    rebuild(done, payloads)
    named(
        done, "P1/train/wood_only", "adapter training: expected wood_only, found all_talk", check=9
    )
    named(
        done,
        "P1/train/wood_only",
        "record.target: expected wood, found evaluation",
        "adapter.target: expected wood, found evaluation",
        "record.pairs: expected",
    )


def test_a_header_that_names_another_seed_is_named(done: StudySimulator) -> None:
    def other_seed(files: Files) -> None:
        name = "adapter_model.safetensors"
        files[name] = files[name].replace(b'"seed":"21"', b'"seed":"22"')

    edit_files(done, "P1/train/wood_only", "adapter", other_seed)
    named(done, "P1/train/wood_only", "adapter seed: expected 21, found 22", check=9)
    named(done, "P1/train/wood_only", "adapter.seed: expected 21, found 22", "record.adapter:")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"pairs": NO_DIGEST}, "record.pairs: expected"),
        ({"stop_step": 300}, "record.stop_step: expected 3, found 300"),
        ({"adapter": NO_DIGEST}, "record.adapter: expected"),
    ],
)
def test_a_training_record_that_does_not_follow_is_named(
    done: StudySimulator, change: dict[str, Any], words: str
) -> None:
    name = "P1/train/wood_only"
    edit_output(done, name, "record", "record.json", lambda record: record.update(change))
    named(done, name, words)


# -- what is computed


def broad_after_all(document: Any) -> None:
    document["reward_models"][0].update(headline="broad", agrees=False)


@pytest.mark.parametrize(
    ("name", "output", "file", "change"),
    [
        ("P3/breadth", "breadth", "breadth.json", broad_after_all),
        ("P3/breadth", "breadth", "breadth.json", lambda d: d.update(label="exploratory")),
        ("P0/power", "power", "power.json", lambda d: d["families"][0].update(n_items=140)),
    ],
)
def test_a_number_that_does_not_follow_is_named(
    done: StudySimulator, name: str, output: str, file: str, change: Change
) -> None:
    edit_output(done, name, output, file, change)
    named(done, name, f"{output}/{file}: holds other values than its inputs give")


def test_a_line_of_the_deltas_is_named(done: StudySimulator) -> None:
    def drop_last(files: Files) -> None:
        files["deltas.csv"] = b"".join(files["deltas.csv"].splitlines(keepends=True)[:-1])

    edit_files(done, "P3/breadth", "breadth", drop_last)
    named(done, "P3/breadth", "breadth/deltas.csv: holds other values")


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        (NARROW, {"status": "unscored"}, "status: expected done, found unscored"),
        ("P3/breadth", {"status": "failed"}, "status: expected done, found failed"),
    ],
)
def test_a_status_or_flag_that_does_not_follow_is_named(
    done: StudySimulator, name: str, change: dict[str, Any], words: str
) -> None:
    edit_entry(done, name, lambda entry: entry.update(change))
    named(done, name, words)


def test_garbage_is_a_failure_that_names_the_step(done: StudySimulator) -> None:
    edit_output(
        done, NARROW, "scores", "scores.json", lambda document: document.update(scores=[None])
    )
    named(done, NARROW, "scores[0]: expected a mapping")
