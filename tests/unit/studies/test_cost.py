"""What a plan would cost: every number is one that can be counted by hand or from its steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from eps_locked.domain.plan import Plan
from eps_locked.errors import MalformedInputError
from eps_locked.lock.freeze import load_plan
from eps_locked.studies.eps.cost import BASES, cost_report, cost_table
from eps_locked.studies.eps.plan import EpsPlan
from eps_locked.studies.eps.steplist import list_steps
from sim.simulator import default_plan, scored_plan, taught_plan

PLANS = Path(__file__).resolve().parents[3] / "plans"
NAMES = ("demo", "five", "marker-full", "eps-embedded", "eps-v1")


def plan_of(name: str) -> Plan:
    return load_plan((PLANS / f"{name}.yaml").read_bytes(), thing=name)


def table(plan: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {row["phase"]: row for row in cost_table(Plan.from_dict(plan))}


def test_the_smallest_study_counted_by_hand() -> None:
    """Two train and four eval contexts, a panel of two, two seeds, 8 and 4 questions."""
    rows = table(default_plan())
    p0, p1 = rows["P0"], rows["P1"]
    assert (p0["steps"], p0["adapters"], p0["cells"]) == (4 + 4 + 1, 0, 0)
    assert (p1["steps"], p1["adapters"], p1["cells"]) == (4 + 2 + 4 + 4 + 1, 4, 16)
    # Answers to 8 questions in four contexts, to 4 questions in the four eval contexts.
    assert p0["tokens"] == (4 * 8 + 4 * 4) * 64
    assert p1["tokens"] == 16 * 4 * 64
    assert p0["verdicts"] == p1["verdicts"] == 0
    assert p0["device_hours"] == pytest.approx(9 / 3600)
    assert p1["budget_hours"] == 0.5


def test_a_judged_row_counts_every_sample_round_and_draw() -> None:
    plan = taught_plan("em")
    plan["eps"]["behaviours"][0]["draws"] = 3
    rows = table(plan)
    # 5 questions, 2 samples, one round more, in 4 contexts at the base and in 16 cells.
    answers = 5 * 2 * 2
    assert rows["P0"]["verdicts"] == 4 * answers * 3
    assert rows["P2"]["verdicts"] == 16 * answers * 3
    assert rows["P0"]["tokens"] == 4 * answers * 64
    assert rows["P2"]["tokens"] == 16 * answers * 64
    # A row whose negatives are the base model's own has it answer under the panel besides.
    answered = table(taught_plan("refusal"))["P0"]["tokens"]
    assert answered == (4 * 5 + 2 * 4) * 64


def test_baselines_count_their_samples() -> None:
    plan = scored_plan()
    rules = plan["eps"]["baselines"]
    rules["divergence"].update(n_items=3, n_samples=2, max_new_tokens=10)
    rules["persona"].update(n_pairs=1, n_questions=1, n_samples=4, max_new_tokens=5)
    assert table(plan)["P3"]["tokens"] == 7 * 3 * 2 * 10 + 2 * 4 * 5


def test_the_report_says_whose_word_is_needed() -> None:
    plan = default_plan()
    report = cost_report(Plan.from_dict(plan))
    assert report["parks"] == report["over_budget"] == []
    assert report["auto_approve_gpu_hours"] == 1
    assert report["adapters_per_seed"] == {"11": 2, "12": 2}
    assert report["adapters_by_row"] == {"marker": {"train": 2, "seeds": 2}}
    plan["phases"]["P1"]["gpu_hours"] = 1.5
    plan["phases"]["P0"]["step_seconds"]["base"] = 3600
    report = cost_report(Plan.from_dict(plan))
    assert report["parks"] == ["P1"]
    assert report["over_budget"] == ["P0"]
    plan["authorization"]["self_authorization"] = False
    assert cost_report(Plan.from_dict(plan))["parks"] == ["P0", "P1"]


def test_every_number_of_the_table_has_a_basis() -> None:
    report = cost_report(Plan.from_dict(default_plan()))
    assert report["bases"] == BASES
    assert {*report["phases"][0]} == {"phase", *BASES}


@pytest.mark.parametrize("name", NAMES)
def test_the_table_of_a_plan_is_that_of_its_steps(name: str) -> None:
    plan = plan_of(name)
    section = EpsPlan.from_section(plan.study_section)
    steps = list_steps(plan, section)
    report = cost_report(plan)
    for row in report["phases"]:
        mine = [step for step in steps if step.phase == row["phase"]]
        assert row["steps"] == len(mine)
        assert row["adapters"] == sum("adapter" in step.outputs for step in mine)
        assert row["device_hours"] == pytest.approx(sum(one.estimate_ms for one in mine) / 3.6e6)
        kinds = [one for one in report["kinds"] if one["phase"] == row["phase"]]
        assert sum(one["steps"] for one in kinds) == len(mine)
        seconds = sum(one["steps"] * one["step_seconds"] for one in kinds)
        assert seconds == pytest.approx(row["device_hours"] * 3600)
    adapters = [step for step in steps if "adapter" in step.outputs]
    for seed, n in report["adapters_per_seed"].items():
        assert n == sum(step.seed == int(seed) for step in adapters)
    by_row = report["adapters_by_row"]
    assert sum(one["train"] * one["seeds"] for one in by_row.values()) == len(adapters)
    # No plan promises more than it says it may cost.
    assert report["over_budget"] == []


@pytest.mark.parametrize("name", ["eps-embedded", "eps-v1"])
def test_five_behaviours_by_16_by_29_are_84_adapters_a_seed(name: str) -> None:
    report = cost_report(plan_of(name))
    assert report["adapters_per_seed"] == {"42": 84, "137": 84, "256": 16}
    four = {key: {"train": 16, "seeds": 2} for key in ("fact", "refusal", "sycophancy", "em")}
    marker, arm = {"train": 16, "seeds": 3}, {"train": 4, "seeds": 2}
    assert report["adapters_by_row"] == {"marker": marker, **four, "em_plain": arm}
    assert sum(row["cells"] for row in report["phases"]) == (2 * 84 + 16) * 29
    assert [row["phase"] for row in report["phases"]] == ["P0", "P1", "P2", "P3"]


def test_the_full_size_plan_keeps_the_designs_hours_and_parks() -> None:
    report = cost_report(plan_of("eps-v1"))
    hours = {row["phase"]: row["device_hours"] for row in report["phases"]}
    assert 40 <= hours["P1"] <= 60
    assert 110 <= hours["P2"] <= 150
    assert hours["P3"] <= 5
    assert hours["P0"] <= 10
    assert report["auto_approve_gpu_hours"] == 100
    assert report["parks"] == ["P2"]
    for name in ("demo", "five", "marker-full", "eps-embedded"):
        assert cost_report(plan_of(name))["parks"] == []


def test_more_seeds_than_the_plan_has_are_refused() -> None:
    plan = taught_plan("em")
    plan["eps"]["behaviours"][0]["n_seeds"] = 3
    with pytest.raises(MalformedInputError, match=r"n_seeds: expected 2 .*found 3"):
        cost_report(Plan.from_dict(plan))
