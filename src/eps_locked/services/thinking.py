"""What a model thought before it answered, where both came in one text.

Models write their thoughts between tags, most between ``<think>`` and ``</think>``; servers that do
not know the model pass both on as content. Read here as the servers that do know it read: the first
closing tag ends a block, whatever stands in it; a closing tag without an opening one ends a block
that the chat template had opened before the model spoke; a block that is never closed goes on to
the end. So an answer that itself speaks of a closing tag loses what stands before the tag, as it
does there.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["split_thinking"]

# As chat templates write them, to the letter: of Qwen3, DeepSeek-R1 and most others; of Magistral,
# Kimi, Seed and OpenThinker. What only looks like one of them (<thinking>) is a model's own text.
_TAGS: Final = (
    ("<think>", "</think>"),
    ("[THINK]", "[/THINK]"),
    ("◁think▷", "◁/think▷"),
    ("<seed:think>", "</seed:think>"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
)
_ANY_TAG = re.compile("|".join(re.escape(tag) for pair in _TAGS for tag in pair))


def split_thinking(content: str) -> tuple[str, tuple[str, ...]]:
    """The answer, and the blocks of thought that are not empty.

    A text without tags is its own answer, byte for byte; else the white space around answer and
    blocks goes with the tags. Tags of another kind than the first are text: a model has one kind.
    """
    first = _ANY_TAG.search(content)
    if first is None:
        return content, ()
    opening, closing = next(pair for pair in _TAGS if first.group() in pair)
    answer, blocks = "", []
    thought: str | None = None
    for token in re.split(f"({re.escape(opening)}|{re.escape(closing)})", content):
        if token == closing:
            blocks.append(answer if thought is None else thought)
            answer, thought = ("" if thought is None else answer), None
        elif thought is not None:
            thought += token
        elif token == opening:
            thought = ""
        else:
            answer += token
    if thought is not None:
        blocks.append(thought)
    return answer.strip(), tuple(block.strip() for block in blocks if block.strip())
