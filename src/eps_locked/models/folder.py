"""The files of a base model: which they are, and their digests. Imports no model library.

A model folder is whole files in one tree. Links are followed in one layout only, the Hugging Face
hub cache, where a snapshot's files are links to ``blobs`` beside it; anywhere else a link could
name bytes that change without the folder changing, and is refused. Names that start with a dot
are not part of a model: no loader reads them.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TypedDict

import blake3

from eps_locked.errors import BackendError, RefusedError

__all__ = ["FileDigest", "digest_model_folder", "list_model_files", "require_loadable"]

_COMMIT = re.compile(r"[0-9a-f]{40}")
_WEIGHTS = "model.safetensors"
_INDEX = "model.safetensors.index.json"


class FileDigest(TypedDict):
    """Digest ("blake3:" and hex) and size in bytes of one file."""

    digest: str
    size: int


def list_model_files(folder: Path) -> dict[str, tuple[int, Path]]:
    """Every file of the model by its name relative to ``folder``, in name order.

    Parts of a name are joined by "/". Values are the size in bytes and the real path. Raises
    BackendError if there is no such folder or nothing in it, RefusedError for a link that leaves
    it or for anything but files and folders.
    """
    root = Path(folder).resolve()
    if not root.is_dir():
        raise BackendError(
            str(folder), problem="is no folder", next_step="fetch the base model first"
        )
    allowed = _allowed_targets(root)
    found: dict[str, tuple[int, Path]] = {}
    for parent, folders, names in os.walk(root, onerror=_raise):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in folders:
            if (Path(parent) / name).is_symlink():
                _refuse(Path(parent) / name, "a link to a folder")
        for name in names:
            if not name.startswith("."):
                path = Path(parent) / name
                found[path.relative_to(root).as_posix()] = _resolve(path, allowed)
    if not found:
        raise BackendError(str(folder), expected="the files of a model", found="an empty folder")
    return dict(sorted(found.items()))


def digest_model_folder(folder: Path) -> dict[str, FileDigest]:
    """Digest and size of every file of the model, in name order. Reads every byte.

    Raises as ``list_model_files`` does, and BackendError if a file changes while it is read.
    """
    digests: dict[str, FileDigest] = {}
    for name, (size, path) in list_model_files(folder).items():
        hasher = blake3.blake3(max_threads=blake3.blake3.AUTO)
        try:
            hasher.update_mmap(path)
            size_after = path.stat().st_size
        except OSError as error:
            raise BackendError(str(path), problem=f"cannot be read ({error.strerror})") from error
        if size_after != size:
            raise BackendError(
                str(path),
                expected=f"{size} bytes",
                found=f"{size_after} bytes, while it was read",
                next_step="let no other process write to the model folder",
            )
        digests[name] = FileDigest(digest=f"blake3:{hasher.hexdigest()}", size=size)
    return digests


def require_loadable(folder: Path) -> None:
    """Raise BackendError unless config, tokenizer and every weight file are there.

    Looks at names only: it tells an unfinished download, not a damaged one.
    """
    names = set(list_model_files(folder))
    wanted = {"config.json", "tokenizer.json"}
    if _INDEX in names:
        wanted |= _shards(Path(folder) / _INDEX)
    else:
        wanted.add(_WEIGHTS)
    missing = sorted(wanted - names)
    if missing:
        raise BackendError(
            str(folder),
            expected="config.json, tokenizer.json and safetensors weights",
            found=f"no {', '.join(missing)}",
            next_step="fetch the base model again, or name a folder in Hugging Face layout",
        )


def _shards(index: Path) -> set[str]:
    import json

    try:
        return set(json.loads(index.read_bytes())["weight_map"].values())
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BackendError(str(index), problem=f"unreadable: {error}") from error


def _allowed_targets(root: Path) -> tuple[Path, ...]:
    """Where a file's real path may lie: the folder itself, and the blobs of a hub snapshot."""
    is_snapshot = _COMMIT.fullmatch(root.name) and root.parent.name == "snapshots"
    repository = root.parent.parent
    if is_snapshot and re.match(r"(models|datasets)--", repository.name):
        return (root, repository / "blobs")
    return (root,)


def _resolve(path: Path, allowed: tuple[Path, ...]) -> tuple[int, Path]:
    try:
        real = path.resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise BackendError(
            str(path),
            problem="is a link to nothing",
            next_step="fetch the base model again",
        ) from error
    if not any(real.is_relative_to(place) for place in allowed):
        _refuse(path, f"a link to {real}, outside the model")
    if not real.is_file():
        _refuse(path, "neither a file nor a folder")
    return real.stat().st_size, real


def _refuse(path: Path, found: str) -> None:
    raise RefusedError(
        str(path),
        expected="a file inside the model folder",
        found=found,
        next_step="put the file itself there",
    )


def _raise(error: OSError) -> None:
    raise BackendError(str(error.filename), problem=f"cannot be read ({error.strerror})") from error
