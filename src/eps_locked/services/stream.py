"""A completion that came piece by piece (server-sent events), put together again. Pure.

A stream is whole when a piece gave its finish reason; what may follow is the count of tokens. One
that ends before is broken off, whatever it brought.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from eps_locked.services.completion import (
    TEXTS,
    Completion,
    ErrorInReplyError,
    completion_of,
)
from eps_locked.services.strict_json import json_object, show

__all__ = ["BrokenOffError", "is_done", "read_stream"]

_DONE = "[DONE]"
_LINE_END = re.compile(rb"\r\n|\n|\r")
# No JSON text holds a bare line end, so this is never a part of one.
_DONE_LINE = re.compile(rb"(?:^|[\r\n])data: ?\[DONE\][\r\n]")
_BEGINNING = re.compile(rb"\s*(?:data|event|id|retry)?:")
_TAIL = 64


class BrokenOffError(ValueError):
    """A stream that ended before it said that it was at its end."""


def is_done(body: bytes | bytearray) -> bool:
    """Whether a stream so far has said that nothing comes any more."""
    return _DONE_LINE.search(bytes(body[-_TAIL:])) is not None


def read_stream(body: bytes) -> Completion:
    """Raises BrokenOffError, ErrorInReplyError for an error among the pieces, and ValueError for
    what is no stream of one completion."""
    parts = _Parts()
    n_pieces = 0
    for data, end in _events(body):
        if data.strip() == _DONE:
            break
        parts.add(json_object(data), end)
        n_pieces += 1
    if not n_pieces and body.strip() and not _BEGINNING.match(body):
        raise ValueError("no piece of a stream in it")
    if parts.finish_reason is None:
        raise BrokenOffError(f"the stream ended after {n_pieces} pieces, before its finish reason")
    return completion_of(
        parts.model, parts.message(), parts.finish_reason, parts.usage, first_at=parts.first_at
    )


class _Parts:
    """What the pieces of one stream have brought so far."""

    def __init__(self) -> None:
        self.model: str | None = None
        self.finish_reason: str | None = None
        self.usage: object = None
        self.first_at: int | None = None
        self._texts: dict[str, list[str]] = {}
        self._calls: dict[int, _Call] = {}

    def add(self, piece: Mapping[str, Any], end: int) -> None:
        if piece.get("error"):
            raise ErrorInReplyError(piece)
        self.usage = piece.get("usage") or self.usage
        choices = piece.get("choices") or []
        if not isinstance(choices, list) or len(choices) > 1:
            raise ValueError("a piece with more than one choice")
        for choice in choices:
            if not isinstance(choice, Mapping) or choice.get("index", 0) != 0:
                raise ValueError("a piece of another choice than the first")
            self._name_model(piece.get("model"))
            if self._add_delta(choice.get("delta") or {}) and self.first_at is None:
                self.first_at = end
            self._finish(choice.get("finish_reason"))

    def message(self) -> dict[str, Any]:
        texts = {name: "".join(parts) for name, parts in self._texts.items()}
        if sorted(self._calls) != list(range(len(self._calls))):
            raise ValueError("tool calls that are not numbered from 0")
        calls = [self._calls[index].to_dict() for index in sorted(self._calls)]
        message: dict[str, Any] = {"role": "assistant", "content": texts.pop("content", "")}
        if calls:
            message["content"] = message["content"] or None
            message["tool_calls"] = calls
        return {**message, **{name: text for name, text in texts.items() if text}}

    def _name_model(self, model: object) -> None:
        if not model:
            return
        if not isinstance(model, str) or self.model not in (None, model):
            raise ValueError("pieces of more than one model")
        self.model = model

    def _finish(self, reason: object) -> None:
        if reason is None or reason == "":
            return
        if not isinstance(reason, str) or self.finish_reason not in (None, reason):
            raise ValueError(f"a second finish reason, {show(reason)}")
        self.finish_reason = reason

    def _add_delta(self, delta: object) -> bool:
        """Whether it brought a part of the reply."""
        if not isinstance(delta, Mapping):
            raise ValueError("a piece whose delta is no object")
        brought = False
        for name in TEXTS:
            text = delta.get(name)
            if not isinstance(text, str | None):
                raise ValueError(f"a piece whose {name} is no text")
            if text:
                self._texts.setdefault(name, []).append(text)
                brought = True
        calls = delta.get("tool_calls") or []
        if not isinstance(calls, list):
            raise ValueError("a piece whose tool_calls are no list")
        for call in calls:
            index = call.get("index") if isinstance(call, Mapping) else None
            if type(index) is not int:
                raise ValueError("a piece of a tool call without its number")
            self._calls.setdefault(index, _Call()).add(call)
        return brought or bool(calls)


class _Call:
    """One tool call: what names it comes once, its arguments come in pieces."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._arguments = ""

    def add(self, call: Mapping[str, Any]) -> None:
        function = call.get("function") or {}
        if not isinstance(function, Mapping):
            raise ValueError("a tool call whose function is no object")
        self._name("id", call.get("id"))
        self._name("type", call.get("type"))
        self._name("name", function.get("name"))
        arguments = function.get("arguments")
        if not isinstance(arguments, str | None):
            raise ValueError("a tool call whose arguments are no text")
        self._arguments += arguments or ""

    def to_dict(self) -> dict[str, Any]:
        if "name" not in self._names:
            raise ValueError("a tool call without the name of its function")
        return {
            "id": self._names.get("id", ""),
            "type": self._names.get("type", "function"),
            "function": {"name": self._names["name"], "arguments": self._arguments},
        }

    def _name(self, key: str, value: object) -> None:
        if not value:
            return
        if not isinstance(value, str) or self._names.get(key, value) != value:
            # Some services number all calls 0: joined, they would be one call that nobody made.
            raise ValueError(f"one tool call with more than one {key}")
        self._names[key] = value


def _events(body: bytes) -> Iterator[tuple[str, int]]:
    """The data of each event, and where in the body the event ended. An event that its empty line
    does not end is not one, as the standard says. Raises ValueError for what is not UTF-8."""
    data: list[str] = []
    start = 0
    for end in _LINE_END.finditer(body):
        line = body[start : end.start()].decode("utf-8")
        start = end.end()
        if not line and data:
            yield "\n".join(data), start
            data = []
        name, _, value = line.partition(":")
        if name == "data":
            data.append(value.removeprefix(" "))
