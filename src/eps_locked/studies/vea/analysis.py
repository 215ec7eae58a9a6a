"""The whole analysis of study ``vea``: scores in, one document out.

Pure: the executor, the check of the evidence and ``vea analyse`` call the same function, and equal
rows in any order within a reward model give equal bytes. The unit of evidence is the prompt (stem):
items that answer one prompt are averaged first. Families are tested with the exact signed-rank
test, the other families together under a false discovery rate; ``verdicts`` says what is called
what, ``deltas`` what is subtracted.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, get_args

from eps_locked.stats.breadth import breadth_interval, resampled_verdicts
from eps_locked.stats.multiplicity import benjamini_hochberg
from eps_locked.studies.common.rounding import rounded
from eps_locked.studies.vea.deltas import (
    RESPONSES,
    FamilyDeltas,
    ItemScores,
    ModelScores,
    by_reward_model,
    deltas_of,
    role_of,
)
from eps_locked.studies.vea.effects import Draws, against_anchor, effect_entry, joint_weights
from eps_locked.studies.vea.items import ANCHOR, FAMILIES, NEUTRAL, Family, Measure
from eps_locked.studies.vea.settings import VeaSettings
from eps_locked.studies.vea.verdicts import breadth_counts, family_verdict, gate_entry, headline

__all__ = ["SCHEMA", "ItemScores", "analyse"]

SCHEMA = "eps-locked/vea-breadth/1"
MEASURES: Final[tuple[Measure, ...]] = get_args(Measure)
Entry = dict[str, Any]


def analyse(
    scores: Sequence[ItemScores],
    settings: VeaSettings,
    power: Mapping[str, Any] | None = None,
    *,
    identities: Mapping[str, Mapping[str, Any]] | None = None,
    expected: Mapping[str, str | None] | None = None,
    label: Literal["confirmatory", "exploratory"] = "exploratory",
) -> dict[str, Any]:
    """The document ``breadth.json``; floats at 10 significant digits, nothing undefined but None.

    ``power`` is passed on as the power step wrote it. ``identities`` and ``expected`` (the headline
    an arm of known truth has to get) are by reward model. ``label`` is the caller's to know:
    confirmatory only for what a frozen plan promised.

    Reward models stand in the order in which they first come. Raises MalformedInputError for rows
    that do not fit (``deltas.by_reward_model``).
    """
    draws = Draws(settings)
    document: dict[str, Any] = rounded(
        {
            "schema": SCHEMA,
            "label": label,
            "settings": dataclasses.asdict(settings),
            "power": None if power is None else dict(power),
            "reward_models": [
                _reward_model(
                    model,
                    draws,
                    identity=(identities or {}).get(model.name),
                    expected=(expected or {}).get(model.name),
                )
                for model in by_reward_model(scores, settings.normalise)
            ],
        }
    )
    return document


def _reward_model(
    model: ModelScores, draws: Draws, *, identity: Mapping[str, Any] | None, expected: str | None
) -> Entry:
    settings = draws.settings
    families = [name for name in FAMILIES if any(row.family == name for row in model.rows)]
    deltas = {
        measure: {family: deltas_of(model, family, measure) for family in families}
        for measure in MEASURES
    }
    entries = {family: _family(model, family, deltas, draws) for family in families}
    for measure in MEASURES:
        _judge([entries[family] for family in families], measure, settings)
    primary = deltas[settings.primary]
    weights = joint_weights(list(primary.values()), draws)
    for family, entry in entries.items():
        entry["against_anchor"] = (
            None
            if family == ANCHOR or ANCHOR not in primary
            else against_anchor(primary[family], primary[ANCHOR], weights, settings)
        )
    others = [one for one in entries.values() if one["role"] == "other"]
    gates = _gates(entries, settings)
    breadth = breadth_counts(others, settings)
    breadth |= _breadth_interval(others, primary, weights, breadth["score"], settings)
    breadth |= _breadth_minima(others, settings)
    said, why = headline(entries.get(ANCHOR), others, gates, breadth, settings)
    statuses = Counter(row.statuses[one] for row in model.rows for one in RESPONSES)
    return {
        "reward_model": model.name,
        "identity": None if identity is None else dict(identity),
        "expected": expected,
        "agrees": None if expected is None else said == expected,
        "unit": model.unit,
        "n_scores": statuses["scored"],
        "statuses": dict(sorted(statuses.items())),
        "scale": {"mean_base": model.mean_base, "sd_base": model.sd_base},
        "families": list(entries.values()),
        "gates": gates,
        "breadth": breadth,
        "headline": said,
        "why": why,
    }


def _family(
    model: ModelScores,
    family: Family,
    deltas: Mapping[Measure, Mapping[Family, FamilyDeltas]],
    draws: Draws,
) -> Entry:
    """One family's entry, without verdicts. Counts are those of the primary measure."""
    settings = draws.settings
    items = [row for row in model.rows if row.family == family]
    counted = deltas[settings.primary][family]
    effects: dict[str, Any] = {
        measure: effect_entry(deltas[measure][family], draws, _n_tested(deltas[measure], settings))
        for measure in MEASURES
    }
    return {
        "family": family,
        "role": role_of(family),
        "n_items": len(items),
        "n_stems": len({row.stem for row in items}),
        "n_pairs": counted.n_pairs,
        "left_out": dict(counted.left_out),
        "n_ties": counted.n_ties,
        "measured": len(counted.stems) >= settings.minimum_items,
        **effects,
    }


