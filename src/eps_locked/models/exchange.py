"""One question and one response under a model's own chat template, as a reward model reads them.

The response must stand in the rendered text byte for byte. A template that leaves reasoning out,
or trims it, would let a reward model judge another response than the one that is recorded; it is
refused, naming the response, instead of being asked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from eps_locked.domain.model import Message, TokenIds
from eps_locked.errors import BackendError

__all__ = ["ClosedTokenizer", "Exchange", "exchange_of"]

# Stands where the response stands, to show what a template writes behind one.
_MARK = "eps-locked-response"
_N_SHOWN = 24


class ClosedTokenizer(Protocol):
    """A chat tokenizer that also renders a chat whose last turn is the assistant's."""

    @property
    def end_of_turn_id(self) -> int: ...

    @property
    def template_digest(self) -> str: ...

    def closed_text(self, messages: list[Message]) -> str: ...

    def encode(self, text: str) -> TokenIds: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Exchange:
    """The rendered text in three parts; ``text`` is all of it."""

    head: str
    response: str
    tail: str

    @property
    def text(self) -> str:
        return self.head + self.response + self.tail


def exchange_of(
    tokenizer: ClosedTokenizer, user_prompt: str, response: str, *, key: str
) -> Exchange:
    """Raises BackendError naming ``key`` if the template does not leave the response as it is."""
    tail = _tail(tokenizer, user_prompt)
    text = tokenizer.closed_text(_turns(user_prompt, response))
    if not response or not text.endswith(response + tail):
        before = text.removesuffix(tail)
        raise BackendError(
            f"response {key}",
            problem="the chat template does not leave it as it is",
            expected=f"the whole response, ending in {response[-_N_SHOWN:]!r}",
            found=f"a turn that ends in {before[-_N_SHOWN:]!r}",
            next_step="take a reward model whose template keeps reasoning and blanks, or score "
            "elsewhere and hand the scores in as a table",
        )
    head = text.removesuffix(response + tail)
    return Exchange(head=head, response=response, tail=tail)


def _tail(tokenizer: ClosedTokenizer, user_prompt: str) -> str:
    text = tokenizer.closed_text(_turns(user_prompt, _MARK))
    if _MARK not in text:
        raise BackendError(
            "chat template", expected="the assistant's turn in the rendered chat", found="none"
        )
    return text[text.rindex(_MARK) + len(_MARK) :]


def _turns(user_prompt: str, response: str) -> list[Message]:
    return [
        Message(role="user", content=user_prompt),
        Message(role="assistant", content=response),
    ]
