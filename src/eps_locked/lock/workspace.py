"""The one module that knows where things lie: ``plans/ manifests/ runs/ smoke/``.

Names are checked before they become paths: nothing climbs out of its folder, and no link is
followed. Reading is strict; everything that is written goes through ``files``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from eps_locked import files
from eps_locked.canonical import DIGEST_PREFIX, digest_bytes, digest_value
from eps_locked.domain.ledger import Artifact, FileRecord, Root
from eps_locked.domain.manifest import MANIFEST_SCHEMA, Manifest
from eps_locked.domain.steps import Step, read_steps
from eps_locked.errors import EvidenceError, MalformedInputError, RefusedError
from eps_locked.lock.envelope import open_document, seal_document

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}\Z")
_PHASE = re.compile(r"[A-Z][A-Z0-9]{0,7}\Z")


def check_name(name: str) -> str:
    """A study name fit for a folder. Raises MalformedInputError."""
    if not _NAME.match(name):
        raise MalformedInputError(
            "name", expected="lower-case letters, digits and dashes (at most 63)", found=repr(name)
        )
    return name


def check_phase(phase: str) -> str:
    """A phase name fit for a file name. Raises MalformedInputError."""
    if not _PHASE.match(phase):
        raise MalformedInputError(
            "phase", expected="a name like P0 (capitals and digits, at most 8)", found=repr(phase)
        )
    return phase


def safe_join(root: Path, relative: str, *, thing: str) -> Path:
    """``root / relative``, refusing absolute paths, ``..``, back-slashes, and links on the way."""
    pure = PurePosixPath(relative)
    bad = pure.is_absolute() or ".." in pure.parts or "\\" in relative or "\0" in relative
    if bad or not pure.parts or pure.as_posix() != relative:
        raise RefusedError(
            thing,
            expected=f"a plain path below {root.name}/",
            found=repr(relative),
            next_step="move the file below that folder and name it from there",
        )
    path = root
    for part in pure.parts:
        path = path / part
        if path.is_symlink():
            raise RefusedError(
                str(path),
                problem="is a symbolic link",
                next_step="put the file itself there; links are never followed",
            )
    return path


@dataclass(frozen=True, kw_only=True, slots=True)
class Workspace:
    """A folder that holds plans, manifests and runs."""

    root: Path

    @property
    def plans(self) -> Path:
        return self.root / "plans"

    def plan_path(self, name: str) -> Path:
        return safe_join(self.plans, f"{check_name(name)}.yaml", thing="plan")

    def read_source(self, relative: str, *, thing: str) -> bytes:
        """Bytes of a file that a plan names, by its path below ``plans/``."""
        return files.read_bytes(safe_join(self.plans, relative, thing=thing))

    def manifest_folder(self, name: str) -> Path:
        return safe_join(self.root / "manifests", check_name(name), thing="manifest")

    def run(self, name: str, root: Root = "runs") -> RunFolder:
        folder = safe_join(self.root / root, check_name(name), thing="run")
        return RunFolder(folder=folder, root=root)

    def load_manifest(self, name: str) -> FrozenManifest:
        """The manifest, its own digest verified. Frozen files are not yet verified.

        Raises MalformedInputError if it is missing, EvidenceError if it was changed.
        """
        folder = self.manifest_folder(name)
        path = folder / "manifest.json"
        if not path.exists() and not path.is_symlink():
            raise MalformedInputError(
                str(path), problem="is missing", next_step=f"freeze it: just freeze-plan {name}"
            )
        payload, digest = open_document(
            files.read_bytes(path), thing=str(path), schema=MANIFEST_SCHEMA
        )
        manifest = Manifest.from_payload(payload, "manifest")
        if manifest.name != name:
            raise EvidenceError(str(path), expected=f"the manifest {name}", found=manifest.name)
        return FrozenManifest(folder=folder, manifest=manifest, digest=digest)


@dataclass(frozen=True, kw_only=True, slots=True)
class FrozenManifest:
    """A manifest whose own bytes are verified, and the folder its frozen files lie in."""

    folder: Path
    manifest: Manifest
    digest: str

    def read(self, relative: str) -> bytes:
        """Bytes of one frozen file, required to be the frozen ones. Raises EvidenceError."""
        record = self.manifest.files.get(relative)
        path = safe_join(self.folder, relative, thing="frozen file")
        if record is None:
            raise EvidenceError(str(path), expected="a file the manifest lists", found="another")
        data = files.read_bytes(path)
        require_same(str(path), record, FileRecord(digest=digest_bytes(data), size=len(data)))
        return data

    def steps(self) -> dict[str, Step]:
        from eps_locked.canonical import decode

        thing = str(self.folder / "frozen/steps.json")
        steps = read_steps(decode(self.read("frozen/steps.json"), thing=thing), thing)
        return {step.id: step for step in steps}

    def file_digests(self) -> dict[str, str]:
        return {name: record.digest for name, record in self.manifest.files.items()}


@dataclass(frozen=True, kw_only=True, slots=True)
class RunFolder:
    """``runs/NAME`` (or ``smoke/NAME``): ledger, head, artifacts, signed documents, verdicts."""

    folder: Path
    root: Root

    @property
    def ledger_path(self) -> Path:
        return self.folder / "ledger.jsonl"

    @property
    def head_path(self) -> Path:
        return self.folder / "head.json"

    @property
    def running_path(self) -> Path:
        return self.folder / "running.json"

    @property
    def artifacts(self) -> Path:
        return self.folder / "artifacts"

    @property
    def aside(self) -> Path:
        return self.folder / "aside"

    @property
    def verdicts(self) -> Path:
        return self.folder / "verdicts"

    def file_verdict(self, payload: Mapping[str, Any]) -> Path:
        """File a verdict under its ledger head; the same verdict twice is one file."""
        data, _ = seal_document(dict(payload))
        head = payload["ledger_head"].removeprefix(DIGEST_PREFIX)[:16]
        number = 1
        while True:
            path = self.verdicts / f"{payload['n_entries']:06d}-{head}-{number}.json"
            if not path.exists():
                files.write_once(path, data)
                return path
            if files.read_bytes(path) == data:
                return path
            number += 1

    def signed_documents(self, kind: str) -> Iterator[SignedDocument]:
        """Those of ``authorizations/`` or ``amendments/``, in name order.

        Raises RefusedError for a link on the way to one.
        """
        folder = safe_join(self.folder, kind, thing=kind)
        if folder.is_dir():
            for path in sorted(folder.iterdir()):
                if not path.name.startswith("."):
                    yield SignedDocument.read(
                        safe_join(self.folder, f"{kind}/{path.name}", thing=kind)
                    )

    def ledger_lines(self) -> Iterator[bytes]:
        """Whole lines of the ledger, streamed. A torn end is not yielded; see ``torn_end``."""
        if not os.path.lexists(self.ledger_path):
            return
        with files.open_regular(self.ledger_path) as stream:
            for line in stream:
                if line.endswith(b"\n"):
                    yield line[:-1]

    def torn_end(self) -> bytes:
        """What follows the ledger's last newline: empty unless a crash tore the last line."""
        if not os.path.lexists(self.ledger_path):
            return b""
        with files.open_regular(self.ledger_path) as stream:
            end = stream.seek(0, 2)
            tail = b""
            while end > 0 and b"\n" not in tail:
                start = max(0, end - 65536)
                stream.seek(start)
                tail = stream.read(end - start) + tail
                end = start
        return tail.rpartition(b"\n")[2]

    def artifact_folder(self, digest: str) -> Path:
        """Where an artifact lies or would lie. Raises RefusedError for a link on the way."""
        name = digest.removeprefix(DIGEST_PREFIX)
        return safe_join(self.folder, f"artifacts/{name}", thing="artifact")

    def artifact_file(self, artifact: Artifact, name: str) -> bytes:
        """Bytes of a file of a recorded artifact, required to be the recorded ones."""
        folder = self.artifact_folder(artifact.digest)
        if name not in artifact.files:
            raise EvidenceError(
                str(folder / name), expected="a file the entry records", found="none of that name"
            )
        path = safe_join(folder, name, thing="artifact")
        data = files.read_bytes(path, limit=1 << 40)
        require_same(
            str(path), artifact.files[name], FileRecord(digest=digest_bytes(data), size=len(data))
        )
        return data

    def store(self, contents: Mapping[str, bytes]) -> Artifact:
        """Put an artifact into the store; the same content twice is the same folder, verified."""
        artifact = describe_artifact(contents)
        folder = self.artifact_folder(artifact.digest)
        if not folder.exists():
            files.publish_folder(folder, contents)
        else:
            for name in contents:
                self.artifact_file(artifact, name)
        return artifact

    def stored_artifacts(self) -> list[str]:
        """Digests of every artifact folder on disk (by name; content is not read).

        Half-written folders are no artifacts; ``leftovers`` lists them.
        """
        if not self.artifacts.is_dir():
            return []
        names = sorted(path.name for path in self.artifacts.iterdir())
        return [DIGEST_PREFIX + name for name in names if not _is_half_written(name)]

    def leftovers(self) -> list[Path]:
        """Half-written files and folders of a crash, by the mark ``files`` gives them."""
        if not self.folder.is_dir():
            return []
        marked = self.folder.rglob(".*.incoming")
        found = {path for path in marked if self.aside not in path.parents}
        return sorted(path for path in found if found.isdisjoint(path.parents))


