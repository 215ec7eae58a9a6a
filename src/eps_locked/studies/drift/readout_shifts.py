"""Internal readouts: how far training moved a model along trait directions.

A projection is one number for a prompt: the activation along a trait's direction of unit length,
at the layer that was fixed before. A readout is sensitive and not specific: sound advice alone
moves it as well, so every shift stands beside the benign one, and beside the noise of seeds.

Shape letters: M models, P prompts, B resamples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from eps_locked.errors import MalformedInputError
from eps_locked.stats.checks import FloatArray, IntArray
from eps_locked.stats.stem_bootstrap import StemEffect, stem_effects, stem_means
from eps_locked.studies.drift.outcomes import Draws

__all__ = ["ModelReadout", "Readouts", "readout_entry"]

BASE = "base"


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelReadout:
    """One model's projections, trait -> prompt -> number. ``topic`` is None for the base."""

    model: str
    topic: str | None
    dose_percent: float | None
    seed: int | None
    projections: Mapping[str, Mapping[str, float]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Readouts:
    """``full`` and ``reference`` name the models whose distance is the full shift."""

    layer: int
    full: str
    reference: str
    models: tuple[ModelReadout, ...]


def readout_entry(readouts: Readouts, draws: Draws) -> dict[str, Any]:
    """By trait, each model's mean shift from the reference over the prompts, and as a share of the
    full model's.

    Prompts are resampled, the same ones for every model, so a share's interval is of a ratio of
    paired means; a share is given only where the full shift's own interval leaves zero out.
    ``benign_shift`` is the reference less the base, ``per_benign`` a shift over that.
    ``noise_floor_seeds``: mean absolute distance of two seeds' readouts, and
    ``noise_floor_prompts``: standard deviation of the share over resamples; both as shares of the
    full shift.

    Raises MalformedInputError for a model that is missing, or read on other traits or prompts.
    """
    by_name = {one.model: one for one in readouts.models}
    for what in ("full", "reference"):
        name = getattr(readouts, what)
        if name not in by_name:
            raise MalformedInputError(
                f"readouts: {what}", expected=f"one of {', '.join(by_name)}", found=name
            )
    first = readouts.models[0]
    prompts = sorted(next(iter(first.projections.values()), {}))
    traits = list(first.projections)
    for one in readouts.models:
        _require_same(one, traits, prompts)
    if len(prompts) < 2:
        raise MalformedInputError("readouts: prompts", expected="at least two", found=len(prompts))
    weights = draws.weights("readout prompts", len(prompts))
    return {
        "layer": readouts.layer,
        "n_prompts": len(prompts),
        "full": readouts.full,
        "reference": readouts.reference,
        "traits": [
            {
                "trait": trait,
                "models": _of_trait(readouts, trait, prompts, weights, draws),
            }
            for trait in traits
        ],
    }


def _of_trait(
    readouts: Readouts,
    trait: str,
    prompts: Sequence[str],
    weights: IntArray,
    draws: Draws,
) -> list[dict[str, Any]]:
    read_MP = np.array(
        [[one.projections[trait][prompt] for prompt in prompts] for one in readouts.models],
        dtype=np.float64,
    )
    place = {one.model: m for m, one in enumerate(readouts.models)}
    moved = [m for m, one in enumerate(readouts.models) if one.model != readouts.reference]
    shifts_MP = read_MP - read_MP[place[readouts.reference]]
    level = draws.settings.confidence_level
    effects = stem_effects(shifts_MP[moved], weights, [level])
    resampled_BM = stem_means(shifts_MP, weights)
    full = effects[moved.index(place[readouts.full])][0]
    full_B = resampled_BM[:, place[readouts.full]]
    benign = float(-shifts_MP[place[BASE]].mean()) if BASE in place else None
    seeds = _seed_floor(readouts, read_MP)
    entries = []
    for m, effect in zip(moved, effects, strict=True):
        entry: dict[str, Any] = {
            "model": readouts.models[m].model,
            "shift": effect[0].mean,
            "low": effect[0].low,
            "high": effect[0].high,
            "share_of_full": None,
            "share_low": None,
            "share_high": None,
            "benign_shift": benign,
            "per_benign": effect[0].mean / benign if benign else None,
            "noise_floor_seeds": None,
            "noise_floor_prompts": None,
        }
        if full.excludes_zero:
            entry |= _share(effect[0], full, resampled_BM[:, m], full_B, level)
            entry["noise_floor_seeds"] = None if seeds is None else seeds / abs(full.mean)
        entries.append(entry)
    return entries


def _share(
    effect: StemEffect, full: StemEffect, shift_B: FloatArray, full_B: FloatArray, level: float
) -> dict[str, float | None]:
    """Each resample's shift over the same resample's full shift, which is hardly ever exactly 0."""
    defined = shift_B[full_B != 0] / full_B[full_B != 0]
    tail = (1 - level) / 2
    low, high = np.quantile(defined, [tail, 1 - tail], method="linear")
    return {
        "share_of_full": effect.mean / full.mean,
        "share_low": float(low),
        "share_high": float(high),
        "noise_floor_prompts": float(defined.std()),
    }


def _seed_floor(readouts: Readouts, read_MP: FloatArray) -> float | None:
    """Mean absolute difference of the mean readouts of two seeds of one topic and dose."""
    means = read_MP.mean(axis=1)
    differences = [
        abs(float(means[m] - means[n]))
        for (m, one), (n, other) in combinations(enumerate(readouts.models), 2)
        if one.topic is not None
        and (one.topic, one.dose_percent) == (other.topic, other.dose_percent)
        and one.seed != other.seed
    ]
    return sum(differences) / len(differences) if differences else None


def _require_same(one: ModelReadout, traits: Sequence[str], prompts: Sequence[str]) -> None:
    if sorted(one.projections) != sorted(traits):
        raise MalformedInputError(
            f"readout of {one.model}: traits",
            expected=", ".join(sorted(traits)),
            found=", ".join(sorted(one.projections)),
        )
    for trait, by_prompt in one.projections.items():
        if sorted(by_prompt) != list(prompts):
            raise MalformedInputError(
                f"readout of {one.model}: prompts of {trait}",
                expected=f"the {len(prompts)} prompts of the other models",
                found=f"{len(by_prompt)} prompts",
            )
