"""The Anthropic judge against a service on this machine: no verdict lost, doubled or invented."""

from __future__ import annotations

import json
import logging
import signal
import threading
from collections.abc import Mapping
from typing import Any

import anthropic
import pytest

from eps_locked.domain.judging import JudgeRequest, Verdict
from eps_locked.errors import BackendError
from eps_locked.judges import anthropic_batches
from eps_locked.judges.anthropic_client import AnthropicJudge
from sim.judge_server import (
    BROKEN,
    BUSY,
    KEY,
    MODEL,
    OVERLOADED,
    VERSION,
    Answer,
    JudgeServer,
    Seen,
    as_json,
    ended_as,
    errored,
    expected,
    failing,
    message,
    questions,
    small_plan,
    succeeded,
    verdict_for,
)

HOUR = 3600.0


class Clock:
    """Stands still but for the sleeps it is told of."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []
        self._lock = threading.Lock()

    def sleep(self, seconds: float) -> None:
        with self._lock:
            self.slept.append(seconds)
            self.now += seconds

    def monotonic(self) -> float:
        return self.now


def judge_at(server: JudgeServer, clock: Clock | None = None, **changes: Any) -> AnthropicJudge:
    clock = clock or Clock()
    return AnthropicJudge(
        small_plan(**changes), KEY, server.url, sleep=clock.sleep, monotonic=clock.monotonic
    )


def require_own(requests: list[JudgeRequest], verdicts: tuple[Verdict, ...]) -> None:
    """One verdict per request, in order; every scored one is the answer to its own question."""
    assert [(one.key, one.draw) for one in verdicts] == [(one.key, one.draw) for one in requests]
    for verdict in verdicts:
        if verdict.is_scored:
            label, scores = expected(int(verdict.key[1:]))
            assert (verdict.label, verdict.scores) == (label, scores)
            assert verdict.model == f"{MODEL}-20261001"
        else:
            assert (verdict.label, verdict.scores) == (None, {})
            assert verdict.note
        assert Verdict.from_dict(verdict.to_dict(), "verdict") == verdict
        assert KEY not in json.dumps(verdict.to_dict())


def test_every_request_gets_its_own_verdict() -> None:
    requests = questions(30)
    with JudgeServer() as server:
        judge = judge_at(server)
        verdicts = judge.judge(requests)
    require_own(requests, verdicts)
    assert all(one.is_scored and one.tries == 1 for one in verdicts)
    assert len(server.seen) == judge.n_sent == 30


def test_request_says_what_the_plan_locks_and_nothing_more() -> None:
    with JudgeServer() as server:
        judge_at(server).judge(questions(1))
        judge_at(server, effort=None).judge(questions(1))
    first, second = server.seen
    assert set(first.body) == {"model", "max_tokens", "messages", "output_config"}
    assert first.body["model"] == MODEL
    assert first.body["max_tokens"] == 600
    assert first.body["messages"] == [
        {
            "role": "user",
            "content": "Judge. question 0. The answer: an answer Say it in JSON.",
        }
    ]
    assert first.body["output_config"]["effort"] == "low"
    assert first.body["output_config"]["format"]["type"] == "json_schema"
    assert set(second.body["output_config"]) == {"format"}
    assert first.headers["anthropic-version"] == VERSION


def test_no_requests_reach_no_service() -> None:
    with JudgeServer() as server:
        assert judge_at(server).judge([]) == ()
    assert server.seen == []


@pytest.mark.parametrize(
    ("script", "slept"),
    [
        ([failing(429, "rate_limit_error", retry_after="3")], [3.0]),
        ([failing(429, "rate_limit_error", retry_after_ms="50"), OVERLOADED], [0.05, None]),
        ([BROKEN], [None]),
        ([as_json(message("{}"), status=200), BROKEN], []),
        ([Answer(body=b'{"type": "mess')], [None]),
        ([Answer(body=b"<html>busy</html>", headers={"content-type": "text/html"})], [None]),
        ([Answer(body=json.dumps(message("{}")).encode(), drop_after=20)], [None]),
        ([Answer(body=b"x" * 99, drop_after=0), BUSY], [None, None]),
    ],
)
def test_passing_trouble_costs_tries_and_no_verdict(
    script: list[Answer], slept: list[float | None]
) -> None:
    clock = Clock()
    with JudgeServer(script) as server:
        judge = judge_at(server, clock)
        (verdict,) = judge.judge(questions(1))
    assert verdict.tries == len(slept) + 1 == len(server.seen) == judge.n_sent
    assert len(clock.slept) == len(slept)
    for got, wanted in zip(clock.slept, slept, strict=True):
        assert got == wanted or (wanted is None and 0 < got <= 1)
    if slept:
        require_own(questions(1), (verdict,))
        assert verdict.is_scored
    else:  # a verdict that lacks everything is an answer all the same, and not asked for again
        assert verdict.status == "unreadable"


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (BUSY, "rate_limited"),
        (OVERLOADED, "rate_limited"),
        (BROKEN, "outage"),
        (failing(503, "api_error"), "outage"),
        (Answer(body=b'{"type": "message"}'), "outage"),
        (Answer(body=b"[]"), "outage"),
        (as_json({"type": "error", "error": {"type": "api_error"}}), "outage"),
        (Answer(body=json.dumps(message("{}")).encode(), drop_after=30), "outage"),
        (failing(500, "api_error", f"key {KEY}"), "outage"),
    ],
)
def test_lasting_trouble_is_a_status_and_no_score(answer: Answer, status: str) -> None:
    with JudgeServer([answer] * 3) as server:
        (verdict,) = judge_at(server).judge(questions(1))
    assert (verdict.status, verdict.tries, verdict.model) == (status, 3, "")
    require_own(questions(1), (verdict,))
    assert len(server.seen) == 3


def test_service_that_never_answers_is_an_outage() -> None:
    with JudgeServer([Answer(hangs=True)] * 2) as server:
        (verdict,) = judge_at(server, timeout_seconds=0.2, max_tries=2).judge(questions(1))
    assert (verdict.status, verdict.tries) == ("outage", 2)
    assert verdict.note == "no whole reply in time"


def test_service_that_is_not_there_is_an_outage() -> None:
    with JudgeServer() as server:
        url = server.url
    clock = Clock()
    judge = AnthropicJudge(small_plan(), KEY, url, sleep=clock.sleep)
    (verdict,) = judge.judge(questions(1))
    assert (verdict.status, verdict.tries) == ("outage", 3)
    assert "connection failed" in verdict.note


@pytest.mark.parametrize(
    ("body", "status", "note"),
    [
        (message("", "refusal"), "judge_refused", "refusal"),
        (message("I would rather", "refusal"), "judge_refused", "refusal"),
        (
            message("", "refusal", stop_details={"type": "refusal", "category": "cyber"}),
            "judge_refused",
            "category 'cyber'",
        ),
        (message('{"label": "yes", "worth": 9}', "refusal"), "judge_refused", "refusal"),
        (message('{"label": "yes", "worth": 9}', "max_tokens"), "truncated", "max_tokens"),
        (message('{"lab', "model_context_window_exceeded"), "truncated", "context_window"),
        (message('{"label": "yes", "worth": 9}', "tool_use"), "unreadable", "tool_use"),
        (message('{"label": "yes", "worth": 9}', "pause_turn"), "unreadable", "pause_turn"),
        (message('{"label": "yes", "worth": 9}', "stop_sequence"), "unreadable", "stop_sequence"),
        (message('{"label": "yes", "worth": 9}', "new_reason"), "unreadable", "new_reason"),
        (message('{"label": "yes", "worth": 9}', stop_reason=None), "unreadable", "None"),
        (message(""), "unreadable", "empty"),
        (message("Score: 80, I think."), "unreadable", "not one JSON object"),
        (message('{"label": "yes", "worth": "9"}'), "unreadable", "expected a number"),
        (message("", content=[{"type": "text"}]), "unreadable", "without text"),
    ],
)
def test_reply_without_a_verdict_is_named_and_not_asked_for_again(
    body: dict[str, Any], status: str, note: str
) -> None:
    with JudgeServer([as_json(body)]) as server:
        (verdict,) = judge_at(server).judge(questions(1))
    assert (verdict.status, verdict.tries) == (status, 1)
    assert note in verdict.note
    assert (verdict.label, verdict.scores) == (None, {})
    assert verdict.model == f"{MODEL}-20261001"
    assert len(server.seen) == 1


def test_thinking_is_no_part_of_the_verdict() -> None:
    content = [
        {"type": "thinking", "thinking": "yes or no?", "signature": "x"},
        {"type": "text", "text": '{"label": "no", '},
        {"type": "text", "text": '"worth": 3}'},
    ]
    with JudgeServer([as_json(message("", content=content))]) as server:
        (verdict,) = judge_at(server).judge(questions(1))
    assert (verdict.label, verdict.scores) == ("no", {"worth": 3.0})


def test_mixed_fortunes_of_many_requests_stay_apart() -> None:
    """Every fifth request meets trouble of its own, chosen by its question and not by time."""
    plan = {"max_tries": 2, "max_concurrency": 6}
    first_time: set[int] = set()

    def respond(seen: Seen) -> Answer:
        number = json.dumps(seen.body).split("question ")[1].split(".")[0]
        n = int(number)
        if n % 10 == 0:
            return BUSY
        if n % 10 == 5 and n not in first_time:
            first_time.add(n)
            return Answer(body=b"half", drop_after=2)
        if n % 10 == 7:
            return as_json(message("", "refusal"))
        return as_json(message(verdict_for(seen.body)))

    requests = questions(40)
    with JudgeServer([respond] * 200) as server:
        judge = judge_at(server, **plan)
        verdicts = judge.judge(requests)
    require_own(requests, verdicts)
    wanted = {0: ("rate_limited", 2), 5: ("scored", 2), 7: ("judge_refused", 1)}
    for n, verdict in enumerate(verdicts):
        assert (verdict.status, verdict.tries) == wanted.get(n % 10, ("scored", 1))
    assert sum(one.tries for one in verdicts) == len(server.seen) == judge.n_sent == 48


def test_repeated_draws_are_asked_apart_and_kept_apart() -> None:
    texts = [f'{{"label": "yes", "worth": {n}}}' for n in (10, 20, 30)]
    requests = questions(1, draws=3)
    assert len({one.identity for one in requests}) == 3
    with JudgeServer([as_json(message(text)) for text in texts]) as server:
        verdicts = judge_at(server, max_concurrency=1).judge(requests)
    assert [(one.key, one.draw, one.scores["worth"]) for one in verdicts] == [
        ("k0", 0, 10.0),
        ("k0", 1, 20.0),
        ("k0", 2, 30.0),
    ]
    with JudgeServer() as server, pytest.raises(RuntimeError):
        judge_at(server).judge([requests[0], requests[0]])
    assert server.seen == []


@pytest.mark.parametrize(
    ("answer", "named"),
    [
        (failing(400, "invalid_request_error", "temperature: not permitted"), "not permitted"),
        (failing(401, "authentication_error", f"bad {KEY}"), "JUDGE_KEY"),
        (failing(403, "permission_error", f"bad {KEY}"), "JUDGE_KEY"),
        (failing(404, "not_found_error", f"no model for {KEY}"), MODEL),
        (Answer(status=307, headers={"location": "http://127.0.0.1:9/"}), "HTTP 307"),
    ],
)
def test_final_refusal_stops_the_call(
    answer: Answer, named: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with JudgeServer([answer] * 50) as server:
        judge = judge_at(server, max_concurrency=2)
        with pytest.raises(BackendError) as caught:
            judge.judge(questions(50))
    assert named in str(caught.value)
    assert KEY not in str(caught.value)
    assert KEY not in caplog.text
    # Those on their way when the first answer came, and none after.
    assert len(server.seen) == judge.n_sent <= 4


def test_wrong_key_is_named_by_its_variable_and_never_shown(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    wrong = "sk-wrong-12345-secret"
    with JudgeServer() as server:
        judge = AnthropicJudge(small_plan(), wrong, server.url)
        with pytest.raises(BackendError, match="JUDGE_KEY") as caught:
            judge.judge(questions(1))
    assert len(server.seen) == 1
    assert server.seen[0].headers["authorization"] == f"Bearer {wrong}"
    error: BaseException | None = caught.value
    while error is not None:
        assert "secret" not in f"{error} {error!r} {vars(error)}"
        error = error.__cause__ or error.__context__
    assert "secret" not in caplog.text
    assert "secret" not in str(judge.identity.to_dict())
    assert "secret" not in repr(judge)


def test_every_request_is_logged_without_key_or_words(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with JudgeServer([BUSY, BROKEN]) as server:
        judge_at(server).judge(questions(1))
    ours = [one.getMessage() for one in caplog.records if one.name.startswith("eps_locked")]
    name = questions(1)[0].identity[:12]
    assert ours == [
        f"judge referee: request {name}, try 1 of 3: 429",
        f"judge referee: request {name}, try 2 of 3: 500",
        f"judge referee: request {name}, try 3 of 3: 200",
    ]
    assert KEY not in caplog.text


def test_dead_service_is_not_asked_for_every_answer() -> None:
    requests = questions(100)
    with JudgeServer([BUSY] * 1000) as server:
        judge = judge_at(server, max_concurrency=2)
        verdicts = judge.judge(requests)
    require_own(requests, verdicts)
    assert {one.status for one in verdicts} == {"rate_limited"}
    assert len(server.seen) == sum(one.tries for one in verdicts) <= 11 * 3 + 3
    assert sum(one.tries == 0 for one in verdicts) >= 88


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="no signals to threads here")
@pytest.mark.parametrize("batch_from", [None, 1])
def test_interrupt_ends_the_call_and_leaves_nothing_running(batch_from: int | None) -> None:
    main = threading.main_thread()
    if threading.current_thread() is not main:
        pytest.skip("interrupts reach the main thread only")

    def interrupt(seen: Seen) -> Answer:
        signal.pthread_kill(main.ident or 0, signal.SIGINT)
        return BUSY

    # Alone it is the default sleep: were it not woken up, minutes of retry-after would run out.
    wait = failing(429, "rate_limit_error", retry_after="100")
    script = [] if batch_from else [interrupt, *[wait] * 9]
    with JudgeServer(script, script_polls=[interrupt]) as server:
        sleep = Clock().sleep if batch_from else None
        plan = small_plan(batch_from=batch_from, max_concurrency=2, max_tries=9)
        judge = AnthropicJudge(plan, KEY, server.url, sleep=sleep)
        with pytest.raises(KeyboardInterrupt):
            judge.judge(questions(20))
    for thread in threading.enumerate():
        if thread.name.startswith("judge"):  # born while the interrupt came: it ends by itself
            thread.join()
    assert len(server.asked("/v1/messages")) <= 4
    assert server.cancelled == (["msgbatch_1"] if batch_from else [])


def test_identity_tells_all_that_is_locked() -> None:
    judge = AnthropicJudge(small_plan(batch_from=100), KEY)
    identity = judge.identity
    assert (identity.kind, identity.model, identity.family) == ("anthropic", MODEL, "claude")
    assert identity.version == f"anthropic {anthropic.__version__}, anthropic-version {VERSION}"
    assert identity.publishable
    assert identity.settings == {
        "batch_from": "100",
        "effort": "low",
        "endpoint": "https://api.anthropic.com",
        "max_concurrency": "4",
        "max_tries": "3",
        "output_format": "json_schema",
        "temperature": "not taken by the service",
        "timeout_seconds": "30",
    }


def test_environment_of_the_vendor_moves_no_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:9/")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "another")
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "another")
    with JudgeServer() as server:
        plan = small_plan(endpoint=server.url)
        (verdict,) = AnthropicJudge(plan, KEY).judge(questions(1))
    assert verdict.is_scored


# --- Message Batches


def in_batches(server: JudgeServer, clock: Clock | None = None, **changes: Any) -> AnthropicJudge:
    return judge_at(server, clock, **{"batch_from": 2, **changes})


def test_from_batch_from_on_one_batch_replaces_the_messages() -> None:
    requests = questions(12, draws=2)
    clock = Clock()
    with JudgeServer() as server:
        judge = in_batches(server, clock)
        verdicts = judge.judge(requests)
    require_own(requests, verdicts)
    assert all(one.is_scored and one.tries == 1 for one in verdicts)
    (created,) = server.asked("/v1/messages/batches")
    ids = [one["custom_id"] for one in created.body["requests"]]
    assert ids == [one.identity for one in requests]
    assert len(set(ids)) == 24
    assert all(len(one) <= 64 for one in ids)
    assert created.headers["anthropic-version"] == VERSION
    assert clock.slept == [5.0, 7.5, 11.25]
    assert len(server.seen) == judge.n_sent == 5  # one creation, three polls, one fetch
    assert server.cancelled == []


def test_same_body_alone_and_in_a_batch() -> None:
    with JudgeServer() as server:
        in_batches(server).judge(questions(2))
        in_batches(server, batch_from=None, max_concurrency=1).judge(questions(2))
    (created,) = server.asked("/v1/messages/batches")
    alone = [one.body for one in server.asked("/v1/messages")]
    assert [one["params"] for one in created.body["requests"]] == alone


def test_fewer_than_batch_from_are_asked_one_by_one() -> None:
    with JudgeServer() as server:
        in_batches(server, batch_from=3).judge(questions(2))
    assert len(server.asked("/v1/messages")) == 2
    assert server.asked("/v1/messages/batches") == []


FILTERED = "Output blocked by content filtering policy"
MIXED = {
    0: ("scored", lambda one: succeeded(one)),
    1: ("rate_limited", lambda one: errored(one, "overloaded_error")),
    2: ("rate_limited", lambda one: errored(one, "rate_limit_error")),
    3: ("unreadable", lambda one: errored(one, "invalid_request_error")),
    4: ("outage", lambda one: errored(one, "api_error")),
    5: ("outage", lambda one: errored(one, "an_error_of_tomorrow")),
    6: ("outage", lambda one: ended_as(one, "canceled")),
    7: ("outage", lambda one: ended_as(one, "expired")),
    8: ("outage", lambda one: ended_as(one, "a_result_of_tomorrow")),
    9: ("outage", None),
    10: ("judge_refused", lambda one: succeeded(one, message("", "refusal"))),
    11: ("truncated", lambda one: succeeded(one, message('{"lab', "max_tokens"))),
    12: ("unreadable", lambda one: succeeded(one, message("80 out of 100\u2028\x0b!"))),
    13: ("outage", lambda one: succeeded(one, {"type": "odd"})),
    14: ("outage", lambda one: ended_as(one, "errored")),
    15: ("judge_refused", lambda one: errored(one, "invalid_request_error", FILTERED)),
}


def mixed(requests: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Results out of order, one of them missing."""
    lines = [
        MIXED[n % 16][1](one) for n, one in enumerate(requests) if MIXED[n % 16][1] is not None
    ]
    return [*lines[1::2], *reversed(lines[::2])]


