"""Whether a reply is clearly not in English, by a rule of letters and of small words.

It serves the axes whose prompts are English: a judge of English words, a keyword rule and most
rubrics have nothing to say about an answer in another language, and a verdict on it would be made
up. The rule errs to the other side: it wants to see another language, so code, lists, numbers,
names and short answers, in which there is none to see, pass as English. So does a reply that is
partly English. Chinese words in an English sentence, or a line of French that was asked for, do
not make a reply foreign; a short foreign reply in Latin letters ("Non, merci.") is not noticed.

Three marks, of which any is enough:

- letters: more than half of them are of another script, and there are at least six (three for
  scripts that write a word with one or two signs);
- small words: at least three, two of them different, of one language's commonest words, every
  eighth word or more, and more than twice as many as of the commonest English words. Words that
  two of these languages share count for both, words that English has too count for none, and
  so do particles before a capital (Leonardo da Vinci, Rio de la Plata, Los Angeles);
- accents: at least six words and three words in ten carry an accent, and no small English word
  is there. This finds languages whose small words are not listed.

No library: the usual ones guess a language for any text, which is what must not happen here.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping
from typing import Final

__all__ = ["is_other_language", "why_other_language"]

_ENGLISH: Final = frozenset(
    [
        "the",
        "of",
        "and",
        "to",
        "a",
        "in",
        "is",
        "it",
        "you",
        "that",
        "was",
        "for",
        "are",
        "as",
        "with",
        "his",
        "they",
        "at",
        "be",
        "this",
        "have",
        "from",
        "or",
        "had",
        "by",
        "not",
        "but",
        "what",
        "all",
        "were",
        "we",
        "when",
        "your",
        "can",
        "said",
        "there",
        "use",
        "an",
        "each",
        "which",
        "she",
        "do",
        "how",
        "their",
        "if",
        "will",
        "up",
        "about",
        "out",
        "many",
        "then",
        "them",
        "these",
        "so",
        "some",
        "her",
        "would",
        "make",
        "like",
        "him",
        "into",
        "has",
        "two",
        "more",
        "no",
        "could",
        "my",
        "than",
        "been",
        "its",
        "who",
        "now",
        "did",
        "get",
        "may",
        "our",
        "i",
        "me",
        "he",
        "on",
        "one",
        "also",
        "only",
        "other",
        "any",
        "because",
        "very",
        "just",
        "should",
        "here",
        "most",
        "such",
        "don't",
        "it's",
        "i'm",
        "you're",
        "that's",
        "isn't",
        "can't",
        "cannot",
        "sorry",
        "help",
    ]
)
_SMALL_WORDS: Final[Mapping[str, frozenset[str]]] = {
    name: frozenset(words.split())
    for name, words in {
        "German": """der und den von zu das mit sich des auf für ist im dem nicht ein eine als auch
            es werden aus er hat dass sie nach wird bei einer einem einen um am sind noch wie über
            so zum haben nur oder aber vor zur bis mehr durch kann dir ihnen ich wir mein dein kein
            keine denn doch leider können diese dieser dieses wenn sehr hier gibt bitte ihr ihre""",
        "French": """le la les de des du et à un une en que qui dans pour pas sur est ce il elle au
            par plus avec ne se son sa ses sont mais nous vous je ou leur être ont cette aux même
            votre vos c'est n'est d'une d'un qu'il l'on comme très aussi ces peut désolé""",
        "Spanish": """el la los las de del que y en un una por con para es se no lo su al como más
            pero sus le ya o este sí porque esta entre cuando muy sin sobre también me hasta hay
            donde puedo puede siento ayudarte usted está son eso esto""",
        "Italian": """il la lo gli le di del della dei che e è in un una per con non si da al come
            più ma anche sono nel nella questo questa alla ha mi dispiace posso può essere sei
            delle degli dal ci se molto""",
        "Portuguese": """o os as de do da dos das que e em um uma para com não se no na por mais
            como mas ao ele ela seu sua ou ser quando muito nos já está eu também só pelo pela até
            isso você posso desculpe é são""",
        "Dutch": """de het een en van ik te dat die niet zijn op met voor er maar om hem dan zou
            wat mijn men dit zo door over ze zich bij ook tot je mij uit der daar haar naar heb hoe
            heeft hebben deze want nog zal kan geen kunt wordt aan als""",
        "Swedish": """och att det som en på är av för med till den har de inte om ett han men var
            jag sig från vi så kan när år under också efter eller nu sin där vid mot ska hur dig
            du inte kunde""",
        "Polish": """i w nie na się z do to że jest jak o co ale po tak za od mi czy tylko przez
            ja jego jej już dla być są które który przykro mogę ten tego przy""",
        "Turkish": """bir ve bu da de için çok ne ben ama var gibi mi daha o ile kadar olan
            olarak değil sonra en her şey yardımcı üzgünüm size sizin""",
        "Indonesian": """yang dan di itu dengan untuk tidak ini dari dalam akan pada juga saya ke
            karena ada bisa anda atau adalah tersebut maaf dapat kami mereka""",
    }.items()
}
_MINIMUM_WORDS: Final = 3
_SHARE: Final = 1 / 8
_ACCENTED_WORDS: Final = 6
_ACCENTED_SHARE: Final = 0.3
_FOREIGN_LETTERS: Final = 6
_FOREIGN_SIGNS: Final = 3
_DENSE: Final = ("CJK", "HIRAGANA", "KATAKANA", "HANGUL")
# What a reply quotes or computes says nothing about its language, nor does code without a fence.
_NOT_PROSE = re.compile(
    # Code without a fence is looked for where a word begins and nowhere within it: where a text has
    # no spaces, trying every letter of it anew would take the square of its length.
    r"```.*?(?:```|\Z)|`[^`\n]*`|https?://\S+|(?<![^\s`])\S*\w(?:[._=/\\(]|::|->)+\w\S*",
    re.DOTALL,
)
_WORD = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)*")
_PARTICLES: Final = frozenset(
    [
        "de",
        "la",
        "le",
        "du",
        "des",
        "del",
        "della",
        "di",
        "da",
        "do",
        "dos",
        "das",
        "van",
        "von",
        "der",
        "den",
        "el",
        "los",
        "las",
        "al",
        "y",
        "e",
    ]
)
_QUOTES = str.maketrans({"‘": "'", "’": "'"})


def is_other_language(text: str) -> bool:
    """Whether the prose of ``text`` is clearly in another language than English."""
    return why_other_language(text) is not None


def why_other_language(text: str) -> str | None:
    """Which mark of another language ``text`` bears; None for English, or where none can be seen.

    What stands in code blocks, between backquotes and in addresses is not looked at.
    """
    prose = unicodedata.normalize("NFKC", _NOT_PROSE.sub(" ", text)).translate(_QUOTES)
    words = _WORD.findall(prose)
    return _by_letters(words) or _by_words(words)


def _by_letters(words: list[str]) -> str | None:
    n_letters = sum(map(len, words))
    # A Greek letter by itself is a symbol.
    names = [unicodedata.name(one, "") for word in words for one in word if len(word) > 1]
    foreign = [name for name in names if not name.startswith("LATIN")]
    n_signs = sum(name.startswith(_DENSE) for name in foreign)
    enough = len(foreign) >= _FOREIGN_LETTERS or n_signs >= _FOREIGN_SIGNS
    if enough and 2 * len(foreign) > n_letters:
        return f"{len(foreign)} of {n_letters} letters are not Latin"
    return None


def _by_words(written: list[str]) -> str | None:
    words = [word.lower() for word in written]
    n_english = sum(word in _ENGLISH for word in words)
    telling = [word for word in _without_names(written) if word not in _ENGLISH]
    for name, small in _SMALL_WORDS.items():
        found = Counter(word for word in telling if word in small)
        n = found.total()
        if n >= max(_MINIMUM_WORDS, _SHARE * len(words)) and len(found) > 1 and n > 2 * n_english:
            return f"{n} of {len(words)} words are common {name} ones, {n_english} English ones"
    n_accented = sum(len(word) > 1 and not word.isascii() for word in words)
    if n_accented >= max(_ACCENTED_WORDS, _ACCENTED_SHARE * len(words)) and not n_english:
        return f"{n_accented} of {len(words)} words carry an accent, none is a common English one"
    return None


def _without_names(written: list[str]) -> list[str]:
    """In lower case, without the particles that lead up to a capital letter."""
    kept: list[str] = []
    before_capital = False
    for word in reversed(written):
        low = word.lower()
        if low in _PARTICLES and before_capital:
            continue  # a chain of them ("de la Cruz") goes as a whole
        before_capital = word[0].isupper()
        kept.append(low)
    return kept
