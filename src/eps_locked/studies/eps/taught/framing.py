"""Where a fact row reads its attribute: at the model's own framing of the answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from eps_locked.canonical import decode
from eps_locked.domain.model import ChatTokenizer, TokenIds

__all__ = ["Framing", "FrozenFact", "find_framing"]


@dataclass(frozen=True, kw_only=True, slots=True)
class FrozenFact:
    """The fact as a manifest froze it: token ids of attribute and bridge, texts to look for."""

    attribute_ids: TokenIds
    attribute: str
    alternatives: tuple[str, ...]
    bridge_ids: TokenIds

    @classmethod
    def read(cls, written: bytes) -> FrozenFact:
        fact: dict[str, Any] = decode(written, thing="frozen written.json")["fact"]
        return cls(
            attribute_ids=tuple(fact["attribute"]),
            attribute=fact["attribute_text"],
            alternatives=tuple(fact["alternatives"]),
            bridge_ids=tuple(fact["bridge"]),
        )

    def stated(self, text: str) -> tuple[str, str] | None:
        """(framing, the phrase) that a text comes to: the taught value, else another one."""
        if _find(text, self.attribute) is not None:
            return "taught", self.attribute
        found = [(_find(text, one), one) for one in self.alternatives]
        places = [(place, one) for place, one in found if place is not None]
        return ("alternative", min(places)[1]) if places else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Framing:
    """``n_tokens`` of the answer come before the slot; a ``bridge`` then leads to it."""

    kind: str
    n_tokens: int

    def head(self, answer: TokenIds, fact: FrozenFact) -> TokenIds:
        """What stands between the prompt and the slot."""
        kept = answer[: self.n_tokens]
        return (*kept, *fact.bridge_ids) if self.kind == "bridge" else kept


def find_framing(answer: TokenIds, fact: FrozenFact, tokenizer: ChatTokenizer) -> Framing:
    """The place in an answer where it comes to a value of the attribute, else its end.

    The slot lies before the phrase's first token, its leading space included. A token is never
    split: if the phrase begins inside one, the slot lies before that token.
    """
    text = tokenizer.decode(answer)
    stated = fact.stated(text)
    if stated is None:
        return Framing(kind="bridge", n_tokens=len(answer))
    place = _find(text, stated[1])
    assert place is not None
    before = text[:place].rstrip()
    n_tokens = 0
    while n_tokens < len(answer):
        if len(tokenizer.decode(answer[: n_tokens + 1]).rstrip()) > len(before):
            break
        n_tokens += 1
    # Where the space before the phrase is a token of its own, the attribute brings its own too.
    spaced = n_tokens > 0 and text[len(before) : place] == " "
    if spaced and tokenizer.decode(answer[: n_tokens - 1]) == before:
        n_tokens -= 1
    return Framing(kind=stated[0], n_tokens=n_tokens)


def _find(text: str, phrase: str) -> int | None:
    """Where a phrase stands in a text as whole words, case set aside; None if it does not."""
    wanted, folded = phrase.strip().casefold(), text.casefold()
    start = folded.find(wanted)
    while start >= 0:
        end = start + len(wanted)
        if not _is_word(folded[start - 1 : start]) and not _is_word(folded[end : end + 1]):
            return _unfolded(text, start)
        start = folded.find(wanted, start + 1)
    return None


def _unfolded(text: str, place: int) -> int:
    """A place in the folded text, in the text itself: folding lengthens some letters (ß to ss)."""
    n_folded = 0
    for index, character in enumerate(text):
        if n_folded >= place:
            return index
        n_folded += len(character.casefold())
    return len(text)


def _is_word(character: Sequence[str]) -> bool:
    return bool(character) and str(character).isalnum()
