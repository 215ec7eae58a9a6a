"""The chat client against a service on this machine: whole replies, or the name of what went wrong.

All times are of this test's own clock or tenths of a second; none is measured.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from eps_locked.domain.chat import ChatReply, ChatRequest
from eps_locked.errors import BackendError, MalformedInputError
from eps_locked.services.chat import OpenAiEndpoint
from eps_locked.services.make import make_endpoint
from eps_locked.services.replies import require_replies
from eps_locked.services.rules import rules_for
from eps_locked.services.wire import Wire
from sim.chat_server import (
    KEY,
    MODEL,
    ROUTE,
    Answer,
    ChatServer,
    Respond,
    Rules,
    Seen,
    as_json,
    call,
    chunk,
    chunks,
    completion,
    events,
    failing,
    reply_text,
    request,
    requests,
    streamed,
    usual,
)

BUSY = failing(429, "slow down")
BROKEN = failing(500, "oops")
PAGE = Answer(pieces=(b"<html><body>Log in</body></html>",), headers={"content-type": "text/html"})
HALF = chunks(completion("Hello there, how are you?"))[:4]


class Clock:
    """Counts what is slept, and sleeps nothing."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    def __call__(self, seconds: float) -> None:
        self.slept.append(seconds)


def endpoint_at(
    server: ChatServer, key: str | None = KEY, clock: Clock | None = None, **changes: Any
) -> OpenAiEndpoint:
    return OpenAiEndpoint(Rules(url=server.url, **changes), key, sleep=clock or Clock())


def ask_once(
    answers: Sequence[Answer | Respond] | Answer,
    *,
    tries: int = 1,
    asked: ChatRequest | None = None,
    **changes: Any,
) -> ChatReply:
    script = [answers] * tries if isinstance(answers, Answer) else answers
    with ChatServer(script) as server:
        endpoint = endpoint_at(server, **changes)
        (reply,) = endpoint.ask([asked or request()])
    assert len(server.seen) == endpoint.n_sent == reply.tries == tries
    assert (reply.note == "") == reply.is_answered
    assert len(reply.note) <= 200
    assert KEY not in repr(reply)
    if reply.status in ("outage", "rate_limited"):
        assert (reply.content, reply.reasoning, reply.message, reply.model) == ("", "", None, "")
    return reply


def test_every_request_gets_its_own_reply_in_order() -> None:
    asked = requests(12)
    with ChatServer([BUSY, BROKEN]) as server:
        endpoint = endpoint_at(server)
        replies = endpoint.ask(asked)
    assert [one.key for one in replies] == [one.key for one in asked]
    for reply, one in zip(replies, asked, strict=True):
        assert (reply.status, reply.content) == (
            "answered",
            reply_text(one.messages[-1]["content"]),
        )
        assert (reply.model, reply.n_prompt_tokens, reply.n_completion_tokens) == (MODEL, 11, 7)
    assert sum(one.tries for one in replies) == len(server.seen) == endpoint.n_sent == 14


def test_at_most_so_many_requests_are_on_their_way_as_the_rules_say() -> None:
    lock, together, most = threading.Lock(), 0, 0
    full = threading.Barrier(3)

    def respond(seen: Seen) -> Answer:
        return usual(seen)

    class Counting(ChatServer):
        def answer(self, seen: Seen) -> Answer:
            nonlocal together, most
            with lock:
                together += 1
                most = max(most, together)
            full.wait(timeout=10)  # passes only if three are there at once
            with lock:
                together -= 1
            return super().answer(seen)

    with Counting([respond] * 9) as server:
        replies = endpoint_at(server, max_concurrency=3).ask(requests(9))
    assert all(one.is_answered for one in replies)
    assert most == 3


