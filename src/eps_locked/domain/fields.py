"""Strict reading of decoded JSON or YAML mappings into frozen dataclasses.

Every read names its field; when the reader is closed, a key that nobody read is an error, because
an unread field is a promise nobody checks. Errors carry the whole path: ``eps.behaviours[0].band``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, TypeVar, cast

from eps_locked.errors import MalformedInputError

T = TypeVar("T")
_MISSING = object()


class Fields:
    """Reads one mapping once. Use as a context manager: leaving it checks for unread keys."""

    def __init__(self, value: object, path: str) -> None:
        if not isinstance(value, Mapping):
            raise _wrong(path, "a mapping", value)
        self._value: Mapping[str, Any] = value
        self._path = path
        self._read: set[str] = set()

    def __enter__(self) -> Fields:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            return
        unread = sorted(set(self._value) - self._read)
        if unread:
            raise MalformedInputError(
                f"{self._path}.{unread[0]}",
                problem="is not a known field",
                next_step=f"known here: {', '.join(sorted(self._read))}",
            )

    def path(self, key: str) -> str:
        return f"{self._path}.{key}" if self._path else key

    def _get(self, key: str, default: object = _MISSING) -> Any:
        self._read.add(key)
        if key in self._value:
            return self._value[key]
        if default is _MISSING:
            raise MalformedInputError(self.path(key), problem="is missing")
        return default

    def raw(self, key: str) -> object:
        """The value as it is, read; for fields whose type the caller knows how to refuse."""
        return self._get(key)

    def text(
        self, key: str, *, one_of: tuple[str, ...] = (), shape: re.Pattern[str] | None = None
    ) -> str:
        """``shape`` must match the whole text; unlike ``$``, that minds a newline at the end."""
        value = self._get(key)
        if not isinstance(value, str) or shape is not None:
            value = _text_item(value, self.path(key), shape)
        if one_of and value not in one_of:
            raise _wrong(self.path(key), " or ".join(one_of), value)
        return value

    def text_or_none(self, key: str) -> str | None:
        return None if self._get(key, None) is None else self.text(key)

    def optional(self, key: str, read: Callable[[object, str], T]) -> T | None:
        """A part that may be absent, read by its own reader; null is not absent."""
        return read(self._get(key), self.path(key)) if key in self._value else None

    def integer(self, key: str, *, low: int | None = None) -> int:
        value = self._get(key)
        if type(value) is not int:
            value = _integer_item(value, self.path(key))
        if low is not None and value < low:
            raise _wrong(self.path(key), f"at least {low}", value)
        return value

    def integer_or_none(self, key: str) -> int | None:
        return None if self._get(key) is None else self.integer(key)

    def number(
        self,
        key: str,
        *,
        low: float = -math.inf,
        high: float = math.inf,
        above: float = -math.inf,
        below: float = math.inf,
    ) -> float:
        """A finite number, from ``low`` to ``high``, strictly between ``above`` and ``below``."""
        value = self._get(key)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise _wrong(self.path(key), "a number", value)
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number) or not (low <= number <= high and above < number < below):
            bounds = [
                f"{word} {bound:g}"
                for word, bound in (
                    ("of at least", low),
                    ("of at most", high),
                    ("above", above),
                    ("below", below),
                )
                if math.isfinite(bound)
            ]
            raise _wrong(self.path(key), " ".join(["a finite number", *bounds]), value)
        return number

    def flag(self, key: str) -> bool:
        value = self._get(key)
        if not isinstance(value, bool):
            raise _wrong(self.path(key), "true or false", value)
        return value

    def flag_or_none(self, key: str) -> bool | None:
        return None if self._get(key) is None else self.flag(key)

    def mapping(self, key: str) -> Mapping[str, Any]:
        value = self._get(key)
        if not isinstance(value, Mapping):
            raise _wrong(self.path(key), "a mapping", value)
        return cast(Mapping[str, Any], value)

    def sub(self, key: str) -> Fields:
        return Fields(self._get(key), self.path(key))

    def each(self, key: str, build: Callable[[object, str], T]) -> tuple[T, ...]:
        value = self._get(key)
        if isinstance(value, str) or not isinstance(value, list | tuple):
            raise _wrong(self.path(key), "a list", value)
        return tuple(build(item, f"{self.path(key)}[{n}]") for n, item in enumerate(value))

    def texts(self, key: str, *, shape: re.Pattern[str] | None = None) -> tuple[str, ...]:
        return self.each(key, lambda item, path: _text_item(item, path, shape))

    def integers(
        self, key: str, *, low: int | None = None, high: int | None = None
    ) -> tuple[int, ...]:
        return self.each(key, lambda item, path: _integer_item(item, path, low, high))

    def text_map(self, key: str, *, shape: re.Pattern[str] | None = None) -> dict[str, str]:
        value = self.mapping(key)
        return {
            str(name): _text_item(item, f"{self.path(key)}.{name}", shape)
            for name, item in value.items()
        }


def _text_item(value: object, path: str, shape: re.Pattern[str] | None = None) -> str:
    if not isinstance(value, str):
        raise _wrong(path, "a string", value)
    if shape is not None and not shape.fullmatch(value):
        raise _wrong(path, f"text of the form {shape.pattern}", value)
    return value


def _integer_item(value: object, path: str, low: int | None = None, high: int | None = None) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _wrong(path, "an integer", value)
    if (low is not None and value < low) or (high is not None and value > high):
        bounds = f"of at least {low}" if high is None else f"from {low} to {high}"
        raise _wrong(path, f"an integer {bounds}", value)
    return value


def _wrong(path: str, expected: str, found: object) -> MalformedInputError:
    shown = repr(found)
    return MalformedInputError(
        path, expected=expected, found=shown if len(shown) <= 60 else shown[:57] + "..."
    )
