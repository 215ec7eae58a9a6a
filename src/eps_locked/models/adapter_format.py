"""The bytes of a LoRA adapter in PEFT's layout, written so that equal weights give equal bytes.

PEFT's own writer is not byte-stable: it prints ``target_modules``, a set, in hash order and the
base model's absolute path, and safetensors writes its metadata in hash order. Both are written
here instead, canonically, and still load in stock PEFT.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eps_locked.domain.model import AdapterFiles, LoraRecipe
from eps_locked.errors import BackendError

if TYPE_CHECKING:
    import torch

__all__ = [
    "CAUSAL",
    "CLASSIFIER",
    "CONFIG_NAME",
    "WEIGHTS_NAME",
    "AdapterForm",
    "config_bytes",
    "draw_initial",
    "parse",
    "recipe_config",
    "require_no_output_layer",
    "require_same_tensors",
    "require_targets",
    "safetensors_bytes",
    "scale_of",
]

WEIGHTS_NAME = "adapter_model.safetensors"
CONFIG_NAME = "adapter_config.json"
_OUTPUT_LAYERS = ("lm_head", "embed_tokens", "embed_out", "wte", "score")
# Config fields that would make an adapter more than A and B matrices. Any of them set is refused:
# such an adapter could change the output layer, or act in ways the tensor check does not see.
_MUST_BE_EMPTY = (
    "target_parameters",
    "trainable_token_indices",
    "layer_replication",
    "alora_invocation_tokens",
    "use_dora",
    "lora_bias",
    "fan_in_fan_out",
    "arrow_config",
    "megatron_config",
    "monteclora_config",
    "velora_config",
    "kasa_config",
    "use_qalora",
    "use_bdlora",
)
_CONFIG_FIELDS = (
    "r",
    "lora_alpha",
    "lora_dropout",
    "use_rslora",
    "target_modules",
    "exclude_modules",
    "layers_to_transform",
    "layers_pattern",
    "rank_pattern",
    "alpha_pattern",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class AdapterForm:
    """What PEFT has to know of the model besides LoRA: its task, and layers stored whole.

    ``known_to_peft`` are layers that PEFT itself adds to ``whole_layers`` for this task.
    """

    task_type: str
    whole_layers: tuple[str, ...]
    known_to_peft: tuple[str, ...]


CAUSAL = AdapterForm(task_type="CAUSAL_LM", whole_layers=(), known_to_peft=())
CLASSIFIER = AdapterForm(
    task_type="SEQ_CLS", whole_layers=("score",), known_to_peft=("classifier", "score")
)


def scale_of(recipe: LoraRecipe) -> float:
    """What B A x is multiplied by: alpha / rank, or alpha / sqrt(rank) when rank-stabilised.

    Source: Hu et al. 2021, arXiv:2106.09685, section 4.1; Kalajdzievski 2023, arXiv:2312.03732.
    """
    divisor = math.sqrt(recipe.rank) if recipe.rank_stabilised else recipe.rank
    return recipe.alpha / divisor


def recipe_config(recipe: LoraRecipe) -> Any:
    """PEFT's LoraConfig for a recipe."""
    from peft import LoraConfig

    return LoraConfig(
        r=recipe.rank,
        lora_alpha=_number(recipe.alpha),  # type: ignore[arg-type]
        lora_dropout=recipe.dropout,
        use_rslora=recipe.rank_stabilised,
        target_modules=sorted(recipe.target_modules),
        bias="none",
        task_type="CAUSAL_LM",
    )


def config_bytes(recipe: LoraRecipe, model_name: str, form: AdapterForm = CAUSAL) -> bytes:
    """``adapter_config.json`` for a recipe: sorted keys, sorted lists, no path, no version.

    Only the fields of a plain LoRA are written, so the bytes do not change with PEFT's defaults.
    """
    fields = {
        "base_model_name_or_path": model_name,
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
        "init_lora_weights": True,
        "lora_alpha": _number(recipe.alpha),
        "lora_dropout": recipe.dropout,
        "modules_to_save": list(form.whole_layers) or None,
        "peft_type": "LORA",
        "r": recipe.rank,
        "revision": None,
        "target_modules": sorted(recipe.target_modules),
        "task_type": form.task_type,
        "use_rslora": recipe.rank_stabilised,
    }
    text = json.dumps(fields, indent=2, sort_keys=True, ensure_ascii=False)
    return (text + "\n").encode()


