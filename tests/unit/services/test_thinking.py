"""Thoughts are told apart from answers, however oddly a model closes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eps_locked.services.thinking import split_thinking


@pytest.mark.parametrize(
    ("content", "answer", "thoughts"),
    [
        ("Hello.", "Hello.", ()),
        (" \n as it is\t", " \n as it is\t", ()),
        ("", "", ()),
        ("<think>why</think>Hello.", "Hello.", ("why",)),
        ("<think>\nwhy\n</think>\n\nHello.\n", "Hello.", ("why",)),
        ("<think>\n\n</think>\n\nHello.", "Hello.", ()),
        # The template had opened the block.
        ("why\n</think>\n\nHello.", "Hello.", ("why",)),
        ("</think>Hello.", "Hello.", ()),
        # Cut off in thought.
        ("<think>why and", "", ("why and",)),
        ("<think>", "", ()),
        ("Hello. <think>why", "Hello.", ("why",)),
        ("<think>why</think>", "", ("why",)),
        # Two blocks, one inside the other, one that only speaks of the tag.
        ("<think>a</think>x<think>b</think>y", "xy", ("a", "b")),
        ("<think>a<think>b</think>c</think>Hello.", "Hello.", ("a<think>b", "c")),
        ("<think>not <think> again</think>Hello.", "Hello.", ("not <think> again",)),
        ("a</think>b</think>Hello.", "Hello.", ("a", "b")),
        ("<think>a</think>b</think>Hello.", "Hello.", ("a", "b")),
        # Other models' tags; a model has one kind, so what it says of another's is text.
        ("[THINK]why[/THINK]Hello.", "Hello.", ("why",)),
        ("◁think▷why◁/think▷Hello.", "Hello.", ("why",)),
        ("<seed:think>why</seed:think>\nHello.", "Hello.", ("why",)),
        ("<|begin_of_thought|>why<|end_of_thought|>Hello.", "Hello.", ("why",)),
        ("why[/THINK]Hello.", "Hello.", ("why",)),
        ("[THINK]not </think> yet[/THINK]Hello.", "Hello.", ("not </think> yet",)),
        ("<think>a</think>Write [THINK].", "Write [THINK].", ("a",)),
        # No tags at all.
        ("<THINK>a</THINK>", "<THINK>a</THINK>", ()),
        ("<thinking>a</thinking>", "<thinking>a</thinking>", ()),
        ("<think >a</ think>", "<think >a</ think>", ()),
        ("a < think > b", "a < think > b", ()),
    ],
)
def test_answer_and_thoughts_are_told_apart(
    content: str, answer: str, thoughts: tuple[str, ...]
) -> None:
    assert split_thinking(content) == (answer, thoughts)


PIECES = st.sampled_from(["<think>", "</think>", "a", "b ", "\n", "c"])


@given(st.lists(PIECES, max_size=12).map("".join))
def test_nothing_is_lost_but_tags_and_white_space(content: str) -> None:
    answer, thoughts = split_thinking(content)
    assert "</think>" not in answer
    assert "</think>" not in "".join(thoughts)

    def letters(text: str) -> list[str]:
        return sorted(text.replace("<think>", "").replace("</think>", "").replace("\n", ""))

    assert [one for one in letters(answer + "".join(thoughts)) if one != " "] == [
        one for one in letters(content) if one != " "
    ]


@given(st.text(alphabet="abc <>\n/", max_size=20))
def test_text_without_a_tag_is_its_own_answer(text: str) -> None:
    assert split_thinking(text) == (text, ())
    assert split_thinking(f"<think>{text}</think>Hello.")[0] == "Hello."
