"""Replies under a reasoning setting: what is put before them, and where the reasoning ends.

Token ids are appended to token ids; text is only looked at to find where the model closed its
block. Every stage is one call of the engine for all that is asked, and each row has a seed of its
own, so that what a row says does not depend on its neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from eps_locked.domain.model import (
    ChatTokenizer,
    Completion,
    Decoding,
    Engine,
    Prompt,
    StopReason,
    TokenIds,
)
from eps_locked.studies.drift.plan import ReasoningSetting
from eps_locked.studies.drift.rendering import ReasoningIds

__all__ = ["Asked", "Reasoner", "Split", "Told", "split_at_close"]

# How far a token can stand behind the place that its characters were counted to: one character
# that was written as several tokens counts as more than one until it is whole.
_BYTES_OF_A_CHARACTER = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """One probe to be answered once. ``prompt`` is as it was frozen."""

    probe: str
    sample: int
    prompt: TokenIds

    @property
    def key(self) -> str:
        return f"{self.probe}/{self.sample}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Told:
    """What came back. ``reasoning`` is the model's own text, ``n_reasoning_tokens`` what stood in
    the block, a filler's tokens included. ``stop`` is how the last generation ended."""

    reply: str
    token_ids: TokenIds
    reasoning: str
    n_reasoning_tokens: int
    stop: StopReason
    attempts: int = 1
    exhausted: bool = False
    truncated_reasoning: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Split:
    """A continuation parted at the close of its reasoning block, which is in neither part."""

    reasoning: TokenIds
    reply: TokenIds
    text: str


def split_at_close(token_ids: TokenIds, close: TokenIds, tokenizer: ChatTokenizer) -> Split | None:
    """Part a continuation at the first close of the block; None if it was never closed.

    The close is looked for as text, since a model may spell it with other tokens than ours, and
    without the space around it if it never stands there as it was frozen. The reasoning is the
    tokens that lie wholly before it; a token that runs on behind it belongs to the reply.
    """
    text, written = tokenizer.decode(token_ids), tokenizer.decode(close)
    for wanted in (written, written.strip()):
        start = text.find(wanted) if wanted else -1
        if start >= 0:
            end = start + len(wanted)
            head = _n_tokens_within(token_ids, text, start, tokenizer)
            tail = _n_tokens_within(token_ids, text, end, tokenizer)
            return Split(reasoning=token_ids[:head], reply=token_ids[tail:], text=text[end:])
    return None


def _n_tokens_within(
    token_ids: TokenIds, text: str, n_characters: int, tokenizer: ChatTokenizer
) -> int:
    """The most tokens whose text lies within the first so many characters of ``text``.

    Found by halves: a continuation has thousands of tokens, and each look decodes its beginning.
    """
    low, high = 0, len(token_ids)
    while low < high:
        middle = (low + high + 1) // 2
        if len(tokenizer.decode(token_ids[:middle])) <= n_characters:
            low = middle
        else:
            high = middle - 1
    for more in range(_BYTES_OF_A_CHARACTER, 0, -1):
        if tokenizer.decode(token_ids[: low + more]) == text[:n_characters]:
            return min(low + more, len(token_ids))
    return low


@dataclass(frozen=True, kw_only=True, slots=True)
class Reasoner:
    """Asks a served model under one setting.

    ``decoding`` is that of replies; ``seed`` gives the seed of a row from its labels.
    """

    engine: Engine
    tokenizer: ChatTokenizer
    ids: ReasoningIds
    setting: ReasoningSetting
    decoding: Decoding
    seed: Callable[..., int]

    def ask(self, asked: Sequence[Asked]) -> tuple[Told, ...]:
        """One answer each, in order. Raises BackendError for a prompt that does not fit."""
        if self.setting.mode == "free":
            return self._free(asked)
        if self.setting.mode == "budget" and self.setting.n_tokens:
            return self._budgeted(asked)
        n_tokens = self.setting.n_tokens or 0 if self.setting.mode == "filler" else 0
        before = self.ids.before_reply(self.setting)
        completions = self._generate(asked, [before] * len(asked), self.decoding)
        return tuple(
            Told(
                reply=one.text,
                token_ids=one.token_ids,
                reasoning="",
                n_reasoning_tokens=n_tokens,
                stop=one.stop_reason,
            )
            for one in completions
        )

    def _budgeted(self, asked: Sequence[Asked]) -> tuple[Told, ...]:
        """At most so many tokens of the model's own, closed for it if need be, then the reply.

        A model that ends its turn without closing the block has not been cut off.
        """
        budget = replace(self.decoding, max_new_tokens=self.setting.n_tokens or 0)
        openings = [self.ids.opening] * len(asked)
        thoughts = self._generate(asked, openings, budget)
        splits = [self._split(one) for one in thoughts]
        reasoned = [
            one.token_ids if split is None else split.reasoning
            for one, split in zip(thoughts, splits, strict=True)
        ]
        before = [self.ids.before_reply(self.setting, ids) for ids in reasoned]
        completions = self._generate(asked, before, self.decoding, "reply")
        return tuple(
            Told(
                reply=reply.text,
                token_ids=reply.token_ids,
                reasoning=self.tokenizer.decode(ids),
                n_reasoning_tokens=len(ids),
                stop=reply.stop_reason,
                truncated_reasoning=split is None and thought.stop_reason == "length",
            )
            for thought, split, ids, reply in zip(
                thoughts, splits, reasoned, completions, strict=True
            )
        )

    def _free(self, asked: Sequence[Asked]) -> tuple[Told, ...]:
        """Reasoning and reply in one breath; without a reply asked again, with another seed."""
        whole = replace(self.decoding, max_new_tokens=self.setting.max_tokens or 0)
        told: dict[str, Told] = {}
        left = list(asked)
        for attempt in range((self.setting.retries or 0) + 1):
            openings = [self.ids.opening] * len(left)
            for one, completion in zip(
                left, self._generate(left, openings, whole, attempt=attempt), strict=True
            ):
                told[one.key] = self._told(completion, attempt + 1)
            left = [one for one in left if told[one.key].exhausted]
            if not left:
                break
        return tuple(told[one.key] for one in asked)

    def _told(self, completion: Completion, attempts: int) -> Told:
        """One attempt. Cut off before the first word of a reply, it counts as without one."""
        split = self._split(completion)
        stop = completion.stop_reason
        if split is None or (stop == "length" and not split.text.strip()):
            reasoned = completion.token_ids if split is None else split.reasoning
            return Told(
                reply="",
                token_ids=(),
                reasoning=self.tokenizer.decode(reasoned),
                n_reasoning_tokens=len(reasoned),
                stop=stop,
                attempts=attempts,
                exhausted=True,
            )
        return Told(
            reply=split.text,
            token_ids=split.reply,
            reasoning=self.tokenizer.decode(split.reasoning),
            n_reasoning_tokens=len(split.reasoning),
            stop=stop,
            attempts=attempts,
        )

    def _split(self, completion: Completion) -> Split | None:
        return split_at_close(completion.token_ids, self.ids.close, self.tokenizer)

    def _generate(
        self,
        asked: Sequence[Asked],
        before: Sequence[TokenIds],
        decoding: Decoding,
        *stage: str,
        attempt: int = 0,
    ) -> tuple[Completion, ...]:
        if not asked:
            return ()
        prompts = [
            Prompt(
                key="/".join((one.key, str(attempt), *stage)),
                token_ids=(*one.prompt, *ids),
                seed=self.seed(one.probe, str(one.sample), str(attempt), *stage),
            )
            for one, ids in zip(asked, before, strict=True)
        ]
        return self.engine.generate(prompts, decoding)
