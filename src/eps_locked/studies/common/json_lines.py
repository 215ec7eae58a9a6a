"""JSON Lines files, strictly: one value a line, nothing that two readers would read apart."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any, NoReturn

from eps_locked.errors import MalformedInputError

__all__ = ["json_lines"]


def json_lines(data: bytes, thing: str) -> Iterator[tuple[object, str]]:
    """Each line's value, and the name of the line for messages.

    Raises MalformedInputError for what is not strict JSON in UTF-8: NaN, a key given twice, a text
    without bytes of its own, an empty line.
    """
    # Split on LF alone: a text may hold U+2028 or U+0085, at which splitlines would cut.
    lines = data.removesuffix(b"\n").split(b"\n") if data else []
    for number, line in enumerate(lines, start=1):
        path = f"{thing}: line {number}"
        try:
            value = json.loads(
                line.decode("utf-8"),
                object_pairs_hook=_unique_pairs,
                parse_constant=_refuse_constant,
            )
            # An escape like \ud800 is JSON, but no text: it has no bytes to compare.
            json.dumps(value, ensure_ascii=False).encode("utf-8")
        except (ValueError, RecursionError) as error:
            raise MalformedInputError(path, problem=f"is not strict JSON ({error})") from error
        yield value, path


def _unique_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    twice = next((key for key, n in Counter(key for key, _ in pairs).items() if n > 1), None)
    if twice is not None:
        raise ValueError(f"duplicate key {twice!r}")
    return dict(pairs)


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")
