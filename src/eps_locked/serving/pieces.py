"""Text as it can be shown while it is still being written.

What has been shown cannot be taken back, so whatever may still turn into something else is held
back: half of a character, the beginning of a tag, white space that may stand at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from eps_locked.errors import BackendError

__all__ = ["Shown", "without_half_a_tag"]

# What a decoder writes for bytes that are no whole character (yet).
_UNFINISHED = "\ufffd"


class Shown:
    """Hands on the new end of a text that grows."""

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show = show
        self._so_far = ""

    def grow(self, text: str) -> None:
        """``text`` is all there is so far that will stay. An end that may not is left for later."""
        text = text.rstrip(_UNFINISHED)
        if len(text) > len(self._so_far) and text.startswith(self._so_far):
            new, self._so_far = text[len(self._so_far) :], text
            self._show(new)

    def finish(self, text: str) -> None:
        """``text`` is the whole. Raises BackendError where it does not go on from what was shown:
        a tokenizer that rewrites its own beginnings cannot be streamed."""
        if not text.startswith(self._so_far):
            raise BackendError(
                "stream",
                problem="the tokenizer changed text that had been sent already",
                expected=repr(self._so_far[-40:]),
                found=repr(text[: len(self._so_far)][-40:]),
                next_step="ask without stream",
            )
        new, self._so_far = text[len(self._so_far) :], text
        if new:
            self._show(new)


def without_half_a_tag(text: str, tags: Sequence[str]) -> str:
    """``text`` up to the first whole tag, or without an end that could become one.

    White space before that goes too: it is dropped where a tag follows.
    """
    whole = [start for start in (text.find(tag) for tag in tags) if start >= 0]
    if whole:
        return text[: min(whole)].rstrip()
    for tag in tags:
        for n in range(min(len(tag) - 1, len(text)), 0, -1):
            if text.endswith(tag[:n]):
                return text[:-n].rstrip()
    return text.rstrip()
