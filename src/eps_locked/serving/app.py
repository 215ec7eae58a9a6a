"""The endpoint itself: HTTP in, checked requests to the desk, documents out.

Whatever can be refused is refused before the engine is asked: OpenAI's form of error, naming the
field. The engine's own failures are 500; in a stream that has begun they end it without ``[DONE]``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from eps_locked.domain.model import ChatTokenizer, Engine
from eps_locked.errors import MalformedInputError
from eps_locked.serving.answering import Answer, Piece, StreamingEngine
from eps_locked.serving.desk import ClosingError, Desk, Event, Ticket
from eps_locked.serving.prompts import PromptWriter
from eps_locked.serving.requests import ChatCall, read_call
from eps_locked.serving.rules import ServedRoute, ServingRules
from eps_locked.serving.tools import HOUSE_FORM
from eps_locked.serving.wire import (
    Frame,
    completion,
    error,
    model_document,
    to_bytes,
    usage,
)

__all__ = ["MAX_BODY_BYTES", "make_app"]

# A chat that fills a context of a million tokens is some 4 MB.
MAX_BODY_BYTES = 16 * 2**20
_HOSTS = ("127.0.0.1", "localhost")
_CLOSED_BY_CLIENT = 499  # nobody reads it; the number that web servers log for it


class _Endpoint:
    def __init__(
        self,
        desk: Desk,
        engine: Engine,
        tokenizer: ChatTokenizer,
        routes: Mapping[str, ServedRoute],
        rules: ServingRules,
    ) -> None:
        self._desk = desk
        self._routes = routes
        self._writer = PromptWriter(tokenizer, rules)
        by_template = self._writer.tool_form == "chat template"
        self._models = {
            name: model_document(
                route,
                engine.identity,
                context_length=rules.context_length,
                template_digest=tokenizer.template_digest,
                tool_form=self._writer.tool_form,
                tool_form_digest=tokenizer.template_digest if by_template else HOUSE_FORM,
                streams=isinstance(engine, StreamingEngine),
            )
            for name, route in routes.items()
        }

    async def models(self, request: Request) -> Response:
        _require_own_host(request)
        return _json({"object": "list", "data": list(self._models.values())})

    async def model(self, request: Request) -> Response:
        _require_own_host(request)
        name = request.path_params["name"]
        return _json(self._models[name]) if name in self._models else self._no_route(name)

    async def chat(self, request: Request) -> Response:
        _require_own_host(request)
        body = await _body(request)
        try:
            call = read_call(body)
            if call.model not in self._routes:
                return self._no_route(call.model)
            prepared = self._writer.prepare(call)
        except MalformedInputError as problem:
            return _refusal(problem)
        frame = Frame.of(body, self._models[call.model])
        loop = asyncio.get_running_loop()
        events: asyncio.Queue[Event] = asyncio.Queue()
        ticket = Ticket(
            self._routes[call.model],
            call,
            prepared,
            partial(_post, loop, events),
        )
        gone = asyncio.create_task(_gone(request))
        try:
            self._desk.put(ticket)
            return await self._reply(call, frame, events, ticket, gone)
        except BaseException:
            ticket.give_up()
            raise
        finally:
            gone.cancel()

    async def _reply(
        self,
        call: ChatCall,
        frame: Frame,
        events: asyncio.Queue[Event],
        ticket: Ticket,
        gone: asyncio.Task[None],
    ) -> Response:
        """The response once its status is known: a stream's begins with its first piece."""
        while True:
            event = await _next(events, gone)
            if event is None:
                ticket.give_up()
                return Response(status_code=_CLOSED_BY_CLIENT)
            if isinstance(event, Exception):
                return _failure(event)
            if call.stream:
                return _Stream(
                    ticket, _chunks(event, events, frame, include_usage=call.include_usage)
                )
            if isinstance(event, Answer):
                return _json(completion(frame, event))

    def _no_route(self, name: str) -> Response:
        problem = MalformedInputError(
            "model",
            problem="is not served here",
            expected=" or ".join(self._routes),
            found=repr(name)[:80],
        )
        return _refusal(problem, status=404, code="model_not_found")


def make_app(
    desk: Desk,
    engine: Engine,
    tokenizer: ChatTokenizer,
    routes: Mapping[str, ServedRoute],
    rules: ServingRules,
) -> Starlette:
    """The application; ``desk`` answers and is opened and closed by the caller."""
    endpoint = _Endpoint(desk, engine, tokenizer, routes, rules)
    return Starlette(
        routes=[
            Route("/v1/models", endpoint.models, methods=["GET"]),
            Route("/v1/models/{name}", endpoint.model, methods=["GET"]),
            Route("/v1/chat/completions", endpoint.chat, methods=["POST"]),
        ],
        exception_handlers={HTTPException: _http_error},
    )


