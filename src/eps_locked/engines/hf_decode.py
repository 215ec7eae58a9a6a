"""Decode one batch: prefill, check drafts, step, stop, and read the slot from the same cache.

A greedy token is *defined* here as the arg-max of a pass over that row alone, without cache, and
computed as the arg-max of whatever pass is at hand whenever the two cannot differ: when no other
logit lies within ``TIE_MARGIN``. Only close calls (about one token in some thousands) cost a pass
of their own. That is what makes an answer independent of its neighbours, of drafts and of the
prefix cache, instead of nearly independent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from eps_locked.domain.model import (
    Decoding,
    Prompt,
    SlotProbe,
    SlotReading,
    StopReason,
    TokenIds,
)
from eps_locked.engines.hf_forward import ModelHost, Prefix, forward, new_tails
from eps_locked.engines.hf_logits import Outlook, ProbeValues, join_reading, look, probe_values

__all__ = ["Answer", "decode_batch", "read_batch"]

# Draft tokens checked per pass. Longer windows save little more (a pass over 16 rows x 16 tokens
# is already bound by arithmetic, not by reading weights) and waste more when a draft goes wrong.
DRAFT_WINDOW = 16


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """One finished row, in the terms of ``Completion``."""

    token_ids: TokenIds
    stop_reason: StopReason
    slot: SlotReading | None
    slot_index: int | None
    marker_emitted: bool


@dataclass(kw_only=True, slots=True)
class _Row:
    """A row under way. ``n_cached`` tail tokens are in the cache; ``pending`` ones are not yet."""

    index: int
    prompt_ids: TokenIds
    pending: list[int]
    draft: TokenIds
    generator: torch.Generator | None
    n_cached: int = 0
    answer: list[int] = field(default_factory=list)
    values: dict[int, ProbeValues] = field(default_factory=dict)
    stop_reason: StopReason | None = None

    def window(self) -> list[int]:
        """The next draft tokens to check: those after an answer that has followed the draft."""
        n_done = len(self.answer)
        if tuple(self.answer) != self.draft[:n_done]:
            return []
        return list(self.draft[n_done : n_done + DRAFT_WINDOW])


class _Batch:
    """The rows of one batch and their cache, in the order unfinished rows first."""

    def __init__(
        self,
        host: ModelHost,
        prefix: Prefix | None,
        prompts: Sequence[Prompt],
        decoding: Decoding,
        probe: SlotProbe | None,
        stop_ids: frozenset[int],
        tie_margin: float,
    ) -> None:
        self.host = host
        self.decoding = decoding
        self.probe = probe
        self.stop_ids = stop_ids
        self.tie_margin = tie_margin
        self.slot_ids = stop_ids if probe is None else stop_ids | set(probe.marker_ids)
        skip = 0 if prefix is None else prefix.length
        sampled = decoding.temperature > 0
        # Drafts are for greedy float32 decoding: the tie rule is what makes them exact.
        use_draft = not sampled and tie_margin > 0
        self.rows = [
            _Row(
                index=i,
                prompt_ids=prompt.token_ids,
                pending=list(prompt.token_ids[skip:]),
                draft=prompt.draft[: decoding.max_new_tokens - 1] if use_draft else (),
                generator=torch.Generator().manual_seed(prompt.seed) if sampled else None,
            )
            for i, prompt in enumerate(prompts)
        ]
        longest = max(len(row.pending) for row in self.rows)
        # A last draft window may overhang an answer that stops early; it never passes the budget.
        capacity = longest + decoding.max_new_tokens + (len(probe.marker_ids) if probe else 0)
        self.tails = new_tails(host, prefix, len(self.rows), capacity)

    def run(self) -> None:
        """Decode until every row has stopped."""
        while True:
            live = [row for row in self.rows if row.stop_reason is None]
            if not live:
                return
            drafted = [row for row in live if row.window()]
            starting = not live[0].n_cached
            self._advance(live if starting or not drafted else drafted)

    def _advance(self, group: Sequence[_Row]) -> None:
        """One pass over these rows; each gains at least one token or stops."""
        self._put_first(group)
        windows = [row.window() for row in group]
        feeds = [[*row.pending, *window] for row, window in zip(group, windows, strict=True)]
        hidden_BTC = self._feed(group, feeds)
        # A window of w draft tokens answers w + 1 positions: each draft token's and the next.
        places = [
            (b, len(row.pending) - 1 + j)
            for b, row in enumerate(group)
            for j in range(len(windows[b]) + 1)
        ]
        outlooks = iter(self._look(group, _pick(hidden_BTC, places)))
        for row, window in zip(group, windows, strict=True):
            self._take(row, window, [next(outlooks) for _ in range(len(window) + 1)])

    def _take(self, row: _Row, window: Sequence[int], outlooks: Sequence[Outlook]) -> None:
        """Accept tokens as long as the draft agrees, and the first one where it does not."""
        row.n_cached += len(row.pending)
        for guess, outlook in zip([*window, None], outlooks, strict=True):
            choice = self._settle(row, outlook) if outlook.is_close else outlook.choice
            if outlook.values is not None and choice in self.slot_ids:
                row.values[len(row.answer)] = outlook.values
            if choice in self.stop_ids:
                row.stop_reason = "stop"
                return
            row.answer.append(choice)
            if len(row.answer) == self.decoding.max_new_tokens:
                row.stop_reason = "length"
            row.pending = [choice]
            if choice != guess or row.stop_reason is not None:
                return
            row.n_cached += 1

    def _settle(self, row: _Row, outlook: Outlook) -> int:
        """The greedy token by definition: this row's ids alone, from the start, batch 1."""
        ids = [*row.prompt_ids, *row.answer]
        hidden_BTC = forward(self.host, new_tails(self.host, None, 1, len(ids)), [ids], [0])
        last_MC = hidden_BTC[:, -1]
        return look(self.host.lm_head, last_MC, None, (), None, 0.0, 1.0, 0.0)[0].choice

    def _look(self, group: Sequence[_Row], hidden_MC: torch.Tensor) -> list[Outlook]:
        draws = None
        if self.decoding.temperature > 0:
            draws = [
                float(torch.rand((), generator=row.generator, dtype=torch.float64)) for row in group
            ]
        return look(
            self.host.lm_head,
            hidden_MC,
            self.probe,
            self.slot_ids,
            draws,
            self.decoding.temperature,
            self.decoding.top_p,
            self.tie_margin,
        )

    def _feed(self, group: Sequence[_Row], feeds: Sequence[Sequence[int]]) -> torch.Tensor:
        return forward(self.host, self.tails, feeds, [row.n_cached for row in group])

    def _put_first(self, group: Sequence[_Row]) -> None:
        """Bring these rows to the front of the cache, the others behind, order kept."""
        if all(row is front for row, front in zip(group, self.rows, strict=False)):
            return
        chosen = {row.index for row in group}
        order = sorted(range(len(self.rows)), key=lambda i: self.rows[i].index not in chosen)
        self.tails.reorder(order)
        self.rows = [self.rows[i] for i in order]

    def read_slots(self, probe: SlotProbe) -> None:
        """Teacher-force what the slots still lack, in one pass over the rows that lack something.

        After a stop the values at the slot are known, and only those after each marker token are
        missing; after a length stop the answer's last token has not been fed either.
        """
        lacking = [
            row
            for row in self.rows
            if find(row.answer, probe.marker_ids) is None
            and (row.stop_reason == "length" or len(probe.marker_ids) > 1)
        ]
        if not lacking:
            return
        self._put_first(lacking)
        forced = list(probe.marker_ids[:-1])
        heads = [row.pending if row.stop_reason == "length" else [] for row in lacking]
        hidden_BTC = self._feed(lacking, [[*head, *forced] for head in heads])
        places = [(b, j) for b, head in enumerate(heads) for j in range(len(head) + len(forced))]
        values = iter(probe_values(self.host.lm_head, _pick(hidden_BTC, places), probe))
        for row, head in zip(lacking, heads, strict=True):
            for j in range(len(head) + len(forced)):
                row.values[len(row.answer) + 1 - len(head) + j] = next(values)

    def answers(self) -> list[Answer]:
        """The finished rows in the caller's order."""
        return [self._answer(row) for row in sorted(self.rows, key=lambda row: row.index)]

    def _answer(self, row: _Row) -> Answer:
        slot, slot_index, emitted_at = None, None, None
        if self.probe is not None:
            marker_ids = self.probe.marker_ids
            emitted_at = find(row.answer, marker_ids)
            slot_index = len(row.answer) if emitted_at is None else emitted_at
            slot = join_reading([row.values[slot_index + k] for k in range(len(marker_ids))])
        assert row.stop_reason is not None  # for the type checker: run() returns when all stopped
        return Answer(
            token_ids=tuple(row.answer),
            stop_reason=row.stop_reason,
            slot=slot,
            slot_index=slot_index,
            marker_emitted=emitted_at is not None,
        )


