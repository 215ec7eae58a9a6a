"""One base in memory: adapters act, leave nothing behind, and never half fit."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the hf extra is not installed")
pytest.importorskip("peft", reason="the hf extra is not installed")

from eps_locked.domain.model import AdapterFiles, LoraRecipe  # noqa: E402
from eps_locked.errors import BackendError  # noqa: E402
from eps_locked.models import adapter_format  # noqa: E402
from eps_locked.models.host import MAX_RESIDENT_ADAPTERS, AdapterHost  # noqa: E402

RECIPE = LoraRecipe(
    rank=4,
    alpha=8.0,
    dropout=0.0,
    rank_stabilised=False,
    target_modules=("v_proj", "q_proj"),
    learning_rate=1e-2,
    schedule="constant",
    warmup_steps=0,
    weight_decay=0.0,
    max_grad_norm=1.0,
    rows_per_step=2,
)
IDS = torch.tensor([[1, 5, 9, 40, 7, 2]])
Q = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"


@pytest.fixture
def host(tiny_folder: Path) -> AdapterHost:
    return AdapterHost.load(tiny_folder, dtype="float32", device="cpu", threads=None)


def logits(host: AdapterHost) -> torch.Tensor:
    with torch.no_grad():
        return host.model(input_ids=IDS).logits


def make_adapter(
    host: AdapterHost, seed: int = 0, recipe: LoraRecipe = RECIPE, size: float = 0.1
) -> AdapterFiles:
    """An adapter whose B is not zero, so that it acts."""
    parameters = host.new_trainable(recipe, seed)
    for parameter in parameters:
        parameter.data.add_(size)
    files = host.export(recipe, {"cell": f"seed {seed}"}, model_name="tiny")
    host.discard_trainable()
    return AdapterFiles(digest=f"blake3:{seed:064x}", files=files)


def edited(files: AdapterFiles, change: object) -> AdapterFiles:
    """The adapter with its tensors passed through ``change`` (dict in place)."""
    from safetensors.torch import load, save

    tensors = load(files.files[adapter_format.WEIGHTS_NAME])
    change(tensors)  # type: ignore[operator]
    weights = save(tensors)
    return dataclasses.replace(
        files, digest="blake3:edited", files={**files.files, adapter_format.WEIGHTS_NAME: weights}
    )


def with_config(files: AdapterFiles, **fields: object) -> AdapterFiles:
    config = json.loads(files.files[adapter_format.CONFIG_NAME])
    text = json.dumps({**config, **fields}).encode()
    return dataclasses.replace(
        files, digest="blake3:edited", files={**files.files, adapter_format.CONFIG_NAME: text}
    )


def test_the_base_is_frozen_and_in_eval_mode(host: AdapterHost) -> None:
    assert not any(parameter.requires_grad for parameter in host.model.parameters())
    assert not any(module.training for module in host.model.modules())
    assert set(host.versions) == {"torch", "transformers", "peft"}


def test_an_adapter_acts_and_none_is_the_bare_base_bit_for_bit(host: AdapterHost) -> None:
    bare, sample = logits(host), host.base_sample()
    adapter = make_adapter(host)
    assert torch.equal(logits(host), bare)
    assert host.attach(adapter) == 2 * 2 * 2
    assert host.active_digest == adapter.digest
    assert not torch.allclose(logits(host), bare)
    host.attach(None)
    assert host.active_digest is None
    assert torch.equal(logits(host), bare)
    assert host.base_sample() == sample
    assert not any(parameter.requires_grad for parameter in host.model.parameters())


def test_what_is_attached_is_what_was_exported(host: AdapterHost) -> None:
    parameters = host.new_trainable(RECIPE, 3)
    for parameter in parameters:
        parameter.data.add_(0.1)
    with host.evaluating():
        in_training = host.model(input_ids=IDS).logits
    files = host.export(RECIPE, {}, model_name="tiny")
    host.discard_trainable()
    host.attach(AdapterFiles(digest="blake3:x", files=files))
    assert torch.equal(logits(host), in_training)


@pytest.mark.parametrize("rank_stabilised", [False, True])
def test_stock_peft_loads_the_export_and_computes_the_same(
    host: AdapterHost, tiny_folder: Path, tmp_path: Path, rank_stabilised: bool
) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    recipe = dataclasses.replace(RECIPE, rank_stabilised=rank_stabilised)
    adapter = make_adapter(host, recipe=recipe)
    for name, data in adapter.files.items():
        (tmp_path / name).write_bytes(data)
    base = AutoModelForCausalLM.from_pretrained(str(tiny_folder), dtype=torch.float32)
    stock = PeftModel.from_pretrained(base, str(tmp_path)).eval()
    host.attach(adapter)
    with torch.no_grad():
        assert torch.equal(stock(input_ids=IDS).logits, logits(host))


def test_an_adapter_saved_by_stock_peft_attaches(
    host: AdapterHost, tiny_folder: Path, tmp_path: Path
) -> None:
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    base = AutoModelForCausalLM.from_pretrained(str(tiny_folder), dtype=torch.float32)
    config = LoraConfig(r=2, target_modules=["o_proj"], init_lora_weights=False)
    stock = get_peft_model(base, config).eval()
    stock.save_pretrained(str(tmp_path))
    names = (adapter_format.WEIGHTS_NAME, adapter_format.CONFIG_NAME)
    files = {name: (tmp_path / name).read_bytes() for name in names}
    host.attach(AdapterFiles(digest="blake3:stock", files=files))
    with torch.no_grad():
        assert torch.equal(stock(input_ids=IDS).logits, logits(host))


def test_the_exported_config_is_canonical_and_names_no_path(host: AdapterHost) -> None:
    text = make_adapter(host).files[adapter_format.CONFIG_NAME].decode()
    fields = json.loads(text)
    assert fields["target_modules"] == ["q_proj", "v_proj"]
    assert fields["base_model_name_or_path"] == "tiny"
    assert list(fields) == sorted(fields)
    assert str(host.base_folder) not in text


def test_the_weights_header_carries_the_provenance_in_key_order(host: AdapterHost) -> None:
    from safetensors import safe_open

    host.new_trainable(RECIPE, 0)
    provenance = {"step": "train", "cell": "a", "rows": "blake3:1"}
    data = host.export(RECIPE, provenance, model_name="tiny")[adapter_format.WEIGHTS_NAME]
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    assert list(header["__metadata__"]) == ["cell", "format", "rows", "step"]
    assert header["__metadata__"] == {**provenance, "format": "pt"}
    assert list(header)[1:] == sorted(list(header)[1:])
    path = host.base_folder.parent / "header.safetensors"
    path.write_bytes(data)
    with safe_open(str(path), "pt") as opened:
        assert opened.metadata() == {**provenance, "format": "pt"}


def test_initial_weights_come_from_the_seed_alone(host: AdapterHost) -> None:
    torch.manual_seed(1)
    first = make_adapter(host, 5)
    torch.manual_seed(2)
    state = torch.get_rng_state()
    assert make_adapter(host, 5).files == first.files
    assert torch.equal(torch.get_rng_state(), state)
    other = make_adapter(host, 6).files[adapter_format.WEIGHTS_NAME]
    assert other != first.files[adapter_format.WEIGHTS_NAME]


def test_a_fresh_adapter_changes_nothing_yet(host: AdapterHost) -> None:
    bare = logits(host)
    parameters = host.new_trainable(RECIPE, 0)
    assert all(parameter.requires_grad for parameter in parameters)
    trainable = [p for p in host.model.parameters() if p.requires_grad]
    assert {id(p) for p in trainable} == {id(p) for p in parameters}
    assert torch.equal(logits(host), bare)
    bound = 1 / 32**0.5
    assert all(float(p.detach().abs().max()) <= bound for p in parameters)


def test_at_most_two_adapters_stay_resident(host: AdapterHost) -> None:
    adapters = [make_adapter(host, seed) for seed in range(MAX_RESIDENT_ADAPTERS + 1)]
    readings = []
    for adapter in adapters:
        host.attach(adapter)
        readings.append(logits(host))
    names = {part for name, _ in host.model.named_parameters() for part in name.split(".")}
    assert sum(name.startswith("attached_") for name in names) == MAX_RESIDENT_ADAPTERS
    for adapter, reading in zip(adapters, readings, strict=True):
        host.attach(adapter)
        assert torch.equal(logits(host), reading)


def test_a_resident_adapter_is_not_parsed_again(host: AdapterHost) -> None:
    adapter = make_adapter(host)
    host.attach(adapter)
    reading = logits(host)
    host.attach(None)
    host.attach(dataclasses.replace(adapter, files={}))
    assert torch.equal(logits(host), reading)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop(Q), f"missing in the file: {Q}"),
        (lambda t: t.update({Q.replace("0", "9"): t[Q].clone()}), "finds no parameter: .*layers.9"),
        (lambda t: t.update({Q: torch.zeros(4, 31)}), r"expected shape \(4, 32\), found \(4, 31\)"),
    ],
    ids=["missing", "extra", "misshapen"],
)
def test_a_tensor_that_does_not_fit_is_named_and_nothing_changes(
    host: AdapterHost, change: object, message: str
) -> None:
    bare, good = logits(host), make_adapter(host)
    host.attach(good)
    reading = logits(host)
    with pytest.raises(BackendError, match=message) as caught:
        host.attach(edited(good, change))
    assert "blake3:edited" in str(caught.value)
    assert host.active_digest == good.digest
    assert torch.equal(logits(host), reading)
    host.attach(None)
    assert torch.equal(logits(host), bare)


def test_a_rank_in_the_config_that_is_not_the_tensors_is_an_error(host: AdapterHost) -> None:
    with pytest.raises(BackendError, match="expected shape"):
        host.attach(with_config(make_adapter(host), r=8))


@pytest.mark.parametrize("layer", ["lm_head", "model.embed_tokens"])
def test_an_adapter_on_the_output_layer_or_embedding_is_refused(
    host: AdapterHost, layer: str
) -> None:
    def add(tensors: dict[str, torch.Tensor]) -> None:
        tensors[f"base_model.model.{layer}.lora_A.weight"] = torch.zeros(4, 32)

    with pytest.raises(BackendError, match="attention and MLP layers only"):
        host.attach(edited(make_adapter(host), add))
    with pytest.raises(BackendError, match="attention and MLP layers only"):
        host.attach(with_config(make_adapter(host), target_modules=["q_proj", layer]))


@pytest.mark.parametrize(
    "fields",
    [
        {"modules_to_save": ["lm_head"]},
        {"target_parameters": ["x"]},
        {"trainable_token_indices": [1]},
        {"use_dora": True},
        {"bias": "all"},
        {"target_modules": "all-linear"},
        {"target_modules": None},
        {"peft_type": "IA3"},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_an_adapter_that_is_more_than_plain_lora_is_refused(
    host: AdapterHost, fields: dict[str, object]
) -> None:
    with pytest.raises(BackendError, match=next(iter(fields))):
        host.attach(with_config(make_adapter(host), **fields))


@pytest.mark.parametrize("name", [adapter_format.WEIGHTS_NAME, adapter_format.CONFIG_NAME])
def test_files_that_are_missing_or_do_not_parse_are_an_error(host: AdapterHost, name: str) -> None:
    good = make_adapter(host)
    left = {key: data for key, data in good.files.items() if key != name}
    with pytest.raises(BackendError, match=f"expected {name}"):
        host.attach(AdapterFiles(digest="blake3:x", files=left))
    with pytest.raises(BackendError, match="do not parse"):
        host.attach(AdapterFiles(digest="blake3:x", files={**left, name: b"\x00garbage"}))


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        (("lm_head",), "output layer"),
        (("q_proj", "embed_tokens"), "output layer"),
        (("q_proj", "no_such_proj"), "no match"),
        (("proj",), "no match"),
        ((), "at least one"),
    ],
)
def test_targets_that_match_nothing_or_too_much_are_refused(
    host: AdapterHost, targets: tuple[str, ...], message: str
) -> None:
    with pytest.raises(BackendError, match=message):
        host.new_trainable(dataclasses.replace(RECIPE, target_modules=targets), 0)
    assert not host.is_training


def test_targets_still_match_after_an_adapter_has_wrapped_them(host: AdapterHost) -> None:
    make_adapter(host)
    make_adapter(host, 1)
    full = "model.layers.1.self_attn.q_proj"
    recipe = dataclasses.replace(RECIPE, target_modules=(full,))
    adapter = make_adapter(host, 2, recipe)
    assert host.attach(adapter) == 2


def test_the_adapter_served_before_a_fit_is_served_after_it(host: AdapterHost) -> None:
    first = make_adapter(host)
    host.attach(first)
    reading = logits(host)
    host.new_trainable(RECIPE, 1)
    assert not torch.equal(logits(host), reading)  # the fit starts from the bare base
    host.discard_trainable()
    assert host.active_digest == first.digest
    assert torch.equal(logits(host), reading)


def test_attaching_during_a_fit_is_a_misuse(host: AdapterHost) -> None:
    adapter = make_adapter(host)
    host.new_trainable(RECIPE, 0)
    with pytest.raises(RuntimeError, match="being trained"):
        host.attach(adapter)
    with pytest.raises(RuntimeError, match="being trained"):
        host.new_trainable(RECIPE, 1)


def test_exporting_without_a_fit_is_a_misuse(host: AdapterHost) -> None:
    with pytest.raises(RuntimeError, match="no adapter is being trained"):
        host.export(RECIPE, {}, model_name="tiny")


def test_bfloat16_base_keeps_float32_adapters(tiny_folder: Path) -> None:
    host = AdapterHost.load(tiny_folder, dtype="bfloat16", device="cpu", threads=None)
    bare = logits(host)
    adapter = make_adapter(host)
    host.attach(adapter)
    assert {p.dtype for n, p in host.model.named_parameters() if "lora_" in n} == {torch.float32}
    assert not torch.equal(logits(host), bare)
    host.attach(None)
    assert torch.equal(logits(host), bare)


@pytest.mark.parametrize(("dtype", "device"), [("float16", "cpu"), ("float32", "no-such-device")])
def test_what_cannot_be_loaded_is_a_backend_error(
    tiny_folder: Path, dtype: str, device: str
) -> None:
    with pytest.raises(BackendError):
        AdapterHost.load(tiny_folder, dtype=dtype, device=device, threads=None)


def test_a_folder_that_is_no_model_is_a_backend_error(tmp_path: Path) -> None:
    with pytest.raises(BackendError, match="does not load"):
        AdapterHost.load(tmp_path, dtype="float32", device="cpu", threads=None)


def test_a_model_that_rescales_its_logits_is_not_served(tiny_folder: Path) -> None:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(str(tiny_folder), dtype=torch.float32)
    plain = model.forward

    def scaled(*args: object, **options: object) -> object:
        output = plain(*args, **options)
        output.logits = output.logits * 0.5
        return output

    model.forward = scaled
    with pytest.raises(BackendError, match="after the output layer"):
        AdapterHost(model, base_folder=tiny_folder, device="cpu")


def test_a_target_that_is_no_linear_layer_leaves_the_host_clean(tiny_folder: Path) -> None:
    host = AdapterHost.load(tiny_folder, dtype="float32", device="cpu", threads=None)
    bare = logits(host)
    with pytest.raises(BackendError, match="lora recipe"):
        host.new_trainable(dataclasses.replace(RECIPE, target_modules=("q_proj", "mlp")), 0)
    assert not host.is_training
    assert torch.equal(logits(host), bare)
    host.attach(make_adapter(host))
    assert not torch.equal(logits(host), bare)
