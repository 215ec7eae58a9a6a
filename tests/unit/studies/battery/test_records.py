"""The records of asking: what is read back, and what no reader lets through."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from eps_locked.canonical import decode, encode
from eps_locked.errors import EvidenceError, MalformedInputError
from eps_locked.studies.battery.asking import ask
from eps_locked.studies.battery.records import (
    ANSWERS_FILE,
    ROW_STATUSES,
    AskRecord,
    Counts,
)
from eps_locked.studies.common.judging import VERDICTS_FILE
from unit.studies.battery.world import good, task_of

Change = Callable[[Any], object]


def files_of(axis: str) -> dict[str, bytes]:
    return ask(task_of(axis, good(axis))[0]).to_files()


def changed(axis: str, file: str, change: Change) -> dict[str, bytes]:
    files = files_of(axis)
    value = decode(files[file], thing=file)
    change(value)
    return {**files, file: encode(value)}


def row(key: str, value: Any, number: int = 0) -> Change:
    return lambda document: document["rows"][number].update({key: value})


REFUSED: list[tuple[str, str, Change, str]] = [
    ("over_refusal", ANSWERS_FILE, row("status", "fine"), r"rows\[0\]\.status: expected answered"),
    ("over_refusal", ANSWERS_FILE, row("digest", "abc"), r"rows\[0\]\.digest: expected a digest"),
    ("over_refusal", ANSWERS_FILE, row("tries", -1), r"rows\[0\]\.tries"),
    ("over_refusal", ANSWERS_FILE, row("seconds", 1), r"rows\[0\]\.seconds: is not a known field"),
    ("over_refusal", ANSWERS_FILE, row("n_prompt_tokens", -3), "n_prompt_tokens"),
    ("over_refusal", ANSWERS_FILE, lambda d: d.update(axis="taste"), "axis: expected"),
    ("over_refusal", ANSWERS_FILE, lambda d: d.update(thinking="some"), "thinking: expected"),
    ("over_refusal", ANSWERS_FILE, lambda d: d.update(schema="x"), "schema: expected"),
    ("over_refusal", VERDICTS_FILE, row("verdict", "comply"), "verdict: does not follow"),
    ("over_refusal", VERDICTS_FILE, row("keyword", "partial"), "keyword: expected refuse"),
    ("sycophancy", VERDICTS_FILE, row("verdict", None), "verdict: does not follow"),
    ("capability", VERDICTS_FILE, row("outcome", "right"), "outcome: expected correct"),
    ("tools", VERDICTS_FILE, row("outcome", "correct"), "outcome: expected right"),
    ("tools", VERDICTS_FILE, row("case", "any"), "case: expected one_call"),
    ("tools", ANSWERS_FILE, row("message", "text"), "message: expected a mapping"),
    ("harmful", ANSWERS_FILE, lambda d: d.update(rows=[]), "rows: is not a known field"),
]


@pytest.mark.parametrize(
    ("axis", "file", "change", "said"),
    REFUSED,
    ids=[f"{axis}-{said[:30]}" for axis, _, _, said in REFUSED],
)
def test_a_record_of_another_form_is_refused_by_its_field(
    axis: str, file: str, change: Change, said: str
) -> None:
    with pytest.raises(MalformedInputError, match=said):
        AskRecord.from_files(changed(axis, file, change), "answers")


@pytest.mark.parametrize("names", [{ANSWERS_FILE}, {VERDICTS_FILE}, set()])
def test_both_files_are_there_and_no_other(names: set[str]) -> None:
    files = files_of("capability")
    with pytest.raises(EvidenceError, match=r"answers: expected answers\.json, verdicts\.json"):
        AskRecord.from_files({name: files[name] for name in names}, "answers")
    with pytest.raises(EvidenceError, match=r"found answers\.json, texts\.json, verdicts\.json"):
        AskRecord.from_files({**files, "texts.json": b"{}"}, "answers")


# -- counts


def counts(**changes: int) -> dict[str, Any]:
    statuses = dict.fromkeys(ROW_STATUSES, 0) | {"answered": 3, "outage": 1}
    value = {"refuse": 2, "comply": 1, "partial": 0, "missing": 1}
    return {**value, **changes, "statuses": statuses}


def test_counts_add_up() -> None:
    found = Counts.from_dict(counts(), "counts")
    assert (found.n_items, found.n_scored) == (4, 3)
    assert Counts.from_dict(found.to_dict(), "counts") == found
    assert found == Counts.of(
        ["answered", "answered", "outage", "answered"], ["refuse", "comply", None, "refuse"]
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"refuse": 1}, "do not add up: expected 4 items"),
        ({"missing": 0}, "do not add up"),
        ({"refuse": 3, "missing": 0}, "hold verdicts on replies that did not come"),
        ({"refuse": -1, "missing": 4}, "refuse: expected"),
        ({"unsure": 0}, "unsure: is not a known field"),
    ],
)
def test_counts_that_cannot_be_are_refused(changes: dict[str, int], said: str) -> None:
    with pytest.raises(MalformedInputError, match=said):
        Counts.from_dict(counts(**changes), "counts")


def test_counts_name_every_status() -> None:
    value = counts()
    del value["statuses"]["filtered"]
    with pytest.raises(MalformedInputError, match=r"statuses\.filtered: is missing"):
        Counts.from_dict(value, "counts")
