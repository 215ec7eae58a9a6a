"""Folds that hold out contexts, not cells: whatever touches a held-out context leaves the fit.

A cell i -> j belongs to two contexts, the one trained in and the one evaluated in. A fold that
holds out single cells leaves the row and the column of every test cell in the fit, and a predictor
that only re-tells which sources leak broadly then looks like a discovery. So a fold here names one
or two held-out groups of contexts, and its fit has no cell with a held-out context on either side.

Groups are contexts that stand for one another: aliases (two names of one prompt) and near-
duplicates leave together. A family map in place of the group map gives leave-family-out.

Shape letters: N cells, G groups, B blocks of groups, F folds, T tests (pairs of a fold and a cell
it tests).
Context ids and group ids are integers; one id space serves both sides of a cell. The same pair of
contexts may stand in the list several times, once per behaviour: it then leaves in all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from eps_locked.errors import StatsInputError
from eps_locked.stats.checks import BoolArray, FloatArray, IntArray

__all__ = [
    "Fold",
    "FoldMatrix",
    "InnerFold",
    "inner_folds",
    "leave_one_context_out",
    "leave_two_contexts_out",
    "require_cells",
    "stack_folds",
    "touching",
]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Fold:
    """``held``: the group ids held out. ``fit``, ``test``: masks of the N cells, never both set."""

    held: tuple[int, ...]
    fit: BoolArray
    test: BoolArray


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class FoldMatrix:
    """Folds side by side, as the vectorised fits want them.

    fit_FN: 1.0 where fold f fits on cell n, else 0.0. fold_T, cell_T: the tests, by fold and then
    by cell; a cell tested in two folds stands twice.
    """

    fit_FN: FloatArray
    fold_T: IntArray
    cell_T: IntArray


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class InnerFold:
    """One block of contexts left out within every fold that it leaves something to fit and to test.

    usable_F: which of the F folds those U are. fit_UN, test_UN: 1.0 where a cell is fitted, tested.
    """

    usable_F: BoolArray
    fit_UN: FloatArray
    test_UN: FloatArray


def leave_one_context_out(
    train_N: npt.ArrayLike, eval_N: npt.ArrayLike, group_of: Mapping[int, int] | None = None
) -> list[Fold]:
    """One fold per group: tested are all cells that touch it, as source or target; fit the rest.

    A cell between two groups is therefore tested twice, once for either end, and a cell within a
    group once. group_of: context id -> group id, None for every context on its own. Folds come in
    ascending order of the group id.

    Raises StatsInputError for ids that are not integers, unequal lengths, no cell, a
    context without a group, and a fold that would have nothing to fit on.
    """
    groups, touch_GN = touching(train_N, eval_N, group_of)
    folds = [
        Fold(held=(group,), fit=~touches, test=touches.copy())
        for group, touches in zip(groups, touch_GN, strict=True)
    ]
    return _with_fit_cells(folds)


def leave_two_contexts_out(
    train_N: npt.ArrayLike, eval_N: npt.ArrayLike, group_of: Mapping[int, int] | None = None
) -> list[Fold]:
    """One fold per pair of groups with a cell between them: both directions are tested.

    Fit are the cells that touch neither group, so a prediction of i -> j has seen nothing of i and
    nothing of j. Cells within one group (the diagonal, an alias pair) are tested in a fold that
    holds out that group alone. Every entry of the list is tested exactly once. Folds come in
    ascending order of ``held``, a group alone before its pairs.

    Raises as ``leave_one_context_out``; with fewer than three groups no pair leaves a fit.
    """
    groups, touch_GN = touching(train_N, eval_N, group_of)
    folds = []
    held: tuple[int, ...]
    for a, group_a in enumerate(groups):
        for b in range(a, len(groups)):
            if b == a:
                others = np.delete(touch_GN, a, axis=0)
                test, held = touch_GN[a] & ~others.any(axis=0), (group_a,)
            else:
                test, held = touch_GN[a] & touch_GN[b], (group_a, groups[b])
            if test.any():
                folds.append(Fold(held=held, fit=~(touch_GN[a] | touch_GN[b]), test=test))
    return _with_fit_cells(folds)


def touching(
    train_N: npt.ArrayLike, eval_N: npt.ArrayLike, group_of: Mapping[int, int] | None = None
) -> tuple[tuple[int, ...], BoolArray]:
    """The group ids in ascending order, and touch_GN: whether group g is at an end of cell n.

    The same table serves ``inner_folds``. Raises as ``leave_one_context_out``.
    """
    train, evaluated = _context_ids(train_N, "train_N"), _context_ids(eval_N, "eval_N")
    if len(train) != len(evaluated) or len(train) == 0:
        raise StatsInputError(
            "eval_N", expected=f"{max(len(train), 1)} context ids", found=len(evaluated)
        )
    train_group, eval_group = _groups(train, group_of), _groups(evaluated, group_of)
    groups = np.unique(np.concatenate((train_group, eval_group)))
    touch_GN = (train_group == groups[:, None]) | (eval_group == groups[:, None])
    return tuple(int(group) for group in groups), touch_GN


def stack_folds(folds: Sequence[Fold]) -> FoldMatrix:
    """Raises StatsInputError without folds; the folds must be of one list of cells."""
    if not folds:
        raise StatsInputError("folds", expected="at least 1 fold", found=0)
    fold_T, cell_T = np.nonzero(np.stack([fold.test for fold in folds]))
    return FoldMatrix(
        fit_FN=np.stack([fold.fit for fold in folds]).astype(np.float64),
        fold_T=fold_T.astype(np.int64),
        cell_T=cell_T.astype(np.int64),
    )


def inner_folds(fit_FN: FloatArray, touch_BN: BoolArray) -> list[InnerFold]:
    """The folds in which a choice is made within each fold's fit cells, one per block of contexts.

    fit_FN: as in ``FoldMatrix``. touch_BN: which cells touch a context of block b; from
    ``touching``, or its rows put together. The inner fold of block b tests what touches b and fits
    on the rest, so no inner fit sees a cell of a held-out context. Raises StatsInputError for
    another number of cells, and where a fold has no usable inner fold.
    """
    n_cells = fit_FN.shape[1]
    if touch_BN.ndim != 2 or touch_BN.shape[1] != n_cells:
        raise StatsInputError("touch", expected=f"blocks x {n_cells} cells", found=touch_BN.shape)
    found = []
    n_tests = np.zeros(len(fit_FN))
    for touches in touch_BN.astype(np.float64):
        fit, test = fit_FN * (1.0 - touches), fit_FN * touches
        usable = np.asarray(fit.any(axis=1) & test.any(axis=1))
        if usable.any():
            found.append(InnerFold(usable_F=usable, fit_UN=fit[usable], test_UN=test[usable]))
        n_tests += np.where(usable, test.sum(axis=1), 0.0)
    if (n_tests == 0).any():
        raise StatsInputError(
            "touch",
            problem="too few contexts to choose within the fit",
            expected="an inner fold with something to fit on and to test, in every fold",
            found=f"none in {int((n_tests == 0).sum())} of {len(n_tests)}",
        )
    return found


def require_cells(matrix: FoldMatrix, n_cells: int) -> None:
    """Raises StatsInputError where the folds are of another number of cells."""
    if matrix.fit_FN.shape[1] != n_cells:
        raise StatsInputError("matrix", expected=f"{n_cells} cells", found=matrix.fit_FN.shape[1])


def _with_fit_cells(folds: list[Fold]) -> list[Fold]:
    empty = [fold.held for fold in folds if not fold.fit.any()]
    if empty:
        raise StatsInputError(
            "folds",
            problem="too few contexts to hold any out",
            expected="cells that touch no held-out context, in every fold",
            found=f"none in {len(empty)} of {len(folds)} folds",
            details=tuple(f"held out: {held}" for held in empty[:3]),
        )
    return folds


def _groups(contexts: IntArray, group_of: Mapping[int, int] | None) -> IntArray:
    if group_of is None:
        return contexts
    missing = sorted({int(context) for context in contexts} - set(group_of))
    if missing:
        raise StatsInputError("group_of", expected="a group for every context", found=missing[:5])
    return _context_ids([group_of[int(context)] for context in contexts], "group_of")


def _context_ids(ids: npt.ArrayLike, name: str) -> IntArray:
    array = np.asarray(ids)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise StatsInputError(
            name, expected="a list of integers", found=f"{array.dtype} in {array.ndim} dimensions"
        )
    return array.astype(np.int64)