def test_request_says_what_the_plan_locks_and_nothing_more() -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {}}}
    with ChatServer() as server:
        endpoint = endpoint_at(server)
        endpoint.ask([request(extra={"chat_template_kwargs": {"enable_thinking": False}})])
        endpoint.ask([request(stream=False, seed=None, tools=(tool,))])
    first, second = (one.body for one in server.seen)
    assert first == {
        "model": ROUTE,
        "messages": [{"role": "user", "content": "question 0"}],
        "max_tokens": 96,
        "temperature": 0.0,
        "top_p": 1.0,
        "seed": 5,
        "stream": True,
        "stream_options": {"include_usage": True},
        "chat_template_kwargs": {"enable_thinking": False},
    }
    assert set(second) == {"model", "messages", "max_tokens", "temperature", "top_p", "tools"}
    assert second["tools"] == [tool]
    assert server.seen[0].headers["accept-encoding"] == "identity"


@pytest.mark.parametrize("name", ["model", "temperature", "stream", "n", "seed", "tools"])
def test_extra_field_that_would_undo_the_plan_is_refused(name: str) -> None:
    asked = request(extra={name: 1}, stream=False, seed=None)
    with ChatServer() as server:
        with pytest.raises(MalformedInputError, match=rf"request k0\.extra\.{name}"):
            endpoint_at(server).ask([request("other"), asked])
    assert server.seen == []


def test_no_requests_reach_no_service_and_two_that_are_one_are_refused() -> None:
    with ChatServer() as server:
        assert endpoint_at(server).ask([]) == ()
        with pytest.raises(RuntimeError, match="same key"):
            endpoint_at(server).ask([request("a"), request("a")])
    assert server.seen == []


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("whole", "status", "content", "reasoning"),
    [
        (completion("Hello."), "answered", "Hello.", ""),
        (completion("Hello.", usage=None), "answered", "Hello.", ""),
        (completion("<think>why</think>\n\nHello."), "answered", "Hello.", "why"),
        (completion("why</think>Hello."), "answered", "Hello.", "why"),
        (completion("Hello.", reasoning_content=" why\n"), "answered", "Hello.", "why"),
        (completion("Hello.", reasoning="why"), "answered", "Hello.", "why"),
        (
            completion("Hello.", reasoning="why", reasoning_content="why"),
            "answered",
            "Hello.",
            "why",
        ),
        (
            completion("<think>and</think>Hello.", reasoning_content="why"),
            "answered",
            "Hello.",
            "why\n\nand",
        ),
        (completion("<think>why and", "length"), "truncated", "", "why and"),
        (completion("<think>why and"), "empty", "", "why and"),
        (completion("<think>why</think>\n"), "empty", "", "why"),
        (completion("", reasoning_content="why"), "empty", "", "why"),
        (completion(""), "empty", "", ""),
        (completion(" \n"), "empty", " \n", ""),
        (completion(None), "empty", "", ""),
        (completion("Hel", "length"), "truncated", "Hel", ""),
        (completion("", "length"), "truncated", "", ""),
        (completion("Hel", "content_filter"), "filtered", "Hel", ""),
        # What the model itself says there is what it said.
        (
            completion("", "stop", refusal="I would rather not"),
            "answered",
            "I would rather not",
            "",
        ),
        (completion("No.", "stop", refusal="I won't"), "answered", "No.\n\nI won't", ""),
        (completion("", "content_filter", refusal="I won't"), "filtered", "I won't", ""),
        (completion("Hello.", "eos"), "unreadable", "Hello.", ""),
        (completion("Hello.", "function_call"), "unreadable", "Hello.", ""),
        (completion("Hello.", "tool_calls"), "unreadable", "Hello.", ""),
    ],
)
def test_whole_reply_has_the_status_of_its_end(
    whole: dict[str, Any], status: str, content: str, reasoning: str, stream: bool
) -> None:
    answer = streamed(chunks(whole)) if stream else as_json(whole)
    reply = ask_once(answer, asked=request(stream=stream))
    assert (reply.status, reply.content, reply.reasoning) == (status, content, reasoning)
    assert (reply.model, reply.finish_reason) == (MODEL, whole["choices"][0]["finish_reason"])
    assert reply.message is not None
    counts = (11, 7) if "usage" in whole else (None, None)
    assert (reply.n_prompt_tokens, reply.n_completion_tokens) == counts


