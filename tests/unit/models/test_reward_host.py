"""A scalar head on a base: the last token is read whatever the padding, and heads keep apart."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the hf extra is not installed")
pytest.importorskip("peft", reason="the hf extra is not installed")

from eps_locked.domain.model import AdapterFiles, LoraRecipe  # noqa: E402
from eps_locked.errors import BackendError  # noqa: E402
from eps_locked.models import adapter_format  # noqa: E402
from eps_locked.models.host import AdapterHost  # noqa: E402
from eps_locked.models.reward_host import RewardHost  # noqa: E402

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
# 0 is the padding token and 2 the end of turn: both stand at ends and in the middle.
ROWS = [(1, 5, 9), (1, 5, 9, 40, 7, 2), (8, 0), (3,), (4, 0, 11, 0, 0), (6, 2, 2)]


def load(folder: Path, **changes: Any) -> RewardHost:
    settings: dict[str, Any] = {"dtype": "float32", "device": "cpu", "threads": None}
    return RewardHost.load(folder, **(settings | changes))


@pytest.fixture
def host(tiny_folder: Path) -> RewardHost:
    return load(tiny_folder)


@pytest.fixture(scope="module")
def shipped_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A reward model of its own; a transformers folder as reward models are published."""
    return write_classifier(tmp_path_factory.mktemp("shipped"))


def write_classifier(folder: Path, **changes: Any) -> Path:
    from transformers import LlamaConfig, LlamaForSequenceClassification

    settings = {
        "vocab_size": 336,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "initializer_range": 0.3,
        "pad_token_id": 0,
        "num_labels": 1,
    }
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        model = LlamaForSequenceClassification(LlamaConfig(**(settings | changes)))
    model.save_pretrained(str(folder))
    return folder


def rewards(host: RewardHost, rows: Any = ROWS) -> torch.Tensor:
    with torch.no_grad():
        return host.rewards(rows)


def make_adapter(host: RewardHost, seed: int = 0, size: float = 0.1) -> AdapterFiles:
    for parameter in host.new_trainable_head(RECIPE, seed, (seed, 0.5)):
        parameter.data.add_(size)
    files = host.export(RECIPE, {"cell": f"seed {seed}"}, model_name="tiny")
    host.discard_trainable()
    return AdapterFiles(digest=f"blake3:{seed:064x}", files=files)


def with_config(adapter: AdapterFiles, **fields: object) -> AdapterFiles:
    config = json.loads(adapter.files[adapter_format.CONFIG_NAME])
    text = json.dumps({**config, **fields}).encode()
    return dataclasses.replace(
        adapter, digest="blake3:edited", files={**adapter.files, adapter_format.CONFIG_NAME: text}
    )


def with_tensors(adapter: AdapterFiles, change: Any) -> AdapterFiles:
    from safetensors.torch import load as parse
    from safetensors.torch import save

    tensors = parse(adapter.files[adapter_format.WEIGHTS_NAME])
    change(tensors)
    files = {**adapter.files, adapter_format.WEIGHTS_NAME: save(tensors)}
    return dataclasses.replace(adapter, digest="blake3:edited", files=files)


# --- what is read ---------------------------------------------------------------------------------


def test_the_last_token_of_each_row_is_read_whatever_its_company(host: RewardHost) -> None:
    host.use_fresh_head(3, 0.5)
    alone = torch.cat([rewards(host, [row]) for row in ROWS])
    assert torch.allclose(rewards(host), alone, atol=1e-4, rtol=0)
    assert torch.allclose(rewards(host, ROWS[::-1]), alone.flip(0), atol=1e-4, rtol=0)
    assert len({round(float(value), 4) for value in alone}) == len(ROWS)


def test_a_row_that_ends_in_padding_is_read_there_and_not_before_it(host: RewardHost) -> None:
    host.use_fresh_head(3, 0.5)
    whole, cut = rewards(host, [(8, 0), (8,)])
    assert abs(float(whole - cut)) > 1e-3


def test_a_shipped_head_gives_what_transformers_gives(shipped_folder: Path) -> None:
    from transformers import AutoModelForSequenceClassification

    host = load(shipped_folder)
    host.attach(None)
    stock = AutoModelForSequenceClassification.from_pretrained(str(shipped_folder)).eval()
    row = (1, 5, 9, 40)
    with torch.no_grad():
        expected = stock(input_ids=torch.tensor([row])).logits[0, 0]
    assert host.has_own_head
    assert torch.allclose(rewards(host, [row])[0], expected, atol=1e-6)


def test_a_head_stays_float32_on_a_bfloat16_base(shipped_folder: Path) -> None:
    host = load(shipped_folder, dtype="bfloat16")
    host.attach(None)
    assert host.model.dtype == torch.bfloat16
    assert host.lm_head.weight.dtype == rewards(host).dtype == torch.float32


