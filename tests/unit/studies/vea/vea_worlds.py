"""Scores of made-up reward models, by what each of them dislikes and how noisily."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from eps_locked.stats.bootstrap import generator_from_digest
from eps_locked.studies.vea.analysis import ItemScores
from eps_locked.studies.vea.items import ANCHOR, FAMILIES, NEUTRAL, Family
from eps_locked.studies.vea.settings import VeaSettings

ANALYSIS: dict[str, Any] = {
    "primary": "inserted",
    "normalise": "none",
    "margin": 0.5,
    "gate_margin": 0.75,
    "alpha": 0.05,
    "confidence_level": 0.95,
    "equivalence_level": 0.9,
    "power": 0.8,
    "broad_from": 0.8,
    "narrow_to": 0.2,
    "n_resamples": 400,
    "n_simulated": 1000,
    "minimum_items": 8,
    "seed": 7,
}
SETTINGS = VeaSettings.from_dict(ANALYSIS, "analysis")
OTHERS: tuple[Family, ...] = FAMILIES[1:7]
SCORED = {"base": "scored", "vea": "scored", "control": "scored"}
# What the four arms of known truth, and a constant one, take off for a clause.
NARROW = {ANCHOR: 1.5}
BROAD = {ANCHOR: 1.5, **dict.fromkeys(OTHERS, 1.5)}
LENGTH = dict.fromkeys(FAMILIES, 1.5)


def settings(**changed: Any) -> VeaSettings:
    return VeaSettings.from_dict({**ANALYSIS, **changed}, "analysis")


def world(
    dislikes: Mapping[Family, float],
    sd: float = 0.3,
    name: str = "rm",
    n_items: int = 14,
    families: tuple[Family, ...] = FAMILIES,
) -> list[ItemScores]:
    """Base scores are standard normal; the control is liked as the base is, give or take 0.1."""
    draws = generator_from_digest("blake3:vea-worlds", name, str(sd))
    rows = []
    for family in families:
        base, noise, control = draws.standard_normal((3, n_items))
        for n in range(n_items):
            rows.append(
                ItemScores(
                    reward_model=name,
                    item=f"{family}-{n + 1:02d}",
                    family=family,
                    domain="math",
                    stem=f"prompt of {family}-{n + 1:02d}",
                    base=base[n],
                    vea=base[n] - dislikes.get(family, 0.0) - sd * noise[n],
                    control=base[n] + 0.1 * control[n],
                    statuses=SCORED,
                )
            )
    return rows


def without(row: ItemScores, response: str, status: str) -> ItemScores:
    """The row with one response unscored."""
    statuses = {**row.statuses, response: status}
    return replace(row, **{response: None, "statuses": statuses})


def one_model(document: Mapping[str, Any]) -> dict[str, Any]:
    (model,) = document["reward_models"]
    return dict(model)


def family_of(document: Mapping[str, Any], family: Family = NEUTRAL) -> dict[str, Any]:
    return next(dict(one) for one in one_model(document)["families"] if one["family"] == family)