def test_reply_in_one_piece_without_an_end_is_unreadable() -> None:
    reply = ask_once(as_json(completion("Hello.", None)), asked=request(stream=False))
    assert (reply.status, reply.note) == ("unreadable", "finish reason None")


def test_tool_calls_come_the_same_way_in_pieces_and_in_one() -> None:
    calls = [call("find", '{"name": "Anna"}', 0), call("stop", "{}", 1)]
    whole = completion(None, "tool_calls", tool_calls=calls)
    in_pieces = ask_once(streamed(chunks(whole)))
    at_once = ask_once(as_json(whole), asked=request(stream=False))
    assert in_pieces.status == at_once.status == "answered"
    assert in_pieces.message == at_once.message == whole["choices"][0]["message"]
    # Some services call the end of a call "stop".
    stopped = completion("", "stop", tool_calls=calls)
    assert ask_once(as_json(stopped), asked=request(stream=False)).status == "answered"


def test_service_that_does_not_stream_is_read_all_the_same() -> None:
    reply = ask_once(as_json(completion("Hello.")))
    assert (reply.status, reply.content, reply.first_token_seconds) == ("answered", "Hello.", None)


def test_first_token_comes_before_the_end_and_only_in_a_stream() -> None:
    """The clock of the endpoint ticks by one with every look."""
    ticks = iter(range(1000))
    pieces = [chunk({"role": "assistant", "content": ""}), chunk({"content": "a"})]
    answer = streamed([*pieces, chunk({"content": "b"}, "stop")], pause_s=0.02)
    with ChatServer([answer, as_json(completion("ab"))]) as server:
        endpoint = OpenAiEndpoint(
            Rules(url=server.url, timeout_seconds=900.0), KEY, monotonic=lambda: next(ticks)
        )
        (reply,) = endpoint.ask([request()])
        (at_once,) = endpoint.ask([request(stream=False)])
    assert reply.first_token_seconds is not None
    assert 0 < reply.first_token_seconds < reply.seconds
    assert at_once.first_token_seconds is None
    assert at_once.seconds > 0


def test_model_that_answers_is_recorded_whatever_was_asked() -> None:
    whole = {**completion("Hello."), "model": "other/model-q4"}
    assert ask_once(streamed(chunks(whole))).model == "other/model-q4"


@pytest.mark.parametrize(
    ("answer", "status", "note"),
    [
        (BUSY, "rate_limited", "HTTP 429"),
        (failing(529), "rate_limited", "HTTP 529"),
        (BROKEN, "outage", "HTTP 500"),
        (failing(502, f"upstream said {KEY}"), "outage", "HTTP 502"),
        # Half-streams.
        (streamed(HALF, done=False), "outage", "ended after 4 pieces, before its finish reason"),
        (streamed(HALF), "outage", "before its finish reason"),
        (streamed(HALF, done=False, then="cut"), "outage", "before its finish reason"),
        (streamed([], done=False, then="cut"), "outage", "connection failed"),
        (streamed([], done=False), "outage", "after 0 pieces"),
        (Answer(pieces=()), "outage", "after 0 pieces"),
        # What is no reply.
        (streamed(['{"choices": [']), "unreadable", "not one JSON object"),
        (streamed([*HALF, "{broken"]), "unreadable", "not one JSON object"),
        (PAGE, "unreadable", "no piece of a stream"),
        (as_json({"ok": True}), "unreadable", "one choice"),
        (as_json({**completion(), "choices": []}), "unreadable", "one choice"),
        (as_json({**completion(), "choices": completion()["choices"] * 2}), "unreadable", "one"),
        (streamed([{**chunk({}), "choices": [chunk({})] * 2}]), "unreadable", "one choice"),
        (streamed(chunks(completion(f"Your key: {KEY}", usage=None), 99)), "unreadable", "key"),
        (streamed(chunks({**completion(), "model": KEY})), "unreadable", "key"),
        # Errors where a reply should be.
        (as_json({"error": {"message": "upstream is down", "code": 502}}), "outage", "HTTP 502"),
        (as_json({"error": {"message": "no", "code": "429"}}), "rate_limited", "HTTP 429"),
        (streamed([*HALF, {"error": {"message": "no"}}]), "outage", "HTTP 500"),
        (
            streamed([*HALF, {"error": {"code": "rate_limit_exceeded"}}]),
            "rate_limited",
            "HTTP 429",
        ),
        (streamed([*HALF, {"error": f"a text with {KEY}"}]), "outage", "HTTP 500"),
    ],
)
def test_lasting_trouble_is_a_status_after_all_tries(
    answer: Answer, status: str, note: str
) -> None:
    reply = ask_once(answer, tries=3)
    assert (reply.status, reply.content, reply.message) == (status, "", None)
    assert note in reply.note


