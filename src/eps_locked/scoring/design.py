"""The scored cells of one behaviour, or of several pooled, as arrays, with folds and relabellings.

Shape letters: N scored cells, W cells of the whole table (aliases left out), M relabellings,
D mirror pairs, F folds, T tests, K contexts.

A pooled design is the concatenation of its behaviours' cells, g z-normalised within each. A context
that several behaviours share keeps one number, so that it leaves folds, is drawn and is relabelled
in all of them at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from eps_locked.errors import StatsInputError
from eps_locked.scoring.predictor import Key
from eps_locked.scoring.settings import ScoreSettings
from eps_locked.scoring.tensor import BehaviourTable, Cell
from eps_locked.stats.bootstrap import generator_from_digest
from eps_locked.stats.decomposition import transpose_index
from eps_locked.stats.folds import (
    FoldMatrix,
    leave_one_context_out,
    leave_two_contexts_out,
    stack_folds,
    touching,
)
from eps_locked.stats.permutation import context_permutations, permuted_predictor

__all__ = ["Design", "Folded", "MirrorPairs", "Piece", "build_design", "build_pooled"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Piece:
    """One behaviour's whole table within a design. ``keep_W`` marks the scored cells.

    shift, scale: g and a predictor enter as (value - shift) / scale; 0 and 1 outside pooling.
    """

    table: BehaviourTable
    cells: tuple[Cell, ...]
    train_W: IntArray
    eval_W: IntArray
    keep_W: BoolArray
    shift: float
    scale: float
    pooled: bool

    @property
    def scored(self) -> list[Cell]:
        return [cell for cell, keep in zip(self.cells, self.keep_W, strict=True) if keep]

    def values(self, values: Mapping[Key, float]) -> FloatArray:
        """A predictor over the whole table, z-normalised on the scored cells when pooled."""
        name = self.table.behaviour
        x_W = np.array([values[name, cell.train, cell.eval] for cell in self.cells])
        if not self.pooled:
            return x_W
        scored = x_W[self.keep_W]
        spread = float(scored.std())
        constant = np.ptp(scored) <= 1e-12 * np.abs(scored).max(initial=0.0)
        return np.zeros_like(x_W) if constant else (x_W - scored.mean()) / spread


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Folded:
    """Folds of a design, or the reason why there are none."""

    matrix: FoldMatrix | None
    reason: str | None


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class MirrorPairs:
    """Cells i -> j (``first_D``) and j -> i (``second_D``), as positions among the N cells."""

    first_D: IntArray
    second_D: IntArray

    def __len__(self) -> int:
        return len(self.first_D)


@dataclass(frozen=True, kw_only=True, eq=False)
class Design:
    """``name`` labels the random streams. group_of: context number -> group number."""

    name: str
    settings: ScoreSettings
    pieces: tuple[Piece, ...]
    contexts: tuple[str, ...]
    group_of: Mapping[int, int]
    y_N: FloatArray
    train_N: IntArray
    eval_N: IntArray
    piece_N: IntArray

    @property
    def n(self) -> int:
        return len(self.y_N)

    @cached_property
    def group_train_N(self) -> IntArray:
        return np.array([self.group_of[int(i)] for i in self.train_N], dtype=np.int64)

    @cached_property
    def group_eval_N(self) -> IntArray:
        return np.array([self.group_of[int(j)] for j in self.eval_N], dtype=np.int64)

    @cached_property
    def reason(self) -> str | None:
        """Why nothing can be scored here; None when something can."""
        least = self.settings.minimum_cells
        if self.n < least:
            return f"{self.n} scored cells, at least {least} needed"
        if np.ptp(self.y_N) == 0:
            return "all scored cells have the same value"
        return None

    @cached_property
    def two(self) -> Folded:
        return self._folds(leave_two_contexts_out)

    @cached_property
    def one(self) -> Folded:
        return self._folds(leave_one_context_out)

    def _folds(self, make: object) -> Folded:
        if self.reason is not None:
            return Folded(matrix=None, reason=self.reason)
        try:
            folds = make(self.train_N, self.eval_N, self.group_of)  # type: ignore[operator]
            return Folded(matrix=stack_folds(folds), reason=None)
        except StatsInputError as error:
            return Folded(matrix=None, reason=f"{error.problem or error.thing}: {error.found}")

    @cached_property
    def inner_touch_BN(self) -> BoolArray:
        """Blocks of contexts for choices inside a fold: which cells touch a context of block b.

        Groups are dealt to the blocks in turn, in the order of their numbers.
        """
        _, touch_GN = touching(self.train_N, self.eval_N, self.group_of)
        n_blocks = min(self.settings.n_inner_blocks, len(touch_GN))
        return np.stack([touch_GN[block::n_blocks].any(axis=0) for block in range(n_blocks)])

    @cached_property
    def pairs(self) -> MirrorPairs:
        # One number per context and behaviour: a cell's mirror is of its own behaviour.
        train, evaluated = (
            side * len(self.pieces) + self.piece_N for side in (self.train_N, self.eval_N)
        )
        mirror = transpose_index(train, evaluated)
        first = np.flatnonzero((self.train_N < self.eval_N) & (mirror >= 0))
        return MirrorPairs(first_D=first, second_D=mirror[first])

    @cached_property
    def within_N(self) -> BoolArray:
        """Whether both contexts of a cell are of one family; unknown families are nobody's kin."""
        codes = self.family_codes
        return np.asarray(codes[self.train_N] == codes[self.eval_N])

    @cached_property
    def family_codes(self) -> IntArray:
        """A number per context, equal within a family."""
        known: dict[str, int] = {}
        codes = []
        for number, name in enumerate(self.contexts):
            family = next(
                (
                    piece.table.families[name]
                    for piece in self.pieces
                    if piece.table.families.get(name) is not None
                ),
                None,
            )
            codes.append(-1 - number if family is None else known.setdefault(family, len(known)))
        return np.array(codes, dtype=np.int64)

    @property
    def knows_families(self) -> bool:
        return bool((self.family_codes >= 0).any())

    @cached_property
    def relabelled_MK(self) -> IntArray:
        """Which context stands in for each, per relabelling: one stream for all predictors.

        Contexts change places with those that have the same roles in every behaviour.
        """
        rng = self.rng("relabellings")
        roles: dict[tuple[bool, ...], list[int]] = {}
        for number in range(len(self.contexts)):
            found = tuple(
                bool(np.any(side == number))
                for piece in self.pieces
                for side in (piece.train_W, piece.eval_W)
            )
            roles.setdefault(found, []).append(number)
        n = self.settings.n_permutations
        result = np.tile(np.arange(len(self.contexts), dtype=np.int64), (n, 1))
        for numbers in roles.values():
            kind = np.array(numbers, dtype=np.int64)
            result[:, kind] = context_permutations(kind, kind, rng=rng, n_permutations=n)
        return result

    def predictor(self, values: Mapping[Key, float]) -> FloatArray:
        """A predictor at the scored cells; shape (N,)."""
        return np.concatenate([piece.values(values)[piece.keep_W] for piece in self.pieces])

    def relabelled(self, values: Mapping[Key, float], n: int | None = None) -> FloatArray:
        """A predictor at the scored cells under each (of the first ``n``) relabelling; (N, M)."""
        relabelled_MK = self.relabelled_MK[:n]
        columns = []
        for piece in self.pieces:
            own = np.unique(np.concatenate([piece.train_W, piece.eval_W]))
            columns.append(
                permuted_predictor(
                    piece.values(values),
                    piece.train_W,
                    piece.eval_W,
                    relabelled_MK[:, own],
                    keep_N=piece.keep_W,
                )
            )
        return np.concatenate(columns)

    def rng(self, *labels: str) -> np.random.Generator:
        """A stream of its own for one purpose; it depends on no predictor."""
        return generator_from_digest(str(self.settings.seed), "scoring", self.name, *labels)


