"""What a vea plan would cost, counted by hand."""

from __future__ import annotations

from typing import Any

import pytest

from eps_locked.domain.plan import Plan
from eps_locked.errors import MalformedInputError
from eps_locked.studies.vea.cost import BASES, cost_report, cost_table
from sim.vea import gateway, table_plan, training, vea_plan


def table(plan: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {row["phase"]: row for row in cost_table(Plan.from_dict(plan))}


def test_the_small_study_counted_by_hand() -> None:
    """Nine families of seven items, three responses each, six reward models; three adapters."""
    rows = table(vea_plan())
    assert [rows[phase]["steps"] for phase in ("P0", "P1", "P2", "P3")] == [1, 3, 6, 1]
    assert rows["P1"]["adapters"] == 3
    assert rows["P2"]["cells"] == 6 * 63 * 3
    assert sum(row["cells"] for row in rows.values()) == rows["P2"]["cells"]
    assert all(row["tokens"] == row["verdicts"] == 0 for row in rows.values())
    assert rows["P2"]["device_hours"] == pytest.approx(6 / 3600)
    assert rows["P2"]["budget_hours"] == 0.5


def test_what_a_service_is_asked_is_counted_apart() -> None:
    plan = table_plan()
    plan["vea"]["reward_models"].append(gateway())
    rows = table(plan)
    assert rows["P2"]["cells"] == 2 * 63 * 3
    assert rows["P2"]["verdicts"] == 63 * 3


def test_the_report_names_what_parks_and_what_goes_over() -> None:
    plan = vea_plan()
    plan["seeds"] = [21, 22]
    plan["vea"]["trainings"].append(training("wood_again", "wood", seed=22))
    plan["vea"]["reward_models"][4]["training"] = "wood_again"
    plan["phases"]["P1"]["gpu_hours"] = 2
    plan["phases"]["P2"]["step_seconds"]["score"] = 600
    report = cost_report(Plan.from_dict(plan))
    assert report["parks"] == ["P1"]
    assert report["over_budget"] == ["P2"]
    assert report["adapters_per_seed"] == {"21": 3, "22": 1}
    assert report["adapters_by_row"] == {
        "wood": {"train": 2, "seeds": 2},
        "evaluation": {"train": 1, "seeds": 1},
        "length": {"train": 1, "seeds": 1},
    }
    assert report["bases"] == BASES
    kinds = {(one["phase"], one["kind"]): one["steps"] for one in report["kinds"]}
    assert kinds["P2", "score"] == 6


def test_a_plan_that_would_not_freeze_has_no_cost() -> None:
    plan = vea_plan()
    plan["vea"]["reward_models"][0]["training"] = "nobody"
    with pytest.raises(MalformedInputError, match="nobody, which is missing"):
        cost_report(Plan.from_dict(plan))