@pytest.mark.parametrize(
    "answer",
    [
        BUSY,
        BROKEN,
        PAGE,
        streamed(HALF, then="cut", done=False),
        streamed(HALF),
        streamed([*HALF, "{broken"]),
        streamed([*HALF, {"error": {"message": "no"}}]),
    ],
)
def test_passing_trouble_costs_tries_and_no_word_of_a_half_reply_stays(answer: Answer) -> None:
    reply = ask_once([answer, answer, streamed(chunks(completion("Whole.")))], tries=3)
    assert (reply.status, reply.content) == ("answered", "Whole.")


@pytest.mark.parametrize("stream", [True, False])
def test_reply_in_one_piece_that_breaks_off_is_an_outage(stream: bool) -> None:
    body = json.dumps(completion("Hello.")).encode()
    answer = Answer(pieces=(body[:-20],), then="cut")
    reply = ask_once(answer, tries=3, asked=request(stream=stream))
    assert reply.status == "outage"
    assert "connection failed" in reply.note
    page = ask_once(PAGE, tries=3, asked=request(stream=False))
    assert (page.status, page.message) == ("unreadable", None)


def test_stream_that_breaks_after_its_finish_reason_is_whole() -> None:
    """Only the count of tokens is lost."""
    values = chunks(completion("Hello."))[:-1]
    reply = ask_once(streamed(values, done=False, then="cut"))
    assert (reply.status, reply.content) == ("answered", "Hello.")
    assert (reply.n_prompt_tokens, reply.n_completion_tokens) == (None, None)


def test_nothing_is_waited_for_after_the_end_was_said() -> None:
    whole = streamed(chunks(completion("Hello.")))
    more = replace(whole, pieces=(*whole.pieces, b"data: more\n\n"), then="hangs")
    with ChatServer([more]) as server:
        with Wire(server.url, KEY, timeout_seconds=30.0, monotonic=time.monotonic) as wire:
            got = wire.post("/chat/completions", {"messages": []})
    assert (got.attempt.status, got.attempt.problem) == (200, "")
    assert got.attempt.body == b"".join(whole.pieces)


def test_service_says_how_long_to_wait() -> None:
    clock = Clock()
    script = [failing(429, retry_after="7"), failing(503, retry_after_ms="50")]
    with ChatServer(script) as server:
        (reply,) = endpoint_at(server, clock=clock).ask([request()])
    assert (reply.status, reply.tries) == ("answered", 3)
    assert clock.slept == [7.0, 0.05]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    "answer",
    [
        Answer(then="hangs"),
        streamed(HALF, done=False, then="hangs"),
        # Never silent for long, and never at its end.
        streamed([chunk({"content": "a"})], done=False, pause_s=0.03, repeats=True),
        Answer(status=500, pieces=(b" ",), pause_s=0.03, repeats=True),
    ],
)
def test_reply_that_does_not_end_in_time_is_an_outage(answer: Answer, stream: bool) -> None:
    reply = ask_once(
        answer, tries=2, asked=request(stream=stream), max_tries=2, timeout_seconds=0.2
    )
    assert reply.status == "outage"
    assert "no whole reply in time" in reply.note


