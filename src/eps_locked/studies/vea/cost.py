"""What a ``vea`` plan would cost, from its own numbers, before anything is frozen."""

from __future__ import annotations

from collections import Counter
from typing import Any

from eps_locked.domain.plan import Plan
from eps_locked.domain.steps import Step
from eps_locked.studies.common import cost
from eps_locked.studies.vea.derive import RESPONSES
from eps_locked.studies.vea.freeze import checked_section
from eps_locked.studies.vea.plan import VeaPlan
from eps_locked.studies.vea.steplist import asks_a_service, list_steps

__all__ = ["BASES", "cost_report", "cost_table"]

# What each number of the table rests on, for whoever wonders.
BASES = {
    "steps": "the steps a freeze would list",
    "adapters": "the plan's trainings: an adapter with its scalar head each",
    "cells": "scores: three responses of every item, for every reward model",
    "tokens": "0: nothing is generated; what reward models read is not in it",
    "verdicts": "an upper bound on what a service is asked: its scores, retries not counted",
    "device_hours": "the plan's own step_seconds x steps of the kind; a run's ledger says what was "
    "spent",
    "budget_hours": "phases.<phase>.gpu_hours of the plan",
}


def cost_table(plan: Plan) -> list[dict[str, Any]]:
    """One row a phase; ``BASES`` says what each number rests on."""
    section = checked_section(plan)
    return cost.phase_rows(plan, list_steps(plan, section), lambda step: _counts(section, step))


def cost_report(plan: Plan) -> dict[str, Any]:
    """The table and what it is made of. ``adapters_by_row`` counts the trainings of a target."""
    section = checked_section(plan)
    targets = dict.fromkeys(training.target for training in section.trainings)
    by_target: dict[str, dict[str, int]] = {
        target: {
            "train": sum(one.target == target for one in section.trainings),
            "seeds": len({one.seed for one in section.trainings if one.target == target}),
        }
        for target in targets
    }
    return cost.report(
        plan,
        list_steps(plan, section),
        lambda step: _counts(section, step),
        adapters_per_seed=Counter(training.seed for training in section.trainings),
        adapters_by_row=by_target,
        bases=BASES,
    )


def _counts(section: VeaPlan, step: Step) -> tuple[int, int, int]:
    """(scores, new tokens, scores asked of a service) of a step."""
    if step.kind != "score":
        return 0, 0, 0
    n_scores = len(RESPONSES) * section.n_items
    return n_scores, 0, n_scores if asks_a_service(step, section) else 0
