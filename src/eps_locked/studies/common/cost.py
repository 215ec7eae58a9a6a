"""What a plan would cost, from its own numbers, before anything is frozen: the common table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from eps_locked.domain.plan import Plan
from eps_locked.domain.steps import Step

__all__ = ["StepCounts", "phase_rows", "report"]

# (cells, new tokens, verdicts) of a step, each an upper bound.
StepCounts = Callable[[Step], tuple[int, int, int]]


def phase_rows(plan: Plan, steps: Sequence[Step], counts: StepCounts) -> list[dict[str, Any]]:
    """One row a phase: steps, adapters, cells, bounds on tokens and verdicts, device-hours."""
    rows = []
    for phase, budget in plan.phases.items():
        mine = [step for step in steps if step.phase == phase]
        counted = [counts(step) for step in mine]
        rows.append(
            {
                "phase": phase,
                "steps": len(mine),
                "adapters": sum("adapter" in step.outputs for step in mine),
                "cells": sum(cells for cells, _, _ in counted),
                "tokens": sum(tokens for _, tokens, _ in counted),
                "verdicts": sum(verdicts for _, _, verdicts in counted),
                "device_hours": sum(step.estimate_ms for step in mine) / 3_600_000,
                "budget_hours": budget.gpu_hours,
            }
        )
    return rows


def report(
    plan: Plan,
    steps: Sequence[Step],
    counts: StepCounts,
    *,
    adapters_per_seed: Mapping[int, int],
    adapters_by_row: Mapping[str, Mapping[str, int]],
    bases: Mapping[str, str],
) -> dict[str, Any]:
    """What ``plan check`` prints. ``parks`` holds the phases that the author may not authorize
    alone, ``bases`` what each number rests on."""
    phases = phase_rows(plan, steps, counts)
    rules = plan.authorization
    limit = rules.auto_approve_gpu_hours if rules.self_authorization else 0.0
    kinds = Counter((step.phase, step.kind) for step in steps)
    return {
        "phases": phases,
        "kinds": [
            {
                "phase": phase,
                "kind": kind,
                "steps": n,
                "step_seconds": plan.phases[phase].step_seconds[kind],
            }
            for (phase, kind), n in kinds.items()
        ],
        "adapters_per_seed": {str(seed): adapters_per_seed.get(seed, 0) for seed in plan.seeds},
        "adapters_by_row": {name: dict(row) for name, row in adapters_by_row.items()},
        "auto_approve_gpu_hours": limit,
        "parks": [row["phase"] for row in phases if row["budget_hours"] > limit],
        "over_budget": [
            row["phase"] for row in phases if row["device_hours"] > row["budget_hours"]
        ],
        "bases": dict(bases),
    }
