"""What an ``eps`` plan would cost, from its own numbers, before anything is frozen."""

from __future__ import annotations

from typing import Any

from eps_locked.domain.plan import Plan
from eps_locked.studies.eps.plan import EpsPlan
from eps_locked.studies.eps.steplist import list_steps


def cost_table(plan: Plan) -> list[dict[str, Any]]:
    """One row a phase: steps, adapters, cells, an upper bound on new tokens, device-hours.

    Device-hours are the plan's ``step_seconds`` times the number of steps: its own estimate, which
    a run's ledger later shows to be right or wrong. Tokens are items x max_new_tokens.
    """
    section = EpsPlan.from_section(plan.study_section)
    steps = list_steps(plan, section)
    rows = []
    for phase, budget in plan.phases.items():
        mine = [step for step in steps if step.phase == phase]
        items = {
            "answers": section.n_train_items,
            "base": section.n_eval_items,
            "cells": section.n_eval_items * len(section.slots.eval),
        }
        rows.append(
            {
                "phase": phase,
                "steps": len(mine),
                "adapters": sum(step.kind == "adapter" for step in mine),
                "cells": sum(len(step.outputs) for step in mine if step.kind == "cells"),
                "tokens": section.decoding.max_new_tokens
                * sum(items.get(step.kind, 0) for step in mine),
                "device_hours": sum(step.estimate_ms for step in mine) / 3_600_000,
                "budget_hours": budget.gpu_hours,
            }
        )
    return rows
