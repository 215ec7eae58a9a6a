"""The two qualitative gates: nearer contexts get more, an instructed source spreads less.

Each asks for one mean difference and holds it against what relabelled contexts (or other pairs of
rows) give, so that a metric without information passes no more often than alpha.

Shape letters: N scored cells, M relabellings, T train rows, E eval columns.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.stats

from eps_locked.scoring.design import Design, Piece
from eps_locked.scoring.predictor import Key
from eps_locked.stats.permutation import permutation_p

__all__ = ["inoculation_in_g", "inoculation_of_metric", "proximity"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

_LEAST_WITHIN = 2
_LEAST_COLUMNS = 3


def proximity(design: Design, values_N: FloatArray, sign: float = 1.0) -> dict[str, Any]:
    """Mean over within-family cells less mean over cross-family cells, in standard deviations.

    values_N: a metric (sign: its polarity) or g itself. The null relabels the contexts that the
    families are taken of, which is the same as relabelling the values.
    """
    within = design.within_N
    n_within, n_cross = int(within.sum()), int((~within).sum())
    counts: dict[str, Any] = {"n_within": n_within, "n_cross": n_cross}
    if not design.knows_families:
        return _gate(reason="the families of the contexts are not known", **counts)
    if n_within < _LEAST_WITHIN or n_cross < _LEAST_WITHIN:
        reason = f"{n_within} cells within and {n_cross} across families, at least 2 each needed"
        return _gate(reason=reason, **counts)
    spread = float(values_N.std()) if len(values_N) else 0.0
    if np.ptp(values_N) <= 1e-12 * np.abs(values_N).max():
        return _gate(reason="one value in all of these cells", effect=0.0, **counts)
    z = sign * (values_N - values_N.mean()) / spread
    codes = design.family_codes[design.relabelled_MK]
    kin_MN = codes[:, design.train_N] == codes[:, design.eval_N]
    effect = float(_gap(within[None, :], z)[0])
    return _tested(effect, _gap(kin_MN, z), design.settings.alpha, **counts)


def inoculation_of_metric(
    design: Design, values: Mapping[Key, float], sign: float
) -> dict[str, Any]:
    """The default row less the instructed row, over eval contexts that are neither's own.

    The null is every ordered pair of rows. With several behaviours the instructed row is each one's
    own, and the gap is their mean.
    """
    settings = design.settings
    gaps, means = [], []
    n_columns = 0
    for piece in design.pieces:
        rows = _row_order(piece, settings.default_family, settings.instruction_family)
        if isinstance(rows, str):
            return _inoculation(reason=rows)
        x_TE = sign * _grid(piece, _in_deviations(piece, values), rows)
        own_TE = _own(design, piece, rows)
        gap_TT, n_TT = _row_gaps(x_TE, own_TE)
        gaps.append(gap_TT)
        n_columns += int(n_TT[0, 1])
        means.append([float(x_TE[r][~own_TE[r]].mean()) for r in (0, 1)])
    shapes = {gap.shape for gap in gaps}
    if len(shapes) > 1:
        return _inoculation(reason="the behaviours have different numbers of train contexts")
    gap = np.mean(gaps, axis=0)
    pairs = gap[~np.eye(len(gap), dtype=bool)]
    default_mean, instruction_mean = (float(value) for value in np.mean(means, axis=0))
    facts = {
        "default_mean": default_mean,
        "instruction_mean": instruction_mean,
        "n_columns": n_columns,
        "n_row_pairs": len(pairs),
    }
    if n_columns < _LEAST_COLUMNS or not np.isfinite(pairs).all():
        return _inoculation(reason=f"{n_columns} eval contexts that are neither row's own", **facts)
    if np.abs(pairs).max() <= 1e-12:
        reason = "the metric gives all rows one value per eval context: rows cannot differ"
        return _inoculation(reason=reason, effect=0.0, **facts)
    effect, alpha = float(gap[0, 1]), settings.alpha
    p, opposite = (
        float(np.mean(s * pairs >= s * effect - 1e-12 * max(1.0, abs(effect)))) for s in (1, -1)
    )
    least = 1 / len(pairs)
    too_few = None
    if least > alpha:
        too_few = f"{len(pairs)} ordered pairs of rows: p cannot fall below {least:.3f}"
    status = "passed" if p <= alpha else "failed" if opposite <= alpha else "undetermined"
    return _inoculation(
        status=status, effect=effect, p=p, p_opposite=opposite, reason=too_few, **facts
    )


def inoculation_in_g(design: Design) -> dict[str, Any]:
    """The same of G: means of both rows, and a t interval of their gap over eval contexts.

    Every measured cell counts, saturated ones too: a floor under the instructed row is what the
    gate is about. Means are over each row's own off-context cells, the gap over common columns.
    It says that these two rows differ, also under other eval contexts; nothing about other rows.
    """
    settings, (piece,) = design.settings, design.pieces
    rows = _row_order(piece, settings.default_family, settings.instruction_family)
    if isinstance(rows, str):
        return _inoculation(reason=rows)
    measured = np.array(
        [
            math.nan
            if set(cell.reasons()) & {"diagonal", "sealed", "set_apart", "unscored"}
            else float(cell.g if cell.g is not None else math.nan)
            for cell in piece.cells
        ]
    )
    g_TE = _grid(piece, measured, rows)[:2]
    known = ~np.isnan(g_TE)
    common = known.all(axis=0) & ~_own(design, piece, rows)[:2].any(axis=0)
    facts: dict[str, Any] = {
        "default_mean": float(g_TE[0][known[0]].mean()) if known[0].any() else None,
        "instruction_mean": float(g_TE[1][known[1]].mean()) if known[1].any() else None,
        "n_columns": int(common.sum()),
        "n_row_pairs": None,
    }
    failed = {cell.train for cell in piece.cells if "implant_failed" in cell.flags}
    broken = sorted(failed & {piece.table.train[row] for row in rows[:2]})
    if broken:
        return _inoculation(reason=f"the implant failed in {', '.join(broken)}", **facts)
    if int(common.sum()) < _LEAST_COLUMNS:
        reason = f"{int(common.sum())} eval contexts in which both rows have a value"
        return _inoculation(reason=reason, **facts)
    gap = g_TE[0][common] - g_TE[1][common]
    effect, n = float(gap.mean()), len(gap)
    error = float(gap.std(ddof=1)) / math.sqrt(n)
    if error == 0:
        return _inoculation(reason="the gap is the same everywhere", effect=effect, **facts)
    reach = float(scipy.stats.t.ppf(1 - settings.alpha / 2, n - 1)) * error
    p = float(scipy.stats.t.sf(effect / error, n - 1))
    low, high = effect - reach, effect + reach
    status = "passed" if low > 0 else "failed" if high < 0 else "undetermined"
    found = _inoculation(status=status, effect=effect, p=p, p_opposite=1 - p, **facts)
    return {**found, "low": low, "high": high}


def _gap(kin_MN: npt.NDArray[np.bool_], z_N: FloatArray) -> FloatArray:
    """Mean within less mean across, per row; 0 where a relabelling leaves one side empty."""
    n_kin = kin_MN.sum(axis=1)
    n_other = kin_MN.shape[1] - n_kin
    kin = kin_MN @ z_N
    both = (n_kin > 0) & (n_other > 0)
    gap = kin / np.maximum(n_kin, 1) - (z_N.sum() - kin) / np.maximum(n_other, 1)
    return np.where(both, gap, 0.0)


def _tested(effect: float, null_M: FloatArray, alpha: float, **counts: Any) -> dict[str, Any]:
    p = permutation_p(effect, null_M, alternative="greater")
    opposite = permutation_p(effect, null_M, alternative="less")
    status = "passed" if p <= alpha else "failed" if opposite <= alpha else "undetermined"
    return _gate(status=status, effect=effect, p=p, p_opposite=opposite, **counts)


def _gate(
    *,
    status: str = "undetermined",
    effect: float | None = None,
    p: float | None = None,
    p_opposite: float | None = None,
    reason: str | None = None,
    **facts: Any,
) -> dict[str, Any]:
    return {
        "status": status,
        "effect": effect,
        "low": None,
        "high": None,
        "p": p,
        "p_opposite": p_opposite,
        "reason": reason,
        **facts,
    }


def _inoculation(**facts: Any) -> dict[str, Any]:
    empty = dict.fromkeys(("default_mean", "instruction_mean", "n_columns", "n_row_pairs"))
    return _gate(**{**empty, **facts})


def _row_order(piece: Piece, default: str, instruction: str) -> list[int] | str:
    """Train rows, the default one first and the instructed one second; or why there are none.

    The other rows follow by name, so that behaviours that share them line up.
    """
    table = piece.table
    found: dict[str, list[str]] = {default: [], instruction: []}
    for name in table.train:
        family = table.families.get(name)
        if family in found:
            found[family].append(name)
    for family, names in found.items():
        if len(names) != 1:
            return f"{len(names)} train contexts of family {family}, exactly 1 needed"
    first = [found[default][0], found[instruction][0]]
    others = sorted(name for name in table.train if name not in first)
    return [table.train.index(name) for name in (*first, *others)]


def _in_deviations(piece: Piece, values: Mapping[Key, float]) -> FloatArray:
    x_W = piece.values(values)
    spread = float(x_W.std())
    constant = np.ptp(x_W) <= 1e-12 * np.abs(x_W).max(initial=0.0)
    return np.zeros_like(x_W) if constant else np.asarray((x_W - x_W.mean()) / spread)


def _grid(piece: Piece, values_W: FloatArray, rows: list[int]) -> FloatArray:
    """Rows in the order asked for, one column per eval context that is no alias."""
    trains = {name: n for n, name in enumerate(piece.table.train)}
    evals = {name: n for n, name in enumerate(_columns(piece))}
    grid = np.full((len(trains), len(evals)), math.nan)
    for cell, value in zip(piece.cells, values_W, strict=True):
        grid[trains[cell.train], evals[cell.eval]] = value
    return grid[rows]


def _own(design: Design, piece: Piece, rows: list[int]) -> npt.NDArray[np.bool_]:
    """Which eval contexts are of a row's own group; (T, E)."""
    groups = {name: design.group_of[number] for number, name in enumerate(design.contexts)}
    row = np.array([groups[piece.table.train[r]] for r in rows])
    column = np.array([groups[name] for name in _columns(piece)])
    return np.asarray(row[:, None] == column[None, :])


def _columns(piece: Piece) -> tuple[str, ...]:
    return tuple(dict.fromkeys(cell.eval for cell in piece.cells))


def _row_gaps(x_TE: FloatArray, own_TE: npt.NDArray[np.bool_]) -> tuple[FloatArray, IntArray]:
    """For each ordered pair of rows, the mean gap over columns that are neither's own; (T, T)."""
    usable = ~(own_TE[:, None, :] | own_TE[None, :, :])
    gap = np.where(usable, x_TE[:, None, :] - x_TE[None, :, :], 0.0).sum(axis=2)
    n = usable.sum(axis=2)
    return np.divide(gap, n, out=np.full(gap.shape, math.nan), where=n > 0), n.astype(np.int64)
