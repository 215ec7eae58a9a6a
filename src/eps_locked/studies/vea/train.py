"""Training one arm of known truth: a scalar head, and an adapter with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from eps_locked.audit.lineage import safetensors_metadata
from eps_locked.canonical import decode, digest_value, encode
from eps_locked.domain.execution import StepInputs, StepResult
from eps_locked.domain.reward import PreferencePair
from eps_locked.lock.workspace import describe_artifact
from eps_locked.studies.common.fitting import FIXED_STEPS
from eps_locked.studies.common.prompts import RECORD_FILE
from eps_locked.studies.vea.plan import HeadTraining
from eps_locked.studies.vea.task import Task
from eps_locked.studies.vea.training_pairs import frozen_pairs, pairs_for

__all__ = ["fit_differences", "pairs_digest", "train", "training_pairs"]

FIT_SCHEMA = "eps-locked/vea-fit/1"
_WEIGHTS = "adapter_model.safetensors"


def training_pairs(inputs: StepInputs, training: HeadTraining) -> tuple[PreferencePair, ...]:
    """What a head sees: the frozen pairs in their order, each with what the target makes of it."""
    pairs = frozen_pairs(inputs.frozen("training"), "frozen training pairs")
    return tuple(pairs_for(training.target, pairs))


def pairs_digest(pairs: Sequence[PreferencePair]) -> str:
    """Digest of exactly what a fit sees, in order."""
    return digest_value(
        [[pair.key, pair.user_prompt, pair.first, pair.second, pair.target] for pair in pairs]
    )


def train(task: Task) -> StepResult:
    """A fixed number of optimizer steps; what was trained on stands in the adapter's own header."""
    training = task.section.training(task.step.params["training"])
    pairs = training_pairs(task.inputs, training)
    outcome = task.models.trainer().fit(
        pairs,
        training.recipe,
        (training.score_head.seed, training.score_head.std),
        n_steps=training.n_steps,
        max_length=training.max_length,
        seed=training.seed,
        provenance=_provenance(training, pairs),
        on_step=lambda number, loss: task.progress(f"step {number}, loss {loss:.3f}"),
    )
    document = {
        **_said(training, pairs),
        "stop_step": outcome.stop_step,
        "losses": list(outcome.losses),
        "scale": outcome.scale,
        "n_trainable": outcome.n_trainable,
        "n_rows_seen": outcome.n_rows_seen,
        "adapter": describe_artifact(outcome.files).digest,
    }
    return StepResult(outputs={"adapter": outcome.files, "record": {RECORD_FILE: encode(document)}})


def fit_differences(
    inputs: StepInputs, outputs: Mapping[str, Mapping[str, bytes]], training: HeadTraining
) -> list[str]:
    """Whether record and header say what the plan and the frozen pairs give. That these pairs were
    trained on nobody can say from them."""
    record = decode(outputs["record"][RECORD_FILE], thing="record")
    adapter = outputs["adapter"]
    header = safetensors_metadata(adapter[_WEIGHTS], thing="adapter")
    pairs = training_pairs(inputs, training)
    said = _said(training, pairs)
    measured = ("losses", "scale", "n_trainable")
    expected = {
        **{f"record.{key}": value for key, value in said.items()},
        "record.stop_step": training.n_steps,
        "record.n_rows_seen": training.n_steps * training.recipe.rows_per_step,
        "record.n_losses": training.n_steps,
        "record.adapter": describe_artifact(adapter).digest,
        **{f"adapter.{key}": value for key, value in _provenance(training, pairs).items()},
    }
    found: dict[str, Any] = {f"record.{key}": value for key, value in record.items()}
    found["record.n_losses"] = len(record["losses"])
    found |= {f"adapter.{key}": value for key, value in header.items()}
    known = {*(key.removeprefix("record.") for key in expected), *measured}
    return [
        *(f"record.{key}: is not a known field" for key in sorted(set(record) - known)),
        *(
            f"{name}: expected {value}, found {found.get(name)}"
            for name, value in expected.items()
            if found.get(name) != value
        ),
    ]


def _provenance(training: HeadTraining, pairs: Sequence[PreferencePair]) -> dict[str, str]:
    """What an adapter calls itself in its header."""
    return {
        "study": "vea",
        "training": training.name,
        "target": training.target,
        "seed": str(training.seed),
        "pairs": pairs_digest(pairs),
    }


def _said(training: HeadTraining, pairs: Sequence[PreferencePair]) -> dict[str, Any]:
    """The record's own words about what was to be learnt."""
    return {
        "schema": FIT_SCHEMA,
        "training": training.name,
        "target": training.target,
        "score_head": {"seed": training.score_head.seed, "std": training.score_head.std},
        "n_pairs": len(pairs),
        "pairs": pairs_digest(pairs),
        "stop": FIXED_STEPS,
    }
