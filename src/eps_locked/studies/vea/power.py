"""What the plan's items can find, computed before anything is scored. Pure.

In units of the standard deviation that differences have over prompts, which nobody knows before.
Prompts are taken to be as many as items.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eps_locked.stats.paired_power import shown_within
from eps_locked.studies.common.rounding import rounded
from eps_locked.studies.vea.deltas import role_of
from eps_locked.studies.vea.effects import Draws
from eps_locked.studies.vea.items import FAMILIES, Family
from eps_locked.studies.vea.settings import VeaSettings

__all__ = ["POWER_SCHEMA", "power_document"]

POWER_SCHEMA = "eps-locked/vea-power/1"
# Where the curve is drawn; the plan's own numbers are added.
_N_ITEMS = (8, 10, 14, 20, 30, 50)


def power_document(settings: VeaSettings, counts: Mapping[Family, int]) -> dict[str, Any]:
    """Minimum detectable difference by family, a curve over family sizes, and the largest SD at
    which a reward model without any effect is likely to be shown to have none.

    ``counts``: items of each family; those without any are left out. The power that is promised
    holds for the signed-rank tests; a mean that is significant and below the margin is not called
    a dislike.
    """
    draws = Draws(settings)
    families = [family for family in FAMILIES if counts.get(family, 0)]
    n_others = sum(role_of(family) == "other" for family in families)
    sizes = sorted({*_N_ITEMS, *(counts[family] for family in families)})
    other = next(family for family in FAMILIES if role_of(family) == "other")
    document: dict[str, Any] = rounded(
        {
            "schema": POWER_SCHEMA,
            "unit": "standard deviations of the difference over prompts",
            "assumed": "normal differences, one prompt an item, families independent",
            "alpha": settings.alpha,
            "power": settings.power,
            "n_other_families": n_others,
            "n_simulated": settings.n_simulated,
            "families": [_family(draws, family, counts[family], n_others) for family in families],
            "curve": [
                {"n_items": n, **_minima(draws, other, n, n_others)} for n in sizes if n_others
            ],
        }
    )
    return document


def _family(draws: Draws, family: Family, n_items: int, n_others: int) -> dict[str, Any]:
    settings, role = draws.settings, role_of(family)
    margin = settings.gate_margin if role == "gate" else settings.margin
    shown = None
    if n_items > 1:
        shown = shown_within(
            n_items, settings.equivalence_level, settings.power, two_sided=role == "gate"
        )
    return {
        "family": family,
        "role": role,
        "n_items": n_items,
        "enough_items": n_items >= settings.minimum_items,
        "test": "two-sided" if role == "gate" else "one-sided",
        **_minima(draws, family, n_items, n_others),
        "margin": margin,
        "largest_sd_shown_within_margin": None if shown is None else margin / shown,
    }


def _minima(draws: Draws, family: Family, n_items: int, n_others: int) -> dict[str, Any]:
    smallest = draws.minimum(n_items, family, n_others)
    return {
        "minimum_detectable_alone": smallest.alone,
        "minimum_detectable_all": smallest.all_affected if role_of(family) == "other" else None,
    }
