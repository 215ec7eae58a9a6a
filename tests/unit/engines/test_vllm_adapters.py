"""What is checked of an adapter before vLLM sees it, and the folders and ids it is given."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import tiny_engine
import torch
from safetensors.torch import load, save

from eps_locked.domain.model import AdapterFiles
from eps_locked.engines.vllm_adapters import (
    RANK_LIMITS,
    AdapterShelf,
    rank_limit,
    require_fit,
    weight_shapes,
)
from eps_locked.errors import BackendError

WEIGHTS = "adapter_model.safetensors"
CONFIG = "adapter_config.json"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("tiny")
    tiny_engine.make_model().save_pretrained(found)
    return found


@pytest.fixture(scope="module")
def shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    return weight_shapes(folder)


@pytest.fixture(scope="module")
def adapter() -> AdapterFiles:
    return tiny_engine.make_adapter(tiny_engine.make_host())


def with_config(adapter: AdapterFiles, **fields: object) -> AdapterFiles:
    config = {**json.loads(adapter.files[CONFIG]), **fields}
    return dataclasses.replace(
        adapter, files={**adapter.files, CONFIG: json.dumps(config).encode()}
    )


def with_tensors(adapter: AdapterFiles, **tensors: torch.Tensor) -> AdapterFiles:
    found = {**load(adapter.files[WEIGHTS]), **tensors}
    return dataclasses.replace(adapter, files={**adapter.files, WEIGHTS: save(found)})


def without_layer(adapter: AdapterFiles, part: str) -> AdapterFiles:
    kept = {name: t for name, t in load(adapter.files[WEIGHTS]).items() if part not in name}
    return dataclasses.replace(adapter, files={**adapter.files, WEIGHTS: save(kept)})


def test_shapes_are_those_of_the_models_weights(shapes: dict[str, tuple[int, ...]]) -> None:
    weights = tiny_engine.make_model().state_dict()
    assert shapes == {name: tuple(weight.shape) for name, weight in weights.items()}


def test_a_folder_without_weights_or_with_broken_ones_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BackendError, match="weights in"):
        weight_shapes(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"\x09" * 20)
    with pytest.raises(BackendError, match="does not parse"):
        weight_shapes(tmp_path)


def test_an_adapter_of_this_model_fits(
    adapter: AdapterFiles, shapes: dict[str, tuple[int, ...]]
) -> None:
    require_fit(adapter, shapes, 8)


def test_a_rank_above_the_limit_is_refused_with_both_numbers(
    adapter: AdapterFiles, shapes: dict[str, tuple[int, ...]]
) -> None:
    with pytest.raises(BackendError, match=r"(?s)at most 1, .*found 2.*max_lora_rank 8"):
        require_fit(adapter, shapes, 1)


A_NAME = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"
OTHER_NAME = "base_model.model.model.layers.0.self_attn.o_proj.lora_A.weight"


def test_missing_foreign_and_misshapen_tensors_are_named(
    adapter: AdapterFiles, shapes: dict[str, tuple[int, ...]]
) -> None:
    cases = {
        "missing in the file": tiny_engine.without_one_tensor(adapter),
        # A whole layer is missing: vLLM would serve the base there.
        "layers.2.self_attn.v_proj": without_layer(adapter, "layers.2.self_attn.v_proj"),
        "finds no parameter": with_tensors(adapter, **{OTHER_NAME: torch.zeros(2, 64)}),
        # vLLM would copy it into a corner of its buffer.
        r"expected shape \(2, 64\), found \(2, 32\)": with_tensors(
            adapter, **{A_NAME: torch.zeros(2, 32)}
        ),
    }
    for message, broken in cases.items():
        with pytest.raises(BackendError, match=message):
            require_fit(broken, shapes, 8)


@pytest.mark.parametrize(
    "fields",
    [
        {"rank_pattern": {"q_proj": 4}},
        {"alpha_pattern": {"q_proj": 4}},
        {"layers_to_transform": [0]},
        {"use_dora": True},
        {"modules_to_save": ["lm_head"]},
        {"target_modules": ["q_proj", "v_proj", "lm_head"]},
        {"target_modules": ["nothing_like_it"]},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_configs_that_mean_more_than_a_plain_adapter_are_refused(
    adapter: AdapterFiles, shapes: dict[str, tuple[int, ...]], fields: dict[str, object]
) -> None:
    with pytest.raises(BackendError):
        require_fit(with_config(adapter, **fields), shapes, 8)


def test_the_rank_limit_is_the_next_one_that_vllm_knows() -> None:
    assert [rank_limit([rank]) for rank in (1, 2, 8, 9, 16, 33)] == [1, 8, 8, 16, 16, 64]
    assert rank_limit([4, 30, 8]) == 32
    assert all(rank_limit([limit]) == limit for limit in RANK_LIMITS)
    with pytest.raises(BackendError, match="513"):
        rank_limit([513])


def named(adapter: AdapterFiles, name: str) -> AdapterFiles:
    return dataclasses.replace(adapter, digest=f"blake3:{name}")


def test_the_shelf_holds_the_two_used_last_and_gives_no_id_twice(adapter: AdapterFiles) -> None:
    shelf = AdapterShelf()
    first = shelf.put(named(adapter, "aa"))
    assert {path.name for path in first.folder.iterdir()} == {WEIGHTS, CONFIG}
    assert (first.folder / WEIGHTS).read_bytes() == adapter.files[WEIGHTS]
    assert "aa" in first.folder.name
    second = shelf.put(named(adapter, "bb"))
    assert shelf.put(named(adapter, "aa")) == first
    third = shelf.put(named(adapter, "cc"))
    assert shelf.take_surplus() == [second]
    assert not second.folder.exists()
    assert first.folder.exists()
    again = shelf.put(named(adapter, "bb"))
    other = AdapterShelf().put(named(adapter, "aa"))
    numbers = [first.number, second.number, third.number, again.number, other.number]
    assert len(set(numbers)) == 5
    assert len({first.name, second.name, third.name, again.name}) == 4
    shelf.clear()
    assert not first.folder.exists()


def test_further_files_of_an_adapter_are_not_handed_on(adapter: AdapterFiles) -> None:
    shelf = AdapterShelf()
    more = dataclasses.replace(adapter, files={**adapter.files, "adapter_model.bin": b"x"})
    assert {path.name for path in shelf.put(more).folder.iterdir()} == {WEIGHTS, CONFIG}
    shelf.clear()
