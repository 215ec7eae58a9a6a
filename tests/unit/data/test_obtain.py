"""Files come from a folder or from the hub at its commit, and are what the spec pins."""

from __future__ import annotations

import hashlib
import importlib
from pathlib import Path
from typing import Any

import pytest
from sources import COMMIT, spec_bytes

from eps_locked.canonical import digest_bytes
from eps_locked.data.obtain import obtain_hub, obtain_local, verify_files
from eps_locked.data.spec import SourceSpec, read_spec
from eps_locked.errors import BackendError, MalformedInputError, RefusedError

DATA = b'{"a": 1}\n'


def spec_of(*files: dict[str, str], **changes: Any) -> SourceSpec:
    options = {"options": {"opinions": True}}
    return read_spec(spec_bytes("claims", "gcd", files=list(files), **options, **changes), "p.yaml")


SPEC_FILE = {"path": "data/rows.jsonl", "local": "renamed.jsonl"}


@pytest.mark.parametrize(
    "place",
    [
        "made/data/rows.jsonl",
        "made/rows.jsonl",
        "made/renamed.jsonl",
        "rows.jsonl",
        "renamed.jsonl",
    ],
)
def test_a_local_copy_lies_in_its_own_folder_or_beside_the_others(
    tmp_path: Path, place: str
) -> None:
    path = tmp_path / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(DATA)
    assert obtain_local(tmp_path)(spec_of(SPEC_FILE)) == {"data/rows.jsonl": DATA}


def test_a_file_that_is_not_there_is_named_with_where_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(MalformedInputError, match=rf"data/rows\.jsonl: is not in.*\n.*{COMMIT}"):
        obtain_local(tmp_path)(spec_of(SPEC_FILE))


def test_two_different_copies_are_refused_and_two_equal_ones_are_not(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_bytes(DATA)
    (tmp_path / "renamed.jsonl").write_bytes(DATA)
    assert obtain_local(tmp_path)(spec_of(SPEC_FILE)) == {"data/rows.jsonl": DATA}
    (tmp_path / "renamed.jsonl").write_bytes(b"{}")
    with pytest.raises(MalformedInputError, match="in several places, with different bytes"):
        obtain_local(tmp_path)(spec_of(SPEC_FILE))


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_bytes(DATA)
    (tmp_path / "rows.jsonl").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RefusedError, match="symbolic link"):
        obtain_local(tmp_path)(spec_of(SPEC_FILE))


@pytest.mark.parametrize("kind", ["sha256", "blake3"])
def test_other_bytes_than_the_spec_pins_are_refused(kind: str) -> None:
    digests = {"sha256": hashlib.sha256(DATA).hexdigest(), "blake3": digest_bytes(DATA)}
    spec = spec_of({"path": "rows.jsonl", kind: digests[kind]})
    verify_files(spec, {"rows.jsonl": DATA})
    with pytest.raises(MalformedInputError, match=rf"expected {digests[kind]}, found"):
        verify_files(spec, {"rows.jsonl": DATA + b" "})


def test_other_files_than_the_spec_names_are_refused() -> None:
    with pytest.raises(MalformedInputError, match=r"expected \['rows\.jsonl'\], found \['x'\]"):
        verify_files(spec_of({"path": "rows.jsonl"}), {"x": DATA})


HUB: dict[str, Any] = {"location": "hub", "dataset": "some/body"}


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Any]:
    """The hub client replaced by one that keeps files as the real cache does, and what it heard."""
    client = pytest.importorskip("huggingface_hub", reason="the data extra is not installed")
    heard: dict[str, Any] = {"snapshot": COMMIT}

    def download(repo_id: str, filename: str, **arguments: Any) -> str:
        heard.update(repo_id=repo_id, filename=filename, **arguments)
        if "error" in heard:
            raise heard["error"]
        blob = tmp_path / "blobs" / "b10b"
        blob.parent.mkdir(exist_ok=True)
        blob.write_bytes(DATA)
        path = tmp_path / "snapshots" / str(heard["snapshot"]) / filename
        path.parent.mkdir(parents=True)
        path.symlink_to(blob)
        return str(path)

    monkeypatch.setattr(client, "hf_hub_download", download)
    return heard


def test_the_hub_is_asked_for_the_commit_and_nothing_else(
    hub: dict[str, Any], tmp_path: Path
) -> None:
    obtain = obtain_hub(tmp_path / "cache", offline=True)
    assert obtain(spec_of({"path": "data/rows.jsonl"}, **HUB)) == {"data/rows.jsonl": DATA}
    assert hub["revision"] == COMMIT
    assert (hub["repo_id"], hub["repo_type"]) == ("some/body", "dataset")
    assert (hub["cache_dir"], hub["local_files_only"]) == (tmp_path / "cache", True)


def test_another_snapshot_than_asked_for_is_refused(hub: dict[str, Any]) -> None:
    hub["snapshot"] = "main"
    with pytest.raises(BackendError, match=f"expected snapshot {COMMIT}"):
        obtain_hub()(spec_of({"path": "rows.jsonl"}, **HUB))


def test_a_hub_that_cannot_be_reached_is_a_backend_error(hub: dict[str, Any]) -> None:
    errors = importlib.import_module("huggingface_hub.errors")
    for error in (errors.LocalEntryNotFoundError("not cached"), OSError("no route")):
        hub["error"] = error
        with pytest.raises(BackendError, match=r"cannot be fetched(.|\n)*FOLDER/made"):
            obtain_hub()(spec_of({"path": "rows.jsonl"}, **HUB))


def test_the_real_client_finds_nothing_in_an_empty_cache(tmp_path: Path) -> None:
    pytest.importorskip("huggingface_hub", reason="the data extra is not installed")
    with pytest.raises(BackendError, match="cannot be fetched"):
        obtain_hub(tmp_path, offline=True)(spec_of({"path": "rows.jsonl"}, **HUB))


def test_a_source_that_lies_elsewhere_asks_for_local_copies() -> None:
    with pytest.raises(MalformedInputError, match=r"no hub data set(.|\n)*check out example\.org"):
        obtain_hub()(spec_of({"path": "rows.jsonl"}))
