"""Training one adapter of the plan's own base model, and checking what the record says of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from eps_locked.audit.lineage import safetensors_metadata
from eps_locked.canonical import decode, encode
from eps_locked.domain.execution import StepInputs, StepResult
from eps_locked.domain.model import StepBudget
from eps_locked.lock.workspace import describe_artifact
from eps_locked.studies.battery.plan import TrainingPlan
from eps_locked.studies.battery.task import Task
from eps_locked.studies.battery.teaching import FrozenRows
from eps_locked.studies.common.fitting import FIXED_STEPS, fit_adapter, rows_digest
from eps_locked.studies.common.prompts import RECORD_FILE

__all__ = ["FIT_SCHEMA", "fit_differences", "train"]

FIT_SCHEMA: Final = "eps-locked/battery-fit/1"


def train(task: Task) -> StepResult:
    """A fixed number of optimizer steps over the frozen rows."""
    training = task.section.training(task.step.params["training"])
    frozen = FrozenRows.read(task.inputs.frozen("rows"), "frozen rows")
    backends = task.hands.loaded()
    backends.engine.attach(None)
    budget = StepBudget(
        min_steps=training.n_steps,
        max_steps=training.n_steps,
        check_every=training.n_steps,
        band=None,
    )
    outcome, record = fit_adapter(
        backends.trainer,
        frozen.training_rows(),
        training.recipe,
        budget,
        seed=training.seed,
        names=_names(training),
        progress=task.progress,
    )
    document = {**record, **_said(training, frozen), "stop": FIXED_STEPS}
    return StepResult(outputs={"adapter": outcome.files, "record": {RECORD_FILE: encode(document)}})


def fit_differences(
    inputs: StepInputs,
    outputs: Mapping[str, Mapping[str, bytes]],
    training: TrainingPlan,
) -> list[str]:
    """Whether record and header say what plan and rows give. That these rows were trained on
    nobody can say from them."""
    record = decode(outputs["record"][RECORD_FILE], thing="record")
    frozen = FrozenRows.read(inputs.frozen("rows"), "frozen rows")
    rows, adapter = rows_digest(frozen.training_rows()), outputs["adapter"]
    header = safetensors_metadata(adapter["adapter_model.safetensors"], thing="adapter")
    expected = {
        **{f"record.{key}": value for key, value in _said(training, frozen).items()},
        "record.rows": rows,
        "record.stop": FIXED_STEPS,
        "record.stop_step": training.n_steps,
        "record.n_rows_seen": training.n_steps * training.recipe.rows_per_step,
        "record.n_losses": training.n_steps,
        "record.adapter": describe_artifact(adapter).digest,
        "adapter.rows": rows,
        **{f"adapter.{key}": value for key, value in _names(training).items()},
    }
    found: dict[str, Any] = {f"record.{key}": value for key, value in record.items()}
    found["record.n_losses"] = len(record["losses"])
    found |= {f"adapter.{key}": value for key, value in header.items()}
    return [
        f"{name}: expected {value}, found {found.get(name)}"
        for name, value in expected.items()
        if found.get(name) != value
    ]


def _names(training: TrainingPlan) -> dict[str, str]:
    """What an adapter calls itself; the seed and the rows are added where it is fitted."""
    return {"study": "battery", "training": training.name}


def _said(training: TrainingPlan, frozen: FrozenRows) -> dict[str, Any]:
    return {"schema": FIT_SCHEMA, "training": training.name, "n_rows": len(frozen.rows)}
