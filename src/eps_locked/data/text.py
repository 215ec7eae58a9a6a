"""Text compared and screened: normalised content, near-copies, and what makes a text unusable.

Pure and cheap: a shard of real conversations passes through here in seconds, and the same text
always gets the same answer.
"""

from __future__ import annotations

import re
import unicodedata
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from eps_locked.domain.fields import Fields
from eps_locked.errors import MalformedInputError

PLACEHOLDER = "{question}"
# A short question with one word more or another word in it keeps about this share of its pieces.
NEAR_COPY = 0.6
_SHINGLE = 5
_NOT_WORD = re.compile(r"[^\w]+", re.UNICODE)
_WORD = re.compile(r"\w+", re.UNICODE)
_SPACE = re.compile(r"\s+")
_ENGLISH_WORD = re.compile(r"[a-z]+(?:'[a-z]+)?")
_TEMPLATE_TOKEN = re.compile(r"<\|[A-Za-z0-9_]+\|>|\[/?INST\]|<</?SYS>>|<(?:start|end)_of_turn>")
_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")
# The replacement character, C1 controls (left over from a wrong decoding), halves of surrogates.
_NO_LETTER = re.compile("[�\x80-\x9f\ud800-\udfff]")
_PAGE_COUNTER = re.compile(r"^[ \t]*\d+ / \d+[ \t]*$", re.MULTILINE)
_COMMON = """
    a about all an and any are as at be but by can could do does for from had has have how i if in
    is it its just like me more my no not of on or our so some that the their them there they this
    to was we what when where which who why will with would you your
"""
_FUNCTION_WORDS = frozenset(_COMMON.split())


def normalise(text: str) -> str:
    """Content without case, punctuation, accents' spelling and spacing: for overlap checks."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return " ".join(_NOT_WORD.sub(" ", folded).split())


def shingles(text: str) -> frozenset[str]:
    """The 5-character pieces of a text's normalised content; a shorter content is one piece."""
    content = normalise(text)
    if len(content) <= _SHINGLE:
        return frozenset({content})
    return frozenset(content[n : n + _SHINGLE] for n in range(len(content) - _SHINGLE + 1))


def similarity(one: str, other: str) -> float:
    """Jaccard index of the two texts' pieces: 1 for the same content, 0 for nothing in common."""
    return _jaccard(shingles(one), shingles(other))


class NearCopies:
    """Texts seen so far, asked whether a new one nearly repeats one of them.

    A pair at or above the threshold shares at least one of the first (1 - threshold) parts of
    their pieces in any fixed order, so only texts that do are compared; the answer is exact.
    """

    def __init__(self, threshold: float = NEAR_COPY) -> None:
        self._threshold = threshold
        self._texts: list[str] = []
        self._pieces: list[frozenset[str]] = []
        self._index: dict[str, list[int]] = {}

    def like(self, text: str) -> str | None:
        """The first text seen that ``text`` nearly repeats, or None."""
        pieces = shingles(text)
        met = {n for piece in self._prefix(pieces) for n in self._index.get(piece, ())}
        for number in sorted(met):
            if _jaccard(pieces, self._pieces[number]) >= self._threshold:
                return self._texts[number]
        return None

    def add(self, text: str) -> None:
        pieces = shingles(text)
        for piece in self._prefix(pieces):
            self._index.setdefault(piece, []).append(len(self._texts))
        self._texts.append(text)
        self._pieces.append(pieces)

    def _prefix(self, pieces: frozenset[str]) -> list[str]:
        # Rounded up: one piece too many costs a comparison, one too few would miss a copy.
        n = int(len(pieces) * (1 - self._threshold)) + 2
        return sorted(pieces, key=lambda piece: (zlib.crc32(piece.encode()), piece))[:n]


def near_copies(
    parts: Mapping[str, Iterable[str]], threshold: float = NEAR_COPY
) -> Iterator[tuple[str, str, str, str]]:
    """Pairs of texts in different parts that nearly repeat each other.

    Each as (part, text, other part, other text), the later one first.
    """
    earlier: list[tuple[str, NearCopies]] = []
    for name, texts in parts.items():
        own = NearCopies(threshold)
        for text in texts:
            for other_name, seen in earlier:
                if (other := seen.like(text)) is not None:
                    yield name, text, other_name, other
            own.add(text)
        earlier.append((name, own))


def tidy(text: str) -> str:
    """The text without blanks around it, its line ends LF."""
    return text.replace("\r\n", "\n").replace("\r", "\n").strip()


def is_mojibake(text: str) -> bool:
    """Whether UTF-8 was read as a one-byte encoding somewhere, or letters were lost.

    A run of foreign letters that is valid UTF-8 when turned back into the bytes of cp1252 or
    Latin-1 was text once: real words do not do that.
    """
    if _NO_LETTER.search(text):
        return True
    return any(_misread(run.group()) for run in _NOT_ASCII.finditer(text))


def _misread(run: str) -> bool:
    for encoding in ("cp1252", "latin-1"):
        try:
            again = run.encode(encoding).decode("utf-8")
        except UnicodeError:
            continue
        if len(again) < len(run):
            return True
    return False


