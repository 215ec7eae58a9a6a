"""What a predictor explains of each part of G, and beyond rows and columns.

Shape letters: N scored cells, D mirror pairs, M columns (a predictor and its relabellings, the
predictor first), R columns of a basis.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from eps_locked.errors import StatsInputError
from eps_locked.scoring.design import Design
from eps_locked.scoring.folded import leave_block_out, line_predictions
from eps_locked.scoring.intervals import (
    Clusters,
    difference_measure,
    r2_measure,
    spearman_measure,
)
from eps_locked.scoring.measures import Measure, absent, measure, null_of, or_none
from eps_locked.stats.decomposition import ROUNDING_SHARE
from eps_locked.stats.folds import FoldMatrix, leave_two_contexts_out, stack_folds
from eps_locked.stats.ranks import spearman_rows
from eps_locked.stats.regression import r_squared, r_squared_columns

__all__ = ["Beyond", "Part", "antisymmetric_zero", "beyond_rows_and_columns", "square_parts"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

_LEAST_PAIRS = 6


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Part:
    """One part of the square part of G, and how a predictor's like part is made.

    y_D with its ends (first_D, second_D); ``of``: predictor columns (N, M) to (D, M). intercept:
    False where the part's sign is a choice of direction. basis_DR: orthonormal, what the additive
    model can give. folds: leave both ends out.
    """

    name: str
    y_D: FloatArray
    of: Callable[[FloatArray], FloatArray]
    intercept: bool
    basis_DR: FloatArray | None
    folds: FoldMatrix
    clusters: Clusters
    additive_r2: float | None


def square_parts(design: Design) -> tuple[dict[str, Part], str | None]:
    """The symmetric, antisymmetric and interaction part; or none, and why."""
    pairs = design.pairs
    if design.reason is not None:
        return {}, design.reason
    if len(pairs) < _LEAST_PAIRS:
        return (
            {},
            f"{len(pairs)} mirror pairs with both cells scored, at least {_LEAST_PAIRS} needed",
        )
    a, b = pairs.first_D, pairs.second_D
    i, j, piece = design.train_N[a], design.eval_N[a], design.piece_N[a]
    square = np.concatenate([a, b])
    try:
        pair_folds = stack_folds(leave_two_contexts_out(i, j, design.group_of))
        cell_folds = stack_folds(
            leave_two_contexts_out(design.train_N[square], design.eval_N[square], design.group_of)
        )
    except StatsInputError as error:
        return {}, f"{error.problem or error.thing}: {error.found}"
    y = design.y_N
    clusters = Clusters.of(design, a).doubled()
    additive = additive_basis(design, square)
    fitted = additive @ (additive.T @ y[square])
    sym, anti = (y[a] + y[b]) / 2, (y[a] - y[b]) / 2
    half = len(a)

    def symmetric(x_NM: FloatArray) -> FloatArray:
        return np.asarray((x_NM[a] + x_NM[b]) / 2)

    def antisymmetric(x_NM: FloatArray) -> FloatArray:
        part = (x_NM[a] - x_NM[b]) / 2
        part[:, antisymmetric_zero(x_NM[square], part)] = 0.0
        return np.asarray(part)

    def interaction(x_NM: FloatArray) -> FloatArray:
        x = x_NM[square]
        left = x - additive @ (additive.T @ x)
        spread = np.square(x - x.mean(axis=0)).sum(axis=0)
        left[:, np.square(left).sum(axis=0) <= ROUNDING_SHARE * spread] = 0.0
        return np.asarray(left)

    def share(of_fit: FloatArray, of_g: FloatArray, *, about: float) -> float | None:
        total = float(np.square(of_g - about).sum())
        return or_none(1 - float(np.square(of_g - of_fit).sum()) / total) if total > 0 else None

    fit_a, fit_b = fitted[:half], fitted[half:]
    found = {
        "symmetric": Part(
            name="symmetric",
            y_D=sym,
            of=symmetric,
            intercept=True,
            basis_DR=_node_basis(i, j, piece, sign=1.0),
            folds=pair_folds,
            clusters=clusters,
            additive_r2=share((fit_a + fit_b) / 2, sym, about=float(sym.mean())),
        ),
        "antisymmetric": Part(
            name="antisymmetric",
            y_D=anti,
            of=antisymmetric,
            intercept=False,
            basis_DR=_node_basis(i, j, piece, sign=-1.0),
            folds=pair_folds,
            clusters=clusters,
            additive_r2=share((fit_a - fit_b) / 2, anti, about=0.0),
        ),
        "interaction": Part(
            name="interaction",
            y_D=y[square] - fitted,
            of=interaction,
            intercept=False,
            basis_DR=None,
            folds=cell_folds,
            clusters=Clusters.of(design, square),
            additive_r2=0.0,
        ),
    }
    return found, None


def score_part(part: Part, x_NM: FloatArray, alpha: float, sign: float) -> dict[str, Any]:
    """A predictor (first column) and its relabellings against one part of G."""
    x_DM = part.of(x_NM)
    n, zero = len(part.y_D), bool(not x_DM[:, 0].any())
    predicted = line_predictions(x_DM, part.y_D, part.folds, intercept=part.intercept)
    r2 = _scored(part, predicted[:, 0], alpha, _r2_columns(part, predicted))
    result = {
        "n": n,
        "reason": None,
        "zero_by_construction": zero and part.name != "symmetric",
        "spearman": _ranked(part, x_DM, alpha, sign),
        "r2": r2,
        "additive_r2": part.additive_r2,
        "additive_out_of_fold_r2": None,
        "with_predictor_r2": None,
        "delta_r2": r2,
    }
    if part.basis_DR is None:
        # Rows and columns leave nothing here, so what the metric adds is what it has.
        return {**result, "additive_out_of_fold_r2": 0.0, "with_predictor_r2": r2["value"]}
    blocks = np.arange(n)
    alone, together, ok = leave_block_out(part.basis_DR, part.y_D, x_DM, blocks)
    if not ok.all():
        reason = "a context of the square part has one pair only: no additive model without it"
        return {**result, "delta_r2": absent(n, reason)}
    base, gains = _r2_columns(part, alone[:, None])[0], _r2_columns(part, together)
    y, p, q = (_doubled(part, column) for column in (part.y_D, together[:, 0], alone))
    null = null_of(gains[0] - base, gains[1:] - base, alpha)
    return {
        **result,
        "additive_out_of_fold_r2": or_none(base),
        "with_predictor_r2": or_none(gains[0]),
        "delta_r2": difference_measure(y, p, q, part.clusters, n=n, null=null),
    }


def absent_part(reason: str) -> dict[str, Any]:
    """The block of a part that does not exist here, and why."""
    return {
        "n": 0,
        "reason": reason,
        "zero_by_construction": False,
        "spearman": {**absent(0, reason), "oriented": None},
        "r2": absent(0, reason),
        "additive_r2": None,
        "additive_out_of_fold_r2": None,
        "with_predictor_r2": None,
        "delta_r2": absent(0, reason),
    }


def antisymmetric_zero(x_NM: FloatArray, part_DM: FloatArray) -> BoolArray:
    """Which columns are symmetric but for rounding; x over both cells of every pair."""
    spread = np.square(x_NM - x_NM.mean(axis=0)).sum(axis=0)
    return np.asarray(2 * np.square(part_DM).sum(axis=0) <= ROUNDING_SHARE * spread)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Beyond:
    """The additive model of the scored cells: its basis, its blocks, and its own two R2."""

    basis_NR: FloatArray
    block_N: IntArray
    additive_r2: float | None


def beyond_rows_and_columns(design: Design) -> Beyond:
    """Rows and columns of every behaviour; a mirror pair is a block and leaves together."""
    everything = np.arange(design.n)
    basis = additive_basis(design, everything)
    block = everything.copy()
    block[design.pairs.second_D] = design.pairs.first_D
    fitted = basis @ (basis.T @ design.y_N)
    return Beyond(basis_NR=basis, block_N=block, additive_r2=r_squared(design.y_N, fitted))


def score_beyond(design: Design, beyond: Beyond, x_NM: FloatArray, alpha: float) -> dict[str, Any]:
    """Delta R2 of a predictor (first column) over the additive model, out of fold."""
    alone, together, ok = leave_block_out(beyond.basis_NR, design.y_N, x_NM, beyond.block_N)
    n = int(ok.sum())
    result: dict[str, Any] = {"additive_r2": beyond.additive_r2}
    if n < design.settings.minimum_cells or np.ptp(design.y_N[ok]) == 0:
        reason = f"{n} cells whose row and column have another cell"
        return {
            **result,
            "additive_out_of_fold_r2": None,
            "with_predictor_r2": None,
            "delta_r2": absent(n, reason),
        }
    y = design.y_N[ok]
    base = float(r_squared_columns(y, alone[ok, None])[0])
    gains = r_squared_columns(y, together[ok])
    return {
        **result,
        "additive_out_of_fold_r2": or_none(base),
        "with_predictor_r2": or_none(gains[0]),
        "delta_r2": difference_measure(
            y,
            together[ok, 0],
            alone[ok],
            Clusters.of(design, ok),
            null=null_of(gains[0] - base, gains[1:] - base, alpha),
        ),
    }


def additive_basis(design: Design, keep: IntArray) -> FloatArray:
    """Orthonormal columns spanning row and column indicators of each behaviour; (kept, R)."""
    columns = []
    for side in (design.train_N[keep], design.eval_N[keep]):
        ids = side * len(design.pieces) + design.piece_N[keep]
        distinct, where = np.unique(ids, return_inverse=True)
        columns.append(np.eye(len(distinct))[where])
    return _orthonormal(np.concatenate(columns, axis=1))


def _node_basis(i: IntArray, j: IntArray, piece: IntArray, *, sign: float) -> FloatArray:
    """Sums (sign 1) or differences (sign -1) of one number per context and behaviour."""
    n_pieces = int(piece.max()) + 1
    distinct = np.unique(np.concatenate([i, j]) * n_pieces + np.concatenate([piece, piece]))
    rows = np.arange(len(i))
    design = np.zeros((len(i), len(distinct)))
    np.add.at(design, (rows, np.searchsorted(distinct, i * n_pieces + piece)), 1.0)
    np.add.at(design, (rows, np.searchsorted(distinct, j * n_pieces + piece)), sign)
    return _orthonormal(design)


def _orthonormal(columns: FloatArray) -> FloatArray:
    values, vectors = np.linalg.eigh(columns.T @ columns)
    kept = values > 1e-9 * values[-1]
    return np.asarray(columns @ (vectors[:, kept] / np.sqrt(values[kept])))


def _doubled(part: Part, column: FloatArray) -> FloatArray:
    """A pair's value under both directions; see ``Clusters.doubled``."""
    if part.name == "interaction":
        return column
    return np.concatenate([column, column if part.intercept else -column])


