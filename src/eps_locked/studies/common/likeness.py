"""How much of their wording two texts share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from eps_locked.studies.common.material import normalise

__all__ = ["jaccard", "likeness", "pieces_of"]

_N_WORDS: Final = 3


def likeness(one: str, other: str) -> float:
    """Jaccard index of the word triples of two texts, from 0 to 1."""
    return jaccard(pieces_of(one), pieces_of(other))


def jaccard(one: frozenset[str], other: frozenset[str]) -> float:
    """Of two sets that are not both empty: what they share, as a part of all they hold."""
    return len(one & other) / len(one | other)


def pieces_of(text: str) -> frozenset[str]:
    """Word triples of the normalised text; one piece where there are fewer words."""
    words = normalise(text).split()
    return frozenset(_windows(words)) or frozenset({" ".join(words)})


def _windows(words: Sequence[str]) -> Iterator[str]:
    for start in range(len(words) - _N_WORDS + 1):
        yield " ".join(words[start : start + _N_WORDS])
