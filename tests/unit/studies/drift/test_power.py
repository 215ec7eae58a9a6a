"""What the power step says before anything is asked, from the plan's assumptions alone."""

from __future__ import annotations

from typing import Any

import pytest

from eps_locked.canonical import decode
from eps_locked.stats.stem_power import Assumptions, planned_stems, power_of
from eps_locked.studies.drift.plan import DriftPlan
from eps_locked.studies.drift.power import power_document, power_files
from sim.drift import drift_plan


def section(**changes: Any) -> DriftPlan:
    plan = drift_plan()["drift"]
    plan["power"].update(changes)
    return DriftPlan.from_section(plan)


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return power_document(section())


def test_every_disposition_battery_has_its_own_resolution(document: dict[str, Any]) -> None:
    found = {one["battery"]: one for one in document["per_battery"]}
    assert set(found) == {"self_interest", "harmful_requests"}
    # 8 points over stems, and 0.1 of a reply's variance at two rewordings and two samples.
    error = ((8**2 + 2 * 0.1 * 100**2 / 4) / 6) ** 0.5
    mine = found["self_interest"]
    assert mine["standard_error"] == pytest.approx(error)
    assert mine["minimum_detectable"] == pytest.approx(2.8016 * error, rel=1e-4)
    assert mine["minimum_detectable_few"] > mine["minimum_detectable"]
    assert mine["power_for_wanted"] == pytest.approx(power_of(10, error, 6))
    assumed = Assumptions(stem_sd=8, within_variance=1000, n_probes=2, n_samples=2)
    assert mine["stems_for_wanted"] == planned_stems(10, assumed)
    assert (mine["n_stems"], mine["n_probes"], mine["n_samples"]) == (6, 12, 2)


def test_the_curve_falls_with_stems_and_has_the_plans_own(document: dict[str, Any]) -> None:
    stems = [one["n_stems"] for one in document["curve"]]
    assert stems == [5, 6, 8, 12, 16, 20, 30, 50, 80, 140]
    sizes = [one["minimum_detectable"] for one in document["curve"]]
    assert sizes == sorted(sizes, reverse=True)
    powers = [one["power_for_wanted"] for one in document["curve"]]
    assert powers == sorted(powers)


def test_intervals_are_tried_at_every_size_of_battery(document: dict[str, Any]) -> None:
    assert [(one["n_stems"], one["n_rewordings"]) for one in document["coverage"]] == [
        (5, 1),
        (6, 2),
    ]
    for one in document["coverage"]:
        assert one["n_experiments"] == 100
        assert one["coverage"] >= 0.85
        assert one["null_rejection"] <= 0.15
    assert document["not_simulated"] == []


def test_assumptions_that_no_replies_can_have_are_named_and_stop_nothing() -> None:
    found = power_document(section(rate=0.98, within_variance=0.2))
    assert found["coverage"] == []
    assert [(one["n_stems"], one["n_rewordings"]) for one in found["not_simulated"]] == [
        (5, 1),
        (6, 2),
    ]
    assert all("assumptions: expected" in one["reason"] for one in found["not_simulated"])
    assert len(found["per_battery"]) == 2


def test_the_same_plan_gives_the_same_bytes_and_another_seed_other_simulations(
    document: dict[str, Any],
) -> None:
    files = power_files(section())
    assert files == power_files(section())
    assert decode(files["power.json"], thing="power") == document
    plan = drift_plan()["drift"]
    plan["analysis"]["seed"] = 8
    other = power_document(DriftPlan.from_section(plan))
    assert other["per_battery"] == document["per_battery"]
    assert other["coverage"] != document["coverage"]
