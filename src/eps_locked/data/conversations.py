"""Real conversations to prefixes: WildChat, a published bank of contexts, bare first turns.

A prefix is the first exchanges of a conversation, whole turns only. Only the fields named here get
into a document: addresses, headers and countries of users stay in the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from eps_locked.data.candidates import (
    Candidate,
    Drop,
    Dropped,
    Read,
    RowRead,
    id_of,
    row_digest,
    text_of,
    turns_of,
)
from eps_locked.data.rows import read_rows
from eps_locked.data.spec import Bin, SourceSpec
from eps_locked.data.text import PLACEHOLDER, WordList, folded, tidy, words_of
from eps_locked.domain.model import ChatTokenizer, Message

Turns = list[tuple[str, str]]
# The first release names conversations by id, later ones by the digest of their content.
_IDS = ("conversation_hash", "conversation_id")
_WILDCHAT = ("conversation", "language", "toxic", "redacted")


class TopicWords:
    """Says which topic a text is about: the one with the most distinct words in it.

    Below the least number of words, or with two topics level, it is about none.
    """

    def __init__(self, topics: Mapping[str, Sequence[str]], least: int) -> None:
        self._lists = {name: WordList(words) for name, words in topics.items()}
        self._least = least

    def topic(self, text: str) -> str | None:
        content = folded(text)
        words = words_of(content)
        counts = sorted(
            ((len(listed.found(content, words)), name) for name, listed in self._lists.items()),
            reverse=True,
        )
        if not counts or counts[0][0] < self._least:
            return None
        if len(counts) > 1 and counts[1][0] == counts[0][0]:
            return None
        return counts[0][1]


def read_conversations(spec: SourceSpec, contents: Mapping[str, bytes]) -> Iterator[Read]:
    """Every conversation of the files, as a prefix for each bin that a slot asks for."""
    topics = TopicWords(spec.options["topics"], spec.options["min_topic_words"])
    asked = {slot.group for slot in spec.slots}
    bins = {name: bin_ for name, bin_ in spec.options["bins"].items() if name in asked}
    for file in spec.files:
        for where, row in _rows(spec.form, file.path, contents[file.path]):
            try:
                turns, upstream_id = _turns(spec, row)
                yield _row_read(where, turns, upstream_id, bins, topics)
            except Drop as drop:
                yield Dropped(where=where, reason=drop.reason)


class PrefixLength:
    """Counts the tokens that a prefix adds to a bare question, both rendered by the template."""

    def __init__(self, tokenizer: ChatTokenizer) -> None:
        self._tokenizer = tokenizer
        self._question = Message(role="user", content=PLACEHOLDER)
        self._bare = len(tokenizer.render([self._question]))

    def __call__(self, messages: Sequence[Message]) -> int:
        return len(self._tokenizer.render([*messages, self._question])) - self._bare


def _rows(form: str, path: str, data: bytes) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if form == "battery":
        rows = read_rows(path, data, key="instances" if path.endswith(".json") else None)
        # The bank holds other families too; they are no conversations, so no rows of this source.
        return ((where, row) for where, row in rows if row.get("family") == "wildchat")
    if form == "first_turns":
        return read_rows(path, data, columns=("first_turn",), optional=("id",))
    return read_rows(path, data, columns=_WILDCHAT, optional=(*_IDS, "openai_moderation"))


def _turns(spec: SourceSpec, row: Mapping[str, Any]) -> tuple[Turns, str | None]:
    if spec.form == "first_turns":
        return [("user", text_of(row, "first_turn"))], id_of(row, "id")
    if spec.form == "battery":
        return turns_of(row, "prefix_messages"), id_of(row, "id")
    _require_clean(row, spec.options["language"])
    upstream = next((found for key in _IDS if (found := id_of(row, key)) is not None), None)
    return turns_of(row, "conversation"), upstream


def _require_clean(row: Mapping[str, Any], language: str) -> None:
    """Raise Drop unless the row's own flags, and those of every turn, say that it may be used."""
    if row.get("language") is None:
        raise Drop("missing_field")
    if row["language"] != language:
        raise Drop("language")
    turns = row.get("conversation")
    if not isinstance(turns, list | tuple):
        raise Drop("missing_field" if turns is None else "wrong_type")
    flagged = [row, *(turn for turn in turns if isinstance(turn, Mapping))]
    for key in ("toxic", "redacted"):
        values = [part.get(key) for part in flagged]
        if any(value is None for value in values):
            raise Drop("missing_field")
        if not all(isinstance(value, bool) for value in values):
            raise Drop("wrong_type")
        if any(values):
            raise Drop(key)
    moderation = row.get("openai_moderation") or ()
    if any(isinstance(one, Mapping) and one.get("flagged") for one in moderation):
        raise Drop("toxic")


def _row_read(
    where: str, turns: Turns, upstream_id: str | None, bins: Mapping[str, Bin], topics: TopicWords
) -> RowRead:
    roles = [role for role, _ in turns]
    if not roles:
        raise Drop("empty")
    if roles != ["assistant" if number % 2 else "user" for number in range(len(roles))]:
        raise Drop("role_order")
    return RowRead(
        where=where,
        digest=row_digest(*([role, content] for role, content in turns)),
        upstream_id=upstream_id,
        uses=tuple(_use(turns, name, bins[name], topics) for name in bins),
    )


def _use(turns: Turns, name: str, bin_: Bin, topics: TopicWords) -> Candidate:
    prefix = turns[: 2 * bin_.exchanges]
    texts = [tidy(content) for _, content in prefix]
    return Candidate(
        raw=tuple(content for _, content in prefix),
        content="\n\n".join(texts),
        group=name,
        topic=topics.topic(texts[0]),  # what the user brings up first
        messages=tuple(
            Message(role=cast(Any, role), content=text)
            for (role, _), text in zip(prefix, texts, strict=True)
        ),
        fault=None if len(prefix) == 2 * bin_.exchanges else "too_few_exchanges",
        entry={"tidied": texts != [content for _, content in prefix]},
    )
