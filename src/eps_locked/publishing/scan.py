"""A last look at the bytes themselves: nothing sealed, nothing withheld, no secret, no machine.

What is written is right by construction; this does not rely on it. Each file is taken apart again
as a reader would, and every number and text in it is compared with what must not be there.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from eps_locked.audit.bundle_contents import require_no_private_key
from eps_locked.canonical import digest_bytes
from eps_locked.domain.ledger import ENCRYPTED
from eps_locked.errors import RefusedError
from eps_locked.publishing.parts import Cell
from eps_locked.publishing.tensor import values_left

_AGE = re.compile(rb"age-encryption\.org/v\d|-----BEGIN AGE ENCRYPTED FILE-----")
_SECRETS = {
    "an access token": re.compile(
        rb"\bhf_[A-Za-z0-9]{20,}|\bsk-[A-Za-z0-9_-]{20,}|\bgh[pousr]_[A-Za-z0-9]{20,}"
        rb"|\bgithub_pat_[A-Za-z0-9_]{20,}|\bxox[a-z]-[A-Za-z0-9-]{10,}|\bAKIA[0-9A-Z]{16}\b"
        rb"|\bAIza[A-Za-z0-9_-]{30,}|Bearer [A-Za-z0-9._~+/-]{20,}"
    ),
    "a private key": re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----|AGE-SECRET-KEY-"),
    "somebody's home folder": re.compile(
        rb"(?<![\w.])/(?:home|Users)/[\w.-]+|(?<![\w.])/root(?![\w-])|[A-Z]:\\+Users\\+\w"
    ),
}
# Runs of token ids shorter than this are in too many prompts to say anything.
LEAST_RUN = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class Forbidden:
    """What must not be found.

    ``numbers`` and ``texts``: of held-back cells alone; equal to a whole value. ``passages``:
    withheld text, found inside any text. ``runs``: the same as
    ``joined`` token ids. ``machine``: paths of
    this machine and secrets of this process.
    """

    held_back: frozenset[Cell] = frozenset()
    plaintexts: frozenset[str] = frozenset()
    numbers: frozenset[float] = frozenset()
    texts: frozenset[str] = frozenset()
    passages: Mapping[str, str] | None = None
    runs: Mapping[str, str] | None = None
    machine: tuple[str, ...] = ()

    def require_absent(self, name: str, data: bytes) -> None:
        """Raises RefusedError naming the file and what is in it, but never the thing itself."""
        if name.endswith(ENCRYPTED) or _AGE.search(data):
            raise _refused(name, "a sealed artifact", "what is sealed stays with the run")
        if digest_bytes(data) in self.plaintexts:
            raise _refused(name, "the plain text of a sealed artifact")
        _require_no_secret(name, _readable(name, data), self.machine)
        for document in documents(name, data):
            self._require_clean(name, document)

    def _require_clean(self, name: str, document: Any) -> None:
        for value in walk(document):
            match value:
                case Mapping():
                    self._require_no_value(name, value)
                case float() if value in self.numbers:
                    raise _refused(name, "a number that only a held-back cell has")
                case str():
                    self._require_text(name, value)
                case list() if self.runs and len(value) >= LEAST_RUN:
                    self._require_tokens(name, value)

    def _require_no_value(self, name: str, value: Mapping[str, Any]) -> None:
        train, evaluated = value.get("train"), value.get("eval")
        if not (isinstance(train, str) and isinstance(evaluated, str)):
            return
        # A cell without its row's name counts as held back if it is that in every row.
        rows = [value["behaviour"]] if "behaviour" in value else {b for b, _, _ in self.held_back}
        back = rows and all((row, train, evaluated) in self.held_back for row in rows)
        if back and (left := values_left(value)):
            raise _refused(name, f"{', '.join(left)} of the held-back cell {train} -> {evaluated}")

    def _require_text(self, name: str, text: str) -> None:
        if text in self.texts:
            raise _refused(name, "an answer that must not be shown in full")
        for passage, where in (self.passages or {}).items():
            if passage in text:
                raise _refused(name, f"a text of {where}, which may not be handed on")

    def _require_tokens(self, name: str, ids: Sequence[Any]) -> None:
        if not all(isinstance(one, int) for one in ids):
            return
        text = joined(ids)
        for run, where in (self.runs or {}).items():
            if run in text:
                raise _refused(name, f"token ids of {where}, which may not be handed on")


def documents(name: str, data: bytes) -> Iterator[Any]:
    """What a reader of the file gets: JSON values, rows of a table, or its text."""
    match PurePosixPath(name).suffix:
        case ".json":
            yield json.loads(data)
        case ".jsonl":
            for line in data.splitlines():
                yield json.loads(line)
        case ".parquet":
            import pyarrow.parquet as pq

            yield from pq.read_table(io.BytesIO(data)).to_pylist()
        case ".safetensors":
            yield json.loads(_readable(name, data))
        case _:
            yield data.decode("utf-8")


def walk(value: Any) -> Iterator[Any]:
    """The value and everything in it, keys included."""
    yield value
    if isinstance(value, Mapping):
        for key, one in value.items():
            yield key
            yield from walk(one)
    elif isinstance(value, list):
        for one in value:
            yield from walk(one)


def _readable(name: str, data: bytes) -> bytes:
    """The part of a file in which text can stand: of weights, the header."""
    if not name.endswith(".safetensors"):
        return data
    return data[8 : 8 + int.from_bytes(data[:8], "little")]


def _require_no_secret(name: str, data: bytes, machine: tuple[str, ...]) -> None:
    require_no_private_key(name, data)
    for what, pattern in _SECRETS.items():
        if pattern.search(data):
            raise _refused(name, f"what looks like {what}", "take it out of the plan or material")
    for one in machine:
        if one.encode("utf-8") in data:
            raise _refused(name, "a path or a secret of this machine")


def joined(ids: Sequence[int]) -> str:
    """Token ids as text in which a run of them can be found."""
    return f" {' '.join(map(str, ids))} "


def _refused(name: str, found: str, next_step: str | None = None) -> RefusedError:
    return RefusedError(
        name,
        problem="would not be fit to publish",
        expected="no such thing in a published file",
        found=found,
        next_step=next_step or "nothing was written; this is a defect of eps-locked: report it",
    )