def test_a_fresh_head_follows_from_its_seed_and_deviation_alone(
    host: RewardHost, tiny_folder: Path
) -> None:
    torch.manual_seed(1)
    host.use_fresh_head(5, 0.02)
    first = host.lm_head.weight.clone()
    drawn = torch.empty(1, 32).normal_(0, 0.02, generator=torch.Generator().manual_seed(5))
    assert torch.equal(first, drawn)
    torch.manual_seed(2)
    other = load(tiny_folder)
    other.use_fresh_head(5, 0.02)
    assert torch.equal(other.lm_head.weight, first)
    other.use_fresh_head(6, 0.02)
    assert not torch.equal(other.lm_head.weight, first)
    other.use_fresh_head(5, 0.002)
    assert torch.allclose(other.lm_head.weight * 10, first)


def test_loading_leaves_the_global_generator_alone(tiny_folder: Path) -> None:
    torch.manual_seed(4)
    expected = torch.rand(3)
    torch.manual_seed(4)
    load(tiny_folder)
    assert torch.equal(torch.rand(3), expected)


# --- adapters and heads ---------------------------------------------------------------------------


def test_an_adapter_brings_its_head_and_leaves_nothing_behind(shipped_folder: Path) -> None:
    host = load(shipped_folder)
    host.attach(None)
    own, sample = rewards(host), host.base_sample()
    one, two = make_adapter(host, 1), make_adapter(host, 2)
    assert torch.equal(rewards(host), own)
    seen = []
    for adapter in (one, two, one):
        assert host.attach(adapter) == 2 * 2 * 2 + 1
        seen.append(rewards(host))
    assert torch.equal(seen[0], seen[2])
    assert not torch.allclose(seen[0], seen[1])
    host.use_fresh_head(1, 0.5)
    assert host.active_digest is None
    host.attach(None)
    assert torch.equal(rewards(host), own)
    assert host.base_sample() == sample
    assert not any(parameter.requires_grad for parameter in host.model.parameters())


def test_what_is_attached_is_what_was_exported(host: RewardHost) -> None:
    for parameter in host.new_trainable_head(RECIPE, 3, (4, 0.5)):
        parameter.data.add_(0.1)
    with host.evaluating():
        in_training = rewards(host)
    files = host.export(RECIPE, {}, model_name="tiny")
    host.discard_trainable()
    host.attach(AdapterFiles(digest="blake3:x", files=files))
    assert torch.equal(rewards(host), in_training)


def test_stock_peft_loads_the_export_and_computes_the_same(
    host: RewardHost, tiny_folder: Path, tmp_path: Path
) -> None:
    from peft import PeftModel
    from transformers import AutoModelForSequenceClassification

    adapter = make_adapter(host)
    for name, data in adapter.files.items():
        (tmp_path / name).write_bytes(data)
    base = AutoModelForSequenceClassification.from_pretrained(str(tiny_folder), num_labels=1)
    stock = PeftModel.from_pretrained(base, str(tmp_path)).eval()
    host.attach(adapter)
    row = (1, 5, 9, 40)
    with torch.no_grad():
        expected = stock(input_ids=torch.tensor([row])).logits[0, 0]
    assert torch.allclose(rewards(host, [row])[0], expected, atol=1e-6)
    config = json.loads(adapter.files[adapter_format.CONFIG_NAME])
    assert (config["modules_to_save"], config["task_type"]) == (["score"], "SEQ_CLS")


def test_an_adapter_saved_by_stock_peft_attaches(
    host: RewardHost, tiny_folder: Path, tmp_path: Path
) -> None:
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForSequenceClassification

    base = AutoModelForSequenceClassification.from_pretrained(str(tiny_folder), num_labels=1)
    config = LoraConfig(
        r=2, target_modules=["o_proj"], init_lora_weights=False, task_type="SEQ_CLS"
    )
    stock = get_peft_model(base, config).eval()
    stock.save_pretrained(str(tmp_path))
    names = (adapter_format.WEIGHTS_NAME, adapter_format.CONFIG_NAME)
    files = {name: (tmp_path / name).read_bytes() for name in names}
    host.attach(AdapterFiles(digest="blake3:stock", files=files))
    row = (1, 5, 9, 40)
    with torch.no_grad():
        expected = stock(input_ids=torch.tensor([row])).logits[0, 0]
    assert torch.allclose(rewards(host, [row])[0], expected, atol=1e-6)


def test_equal_weights_give_equal_bytes(host: RewardHost) -> None:
    assert make_adapter(host).files == make_adapter(host).files


# --- what is refused ------------------------------------------------------------------------------


