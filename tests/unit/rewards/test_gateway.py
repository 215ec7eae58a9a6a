"""The reward model behind HTTP: each form, each way to fail, and no key in anything it says."""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import pytest

from eps_locked.domain.reward import RewardRequest, RewardScore
from eps_locked.errors import BackendError

pytest.importorskip("httpx2", reason="the judges extra is not installed")

from eps_locked.rewards.gateway import Api, GatewayReward
from sim.reward_server import Service, reward_server

KEY = "sk-test-3f9a1c77-not-a-real-key"
TOO_LONG = (
    "This model's maximum context length is 8 tokens. However, you requested 9 tokens in the input."
)


@dataclass(frozen=True, kw_only=True)
class Rules:
    endpoint: str
    api: Api = "pooling"
    name: str = "served"
    model: str = "rm"
    api_key_env: str | None = "RM_KEY"
    max_concurrency: int = 1
    max_tries: int = 3
    timeout_seconds: float = 5
    max_transport_share: float = 1


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.upper().endswith("_PROXY"):
            monkeypatch.delenv(name)


@pytest.fixture
def service() -> Iterator[Service]:
    with reward_server() as one:
        yield one


def request(number: int = 1) -> RewardRequest:
    return RewardRequest(key=f"item/{number}", user_prompt="Why?", response="x" * number)


def ask(service: Service, *requests: RewardRequest, **rules: Any) -> tuple[RewardScore, ...]:
    model = GatewayReward(Rules(endpoint=service.url, **rules), KEY, sleep=lambda seconds: None)
    return model.score(requests or (request(),))


def pooled(data: Any) -> dict[str, Any]:
    return {"model": "rm-2", "data": [{"index": 0, "object": "pooling", "data": data}]}


# -- what is asked, and what is read


@pytest.mark.parametrize(
    ("api", "path", "more", "reply"),
    [
        ("pooling", "/pooling", {"encoding_format": "float"}, lambda x: pooled([x])),
        ("pooling", "/pooling", {"encoding_format": "float"}, lambda x: pooled([[x]])),
        (
            "classify",
            "/classify",
            {"use_activation": False},
            lambda x: {"model": "rm-2", "data": [{"label": None, "probs": [x], "num_classes": 1}]},
        ),
        ("plain", "/", {}, lambda x: {"score": x}),
    ],
)
def test_each_form_sends_both_turns_and_reads_its_one_number(
    service: Service, api: Api, path: str, more: dict[str, Any], reply: Callable[[float], Any]
) -> None:
    service.form = reply
    scores = ask(service, request(3), request(5), api=api)
    assert [(one.status, one.value, one.tries) for one in scores] == [
        ("scored", 3.0, 1),
        ("scored", 5.0, 1),
    ]
    asked, headers, body = service.seen[0]
    assert asked == path
    assert headers["Authorization"] == f"Bearer {KEY}"
    assert body == {
        "model": "rm",
        "messages": [
            {"role": "user", "content": "Why?"},
            {"role": "assistant", "content": "xxx"},
        ],
        **more,
    }


def test_many_at_once_keep_their_order_and_their_tokens(service: Service) -> None:
    scores = ask(service, *(request(number) for number in range(1, 30)), max_concurrency=4)
    assert [one.value for one in scores] == [float(number) for number in range(1, 30)]
    assert {one.n_tokens for one in scores} == {7}


def test_without_a_variable_no_key_is_sent(service: Service) -> None:
    model = GatewayReward(Rules(endpoint=service.url, api_key_env=None), None)
    assert model.score([request()])[0].is_scored
    assert "Authorization" not in service.seen[0][1]


