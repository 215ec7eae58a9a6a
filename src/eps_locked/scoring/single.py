"""Everything a score document says of one predictor in one design."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from eps_locked.errors import StatsInputError
from eps_locked.scoring.design import Design, Folded, build_design
from eps_locked.scoring.folded import covariate_predictions, line_predictions
from eps_locked.scoring.gates import inoculation_of_metric, proximity
from eps_locked.scoring.intervals import (
    Clusters,
    difference_measure,
    r2_measure,
    refitted_lines,
    spearman_measure,
)
from eps_locked.scoring.measures import Measure, absent, null_of, or_none
from eps_locked.scoring.parts import (
    Beyond,
    Part,
    absent_part,
    beyond_rows_and_columns,
    score_beyond,
    score_part,
    square_parts,
)
from eps_locked.scoring.predictor import Predictor
from eps_locked.scoring.tensor import RELEASABLE, BehaviourTable, Cell
from eps_locked.stats.ranks import spearman, spearman_rows
from eps_locked.stats.regression import ols, r_squared_columns
from eps_locked.stats.tobit import tobit

__all__ = ["Ground", "ground_of", "score_predictor", "sensitivity_designs", "tobit_ground"]

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

COVARIATES = ("realised_strength", "prefix_tokens")


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Ground:
    """What every predictor of a design is held against, made once.

    covariates_NC: may have no column. tobit: cells for the censored fit, or why there is none.
    """

    design: Design
    parts: Mapping[str, Part]
    parts_reason: str | None
    beyond: Beyond | None
    covariate_names: tuple[str, ...]
    covariates_NC: FloatArray
    sensitivity: tuple[tuple[tuple[str, ...], Design], ...]
    censored: Censored | None


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Censored:
    """Scored and saturated cells, g kept within its bounds, and how many sit at one."""

    cells: tuple[Cell, ...]
    behaviour: str
    y_N: FloatArray
    lower_N: FloatArray
    upper_N: FloatArray
    n_low: int
    n_high: int

    @property
    def share(self) -> float:
        return (self.n_low + self.n_high) / len(self.cells)


def ground_of(
    design: Design,
    sensitivity: tuple[tuple[tuple[str, ...], Design], ...] = (),
    censored: Censored | None = None,
) -> Ground:
    """Parts, additive model and covariates of a design."""
    parts, reason = square_parts(design)
    names, covariates = _covariates(design)
    return Ground(
        design=design,
        parts=parts,
        parts_reason=reason,
        beyond=None if design.reason else beyond_rows_and_columns(design),
        covariate_names=names,
        covariates_NC=covariates,
        sensitivity=sensitivity,
        censored=censored,
    )


def score_predictor(ground: Ground, predictor: Predictor) -> dict[str, Any]:
    """The block of one predictor; see docs/scoring.md S9."""
    design = ground.design
    if design.reason is not None:
        return _unscored(ground, predictor, design.reason)
    alpha, sign = design.settings.alpha, predictor.sign
    # The predictor in the first column, its relabellings behind: one path for both.
    x_NM = np.column_stack(
        [design.predictor(predictor.values), design.relabelled(predictor.values)]
    )
    # A fifth of them for what stands further back, at a fifth of the price.
    few_NM = x_NM[:, : 1 + design.settings.n_part_permutations]
    two, one = (_lines(folded, x_NM, design.y_N) for folded in (design.two, design.one))
    within = design.within_N
    rho_M = spearman_rows(x_NM.T, design.y_N)
    return {
        "metric": predictor.metric,
        "spearman": _spearman(design, x_NM, rho_M, None, sign),
        "r2": {
            "leave_two_out": _r2(design, two, design.two.reason, None, x_N=x_NM[:, 0]),
            "leave_one_out": _r2(design, one, design.one.reason, None),
        },
        "within_family": _family(design, few_NM, two, within, sign),
        "cross_family": _family(design, few_NM, two, ~within, sign),
        "parts": {
            name: score_part(ground.parts[name], few_NM, alpha, sign)
            if name in ground.parts
            else absent_part(str(ground.parts_reason))
            for name in ("symmetric", "antisymmetric", "interaction")
        },
        "over_additive": None
        if ground.beyond is None
        else score_beyond(design, ground.beyond, few_NM, alpha),
        "over_covariates": _over_covariates(ground, few_NM),
        "blind": _blind(design, predictor, None if two is None else two[:, 0]),
        "gates": {
            "proximity": proximity(design, x_NM[:, 0], sign),
            "inoculation": inoculation_of_metric(design, predictor.values, sign),
        },
        "sensitivity": [_sensitivity(*row, predictor) for row in ground.sensitivity],
        "tobit": _tobit(ground, predictor),
        "resolution": _resolution(design, rho_M[1:]),
    }


# --- parts of the block ---------------------------------------------------------------------------


def _lines(folded: Folded, x_NM: FloatArray, y_N: FloatArray) -> FloatArray | None:
    return None if folded.matrix is None else line_predictions(x_NM, y_N, folded.matrix)


def _spearman(
    design: Design, x_NM: FloatArray, rho_M: FloatArray, keep: BoolArray | None, sign: float
) -> Measure:
    x, y = (x_NM, design.y_N) if keep is None else (x_NM[keep], design.y_N[keep])
    null = null_of(or_none(float(rho_M[0])), rho_M[1:], design.settings.alpha, two_sided=True)
    found = spearman_measure(
        x[:, 0], y, Clusters.of(design, keep), null=null, bootstrap=keep is None
    )
    value = found["value"]
    return {**found, "oriented": None if value is None else sign * value}


def _r2(
    design: Design,
    predicted_NM: FloatArray | None,
    reason: str | None,
    keep: BoolArray | None,
    *,
    x_N: FloatArray | None = None,
) -> Measure:
    """``x_N``: the predictor, where the predictions are its leave-two-out lines at all cells."""
    n = design.n if keep is None else int(keep.sum())
    if predicted_NM is None:
        return absent(n, str(reason))
    y, predicted = design.y_N, predicted_NM
    if keep is not None:
        few = 1 + design.settings.n_part_permutations
        y, predicted = y[keep], predicted[keep][:, :few]
    r2 = r_squared_columns(y, predicted)
    null = null_of(or_none(float(r2[0])), r2[1:], design.settings.alpha)
    return r2_measure(
        y,
        predicted[:, 0],
        Clusters.of(design, keep),
        null=null,
        bootstrap=keep is None,
        refitted_K=None if x_N is None else refitted_lines(design, x_N),
    )


def _family(
    design: Design,
    x_NM: FloatArray,
    predicted_NM: FloatArray | None,
    keep: BoolArray,
    sign: float,
) -> dict[str, Any]:
    """Scores on some of the cells, predicted by lines fitted on all fit cells."""
    n, least = int(keep.sum()), design.settings.minimum_cells
    reason = None
    if not design.knows_families:
        reason = "the families of the contexts are not known"
    elif n < least:
        reason = f"{n} cells, at least {least} needed"
    if reason is not None:
        return {
            "n": n,
            "spearman": {**absent(n, reason), "oriented": None},
            "r2": absent(n, reason),
        }
    return {
        "n": n,
        "spearman": _spearman(
            design, x_NM, spearman_rows(x_NM[keep].T, design.y_N[keep]), keep, sign
        ),
        "r2": _r2(design, predicted_NM, design.two.reason, keep),
    }


def _covariates(design: Design) -> tuple[tuple[str, ...], FloatArray]:
    """Those that every scored cell has and that vary; z-normalised per behaviour when pooled."""
    names, columns = [], []
    for name in COVARIATES:
        of_pieces = []
        for piece in design.pieces:
            values = [getattr(cell, name) for cell in piece.scored]
            if not values or any(value is None for value in values):
                break
            column = np.array(values, dtype=np.float64)
            if piece.pooled:
                spread = float(column.std())
                column = (column - column.mean()) / (spread if spread > 0 else 1.0)
            of_pieces.append(column)
        else:
            column = np.concatenate(of_pieces)
            if np.ptp(column) > 0:
                names.append(name)
                columns.append(column)
    return tuple(names), np.stack(columns, axis=1) if columns else np.zeros((design.n, 0))


def covariates_alone(ground: Ground) -> dict[str, Any]:
    """What the covariates explain without any metric."""
    design, names = ground.design, list(ground.covariate_names)
    if not names or design.two.matrix is None:
        reason = design.two.reason if names else "no covariate is known for every scored cell"
        return {"names": names, "r2": None, "reason": reason}
    nothing = np.zeros((design.n, 1))
    alone, _ = covariate_predictions(ground.covariates_NC, nothing, design.y_N, design.two.matrix)
    return {
        "names": names,
        "r2": r2_measure(design.y_N, alone, Clusters.of(design)),
        "reason": None,
    }


def _over_covariates(ground: Ground, x_NM: FloatArray) -> dict[str, Any]:
    design, names = ground.design, list(ground.covariate_names)
    empty = {"names": names, "covariates_r2": None, "with_predictor_r2": None}
    if not names or design.two.matrix is None:
        reason = design.two.reason if names else "no covariate is known for every scored cell"
        return {**empty, "delta_r2": absent(design.n, str(reason))}
    alone, together = covariate_predictions(
        ground.covariates_NC, x_NM, design.y_N, design.two.matrix
    )
    base = float(r_squared_columns(design.y_N, alone[:, None])[0])
    r2 = r_squared_columns(design.y_N, together)
    null = null_of(float(r2[0]) - base, r2[1:] - base, design.settings.alpha)
    return {
        "names": names,
        "covariates_r2": or_none(base),
        "with_predictor_r2": or_none(float(r2[0])),
        "delta_r2": difference_measure(
            design.y_N, together[:, 0], alone, Clusters.of(design), null=null
        ),
    }


def _blind(design: Design, predictor: Predictor, own_N: FloatArray | None) -> dict[str, Any]:
    """The same metric with the cross-behaviour mean vector in place of the behaviour's own."""
    empty = {"spearman": None, "r2": None, "difference": None, "beats": "not applicable"}
    if not predictor.blind:
        return {**empty, "reason": "the metric gives no blind values"}
    if len({behaviour for behaviour, _, _ in predictor.values}) < 2:
        return {**empty, "reason": "with one behaviour the mean over behaviours is the behaviour"}
    if own_N is None or design.two.matrix is None:
        return {**empty, "reason": design.two.reason}
    n = design.settings.n_part_permutations
    x_NM = np.column_stack(
        [design.predictor(predictor.blind), design.relabelled(predictor.blind, n)]
    )
    blind = line_predictions(x_NM, design.y_N, design.two.matrix)
    own, other = (
        refitted_lines(design, column)
        for column in (design.predictor(predictor.values), x_NM[:, 0])
    )
    difference = difference_measure(
        design.y_N,
        own_N,
        blind[:, 0],
        Clusters.of(design),
        refitted_K=None if own is None or other is None else own - other,
    )
    low, high = difference["low"], difference["high"]
    beats = "undetermined"
    if low is not None and low > 0:
        beats = "yes"
    elif high is not None and high < 0:
        beats = "no"
    return {
        "reason": None,
        "spearman": spearman(x_NM[:, 0], design.y_N),
        "r2": _r2(design, blind, None, None),
        "difference": difference,
        "beats": beats,
    }