def safetensors_bytes(tensors: Mapping[str, torch.Tensor], provenance: Mapping[str, str]) -> bytes:
    """A safetensors file: float32 tensors in name order, metadata in key order.

    Source: the safetensors format, github.com/huggingface/safetensors, README, "Format".
    """
    import torch

    header: dict[str, Any] = {"__metadata__": dict(sorted({**provenance, "format": "pt"}.items()))}
    blobs, offset = [], 0
    for name in sorted(tensors):
        tensor = tensors[name].to("cpu", torch.float32).contiguous()
        blob = tensor.numpy().astype("<f4", copy=False).tobytes()
        span = [offset, offset + len(blob)]
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": span}
        blobs.append(blob)
        offset += len(blob)
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return b"".join([len(text).to_bytes(8, "little"), text, *blobs])


def parse(files: AdapterFiles, form: AdapterForm = CAUSAL) -> tuple[Any, dict[str, torch.Tensor]]:
    """An adapter's LoraConfig and tensors, layers stored whole among them.

    Raises BackendError if it is anything but a plain LoRA and the form's whole layers.
    """
    from peft import LoraConfig
    from safetensors import SafetensorError
    from safetensors.torch import load

    thing = f"adapter {files.digest}"
    missing = sorted({WEIGHTS_NAME, CONFIG_NAME} - set(files.files))
    if missing:
        raise BackendError(thing, expected=" and ".join(missing), found=sorted(files.files))
    try:
        fields = json.loads(files.files[CONFIG_NAME])
        tensors = load(bytes(files.files[WEIGHTS_NAME]))
    except (ValueError, SafetensorError) as error:
        raise BackendError(thing, problem=f"its files do not parse: {error}") from error
    if not isinstance(fields, dict) or fields.get("peft_type") != "LORA":
        raise BackendError(
            f"{thing}: {CONFIG_NAME}", expected='"peft_type": "LORA"', found="something else"
        )
    _require_form(thing, fields, form)
    for name in _MUST_BE_EMPTY:
        if fields.get(name):
            raise BackendError(
                f"{thing}: {CONFIG_NAME}: {name}", expected="nothing", found=fields[name]
            )
    if fields.get("bias", "none") != "none":
        raise BackendError(f"{thing}: {CONFIG_NAME}: bias", expected="none", found=fields["bias"])
    _require_plain_targets(thing, fields.get("target_modules"))
    known = {name: fields[name] for name in _CONFIG_FIELDS if fields.get(name) is not None}
    try:
        return LoraConfig(task_type="CAUSAL_LM", init_lora_weights=True, **known), tensors
    except (TypeError, ValueError) as error:
        raise BackendError(f"{thing}: {CONFIG_NAME}", problem=str(error)) from error


def require_no_output_layer(model: Any, tensor_names: Iterable[str], digest: str) -> None:
    """Raise BackendError if a tensor belongs to the output layer or an embedding.

    Logits are compared between base and adapter; an adapter on the output layer would change the
    gauge in which they are read.
    """
    forbidden = _output_layer_names(model)
    for name in sorted(tensor_names):
        if any(part in forbidden or "embedding" in part for part in name.split(".")):
            raise BackendError(
                f"adapter {digest}: {name}",
                expected="attention and MLP layers only",
                found="the output layer or an embedding",
                next_step="train the adapter without lm_head and embed_tokens",
            )


