"""Answers one prepared request with an engine, alone in its batch.

Reasoning, if asked for, is a generation of its own, closed for the model if it did not close it
(or ended its turn inside it); the answer goes on from there. Streamed or not, the same tokens are
generated from the same ids, so the texts are equal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal, Protocol, runtime_checkable

import blake3

from eps_locked.domain.model import (
    ChatTokenizer,
    Completion,
    Decoding,
    Engine,
    Prompt,
    TokenIds,
)
from eps_locked.serving.pieces import Shown, without_half_a_tag
from eps_locked.serving.prompts import THINK_CLOSE, Prepared
from eps_locked.serving.requests import ChatCall
from eps_locked.serving.tools import CALL_OPEN, parse_calls

__all__ = ["Answer", "Piece", "StreamingEngine", "answer"]

FinishReason = Literal["stop", "length", "tool_calls"]
_CLOSE_TAG = THINK_CLOSE.strip()


@runtime_checkable
class StreamingEngine(Protocol):
    """An engine that tells tokens as they come; one that cannot answers in one piece."""

    def stream(
        self, prompt: Prompt, decoding: Decoding, on_token: Callable[[int], None]
    ) -> Completion: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Piece:
    """The next part of one of the two texts of an answer."""

    kind: Literal["reasoning", "content"]
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """A whole answer. ``reasoning`` is None unless asked for; ``calls`` are (name, arguments).

    Counts are of tokens: ``n_prompt`` with the opened block, ``n_reasoning`` of the model's own
    within it, ``n_answer`` after it.
    """

    reasoning: str | None
    content: str
    calls: tuple[tuple[str, str], ...]
    finish_reason: FinishReason
    n_prompt: int
    n_reasoning: int
    n_answer: int


class _Closed(Exception):
    """Thrown through the engine when the model has closed its block. Never leaves this file."""


def answer(
    engine: Engine,
    tokenizer: ChatTokenizer,
    call: ChatCall,
    prepared: Prepared,
    *,
    on_piece: Callable[[Piece], None],
    check: Callable[[], None],
) -> Answer:
    """Answer; ``on_piece`` is told both texts as they grow, their ends included.

    ``check`` is called at every token; what it raises ends the work and reaches the caller.
    Raises BackendError as ``Engine.generate`` does.
    """
    writer = _Writer(engine=engine, tokenizer=tokenizer, call=call, check=check)
    ids, reasoning, n_reasoning = prepared.token_ids, None, 0
    if prepared.budget is not None:
        shown = Shown(lambda text: on_piece(Piece(kind="reasoning", text=text)))
        thought, reasoning = writer.think(ids, prepared.budget, shown)
        shown.finish(reasoning)
        ids, n_reasoning = (*ids, *thought, *prepared.close_ids), len(thought)
    shown = Shown(lambda text: on_piece(Piece(kind="content", text=text)))
    completion = writer.write(ids, prepared.max_tokens, shown)
    if call.tools:
        parsed = parse_calls(completion.text)
        content, calls = parsed.content, parsed.calls
    else:
        content, calls = completion.text, ()
    shown.finish(content)
    return Answer(
        reasoning=reasoning,
        content=content,
        calls=calls,
        finish_reason="tool_calls" if calls else completion.stop_reason,
        n_prompt=len(prepared.token_ids),
        n_reasoning=n_reasoning,
        n_answer=len(completion.token_ids),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Writer:
    """The two generations of one request."""

    engine: Engine
    tokenizer: ChatTokenizer
    call: ChatCall
    check: Callable[[], None]

    def think(self, ids: TokenIds, budget: int, shown: Shown) -> tuple[TokenIds, str]:
        """The reasoning as ids and text; ends at the model's own close, the budget or its turn."""
        written: list[int] = []

        def look(text: str) -> None:
            shown.grow(without_half_a_tag(text, (_CLOSE_TAG,)))
            if _CLOSE_TAG in text:
                raise _Closed

        try:
            completion = self._generate(
                ids, budget, "reasoning", partial(self._told, written, look)
            )
            thought = completion.token_ids
        except _Closed:
            thought = tuple(written)
        text = self.tokenizer.decode(thought)
        end = text.find(_CLOSE_TAG)
        if end < 0:
            return thought, text.rstrip()
        # The line break before the tag is part of how the block is closed.
        end -= text[:end].endswith("\n")
        return self._head(thought, end), text[:end].rstrip()

    def write(self, ids: TokenIds, max_tokens: int, shown: Shown) -> Completion:
        """The answer; with tools on offer, whatever may become a call is not shown."""
        written: list[int] = []

        def look(text: str) -> None:
            shown.grow(without_half_a_tag(text, (CALL_OPEN,)) if self.call.tools else text)

        return self._generate(ids, max_tokens, "", partial(self._told, written, look))

    def _told(self, written: list[int], look: Callable[[str], None], token_id: int) -> None:
        self.check()
        written.append(token_id)
        look(self.tokenizer.decode(written))

    def _generate(
        self, ids: TokenIds, max_tokens: int, stage: str, on_token: Callable[[int], None]
    ) -> Completion:
        self.check()
        decoding = Decoding(
            max_new_tokens=max_tokens,
            temperature=self.call.temperature,
            top_p=self.call.top_p,
        )
        prompt = Prompt(key="of the request", token_ids=ids, seed=_seed(self.call.seed, stage))
        if isinstance(self.engine, StreamingEngine):
            return self.engine.stream(prompt, decoding, on_token)
        return self.engine.generate([prompt], decoding)[0]

    def _head(self, token_ids: TokenIds, n_characters: int) -> TokenIds:
        """The most tokens whose text lies within the first so many characters."""
        n = len(token_ids)
        while n and len(self.tokenizer.decode(token_ids[:n])) > n_characters:
            n -= 1
        return token_ids[:n]


def _seed(seed: int, stage: str) -> int:
    """The answer draws with the request's seed; what comes before it with one made from it."""
    if not stage:
        return seed
    return int.from_bytes(blake3.blake3(f"{seed}/{stage}".encode()).digest()[:6], "big")
