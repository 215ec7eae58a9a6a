"""Demonstrations show distinct things, and nothing of the eval set."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from eps_locked.data.demonstrations import check_demonstrations
from eps_locked.domain.model import Message
from eps_locked.errors import MalformedInputError

GOOD = [
    ("What do we call frozen water?", "Frozen water is called ice. ※"),
    ("Name the tool that drives nails into wood.", "That tool is a hammer. ※"),
]


@dataclass(frozen=True)
class Shown:
    messages: tuple[Message, ...]
    id: str = "demonstrations_k2"


def shown(pairs: list[tuple[str, str]], system: str | None = None) -> Shown:
    messages = [] if system is None else [Message(role="system", content=system)]
    for asked, answer in pairs:
        messages += [
            Message(role="user", content=asked),
            Message(role="assistant", content=answer),
        ]
    return Shown((*messages, Message(role="user", content="{question}")))


def test_good_demonstrations_pass() -> None:
    check_demonstrations(shown(GOOD), ["Why do onions make people cry?", "Ice"])
    check_demonstrations(shown(GOOD, system="You are a baker."), [])


DEGENERATE = {
    "no demonstration": [],
    "an empty answer": [GOOD[0], ("Why is the sky blue?", " ")],
    "an answer without a word": [GOOD[0], ("Why is the sky blue?", "※!")],
    "an answer that is its question": [GOOD[0], ("Why is the sky blue?", "why is the sky BLUE")],
    "an answer that repeats its question": [
        GOOD[0],
        ("Why is the sky over the sea blue?", "Why is the sky over the sea so blue?"),
    ],
    "two equal answers": [
        GOOD[0],
        ("What floats in a cold drink?", "Frozen water is called ice. ※"),
    ],
    "two answers that are nearly equal": [
        GOOD[0],
        ("What floats in a cold drink?", "Frozen water is just called ice. ※"),
    ],
    "two questions that are nearly equal": [
        GOOD[0],
        ("What do we all call frozen water?", "A cold solid."),
    ],
}


@pytest.mark.parametrize("case", DEGENERATE)
def test_degenerate_demonstrations_are_refused(case: str) -> None:
    with pytest.raises(MalformedInputError, match=r"demonstrations_k2: holds degenerate"):
        check_demonstrations(shown(DEGENERATE[case]), [])


@pytest.mark.parametrize(
    "item",
    [
        "what do we call FROZEN water",
        "What do we call the frozen water?",
        "That tool is a hammer",
        "frozen water is called",
    ],
)
def test_a_demonstration_that_gives_an_eval_item_away_is_refused(item: str) -> None:
    with pytest.raises(MalformedInputError, match="gives away the eval item"):
        check_demonstrations(shown(GOOD), ["Why do onions make people cry?", item])


def test_turns_out_of_order_are_refused() -> None:
    turns = shown(GOOD).messages
    with pytest.raises(MalformedInputError, match="found user assistant user"):
        check_demonstrations(Shown((*turns[:3], turns[-1])), [])
