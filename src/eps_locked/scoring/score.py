"""The open score: predictors against the cells that anyone may look at.

``score_open`` is the whole of it, a pure function of a tensor, predictors and settings; the command
line and the study's own scoring call the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import numpy as np
import numpy.typing as npt

from eps_locked.errors import MalformedInputError, StatsInputError
from eps_locked.scoring.combiners import Combination, combine, combiner_blocks
from eps_locked.scoring.design import Design, build_design, build_pooled
from eps_locked.scoring.gates import inoculation_in_g, proximity
from eps_locked.scoring.predictor import (
    Predictor,
    predictor_digest,
    require_coverage,
    tensor_cells,
)
from eps_locked.scoring.settings import LABELS, ScoreSettings
from eps_locked.scoring.single import (
    covariates_alone,
    ground_of,
    score_predictor,
    sensitivity_designs,
    tobit_ground,
)
from eps_locked.scoring.tensor import BehaviourTable, ScoreTensor, exclusion_counts
from eps_locked.stats.decomposition import decompose, square_table
from eps_locked.stats.multiplicity import benjamini_hochberg, holm
from eps_locked.stats.ranks import pearson

__all__ = ["METHODS", "SCORES_SCHEMA", "predictor_head", "score_open"]

SCORES_SCHEMA = "eps-locked/scores/1"
FloatArray = npt.NDArray[np.float64]

METHODS = {
    "interval_spearman": "jackknife over contexts, residual-corrected, t, on Fisher's z",
    "interval_r2": "jackknife over contexts, residual-corrected, t, on log(1 - R2)",
    "interval_difference": "jackknife over contexts, residual-corrected, t",
    "bootstrap": "percentile bootstrap over contexts, for comparison",
    "null": "contexts relabelled: those on both sides jointly, one-sided ones among themselves",
    "leave_two_out": "line fitted on cells that touch neither context of the predicted pair",
    "leave_one_out": "line fitted on cells that do not touch the context; mean of both predictions",
    "beyond_rows_and_columns": "one mirror pair left out at a time",
}


def score_open(
    tensor: ScoreTensor,
    predictors: Sequence[Predictor],
    settings: ScoreSettings | None = None,
    *,
    label: str = "exploratory",
    n_processes: int = 1,
) -> dict[str, Any]:
    """The score document of docs/scoring.md S9, ready for canonical JSON.

    label: whether the caller's manifest lists this analysis. n_processes: behaviours are scored in
    so many processes at once; the numbers do not depend on it. Raises MalformedInputError where a
    predictor does not cover the tensor, and for two predictors of one id.
    """
    settings = settings or ScoreSettings()
    require_scorable(tensor, predictors, label)
    predictors = tuple(predictors)
    pooled, pooled_reason = _pooled_design(tensor, settings)
    combination = combine(pooled, predictors) if pooled is not None else None
    jobs = []
    start = 0
    for table in tensor.tables:
        rows = None
        if pooled is not None:
            n = build_design(table, settings).n
            rows, start = slice(start, start + n), start + n
        jobs.append((table, predictors, settings, _rows_of(combination, rows)))
    if n_processes > 1:
        # Fresh interpreters: a fork would copy the threads of the linear algebra library.
        with ProcessPoolExecutor(n_processes, mp_context=get_context("spawn")) as pool:
            futures = [pool.submit(_score_behaviour, *job) for job in jobs]
            last = pool.submit(
                _score_pooled, tensor, pooled_reason, predictors, settings, combination
            )
            behaviours, pooled_block = [future.result() for future in futures], last.result()
    else:
        behaviours = [_score_behaviour(*job) for job in jobs]
        pooled_block = _score_pooled(tensor, pooled_reason, predictors, settings, combination)
    return {
        "schema": SCORES_SCHEMA,
        "label": label,
        "settings": settings.document(),
        "methods": dict(METHODS),
        "predictors": [predictor_head(predictor) for predictor in predictors],
        "ignored_columns": list(tensor.ignored),
        "behaviours": behaviours,
        "pooled": pooled_block,
    }


def require_scorable(tensor: ScoreTensor, predictors: Sequence[Predictor], label: str) -> None:
    """Every predictor covers the tensor, and each id stands once."""
    if label not in LABELS:
        raise MalformedInputError("label", expected=" or ".join(LABELS), found=label)
    names = [predictor.metric for predictor in predictors]
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise MalformedInputError("predictors", expected="each metric once", found=doubled)
    cells = tensor_cells(tensor)
    for predictor in predictors:
        require_coverage(predictor, cells)


def predictor_head(predictor: Predictor) -> dict[str, Any]:
    return {
        "metric": predictor.metric,
        "title": predictor.title,
        "author": predictor.author,
        "track": predictor.track,
        "polarity": predictor.polarity,
        "digest": predictor_digest(predictor),
        "has_blind": bool(predictor.blind),
    }


# --- one behaviour --------------------------------------------------------------------------------


def _score_behaviour(
    table: BehaviourTable,
    predictors: tuple[Predictor, ...],
    settings: ScoreSettings,
    pooled: tuple[Combination, slice | None] | None,
) -> dict[str, Any]:
    design = build_design(table, settings)
    ground = ground_of(design, sensitivity_designs(table, design), tobit_ground(table))
    scores = [score_predictor(ground, predictor) for predictor in predictors]
    own = combine(design, predictors) if predictors else None
    return {
        "behaviour": table.behaviour,
        "unit": table.unit,
        "direction": table.direction,
        "cells": _cell_counts(table, design),
        "g": _spread_of(design.y_N),
        "decomposition": _decomposition(table, design),
        "replication": _replication(table),
        "aliases": _aliases(table),
        "covariates": covariates_alone(ground),
        "gates": {
            "proximity": proximity(design, design.y_N) if design.n else proximity_of_nothing(),
            "inoculation": inoculation_in_g(design),
        },
        "predictors": scores,
        "multiplicity": multiplicity(scores),
        "combiners": [] if own is None else combiner_blocks(ground, own, pooled),
    }


def proximity_of_nothing() -> dict[str, Any]:
    facts = dict.fromkeys(("effect", "low", "high", "p", "p_opposite"))
    return {
        "status": "undetermined",
        **facts,
        "reason": "no scored cells",
        "n_within": 0,
        "n_cross": 0,
    }


def multiplicity(scores: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """p of the primary R2 (leave two out), adjusted for the number of predictors that have one."""
    known = [
        (score["metric"], score["r2"]["leave_two_out"]["null"]["p"])
        for score in scores
        if score["r2"]["leave_two_out"]["null"] is not None
    ]
    p = [value for _, value in known]
    return [
        {"metric": metric, "p": value, "holm": float(h), "benjamini_hochberg": float(q)}
        for (metric, value), h, q in zip(known, holm(p), benjamini_hochberg(p), strict=True)
    ]


def _cell_counts(table: BehaviourTable, design: Design) -> dict[str, Any]:
    excluded, alone = exclusion_counts(table.cells)
    n_within = int(design.within_N.sum())
    square = set(design.train_N.tolist()) & set(design.eval_N.tolist())
    groups = {*design.group_train_N.tolist(), *design.group_eval_N.tolist()}
    return {
        "in_table": len(table.cells),
        "scored": design.n,
        "excluded": excluded,
        "excluded_only_for": alone,
        "within_family": n_within,
        "cross_family": design.n - n_within,
        "train_contexts": len(set(design.train_N.tolist())),
        "eval_contexts": len(set(design.eval_N.tolist())),
        "square_contexts": len(square),
        "mirror_pairs": len(design.pairs),
        "context_groups": len(groups),
    }


def _spread_of(y_N: FloatArray) -> dict[str, Any]:
    if len(y_N) == 0:
        return dict.fromkeys(("mean", "standard_deviation", "low", "high"))
    return {
        "mean": float(y_N.mean()),
        "standard_deviation": float(y_N.std()),
        "low": float(y_N.min()),
        "high": float(y_N.max()),
    }


_DECOMPOSITION = (
    "n_contexts",
    "n_cells",
    "n_pairs",
    "mean",
    "total",
    "symmetric",
    "antisymmetric",
    "additive",
    "interaction",
    "antisymmetric_share",
    "symmetric_cap",
    "additive_r2",
    "antisymmetric_additive_r2",
    "noise",
)


def _decomposition(table: BehaviourTable, design: Design) -> dict[str, Any]:
    """Parts of G on its mirror pairs; the noise from standard errors, else from the seeds."""
    empty = dict.fromkeys(_DECOMPOSITION)
    pairs = design.pairs
    if len(pairs) < 3:
        return {**empty, "reason": f"{len(pairs)} mirror pairs with both cells scored"}
    keep = np.concatenate([pairs.first_D, pairs.second_D])
    cells = design.pieces[0].scored

    def table_of(values: Sequence[float] | FloatArray) -> FloatArray:
        return square_table(design.train_N[keep], design.eval_N[keep], values)[1]

    G = table_of(design.y_N[keep])
    own = [cells[n] for n in keep]
    seeds = table.seeds
    noise: dict[str, Any] = {}
    basis = None
    if all(cell.se is not None for cell in own):
        noise["variance_KK"] = table_of([float(cell.se or 0.0) ** 2 for cell in own])
        basis = f"standard errors of {len(own)} cells"
    elif len(seeds) >= 2 and all(set(seeds) <= set(cell.by_seed) for cell in own):
        noise["replicates_RKK"] = np.stack(
            [table_of([cell.by_seed[seed] for cell in own]) for seed in seeds]
        )
        basis = f"scatter of {len(seeds)} seeds"
    found = decompose(G, **noise)
    result: dict[str, Any] = {
        "n_contexts": len(G),
        "n_cells": found.n_cells,
        "n_pairs": len(pairs),
        "mean": found.mean,
        "total": found.ss_total,
        "symmetric": found.ss_symmetric,
        "antisymmetric": found.ss_antisymmetric,
        "additive": found.ss_additive,
        "interaction": found.ss_interaction,
        "antisymmetric_share": found.antisymmetric_share,
        "symmetric_cap": found.symmetric_cap,
        "additive_r2": found.additive_r2,
        "antisymmetric_additive_r2": found.antisymmetric_additive_r2,
        "noise": None,
        "reason": None,
    }
    if found.noise is not None:
        result["noise"] = {
            "total": found.noise.expected_total,
            "antisymmetric_share": found.noise.antisymmetric_share,
            "symmetric_cap": found.noise.symmetric_cap,
            "additive_r2": found.noise.additive_r2,
            "antisymmetric_additive_r2": found.noise.antisymmetric_additive_r2,
            "reliability": found.noise.reliability,
            "truncated": list(found.noise.truncated),
            "basis": basis,
        }
    return result


def _replication(table: BehaviourTable) -> dict[str, Any]:
    """Every pair of seeds: over all cells that have both, and over the scored ones."""
    seeds = table.seeds
    if len(seeds) < 2:
        return {"reason": f"{len(seeds)} seeds with values, at least 2 needed", "pairs": []}
    pairs = []
    for number, first in enumerate(seeds):
        for second in seeds[number + 1 :]:
            both = [c for c in table.cells if first in c.by_seed and second in c.by_seed]
            n, r, rms = _agreement([(c.by_seed[first], c.by_seed[second]) for c in both])
            scored = [c for c in both if not c.reasons()]
            n_s, r_s, rms_s = _agreement([(c.by_seed[first], c.by_seed[second]) for c in scored])
            pairs.append(
                {
                    "seeds": [first, second],
                    "n": n,
                    "pearson": r,
                    "rms": rms,
                    "n_scored": n_s,
                    "pearson_scored": r_s,
                    "rms_scored": rms_s,
                }
            )
    return {"reason": None, "pairs": pairs}


def _agreement(values: Sequence[tuple[float, float]]) -> tuple[int, float | None, float | None]:
    if len(values) < 3:
        return len(values), None, None
    first, second = np.array(values).T
    return len(values), pearson(first, second), float(np.sqrt(np.square(first - second).mean()))


def _aliases(table: BehaviourTable) -> list[dict[str, Any]]:
    """The same cell measured twice: alias less original, over the train contexts."""
    values = {(cell.train, cell.eval): cell.g for cell in table.cells if cell.g is not None}
    originals: dict[str, str] = {}
    for cell in table.cells:
        if cell.alias_of is not None:
            originals[cell.eval] = cell.alias_of
    result = []
    for alias, original in originals.items():
        found = [
            values[train, alias] - values[train, original]
            for train in table.train
            if (train, alias) in values and (train, original) in values
        ]
        differences = np.array(found)
        result.append(
            {
                "alias": alias,
                "of": original,
                "n": len(found),
                "mean_difference": float(differences.mean()) if found else None,
                "rms_difference": float(np.sqrt(np.square(differences).mean())) if found else None,
                "largest": float(np.abs(differences).max()) if found else None,
            }
        )
    return result


# --- pooled ---------------------------------------------------------------------------------------


def _pooled_design(
    tensor: ScoreTensor, settings: ScoreSettings
) -> tuple[Design | None, str | None]:
    """Behaviours that can be scored, z-normalised and pooled; or why not."""
    if len(tensor.tables) < 2:
        return None, "one behaviour: there is nothing to pool"
    try:
        return build_pooled(tensor.tables, settings), None
    except StatsInputError as error:
        return None, f"{error.thing} {error.problem}"


def _rows_of(
    combination: Combination | None, rows: slice | None
) -> tuple[Combination, slice | None] | None:
    return None if combination is None else (combination, rows)


def _score_pooled(
    tensor: ScoreTensor,
    reason: str | None,
    predictors: tuple[Predictor, ...],
    settings: ScoreSettings,
    combination: Combination | None,
) -> dict[str, Any]:
    if reason is not None or combination is None:
        return {
            "reason": reason,
            "behaviours": [],
            "n": 0,
            "predictors": [],
            "multiplicity": [],
            "combiners": [],
        }
    design = build_pooled(tensor.tables, settings)
    ground = ground_of(design)
    scores = [score_predictor(ground, predictor) for predictor in predictors]
    blocks = combiner_blocks(ground, combination, (combination, None)) if predictors else []
    return {
        "reason": None,
        "behaviours": list(tensor.behaviours),
        "n": design.n,
        "predictors": scores,
        "multiplicity": multiplicity(scores),
        # Own and pooled fits are one thing here; only the pooled names stay.
        "combiners": [block for block in blocks if block["pooled_fit"]],
    }
