"""Who shares a prefix, a batch and a first pass: decided from the rows alone."""

from __future__ import annotations

import itertools
import random

import pytest

from eps_locked.engines.hf_groups import (
    MIN_PREFIX,
    PASS_COST,
    Group,
    batches,
    first_passes,
    groups_of,
)

LONG = tuple(range(1000, 1000 + 2 * PASS_COST))


def context(name: int, n_tokens: int = 40) -> tuple[int, ...]:
    return (1, 2, *(name * 100 + i for i in range(n_tokens - 2)))


def cost(groups: list[Group], rows: list[tuple[int, ...]]) -> int:
    fed = sum(len(rows[i]) - g.n_shared for g in groups for i in g.rows)
    return fed + sum(g.n_shared + PASS_COST for g in groups)


def shared(rows: list[tuple[int, ...]], members: tuple[int, ...]) -> int:
    """What these rows may share, by the plain definition."""
    limit = min(len(rows[i]) for i in members) - 1
    n = next(
        (k for k in range(limit) if len({rows[i][k] for i in members}) > 1),
        limit,
    )
    return n if n >= MIN_PREFIX and len(members) > 1 else 0


def test_rows_of_several_contexts_fall_into_one_group_each_in_any_order() -> None:
    rows = [(*context(name), 50 + q, 60 + q) for q in range(6) for name in range(3)]
    groups = groups_of(rows)
    assert [group.rows for group in groups] == [tuple(range(name, 18, 3)) for name in range(3)]
    assert {group.n_shared for group in groups} == {40}
    assert {group.longest_tail for group in groups} == {2}


def test_rows_of_one_context_are_one_group_in_the_callers_order() -> None:
    rows = [(*context(0), *range(q, -1, -1)) for q in (3, 0, 2, 1)]
    assert groups_of(rows) == [Group(rows=(0, 1, 2, 3), n_shared=40, longest_tail=4)]


def test_rows_with_nothing_in_common_share_nothing() -> None:
    assert groups_of([(i, i, i) for i in range(4)]) == [
        Group(rows=(0, 1, 2, 3), n_shared=0, longest_tail=3)
    ]
    assert groups_of([LONG]) == [Group(rows=(0,), n_shared=0, longest_tail=len(LONG))]


def test_a_shared_beginning_too_short_to_pay_is_left_alone() -> None:
    def rows(n: int) -> list[tuple[int, ...]]:
        return [(*LONG[:n], q, q) for q in range(4)]

    assert groups_of(rows(MIN_PREFIX))[0].n_shared == MIN_PREFIX
    assert groups_of(rows(MIN_PREFIX - 1))[0].n_shared == 0


def test_equal_rows_keep_a_token_each() -> None:
    assert groups_of([LONG, LONG, LONG]) == [
        Group(rows=(0, 1, 2), n_shared=len(LONG) - 1, longest_tail=1)
    ]
    assert groups_of([LONG, LONG[:-5]])[0].n_shared == len(LONG) - 6


def test_no_row_shares_what_is_its_own() -> None:
    rows = [(*LONG, 1), (*LONG, 2), (*LONG, 3)]
    assert groups_of(rows, own_from=[90, 100, 50])[0].n_shared == 50
    assert groups_of(rows, own_from=[0, 0, 0])[0].n_shared == 0


@pytest.mark.parametrize("seed", range(30))
def test_no_division_into_runs_of_the_sorted_rows_feeds_less(seed: int) -> None:
    rng = random.Random(seed)
    heads = [tuple(rng.randrange(3) for _ in range(rng.choice((0, 9, 30, 90)))) for _ in range(3)]
    rows = [
        (*heads[rng.randrange(3)], *(rng.randrange(3) for _ in range(rng.randrange(1, 40))))
        for _ in range(8)
    ]
    groups = groups_of(rows)
    assert sorted(i for group in groups for i in group.rows) == list(range(8))
    for group in groups:
        assert group.n_shared == shared(rows, group.rows)
        assert group.longest_tail == max(len(rows[i]) for i in group.rows) - group.n_shared
    order = sorted(range(8), key=lambda i: rows[i])
    least = min(
        cost(
            [
                Group(rows=run, n_shared=shared(rows, run), longest_tail=0)
                for a, b in itertools.pairwise((0, *cuts, 8))
                for run in [tuple(order[a:b])]
            ],
            rows,
        )
        for n in range(8)
        for cuts in itertools.combinations(range(1, 8), n)
    )
    assert cost(groups, rows) == least


def group(n_rows: int, n_shared: int, longest_tail: int, first: int = 0) -> Group:
    return Group(
        rows=tuple(range(first, first + n_rows)), n_shared=n_shared, longest_tail=longest_tail
    )


def test_a_batch_holds_groups_up_to_its_tail_tokens() -> None:
    groups = [group(6, 30, 10, first) for first in (0, 6, 12)]
    assert batches(groups, 10, 360) == [groups]
    assert batches(groups, 10, 359) == [groups[:2], groups[2:]]


def test_a_batch_holds_prefixes_up_to_the_same_bound() -> None:
    groups = [group(2, 400, 5, first) for first in (0, 2, 4)]
    assert batches(groups, 5, 1200) == [groups]
    assert batches(groups, 5, 1199) == [groups[:2], groups[2:]]
    assert batches(groups[:1], 5, 100) == [groups[:1]]


def test_a_group_of_too_many_rows_is_cut_in_order() -> None:
    (whole,) = [group(7, 20, 6)]
    cut = batches([whole], 4, 30)
    assert [[piece.rows for piece in batch] for batch in cut] == [
        [(0, 1, 2)],
        [(3, 4, 5)],
        [(6,)],
    ]
    assert {piece.n_shared for batch in cut for piece in batch} == {20}
    assert [len(batch[0].rows) for batch in batches([whole], 4, 1)] == [1] * 7


def test_rows_of_like_length_start_together_and_long_ones_apart() -> None:
    assert first_passes([[9, 12], [10, 11], [14]]) == [slice(0, 5)]
    assert first_passes([[12] * 30, [15] * 6, [400] * 3]) == [slice(0, 36), slice(36, 39)]
    assert first_passes([[400, 3, 3, 3, 3, 3, 3, 3]]) == [slice(0, 8)]
