"""Decode one batch: prefill, check drafts, step, stop, and read the slot from the same cache.

The rows of a batch may begin with different prefixes; they step together.

A greedy token is *defined* here as the arg-max of a pass over that row alone, without cache, and
computed as the arg-max of whatever pass is at hand whenever the two cannot differ: when no other
logit lies within ``TIE_MARGIN``. Only close calls (about one token in some thousands) cost a pass
of their own. That is what makes an answer independent of its neighbours, of drafts and of the
prefix cache, instead of nearly independent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import torch

from eps_locked.domain.model import (
    Decoding,
    Prompt,
    SlotProbe,
    SlotReading,
    StopReason,
    TokenIds,
)
from eps_locked.engines.hf_forward import ModelHost, Tails, forward, new_tails
from eps_locked.engines.hf_logits import Outlook, ProbeValues, join_reading, look, probe_values
from eps_locked.engines.hf_rows import Bunch, first_spans, hidden_of_rows

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
    bunch: int
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
    """The rows of one batch and their cache: those of the next pass first, else by bunch."""

    def __init__(
        self,
        host: ModelHost,
        bunches: Sequence[Bunch],
        prompts: Sequence[Prompt],
        decoding: Decoding,
        probe: SlotProbe | None,
        stop_ids: frozenset[int],
        tie_margin: float,
        on_token: Callable[[int], None] | None,
    ) -> None:
        self.host = host
        self.on_token = on_token
        self.decoding = decoding
        self.probe = probe
        self.stop_ids = stop_ids
        self.tie_margin = tie_margin
        self.slot_ids = stop_ids if probe is None else stop_ids | set(probe.marker_ids)
        sampled = decoding.temperature > 0
        # Drafts are for greedy float32 decoding: the tie rule is what makes them exact.
        use_draft = not sampled and tie_margin > 0
        self.bunches = bunches
        of_row = [g for g, bunch in enumerate(bunches) for _ in range(bunch.n_rows)]
        self.rows = [
            _Row(
                index=i,
                bunch=g,
                prompt_ids=prompt.token_ids,
                pending=list(prompt.token_ids[bunches[g].skip :]),
                draft=prompt.draft[: decoding.max_new_tokens - 1] if use_draft else (),
                generator=torch.Generator().manual_seed(prompt.seed) if sampled else None,
            )
            for i, (prompt, g) in enumerate(zip(prompts, of_row, strict=True))
        ]
        longest = max(len(row.pending) for row in self.rows)
        # A last draft window may overhang an answer that stops early; it never passes the budget.
        capacity = longest + decoding.max_new_tokens + (len(probe.marker_ids) if probe else 0)
        self.tails = new_tails(host, [bunches[g].prefix for g in of_row], capacity)

    def run(self) -> None:
        """Decode until every row has stopped."""
        n_fed = [len(row.pending) + len(row.window()) for row in self.rows]
        for span in first_spans(self.bunches, n_fed):
            self._advance(self.rows[span], self.tails.part(span))
        while live := [row for row in self.rows if row.stop_reason is None]:
            rows = self._put_first([row for row in live if row.window()] or live)
            self._advance(rows, self.tails)

    def _advance(self, rows: Sequence[_Row], tails: Tails) -> None:
        """One pass over these rows, the first of ``tails``; each gains a token or stops."""
        windows = [row.window() for row in rows]
        feeds = [[*row.pending, *window] for row, window in zip(rows, windows, strict=True)]
        hidden_NC = forward(self.host, tails, feeds, [row.n_cached for row in rows])
        # A window of w draft tokens answers w + 1 positions: each draft token's and the next.
        last = _last_places(feeds, [len(window) + 1 for window in windows])
        outlooks = iter(self._look(rows, hidden_NC[last]))
        for row, window in zip(rows, windows, strict=True):
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
            if self.on_token is not None:
                self.on_token(choice)
            if len(row.answer) == self.decoding.max_new_tokens:
                row.stop_reason = "length"
            row.pending = [choice]
            if choice != guess or row.stop_reason is not None:
                return
            row.n_cached += 1

    def _settle(self, row: _Row, outlook: Outlook) -> int:
        """The greedy token by definition: this row's ids alone, from the start, batch 1."""
        ids = [*row.prompt_ids, *row.answer]
        hidden_NC = forward(self.host, new_tails(self.host, [None], len(ids)), [ids], [0])
        return look(self.host.lm_head, hidden_NC[-1:], None, (), None, 0.0, 1.0, 0.0)[0].choice

    def _look(self, rows: Sequence[_Row], hidden_MC: torch.Tensor) -> list[Outlook]:
        draws = None
        if self.decoding.temperature > 0:
            draws = [
                float(torch.rand((), generator=row.generator, dtype=torch.float64)) for row in rows
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

    def _put_first(self, chosen: Sequence[_Row]) -> Sequence[_Row]:
        """Bring these rows to the front of the cache, the others behind, bunches kept together.

        Returns them as they then lie.
        """
        if all(row is front for row, front in zip(chosen, self.rows, strict=False)):
            return chosen
        wanted = {row.index for row in chosen}
        order = sorted(
            range(len(self.rows)),
            key=lambda i: (self.rows[i].index not in wanted, self.rows[i].bunch),
        )
        self.tails.reorder(order)
        self.rows = [self.rows[i] for i in order]
        return self.rows[: len(chosen)]

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
        lacking = list(self._put_first(lacking))
        forced = list(probe.marker_ids[:-1])
        heads = [row.pending if row.stop_reason == "length" else [] for row in lacking]
        feeds = [[*head, *forced] for head in heads]
        starts = [row.n_cached for row in lacking]
        hidden_NC = forward(self.host, self.tails, feeds, starts)
        values = iter(probe_values(self.host.lm_head, hidden_NC, probe))
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
    bunches: Sequence[Bunch],
    prompts: Sequence[Prompt],
    decoding: Decoding,
    probe: SlotProbe | None,
    *,
    stop_ids: frozenset[int],
    tie_margin: float,
    on_token: Callable[[int], None] | None = None,
) -> list[Answer]:
    """Decode prompts, bunch by bunch in order; each goes on after its prefix by a token or more.

    ``on_token`` is told every token as it is chosen, without the row: it is for a batch of one.
    """
    batch = _Batch(host, bunches, prompts, decoding, probe, stop_ids, tie_margin, on_token)
    batch.run()
    if probe is not None:
        batch.read_slots(probe)
    return batch.answers()


