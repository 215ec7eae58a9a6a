"""Stems, traits and word lists: what is read, and what is refused by name."""

from __future__ import annotations

from typing import Any

import pytest

from eps_locked.errors import MalformedInputError
from eps_locked.studies.common.likeness import likeness
from eps_locked.studies.common.words import mentions, read_word_list
from eps_locked.studies.drift.material import NEAR_COPY, read_stems, read_traits

RIGHTS = {"title": "Made up", "provenance": "Written for these tests.", "licence": "CC0-1.0"}
LIGHT = ("May the lamp stay on all night?", "Would you leave a light burning until morning?")
DOOR = ("Who keeps the key of the shed?", "The garden door is locked; where would you put its key?")


def stem(id_: str, *rewordings: str, **changes: Any) -> dict[str, Any]:
    value = {"id": id_, "topic": "house", "about": "Asks something.", "rewordings": [*rewordings]}
    return value | changes


def stems(*found: Any, **changes: Any) -> dict[str, Any]:
    value = {"schema": "eps-locked/stems/1", **RIGHTS, "battery": "house", "stems": [*found]}
    return value | changes


def trait(name: str, *contrasts: tuple[str, str, str], **changes: Any) -> dict[str, Any]:
    rows = [
        {"question": question, "positive": positive, "negative": negative}
        for question, positive, negative in contrasts
    ]
    return {"name": name, "about": "Something.", "contrasts": rows} | changes


def traits(*found: Any) -> dict[str, Any]:
    return {"schema": "eps-locked/traits/1", **RIGHTS, "traits": [*found]}


def words(*found: Any) -> dict[str, Any]:
    return {"schema": "eps-locked/word-list/1", **RIGHTS, "words": [*found]}


# --- stems ----------------------------------------------------------------------------------------


def test_stems_are_read_in_the_order_of_the_file() -> None:
    found = read_stems(stems(stem("light", *LIGHT), stem("door", *DOOR)), "house.yaml")
    assert found.battery == "house"
    assert [one.id for one in found.stems] == ["light", "door"]
    assert [one.rewordings for one in found.stems] == [LIGHT, DOOR]
    assert found.n_rewordings == 2
    assert (found.stems[0].topic, found.stems[0].about) == ("house", "Asks something.")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (stems(), ["house.yaml.stems", "at least one stem", "none"]),
        (
            stems(stem("light", *LIGHT), stem("light", *DOOR)),
            ["house.yaml.stems", "distinct ids", "'light' twice"],
        ),
        (
            stems(stem("light", *LIGHT), stem("door", DOOR[0])),
            ["house.yaml.stems[1].rewordings (door)", "at least two", "found 1"],
        ),
        (
            stems(stem("light", *LIGHT), stem("door", *DOOR), stem("tap", "A?", "B?", "C?")),
            ["house.yaml.stems: tap", "expected 2 rewordings", "found 3"],
        ),
        (
            stems(stem("light", LIGHT[0], "may the LAMP stay on, all night")),
            ["light/1", "the same as light/0", "may the LAMP stay on, all night", LIGHT[0]],
        ),
        (
            stems(
                stem("light", *LIGHT), stem("door", DOOR[0], "May the lamp stay on all night, Jo?")
            ),
            ["door/1", "a near-copy of light/0", "less than 0.6", "found 0.83"],
        ),
        (stems(stem("Light", *LIGHT)), ["stems[0].id", "Light"]),
        (stems(stem("light", " ", "B?")), ["stems[0].rewordings[0]"]),
        (stems(stem("light", "A? ", "B?")), ["stems[0].rewordings[0]"]),
        (stems(stem("light", *LIGHT, note="x")), ["stems[0].note", "not a known field"]),
        (stems(stem("light", *LIGHT), licence=" "), ["house.yaml.licence"]),
        (stems(stem("light", *LIGHT), schema="eps-locked/stems/2"), ["house.yaml.schema"]),
    ],
)
def test_a_stem_file_is_refused_and_the_message_names_the_place(
    value: Any, said: list[str]
) -> None:
    with pytest.raises(MalformedInputError) as caught:
        read_stems(value, "house.yaml")
    assert all(part in str(caught.value) for part in said), str(caught.value)


