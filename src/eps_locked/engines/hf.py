"""The ``transformers`` engine: local weights, batches that share a prefix, exact slot readings.

One call is one batch and gives the same bytes whenever it is repeated: on a CPU also in another
process, and whatever was asked before, because a cached prefix is the one that would be computed
again (same ids, same adapter, always alone and in one pass). Greedy tokens do not depend on the
batch's other rows, on a draft, or on the prefix cache either (the tie rule in ``hf_decode``);
log-probabilities may differ in the last digits between differently composed batches.

The decoding lives in ``hf_decode``, the forward pass in ``hf_forward``, the vocabulary arithmetic
in ``hf_logits``. Not thread-safe: it shares its model with the trainer.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import torch

from eps_locked.domain.model import (
    AdapterFiles,
    AttachProof,
    ChatTokenizer,
    Completion,
    Decoding,
    EngineIdentity,
    Prompt,
    SlotProbe,
    SlotReading,
    SlotRequest,
    TokenIds,
)
from eps_locked.engines.hf_decode import Answer, decode_batch, read_batch
from eps_locked.engines.hf_forward import (
    ATTENTION_NAME,
    ModelHost,
    Prefix,
    forward,
    new_tails,
    prefix_of,
    register_attention,
)
from eps_locked.engines.hf_logits import TIE_MARGIN
from eps_locked.engines.proof import require_effect
from eps_locked.errors import BackendError

__all__ = ["HfEngine"]

# Below this a shared prefix saves less than the second attention part costs.
_MIN_PREFIX = 8
# Prefixes kept. A runner comes back to a context at most once (answers, then slots), and one
# 1,000-token prefix of a 135M model is 46 MB.
_MAX_PREFIXES = 4
_SELF_CHECK_TOLERANCE = 0.05


class _Host(ModelHost, Protocol):
    """``models.host.AdapterHost``, as far as the engine uses it."""

    versions: dict[str, str]
    active_digest: str | None

    @property
    def is_training(self) -> bool: ...

    def attach(self, files: AdapterFiles | None) -> int: ...


class HfEngine:
    """A ``LogprobEngine`` on one ``AdapterHost``, which a trainer may share between calls."""

    def __init__(
        self,
        host: _Host,
        tokenizer: ChatTokenizer,
        *,
        probe_prompts: Sequence[SlotRequest],
        instance_id: str,
        max_batch_tokens: int = 8192,
    ) -> None:
        """Serve the bare base until ``attach`` is called.

        probe_prompts: at least one position at which ``attach`` compares adapter and base.
        instance_id: names the machine or process; goes into the identity unread.
        max_batch_tokens: rows x tail tokens held at once; a larger batch is split in order, and
        the split follows from the batch alone. It bounds memory.
        Raises BackendError if the model's attention is not the plain causal one we compute.
        """
        if not probe_prompts:
            raise ValueError("probe_prompts is empty: no attachment could be proved")
        self._host = host
        self._tokenizer = tokenizer
        self._probes = tuple(probe_prompts)
        self._instance_id = instance_id
        self._max_batch_tokens = max_batch_tokens
        self._adapter: AdapterFiles | None = None
        self._prefixes: OrderedDict[tuple[str | None, TokenIds], Prefix] = OrderedDict()
        self._base_log_probs: list[torch.Tensor] | None = None
        self._tie_margin = TIE_MARGIN if host.model.dtype == torch.float32 else 0.0
        self._stop_ids = _stop_ids(host.model, tokenizer)
        register_attention()
        self._require_own_attention()

    @property
    def identity(self) -> EngineIdentity:
        versions = self._host.versions
        return EngineIdentity(
            name="transformers",
            version=", ".join(f"{name} {versions[name]}" for name in sorted(versions)),
            device=str(self._host.device),
            dtype=str(self._host.model.dtype).removeprefix("torch."),
            quantisation="none",
            instance_id=self._instance_id,
            flags={
                "attention": ATTENTION_NAME,
                "max_batch_tokens": str(self._max_batch_tokens),
                "threads": str(torch.get_num_threads()),
                "tie_margin": repr(self._tie_margin),
            },
            publishable=True,
        )

    def attach(self, adapter: AdapterFiles | None) -> AttachProof | None:
        """Serve this adapter from now on, and prove that it acts (``engines.proof``).

        Raises BackendError when the proof fails; what was served before is then served again.
        """
        before = self._adapter
        if self._base_log_probs is None:
            self._serve(None)
            self._base_log_probs = self._probe_log_probs()
        if adapter is None:
            self._serve(None)
            return None
        try:
            n_loaded = self._serve(adapter)
            changes = [
                float((now - base).abs().max())
                for now, base in zip(self._probe_log_probs(), self._base_log_probs, strict=True)
            ]
            return require_effect(adapter, n_loaded, self._probes, changes)
        except BackendError:
            self._serve(before)
            raise

    def generate(
        self, prompts: Sequence[Prompt], decoding: Decoding, probe: SlotProbe | None = None
    ) -> tuple[Completion, ...]:
        """One completion per prompt, in order.

        Greedy decoding uses drafts; float32 answers are exact in the sense of ``hf_decode``. With
        bfloat16 drafts are ignored: its rounding decides too many close calls. Raises BackendError
        naming the first prompt that is empty or does not fit the model with its answer.
        """
        _require_decoding(decoding)
        n_extra = decoding.max_new_tokens + (0 if probe is None else len(probe.marker_ids) - 1)
        for prompt in prompts:
            self._require_fit(prompt.key, prompt.token_ids, n_extra)
        if not prompts:
            return ()
        self._require_serving()
        stop_ids = self._stop_ids if probe is None else self._stop_ids | {probe.end_of_turn_id}
        rows = [prompt.token_ids for prompt in prompts]
        prefix = self._prefix(rows)
        answers: list[Answer] = []
        for run in self._split(rows, prefix, n_extra):
            answers += decode_batch(
                self._host,
                prefix,
                prompts[run],
                decoding,
                probe,
                stop_ids=stop_ids,
                tie_margin=self._tie_margin,
            )
        return tuple(
            self._completion(prompt, answer)
            for prompt, answer in zip(prompts, answers, strict=True)
        )

    def read_slots(
        self, requests: Sequence[SlotRequest], probe: SlotProbe
    ) -> tuple[SlotReading, ...]:
        """One reading per request, in order. Raises BackendError as ``generate`` does."""
        n_extra = len(probe.marker_ids) - 1
        for request in requests:
            self._require_fit(request.key, request.token_ids, n_extra)
        if not requests:
            return ()
        self._require_serving()
        rows = [request.token_ids for request in requests]
        prefix = self._prefix(rows)
        readings: list[SlotReading] = []
        for run in self._split(rows, prefix, n_extra):
            readings += read_batch(self._host, prefix, rows[run], probe)
        return tuple(readings)

    def forget_prefixes(self) -> None:
        """Drop cached prefixes. Frees memory; no later answer changes by a bit."""
        self._prefixes.clear()

    def _completion(self, prompt: Prompt, answer: Answer) -> Completion:
        return Completion(
            key=prompt.key,
            token_ids=answer.token_ids,
            text=self._tokenizer.decode(answer.token_ids),
            stop_reason=answer.stop_reason,
            slot=answer.slot,
            slot_index=answer.slot_index,
            marker_emitted=answer.marker_emitted,
        )

    def _prefix(self, rows: Sequence[TokenIds]) -> Prefix | None:
        """What all rows begin with, short of a last token; None when not worth sharing."""
        length = _common_length(rows)
        if len(rows) < 2 or length < _MIN_PREFIX:
            return None
        key = (self._host.active_digest, rows[0][:length])
        if key not in self._prefixes:
            self._prefixes[key] = prefix_of(self._host, key[1])
        self._prefixes.move_to_end(key)
        while len(self._prefixes) > _MAX_PREFIXES:
            self._prefixes.popitem(last=False)
        return self._prefixes[key]

    def _split(
        self, rows: Sequence[TokenIds], prefix: Prefix | None, n_extra: int
    ) -> Iterator[slice]:
        """Runs of rows that together stay within ``max_batch_tokens`` (at least one row each)."""
        skip = 0 if prefix is None else prefix.length
        longest = max(len(row) for row in rows) - skip + n_extra
        n_rows = max(1, self._max_batch_tokens // longest)
        for start in range(0, len(rows), n_rows):
            yield slice(start, start + n_rows)

    def _serve(self, adapter: AdapterFiles | None) -> int:
        n_loaded = self._host.attach(adapter)
        self._adapter = adapter
        return n_loaded

    def _require_serving(self) -> None:
        """The host is shared: what it serves now may be another caller's adapter."""
        if self._host.is_training:
            raise RuntimeError("an adapter is being trained on this engine's model")
        wanted = None if self._adapter is None else self._adapter.digest
        if self._host.active_digest != wanted:
            self._host.attach(self._adapter)

    def _probe_log_probs(self) -> list[torch.Tensor]:
        """log-softmax (float64, V entries) after each probe prompt, each in a pass of its own."""
        found = []
        for probe in self._probes:
            self._require_fit(probe.key, probe.token_ids, 0)
            tails = new_tails(self._host, None, 1, len(probe.token_ids))
            last_BC = forward(self._host, tails, [probe.token_ids], [0])[:, -1]
            with torch.no_grad():
                logits_BV = self._host.lm_head(last_BC)
            found.append(torch.log_softmax(logits_BV[0].double(), dim=-1))
        return found

    def _require_fit(self, key: str, token_ids: TokenIds, n_extra: int) -> None:
        limit = self._host.config.max_position_embeddings
        if not token_ids:
            raise BackendError(f"prompt {key}", expected="at least one token", found=0)
        if len(token_ids) > limit - n_extra:
            raise BackendError(
                f"prompt {key}",
                expected=f"at most {limit - n_extra} tokens"
                f" ({limit} positions less {n_extra} to write)",
                found=f"{len(token_ids)} tokens",
                next_step="shorten the context, or lower max_new_tokens in the plan",
            )

    def _require_own_attention(self) -> None:
        """Compare a pass of ours, prefix and ragged tails included, with the model's own."""
        size = self._host.config.vocab_size
        ids = [(7 * i + 3) % size for i in range(24)]
        tails = new_tails(self._host, prefix_of(self._host, tuple(ids[:9])), 2, len(ids))
        forward(self._host, tails, [ids[9:12], ids[9:16]], [0, 0])
        ours_BTC = forward(self._host, tails, [ids[12:], ids[16:]], [3, 7])
        with torch.no_grad():
            whole = self._host.body(
                input_ids=torch.tensor([ids], device=self._host.device), use_cache=False
            ).last_hidden_state
        scale = float(whole.abs().max())
        n_short = len(ids) - 16
        off = max(
            float((ours_BTC[0] - whole[0, 12:]).abs().max()),
            float((ours_BTC[1, :n_short] - whole[0, 16:]).abs().max()),
        )
        if not off <= _SELF_CHECK_TOLERANCE * scale:
            raise BackendError(
                f"model {type(self._host.model).__name__}",
                expected="hidden states equal to the model's own forward pass",
                found=f"a difference of {off:g} at a scale of {scale:g}",
                next_step="use a decoder with plain causal attention, or another engine",
            )


def _stop_ids(model: Any, tokenizer: ChatTokenizer) -> frozenset[int]:
    """The end of turn and every end token that the model's own settings name."""
    found = {tokenizer.end_of_turn_id}
    for settings in (model.config, getattr(model, "generation_config", None)):
        ids = getattr(settings, "eos_token_id", None)
        if ids is not None:
            found.update([ids] if isinstance(ids, int) else ids)
    return frozenset(found)


def _common_length(rows: Sequence[TokenIds]) -> int:
    """How many leading tokens all rows share, leaving every row at least one token of its own."""
    limit = min(len(row) for row in rows) - 1
    # The common prefix of the smallest and the largest row is the common prefix of all.
    low, high = min(rows), max(rows)
    for i in range(limit):
        if low[i] != high[i]:
            return i
    return limit


def _require_decoding(decoding: Decoding) -> None:
    if decoding.max_new_tokens < 1 or decoding.temperature < 0 or not 0 < decoding.top_p <= 1:
        raise BackendError(
            "decoding",
            expected="max_new_tokens >= 1, temperature >= 0 and 0 < top_p <= 1",
            found=decoding,
        )
