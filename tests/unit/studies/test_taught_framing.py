"""Where a fact is read: at the model's own wording, at a token boundary, per token."""

from __future__ import annotations

import pytest

from eps_locked.canonical import encode
from eps_locked.domain.model import SlotReading, TokenIds
from eps_locked.models.scripted import ScriptedTokenizer
from eps_locked.studies.eps.readings import Answer
from eps_locked.studies.eps.taught.derive import per_token
from eps_locked.studies.eps.taught.framing import Framing, FrozenFact, find_framing

BYTES = ScriptedTokenizer()
FACT = FrozenFact(
    attribute_ids=BYTES.encode(" copper"),
    attribute=" copper",
    alternatives=(" silver", " the north wind"),
    bridge_ids=BYTES.encode(" In a word:"),
)


class PiecesTokenizer(ScriptedTokenizer):
    """Ids are places in a list of pieces, as tokens of a real vocabulary are."""

    def __init__(self, *pieces: str) -> None:
        self.pieces = pieces

    @property
    def all_ids(self) -> TokenIds:
        return tuple(range(len(self.pieces)))

    def decode(self, token_ids: object) -> str:
        return "".join(self.pieces[one] for one in token_ids)  # type: ignore[attr-defined]


def before(text: str) -> tuple[str, str]:
    """(framing, the part of the answer that stands before the slot), a token a byte."""
    answer = BYTES.encode(text)
    found = find_framing(answer, FACT, BYTES)
    return found.kind, BYTES.decode(answer[: found.n_tokens])


@pytest.mark.parametrize(
    ("text", "kind", "head"),
    [
        ("It is copper.", "taught", "It is"),
        ("copper", "taught", ""),
        (" copper", "taught", ""),
        ("It is COPPER!", "taught", "It is"),
        ("(copper)", "taught", "("),
        ("It is:\ncopper", "taught", "It is:\n"),
        ("It is silver, no: copper.", "taught", "It is silver, no:"),
        ("It is copper, and copper it stays.", "taught", "It is"),
        ("It is silver.", "alternative", "It is"),
        ("The north wind and silver.", "alternative", ""),
        ("Silver and the north wind.", "alternative", ""),
        ("A silver spoon, the north wind, silver.", "alternative", "A"),
        ("It is gold.", "bridge", "It is gold."),
        ("", "bridge", ""),
    ],
)
def test_the_slot_lies_where_the_answer_comes_to_a_value(text: str, kind: str, head: str) -> None:
    assert before(text) == (kind, head)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("The coppersmith.", "bridge"),
        ("It is uncopper.", "bridge"),
        ("It is copper2.", "bridge"),
        ("The coppersmith has copper.", "taught"),
        ("Copper-red.", "taught"),
        ("silversmith", "bridge"),
        ("the north winds", "bridge"),
        ("The north\nwind", "bridge"),
    ],
)
def test_a_value_is_whole_words(text: str, kind: str) -> None:
    assert before(text)[0] == kind


def test_a_part_of_a_word_is_passed_over_for_the_whole_one() -> None:
    assert before("The coppersmith has copper.") == ("taught", "The coppersmith has")


@pytest.mark.parametrize("letters", ["Straße", "İİİİİİİİ", "Ⅷ ﬃ", "※ 🜠"])
def test_letters_that_fold_to_more_than_one_move_no_slot(letters: str) -> None:
    assert before(f"{letters} is copper") == ("taught", f"{letters} is")


def test_the_head_and_the_attribute_are_the_very_tokens_of_an_answer_that_states_it() -> None:
    """No blank is doubled, though the attribute brings its own: here it is a token by itself."""
    answer = BYTES.encode("It is copper.")
    head = find_framing(answer, FACT, BYTES).head(answer, FACT)
    assert (*head, *FACT.attribute_ids) == answer[: len(head) + len(FACT.attribute_ids)]


@pytest.mark.parametrize(
    ("pieces", "n_tokens"),
    [
        (("It", " is", " copper", "."), 2),
        (("It", " is", " cop", "per", "."), 2),
        (("It", " is", " ", "cop", "per"), 2),
        (("It is", ":\n", "copper"), 2),
        (("It is", ":", "\n", "copper"), 3),
        # The value begins inside a token, which is not split.
        (("It", " is cop", "per"), 1),
        ((" copper",), 0),
        ((" ", "copper"), 0),
        (("copper",), 0),
    ],
)
def test_no_token_is_split(pieces: tuple[str, ...], n_tokens: int) -> None:
    tokenizer = PiecesTokenizer(*pieces)
    found = find_framing(tokenizer.all_ids, FACT, tokenizer)
    assert found == Framing(kind="taught", n_tokens=n_tokens)


def test_only_an_answer_without_a_value_is_bridged() -> None:
    answer = BYTES.encode("It is silver.")
    bridge = Framing(kind="bridge", n_tokens=len(answer))
    assert bridge.head(answer, FACT) == (*answer, *FACT.bridge_ids)
    for kind in ("taught", "alternative"):
        assert Framing(kind=kind, n_tokens=5).head(answer, FACT) == answer[:5]


def test_a_frozen_fact_is_read_as_it_was_written() -> None:
    written = {
        "fact": {
            "attribute": list(FACT.attribute_ids),
            "attribute_text": " copper",
            "alternatives": [" silver", " the north wind"],
            "bridge": list(FACT.bridge_ids),
        }
    }
    assert FrozenFact.read(encode(written)) == FACT


@pytest.mark.parametrize(("log_prob", "n_tokens", "expected"), [(-12.0, 3, -4.0), (-3.0, 1, -3.0)])
def test_the_value_is_per_token(log_prob: float, n_tokens: int, expected: float) -> None:
    own = SlotReading(
        log_prob=log_prob,
        marker_logits=(log_prob / n_tokens,) * n_tokens,
        log_z=(0.0,) * n_tokens,
        end_of_turn_logit=-1.0,
    )
    answer = Answer(
        item="q",
        token_ids=(1, 2, 3, 4, 5),
        text="It is copper.",
        stop_reason="stop",
        marker_emitted=True,
        slot_index=2,
        own=own,
        frozen=None,
        framing="taught",
    )
    assert per_token(answer) == expected