def test_a_plain_causal_model_has_no_head_of_its_own(host: RewardHost) -> None:
    assert not host.has_own_head
    with pytest.raises(BackendError, match=r"no scalar head of its own(?s:.*)a fresh head by seed"):
        host.attach(None)


def test_a_head_of_more_than_one_output_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BackendError, match="head: expected one output, found 2"):
        load(write_classifier(tmp_path, num_labels=2))


def test_an_architecture_without_a_classification_form_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "vit"}))
    with pytest.raises(BackendError, match="sequence classification form, found vit"):
        load(tmp_path)


def test_a_head_that_is_no_score_layer_is_refused(tmp_path: Path) -> None:
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(
        vocab_size=40,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=8,
        num_labels=1,
    )
    BertForSequenceClassification(config).save_pretrained(str(tmp_path))
    with pytest.raises(BackendError, match=r"a linear layer called score.*found no score layer"):
        load(tmp_path)


def test_a_score_layer_with_more_than_its_weight_is_refused(
    shipped_folder: Path, tmp_path: Path
) -> None:
    """transformers drops what it has no place for: a bias, or a head of several layers."""
    from safetensors.torch import load_file, save_file

    weights = load_file(shipped_folder / "model.safetensors")
    weights["score.bias"] = torch.ones(1)
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    (tmp_path / "config.json").write_bytes((shipped_folder / "config.json").read_bytes())
    with pytest.raises(BackendError, match=r"score\.weight alone, found score\.bias besides"):
        load(tmp_path)


def test_weights_other_than_the_heads_must_be_there(shipped_folder: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    weights = load_file(shipped_folder / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    (tmp_path / "config.json").write_bytes((shipped_folder / "config.json").read_bytes())
    with pytest.raises(BackendError, match=r"found no model\.layers\.1\.mlp\.up_proj"):
        load(tmp_path)


def test_a_folder_without_a_model_and_an_unknown_dtype_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BackendError, match="no readable configuration"):
        load(tmp_path)
    with pytest.raises(BackendError, match="dtype: expected float32 or bfloat16, found float16"):
        load(tmp_path, dtype="float16")


def test_a_reward_that_is_not_the_score_layers_is_refused(tiny_folder: Path) -> None:
    host = load(tiny_folder)
    plain = host.model.forward

    def scaled(*args: Any, **kwargs: Any) -> Any:
        found = plain(*args, **kwargs)
        found.logits = 2 * found.logits + 1
        return found

    host.model.forward = scaled
    with pytest.raises(BackendError, match="not its score layer at the last token"):
        RewardHost(host.model, base_folder=tiny_folder, device="cpu", has_own_head=False)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda one: one.pop("base_model.model.score.weight"), "found none"),
        (
            lambda one: one.update({"base_model.model.score.weight": torch.zeros(2, 32)}),
            r"expected a head of shape \(1, 32\), found shape \(2, 32\)",
        ),
        (
            lambda one: one.update({"base_model.model.lm_head.weight": torch.zeros(2)}),
            "the output layer or an embedding",
        ),
    ],
)
def test_an_adapter_with_another_head_is_refused_and_nothing_changes(
    host: RewardHost, change: Any, message: str
) -> None:
    adapter = make_adapter(host)
    host.attach(adapter)
    before = rewards(host)
    with pytest.raises(BackendError, match=message):
        host.attach(with_tensors(adapter, change))
    assert host.active_digest == adapter.digest
    assert torch.equal(rewards(host), before)


@pytest.mark.parametrize("modules", [None, ["lm_head"], ["score", "lm_head"], ["classifier"]])
def test_an_adapter_that_saves_other_layers_is_refused(host: RewardHost, modules: Any) -> None:
    adapter = with_config(make_adapter(host), modules_to_save=modules)
    with pytest.raises(BackendError, match="modules_to_save: expected score"):
        host.attach(adapter)


def test_heads_and_causal_adapters_do_not_go_on_each_others_hosts(
    host: RewardHost, tiny_folder: Path
) -> None:
    causal = AdapterHost.load(tiny_folder, dtype="float32", device="cpu", threads=None)
    causal.new_trainable(RECIPE, 1)
    files = causal.export(RECIPE, {}, model_name="tiny")
    causal.discard_trainable()
    with pytest.raises(BackendError, match="modules_to_save: expected score, found nothing"):
        host.attach(AdapterFiles(digest="blake3:causal", files=files))
    with pytest.raises(BackendError, match=r"modules_to_save: expected nothing, found \['score'\]"):
        causal.attach(make_adapter(host))


def test_the_head_is_no_target_of_lora(host: RewardHost) -> None:
    recipe = dataclasses.replace(RECIPE, target_modules=("score",))
    with pytest.raises(BackendError, match="attention and MLP layers only"):
        host.new_trainable_head(recipe, 1, (1, 0.1))
    assert not host.is_training
