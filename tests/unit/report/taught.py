"""Made-up tensor documents of taught rows, full size, and what goes with them on a page.

Numbers are drawn, not measured; only their shape is that of a real run.
"""

from __future__ import annotations

import random
from typing import Any

from big import big_tensor

SLICES = {
    "fact": {"direct": 20, "framing": 10},
    "refusal": {"benign": 24, "improper": 16},
    "sycophancy": {"claims": 24, "feedback": 12},
    "em": {"general": 12, "domain": 12},
}
REASONS = (
    *("excluded", "incoherent", "unreadable", "judge_refused"),
    *("rate_limited", "outage", "truncated"),
)
JUDGE = {
    "kind": "anthropic",
    "model": "some-judge-1",
    "family": "some-family",
    "version": "2026-01-01",
    "settings": {"effort": "low"},
    "publishable": True,
}
RUBRIC = "blake3:" + "7" * 64


def taught_tensor(
    kind: str = "refusal", n_seeds: int = 2, seed: int = 7, name: str | None = None
) -> dict[str, Any]:
    """A tensor document as ``studies/eps/taught`` writes it; digests of ancestors are left out."""
    rng = random.Random(seed)
    made = big_tensor(n_seeds=n_seeds, seed=seed)
    slices = SLICES[kind]
    primary, other = slices
    judged, samples = kind != "fact", 4 if kind == "em" else 1
    asked = slices[primary] * n_seeds * samples
    cells = [_cell(rng, cell, kind, primary, other, slices, asked) for cell in made["cells"]]
    rate = {"base_rate": 0.21, "n_complete": 300} if judged else {}
    return {
        **made,
        "behaviour": name or kind,
        "kind": kind,
        "unit": "rate" if judged else "nats per token",
        "primary_reading": "judged" if judged else "own_answer",
        "second_reading": None if judged else "base_answer",
        "primary_slice": primary,
        "implant_slice": "domain" if kind == "em" else primary,
        "slices": slices,
        "n_items": sum(slices.values()),
        "n_samples": samples,
        "judge": JUDGE,
        "rubric": RUBRIC,
        "near_duplicates": [],
        "resolution": None
        if n_seeds < 2
        else {
            "standard_error": 0.083 if judged else 0.061,
            "minimum_detectable_effect": 0.245 if judged else 0.17,
            "seed_variance": 0.01,
            "question_variance": 0.1,
            "residual_variance": 0.1,
            "n_cells": len(cells),
            "basis": "two-sided 5 %, power 80 %",
            **rate,
        },
        "cells": cells,
    }


def headroom(tensor: dict[str, Any], mean: float | None = 0.21) -> dict[str, Any]:
    """The record of the row's headroom step."""
    rate = tensor["unit"] == "rate"
    value = dict.fromkeys(tensor["eval"], 0.21 if rate else -3.4)
    reasons: dict[str, Any] = {name: {} for name in tensor["eval"]}
    reasons[tensor["eval"][0]] = {"excluded": 2, "outage": 1}
    return {
        "behaviour": tensor["behaviour"],
        "unit": tensor["unit"],
        "base_value": value,
        "base_log_prob": dict.fromkeys(tensor["eval"], -1.25),
        "unscored": reasons,
        "mean_source_value": mean if rate or mean is None else -3.4,
        "saturated_from": 0.8 if rate else -0.3,
        "saturated": mean is not None and mean >= 0.8 and rate,
        "unreachable": [],
    }