def decode_batch(
    host: ModelHost,
    prefix: Prefix | None,
    prompts: Sequence[Prompt],
    decoding: Decoding,
    probe: SlotProbe | None,
    *,
    stop_ids: frozenset[int],
    tie_margin: float,
) -> list[Answer]:
    """Decode prompts that all begin with ``prefix`` and go on after it by a token or more."""
    batch = _Batch(host, prefix, prompts, decoding, probe, stop_ids, tie_margin)
    batch.run()
    if probe is not None:
        batch.read_slots(probe)
    return batch.answers()


def read_batch(
    host: ModelHost, prefix: Prefix | None, contexts: Sequence[TokenIds], probe: SlotProbe
) -> list[SlotReading]:
    """Read the slot after each sequence; all begin with ``prefix`` and go on after it."""
    n_marker = len(probe.marker_ids)
    skip = 0 if prefix is None else prefix.length
    feeds = [[*ids[skip:], *probe.marker_ids[:-1]] for ids in contexts]
    tails = new_tails(host, prefix, len(feeds), max(len(feed) for feed in feeds))
    hidden_BTC = forward(host, tails, feeds, [0] * len(feeds))
    places = [
        (b, len(feed) - n_marker + k) for b, feed in enumerate(feeds) for k in range(n_marker)
    ]
    values = probe_values(host.lm_head, _pick(hidden_BTC, places), probe)
    return [join_reading(values[b * n_marker : (b + 1) * n_marker]) for b in range(len(contexts))]


def find(answer: Sequence[int], marker_ids: TokenIds) -> int | None:
    """Where the marker first appears in the answer, None if it does not."""
    n_marker = len(marker_ids)
    for start in range(len(answer) - n_marker + 1):
        if tuple(answer[start : start + n_marker]) == marker_ids:
            return start
    return None


def _pick(hidden_BTC: torch.Tensor, places: Sequence[tuple[int, int]]) -> torch.Tensor:
    """hidden_MC at (row, token) places."""
    rows, tokens = zip(*places, strict=True)
    return hidden_BTC[list(rows), list(tokens)]
