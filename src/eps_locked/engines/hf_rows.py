"""Rows of one batch that are fed whole, behind prefixes already computed: no cache is kept.

Shape letters: N fed tokens of a pass, T a row's tokens after its prefix, C hidden size.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch

from eps_locked.domain.model import TokenIds
from eps_locked.engines.hf_forward import ModelHost, Prefix, forward, new_tails
from eps_locked.engines.hf_groups import first_passes

__all__ = ["Bunch", "first_spans", "hidden_of_rows"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Bunch:
    """``n_rows`` neighbouring rows of a batch that begin with one prefix (None: with none)."""

    prefix: Prefix | None
    n_rows: int

    @property
    def skip(self) -> int:
        return 0 if self.prefix is None else self.prefix.length


def first_spans(bunches: Sequence[Bunch], n_fed: Sequence[int]) -> list[slice]:
    """Rows to feed at once when nothing is cached; ``n_fed`` tokens go to each row."""
    stops = list(accumulate(bunch.n_rows for bunch in bunches))
    starts = [0, *stops[:-1]]
    return first_passes([n_fed[a:b] for a, b in zip(starts, stops, strict=True)])


def hidden_of_rows(
    host: ModelHost,
    bunches: Sequence[Bunch],
    rows: Sequence[TokenIds],
    layer: int | None = None,
) -> Iterator[torch.Tensor]:
    """hidden_TC of each row in order, over its tokens after the prefix (views of a whole pass).

    ``layer`` as in ``forward``. A pass is made when its first row is asked for.
    """
    of_row = [bunch for bunch in bunches for _ in range(bunch.n_rows)]
    feeds = [ids[bunch.skip :] for ids, bunch in zip(rows, of_row, strict=True)]
    for span in first_spans(bunches, [len(feed) for feed in feeds]):
        lengths = [len(feed) for feed in feeds[span]]
        tails = new_tails(host, [bunch.prefix for bunch in of_row[span]], max(lengths))
        hidden_NC = forward(host, tails, feeds[span], [0] * len(lengths), layer)
        yield from hidden_NC.split(lengths)
