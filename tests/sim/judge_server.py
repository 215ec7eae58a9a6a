"""A judge's service on 127.0.0.1: Messages, Message Batches and chat completions.

It answers with the objects and headers of the real services, in the order of a script or from a
function of the request, counts and keeps every request, and refuses what the real ones refuse: a
wrong key, a missing version header, a sampling temperature, a schema with bounds of numbers.
Unscripted requests get a verdict that depends on the question, so that a test sees at once whether
every verdict stands beside its own question.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

from eps_locked.domain.judging import JudgePlan, JudgeRequest, Rubric

KEY = "sk-test-3f9a1c77-not-a-real-key"
MODEL = "claude-sonnet-5-5"
VERSION = "2026-10-21"
LABELS = ("yes", "no", "code")


@dataclass(frozen=True, kw_only=True)
class Answer:
    """One HTTP answer. ``drop_after``: that many bytes of the body, then the line is cut.
    ``hangs``: nothing comes until the server closes."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    drop_after: int | None = None
    hangs: bool = False


@dataclass(frozen=True, kw_only=True)
class Seen:
    method: str
    path: str
    headers: Mapping[str, str]
    body: Any


Respond = Callable[[Seen], Answer]


def as_json(value: Any, status: int = 200, **headers: str) -> Answer:
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    return Answer(status=status, body=json.dumps(value).encode(), headers=named)


def error_body(error_type: str, message: str) -> dict[str, Any]:
    error = {"type": error_type, "message": message}
    return {"type": "error", "error": error, "request_id": "req_1"}


def failing(status: int, error_type: str, message: str = "no", **headers: str) -> Answer:
    return as_json(error_body(error_type, message), status, **headers)


BUSY = failing(429, "rate_limit_error")
OVERLOADED = failing(529, "overloaded_error")
BROKEN = failing(500, "api_error")


def message(text: str, stop_reason: str = "end_turn", **more: Any) -> dict[str, Any]:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": f"{MODEL}-20261001",
        "content": [{"type": "text", "text": text}] if text else [],
        "stop_reason": stop_reason,
        "stop_sequence": None,
        "usage": {"input_tokens": 10, "output_tokens": 10},
        **more,
    }


def completion(text: str | None, finish_reason: str | None = "stop", **more: Any) -> dict[str, Any]:
    reply = {"role": "assistant", "content": text, **more}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "llama-3.3-70b-instruct",
        "choices": [{"index": 0, "message": reply, "finish_reason": finish_reason}],
    }


def question_number(text: str) -> int:
    """The number N of ``question N.`` in what a judge was asked."""
    return int(text.split("question ")[1].split(".")[0])


def verdict_text(number: int) -> str:
    """What this service says about question ``number``."""
    label = LABELS[number % 2]
    return json.dumps({"reason": f"because of {number}", "label": label, "worth": number % 101})


def expected(number: int) -> tuple[str, dict[str, float]]:
    return LABELS[number % 2], {"worth": float(number % 101)}


def verdict_for(params: Mapping[str, Any]) -> str:
    return verdict_text(question_number(params["messages"][0]["content"]))


