"""The ``transformers`` engine: local weights, batches that share prefixes, exact slot readings.

One call is one batch and gives the same bytes whenever it is repeated: on a CPU also in another
process, and whatever was asked before, because a cached prefix is the one that would be computed
again (same ids, same adapter, always alone and in one pass). Greedy tokens do not depend on the
batch's other rows, on a draft, or on the prefix cache either (the tie rule in ``hf_decode``);
log-probabilities may differ in the last digits between differently composed batches.

The decoding lives in ``hf_decode``, the forward pass in ``hf_forward``, the vocabulary arithmetic
in ``hf_logits``, and who shares a prefix or a batch with whom in ``hf_groups``; other readings
in ``hf_readout``. Not thread-safe: the engine shares its model with the trainer.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import torch

from eps_locked.domain.model import (
    AdapterFiles,
    AttachProof,
    ChatTokenizer,
    Completion,
    Decoding,
    Divergence,
    DivergenceRequest,
    EngineIdentity,
    Prompt,
    SlotProbe,
    SlotReading,
    SlotRequest,
    SpanRequest,
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
from eps_locked.engines.hf_groups import batches, groups_of
from eps_locked.engines.hf_logits import TIE_MARGIN
from eps_locked.engines.hf_readout import answer_states, divergence_of, span_means
from eps_locked.engines.hf_rows import Bunch
from eps_locked.engines.proof import require_effect
from eps_locked.errors import BackendError

__all__ = ["HfEngine"]

_SELF_CHECK_TOLERANCE = 0.05
# Answer positions whose hidden states are held at once in ``divergences``: 151 MB at width 576.
_POSITIONS_HELD = 2**16


_Result = TypeVar("_Result")


class _Host(ModelHost, Protocol):
    """``models.host.AdapterHost``, as far as the engine uses it."""

    versions: dict[str, str]
    active_digest: str | None

    @property
    def is_training(self) -> bool: ...

    def attach(self, files: AdapterFiles | None) -> int: ...


class HfEngine:
    """A ``ReadoutEngine`` on one ``AdapterHost``, which a trainer may share between calls."""

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
        max_batch_tokens: rows x tail tokens held at once, and prefix tokens kept; a larger call is
        split, and the split follows from the call alone. It bounds memory: 1,000 tokens of a
        135M model are 46 MB.
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
    def n_layers(self) -> int:
        return int(self._host.config.num_hidden_layers)

    @property
    def width(self) -> int:
        return int(self._host.config.hidden_size)

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
        return self._generate(prompts, decoding, probe)

    def stream(
        self, prompt: Prompt, decoding: Decoding, on_token: Callable[[int], None]
    ) -> Completion:
        """What ``generate`` gives for this prompt alone; ``on_token`` is told its tokens as they
        come. Whatever it raises ends the decoding and reaches the caller."""
        return self._generate([prompt], decoding, None, on_token)[0]

    def _generate(
        self,
        prompts: Sequence[Prompt],
        decoding: Decoding,
        probe: SlotProbe | None,
        on_token: Callable[[int], None] | None = None,
    ) -> tuple[Completion, ...]:
        _require_decoding(decoding)
        n_extra = decoding.max_new_tokens + (0 if probe is None else len(probe.marker_ids) - 1)
        for prompt in prompts:
            self._require_fit(prompt.key, prompt.token_ids, n_extra)
        if not prompts:
            return ()
        self._require_serving()
        stop_ids = self._stop_ids if probe is None else self._stop_ids | {probe.end_of_turn_id}

        def decode(bunches: list[Bunch], rows: list[int]) -> list[Answer]:
            return decode_batch(
                self._host,
                bunches,
                [prompts[i] for i in rows],
                decoding,
                probe,
                stop_ids=stop_ids,
                tie_margin=self._tie_margin,
                on_token=on_token,
            )

        answers = self._in_batches([prompt.token_ids for prompt in prompts], n_extra, decode)
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
        contexts = [request.token_ids for request in requests]

        def read(bunches: list[Bunch], rows: list[int]) -> list[SlotReading]:
            return read_batch(self._host, bunches, [contexts[i] for i in rows], probe)

        return tuple(self._in_batches(contexts, n_extra, read))

    def activations(
        self, requests: Sequence[SpanRequest], layer: int
    ) -> tuple[tuple[float, ...], ...]:
        """See ``ReadoutEngine``. Tokens from ``end`` on change nothing and are not computed."""
        if not 1 <= layer <= self.n_layers:
            raise BackendError("layer", expected=f"1 to {self.n_layers}", found=layer)
        for request in requests:
            self._require_fit(request.key, request.token_ids, 0)
            if not 0 <= request.start < request.end <= len(request.token_ids):
                raise BackendError(
                    f"request {request.key}",
                    expected=f"0 <= start < end <= {len(request.token_ids)} tokens",
                    found=f"a span from {request.start} to {request.end}",
                )
        if not requests:
            return ()
        self._require_serving()
        wanted = [(request.token_ids[: request.end], request.start) for request in requests]
        distinct = list(dict.fromkeys(wanted))

        def read(bunches: list[Bunch], rows: list[int]) -> list[tuple[float, ...]]:
            heads, starts = zip(*(distinct[i] for i in rows), strict=True)
            return span_means(self._host, bunches, heads, starts, layer)

        means = self._in_batches(
            [head for head, _ in distinct], 0, read, own_from=[start for _, start in distinct]
        )
        found = dict(zip(distinct, means, strict=True))
        return tuple(found[span] for span in wanted)

    def divergences(self, requests: Sequence[DivergenceRequest]) -> tuple[Divergence, ...]:
        """See ``ReadoutEngine``. Every prompt is followed by the answer in one pass.

        Prompts that occur more than once with one answer are computed once. Requests are worked
        off in order, as many at a time as the memory for their hidden states allows.
        """
        for request in requests:
            self._require_divergence(request)
        if not requests:
            return ()
        self._require_serving()
        found: list[Divergence] = []
        held: list[DivergenceRequest] = []
        n_held = 0
        for request in requests:
            n_held += len(request.answer) * (1 + len(request.other_prompts))
            if held and n_held > _POSITIONS_HELD:
                found += self._divergences(held)
                held, n_held = [], len(request.answer) * (1 + len(request.other_prompts))
            held.append(request)
        return (*found, *self._divergences(held))

    def _divergences(self, requests: Sequence[DivergenceRequest]) -> list[Divergence]:
        pairs = list(
            dict.fromkeys(
                (prompt, request.answer)
                for request in requests
                for prompt in (request.own_prompt, *request.other_prompts.values())
            )
        )
        fed = [prompt + answer[:-1] for prompt, answer in pairs]

        def read(bunches: list[Bunch], rows: list[int]) -> list[torch.Tensor]:
            n_answer = [len(pairs[i][1]) for i in rows]
            return answer_states(self._host, bunches, [fed[i] for i in rows], n_answer)

        # The prompt's last token is where the answer's first is predicted.
        states = self._in_batches(fed, 0, read, own_from=[len(prompt) - 1 for prompt, _ in pairs])
        by_pair = dict(zip(pairs, states, strict=True))
        return [
            divergence_of(
                self._host.lm_head,
                request,
                by_pair[request.own_prompt, request.answer],
                {
                    name: by_pair[prompt, request.answer]
                    for name, prompt in request.other_prompts.items()
                },
            )
            for request in requests
        ]

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

    def _in_batches(
        self,
        rows: Sequence[TokenIds],
        n_extra: int,
        work: Callable[[list[Bunch], list[int]], list[_Result]],
        own_from: Sequence[int] | None = None,
    ) -> list[_Result]:
        """Do the work batch by batch (bunches, and the rows in their order); rows' results.

        Row i shares no token from ``own_from[i]`` on.
        """
        results: dict[int, _Result] = {}
        for batch in batches(groups_of(rows, own_from), n_extra, self._max_batch_tokens):
            bunches = [
                Bunch(
                    prefix=self._prefix(rows[group.rows[0]][: group.n_shared]),
                    n_rows=len(group.rows),
                )
                for group in batch
            ]
            order = [i for group in batch for i in group.rows]
            results.update(zip(order, work(bunches, order), strict=True))
        return [results[i] for i in range(len(rows))]

    def _prefix(self, token_ids: TokenIds) -> Prefix | None:
        """The prefix, kept or computed alone; None for no tokens."""
        if not token_ids:
            return None
        key = (self._host.active_digest, token_ids)
        if key not in self._prefixes:
            self._prefixes[key] = prefix_of(self._host, token_ids)
        self._prefixes.move_to_end(key)
        kept = self._prefixes[key]
        # A runner comes back to contexts at most once (answers, then slots). The newest stays.
        while len(self._prefixes) > 1 and self._n_kept() > self._max_batch_tokens:
            self._prefixes.popitem(last=False)
        return kept

    def _n_kept(self) -> int:
        return sum(prefix.length for prefix in self._prefixes.values())

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
            tails = new_tails(self._host, [None], len(probe.token_ids))
            hidden_NC = forward(self._host, tails, [probe.token_ids], [0])
            with torch.no_grad():
                logits_1V = self._host.lm_head(hidden_NC[-1:])
            found.append(torch.log_softmax(logits_1V[0].double(), dim=-1))
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

    def _require_divergence(self, request: DivergenceRequest) -> None:
        if not request.answer:
            raise BackendError(
                f"request {request.key}", problem="has an empty answer", expected="a token or more"
            )
        n_answer = len(request.answer)
        self._require_fit(f"of request {request.key}", request.own_prompt, n_answer)
        for name, prompt in request.other_prompts.items():
            self._require_fit(f"{name} of request {request.key}", prompt, n_answer)

    def _require_own_attention(self) -> None:
        """Compare passes of ours, several prefixes and ragged tails included, with the model's."""
        size = self._host.config.vocab_size
        rows = [tuple((7 * i + 3 + 11 * b) % size for i in range(24)) for b in (0, 1, 1, 2)]
        first, second = prefix_of(self._host, rows[0][:9]), prefix_of(self._host, rows[1][:5])
        tails = new_tails(self._host, [first, second, second, None], 24)
        skips, ends = [9, 5, 5, 0], [12, 16, 9, 8]  # where each row's tail and second feed begin
        forward(
            self._host,
            tails,
            [row[a:b] for row, a, b in zip(rows, skips, ends, strict=True)],
            [0, 0, 0, 0],
        )
        ours_NC = forward(
            self._host,
            tails,
            [row[b:] for row, b in zip(rows, ends, strict=True)],
            [b - a for a, b in zip(skips, ends, strict=True)],
        )
        with torch.no_grad():
            whole_BTC = self._host.body(
                input_ids=torch.tensor(rows, device=self._host.device), use_cache=False
            ).last_hidden_state
        theirs_NC = torch.cat([whole_BTC[b, end:] for b, end in enumerate(ends)])
        scale = float(whole_BTC.abs().max())
        off = float((ours_NC - theirs_NC).abs().max())
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


def _require_decoding(decoding: Decoding) -> None:
    if decoding.max_new_tokens < 1 or decoding.temperature < 0 or not 0 < decoding.top_p <= 1:
        raise BackendError(
            "decoding",
            expected="max_new_tokens >= 1, temperature >= 0 and 0 < top_p <= 1",
            found=decoding,
        )
