"""What a drift plan would cost, counted by hand."""

from __future__ import annotations

from typing import Any

import pytest

from eps_locked.domain.plan import Plan
from eps_locked.errors import MalformedInputError
from eps_locked.studies.drift.cost import BASES, cost_report, cost_table
from sim.drift import drift_plan, small_drift_plan


def table(plan: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {row["phase"]: row for row in cost_table(Plan.from_dict(plan))}


def test_the_smallest_study_counted_by_hand() -> None:
    """Six stems of two rewordings, asked twice, of six arms; four adapters."""
    rows = table(small_drift_plan())
    assert [rows[phase]["steps"] for phase in ("P0", "P1", "P2", "P3")] == [1, 4, 6, 1]
    assert rows["P1"]["adapters"] == 4
    assert rows["P2"]["cells"] == 6 * 24
    assert rows["P2"]["tokens"] == 6 * 24 * 64
    # A quarter of each arm's 24 replies is classified twice.
    assert rows["P2"]["verdicts"] == 6 * (24 + 6)
    assert rows["P0"]["verdicts"] == 0
    assert rows["P2"]["device_hours"] == pytest.approx(6 / 3600)
    assert rows["P2"]["budget_hours"] == 0.5


def test_reasoning_and_retries_count() -> None:
    plan = drift_plan()
    settings = {arm["name"]: arm["reasoning"] for arm in plan["drift"]["arms"]}
    of_reply = {"none": 64, "closed": 64, "dots": 64, "short": 64 + 12, "free": 80 * 3}
    n_replies = 2 * (6 * 2 + 5 + 3)
    expected = sum(n_replies * of_reply[reasoning] for reasoning in settings.values())
    assert table(plan)["P2"]["tokens"] == expected


def test_grades_checks_and_ratings_count() -> None:
    rows = table(drift_plan())
    # Two judges rate the probes of the two disposition batteries once.
    assert rows["P0"]["verdicts"] == 2 * (12 + 5)
    graded = {"self_interest": 12, "harmful_requests": 5}
    each = sum(2 * n + -(-2 * n // 4) + n + 2 * -(-2 * n // 4) for n in graded.values())
    each += 6 + 2 + 2  # the check battery: 3 probes, ungraded
    assert rows["P2"]["verdicts"] == 14 * each


def test_the_report_names_what_parks_and_what_goes_over() -> None:
    plan = drift_plan()
    plan["phases"]["P1"]["gpu_hours"] = 2
    plan["phases"]["P2"]["step_seconds"]["ask"] = 60
    report = cost_report(Plan.from_dict(plan))
    assert report["parks"] == ["P1"]
    assert report["over_budget"] == ["P2"]
    assert report["adapters_per_seed"] == {"21": 3, "22": 1}
    assert report["adapters_by_row"] == {"plants": {"train": 3, "seeds": 2}}
    assert report["bases"] == BASES
    kinds = {(one["phase"], one["kind"]): one["steps"] for one in report["kinds"]}
    assert kinds["P2", "ask"] == 42
    plan["authorization"]["self_authorization"] = False
    assert cost_report(Plan.from_dict(plan))["parks"] == ["P0", "P1", "P2", "P3"]


def test_a_plan_that_would_not_freeze_has_no_cost() -> None:
    plan = small_drift_plan()
    plan["drift"]["arms"][3]["reference"] = "nobody"
    with pytest.raises(MalformedInputError, match="nobody, which is missing"):
        cost_report(Plan.from_dict(plan))
