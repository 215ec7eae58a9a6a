"""Training one adapter of the study, and the record that says how it went."""

from __future__ import annotations

from typing import Any

from eps_locked.domain.model import StepBudget, StrengthProbe, TrainingOutcome
from eps_locked.lock.workspace import describe_artifact
from eps_locked.studies.eps.derive import rows_digest
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
    digest_of_rows = rows_digest(rows)
    assert task.step.seed is not None
    outcome = task.backends.trainer.fit(
        rows.rows,
        behaviour.recipe,
        budget,
        strength,
        seed=task.step.seed,
        provenance={
            "behaviour": behaviour.name,
            "context": task.step.params["context"],
            "seed": str(task.step.seed),
            "rows": digest_of_rows,
        },
        on_step=lambda number, loss: task.progress(f"step {number}, loss {loss:.3f}"),
    )
    record = {
        "schema": FIT_SCHEMA,
        "stop": outcome.stop,
        "stop_step": outcome.stop_step,
        "realised_strength": outcome.checks[-1].delta_nats if outcome.checks else None,
        "checks": [[check.step, check.delta_nats] for check in outcome.checks],
        "losses": list(outcome.losses),
        "scale": outcome.scale,
        "n_trainable": outcome.n_trainable,
        "n_rows_seen": outcome.n_rows_seen,
        "rows": digest_of_rows,
        "n_positives": rows.n_positives,
        "n_negatives": rows.n_negatives,
        "dropped_rows": rows.drop_counts(),
        "adapter": describe_artifact(outcome.files).digest,
    }
    return outcome, record
