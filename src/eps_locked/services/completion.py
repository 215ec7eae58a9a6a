"""One chat completion out of the bytes of a reply, whole or not at all.

Pure. Whatever is missing, doubled or of another type raises ValueError; nothing is filled in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from eps_locked.canonical import encode
from eps_locked.errors import MalformedInputError
from eps_locked.services.strict_json import json_reply, show

__all__ = ["TEXTS", "Completion", "ErrorInReplyError", "completion_of", "read_completion"]

# Beyond this no record can hold a count, and no service can have counted so far.
_LARGEST = 2**53 - 1
# The texts of an assistant's message: its answer, its thoughts under two names, its refusal.
TEXTS = ("content", "reasoning_content", "reasoning", "refusal")


@dataclass(frozen=True, kw_only=True, slots=True)
class Completion:
    """A whole reply with one choice.

    ``message`` is the assistant's, its TEXTS strings or None where they are there and its
    ``tool_calls`` objects. ``finish_reason`` is None where the service gave none. ``first_at``:
    how many bytes of a stream had come with its first piece of text or call, None without one.
    """

    model: str
    message: Mapping[str, Any]
    finish_reason: str | None
    n_prompt_tokens: int | None
    n_completion_tokens: int | None
    first_at: int | None = None

    def text(self, name: str) -> str:
        """One of TEXTS, empty where there is none."""
        return self.message.get(name) or ""

    @property
    def calls(self) -> list[Mapping[str, Any]]:
        return self.message.get("tool_calls") or []


class ErrorInReplyError(ValueError):
    """A service reported an error in a body, or a piece of a stream, that began as a reply."""

    def __init__(self, value: Mapping[str, Any]) -> None:
        super().__init__("an error where the reply should be")
        self.value = value


def read_completion(body: bytes) -> Completion:
    """A reply that came in one piece. Raises ValueError, and ErrorInReplyError for an error."""
    value = json_reply(body)
    if value.get("error"):
        raise ErrorInReplyError(value)
    choices = value.get("choices")
    if not isinstance(choices, list) or len(choices) != 1:
        raise ValueError("no completion with one choice in it")
    choice = choices[0]
    if not isinstance(choice, Mapping) or not isinstance(choice.get("message"), Mapping):
        raise ValueError("a choice without a message")
    return completion_of(
        value.get("model"), choice["message"], choice.get("finish_reason"), value.get("usage")
    )


def completion_of(
    model: object,
    message: Mapping[str, Any],
    finish_reason: object,
    usage: object,
    *,
    first_at: int | None = None,
) -> Completion:
    """The parts as a completion, checked. Raises ValueError."""
    if not isinstance(model, str) or not model:
        raise ValueError("a completion that does not name its model")
    if finish_reason is not None and not isinstance(finish_reason, str):
        raise ValueError(f"a finish reason that is no text: {show(finish_reason)}")
    for name in TEXTS:
        if not isinstance(message.get(name), str | None):
            raise ValueError(f"a message whose {name} is no text")
    calls = message.get("tool_calls")
    if calls is not None and not (
        isinstance(calls, list) and all(isinstance(one, Mapping) for one in calls)
    ):
        raise ValueError("a message whose tool_calls are no objects")
    try:
        encode([model, message, finish_reason])
    except MalformedInputError:  # half a character, an integer that no record can hold
        raise ValueError("a message that has no exact JSON form") from None
    return Completion(
        model=model,
        message=message,
        finish_reason=finish_reason or None,
        n_prompt_tokens=_count(usage, "prompt_tokens"),
        n_completion_tokens=_count(usage, "completion_tokens"),
        first_at=first_at,
    )


def _count(usage: object, name: str) -> int | None:
    """None where the service does not say, or says what is no count."""
    value = usage.get(name) if isinstance(usage, Mapping) else None
    return value if type(value) is int and 0 <= value <= _LARGEST else None
