"""Timing: one request after another, the warm-up forgotten, nothing of a lost reply."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from eps_locked.domain.chat import ChatReply, ChatRequest
from eps_locked.errors import BackendError, EvidenceError, MalformedInputError
from eps_locked.studies.battery.derive import SpeedDesign, speed_flags, speed_status
from eps_locked.studies.battery.records import SPEED_FILE, SpeedRecord, SpeedRow
from eps_locked.studies.battery.rederive import speed_differences
from eps_locked.studies.battery.speed import measure_speed, speed_row
from eps_locked.studies.battery.task import Task
from sim.battery_run import Tell, lost, reply
from unit.studies.battery.world import IDS, section, task_of


def request(key: str = "one") -> ChatRequest:
    return ChatRequest(
        key=key,
        model="base",
        messages=(),
        max_tokens=40,
        temperature=0,
        top_p=1,
        seed=None,
        extra={},
        stream=True,
    )


def measured(tell: Tell = lambda one: reply(one), **more: Any) -> tuple[SpeedRecord, Task, Any]:
    """The frozen speed axis: one request of warm-up, three that are timed."""
    task, hands = task_of("speed", tell, n_warmup=1, **more)
    return measure_speed(task), task, hands


def test_requests_go_out_one_at_a_time_and_the_warm_up_is_not_timed() -> None:
    def tell(one: ChatRequest) -> ChatReply:
        return reply(one, seconds=9.0 if one.key == "one" else 1.5)

    record, _, hands = measured(tell)
    assert [one.key for one in hands.asked] == list(IDS)
    assert {one.max_tokens for one in hands.asked} == {40}
    assert [row.seconds for row in record.rows] == [1.5] * 3
    assert record.request["max_tokens"] == 40
    assert speed_status(record) == "done"
    assert speed_flags(record) == ()


def test_times_are_kept_to_the_microsecond() -> None:
    row = speed_row(reply(request(), seconds=1.23456789, first_token_seconds=0.1 + 0.2))
    assert (row.seconds, row.first_token_seconds) == (1.234568, 0.3)


def test_a_request_without_room_in_the_context_is_not_timed() -> None:
    """It has the status of a reply that ran into its limit, and no reply came."""
    row = speed_row(reply(request(), "", status="truncated", message=None))
    assert row == SpeedRow(
        status="truncated", n_completion_tokens=None, first_token_seconds=None, seconds=None
    )


def test_a_reply_that_ran_into_its_limit_is_timed() -> None:
    row = speed_row(reply(request(), status="truncated", n_completion_tokens=40))
    assert row == SpeedRow(
        status="truncated", n_completion_tokens=40, first_token_seconds=0.25, seconds=0.5
    )


@pytest.mark.parametrize("status", ["outage", "rate_limited", "unreadable", "filtered", "empty"])
def test_nothing_is_measured_of_a_reply_that_did_not_come(status: str) -> None:
    row = speed_row(reply(request(), status=status))
    assert row == SpeedRow(
        status=status, n_completion_tokens=None, first_token_seconds=None, seconds=None
    )


def test_without_a_stream_there_is_no_time_of_a_first_token() -> None:
    assert speed_row(reply(request(), first_token_seconds=None)).first_token_seconds is None


def test_some_that_did_not_come_are_said_and_all_of_them_are_no_measurement() -> None:
    record, _, _ = measured(lambda one: lost(one, "outage") if one.key == "two" else reply(one))
    assert [row.status for row in record.rows] == ["outage", "answered", "answered"]
    assert speed_status(record) == "done"
    assert speed_flags(record) == ("missing_replies:speed",)
    plan = section()
    endpoints = tuple(replace(one, max_transport_share=1.0) for one in plan.endpoints)
    record, _, _ = measured(
        lambda one: lost(one, "outage"), plan=replace(plan, endpoints=endpoints)
    )
    assert speed_status(record) == "unscored"


def test_too_many_lost_on_the_line_stop_the_step() -> None:
    with pytest.raises(BackendError, match="too many replies were lost on the line"):
        measured(lambda one: lost(one, "rate_limited"))


def test_an_endpoint_that_mixes_up_replies_is_a_defect() -> None:
    with pytest.raises(RuntimeError, match="one reply for each request"):
        measured(lambda one: reply(one, key="x"))


# -- the record, and what an auditor sees of it


def test_a_record_reads_back_and_holds_no_text() -> None:
    record, _, _ = measured(lambda one: reply(one, "sentinel", reasoning="sentinel"))
    files = record.to_files()
    assert SpeedRecord.from_files(files, "speed") == record
    assert b"sentinel" not in files[SPEED_FILE]


def test_other_files_are_no_record() -> None:
    with pytest.raises(EvidenceError, match=r"speed: expected speed\.json, found nothing"):
        SpeedRecord.from_files({}, "speed")


def test_a_negative_time_is_refused() -> None:
    with pytest.raises(MalformedInputError, match=r"rows\[0\]\.seconds: expected a finite number"):
        SpeedRow.from_dict(
            {
                "status": "answered",
                "n_completion_tokens": 1,
                "first_token_seconds": None,
                "seconds": -1,
            },
            "rows[0]",
        )


def of_row(**changes: Any) -> Callable[[SpeedRecord], SpeedRecord]:
    return lambda record: replace(
        record, rows=(replace(record.rows[0], **changes), *record.rows[1:])
    )


CHANGES: list[tuple[Callable[[SpeedRecord], SpeedRecord], str]] = [
    (lambda one: replace(one, model="cautious"), "model: expected untouched, found cautious"),
    (lambda one: replace(one, rows=one.rows[:2]), "rows: expected 3, found 2"),
    (lambda one: replace(one, request={**one.request, "max_tokens": 9}), "request: expected"),
    (
        lambda one: replace(one, endpoint={**one.endpoint, "kind": "openai"}),
        "endpoint.kind: expected serve, found openai",
    ),
    (lambda one: replace(one, endpoint={}), "endpoint.model: expected base, found None"),
    (of_row(status="outage"), "rows[0]: expected no time of a reply that is outage, found one"),
    (of_row(seconds=None), "rows[0]: expected nothing measured of a reply without a time"),
    (of_row(first_token_seconds=0.6), "rows[0]: expected a first token before the end"),
    (of_row(n_completion_tokens=41), "rows[0]: expected at most 40 tokens, found 41"),
]


@pytest.mark.parametrize(("change", "said"), CHANGES, ids=[said[:40] for _, said in CHANGES])
def test_a_record_that_the_plan_does_not_give_is_told(
    change: Callable[[SpeedRecord], SpeedRecord], said: str
) -> None:
    record, task, _ = measured()
    design = SpeedDesign.of(task.step, task.inputs, task.section)
    assert speed_differences(record, design) == []
    found = speed_differences(change(record), design)
    assert any(said in one for one in found), found
