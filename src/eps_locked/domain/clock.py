"""Time as this package writes it: UTC, whole seconds, one spelling."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime

from eps_locked.domain.fields import Fields
from eps_locked.errors import MalformedInputError

Clock = Callable[[], datetime]
_FORMAT = "%Y-%m-%dT%H:%M:%SZ"
_SHAPE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")


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


def time_field(fields: Fields, key: str) -> str:
    """A field spelled as a time. Only its shape is checked: ledgers hold very many of them."""
    text = fields.text(key)
    if not _SHAPE.fullmatch(text):
        raise MalformedInputError(fields.path(key), expected="YYYY-MM-DDTHH:MM:SSZ", found=text)
    return text
