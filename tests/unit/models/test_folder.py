"""Which files a model has, and their digests."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import blake3
import pytest

from eps_locked.errors import BackendError, RefusedError
from eps_locked.models.folder import digest_model_folder, list_model_files, require_loadable


def write(folder: Path, **files: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder


def hub_snapshot(cache: Path) -> Path:
    """A snapshot as the hub cache lays it out: links into blobs."""
    repository = cache / "models--owner--name"
    (repository / "blobs").mkdir(parents=True)
    (repository / "blobs" / "abc").write_text("{}")
    snapshot = repository / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").symlink_to("../../blobs/abc")
    return snapshot


def test_every_file_is_listed_by_relative_name_in_order(tmp_path: Path) -> None:
    write(tmp_path, b="2", a="1")
    write(tmp_path / "sub", c="333")
    listed = list_model_files(tmp_path)
    assert list(listed) == ["a", "b", "sub/c"]
    assert listed["sub/c"] == (3, (tmp_path / "sub" / "c").resolve())


def test_names_with_a_leading_dot_are_no_part_of_a_model(tmp_path: Path) -> None:
    write(tmp_path, a="1", **{".gitattributes": "x"})
    write(tmp_path / ".cache", b="2")
    assert list(list_model_files(tmp_path)) == ["a"]


def test_digests_are_blake3_of_the_bytes(tmp_path: Path) -> None:
    write(tmp_path, a="one", empty="")
    assert digest_model_folder(tmp_path) == {
        "a": {"digest": "blake3:" + blake3.blake3(b"one").hexdigest(), "size": 3},
        "empty": {"digest": "blake3:" + blake3.blake3(b"").hexdigest(), "size": 0},
    }


def test_a_link_that_leaves_the_folder_is_refused(tmp_path: Path) -> None:
    outside = write(tmp_path / "outside", weights="w") / "weights"
    folder = write(tmp_path / "model", a="1")
    (folder / "weights").symlink_to(outside)
    with pytest.raises(RefusedError, match="outside the model"):
        list_model_files(folder)


def test_a_link_to_a_folder_is_refused(tmp_path: Path) -> None:
    folder = write(tmp_path / "model", a="1")
    (folder / "more").symlink_to(write(tmp_path / "outside", b="2"))
    with pytest.raises(RefusedError, match="a link to a folder"):
        list_model_files(folder)


def test_a_link_inside_the_folder_is_followed(tmp_path: Path) -> None:
    folder = write(tmp_path, a="1")
    (folder / "b").symlink_to("a")
    assert digest_model_folder(folder)["b"] == digest_model_folder(folder)["a"]


def test_links_of_a_hub_snapshot_into_its_own_blobs_are_followed(tmp_path: Path) -> None:
    snapshot = hub_snapshot(tmp_path)
    assert list_model_files(snapshot)["config.json"][0] == 2


def test_links_of_a_hub_snapshot_to_anywhere_else_are_refused(tmp_path: Path) -> None:
    snapshot = hub_snapshot(tmp_path)
    elsewhere = write(tmp_path / "models--other--name" / "blobs", abc="x") / "abc"
    (snapshot / "weights").symlink_to(elsewhere)
    with pytest.raises(RefusedError, match="outside the model"):
        list_model_files(snapshot)


def test_a_dangling_link_is_named(tmp_path: Path) -> None:
    folder = write(tmp_path, a="1")
    (folder / "weights").symlink_to("gone")
    with pytest.raises(BackendError, match="weights: is a link to nothing"):
        list_model_files(folder)


@pytest.mark.parametrize("name", ["absent", "empty"])
def test_no_folder_or_nothing_in_it_is_an_error(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(BackendError, match=name):
        list_model_files(tmp_path / name)


def test_a_folder_without_weights_does_not_pass_for_a_model(tmp_path: Path) -> None:
    write(tmp_path, **{"config.json": "{}", "tokenizer.json": "{}"})
    with pytest.raises(BackendError, match=r"no model\.safetensors"):
        require_loadable(tmp_path)


def test_every_shard_of_the_index_must_be_there(tmp_path: Path) -> None:
    index = json.dumps({"weight_map": {"x": "model-1.safetensors", "y": "model-2.safetensors"}})
    names = {"config.json": "{}", "tokenizer.json": "{}", "model-1.safetensors": "w"}
    write(tmp_path, **names, **{"model.safetensors.index.json": index})
    with pytest.raises(BackendError, match=r"no model-2\.safetensors"):
        require_loadable(tmp_path)
    write(tmp_path, **{"model-2.safetensors": "w"})
    require_loadable(tmp_path)


@pytest.mark.parametrize("room", ["folder", "source", "tokenizer", "host", "adapter_format"])
def test_importing_a_module_loads_no_model_library(room: str) -> None:
    code = (
        f"import sys, eps_locked.models.{room}\n"
        "print(sorted({'torch', 'transformers', 'peft', 'huggingface_hub'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
