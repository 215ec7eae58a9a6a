"""The chain rules of a ledger: pure, streaming, one line at a time.

A line is the canonical JSON of ``{"digest", "payload"}``; ``payload.prev`` is the digest of the
line before, and the first line's ``prev`` is the genesis digest, which binds the manifest and the
kind of root. The chain shows that lines are whole and in order. It does not show who wrote them:
whoever can write the file can rebuild all of it, which is why heads are published (docs/lock.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from eps_locked.canonical import decode, digest_bytes, digest_value, encode
from eps_locked.domain.ledger import Entry, Root
from eps_locked.errors import EpsLockedError, EvidenceError, MalformedInputError
from eps_locked.lock.envelope import payload_bytes

HEAD_SCHEMA = "eps-locked/head/1"


def genesis_digest(manifest_digest: str, root: Root) -> str:
    """What the first entry must name as its predecessor. A smoke run has another one."""
    return digest_value(
        {"schema": "eps-locked/genesis/1", "manifest": manifest_digest, "root": root}
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """One verified line: its entry and its digest."""

    entry: Entry
    digest: str


def write_line(entry: Entry) -> tuple[bytes, str]:
    """The bytes of an entry's line (without newline) and its digest."""
    payload = entry.payload()
    digest = digest_value(payload)
    return encode({"digest": digest, "payload": payload}), digest


def split_lines(data: bytes) -> tuple[list[bytes], bytes]:
    """Whole lines, and what follows the last newline: empty, or the torn end of a crash."""
    *lines, torn = data.split(b"\n")
    return lines, torn


class ChainReader:
    """Accepts lines in order; keeps constant memory. One instance reads one ledger once."""

    def __init__(self, manifest_digest: str, root: Root, *, thing: str) -> None:
        self._thing = thing
        self._expected_prev = genesis_digest(manifest_digest, root)
        self._seq = 0

    @property
    def n_read(self) -> int:
        return self._seq

    @property
    def head(self) -> str:
        """Digest of the last accepted line, or the genesis digest."""
        return self._expected_prev

    def accept(self, line: bytes) -> Line:
        """Verify one line against its predecessor.

        Raises EvidenceError or MalformedInputError, naming ledger and line. The reader then moves
        on from what the line claims, so that an audit can go on and list every break.
        """
        where = f"{self._thing}:{self._seq + 1}"
        expected_seq, expected_prev = self._seq, self._expected_prev
        self._seq += 1
        value = decode(line, thing=where)
        if not isinstance(value, dict) or set(value) != {"digest", "payload"}:
            raise MalformedInputError(where, problem="is not {digest, payload}")
        digest = digest_bytes(payload_bytes(line, value["digest"]))
        self._expected_prev = digest
        if value["digest"] != digest:
            raise EvidenceError(where, expected=value["digest"], found=digest)
        entry = Entry.from_payload(value["payload"], where)
        if entry.seq != expected_seq:
            raise EvidenceError(f"{where}: seq", expected=expected_seq, found=entry.seq)
        if entry.prev != expected_prev:
            raise EvidenceError(
                f"{where}: prev",
                expected=expected_prev,
                found=entry.prev,
                next_step="an entry before this one was changed, dropped, added or moved",
            )
        return Line(entry=entry, digest=digest)


def read_chain(lines: Iterable[bytes], reader: ChainReader) -> Iterator[Line | EpsLockedError]:
    """Every line's verdict, errors included, for callers that list all of them."""
    for line in lines:
        try:
            yield reader.accept(line)
        except EpsLockedError as error:
            yield error


def check_head(
    *, stated: tuple[int, str], last: tuple[int, str], before_last: tuple[int, str], thing: str
) -> None:
    """The head file names the last entry, or (a crash in between) the one before it.

    Each pair is (sequence number, digest). Raises EvidenceError if the head names an entry the
    ledger does not end with: the ledger was cut or replaced.
    """
    if stated in (last, before_last):
        return
    raise EvidenceError(
        thing,
        problem="does not name the ledger's last entry; the ledger was cut or replaced",
        expected=f"entry {stated[0]} {stated[1]}",
        found=f"entry {last[0]} {last[1]}",
        next_step="restore the ledger from a copy that ends with that entry",
    )
