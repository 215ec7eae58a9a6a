"""What a table of transfer consists of: level, rows, columns, the mutual and the directed part.

On the off-diagonal cells of a square table G (row i trained, column j evaluated)

    G = mean + (S - mean) + A        S = (G + G') / 2, A = (G - G') / 2
    G = additive + interaction       additive = mean + row_i + column_j by least squares

and each is a split of sum((G - mean)^2) into parts that add up. The two splits commute: the
antisymmetric part of the additive model is the best fit of A by a difference a_i - a_j, which is
how far "direction" is nothing but some sources spreading widely. A predictor that knows no
direction cannot explain more than 1 - sum(A^2) / sum((G - mean)^2).

Shape letters: K contexts of the square part, N cells, R replicates (training seeds).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from eps_locked.errors import StatsInputError
from eps_locked.stats.checks import BoolArray, FloatArray, IntArray, finite_vector

__all__ = [
    "ROUNDING_SHARE",
    "AdditiveFit",
    "Decomposition",
    "NoiseCorrection",
    "additive_fit",
    "decompose",
    "square_table",
    "transpose_index",
]

# A part with less than this share of the sum of squares is rounding: a hundred times what six
# printed digits leave of the antisymmetric part of a symmetric table. Nothing to fit a slope on.
ROUNDING_SHARE = 1e-10
# Differences below this share of the largest value are the rounding of doubles.
_ROUNDING = 1e-13
_PARTS = (
    "symmetric_additive",
    "symmetric_interaction",
    "antisymmetric_additive",
    "antisymmetric_interaction",
)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class AdditiveFit:
    """Least squares g = mean + row[train] + column[eval] over the cells given.

    Effects are weighted to mean 0 over the cells, so ``mean`` is the mean of the cells.
    ``r_squared`` is None when all cells are equal. ``n_parameters`` is the rank of the design.
    """

    mean: float
    train_ids: IntArray
    row_effects: FloatArray
    eval_ids: IntArray
    column_effects: FloatArray
    fitted_N: FloatArray
    r_squared: float | None
    n_parameters: int

    def predict(self, train_N: npt.ArrayLike, eval_N: npt.ArrayLike) -> FloatArray:
        """A context the fit has not seen on that side gets effect 0, as the mean row or column."""
        row = _effects_of(np.asarray(train_N), self.train_ids, self.row_effects)
        return self.mean + row + _effects_of(np.asarray(eval_N), self.eval_ids, self.column_effects)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class NoiseCorrection:
    """Shares after the sum of squares that noise alone would give each part is taken off.

    ``expected_*``: that sum, for the whole and for each part. A part that came out below 0 is set
    to 0 and named in ``truncated``, which may also name ``antisymmetric_additive`` and
    ``antisymmetric_interaction``. A share is of the sum of its two corrected parts, and None when
    that sum is 0: nothing above the noise. ``reliability`` is the corrected total over the raw one.
    """

    expected_total: float
    expected_symmetric: float
    expected_antisymmetric: float
    expected_additive: float
    expected_interaction: float
    ss_total: float
    ss_symmetric: float
    ss_antisymmetric: float
    ss_additive: float
    ss_interaction: float
    antisymmetric_share: float | None
    symmetric_cap: float | None
    additive_r2: float | None
    antisymmetric_additive_r2: float | None
    reliability: float | None
    truncated: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Decomposition:
    """Parts of a square table over its ``n_cells`` off-diagonal cells present in both directions.

    S_KK, A_KK, additive_KK, interaction_KK: shape (K, K), NaN on the diagonal and where a dyad is
    absent. row_K, column_K: effects of the additive model, NaN for a context without a cell.
    ss_total = ss_symmetric + ss_antisymmetric = ss_additive + ss_interaction, ss_symmetric being
    about the mean. Of ss_antisymmetric, ss_antisymmetric_additive is the part that differences
    a_i - a_j explain. Shares are None when ss_total is 0 but for the rounding of doubles
    (``antisymmetric_additive_r2`` when ss_antisymmetric is). ``noise`` is None when none was
    stated.
    """

    n_cells: int
    mean: float
    S_KK: FloatArray
    A_KK: FloatArray
    row_K: FloatArray
    column_K: FloatArray
    additive_KK: FloatArray
    interaction_KK: FloatArray
    ss_total: float
    ss_symmetric: float
    ss_antisymmetric: float
    ss_additive: float
    ss_interaction: float
    ss_antisymmetric_additive: float
    antisymmetric_share: float | None
    symmetric_cap: float | None
    additive_r2: float | None
    antisymmetric_additive_r2: float | None
    noise: NoiseCorrection | None

    @property
    def is_symmetric(self) -> bool:
        """Whether the table knows no direction: what little A holds is rounding, not to be scored.

        Whoever regresses on such an A scales rounding up to whatever size fits.
        """
        return self.antisymmetric_share is None or self.antisymmetric_share < ROUNDING_SHARE


def decompose(
    G_KK: npt.ArrayLike,
    *,
    variance_KK: npt.ArrayLike | None = None,
    replicates_RKK: npt.ArrayLike | None = None,
) -> Decomposition:
    """Split the off-diagonal cells of a square table, noise taken off where it is stated.

    G_KK: row i the train context, column j the eval context. The diagonal is ignored. NaN marks an
    absent cell; its mirror cell is then left out too, so that all parts speak of the same cells.

    Noise, one or both, whose expectations are added:
    variance_KK: the variance of each cell's estimate, errors independent from cell to cell.
    replicates_RKK: R >= 2 tables, one per training seed, of which G is the mean. Their scatter
    tells the noise of each part as it is, also where the cells of one adapter err together; a
    variance per cell would book such noise as interaction when it is in truth a row's.

    Raises StatsInputError for a table that is not square, an infinite value, no complete dyad, and
    noise that is missing, negative or of another shape where G has a value.
    """
    G, present = _square(G_KK)
    train, evaluated = np.nonzero(present)
    g = G[train, evaluated]
    fit = additive_fit(train, evaluated, g)
    mirror = transpose_index(train, evaluated)
    S, A = (g + g[mirror]) / 2, (g - g[mirror]) / 2
    additive_part = fit.fitted_N - fit.mean
    ss = {
        "total": _sum_of_squares(g - fit.mean),
        "symmetric": _sum_of_squares(S - fit.mean),
        "antisymmetric": _sum_of_squares(A),
        "additive": _sum_of_squares(additive_part),
        "interaction": _sum_of_squares(g - fit.fitted_N),
        "antisymmetric_additive": _sum_of_squares((additive_part - additive_part[mirror]) / 2),
    }
    floor = len(g) * (_ROUNDING * float(np.abs(g).max())) ** 2
    share = _share(ss["antisymmetric"], ss["total"], floor)
    tables = _Tables(train=train, evaluated=evaluated, n_contexts=len(G))
    return Decomposition(
        n_cells=len(g),
        mean=fit.mean,
        S_KK=tables.of(S),
        A_KK=tables.of(A),
        row_K=_spread(fit.train_ids, fit.row_effects, len(G)),
        column_K=_spread(fit.eval_ids, fit.column_effects, len(G)),
        additive_KK=tables.of(fit.fitted_N),
        interaction_KK=tables.of(g - fit.fitted_N),
        ss_total=ss["total"],
        ss_symmetric=ss["symmetric"],
        ss_antisymmetric=ss["antisymmetric"],
        ss_additive=ss["additive"],
        ss_interaction=ss["interaction"],
        ss_antisymmetric_additive=ss["antisymmetric_additive"],
        antisymmetric_share=share,
        symmetric_cap=None if share is None else 1 - share,
        additive_r2=_share(ss["additive"], ss["total"], floor),
        antisymmetric_additive_r2=_share(ss["antisymmetric_additive"], ss["antisymmetric"], floor),
        noise=_noise(train, evaluated, g, present, variance_KK, replicates_RKK),
    )


def additive_fit(train_N: npt.ArrayLike, eval_N: npt.ArrayLike, g_N: npt.ArrayLike) -> AdditiveFit:
    """The additive row + column model of any list of cells, square or rectangular, gaps allowed.

    train_N, eval_N: context ids. The fitted values are unique; where the cells fall into blocks
    that share neither row nor column, the effects are the ones of least norm. Raises
    StatsInputError for no cell, unequal lengths, and values that are not finite.
    """
    train, evaluated, g = np.asarray(train_N), np.asarray(eval_N), finite_vector(g_N, "g_N")
    if len(g) == 0 or train.shape != g.shape or evaluated.shape != g.shape:
        raise StatsInputError(
            "train_N, eval_N",
            expected=f"{max(len(g), 1)} context ids each, one per value",
            found=f"{train.shape} and {evaluated.shape}",
        )
    train_ids, row = np.unique(train, return_inverse=True)
    eval_ids, column = np.unique(evaluated, return_inverse=True)
    design = _additive_design(row, column)
    # From the first value on, so that equal cells have exactly that mean and leave exactly nothing.
    mean = float(g[0] + (g - g[0]).mean())
    effects, _, rank, _ = np.linalg.lstsq(design, g - mean, rcond=None)
    row_effects, column_effects = effects[: len(train_ids)], effects[len(train_ids) :]
    # The constant that rows and columns share is theirs to divide: each side to mean 0 over cells.
    row_effects = row_effects - row_effects[row].mean()
    column_effects = column_effects - column_effects[column].mean()
    fitted = mean + row_effects[row] + column_effects[column]
    total = _sum_of_squares(g - mean) if np.ptp(g) > 0 else 0.0
    return AdditiveFit(
        mean=mean,
        train_ids=train_ids,
        row_effects=row_effects,
        eval_ids=eval_ids,
        column_effects=column_effects,
        fitted_N=fitted,
        r_squared=None if total == 0 else 1 - _sum_of_squares(g - fitted) / total,
        n_parameters=int(rank),
    )


def square_table(
    train_N: npt.ArrayLike, eval_N: npt.ArrayLike, g_N: npt.ArrayLike
) -> tuple[IntArray, FloatArray]:
    """The contexts that are both trained and evaluated, ascending, and their table, NaN for gaps.

    Cells with another context are left out; the diagonal is kept. Raises StatsInputError for
    values that are not finite, unequal lengths, and a cell given twice.
    """
    train, evaluated, g = np.asarray(train_N), np.asarray(eval_N), finite_vector(g_N, "g_N")
    if train.shape != g.shape or evaluated.shape != g.shape:
        raise StatsInputError(
            "train_N, eval_N",
            expected=f"{len(g)} context ids each, one per value",
            found=f"{train.shape} and {evaluated.shape}",
        )
    transpose_index(train, evaluated)
    contexts = np.intersect1d(train, evaluated)
    inside = np.isin(train, contexts) & np.isin(evaluated, contexts)
    table = np.full((len(contexts), len(contexts)), np.nan)
    row = np.searchsorted(contexts, train[inside])
    table[row, np.searchsorted(contexts, evaluated[inside])] = g[inside]
    return contexts.astype(np.int64), table


def transpose_index(train_N: npt.ArrayLike, eval_N: npt.ArrayLike) -> IntArray:
    """Where the cell j -> i of each cell i -> j stands in the list; -1 where it is not there.

    With index m and no -1, the antisymmetric part of a list of values is (g - g[m]) / 2. A
    diagonal cell is its own mirror. Raises StatsInputError for a cell given twice.
    """
    cells = list(zip(np.asarray(train_N).tolist(), np.asarray(eval_N).tolist(), strict=True))
    place = {cell: n for n, cell in enumerate(cells)}
    if len(place) != len(cells):
        twice = next(cell for n, cell in enumerate(cells) if place[cell] != n)
        raise StatsInputError("train_N, eval_N", problem=f"give the cell {twice} twice")
    return np.array([place.get((j, i), -1) for i, j in cells], dtype=np.int64)


# --- noise ----------------------------------------------------------------------------------------


def _noise(
    train: IntArray,
    evaluated: IntArray,
    g: FloatArray,
    present: BoolArray,
    variance_KK: npt.ArrayLike | None,
    replicates_RKK: npt.ArrayLike | None,
) -> NoiseCorrection | None:
    if variance_KK is None and replicates_RKK is None:
        return None
    projections = _projections(train, evaluated)
    expected = dict.fromkeys(_PARTS, 0.0)
    if variance_KK is not None:
        variance = _noise_cells(variance_KK, "variance_KK", present)
        if variance.min() < 0:
            raise StatsInputError("variance_KK", expected="0 or more", found=variance.min())
        for part, projection in projections.items():
            # E |P e|^2 = trace(P V P') = sum_n P_nn v_n for independent errors.
            expected[part] += float(np.diag(projection) @ variance)
    if replicates_RKK is not None:
        replicates = np.asarray(replicates_RKK, dtype=np.float64)
        if replicates.ndim != 3 or len(replicates) < 2:
            raise StatsInputError(
                "replicates_RKK", expected="at least 2 tables", found=f"shape {replicates.shape}"
            )
        rows = np.stack([_noise_cells(table, "replicates_RKK", present) for table in replicates])
        scatter = rows - rows.mean(axis=0)
        n = len(rows)
        for part, projection in projections.items():
            # Within-seed scatter estimates trace(P V); the mean of R seeds has V / R.
            expected[part] += _sum_of_squares(scatter @ projection) / (n * (n - 1))
    observed = {part: _sum_of_squares(p @ g) for part, p in projections.items()}
    return _corrected(observed, expected)


def _projections(train: IntArray, evaluated: IntArray) -> dict[str, FloatArray]:
    """Orthogonal projections onto the four parts, about the mean; they sum to I - 1/N."""
    n = len(train)
    design = _additive_design(
        np.unique(train, return_inverse=True)[1], np.unique(evaluated, return_inverse=True)[1]
    )
    U, singular, _ = np.linalg.svd(design, full_matrices=False)
    U = U[:, singular > np.finfo(np.float64).eps * max(design.shape) * singular[0]]
    additive = U @ U.T - 1.0 / n
    interaction = np.eye(n) - U @ U.T
    mirror = transpose_index(train, evaluated)
    return {
        # Mirroring commutes with the additive fit, as the cells come in whole dyads.
        "symmetric_additive": (additive + additive[mirror]) / 2,
        "symmetric_interaction": (interaction + interaction[mirror]) / 2,
        "antisymmetric_additive": (additive - additive[mirror]) / 2,
        "antisymmetric_interaction": (interaction - interaction[mirror]) / 2,
    }


def _corrected(observed: dict[str, float], expected: dict[str, float]) -> NoiseCorrection:
    def both(values: dict[str, float]) -> dict[str, float]:
        return {
            "total": sum(values.values()),
            "symmetric": values["symmetric_additive"] + values["symmetric_interaction"],
            "antisymmetric": values["antisymmetric_additive"] + values["antisymmetric_interaction"],
            "additive": values["symmetric_additive"] + values["antisymmetric_additive"],
            "interaction": values["symmetric_interaction"] + values["antisymmetric_interaction"],
            "antisymmetric_additive": values["antisymmetric_additive"],
            "antisymmetric_interaction": values["antisymmetric_interaction"],
        }

    noise, raw = both(expected), both(observed)
    ss = {part: max(raw[part] - noise[part], 0.0) for part in raw}
    share = _share(ss["antisymmetric"], ss["symmetric"] + ss["antisymmetric"])
    return NoiseCorrection(
        expected_total=noise["total"],
        expected_symmetric=noise["symmetric"],
        expected_antisymmetric=noise["antisymmetric"],
        expected_additive=noise["additive"],
        expected_interaction=noise["interaction"],
        ss_total=ss["total"],
        ss_symmetric=ss["symmetric"],
        ss_antisymmetric=ss["antisymmetric"],
        ss_additive=ss["additive"],
        ss_interaction=ss["interaction"],
        antisymmetric_share=share,
        symmetric_cap=None if share is None else 1 - share,
        additive_r2=_share(ss["additive"], ss["additive"] + ss["interaction"]),
        antisymmetric_additive_r2=_share(
            ss["antisymmetric_additive"],
            ss["antisymmetric_additive"] + ss["antisymmetric_interaction"],
        ),
        reliability=_share(ss["total"], raw["total"]),
        truncated=tuple(part for part in raw if raw[part] < noise[part]),
    )


def _noise_cells(values: npt.ArrayLike, name: str, present: BoolArray) -> FloatArray:
    table = np.asarray(values, dtype=np.float64)
    if table.shape != present.shape:
        raise StatsInputError(name, expected=f"shape {present.shape}", found=table.shape)
    return finite_vector(table[present], name)


# --- small things ---------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Tables:
    train: IntArray
    evaluated: IntArray
    n_contexts: int

    def of(self, values_N: FloatArray) -> FloatArray:
        table = np.full((self.n_contexts, self.n_contexts), np.nan)
        table[self.train, self.evaluated] = values_N
        return table


def _square(G_KK: npt.ArrayLike) -> tuple[FloatArray, BoolArray]:
    G = np.asarray(G_KK, dtype=np.float64)
    if G.ndim != 2 or G.shape[0] != G.shape[1]:
        raise StatsInputError("G_KK", expected="a square table", found=f"shape {G.shape}")
    present = ~np.isnan(G) & ~np.isnan(G.T)
    np.fill_diagonal(present, False)
    if not np.isfinite(G[present]).all():
        raise StatsInputError("G_KK", expected="finite numbers, NaN for absent", found="inf")
    if not present.any():
        raise StatsInputError(
            "G_KK", expected="at least 1 pair of contexts with both directions", found="none"
        )
    return G, present


def _additive_design(row_N: IntArray, column_N: IntArray) -> FloatArray:
    n = len(row_N)
    n_rows = int(row_N.max()) + 1
    design = np.zeros((n, n_rows + int(column_N.max()) + 1))
    design[np.arange(n), row_N] = 1.0
    design[np.arange(n), n_rows + column_N] = 1.0
    return design


def _effects_of(ids: IntArray, known: IntArray, effects: FloatArray) -> FloatArray:
    place = np.minimum(np.searchsorted(known, ids), len(known) - 1)
    return np.where(known[place] == ids, effects[place], 0.0)


def _spread(ids: IntArray, values: FloatArray, n: int) -> FloatArray:
    result = np.full(n, np.nan)
    result[ids] = values
    return result


def _sum_of_squares(values: FloatArray) -> float:
    return float(np.square(values).sum())


def _share(part: float, whole: float, floor: float = 0.0) -> float | None:
    return part / whole if whole > floor else None