def require_same_tensors(
    parameters: Mapping[str, torch.Tensor], tensors: Mapping[str, torch.Tensor], digest: str
) -> None:
    """Raise BackendError unless names and shapes agree exactly; lists what does not."""
    problems = [f"missing in the file: {name}" for name in sorted(parameters.keys() - tensors)]
    problems += [f"finds no parameter: {name}" for name in sorted(tensors.keys() - parameters)]
    for name in sorted(parameters.keys() & tensors.keys()):
        want, have = tuple(parameters[name].shape), tuple(tensors[name].shape)
        if want != have:
            problems.append(f"{name}: expected shape {want}, found {have}")
    if not parameters:
        problems.append("the adapter matches no layer of the model")
    if problems:
        raise BackendError(
            f"adapter {digest}",
            problem=f"{len(problems)} tensors do not fit",
            details=tuple(problems[:8]),
            next_step="check that it was trained on this base model and not edited since",
        )


def require_targets(model: Any, target_modules: tuple[str, ...]) -> None:
    """Raise BackendError unless each target names layers, none of them output or embedding."""
    if not target_modules:
        raise BackendError("target_modules", expected="at least one layer name", found="none")
    _require_plain_targets("lora recipe", list(target_modules))
    names = [name.removesuffix(".base_layer") for name, _ in model.named_modules()]
    forbidden = _output_layer_names(model)
    for target in target_modules:
        hits = [name for name in names if name == target or name.endswith(f".{target}")]
        if target.split(".")[-1] in forbidden or any(h.split(".")[-1] in forbidden for h in hits):
            raise BackendError(
                f"target_modules: {target}",
                expected="attention and MLP layers only",
                found="the output layer or an embedding",
            )
        if not hits:
            raise BackendError(
                f"target_modules: {target}", expected="a layer of the base model", found="no match"
            )


def draw_initial(parameters: Mapping[str, torch.Tensor], seed: int) -> None:
    """Fill A uniformly in +-1/sqrt(fan_in) and B with zeros, in name order, from ``seed`` alone.

    The bound is kaiming_uniform_(a=sqrt(5)) written out, as PEFT initialises A.
    """
    import torch

    generator = torch.Generator(device="cpu").manual_seed(seed)
    for name in sorted(parameters):
        parameter = parameters[name]
        if ".lora_B." in name:
            parameter.data.zero_()
            continue
        bound = 1.0 / math.sqrt(parameter.shape[1])
        drawn = torch.empty(parameter.shape, dtype=torch.float32, device="cpu")
        parameter.data.copy_(drawn.uniform_(-bound, bound, generator=generator))


def _output_layer_names(model: Any) -> set[str]:
    """Last name parts of the output layer and the input embedding, and their usual names."""
    own = {id(model.get_output_embeddings()), id(model.get_input_embeddings())}
    found = {name.split(".")[-1] for name, module in model.named_modules() if id(module) in own}
    return found | set(_OUTPUT_LAYERS)


def _require_plain_targets(thing: str, targets: object) -> None:
    """A list of names only. A pattern or "all-linear" hides which layers are meant."""
    if not isinstance(targets, list) or not all(isinstance(name, str) for name in targets):
        raise BackendError(
            f"{thing}: target_modules", expected="a list of layer names", found=repr(targets)
        )
    for name in targets:
        if set(name.split(".")) & set(_OUTPUT_LAYERS):
            raise BackendError(
                f"{thing}: target_modules: {name}",
                expected="attention and MLP layers only",
                found="the output layer or an embedding",
            )


def _require_form(thing: str, fields: Mapping[str, Any], form: AdapterForm) -> None:
    """An adapter of another task is refused: its layers might fit, and mean something else."""
    found = fields.get("modules_to_save") or []
    known = {*form.whole_layers, *form.known_to_peft}
    if not set(form.whole_layers) <= set(found) <= known:
        raise BackendError(
            f"{thing}: {CONFIG_NAME}: modules_to_save",
            expected=" and ".join(form.whole_layers) or "nothing",
            found=found or "nothing",
            next_step=f"give an adapter of task type {form.task_type}",
        )


def _number(value: float) -> float | int:
    return int(value) if float(value).is_integer() else value