class JudgeServer:
    """Use as a context manager. ``script`` answers the first requests that ask for a verdict (a
    message, a completion or the creation of a batch), in the order of their arrival.

    Batches: ``n_polls`` polls find it in progress. ``results`` makes the lines from the requests
    of the batch. ``script_polls`` and ``script_results`` answer the first polls and fetches.
    """

    def __init__(
        self,
        script: Sequence[Answer | Respond] = (),
        *,
        n_polls: int = 2,
        results: Callable[[list[Mapping[str, Any]]], list[Mapping[str, Any]]] | None = None,
        script_polls: Sequence[Answer | Respond] = (),
        script_results: Sequence[Answer | Respond] = (),
        results_host: str | None = None,
    ) -> None:
        self.seen: list[Seen] = []
        self.batches: dict[str, list[Mapping[str, Any]]] = {}
        self.cancelled: list[str] = []
        self._script = list(script)
        self._polls = list(script_polls)
        self._fetches = list(script_results)
        self._n_polls = n_polls
        self._n_polled = 0
        self._results = results or succeed_backwards
        self._results_host = results_host
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._http.daemon_threads = True
        self._thread = threading.Thread(
            target=self._http.serve_forever, kwargs={"poll_interval": 0.01}
        )

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    def __enter__(self) -> JudgeServer:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._closing.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def asked(self, path: str) -> list[Seen]:
        with self._lock:
            return [one for one in self.seen if one.path == path]

    def answer(self, seen: Seen) -> Answer:
        with self._lock:
            self.seen.append(seen)
            return self._answer(seen)

    def wait_for_close(self) -> None:
        self._closing.wait()

    def _answer(self, seen: Seen) -> Answer:
        refused = _refuse(seen)
        if refused is not None:
            return refused
        route = (seen.method, seen.path)
        if route == ("POST", "/v1/messages"):
            return self._next(self._script, seen) or as_json(message(verdict_for(seen.body)))
        if route == ("POST", "/v1/chat/completions"):
            return self._next(self._script, seen) or as_json(completion(verdict_for(seen.body)))
        if route == ("POST", "/v1/messages/batches"):
            return self._next(self._script, seen) or self._create(seen)
        name, _, action = seen.path.removeprefix("/v1/messages/batches/").partition("/")
        if name not in self.batches:
            return failing(404, "not_found_error")
        if action == "cancel":
            self.cancelled.append(name)
            return as_json(self._batch(name, "canceling"))
        if action == "results":
            return self._next(self._fetches, seen) or self._lines(name)
        return self._next(self._polls, seen) or self._poll(name)

    def _next(self, script: list[Answer | Respond], seen: Seen) -> Answer | None:
        if not script:
            return None
        step = script.pop(0)
        return step if isinstance(step, Answer) else step(seen)

    def _create(self, seen: Seen) -> Answer:
        name = f"msgbatch_{len(self.batches) + 1}"
        self.batches[name] = seen.body["requests"]
        self._n_polled = 0
        return as_json(self._batch(name, "in_progress"))

    def _poll(self, name: str) -> Answer:
        self._n_polled += 1
        ended = self._n_polled > self._n_polls
        return as_json(self._batch(name, "ended" if ended else "in_progress"))

    def _lines(self, name: str) -> Answer:
        lines = self._results(self.batches[name])
        # Not escaped: texts may hold what is an end of line to Python and not to JSON Lines.
        text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        return Answer(body=text.encode(), headers={"content-type": "application/binary"})

    def _batch(self, name: str, status: str) -> dict[str, Any]:
        host = self._results_host or self.url
        ended = status == "ended"
        return {
            "id": name,
            "type": "message_batch",
            "processing_status": status,
            "request_counts": dict.fromkeys(
                ("processing", "succeeded", "errored", "canceled", "expired"), 0
            ),
            "created_at": "2026-11-30T00:00:00Z",
            "expires_at": "2026-12-01T00:00:00Z",
            "ended_at": "2026-11-30T00:10:00Z" if ended else None,
            "cancel_initiated_at": None,
            "archived_at": None,
            "results_url": f"{host}/v1/messages/batches/{name}/results" if ended else None,
        }


def succeeded(request: Mapping[str, Any], body: Any = None) -> dict[str, Any]:
    """The line of one request of a batch that got its verdict, or this body."""
    own = message(verdict_for(request["params"])) if body is None else body
    return {
        "custom_id": request["custom_id"],
        "result": {"type": "succeeded", "message": own},
    }


def errored(request: Mapping[str, Any], error_type: str, words: str = "") -> dict[str, Any]:
    error = error_body(error_type, words or f"about {error_type}")
    return {"custom_id": request["custom_id"], "result": {"type": "errored", "error": error}}


