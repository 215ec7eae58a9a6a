"""What a ``drift`` plan would cost, from its own numbers, before anything is frozen."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

from eps_locked.domain.plan import Plan
from eps_locked.domain.steps import Step
from eps_locked.studies.common import cost
from eps_locked.studies.drift.freeze import checked_section
from eps_locked.studies.drift.plan import Arm, Battery, DriftPlan
from eps_locked.studies.drift.steplist import list_steps

__all__ = ["BASES", "cost_report", "cost_table"]

# What each number of the table rests on, for whoever wonders.
BASES = {
    "steps": "the steps a freeze would list",
    "adapters": "the plan's trainings",
    "cells": "replies: probes x samples of every arm and battery",
    "tokens": "an upper bound: replies x max_new_tokens, with a budget's reasoning before each, "
    "and every retry of a free setting counted; training and reading tokens are not in it",
    "verdicts": "an upper bound: every reply classified, the shares that are classified twice, "
    "graded and checked, and every probe rated for looking like a test; labelled answers of a "
    "calibration are not in it",
    "device_hours": "the plan's own step_seconds x steps of the kind; a run's ledger says what was "
    "spent",
    "budget_hours": "phases.<phase>.gpu_hours of the plan",
}


def cost_table(plan: Plan) -> list[dict[str, Any]]:
    """One row a phase; ``BASES`` says what each number rests on."""
    section = checked_section(plan)
    return cost.phase_rows(plan, list_steps(plan, section), lambda step: _counts(section, step))


def cost_report(plan: Plan) -> dict[str, Any]:
    """The table and what it is made of. ``adapters_by_row`` counts doses and seeds of a topic."""
    section = checked_section(plan)
    by_topic = {
        topic.name: {
            "train": len(section.doses_of(topic.name)),
            "seeds": len({one.seed for one in section.trainings_of(topic.name)}),
        }
        for topic in section.topics
    }
    return cost.report(
        plan,
        list_steps(plan, section),
        lambda step: _counts(section, step),
        adapters_per_seed=Counter(training.seed for training in section.trainings),
        adapters_by_row=by_topic,
        bases=BASES,
    )


def _counts(section: DriftPlan, step: Step) -> tuple[int, int, int]:
    """(replies, new tokens, verdicts) of a step."""
    if step.kind == "awareness":
        return 0, 0, section.battery(step.params["battery"]).n_probes
    if step.kind != "ask":
        return 0, 0, 0
    battery = section.battery(step.params["battery"])
    n_replies = battery.n_probes * section.n_samples
    tokens = n_replies * tokens_of_reply(section, section.arm(step.params["arm"]))
    return n_replies, tokens, _verdicts(section, battery)


def tokens_of_reply(section: DriftPlan, arm: Arm) -> int:
    """New tokens that one reply of an arm can take, its reasoning and every retry included."""
    setting = section.setting(arm.reasoning)
    if setting.mode == "free":
        assert setting.max_tokens is not None
        assert setting.retries is not None
        return setting.max_tokens * (1 + setting.retries)
    reasoned = setting.n_tokens if setting.mode == "budget" else 0
    return section.max_new_tokens + (reasoned or 0)


def _verdicts(section: DriftPlan, battery: Battery) -> int:
    rules, n_probes = section.judging, battery.n_probes
    n_replies = n_probes * section.n_samples
    n_checked = math.ceil(rules.checker_share * n_replies)
    graded = battery.graded_rubric is not None
    return (
        n_replies
        + math.ceil(rules.twice_share * n_replies)
        + (n_probes * rules.n_graded_samples if graded else 0)
        + n_checked * (2 if graded else 1)
    )
