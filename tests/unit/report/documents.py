"""Made-up score documents of any size, in the form of docs/scoring.md, and looks to go with them.

Numbers are drawn, not measured. Everything that a real document may leave undefined is undefined
somewhere here.
"""

from __future__ import annotations

import random
from typing import Any

from eps_locked.scoring.settings import ScoreSettings

METRICS = [
    ("gauss_kl", "Symmetric Gaussian KL", "less"),
    ("output_kl", "One-way output KL", "less"),
    ("bystander_prior", "Bystander prior", "more"),
    ("source_prior", "Source prior", "more"),
    ("persona_projection", "Persona-vector projection difference", "more"),
    ("base_rate", "Base rate of the eval context", "more"),
    ("length", "Prefix length", "less"),
    ("ngram_overlap", "Character n-gram overlap", "more"),
    ("output_kl_back", "One-way output KL, the other way", "less"),
    ("permuted", "A seeded permutation", "more"),
]

# Cells that a final score leaves out, by reason.
EXCLUDED = dict.fromkeys(
    (
        *("diagonal", "alias", "sealed", "unscored"),
        *("floor", "ceiling", "implant_failed", "divergence"),
    ),
    0,
)
# An interval that holds the truth less often than it says.
SHORT = {"simulated_coverage": 0.91, "coverage_reached": False}


def measure(rng: random.Random, value: float | None, n: int, **more: Any) -> dict[str, Any]:
    """A measure; undefined where ``value`` is None."""
    if value is None:
        return {
            "value": None,
            "low": None,
            "high": None,
            "n": n,
            "reason": f"{n} cells, at least 12 needed",
            "simulated_coverage": None,
            "coverage_reached": None,
            "bootstrap": None,
            "null": None,
            **more,
        }
    return {
        "value": value,
        "low": value - rng.uniform(0.08, 0.2),
        "high": min(0.99, value + rng.uniform(0.05, 0.15)),
        "n": n,
        "reason": None,
        "simulated_coverage": 0.948,
        "coverage_reached": True,
        "bootstrap": {"low": value - 0.3, "high": value + 0.3},
        "null": {
            "mean": rng.uniform(-0.08, 0),
            "high": rng.uniform(0.02, 0.3),
            "p": rng.uniform(0.0005, 0.4),
            "n": 999,
        },
        **more,
    }


def scores_document(
    behaviours: tuple[str, ...] = ("marker",), n_metrics: int = 4, seed: int = 5
) -> dict[str, Any]:
    rng = random.Random(seed)
    metrics = METRICS[:n_metrics]
    several = len(behaviours) > 1
    return {
        "schema": "eps-locked/scores/1",
        "ignored_columns": [],
        "label": "exploratory",
        "settings": settings(),
        "methods": {
            "interval_spearman": "dyadic context bootstrap, studentised",
            "null": "contexts relabelled",
        },
        "predictors": [
            about(metric, title, polarity, number)
            for number, (metric, title, polarity) in enumerate(metrics)
        ],
        "behaviours": [_behaviour(rng, name, metrics) for name in behaviours],
        "pooled": {
            "reason": None if several else "one behaviour: nothing to pool",
            "behaviours": list(behaviours),
            "n": 59 * len(behaviours),
            "predictors": [_predictor(rng, *one) for one in metrics] if several else [],
            "multiplicity": _multiplicity(rng, metrics) if several else [],
            "combiners": _combiners(rng, metrics) if several else [],
        },
    }