def _is_half_written(name: str) -> bool:
    return name.startswith(".") and name.endswith(".incoming")


@dataclass(frozen=True, kw_only=True, slots=True)
class SignedDocument:
    """A folder with ``document.json`` and ``document.json.sig``, read once; not yet verified."""

    path: Path
    data: bytes
    signature: bytes

    @classmethod
    def read(cls, folder: Path) -> SignedDocument:
        path = folder / "document.json"
        return cls(
            path=path,
            data=files.read_bytes(path),
            signature=files.read_bytes(folder / "document.json.sig"),
        )

    @property
    def name(self) -> str:
        return self.path.parent.name


def describe_artifact(contents: Mapping[str, bytes]) -> Artifact:
    """The digests an artifact of these files would have."""
    records = {
        name: FileRecord(digest=digest_bytes(data), size=len(data))
        for name, data in contents.items()
    }
    return Artifact(digest=artifact_digest(records), files=records)


def artifact_digest(records: Mapping[str, FileRecord]) -> str:
    """Digest of a folder: that of the canonical JSON of its files' names, digests and sizes."""
    listed: dict[str, Any] = {name: record.to_dict() for name, record in records.items()}
    return digest_value({"files": listed})


def require_same(thing: str, expected: FileRecord, found: FileRecord) -> None:
    """Raises EvidenceError naming the file when bytes are not the recorded ones."""
    if expected != found:
        raise EvidenceError(
            thing,
            expected=f"{expected.digest} ({expected.size} bytes)",
            found=f"{found.digest} ({found.size} bytes)",
            next_step="restore the file from a copy; a changed file is never accepted",
        )
