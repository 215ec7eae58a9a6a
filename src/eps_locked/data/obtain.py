"""Getting the files of a spec: from a folder of local copies, or from the hub at its commit.

Both give bytes and nothing else; what is parsed later are these bytes. ``datasets.load_dataset``
is not used to read: its cache goes by path and time and has served an old row for an edited file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath

from eps_locked import files
from eps_locked.canonical import digest_bytes
from eps_locked.data.spec import SourceFile, SourceSpec
from eps_locked.errors import BackendError, MalformedInputError

Obtain = Callable[[SourceSpec], Mapping[str, bytes]]
_LARGEST_FILE = 2 << 30


def obtain_local(folder: Path) -> Obtain:
    """Files from ``folder/<source name>/`` or ``folder/``, by path, by base name or local name.

    Raises MalformedInputError when a file is in none of these places, or in several of them with
    different bytes. Links are refused.
    """

    def obtain(spec: SourceSpec) -> dict[str, bytes]:
        return {file.path: _local_bytes(Path(folder), spec, file) for file in spec.files}

    return obtain


def obtain_hub(cache: Path | None = None, *, offline: bool = False) -> Obtain:
    """Files of a Hugging Face data set at the spec's commit; ``cache`` None is the hub's own.

    ``offline`` (or $HF_HUB_OFFLINE) takes what an earlier call left in the cache. Raises
    BackendError when a file cannot be had, MalformedInputError for a source that lies elsewhere.
    """

    def obtain(spec: SourceSpec) -> dict[str, bytes]:
        if spec.location != "hub":
            raise MalformedInputError(
                f"source {spec.name}",
                problem=f"lies at {spec.dataset}, which is no hub data set",
                expected="a folder with local copies of its files",
                found="no folder",
                next_step=f"check out {spec.dataset} at {spec.revision}, copy "
                f"{', '.join(file.path for file in spec.files)} into FOLDER/{spec.name}/ "
                "and name FOLDER",
            )
        return {file.path: _hub_bytes(spec, file, cache, offline) for file in spec.files}

    return obtain


def verify_files(spec: SourceSpec, contents: Mapping[str, bytes]) -> None:
    """Require that these are the spec's files, with the digests it pins.

    Raises MalformedInputError naming the file, what was expected and what was found.
    """
    expected = {file.path for file in spec.files}
    if set(contents) != expected:
        raise MalformedInputError(
            f"source {spec.name}", expected=sorted(expected), found=sorted(contents)
        )
    for file in spec.files:
        data = contents[file.path]
        if file.sha256 is not None:
            _require_pin(spec, file, file.sha256, hashlib.sha256(data).hexdigest())
        if file.blake3 is not None:
            _require_pin(spec, file, file.blake3, digest_bytes(data))


def _require_pin(spec: SourceSpec, file: SourceFile, pinned: str, found: str) -> None:
    if found != pinned:
        raise MalformedInputError(
            f"source {spec.name}: {file.path}",
            problem="is another file than the spec pins",
            expected=pinned,
            found=found,
            next_step=f"get it from {spec.dataset} at {spec.revision}",
        )


def _local_bytes(folder: Path, spec: SourceSpec, file: SourceFile) -> bytes:
    names = [file.path, PurePosixPath(file.path).name, *([file.local] if file.local else [])]
    places = list(dict.fromkeys(at / name for at in (folder / spec.name, folder) for name in names))
    found = {
        place: files.read_bytes(place, limit=_LARGEST_FILE)
        for place in places
        if place.is_symlink() or place.is_file()
    }
    if not found:
        raise MalformedInputError(
            f"source {spec.name}: {file.path}",
            problem=f"is not in {folder}",
            expected=f"{spec.name}/{names[-1]} or {names[-1]} there",
            found="neither",
            next_step=f"copy it from {spec.dataset} at {spec.revision}",
        )
    if len(set(found.values())) > 1:
        raise MalformedInputError(
            f"source {spec.name}: {file.path}",
            problem="is there in several places, with different bytes",
            expected="one of them",
            found=", ".join(str(place) for place in found),
            next_step="remove those that are not meant",
        )
    return next(iter(found.values()))


def _hub_bytes(spec: SourceSpec, file: SourceFile, cache: Path | None, offline: bool) -> bytes:
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    thing = f"data set {spec.dataset}@{spec.revision[:12]}: {file.path}"
    try:
        found = hf_hub_download(
            spec.dataset,
            file.path,
            repo_type="dataset",
            revision=spec.revision,
            cache_dir=cache,
            local_files_only=offline,
        )
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError, ValueError) as error:
        raise BackendError(
            thing,
            problem=f"cannot be fetched: {error}",
            next_step="check the network, HF_HUB_OFFLINE and the licence gate (HF_TOKEN), or "
            f"copy the file into FOLDER/{spec.name}/ and name FOLDER",
        ) from error
    path = Path(found)
    # The cache keeps a snapshot by commit and links into its store of blobs.
    if spec.revision not in path.parts:
        raise BackendError(thing, expected=f"snapshot {spec.revision}", found=str(path))
    return files.read_bytes(path.resolve(), limit=_LARGEST_FILE)
