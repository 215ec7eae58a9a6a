"""Which rows of a call share a prefix, which go into one batch, and which into one first pass.

A study asks many contexts the same few questions. Decoding is bound by reading the weights, so the
rows of many contexts should step together; but each context's prefix should be computed and kept
once. This file decides that from the rows alone, so equal calls are cut up equally. Nothing here
touches a tensor.

Costs are counted in tokens fed, the one measure that needs no clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from eps_locked.domain.model import TokenIds

__all__ = ["Group", "batches", "first_passes", "groups_of"]

# Below this a shared prefix saves less than the second attention part costs.
MIN_PREFIX = 8
# What one more prefix, or one more first pass, costs besides its tokens: a pass reads all weights
# whatever it feeds, which takes the time of some 60 tokens on a CPU (135M parameters).
PASS_COST = 64
# Scores whose arithmetic takes the time of one token: 6 x hidden size by operations (576 here),
# and about as much again for their softmax.
SCORES_PER_TOKEN = 2048


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """Rows (indices into the call) that share their first ``n_shared`` tokens; 0: none worth it.

    ``longest_tail`` is the length of the longest row of the whole group after those tokens.
    """

    rows: tuple[int, ...]
    n_shared: int
    longest_tail: int


def groups_of(rows: Sequence[TokenIds], own_from: Sequence[int] | None = None) -> list[Group]:
    """Divide the rows so that the fewest tokens are fed, a group counting ``PASS_COST`` besides.

    The order of the rows does not matter to who shares: sorted, rows with a common beginning lie
    side by side, and the best division of a sorted list into runs is found by dynamic programming.
    A shared prefix leaves every row at least one token of its own, and, with ``own_from``, all its
    tokens from ``own_from[i]`` on. Groups come in the order of
    their longest tails, so that rows of like length meet in a batch; rows keep the caller's order.
    """
    order = sorted(range(len(rows)), key=lambda i: rows[i])
    lengths = [len(rows[i]) for i in order]
    free = [n - 1 for n in lengths]
    if own_from is not None:
        free = [min(n, own_from[i]) for n, i in zip(free, order, strict=True)]
    common = [0, *(_common(rows[a], rows[b]) for a, b in pairwise(order))]
    # best[k] is (cost, start of the last run) for the first k rows of the order.
    best: list[tuple[int, int]] = [(0, 0)]
    for end in range(1, len(order) + 1):
        found: tuple[int, int] | None = None
        shared, total = lengths[end - 1], 0
        for start in range(end - 1, -1, -1):
            shared = min(shared, free[start])
            total += lengths[start]
            saved = _n_shared(shared, end - start) * (end - start - 1)
            cost = best[start][0] + total - saved + PASS_COST
            if found is None or cost <= found[0]:
                found = (cost, start)
            shared = min(shared, common[start])
        assert found is not None  # for the type checker: the inner loop runs at least once
        best.append(found)
    groups, end = [], len(order)
    while end:
        start = best[end][1]
        shared = min([*common[start + 1 : end], *free[start:end]])
        n_shared = _n_shared(shared, end - start)
        groups.append(
            Group(
                rows=tuple(sorted(order[start:end])),
                n_shared=n_shared,
                longest_tail=max(lengths[start:end]) - n_shared,
            )
        )
        end = start
    return sorted(groups, key=lambda group: (group.longest_tail, group.rows))


def batches(groups: Sequence[Group], n_extra: int, max_tokens: int) -> list[list[Group]]:
    """Pack groups, in order, into batches that hold at most ``max_tokens`` in two ways.

    Rows x (longest tail + ``n_extra``) is the memory of the tails and is bounded; so is the sum of
    the batch's prefixes, for a batch of several groups. A group with more rows than fit is cut
    into pieces of the most that fit (at least one row).
    """
    found: list[list[Group]] = []
    n_rows = n_prefix = 0
    for group in groups:
        width = group.longest_tail + n_extra
        most = max(1, max_tokens // width)
        for start in range(0, len(group.rows), most):
            piece = Group(
                rows=group.rows[start : start + most],
                n_shared=group.n_shared,
                longest_tail=group.longest_tail,
            )
            n_rows += len(piece.rows)
            n_prefix += piece.n_shared
            # Groups come by longest tail, so this group's tail is the longest of the batch.
            if found and n_rows * width <= max_tokens and n_prefix <= max_tokens:
                found[-1].append(piece)
            else:
                found.append([piece])
                n_rows, n_prefix = len(piece.rows), piece.n_shared
    return found


def first_passes(lengths: Sequence[Sequence[int]]) -> list[slice]:
    """Runs of a batch's rows to feed in one pass: its padding must cost less than another pass.

    Only attention is padded, to the longest row, and so costs rows x longest ** 2. ``lengths[g]``
    are the tokens to feed to each row of group g; the slices are of the rows of all groups in
    order, and no group is divided.
    """
    found: list[slice] = []
    n_rows = longest = start = 0
    for group in lengths:
        alone = _attention_cost(len(group), max(group))
        joined = _attention_cost(n_rows + len(group), max(longest, *group))
        if found and joined <= _attention_cost(n_rows, longest) + alone + PASS_COST:
            found[-1] = slice(found[-1].start, start + len(group))
            n_rows, longest = n_rows + len(group), max(longest, *group)
        else:
            found.append(slice(start, start + len(group)))
            n_rows, longest = len(group), max(group)
        start += len(group)
    return found


def _attention_cost(n_rows: int, longest: int) -> float:
    return n_rows * longest**2 / SCORES_PER_TOKEN


def _n_shared(common: int, n_rows: int) -> int:
    """How many of ``common`` leading tokens are worth sharing among ``n_rows``: all or none."""
    return common if n_rows > 1 and common >= MIN_PREFIX else 0


def _common(left: TokenIds, right: TokenIds) -> int:
    for i, (a, b) in enumerate(zip(left, right, strict=False)):
        if a != b:
            return i
    return min(len(left), len(right))
