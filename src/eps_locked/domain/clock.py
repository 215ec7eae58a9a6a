"""Time as this package writes it: UTC, whole seconds, one spelling."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from eps_locked.errors import MalformedInputError

Clock = Callable[[], datetime]
_FORMAT = "%Y-%m-%dT%H:%M:%SZ"


def format_time(moment: datetime) -> str:
    """``2026-06-09T12:00:00Z``. Naive times are a programming error (ValueError)."""
    if moment.tzinfo is None:
        raise ValueError("a time without a zone has no meaning here")
    return moment.astimezone(UTC).strftime(_FORMAT)


def parse_time(text: str, *, thing: str) -> datetime:
    """The moment a string names. Raises MalformedInputError for any other spelling."""
    try:
        moment = datetime.strptime(text, _FORMAT).replace(tzinfo=UTC)
    except ValueError as error:
        raise MalformedInputError(thing, expected="YYYY-MM-DDTHH:MM:SSZ", found=text) from error
    if format_time(moment) != text:
        raise MalformedInputError(thing, expected=format_time(moment), found=text)
    return moment
