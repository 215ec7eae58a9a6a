"""Any OpenAI-compatible chat endpoint: LiteLLM, vLLM, llama.cpp, and our own server.

Only a stream can tell when its first token came, so requests may ask for one. A reply is whole, or
it is none: a stream that breaks off, a page in place of JSON, two choices where one was asked for
are tried again, and end as ``outage`` or ``unreadable``. ``services.replies`` says how a whole
reply becomes a status.

The limit of tokens goes out as ``max_tokens``, the name that every such endpoint knows. A gateway
that caches replies would answer a request from another run, which cannot be seen from here: caching
must be off there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from eps_locked.canonical import digest_bytes, digest_value
from eps_locked.domain.chat import ChatReply, ChatRequest, ChatStatus, EndpointIdentity
from eps_locked.errors import BackendError, MalformedInputError
from eps_locked.services.completion import Completion
from eps_locked.services.line import (
    LONGEST_NOTE,
    Attempt,
    Line,
    LineWords,
    Sleep,
    ask_all,
)
from eps_locked.services.listing import has_route, read_listing, said_of
from eps_locked.services.replies import (
    SERVICE,
    read_reply,
    reply_of,
    settled,
    without_answer,
)
from eps_locked.services.rules import EndpointRules, require_endpoint, require_key, rules_for
from eps_locked.services.wire import Received, Wire

__all__ = ["EndpointRules", "OpenAiEndpoint", "rules_for"]

UNKNOWN = "unknown"
_BEGINNING = 100
_WORDS: LineWords[ChatStatus] = LineWords(
    service=SERVICE,
    rate_limited="rate_limited",
    outage="outage",
    filtered="filtered",
    garbled="unreadable",
    too_long="truncated",
)
# A service answers so where it has no list of models; anything else about the list is trouble.
_NO_LIST = frozenset({404, 405, 501})


class OpenAiEndpoint:
    """See ChatEndpoint. ``api_key`` None sends no key.

    ``url`` is for a server that a plan cannot name because it is yet to be started; else it is the
    rules'. ``kind`` goes into the identity. ``sleep`` (seconds) is the clock between tries, by
    default one that ends early on an interrupt; ``monotonic`` is the one that times replies.
    """

    def __init__(
        self,
        rules: EndpointRules,
        api_key: str | None,
        *,
        url: str | None = None,
        kind: str = "openai",
        sleep: Sleep | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        line_rules = rules_for(rules, UNKNOWN)
        self._rules = rules
        self._kind = kind
        self._api_key = (
            None if api_key is None else require_key(line_rules, api_key, service=SERVICE)
        )
        self._base_url = require_endpoint(line_rules, url or rules.url or "", service=SERVICE)
        self._sleep = sleep
        self._monotonic = monotonic
        self._n_sent = 0

    @property
    def n_sent(self) -> int:
        """HTTP requests sent by finished calls, retries included."""
        return self._n_sent

    def identity(self, model: str) -> EndpointIdentity:
        """What the endpoint's list of models says of ``model``, without what changes from start to
        start. An endpoint without a list says nothing.

        Raises BackendError for a route that is not in the list, and for a list that is there and
        cannot be read.
        """
        line = self._line(model)
        last: list[Received] = []

        def attempt() -> Attempt:
            last[:] = [wire.get("/models")]
            got = last[0].attempt
            return replace(got, status=204, body=b"") if got.status in _NO_LIST else got

        try:
            with self._wire() as wire:
                sent = line.send(
                    digest_value([self._rules.name, "models"]).removeprefix("blake3:"),
                    attempt,
                    lambda body: read_listing(body) if body else None,
                )
        finally:
            self._n_sent += line.n_sent
        if sent.failure is not None:
            raise BackendError(
                f"{SERVICE} {self._rules.name}",
                problem="its list of models could not be read",
                expected=f"a list with {model} in it",
                found=sent.note,
                next_step="see whether the endpoint is up, and run the same command once more",
            )
        entries = sent.reply
        if entries is not None and not has_route(entries, model):
            raise self._no_route(line, model, [str(entry["id"]) for entry in entries])
        said = {
            line.clean(name): _short(line, text)
            for name, text in said_of(entries or (), model).items()
        }
        server = last[0].attempt.headers.get("server", "") if last else ""
        return EndpointIdentity(
            kind=self._kind,
            model=model,
            server=line.clean(server) or UNKNOWN,
            said=said,
            # Our own server says it among its own words, others at the top if at all.
            publishable="false"
            not in (said.get("publishable"), said.get("eps_locked.publishable")),
        )

    def ask(self, requests: Sequence[ChatRequest]) -> tuple[ChatReply, ...]:
        """See ChatEndpoint. Raises MalformedInputError for an extra field that a request sets by
        itself."""
        if len({request.key for request in requests}) != len(requests):
            raise RuntimeError("two requests to an endpoint have the same key")
        bodies = {request.key: _body(request) for request in requests}
        if not requests:
            return ()
        line = self._line(", ".join(sorted({request.model for request in requests})))
        try:
            with self._wire() as wire:
                return ask_all(
                    requests,
                    lambda request: self._ask(wire, line, request, bodies[request.key]),
                    max_concurrency=self._rules.max_concurrency,
                    stop=line.stop,
                    called=SERVICE,
                )
        finally:
            self._n_sent += line.n_sent

    def _ask(
        self,
        wire: Wire,
        line: Line[ChatStatus],
        request: ChatRequest,
        body: Mapping[str, Any],
    ) -> ChatReply:
        last: list[Received] = []

        def attempt() -> Attempt:
            last[:] = [wire.post("/chat/completions", body)]
            return settled(last[0].attempt, stream=request.stream)

        identity = digest_value([self._rules.name, request.model, request.key])
        sent = line.send(
            identity.removeprefix("blake3:"),
            attempt,
            lambda raw: self._read(raw, request),
        )
        seconds = last[0].seconds if last else 0.0
        if sent.reply is None:
            status = sent.failure or "outage"
            return without_answer(request, status, sent.note, tries=sent.tries, seconds=seconds)
        return reply_of(
            request,
            sent.reply,
            line,
            tries=sent.tries,
            seconds=seconds,
            first_token_seconds=last[0].seconds_at(sent.reply.first_at),
        )

    def _read(self, raw: bytes, request: ChatRequest) -> Completion:
        """Raises ValueError. What quotes the key is not even looked into: a note on what is wrong
        with it might hold a part of the key."""
        if self._api_key is not None and self._api_key.encode() in raw:
            raise ValueError("it quotes the key")
        return read_reply(raw, stream=request.stream)

    def _line(self, model: str) -> Line[ChatStatus]:
        return Line(
            rules_for(self._rules, model),
            self._api_key,
            _WORDS,
            sleep=self._sleep,
        )

    def _wire(self) -> Wire:
        return Wire(
            self._base_url,
            self._api_key,
            timeout_seconds=self._rules.timeout_seconds,
            monotonic=self._monotonic,
        )

    def _no_route(self, line: Line[ChatStatus], model: str, routes: list[str]) -> BackendError:
        return BackendError(
            f"{SERVICE} {self._rules.name}",
            problem="it has no such route",
            expected="a route of its list of models",
            found=model,
            next_step="correct the model's route in the plan, or add it to the endpoint",
            details=tuple(f"has: {line.clean(route)}" for route in sorted(routes))
            or ("has: none",),
        )


def _short(line: Line[ChatStatus], text: str) -> str:
    """A text for a record. Of a long one (a chat template, say) the beginning, with a digest of all
    of it: two that only begin alike are not one."""
    shown = line.clean(text)
    if len(shown) < LONGEST_NOTE:
        return shown
    whole = line.strike(text).encode("utf-8", "surrogatepass")
    return f"{shown[:_BEGINNING]}... {digest_bytes(whole)}"


def _body(request: ChatRequest) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": request.model,
        "messages": [dict(message) for message in request.messages],
        "max_tokens": request.max_tokens,
        "temperature": request.temperature,
        "top_p": request.top_p,
    }
    if request.seed is not None:
        body["seed"] = request.seed
    if request.tools:
        body["tools"] = [dict(tool) for tool in request.tools]
    if request.stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    taken = sorted(set(request.extra) & {*body, "n", "seed", "tools", "stream", "stream_options"})
    if taken:
        raise MalformedInputError(
            f"request {request.key}.extra.{taken[0]}",
            problem="is a field that a request sets by itself",
            expected="fields beside those of every request",
            found=taken[0],
            next_step=f"leave {taken[0]} out of the extra fields; one choice is asked for, and "
            "decoding has a place of its own in the plan",
        )
    return {**body, **request.extra}
