"""A tokenizer that only remembers: it renders what a manifest says was rendered.

With it an auditor derives a manifest again from its plan where the model's own tokenizer is not at
hand. It proves nothing about the rendering itself; a run repeats that with the real one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from eps_locked.canonical import digest_value
from eps_locked.domain.model import ChatTokenizer, Message, TokenIds
from eps_locked.errors import EpsLockedError, EvidenceError
from eps_locked.lock.freeze import StudyFreezer, manifest_differences
from eps_locked.lock.workspace import FrozenManifest

__all__ = ["RecordedTokenizer", "chat_key", "differences_with"]


class RecordedTokenizer:
    """Implements ``ChatTokenizer`` over what the documents of one manifest hold.

    ``texts``: token ids of bare texts. ``rendered``: those of chats, by ``chat_key``.
    """

    def __init__(
        self,
        *,
        texts: Mapping[str, TokenIds],
        rendered: Mapping[str, TokenIds],
        end_of_turn_id: int,
        template_digest: str,
    ) -> None:
        self._texts = texts
        self._rendered = rendered
        self.end_of_turn_id = end_of_turn_id
        self.template_digest = template_digest

    def render(self, messages: Sequence[Message]) -> TokenIds:
        key = chat_key(messages)
        if key not in self._rendered:
            raise EvidenceError(
                "frozen prompts", expected=f"{messages[-1].content!r} in context", found="not there"
            )
        return self._rendered[key]

    def encode(self, text: str) -> TokenIds:
        if text not in self._texts:
            raise EvidenceError("frozen plan", expected=f"token ids of {text!r}", found="none")
        return self._texts[text]

    def decode(self, token_ids: Sequence[int]) -> str:
        raise RuntimeError("a recorded tokenizer cannot decode")


def differences_with(
    frozen: FrozenManifest,
    freezer: StudyFreezer,
    recorded: Callable[[FrozenManifest], ChatTokenizer],
) -> list[str]:
    """``manifest_differences`` with the recorded rendering, which needs no model."""
    try:
        return manifest_differences(frozen, freezer, recorded(frozen))
    except EpsLockedError as error:
        return [f"{frozen.folder}: cannot be frozen again from what it holds: {error}"]
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        name = type(error).__name__
        return [f"{frozen.folder}: frozen documents are not as specified ({name}: {error})"]


def chat_key(messages: Sequence[Message]) -> str:
    """What a chat is remembered by."""
    return digest_value([[message.role, message.content] for message in messages])