def read_batch(
    host: ModelHost, bunches: Sequence[Bunch], contexts: Sequence[TokenIds], probe: SlotProbe
) -> list[SlotReading]:
    """Read the slot after each sequence; they lie as ``decode_batch``'s prompts do."""
    n_marker = len(probe.marker_ids)
    rows = [(*ids, *probe.marker_ids[:-1]) for ids in contexts]
    read_MC = torch.cat([hidden[-n_marker:] for hidden in hidden_of_rows(host, bunches, rows)])
    values = probe_values(host.lm_head, read_MC, probe)
    return [join_reading(values[b * n_marker : (b + 1) * n_marker]) for b in range(len(rows))]


def find(answer: Sequence[int], marker_ids: TokenIds) -> int | None:
    """Where the marker first appears in the answer, None if it does not."""
    n_marker = len(marker_ids)
    for start in range(len(answer) - n_marker + 1):
        if tuple(answer[start : start + n_marker]) == marker_ids:
            return start
    return None


def _last_places(feeds: Sequence[Sequence[int]], n_last: Sequence[int]) -> list[int]:
    """Where the last ``n_last[b]`` tokens of each feed b lie among all fed tokens."""
    ends = accumulate(len(feed) for feed in feeds)
    return [i for end, n in zip(ends, n_last, strict=True) for i in range(end - n, end)]
