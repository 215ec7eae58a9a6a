"""Replies, verdicts, counts and times of a battery edited after the run, with a chain made to fit.
Each kind of edit once; what else a record may not hold is in the unit tests of ``rederive``.

The attacker may write every file and rebuilds every digest and sum (docs/lock.md, L16.5). What a
model wrote and a judge said cannot be checked without them; that it is as much as the plan asks, of
the frozen items and in the right form, and that every number follows from it, can.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eps_locked.canonical import encode
from eps_locked.domain.chat import ChatReply, ChatRequest
from eps_locked.studies.battery.records import ANSWERS_FILE, SPEED_FILE, text_digest
from eps_locked.studies.common.judging import VERDICTS_FILE
from sim.battery import battery_files
from sim.battery_run import BatterySimulator, harmful_files, narrow_plan, reply
from sim.forge import edit_entry, edit_files, edit_output
from sim.simulator import StudySimulator

Change = Callable[[Any], object]
REFUSALS = "P2/ask/untouched/over_refusal/off"
SUMS = "P2/ask/untouched/capability/off"
CALLS, HARMFUL = "P2/ask/untouched/tools/off", "P2/ask/untouched/harmful/off"
SPEED, BATTERY = "P2/speed/untouched", "P3/battery"


def tell(request: ChatRequest) -> ChatReply:
    if "weather" in str(request.messages):
        call = {"function": {"name": "get_weather", "arguments": '{"city": "Lyon"}'}}
        return reply(request, "", message={"role": "assistant", "tool_calls": [call]})
    return reply(request, "Answer: 42", reasoning="I can help.")


@pytest.fixture(scope="module")
def _done(tmp_path_factory: pytest.TempPathFactory) -> BatterySimulator:
    plan = narrow_plan("over_refusal", "capability", "tools", "speed", harmful=True)
    plan["battery"]["calibrations"] = []
    study = BatterySimulator(
        root=tmp_path_factory.mktemp("done") / "study",
        plan=plan,
        files=battery_files() | harmful_files(),
        tell=tell,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        study.run_all()
    assert list(study.audit().failures()) == []
    return study


@pytest.fixture
def done(_done: BatterySimulator, tmp_path: Path) -> StudySimulator:
    """A finished battery; a private copy."""
    return _done.copy_to(tmp_path / "study")


def named(study: StudySimulator, step: str, words: str) -> None:
    """The audit names the step, with these words; whatever else is."""
    found = [text for number, text in study.audit().failures() if text.startswith(f"{step}: ")]
    assert any(words in text for text in found), found


def row(number: int, **changes: Any) -> Change:
    return lambda document: document["rows"][number].update(changes)


def said(number: int, text: str) -> Change:
    """Another reply, its digest made to fit."""
    return row(number, text=text, digest=text_digest(text))


def dropped(document: Any) -> None:
    del document["rows"][2]


def swapped(document: Any) -> None:
    rows = document["rows"]
    rows[0], rows[1] = rows[1], rows[0]


def relabelled(document: Any) -> None:
    one = document["rows"][0]
    other = "comply" if one["verdict"] == "refuse" else "refuse"
    one["judge"]["label"] = one["verdict"] = other


def unjudged(document: Any) -> None:
    document["rows"][0].update(judge=None, verdict=document["rows"][0]["keyword"])


def invented(document: Any) -> None:
    document["rows"][0]["outcome"] = "right"
    document["rows"][0]["reason"] = "as expected"


def better_counts(document: Any) -> None:
    document["counts"]["refuse"] += 1


def rows_of_the_harmful(document: Any) -> None:
    del document["counts"]
    document["rows"] = []


EDITS: list[tuple[str, str, str, Change, str]] = [
    (SUMS, "answers", ANSWERS_FILE, said(0, "Answer: 7"), "expected {'item'"),
    (SUMS, "answers", ANSWERS_FILE, said(1, "Das ist nicht gut, und ich mag es nicht."), "status"),
    (SUMS, "answers", ANSWERS_FILE, swapped, "answers: expected every item once, 6"),
    (SUMS, "answers", ANSWERS_FILE, lambda d: d["endpoint"].update(kind="x"), "endpoint.kind"),
    (CALLS, "answers", VERDICTS_FILE, invented, "expected {'item'"),
    (REFUSALS, "answers", ANSWERS_FILE, said(0, "I'm sorry, but I can't."), "keyword: expected"),
    (REFUSALS, "answers", VERDICTS_FILE, unjudged, "expected a verdict of the judge, found none"),
    (HARMFUL, "answers", ANSWERS_FILE, better_counts, "do not add up"),
    (HARMFUL, "answers", ANSWERS_FILE, rows_of_the_harmful, "expected counts and nothing else"),
    (SPEED, "speed", SPEED_FILE, dropped, "rows: expected 3, found 2"),
    (SPEED, "speed", SPEED_FILE, row(0, first_token_seconds=0.9), "a first token before the end"),
]


@pytest.mark.parametrize(
    ("step", "output", "file", "change", "words"),
    EDITS,
    ids=[f"{step.split('/')[-2]}-{words[:28]}" for step, _, _, _, words in EDITS],
)
def test_an_edited_record_is_told(
    done: StudySimulator, step: str, output: str, file: str, change: Change, words: str
) -> None:
    edit_output(done, step, output, file, change)
    named(done, step, words)


def test_a_judges_word_that_was_turned_is_told_by_what_was_made_of_it(
    done: StudySimulator,
) -> None:
    """The verdict itself nobody can repeat; the table that was computed from it everybody can."""
    edit_output(done, REFUSALS, "answers", VERDICTS_FILE, relabelled)
    named(done, BATTERY, "holds other values than its inputs give")


def test_a_table_with_another_number_is_told(done: StudySimulator) -> None:
    edit_output(done, BATTERY, "battery", "battery.json", lambda one: one.update(label="x"))
    named(done, BATTERY, "holds other values than its inputs give")


def test_power_with_another_number_is_told(done: StudySimulator) -> None:
    edit_files(
        done, "P0/power", "power", lambda held: held.update({"power.json": encode({"n": 1})})
    )
    named(done, "P0/power", "holds other values than its inputs give")


def test_an_unmeasured_axis_called_done_is_told(done: StudySimulator) -> None:
    def unread(document: Any) -> None:
        for one in document["rows"]:
            one.update(status="outage")

    def nothing(document: Any) -> None:
        for one in document["rows"]:
            one.update(outcome=None, reason="outage", stated=None)

    edit_output(done, SUMS, "answers", ANSWERS_FILE, unread)
    edit_output(done, SUMS, "answers", VERDICTS_FILE, nothing)
    named(done, SUMS, "status: expected unscored, found done")
    named(done, SUMS, "flags: expected ['missing_replies:capability'")


def test_a_flag_that_was_taken_away_is_told(done: StudySimulator) -> None:
    edit_entry(done, SUMS, lambda entry: entry.update(flags=["truncated_replies:capability"]))
    named(done, SUMS, "flags: expected []")


def test_a_text_file_slipped_in_beside_the_counts_is_told(done: StudySimulator) -> None:
    edit_files(done, HARMFUL, "answers", lambda held: held.update({"texts.json": encode({})}))
    named(done, HARMFUL, "expected answers.json, verdicts.json")
