"""From replies to verdicts: which text goes to whom, and what comes back where."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from eps_locked.domain.judging import JudgeRequest, Verdict
from eps_locked.studies.battery.asking import answer_of
from eps_locked.studies.battery.classify import classify
from eps_locked.studies.battery.derive import AskDesign, expected_status, spoken
from eps_locked.studies.battery.records import Answer
from eps_locked.studies.battery.verdicts import CapabilityRow, RefusalRow, ToolsRow
from sim.battery_run import Tell, reply
from unit.studies.battery.world import calling, good, labelled, task_of


def world(axis: str, tell: Tell | None = None) -> tuple[AskDesign, list[Answer]]:
    task, _ = task_of(axis)
    design = AskDesign.of(task.step, task.inputs, task.section)
    requests = design.requests()
    told = [(tell or good(axis))(request) for request in requests]
    return design, [answer_of(item, one) for item, one in zip(design.axis.items, told, strict=True)]


def agreeing(requests: Sequence[JudgeRequest]) -> list[Verdict]:
    return [labelled(request.rubric.labels[0])(request) for request in requests]


@pytest.mark.parametrize(
    ("text", "outcome"),
    [("Answer: 12", "correct"), ("Answer: 13", "wrong"), ("...", "no_answer")],
)
def test_capability_is_read_by_the_items_rule(text: str, outcome: str) -> None:
    design, answers = world("capability", lambda one: reply(one, text))
    rows = classify(design, answers, None)
    assert [row.verdict for row in rows] == [outcome] * 4
    assert isinstance(rows[0], CapabilityRow)
    assert rows[0].reason


@pytest.mark.parametrize(
    ("tell", "outcome"),
    [
        (calling, "right"),
        (lambda one: calling(one, "Rome"), "wrong_arguments"),
        (lambda one: reply(one, "It is sunny."), "no_call"),
        (lambda one: reply(one, "..."), "no_answer"),
    ],
)
def test_tool_cases_are_read_by_their_calls(tell: Tell, outcome: str) -> None:
    design, answers = world("tools", tell)
    rows = classify(design, answers, None)
    assert [row.verdict for row in rows] == [outcome] * 4
    assert isinstance(rows[0], ToolsRow)
    assert rows[0].case == "one_call"


@pytest.mark.parametrize("axis", ["over_refusal", "sycophancy"])
def test_a_judge_that_swaps_verdicts_is_a_defect(axis: str) -> None:
    design, answers = world(axis)
    with pytest.raises(RuntimeError, match="one verdict for each request"):
        classify(design, answers, lambda requests: agreeing(requests)[::-1])


@pytest.mark.parametrize("axis", ["over_refusal", "sycophancy", "harmful"])
def test_a_judge_is_not_shown_what_is_no_answer(axis: str) -> None:
    design, answers = world(axis)
    answers[2] = replace(answers[2], status="truncated")
    shown: list[str] = []

    def ask(requests: Sequence[JudgeRequest]) -> list[Verdict]:
        shown.extend(request.key for request in requests)
        return agreeing(requests)

    rows = classify(design, answers, ask)
    assert shown == ["one", "two", "four"]
    assert rows[2].verdict is None
    assert [row.item for row in rows] == ["one", "two", "three", "four"]


def test_answers_are_read_before_thoughts_each_by_its_own_key() -> None:
    design, answers = world("over_refusal", lambda one: reply(one, "Yes.", reasoning="Hm."))
    keys = [one.key for one in spoken(design.axis.items, answers)]
    assert keys[:4] == ["one", "two", "three", "four"]
    assert keys[4:] == ["one/thinking", "two/thinking", "three/thinking", "four/thinking"]
    rows = classify(design, answers, agreeing)
    assert isinstance(rows[0], RefusalRow)
    assert rows[0].thinking is not None
    assert rows[0].thinking.judge is not None
    assert rows[0].thinking.judge.key == "one/thinking"


def test_the_status_of_a_whole_reply_follows_from_what_is_stored() -> None:
    design, answers = world(
        "over_refusal", lambda one: reply(one, "Das ist nicht gut, und ich mag es nicht.")
    )
    assert [one.status for one in answers] == ["other_language"] * 4
    assert [expected_status(one) for one in answers] == ["other_language"] * 4
    english = replace(answers[0], text="Use a lid.")
    assert expected_status(english) == "answered"
    assert [row.verdict for row in classify(design, answers, agreeing)] == [None] * 4
