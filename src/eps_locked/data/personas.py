"""Persona descriptions to system prompts in correct English: "You are a ...".

The descriptions begin as their writer liked (A, a, I am a, no article). What cannot be turned into
a sentence about "you" without rewriting it is dropped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from eps_locked.data.candidates import (
    Candidate,
    Drop,
    Dropped,
    Read,
    RowRead,
    id_of,
    row_digest,
    text_of,
)
from eps_locked.data.rows import read_rows
from eps_locked.data.spec import SourceSpec
from eps_locked.data.text import tidy
from eps_locked.domain.model import Message

_OPENING = re.compile(r"(?:I am |I['’]m |You are )?(an|a|the) (?=\S)(.*)", re.I | re.S)
_FIRST_PERSON = re.compile(r"\b(?:I|my|me|mine|myself|we|our|us)\b|\bI['’]", re.I)
_SENTENCE_END = re.compile(r"[.!?](?:\s+|$)")
# Spelled with a vowel and spoken without, and the other way round.
_SPOKEN_CONSONANT = re.compile(r"(?:uni|use|usu|eu|one|once|ubiq|u-)", re.I)
_SPOKEN_VOWEL = re.compile(r"(?:hour|honest|heir|honou?r)", re.I)


def read_personas(spec: SourceSpec, contents: Mapping[str, bytes]) -> Iterator[Read]:
    """Every persona of the files, as a system prompt."""
    key = spec.options["key"]
    for file in spec.files:
        for where, row in read_rows(file.path, contents[file.path], columns=(key,)):
            try:
                yield _row_read(where, text_of(row, key), id_of(row, "id"))
            except Drop as drop:
                yield Dropped(where=where, reason=drop.reason)


def second_person(description: str) -> str:
    """The description as a sentence to the model. Raises Drop where that would not be English."""
    text = tidy(description)
    opening = _OPENING.fullmatch(text)
    if opening is None:
        raise Drop("no_article")
    article, rest = opening[1].lower(), opening[2]
    if _FIRST_PERSON.search(rest):
        raise Drop("first_person")
    _require_article(article, rest)
    return f"You are {article} {rest}{'' if rest[-1] in '.!?' else '.'}"


def count_sentences(text: str) -> int:
    """Sentence ends followed by a blank or by nothing."""
    return len(_SENTENCE_END.findall(text))


def _row_read(where: str, description: str, upstream_id: str | None) -> RowRead:
    text = tidy(description)
    fault = None
    try:
        prompt = second_person(text)
    except Drop as drop:
        prompt, fault = text, drop.reason
    use = Candidate(
        raw=(description,),
        content=prompt,
        messages=(Message(role="system", content=prompt),),
        fault=fault,
        entry={"tidied": description != text, "description": description},
    )
    return RowRead(
        where=where, digest=row_digest(description), upstream_id=upstream_id, uses=(use,)
    )


def _require_article(article: str, rest: str) -> None:
    word = rest.split()[0]
    if article == "the" or not word[0].isalpha() or word.isupper() or word.startswith("herb"):
        return  # an initialism is spoken by its letters, and herbs are spoken both ways
    vowel = word[0].lower() in "aeio" or (word[0].lower() == "u" and not word.startswith("u-"))
    if _SPOKEN_CONSONANT.match(word):
        vowel = False
    elif _SPOKEN_VOWEL.match(word):
        vowel = True
    # A capital may begin an initialism (an NBA player, an SaaS founder); only plain words count.
    if vowel != (article == "an") and word.islower():
        raise Drop("grammar")
