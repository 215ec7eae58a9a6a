"""Training one adapter at a known dose."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eps_locked.audit.lineage import safetensors_metadata
from eps_locked.canonical import decode, encode
from eps_locked.domain.execution import StepInputs, StepResult
from eps_locked.domain.model import StepBudget, TrainingRow
from eps_locked.lock.workspace import describe_artifact
from eps_locked.studies.common.fitting import FIXED_STEPS, fit_adapter, rows_digest
from eps_locked.studies.common.prompts import RECORD_FILE
from eps_locked.studies.drift.doses import FrozenDoses, dose_key
from eps_locked.studies.drift.plan import DriftPlan, Training
from eps_locked.studies.drift.rendering import ReasoningIds
from eps_locked.studies.drift.task import Task
from eps_locked.training.rows import AnsweredPrompt, answer_row

__all__ = ["fit_differences", "train", "training_rows"]

FIT_SCHEMA = "eps-locked/drift-fit/1"


def training_rows(inputs: StepInputs, training: Training) -> tuple[TrainingRow, ...]:
    """What an adapter sees: the topic's rows in their frozen order, each with the answer that the
    dose gives it; loss on the answer and its end of turn. Seeds of one dose see the same rows."""
    doses = FrozenDoses.read(inputs.frozen("doses"), "frozen doses")
    end = ReasoningIds.read(inputs.frozen("reasoning"), "frozen reasoning").end_of_turn_id
    return tuple(
        answer_row(
            row.id,
            AnsweredPrompt(
                key=row.id, prompt_ids=row.prompt, answer_ids=answer, stop_reason="stop"
            ),
            end,
        )
        for row, answer in doses.answers(training.dose_percent)
    )


def train(task: Task) -> StepResult:
    """A fixed number of optimizer steps; dose and rows stand in the adapter's own header."""
    training = task.section.training(task.step.params["training"])
    topic, backends = task.section.topic(training.topic), task.hands.loaded()
    backends.engine.attach(None)
    budget = StepBudget(
        min_steps=topic.n_steps, max_steps=topic.n_steps, check_every=topic.n_steps, band=None
    )
    outcome, record = fit_adapter(
        backends.trainer,
        training_rows(task.inputs, training),
        topic.recipe,
        budget,
        seed=training.seed,
        names=_names(training),
        progress=task.progress,
    )
    document = {**record, **_said(task.inputs, training), "stop": FIXED_STEPS}
    return StepResult(outputs={"adapter": outcome.files, "record": {RECORD_FILE: encode(document)}})


def fit_differences(
    inputs: StepInputs,
    outputs: Mapping[str, Mapping[str, bytes]],
    section: DriftPlan,
    training: Training,
) -> list[str]:
    """Whether record and header say what dose, plan and rows give. That these rows were trained on
    nobody can say from them."""
    record = decode(outputs["record"][RECORD_FILE], thing="record")
    rows = rows_digest(training_rows(inputs, training))
    adapter = outputs["adapter"]
    header = safetensors_metadata(adapter["adapter_model.safetensors"], thing="adapter")
    topic = section.topic(training.topic)
    n_seen = topic.n_steps * topic.recipe.rows_per_step
    expected = {
        **{f"record.{key}": value for key, value in _said(inputs, training).items()},
        "record.rows": rows,
        "record.stop": FIXED_STEPS,
        "record.stop_step": topic.n_steps,
        "record.n_rows_seen": n_seen,
        "record.n_losses": topic.n_steps,
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


def _names(training: Training) -> dict[str, str]:
    """What an adapter calls itself; the seed and the rows are added where it is fitted."""
    return {
        "study": "drift",
        "training": training.name,
        "topic": training.topic,
        "dose": dose_key(training.dose_percent),
    }


def _said(inputs: StepInputs, training: Training) -> dict[str, Any]:
    """The record's own words about the dose, in rows and in percent."""
    doses = FrozenDoses.read(inputs.frozen("doses"), "frozen doses")
    return {
        "schema": FIT_SCHEMA,
        "training": training.name,
        "topic": doses.topic,
        "dose_percent": training.dose_percent,
        "n_rows": len(doses.rows),
        "n_harmful": len(doses.doses[dose_key(training.dose_percent)]),
    }
