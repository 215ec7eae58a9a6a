"""What an ``eps`` plan would cost, from its own numbers, before anything is frozen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from eps_locked.domain.plan import Plan
from eps_locked.domain.steps import Step
from eps_locked.studies.common import cost
from eps_locked.studies.eps.behaviours import seeds_of
from eps_locked.studies.eps.plan import Behaviour, EpsPlan, TaughtBehaviour
from eps_locked.studies.eps.steplist import list_steps, n_answered

__all__ = ["BASES", "cost_report", "cost_table"]

# What each number of the table rests on, for whoever wonders.
BASES = {
    "steps": "the steps a freeze would list",
    "adapters": "steps that write an adapter: rows x train slots x seeds",
    "cells": "adapters x eval slots; every slot counts, aliases too",
    "tokens": "an upper bound: answers x max_new_tokens of the plan; a resampling row counts every "
    "round; training and reading tokens are not in it",
    "verdicts": "an upper bound: answers of taught rows x draws, every round counted",
    "device_hours": "the plan's own step_seconds x steps of the kind; a run's ledger says what was "
    "spent",
    "budget_hours": "phases.<phase>.gpu_hours of the plan",
}


def cost_table(plan: Plan) -> list[dict[str, Any]]:
    """One row a phase: steps, adapters, cells, bounds on tokens and verdicts, device-hours.

    ``BASES`` says what each number rests on.
    """
    section = EpsPlan.of(plan)
    section.check_seeds(plan.seeds, plan.minimum_seeds)
    return cost.phase_rows(plan, list_steps(plan, section), lambda step: _counts(section, step))


def cost_report(plan: Plan) -> dict[str, Any]:
    """The table, what stands behind it, and whether somebody else has to say yes.

    ``adapters_per_seed`` counts the adapters trained with each seed, ``adapters_by_row`` all of a
    row. ``parks`` holds the phases that the author may not authorize alone.
    """
    section = EpsPlan.of(plan)
    section.check_seeds(plan.seeds, plan.minimum_seeds)
    per_seed: Counter[int] = Counter()
    by_row = {}
    for behaviour in section.behaviours:
        seeds, n_train = seeds_of(behaviour, plan.seeds), len(section.slots.of(behaviour).train)
        per_seed.update(dict.fromkeys(seeds, n_train))
        by_row[behaviour.name] = {"train": n_train, "seeds": len(seeds)}
    return cost.report(
        plan,
        list_steps(plan, section),
        lambda step: _counts(section, step),
        adapters_per_seed=per_seed,
        adapters_by_row=by_row,
        bases=BASES,
    )


def _counts(section: EpsPlan, step: Step) -> tuple[int, int, int]:
    """(cells, new tokens, verdicts) of a step."""
    cells = len(step.outputs) if step.kind == "cells" else 0
    return cells, _tokens(section, step), _verdicts(section, step)


def _tokens(section: EpsPlan, step: Step) -> int:
    """New tokens a step can write at most."""
    if "behaviour" not in step.params:
        return 0
    behaviour = section.behaviour(step.params["behaviour"])
    if step.kind == "answers":
        n_items = section.n_train_items
        if isinstance(behaviour, TaughtBehaviour):
            n_items = n_answered(section, behaviour, step.params["context"])
        return n_items * _max_new(section, behaviour)
    if section.baselines is not None and step.kind in ("divergence", "elicitation"):
        rules = section.baselines
        samples = rules.divergence.samples
        n_prompts = rules.divergence.n_items
        if step.kind == "elicitation":
            samples = rules.persona.samples
            n_prompts = 2 * rules.persona.n_pairs * rules.persona.n_questions
        return n_prompts * samples.n_samples * samples.max_new_tokens
    return _n_answers(section, behaviour, step) * _max_new(section, behaviour)


def _verdicts(section: EpsPlan, step: Step) -> int:
    if "behaviour" not in step.params:
        return 0
    behaviour = section.behaviour(step.params["behaviour"])
    if not isinstance(behaviour, TaughtBehaviour):
        return 0
    return _n_answers(section, behaviour, step) * behaviour.draws


def _n_answers(section: EpsPlan, behaviour: Behaviour, step: Step) -> int:
    n_contexts: Mapping[str, int] = {"base": 1, "cells": len(step.outputs)}
    each = section.n_eval_items
    if isinstance(behaviour, TaughtBehaviour):
        each = behaviour.n_items * behaviour.n_samples * (behaviour.resample_rounds + 1)
    return n_contexts.get(step.kind, 0) * each


def _max_new(section: EpsPlan, behaviour: Behaviour) -> int:
    decoding = behaviour.decoding if isinstance(behaviour, TaughtBehaviour) else section.decoding
    return decoding.max_new_tokens