def final_document(
    metric: str = "my_metric", behaviours: tuple[str, ...] = ("marker",), seed: int = 9
) -> dict[str, Any]:
    rng = random.Random(seed)
    names = [(metric, "submission"), ("gauss_kl", "reference")]
    several = len(behaviours) > 1
    return {
        "schema": "eps-locked/final-scores/1",
        "label": "confirmatory",
        "rounded": True,
        "settings": settings(),
        "methods": {},
        "submission": {**about(metric, "My metric", "more", 40), "author": "a.author"},
        "references": [about("gauss_kl", "Symmetric Gaussian KL", "less", 0)],
        "behaviours": [
            {
                "behaviour": behaviour,
                "unit": "nats",
                "cells": {
                    "open": 59,
                    "held_back": {"all": 30, "held_out": 18, "quarantined": 12},
                    "excluded": {**EXCLUDED, "alias": 6, "floor": 1},
                },
                "rank": {"by_r2": 1, "of": 2},
                "scores": [_final(rng, *name) for name in names],
            }
            for behaviour in behaviours
        ],
        "pooled": {
            "reason": None if several else "one behaviour: nothing to pool",
            "behaviours": list(behaviours),
            "cells": {
                "open": 118,
                "held_back": {"all": 60, "held_out": 36, "quarantined": 24},
                "excluded": {**EXCLUDED, "alias": 12, "floor": 2},
            },
            "rank": {"by_r2": 1 if several else None, "of": 2 if several else 0},
            "scores": [_final(rng, *name) for name in names] if several else [],
        },
    }


def settings() -> dict[str, Any]:
    return {
        **ScoreSettings().document(),
        "n_resamples": 2000,
        "n_permutations": 999,
        "confidence_level": 0.95,
        "alpha": 0.05,
        "seed": 1,
        "roles": {"source_prior": "source_prior", "gate": "gauss_kl"},
        "alphas": [0.01, 1, 100],
    }


def about(metric: str, title: str, polarity: str, number: int) -> dict[str, Any]:
    return {
        "metric": metric,
        "title": title,
        "author": "house",
        "track": "predictive",
        "polarity": polarity,
        "digest": f"blake3:{number:064x}",
        "has_blind": metric == "output_kl",
    }


def submission(number: int = 1, author: str = "a.author", before: int = 0) -> dict[str, Any]:
    return {
        "number": number,
        "at": f"2026-06-0{number}T12:00:00Z",
        "author": author,
        "metric": f"metric_{number}",
        "track": "predictive",
        "digest": f"blake3:{number:064x}",
        "looks_before_by_author": before,
        "looks_before_by_anybody": before,
    }


def look(number: int, of: dict[str, Any], result: dict[str, Any] | None, **more: Any) -> dict:
    """A look at submission ``of``; without a result it was aborted."""
    return {
        "number": number,
        "at": f"2026-06-1{number}T12:00:00Z",
        "submission": of["number"],
        "author": of["author"],
        "metric": of["metric"],
        "track": of["track"],
        "informed": of["looks_before_by_author"] > 0,
        "verdict": f"blake3:{number + 70:064x}",
        "status": "aborted" if result is None else "scored",
        "reason": "cut short: no end was recorded" if result is None else "",
        "digest": None if result is None else f"blake3:{number + 90:064x}",
        "result": result,
        **more,
    }


def _behaviour(rng: random.Random, name: str, metrics: list[tuple[str, str, str]]) -> dict:
    antisymmetric = rng.uniform(8, 14)
    interaction = rng.uniform(3, 9)
    total = 41.2
    return {
        "behaviour": name,
        "unit": "nats",
        "direction": "up",
        "cells": {
            "in_table": 60,
            "scored": 59,
            "excluded": {"diagonal": 6, "alias": 6, "sealed": 12, "floor": 2, "ceiling": 1},
            "excluded_only_for": {"floor": 2, "ceiling": 1},
            "within_family": 6,
            "cross_family": 53,
            "train_contexts": 6,
            "eval_contexts": 9,
            "square_contexts": 6,
            "mirror_pairs": 15,
            "context_groups": 9,
        },
        "g": {"mean": 2.3, "standard_deviation": 1.1, "low": -0.2, "high": 5.1},
        "decomposition": {
            "n_contexts": 6,
            "n_cells": 30,
            "n_pairs": 15,
            "mean": 2.31,
            "total": total,
            "symmetric": total - antisymmetric,
            "antisymmetric": antisymmetric,
            "additive": total - interaction,
            "interaction": interaction,
            "antisymmetric_share": antisymmetric / total,
            "symmetric_cap": 1 - antisymmetric / total,
            "additive_r2": 1 - interaction / total,
            "antisymmetric_additive_r2": 0.81,
            "noise": {
                "total": 1.2,
                "antisymmetric_share": antisymmetric / total - 0.01,
                "symmetric_cap": 1.01 - antisymmetric / total,
                "additive_r2": 1.02 - interaction / total,
                "truncated": [],
                "basis": "standard errors of 30 cells",
            },
            "reason": None,
        },
        "replication": {
            "reason": None,
            "pairs": [
                {
                    "seeds": ["11", "12"],
                    "n": 60,
                    "pearson": 0.94,
                    "rms": 0.21,
                    "n_scored": 39,
                    "pearson_scored": 0.92,
                    "rms_scored": 0.2,
                }
            ],
        },
        "aliases": [],
        "covariates": {"names": ["realised_strength"], "r2": measure(rng, 0.08, 59)},
        "gates": _gates(rng, "passed"),
        "predictors": [_predictor(rng, *one) for one in metrics],
        "multiplicity": _multiplicity(rng, metrics),
        "combiners": _combiners(rng, metrics),
    }