def sensitivity_designs(
    table: BehaviourTable, design: Design
) -> tuple[tuple[tuple[str, ...], Design], ...]:
    """Designs with excluded cells let in: saturated ones, failed implants, all; none twice."""
    present = {flag for cell in table.cells for flag in cell.reasons() if flag in RELEASABLE}
    found: list[tuple[tuple[str, ...], Design]] = []
    for group in (("ceiling", "floor"), ("implant_failed",), RELEASABLE):
        flags = tuple(flag for flag in group if flag in present)
        if flags and flags not in [known for known, _ in found]:
            wider = build_design(table, design.settings, let_in=flags)
            if wider.n > design.n:
                found.append((flags, wider))
    return tuple(found)


def _sensitivity(included: tuple[str, ...], design: Design, predictor: Predictor) -> dict[str, Any]:
    x_N = design.predictor(predictor.values)
    r2 = additive = None
    if design.two.matrix is not None:
        predicted = line_predictions(x_N[:, None], design.y_N, design.two.matrix)
        r2 = or_none(float(r_squared_columns(design.y_N, predicted)[0]))
    if design.reason is None:
        additive = beyond_rows_and_columns(design).additive_r2
    return {
        "included": list(included),
        "n": design.n,
        "spearman": spearman(x_N, design.y_N) if design.n >= 3 else None,
        "r2": r2,
        "additive_r2": additive,
    }


