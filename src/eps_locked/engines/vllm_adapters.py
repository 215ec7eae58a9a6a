"""What vLLM does not check about an adapter, and the folders and ids it is handed over with.

vLLM takes an adapter from a folder, ignores what it does not know, and copies a tensor of the
wrong size into the corner of a buffer. So names, shapes and rank are compared with the base
model's own weights first. Nothing here imports vLLM.
"""

from __future__ import annotations

import itertools
import json
import shutil
import struct
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eps_locked.domain.model import AdapterFiles
from eps_locked.errors import BackendError
from eps_locked.models import adapter_format

__all__ = [
    "RANK_LIMITS",
    "AdapterShelf",
    "ServedAdapter",
    "rank_limit",
    "require_fit",
    "weight_shapes",
]

# The values vLLM 0.32 takes for max_lora_rank (vllm/config/lora.py, MaxLoRARanks).
RANK_LIMITS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
# Fields that change which layers are meant, or their ranks, one by one. Our recipes never set them.
_PER_LAYER_FIELDS = (
    "alpha_pattern",
    "exclude_modules",
    "layers_pattern",
    "layers_to_transform",
    "rank_pattern",
)
# vLLM's cache of adapters, and of prefixes, goes by this number: one that comes back would mean
# another adapter's bytes. So a process counts up, whatever engine asks.
_next_id = itertools.count(1)


@dataclass(frozen=True, kw_only=True, slots=True)
class ServedAdapter:
    """An adapter in a folder, under a name and a number that no other adapter ever had."""

    digest: str
    name: str
    number: int
    folder: Path


class AdapterShelf:
    """Adapters' files in a temporary folder, one folder each. Holds the two used last.

    Two: what is being proved and what is served again if the proof fails.
    """

    def __init__(self) -> None:
        self._root = Path(tempfile.mkdtemp(prefix="eps-locked-adapters-"))
        self._held: dict[str, ServedAdapter] = {}

    def put(self, adapter: AdapterFiles) -> ServedAdapter:
        """The adapter's folder, written unless it is there. The digest is trusted."""
        held = self._held.pop(adapter.digest, None) or self._write(adapter)
        self._held[adapter.digest] = held  # a dict keeps order: the last used comes last
        return held

    def take_surplus(self) -> list[ServedAdapter]:
        """Remove the folders beyond the two used last; says which adapters are gone."""
        surplus = list(self._held.values())[:-2]
        for served in surplus:
            self.remove(served)
        return surplus

    def remove(self, served: ServedAdapter) -> None:
        self._held.pop(served.digest, None)
        shutil.rmtree(served.folder, ignore_errors=True)

    def clear(self) -> None:
        self._held.clear()
        shutil.rmtree(self._root, ignore_errors=True)

    def _write(self, adapter: AdapterFiles) -> ServedAdapter:
        number = next(_next_id)
        folder = self._root / f"{adapter.digest.replace(':', '-')}-{number}"
        folder.mkdir()
        # Only these two: vLLM would also act on further files that it finds beside them.
        for name in (adapter_format.CONFIG_NAME, adapter_format.WEIGHTS_NAME):
            (folder / name).write_bytes(adapter.files[name])
        return ServedAdapter(digest=adapter.digest, name=folder.name, number=number, folder=folder)


def rank_limit(ranks: Iterable[int]) -> int:
    """The smallest limit vLLM knows that holds all ranks; memory for it is set aside at the start.

    Raises BackendError if there is none.
    """
    largest = max(ranks)
    for limit in RANK_LIMITS:
        if largest <= limit:
            return limit
    raise BackendError(
        "adapter rank",
        expected=f"at most {RANK_LIMITS[-1]}, the largest that vLLM serves",
        found=largest,
        next_step="plan a smaller rank, or use the transformers engine",
    )


def weight_shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    """Shape of every weight of the base model, from the headers of its safetensors files.

    Raises BackendError if there are none or one does not parse.
    """
    found: dict[str, tuple[int, ...]] = {}
    for path in sorted(folder.glob("*.safetensors")):
        try:
            with path.open("rb") as file:
                (length,) = struct.unpack("<Q", file.read(8))
                if length > path.stat().st_size:
                    raise ValueError("it would be longer than the file")
                header = json.loads(file.read(length))
            found.update(
                {name: tuple(entry["shape"]) for name, entry in header.items() if "shape" in entry}
            )
        except (OSError, ValueError, struct.error, TypeError, KeyError) as error:
            raise BackendError(
                str(path),
                problem=f"its header does not parse: {error}",
                next_step="fetch the model folder again",
            ) from error
    if not found:
        raise BackendError(
            str(folder),
            expected="weights in .safetensors files",
            found="none",
            next_step="save the model with safetensors",
        )
    return found


def require_fit(
    adapter: AdapterFiles, shapes: Mapping[str, tuple[int, ...]], max_rank: int
) -> None:
    """Raise BackendError unless the adapter is a plain LoRA on exactly the layers it names.

    shapes: of the base model's weights. Every layer that the adapter's ``target_modules`` names
    must have its A and B, of the right shape, and no other tensor may be there.
    """
    config, tensors = adapter_format.parse(adapter)
    for name in _PER_LAYER_FIELDS:
        if getattr(config, name, None):
            raise BackendError(
                f"adapter {adapter.digest}: {name}",
                expected="nothing",
                found=getattr(config, name),
                next_step="serve this adapter with the transformers engine",
            )
    if config.r > max_rank:
        raise BackendError(
            f"adapter {adapter.digest}: rank",
            expected=f"at most {max_rank}, the engine's max_lora_rank",
            found=config.r,
            next_step=f"start the engine with max_lora_rank {rank_limit([config.r])}",
        )
    wanted = _wanted(shapes, config.target_modules, config.r)
    adapter_format.require_same_tensors(wanted, tensors, adapter.digest)


@dataclass(frozen=True, slots=True)
class _Shaped:
    """Stands where a parameter would: the comparison looks at shapes alone."""

    shape: tuple[int, ...]


def _wanted(
    shapes: Mapping[str, tuple[int, ...]], targets: Iterable[str], rank: int
) -> dict[str, Any]:
    """The tensors of an adapter of this rank on these layers, by PEFT's names."""
    found: dict[str, Any] = {}
    for weight, shape in shapes.items():
        layer = weight.removesuffix(".weight")
        if layer == weight or len(shape) != 2:
            continue
        if any(layer == target or layer.endswith(f".{target}") for target in targets):
            n_out, n_in = shape
            found[f"base_model.model.{layer}.lora_A.weight"] = _Shaped((rank, n_in))
            found[f"base_model.model.{layer}.lora_B.weight"] = _Shaped((n_out, rank))
    return found