def build_design(
    table: BehaviourTable,
    settings: ScoreSettings,
    *,
    let_in: Sequence[str] = (),
    final: bool = False,
) -> Design:
    """The design of one behaviour. let_in: exclusion flags that are ignored, for sensitivity."""
    return _design(f"behaviour {table.behaviour}", [table], settings, let_in, final, pooled=False)


def build_pooled(
    tables: Sequence[BehaviourTable], settings: ScoreSettings, *, final: bool = False
) -> Design:
    """All behaviours in one design, g and predictors z-normalised on each one's scored cells.

    Raises StatsInputError for a behaviour whose scored cells do not vary: it has no z.
    """
    return _design("pooled", tables, settings, (), final, pooled=True)


def _design(
    name: str,
    tables: Sequence[BehaviourTable],
    settings: ScoreSettings,
    let_in: Sequence[str],
    final: bool,
    *,
    pooled: bool,
) -> Design:
    names = sorted({name for table in tables for name in (*table.train, *table.eval)})
    number = {name: k for k, name in enumerate(names)}
    pieces, y, of_piece = [], [], []
    for table in tables:
        cells = tuple(cell for cell in table.cells if "alias" not in cell.reasons())
        keep_W = np.array(
            [not set(cell.reasons(final=final)) - set(let_in) for cell in cells], dtype=bool
        )
        values = np.array(
            [
                float(cell.g)
                for cell, keep in zip(cells, keep_W, strict=True)
                if keep and cell.g is not None
            ]
        )
        shift, scale = 0.0, 1.0
        if pooled:
            if len(values) < 2 or np.ptp(values) == 0:
                raise StatsInputError(
                    table.behaviour, problem="has no spread among its scored cells"
                )
            shift, scale = float(values.mean()), float(values.std())
        pieces.append(
            Piece(
                table=table,
                cells=cells,
                train_W=np.array([number[cell.train] for cell in cells], dtype=np.int64),
                eval_W=np.array([number[cell.eval] for cell in cells], dtype=np.int64),
                keep_W=keep_W,
                shift=shift,
                scale=scale,
                pooled=pooled,
            )
        )
        y.append((values - shift) / scale)
        of_piece.append(np.full(len(values), len(pieces) - 1, dtype=np.int64))
    return Design(
        name=name,
        settings=settings,
        pieces=tuple(pieces),
        contexts=tuple(names),
        group_of=_group_numbers(tables, number),
        y_N=np.concatenate(y),
        train_N=np.concatenate([piece.train_W[piece.keep_W] for piece in pieces]),
        eval_N=np.concatenate([piece.eval_W[piece.keep_W] for piece in pieces]),
        piece_N=np.concatenate(of_piece),
    )


def _group_numbers(tables: Sequence[BehaviourTable], number: Mapping[str, int]) -> dict[int, int]:
    """Contexts that any behaviour puts in one group get one number, that of the group's first."""
    leader = {name: name for name in number}

    def find(name: str) -> str:
        while leader[name] != name:
            name = leader[name]
        return name

    for table in tables:
        first: dict[str, str] = {}
        for name, group in table.groups.items():
            if name in number:
                one, other = sorted((find(first.setdefault(group, name)), find(name)))
                leader[other] = one
    return {k: number[find(name)] for name, k in number.items()}
