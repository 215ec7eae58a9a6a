"""An OpenAI-compatible chat service on 127.0.0.1 that can fail in all the ways that real ones do.

It answers in the order of a script or, without one, from the request: the text depends on the last
message, so that a test sees at once whether every reply stands beside its own request. What it
sends as a stream is what it would send in one piece, cut up as the real services cut it.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

from eps_locked.domain.chat import ChatRequest

KEY = "sk-test-77ab01-not-a-real-key"
ROUTE = "team/llama"
MODEL = "llama-3.3-70b-instruct"


@dataclass(frozen=True, kw_only=True)
class Rules:
    """EndpointRules, as a plan would give them."""

    name: str = "gateway"
    url: str | None = None
    api_key_env: str | None = "CHAT_KEY"
    max_concurrency: int = 4
    max_tries: int = 3
    timeout_seconds: float = 30.0
    max_transport_share: float = 0.1


@dataclass(frozen=True, kw_only=True)
class Answer:
    """One HTTP answer, sent piece by piece with ``pause_s`` before each.

    ``then``: ``ends`` as it should, is ``cut`` (the line goes down in the middle of the transfer),
    or ``hangs`` until the server closes. ``repeats`` sends the last piece again and again.
    """

    status: int = 200
    pieces: tuple[bytes, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    pause_s: float = 0.0
    then: str = "ends"
    repeats: bool = False


@dataclass(frozen=True, kw_only=True)
class Seen:
    method: str
    path: str
    headers: Mapping[str, str]
    body: Any


Respond = Callable[[Seen], Answer]


def as_json(value: Any, status: int = 200, **headers: str) -> Answer:
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    return Answer(status=status, pieces=(json.dumps(value).encode(),), headers=named)


def failing(status: int, message: str = "no", code: Any = None, **headers: str) -> Answer:
    error = {"message": message, "type": "some_error", "param": None, "code": code}
    return as_json({"error": error}, status, **headers)


def completion(
    content: Any = "Hello.", finish_reason: Any = "stop", *, usage: Any = "usual", **more: Any
) -> dict[str, Any]:
    """``more`` are further fields of the message."""
    value: dict[str, Any] = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": MODEL,
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": content, **more},
                "finish_reason": finish_reason,
            }
        ],
    }
    if usage == "usual":
        usage = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
    return value if usage is None else {**value, "usage": usage}


def call(name: str, arguments: str, number: int = 0) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {"id": f"call_{number}", "type": "function", "function": function}


def chunks(whole: Mapping[str, Any], width: int = 4) -> list[dict[str, Any]]:
    """The pieces of a completion: texts in parts of ``width``, then calls, finish reason, usage."""
    (choice,) = whole["choices"]
    message = choice["message"]
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    for name in ("reasoning_content", "reasoning", "content", "refusal"):
        deltas += [{name: part} for part in _parts(message.get(name) or "", width)]
    for index, one in enumerate(message.get("tool_calls") or []):
        named = {"name": one["function"]["name"], "arguments": ""}
        deltas.append({"tool_calls": [{**one, "index": index, "function": named}]})
        deltas += [
            {"tool_calls": [{"index": index, "function": {"arguments": part}}]}
            for part in _parts(one["function"]["arguments"], width)
        ]
    found = [chunk(delta, model=whole["model"]) for delta in deltas]
    found.append(chunk({}, choice["finish_reason"], model=whole["model"]))
    if "usage" in whole:
        found.append({**chunk({}, model=whole["model"]), "choices": [], "usage": whole["usage"]})
    return found


def chunk(delta: Any, finish_reason: Any = None, *, model: Any = MODEL) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": model,
        "choices": [choice],
    }


def events(values: Sequence[Any], *, done: bool = True) -> list[bytes]:
    """Server-sent events; a text is sent as it is."""
    texts = [one if isinstance(one, str) else json.dumps(one) for one in values]
    return [f"data: {text}\n\n".encode() for text in [*texts, *(["[DONE]"] if done else [])]]


def streamed(values: Sequence[Any], *, done: bool = True, **more: Any) -> Answer:
    """``values`` as a stream; ``more`` as in Answer."""
    headers = {"content-type": "text/event-stream"}
    return Answer(pieces=tuple(events(values, done=done)), headers=headers, **more)


def request(key: str = "k0", text: str = "question 0", **changes: Any) -> ChatRequest:
    values: dict[str, Any] = {
        "key": key,
        "model": ROUTE,
        "messages": ({"role": "user", "content": text},),
        "max_tokens": 96,
        "temperature": 0.0,
        "top_p": 1.0,
        "seed": 5,
        "tools": (),
        "extra": {},
        "stream": True,
    }
    return ChatRequest(**{**values, **changes})


def requests(n: int, **changes: Any) -> list[ChatRequest]:
    return [request(f"k{number}", f"question {number}", **changes) for number in range(n)]


def reply_text(text: str) -> str:
    """What this service says to a message."""
    return f"About {text}: yes."


class ChatServer:
    """Use as a context manager. ``script`` answers the first chats in the order of their arrival,
    ``listing`` every request for the list of models."""

    def __init__(
        self, script: Sequence[Answer | Respond] = (), *, listing: Answer | None = None
    ) -> None:
        self.seen: list[Seen] = []
        self._script = list(script)
        self._listing = listing or as_json({"object": "list", "data": [{"id": ROUTE}]})
        self._lock = threading.Lock()
        self.closing = threading.Event()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._http.daemon_threads = True
        self._thread = threading.Thread(
            target=self._http.serve_forever, kwargs={"poll_interval": 0.01}
        )

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}/v1"

    def __enter__(self) -> ChatServer:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    def kill(self) -> None:
        """No more connections, and those that there are come to an end."""
        if not self.closing.is_set():
            self.closing.set()
            self._http.shutdown()
            self._http.server_close()
            self._thread.join()

    def answer(self, seen: Seen) -> Answer:
        with self._lock:
            self.seen.append(seen)
            given = seen.headers.get("authorization", "")
            if given not in ("", f"Bearer {KEY}"):
                # The worst of manners: it quotes the key.
                return failing(401, f"invalid key: {given.removeprefix('Bearer ')}")
            if seen.path == "/v1/models":
                return self._listing
            if self._script:
                step = self._script.pop(0)
                return step if isinstance(step, Answer) else step(seen)
        return usual(seen)


def usual(seen: Seen) -> Answer:
    whole = completion(reply_text(seen.body["messages"][-1]["content"]))
    if not seen.body.get("stream"):
        return as_json(whole)
    return streamed(chunks(whole))


def _parts(text: str, width: int) -> Iterator[str]:
    for start in range(0, len(text), width):
        yield text[start : start + width]


def _handler(server: ChatServer) -> type[BaseHTTPRequestHandler]:
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
            try:
                self._send(server.answer(seen))
            except OSError:  # who asked is gone
                self.close_connection = True

        def _send(self, answer: Answer) -> None:
            self.send_response(answer.status)
            for name, value in {"content-type": "application/json", **answer.headers}.items():
                self.send_header(name, value)
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            for piece in answer.pieces:
                self._piece(answer, piece)
            while answer.repeats and not server.closing.is_set():
                self._piece(answer, answer.pieces[-1])
            if answer.then == "hangs":
                server.closing.wait()
            if answer.then == "ends" and not server.closing.is_set():
                self.wfile.write(b"0\r\n\r\n")
                return
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True

        def _piece(self, answer: Answer, piece: bytes) -> None:
            if answer.pause_s:
                time.sleep(answer.pause_s)
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))

        def log_message(self, *args: object) -> None:
            """Silence: what was asked is kept in ``seen``."""

    return Handler
