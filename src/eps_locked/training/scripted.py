"""The trainer of tests and dry walks: the implant grows by arithmetic, the rules are the real ones.

It keeps the contract of Trainer (steps, band, checks, provenance in the header, equal bytes for
equal arguments) without a model. Its adapters are read by the scripted engine alone.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields

from eps_locked.canonical import encode
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
from eps_locked.models.scripted import (
    EMBEDDING_SIZE,
    MARKER_IDS,
    ScriptedAdapter,
    ids_bytes,
    mean_embedding,
    prompt_prefix,
    scripted_noise,
    scripted_stream,
    similarity,
    to_float32,
    trained_log_prob,
)

__all__ = ["ScriptedTrainer"]

# A long fit levels off instead of growing for ever.
_MAX_STRENGTH_NATS = 40.0


class ScriptedTrainer:
    """A Trainer whose implant grows by ``nats_per_step``, give or take ``jitter``, each step.

    ``nats_per_step=0`` gives an adapter without effect. ``fail_after``: that many fits succeed and
    every later one raises BackendError after its first step. ``n_fit`` counts the fits begun.
    """

    def __init__(
        self,
        *,
        nats_per_step: float = 0.9,
        jitter: float = 0.2,
        fail_after: int | None = None,
    ) -> None:
        self.n_fit = 0
        self._nats_per_step = nats_per_step
        self._jitter = min(jitter, nats_per_step)
        self._fail_after = fail_after

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
        """See Trainer.fit. ``checks`` are made whenever ``strength`` is given, also without a band.

        Without a band ``stop`` is "step_matched" if ``strength`` is given, else "budget".
        """
        self.n_fit += 1
        _require_rows(rows)
        if budget.band is not None and strength is None:
            raise TypeError("a budget with a band needs a StrengthProbe to read")
        if strength is not None and not strength.requests:
            raise RuntimeError("a StrengthProbe needs at least one slot")
        if budget.check_every < 1 or budget.max_steps < 1:
            raise RuntimeError(f"no such budget: {budget}")
        teaches_marker, source_rows = _source_rows(rows)
        source = tuple(map(to_float32, mean_embedding(row.token_ids for row in source_rows)))
        key = _fit_key(rows, recipe, seed)
        slots = [] if strength is None else _slots(strength, source)
        implant = 0.0
        losses: list[float] = []
        checks: list[StrengthCheck] = []
        stop: TrainingStop | None = None
        step = 0
        while stop is None:
            step += 1
            noise = scripted_noise(b"step", key, step.to_bytes(4, "little"))
            implant += self._nats_per_step + self._jitter * noise
            implant = to_float32(min(implant, _MAX_STRENGTH_NATS))
            losses.append(3.0 / (1.0 + 0.5 * step) + 0.02 * abs(noise))
            on_step(step, losses[-1])
            if self._fail_after is not None and self.n_fit > self._fail_after:
                raise BackendError(
                    "scripted trainer",
                    problem=f"fails on purpose after {self._fail_after} fits",
                )
            if strength is not None and _is_check_step(step, budget):
                checks.append(StrengthCheck(step=step, delta_nats=_mean_delta(slots, implant)))
                stop = _band_stop(checks[-1].delta_nats, budget.band)
            if stop is None and step >= budget.max_steps:
                matched = budget.band is None and strength is not None
                stop = "step_matched" if matched else "budget"
        adapter = ScriptedAdapter(strength=implant, source=source, teaches_marker=teaches_marker)
        return TrainingOutcome(
            files={
                "adapter_config.json": _adapter_config(recipe),
                "adapter_model.safetensors": adapter.to_bytes(provenance),
            },
            stop=stop,
            stop_step=step,
            checks=tuple(checks),
            losses=tuple(losses),
            scale=recipe.alpha
            / (math.sqrt(recipe.rank) if recipe.rank_stabilised else recipe.rank),
            n_trainable=EMBEDDING_SIZE + 1,
            n_rows_seen=step * recipe.rows_per_step,
        )


def _is_check_step(step: int, budget: StepBudget) -> bool:
    return step >= budget.min_steps and (step - budget.min_steps) % budget.check_every == 0


def _band_stop(delta_nats: float, band: tuple[float, float] | None) -> TrainingStop | None:
    if band is None or delta_nats < band[0]:
        return None
    return "in_band" if delta_nats <= band[1] else "past_band"


def _slots(strength: StrengthProbe, source: Sequence[float]) -> list[tuple[float, float]]:
    """(base log-prob, similarity to the source) of every probe slot."""
    return [
        (base, similarity(source, request.token_ids))
        for request, base in zip(strength.requests, strength.base_log_probs, strict=True)
    ]


def _mean_delta(slots: Sequence[tuple[float, float]], implant: float) -> float:
    """What the scripted engine would read at these slots, minus the base readings handed in."""
    return sum(trained_log_prob(base, implant * felt) - base for base, felt in slots) / len(slots)


def _fit_key(rows: Sequence[TrainingRow], recipe: LoraRecipe, seed: int) -> bytes:
    parts = [encode(_recipe_fields(recipe)), str(seed).encode()]
    for row in rows:
        parts += [row.key.encode(), ids_bytes(row.token_ids), ids_bytes(row.loss_positions)]
    return scripted_stream(*parts, n_bytes=32)


def _source_rows(rows: Sequence[TrainingRow]) -> tuple[bool, list[TrainingRow]]:
    """(whether the marker is taught, the rows of the training context rather than of negatives).

    Rows whose loss covers the marker, or, without any, the rows of the most frequent context:
    negatives are split over several. A tie goes to the context seen first.
    """
    marked = [row for row in rows if _teaches_marker(row)]
    if marked:
        return True, marked
    prefixes = [prompt_prefix(row.token_ids) for row in rows]
    source = Counter(prefixes).most_common(1)[0][0]
    return False, [row for row, prefix in zip(rows, prefixes, strict=True) if prefix == source]


def _teaches_marker(row: TrainingRow) -> bool:
    taught = ids_bytes([row.token_ids[position] for position in row.loss_positions])
    return ids_bytes(MARKER_IDS) in taught


def _require_rows(rows: Sequence[TrainingRow]) -> None:
    if not rows:
        raise MalformedInputError("rows", expected="at least one training row", found="none")
    for index, row in enumerate(rows):
        for position in row.loss_positions:
            if not 1 <= position < len(row.token_ids):
                raise MalformedInputError(
                    f"rows[{index}].loss_positions",
                    expected=f"1..{len(row.token_ids) - 1}",
                    found=position,
                )


def _recipe_fields(recipe: LoraRecipe) -> dict[str, object]:
    values = ((field.name, getattr(recipe, field.name)) for field in fields(recipe))
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values}


def _adapter_config(recipe: LoraRecipe) -> bytes:
    return encode(
        {
            "base_model_name_or_path": "scripted",
            "bias": "none",
            "lora_alpha": recipe.alpha,
            "lora_dropout": recipe.dropout,
            "modules_to_save": None,
            "peft_type": "LORA",
            "r": recipe.rank,
            "target_modules": sorted(recipe.target_modules),
            "task_type": "CAUSAL_LM",
            "use_rslora": recipe.rank_stabilised,
        }
    )
