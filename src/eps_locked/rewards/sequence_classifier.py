"""A sequence classification reward model in this process: transformers, one number a response.

A response is read as its prompt's answer under the model's own chat template, the turn closed; the
reward is read at the last token (``models.reward_host``). What is too long is not cut.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from eps_locked.domain.model import AdapterFiles, TokenIds
from eps_locked.domain.reward import RewardIdentity, RewardRequest, RewardScore
from eps_locked.errors import BackendError, MalformedInputError
from eps_locked.models.exchange import ClosedTokenizer, exchange_of
from eps_locked.models.reward_host import RewardHost

__all__ = ["SequenceClassifier"]


class SequenceClassifier:
    """See RewardModel. The host may be shared: adapter and head are put on before every call."""

    def __init__(
        self,
        host: RewardHost,
        tokenizer: ClosedTokenizer,
        *,
        base: str,
        max_length: int,
        batch_rows: int,
        adapter: AdapterFiles | None = None,
        head: tuple[int, float] | None = None,
    ) -> None:
        """``base`` is the model's name for people. ``head``: seed and deviation of a fresh one;
        with neither that nor an adapter, the model's own.

        Raises BackendError if ``max_length`` is beyond the model's positions, or if the model has
        no head of its own and is to use it.
        """
        if adapter is not None and head is not None:
            raise MalformedInputError(
                f"reward model on {base}",
                expected="an adapter, which brings its head, or a fresh head",
                found="both",
            )
        if batch_rows < 1 or max_length < 1:
            raise MalformedInputError(
                f"reward model on {base}: batch_rows and max_length",
                expected="at least 1 each",
                found=f"{batch_rows} and {max_length}",
            )
        if host.max_positions is not None and max_length > host.max_positions:
            raise BackendError(
                f"reward model on {base}: max_length",
                expected=f"at most {host.max_positions}, the model's positions",
                found=max_length,
            )
        self._host = host
        self._tokenizer = tokenizer
        self._base = base
        self._max_length = max_length
        self._batch_rows = batch_rows
        self._adapter = adapter
        self._fresh = head
        self._put_on()

    @property
    def identity(self) -> RewardIdentity:
        host = self._host
        return RewardIdentity(
            kind="sequence_classification",
            model=self._base,
            version=", ".join(f"{name} {host.versions[name]}" for name in sorted(host.versions)),
            settings={
                "head": self._head_name(),
                "max_length": str(self._max_length),
                "batch_rows": str(self._batch_rows),
                "device": host.device,
                "dtype": str(host.model.dtype).removeprefix("torch."),
                "threads": str(host.threads),
                "template_digest": self._tokenizer.template_digest,
            },
            publishable=True,
        )

    def score(self, requests: Sequence[RewardRequest]) -> tuple[RewardScore, ...]:
        """Raises BackendError for a response that the chat template does not leave as it is."""
        self._put_on()
        rows = [self._ids(request) for request in requests]
        fits = [index for index, ids in enumerate(rows) if len(ids) <= self._max_length]
        # Like lengths together waste the least padding; rewards do not depend on the company.
        fits.sort(key=lambda index: len(rows[index]))
        values: dict[int, float] = {}
        for start in range(0, len(fits), self._batch_rows):
            batch = fits[start : start + self._batch_rows]
            rewards = self._rewards([rows[index] for index in batch])
            values.update(zip(batch, rewards, strict=True))
        return tuple(
            self._score(request.key, len(ids), values.get(index))
            for index, (request, ids) in enumerate(zip(requests, rows, strict=True))
        )

    def _put_on(self) -> None:
        if self._fresh is not None:
            self._host.use_fresh_head(*self._fresh)
        else:
            self._host.attach(self._adapter)

    def _head_name(self) -> str:
        if self._adapter is not None:
            return self._adapter.digest
        if self._fresh is None:
            return "its own"
        seed, std = self._fresh
        return f"fresh, seed {seed}, std {std:.17g}"

    def _ids(self, request: RewardRequest) -> TokenIds:
        exchange = exchange_of(
            self._tokenizer, request.user_prompt, request.response, key=request.key
        )
        return self._tokenizer.encode(exchange.text)

    def _rewards(self, rows: Sequence[TokenIds]) -> list[float]:
        import torch

        with torch.no_grad():
            return [float(value) for value in self._host.rewards(rows)]

    def _score(self, key: str, n_tokens: int, value: float | None) -> RewardScore:
        if value is None:
            note = f"{n_tokens} tokens do not fit into {self._max_length}"
            return RewardScore(
                key=key, status="truncated", value=None, n_tokens=n_tokens, note=note, tries=0
            )
        is_finite = math.isfinite(value)
        return RewardScore(
            key=key,
            status="scored" if is_finite else "not_finite",
            value=value if is_finite else None,
            n_tokens=n_tokens,
            note="" if is_finite else f"the reward is {value}",
            tries=0,
        )