class _Stream(StreamingResponse):
    """Server-sent events. However it ends, nobody waits for the ticket afterwards."""

    def __init__(self, ticket: Ticket, chunks: AsyncIterator[bytes]) -> None:
        super().__init__(
            chunks, media_type="text/event-stream", headers={"Cache-Control": "no-store"}
        )
        self._ticket = ticket

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._ticket.give_up()


async def _chunks(
    event: Event, events: asyncio.Queue[Event], frame: Frame, *, include_usage: bool
) -> AsyncIterator[bytes]:
    """The stream from its first event on."""
    is_first = True
    no_usage = {"usage": None} if include_usage else {}
    while isinstance(event, Piece):
        yield _sent({**frame.piece_chunk(event, is_first=is_first), **no_usage})
        is_first = False
        event = await events.get()
    if isinstance(event, Exception):
        yield _sent(_failure_document(event))
        return
    for chunk in frame.last_chunks(event, is_first=is_first):
        yield _sent({**chunk, **no_usage})
    if include_usage:
        whole = frame.document("chat.completion.chunk", [])
        yield _sent({**whole, "usage": usage(event)})
    yield b"data: [DONE]\n\n"


def _post(loop: asyncio.AbstractEventLoop, events: asyncio.Queue[Event], event: Event) -> None:
    """From the engine's thread to the loop."""
    with suppress(RuntimeError):  # the loop was closed: nobody waits
        loop.call_soon_threadsafe(events.put_nowait, event)


async def _next(events: asyncio.Queue[Event], gone: asyncio.Task[None]) -> Event | None:
    """The next event, or None once the client has gone."""
    coming = asyncio.create_task(events.get())
    await asyncio.wait({coming, gone}, return_when=asyncio.FIRST_COMPLETED)
    if coming.done():
        return coming.result()
    coming.cancel()
    return None


async def _gone(request: Request) -> None:
    """Ends when the client has closed the connection; call it when the body has been read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _require_own_host(request: Request) -> None:
    """A page in a browser that had its own name point here is no client of ours."""
    host = request.headers.get("host", "").rsplit(":", 1)[0]
    if host not in _HOSTS:
        raise HTTPException(403, f"host: expected {' or '.join(_HOSTS)}, found {host[:80]!r}")


async def _body(request: Request) -> bytes:
    parts, size = [], 0
    try:
        async for part in request.stream():
            size += len(part)
            if size > MAX_BODY_BYTES:
                raise HTTPException(413, f"body: expected at most {MAX_BODY_BYTES} bytes")
            parts.append(part)
    except ClientDisconnect:
        raise HTTPException(400, "body: ended early") from None
    return b"".join(parts)


async def _http_error(request: Request, problem: Exception) -> Response:
    """Paths, methods and hosts that are not ours, in the form of every other refusal."""
    assert isinstance(problem, HTTPException)  # for the type checker
    words = problem.detail
    if problem.status_code in (404, 405):
        words = (
            f"{request.method} {request.url.path}: is not offered here\n"
            "  next: GET /v1/models or POST /v1/chat/completions"
        )
    document = error(words, kind="invalid_request_error", param=None, code=None)
    return _json(document, status=problem.status_code, headers=problem.headers)


def _refusal(
    problem: MalformedInputError, *, status: int = 400, code: str | None = None
) -> Response:
    # An unknown field at the top has an empty path before its dot.
    param = problem.thing.removeprefix(".")
    document = error(
        str(problem).removeprefix("."), kind="invalid_request_error", param=param, code=code
    )
    return _json(document, status=status)


def _failure(problem: Exception) -> Response:
    status = 503 if isinstance(problem, ClosingError) else 500
    return _json(_failure_document(problem), status=status)


def _failure_document(problem: Exception) -> dict[str, Any]:
    words = "server: is closing" if isinstance(problem, ClosingError) else str(problem)
    return error(words, kind="server_error", param=None, code=None)


def _json(
    document: Mapping[str, object], *, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    return Response(
        to_bytes(document), status_code=status, media_type="application/json", headers=headers
    )


def _sent(document: Mapping[str, object]) -> bytes:
    return b"data: " + to_bytes(document) + b"\n\n"
