"""The multiplicative form: what is written, times how far the gate opens, times the read-out.

    g_ij = c + (1 + a s_i) ... (k0 + k1 gate_ij) ... (1 + r t_j)

Each factor is linear in one predictor: the first-order form of any smooth factor of it, without a
logarithm of a negative g. The offset is there because nothing written need not read as 0, and a
z-normalised g has no zero at all. Multiplied out, g is linear in the products of predictors; every
alternating step is therefore exact least squares in sums over the fit cells, made once for all
folds. It starts from the additive line on all predictors, so what it ends in is what the products
add to that.

Shape letters: N cells, F folds, T tests, Q predictors (the gate's first), C = 2^Q products.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from eps_locked.errors import StatsInputError
from eps_locked.stats.folds import FoldMatrix
from eps_locked.stats.moments import moments_over

__all__ = ["factor_fold_predictions", "factor_weights"]

FloatArray = npt.NDArray[np.float64]

_SWEEPS = 60
_SETTLED = 1e-5
# A pull of level and slopes towards 0, in fit cells: g and predictors have standard deviation 1.
# Without it a level without bound and slopes that vanish would be the additive line again.
_PULL = 1e-3


def factor_fold_predictions(x_MNQ: FloatArray, y_N: FloatArray, matrix: FoldMatrix) -> FloatArray:
    """Predictions of M fits (a predictor's values and their relabellings); shape (T, M).

    x_MNQ: standardised columns, the gate's first. All M fits of all folds settle side by side.
    """
    products = [_products(x_NQ) for x_NQ in x_MNQ]
    sums = [_Sums.of(one, y_N, matrix.fit_FN) for one in products]
    fitted = _fit(_Sums.joined(sums)).reshape(len(products), len(matrix.fit_FN), -1)
    columns = []
    for one, found in zip(products, fitted, strict=True):
        weights = _outer(_as_pairs(found))
        weights[:, 0] += found[:, 0]
        columns.append(np.einsum("tc,tc->t", one[matrix.cell_T], weights[matrix.fold_T]))
    return np.stack(columns, axis=1)


def factor_weights(x_NQ: FloatArray, y_N: FloatArray) -> FloatArray:
    """Fitted on all cells: c, k0, k1, then one slope per further predictor; shape (2 + Q,)."""
    return np.asarray(_fit(_Sums.of(_products(x_NQ), y_N, np.ones((1, len(y_N)))))[0])


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Sums:
    """What a fit needs of its cells: moments of the products, (F, C, C); their sums with g, (F, C).

    g enters less ``centre_F`` and over ``spread_F``, its mean and standard deviation in the fit
    cells, which alone a fold may know.
    """

    moments: FloatArray
    on_y: FloatArray
    centre_F: FloatArray
    spread_F: FloatArray
    n_F: FloatArray

    @classmethod
    def of(cls, products_NC: FloatArray, y_N: FloatArray, fit_FN: FloatArray) -> _Sums:
        moments = moments_over(products_NC)(fit_FN)
        n = fit_FN.sum(axis=1)
        centre, spread = _scale(y_N, fit_FN, n)
        on_y = fit_FN @ (products_NC * y_N[:, None]) - centre[:, None] * moments[:, 0]
        return cls(
            moments=moments,
            on_y=on_y / spread[:, None],
            centre_F=centre,
            spread_F=spread,
            n_F=n,
        )

    @classmethod
    def joined(cls, parts: Sequence[_Sums]) -> _Sums:
        names = ("moments", "on_y", "centre_F", "spread_F", "n_F")
        return cls(**{k: np.concatenate([getattr(part, k) for part in parts]) for k in names})


def _products(x_NQ: FloatArray) -> FloatArray:
    """1, and every product of distinct predictors; predictor q is bit q of a column's number."""
    if x_NQ.ndim != 2 or x_NQ.shape[1] < 1 or not np.isfinite(x_NQ).all():
        raise StatsInputError("x_NQ", expected="finite columns, at least 1", found=x_NQ.shape)
    products = np.ones((len(x_NQ), 1))
    for column in x_NQ.T:
        products = np.concatenate([products, products * column[:, None]], axis=1)
    return products


def _fit(sums: _Sums) -> FloatArray:
    """[c, k0, k1, further slopes] per fit, in units of g; shape (F, 2 + Q)."""
    moments, on_y, pull = sums.moments, sums.on_y, _PULL * sums.n_F
    n_predictors = moments.shape[1].bit_length() - 1
    found = _start(moments, on_y, pull, n_predictors)
    for _ in range(_SWEEPS):
        before = found.copy()
        for q in range(n_predictors):
            level, slope = _halves(_as_pairs(found), q)
            if q == 0:
                offset = np.zeros_like(level)
                offset[:, 0] = 1.0
                basis = np.stack([offset, level, slope], axis=1)
                found[:, :3] = _solved(basis, moments, on_y, pull)
            else:
                level[:, 0] += found[:, 0]
                at_slope = (moments @ slope[:, :, None])[:, :, 0]
                shared = (slope * on_y).sum(axis=1) - (level * at_slope).sum(axis=1)
                found[:, 2 + q] = shared / ((slope * at_slope).sum(axis=1) + pull)
        if np.abs(found - before).max() <= _SETTLED * (1 + np.abs(found).max()):
            break
    found[:, :3] *= sums.spread_F[:, None]
    found[:, 0] += sums.centre_F
    return found


def _scale(y_N: FloatArray, fit_FN: FloatArray, n_F: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean and standard deviation of g in the fit cells; 1 where it does not vary there."""
    centre = (fit_FN @ y_N) / n_F
    about = y_N - y_N.mean()
    variance = (fit_FN @ np.square(about)) / n_F - np.square((fit_FN @ about) / n_F)
    varies = variance > 1e-20 * max(float(np.square(about).max()), 1e-300)
    return centre, np.sqrt(np.where(varies, variance, 1.0))


def _start(
    moments: FloatArray, on_y: FloatArray, pull: FloatArray, n_predictors: int
) -> FloatArray:
    """The additive line: level 1, so that each factor's slope is its predictor's coefficient."""
    single = [0, *(1 << q for q in range(n_predictors))]
    basis = np.zeros((len(on_y), len(single), moments.shape[1]))
    basis[:, range(len(single)), single] = 1.0
    line = _solved(basis, moments, on_y, pull)
    found = np.ones((len(on_y), 2 + n_predictors))
    found[:, 0] = line[:, 0] - 1.0
    found[:, 2:] = line[:, 1:]
    return found


def _as_pairs(found: FloatArray) -> list[FloatArray]:
    """Each factor as (level, slope), the gate's first; shape (F, 2) each."""
    one = np.ones(len(found))
    outer = [np.stack([one, found[:, q]], axis=1) for q in range(3, found.shape[1])]
    return [found[:, 1:3], *outer]


def _halves(pairs: list[FloatArray], q: int) -> tuple[FloatArray, FloatArray]:
    """Weights of the products for factor q at level 1 and at slope 1, the others held; (F, C)."""
    one = np.ones((len(pairs[0]), 1))
    level, slope = (
        _outer([*pairs[:q], np.concatenate(pair, axis=1), *pairs[q + 1 :]])
        for pair in ((one, 0 * one), (0 * one, one))
    )
    return level, slope


def _outer(pairs: list[FloatArray]) -> FloatArray:
    weights = np.ones((len(pairs[0]), 1))
    for pair in pairs:
        weights = np.concatenate([weights * pair[:, :1], weights * pair[:, 1:]], axis=1)
    return weights


def _solved(
    basis: FloatArray, moments: FloatArray, on_y: FloatArray, pull: FloatArray
) -> FloatArray:
    """Least squares on a basis of products, all coefficients but the first pulled; (F, basis)."""
    gram = basis @ moments @ basis.transpose(0, 2, 1)
    diagonal = np.arange(1, gram.shape[1])
    gram[:, diagonal, diagonal] += pull[:, None]
    solution = np.linalg.solve(gram, basis @ on_y[:, :, None])
    return np.asarray(solution[:, :, 0])
