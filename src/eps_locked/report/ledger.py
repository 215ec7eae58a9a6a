"""The table of a run's ledger, one line an entry."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from eps_locked.domain.ledger import Entry
from eps_locked.report.sheets import csv_bytes

LEDGER_WORDS = "one line an entry"


def ledger_csv(entries: Iterable[Entry]) -> bytes:
    """``ledger.csv``."""
    return csv_bytes(map(_row, entries))


def _row(entry: Entry) -> dict[str, Any]:
    """One entry in short."""
    body = entry.body
    return {
        "seq": entry.seq,
        "at": entry.at,
        "kind": entry.kind,
        "phase": body.get("phase"),
        "step": body.get("step"),
        "status": body.get("status"),
        "flags": " ".join(body.get("flags", ())),
        "ms": body.get("compute_ms"),
        "submission": _submission(entry),
        "look": body["number"] if entry.kind == "look" else body.get("look"),
    }


def _submission(entry: Entry) -> int | None:
    number: int | None = None
    if entry.kind == "submission":
        number = entry.body["number"]
    elif entry.kind == "look":
        number = entry.body["submission"]
    return number
