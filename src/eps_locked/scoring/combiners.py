"""Several predictors together, fitted inside the folds only, against the best one alone.

Shape letters: N cells, P predictors, M relabellings, D mirror pairs, T tests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from eps_locked.errors import StatsInputError
from eps_locked.scoring.design import Design
from eps_locked.scoring.folded import by_cell
from eps_locked.scoring.gateform import factor_fold_predictions, factor_weights
from eps_locked.scoring.intervals import (
    Clusters,
    difference_measure,
    r2_measure,
    spearman_measure,
)
from eps_locked.scoring.measures import Measure, counted, null_of, or_none
from eps_locked.scoring.predictor import Predictor
from eps_locked.scoring.single import Ground
from eps_locked.scoring.stacking import stack
from eps_locked.stats.folds import FoldMatrix, inner_folds
from eps_locked.stats.moments import standardised
from eps_locked.stats.ranks import spearman_rows
from eps_locked.stats.regression import r_squared, r_squared_columns, ridge_choose

__all__ = ["Combination", "combine", "combiner_blocks"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

NAMES = ("ridge", "write_times_gate")
_LEAST_PREDICTORS = 2


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Combination:
    """Out-of-fold predictions of a design: combiner -> (N, 1 + M), the unpermuted ones first.

    ``reasons``: why a combiner was not fitted. ``best_NM``: the best single predictor, chosen
    inside each fold. ``chosen``: how many folds chose what, by combiner and for ``best_single``.
    """

    inputs: Mapping[str, tuple[str, ...]]
    reasons: Mapping[str, str]
    predicted: Mapping[str, FloatArray]
    best_NM: FloatArray | None
    chosen: Mapping[str, Mapping[str, int]]
    fit: Mapping[str, Mapping[str, float]]


def combine(design: Design, predictors: Sequence[Predictor]) -> Combination:
    """All combiners of a design, with ``n_combiner_permutations`` joint relabellings refitted."""
    names = tuple(predictor.metric for predictor in predictors)
    roles = _roles(design.settings.roles, names)
    inputs = {"ridge": names, "write_times_gate": () if isinstance(roles, str) else roles}
    reasons: dict[str, str] = {}
    if isinstance(roles, str):
        reasons["write_times_gate"] = roles
    if len(names) < _LEAST_PREDICTORS:
        reasons["ridge"] = f"{len(names)} predictors, at least {_LEAST_PREDICTORS} needed"
        reasons.setdefault("write_times_gate", reasons["ridge"])
    if design.two.matrix is None:
        reasons = dict.fromkeys(NAMES, str(design.two.reason))
    if len(reasons) == len(NAMES):
        return _nothing(inputs, reasons)
    n = design.settings.n_combiner_permutations
    X_PNM = np.stack(
        [
            np.column_stack([design.predictor(p.values), design.relabelled(p.values, n)])
            for p in predictors
        ]
    )
    try:
        return _combined(design, design.two.matrix, names, inputs, reasons, X_PNM)
    except StatsInputError as error:
        reason = f"{error.problem or error.thing}: {error.found}"
        return _nothing(inputs, dict.fromkeys(NAMES, reason))


def _combined(
    design: Design,
    matrix: FoldMatrix | None,
    names: tuple[str, ...],
    inputs: Mapping[str, tuple[str, ...]],
    reasons: Mapping[str, str],
    X_PNM: FloatArray,
) -> Combination:
    if matrix is None:
        raise RuntimeError("a design without folds reached the combiners")
    y, touch, settings = design.y_N, design.inner_touch_BN, design.settings
    inner = inner_folds(matrix.fit_FN, touch)
    places = [names.index(name) for name in inputs["write_times_gate"]]
    chosen: dict[str, Mapping[str, int]] = {}
    best: list[FloatArray] = []
    columns: dict[str, list[FloatArray]] = {name: [] for name in NAMES if name not in reasons}
    for m in range(X_PNM.shape[2]):
        X = np.ascontiguousarray(X_PNM[:, :, m].T)
        stacked = stack(X, y, matrix, inner, settings.alphas)
        best.append(by_cell(stacked.best_T[:, None], matrix)[:, 0])
        if "ridge" in columns:
            columns["ridge"].append(by_cell(stacked.ridge_T[:, None], matrix)[:, 0])
        if m == 0:
            chosen["best_single"] = counted([names[p] for p in stacked.best_F])
            chosen["ridge"] = counted([f"{alpha:g}" for alpha in stacked.alpha_F])
    if "write_times_gate" in columns:
        # Over all cells of the design: the form does not depend on it, its small pull does.
        x_MNQ = np.stack([standardised(x_QN.T) for x_QN in np.moveaxis(X_PNM[places], 2, 0)])
        products = by_cell(factor_fold_predictions(x_MNQ, y, matrix), matrix)
        columns["write_times_gate"] = list(products.T)
    fit: dict[str, Mapping[str, float]] = {}
    X = X_PNM[:, :, 0].T
    if "ridge" in columns:
        whole = ridge_choose(X, y, alphas=settings.alphas, touch_GN=touch)
        scaled = whole.fit.coefficients_P1[1:] * X.std(axis=0)
        fit["ridge"] = {"alpha": whole.alpha, **dict(zip(names, map(float, scaled), strict=True))}
    if "write_times_gate" in columns:
        weights = factor_weights(standardised(X[:, places]), y)
        keys = ("offset", "level", *inputs["write_times_gate"])
        fit["write_times_gate"] = dict(zip(keys, map(float, weights), strict=True))
    return Combination(
        inputs=inputs,
        reasons=reasons,
        predicted={name: np.stack(found, axis=1) for name, found in columns.items()},
        best_NM=np.stack(best, axis=1),
        chosen=chosen,
        fit=fit,
    )


def combiner_blocks(
    ground: Ground, own: Combination, pooled: tuple[Combination, slice | None] | None
) -> list[dict[str, Any]]:
    """The blocks of a design: its own fits, and those of the pooled fit on its cells.

    pooled: the pooled combination and which of its rows are this design's (None: all of them).
    """
    blocks = [_block(ground, name, own, own.predicted.get(name), own) for name in NAMES]
    if pooled is not None:
        combination, rows = pooled
        for name in NAMES:
            predicted = combination.predicted.get(name)
            if predicted is not None and rows is not None:
                predicted = _in_units(ground.design, predicted[rows])
            blocks.append(_block(ground, name, combination, predicted, own, pooled_fit=True))
    return blocks


def _block(
    ground: Ground,
    name: str,
    source: Combination,
    predicted_NM: FloatArray | None,
    own: Combination,
    *,
    pooled_fit: bool = False,
) -> dict[str, Any]:
    head = {
        "name": f"{name}_pooled" if pooled_fit else name,
        "pooled_fit": pooled_fit,
        "inputs": list(source.inputs[name]),
    }
    design = ground.design
    if predicted_NM is None or own.best_NM is None:
        reason = source.reasons.get(name) or own.reasons.get(name) or "not fitted"
        return {
            **head,
            "reason": reason,
            "spearman": None,
            "r2": None,
            "best_single": None,
            "delta_r2": None,
            "additive_r2": None,
            "parts": None,
            "chosen": {},
            "fit": {},
        }
    clusters = Clusters.of(design)
    rho = spearman_rows(predicted_NM.T, design.y_N)
    alpha = design.settings.alpha
    return {
        **head,
        "reason": None,
        "spearman": spearman_measure(
            predicted_NM[:, 0],
            design.y_N,
            clusters,
            null=null_of(or_none(float(rho[0])), rho[1:], alpha, two_sided=True),
        ),
        "r2": _r2_with_null(design.y_N, predicted_NM, clusters, alpha),
        "best_single": {
            "r2": _r2_with_null(design.y_N, own.best_NM, clusters, alpha),
            "chosen": dict(own.chosen.get("best_single", {})),
        },
        "delta_r2": _delta(design.y_N, predicted_NM, own.best_NM, clusters, alpha),
        "additive_r2": None if ground.beyond is None else ground.beyond.additive_r2,
        "parts": _parts(ground, predicted_NM, own.best_NM),
        "chosen": dict(source.chosen.get(name, {})),
        "fit": dict(source.fit.get(name, {})),
    }


def _parts(ground: Ground, predicted_NM: FloatArray, best_NM: FloatArray) -> dict[str, Any] | None:
    """Halves of the predictions as they are, without a new slope, on the mirror pairs."""
    design = ground.design
    if ground.parts_reason is not None:
        return None
    a, b = design.pairs.first_D, design.pairs.second_D
    clusters = Clusters.of(design, a).doubled()
    result = {}
    for name, sign in (("symmetric", 1.0), ("antisymmetric", -1.0)):

        def half(values: FloatArray, sign: float = sign) -> FloatArray:
            part = (values[a] + sign * values[b]) / 2
            return np.concatenate([part, sign * part])

        y = half(design.y_N)
        own, best = half(predicted_NM), half(best_NM)
        result[name] = {
            "n": len(a),
            "r2": or_none(r_squared(y, own[:, 0])),
            "best_single_r2": or_none(r_squared(y, best[:, 0])),
            "additive_r2": ground.parts[name].additive_r2,
            "delta_r2": _delta(y, own, best, clusters, design.settings.alpha, n=len(a)),
        }
    return result


def _r2_with_null(
    y_N: FloatArray, predicted_NM: FloatArray, clusters: Clusters, alpha: float
) -> Measure:
    r2 = r_squared_columns(y_N, predicted_NM)
    null = null_of(or_none(float(r2[0])), r2[1:], alpha)
    return r2_measure(y_N, predicted_NM[:, 0], clusters, null=null)


def _delta(
    y_N: FloatArray,
    predicted_NM: FloatArray,
    best_NM: FloatArray,
    clusters: Clusters,
    alpha: float,
    n: int | None = None,
) -> Measure:
    gain = r_squared_columns(y_N, predicted_NM) - r_squared_columns(y_N, best_NM)
    null = null_of(or_none(float(gain[0])), gain[1:], alpha)
    return difference_measure(y_N, predicted_NM[:, 0], best_NM[:, 0], clusters, n=n, null=null)


def _in_units(design: Design, z_NM: FloatArray) -> FloatArray:
    """Predictions of the pooled fit, from z back to the behaviour's own unit."""
    return np.asarray(z_NM * design.y_N.std() + design.y_N.mean())


def _roles(roles: Mapping[str, str], names: tuple[str, ...]) -> tuple[str, ...] | str:
    """The metrics of the multiplicative form, the gate first; or which one is missing."""
    wanted = ["gate", "source_prior", "bystander_prior"]
    if "write" in roles:
        wanted.append("write")
    for role in wanted:
        if roles.get(role) not in names:
            return f"no predictor plays the {role} (settings.roles: {roles.get(role, 'none')})"
    return tuple(roles[role] for role in wanted)


def _nothing(inputs: Mapping[str, tuple[str, ...]], reasons: Mapping[str, str]) -> Combination:
    return Combination(
        inputs=inputs, reasons=reasons, predicted={}, best_NM=None, chosen={}, fit={}
    )