def ended_as(request: Mapping[str, Any], kind: str) -> dict[str, Any]:
    return {"custom_id": request["custom_id"], "result": {"type": kind}}


def succeed_backwards(requests: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [succeeded(request) for request in reversed(requests)]


def small_rubric() -> Rubric:
    return Rubric(
        name="small",
        instructions="Judge. {question} The answer: {answer} Say it in JSON.",
        labels=LABELS,
        scores=("worth",),
        expressed=("yes",),
        excluded=("code",),
        max_tokens=600,
        prototypes={},
        poles={},
        phrases={},
        licence="CC0-1.0",
        provenance="made for tests",
    )


def small_plan(kind: str = "anthropic", **changes: Any) -> JudgePlan:
    values: dict[str, Any] = {
        "name": "referee",
        "kind": kind,
        "family": "claude",
        "model": MODEL,
        "endpoint": None,
        "api_key_env": "JUDGE_KEY",
        "api_version": VERSION,
        "temperature": 0.0 if kind == "gateway" else None,
        "effort": "low" if kind == "anthropic" else None,
        "max_concurrency": 4,
        "max_tries": 3,
        "timeout_seconds": 30.0,
        "batch_from": None,
        "max_transport_share": 0.1,
    }
    given = {**values, **changes}
    if given["temperature"] is None:
        del given["temperature"]  # a plan leaves it out
    return JudgePlan.from_dict(given, "judge")


def questions(n: int, *, draws: int = 1) -> list[JudgeRequest]:
    rubric = small_rubric()
    return [
        JudgeRequest(
            key=f"k{number}",
            question=f"question {number}.",
            answer="an answer",
            rubric=rubric,
            draw=draw,
        )
        for number in range(n)
        for draw in range(draws)
    ]


def _refuse(seen: Seen) -> Answer | None:
    given = seen.headers.get("authorization", "")
    if seen.path.startswith("/v1/chat/"):
        return None if given in ("", f"Bearer {KEY}") else _wrong_key(given)
    if given != f"Bearer {KEY}":
        return _wrong_key(given)
    if seen.headers.get("anthropic-version") != VERSION:
        return failing(400, "invalid_request_error", "anthropic-version: not this one")
    if seen.path == "/v1/messages":
        return _refuse_params(seen.body)
    return None


def _refuse_params(params: Mapping[str, Any]) -> Answer | None:
    unknown = set(params) - {"model", "max_tokens", "messages", "output_config"}
    if unknown:
        return failing(400, "invalid_request_error", f"{min(unknown)}: not permitted")
    if '"minimum"' in json.dumps(params["output_config"]["format"]["schema"]):
        return failing(400, "invalid_request_error", "property 'minimum' is not supported")
    return None


def _wrong_key(given: str) -> Answer:
    """The worst of manners: it quotes the key."""
    return failing(401, "authentication_error", f"invalid key: {given.removeprefix('Bearer ')}")


def _handler(server: JudgeServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._serve(b"")

        def do_POST(self) -> None:
            self._serve(self.rfile.read(int(self.headers.get("content-length", "0"))))

        def _serve(self, body: bytes) -> None:
            seen = Seen(
                method=self.command,
                path=self.path,
                headers={name.lower(): value for name, value in self.headers.items()},
                body=json.loads(body) if body else None,
            )
            answer = server.answer(seen)
            if answer.hangs:
                server.wait_for_close()
                self.close_connection = True
                return
            self.send_response(answer.status)
            for name, value in {"content-type": "application/json", **answer.headers}.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(answer.body)))
            self.send_header("request-id", "req_1")
            self.end_headers()
            self.wfile.write(answer.body[: answer.drop_after])
            if answer.drop_after is not None:
                self.wfile.flush()
                self.connection.shutdown(socket.SHUT_RDWR)
                self.close_connection = True

        def log_message(self, *args: object) -> None:
            """Silence: what was asked is kept in ``seen``."""

    return Handler
