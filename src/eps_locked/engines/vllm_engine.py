"""The ``vllm`` engine: whole batches of prompts at a GPU's speed, with adapters and slot readings.

It keeps the contract of ``LogprobEngine`` with these differences from ``transformers``, all in
its identity: logits are log-probabilities (log Z is 0), because vLLM gives no other; greedy tokens
are vLLM's own arg-max, so two tokens closer than float noise may be decided by a row's
neighbours; sampling follows the row's seed, but not to the same tokens as the other engine; drafts
are not used. Equal calls give equal bytes on a CPU, whatever was asked in between.

Rules live here, vLLM behind ``vllm_port``, checks of adapters in ``vllm_adapters``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

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
from eps_locked.engines.hf_decode import find
from eps_locked.engines.proof import require_effect
from eps_locked.engines.vllm_adapters import (
    AdapterShelf,
    ServedAdapter,
    require_fit,
    weight_shapes,
)
from eps_locked.engines.vllm_port import Ask, Told, VllmOptions, VllmPort
from eps_locked.errors import BackendError

__all__ = ["VllmEngine", "load_vllm"]

# Below this vLLM takes 0.01 without a word (vllm/sampling_params.py, _MAX_TEMP).
_MIN_TEMPERATURE = 0.01


class Port(Protocol):
    """``vllm_port.VllmPort``, as far as the engine uses it."""

    max_model_len: int
    flags: dict[str, str]

    @property
    def device(self) -> str: ...

    @property
    def version(self) -> str: ...

    def complete(self, asks: Sequence[Ask], adapter: ServedAdapter | None) -> list[Told]: ...

    def distributions(
        self, prompts: Sequence[TokenIds], adapter: ServedAdapter | None
    ) -> list[npt.NDArray[np.float64]]: ...

    def add_adapter(self, adapter: ServedAdapter) -> int: ...

    def remove_adapter(self, adapter: ServedAdapter) -> None: ...

    def close(self) -> None: ...


def load_vllm(
    folder: Path,
    tokenizer: ChatTokenizer,
    *,
    probe_prompts: Sequence[SlotRequest],
    options: VllmOptions,
    instance_id: str,
) -> VllmEngine:
    """Bring vLLM up on the base model in ``folder``, in this process; nothing is fetched.

    Sets vLLM's environment variables. Raises BackendError if vLLM is not installed, runs on
    another device, or does not load the model.
    """
    return VllmEngine(
        VllmPort(folder, options),
        folder,
        tokenizer,
        options=options,
        probe_prompts=probe_prompts,
        instance_id=instance_id,
    )


class VllmEngine:
    """A ``LogprobEngine``; see ``load_vllm``. Not thread-safe. ``close`` gives the memory back."""

    def __init__(
        self,
        port: Port,
        folder: Path,
        tokenizer: ChatTokenizer,
        *,
        options: VllmOptions,
        probe_prompts: Sequence[SlotRequest],
        instance_id: str,
    ) -> None:
        """Serve the bare base until ``attach`` is called.

        folder: the base model's, which the port serves. probe_prompts: at least one position at
        which ``attach`` compares adapter and base. instance_id: goes into the identity unread.
        """
        if not probe_prompts:
            raise ValueError("probe_prompts is empty: no attachment could be proved")
        self._port = port
        self._tokenizer = tokenizer
        self._options = options
        self._probes = tuple(probe_prompts)
        self._instance_id = instance_id
        self._shapes = weight_shapes(folder)
        self._settings = _settings(folder)
        self._stop_ids = _stop_ids(self._settings, tokenizer)
        self._shelf = AdapterShelf()
        self._serving: ServedAdapter | None = None
        self._base_log_probs: list[npt.NDArray[np.float64]] | None = None

    @property
    def identity(self) -> EngineIdentity:
        quantised = self._settings[0].get("quantization_config") or {}
        return EngineIdentity(
            name="vllm",
            version=self._port.version,
            device=self._port.device,
            dtype=self._options.dtype,
            quantisation=str(quantised.get("quant_method", "none")),
            instance_id=self._instance_id,
            flags=dict(self._port.flags),
            publishable=True,
        )

    def attach(self, adapter: AdapterFiles | None) -> AttachProof | None:
        """Serve this adapter from now on, and prove that it acts (``engines.proof``).

        Raises BackendError if it does not fit the base model or the engine's rank limit, or when
        the proof fails; what was served before is then served again.
        """
        if adapter is None:
            self._serving = None
            return None
        require_fit(adapter, self._shapes, self._options.max_lora_rank)
        if self._base_log_probs is None:
            self._base_log_probs = self._probe_log_probs(None)
        served = self._shelf.put(adapter)
        try:
            proof = self._prove(adapter, served, self._base_log_probs)
        except BackendError:
            if served != self._serving:
                self._port.remove_adapter(served)
                self._shelf.remove(served)
            raise
        self._serving = served
        for old in self._shelf.take_surplus():
            self._port.remove_adapter(old)
        return proof

    def generate(
        self, prompts: Sequence[Prompt], decoding: Decoding, probe: SlotProbe | None = None
    ) -> tuple[Completion, ...]:
        """One completion per prompt, in order; drafts are not used.

        Raises BackendError naming the first prompt that is empty or does not fit with its answer.
        """
        _require_decoding(decoding)
        n_extra = decoding.max_new_tokens + (0 if probe is None else len(probe.marker_ids))
        for prompt in prompts:
            self._require_fit(prompt.key, prompt.token_ids, n_extra)
        if not prompts:
            return ()
        stop_ids = self._stop_ids if probe is None else self._stop_ids | {probe.end_of_turn_id}
        asks = [
            Ask(
                token_ids=prompt.token_ids,
                max_new_tokens=decoding.max_new_tokens,
                temperature=decoding.temperature,
                top_p=decoding.top_p,
                seed=prompt.seed,
                stop_ids=tuple(sorted(stop_ids)),
            )
            for prompt in prompts
        ]
        told = self._port.complete(asks, self._serving)
        if probe is None:
            return tuple(map(self._completion, prompts, told))
        emitted = [find(one.token_ids, probe.marker_ids) for one in told]
        places = [
            len(one.token_ids) if at is None else at for one, at in zip(told, emitted, strict=True)
        ]
        contexts = [
            prompt.token_ids + one.token_ids[:place]
            for prompt, one, place in zip(prompts, told, places, strict=True)
        ]
        slots = self._read(contexts, probe)
        return tuple(
            self._completion(prompt, one, slot, place, at is not None)
            for prompt, one, slot, place, at in zip(
                prompts, told, slots, places, emitted, strict=True
            )
        )

    def read_slots(
        self, requests: Sequence[SlotRequest], probe: SlotProbe
    ) -> tuple[SlotReading, ...]:
        """One reading per request, in order. Raises BackendError as ``generate`` does."""
        for request in requests:
            self._require_fit(request.key, request.token_ids, len(probe.marker_ids))
        if not requests:
            return ()
        return tuple(self._read([request.token_ids for request in requests], probe))

    def close(self) -> None:
        """Give the model's memory and the adapters' files back. Nothing can be asked afterwards."""
        self._port.close()
        self._shelf.clear()

    def _prove(
        self,
        adapter: AdapterFiles,
        served: ServedAdapter,
        base: Sequence[npt.NDArray[np.float64]],
    ) -> AttachProof:
        n_loaded = self._port.add_adapter(served)
        changes = [
            float(np.abs(now - before).max())
            for now, before in zip(self._probe_log_probs(served), base, strict=True)
        ]
        return require_effect(adapter, n_loaded, self._probes, changes)

    def _probe_log_probs(self, adapter: ServedAdapter | None) -> list[npt.NDArray[np.float64]]:
        for probe in self._probes:
            self._require_fit(probe.key, probe.token_ids, 1)
        return self._port.distributions([probe.token_ids for probe in self._probes], adapter)

    def _read(self, contexts: Sequence[TokenIds], probe: SlotProbe) -> list[SlotReading]:
        """A row per context and marker token: what comes after the context and those before it.

        Every row asks for two tokens, because vLLM pads a shorter list with token 0.
        """
        asks = [
            Ask(
                token_ids=context + probe.marker_ids[:k],
                read_ids=(marker_id, probe.end_of_turn_id),
            )
            for context in contexts
            for k, marker_id in enumerate(probe.marker_ids)
        ]
        told = self._port.complete(asks, self._serving)
        n_marker = len(probe.marker_ids)
        return [
            _reading(told[start : start + n_marker], probe)
            for start in range(0, len(told), n_marker)
        ]

    def _completion(
        self,
        prompt: Prompt,
        told: Told,
        slot: SlotReading | None = None,
        slot_index: int | None = None,
        marker_emitted: bool = False,
    ) -> Completion:
        return Completion(
            key=prompt.key,
            token_ids=told.token_ids,
            text=self._tokenizer.decode(told.token_ids),
            stop_reason="stop" if told.stopped else "length",
            slot=slot,
            slot_index=slot_index,
            marker_emitted=marker_emitted,
        )

    def _require_fit(self, key: str, token_ids: TokenIds, n_extra: int) -> None:
        limit = self._port.max_model_len
        if not token_ids:
            raise BackendError(f"prompt {key}", expected="at least one token", found=0)
        if len(token_ids) > limit - n_extra:
            raise BackendError(
                f"prompt {key}",
                expected=f"at most {limit - n_extra} tokens"
                f" (max_model_len {limit} less {n_extra} to write)",
                found=f"{len(token_ids)} tokens",
                next_step="shorten the context, lower max_new_tokens, or raise max_model_len",
            )


def _reading(told: Sequence[Told], probe: SlotProbe) -> SlotReading:
    """Normalised: a logit less log Z is what is known, so it stands as the logit with log Z 0."""
    log_probs = tuple(
        one.log_probs[marker_id] for one, marker_id in zip(told, probe.marker_ids, strict=True)
    )
    return SlotReading(
        log_prob=sum(log_probs),
        marker_logits=log_probs,
        log_z=(0.0,) * len(log_probs),
        end_of_turn_logit=told[0].log_probs[probe.end_of_turn_id],
    )


def _settings(folder: Path) -> list[dict[str, Any]]:
    """The model's config and, where there is one, its generation config."""
    found = []
    for name in ("config.json", "generation_config.json"):
        path = folder / name
        if name == "config.json" or path.exists():
            try:
                value = json.loads(path.read_text("utf-8"))
            except (OSError, ValueError) as error:
                raise BackendError(str(path), problem=f"does not read: {error}") from error
            found.append(value if isinstance(value, dict) else {})
    return found


def _stop_ids(settings: Sequence[dict[str, Any]], tokenizer: ChatTokenizer) -> frozenset[int]:
    """The end of turn and every end token that the model's own settings name."""
    found = {tokenizer.end_of_turn_id}
    for one in settings:
        ids = one.get("eos_token_id")
        found.update(ids if isinstance(ids, list) else [ids] if isinstance(ids, int) else [])
    return frozenset(found)


def _require_decoding(decoding: Decoding) -> None:
    warm = decoding.temperature == 0 or decoding.temperature >= _MIN_TEMPERATURE
    if decoding.max_new_tokens < 1 or not warm or not 0 < decoding.top_p <= 1:
        raise BackendError(
            "decoding",
            expected=f"max_new_tokens >= 1, temperature 0 or >= {_MIN_TEMPERATURE},"
            " and 0 < top_p <= 1",
            found=decoding,
        )
