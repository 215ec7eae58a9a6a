"""What a reader of one kind of source gives: rows, each with the ways it could be used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from eps_locked.canonical import digest_value
from eps_locked.domain.model import Message


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """One use of a row. ``raw`` are its texts as they came, to be screened.

    ``content`` is what makes it the same as another; ``group`` a bin, ``topic`` what slots ask
    for (None: it has none of the topics asked for); ``entry`` what a drawn row adds to the
    document. ``messages`` are there where tokens are counted. ``fault`` is a reason to drop it
    that counts only if its texts have no fault: that a text is Chinese says more about a row than
    that it lacks an English article.
    """

    raw: tuple[str, ...]
    content: str
    group: str | None = None
    topic: str | None = None
    messages: tuple[Message, ...] = ()
    fault: str | None = None
    entry: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class RowRead:
    """A row that could be read: its digest (of content, not of place) and its uses.

    Of a row with several uses the first reason counts, and only if no use is left.
    """

    where: str
    digest: str
    upstream_id: str | None
    uses: tuple[Candidate, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Dropped:
    """A row that could not be read, and the reason."""

    where: str
    reason: str


Read = RowRead | Dropped


def row_digest(*parts: Any) -> str:
    """The digest that names a row by what was read of it."""
    return digest_value(list(parts))


class Drop(Exception):
    """Raised while a row is read, to drop it under a reason; never leaves this room."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


def text_of(row: Mapping[str, Any], key: str) -> str:
    """A text field. Raises Drop for a missing, null, non-text or blank one."""
    value = row.get(key)
    if value is None:
        raise Drop("missing_field")
    if not isinstance(value, str):
        raise Drop("wrong_type")
    if not value.strip():
        raise Drop("empty")
    return _whole(value)


def id_of(row: Mapping[str, Any], key: str | None) -> str | None:
    """An upstream id as text; ids are numbers in one file and text in the next."""
    value = row.get(key) if key is not None else None
    if isinstance(value, bool) or not isinstance(value, str | int):
        return None
    return str(value)


def turns_of(row: Mapping[str, Any], key: str) -> list[tuple[str, str]]:
    """The (role, content) pairs of a list of messages, blank content kept.

    Both ways of writing a turn are read: role and content, or type "human" and content. Raises
    Drop for a missing list or field.
    """
    value = row.get(key)
    if value is None:
        raise Drop("missing_field")
    if not isinstance(value, list | tuple):
        raise Drop("wrong_type")
    turns = []
    for turn in value:
        if not isinstance(turn, Mapping):
            raise Drop("wrong_type")
        role = turn.get("role", turn.get("type"))
        content = turn.get("content")
        if role is None or content is None:
            raise Drop("missing_field")
        if not isinstance(role, str) or not isinstance(content, str):
            raise Drop("wrong_type")
        turns.append(({"human": "user", "ai": "assistant"}.get(role, role), _whole(content)))
    return turns


def single_question(turns: list[tuple[str, str]]) -> str:
    """The one user turn of a request. Raises Drop for a system turn or several turns."""
    roles = [role for role, _ in turns]
    if "system" in roles:
        raise Drop("has_system")
    if roles and roles[0] != "user":
        raise Drop("role_order")
    if len(roles) != 1:
        raise Drop("several_turns" if roles else "empty")
    return turns[0][1]


def _whole(text: str) -> str:
    """The text, if it has bytes: half a surrogate, which JSON may spell, cannot be hashed."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise Drop("mojibake") from None
    return text
