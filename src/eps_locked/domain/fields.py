"""Strict reading of decoded JSON or YAML mappings into frozen dataclasses.

Every read names its field; when the reader is closed, a key that nobody read is an error, because
an unread field is a promise nobody checks. Errors carry the whole path: ``eps.behaviours[0].band``.
"""

from __future__ import annotations

import math
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

    def text(self, key: str, *, one_of: tuple[str, ...] = ()) -> str:
        value = self._get(key)
        if not isinstance(value, str):
            raise _wrong(self.path(key), "a string", value)
        if one_of and value not in one_of:
            raise _wrong(self.path(key), " or ".join(one_of), value)
        return value

    def text_or_none(self, key: str) -> str | None:
        return None if self._get(key, None) is None else self.text(key)

    def integer(self, key: str, *, low: int | None = None) -> int:
        value = self._get(key)
        if isinstance(value, bool) or not isinstance(value, int):
            raise _wrong(self.path(key), "an integer", value)
        if low is not None and value < low:
            raise _wrong(self.path(key), f"at least {low}", value)
        return value

    def integer_or_none(self, key: str) -> int | None:
        return None if self._get(key, None) is None else self.integer(key)

    def number(self, key: str, *, low: float | None = None) -> float:
        value = self._get(key)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise _wrong(self.path(key), "a number", value)
        if not math.isfinite(value) or (low is not None and value < low):
            raise _wrong(self.path(key), f"a finite number of at least {low}", value)
        return float(value)

    def flag(self, key: str) -> bool:
        value = self._get(key)
        if not isinstance(value, bool):
            raise _wrong(self.path(key), "true or false", value)
        return value

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

    def texts(self, key: str) -> tuple[str, ...]:
        return self.each(key, _text_item)

    def integers(self, key: str) -> tuple[int, ...]:
        return self.each(key, _integer_item)

    def text_map(self, key: str) -> dict[str, str]:
        value = self.mapping(key)
        return {
            str(name): _text_item(item, f"{self.path(key)}.{name}") for name, item in value.items()
        }


def _text_item(value: object, path: str) -> str:
    if not isinstance(value, str):
        raise _wrong(path, "a string", value)
    return value


def _integer_item(value: object, path: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _wrong(path, "an integer", value)
    return value


def _wrong(path: str, expected: str, found: object) -> MalformedInputError:
    shown = repr(found)
    return MalformedInputError(
        path, expected=expected, found=shown if len(shown) <= 60 else shown[:57] + "..."
    )
