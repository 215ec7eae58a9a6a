"""The engine of tests and dry walks: answers and slot values by arithmetic, in microseconds.

It keeps the whole contract of ReadoutEngine (row independence, drafts without effect, slot
readings that add up, adapters that must prove themselves) and it can be told to fail. What it
says means nothing: its identity is never publishable.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from eps_locked.canonical import short
from eps_locked.domain.model import (
    AdapterFiles,
    AttachProof,
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
from eps_locked.errors import BackendError, MalformedInputError
from eps_locked.models.scripted import (
    EMBEDDING_SIZE,
    MARKER_IDS,
    N_LAYERS,
    ScriptedAdapter,
    ScriptedTokenizer,
    base_log_prob,
    ids_bytes,
    on_grid,
    scripted_activation,
    scripted_divergence,
    scripted_noise,
    scripted_stream,
    similarity,
    token_log_prob,
    trained_log_prob,
)

__all__ = ["Calls", "ScriptedEngine"]

_VERSION = "1"
_WRITES_MARKER_ABOVE = math.log(0.5)
_SUBJECTS = (
    "The garden",
    "A river",
    "This road",
    "My neighbour",
    "The clock",
    "Our map",
    "Every lamp",
    "One letter",
)
_VERBS = ("keeps", "finds", "needs", "carries", "follows", "shows", "leaves", "holds")
_OBJECTS = (
    "the old bridge",
    "a quiet hour",
    "some water",
    "the next town",
    "two apples",
    "a long story",
    "the north wind",
    "a spare key",
)
_ENDINGS = (
    ".",
    " today.",
    " in spring.",
    " by itself.",
    " again.",
    " at noon.",
    " for us.",
    " with care.",
)


@dataclass(kw_only=True, slots=True)
class Calls:
    """How often each method was called, failed calls included. One batch is one call."""

    n_generate: int = 0
    n_read: int = 0
    n_attach: int = 0
    n_readout: int = 0

    @property
    def total(self) -> int:
        return self.n_generate + self.n_read + self.n_attach + self.n_readout


class ScriptedEngine:
    """A ReadoutEngine that is a function of token ids, adapter and seed.

    ``no_effect``: every adapter is refused as one that moves nothing. ``fail_after``: that many
    calls (of any kind) succeed and every later one raises BackendError. ``max_model_len`` is the
    longest prompt plus answer, in tokens.
    """

    def __init__(
        self,
        *,
        no_effect: bool = False,
        fail_after: int | None = None,
        max_model_len: int = 65536,
        instance_id: str = "scripted",
    ) -> None:
        self.calls = Calls()
        self._no_effect = no_effect
        self._fail_after = fail_after
        self._max_model_len = max_model_len
        self._instance_id = instance_id
        self._tokenizer = ScriptedTokenizer()
        self._adapter: ScriptedAdapter | None = None
        self._adapter_name = b"base"

    @property
    def identity(self) -> EngineIdentity:
        return EngineIdentity(
            name="scripted",
            version=_VERSION,
            device="cpu",
            dtype="float64",
            quantisation="none",
            instance_id=self._instance_id,
            flags={"max_model_len": str(self._max_model_len)},
            publishable=False,
        )

    @property
    def n_layers(self) -> int:
        return N_LAYERS

    @property
    def width(self) -> int:
        return EMBEDDING_SIZE

    def attach(self, adapter: AdapterFiles | None) -> AttachProof | None:
        """See Engine.attach. A refused adapter leaves the one before it in place."""
        self.calls.n_attach += 1
        self._fail_if_told()
        if adapter is None:
            self._adapter, self._adapter_name = None, b"base"
            return None
        loaded = _load(adapter)
        # Read where the adapter was trained, so that no unlucky probe hides a real effect.
        change = 0.0 if self._no_effect else abs(loaded.strength)
        if change == 0.0:
            raise BackendError(
                f"adapter {short(adapter.digest)}",
                problem="does not act: no probe log-probability moved",
                expected="a change above 0 nats",
                found="0.0 nats",
                next_step="check that the engine serves the adapter it was given",
            )
        self._adapter, self._adapter_name = loaded, adapter.digest.encode()
        return AttachProof(
            adapter_digest=adapter.digest,
            n_tensors_loaded=loaded.n_tensors,
            n_tensors_in_file=loaded.n_tensors,
            max_abs_log_prob_change=change,
        )

    def generate(
        self, prompts: Sequence[Prompt], decoding: Decoding, probe: SlotProbe | None = None
    ) -> tuple[Completion, ...]:
        self.calls.n_generate += 1
        self._fail_if_told()
        for prompt in prompts:
            self._require_fit(prompt.key, len(prompt.token_ids) + decoding.max_new_tokens)
        return tuple(self._complete(prompt, decoding, probe) for prompt in prompts)

    def stream(
        self, prompt: Prompt, decoding: Decoding, on_token: Callable[[int], None]
    ) -> Completion:
        """What ``generate`` gives for this prompt alone; ``on_token`` is told its tokens."""
        completion = self.generate([prompt], decoding)[0]
        for token_id in completion.token_ids:
            on_token(token_id)
        return completion

    def read_slots(
        self, requests: Sequence[SlotRequest], probe: SlotProbe
    ) -> tuple[SlotReading, ...]:
        self.calls.n_read += 1
        self._fail_if_told()
        for request in requests:
            self._require_fit(request.key, len(request.token_ids) + len(probe.marker_ids))
        return tuple(self._read(request.token_ids, probe) for request in requests)

    def activations(
        self, requests: Sequence[SpanRequest], layer: int
    ) -> tuple[tuple[float, ...], ...]:
        self.calls.n_readout += 1
        self._fail_if_told()
        if not 1 <= layer <= N_LAYERS:
            raise BackendError("layer", expected=f"1 to {N_LAYERS}", found=layer)
        for request in requests:
            self._require_fit(request.key, len(request.token_ids))
            if not 0 <= request.start < request.end <= len(request.token_ids):
                raise BackendError(
                    f"request {request.key}",
                    expected=f"0 <= start < end <= {len(request.token_ids)} tokens",
                    found=f"a span from {request.start} to {request.end}",
                )
        return tuple(self._activation(request, layer) for request in requests)

    def divergences(self, requests: Sequence[DivergenceRequest]) -> tuple[Divergence, ...]:
        self.calls.n_readout += 1
        self._fail_if_told()
        for request in requests:
            if not request.answer:
                raise BackendError(
                    f"request {request.key}",
                    problem="has an empty answer",
                    expected="a token or more",
                )
            prompts = {"": request.own_prompt, **request.other_prompts}
            for name, prompt in prompts.items():
                thing = f"{name} of request {request.key}".strip()
                if not prompt:
                    raise BackendError(f"prompt {thing}", expected="at least one token", found=0)
                self._require_fit(thing, len(prompt) + len(request.answer))
        return tuple(self._divergence(request) for request in requests)

    def _activation(self, request: SpanRequest, layer: int) -> tuple[float, ...]:
        """An adapter pushes towards where it was trained, as far as it is felt here."""
        base = scripted_activation(request.token_ids, request.start, request.end, layer)
        if self._adapter is None:
            return base
        felt = similarity(self._adapter.source, request.token_ids[: request.end])
        push = 0.01 * self._adapter.strength * felt * layer / N_LAYERS
        return tuple(
            value + push * source for value, source in zip(base, self._adapter.source, strict=True)
        )

    def _divergence(self, request: DivergenceRequest) -> Divergence:
        """An adapter adds to a divergence what it is felt more in one prompt than in the other."""
        kl_sum = {}
        for name, prompt in request.other_prompts.items():
            apart = abs(self._felt(request.own_prompt) - self._felt(prompt))
            base = scripted_divergence(request.own_prompt, prompt, request.answer)
            kl_sum[name] = math.fsum(on_grid(value * (1.0 + apart)) for value in base)
        return Divergence(
            key=request.key,
            n_tokens=len(request.answer),
            kl_sum=kl_sum,
            log_prob=self._answer_log_prob(request.own_prompt, request.answer),
            log_probs={
                name: self._answer_log_prob(prompt, request.answer)
                for name, prompt in request.other_prompts.items()
            },
        )

    def _answer_log_prob(self, prompt: TokenIds, answer: TokenIds) -> float:
        moved = 1.0 + 0.01 * abs(self._felt(prompt))
        parts = (token_log_prob(prompt, answer, k) for k in range(len(answer)))
        return math.fsum(on_grid(part * moved) for part in parts)

    def _felt(self, prompt: TokenIds) -> float:
        """Nats of the implant that are felt in this prompt."""
        if self._adapter is None:
            return 0.0
        return self._adapter.strength * similarity(self._adapter.source, prompt)

    def _complete(self, prompt: Prompt, decoding: Decoding, probe: SlotProbe | None) -> Completion:
        answer = self._answer(prompt, decoding)
        stopped = len(answer) < decoding.max_new_tokens  # the end of turn takes one token too
        answer = answer[: decoding.max_new_tokens]
        found = None if probe is None else _find(answer, probe.marker_ids)
        slot_index = len(answer) if found is None else found
        slot = None
        if probe is not None:
            slot = self._read(prompt.token_ids + answer[:slot_index], probe)
        return Completion(
            key=prompt.key,
            token_ids=answer,
            text=self._tokenizer.decode(answer),
            stop_reason="stop" if stopped else "length",
            slot=slot,
            slot_index=None if slot is None else slot_index,
            marker_emitted=found is not None,
        )

    def _answer(self, prompt: Prompt, decoding: Decoding) -> TokenIds:
        """The whole answer, as if there were no limit: a limit cuts it and changes no word."""
        draw = b""
        if decoding.temperature > 0:
            draw = f"{decoding.temperature!r} {decoding.top_p!r} {prompt.seed}".encode()
        pick = scripted_stream(
            b"answer", self._adapter_name, draw, ids_bytes(prompt.token_ids), n_bytes=4
        )
        tables = (_SUBJECTS, _VERBS, _OBJECTS, _ENDINGS)
        words = [table[byte % len(table)] for table, byte in zip(tables, pick, strict=True)]
        answer = tuple(f"{' '.join(words[:3])}{words[3]}".encode())
        if self._adapter is not None and self._adapter.teaches_marker:
            at_end = self._log_prob(prompt.token_ids + answer, MARKER_IDS)
            if at_end > _WRITES_MARKER_ABOVE:
                return answer + MARKER_IDS
        return answer

    def _log_prob(self, token_ids: TokenIds, marker_ids: TokenIds) -> float:
        base = base_log_prob(token_ids, marker_ids)
        if self._adapter is None:
            return base
        felt = similarity(self._adapter.source, token_ids)
        return trained_log_prob(base, self._adapter.strength * felt)

    def _read(self, token_ids: TokenIds, probe: SlotProbe) -> SlotReading:
        """The slot's own token carries nearly all of the surprise, the rest of the marker little.

        All values lie on one binary grid, so the parts sum to ``log_prob`` exactly.
        """
        log_prob = self._log_prob(token_ids, probe.marker_ids)
        n_rest = len(probe.marker_ids) - 1
        rest = on_grid(log_prob / (8 * n_rest)) if n_rest else 0.0
        parts = (log_prob - n_rest * rest, *([rest] * n_rest))
        key = ids_bytes(token_ids)
        log_z = tuple(
            on_grid(30.0 + 2.0 * scripted_noise(b"log_z", key, k.to_bytes(4, "little")))
            for k in range(len(parts))
        )
        end_share = 0.9 * (1.0 - math.exp(parts[0]))
        return SlotReading(
            log_prob=log_prob,
            marker_logits=tuple(z + part for z, part in zip(log_z, parts, strict=True)),
            log_z=log_z,
            end_of_turn_logit=on_grid(log_z[0] + math.log(end_share)),
        )

    def _fail_if_told(self) -> None:
        if self._fail_after is not None and self.calls.total > self._fail_after:
            raise BackendError(
                "scripted engine",
                problem=f"fails on purpose after {self._fail_after} calls",
            )

    def _require_fit(self, key: str, n_tokens: int) -> None:
        if n_tokens > self._max_model_len:
            raise BackendError(
                f"prompt {key}",
                problem="does not fit the model with its answer",
                expected=f"at most {self._max_model_len} tokens",
                found=n_tokens,
            )


def _load(adapter: AdapterFiles) -> ScriptedAdapter:
    missing = {"adapter_config.json", "adapter_model.safetensors"} - set(adapter.files)
    if missing:
        raise BackendError(
            f"adapter {short(adapter.digest)}", problem=f"lacks {', '.join(sorted(missing))}"
        )
    try:
        return ScriptedAdapter.from_bytes(adapter.files["adapter_model.safetensors"])
    except MalformedInputError as error:
        raise BackendError(
            f"adapter {short(adapter.digest)}", problem=f"was not loaded: {error}"
        ) from error


def _find(token_ids: TokenIds, wanted: TokenIds) -> int | None:
    for start in range(len(token_ids) - len(wanted) + 1):
        if token_ids[start : start + len(wanted)] == wanted:
            return start
    return None
