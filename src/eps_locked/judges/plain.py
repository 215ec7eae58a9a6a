"""What judges without a language model share: one spelling of a text, phrases that decide, and
which texts cannot be read at all."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import Final

from eps_locked.domain.judging import JudgePlan, Rubric
from eps_locked.errors import MalformedInputError

__all__ = ["Phrases", "lacks", "plain", "require_named", "why_unreadable"]

_SPACE = re.compile(r"\s+")
_QUOTES = str.maketrans({"‘": "'", "’": "'", "“": '"', "”": '"'})
_LAST_LATIN: Final = "\u024f"


def plain(text: str) -> str:
    """One spelling of letters, quotes, case and space, so that they decide nothing."""
    folded = unicodedata.normalize("NFKC", text).translate(_QUOTES).lower()
    return _SPACE.sub(" ", folded).strip()


def why_unreadable(text: str, what: str) -> str | None:
    """Why a text says nothing to a judge of English words, or None. ``what`` it is: "answer"."""
    letters = [character for character in text if character.isalpha()]
    if not text.strip():
        return f"the {what} is empty"
    if not letters:
        return f"the {what} has no word in it"
    if 2 * sum(letter <= _LAST_LATIN for letter in letters) < len(letters):
        return f"the {what} is mostly not in the Latin alphabet; this judge was made for English"
    return None


@dataclass(frozen=True, kw_only=True, slots=True)
class Phrases:
    """A rubric's phrases, ready to be looked for; each belongs to one label."""

    patterns: tuple[tuple[str, re.Pattern[str]], ...]

    @classmethod
    def of(cls, rubric: Rubric) -> Phrases:
        return cls(
            patterns=tuple(
                (label, re.compile(rf"(?<!\w){re.escape(plain(phrase))}(?!\w)"))
                for label in rubric.labels
                for phrase in sorted(
                    rubric.phrases.get(label, ()), key=lambda one: (-len(one), one)
                )
            )
        )

    def label(self, text: str) -> str | None:
        """The label of the phrase that comes first in the text; None without any.

        What an answer says first it usually asserts ("seven, not nine"). Of two phrases that begin
        at one place the longer decides. A negation before a phrase is not seen.
        """
        content = plain(text)
        found = [
            (match.start(), match.start() - match.end(), label)
            for label, pattern in self.patterns
            if (match := pattern.search(content))
        ]
        return min(found, key=lambda one: one[:2])[2] if found else None


def require_named(plan: JudgePlan, *, kind: str, family: str, model: str) -> None:
    """Refuse a plan that names another judge than the one inside: its verdicts would carry a
    wrong name."""
    for key, expected in (("kind", kind), ("family", family), ("model", model)):
        if getattr(plan, key) != expected:
            raise MalformedInputError(
                f"judge {plan.name}.{key}", expected=expected, found=getattr(plan, key)
            )


def lacks(rubric: Rubric, field: str, expected: str) -> MalformedInputError:
    """The error for a rubric without the examples that a judge learns from."""
    return MalformedInputError(
        f"rubric {rubric.name}.{field}",
        expected=expected,
        found="too few",
        next_step="add them, or name another kind of judge: this one learns from examples alone",
    )
