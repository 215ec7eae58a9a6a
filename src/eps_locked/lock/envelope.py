"""Frozen documents: ``{"digest": ..., "payload": ...}`` in canonical JSON, one per file.

The digest is that of the payload's canonical bytes: nothing signs itself by leaving a hole. The
payload's first duty is to say what it is (``schema``), so one kind cannot pass for another.
"""

from __future__ import annotations

from typing import Any

from eps_locked.canonical import decode, digest_bytes, digest_value, encode
from eps_locked.errors import EvidenceError, MalformedInputError


def seal_document(payload: dict[str, Any]) -> tuple[bytes, str]:
    """The file bytes of a payload, and the payload's digest."""
    digest = digest_value(payload)
    return encode({"digest": digest, "payload": payload}), digest


def open_document(data: bytes, *, thing: str, schema: str) -> tuple[dict[str, Any], str]:
    """The payload and its digest, from file bytes.

    Raises MalformedInputError for bytes that are not a canonical envelope of this schema, and
    EvidenceError when the payload is not the one that was sealed.
    """
    value = decode(data, thing=thing)
    if not isinstance(value, dict) or set(value) != {"digest", "payload"}:
        raise MalformedInputError(thing, expected="{digest, payload}", found=_keys(value))
    payload = value["payload"]
    if not isinstance(payload, dict):
        raise MalformedInputError(f"{thing}: payload", expected="a mapping", found=_keys(payload))
    actual = digest_bytes(payload_bytes(data, value["digest"]))
    if value["digest"] != actual:
        raise EvidenceError(
            thing,
            expected=value["digest"],
            found=actual,
            next_step="restore the file from where it was first written",
        )
    if payload.get("schema") != schema:
        raise MalformedInputError(f"{thing}: schema", expected=schema, found=payload.get("schema"))
    return payload, actual


def payload_bytes(document: bytes, stated_digest: object) -> bytes:
    """The payload's bytes inside a canonical envelope: they need not be encoded a second time.

    ``digest`` sorts before ``payload``, so what follows the digest up to the last brace is it.
    """
    prefix = b'{"digest":' + encode(stated_digest) + b',"payload":'
    if not document.startswith(prefix):
        raise ValueError("not a canonical envelope; decode it before asking for its payload")
    return document[len(prefix) : -1]


def _keys(value: object) -> str:
    return f"{sorted(value)}" if isinstance(value, dict) else type(value).__name__
