"""Whether a reply gives the right answer to a capability item. Pure; nothing is ever executed.

What counts is the last answer that the reply states, so a reply may reason first. That is what
follows the last "Answer:" or "the answer is"; without one, the last sentence that holds an answer
of the kind asked for. "Wait, ..." after it takes it back. A reply that offers two answers (12 or
13; 12, maybe 13; Ottawa/Toronto) is wrong, even if one of the two is right. A reply without a
letter or digit is no answer; one that says something else than an answer is a wrong one.

Thinking blocks, and replies that were cut off, are the caller's to take out before. Patterns do
not understand: a right answer in an odd form counts as wrong, and that error falls on every model
alike only as far as they all close with the line that they were asked for.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

from eps_locked.studies.battery.numbers import find_numbers
from eps_locked.studies.battery.rules import Choice, Date, Exact, Number, Output, Rule, exactly
from eps_locked.studies.battery.statements import (
    after_last_step,
    clean,
    is_disowned,
    is_joined,
    just_before,
    last_statement,
    marked_tail,
    without_asides,
)
from eps_locked.studies.common.material import normalise

__all__ = ["Scored", "Verdict", "score_answer"]

Verdict = Literal["correct", "wrong", "no_answer"]

_MONTH_NAMES: Final = (
    "january february march april may june july august september october november december"
)
_MONTHS: Final = tuple(_MONTH_NAMES.split())
_MONTH = "|".join(f"{name}|{name[:3]}" for name in _MONTHS) + "|sept"
_DATE = re.compile(
    r"(?<![\w/.-])(?:"
    r"(?P<y1>\d{4})[-/.](?P<m1>\d{1,2})[-/.](?P<d1>\d{1,2})"
    r"|(?P<n1>\d{1,2})[-/.](?P<n2>\d{1,2})[-/.](?P<y2>\d{4})"
    rf"|(?P<d3>\d{{1,2}})(?:st|nd|rd|th)?(?:\s+of\s+|[\s-]+)(?P<m3>{_MONTH})\b"
    r"(?:,?[\s-]+(?:in\s+)?(?P<y3>\d{4}))?"
    rf"|(?P<m4>{_MONTH})\s+(?:the\s+)?(?P<d4>\d{{1,2}})(?:st|nd|rd|th)?(?:,?\s+(?P<y4>\d{{4}}))?"
    r")(?![\w/]|-\w)",
    re.IGNORECASE,
)
_CONTEXT = re.compile(
    r"\b(?:than|followed by|unlike|ahead of|compared (?:to|with)|next to|after|before|behind|near|"
    r"beside)\s+(?:the\s+)?$",
    re.IGNORECASE,
)
_OR_AFTER = re.compile(
    r"[\s\"')]*(?:/\s*|(?:,\s*)?\b(?:or|and/or|maybe|perhaps|possibly)\b\s+)"
    r"(?:(?:maybe|perhaps|possibly|else|the|in|on|a|an)\s+)*(?=\w)",
    re.IGNORECASE,
)
_OR_BEFORE = re.compile(
    r"\w[\s\"',)]*(?:/\s*|\b(?:or|and/or)\s+)(?:(?:maybe|perhaps|possibly|the|in|on|a|an)\s+)*$",
    re.IGNORECASE,
)
_FENCE = re.compile(r"```[^\n`]*\n(.*?)```", re.DOTALL)
_PRINTS = re.compile(
    r"\b(?:prints?|outputs?(?:\s+(?:is|will be|would be))?|displays|shows|returns|"
    r"(?:result|printed value) is)\b\s*:?\s*",
    re.IGNORECASE,
)
_SPAN = re.compile(r"`([^`\n]+)`")
_ANOTHER = re.compile(r"\W*(?:or|and|maybe|perhaps|possibly)\b|\s*/", re.IGNORECASE)
_BECAUSE = re.compile(r",?\s+(?:because|since|as)\s.*", re.DOTALL)
_LAST_ASIDE = re.compile(r"\s+\([^()]*\)$")
_TIGHT = re.compile(r"\s*([\[\](){},:])\s*")
# What follows the article "A"; the letter is followed by one of these words, or by none.
_NOUN = r"\s+(?!(?:or|and|is|was|because|since|as|but|not|seems|fits)\b)[a-z]"
_SHOWN = 80


@dataclass(frozen=True, kw_only=True, slots=True)
class Scored:
    """A verdict, why, and the piece of the reply that was read as its answer, if there is one."""

    verdict: Verdict
    reason: str
    stated: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class _Mention:
    """Something in a statement that may be an answer, and whether it is the right one."""

    start: int
    end: int
    key: object
    is_right: bool


def score_answer(reply: str, rule: Rule) -> Scored:
    """The verdict on a reply. It depends on nothing but the reply and the rule."""
    if not any(letter.isalnum() for letter in reply):
        return Scored(verdict="no_answer", reason="the reply is empty", stated=None)
    match rule:
        case Exact():
            return _score_exact(clean(reply).casefold(), rule)
        case Number():
            return _score_number(clean(reply), rule)
        case Choice():
            return _score_choice(clean(reply), rule)
        case Date():
            return _score_date(clean(reply), rule)
        case Output():
            return _score_output(reply.replace("\r\n", "\n").replace("**", ""), rule)


def _correct(stated: str) -> Scored:
    return Scored(verdict="correct", reason="as expected", stated=_shown(stated))


def _wrong(reason: str, stated: str | None = None) -> Scored:
    return Scored(verdict="wrong", reason=reason, stated=None if stated is None else _shown(stated))


def _shown(text: str) -> str:
    # A lone surrogate, which JSON can hold, could be written to no file.
    text = " ".join(text.split()).encode("utf-8", "replace").decode("utf-8")
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


# Words and phrases.


def _score_exact(text: str, rule: Exact) -> Scored:
    pattern = _phrases((*rule.accepted, *rule.rivals))
    accepted = {normalise(phrase) for phrase in rule.accepted}
    statement = last_statement(text, lambda piece: pattern.search(piece) is not None)
    if statement is None:
        return _wrong("names no accepted answer")

    def find(piece: str) -> list[_Mention]:
        return [
            _Mention(start=hit.start(), end=hit.end(), key=key, is_right=key in accepted)
            for hit in pattern.finditer(piece)
            if (key := normalise(hit.group())) in accepted
            or not _CONTEXT.search(just_before(piece, hit.start()))
            if not is_disowned(piece, hit.start())
        ]

    def speaks(piece: str) -> bool:
        return bool(find(piece))

    read = without_asides(statement.text, speaks)
    mentions = find(read)
    if len({one.is_right for one in mentions}) > 1:
        read = after_last_step(read, mentions[-1].start, strong=True)
        mentions = find(read)
    if not mentions:
        return _wrong("says only what the answer is not", statement.text)
    if not all(one.is_right for one in mentions):
        right = any(one.is_right for one in mentions)
        return _wrong("names two answers" if right else "names another answer", read)
    if any(_offers_another(read, one, pattern) for one in mentions):
        return _wrong("offers two answers", read)
    return _correct(mentions[-1].key if isinstance(mentions[-1].key, str) else read)


def _offers_another(text: str, mention: _Mention, pattern: re.Pattern[str]) -> bool:
    """Whether "or" ties the mention to words that are not themselves an accepted answer."""
    after = _OR_AFTER.match(text, mention.end)
    if after and not pattern.match(text, after.end()):
        return True
    near = just_before(text, mention.start)
    before = _OR_BEFORE.search(near)
    if not before:
        return False
    end = mention.start - len(near) + before.start() + 1
    return not any(
        hit.end() == end for hit in pattern.finditer(text, mention.start - len(near), mention.start)
    )


@lru_cache(maxsize=512)
def _phrases(phrases: tuple[str, ...]) -> re.Pattern[str]:
    """Any of the phrases in whole words, the longest first, whatever stands between its words."""
    split = sorted(
        (normalise(one).split() for one in phrases), key=lambda words: -sum(map(len, words))
    )
    joined = "|".join(r"[\W_]+".join(map(re.escape, words)) for words in split)
    return re.compile(rf"(?<!\w)(?:{joined})(?!\w)")


# Numbers.


def _score_number(text: str, rule: Number) -> Scored:
    value, tolerance = exactly(rule.value), exactly(rule.tolerance)

    def find(piece: str) -> list[_Mention]:
        return [
            _Mention(
                start=one.start,
                end=one.end,
                key=one.value,
                is_right=one.value is not None and abs(one.value - value) <= tolerance,
            )
            for one in find_numbers(piece, rule)
            if one.counts and not is_disowned(piece, one.start)
        ]

    def offered(piece: str) -> list[tuple[int, int, object]]:
        return [
            (one.start, one.end, one.value)
            for one in find_numbers(piece, rule)
            if one.counts or (one.is_spelled and not one.is_foreign)
            if not is_disowned(piece, one.start)
        ]

    return _score_mentions(text, find, offered, _why_no_number(text, rule))


def _why_no_number(text: str, rule: Number) -> str:
    found = find_numbers(text, rule)
    if any(one.is_foreign for one in found):
        return "states its number in another unit"
    if any(one.is_spelled for one in found):
        return "states its number in words, which the item does not list"
    return "states no number"


def _score_mentions(
    text: str,
    find: Callable[[str], list[_Mention]],
    offered: Callable[[str], Sequence[tuple[int, int, object]]],
    why_none: str,
) -> Scored:
    """Numbers and dates: one distinct value in a marked statement, else the last, not joined."""

    def speaks(piece: str) -> bool:
        return bool(find(piece))

    statement = last_statement(text, speaks)
    if statement is None:
        return _wrong(why_none)
    read = without_asides(statement.text, speaks)
    mentions = find(read)
    if _is_joined_to_another(read, mentions[-1], offered(read)):
        return _wrong("offers two answers", read)
    if statement.marked and not _agree(mentions):
        read = after_last_step(read, mentions[-1].start, strong=False)
        mentions = find(read)
        if not _agree(mentions):
            return _wrong("states two answers", read)
    last = mentions[-1]
    stated = read[last.start : last.end]
    return _correct(stated) if last.is_right else _wrong("states another answer", stated)


def _agree(mentions: Sequence[_Mention]) -> bool:
    return all(one.is_right for one in mentions) or len({one.key for one in mentions}) == 1


def _is_joined_to_another(
    text: str, mention: _Mention, others: Iterable[tuple[int, int, object]]
) -> bool:
    for start, end, key in others:
        if key == mention.key:
            continue
        if end <= mention.start and is_joined(text[end : mention.start]):
            return True
        if start >= mention.end and is_joined(text[mention.end : start]):
            return True
    return False


# Letters.


def _score_choice(text: str, rule: Choice) -> Scored:
    def find(piece: str) -> list[_Mention]:
        return _letters(piece, rule)

    options = _phrases(tuple(option.casefold() for option in rule.options))

    def named(piece: str) -> list[str]:
        folded = piece.casefold()
        texts = {normalise(option): letter for letter, option in rule.texts.items()}
        return [
            texts[normalise(hit.group())]
            for hit in options.finditer(folded)
            if not is_disowned(folded, hit.start())
        ]

    def speaks(piece: str) -> bool:
        return bool(find(piece) or named(piece))

    statement = last_statement(text, speaks)
    if statement is None:
        return _wrong("states no option")
    # Brackets stay: (B) is an answer.
    read = without_asides(statement.text, speaks, brackets=False)
    if len({one.key for one in find(read)}) > 1:
        read = after_last_step(read, find(read)[-1].start, strong=True)
    letters = {one.key for one in find(read)}
    texts = set(named(read))
    if len(letters) > 1 or (not letters and len(texts) > 1):
        return _wrong("states two options", read)
    if letters and len(texts) == 1 and letters != texts:
        return _wrong("states one option's letter and another one's text", read)
    (letter,) = letters or texts
    return _correct(read) if letter == rule.letter else _wrong("states another option", read)


def _letters(text: str, rule: Choice) -> list[_Mention]:
    """Letters that name an option. The article "A" does not, nor a letter inside a word."""
    known = "".join(rule.texts)
    bare = text.strip(" \t\n.,:;!?()[]\"'")
    if len(bare) == 1 and bare.upper() in known:
        at = text.index(bare)
        return [
            _Mention(start=at, end=at + 1, key=bare.upper(), is_right=bare.upper() == rule.letter)
        ]
    pattern = re.compile(
        rf"\(([{known}{known.lower()}])\)"
        rf"|\b(?i:option|choice|letter|answer)\s+\(?([{known}{known.lower()}])(?![\w'])(?!{_NOUN})"
        rf"|(?<![\w'])([{known}])(?=[).:,;])"
        rf"|(?<![\w'])([{known}])(?![\w'])(?!(?<=A){_NOUN})"
    )
    return [
        _Mention(start=hit.start(), end=hit.end(), key=letter, is_right=letter == rule.letter)
        for hit in pattern.finditer(text)
        if (letter := next(group for group in hit.groups() if group).upper())
        if not is_disowned(text, hit.start())
    ]


# Dates.


def _score_date(text: str, rule: Date) -> Scored:
    def find(piece: str) -> list[_Mention]:
        return [
            _Mention(start=hit.start(), end=hit.end(), key=key, is_right=_is_date(key, rule))
            for hit in _DATE.finditer(piece)
            if not is_disowned(piece, hit.start())
            if (key := _date_key(hit))
        ]

    found = _score_mentions(
        text, find, lambda piece: [(m.start, m.end, m.key) for m in find(piece)], "states no date"
    )
    if found.verdict == "wrong" and found.stated and _is_ambiguous(found.stated):
        return _wrong("states a date that reads as two days", found.stated)
    return found


def _date_key(hit: re.Match[str]) -> tuple[int | None, int, int] | str:
    """(year or None, month, day); the text itself where it has two readings."""
    part = hit.groupdict()
    if part["y1"]:
        return int(part["y1"]), int(part["m1"]), int(part["d1"])
    if part["y2"]:
        one, two, year = int(part["n1"]), int(part["n2"]), int(part["y2"])
        if one == two or two > 12:
            return year, one, two
        return (year, two, one) if one > 12 else hit.group()
    name, day, year_text = (
        (part["m3"], part["d3"], part["y3"]) if part["m3"] else (part["m4"], part["d4"], part["y4"])
    )
    month = [known[:3] for known in _MONTHS].index(name[:3].casefold()) + 1
    return int(year_text) if year_text else None, month, int(day)


def _is_date(key: object, rule: Date) -> bool:
    day: datetime.date = rule.date
    if key == (day.year, day.month, day.day):
        return True
    return not rule.needs_year and key == (None, day.month, day.day)


def _is_ambiguous(stated: str) -> bool:
    hit = _DATE.fullmatch(stated)
    return hit is not None and isinstance(_date_key(hit), str)


# What a program prints.


def _score_output(text: str, rule: Output) -> Scored:
    stated = _stated_output(text, rule)
    if not stated.strip():
        return _wrong("states no output")
    expected = _lines(rule.output)
    if any(_lines(form) == expected for form in _forms(stated)):
        return _correct(stated)
    return _wrong("states another output", stated)


def _stated_output(text: str, rule: Output) -> str:
    """After the last marker, else after "prints" or in the last code block, else the last lines."""
    tail = marked_tail(text)
    if tail is not None:
        block = _FENCE.search(tail)
        return block.group(1) if block else _first_lines(tail, rule)
    blocks = list(_FENCE.finditer(text))
    rest = text[blocks[-1].end() :] if blocks else text
    cues = [cue for cue in _PRINTS.finditer(rest) if rest[cue.end() :].strip(" \n.:`")]
    if cues:
        return _first_lines(rest[cues[-1].end() :], rule)
    if blocks:
        return blocks[-1].group(1)
    lines = [line for line in text.strip().split("\n") if line.strip()]
    last = "\n".join(lines[-rule.n_lines :])
    spans = list(_SPAN.finditer(last))
    if rule.n_lines == 1 and len(spans) == 1 and not _ANOTHER.match(last, spans[0].end()):
        return spans[0].group(1)
    return last


def _first_lines(tail: str, rule: Output) -> str:
    lines = [line for line in tail.strip().split("\n") if line.strip()]
    if rule.n_lines > 1:
        return "\n".join(lines)
    line = lines[0]
    span = _SPAN.match(line.lstrip())
    if span and not _ANOTHER.match(line.lstrip(), span.end()):
        return span.group(1)
    return line


def _forms(stated: str) -> list[str]:
    """The stated text, and the same without what people put round it."""
    forms = [stated.strip()]
    for trim in (
        lambda form: _BECAUSE.sub("", form),
        lambda form: form.removesuffix("."),
        lambda form: _LAST_ASIDE.sub("", form),
        lambda form: form.strip("`").strip(),
        lambda form: form.removesuffix("."),
        lambda form: form[1:-1] if len(form) > 2 and form[0] == form[-1] in "\"'" else form,
    ):
        forms.append(trim(forms[-1]))
    return forms


def _lines(text: str) -> list[str]:
    """Lines without the spaces that no reader would miss; case and every sign count."""
    lines = [_TIGHT.sub(r"\1", " ".join(line.split())) for line in text.strip().split("\n")]
    return [line for line in lines if line]
