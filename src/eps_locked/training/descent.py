"""Optimizer steps in one documented order of operations, so that equal fits give equal bytes.

What is descended is the caller's: any loss of the parameters, one function a step.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from eps_locked.domain.model import LoraRecipe
from eps_locked.errors import BackendError, MalformedInputError

if TYPE_CHECKING:
    import torch

__all__ = ["Descent", "learning_rate_at", "require_recipe", "row_order"]


class Descent:
    """AdamW under a recipe's schedule, gradients clipped, dropout drawn from ``seed`` and step."""

    def __init__(
        self,
        parameters: Sequence[torch.nn.Parameter],
        recipe: LoraRecipe,
        *,
        max_steps: int,
        seed: int,
        device: str,
    ) -> None:
        import torch

        self._parameters = list(parameters)
        self._recipe = recipe
        self._max_steps = max_steps
        self._seed = seed
        # Dropout draws from the global generator: fork it, so neither side disturbs the other.
        self._devices = [torch.device(device)] if "cuda" in device else []
        # foreach and fused off: one documented order of operations, so bytes repeat.
        self._optimizer = torch.optim.AdamW(
            self._parameters,
            lr=recipe.learning_rate,
            weight_decay=recipe.weight_decay,
            foreach=False,
            fused=False,
        )

    def step(self, number: int, loss_of: Callable[[], torch.Tensor]) -> float:
        """Step ``number`` (from 1). The loss before it; BackendError if that is not finite."""
        import torch

        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate_at(number, self._recipe, self._max_steps)
        self._optimizer.zero_grad(set_to_none=True)
        with torch.random.fork_rng(devices=self._devices), torch.enable_grad():
            torch.manual_seed((self._seed * 1_000_003 + number) % 2**63)
            loss = loss_of()
            value = float(loss.detach())
            if not math.isfinite(value):
                raise BackendError(
                    f"training step {number}",
                    expected="a finite loss",
                    found=value,
                    next_step="lower the learning rate; no adapter was written",
                )
            loss.backward()  # type: ignore[no-untyped-call]
        if self._recipe.max_grad_norm > 0:
            torch.nn.utils.clip_grad_norm_(
                self._parameters, self._recipe.max_grad_norm, foreach=False
            )
        self._optimizer.step()
        return value


def row_order(n_rows: int, seed: int) -> Iterator[int]:
    """Row indices without end: each pass over the rows in a new order, all from ``seed``."""
    rng = random.Random(seed)
    while True:
        order = list(range(n_rows))
        rng.shuffle(order)
        yield from order


def learning_rate_at(step: int, recipe: LoraRecipe, max_steps: int) -> float:
    """Learning rate of optimizer step ``step`` (from 1): linear warm-up, then the schedule.

    "linear" and "cosine" fall from the full rate after warm-up towards zero at ``max_steps`` + 1,
    whether or not the fit stops earlier.
    """
    peak, warmup = recipe.learning_rate, recipe.warmup_steps
    if step <= warmup:
        return peak * step / (warmup + 1)
    progress = (step - warmup - 1) / max(1, max_steps - warmup)
    if recipe.schedule == "linear":
        return peak * (1.0 - progress)
    if recipe.schedule == "cosine":
        return peak * 0.5 * (1.0 + math.cos(math.pi * progress))
    return peak


def require_recipe(recipe: LoraRecipe) -> None:
    """Raise MalformedInputError for a number that no fit can use."""
    numbers = {
        "rank": recipe.rank >= 1,
        "rows_per_step": recipe.rows_per_step >= 1,
        "learning_rate": math.isfinite(recipe.learning_rate) and recipe.learning_rate > 0,
        "warmup_steps": recipe.warmup_steps >= 0,
        "dropout": 0.0 <= recipe.dropout < 1.0,
    }
    for field, is_sensible in numbers.items():
        if not is_sensible:
            raise MalformedInputError(
                f"recipe.{field}", expected="a number in range", found=getattr(recipe, field)
            )
