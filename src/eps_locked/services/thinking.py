"""What a model thought before it answered, where both came in one text.

Models write their thoughts between ``<think>`` and ``</think>``; servers that do not know the model
pass both on as content. Read here as the servers that do know it read: the first closing tag ends a
block, whatever stands in it; a closing tag without an opening one ends a block that the chat
template had opened before the model spoke; a block that is never closed goes on to the end. So an
answer that itself speaks of a closing tag loses what stands before the tag, as it does there.
"""

from __future__ import annotations

import re

__all__ = ["split_thinking"]

_OPEN, _CLOSE = "<think>", "</think>"
_TAG = re.compile(f"({re.escape(_OPEN)}|{re.escape(_CLOSE)})")


def split_thinking(content: str) -> tuple[str, tuple[str, ...]]:
    """The answer, and the blocks of thought that are not empty.

    A text without tags is its own answer, byte for byte; else the white space around answer and
    blocks goes with the tags.
    """
    tokens = _TAG.split(content)
    if len(tokens) == 1:
        return content, ()
    answer, blocks = "", []
    thought: str | None = None
    for token in tokens:
        if token == _CLOSE:
            blocks.append(answer if thought is None else thought)
            answer, thought = ("" if thought is None else answer), None
        elif thought is not None:
            thought += token
        elif token == _OPEN:
            thought = ""
        else:
            answer += token
    if thought is not None:
        blocks.append(thought)
    return answer.strip(), tuple(block.strip() for block in blocks if block.strip())
