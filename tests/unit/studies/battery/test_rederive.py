"""What a record must hold by the plan's rules, found without the model and the judges."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from eps_locked.domain.chat import ChatReply, ChatRequest
from eps_locked.judges.refusals import UNREAD
from eps_locked.studies.battery.asking import ask
from eps_locked.studies.battery.derive import AskDesign
from eps_locked.studies.battery.plan import BatteryPlan
from eps_locked.studies.battery.records import Answer, AskRecord, Counts, text_digest
from eps_locked.studies.battery.rederive import ask_differences
from eps_locked.studies.battery.verdicts import PremiseRow, RefusalRow
from sim.battery_run import lost, reply
from unit.studies.battery.world import (
    AXES,
    good,
    labelled,
    section,
    task_of,
    without_judge,
)

Change = Callable[[AskRecord], AskRecord]
FOREIGN = "Das ist nicht gut, und ich mag es nicht."


def made(axis: str, plan: BatteryPlan | None = None) -> tuple[AskRecord, AskDesign]:
    """Two replies with thoughts, one that was lost, one in another language."""

    def tell(request: ChatRequest) -> ChatReply:
        if request.key == "three":
            return lost(request, "outage")
        if request.key == "four":
            return reply(request, FOREIGN)
        whole = good(axis)(request)
        return replace(whole, reasoning="I can help." if request.key == "one" else "")

    task, _ = task_of(axis, tell, plan=plan or section(), thinking="on")
    return ask(task), AskDesign.of(task.step, task.inputs, task.section)


@pytest.mark.parametrize("axis", [*AXES, "harmful"])
def test_a_record_by_the_rules_is_found_in_order(axis: str) -> None:
    record, design = made(axis)
    assert ask_differences(record, design) == []


def test_a_record_without_a_judge_is_found_in_order_where_the_plan_has_none() -> None:
    for axis in ("over_refusal", "harmful"):
        record, design = made(axis, without_judge())
        assert ask_differences(record, design) == []


def answer(number: int, **changes: Any) -> Change:
    def change(record: AskRecord) -> AskRecord:
        answers = list(record.answers)
        if "text" in changes:
            changes.setdefault("digest", text_digest(changes["text"]))
        answers[number] = replace(answers[number], **changes)
        return replace(record, answers=tuple(answers))

    return change


def verdict(number: int, change_row: Callable[[Any], Any]) -> Change:
    def change(record: AskRecord) -> AskRecord:
        rows = list(record.verdicts.rows)
        rows[number] = change_row(rows[number])
        return replace(record, verdicts=replace(record.verdicts, rows=tuple(rows)))

    return change


def of_answer(**changes: Any) -> Callable[[RefusalRow], RefusalRow]:
    return lambda row: replace(row, answer=replace(row.answer, **changes))


def of_thinking(**changes: Any) -> Callable[[RefusalRow], RefusalRow]:
    def change(row: RefusalRow) -> RefusalRow:
        assert row.thinking is not None
        return replace(row, thinking=replace(row.thinking, **changes))

    return change


def other_judge(row: RefusalRow) -> RefusalRow:
    """A label that the rubric does not have."""
    judged = row.answer.judge
    assert judged is not None
    return replace(row, answer=replace(row.answer, judge=replace(judged, label="agrees")))


def anothers_verdict(row: RefusalRow) -> RefusalRow:
    judged = row.answer.judge
    assert judged is not None
    return replace(row, answer=replace(row.answer, judge=replace(judged, key="two")))


def a_verdict(row: PremiseRow) -> PremiseRow:
    class Request:
        key = "three"
        draw = 0

    return replace(row, judge=labelled("agrees")(Request()))  # type: ignore[arg-type]


def verdicts(**changes: Any) -> Change:
    return lambda record: replace(record, verdicts=replace(record.verdicts, **changes))


CASES: list[tuple[str, Change, str]] = [
    ("capability", lambda r: replace(r, model="x"), "model: expected untouched, found x"),
    ("capability", lambda r: replace(r, axis="tools"), "axis: expected capability, found tools"),
    ("capability", lambda r: replace(r, thinking="off"), "thinking: expected on, found off"),
    ("capability", lambda r: replace(r, request={**r.request, "seed": 6}), "request: expected"),
    (
        "capability",
        lambda r: replace(r, endpoint={**r.endpoint, "kind": "openai"}),
        "endpoint.kind: expected serve, found openai",
    ),
    (
        "capability",
        lambda r: replace(r, endpoint={**r.endpoint, "model": "cautious"}),
        "endpoint.model: expected base, found cautious",
    ),
    (
        "capability",
        lambda r: replace(r, endpoint={**r.endpoint, "said": {}}),
        "endpoint.said.eps_locked.adapter_digest: expected none, found None",
    ),
    ("capability", lambda r: replace(r, answers=r.answers[:3]), "answers: expected every item"),
    ("capability", lambda r: replace(r, answers=r.answers[::-1]), "answers: expected every item"),
    ("capability", lambda r: verdicts(rows=r.verdicts.rows[:3])(r), "verdicts: expected every"),
    (
        "capability",
        answer(0, text="Answer: 13"),
        "one: expected {'item': 'one', 'outcome': 'wrong'",
    ),
    ("capability", answer(0, digest=text_digest("x")), "one: digest: expected"),
    ("capability", answer(0, reasoning="Hm."), "one: reasoning_digest: expected"),
    ("capability", answer(0, status="other_language"), "status: expected answered, found other"),
    ("capability", answer(3, status="answered"), "four: status: expected other_language, found"),
    ("capability", answer(0, text=" "), "one: status: expected empty, found answered"),
    ("capability", answer(0, status="empty"), "status: expected another of a reply with a text"),
    ("capability", answer(0, message={"content": "x"}), "message: expected none but of tool cases"),
    (
        "capability",
        verdict(2, lambda row: replace(row, outcome="correct", reason="as expected")),
        "three: expected {'item': 'three', 'outcome': None",
    ),
    ("capability", verdicts(judge={"kind": "scripted"}), "judge: expected None"),
    ("capability", verdicts(rubric="blake3:x"), "rubric: expected None"),
    ("tools", answer(0, message=None), "one: message: expected the assistant's, found none"),
    (
        "tools",
        answer(0, message={"role": "assistant", "content": "", "tool_calls": []}),
        "one: status: expected empty, found answered",
    ),
    ("tools", answer(0, text="Sunny."), "message.content: expected the reply's text"),
    (
        "tools",
        verdict(1, lambda row: replace(row, outcome="no_call")),
        "two: expected {'item': 'two', 'case': 'one_call', 'outcome': 'right'",
    ),
    (
        "over_refusal",
        answer(0, text="I'm sorry, but I can't."),
        "one: keyword: expected refuse, found comply",
    ),
    ("over_refusal", verdict(0, of_answer(judge=None)), "one: expected a verdict of the judge"),
    (
        "over_refusal",
        verdict(
            2, lambda row: replace(row, answer=made("over_refusal")[0].verdicts.rows[0].answer)
        ),  # type: ignore[union-attr]
        "three: keyword: expected None, found comply",
    ),
    ("over_refusal", verdict(0, other_judge), "a verdict that its rubric does not allow"),
    ("over_refusal", verdict(0, anothers_verdict), "one: verdict: expected ('one', 0), found"),
    (
        "over_refusal",
        verdict(0, lambda row: replace(row, thinking=None)),
        "one: thinking: expected the other of it, found nothing",
    ),
    (
        "over_refusal",
        verdict(1, lambda row: replace(row, thinking=UNREAD)),
        "two: thinking: expected the other of it, found something",
    ),
    (
        "over_refusal",
        verdict(0, of_thinking(keyword="refuse")),
        "one/thinking: keyword: expected comply, found refuse",
    ),
    ("over_refusal", verdict(0, of_thinking(judge=None)), "one/thinking: expected a verdict"),
    ("over_refusal", verdicts(judge=None), "judge: expected stand_in, found none"),
    (
        "over_refusal",
        lambda r: verdicts(judge={**(r.verdicts.judge or {}), "model": "x"})(r),
        "judge model: expected scripted, found x",
    ),
    ("over_refusal", verdicts(rubric="blake3:x"), "rubric: expected blake3:"),
    ("sycophancy", verdict(0, lambda row: replace(row, judge=None)), "one: expected a verdict"),
    ("sycophancy", verdict(2, a_verdict), "three: expected no verdict, found one"),
]


@pytest.mark.parametrize(
    ("axis", "change", "said"), CASES, ids=[f"{axis}-{said[:40]}" for axis, _, said in CASES]
)
def test_a_record_that_the_rules_do_not_give_is_told(axis: str, change: Change, said: str) -> None:
    record, design = made(axis)
    found = ask_differences(change(record), design)
    assert any(said in one for one in found), found


# -- the harmful axis: counts alone


def some_row() -> Answer:
    return made("over_refusal")[0].answers[0]


def counted(**changes: int) -> Change:
    def change(record: AskRecord) -> AskRecord:
        assert record.counts is not None
        return replace(record, counts=replace(record.counts, **changes))

    return change


def one_more(record: AskRecord) -> AskRecord:
    assert record.counts is not None
    more: Counts = replace(
        record.counts,
        missing=record.counts.missing + 1,
        statuses={**record.counts.statuses, "empty": 1},
    )
    return replace(record, counts=more)


HARMFUL: list[tuple[Change, str]] = [
    (lambda r: replace(r, answers=(some_row(),)), "expected counts and nothing else"),
    (lambda r: replace(r, counts=None), "expected counts and nothing else"),
    (one_more, "counts: expected 4 items, found 5"),
    (verdicts(judge=None), "judge: expected stand_in, found none"),
]


@pytest.mark.parametrize(("change", "said"), HARMFUL, ids=[said for _, said in HARMFUL])
def test_of_the_harmful_axis_counts_are_added_up(change: Change, said: str) -> None:
    record, design = made("harmful")
    found = ask_differences(change(record), design)
    assert any(said in one for one in found), found


def test_the_keyword_rule_alone_calls_nothing_partial_and_misses_nothing() -> None:
    record, design = made("harmful", without_judge())
    for change in (counted(partial=1, refuse=1), counted(refuse=1, missing=3)):
        assert any("none partial" in one for one in ask_differences(change(record), design))


def test_counts_in_place_of_rows_are_told() -> None:
    record, design = made("capability")
    counts = made("harmful")[0].counts
    found = ask_differences(replace(record, counts=counts), design)
    assert "counts: expected one row for each item, found counts" in found


def test_calls_that_a_server_left_in_the_text_are_no_calls() -> None:
    task, _ = task_of("tools", lambda one: reply(one, '{"name": "get_weather"}'))
    record = ask(task)
    design = AskDesign.of(task.step, task.inputs, task.section)
    assert ask_differences(record, design) == []
    assert {row.verdict for row in record.verdicts.rows} == {"no_call"}


def test_an_adapter_other_than_the_steps_is_told() -> None:
    record, design = made("capability")
    worn = replace(design, heading={**design.heading, "said.eps_locked.adapter_digest": "blake3:a"})
    assert ask_differences(record, worn) == [
        "endpoint.said.eps_locked.adapter_digest: expected blake3:a, found none"
    ]
