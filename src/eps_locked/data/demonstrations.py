"""Demonstrations in a prompt, checked: they must show something, and show nothing of the eval set.

A published run lost a condition to demonstrations that had all become the same answer, and another
to questions that stood in both pools with a word changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from eps_locked.data.text import NEAR_COPY, NearCopies, normalise
from eps_locked.domain.model import Message
from eps_locked.errors import MalformedInputError

# A shorter content ("Why?") stands in many texts by chance.
_LEAKING_WORDS = 4


class Demonstrating(Protocol):
    """A context whose earlier turns are demonstrations; the last message is the question asked."""

    @property
    def id(self) -> str: ...

    @property
    def messages(self) -> tuple[Message, ...]: ...


def check_demonstrations(
    context: Demonstrating, eval_texts: Iterable[str], *, near_copy: float = NEAR_COPY
) -> None:
    """Refuse degenerate demonstrations and those that give eval items away.

    Degenerate: none at all, an empty answer, an answer that repeats its question, two questions or
    two answers that are nearly the same. Leaking: a question that is an eval item or nearly one, or
    an eval item inside any turn. Raises MalformedInputError naming the context and both texts.
    """
    exchanges = _exchanges(context)
    _require_distinct(context.id, "questions", [asked for asked, _ in exchanges], near_copy)
    _require_distinct(context.id, "answers", [answer for _, answer in exchanges], near_copy)
    for asked, answer in exchanges:
        content, question = normalise(answer), normalise(asked)
        if not content:
            raise _degenerate(context.id, "an answer to each question", repr(answer))
        if question and (content == question or _nearly(asked, answer, near_copy)):
            raise _degenerate(
                context.id, f"an answer to {asked!r}", f"the question again: {answer!r}"
            )
    _require_apart(context, exchanges, eval_texts, near_copy)


def _exchanges(context: Demonstrating) -> list[tuple[str, str]]:
    turns = [message for message in context.messages[:-1] if message.role != "system"]
    roles = [message.role for message in turns]
    if not turns or roles != ["user", "assistant"] * (len(turns) // 2):
        raise _degenerate(
            context.id,
            "questions and answers in turn, then the question",
            " ".join(roles) or "none",
        )
    return [
        (asked.content, answer.content)
        for asked, answer in zip(turns[::2], turns[1::2], strict=True)
    ]


def _require_distinct(name: str, what: str, texts: Sequence[str], near_copy: float) -> None:
    seen = NearCopies(near_copy)
    for text in texts:
        other = seen.like(text)
        if other is not None:
            raise _degenerate(name, f"distinct {what}", f"{text!r} beside {other!r}")
        seen.add(text)


def _require_apart(
    context: Demonstrating,
    exchanges: Sequence[tuple[str, str]],
    eval_texts: Iterable[str],
    near_copy: float,
) -> None:
    shown = NearCopies(near_copy)
    turns = []
    for asked, answer in exchanges:
        shown.add(asked)
        turns += [f" {normalise(asked)} ", f" {normalise(answer)} "]
    for text in eval_texts:
        content = normalise(text)
        held = len(content.split()) >= _LEAKING_WORDS and any(f" {content} " in t for t in turns)
        other = shown.like(text)
        if held or other is not None:
            raise MalformedInputError(
                f"context {context.id}",
                problem=f"gives away the eval item {text!r}",
                expected="demonstrations found in no pool",
                found=repr(other) if other is not None else "it inside a turn",
                next_step="write another demonstration",
            )


def _nearly(one: str, other: str, near_copy: float) -> bool:
    seen = NearCopies(near_copy)
    seen.add(one)
    return seen.like(other) is not None


def _degenerate(name: str, expected: str, found: str) -> MalformedInputError:
    return MalformedInputError(
        f"context {name}",
        problem="holds degenerate demonstrations",
        expected=expected,
        found=found,
        next_step="write the demonstrations again",
    )
