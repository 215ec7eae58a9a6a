"""What makes a text unusable, and when two texts are the same or nearly so."""

from __future__ import annotations

import itertools
import random

import pytest
from sources import TEXT

from eps_locked.data.text import (
    NearCopies,
    Screens,
    TextScreen,
    WordList,
    folded,
    is_mojibake,
    near_copies,
    normalise,
    similarity,
    words_of,
)
from eps_locked.domain.fields import Fields
from eps_locked.errors import MalformedInputError
from eps_locked.studies.common import material


def screens(**changes: object) -> Screens:
    return Screens.from_fields(Fields({**TEXT, **changes}, "filters.text"))


FAULTS = {
    "empty": " \n\t",
    "mojibake": "The cafÃ© is on the corner of the street.",
    "template_tokens": "This is the end<|im_end|> of it.",
    "placeholder": "What do you make of {question} in this?",
    "page_noise": "What is the best way to plant a tree? Copy code",
    "newlines": "What is this?\n\n\n\n\nAnd what is that?",
    "script": "What is the meaning of 落花飞满天白雪化睡莲叶絮脱落船在转啊?",
    "language": "Curioso aficionado pela ciência da propulsão espacial",
    "characters": "What is it? " * 400,
    "forbidden": "What does the ※ mean in a text?",
    "avoided": "Where are the Weapons, and what are they for?",
}


@pytest.mark.parametrize("reason", FAULTS)
def test_a_text_is_dropped_for_the_fault_it_has(reason: str) -> None:
    assert TextScreen(screens()).fault(["Good text.", FAULTS[reason]]) == reason


@pytest.mark.parametrize(
    "noise",
    [
        "How are you?\n    \n        \n            \n                button\n    ",
        "\n  \n    \n      \n      1 / 1\n    \n  What is the plan for the day?",
        "1 / 1\nWhat is the plan for the day?",
    ],
)
def test_leftovers_of_a_page_are_noise(noise: str) -> None:
    assert TextScreen(screens()).fault([noise]) == "page_noise"


@pytest.mark.parametrize(
    "text",
    [
        "A plain question: what is the time?",
        "The naïve façade of the café was in Ångström's street, and it's “quoted” – so what?",
        "def f(x):\n    return x\n    \n\nWhat does it do, and is that line of any use?\r\n\r\n",
        "Is 3 / 4 the same as 6 / 8? What do you think?",
        "What is a weaponsmith?",
        "Do you like tea? \U0001f600",
    ],
)
def test_ordinary_text_passes(text: str) -> None:
    assert TextScreen(screens()).fault([text]) is None


def test_words_of_the_plan_are_forbidden_too() -> None:
    text = "The hall has seven wooden benches in it."
    assert TextScreen(screens()).fault([text]) is None
    assert TextScreen(screens(), ["Seven  wooden\nbenches"]).fault([text]) == "forbidden"


def test_mojibake_is_what_turns_back_into_utf8() -> None:
    assert is_mojibake("ì§\x80ê¸\x88 ë²\x88ì—­í•˜ê¸°")
    assert is_mojibake("don’t".encode().decode("cp1252"))
    assert is_mojibake("lost � letter")
    assert not is_mojibake("Ã la carte, naïve, 落花, ÄÖÜ, £5, ½")


def test_a_word_list_finds_whole_words_and_phrases() -> None:
    listed = WordList(["soil", "should i", "C++", "self-harm", "※"])
    text = folded("Should  I learn C++? Turmoil, self-harms and ※soil※.")
    assert listed.found(text, words_of(text)) == {"soil", "should i", "c++", "※"}
    with pytest.raises(MalformedInputError, match="empty word"):
        WordList(["a", " "])


def test_normalised_content_is_that_of_the_study() -> None:
    for text in ("Grüße, WORLD!\n two", "ﬁne—print", "a_b  c's", "※", "１２"):
        assert normalise(text) == material.normalise(text)


def test_similarity_is_the_share_of_pieces_in_common() -> None:
    assert (
        similarity("How do magnets attract each other?", "how do MAGNETS attract each other") == 1
    )
    assert similarity("abcdef", "abcdeg") == pytest.approx(1 / 3)
    assert similarity("a", "b") == 0


@pytest.mark.parametrize("threshold", [0.3, 0.5, 0.8, 1.0])
def test_near_copies_finds_what_comparing_all_pairs_finds(threshold: float) -> None:
    rng = random.Random(7)
    words = [f"w{n}" for n in range(12)]
    texts = [" ".join(rng.choices(words, k=rng.randint(1, 9))) for _ in range(120)]
    for n, text in enumerate(texts):
        seen = NearCopies(threshold)
        for other in texts[:n]:
            seen.add(other)
        first = next((o for o in texts[:n] if similarity(o, text) >= threshold), None)
        assert seen.like(text) == first
    assert any(similarity(a, b) >= threshold for a, b in itertools.combinations(texts, 2))


def test_near_copies_across_parts_are_named_with_their_parts() -> None:
    parts = {
        "train": ["Why do onions make people cry?", "What is yoghurt?"],
        "eval": ["Why do onions make most people cry?", "What is jam?"],
    }
    assert list(near_copies(parts)) == [
        ("eval", "Why do onions make most people cry?", "train", "Why do onions make people cry?")
    ]
    assert list(near_copies({"train": ["one two three", "one two three"]})) == []
