"""Word lists: phrases that a text may mention, read from a file and looked for in whole words."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from eps_locked.domain.fields import Fields
from eps_locked.errors import MalformedInputError
from eps_locked.studies.common.material import normalise

__all__ = ["WORD_LIST_SCHEMA", "first_mention", "mentions", "read_word_list"]

WORD_LIST_SCHEMA: Final = "eps-locked/word-list/1"
_SOMETHING = re.compile(r"\S(?:.*\S)?", re.DOTALL)
_QUOTES = str.maketrans({"‘": "'", "’": "'", "“": '"', "”": '"'})


def read_word_list(value: object, thing: str) -> tuple[str, ...]:
    """The phrases of one file, as written. Raises MalformedInputError for one that is given twice
    in another spelling, or that has no letter or digit to be found by."""
    with Fields(value, thing) as fields:
        fields.text("schema", one_of=(WORD_LIST_SCHEMA,))
        for key in ("title", "provenance", "licence"):
            fields.text(key, shape=_SOMETHING)
        words = fields.texts("words", shape=_SOMETHING)
    if not words:
        raise MalformedInputError(f"{thing}.words", expected="at least one phrase", found="none")
    for number, word in enumerate(words):
        if not normalise(word):
            raise MalformedInputError(
                f"{thing}.words[{number}]", expected="a phrase of words", found=repr(word)
            )
    twice = next((one for one, n in Counter(map(_plain, words)).items() if n > 1), None)
    if twice is not None:
        raise MalformedInputError(
            f"{thing}.words",
            expected="distinct phrases",
            found=f"{twice!r} twice",
            next_step="remove or reword one of the two",
        )
    return words


def mentions(text: str, words: Sequence[str]) -> int:
    """How often any of the phrases stands in ``text``, in whole words.

    Case, kind of quotes and amount of space do not matter. Where two phrases overlap, the one that
    begins first counts, of two that begin together the longer, and what it covers counts once.
    """
    return sum(1 for _ in _pattern(tuple(words)).finditer(_plain(text)))


def first_mention(text: str, words: Sequence[str]) -> str | None:
    """The first of the phrases that ``text`` mentions, in lower case; None if it mentions none."""
    found = _pattern(tuple(words)).search(_plain(text))
    return None if found is None else found.group()


def _plain(text: str) -> str:
    folded = unicodedata.normalize("NFKC", text).translate(_QUOTES).casefold()
    return " ".join(folded.split())


@lru_cache(maxsize=8)
def _pattern(words: tuple[str, ...]) -> re.Pattern[str]:
    """Any of the phrases, the longer first. Cached: one list meets thousands of texts."""
    phrases = sorted({_plain(word) for word in words}, key=lambda one: (-len(one), one))
    if not phrases:
        return re.compile(r"(?!)")
    return re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, phrases))})(?!\w)")
