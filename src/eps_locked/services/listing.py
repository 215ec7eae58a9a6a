"""What an endpoint's own list of models says of the routes that it has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from eps_locked.canonical import encode
from eps_locked.errors import MalformedInputError
from eps_locked.services.strict_json import json_reply

__all__ = ["has_route", "read_listing", "said_of"]

Entry = Mapping[str, Any]
# The name itself, what kind of object it is, and what differs from start to start of one server.
_LEFT_OUT = frozenset({"id", "object", "created", "created_at", "modified_at", "permission"})


def read_listing(body: bytes) -> tuple[Entry, ...]:
    """The models of a list. Raises ValueError for what is none."""
    data = json_reply(body).get("data")
    if not isinstance(data, list):
        raise ValueError("no list of models in it")
    for entry in data:
        if not isinstance(entry, Mapping) or not isinstance(entry.get("id"), str):
            raise ValueError("a model without an id in the list")
    return tuple(data)


def has_route(entries: Sequence[Entry], model: str) -> bool:
    """A list may hold patterns: LiteLLM names whole vendors so, as ``vendor/*``."""
    ids = [entry["id"] for entry in entries]
    return model in ids or any("*" in one and fnmatchcase(model, one) for one in ids)


def said_of(entries: Sequence[Entry], model: str) -> dict[str, str]:
    """What the list says of one model, as texts; what stands deeper gets a dotted name.

    A route that is there more than once (some gateways share one out over several servers) says
    all that its entries say, parted by bars.
    """
    said: dict[str, set[str]] = {}
    for entry in entries:
        if entry["id"] == model:
            for name, text in _texts(entry, ""):
                said.setdefault(name, set()).add(text)
    return {name: " | ".join(sorted(texts)) for name, texts in sorted(said.items())}


def _texts(value: Entry, before: str) -> Iterator[tuple[str, str]]:
    for name, one in value.items():
        if name in _LEFT_OUT:
            continue
        if isinstance(one, Mapping):
            yield from _texts(one, f"{before}{name}.")
        elif one is not None and one != "":
            yield f"{before}{name}", one if isinstance(one, str) else _plain(one)


def _plain(value: object) -> str:
    try:
        return encode(value).decode("ascii", "backslashreplace")
    except MalformedInputError:
        return "unknown"
