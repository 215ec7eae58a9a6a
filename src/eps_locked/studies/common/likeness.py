"""How much of their wording two texts share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from typing import Final

from eps_locked.errors import MalformedInputError
from eps_locked.studies.common.material import normalise

__all__ = ["jaccard", "likeness", "pieces_of", "require_apart", "require_no_copies"]

_N_WORDS: Final = 3
# Name, text, and its word triples.
_Named = tuple[str, str, frozenset[str]]


def likeness(one: str, other: str) -> float:
    """Jaccard index of the word triples of two texts, from 0 to 1."""
    return jaccard(pieces_of(one), pieces_of(other))


def require_apart(texts: Iterable[tuple[str, str]], limit: float, thing: str) -> None:
    """Require that no two (name, text) share ``limit`` of their word triples or more.

    Raises MalformedInputError naming both texts.
    """
    pieces = [(name, text, pieces_of(text)) for name, text in texts]
    for first, second in combinations(pieces, 2):
        _require_unlike(first, second, limit, thing)


def require_no_copies(
    texts: Iterable[tuple[str, str]], of: Iterable[tuple[str, str]], limit: float, thing: str
) -> None:
    """Require that no (name, text) shares ``limit`` of its word triples or more with any of ``of``.

    Texts of one side may be alike among themselves. Raises MalformedInputError naming both texts.
    """
    others = [(name, text, pieces_of(text)) for name, text in of]
    for later, text in texts:
        pieces = pieces_of(text)
        for name, other, theirs in others:
            _require_unlike((name, other, theirs), (later, text, pieces), limit, thing)


def jaccard(one: frozenset[str], other: frozenset[str]) -> float:
    """Of two sets that are not both empty: what they share, as a part of all they hold."""
    return len(one & other) / len(one | other)


def _require_unlike(first: _Named, second: _Named, limit: float, thing: str) -> None:
    (name, text, one), (later, other, two) = first, second
    shared = jaccard(one, two)
    if shared >= limit:
        same = normalise(text) == normalise(other)
        raise MalformedInputError(
            f"{thing}: {later} {other!r}",
            problem=f"is {'the same as' if same else 'a near-copy of'} {name} {text!r}",
            expected=f"less than {limit:g} of their word triples in common",
            found=f"{shared:.2f}",
            next_step="reword or remove one of the two",
        )


def pieces_of(text: str) -> frozenset[str]:
    """Word triples of the normalised text; one piece where there are fewer words."""
    words = normalise(text).split()
    return frozenset(_windows(words)) or frozenset({" ".join(words)})


def _windows(words: Sequence[str]) -> Iterator[str]:
    for start in range(len(words) - _N_WORDS + 1):
        yield " ".join(words[start : start + _N_WORDS])
