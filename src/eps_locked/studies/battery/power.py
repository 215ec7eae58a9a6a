"""What a battery can tell apart with its number of items, before anything is asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from eps_locked.stats.paired_rates import minimum_detectable_paired
from eps_locked.studies.battery.outcomes import minimum_detectable_rates
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

    ``delta`` is of one test alone; ``delta_among_all`` of one among the ``n_tests`` that a
    comparison makes, of which no other finds anything. An axis that keeps nothing by item is
    compared by its rates: no share of differing items then, and rates near one half, the worst.
    """
    settings = section.analysis
    n_tests = len(counts) * len(section.thinking_modes)

    def smallest(axis: Axis, n_items: int, share: float | None, level: float) -> float | None:
        if share is None:
            return minimum_detectable_rates(
                (n_items // 2, n_items), (n_items // 2, n_items), level, settings.power
            )
        return minimum_detectable_paired(n_items, share, level, settings.power)

    document: dict[str, Any] = rounded(
        {
            "schema": POWER_SCHEMA,
            "alpha": settings.alpha,
            "power": settings.power,
            "n_tests": n_tests,
            "axes": [
                {
                    "axis": axis,
                    "n_items": n_items,
                    "margin": settings.margins.get(axis),
                    "minimum_detectable": [
                        {
                            "discordant_share": share,
                            "delta": smallest(axis, n_items, share, settings.alpha),
                            "delta_among_all": smallest(
                                axis, n_items, share, settings.alpha / n_tests
                            ),
                        }
                        for share in _shares(section, axis)
                    ],
                }
                for axis, n_items in counts.items()
            ],
        }
    )

    return document


def _shares(section: BatteryPlan, axis: Axis) -> tuple[float | None, ...]:
    return SHARES if section.axis(axis).is_benign else (None,)