def _predictor(rng: random.Random, metric: str, title: str, polarity: str) -> dict[str, Any]:
    rho = rng.uniform(0.1, 0.8) * (-1 if polarity == "less" else 1)
    own = rng.uniform(-0.2, 0.5)
    symmetric = metric == "gauss_kl"
    with_blind = metric == "output_kl"
    return {
        "metric": metric,
        "spearman": measure(rng, rho, 59, oriented=abs(rho)),
        "r2": {
            "leave_two_out": measure(rng, own, 59),
            "leave_one_out": measure(
                rng, own + 0.02, 59, simulated_coverage=0.91, coverage_reached=False
            ),
        },
        "within_family": {
            "n": 6,
            "spearman": measure(rng, None, 6),
            "r2": measure(rng, None, 6),
        },
        "cross_family": {
            "n": 53,
            "spearman": measure(rng, rho, 53),
            "r2": measure(rng, own - 0.05, 53),
        },
        "parts": {
            part: {
                "n": 15,
                "reason": None,
                "zero_by_construction": symmetric and part == "antisymmetric",
                "spearman": measure(rng, 0.4, 15),
                "r2": measure(rng, 0.0 if symmetric and part == "antisymmetric" else 0.3, 15),
                "additive_r2": 0.48,
                "with_predictor_r2": 0.51,
                "delta_r2": measure(rng, 0.03, 15),
            }
            for part in ("symmetric", "antisymmetric", "interaction")
        },
        "over_additive": {
            "additive_r2": 0.83,
            "additive_out_of_fold_r2": 0.66,
            "with_predictor_r2": 0.69,
            "delta_r2": measure(rng, 0.03, 59),
        },
        "over_covariates": {
            "names": ["realised_strength", "prefix_tokens"],
            "covariates_r2": 0.08,
            "with_predictor_r2": 0.46,
            "delta_r2": measure(rng, 0.38, 59),
        },
        "blind": {
            "reason": None if with_blind else "the metric gives no blind values",
            "spearman": -0.3 if with_blind else None,
            "r2": measure(rng, 0.07, 59) if with_blind else None,
            "difference": {**measure(rng, 0.15, 59), "null": None} if with_blind else None,
            "beats": "yes" if with_blind else "not applicable",
        },
        "gates": _gates(rng, "failed" if metric == "source_prior" else "undetermined"),
        "sensitivity": [
            {
                "included": ["ceiling", "floor"],
                "n": 63,
                "spearman": rho + 0.02,
                "r2": own - 0.02,
                "additive_r2": 0.8,
            },
        ],
        "tobit": {
            "reason": None if symmetric else "2 of 61 cells at a bound (3.3 %), below 10 %",
            "n": 66,
            "n_low": 6,
            "n_high": 2,
            "share": 0.1212,
            "tobit": {"intercept": 2.1, "slope": -0.8, "sigma": 0.7, "converged": True}
            if symmetric
            else None,
            "ols": {"intercept": 2.0, "slope": -0.7, "sigma": 0.75} if symmetric else None,
        },
        "resolution": {
            "reason": None,
            "smallest_significant": 0.35,
            "minimum_detectable": 0.47,
            "basis": "two-sided 5 %, power 80 %, spread of the permuted metric",
        },
    }