def _n_tested(deltas: Mapping[Family, FamilyDeltas], settings: VeaSettings) -> int:
    return sum(
        role_of(one.family) == "other" and len(one.stems) >= settings.minimum_items
        for one in deltas.values()
    )


def _judge(entries: Sequence[Entry], measure: Measure, settings: VeaSettings) -> None:
    """Adjust over the other families that have enough prompts, then the verdict on each family."""
    tested = [
        one[measure]
        for one in entries
        if one["role"] == "other" and one[measure]["wilcoxon"]["n"] >= settings.minimum_items
    ]
    adjusted = benjamini_hochberg([effect["p"] for effect in tested])
    for effect, p in zip(tested, adjusted, strict=True):
        effect["p_adjusted"] = float(p)
    for one in entries:
        effect = one[measure]
        effect["verdict"], effect["why"] = family_verdict(effect, settings)


def _gates(entries: Mapping[Family, Entry], settings: VeaSettings) -> list[Entry]:
    """The neutral control always, the decoy where there are items of it."""
    gates = [gate_entry(one, settings) for one in entries.values() if one["role"] == "gate"]
    if NEUTRAL not in entries:
        missing = {"gate": NEUTRAL, "holds": "undetermined", "why": "there is no item of it"}
        gates.insert(0, missing)
    return gates


def _breadth_interval(
    others: Sequence[Entry],
    primary: Mapping[Family, FamilyDeltas],
    weights: Mapping[Family, Any],
    score: float | None,
    settings: VeaSettings,
) -> Entry:
    measured = [one["family"] for one in others if one["measured"]]
    if not measured or score is None:
        return {"low": None, "high": None}
    found = resampled_verdicts(
        [primary[family].deltas for family in measured],
        [weights[family] for family in measured],
        alpha=settings.alpha,
        margin=settings.margin,
        equivalence_level=settings.equivalence_level,
    )
    # Families that were not measured are found in no resample, as they were not in the sample.
    share = len(measured) / len(others)
    low, high = breadth_interval(found, score / share, settings.confidence_level)
    return {"low": low * share, "high": high * share}


def _breadth_minima(others: Sequence[Entry], settings: VeaSettings) -> Entry:
    """The largest of the families' minimum detectable differences: none of them hides more."""
    effects = [one[settings.primary] for one in others]
    return {
        key: max((one[key] for one in effects if one[key] is not None), default=None)
        for key in ("minimum_detectable_alone", "minimum_detectable_all")
    }
