"""What a scoring step must ask, and what its record comes to, from frozen files alone.

The run's steps and the audit call the same functions; none calls a reward model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from eps_locked.canonical import decode
from eps_locked.domain.fields import Fields
from eps_locked.domain.ledger import Status
from eps_locked.domain.reward import REWARD_STATUSES, RewardRequest
from eps_locked.studies.vea.items import DOMAINS, FAMILIES, Domain, Family
from eps_locked.studies.vea.records import ScoresRecord

__all__ = [
    "ITEMS_SCHEMA",
    "RESPONSES",
    "FrozenItem",
    "read_frozen_items",
    "requests_of",
    "score_flags",
    "score_key",
    "score_status",
    "scored_items",
]

ITEMS_SCHEMA = "eps-locked/vea-items/1"
# The three responses of an item, in the order of asking, by what the table door calls them.
RESPONSES = ("base", "vea", "control")


@dataclass(frozen=True, kw_only=True, slots=True)
class FrozenItem:
    """One item as it was frozen. ``n_clause`` and ``n_control`` count characters of clauses."""

    id: str
    family: Family
    domain: Domain
    stem: str
    user_prompt: str
    base: str
    vea: str
    matched_control: str
    n_clause: int
    n_control: int

    def response(self, name: str) -> str:
        return {"base": self.base, "vea": self.vea, "control": self.matched_control}[name]


def read_frozen_items(data: bytes, thing: str) -> tuple[FrozenItem, ...]:
    """In their frozen order. Raises MalformedInputError naming the field."""
    with Fields(decode(data, thing=thing), thing) as fields:
        fields.text("schema", one_of=(ITEMS_SCHEMA,))
        return fields.each("items", _item)


def _item(value: object, path: str) -> FrozenItem:
    with Fields(value, path) as fields:
        return FrozenItem(
            id=fields.text("id"),
            family=cast(Family, fields.text("family", one_of=FAMILIES)),
            domain=cast(Domain, fields.text("domain", one_of=DOMAINS)),
            stem=fields.text("stem"),
            user_prompt=fields.text("user_prompt"),
            base=fields.text("base"),
            vea=fields.text("vea"),
            matched_control=fields.text("matched_control"),
            n_clause=fields.integer("n_clause", low=0),
            n_control=fields.integer("n_control", low=0),
        )


def score_key(item: str, response: str) -> str:
    """What names a response in requests, records and tables."""
    return f"{item}/{response}"


def requests_of(items: Sequence[FrozenItem]) -> tuple[RewardRequest, ...]:
    """Base, vea and control of every item. Equal texts are asked each for itself: whoever asks
    twice learns whether the answer is the same."""
    return tuple(
        RewardRequest(
            key=score_key(item.id, response),
            user_prompt=item.user_prompt,
            response=item.response(response),
        )
        for item in items
        for response in RESPONSES
    )


def scored_items(record: ScoresRecord, items: Sequence[FrozenItem]) -> dict[Family, int]:
    """Items of each family whose three responses all have a score."""
    scores = record.by_key
    counts: dict[Family, int] = {item.family: 0 for item in items}
    for item in items:
        keys = [score_key(item.id, response) for response in RESPONSES]
        counts[item.family] += all(key in scores and scores[key].is_scored for key in keys)
    return counts


def score_status(record: ScoresRecord, items: Sequence[FrozenItem], minimum: int) -> Status:
    """``unscored`` where a family has fewer whole items than the plan asks for."""
    return "unscored" if _too_few(scored_items(record, items), minimum) else "done"


def score_flags(record: ScoresRecord, items: Sequence[FrozenItem], minimum: int) -> tuple[str, ...]:
    """What whoever reads the scores must know: why some are missing, and which families miss too
    many."""
    found = {score.status for score in record.scores if not score.is_scored}
    missing = tuple(f"missing:{status}" for status in REWARD_STATUSES if status in found)
    too_few = _too_few(scored_items(record, items), minimum)
    return (*missing, *(f"too_few:{family}" for family in too_few))


def _too_few(counts: Mapping[Family, int], minimum: int) -> list[Family]:
    return [family for family in FAMILIES if family in counts and counts[family] < minimum]
