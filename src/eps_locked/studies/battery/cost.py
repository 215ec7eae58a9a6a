"""What a ``battery`` plan would cost, from its own numbers, before anything is frozen."""

from __future__ import annotations

from collections import Counter
from typing import Any

from eps_locked.domain.plan import Plan
from eps_locked.domain.steps import Step
from eps_locked.studies.battery.freeze import checked_section
from eps_locked.studies.battery.plan import BatteryPlan
from eps_locked.studies.battery.steplist import judges_of, list_steps
from eps_locked.studies.common import cost

__all__ = ["BASES", "cost_report", "cost_table"]

# What each number of the table rests on, for whoever wonders.
BASES = {
    "steps": "the steps a freeze would list",
    "adapters": "the plan's trainings",
    "cells": "requests: items of every model, axis and thinking mode, and those that are timed. "
    "An axis with n_items: null counts analysis.minimum_items here; freezing counts its file",
    "tokens": "an upper bound on what models write: requests x max_tokens; prompts, and reasoning "
    "that a server does not count into max_tokens, are not in it",
    "verdicts": "an upper bound: one a reply that a judge reads, and one more for what was thought "
    "before it; labelled answers of a calibration are not in it",
    "device_hours": "the plan's own step_seconds x steps of the kind; a run's ledger says what was "
    "spent. For models that answer elsewhere these are hours of waiting",
    "budget_hours": "phases.<phase>.gpu_hours of the plan",
}


def cost_table(plan: Plan) -> list[dict[str, Any]]:
    """One row a phase; ``BASES`` says what each number rests on."""
    section = checked_section(plan)
    return cost.phase_rows(plan, list_steps(plan, section), lambda step: _counts(section, step))


def cost_report(plan: Plan) -> dict[str, Any]:
    """The table and what it is made of. ``adapters_by_row`` has a row for each training."""
    section = checked_section(plan)
    return cost.report(
        plan,
        list_steps(plan, section),
        lambda step: _counts(section, step),
        adapters_per_seed=Counter(training.seed for training in section.trainings),
        adapters_by_row={one.name: {"train": 1, "seeds": 1} for one in section.trainings},
        bases=BASES,
    )


def _counts(section: BatteryPlan, step: Step) -> tuple[int, int, int]:
    """(requests, new tokens, verdicts) of a step."""
    if step.kind == "speed":
        speed = section.axis("speed")
        n_requests = (speed.n_requests or 0) + (speed.warmup or 0)
        return n_requests, n_requests * (speed.max_tokens or 0), 0
    if step.kind != "ask":
        return 0, 0, 0
    axis = section.axis(step.params["axis"])
    n_items = section.analysis.minimum_items if axis.n_items is None else axis.n_items
    # What was thought is judged apart where it is a refusal that is looked for.
    readings = 2 if axis.axis == "over_refusal" and step.params["thinking"] == "on" else 1
    n_verdicts = n_items * readings * len(judges_of(step, section))
    return n_items, n_items * section.decoding.max_tokens, n_verdicts
