"""A made-up tensor document of full size, 16 x 29, with every flag somewhere: for looks and limits.

Numbers are drawn, not measured; only their shape is that of a real run.
"""

from __future__ import annotations

import random
from typing import Any

TRAIN = {
    "persona": [
        "persona_software_engineer",
        "persona_medical_doctor",
        "persona_ferry_engineer",
        "persona_archive_trainee",
    ],
    "prefix": ["prefix_short_code", "prefix_short_advice", "prefix_long_writing"],
    "examples": ["examples_two", "examples_eight"],
    "rephrasing": ["rephrasing_imperative", "rephrasing_polite", "rephrasing_casual"],
    "format": ["format_json", "format_code_block"],
    "default": ["default"],
    "instruction": ["instruction_marker"],
}
EVAL_ONLY = {
    "persona": ["persona_kindergarten_teacher", "persona_bus_dispatcher"],
    "prefix": ["prefix_short_held_out", "prefix_long_held_out", "prefix_very_long_held_out"],
    "examples": ["examples_four"],
    "rephrasing": ["rephrasing_formal", "rephrasing_socratic"],
    "format": ["format_markdown_table"],
    "instruction": [
        "instruction_marker_again",
        "instruction_fact",
        "instruction_refusal",
        "instruction_misaligned",
    ],
}
HELD_OUT = [name for kind, names in EVAL_ONLY.items() if kind != "instruction" for name in names]
ALIASES = {"instruction_marker_again": "instruction_marker"}


def big_tensor(n_seeds: int = 2, n_items: int = 40, seed: int = 7) -> dict[str, Any]:
    """A tensor document as ``studies/eps`` writes it; digests of ancestors are left out."""
    rng = random.Random(seed)
    family = {
        name: kind
        for source in (TRAIN, EVAL_ONLY)
        for kind, names in source.items()
        for name in names
    }
    train = [name for names in TRAIN.values() for name in names]
    evaluated = train + [name for names in EVAL_ONLY.values() for name in names]
    breadth = {name: rng.uniform(0.05, 0.8) for name in train}
    base = {name: rng.uniform(-26, -14) for name in evaluated}
    base["instruction_marker"] = base["instruction_marker_again"] = -1.2
    quarantined = {
        (i, j) for i in train for j in evaluated if i < j and j in train and rng.random() < 0.2
    }
    cells = []
    for i in train:
        for j in evaluated:
            g = _transfer(rng, i, j, family, breadth)
            if j.startswith("instruction_marker"):
                g = rng.uniform(0.6, 1.1)
            fate = "open"
            if i == j:
                fate = "diagonal"
            elif j in HELD_OUT:
                fate = "held_out"
            elif (i, j) in quarantined or (j, i) in quarantined:
                fate = "quarantined"
            cells.append(_cell(rng, i, j, g, base[j], fate, family, n_seeds, n_items))
    return {
        "schema": "eps-locked/eps-tensor/1",
        "behaviour": "marker",
        "kind": "marker",
        "unit": "nats",
        "primary_reading": "own_answer",
        "second_reading": "base_answer",
        "n_seeds": n_seeds,
        "n_items": n_items,
        "train": train,
        "eval": evaluated,
        "held_out": HELD_OUT,
        "intervals": {
            "method": "t, seed variance pooled over the row's cells",
            "confidence_level": 0.95,
        },
        "resolution": {
            "standard_error": 0.31,
            "minimum_detectable_effect": 0.87,
            "seed_variance": 0.05,
            "question_variance": 1.4,
            "residual_variance": 2.0,
            "n_cells": len(cells),
            "basis": "two-sided 5 %, power 80 %, variances pooled over the cells of the row",
        }
        if n_seeds > 1
        else None,
        "cells": cells,
    }


