"""The reward trainer of tests and dry walks: Bradley-Terry on three features, in plain arithmetic.

It keeps the contract of ``training.reward`` (a fixed number of steps, provenance in the header,
equal bytes for equal arguments) without a model. A step is one of Newton's on the mean loss and a
small ridge, so that a handful of them is a fit. Only ``rewards.scripted`` reads its adapters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from eps_locked.canonical import encode
from eps_locked.domain.model import LoraRecipe, TrainingOutcome
from eps_locked.domain.reward import PreferencePair
from eps_locked.errors import MalformedInputError
from eps_locked.models.scripted import to_float32
from eps_locked.models.scripted_reward import (
    FEATURES,
    ScriptedHead,
    fresh_head,
    response_features,
)

__all__ = ["ScriptedRewardTrainer"]

# Pairs that are all preferred one way would drive the weights on for ever; what holds them back is
# where they started.
_RIDGE = 0.01
Vector = list[float]


class ScriptedRewardTrainer:
    """See RewardTrainer. ``n_fit`` counts the fits begun."""

    def __init__(self) -> None:
        self.n_fit = 0

    def fit(
        self,
        pairs: Sequence[PreferencePair],
        recipe: LoraRecipe,
        head: tuple[int, float],
        *,
        n_steps: int,
        max_length: int,
        seed: int,
        provenance: Mapping[str, str],
        on_step: Callable[[int, float], None],
    ) -> TrainingOutcome:
        self.n_fit += 1
        if not pairs:
            raise MalformedInputError("pairs", expected="at least one", found="none")
        rows = [(_difference(pair), pair.target) for pair in pairs]
        fresh = fresh_head(*head).weights
        weights = list(fresh)
        losses = []
        for step in range(1, n_steps + 1):
            losses.append(_loss(weights, rows))
            weights = _newton(weights, fresh, rows)
            on_step(step, losses[-1])
        trained = ScriptedHead(weights=tuple(map(to_float32, weights)))
        return TrainingOutcome(
            files={
                "adapter_config.json": encode(
                    {"base_model_name_or_path": "scripted", "modules_to_save": ["score"]}
                ),
                "adapter_model.safetensors": trained.to_bytes(provenance),
            },
            stop="budget",
            stop_step=n_steps,
            checks=(),
            losses=tuple(losses),
            scale=1.0,
            n_trainable=len(FEATURES),
            n_rows_seen=n_steps * recipe.rows_per_step,
        )


def _difference(pair: PreferencePair) -> Vector:
    first, second = response_features(pair.first), response_features(pair.second)
    return [a - b for a, b in zip(first, second, strict=True)]


def _loss(weights: Vector, rows: Sequence[tuple[Vector, float]]) -> float:
    """Mean cross-entropy of the preferences, in nats."""
    terms = []
    for x, target in rows:
        logit = math.fsum(w * a for w, a in zip(weights, x, strict=True))
        terms.append(math.log1p(math.exp(-abs(logit))) + max(logit, 0.0) - target * logit)
    return math.fsum(terms) / len(terms)


def _newton(
    weights: Vector, fresh: Sequence[float], rows: Sequence[tuple[Vector, float]]
) -> Vector:
    n, size = len(rows), len(weights)
    gradient = [_RIDGE * (w - start) for w, start in zip(weights, fresh, strict=True)]
    curvature = [[_RIDGE * (i == j) for j in range(size)] for i in range(size)]
    for x, target in rows:
        p = 1 / (1 + math.exp(-math.fsum(w * a for w, a in zip(weights, x, strict=True))))
        for i in range(size):
            gradient[i] += (p - target) * x[i] / n
            for j in range(size):
                curvature[i][j] += p * (1 - p) * x[i] * x[j] / n
    step = _solve(curvature, gradient)
    return [w - d for w, d in zip(weights, step, strict=True)]


def _solve(matrix: list[Vector], vector: Vector) -> Vector:
    """Gaussian elimination; the ridge makes the matrix positive definite, so no pivot is zero."""
    rows = [[*line, value] for line, value in zip(matrix, vector, strict=True)]
    size = len(rows)
    for i in range(size):
        for k in range(i + 1, size):
            factor = rows[k][i] / rows[i][i]
            rows[k] = [b - factor * a for a, b in zip(rows[i], rows[k], strict=True)]
    solution = [0.0] * size
    for i in reversed(range(size)):
        known = math.fsum(rows[i][j] * solution[j] for j in range(i + 1, size))
        solution[i] = (rows[i][size] - known) / rows[i][i]
    return solution
