"""One base model in memory and the LoRA adapters on it, shared by the engine and the trainer.

The base is loaded once, in eval mode, with every parameter frozen, and is never written to. PEFT
wraps the targeted layers in place; with no adapter active the wrapped layers run the base layer
alone, so a forward pass equals the bare base bit for bit. Nothing here decodes, samples or takes
an optimizer step.

Not thread-safe: one host serves one caller at a time.
"""

from __future__ import annotations

import importlib.metadata
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eps_locked.domain.model import AdapterFiles, LoraRecipe
from eps_locked.errors import BackendError
from eps_locked.models import adapter_format
from eps_locked.models.vendor import no_progress_bars

if TYPE_CHECKING:
    import torch

__all__ = ["MAX_RESIDENT_ADAPTERS", "AdapterHost"]

# Two: the adapter being measured and the one before it, which alternating callers come back to.
MAX_RESIDENT_ADAPTERS = 2
_DTYPES = ("float32", "bfloat16")
_TRAINABLE = "trainable"


class AdapterHost:
    """A frozen causal language model with at most one active adapter.

    ``model`` is the Hugging Face causal LM itself (call it to get logits); ``body`` its decoder
    without the output layer and ``lm_head`` the output layer, for callers that want logits at a
    few positions only. ``active_digest`` is the digest of the adapter that forward passes use
    now, None for the bare base: who depends on an adapter compares it before every batch.
    ``threads`` is torch's thread count at loading; on a CPU the last bits of a fit depend on it.
    """

    def __init__(self, model: Any, *, base_folder: Path, device: str) -> None:
        """Take over a causal LM already in memory; prefer ``load``.

        Raises BackendError if ``lm_head(body(x))`` is not what ``model(x)`` returns (models that
        scale or cap their logits), since both are used.
        """
        import torch

        self.model = model
        self.threads = torch.get_num_threads()
        self.config = model.config
        self.device = device
        self.base_folder = base_folder
        self.versions: dict[str, str] = {
            name: importlib.metadata.version(name) for name in ("torch", "transformers", "peft")
        }
        self.active_digest: str | None = None
        self._tuner: Any = None
        self._resident: OrderedDict[str, str] = OrderedDict()  # digest -> PEFT's adapter name
        self._n_attached = 0
        self._trainable_scale: float | None = None
        self.model.eval()
        self.model.requires_grad_(False)
        self._base_parameters = list(self.model.parameters())
        self._require_plain_output()

    @classmethod
    def load(
        cls,
        folder: Path,
        *,
        dtype: str,
        device: str,
        threads: int | None,
        attn_implementation: str = "sdpa",
    ) -> AdapterHost:
        """Load the base model in ``folder`` (local files only; nothing is fetched).

        dtype: "float32" or "bfloat16". device: a torch device string, taken as it is; the
        environment's choice of GPUs is not touched. threads: torch intra-op threads for the whole
        process, None leaves them. Raises BackendError if the folder cannot be loaded.
        """
        if dtype not in _DTYPES:
            raise BackendError("dtype", expected=" or ".join(_DTYPES), found=dtype)
        import torch
        from transformers import AutoModelForCausalLM

        if threads is not None:
            torch.set_num_threads(threads)
        try:
            with no_progress_bars():
                model = AutoModelForCausalLM.from_pretrained(
                    str(folder),
                    dtype=getattr(torch, dtype),
                    local_files_only=True,
                    attn_implementation=attn_implementation,
                ).to(device)
        except (OSError, ValueError, RuntimeError, KeyError) as error:
            raise BackendError(
                str(folder),
                problem=f"the base model does not load on {device}: {error}",
                next_step="check the folder with a fresh download, and that the device exists",
            ) from error
        return cls(model, base_folder=Path(folder), device=device)

    @property
    def body(self) -> Any:
        """The decoder: token ids to hidden states (after the final norm)."""
        return self.model.base_model

    @property
    def lm_head(self) -> Any:
        """Hidden states to logits over the vocabulary."""
        return self.model.get_output_embeddings()

    @property
    def is_training(self) -> bool:
        return self._trainable_scale is not None

    def attach(self, files: AdapterFiles | None) -> int:
        """Make forward passes use this adapter (None: the bare base). Returns its tensor count.

        Every tensor of the file must find its parameter and every parameter of the adapter must
        be filled, names and shapes alike. The digest is trusted: an adapter already resident under
        it is activated without looking at the bytes. Raises BackendError, with the host as it was
        before, when the adapter does not fit or touches the output layer or the embeddings.
        RuntimeError while a fit is under way.
        """
        if self.is_training:
            raise RuntimeError("an adapter is being trained on this host; finish or discard it")
        if files is None:
            self._activate(None)
            return 0
        if files.digest not in self._resident:
            self._load_resident(files)
        if self.active_digest != files.digest:
            self._activate(files.digest)
        return len(self._lora_parameters(self._resident[files.digest]))

    def new_trainable(self, recipe: LoraRecipe, seed: int) -> list[torch.nn.Parameter]:
        """Put a fresh adapter on the base and return its parameters, ordered by name.

        A is uniform in +-1/sqrt(fan_in) (PEFT's default), B is zero. A is drawn on the CPU in name
        order from a generator seeded by ``seed``, so neither the global generator nor the device
        matters. The parameters are float32 whatever the base is. Raises BackendError when a target
        matches no layer, or is the output layer or an embedding.
        """
        if self.is_training:
            raise RuntimeError("an adapter is already being trained on this host")
        adapter_format.require_targets(self.model, recipe.target_modules)
        try:
            self._inject(_TRAINABLE, adapter_format.recipe_config(recipe))
        except (ValueError, TypeError) as error:
            self._remove(_TRAINABLE)
            raise BackendError("lora recipe", problem=str(error)) from error
        except BaseException:
            self._remove(_TRAINABLE)
            raise
        self._trainable_scale = adapter_format.scale_of(recipe)
        named = self._lora_parameters(_TRAINABLE)
        adapter_format.draw_initial(named, seed)
        self._point_layers_at(_TRAINABLE)
        for parameter in named.values():
            parameter.requires_grad_(True)
        self._set_dropout(training=True)
        return list(named.values())

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Inside: no dropout in the adapter under training and no gradients."""
        import torch

        self._set_dropout(training=False)
        try:
            with torch.no_grad():
                yield
        finally:
            self._set_dropout(training=self.is_training)

    def export(
        self, recipe: LoraRecipe, provenance: Mapping[str, str], *, model_name: str
    ) -> dict[str, bytes]:
        """The adapter under training as PEFT's two files; equal weights give equal bytes.

        ``provenance`` goes into the safetensors header. ``model_name`` is written as
        ``base_model_name_or_path``, where PEFT would put this machine's path.
        """
        tensors = self._trained_tensors()
        return {
            adapter_format.CONFIG_NAME: adapter_format.config_bytes(recipe, model_name),
            adapter_format.WEIGHTS_NAME: adapter_format.safetensors_bytes(tensors, provenance),
        }

    def discard_trainable(self) -> None:
        """Remove the adapter under training and serve again what was served before the fit."""
        if not self.is_training:
            return
        self._trainable_scale = None
        self._remove(_TRAINABLE)
        self._activate(self.active_digest)

    def base_sample(self) -> tuple[float, ...]:
        """A cheap fingerprint of the base weights: float64 sums of every parameter's first rows.

        For a before-after comparison in one process. It is no digest of the model.
        """
        import torch

        return tuple(
            float(parameter.detach().reshape(-1)[:4096].to(torch.float64).sum())
            for parameter in self._base_parameters
        )

    def _trained_tensors(self) -> dict[str, torch.Tensor]:
        """A and B of the adapter under training by their names in its file."""
        if not self.is_training:
            raise RuntimeError("no adapter is being trained on this host")
        return {
            f"base_model.model.{name}": parameter.detach()
            for name, parameter in self._lora_parameters(_TRAINABLE).items()
        }

    def _read(self, files: AdapterFiles) -> tuple[Any, dict[str, torch.Tensor]]:
        """The adapter's LoraConfig and A and B matrices."""
        return adapter_format.parse(files)

    def _load_resident(self, files: AdapterFiles) -> None:
        config, tensors = self._read(files)
        adapter_format.require_no_output_layer(self.model, tensors, files.digest)
        name = f"attached_{self._n_attached}"
        self._n_attached += 1
        try:
            self._inject(name, config)
            parameters = self._lora_parameters(name)
            adapter_format.require_same_tensors(
                {f"base_model.model.{key}": value for key, value in parameters.items()},
                tensors,
                files.digest,
            )
            for key, parameter in parameters.items():
                parameter.data.copy_(tensors[f"base_model.model.{key}"])
        except (ValueError, TypeError, RuntimeError) as error:
            self._remove(name)
            raise BackendError(
                f"adapter {files.digest}",
                problem=f"it does not fit the base model: {error}",
                next_step="check that it was trained on this base model",
            ) from error
        except BaseException:
            self._remove(name)
            raise
        self._resident[files.digest] = name
        while len(self._resident) > MAX_RESIDENT_ADAPTERS:
            evicted, old_name = self._resident.popitem(last=False)
            if evicted == self.active_digest:
                self.active_digest = None
            self._remove(old_name)

    def _activate(self, digest: str | None) -> None:
        # None until done: an interrupt in the middle must not leave a digest that is half true.
        self.active_digest = None
        if digest is None:
            self._point_layers_at(None)
            return
        self._resident.move_to_end(digest)
        self._point_layers_at(self._resident[digest])
        self.active_digest = digest

    def _inject(self, name: str, config: Any) -> None:
        """Add PEFT's layers for one more adapter, without touching the global generator."""
        import torch
        from peft import LoraModel

        with torch.random.fork_rng(devices=[]):
            if self._tuner is None:
                self._tuner = LoraModel(self.model, {name: config}, name)
            else:
                self._tuner.peft_config[name] = config
                self._tuner.active_adapter = name
                self._tuner.inject_adapter(self.model, name)
        for parameter in self._lora_parameters(name).values():
            parameter.data = parameter.data.to(torch.float32)
        self._settle()

    def _remove(self, name: str) -> None:
        # Layer by layer: the tuner's own method also picks a new active adapter, with a warning.
        for layer in self._lora_layers():
            layer.set_adapter([], inference_mode=True)
            layer.delete_adapter(name)
        if self._tuner is not None:
            self._tuner.peft_config.pop(name, None)
        self._settle()
        serving = None if self.active_digest is None else self._resident.get(self.active_digest)
        self._point_layers_at(serving)

    def _settle(self) -> None:
        """Undo what PEFT does on the side: training mode and gradients."""
        self.model.eval()
        self.model.requires_grad_(False)

    def _point_layers_at(self, name: str | None) -> None:
        for layer in self._lora_layers():
            own = name is not None and name in layer.lora_A
            layer.set_adapter([name] if own else [], inference_mode=True)
            layer._disable_adapters = not own

    def _lora_layers(self) -> list[Any]:
        from peft.tuners.lora import LoraLayer

        return [module for module in self.model.modules() if isinstance(module, LoraLayer)]

    def _lora_parameters(self, name: str) -> dict[str, torch.nn.Parameter]:
        """The adapter's parameters by the name its file uses, in name order."""
        found = {}
        for key, parameter in self.model.named_parameters():
            parts = key.split(".")
            if name in parts and any(part.startswith("lora_") for part in parts):
                parts.remove(name)
                found[".".join(parts)] = parameter
        return dict(sorted(found.items()))

    def _set_dropout(self, *, training: bool) -> None:
        for layer in self._lora_layers():
            if _TRAINABLE in layer.lora_dropout:
                layer.lora_dropout[_TRAINABLE].train(training)

    def _require_plain_output(self) -> None:
        import torch

        ids = torch.tensor([[0, 1]], device=self.device)
        with torch.no_grad():
            whole = self.model(input_ids=ids, use_cache=False).logits
            parts = self.lm_head(self.body(input_ids=ids, use_cache=False).last_hidden_state)
        if not torch.allclose(whole.float(), parts.float(), atol=1e-3, rtol=1e-3):
            raise BackendError(
                str(self.base_folder),
                problem="the model changes its logits after the output layer (scale or cap)",
                next_step="use a model whose logits are lm_head of the last hidden state",
            )