def test_reply_that_is_endless_and_quick_is_an_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eps_locked.services.wire.MAX_REPLY_BYTES", 5000)
    answer = streamed([chunk({"content": "a" * 900})], done=False, repeats=True)
    reply = ask_once(answer, tries=1, max_tries=1)
    assert reply.status == "outage"
    assert "ended after" in reply.note
    assert "a reply of more than 5000 bytes" in reply.note


def test_error_that_is_endless_and_quick_is_told_by_its_status(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("eps_locked.services.wire.MAX_ERROR_BYTES", 100_000)
    endless = Answer(status=429, pieces=(b"x" * 50_000,), repeats=True)
    reply = ask_once(endless, max_tries=1)
    assert (reply.status, reply.note) == ("rate_limited", "HTTP 429")


@pytest.mark.parametrize("count", [-1, 2**53, 10**30, "7", True])
def test_count_of_tokens_that_is_none_is_not_recorded(count: Any) -> None:
    usage = {"prompt_tokens": 11, "completion_tokens": count}
    reply = ask_once(as_json(completion("Hello.", usage=usage)), asked=request(stream=False))
    assert (reply.n_prompt_tokens, reply.n_completion_tokens) == (11, None)


def test_killed_server_is_an_outage_of_what_was_on_its_way_and_of_the_rest() -> None:
    asked = requests(30)
    with ChatServer() as server:
        told = threading.Event()

        def die(seen: Seen) -> Answer:
            told.set()
            return streamed(HALF, done=False, then="hangs")

        server._script = [usual, usual, die]
        killer = threading.Thread(target=lambda: (told.wait(), server.kill()))
        killer.start()
        replies = endpoint_at(server, max_concurrency=1).ask(asked)
        killer.join()
    assert [one.status for one in replies] == ["answered"] * 2 + ["outage"] * 28
    assert all(one.content == "" for one in replies[2:])
    # The line is given up: nobody waits for a server that is gone, request by request.
    assert replies[-1].tries == 0
    assert "not sent: 10 requests in a row" in replies[-1].note
    with pytest.raises(BackendError, match="endpoint gateway: too many replies were lost"):
        require_replies(rules_for(Rules(), ROUTE), replies)


def test_service_that_is_not_there_is_an_outage() -> None:
    with ChatServer() as server:
        pass
    (reply,) = endpoint_at(server).ask([request()])
    assert (reply.status, reply.tries) == ("outage", 3)
    assert "connection failed" in reply.note


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (failing(400, "filtered", code="content_filter"), "filtered"),
        (failing(400, "litellm.ContentPolicyViolationError: no"), "filtered"),
        (as_json({"error": {"message": "no", "code": "content_filter"}}), "filtered"),
        (streamed([*HALF, {"error": {"code": "content_filter"}}]), "filtered"),
    ],
)
def test_content_filter_stops_one_request_and_not_the_call(answer: Answer, status: str) -> None:
    with ChatServer([answer]) as server:
        replies = endpoint_at(server, max_concurrency=1).ask(requests(2))
    assert [one.status for one in replies] == [status, "answered"]
    assert replies[0].tries == 1