def tobit_ground(table: BehaviourTable) -> Censored | None:
    """Scored and saturated cells. A saturated cell without a stated bound is censored at its g."""
    cells = [cell for cell in table.cells if not set(cell.reasons()) - {"floor", "ceiling"}]
    if not cells:
        return None
    y, lower, upper = [], [], []
    for cell in cells:
        g = float(cell.g if cell.g is not None else math.nan)
        low = -math.inf if cell.lower is None else cell.lower
        high = math.inf if cell.upper is None else cell.upper
        if "floor" in cell.flags:
            low = max(low, g)
        if "ceiling" in cell.flags and "base_ceiling" not in cell.flags:
            high = min(high, g)
        y.append(g)
        lower.append(low)
        upper.append(high)
    y_N, lower_N, upper_N = (np.array(column) for column in (y, lower, upper))
    return Censored(
        cells=tuple(cells),
        behaviour=table.behaviour,
        y_N=y_N,
        lower_N=lower_N,
        upper_N=upper_N,
        n_low=int((y_N <= lower_N).sum()),
        n_high=int((y_N >= upper_N).sum()),
    )


def _tobit(ground: Ground, predictor: Predictor) -> dict[str, Any]:
    censored, least = ground.censored, ground.design.settings.censored_share
    if censored is None:
        return _no_tobit(0, 0, 0, 0.0, "not fitted on pooled behaviours")
    n, share = len(censored.cells), censored.share
    counts = (n, censored.n_low, censored.n_high, share)
    n_at_bound = censored.n_low + censored.n_high
    if share < least:
        return _no_tobit(
            *counts, f"{n_at_bound} of {n} cells at a bound ({share:.1%}), below {least:.0%}"
        )
    x = np.array([predictor.values[censored.behaviour, c.train, c.eval] for c in censored.cells])
    try:
        fit = tobit(x[:, None], censored.y_N, censored.lower_N, censored.upper_N)
    except StatsInputError as error:
        return _no_tobit(*counts, f"{error.problem or error.thing}: {error.found}")
    line = ols(x[:, None], censored.y_N)
    left = censored.y_N - line.predict(x[:, None])
    return {
        **_no_tobit(*counts, None),
        "tobit": {
            "intercept": float(fit.coefficients_P1[0]),
            "slope": float(fit.coefficients_P1[1]),
            "sigma": fit.sigma,
            "log_likelihood": fit.log_likelihood,
            "converged": fit.converged,
        },
        "ols": {
            "intercept": float(line.coefficients_P1[0]),
            "slope": float(line.coefficients_P1[1]),
            "sigma": float(np.sqrt(np.square(left).mean())),
        },
    }