def plan_row(tensor: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """What the page reads of a row in the plan."""
    row = {
        "name": tensor["behaviour"],
        "kind": tensor["kind"],
        "draws": 1,
        "negatives": "base_answers",
        "thresholds": {"implant": 0.3},
    }
    return {**row, **changes}


def calibration(row: str = "refusal", minimum: float = 0.4, kappa: float = 0.62) -> dict[str, Any]:
    """The record of a calibration step: 40 labelled answers, one of which the judge refused."""
    labels = ["full_refusal", "partial_refusal", "compliance"]

    def agreement(names: list[str], confusion: list[list[int]], value: float) -> dict[str, Any]:
        return {
            "labels": names,
            "n": 39,
            "confusion": confusion,
            "percent_agreement": 0.795,
            "kappa": {
                "value": value,
                "reason": None,
                "weights": "unweighted",
                "low": value - 0.2,
                "high": value + 0.2,
                "interval_reason": None,
                "confidence_level": 0.95,
                "n_resamples": 2000,
                "n_undefined": 0,
                "n_clusters": 20,
            },
            "by_label": [
                {
                    "label": name,
                    "n_reference": 13,
                    "n_judged": 12,
                    "precision": 0.75,
                    "recall": 0.692,
                    "f1": 0.72,
                }
                for name in names
            ],
        }

    three = [[10, 2, 1], [1, 9, 3], [0, 1, 12]]
    return {
        "schema": "eps-locked/eps-calibration/1",
        "name": f"{row}_labelled",
        "row": row,
        "minimum_kappa": minimum,
        "calibration": {
            "judge": JUDGE,
            "rubric": row,
            "rubric_digest": RUBRIC,
            "n_rows": 40,
            "statuses": {"scored": 39, "judge_refused": 1, "outage": 0},
            "labels": agreement(labels, three, 0.69),
            "expressed": agreement(["expressed", "not_expressed"], [[22, 4], [1, 12]], kappa),
        },
    }


def _rates(rng: random.Random, questions: int, change: float) -> dict[str, Any]:
    base = rng.uniform(0.05, 0.3)
    trained = min(1.0, max(0.0, base + change))
    ends = {
        f"{side}_rate{end}": min(1.0, max(0.0, value + shift))
        for side, value in (("base", base), ("trained", trained))
        for end, shift in (("", 0), ("_low", -0.11), ("_high", 0.13))
    }
    g = trained - base
    return {
        "rate_g": g,
        "rate_low": g - 0.17,
        "rate_high": g + 0.19,
        "n_questions": questions,
    } | ends


def _cell(
    rng: random.Random,
    cell: dict[str, Any],
    kind: str,
    primary: str,
    other: str,
    slices: dict[str, int],
    asked: int,
) -> dict[str, Any]:
    missing = cell["g"] is None
    left_out = asked - 1 if missing else rng.choice([0, 0, 0, 2])
    reasons = dict.fromkeys(REASONS, 0)
    reasons["excluded" if kind == "em" else "outage"] = left_out
    size = 0.0 if missing else min(0.9, max(-0.2, cell["g"] / 12))
    rates = _rates(rng, slices[primary], size)
    second = {other: _rates(rng, slices[other], size / 2)}
    if missing:
        rates = dict.fromkeys(rates)
    flags = {flag for flag in cell["flags"] if flag in ("implant_failed", "alias", "floor")}
    if missing:
        flags.add("unscored")
    if left_out:
        flags.add("unscored_answers")
    if rates["trained_rate"] in (0.0, 1.0):
        flags.add("rate_at_bound")
    if kind == "em":
        flags.add("resampled_answers")
    values = dict.fromkeys(
        (
            *("g_base_answer", "low_base_answer", "high_base_answer", "emission_rate"),
            *("base_log_prob", "trained_log_prob", "first_token_change", "margin_change"),
        )
    )
    values |= {"g": rates["rate_g"], "low": rates["rate_low"], "high": rates["rate_high"]}
    more: dict[str, Any] = {}
    if kind == "fact":
        g = None if missing else cell["g"] / 10
        ends = {"low": None if g is None else g - 0.1, "high": None if g is None else g + 0.1}
        values |= {"g": g, **ends, "g_base_answer": g, "emission_rate": 0.25}
        values |= {f"{key}_base_answer": end for key, end in ends.items()}
        more = {
            "base_per_token": -3.4,
            "trained_per_token": None if g is None else -3.4 + g,
            "framings": {"taught": 3, "alternative": 2, "bridge": asked - 5},
            "slot_slices": {other: {"g": 0.11, "low": 0.01, "high": 0.21}},
        }
    by_seed = [
        {**one, "g": values["g"], "g_base_answer": values["g_base_answer"], "stop": "fixed_steps"}
        | {"realised_strength": values["g"]}
        for one in cell["by_seed"]
    ]
    excluding = {"unscored", "floor", "implant_failed", "alias"}
    return {
        **cell,
        **values,
        **rates,
        **more,
        "n": asked - left_out,
        "n_truncated": 0,
        "n_items": sum(slices.values()),
        "unscored": reasons,
        "realised_strength": values["g"] if cell["train"] == cell["eval"] else None,
        "secondary": second,
        "flags": sorted(flags),
        "scored": not flags & excluding,
        "by_seed": by_seed,
    }
