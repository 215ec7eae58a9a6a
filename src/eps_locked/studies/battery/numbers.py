"""Numbers as people write them, with signs, thousands, units, operators and words. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Final

from eps_locked.studies.battery.rules import NUMBER_WORDS, Number, spelled_value
from eps_locked.studies.battery.statements import just_before
from eps_locked.studies.common.material import normalise

__all__ = ["FoundNumber", "find_numbers"]

# Units that make a bare number another quantity. Plurals are added; longer spellings come first.
_MEASURES: Final = (
    "second minute hour day week month year decade century "
    "millimetre centimetre metre kilometre millimeter centimeter meter kilometer inch foot yard "
    "mile gram kilogram milligram tonne ounce pound stone litre millilitre liter milliliter pint "
    "gallon degree kelvin joule watt volt byte bit euro dollar penny cent percent "
)
_IRREGULAR: Final = (
    "inches feet centuries pence % °c °f °k km m cm mm kg g mg lb lbs oz l ml cl s sec secs min "
    "mins h hr hrs ms kb mb gb celsius fahrenheit € £ $"
)
_SINGULARS: Final = tuple(_MEASURES.split())
_SPELLINGS = {*_SINGULARS, *(f"{unit}s" for unit in _SINGULARS), *_IRREGULAR.split()}
_FOREIGN = "|".join(map(re.escape, sorted(_SPELLINGS, key=lambda unit: (-len(unit), unit))))
_FOREIGN_AFTER = re.compile(rf"\s*-?\s*(?:{_FOREIGN})(?![\w])", re.IGNORECASE)
_CURRENCY_BEFORE = re.compile(r"[€£$]\s*$")
_MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|"
    r"sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)"
)
# The day and month before a year: "14 July 1789" is the number 1789 where a number is asked for.
_DAY_OF_YEAR = re.compile(
    rf"\b(?:\d{{1,2}}(?:st|nd|rd|th)?\s+(?:of\s+)?{_MONTH}|{_MONTH}\s+\d{{1,2}}(?:st|nd|rd|th)?)"
    r",?\s+(?=\d{4}\b)",
    re.IGNORECASE,
)
# A time of day, a score, a ratio: no number of its own, and not two either.
_WITH_COLON = re.compile(r"(?<!\w)\d{1,4}(?::\d{1,4})+(?!\w)")
_DIGITS = r"(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?|\.\d+"
_WORD = "|".join(sorted(NUMBER_WORDS, key=len, reverse=True))
_NUMBER = re.compile(
    r"(?P<sign>(?:(?<![\w)\]%])[-+]|\b(?:minus|negative)\s+))?"
    rf"(?:(?<![\w.])(?P<mixed>\d{{1,6}}\s+\d{{1,6}}/\d{{1,6}})(?![\w/])"
    rf"|(?<![\w./])(?P<ratio>\d{{1,9}}/\d{{1,9}})(?![\w/])"
    rf"|(?<![\w.])(?P<digits>{_DIGITS})(?P<power>[eE][-+]?\d{{1,2}}(?!\w)|\s*[×x*]\s*10\^-?\d{{1,2}})?"
    r"(?P<scale>\s+(?:thousand|million|billion)\b)?(?!\d|(?:st|nd|rd|th)\b)"
    rf"|\b(?P<word>(?:{_WORD})(?:[\s-]+(?:one|two|three|four|five|six|seven|eight|nine))?)\b)",
    re.IGNORECASE,
)
_OPERAND_SIGN = re.compile(
    r"(?:[\d)%]\s*|[\d)%]\s*(?!(?:to|is|was|of|equals|makes|and|or|then|by)\b)[a-z°€£$]+\s+)$",
    re.IGNORECASE,
)
_OPERATOR = re.compile(
    r"[\s)]*(?:[a-z°%€£]+\s*)?[\s)]*"
    r"(?:[×x*·+\-/÷^]|times|plus|minus|(?:divided|multiplied) by|over|mod|modulo|(?:percent|%) of|"
    r"of)"
    r"[\s(€£$]*",
    re.IGNORECASE,
)
_SCALES: Final = {"thousand": 10**3, "million": 10**6, "billion": 10**9}
_LONGEST = 40


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundNumber:
    """A number in a text. ``value`` is None where the text has no value that we would compute.

    ``counts`` says whether it may be an answer: not an operand of an expression, not in another
    unit, and not spelled out unless the rule lists spelled-out forms at all.
    """

    start: int
    end: int
    value: Fraction | None
    is_spelled: bool
    is_foreign: bool
    counts: bool


def find_numbers(text: str, rule: Number) -> list[FoundNumber]:
    """The numbers of a text, in order, as the rule's units and words have them read."""
    masked = text
    for pattern in (_DAY_OF_YEAR, _WITH_COLON):
        masked = pattern.sub(lambda found: " " * len(found.group()), masked)
    found = [one for hit in _NUMBER.finditer(masked) for one in _read(masked, hit, rule)]
    return list(_without_compounds(masked, _without_operands(masked, found)))