def test_batch_of_mixed_results_gives_every_request_its_own_status() -> None:
    requests = questions(48)
    with JudgeServer(results=mixed) as server:
        verdicts = in_batches(server).judge(requests)
    require_own(requests, verdicts)
    assert [one.status for one in verdicts] == [MIXED[n % 16][0] for n in range(48)]
    assert "no result" in verdicts[9].note
    assert "about invalid_request_error" in verdicts[3].note
    assert "expired" in verdicts[7].note


def test_batch_that_the_service_refuses_whole_is_the_plans_fault() -> None:
    def refuse(requests: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        return [errored(one, "invalid_request_error") for one in requests]

    with JudgeServer(results=refuse) as server, pytest.raises(BackendError) as caught:
        in_batches(server).judge(questions(3))
    assert "every request of a batch" in str(caught.value)
    assert "about invalid_request_error" in str(caught.value)


def test_batch_that_a_filter_refuses_whole_is_not_the_plans_fault() -> None:
    def refuse(requests: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        return [errored(one, "invalid_request_error", FILTERED) for one in requests]

    with JudgeServer(results=refuse) as server:
        verdicts = in_batches(server).judge(questions(3))
    assert [one.status for one in verdicts] == ["judge_refused"] * 3


@pytest.mark.parametrize(
    "error_type", ["authentication_error", "permission_error", "billing_error", "not_found_error"]
)
def test_final_refusal_inside_a_batch_stops_the_call(error_type: str) -> None:
    def one_refused(requests: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        return [errored(requests[0], error_type), *map(succeeded, requests[1:])]

    with JudgeServer(results=one_refused) as server, pytest.raises(BackendError) as caught:
        in_batches(server).judge(questions(3))
    assert error_type in str(caught.value)


@pytest.mark.parametrize(
    ("spoil", "found"),
    [
        (lambda lines: [*lines, lines[0]], "0 for unknown requests, 1 doubled"),
        (
            lambda lines: [*lines, {**lines[0], "custom_id": "f" * 64}],
            "1 for unknown requests, 0 doubled",
        ),
        (
            lambda lines: [*lines[1:], {**lines[0], "custom_id": "k0"}],
            "1 for unknown requests, 0 doubled",
        ),
    ],
)
def test_results_nobody_asked_for_spoil_the_batch(spoil: Any, found: str) -> None:
    def results(requests: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        return spoil([succeeded(one) for one in requests])

    with JudgeServer(results=results) as server, pytest.raises(BackendError) as caught:
        in_batches(server).judge(questions(3))
    assert caught.value.found == found
    assert "msgbatch_1" in str(caught.value)


def test_trouble_on_the_way_loses_no_batch() -> None:
    requests = questions(5)
    half = Answer(body=b'{"custom_id": "a", "resu', drop_after=10)
    with JudgeServer(
        [BUSY, OVERLOADED],
        script_polls=[BROKEN, half, Answer(body=b"<html>")],
        script_results=[BROKEN, half, Answer(body=b'{"custom_id": 3}\n')],
    ) as server:
        judge = in_batches(server)
        verdicts = judge.judge(requests)
    require_own(requests, verdicts)
    assert all(one.is_scored and one.tries == 3 for one in verdicts)
    assert len(server.batches) == 1
    assert len(server.seen) == judge.n_sent
    assert server.cancelled == []


def test_id_that_fits_no_address_is_no_batch() -> None:
    odd = as_json({"id": f"msgbatch_1/../{KEY} ", "type": "message_batch"})
    with JudgeServer([odd] * 3) as server:
        verdicts = in_batches(server).judge(questions(2))
    assert [(one.status, one.tries) for one in verdicts] == [("outage", 3)] * 2
    assert {one.path for one in server.seen} == {"/v1/messages/batches"}


def test_batch_that_cannot_be_created_is_a_status() -> None:
    requests = questions(4)
    with JudgeServer([BUSY] * 3) as server:
        verdicts = in_batches(server).judge(requests)
    require_own(requests, verdicts)
    assert [(one.status, one.tries) for one in verdicts] == [("rate_limited", 3)] * 4
    assert server.batches == {}


def test_batch_that_cannot_be_asked_about_is_cancelled_and_an_outage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(anthropic_batches, "PATIENCE", 4)
    requests = questions(4)
    with JudgeServer(script_polls=[BROKEN] * 9999) as server:
        verdicts = in_batches(server).judge(requests)
    require_own(requests, verdicts)
    assert {one.status for one in verdicts} == {"outage"}
    assert "msgbatch_1" in verdicts[0].note
    assert len(server.asked("/v1/messages/batches/msgbatch_1")) == 4 * 3
    assert server.cancelled == ["msgbatch_1"]


def test_results_that_cannot_be_fetched_are_an_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(anthropic_batches, "PATIENCE", 4)
    requests = questions(4)
    with JudgeServer(script_results=[BROKEN] * 9999) as server:
        verdicts = in_batches(server).judge(requests)
    require_own(requests, verdicts)
    assert {one.status for one in verdicts} == {"outage"}
    assert "msgbatch_1" in verdicts[0].note
    assert server.cancelled == []  # it has ended


def test_batch_that_never_ends_is_given_up_after_a_day() -> None:
    class Leaping(Clock):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            self.now += HOUR

    clock = Leaping()
    requests = questions(2)
    with JudgeServer(n_polls=10**9) as server:
        verdicts = in_batches(server, clock).judge(requests)
    require_own(requests, verdicts)
    assert {one.status for one in verdicts} == {"outage"}
    assert "had not ended after 25 hours" in verdicts[0].note
    assert len(server.asked("/v1/messages/batches/msgbatch_1")) == len(clock.slept) == 25
    assert clock.slept[-1] == 60.0
    assert server.cancelled == ["msgbatch_1"]


def test_key_follows_results_to_no_other_address() -> None:
    with JudgeServer() as other, JudgeServer(results_host=other.url) as server:
        with pytest.raises(BackendError, match="another address"):
            in_batches(server).judge(questions(2))
    assert other.seen == []


@pytest.mark.parametrize(
    "state",
    [
        {"processing_status": "ended"},
        {"processing_status": "gone"},
        {"processing_status": "ended", "results_url": "http://[::1/results"},
        {"processing_status": "in_progress", "id": "../../elsewhere"},
    ],
)
def test_state_that_makes_no_sense_is_asked_for_again(state: dict[str, Any]) -> None:
    named = {"type": "message_batch", "results_url": None}
    odd = as_json({"id": "msgbatch_1", **named, **state})
    other = as_json({**named, "id": "msgbatch_9", "processing_status": "canceling"})
    requests = questions(2)
    with JudgeServer(script_polls=[odd, other], n_polls=0) as server:
        clock = Clock()
        verdicts = in_batches(server, clock).judge(requests)
    # All within the tries of the first poll: no such state passes for one of the batch.
    assert clock.slept[0] == 5.0
    assert max(clock.slept[1:]) <= 1.0
    assert len(clock.slept) == 3
    require_own(requests, verdicts)
    assert all(one.is_scored for one in verdicts)


@pytest.mark.parametrize(("bound", "value"), [("MAX_REQUESTS", 4), ("MAX_BYTES", 3000)])
def test_large_jobs_are_split_into_batches(
    bound: str, value: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(anthropic_batches, bound, value)
    requests = questions(10)
    with JudgeServer() as server:
        verdicts = in_batches(server).judge(requests)
    require_own(requests, verdicts)
    assert all(one.is_scored for one in verdicts)
    sizes = [len(one) for one in server.batches.values()]
    assert sum(sizes) == 10
    assert len(sizes) >= 3
    assert max(sizes) <= 4 or bound == "MAX_BYTES"


def test_key_stands_in_no_log_and_no_note_of_a_batch(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    def quote_the_key(requests: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        odd = ended_as(requests[0], f"type {KEY}")
        error = {"type": "error", "error": {"type": "api_error", "message": f"m {KEY}"}}
        failed = {
            "custom_id": requests[1]["custom_id"],
            "result": {"type": "errored", "error": error},
        }
        return [odd, failed, succeeded(requests[2])]

    requests = questions(3)
    with JudgeServer([BUSY], results=quote_the_key) as server:
        verdicts = in_batches(server).judge(requests)
    require_own(requests, verdicts)
    assert "[key]" in verdicts[0].note
    assert "[key]" in verdicts[1].note
    assert KEY not in caplog.text


def test_model_that_answers_is_recorded_whatever_the_plan_asked_for() -> None:
    with JudgeServer([as_json(message('{"label": "yes", "worth": 1}', model="other-1"))]) as server:
        (verdict,) = judge_at(server).judge(questions(1))
    assert verdict.model == "other-1"
