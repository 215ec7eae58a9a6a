"""JSON values to bytes and back, one way only (RFC 8785), and the digest of bytes.

``encode`` and ``decode`` are inverse to each other on everything this package freezes: a document
that is valid JSON but not in canonical form is refused, so "the bytes read" and "the bytes hashed"
are the same thing. This module never opens a file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import blake3
import rfc8785

from eps_locked.errors import MalformedInputError

__all__ = ["Json", "decode", "digest_bytes", "digest_value", "encode", "is_digest", "short"]

Json = None | bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"]

DIGEST_PREFIX = "blake3:"
_DIGEST = re.compile(r"blake3:[0-9a-f]{64}")
_MAX_SAFE_INTEGER = 2**53 - 1


def digest_bytes(data: bytes) -> str:
    """``blake3:`` and 64 hex digits, over exactly these bytes."""
    return DIGEST_PREFIX + blake3.blake3(data).hexdigest()


def digest_value(value: Json) -> str:
    """Digest of the canonical encoding of a JSON value."""
    return digest_bytes(encode(value))


def is_digest(text: object) -> bool:
    """Whether ``text`` is a digest of the one kind we know. Unknown algorithms are not digests."""
    return isinstance(text, str) and _DIGEST.fullmatch(text) is not None


def short(digest: str | None) -> str:
    """A digest shortened for people: algorithm and twelve digits. Never compare these."""
    return "none" if digest is None else digest[: len(DIGEST_PREFIX) + 12]


def encode(value: Any) -> bytes:
    """Canonical bytes of a JSON value (RFC 8785).

    Raises MalformedInputError for NaN, infinities, integers beyond 2**53 - 1, non-string keys and
    lone surrogates: none of them has a canonical form, and none may be rounded into one.
    """
    try:
        return rfc8785.dumps(value)
    except (rfc8785.CanonicalizationError, UnicodeEncodeError, RecursionError, TypeError) as error:
        raise MalformedInputError(
            "value", problem=f"has no canonical JSON form ({error})"
        ) from error


def decode(data: bytes, *, thing: str) -> Any:
    """Parse canonical JSON bytes; ``thing`` names the source in errors.

    Raises MalformedInputError for bytes that are not UTF-8 JSON, hold duplicate keys or NaN, or
    are not exactly what ``encode`` would write.
    """
    floats_seen = False

    def parse_float(text: str) -> float:
        nonlocal floats_seen
        floats_seen = True
        return float(text)

    def parse_int(text: str) -> int | float:
        # A double from 2^53 to below 1e21 is written without a point. Read back as a double it
        # gives the same bytes if it was one; an integer that is none does not, and is refused.
        if len(text) <= 17 and abs(int(text)) <= _MAX_SAFE_INTEGER:
            return int(text)
        if len(text) > _LONGEST_PLAIN:
            raise ValueError(f"integer {text[:20]} is beyond 2**53 - 1")
        return parse_float(text)

    try:
        value = json.loads(
            data.decode("utf-8"),
            parse_float=parse_float,
            parse_int=parse_int,
            parse_constant=_refuse_constant,
            object_pairs_hook=_unique_pairs,
        )
    except (ValueError, RecursionError) as error:
        raise MalformedInputError(thing, problem=f"is not strict JSON ({error})") from error
    try:
        is_canonical = _recode(value, floats_seen) == data
    except MalformedInputError as error:
        raise MalformedInputError(thing, problem=error.problem) from error
    if not is_canonical:
        raise MalformedInputError(
            thing,
            problem="is not in canonical form (RFC 8785)",
            next_step="restore the file as it was written; it is never edited by hand",
        )
    return value


def _recode(value: Any, floats_seen: bool) -> bytes:
    """``encode(value)``, by the standard library where that provably gives the same bytes.

    Without floats the two differ only in key order, and only for keys beyond the Basic
    Multilingual Plane (UTF-16 against code point order); those contain bytes >= 0xF0 in UTF-8.
    A ledger of 100,000 lines verifies several times faster this way.
    """
    if floats_seen:
        return encode(value)
    try:
        data = json.dumps(
            value, ensure_ascii=False, separators=(",", ":"), sort_keys=True, allow_nan=False
        ).encode("utf-8")
    except UnicodeEncodeError:
        return encode(value)
    return encode(value) if any(byte in data for byte in _FOUR_BYTE_LEADS) else data


# A sign and the 21 digits of the largest number that ECMAScript writes without an exponent.
_LONGEST_PLAIN = 22
_FOUR_BYTE_LEADS = (b"\xf0", b"\xf1", b"\xf2", b"\xf3", b"\xf4")


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")


def _unique_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise ValueError(f"duplicate key {key!r}")
            seen.add(key)
    return result