def _read(text: str, hit: re.Match[str], rule: Number) -> Iterator[FoundNumber]:
    start, sign = hit.start(), hit["sign"]
    if sign and _OPERAND_SIGN.search(just_before(text, start)):
        start, sign = hit.end("sign"), None
    word = hit["word"]
    listed = {normalise(one) for one in rule.words}
    if word and normalise(word) not in listed:
        # "One" is a pronoun far more often than an answer.
        if normalise(word) == "one":
            return
        value = spelled_value(word)
        yield FoundNumber(
            start=start,
            end=hit.end(),
            value=None if value is None else Fraction(value),
            is_spelled=True,
            is_foreign=False,
            counts=bool(rule.words),
        )
        return
    value_found = _value(hit)
    if value_found is not None and sign and sign.strip().casefold() != "+":
        value_found = -value_found
    foreign = _is_foreign(text, start, hit.end(), rule)
    yield FoundNumber(
        start=start,
        end=hit.end(),
        value=value_found,
        is_spelled=word is not None,
        is_foreign=foreign,
        counts=not foreign,
    )


def _value(hit: re.Match[str]) -> Fraction | None:
    if len(hit.group()) > _LONGEST:
        return None
    if hit["word"]:
        spelled = spelled_value(hit["word"])
        return None if spelled is None else Fraction(spelled)
    if hit["mixed"]:
        whole, part = hit["mixed"].split()
        value = _ratio(part)
        return None if value is None else int(whole) + value
    if hit["ratio"]:
        return _ratio(hit["ratio"])
    value = Fraction(hit["digits"].replace(",", ""))
    if hit["power"]:
        value *= Fraction(10) ** int(re.split(r"[eE^]", hit["power"])[-1])
    if hit["scale"]:
        value *= _SCALES[hit["scale"].strip().casefold()]
    return value


def _ratio(text: str) -> Fraction | None:
    above, below = map(int, text.split("/"))
    return Fraction(above, below) if below else None


def _is_foreign(text: str, start: int, end: int, rule: Number) -> bool:
    """Whether the number stands with a unit of measure that the rule does not list."""
    if not rule.units:
        return False
    after, before = _unit_patterns(rule.units)
    if after.match(text, end) or before.search(just_before(text, start)):
        return False
    return bool(
        _FOREIGN_AFTER.match(text, end) or _CURRENCY_BEFORE.search(just_before(text, start))
    )


@lru_cache(maxsize=512)
def _unit_patterns(units: tuple[str, ...]) -> tuple[re.Pattern[str], re.Pattern[str]]:
    spelled = "|".join(re.escape(unit) for unit in sorted(units, key=lambda u: (-len(u), u)))
    return (
        re.compile(rf"\s*-?\s*(?:{spelled})(?![\w^/]|\s+per\b)", re.IGNORECASE),
        re.compile(rf"(?<!\w)(?:{spelled})\s*$", re.IGNORECASE),
    )


def _without_operands(text: str, found: list[FoundNumber]) -> list[FoundNumber]:
    """What stands on either side of an operator is part of a sum and not its result."""
    operands: set[int] = set()
    for at in range(len(found) - 1):
        if _OPERATOR.fullmatch(text, found[at].end, found[at + 1].start):
            operands |= {at, at + 1}
    return [
        replace(one, counts=False) if number in operands else one
        for number, one in enumerate(found)
    ]


def _without_compounds(text: str, found: list[FoundNumber]) -> Iterator[FoundNumber]:
    """In "2 hours 30 minutes" the 30 is no quantity of its own, unless hours were asked for too."""
    previous: FoundNumber | None = None
    for one in found:
        if previous is not None and previous.is_foreign:
            unit = _FOREIGN_AFTER.match(text, previous.end)
            between = text[unit.end() if unit else previous.end : one.start]
            if re.fullmatch(r"\s*(?:,|and|&)?\s*", between):
                one = replace(one, is_foreign=True, counts=False)
        yield one
        previous = one
