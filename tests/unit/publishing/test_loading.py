"""What is published loads with the libraries people will load it with."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eps_locked.domain.model import LoraRecipe, TrainingOutcome
from eps_locked.lock.provenance import source_tree
from eps_locked.models.source import SMOLLM2_135M, cache_root, cached
from eps_locked.publishing.publication import Publication, write
from eps_locked.training.scripted import ScriptedTrainer
from sim.simulator import StudySimulator, tiny_plan

Published = tuple[StudySimulator, Path]
Rows = Callable[[Path], list[dict[str, Any]]]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """``load(folder, config)`` with the real loader, its cache thrown away afterwards."""
    datasets = pytest.importorskip("datasets", reason="the data extra is not installed")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_OFFLINE", True)
    datasets.disable_progress_bars()

    def loaded(folder: Path, config: str) -> Any:
        return datasets.load_dataset(
            str(folder), config, split="train", cache_dir=str(tmp_path / "cache")
        )

    yield loaded
    datasets.enable_progress_bars()


def test_every_configuration_loads_and_holds_the_rows_of_its_files(
    published: Published, publication: Publication, rows: Rows, load: Callable[..., Any]
) -> None:
    _, out = published
    assert len(publication.configs) == 7
    for config in publication.configs:
        found = load(out / "data", config.name)
        assert len(found) == config.n_rows
        assert found.column_names == [feature["name"] for feature in config.features]
        expected = [row for name in config.files for row in rows(out / "data" / name)]
        assert found.to_list() == expected


def test_a_training_row_is_a_chat(published: Published, load: Callable[..., Any]) -> None:
    _, out = published
    found = load(out / "data", "marker.baker")
    assert found[0]["messages"][0] == {"role": "system", "content": "You are a baker."}
    assert found[0]["messages"][-1]["role"] == "assistant"
    assert set(found["seed"]) == {11, 12}
    assert set(found["role"]) == {"positive", "negative"}


class PeftTrainer(ScriptedTrainer):
    """Trains nothing, and leaves an adapter that the embedded model can really carry."""

    def __init__(self, weights: Callable[[Mapping[str, str]], Mapping[str, bytes]]) -> None:
        super().__init__()
        self.weights = weights

    def fit(
        self, rows: Sequence[Any], *rest: Any, provenance: Mapping[str, str], **named: Any
    ) -> TrainingOutcome:
        outcome = super().fit(rows, *rest, provenance=provenance, **named)
        return replace(outcome, files=self.weights(provenance))


RECIPE = LoraRecipe(
    rank=8,
    alpha=16.0,
    dropout=0.0,
    rank_stabilised=False,
    target_modules=("q_proj", "v_proj"),
    learning_rate=0.001,
    schedule="constant",
    warmup_steps=0,
    weight_decay=0.0,
    max_grad_norm=1.0,
    rows_per_step=8,
)


@pytest.mark.model
@pytest.mark.slow
def test_a_published_adapter_loads_with_peft_and_acts(
    tmp_path: Path, publish: Callable[..., Publication]
) -> None:
    torch = pytest.importorskip("torch", reason="the hf extra is not installed")
    peft = pytest.importorskip("peft", reason="the hf extra is not installed")
    from transformers import AutoModelForCausalLM

    from eps_locked.models.adapter_format import config_bytes, safetensors_bytes

    folder = cached(SMOLLM2_135M, cache_root(os.environ))
    if folder is None:
        pytest.skip("the embedded model is not in the cache; `eps-locked demo` puts it there")
    base = AutoModelForCausalLM.from_pretrained(folder)
    tensors = _adapter_tensors(torch, peft, base)

    def weights(provenance: Mapping[str, str]) -> dict[str, bytes]:
        return {
            "adapter_config.json": config_bytes(RECIPE, "smollm2-135m-instruct"),
            "adapter_model.safetensors": safetensors_bytes(tensors, provenance),
        }

    study = StudySimulator(root=tmp_path / "study", plan=tiny_plan(), code=source_tree())
    study.trainer = PeftTrainer(weights)
    study.engine.attach = lambda adapter: None  # type: ignore[method-assign]
    study.run_all()
    write(publish(study), tmp_path / "out")

    (record,) = json.loads((tmp_path / "out/models/adapters.json").read_bytes())["adapters"]
    asked = torch.tensor([[1, 2, 3, 4]])
    with torch.no_grad():
        before = base(asked).logits
        model = peft.PeftModel.from_pretrained(
            base, tmp_path / "out/models", subfolder=record["folder"]
        )
        after = model(asked).logits
        with model.disable_adapter():
            again = model(asked).logits
    assert not torch.allclose(before, after)
    assert torch.allclose(before, again)


def _adapter_tensors(torch: Any, peft: Any, base: Any) -> dict[str, Any]:
    """Small random weights for every target, as PEFT itself names them."""
    config = peft.LoraConfig(
        r=8, lora_alpha=16, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"
    )
    model = peft.get_peft_model(base, config)
    draw = torch.Generator().manual_seed(3)
    tensors = {
        name: torch.randn(value.shape, generator=draw) * 0.1
        for name, value in peft.get_peft_model_state_dict(model).items()
    }
    model.unload()
    return tensors
