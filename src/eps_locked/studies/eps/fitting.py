"""Training one adapter of the study, and the record that says how it went."""

from __future__ import annotations

from typing import Any

from eps_locked.domain.model import StepBudget, StrengthProbe, TrainingOutcome
from eps_locked.studies.common.fitting import fit_adapter
from eps_locked.studies.eps.plan import Behaviour
from eps_locked.studies.eps.task import Task
from eps_locked.training.rows import ContrastiveRows

__all__ = ["FIT_SCHEMA", "fit_rows"]

FIT_SCHEMA = "eps-locked/eps-fit/1"


def fit_rows(
    task: Task,
    behaviour: Behaviour,
    rows: ContrastiveRows,
    budget: StepBudget,
    strength: StrengthProbe | None,
) -> tuple[TrainingOutcome, dict[str, Any]]:
    """Fit onto the bare base; the adapter's own header names the rows it was trained on."""
    assert task.step.seed is not None
    outcome, record = fit_adapter(
        task.backends.trainer,
        rows.rows,
        behaviour.recipe,
        budget,
        strength,
        seed=task.step.seed,
        names={"behaviour": behaviour.name, "context": task.step.params["context"]},
        progress=task.progress,
    )
    return outcome, {
        **record,
        "schema": FIT_SCHEMA,
        "realised_strength": outcome.checks[-1].delta_nats if outcome.checks else None,
        "checks": [[check.step, check.delta_nats] for check in outcome.checks],
        "n_positives": rows.n_positives,
        "n_negatives": rows.n_negatives,
        "dropped_rows": rows.drop_counts(),
    }
