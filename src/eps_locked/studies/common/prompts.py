"""Prompts as token ids: how a study freezes them, and how its steps read them back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eps_locked.canonical import decode, digest_value
from eps_locked.domain.model import ChatTokenizer, TokenIds
from eps_locked.domain.steps import Step
from eps_locked.studies.common.material import Context, Item

__all__ = ["PROBE_QUESTIONS", "RECORD_FILE", "Prompts", "Rendered", "render", "row_seed"]

# The one file of a step whose output is a record.
RECORD_FILE = "record.json"
# Asked of every context to compare contexts as token ids; never asked of a model.
PROBE_QUESTIONS = ("Why?", "7 apples, or none at all")


@dataclass(frozen=True, kw_only=True, slots=True)
class Rendered:
    """One context under the model's own chat template, for a list of items.

    ``prefix`` is what all prompts share from the start, ``suffixes`` the rest by item id.
    ``probes`` are the probe questions' token ids: two contexts that render those alike are one
    context, whatever their authors called them.
    """

    context: Context
    probes: tuple[TokenIds, ...]
    prefix: TokenIds
    suffixes: Mapping[str, TokenIds]

    @property
    def identity(self) -> str:
        return digest_value([list(ids) for ids in self.probes])

    def to_dict(self) -> dict[str, Any]:
        return {
            "schema": "eps-locked/prompts/1",
            "context": self.context.id,
            "probes": [list(ids) for ids in self.probes],
            "prefix": list(self.prefix),
            "suffixes": {item: list(ids) for item, ids in self.suffixes.items()},
        }


def render(context: Context, items: Sequence[Item], tokenizer: ChatTokenizer) -> Rendered:
    """A context's prompts as token ids, split at their longest common prefix."""
    prompts = {item.id: tokenizer.render(context.ask(item.text)) for item in items}
    n_shared = len(_common_prefix(list(prompts.values())))
    # At least one token must remain to be read, or a shared prefix could be a whole prompt.
    n_shared = min(n_shared, min(len(ids) for ids in prompts.values()) - 1)
    first = next(iter(prompts.values()))
    return Rendered(
        context=context,
        probes=tuple(tokenizer.render(context.ask(question)) for question in PROBE_QUESTIONS),
        prefix=first[:n_shared],
        suffixes={item: ids[n_shared:] for item, ids in prompts.items()},
    )


def _common_prefix(rows: Sequence[TokenIds]) -> TokenIds:
    first, last = min(rows), max(rows)
    for index, token in enumerate(first):
        if token != last[index]:
            return first[:index]
    return first


@dataclass(frozen=True, kw_only=True, slots=True)
class Prompts:
    """A context's frozen prompts, by item id."""

    context: str
    by_item: Mapping[str, TokenIds]

    @classmethod
    def read(cls, data: bytes, thing: str) -> Prompts:
        value = decode(data, thing=thing)
        prefix = tuple(value["prefix"])
        return cls(
            context=value["context"],
            by_item={item: (*prefix, *ids) for item, ids in value["suffixes"].items()},
        )


def row_seed(step: Step, *labels: str) -> int:
    """A sampling seed for one row of one step: no two rows, aliases included, share one."""
    return int(digest_value([step.id, *labels]).removeprefix("blake3:")[:12], 16)