def _no_tobit(n: int, n_low: int, n_high: int, share: float, reason: str | None) -> dict[str, Any]:
    return {
        "reason": reason,
        "n": n,
        "n_low": n_low,
        "n_high": n_high,
        "share": share,
        "tobit": None,
        "ols": None,
    }


def _resolution(design: Design, null_M: FloatArray, power: float = 0.8) -> dict[str, Any]:
    """What |Spearman| this design finds, from the spread of the relabelled metric alone."""
    alpha = design.settings.alpha
    null = null_M[np.isfinite(null_M)]
    basis = f"two-sided {alpha:.0%}, power {power:.0%}, spread of the relabelled metric"
    empty = {"smallest_significant": None, "minimum_detectable": None, "basis": basis}
    if len(null) == 0 or float(np.ptp(null)) == 0:
        return {**empty, "reason": "the relabelled metric does not vary"}
    # p = (1 + reached) / (1 + M) <= alpha leaves at most this many relabellings at or above.
    allowed = int(alpha * (1 + len(null))) - 1
    sizes = np.sort(np.abs(null))[::-1]
    z = np.arctanh(np.clip(null, -1 + 1e-12, 1 - 1e-12))
    normal = NormalDist()
    reach = normal.inv_cdf(1 - alpha / 2) + normal.inv_cdf(power)
    return {
        "reason": None,
        "smallest_significant": float(sizes[allowed]) if allowed >= 0 else None,
        "minimum_detectable": float(np.tanh(reach * np.sqrt(np.mean(np.square(z))))),
        "basis": basis,
    }


def _unscored(ground: Ground, predictor: Predictor, reason: str) -> dict[str, Any]:
    """The same block for a design in which nothing can be scored."""
    design = ground.design
    none = absent(design.n, reason)
    missing = {"n": design.n, "spearman": {**none, "oriented": None}, "r2": none}
    return {
        "metric": predictor.metric,
        "spearman": {**none, "oriented": None},
        "r2": {"leave_two_out": none, "leave_one_out": none},
        "within_family": missing,
        "cross_family": missing,
        "parts": {
            name: absent_part(reason) for name in ("symmetric", "antisymmetric", "interaction")
        },
        "over_additive": None,
        "over_covariates": {
            "names": [],
            "covariates_r2": None,
            "with_predictor_r2": None,
            "delta_r2": none,
        },
        "blind": {
            "reason": reason,
            "spearman": None,
            "r2": None,
            "difference": None,
            "beats": "not applicable",
        },
        "gates": {
            "proximity": proximity(design, design.predictor(predictor.values), predictor.sign)
            if design.n
            else {**_empty_gate(reason), "n_within": 0, "n_cross": 0},
            "inoculation": inoculation_of_metric(design, predictor.values, predictor.sign),
        },
        "sensitivity": [_sensitivity(*row, predictor) for row in ground.sensitivity],
        "tobit": _tobit(ground, predictor),
        "resolution": {
            "reason": reason,
            "smallest_significant": None,
            "minimum_detectable": None,
            "basis": "",
        },
    }


def _empty_gate(reason: str) -> dict[str, Any]:
    facts = dict.fromkeys(("effect", "low", "high", "p", "p_opposite"))
    return {"status": "undetermined", **facts, "reason": reason}