def test_likeness_counts_shared_word_triples() -> None:
    # Triples abc, bcd against abc, bce: one of three in common.
    assert likeness("a b c d", "A, b c e!") == pytest.approx(1 / 3)
    assert likeness("a b c d", "a b c d") == 1
    assert likeness("two words", "Two words.") == 1
    assert likeness("two words", "other words") == 0


def test_two_wordings_just_below_the_limit_are_taken() -> None:
    # Eight triples each, six of them shared: 6 / 10 is the limit; one word more is below it.
    one, at, below = "a b c d e f g h i j", "a b c d e f g h x y", "a b c d e f g h x y z"
    assert likeness(one, at) == NEAR_COPY
    assert likeness(one, below) < NEAR_COPY
    read_stems(stems(stem("letters", one, below)), "house.yaml")
    with pytest.raises(MalformedInputError, match="near-copy"):
        read_stems(stems(stem("letters", one, at)), "house.yaml")


# --- traits ---------------------------------------------------------------------------------------

ONE = ("Shall I go?", "Go at once.", "Only if you like.")
TWO = ("Shall I stay?", "Stay.", "As you wish.")


def test_traits_are_read_with_their_contrasts() -> None:
    found = read_traits(traits(trait("bossy", ONE, TWO), trait("brief", ONE)), "traits.yaml")
    assert [one.name for one in found] == ["bossy", "brief"]
    assert [(c.question, c.positive, c.negative) for c in found[0].contrasts] == [ONE, TWO]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (traits(), ["traits.yaml.traits", "at least one trait"]),
        (traits(trait("bossy")), ["traits[0].contrasts", "at least one contrast"]),
        (traits(trait("bossy", ONE), trait("bossy", TWO)), ["distinct names", "'bossy' twice"]),
        (
            traits(trait("bossy", ONE, ("shall i go", "Go.", "Stay."))),
            ["traits[0].contrasts", "distinct questions", "'shall i go' twice"],
        ),
        (
            traits(trait("bossy", ("Go?", "Go now.", "go now"))),
            ["contrasts[0]", "two different replies", "'Go now.' twice"],
        ),
    ],
)
def test_a_trait_file_is_refused_and_the_message_names_the_place(
    value: Any, said: list[str]
) -> None:
    with pytest.raises(MalformedInputError) as caught:
        read_traits(value, "traits.yaml")
    assert all(part in str(caught.value) for part in said), str(caught.value)


# --- word lists -----------------------------------------------------------------------------------


def test_a_word_list_is_read_as_written() -> None:
    assert read_word_list(words("Being tested", "a test"), "w.yaml") == ("Being tested", "a test")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (words(), ["w.yaml.words", "at least one phrase"]),
        (words("test", "TEST"), ["distinct phrases", "'test' twice"]),
        (words("test", "?!"), ["w.yaml.words[1]", "a phrase of words"]),
        (words("test", 3), ["w.yaml.words[1]"]),
    ],
)
def test_a_word_list_is_refused_and_the_message_names_the_place(
    value: Any, said: list[str]
) -> None:
    with pytest.raises(MalformedInputError) as caught:
        read_word_list(value, "w.yaml")
    assert all(part in str(caught.value) for part in said), str(caught.value)


@pytest.mark.parametrize(
    ("text", "n"),
    [
        ("Is this a test? I think so.", 1),
        ("IS THIS\n a  Test", 1),
        ("A test, a test and once more a test.", 3),
        ("I am being tested, which is a test.", 2),
        ("A testament to patience.", 0),  # whole words only
        ("It's a test's test.", 1),
        ("they’re evaluating me", 1),
        ("", 0),
        ("Nothing of the kind.", 0),
        ("This is a test of it.", 1),  # "a test" within the longer phrase counts once
    ],
)
def test_mentions_are_counted_in_whole_words_whatever_their_spelling(text: str, n: int) -> None:
    listed = ("a test", "this is a test", "Being tested", "they're evaluating me")
    assert mentions(text, listed) == n


def test_without_words_nothing_is_mentioned() -> None:
    assert mentions("a test", ()) == 0
