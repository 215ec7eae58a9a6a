"""Training one adapter, and what the record says of any fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from eps_locked.canonical import digest_value
from eps_locked.domain.execution import Progress
from eps_locked.domain.model import (
    LoraRecipe,
    StepBudget,
    StrengthProbe,
    Trainer,
    TrainingOutcome,
    TrainingRow,
)
from eps_locked.lock.workspace import describe_artifact

__all__ = ["FIXED_STEPS", "fit_adapter", "rows_digest"]

# How a fit without a band ends: after the plan's number of steps, whatever it has reached.
FIXED_STEPS = "fixed_steps"


def rows_digest(rows: Sequence[TrainingRow]) -> str:
    """Digest of exactly what a fit sees: keys, token ids, loss positions, in order."""
    return digest_value([[row.key, list(row.token_ids), list(row.loss_positions)] for row in rows])


def fit_adapter(
    trainer: Trainer,
    rows: Sequence[TrainingRow],
    recipe: LoraRecipe,
    budget: StepBudget,
    strength: StrengthProbe | None = None,
    *,
    seed: int,
    names: Mapping[str, str],
    progress: Progress,
) -> tuple[TrainingOutcome, dict[str, Any]]:
    """Fit onto the bare base; the adapter's own header names its step and its rows.

    ``names``: what the step is called by, its parameters at least. The record is what every study
    says of a fit; a schema and the study's own words are for the caller to add.
    """
    digest = rows_digest(rows)
    outcome = trainer.fit(
        rows,
        recipe,
        budget,
        strength,
        seed=seed,
        provenance={**names, "seed": str(seed), "rows": digest},
        on_step=lambda number, loss: progress(f"step {number}, loss {loss:.3f}"),
    )
    record = {
        "stop": outcome.stop,
        "stop_step": outcome.stop_step,
        "losses": list(outcome.losses),
        "scale": outcome.scale,
        "n_trainable": outcome.n_trainable,
        "n_rows_seen": outcome.n_rows_seen,
        "rows": digest,
        "adapter": describe_artifact(outcome.files).digest,
    }
    return outcome, record
