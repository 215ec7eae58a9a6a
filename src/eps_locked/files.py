"""The only way bytes reach the disk: write once, replace atomically, append with fsync.

Nothing here knows what the bytes mean. Every point at which a crash would leave a different disk
passes through ``write_point``, so a test can stop the process at each of them in turn.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import BinaryIO

import blake3

from eps_locked.canonical import DIGEST_PREFIX
from eps_locked.errors import BackendError, EpsLockedError, MalformedInputError, RefusedError

__all__ = [
    "append_line",
    "digest_file",
    "exclusive_lock",
    "make_folder",
    "open_regular",
    "publish_folder",
    "read_bytes",
    "remove_file",
    "replace_file",
    "set_aside",
    "truncate_tail",
    "walk_files",
    "write_once",
]

_MMAP_FROM = 1 << 20
MAX_DOCUMENT_BYTES = 64 << 20


def write_point(path: Path, stage: str) -> None:
    """Called immediately before each act that changes the disk. Replaced by tests, else idle."""


def read_bytes(path: Path, *, limit: int = MAX_DOCUMENT_BYTES) -> bytes:
    """The bytes of a regular file, at most ``limit`` of them.

    Symlinks are refused: the name that is bound must be the file that is read. Raises
    RefusedError for a link, MalformedInputError for a missing, irregular or oversized file.
    """
    with open_regular(path) as stream:
        size = os.fstat(stream.fileno()).st_size
        if size > limit:
            raise MalformedInputError(
                str(path), expected=f"at most {limit} bytes", found=f"{size} bytes"
            )
        try:
            return stream.read()
        except OSError as error:
            raise BackendError(str(path), problem=f"cannot be read ({error.strerror})") from error


def open_regular(path: Path) -> BinaryIO:
    """A regular file, open for reading. Raises as ``read_bytes`` does; never waits for a pipe."""
    # O_NONBLOCK: opening a named pipe that somebody put there would otherwise wait for its writer.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise MalformedInputError(
            str(path), problem="is missing", next_step="restore the file"
        ) from error
    except OSError as error:
        if path.is_symlink():
            raise RefusedError(
                str(path),
                problem="is a symbolic link",
                next_step="put the file itself there; links are never followed",
            ) from error
        raise BackendError(str(path), problem=f"cannot be read ({error.strerror})") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise MalformedInputError(
            str(path),
            expected="a regular file",
            found="a folder, a device or a pipe",
            next_step="move it away and restore the file",
        )
    return os.fdopen(descriptor, "rb")


def digest_file(path: Path) -> tuple[str, int]:
    """Digest and size of a regular file, hashed in place with all cores for large files."""
    hasher = blake3.blake3(max_threads=blake3.blake3.AUTO)
    with open_regular(path) as stream:
        try:
            size = os.fstat(stream.fileno()).st_size
            if size >= _MMAP_FROM:
                hasher.update_mmap(path)
            else:
                hasher.update(stream.read())
        except OSError as error:
            raise BackendError(str(path), problem=f"cannot be read ({error.strerror})") from error
    return DIGEST_PREFIX + hasher.hexdigest(), size


def write_once(path: Path, data: bytes) -> None:
    """Create ``path`` with ``data``; raise RefusedError if it already exists, whatever it holds."""
    if path.exists() or path.is_symlink():
        raise RefusedError(
            str(path), problem="exists and is never overwritten", next_step="choose another name"
        )
    replace_file(path, data)


def replace_file(path: Path, data: bytes) -> None:
    """Make ``path`` hold ``data``, atomically: after a crash it is the old file or the new one."""
    temporary = path.with_name(f".{path.name}.incoming")
    with _disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            write_point(path, "write")
            _write_and_sync(temporary, data)
            write_point(path, "rename")
            os.replace(temporary, path)
            _sync_folder(path.parent)
        except OSError:
            with suppress(OSError):
                temporary.unlink()
            raise


def publish_folder(path: Path, contents: Mapping[str, bytes]) -> None:
    """Create folder ``path`` with these files, atomically: it exists whole or not at all.

    Names may hold subfolders. What an earlier crash left half-written is kept: this one is
    prepared under the next free name.
    """
    with _disk_errors(path):
        temporary = path.with_name(f".{path.name}.incoming")
        for number in count(2):
            if not os.path.lexists(temporary):
                break
            temporary = path.with_name(f".{path.name}.{number}.incoming")
        try:
            write_point(path, "mkdir")
            temporary.mkdir(parents=True)
            for name, data in contents.items():
                write_point(path / name, "write")
                (temporary / name).parent.mkdir(parents=True, exist_ok=True)
                _write_and_sync(temporary / name, data)
            for folder in sorted({(temporary / name).parent for name in contents}):
                _sync_folder(folder)
            write_point(path, "rename")
            os.rename(temporary, path)
            _sync_folder(path.parent)
        except (OSError, EpsLockedError):
            shutil.rmtree(temporary, ignore_errors=True)
            raise


def append_line(path: Path, line: bytes) -> None:
    """Append one line (a newline is added) and force it to the disk.

    A crash in the middle leaves a line without its newline: recognisably torn. An ``OSError`` in
    the middle (a full disk) is undone by truncating to the old length.
    """
    if b"\n" in line:
        raise ValueError("a line must not contain a newline")
    with _disk_errors(path):
        write_point(path, "append")
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        try:
            before = os.lseek(descriptor, 0, os.SEEK_END)
            try:
                half = len(line) // 2
                _write_all(descriptor, line[:half])
                write_point(path, "append-half")
                _write_all(descriptor, line[half:] + b"\n")
                os.fsync(descriptor)
            except OSError:
                with suppress(OSError):
                    os.ftruncate(descriptor, before)
                raise
        finally:
            os.close(descriptor)
        if before == 0:
            _sync_folder(path.parent)


def truncate_tail(path: Path, n_bytes: int) -> None:
    """Cut the last ``n_bytes`` off a file: a torn line whose bytes have been kept elsewhere."""
    with _disk_errors(path):
        write_point(path, "truncate")
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            os.ftruncate(descriptor, os.fstat(descriptor).st_size - n_bytes)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def remove_file(path: Path) -> None:
    """Remove a note that has served its purpose; one that is gone already is no error."""
    with _disk_errors(path):
        write_point(path, "unlink")
        path.unlink(missing_ok=True)


def make_folder(path: Path) -> None:
    """Create a folder and its parents where they do not exist yet."""
    with _disk_errors(path):
        if not path.is_dir():
            write_point(path, "mkdir")
        path.mkdir(parents=True, exist_ok=True)


def set_aside(path: Path, shelf: Path) -> Path:
    """Move what a crash left behind into ``shelf``, keeping it, under a free numbered name."""
    with _disk_errors(path):
        shelf.mkdir(parents=True, exist_ok=True)
        number = 1
        while os.path.lexists(target := shelf / f"{number:04d}-{path.name.lstrip('.')}"):
            number += 1
        write_point(path, "set-aside")
        os.rename(path, target)
        _sync_folder(shelf)
        _sync_folder(path.parent)
        return target


def walk_files(root: Path) -> Iterator[str]:
    """Relative POSIX names of everything below ``root`` that is not a folder, sorted.

    Links are yielded by name and not entered. A missing root holds nothing; a folder that cannot
    be listed raises BackendError, since an unseen file is not an absent one.
    """

    def unlisted(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError | NotADirectoryError):
            raise BackendError(
                str(error.filename), problem=f"cannot be listed ({error.strerror})"
            ) from error

    names: list[str] = []
    for folder, subfolders, files in os.walk(root, onerror=unlisted):
        base = Path(folder)
        links = [name for name in subfolders if (base / name).is_symlink()]
        names += [(base / name).relative_to(root).as_posix() for name in [*files, *links]]
    yield from sorted(names)


@contextmanager
def exclusive_lock(folder: Path) -> Iterator[None]:
    """Hold an existing folder as its only writer; RefusedError if another process holds it.

    The lock is the kernel's (flock on the folder itself), so it leaves no file behind and ends
    with its holder, also after SIGKILL. It does not reach across machines: see docs/lock.md.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise MalformedInputError(
            str(folder), expected="a folder", found=f"none ({error.strerror})"
        ) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise RefusedError(
                str(folder),
                problem="another process is writing here",
                expected="one writer",
                found="a held lock",
                next_step="wait for the other process to end, then run the same command again",
            ) from error
        yield
    finally:
        os.close(descriptor)


def _write_and_sync(path: Path, data: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(path, flags, 0o644)
    try:
        _write_all(descriptor, data)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _disk_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise BackendError(
            str(path),
            problem=f"cannot be written ({error.strerror})",
            next_step="free space or mend permissions, then run the same command again",
        ) from error