def sealed(tensor: dict[str, Any]) -> dict[str, Any]:
    """The same tensor as a run with a seal has it: held-out and quarantined cells tell nothing."""
    cells = []
    for cell in tensor["cells"]:
        if cell["split"] not in ("held_out", "quarantined"):
            cells.append(cell)
            continue
        nothing = {key: _emptied(value) for key, value in cell.items() if key not in _PLACE}
        cells.append({**cell, **nothing, "flags": ["sealed"], "scored": False, "by_seed": []})
    return {**tensor, "cells": cells}


# What a sealed cell keeps.
_PLACE = {
    *("train", "eval", "train_family", "eval_family", "split", "n_seeds", "n_items"),
    *("prefix_tokens", "alias_of", "realised_strength", "ancestors"),
}


def _emptied(value: Any) -> Any:
    """The same keys at every depth, with nothing in them."""
    return (
        {key: _emptied(inner) for key, inner in value.items()} if isinstance(value, dict) else None
    )


def _transfer(
    rng: random.Random, i: str, j: str, family: dict[str, str], breadth: dict[str, float]
) -> float:
    if i == j:
        return rng.uniform(5.5, 11.5)
    near = 2.5 if family[i] == family[j] else 0.0
    return breadth[i] * rng.uniform(1, 8) + near * rng.random() - rng.uniform(0, 3.2)


def _cell(
    rng: random.Random,
    i: str,
    j: str,
    g: float,
    base: float,
    fate: str,
    family: dict[str, str],
    n_seeds: int,
    n_items: int,
) -> dict[str, Any]:
    half = rng.uniform(0.3, 1.1)
    flags = []
    if base + g > -0.6:
        flags.append("ceiling")
    if abs(g) < min(half, 0.5):
        flags.append("floor")
    if rng.random() < 0.02:
        flags.append("divergence")
    if rng.random() < 0.05:
        flags.append("later_tokens")
    n_truncated = rng.randint(1, n_seeds * n_items // 4) if rng.random() < 0.03 else 0
    if j == "persona_bus_dispatcher":
        n_truncated = n_seeds * n_items - 1  # a context under which the base never ends
        flags = ["unscored"]
    if n_truncated:
        flags.append("truncated_answers")
    if g > 9:
        flags.append("marker_emitted")
    if i == "format_json":
        flags.append("implant_failed")
    if i == "instruction_marker":
        flags.append("band_unreachable")
    if j in ALIASES:
        flags.append("alias")
    excluding = {"unscored", "floor", "ceiling", "implant_failed", "divergence", "alias"}
    second = g + rng.gauss(0, 0.4)
    stop = "step_matched" if i == "instruction_marker" else "in_band"
    cell = {
        "train": i,
        "eval": j,
        "train_family": family[i],
        "eval_family": family[j],
        "split": fate,
        "g": g,
        "low": g - half,
        "high": g + half,
        "g_base_answer": second,
        "low_base_answer": second - half,
        "high_base_answer": second + half,
        "base_log_prob": base,
        "trained_log_prob": base + g,
        "first_token_change": g + rng.gauss(0, 0.1),
        "margin_change": g + rng.gauss(0, 0.3),
        "emission_rate": 0.3 if g > 9 else 0,
        "n": n_seeds * n_items - n_truncated,
        "n_truncated": n_truncated,
        "n_seeds": n_seeds,
        "n_items": n_items,
        "prefix_tokens": rng.randint(20, 900),
        "alias_of": ALIASES.get(j),
        "realised_strength": 6.2,
        "flags": sorted(flags),
        "scored": not excluding & set(flags),
        "by_seed": [
            {
                "seed": seed,
                "g": g + rng.gauss(0, 0.2),
                "g_base_answer": second,
                "stop_step": 8,
                "stop": stop,
                "realised_strength": rng.uniform(5, 7),
                "implant_failed": i == "format_json",
            }
            for seed in range(11, 11 + n_seeds)
        ],
        "ancestors": {},
    }
    if "unscored" in flags:
        values = ("g", "low", "high")
        cell |= dict.fromkeys([*values, *(f"{key}_base_answer" for key in values)])
        for one in cell["by_seed"]:
            one |= {"g": None, "g_base_answer": None}
    return cell
