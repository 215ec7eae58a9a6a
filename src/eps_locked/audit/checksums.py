"""Lists of sums for ``b3sum --check`` and ``sha256sum --check``, in which nothing can hide.

The tools are lenient: they skip lines they cannot read, follow links and open any path. Here a list
has one form, names each file once and in order, and leads nowhere out of its folder.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import blake3

from eps_locked import files
from eps_locked.errors import BackendError

B3SUMS, SHA256SUMS = "B3SUMS", "SHA256SUMS"
_LINE = re.compile(r"([0-9a-f]{64})  (.+)\Z")
_CHUNK = 1 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Sums:
    """Both digests of one file, as hex without a prefix."""

    blake3: str
    sha256: str

    @classmethod
    def of(cls, data: bytes) -> Sums:
        return cls(blake3=blake3.blake3(data).hexdigest(), sha256=hashlib.sha256(data).hexdigest())

    @classmethod
    def of_file(cls, path: Path) -> Sums:
        """Of a regular file, in pieces. Raises as ``files.open_regular`` does."""
        one, other = blake3.blake3(), hashlib.sha256()
        with files.open_regular(path) as stream:
            try:
                while piece := stream.read(_CHUNK):
                    one.update(piece)
                    other.update(piece)
            except OSError as error:
                raise BackendError(
                    str(path), problem=f"cannot be read ({error.strerror})"
                ) from error
        return cls(blake3=one.hexdigest(), sha256=other.hexdigest())


def checksum_list(sums: Mapping[str, str]) -> bytes:
    """``HEX  path`` lines in the order of the paths' bytes: what ``--check`` of the tools reads."""
    names = sorted(sums, key=lambda name: name.encode("utf-8"))
    return "".join(f"{sums[name]}  {name}\n" for name in names).encode("utf-8")


def checksum_lists(sums: Mapping[str, Sums]) -> dict[str, bytes]:
    """Both lists. SHA256SUMS also names B3SUMS, so that its own digest stands for the folder."""
    listed = {name: one for name, one in sums.items() if name not in (B3SUMS, SHA256SUMS)}
    b3sums = checksum_list({name: one.blake3 for name, one in listed.items()})
    sha256 = {name: one.sha256 for name, one in listed.items()}
    sha256[B3SUMS] = Sums.of(b3sums).sha256
    return {B3SUMS: b3sums, SHA256SUMS: checksum_list(sha256)}


def read_checksum_list(data: bytes, name: str) -> tuple[dict[str, str], list[str]]:
    """Digest by path, and every line that is not as ``checksum_list`` writes it.

    A path that leaves the folder is a problem and is not returned, so nobody opens it.
    """
    found: dict[str, str] = {}
    problems = []
    try:
        *lines, rest = data.decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        return {}, [f"{name}: expected UTF-8 text, found other bytes ({error})"]
    if rest:
        problems.append(f"{name}: expected a newline at the end, found {rest[:40]!r} after it")
    previous = b""
    for number, line in enumerate(lines, start=1):
        where = f"{name}: line {number}"
        match = _LINE.match(line)
        if match is None:
            problems.append(f"{where}: expected 64 hex digits, two spaces, a path; found {line!r}")
            continue
        path, key = match[2], match[2].encode("utf-8")
        trouble = name_trouble(path)
        if trouble is not None:
            problems.append(f"{where}: {path!r} {trouble}")
            continue
        if key <= previous:
            problems.append(f"{where}: {path} stands twice, or out of order")
        previous = key
        found.setdefault(path, match[1])
    return found, problems


def name_trouble(name: str) -> str | None:
    """What is wrong with a file's name in a bundle, if anything.

    A name must be one that both tools read back as it is written: they escape back-slashes and
    newlines, and refuse what is no UTF-8.
    """
    pure = PurePosixPath(name)
    if pure.is_absolute() or ".." in pure.parts or pure.as_posix() != name or name == ".":
        return "leads out of the folder, or is not in its plain form"
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return "is not UTF-8"
    if any(unicodedata.category(c) == "Cc" or c in "\\\ufffd" for c in name):
        return "has a control character or a back-slash in it"
    return None
