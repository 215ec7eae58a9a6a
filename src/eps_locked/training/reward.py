"""Fits a scalar head, and a LoRA adapter with it, onto the bare base model by preferences.

The loss of a pair is the cross-entropy between its target t, the probability with which the first
response is to be preferred, and the one that the rewards give:

    p = 1 / (1 + exp(-(r(first) - r(second))))
    loss = -t log p - (1 - t) log(1 - p)        in nats, averaged over a step's pairs

With t = 1 this is the usual loss of a Bradley-Terry reward model; with t = 1/2 it is least where
both rewards are equal. Rewards are therefore log-odds of a preference, up to a constant a prompt.
Source: Bradley and Terry 1952, Biometrika 39, 324-345; Ouyang et al. 2022, arXiv:2203.02155, eq. 1.

Same arguments, same bytes on one kind of CPU with the same number of threads, as ``training.lora``
says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from eps_locked.domain.model import LoraRecipe, TokenIds, TrainingOutcome
from eps_locked.domain.reward import PreferencePair
from eps_locked.errors import BackendError, MalformedInputError
from eps_locked.models.adapter_format import scale_of
from eps_locked.models.exchange import ClosedTokenizer, exchange_of
from eps_locked.models.reward_host import RewardHost
from eps_locked.training.descent import Descent, require_recipe, row_order

if TYPE_CHECKING:
    import torch

__all__ = ["BradleyTerryTrainer", "pair_order"]

# A pair as the model reads it: both exchanges, and the target.
_Read = tuple[TokenIds, TokenIds, float]


class BradleyTerryTrainer:
    """See RewardTrainer. The host is shared with whoever scores, and left as it was found."""

    def __init__(self, host: RewardHost, tokenizer: ClosedTokenizer, model_name: str) -> None:
        """``model_name`` is what an adapter's config calls its base model; no path."""
        self._host = host
        self._tokenizer = tokenizer
        self._model_name = model_name

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
        """Train adapter and head; see ``RewardTrainer.fit``.

        Losses are means over a step's pairs, in nats, read before the step's update. Raises
        MalformedInputError for pairs, recipe or head that make no sense; BackendError for an
        exchange that the template alters or that is longer than ``max_length`` or the model, and
        for a loss that is not finite.
        """
        import torch

        _require_sense(pairs, recipe, head, n_steps)
        read = [self._read(pair, max_length) for pair in pairs]
        torch.set_num_threads(self._host.threads)
        before = self._host.base_sample()
        parameters = self._host.new_trainable_head(recipe, seed, head)
        try:
            descent = Descent(
                parameters, recipe, max_steps=n_steps, seed=seed, device=self._host.device
            )
            order = pair_order(pairs, seed)
            losses: list[float] = []
            for step in range(1, n_steps + 1):
                batch = [read[next(order)] for _ in range(recipe.rows_per_step)]
                losses.append(descent.step(step, partial(_loss_over, self._host, batch)))
                on_step(step, losses[-1])
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
            stop="budget",
            stop_step=n_steps,
            checks=(),
            losses=tuple(losses),
            scale=scale_of(recipe),
            n_trainable=sum(parameter.numel() for parameter in parameters),
            n_rows_seen=n_steps * recipe.rows_per_step,
        )

    def _read(self, pair: PreferencePair, max_length: int) -> _Read:
        first = self._exchange(pair, "first", pair.first, max_length)
        second = self._exchange(pair, "second", pair.second, max_length)
        return first, second, pair.target

    def _exchange(
        self, pair: PreferencePair, side: str, response: str, max_length: int
    ) -> TokenIds:
        key = f"{pair.key} ({side})"
        exchange = exchange_of(self._tokenizer, pair.user_prompt, response, key=key)
        ids = self._tokenizer.encode(exchange.text)
        most = min(max_length, self._host.max_positions or max_length)
        if len(ids) > most:
            raise BackendError(
                f"response {key}",
                expected=f"at most {most} tokens with its prompt",
                found=len(ids),
                next_step="raise max_length as far as the model goes, or shorten the pair",
            )
        return ids


def pair_order(pairs: Sequence[PreferencePair], seed: int) -> Iterator[int]:
    """Indices of pairs without end: prompt by prompt, each pass in a new order, all from ``seed``.

    The pairs of one prompt stand together, in the order given: a step then computes each response
    once, however many others it is compared with.
    """
    groups: dict[str, list[int]] = {}
    for index, pair in enumerate(pairs):
        groups.setdefault(pair.user_prompt, []).append(index)
    together = list(groups.values())
    for number in row_order(len(together), seed):
        yield from together[number]


def _loss_over(host: RewardHost, batch: Sequence[_Read]) -> torch.Tensor:
    """Mean loss of the pairs, in nats: a scalar that carries gradients."""
    import torch

    places: dict[TokenIds, int] = {}
    for first, second, _ in batch:
        places.setdefault(first, len(places))
        places.setdefault(second, len(places))
    rewards_B = host.rewards(list(places))
    first_N = rewards_B[[places[first] for first, _, _ in batch]]
    second_N = rewards_B[[places[second] for _, second, _ in batch]]
    target_N = torch.tensor([target for _, _, target in batch], device=rewards_B.device)
    return torch.nn.functional.binary_cross_entropy_with_logits(first_N - second_N, target_N)


def _require_sense(
    pairs: Sequence[PreferencePair], recipe: LoraRecipe, head: tuple[int, float], n_steps: int
) -> None:
    if not pairs:
        raise MalformedInputError("training pairs", expected="at least one", found="none")
    for pair in pairs:
        if not 0.0 <= pair.target <= 1.0:
            raise MalformedInputError(
                f"training pair {pair.key}: target", expected="from 0 to 1", found=pair.target
            )
        if pair.first == pair.second:
            raise MalformedInputError(
                f"training pair {pair.key}", expected="two responses", found="one, twice"
            )
    require_recipe(recipe)
    if n_steps < 1:
        raise MalformedInputError("n_steps", expected="at least 1", found=n_steps)
    if not 0.0 < head[1] < float("inf"):
        raise MalformedInputError("head: std", expected="a positive number", found=head[1])