@pytest.mark.parametrize(
    ("reply", "status", "note"),
    [
        (pooled([[0.1], [0.2]]), "unreadable", "2 numbers"),
        (pooled([0.1, 0.9]), "unreadable", "2 numbers"),
        (pooled("AAAA"), "unreadable", "a str"),
        (pooled([True]), "unreadable", "a bool"),
        (pooled([None]), "not_finite", "null"),
        (b'{"data": [{"data": [NaN]}]}', "not_finite", "nan"),
        (b'{"data": [{"data": [-Infinity]}]}', "not_finite", "-inf"),
        (b'{"data": [{"data": [-1e61]}]}', "not_finite", "-1e+61"),
        (b'{"data": [{"data": [1' + b"0" * 400 + b"]}]}", "not_finite", "inf"),
    ],
)
def test_a_reply_without_one_number_is_no_score(
    service: Service, reply: Any, status: str, note: str
) -> None:
    service.script = [(200, reply, {})]
    (score,) = ask(service)
    assert (score.status, score.value) == (status, None)
    assert note in score.note
    assert len(service.seen) == 1


@pytest.mark.parametrize(
    ("body", "note"),
    [
        (b'{"data": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deeply"),
        (b'{"data": [{"data": [1], "data": [2]}]}', "a key is there twice"),
    ],
)
def test_a_reply_that_two_readers_would_read_apart_is_an_outage(
    service: Service, body: bytes, note: str
) -> None:
    service.script = [(200, body, {})] * 3
    (score,) = ask(service)
    assert (score.status, score.value, score.tries) == ("outage", None, 3)
    assert note in score.note


@pytest.mark.parametrize("status", [400, 413, 422])
def test_an_exchange_that_does_not_fit_is_truncated_and_never_cut(
    service: Service, status: int
) -> None:
    error = {"error": {"message": TOO_LONG, "type": "BadRequestError", "code": 400}}
    service.script = [(status, error, {})]
    first, second = ask(service, request(1), request(2))
    assert (first.status, first.value) == ("truncated", None)
    assert "maximum context length" in first.note
    assert second.is_scored
    assert all("truncate_prompt_tokens" not in body for _, _, body in service.seen)


def test_a_filter_refuses_one_response_and_not_the_plan(service: Service) -> None:
    error = {"error": {"code": "content_filter", "message": "no"}}
    service.script = [(400, error, {})]
    assert [one.status for one in ask(service, request(1), request(2))] == ["refused", "scored"]


# -- the line


@pytest.mark.parametrize(
    ("answers", "status", "tries"),
    [
        ([(429, {}, {"retry-after": "1"})], "scored", 2),
        ([(500, b"<html>", {}), (503, b"", {})], "scored", 3),
        ([(429, {}, {})] * 3, "rate_limited", 3),
        ([(500, {}, {})] * 3, "outage", 3),
        ([(200, b"<html>a proxy</html>", {})] * 3, "outage", 3),
        ([(200, {"error": {"message": "worker died"}}, {})] * 3, "outage", 3),
        ([(500, {}, {"x-should-retry": "false"})], "outage", 1),
    ],
)
def test_what_passes_is_tried_again_and_what_does_not_is_no_score(
    service: Service, answers: list[Any], status: str, tries: int
) -> None:
    service.script = list(answers)
    (score,) = ask(service)
    assert (score.status, score.tries) == (status, tries)
    assert (score.value is None) == (status != "scored")


def test_a_service_that_is_gone_is_an_outage(service: Service) -> None:
    rules = Rules(endpoint="http://127.0.0.1:9", max_tries=2)
    (score,) = GatewayReward(rules, None, sleep=lambda seconds: None).score([request()])
    assert (score.status, score.tries) == ("outage", 2)


def test_a_reply_that_drips_or_never_ends_is_cut_off(service: Service) -> None:
    service.script = [(200, b'{"score": 1' + b" " * 1_000_001 + b"}", {})] * 3
    (score,) = ask(service, api="plain")
    assert (score.status, score.note) == ("outage", "a reply of more than 1000000 bytes")
    with dripping() as url:
        rules = Rules(endpoint=url, max_tries=1, timeout_seconds=0.1)
        (score,) = GatewayReward(rules, KEY).score([request()])
    assert (score.status, score.note) == ("outage", "no whole reply in time")


@contextmanager
def dripping() -> Iterator[str]:
    """A service whose reply goes on until nobody listens, a byte at a time."""
    listener = socket.create_server(("127.0.0.1", 0))

    def drip() -> None:
        line, _ = listener.accept()
        with line, suppress(OSError):
            line.recv(65536)
            line.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n{")
            while True:
                line.sendall(b" ")
                time.sleep(0.01)

    thread = threading.Thread(target=drip)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        thread.join()
        listener.close()


def test_a_service_on_this_machine_is_reached_past_every_proxy(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    (score,) = ask(service)
    assert score.status == "scored"


def test_more_losses_than_the_plan_allows_stop_the_step(service: Service) -> None:
    service.script = [(500, {}, {})]
    with pytest.raises(BackendError, match="too many scores were lost on the line") as caught:
        ask(service, request(1), request(2), max_tries=1, max_transport_share=0.4)
    assert "1 outage" in str(caught.value)


@pytest.mark.parametrize(
    ("status", "words"),
    [(401, "authentication_error"), (404, "not_found_error"), (400, "invalid_request_error")],
)
def test_what_no_retry_could_mend_raises_without_the_key(
    service: Service, status: int, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    service.script = [(status, {"error": {"message": f"key {KEY} does not fit"}}, {})]
    with pytest.raises(BackendError, match="reward model served") as caught:
        ask(service)
    assert words in str(caught.value)
    assert KEY not in str(caught.value)
    assert KEY not in repr(caught.value.__cause__)
    assert KEY not in caplog.text
    assert len(service.seen) == 1


def test_a_service_that_quotes_the_key_puts_it_into_no_record(service: Service) -> None:
    service.script = [(429, {"error": {"type": KEY}}, {})] * 3
    service.form = lambda score: {**pooled([score]), "model": f"rm {KEY}"}
    model = GatewayReward(Rules(endpoint=service.url), KEY, sleep=lambda seconds: None)
    scores = model.score([request(1), request(2)])
    kept = json.dumps([*(one.to_dict() for one in scores), model.identity.to_dict()])
    assert [one.status for one in scores] == ["rate_limited", "scored"]
    assert KEY not in kept
    assert "[key]" in kept


# -- who answered


def test_the_identity_says_what_was_asked_and_what_answered(service: Service) -> None:
    model = GatewayReward(Rules(endpoint=service.url), KEY)
    assert model.identity.settings["answered_by"] == "not said"
    model.score([request()])
    assert model.identity.settings["answered_by"] == "rm-2"
    assert (model.identity.kind, model.identity.model) == ("gateway", "rm")
    assert model.identity.settings["endpoint"] == service.url


def test_two_models_behind_one_route_are_refused(service: Service) -> None:
    service.script = [(200, {**pooled([1.0]), "model": "rm-1"}, {})]
    with pytest.raises(BackendError, match="answered as more than one model") as caught:
        ask(service, request(1), request(2))
    assert "rm-1, rm-2" in str(caught.value)


@pytest.mark.parametrize("endpoint", ["ftp://host", "http://user:word@host", "http://host?key=1"])
def test_an_endpoint_that_may_hold_a_secret_is_refused_unseen(endpoint: str) -> None:
    with pytest.raises(BackendError, match="endpoint of the plan cannot be used") as caught:
        GatewayReward(Rules(endpoint=endpoint), None)
    assert endpoint not in str(caught.value)


def test_a_key_that_cannot_be_sent_is_refused_unseen(service: Service) -> None:
    with pytest.raises(BackendError, match="the key in RM_KEY cannot be sent") as caught:
        GatewayReward(Rules(endpoint=service.url), "two words\n")
    assert "two words" not in str(caught.value)
