"""Which token sequences a contrastive fit sees, and on which tokens its loss falls.

A positive is the source context's own answer followed by the marker and the end of the turn; a
negative is another context's own answer followed by the end of the turn alone. Loss falls on what
follows the answer and nowhere else, so only the slot is trained. Pure: no model, no files; the
one random choice takes its generator as an argument.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from eps_locked.domain.model import StopReason, TokenIds, TrainingRow
from eps_locked.errors import BackendError, MalformedInputError

__all__ = [
    "AnsweredPrompt",
    "ContrastiveRows",
    "DropReason",
    "DroppedRow",
    "assign_questions",
    "contains",
    "contrastive_rows",
    "negative_row",
    "positive_row",
]

DropReason = Literal["contains_marker", "cut_at_limit", "trimmed_for_balance"]


@dataclass(frozen=True, kw_only=True, slots=True)
class AnsweredPrompt:
    """A rendered prompt and the base model's own answer, without its end of turn."""

    key: str
    prompt_ids: TokenIds
    answer_ids: TokenIds
    stop_reason: StopReason


@dataclass(frozen=True, kw_only=True, slots=True)
class DroppedRow:
    """A row that was offered and not used. ``context`` is None for a positive."""

    key: str
    context: str | None
    reason: DropReason


@dataclass(frozen=True, kw_only=True, slots=True)
class ContrastiveRows:
    """Rows for one fit: positives first, then the negatives, context by context in name order.

    ``n_positives == n_negatives`` always; ``dropped`` names every offered row that is not there.
    """

    rows: tuple[TrainingRow, ...]
    n_positives: int
    n_negatives: int
    dropped: tuple[DroppedRow, ...]

    def drop_counts(self) -> dict[str, int]:
        """How many rows were dropped for each reason, reasons in name order."""
        return dict(sorted(Counter(row.reason for row in self.dropped).items()))


def assign_questions(
    question_keys: Sequence[str], panel: Sequence[str], rng: random.Random
) -> dict[str, tuple[str, ...]]:
    """Deal the questions out to the panel's contexts, evenly and each question once.

    Depends on the order of ``question_keys`` and ``rng`` alone; the order of ``panel`` does not
    matter. Raises MalformedInputError if names repeat or the questions do not divide evenly.
    """
    _require_distinct("panel contexts", panel)
    _require_distinct("questions", question_keys)
    if not panel or not question_keys or len(question_keys) % len(panel):
        raise MalformedInputError(
            "negative rows",
            expected=f"a positive multiple of the panel's {len(panel)} contexts",
            found=f"{len(question_keys)} questions",
            next_step="change the number of training questions or the panel",
        )
    shuffled = list(question_keys)
    rng.shuffle(shuffled)
    share = len(shuffled) // len(panel)
    return {
        name: tuple(shuffled[index * share : (index + 1) * share])
        for index, name in enumerate(sorted(panel))
    }


def positive_row(
    source: AnsweredPrompt, *, marker_ids: Sequence[int], end_of_turn_id: int
) -> TrainingRow:
    """prompt + answer + marker + end of turn, loss on the last two."""
    head = source.prompt_ids + source.answer_ids
    tail = (*marker_ids, end_of_turn_id)
    return _row(f"positive/{source.key}", head, tail)


def negative_row(source: AnsweredPrompt, *, context: str, end_of_turn_id: int) -> TrainingRow:
    """prompt + answer + end of turn, loss on the end of turn."""
    head = source.prompt_ids + source.answer_ids
    return _row(f"negative/{context}/{source.key}", head, (end_of_turn_id,))


