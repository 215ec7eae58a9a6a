"""One JSON object out of a text that others wrote, read strictly: nothing is coerced or guessed."""

from __future__ import annotations

import json
from typing import Any, NoReturn

__all__ = ["json_object", "json_reply", "kind_of", "show"]

_SHOWN = 60


def json_object(text: str) -> dict[str, Any]:
    """One JSON object, read strictly. Raises ValueError for anything else, however broken."""
    try:
        value = json.loads(text, object_pairs_hook=_distinct, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise ValueError(
            f"not one JSON object: {error.msg} at character {error.pos + 1}"
        ) from error
    except RecursionError as error:
        raise ValueError("not one JSON object: nested too deeply") from error
    if not isinstance(value, dict):
        raise ValueError(f"not one JSON object: a JSON {kind_of(value)}")
    return value


def json_reply(body: bytes) -> dict[str, Any]:
    """A body as one JSON object. Raises ValueError for anything else."""
    return json_object(body.decode("utf-8"))


def kind_of(value: object) -> str:
    """What JSON calls a value of this type."""
    if value is None:
        return "null"
    return {bool: "truth value", int: "number", float: "number", str: "string"}.get(
        type(value), "list"
    )


def show(value: object) -> str:
    """Escaped, so that no lone surrogate or control character gets into a record."""
    try:
        shown = ascii(value)
    except (ValueError, RecursionError):  # an integer too long to print, a list too deep
        return f"a {kind_of(value)} too long to show"
    return shown if len(shown) <= _SHOWN else f"{shown[: _SHOWN - 3]}..."


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"key {show(twice)} is there twice")
    return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")
