"""What a battery can tell apart with its number of items, before anything is asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from eps_locked.stats.paired_rates import minimum_detectable_paired
from eps_locked.studies.battery.parts import Axis
from eps_locked.studies.battery.plan import BatteryPlan
from eps_locked.studies.common.rounding import rounded

__all__ = ["POWER_SCHEMA", "SHARES", "power_document"]

POWER_SCHEMA: Final = "eps-locked/battery-power/1"
# Shares of the items on which two models may differ in both directions. Nobody knows the share
# before they answer, and the smallest difference that can be found grows with it; 0 is the best
# case, in which all change is in one direction.
SHARES: Final = (0.0, 0.1, 0.2, 0.3, 0.5)


def power_document(section: BatteryPlan, counts: Mapping[Axis, int]) -> dict[str, Any]:
    """``counts``: items by axis. One row an axis with the smallest difference of rates that its
    items find with the plan's power, for each share of differing items; None where none is found.
    """
    settings = section.analysis
    document: dict[str, Any] = rounded(
        {
            "schema": POWER_SCHEMA,
            "alpha": settings.alpha,
            "power": settings.power,
            "axes": [
                {
                    "axis": axis,
                    "n_items": n_items,
                    "margin": settings.margins.get(axis),
                    "minimum_detectable": [
                        {
                            "discordant_share": share,
                            "delta": minimum_detectable_paired(
                                n_items, share, settings.alpha, settings.power
                            ),
                        }
                        for share in SHARES
                    ],
                }
                for axis, n_items in counts.items()
            ],
        }
    )

    return document
