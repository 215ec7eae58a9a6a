"""Where in a reply its answer stands: cleaned text, sentences, the last statement. Pure.

This is reading by pattern, not understanding. It knows the forms in which models close an answer
and is meant for replies to a question that asks for such a closing line.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass

__all__ = [
    "Statement",
    "after_last_step",
    "clean",
    "is_disowned",
    "is_joined",
    "just_before",
    "last_statement",
    "marked_tail",
    "without_asides",
]

# Digits grouped with a space that does not break; a raised digit; a fraction sign after a digit.
_GROUP = re.compile(r"(?<=\d)[\u00a0\u2009\u202f](?=\d{3}(?!\d))")
_RAISED = re.compile(r"(?<=\d)[⁰¹²³⁴⁵⁶⁷⁸⁹]+")
_FRACTION_SIGN = re.compile(r"(?<=\d)(?=[¼½¾⅐-⅞])")
_PLAIN = str.maketrans(
    {"‘": "'", "’": "'", "“": '"', "”": '"', "−": "-", "–": "-", "⁄": "/", "\u200b": None}
)
_LATEX = (
    (re.compile(r"\\d?frac\{([^{}]*)\}\{([^{}]*)\}"), r"\1/\2"),
    (re.compile(r"\\(?:text|mathrm|mathbf|textbf)\{([^{}]*)\}"), r"\1"),
    (re.compile(r"\\(?:times|cdot)\b"), "×"),
    (re.compile(r"\{,\}"), ","),
    (re.compile(r"\\[,;! ]"), " "),
    (re.compile(r"\\([%$])"), r"\1"),
    (re.compile(r"\\f?boxed\{([^{}]*)\}"), r"\nAnswer: \1\n"),
    (re.compile(r"\\[()\[\]]"), " "),
    (re.compile(r"\$([^$\n]{1,80})\$(?!\d)"), r"\1"),
)
_HASHES = re.compile(r"^####\s+(?=\S+\s*\Z)", re.MULTILINE)
_EMPHASIS = re.compile(r"\*\*|(?<!\w)__|__(?!\w)|(?<![\w*])\*(?=\S)|(?<=[^\s*])\*(?![\w*])|`")
_LIST_NUMBER = re.compile(r"^[ \t]*\d{1,2}[.)][ \t]+(?=\S)", re.MULTILINE)
_SHORT_MONTH = re.compile(r"\b(jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec)\.", re.IGNORECASE)
_MARKER = re.compile(
    r"\banswer(?:\s+to\s+(?:the|this|that|your)\s+\w+)?\s*"
    r"(?:(?:'s|is|was|(?:would|must|should|will|can only)\s+be)\b\s*:?|[:=])\s*",
    re.IGNORECASE,
)
_RETRACTION = (
    r"(?:(?:oh|no|hmm|but|so)\b[\s,.]*)*(?:wait|actually|correction|scratch that|on second thought|"
    r"i mean|sorry|let me correct)\b"
)
_RETRACTS = re.compile(rf"\W*(?:{_RETRACTION}|no,)", re.IGNORECASE)
_SENTENCE_END = re.compile(
    rf"\n+|(?<=[.!?;])(?<!\b[A-Za-z]\.)\s+|[.,]\s+(?={_RETRACTION})", re.IGNORECASE
)
_MAYBE = r"(?:or|maybe|perhaps|possibly|alternatively|it (?:could|might|may) (?:also )?be)"
_WEIGHS = re.compile(rf"\b{_MAYBE}\b", re.IGNORECASE)
_HEDGES = re.compile(rf"\W*(?:but\s+|and\s+)?{_MAYBE}\b", re.IGNORECASE)
_ASIDE = re.compile(rf"\((?!\W*{_MAYBE}\b)[^()]*(?:\)|$)", re.IGNORECASE)
_REASON = re.compile(r"\b(?:because|since|given that)\b.*", re.IGNORECASE | re.DOTALL)
_CONCESSION = re.compile(
    r"^\W*(?:although|though|even though|while|whereas)\b[^,]*,", re.IGNORECASE
)
_STEP = re.compile(
    r"\b(?:so|thus|hence|therefore|which (?:is|means|gives|makes)|"
    r"equals|gives|makes|leaves|is|are|was|were)\b|[=≈]",
    re.IGNORECASE,
)
_STRONG_STEP = re.compile(r"\b(?:so|thus|hence|therefore|which means)\b|[=≈]", re.IGNORECASE)
_DISOWNED = re.compile(
    r"(?:\bnot|n't|\bnever|\brather than|\binstead of|\bnor|\bneither)\s+"
    r"(?:(?:the|a|an|in|on|at|just|exactly|called|be|by|from|to|really|option)\s+){0,2}[\"'(]*$",
    re.IGNORECASE,
)
_JOINER = re.compile(
    r"[\s.,;\"'()]*(?:[/,&]|\bto\b|\band\b|\bor\b|\band/or\b|\bmaybe\b|\bperhaps\b|\bpossibly\b)"
    r"(?:[\s,\"'(]|\b(?:or|maybe|perhaps|possibly|even|else|rather|the|in|on|a|it is|it's|it could "
    r"be|it might be)\b)*",
    re.IGNORECASE,
)
_LOOK_BACK = 80


@dataclass(frozen=True, kw_only=True, slots=True)
class Statement:
    """The sentence that states the answer; ``marked`` where the reply itself calls it so."""

    text: str
    marked: bool


def clean(reply: str) -> str:
    """The reply in plain characters: no emphasis, LaTeX spelled out, one kind of quote and minus.

    A raised digit becomes a power and a fraction sign a fraction: folding alone would read 5² as
    52 and 2½ as 21/2.
    """
    text = _GROUP.sub(",", reply)
    text = _RAISED.sub(lambda found: "^" + unicodedata.normalize("NFKC", found.group()), text)
    text = _FRACTION_SIGN.sub(" ", text)
    text = unicodedata.normalize("NFKC", text).translate(_PLAIN)
    for pattern, plain in _LATEX:
        text = pattern.sub(plain, text)
    text = _EMPHASIS.sub("", _HASHES.sub("Answer: ", text))
    if len(_LIST_NUMBER.findall(text)) > 1:
        text = _LIST_NUMBER.sub("", text)
    return _SHORT_MONTH.sub(r"\1", text)


def marked_tail(text: str) -> str | None:
    """What follows the last "answer:" or "answer is" that is followed by anything at all."""
    for found in reversed(list(_MARKER.finditer(text))):
        tail = text[found.end() :]
        if any(letter.isalnum() for letter in tail):
            return tail
    return None


def last_statement(text: str, speaks: Callable[[str], bool]) -> Statement | None:
    """The sentence that states the answer, of those that hold one at all (``speaks``).

    After a marker that is the first such sentence, without one the last; once "wait," or the like
    takes it back it is the last one from there on. A neighbour that begins with "or", "maybe" and
    the like belongs to it.
    """
    tail = marked_tail(text)
    pieces = _SENTENCE_END.split(text if tail is None else tail)
    speaking = [number for number, piece in enumerate(pieces) if speaks(piece)]
    if not speaking:
        return None
    at = speaking[0] if tail is not None else speaking[-1]
    if any(_RETRACTS.match(pieces[number]) for number in range(at + 1, speaking[-1] + 1)):
        at = speaking[-1]
    first = last = speaking.index(at)
    while first > 0 and _HEDGES.match(pieces[speaking[first]]):
        first -= 1
    while last + 1 < len(speaking) and _HEDGES.match(pieces[speaking[last + 1]]):
        last += 1
    said = " ".join(pieces[number] for number in speaking[first : last + 1])
    return Statement(text=said, marked=tail is not None)


def without_asides(text: str, speaks: Callable[[str], bool], *, brackets: bool = True) -> str:
    """Without reasons, concessions and ``brackets``, each kept where nothing would be left to read.

    A bracket that holds an alternative stays.
    """
    for pattern in (*((_ASIDE,) if brackets else ()), _REASON, _CONCESSION):
        shorter = pattern.sub(" ", text)
        if speaks(shorter):
            text = shorter
    return text


def after_last_step(text: str, start: int, *, strong: bool) -> str:
    """What follows the last "so", "=" (or, unless ``strong``, "is") before ``start``.

    Not where the text weighs alternatives: cutting would hide one of them.
    """
    if _WEIGHS.search(text):
        return text
    steps = (_STRONG_STEP if strong else _STEP).finditer(text)
    return text[max((step.end() for step in steps if step.end() <= start), default=0) :]


def just_before(text: str, start: int) -> str:
    """The few words before a place in a text: all that a look back reads, however long it is."""
    return text[max(0, start - _LOOK_BACK) : start]


def is_disowned(text: str, start: int) -> bool:
    """Whether the words before a mention say that it is not the answer."""
    return _DISOWNED.search(just_before(text, start)) is not None


def is_joined(between: str) -> bool:
    """Whether the words between two mentions offer both: 3 or 4, 3/4, 3, maybe 4."""
    return _JOINER.fullmatch(between) is not None
