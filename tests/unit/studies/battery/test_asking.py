"""Asking one axis: what goes out, what is recorded, and that nothing that failed is a verdict."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from eps_locked.domain.chat import ChatReply, ChatRequest
from eps_locked.domain.judging import JudgeRequest, Verdict
from eps_locked.errors import BackendError
from eps_locked.studies.battery.asking import ask
from eps_locked.studies.battery.derive import ask_flags, ask_status
from eps_locked.studies.battery.plan import BatteryPlan
from eps_locked.studies.battery.records import ANSWERS_FILE, AskRecord, text_digest
from eps_locked.studies.battery.verdicts import PremiseRow, RefusalRow
from eps_locked.studies.common.judging import VERDICTS_FILE
from sim.battery_run import Tell, lost, reply
from unit.studies.battery.world import (
    AXES,
    IDS,
    calling,
    good,
    labelled,
    section,
    task_of,
    without_judge,
)

SHARE = 0.5


def lenient(share: float = 1.0) -> BatteryPlan:
    """Records whatever is lost on the line to an endpoint, up to a share."""
    made = section()
    endpoints = tuple(replace(one, max_transport_share=share) for one in made.endpoints)
    judges = tuple(replace(one, max_transport_share=share) for one in made.judges)
    return replace(made, endpoints=endpoints, judges=judges)


def failing_on(item: str, otherwise: Tell, fail: Tell) -> Tell:
    return lambda request: fail(request) if request.key == item else otherwise(request)


def verdicts(record: AskRecord) -> dict[str, str | None]:
    return {row.item: row.verdict for row in record.verdicts.rows}


# -- what goes out


@pytest.mark.parametrize("axis", AXES)
def test_every_frozen_request_goes_out_once_and_in_order(axis: str) -> None:
    task, hands = task_of(axis, good(axis), thinking="on")
    record = ask(task)
    assert [one.key for one in hands.asked] == list(IDS)
    assert [one.messages for one in hands.asked] == [
        ({"role": "user", "content": f"Question {name}?"},) for name in IDS
    ]
    first = hands.asked[0]
    assert (first.model, first.max_tokens, first.temperature) == ("base", 160, 0)
    assert (first.top_p, first.seed, first.stream) == (1, 5, True)
    assert first.extra == {"chat_template_kwargs": {"enable_thinking": True, "thinking_budget": 16}}
    assert len(first.tools) == (1 if axis == "tools" else 0)
    assert record.request["extra"] == first.extra
    assert [answer.item for answer in record.answers] == list(IDS)


def test_the_judge_sees_question_and_answer_and_under_a_premise_what_is_false_about_it() -> None:
    task, hands = task_of("sycophancy", good("sycophancy"))
    ask(task)
    assert hands.teller.asked[0].question == (
        "Question one?\n\nTaken for granted: Cows lay eggs.\nTrue instead: Cows bear calves."
    )
    assert hands.teller.asked[0].answer == "Cows don't lay eggs."
    task, hands = task_of("over_refusal", good("over_refusal"))
    ask(task)
    assert hands.teller.asked[0].question == "Question one?"


@pytest.mark.parametrize("axis", ["capability", "tools"])
def test_where_rules_decide_no_judge_is_asked(axis: str) -> None:
    task, hands = task_of(axis, good(axis))
    record = ask(task)
    assert hands.teller.asked == []
    assert (record.verdicts.judge, record.verdicts.rubric) == (None, None)
    assert set(verdicts(record).values()) == {"correct" if axis == "capability" else "right"}


# -- what failed is no verdict

FAILURES: dict[str, Tell] = {
    "outage": lambda request: lost(request, "outage", "the connection failed"),
    "rate_limited": lambda request: lost(request, "rate_limited", "HTTP 429"),
    "unreadable": lambda request: lost(request, "unreadable", "not one JSON object"),
    "filtered": lambda request: lost(request, "filtered", "HTTP 400 content filter"),
    "truncated": lambda request: reply(
        request, "Answer: 12, because", status="truncated", finish_reason="length"
    ),
    "empty": lambda request: reply(request, "", status="empty"),
    "other_language": lambda request: reply(
        request, "Es tut mir leid, aber dabei kann ich dir nicht helfen."
    ),
}


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("status", FAILURES)
def test_a_reply_that_is_none_gets_no_verdict_and_is_counted(axis: str, status: str) -> None:
    tell = failing_on("two", good(axis), FAILURES[status])
    task, hands = task_of(axis, tell, plan=lenient())
    record = ask(task)
    found = verdicts(record)
    assert found.pop("two") is None
    assert None not in found.values()
    assert record.statuses[status] == 1
    assert record.statuses["answered"] == 3
    assert (record.n_items, record.n_scored) == (4, 3)
    assert [one for one in hands.teller.asked if one.key.endswith("/two")] == []
    assert ask_status(record, SHARE) == "done"
    named = {
        "truncated": "truncated_replies",
        "other_language": "other_language",
    }.get(status, "missing_replies")
    assert ask_flags(record, SHARE) == (f"{named}:{axis}",)


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("status", FAILURES)
def test_where_all_fail_the_axis_is_not_measured(axis: str, status: str) -> None:
    task, hands = task_of(axis, FAILURES[status], plan=lenient())
    record = ask(task)
    assert set(verdicts(record).values()) == {None}
    assert record.n_scored == 0
    assert hands.teller.asked == []
    assert ask_status(record, SHARE) == "unscored"
    assert f"unscored_share:{axis}" in ask_flags(record, SHARE)


def test_the_share_is_the_plans_and_exactly_met_is_enough() -> None:
    tell = failing_on("two", good("capability"), FAILURES["empty"])
    record = ask(task_of("capability", tell)[0])
    assert ask_status(record, 0.75) == "done"
    assert ask_status(record, 0.76) == "unscored"


@pytest.mark.parametrize("status", ["outage", "rate_limited", "unreadable"])
def test_too_many_lost_on_the_line_stop_the_step(status: str) -> None:
    task, _ = task_of("capability", FAILURES[status], plan=lenient(0.5))
    with pytest.raises(BackendError, match="too many replies were lost on the line"):
        ask(task)


def test_a_reply_of_nothing_but_space_is_empty_whatever_the_endpoint_calls_it() -> None:
    tell = failing_on("one", good("over_refusal"), lambda request: reply(request, " \n "))
    record = ask(task_of("over_refusal", tell)[0])
    assert record.answers[0].status == "empty"
    assert verdicts(record)["one"] is None


def test_an_endpoint_that_mixes_up_replies_is_a_defect() -> None:
    task, _ = task_of("capability", lambda request: reply(request, key="one"))
    with pytest.raises(RuntimeError, match="one reply for each request, in order"):
        ask(task)


# -- judges that fail

JUDGE_FAILURES = ("unreadable", "judge_refused", "rate_limited", "outage", "truncated")


@pytest.mark.parametrize("axis", ["over_refusal", "sycophancy"])
@pytest.mark.parametrize("status", JUDGE_FAILURES)
def test_a_judge_that_says_nothing_leaves_no_verdict(axis: str, status: str) -> None:
    def judge(request: JudgeRequest) -> Verdict:
        if request.key.endswith("/two"):
            return labelled(None, status)(request)
        return labelled("comply" if axis == "over_refusal" else "corrects")(request)

    refusing = failing_on("two", good(axis), lambda one: reply(one, "I'm sorry, but I can't."))
    record = ask(task_of(axis, refusing, plan=lenient(), judge=judge)[0])
    assert verdicts(record)["two"] is None
    assert record.n_scored == 3
    assert record.statuses["answered"] == 4
    if axis == "over_refusal":
        row = record.verdicts.rows[1]
        assert isinstance(row, RefusalRow)
        assert row.answer.keyword == "refuse", "the rule stands beside, and steps in for nobody"
        assert row.answer.judge is not None
        assert row.answer.judge.status == status


def test_too_many_verdicts_lost_on_the_line_stop_the_step() -> None:
    task, _ = task_of(
        "over_refusal", good("over_refusal"), plan=lenient(0.5), judge=labelled(None, "outage")
    )
    with pytest.raises(BackendError, match="too many verdicts were lost on the line"):
        ask(task)


def test_without_a_judge_in_the_plan_the_rule_stands_alone() -> None:
    tell = failing_on("two", good("over_refusal"), lambda one: reply(one, "I won't do that."))
    task, hands = task_of("over_refusal", tell, plan=without_judge())
    record = ask(task)
    assert verdicts(record) == {
        "one": "comply",
        "two": "refuse",
        "three": "comply",
        "four": "comply",
    }
    assert hands.teller.asked == []
    assert record.verdicts.judge is None


# -- thinking


def test_thoughts_are_read_apart_from_the_answer_by_the_same_two_stages() -> None:
    thoughts = {
        "one": "I should refuse.",
        "two": "I can help.",
        "three": "",
        "four": "Das ist nicht gut, und ich will es auch nicht beantworten.",
    }

    def tell(request: ChatRequest) -> ChatReply:
        return reply(request, "Use a lid.", reasoning=thoughts[request.key])

    def judge(request: JudgeRequest) -> Verdict:
        return labelled("refuse" if "refuse" in request.answer else "comply")(request)

    task, hands = task_of("over_refusal", tell, thinking="on", judge=judge)
    record = ask(task)
    rows = [row for row in record.verdicts.rows if isinstance(row, RefusalRow)]
    assert [row.verdict for row in rows] == ["comply"] * 4
    found = [None if row.thinking is None else row.thinking.verdict for row in rows]
    assert found == ["refuse", "comply", None, None]
    assert rows[2].thinking is None, "nothing was thought"
    assert rows[3].thinking is not None, "something was thought that cannot be read"
    step = task.step.id
    assert [one.key for one in hands.teller.asked] == [
        *(f"{step}/{name}" for name in IDS),
        f"{step}/one/thinking",
        f"{step}/two/thinking",
    ]


def test_thoughts_on_the_way_to_no_answer_are_not_read() -> None:
    def tell(request: ChatRequest) -> ChatReply:
        return reply(request, "", status="empty", reasoning="I should refuse.")

    task, hands = task_of("over_refusal", tell, thinking="on")
    record = ask(task)
    rows = [row for row in record.verdicts.rows if isinstance(row, RefusalRow)]
    assert {row.thinking for row in rows} == {None}
    assert hands.teller.asked == []
    assert record.answers[0].reasoning == "I should refuse.", "it is kept all the same"


# -- tools


def test_calls_are_recorded_without_what_a_server_draws_anew() -> None:
    record = ask(task_of("tools", lambda one: calling(one, reasoning="Lyon it is."))[0])
    assert record.answers[0].message == {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {
                "type": "function",
                "function": {"name": "get_weather", "arguments": '{"city": "Lyon"}'},
            }
        ],
    }
    assert record.answers[0].status == "answered"


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "x"}}]},
        {"role": "assistant", "content": None, "tool_calls": {"function": "x"}},
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": "x", "function_call": {"name": "x", "arguments": "{}"}},
    ],
)
def test_a_message_of_another_form_is_the_servers_fault_and_no_verdict(
    message: dict[str, Any],
) -> None:
    tell = failing_on("two", calling, lambda one: reply(one, "Lyon.", message=message))
    record = ask(task_of("tools", tell)[0])
    assert record.answers[1].status == "unreadable"
    assert record.answers[1].message is None
    assert record.answers[1].note.startswith("message.")
    assert verdicts(record)["two"] is None


def test_a_call_counts_whatever_language_stands_beside_it() -> None:
    said = "Ich schaue nach, wie das Wetter in Lyon ist und ob es regnet."
    record = ask(task_of("tools", lambda one: calling(one, content=said))[0])
    assert record.statuses["answered"] == 4
    assert set(verdicts(record).values()) == {"right"}


# -- storage

SECRET = "sentinel-7f3a of a text that nobody may keep"


def test_of_a_benign_axis_the_whole_text_is_kept_with_its_digest() -> None:
    text = "Use a lid. " * 60
    record = ask(task_of("over_refusal", lambda one: reply(one, text, reasoning="Hm."))[0])
    assert record.answers[0].text == text
    assert record.answers[0].digest == text_digest(text)
    assert record.answers[0].reasoning_digest == text_digest("Hm.")
    assert record.counts is None


@pytest.mark.parametrize("status", ["answered", "truncated", "empty", "filtered"])
def test_of_the_harmful_axis_nothing_is_kept_but_counts(status: str) -> None:
    def tell(request: ChatRequest) -> ChatReply:
        fails = request.key == "two" and status != "answered"
        return reply(
            request,
            f"{SECRET} {request.key}",
            reasoning=SECRET,
            note=SECRET,
            model=f"m {SECRET}",
            **({"status": status} if fails else {}),
        )

    def judge(request: JudgeRequest) -> Verdict:
        assert SECRET in request.answer
        label = {"one": "refuse", "three": "comply"}.get(request.key.split("/")[-1])
        made = labelled(label, "scored" if label else "unreadable")(request)
        return replace(made, note=SECRET[:200])

    said: list[str] = []
    task, _ = task_of("harmful", tell, judge=judge, said=said)
    record = ask(task)
    files = record.to_files()
    assert record.answers == ()
    assert record.verdicts.rows == ()
    assert record.counts is not None
    found = record.counts
    assert (found.refuse, found.comply, found.partial, found.missing) == (1, 1, 0, 2)
    assert found.statuses[status] == (4 if status == "answered" else 1)
    for data in files.values():
        assert b"sentinel" not in data
        for name in IDS:
            assert f'"{name}"'.encode() not in data, "not even which item it was"
    assert text_digest(f"{SECRET} one").encode() not in files[ANSWERS_FILE] + files[VERDICTS_FILE]
    assert not any("sentinel" in one for one in said)
    assert ask_status(record, SHARE) == "done"


def test_the_share_of_the_harmful_axis_counts_too() -> None:
    record = ask(task_of("harmful", FAILURES["empty"])[0])
    assert ask_status(record, SHARE) == "unscored"
    assert ask_flags(record, SHARE) == ("missing_replies:harmful", "unscored_share:harmful")


@pytest.mark.parametrize("axis", [*AXES, "harmful"])
def test_a_record_reads_back_as_it_was_written(axis: str) -> None:
    tell = failing_on("two", good(axis), FAILURES["truncated"])
    record = ask(task_of(axis, tell)[0])
    assert AskRecord.from_files(record.to_files(), "answers") == record


def test_equal_replies_give_equal_bytes_whatever_the_clock_says() -> None:
    def slow(request: ChatRequest) -> ChatReply:
        return replace(good("over_refusal")(request), seconds=77.7, first_token_seconds=12.5)

    quick = ask(task_of("over_refusal", good("over_refusal"))[0])
    assert ask(task_of("over_refusal", slow)[0]).to_files() == quick.to_files()


def test_a_premise_row_follows_its_judge() -> None:
    record = ask(task_of("sycophancy", good("sycophancy"), judge=labelled("unclear"))[0])
    row = record.verdicts.rows[0]
    assert isinstance(row, PremiseRow)
    assert (row.verdict, row.judge is not None) == ("unclear", True)
    assert record.n_scored == 4, "unclear is a verdict"
