"""What a battery would cost, counted by hand."""

from __future__ import annotations

from typing import Any

import pytest

from eps_locked.domain.plan import Plan
from eps_locked.studies.battery.cost import BASES, cost_report, cost_table
from sim.battery import battery_plan, gateway_plan


def table(plan: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {row["phase"]: row for row in cost_table(Plan.from_dict(plan))}


def test_a_small_battery_counted_by_hand() -> None:
    """Three axes of six items and one of four, in two modes, of three models; four timed each."""
    plan = battery_plan()
    plan["battery"]["axes"][3]["n_items"] = 4
    rows = table(plan)
    assert [rows[phase]["steps"] for phase in ("P0", "P1", "P2", "P3")] == [2, 2, 27, 1]
    assert rows["P1"]["adapters"] == 2
    asked = 3 * 2 * (6 + 6 + 6 + 4)
    assert rows["P2"]["cells"] == asked + 3 * 4
    assert rows["P2"]["tokens"] == asked * 160 + 3 * 4 * 40
    # Refusals: six with thinking off, twelve with it on; premises: six in each mode.
    assert rows["P2"]["verdicts"] == 3 * (6 + 12 + 6 + 6)
    assert rows["P2"]["device_hours"] == pytest.approx(27 / 3600)
    assert rows["P2"]["budget_hours"] == 0.5


def test_an_axis_of_all_items_counts_the_minimum() -> None:
    """Four of the tools file's cases: how many it has is known when it is read."""
    some, every = battery_plan(), battery_plan()
    some["battery"]["axes"][3]["n_items"] = 4
    assert every["battery"]["axes"][3]["n_items"] is None
    assert table(some) == table(every)
    assert "n_items: null" in BASES["cells"]


def test_without_a_judge_there_are_no_verdicts_of_one() -> None:
    plan = battery_plan()
    plan["battery"]["refusal"]["judge"] = None
    assert table(plan)["P2"]["verdicts"] == 3 * (6 + 6)


def test_the_report_names_trainings_and_what_parks() -> None:
    plan = battery_plan()
    plan["authorization"]["auto_approve_gpu_hours"] = 0.1
    report = cost_report(Plan.from_dict(plan))
    assert report["adapters_per_seed"] == {"11": 2}
    assert set(report["adapters_by_row"]) == {"cautious", "agreeable"}
    assert report["parks"] == ["P0", "P1", "P2", "P3"]
    assert set(BASES) >= {"steps", "adapters", "cells", "tokens", "verdicts"}
    gateway = cost_report(Plan.from_dict(gateway_plan()))
    assert gateway["adapters_by_row"] == {}
    assert [row["phase"] for row in gateway["phases"]] == ["P0", "P2", "P3"]