def _r2_columns(part: Part, predicted_DM: FloatArray) -> FloatArray:
    """R2 about the mean, or about 0 for a part without a level."""
    about = part.y_D.mean() if part.intercept else 0.0
    total = float(np.square(part.y_D - about).sum())
    if total == 0:
        return np.full(predicted_DM.shape[1], np.nan)
    left = predicted_DM - part.y_D[:, None]
    return np.asarray(1.0 - np.einsum("nm,nm->m", left, left) / total)


def _scored(part: Part, predicted_D: FloatArray, alpha: float, r2_M: FloatArray) -> Measure:
    null = null_of(float(r2_M[0]), r2_M[1:], alpha)
    if not part.intercept and not predicted_D.any():
        # Nothing is predicted, about 0: exactly 0, in every resample too.
        return {**measure(0.0, len(predicted_D), null=null), "low": 0.0, "high": 0.0}
    y, p = _doubled(part, part.y_D), _doubled(part, predicted_D)
    return r2_measure(y, p, part.clusters, n=len(part.y_D), null=null)


def _ranked(part: Part, x_DM: FloatArray, alpha: float, sign: float) -> Measure:
    if not part.intercept and not x_DM[:, 0].any():
        none = absent(len(x_DM), "this part of the metric is 0: nothing to rank")
        return {**none, "oriented": None}
    y = _doubled(part, part.y_D)
    both = np.stack([_doubled(part, column) for column in x_DM.T])
    rho = spearman_rows(both, y)
    null = null_of(float(rho[0]), rho[1:], alpha, two_sided=True)
    found = spearman_measure(both[0], y, part.clusters, null=null)
    oriented = None if found["value"] is None else sign * found["value"]
    return {**found, "n": len(part.y_D), "oriented": oriented}