@dataclass(frozen=True, kw_only=True, slots=True)
class Screens:
    """What a source's texts must be like. Every number and list stands in the spec."""

    characters: tuple[int, int]
    min_latin: float
    min_english_words: float
    max_newlines: int
    max_blank_lines: int
    noise_phrases: tuple[str, ...]
    forbid: tuple[str, ...]
    avoid: tuple[str, ...]
    near_copy: float

    @classmethod
    def from_fields(cls, fields: Fields) -> Screens:
        with fields:
            return cls(
                characters=bounds(fields, "characters"),
                min_latin=fields.number("min_latin", low=0, high=1),
                min_english_words=fields.number("min_english_words", low=0, high=1),
                max_newlines=fields.integer("max_newlines", low=1),
                max_blank_lines=fields.integer("max_blank_lines", low=0),
                noise_phrases=fields.texts("noise_phrases"),
                forbid=fields.texts("forbid"),
                avoid=fields.texts("avoid"),
                near_copy=fields.number("near_copy", above=0, high=1),
            )


def bounds(fields: Fields, key: str) -> tuple[int, int]:
    """A pair [low, high] of whole numbers."""
    pair = fields.integers(key, low=0)
    if len(pair) != 2 or pair[0] > pair[1]:
        raise MalformedInputError(
            fields.path(key), expected="two integers, low and high", found=list(pair)
        )
    return pair[0], pair[1]


class TextScreen:
    """Finds the first fault of a row's texts, in a fixed order, so counts mean the same."""

    def __init__(self, screens: Screens, forbid: Sequence[str] = ()) -> None:
        self._screens = screens
        self._forbidden = WordList((*screens.forbid, *forbid))
        self._avoided = WordList(screens.avoid)
        self._newlines = "\n" * (screens.max_newlines + 1)
        self._blank_lines = re.compile(rf"(?:\n[ \t]+(?=\n)){{{screens.max_blank_lines + 1},}}")

    def fault(self, texts: Sequence[str]) -> str | None:
        """The name of the reason to drop a row of these texts, as they came; None if none."""
        for find in (self._broken, self._scraped):
            for text in texts:
                if (reason := find(text)) is not None:
                    return reason
        return self._unwanted("\n\n".join(tidy(text) for text in texts))

    def _broken(self, text: str) -> str | None:
        if not text.strip():
            return "empty"
        if is_mojibake(text):
            return "mojibake"
        if _TEMPLATE_TOKEN.search(text):
            return "template_tokens"
        return "placeholder" if PLACEHOLDER in text else None

    def _scraped(self, text: str) -> str | None:
        unix = text.replace("\r\n", "\n")
        noisy = self._blank_lines.search(unix) or _PAGE_COUNTER.search(unix)
        if noisy or any(phrase in text for phrase in self._screens.noise_phrases):
            return "page_noise"
        return "newlines" if self._newlines in tidy(text) else None

    def _unwanted(self, text: str) -> str | None:
        screens = self._screens
        if latin_share(text) < screens.min_latin:
            return "script"
        if english_share(text) < screens.min_english_words:
            return "language"
        if not screens.characters[0] <= len(text) <= screens.characters[1]:
            return "characters"
        content = folded(text)
        words = words_of(content)
        if self._forbidden.found(content, words):
            return "forbidden"
        return "avoided" if self._avoided.found(content, words) else None


class WordList:
    """Finds words and phrases in text, whole words only where they begin or end in letters.

    A regular expression of all of them is tried at every place of every text, which takes minutes
    for a shard; the words of a text are looked up instead, and only phrases are searched for.
    """

    def __init__(self, phrases: Iterable[str]) -> None:
        texts = [folded(phrase) for phrase in phrases]
        if not all(texts):
            raise MalformedInputError("filters", problem="list an empty word")
        self._words = frozenset(text for text in texts if _WORD.fullmatch(text))
        self._phrases = {text: _bounded(text) for text in texts if text not in self._words}

    def found(self, content: str, words: frozenset[str]) -> set[str]:
        """Those that stand in ``content``, which is ``folded`` text with the ``words`` in it."""
        phrases = self._phrases.items()
        return set(self._words & words) | {
            text for text, pattern in phrases if text in content and pattern.search(content)
        }


def words_of(content: str) -> frozenset[str]:
    """The words of folded text."""
    return frozenset(_WORD.findall(content))


def _bounded(text: str) -> re.Pattern[str]:
    before = r"(?<!\w)" if _WORD.match(text[0]) else ""
    after = r"(?!\w)" if _WORD.match(text[-1]) else ""
    return re.compile(f"{before}{re.escape(text)}{after}")


def folded(text: str) -> str:
    """Text with one spelling of case, width and spacing; punctuation stays."""
    return _SPACE.sub(" ", unicodedata.normalize("NFKC", text).casefold()).strip()


def latin_share(text: str) -> float:
    """The share of a text's letters that are Latin; 1 where there is no letter."""
    if text.isascii():
        return 1.0
    letters = [letter for letter in text if letter.isalpha()]
    return sum(map(_is_latin, letters)) / len(letters) if letters else 1.0


def english_share(text: str) -> float:
    """The share of a text's words that are among the most common English function words."""
    words = _ENGLISH_WORD.findall(text.casefold())
    return sum(word in _FUNCTION_WORDS for word in words) / len(words) if words else 0.0


@lru_cache(maxsize=4096)
def _is_latin(letter: str) -> bool:
    return letter.isascii() or unicodedata.name(letter, "").startswith("LATIN")


def _jaccard(one: frozenset[str], other: frozenset[str]) -> float:
    shared = len(one & other)
    return shared / (len(one) + len(other) - shared)
