"""The parts of a study as they are published. Frozen data; nothing here reads a run or a disk."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from eps_locked.canonical import digest_bytes, digest_value
from eps_locked.domain.ledger import Artifact

Cell = tuple[str, str, str]
Messages = tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """A file of material with its rights.

    ``redistribute``: whether its texts may be handed on. ``recipe``: how to get them again, for
    those that may not (data set, revision, ...).
    """

    path: str
    licence: str
    provenance: str
    redistribute: bool = True
    recipe: Mapping[str, Any] | None = None

    @property
    def withheld(self) -> str | None:
        """Why texts of this file are left out; None if they are not."""
        if self.redistribute:
            return None
        return f"{self.path}: its terms ({self.licence}) do not let the text be handed on"


@dataclass(frozen=True, kw_only=True, slots=True)
class Context:
    """A context of one row. ``roles``: train, eval, held_out, negative.

    ``messages``: (role, content), the last of them holding ``{question}``.
    """

    row: str
    id: str
    family: str
    behaviour: str | None
    roles: tuple[str, ...]
    digest: str
    prefix_tokens: int | None
    alias_of: str | None
    messages: Messages
    source: Source
    recipe: Mapping[str, Any] | None = None

    def ask(self, question: str) -> Messages:
        *before, (role, content) = self.messages
        return (*before, (role, content.replace("{question}", question)))


@dataclass(frozen=True, kw_only=True, slots=True)
class Item:
    """A question of one row. ``keep_text``: whether answers to it may be shown in full."""

    row: str
    pool: str
    id: str
    text: str
    topic: str | None
    slice: str | None
    keep_text: bool
    source: Source
    recipe: Mapping[str, Any] | None = None

    @property
    def digest(self) -> str:
        return digest_bytes(self.text.encode("utf-8"))


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingRow:
    """One row of a fit. ``answer``: what follows the question, as text; ``answer_source``: where
    that text is from, if not from the base model or from the context's and item's files."""

    key: str
    role: str
    context: Context
    item: Item
    answer: str
    answer_source: Source | None
    token_ids: tuple[int, ...]
    loss_positions: tuple[int, ...]

    @property
    def digest(self) -> str:
        """Of exactly what the fit saw; computed from the row's own three fields."""
        return digest_value([self.key, list(self.token_ids), list(self.loss_positions)])

    @property
    def sources(self) -> tuple[Source, ...]:
        found = [self.context.source, self.item.source]
        if self.answer_source is not None:
            found.append(self.answer_source)
        return tuple({source.path: source for source in found}.values())

    @property
    def withheld(self) -> str | None:
        reasons = [source.withheld for source in self.sources if source.withheld]
        return "; ".join(reasons) or None


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingSet:
    """What one adapter was trained on. ``read`` derives the rows, in the order the fit saw them."""

    row: str
    context: str
    seed: int
    step: str
    read: Callable[[], tuple[TrainingRow, ...]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Adapter:
    """One adapter: its files in the store, the record of its training, what is to be known."""

    row: str
    context: str
    seed: int
    step: str
    artifact: Artifact
    record: Mapping[str, Any]
    flags: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """A row of the tensor, and what a metric may draw its direction from.

    ``pairs``: (asks for the behaviour, asks against it). ``rubric``: the frozen question to the
    judge, for rows that have one.
    """

    name: str
    kind: str
    title: str
    description: str
    trait: str
    pairs: tuple[tuple[str, str], ...]
    questions_extract: tuple[str, ...]
    questions_evaluate: tuple[str, ...]
    marker: str | None
    rubric: Mapping[str, Any] | None
    source: Source


def recipe_text(*parts: Mapping[str, Any] | None) -> str | None:
    """Recipes as one line of JSON: a column whose type does not depend on the source."""
    merged: dict[str, Any] = {}
    for part in parts:
        merged |= part or {}
    return json.dumps(merged, ensure_ascii=False, sort_keys=True) if merged else None
