"""Why an answer has no outcome: the reasons in words, in one order everywhere."""

from __future__ import annotations

from collections.abc import Mapping

# An answer's own reasons first, then what the judge or the line to it made of it.
REASONS: Mapping[str, str] = {
    "excluded": "left out by label",
    "incoherent": "incoherent",
    "unreadable": "unreadable",
    "judge_refused": "refused by the judge",
    "truncated": "cut off at the judge",
    "rate_limited": "rate-limited",
    "outage": "lost to an outage",
}


def counted_reasons(counts: Mapping[str, int | None]) -> str:
    """``8 left out by its label, 1 incoherent``; empty where every answer has an outcome."""
    return ", ".join(f"{counts[key]} {words}" for key, words in REASONS.items() if counts.get(key))
