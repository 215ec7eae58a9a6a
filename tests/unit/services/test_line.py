"""A line is not a judge's alone: its words are its user's, and a refusal ends it at once.

Tries, delays, final refusals and the striking of keys are tested through the judge's line, in
tests/unit/judges/test_transport.py.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ALL_COMPLETED, Future
from concurrent.futures import wait as real_wait
from typing import Any, Literal

import pytest

from eps_locked.errors import BackendError
from eps_locked.services import line as line_module
from eps_locked.services.line import GIVE_UP_AFTER, Attempt, Delivery, Line, LineWords, ask_all
from eps_locked.services.rules import (
    key_from,
    require_endpoint,
    require_key,
    require_no_headers,
    require_share,
    rules_for,
)
from sim.chat_server import KEY, Rules

Word = Literal["busy", "down", "barred", "noise"]
WORDS: LineWords[Word] = LineWords(
    service="oracle", rate_limited="busy", outage="down", filtered="barred", garbled="noise"
)
FILTERED = b'{"error": {"code": "content_filter", "message": "m"}}'


def answer(status: int | None, body: bytes = b"good", problem: str = "") -> Attempt:
    return Attempt(status=status, headers={}, body=body, problem=problem)


def new_line(**changes: Any) -> Line[Word]:
    rules = rules_for(Rules(name="delphi", **changes), "pythia")
    return Line(rules, KEY, WORDS, sleep=lambda seconds: None)


def send(line: Line[Word], attempt: Callable[[], Attempt]) -> Delivery[bytes, Word]:
    return line.send("a" * 64, attempt, read_good)


def read_good(body: bytes) -> bytes:
    if body != b"good":
        raise ValueError("no good")
    return body


@pytest.mark.parametrize(
    ("got", "word", "tries"),
    [
        (answer(429), "busy", 3),
        (answer(503), "down", 3),
        (answer(None, problem="cut"), "down", 3),
        (answer(200, b"<html>"), "noise", 3),
        (answer(400, FILTERED), "barred", 1),
    ],
)
def test_failures_have_the_words_of_the_lines_user(got: Attempt, word: Word, tries: int) -> None:
    sent = send(new_line(), lambda: got)
    assert (sent.reply, sent.failure, sent.tries) == (None, word, tries)


def test_refusal_is_told_in_the_name_of_the_service_and_the_model() -> None:
    body = b'{"error": {"message": "no such thing"}}'
    with pytest.raises(
        BackendError, match="oracle delphi: the service refused a request"
    ) as caught:
        send(new_line(), lambda: answer(404, body))
    assert "an answer of model pythia" in str(caught.value)
    assert "check model pythia" in str(caught.value)


def test_what_is_not_sent_after_noise_was_not_noise() -> None:
    line = new_line(max_tries=1)
    for _ in range(GIVE_UP_AFTER):
        assert send(line, lambda: answer(200, b"<html>")).failure == "noise"
    sent = send(line, lambda: answer(200))
    assert (sent.failure, sent.tries) == ("down", 0)
    assert line.n_sent == GIVE_UP_AFTER


@pytest.mark.parametrize("status", [307, 400, 401, 404])
def test_no_request_is_sent_after_a_refusal_was_met(status: int) -> None:
    line = new_line()
    with pytest.raises(BackendError):
        send(line, lambda: answer(status))
    assert line.stop.is_set()
    after = send(line, lambda: answer(200))
    assert (after.failure, after.tries, line.n_sent) == ("down", 0, 1)


def test_thread_between_its_tries_sends_nothing_after_anothers_refusal() -> None:
    """The refusal comes while the other request waits for its second try."""
    line = new_line()

    def refused_meanwhile(seconds: float) -> None:
        with pytest.raises(BackendError):
            send(line, lambda: answer(401))

    line._sleep = refused_meanwhile
    sent = send(line, lambda: answer(503))
    assert (sent.failure, sent.tries, line.n_sent) == ("down", 1, 2)


def late_waiter(
    futures: Iterable[Future[Any]], timeout: float | None = None, return_when: str = ""
) -> Any:
    """A main thread that a busy machine lets look again only when all is over."""
    return real_wait(set(futures), return_when=ALL_COMPLETED)


@pytest.mark.parametrize("n_threads", [1, 2])
def test_refusal_ends_the_call_even_if_the_pool_notices_late(
    n_threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_module, "wait", late_waiter)
    line = new_line()
    together = threading.Barrier(n_threads)

    def attempt() -> Attempt:
        together.wait(timeout=10)  # all threads are on their way before one is refused
        return answer(307)

    with pytest.raises(BackendError, match="HTTP 307"):
        ask_all(
            range(50),
            lambda number: send(line, attempt),
            max_concurrency=n_threads,
            stop=line.stop,
        )
    assert line.n_sent == n_threads


def test_error_of_our_own_ends_the_call_even_if_the_pool_notices_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(line_module, "wait", late_waiter)
    line = new_line()

    def ask(number: int) -> None:
        send(line, lambda: answer(200))
        raise ValueError("ours")

    with pytest.raises(ValueError, match="ours"):
        ask_all(range(50), ask, max_concurrency=1, stop=line.stop)
    assert line.n_sent == 1


def test_last_request_may_be_sent_when_all_is_over() -> None:
    """A batch is cancelled after the refusal that ended the call."""
    line = new_line()
    line.stop.set()
    assert line.once("b" * 64, lambda: answer(200)).status == 200
    assert line.n_sent == 1


# --- rules


def test_lost_requests_are_counted_in_the_words_of_the_lines_user() -> None:
    rules = rules_for(Rules(name="delphi", max_transport_share=0.5), "pythia")
    lost = [("down", "HTTP 503"), ("busy", "HTTP 429")]
    require_share(rules, lost, 4, service="oracle", what="sayings")
    require_share(rules, [], 0, service="oracle", what="sayings")
    with pytest.raises(BackendError) as caught:
        require_share(rules, lost, 3, service="oracle", what="sayings")
    assert "oracle delphi: too many sayings were lost" in str(caught.value)
    assert (caught.value.found, caught.value.expected) == (
        "2 (1 busy, 1 down)",
        "at most 50.0% of 3",
    )


def test_key_comes_from_the_variable_of_the_plan_and_no_other() -> None:
    rules = rules_for(Rules(), "m")
    environ = {"CHAT_KEY": KEY, "OTHER": "secret"}
    assert key_from(rules, environ, service="oracle", where="x") == KEY
    keyless = rules_for(Rules(api_key_env=None), "m")
    assert key_from(keyless, environ, service="oracle", where="x") is None
    with pytest.raises(BackendError, match="CHAT_KEY is not set") as caught:
        key_from(rules, {"OTHER": "secret"}, service="oracle", where="x")
    assert "a plan whose oracle needs no key" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_key_address_and_headers_are_refused_in_the_name_of_the_service() -> None:
    rules = rules_for(Rules(name="delphi"), "m")
    with pytest.raises(BackendError, match="oracle delphi: the key in CHAT_KEY"):
        require_key(rules, "two words", service="oracle")
    with pytest.raises(BackendError, match="oracle delphi: the endpoint") as caught:
        require_endpoint(rules, "https://user:secret@host/v1", service="oracle")
    assert "secret" not in str(caught.value)
    require_no_headers(rules, {}, "X_HEADERS", service="oracle")
    with pytest.raises(BackendError, match=r"oracle delphi: .* X_HEADERS") as caught:
        require_no_headers(rules, {"X_HEADERS": "secret"}, "X_HEADERS", service="oracle")
    assert "secret" not in str(caught.value)
