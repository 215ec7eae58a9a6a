"""No fold fits on a cell that touches what it holds out, and every cell has its test."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.model_selection import LeaveOneGroupOut, LeavePGroupsOut

from eps_locked.errors import StatsInputError
from eps_locked.stats.folds import (
    Fold,
    inner_folds,
    leave_one_context_out,
    leave_two_contexts_out,
    stack_folds,
    touching,
)

KINDS = {"one": leave_one_context_out, "two": leave_two_contexts_out}


def table(n_train: int, n_eval: int) -> tuple[np.ndarray, np.ndarray]:
    """All cells of a table whose first contexts are trained in; the further ones are eval-only."""
    train, evaluated = np.divmod(np.arange(n_train * n_eval), n_eval)
    return train, evaluated


TABLES = {
    "square": (*table(16, 16), None),
    "rectangular": (*table(16, 29), None),
    "with aliases": (*table(6, 9), {0: 0, 1: 0, 2: 2, 3: 3, 4: 2, 5: 5, 6: 5, 7: 7, 8: 7}),
    "families": (*table(9, 9), {context: context // 3 for context in range(9)}),
    "several behaviours": (np.tile(table(5, 7)[0], 3), np.tile(table(5, 7)[1], 3), None),
}


@st.composite
def gappy_tables(draw):
    n = draw(st.integers(5, 8))
    cells = st.tuples(st.integers(0, n - 1), st.integers(0, n + 2))
    chosen = draw(st.lists(cells, min_size=12, max_size=40, unique=True))
    n_groups = draw(st.integers(4, n + 3))
    groups = {context: context % n_groups for context in range(n + 3)}
    train, evaluated = zip(*chosen, strict=True)
    return np.array(train), np.array(evaluated), groups


def folds_or_none(kind, train, evaluated, groups):
    try:
        return KINDS[kind](train, evaluated, groups)
    except StatsInputError:
        return None


def require_clean(folds: list[Fold], train, evaluated, groups) -> None:
    """Cell by cell, without the arithmetic of the module."""
    for fold in folds:
        for n, ends in enumerate(zip(train, evaluated, strict=True)):
            touched = {ends[0], ends[1]} if groups is None else {groups[end] for end in ends}
            touches = bool(touched & set(fold.held))
            assert not (fold.fit[n] and touches), (fold.held, ends)
            assert fold.fit[n] or touches, "a cell that touches nothing held out was wasted"
            assert touches or not fold.test[n]


# --- the rule -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("train", "evaluated", "groups"), TABLES.values(), ids=TABLES)
def test_no_fit_cell_touches_a_held_out_group(kind, train, evaluated, groups):
    require_clean(KINDS[kind](train, evaluated, groups), train, evaluated, groups)


@pytest.mark.parametrize("kind", KINDS)
@given(cells=gappy_tables())
@settings(max_examples=100, deadline=None)
def test_the_rule_holds_in_tables_with_gaps(kind, cells):
    folds = folds_or_none(kind, *cells)
    if folds is not None:
        require_clean(folds, *cells)


@pytest.mark.parametrize(("train", "evaluated", "groups"), TABLES.values(), ids=TABLES)
def test_leaving_two_out_tests_every_cell_once(train, evaluated, groups):
    folds = leave_two_contexts_out(train, evaluated, groups)
    assert (np.sum([fold.test for fold in folds], axis=0) == 1).all()
    for fold in folds:
        for n in np.flatnonzero(fold.test):
            ends = {int(train[n]), int(evaluated[n])}
            assert set(fold.held) == (ends if groups is None else {groups[end] for end in ends})


@given(cells=gappy_tables())
@settings(max_examples=100, deadline=None)
def test_leaving_two_out_tests_every_cell_once_in_tables_with_gaps(cells):
    folds = folds_or_none("two", *cells)
    if folds is not None:
        assert (np.sum([fold.test for fold in folds], axis=0) == 1).all()


@pytest.mark.parametrize(("train", "evaluated", "groups"), TABLES.values(), ids=TABLES)
def test_leaving_one_out_tests_a_cell_once_for_each_of_its_groups(train, evaluated, groups):
    folds = leave_one_context_out(train, evaluated, groups)
    times = np.sum([fold.test for fold in folds], axis=0)
    for n, (i, j) in enumerate(zip(train, evaluated, strict=True)):
        assert times[n] == (len({i, j}) if groups is None else len({groups[i], groups[j]}))


def test_both_directions_of_a_pair_stand_in_one_fold():
    train, evaluated = table(4, 4)
    for fold in leave_two_contexts_out(train, evaluated):
        cells = {(int(train[n]), int(evaluated[n])) for n in np.flatnonzero(fold.test)}
        a, b = fold.held if len(fold.held) == 2 else fold.held * 2
        assert cells == {(a, b), (b, a)}


def test_a_rectangular_table_has_folds_for_its_eval_only_contexts():
    train, evaluated = table(16, 29)
    ones, twos = leave_one_context_out(train, evaluated), leave_two_contexts_out(train, evaluated)
    assert len(ones) == 29
    # 16 diagonal cells, 120 pairs of train contexts, 16 x 13 pairs with one that is only evaluated.
    assert Counter(len(fold.held) for fold in twos) == {1: 16, 2: 120 + 208}
    eval_only = next(fold for fold in twos if fold.held == (3, 28))
    assert np.count_nonzero(eval_only.test) == 1
    assert np.count_nonzero(eval_only.fit) == 15 * 27


def test_aliases_leave_together():
    train, evaluated = table(6, 6)
    groups = {0: 0, 1: 0, 2: 2, 3: 3, 4: 4, 5: 5}
    for fold in leave_two_contexts_out(train, evaluated, groups):
        if 0 in fold.held:
            assert not fold.fit[(train <= 1) | (evaluated <= 1)].any()
    alone = next(f for f in leave_two_contexts_out(train, evaluated, groups) if f.held == (0,))
    tested = {(int(train[n]), int(evaluated[n])) for n in np.flatnonzero(alone.test)}
    assert tested == {(0, 0), (0, 1), (1, 0), (1, 1)}


# --- against scikit-learn -------------------------------------------------------------------------


@pytest.mark.parametrize("groups", [None, {c: c // 2 for c in range(9)}], ids=["alone", "pairs"])
def test_pairs_agree_with_leave_p_groups_out_over_contexts(groups):
    train, evaluated = table(6, 9)
    contexts = np.arange(9)
    labels = contexts if groups is None else np.array([groups[c] for c in contexts])
    ours = {fold.held: fold for fold in leave_two_contexts_out(train, evaluated, groups)}
    n_compared = 0
    for kept, held in LeavePGroupsOut(n_groups=2).split(contexts, groups=labels):
        fit = np.isin(train, kept) & np.isin(evaluated, kept)
        between = (
            np.isin(train, held) & np.isin(evaluated, held) & (labels[train] != labels[evaluated])
        )
        pair = tuple(int(label) for label in np.unique(labels[held]))
        assert (pair in ours) == between.any()
        if between.any():
            n_compared += 1
            assert np.array_equal(ours[pair].fit, fit)
            assert np.array_equal(ours[pair].test, between)
    assert n_compared == sum(len(held) == 2 for held in ours)


def test_cells_within_groups_agree_with_leave_one_group_out():
    # Where no cell lies between two groups, holding out a context is holding out a group of rows.
    train = np.repeat(np.arange(8), 2)
    evaluated = train ^ np.tile([0, 1], 8)
    groups = {context: context // 2 for context in range(8)}
    labels = train // 2
    theirs = LeaveOneGroupOut().split(train, groups=labels)
    for fold, (fit, test) in zip(
        leave_one_context_out(train, evaluated, groups), theirs, strict=True
    ):
        assert np.array_equal(np.flatnonzero(fold.fit), fit)
        assert np.array_equal(np.flatnonzero(fold.test), test)


# --- laws -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@given(order=st.permutations(range(9)))
@settings(max_examples=30, deadline=None)
def test_renaming_contexts_renames_folds_and_changes_nothing_else(kind, order):
    train, evaluated = table(5, 9)
    renamed = np.array(order) * 10 + 3
    before = {
        frozenset(int(renamed[context]) for context in fold.held): fold
        for fold in KINDS[kind](train, evaluated)
    }
    after = KINDS[kind](renamed[train], renamed[evaluated])
    assert {frozenset(fold.held) for fold in after} == set(before)
    for fold in after:
        twin = before[frozenset(fold.held)]
        assert np.array_equal(fold.fit, twin.fit)
        assert np.array_equal(fold.test, twin.test)


@pytest.mark.parametrize("kind", KINDS)
def test_names_of_groups_do_not_matter(kind):
    train, evaluated = table(6, 6)
    ascending = KINDS[kind](train, evaluated, {context: context // 2 for context in range(6)})
    descending = KINDS[kind](train, evaluated, {context: 9 - context // 2 for context in range(6)})
    fit_of = {fold.test.tobytes(): fold.fit for fold in ascending}
    assert len(fit_of) == len(ascending) == len(descending)
    for fold in descending:
        assert np.array_equal(fit_of[fold.test.tobytes()], fold.fit)


@pytest.mark.parametrize("kind", KINDS)
def test_folds_come_in_one_order_whatever_the_order_of_cells(kind):
    train, evaluated = table(5, 7)
    shuffled = np.random.default_rng(5).permutation(len(train))
    folds = KINDS[kind](train, evaluated)
    again = KINDS[kind](train[shuffled], evaluated[shuffled])
    assert [fold.held for fold in folds] == sorted(fold.held for fold in folds)
    assert [fold.held for fold in folds] == [fold.held for fold in again]
    for fold, other in zip(folds, again, strict=True):
        assert np.array_equal(fold.fit[shuffled], other.fit)


# --- helpers of the fits --------------------------------------------------------------------------


def test_stacked_folds_list_tests_by_fold_and_cell():
    train, evaluated = table(4, 5)
    folds = leave_one_context_out(train, evaluated)
    matrix = stack_folds(folds)
    expected = [(f, n) for f, fold in enumerate(folds) for n in np.flatnonzero(fold.test)]
    assert list(zip(matrix.fold_T, matrix.cell_T, strict=True)) == expected
    assert np.array_equal(matrix.fit_FN > 0, [fold.fit for fold in folds])


def test_touching_names_the_groups_of_both_ends():
    groups, touch = touching([0, 1], [1, 2], {0: 7, 1: 5, 2: 7})
    assert groups == (5, 7)
    assert touch.tolist() == [[True, True], [True, True]]
    groups, touch = touching([0, 1], [1, 2])
    assert groups == (0, 1, 2)
    assert touch.tolist() == [[True, False], [True, True], [False, True]]


def test_inner_folds_part_the_fit_cells_of_every_fold_they_can_part():
    train, evaluated = table(4, 6)
    matrix = stack_folds(leave_two_contexts_out(train, evaluated))
    groups, touch = touching(train, evaluated)
    found = inner_folds(matrix.fit_FN, touch)
    assert len(found) == len(groups)
    for inner, touches in zip(found, touch, strict=True):
        outer = matrix.fit_FN[inner.usable_F] > 0
        assert np.array_equal(inner.fit_UN > 0, outer & ~touches)
        assert np.array_equal(inner.test_UN > 0, outer & touches)
        assert inner.fit_UN.any(axis=1).all()
        assert inner.test_UN.any(axis=1).all()
        # A fold that holds the block out itself has nothing of it to test.
        assert not (matrix.fit_FN[~inner.usable_F] * touches).any()


# --- refusals -------------------------------------------------------------------------------------

BAD = {
    "no cells": ([], [], None, "1 context ids"),
    "unequal": ([0, 1, 2], [0, 1], None, "expected 3 context ids, found 2"),
    "not integers": ([0.0, 1.0, 2.0], [0, 1, 2], None, "a list of integers"),
    "names": (["a", "b"], [0, 1], None, "a list of integers"),
    "a context without a group": ([0, 1, 2], [1, 2, 0], {0: 0, 1: 1}, r"found \[2\]"),
    "one train context": ([0, 0, 0], [1, 2, 3], None, "too few contexts"),
    "two contexts": ([0, 1], [1, 0], None, "too few contexts"),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("train", "evaluated", "groups", "message"), BAD.values(), ids=BAD)
def test_tables_without_folds_are_refused(kind, train, evaluated, groups, message):
    with pytest.raises(StatsInputError, match=message):
        KINDS[kind](train, evaluated, groups)


def test_every_pair_needs_a_third_party():
    train, evaluated = zip(*combinations(range(3), 2), strict=True)
    with pytest.raises(StatsInputError, match=r"found none in 3 of 3 folds"):
        leave_two_contexts_out(train, evaluated)


@pytest.mark.parametrize(
    ("touch", "message"),
    [
        (np.ones((1, 5), dtype=bool), "too few contexts to choose"),
        (np.zeros((0, 5), dtype=bool), "found none in 2 of 2"),
        (np.ones((3, 4), dtype=bool), r"blocks x 5 cells, found \(3, 4\)"),
        (np.ones(5, dtype=bool), "blocks x 5 cells"),
    ],
    ids=["everything touched", "no block", "other cells", "no table"],
)
def test_without_an_inner_fold_nothing_can_be_chosen(touch, message):
    with pytest.raises(StatsInputError, match=message):
        inner_folds(np.ones((2, 5)), touch)


def test_no_folds_cannot_be_stacked():
    with pytest.raises(StatsInputError, match="at least 1 fold"):
        stack_folds([])