@pytest.mark.parametrize(
    "answer",
    [
        failing(400, "Too many tokens", code="context_length_exceeded"),
        failing(400, "This model's maximum context length is 4096 tokens. However, you"),
        failing(400, "litellm.ContextWindowExceededError: no", code="400"),
        as_json({"error": {"type": "exceed_context_size_error", "message": "m", "code": 400}}, 400),
        as_json({"error": "Input validation error: `inputs` must have less than 9 tokens"}, 422),
        failing(400, "messages: the request is too long for the context: expected at most 9"),
        as_json({"error": {"message": "no", "code": "context_length_exceeded"}}),
    ],
)
def test_request_without_room_in_the_context_is_one_reply_that_is_missing(answer: Answer) -> None:
    """The others are answered, and it is no trouble of the line."""
    with ChatServer([answer]) as server:
        replies = endpoint_at(server, max_concurrency=1).ask(requests(2))
    assert [one.status for one in replies] == ["truncated", "answered"]
    assert (replies[0].content, replies[0].message, replies[0].tries) == ("", None, 1)
    assert replies[0].note.startswith("HTTP ")
    require_replies(rules_for(Rules(max_transport_share=0.0), ROUTE), replies)


@pytest.mark.parametrize(
    ("answer", "named"),
    [
        (failing(400, "seed is not supported"), "seed is not supported"),
        (as_json({"error": "no such model"}, 404), "no such model"),
        (as_json({"detail": [{"loc": ["body", "seed"], "msg": "odd"}]}, 422), "body.seed: odd"),
        (failing(401, f"Incorrect API key provided: {KEY}"), "CHAT_KEY"),
        (failing(403, f"{KEY} may not"), "CHAT_KEY"),
        (failing(404, f"no such model for {KEY}"), ROUTE),
        (failing(429, "no", code="insufficient_quota"), "account"),
        (Answer(status=307, headers={"location": "http://127.0.0.1:9/"}), "HTTP 307"),
        (Answer(status=302, headers={"location": "/v1/models"}), "no redirect is followed"),
        (as_json({"error": {"message": "no such route", "code": 404}}), "no such route"),
    ],
)
def test_final_refusal_stops_the_call(
    answer: Answer, named: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with ChatServer([answer] * 30) as server:
        endpoint = endpoint_at(server, max_concurrency=2)
        with pytest.raises(BackendError, match="endpoint gateway: the service refused") as caught:
            endpoint.ask(requests(30))
    assert named in str(caught.value)
    assert KEY not in f"{caught.value} {caplog.text}"
    assert len(server.seen) == endpoint.n_sent <= 2


# --- the key


def test_key_is_sent_if_there_is_one_and_nothing_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_ADMIN_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"):
        monkeypatch.setenv(name, "of-the-machine")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    # A server on this machine is not asked through a proxy.
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    with ChatServer() as server:
        for key in (KEY, None):
            endpoint = endpoint_at(server, key)
            assert endpoint.ask([request()])[0].is_answered
            endpoint.identity(ROUTE)
    given = [one.headers.get("authorization") for one in server.seen]
    assert given == [f"Bearer {KEY}", f"Bearer {KEY}", None, None]
    assert "of-the-machine" not in json.dumps([dict(one.headers) for one in server.seen])


@pytest.mark.parametrize("stream", [True, False])
def test_reply_that_quotes_the_key_is_not_kept_however_it_comes(
    stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """In pieces of four letters no single one holds the key."""
    caplog.set_level(logging.DEBUG)
    for whole in (
        completion(f"Your key is {KEY}."),
        completion(f"Your key is <think>{KEY[:9]}</think>{KEY}."),
        completion("Hello.", reasoning_content=f"Thinking of {KEY}"),
        completion("Hello.", refusal=KEY),
        completion(None, "tool_calls", tool_calls=[call("send", json.dumps({"key": KEY}))]),
        completion("Hello.", f"because of {'x' * 40}{KEY}"),
    ):
        answer = streamed(chunks(whole)) if stream else as_json(whole)
        with ChatServer([answer] * 3) as server:
            (reply,) = endpoint_at(server).ask([request(stream=stream)])
        assert (reply.status, reply.message, reply.content) == ("unreadable", None, "")
        assert "key" in reply.note
        assert KEY not in f"{reply!r} {caplog.text}"
        assert KEY[:12] not in f"{reply!r} {caplog.text}"


def test_wrong_key_is_never_shown(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with ChatServer() as server:
        endpoint = endpoint_at(server, "sk-wrong-secret")
        for act in (lambda: endpoint.ask([request()]), lambda: endpoint.identity(ROUTE)):
            with pytest.raises(BackendError, match="CHAT_KEY") as caught:
                act()
            error: BaseException | None = caught.value
            while error is not None:
                assert "secret" not in f"{error} {error!r} {vars(error)}"
                error = error.__cause__ or error.__context__
    assert "secret" not in f"{caplog.text} {endpoint!r}"


def test_every_request_is_logged_without_key_or_words(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with ChatServer([BUSY]) as server:
        endpoint_at(server).ask([request()])
    ours = [one.getMessage() for one in caplog.records if one.name.startswith("eps_locked")]
    assert [line.split(", ")[1] for line in ours] == ["try 1 of 3: 429", "try 2 of 3: 200"]
    assert all(line.startswith("endpoint gateway: request ") for line in ours)
    assert "question 0" not in " ".join(ours)


# --- identity


def listing(*entries: dict[str, Any]) -> Answer:
    return as_json({"object": "list", "data": list(entries)})


def test_identity_is_what_the_endpoint_itself_says() -> None:
    entry = {"id": ROUTE, "created": 7, "owned_by": "us", "context": 2048, "key": f"x {KEY}"}
    with ChatServer(listing=listing({"id": "other"}, entry)) as server:
        identity = endpoint_at(server).identity(ROUTE)
    assert identity.to_dict() == {
        "kind": "openai",
        "model": ROUTE,
        "server": identity.server,
        "said": {"context": "2048", "key": "x [key]", "owned_by": "us"},
        "publishable": True,
    }
    assert identity.server.startswith("BaseHTTP")
    assert server.seen[0].path == "/v1/models"


def test_long_word_of_an_endpoint_is_told_from_one_that_begins_alike() -> None:
    said = []
    for end in ("a", "b", "\ud800"):
        entry = {"id": ROUTE, "chat_template": f"{'{% if tools %}' * 40}{KEY}{end}", "short": end}
        with ChatServer(listing=listing(entry)) as server:
            said.append(endpoint_at(server).identity(ROUTE).said["chat_template"])
    assert len(set(said)) == 3
    assert all(one.startswith("{% if tools %}") and "... blake3:" in one for one in said)
    assert max(map(len, said)) <= 200


def test_server_that_calls_itself_a_rehearsal_is_not_published() -> None:
    with ChatServer(listing=listing({"id": ROUTE, "eps_locked": {"publishable": False}})) as server:
        assert endpoint_at(server).identity(ROUTE).publishable is False


@pytest.mark.parametrize("status", [404, 405, 501])
def test_endpoint_without_a_list_says_nothing_and_is_not_refused(status: int) -> None:
    with ChatServer(listing=failing(status)) as server:
        endpoint = endpoint_at(server)
        identity = endpoint.identity(ROUTE)
    assert (identity.said, identity.model) == ({}, ROUTE)
    assert endpoint.n_sent == 1


def test_route_that_is_not_there_is_refused_with_those_that_are() -> None:
    entries = ({"id": "b"}, {"id": f"a-{KEY}"})
    with ChatServer(listing=listing(*entries)) as server:
        with pytest.raises(BackendError, match="no such route") as caught:
            endpoint_at(server).identity(ROUTE)
    assert caught.value.found == ROUTE
    assert caught.value.details == ("has: a-[key]", "has: b")
    with ChatServer(listing=listing()) as server:
        with pytest.raises(BackendError, match="has: none"):
            endpoint_at(server).identity(ROUTE)


@pytest.mark.parametrize("answer", [PAGE, BROKEN, BUSY, as_json({"data": 7})])
def test_list_that_cannot_be_read_is_an_error_after_all_tries(answer: Answer) -> None:
    with ChatServer(listing=answer) as server:
        endpoint = endpoint_at(server)
        with pytest.raises(BackendError, match="its list of models could not be read"):
            endpoint.identity(ROUTE)
    assert endpoint.n_sent == 3


# --- making one, and what was lost


def test_plan_makes_the_endpoint_with_the_key_of_its_variable() -> None:
    environ = {"CHAT_KEY": KEY, "OPENAI_API_KEY": "other"}
    with ChatServer() as server:
        named = Rules(url=server.url, max_concurrency=1)
        assert make_endpoint(named, environ).ask([request()])[0].is_answered
        # A server that was started for the plan, which could not name it.
        started = make_endpoint(Rules(api_key_env=None), {}, url=server.url, kind="serve")
        assert started.ask([request()])[0].is_answered
        assert started.identity(ROUTE).kind == "serve"
    given = [one.headers.get("authorization") for one in server.seen]
    assert given == [f"Bearer {KEY}", None, None]


@pytest.mark.parametrize(
    ("rules", "environ", "problem"),
    [
        (Rules(url="http://h/v1"), {}, "CHAT_KEY is not set"),
        (Rules(url="http://h/v1"), {"CHAT_KEY": "two words"}, "cannot be sent"),
        (Rules(url="http://u:secret@h/v1", api_key_env=None), {}, "cannot be used"),
        (Rules(url="http://u:secret@h/v1"), {}, "CHAT_KEY is not set"),
        (Rules(api_key_env=None), {}, "cannot be used"),
        (
            Rules(url="http://h/v1", api_key_env=None),
            {"OPENAI_CUSTOM_HEADERS": "x-secret: 1"},
            "unset OPENAI_CUSTOM_HEADERS",
        ),
    ],
)
def test_endpoint_that_cannot_be_made_is_refused_before_anything_is_sent(
    rules: Rules, environ: dict[str, str], problem: str
) -> None:
    with pytest.raises(BackendError, match=problem) as caught:
        make_endpoint(rules, environ)
    assert "endpoint gateway" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_missing_extra_is_named_with_its_install_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("chat", "wire"):
        monkeypatch.delitem(sys.modules, f"eps_locked.services.{name}", raising=False)
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(BackendError, match=r"pip install 'eps-locked\[judges\]'") as caught:
        make_endpoint(Rules(url="http://h/v1", api_key_env=None), {})
    assert "openai" in str(caught.value)


def test_vendor_is_imported_only_when_an_endpoint_is_made() -> None:
    program = (
        "import sys, eps_locked.services.make, eps_locked.services.line; "
        "import eps_locked.services.replies; "
        "print(sorted({'openai', 'httpx2'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def replies_of(*answers: Answer) -> tuple[ChatReply, ...]:
    with ChatServer(answers) as server:
        return endpoint_at(server, max_concurrency=1, max_tries=1).ask(requests(len(answers)))


def test_lost_replies_are_counted_and_odd_ones_are_not() -> None:
    good = streamed(chunks(completion()))
    odd = [
        streamed(chunks(completion("a", "eos"))),
        streamed(chunks(completion(""))),
        streamed(chunks(completion("a", "length"))),
        failing(400, code="content_filter"),
    ]
    none = rules_for(Rules(max_transport_share=0.0), ROUTE)
    require_replies(none, replies_of(good, *odd))
    require_replies(none, ())
    for lost, found in ((BUSY, "1 rate_limited"), (BROKEN, "1 outage"), (PAGE, "1 unreadable")):
        with pytest.raises(BackendError, match="too many replies were lost") as caught:
            require_replies(none, replies_of(good, lost))
        assert caught.value.found == f"1 ({found})"
        require_replies(rules_for(Rules(max_transport_share=0.5), ROUTE), replies_of(good, lost))


def test_events_of_this_server_are_those_of_the_standard() -> None:
    assert events([{"a": 1}]) == [b'data: {"a": 1}\n\n', b"data: [DONE]\n\n"]