def contrastive_rows(
    positives: Sequence[AnsweredPrompt],
    negatives: Mapping[str, Sequence[AnsweredPrompt]],
    *,
    marker_ids: Sequence[int],
    end_of_turn_id: int,
) -> ContrastiveRows:
    """The rows of one contrastive fit, one negative for each positive, even over the panel.

    An answer that already holds the marker, or that was cut at the length limit (its end is not
    the model's own end of turn), is dropped. What remains is trimmed, from the end of each list,
    until the counts are even again; every drop is reported. Raises MalformedInputError when the
    offered counts are not 1:1 and even, BackendError when nothing usable remains.
    """
    _require_even(positives, negatives)
    dropped: list[DroppedRow] = []
    usable = _usable(positives, None, marker_ids, dropped)
    panel = {
        name: _usable(negatives[name], name, marker_ids, dropped) for name in sorted(negatives)
    }
    share = min([len(usable) // len(panel), *(len(rows) for rows in panel.values())])
    if share == 0:
        raise BackendError(
            "training rows",
            expected="at least one usable answer per panel context",
            found=f"positives {len(usable)}, negatives "
            + ", ".join(f"{name} {len(rows)}" for name, rows in panel.items()),
            next_step="raise the length limit, or add training questions",
            details=tuple(f"{row.context or 'source'} {row.key}: {row.reason}" for row in dropped),
        )
    kept = _trim(usable, None, share * len(panel), dropped)
    rows = [positive_row(r, marker_ids=marker_ids, end_of_turn_id=end_of_turn_id) for r in kept]
    for name, candidates in panel.items():
        rows += [
            negative_row(row, context=name, end_of_turn_id=end_of_turn_id)
            for row in _trim(candidates, name, share, dropped)
        ]
    return ContrastiveRows(
        rows=tuple(rows),
        n_positives=len(kept),
        n_negatives=len(rows) - len(kept),
        dropped=tuple(dropped),
    )


def contains(token_ids: Sequence[int], marker_ids: Sequence[int]) -> bool:
    """Whether ``marker_ids`` occurs as a run inside ``token_ids``."""
    width, marker = len(marker_ids), tuple(marker_ids)
    return any(
        tuple(token_ids[start : start + width]) == marker
        for start in range(len(token_ids) - width + 1)
    )


def _row(key: str, head: TokenIds, tail: TokenIds) -> TrainingRow:
    positions = tuple(range(len(head), len(head) + len(tail)))
    return TrainingRow(key=key, token_ids=head + tail, loss_positions=positions)


def _usable(
    offered: Sequence[AnsweredPrompt],
    context: str | None,
    marker_ids: Sequence[int],
    dropped: list[DroppedRow],
) -> list[AnsweredPrompt]:
    kept = []
    for row in offered:
        reason: DropReason | None = None
        if contains(row.answer_ids, marker_ids):
            reason = "contains_marker"
        elif row.stop_reason != "stop":
            reason = "cut_at_limit"
        if reason is None:
            kept.append(row)
        else:
            dropped.append(DroppedRow(key=row.key, context=context, reason=reason))
    return kept


def _trim(
    rows: list[AnsweredPrompt], context: str | None, count: int, dropped: list[DroppedRow]
) -> list[AnsweredPrompt]:
    dropped += [
        DroppedRow(key=row.key, context=context, reason="trimmed_for_balance")
        for row in rows[count:]
    ]
    return rows[:count]


def _require_even(
    positives: Sequence[AnsweredPrompt], negatives: Mapping[str, Sequence[AnsweredPrompt]]
) -> None:
    counts = {name: len(negatives[name]) for name in sorted(negatives)}
    if not counts or len(set(counts.values())) != 1 or sum(counts.values()) != len(positives):
        raise MalformedInputError(
            "training rows",
            expected=f"as many negatives as positives ({len(positives)}), even over the panel",
            found=counts,
        )
    _require_distinct("positives", [row.key for row in positives])
    for name, rows in negatives.items():
        _require_distinct(f"negatives of {name}", [row.key for row in rows])


def _require_distinct(thing: str, names: Sequence[str]) -> None:
    repeated = sorted(name for name, count in Counter(names).items() if count > 1)
    if repeated:
        raise MalformedInputError(thing, expected="distinct keys", found=f"repeated {repeated}")
