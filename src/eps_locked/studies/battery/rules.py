"""How an answer of a capability item is checked: five kinds of rule, read strictly. Pure.

A rule is data of the plan. It says what counts as right and, where that helps, what else a reply
might name; how a reply is read against it stands in ``answers``.
"""

from __future__ import annotations

import datetime
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import Final

from eps_locked.domain.fields import Fields
from eps_locked.errors import MalformedInputError
from eps_locked.studies.common.material import normalise

__all__ = [
    "LETTERS",
    "NUMBER_WORDS",
    "Choice",
    "Date",
    "Exact",
    "Number",
    "Output",
    "Rule",
    "exactly",
    "read_rule",
    "spelled_value",
]

LETTERS: Final = "ABCDEFGH"
_UNITS_AND_TEENS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen"
)
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
NUMBER_WORDS: Final[Mapping[str, int]] = MappingProxyType(
    {word: n for n, word in enumerate(_UNITS_AND_TEENS.split())}
    | {word: 10 * n for n, word in enumerate(_TENS.split(), start=2)}
)
_SOMETHING = re.compile(r"\S(?:.*\S)?", re.DOTALL)
_ISO_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_LETTER = re.compile(f"[{LETTERS}]")


@dataclass(frozen=True, kw_only=True, slots=True)
class Exact:
    """One of the accepted words or phrases; naming a rival beside it, or instead, is wrong."""

    accepted: tuple[str, ...]
    rivals: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Number:
    """A number, right within ``tolerance`` (absolute).

    ``units`` are the spellings of the unit that was asked for; a reply may leave it out, and may
    not give another unit of measure. Without units, whatever follows the number is not looked at.
    ``words`` are the spelled-out forms that count; no other spelled-out number does.
    """

    value: float
    tolerance: float
    units: tuple[str, ...]
    words: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """A letter; ``options`` are the texts of A, B, C and so on, in order."""

    letter: str
    options: tuple[str, ...]

    @property
    def texts(self) -> dict[str, str]:
        return dict(zip(LETTERS, self.options, strict=False))


@dataclass(frozen=True, kw_only=True, slots=True)
class Date:
    """A day. A reply may leave the year out where the question fixes it (not ``needs_year``)."""

    date: datetime.date
    needs_year: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Output:
    """What a program prints, given as text. Nothing is ever executed to find out."""

    output: str

    @property
    def n_lines(self) -> int:
        return len(self.output.strip("\n").split("\n"))


Rule = Exact | Number | Choice | Date | Output


def read_rule(value: object, path: str) -> Rule:
    """A rule of any kind. Raises MalformedInputError naming the field."""
    with Fields(value, path) as fields:
        return _READERS[fields.text("kind", one_of=tuple(_READERS))](fields, path)


def exactly(number: float) -> Fraction:
    """The decimal number that is written in the file, not its nearest double."""
    return Fraction(repr(number))


def spelled_value(word: str) -> int | None:
    """The value of a spelled-out number below a hundred: three, forty-two, forty two."""
    parts = normalise(word).split()
    values = [NUMBER_WORDS.get(part) for part in parts]
    if len(values) == 1:
        return values[0]
    if len(values) == 2 and values[0] is not None and values[1] is not None:
        tens, unit = values[0], values[1]
        if tens >= 20 and 0 < unit < 10:
            return tens + unit
    return None


def _exact(fields: Fields, path: str) -> Exact:
    rule = Exact(
        accepted=fields.texts("accepted", shape=_SOMETHING),
        rivals=fields.texts("rivals", shape=_SOMETHING),
    )
    if not rule.accepted:
        raise MalformedInputError(f"{path}.accepted", expected="at least one phrase", found="none")
    _require_phrases((*rule.accepted, *rule.rivals), path)
    return rule


def _number(fields: Fields, path: str) -> Number:
    rule = Number(
        value=fields.number("value"),
        tolerance=fields.number("tolerance", low=0),
        units=fields.texts("units", shape=_SOMETHING),
        words=fields.texts("words", shape=_SOMETHING),
    )
    _require_distinct([unit.casefold() for unit in rule.units], f"{path}.units")
    _require_distinct([normalise(word) for word in rule.words], f"{path}.words")
    for number, word in enumerate(rule.words):
        if spelled_value(word) != rule.value:
            raise MalformedInputError(
                f"{path}.words[{number}]",
                expected=f"a spelling of {rule.value:g} (below a hundred)",
                found=repr(word),
            )
    return rule


def _choice(fields: Fields, path: str) -> Choice:
    rule = Choice(
        letter=fields.text("letter", shape=_LETTER),
        options=fields.texts("options", shape=_SOMETHING),
    )
    if not 2 <= len(rule.options) <= len(LETTERS):
        raise MalformedInputError(
            f"{path}.options", expected=f"from 2 to {len(LETTERS)} options", found=len(rule.options)
        )
    _require_phrases(rule.options, f"{path}.options")
    if rule.letter not in rule.texts:
        raise MalformedInputError(
            f"{path}.letter", expected=" or ".join(rule.texts), found=rule.letter
        )
    return rule


def _date(fields: Fields, path: str) -> Date:
    text = fields.text("date", shape=_ISO_DATE)
    try:
        date = datetime.date.fromisoformat(text)
    except ValueError as error:
        raise MalformedInputError(
            f"{path}.date", expected="a day of the calendar", found=repr(text)
        ) from error
    return Date(date=date, needs_year=fields.flag("needs_year"))


def _output(fields: Fields, path: str) -> Output:
    output = fields.text("output")
    if not any(letter.isalnum() for letter in output):
        raise MalformedInputError(
            f"{path}.output", expected="text with a letter or a digit", found=repr(output)[:60]
        )
    return Output(output=output)


_READERS: Final[Mapping[str, Callable[[Fields, str], Rule]]] = {
    "exact": _exact,
    "number": _number,
    "choice": _choice,
    "date": _date,
    "output": _output,
}


def _require_phrases(phrases: Sequence[str], path: str) -> None:
    for phrase in phrases:
        if not normalise(phrase):
            raise MalformedInputError(path, expected="phrases of words", found=repr(phrase))
    _require_distinct([normalise(phrase) for phrase in phrases], path)


def _require_distinct(keys: Sequence[str], path: str) -> None:
    twice = next((key for key, n in Counter(keys).items() if n > 1), None)
    if twice is not None:
        raise MalformedInputError(path, expected="distinct entries", found=f"{twice!r} twice")
