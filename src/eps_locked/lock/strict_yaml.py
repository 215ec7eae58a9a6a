"""YAML for people who sign what they write: a small, strict subset, one meaning per byte.

Accepted: block and flow mappings with unique string keys, lists, quoted and plain scalars. Plain
scalars mean null, true, false, a decimal integer, a finite decimal number, or else themselves (so
``no`` and ``1:30`` are strings, unlike in YAML 1.1). Refused: anchors and aliases (they can
explode, and hide what a reader signs), tags, several documents, a byte order mark, CR and
foreign line ends, NaN and infinities, nesting deeper than 32, files over 4 MiB.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import yaml

from eps_locked.errors import MalformedInputError

MAX_BYTES = 4 << 20
MAX_DEPTH = 32
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*)\Z")
_NUMBER = re.compile(r"[-+]?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?\Z")
_NOT_FINITE = re.compile(r"[-+]?\.?(nan|inf|infinity)\Z", re.IGNORECASE)
_ODD_LINE_END = re.compile("[\x85\u2028\u2029]")
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def parse_yaml(data: bytes, *, thing: str) -> Any:
    """The value of a YAML document in the strict subset; ``thing`` names it in errors.

    Raises MalformedInputError with the line of the offending byte.
    """
    _check_bytes(data, thing)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise MalformedInputError(
            thing, expected="UTF-8", found=f"byte {data[error.start]:#04x} at {error.start}"
        ) from error
    odd = _ODD_LINE_END.search(text)
    if odd:
        raise MalformedInputError(
            f"{thing}:{text[: odd.start()].count(chr(10)) + 1}",
            problem=f"has the line end U+{ord(odd.group()):04X}, which YAML versions read apart",
            next_step=f'write it as "\\u{ord(odd.group()):04x}" in double quotes',
        )
    builder = _Builder(thing, yaml.parse(text, Loader=_Loader))
    try:
        return builder.document()
    except (yaml.YAMLError, RecursionError) as error:
        problem = " ".join(str(error).split())
        raise MalformedInputError(thing, problem=f"is not YAML ({problem})") from error


def _check_bytes(data: bytes, thing: str) -> None:
    if len(data) > MAX_BYTES:
        raise MalformedInputError(
            thing,
            expected=f"at most {MAX_BYTES} bytes",
            found=f"{len(data)} bytes",
            next_step="keep long material in files of its own",
        )
    if data.startswith(b"\xef\xbb\xbf"):
        raise MalformedInputError(
            thing, problem="begins with a byte order mark", next_step="save it as UTF-8 without BOM"
        )
    if b"\r" in data:
        line = data[: data.index(b"\r")].count(b"\n") + 1
        raise MalformedInputError(
            f"{thing}:{line}",
            problem="has a carriage return",
            next_step="save it with LF line ends",
        )


class _Builder:
    """Builds the value from parser events, so anchors are seen before anything expands."""

    def __init__(self, thing: str, events: Iterator[yaml.Event]) -> None:
        self._thing = thing
        self._events = events

    def document(self) -> Any:
        value: Any = None
        n_documents = 0
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                n_documents += 1
                if n_documents > 1:
                    raise self._error(event, "holds more than one document")
                value = self._node(next(self._events), 0)
        return value

    def _node(self, event: yaml.Event, depth: int) -> Any:
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise self._error(event, "uses an anchor or alias", "write the value out")
        if depth > MAX_DEPTH:
            raise self._error(event, f"is nested deeper than {MAX_DEPTH}")
        tag = getattr(event, "tag", None)
        if tag is not None:
            raise self._error(event, f"uses the tag {tag}", "write plain values")
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(event)
        if isinstance(event, yaml.SequenceStartEvent):
            return self._sequence(depth)
        return self._mapping(depth)

    def _sequence(self, depth: int) -> list[Any]:
        items = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            items.append(self._node(event, depth + 1))
        return items

    def _mapping(self, depth: int) -> dict[str, Any]:
        items: dict[str, Any] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            key = self._node(event, depth + 1)
            if not isinstance(key, str):
                raise self._error(event, f"has the key {key!r}", "quote the key")
            if key in items:
                raise self._error(event, f"has the key {key!r} twice", "remove one of the two")
            items[key] = self._node(next(self._events), depth + 1)
        return items

    def _scalar(self, event: yaml.ScalarEvent) -> Any:
        text = event.value
        if not event.implicit[0]:
            return text
        if text in ("", "~", "null"):
            return None
        if text in ("true", "false"):
            return text == "true"
        if _INTEGER.match(text) and len(text) <= 17:
            return int(text)
        if _NOT_FINITE.match(text):
            raise self._error(event, f"has the value {text}", "only finite numbers are allowed")
        if _NUMBER.match(text):
            number = float(text)
            if number in (float("inf"), float("-inf")):
                raise self._error(event, f"has the number {text}, which is not finite")
            return number
        return text

    def _error(
        self, event: yaml.Event, problem: str, next_step: str | None = None
    ) -> MalformedInputError:
        where = self._thing
        if event.start_mark is not None:
            where = f"{where}:{event.start_mark.line + 1}"
        return MalformedInputError(where, problem=problem, next_step=next_step)
