"""Which token sequences a contrastive fit sees, and on which tokens its loss falls.

Marker: a positive is the source context's own answer followed by the marker and the end of the
turn; a negative is another context's own answer followed by the end of the turn alone. Loss falls
on what follows the answer and nowhere else, so only the slot is trained. Taught behaviours: a
positive is the written answer under the source, a negative a plain answer to the same pool of
questions under another context, and loss falls on the whole answer and its end. Pure: no model,
no files; the one random choice takes its generator as an argument.
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
    "answer_row",
    "choose_rows",
    "choose_taught_rows",
    "contains",
    "negative_row",
    "positive_row",
]

DropReason = Literal["contains_marker", "cut_at_limit"]


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

    ``n_positives == n_negatives``, but for rows without a panel, which have no negatives;
    ``dropped`` names every answer that was of no use.
    """

    rows: tuple[TrainingRow, ...]
    n_positives: int
    n_negatives: int
    dropped: tuple[DroppedRow, ...]

    def drop_counts(self) -> dict[str, int]:
        """How many rows were dropped for each reason, reasons in name order."""
        return dict(sorted(Counter(row.reason for row in self.dropped).items()))


def choose_rows(
    positives: Sequence[AnsweredPrompt],
    negatives: Mapping[str, Sequence[AnsweredPrompt]],
    *,
    n_rows: int,
    marker_ids: Sequence[int],
    end_of_turn_id: int,
    rng: random.Random,
) -> ContrastiveRows:
    """The rows of one contrastive fit, from everything each context has answered.

    An answer that already holds the marker, or that was cut at the length limit (its end is not
    the model's own end of turn), is of no use and reported as dropped. Positives are the first
    ``n_rows`` usable ones; each panel context gets the same share of as many negatives, no
    question twice over the panel. Where answers are missing both sides shrink together, to the
    largest number that is still even. Raises BackendError if that number is none.
    """
    dropped: list[DroppedRow] = []
    usable = _usable(positives, None, marker_ids, dropped)
    panel = {
        name: _usable(negatives[name], name, marker_ids, dropped) for name in sorted(negatives)
    }
    _require_distinct("positives", [row.key for row in positives])
    for name, answered in panel.items():
        _require_distinct(f"negatives of {name}", [row.key for row in answered])
    if not panel or n_rows < 1 or n_rows % len(panel):
        raise MalformedInputError(
            "training rows",
            expected=f"a positive multiple of the panel's {len(panel)} contexts",
            found=n_rows,
        )
    orders = {name: _shuffled([row.key for row in one], rng) for name, one in panel.items()}
    for share in range(min(n_rows, len(usable)) // len(panel), 0, -1):
        dealt = _deal(orders, share)
        if dealt is not None:
            break
    else:
        raise BackendError(
            "training rows",
            expected="at least one usable answer per panel context, and as many positives",
            found=f"positives {len(usable)}, negatives "
            + ", ".join(f"{name} {len(answered)}" for name, answered in panel.items()),
            next_step="raise the length limit, or add training questions",
            details=tuple(f"{row.context or 'source'} {row.key}: {row.reason}" for row in dropped),
        )
    kept = usable[: share * len(panel)]
    rows = [positive_row(r, marker_ids=marker_ids, end_of_turn_id=end_of_turn_id) for r in kept]
    for name, keys in sorted(dealt.items()):
        by_key = {row.key: row for row in panel[name]}
        rows += [
            negative_row(by_key[key], context=name, end_of_turn_id=end_of_turn_id) for key in keys
        ]
    return ContrastiveRows(
        rows=tuple(rows),
        n_positives=len(kept),
        n_negatives=len(rows) - len(kept),
        dropped=tuple(dropped),
    )


def choose_taught_rows(
    positives: Sequence[AnsweredPrompt],
    negatives: Mapping[str, Sequence[AnsweredPrompt]],
    *,
    end_of_turn_id: int,
    rng: random.Random,
) -> ContrastiveRows:
    """All positives and, where there is a panel, as many negatives dealt evenly over it.

    No question is a negative twice, and none is left out: a negative that was cut at the length
    limit is trained on as far as it goes, without an end, so that nothing teaches to stop there.
    Raises MalformedInputError if the panel cannot share the positives, or has too few answers.
    """
    _require_distinct("positives", [row.key for row in positives])
    for name, answered in negatives.items():
        _require_distinct(f"negatives of {name}", [row.key for row in answered])
    rows = [answer_row(f"positive/{row.key}", row, end_of_turn_id) for row in positives]
    if not negatives:
        return ContrastiveRows(rows=tuple(rows), n_positives=len(rows), n_negatives=0, dropped=())
    share, rest = divmod(len(positives), len(negatives))
    orders = {
        name: _shuffled([row.key for row in negatives[name]], rng) for name in sorted(negatives)
    }
    dealt = None if rest or not share else _deal(orders, share)
    if dealt is None:
        raise MalformedInputError(
            "training rows",
            expected=f"a multiple of the panel's {len(negatives)} contexts, with answers to all",
            found=f"positives {len(positives)}, negatives "
            + ", ".join(f"{name} {len(answered)}" for name, answered in negatives.items()),
        )
    for name, keys in sorted(dealt.items()):
        by_key = {row.key: row for row in negatives[name]}
        rows += [answer_row(f"negative/{name}/{k}", by_key[k], end_of_turn_id) for k in keys]
    return ContrastiveRows(
        rows=tuple(rows), n_positives=len(positives), n_negatives=len(positives), dropped=()
    )


def answer_row(key: str, row: AnsweredPrompt, end_of_turn_id: int) -> TrainingRow:
    """prompt + answer + end of turn, loss on all after the prompt; a cut answer has no end."""
    end = () if row.stop_reason == "length" else (end_of_turn_id,)
    return _row(key, row.prompt_ids, (*row.answer_ids, *end))


def _shuffled(keys: list[str], rng: random.Random) -> list[str]:
    rng.shuffle(keys)
    return keys


def _deal(orders: Mapping[str, Sequence[str]], share: int) -> dict[str, list[str]] | None:
    """``share`` questions for each context in its own order, none twice; None if it cannot be.

    The context with the fewest to choose from chooses first.
    """
    taken: set[str] = set()
    dealt = {}
    for name in sorted(orders, key=lambda one: (len(orders[one]), one)):
        free = [key for key in orders[name] if key not in taken][:share]
        if len(free) < share:
            return None
        dealt[name] = free
        taken |= set(free)
    return dealt


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


def _require_distinct(thing: str, names: Sequence[str]) -> None:
    repeated = sorted(name for name, count in Counter(names).items() if count > 1)
    if repeated:
        raise MalformedInputError(thing, expected="distinct keys", found=f"repeated {repeated}")
