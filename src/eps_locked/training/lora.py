"""Fits one LoRA adapter onto the bare base model, in optimizer steps and never in epochs.

Same arguments, same bytes on one kind of CPU with the same number of threads (matrix products sum
in another order otherwise): initial weights, row order and dropout each come from ``seed`` and
nothing else, and a fit always runs with the thread count its host was loaded with. The strength
of the implant is read through the same weights in memory that are being trained, so "not applied"
cannot look like "no effect".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from eps_locked.domain.model import (
    LoraRecipe,
    StepBudget,
    StrengthCheck,
    StrengthProbe,
    TrainingOutcome,
    TrainingRow,
    TrainingStop,
)
from eps_locked.errors import BackendError, MalformedInputError
from eps_locked.models.adapter_format import scale_of
from eps_locked.models.host import AdapterHost
from eps_locked.training import forward
from eps_locked.training.descent import Descent, learning_rate_at, require_recipe, row_order

if TYPE_CHECKING:
    import torch

__all__ = ["LoraTrainer", "learning_rate_at", "row_order", "stop_reason"]


class LoraTrainer:
    """Serves ``Trainer`` on a host shared with the engine; the host is left as it was found."""

    def __init__(self, host: AdapterHost, model_name: str) -> None:
        """``model_name`` is what an adapter's config calls its base model; no path."""
        self._host = host
        self._model_name = model_name

    def fit(
        self,
        rows: Sequence[TrainingRow],
        recipe: LoraRecipe,
        budget: StepBudget,
        strength: StrengthProbe | None,
        *,
        seed: int,
        provenance: Mapping[str, str],
        on_step: Callable[[int, float], None],
    ) -> TrainingOutcome:
        """Train one adapter; see ``Trainer.fit``.

        Losses are means over the batch's loss tokens, in nats, read before each step's update.
        With a band, the last step is always checked too, so a budget stop says how far it came;
        without one, ``strength`` is read once at the end. Raises MalformedInputError for rows,
        recipe or budget that make no sense, BackendError for a loss that is not finite.
        """
        import torch

        _require_sense(rows, recipe, budget, strength, self._host.config)
        torch.set_num_threads(self._host.threads)
        before = self._host.base_sample()
        parameters = self._host.new_trainable(recipe, seed)
        try:
            outcome = self._run(rows, recipe, budget, strength, seed, parameters, on_step)
            stop, checks, losses = outcome
            files = self._host.export(recipe, provenance, model_name=self._model_name)
        finally:
            self._host.discard_trainable()
        if self._host.base_sample() != before:
            raise BackendError(
                str(self._host.base_folder),
                problem="training changed the base model's own weights",
                next_step="discard this run; load the base model again",
            )
        return TrainingOutcome(
            files=files,
            stop=stop,
            stop_step=len(losses),
            checks=tuple(checks),
            losses=tuple(losses),
            scale=scale_of(recipe),
            n_trainable=sum(parameter.numel() for parameter in parameters),
            n_rows_seen=len(losses) * recipe.rows_per_step,
        )

    def _run(
        self,
        rows: Sequence[TrainingRow],
        recipe: LoraRecipe,
        budget: StepBudget,
        strength: StrengthProbe | None,
        seed: int,
        parameters: list[torch.nn.Parameter],
        on_step: Callable[[int, float], None],
    ) -> tuple[TrainingStop, list[StrengthCheck], list[float]]:
        descent = Descent(
            parameters, recipe, max_steps=budget.max_steps, seed=seed, device=self._host.device
        )
        order = row_order(len(rows), seed)
        checks: list[StrengthCheck] = []
        losses: list[float] = []
        for step in range(1, budget.max_steps + 1):
            batch = [rows[next(order)] for _ in range(recipe.rows_per_step)]
            loss = descent.step(step, partial(forward.loss_over, self._host, batch))
            losses.append(loss)
            on_step(step, loss)
            if strength is not None and _is_check_due(step, budget):
                checks.append(StrengthCheck(step=step, delta_nats=self._delta(strength)))
                stop = stop_reason(checks[-1].delta_nats, budget.band)
                if stop is not None:
                    return stop, checks, losses
        return ("step_matched" if budget.band is None else "budget"), checks, losses

    def _delta(self, strength: StrengthProbe) -> float:
        """Mean over the probe of (trained - base) marker log-prob, in nats."""
        with self._host.evaluating():
            trained = forward.marker_log_probs(self._host, strength.requests, strength.probe)
        pairs = zip(trained, strength.base_log_probs, strict=True)
        delta = math.fsum(after - base for after, base in pairs) / len(trained)
        if not math.isfinite(delta):
            raise BackendError("implant strength", expected="a finite number", found=delta)
        return delta


def stop_reason(delta_nats: float, band: tuple[float, float] | None) -> TrainingStop | None:
    """What a check says: stop in the band (both ends included), stop past it, or go on (None)."""
    if band is None or delta_nats < band[0]:
        return None
    return "in_band" if delta_nats <= band[1] else "past_band"


def _is_check_due(step: int, budget: StepBudget) -> bool:
    if step == budget.max_steps:
        return True
    due = step >= budget.min_steps and (step - budget.min_steps) % budget.check_every == 0
    return budget.band is not None and due


def _require_sense(
    rows: Sequence[TrainingRow],
    recipe: LoraRecipe,
    budget: StepBudget,
    strength: StrengthProbe | None,
    config: Any,
) -> None:
    limit = getattr(config, "max_position_embeddings", None)
    if not rows:
        raise MalformedInputError("training rows", expected="at least one", found="none")
    for row in rows:
        positions, length = row.loss_positions, len(row.token_ids)
        if not positions or min(positions) < 1 or max(positions) >= length:
            raise MalformedInputError(
                f"training row {row.key}: loss_positions",
                expected=f"some, from 1 to {length - 1}",
                found=list(positions),
            )
        if limit is not None and length > limit:
            raise MalformedInputError(
                f"training row {row.key}", expected=f"at most {limit} tokens", found=length
            )
    require_recipe(recipe)
    numbers = {
        "budget.max_steps": budget.max_steps >= 1,
        "budget.min_steps": 1 <= budget.min_steps <= budget.max_steps,
        "budget.check_every": budget.check_every >= 1,
        "budget.band": budget.band is None or budget.band[0] <= budget.band[1],
    }
    for name, is_sensible in numbers.items():
        if not is_sensible:
            found = getattr(budget, name.removeprefix("budget."))
            raise MalformedInputError(name, expected="a number in range", found=found)
    if budget.band is not None and strength is None:
        raise MalformedInputError("budget.band", expected="a strength probe with it", found="none")
    if strength is not None and len(strength.requests) != len(strength.base_log_probs):
        raise MalformedInputError(
            "strength probe",
            expected=f"{len(strength.requests)} base log-probs",
            found=len(strength.base_log_probs),
        )
