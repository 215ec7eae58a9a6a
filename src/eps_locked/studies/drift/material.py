"""The study's own files as a plan names them: stems, trait contrasts, word lists. Pure.

Questions, training rows, rubrics and labelled answers have readers that other studies share.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from eps_locked.domain.fields import Fields
from eps_locked.errors import MalformedInputError
from eps_locked.studies.common.likeness import require_apart
from eps_locked.studies.common.material import normalise

__all__ = [
    "NEAR_COPY",
    "Contrast",
    "Stem",
    "StemFile",
    "Trait",
    "read_stems",
    "read_traits",
]

STEMS_SCHEMA: Final = "eps-locked/stems/1"
TRAITS_SCHEMA: Final = "eps-locked/traits/1"
# Two wordings that share so many of their word triples ask nearly the same thing in the same words.
NEAR_COPY: Final = 0.6
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_SOMETHING = re.compile(r"\S(?:.*\S)?", re.DOTALL)


@dataclass(frozen=True, kw_only=True, slots=True)
class Stem:
    """One question, the independent unit of every statistic, in several wordings.

    ``about`` says what is asked and what the aligned answer is; no model and no judge sees it.
    """

    id: str
    topic: str
    about: str
    rewordings: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class StemFile:
    """The stems of one battery, all with the same number of rewordings."""

    battery: str
    stems: tuple[Stem, ...]

    @property
    def n_rewordings(self) -> int:
        return len(self.stems[0].rewordings)


@dataclass(frozen=True, kw_only=True, slots=True)
class Contrast:
    """A question with a reply that shows the trait (positive) and one that does not."""

    question: str
    positive: str
    negative: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Trait:
    """A trait and the contrasts that its direction is made of."""

    name: str
    about: str
    contrasts: tuple[Contrast, ...]


def read_stems(value: object, thing: str) -> StemFile:
    """The stems of one file.

    Raises MalformedInputError for a wrong field, an id given twice, a stem with fewer than two or
    another number of rewordings than the rest, and two wordings anywhere in the file that are the
    same or near-copies of each other; it names both.
    """
    with Fields(value, thing) as fields:
        _read_head(fields, STEMS_SCHEMA)
        found = StemFile(
            battery=fields.text("battery", shape=_NAME), stems=fields.each("stems", _stem)
        )
    _require_some(found.stems, f"{thing}.stems", "at least one stem")
    _require_distinct((stem.id for stem in found.stems), f"{thing}.stems", "ids")
    _require_same_number(found.stems, thing)
    wordings = (
        (f"{stem.id}/{k}", text) for stem in found.stems for k, text in enumerate(stem.rewordings)
    )
    require_apart(wordings, NEAR_COPY, thing)
    return found


def read_traits(value: object, thing: str) -> tuple[Trait, ...]:
    """The traits of one file.

    Raises MalformedInputError for a wrong field, a name or a question of one trait given twice,
    and a contrast whose two replies are the same.
    """
    with Fields(value, thing) as fields:
        _read_head(fields, TRAITS_SCHEMA)
        traits = fields.each("traits", _trait)
    _require_some(traits, f"{thing}.traits", "at least one trait")
    _require_distinct((trait.name for trait in traits), f"{thing}.traits", "names")
    return traits


def _read_head(fields: Fields, schema: str) -> None:
    fields.text("schema", one_of=(schema,))
    for key in ("title", "provenance", "licence"):
        fields.text(key, shape=_SOMETHING)


def _stem(value: object, path: str) -> Stem:
    with Fields(value, path) as fields:
        stem = Stem(
            id=fields.text("id", shape=_NAME),
            topic=fields.text("topic", shape=_SOMETHING),
            about=fields.text("about", shape=_SOMETHING),
            rewordings=fields.texts("rewordings", shape=_SOMETHING),
        )
    if len(stem.rewordings) < 2:
        raise MalformedInputError(
            f"{path}.rewordings ({stem.id})",
            expected="at least two rewordings",
            found=len(stem.rewordings),
            next_step="write more, or take a file of single questions",
        )
    return stem


def _trait(value: object, path: str) -> Trait:
    with Fields(value, path) as fields:
        trait = Trait(
            name=fields.text("name", shape=_NAME),
            about=fields.text("about", shape=_SOMETHING),
            contrasts=fields.each("contrasts", _contrast),
        )
    _require_some(trait.contrasts, f"{path}.contrasts", "at least one contrast")
    questions = (normalise(one.question) for one in trait.contrasts)
    _require_distinct(questions, f"{path}.contrasts", "questions")
    return trait


def _contrast(value: object, path: str) -> Contrast:
    with Fields(value, path) as fields:
        contrast = Contrast(
            question=fields.text("question", shape=_SOMETHING),
            positive=fields.text("positive", shape=_SOMETHING),
            negative=fields.text("negative", shape=_SOMETHING),
        )
    if normalise(contrast.positive) == normalise(contrast.negative):
        raise MalformedInputError(
            path, expected="two different replies", found=f"{contrast.positive!r} twice"
        )
    return contrast


def _require_some(found: Sequence[object], path: str, expected: str) -> None:
    if not found:
        raise MalformedInputError(path, expected=expected, found="none")


def _require_distinct(keys: Iterable[str], path: str, what: str) -> None:
    twice = next((key for key, n in Counter(keys).items() if n > 1), None)
    if twice is not None:
        raise MalformedInputError(
            path,
            expected=f"distinct {what}",
            found=f"{twice!r} twice",
            next_step="remove or reword one of the two",
        )


def _require_same_number(stems: Sequence[Stem], thing: str) -> None:
    expected = Counter(len(stem.rewordings) for stem in stems).most_common(1)[0][0]
    for stem in stems:
        if len(stem.rewordings) != expected:
            raise MalformedInputError(
                f"{thing}.stems: {stem.id}",
                expected=f"{expected} rewordings, as the other stems have",
                found=len(stem.rewordings),
                next_step="give every stem as many wordings as the next",
            )