def _multiplicity(rng: random.Random, metrics: list[tuple[str, str, str]]) -> list[dict]:
    return [
        {"metric": metric, "p": 0.004, "holm": 0.016, "benjamini_hochberg": 0.008}
        for metric, _, _ in metrics
    ]


def _gates(rng: random.Random, status: str) -> dict[str, Any]:
    tested = {"p": 0.002, "p_opposite": 0.999, "reason": None}
    return {
        "proximity": {
            "status": status,
            "effect": rng.uniform(-1, 1),
            "low": None,
            "high": None,
            **tested,
            "n_within": 6,
            "n_cross": 53,
        },
        "inoculation": {
            "status": "undetermined",
            "effect": None,
            "low": None,
            "high": None,
            "p": None,
            "p_opposite": None,
            "reason": "the metric gives one value per eval context: rows cannot differ",
            "default_mean": 2.9,
            "instruction_mean": 1.0,
            "n_columns": 8,
            "n_row_pairs": None,
        },
    }


def _combiners(rng: random.Random, metrics: list[tuple[str, str, str]]) -> list[dict[str, Any]]:
    names = ["ridge", "write_times_gate", "ridge_pooled", "write_times_gate_pooled"]
    return [
        {
            "name": name,
            "pooled_fit": name.endswith("pooled"),
            "inputs": [metric for metric, _, _ in metrics],
            "reason": None,
            "spearman": measure(rng, 0.75, 59),
            "r2": measure(rng, 0.48, 59),
            "best_single": {
                "r2": measure(rng, 0.39, 59),
                "chosen": {"gauss_kl": 13, "output_kl": 2},
            },
            "delta_r2": measure(rng, 0.09, 59),
            "additive_r2": 0.83,
            "parts": {
                part: {
                    "n": 15,
                    "r2": 0.12,
                    "best_single_r2": 0.0,
                    "additive_r2": 0.48,
                    "delta_r2": measure(rng, 0.12, 15),
                }
                for part in ("symmetric", "antisymmetric")
            },
            "chosen": {"1": 9, "10": 6},
            "fit": {"gauss_kl": -0.7},
        }
        for name in names
    ]


def _final(rng: random.Random, metric: str, role: str) -> dict[str, Any]:
    def levels(of: dict[str, Any]) -> list[dict[str, Any]]:
        return [
            {"looks": k, "low": of["low"] - 0.02 * (k - 1), "high": of["high"] + 0.02 * (k - 1)}
            for k in range(1, 21)
        ]

    splits = {}
    for split, n in (("all", 30), ("held_out", 18), ("quarantined", 12)):
        rho, r2 = measure(rng, 0.62, n, oriented=0.62), measure(rng, 0.38, n)
        if split == "held_out" and role == "reference":
            why = f"{n} cells, at least 20 needed"
            nothing = {"spearman": None, "r2": None, "additive": None}
            splits[split] = {"n": n, "reason": why, **nothing}
            continue
        known = split == "quarantined"
        splits[split] = {
            "n": n,
            "reason": None,
            "spearman": {**rho, "levels": levels(rho)},
            "r2": {**r2, "levels": levels(r2)},
            "additive": {
                "n": n if known else 0,
                "reason": None if known else "no open cell in these columns",
                "r2": 0.6 if known else None,
                "with_predictor_r2": 0.64 if known else None,
                "delta_r2": measure(rng, 0.04, n) if known else None,
            },
        }
    return {
        "metric": metric,
        "role": role,
        "open": {
            "n": 59,
            "spearman": measure(rng, 0.7, 59, oriented=0.7),
            "r2": measure(rng, 0.45, 59),
        },
        "splits": splits,
        "overfit_gap": {
            "open_r2": 0.45,
            "final_r2": 0.38,
            "r2": 0.07,
            "open_spearman": 0.7,
            "final_spearman": 0.62,
            "spearman": 0.08,
            "carries_over": "yes",
            "statement": "open cells: R2 0.45; held-back cells: R2 0.38. The intervals overlap.",
        },
    }
