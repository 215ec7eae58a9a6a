"""Runs a metric in a child process that can read its materials and nothing else.

What the child may touch is a short list made here (``allowance``), enforced there by the kernel
(child.py). This module starts it, waits no longer than it must, and believes nothing it says: the
answer is parsed strictly and its cells are compared with the study's. If the kernel offers no
Landlock, the predictive track is refused; it is never run unprotected.
"""

from __future__ import annotations

import os
import signal
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import eps_locked
from eps_locked.canonical import decode, encode
from eps_locked.errors import (
    BackendError,
    EpsLockedError,
    EvidenceError,
    MalformedInputError,
    RefusedError,
)
from eps_locked.metrics import landlock, seccomp
from eps_locked.metrics.interface import Track
from eps_locked.metrics.landlock import Access
from eps_locked.metrics.loading import Plugin
from eps_locked.metrics.process import Ended, run_child
from eps_locked.scoring.predictor import Predictor, read_predictor, require_coverage

__all__ = ["Allowed", "Job", "Limits", "Outcome", "allowance", "require_landlock", "run"]

ANSWER_SCHEMA = "eps-locked/metric-answer/1"
HEAD = ("metric", "title", "author", "track", "polarity", "description")
_TAIL_LINES = 12
# -I: no user site, no PYTHON* variables, no current folder on the path.
_COMMAND = (sys.executable, "-I", "-B", "-m", "eps_locked.metrics.child")

# Programs and libraries; never /etc, /home, /root, /var, /srv or /opt as a whole.
_SYSTEM_FOLDERS = (
    "/usr/lib", "/usr/lib64", "/usr/local/lib", "/usr/share/zoneinfo", "/lib", "/lib64",
    "/nix/store", "/gnu/store",
)  # fmt: skip
_SYSTEM_FILES = (
    "/etc/ld.so.cache", "/etc/localtime", "/etc/nsswitch.conf", "/etc/passwd", "/etc/group",
    "/etc/os-release", "/dev/urandom", "/dev/random", "/dev/zero",
    "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/sys/devices/system/cpu",
    "/sys/devices/system/node",
)  # fmt: skip
_GPU_FOLDERS = ("/proc/driver/nvidia", "/sys/bus/pci", "/sys/devices")


@dataclass(frozen=True, kw_only=True, slots=True)
class Allowed:
    """One thing the box lets a metric do, and why."""

    path: Path
    access: Access
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """What a metric may use. ``memory_bytes`` bounds address space, which torch takes lavishly."""

    timeout_s: float = 600.0
    memory_bytes: int | None = None
    file_bytes: int = 4 << 30
    descriptors: int = 4096


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """One metric on one export.

    ``materials`` is an exported folder (None: only describe the metric), ``cells`` the (behaviour,
    train, eval) that must have a value, each once. ``adapters`` are folders
    that the post-hoc track may read. ``protected`` are folders that nothing allowed may lie in or
    contain, such as a workspace's runs/ and manifests/; the child tries to read ``must_fail`` and
    gives up if it can. ``abi`` lowers the Landlock version, for tests.
    """

    plugin: Plugin
    track: Track = "predictive"
    materials: Path | None = None
    cells: tuple[tuple[str, str, str], ...] = ()
    model_folder: Path | None = None
    model_files: tuple[Path, ...] = ()
    adapters: tuple[Path, ...] = ()
    protected: tuple[Path, ...] = ()
    must_fail: tuple[Path, ...] = ()
    gpu: bool = False
    abi: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What the child gave, what it was allowed, and how it was confined.

    ``head`` is what the metric says of itself; ``predictor`` is None if it was only described.
    ``landlock_abi`` is None where the post-hoc track ran on a kernel without Landlock.
    """

    head: Mapping[str, str]
    predictor: Predictor | None
    allowed: tuple[Allowed, ...]
    landlock_abi: int | None
    seconds: float


def require_landlock(abi: int | None = None) -> int:
    """The Landlock version a predictive run will be confined by. Raises RefusedError if none."""
    offered = landlock.abi_version()
    if offered < 1 or not seccomp.is_known_machine():
        raise RefusedError(
            "predictive track",
            problem="needs a kernel that can confine a metric, and is never run without",
            expected="Linux with Landlock, on x86_64, aarch64 or riscv64",
            found="no Landlock" if offered < 1 else os.uname().machine,
            next_step="run on Linux 5.13 or newer with Landlock on (CONFIG_SECURITY_LANDLOCK, and "
            "landlock among the lsm= of its boot line); the post-hoc track does not need it",
        )
    return offered if abi is None else min(offered, abi)


def run(job: Job, limits: Limits) -> Outcome:
    """Run a job to its end: a predictor that covers every cell, or the metric's description.

    Raises RefusedError without Landlock or when an allowed path and a protected one overlap,
    BackendError for a crash or a time-out (with the end of its traceback), MalformedInputError
    for anything the metric gives that is not what was asked. Files nothing.
    """
    confined = True
    if job.track == "post_hoc" and (landlock.abi_version() < 1 or not seccomp.is_known_machine()):
        confined = False
    else:
        require_landlock(job.abi)
    with tempfile.TemporaryDirectory(prefix="eps-locked-metric-") as temporary:
        allowed = allowance(job, Path(temporary).resolve())
        _refuse_overlap(allowed, job)
        instruction = {
            "act": "describe" if job.materials is None else "score",
            "plugin": job.plugin.to_dict(),
            "track": job.track,
            "materials": None if job.materials is None else str(job.materials.resolve()),
            "model_folder": None if job.model_folder is None else str(job.model_folder.resolve()),
            "temporary": str(Path(temporary).resolve()),
            "confine": confined,
            "rules": [[str(one.path), one.access] for one in allowed],
            "must_fail": [str(path.resolve()) for path in job.must_fail],
            "abi": job.abi,
            "limits": {
                "memory_bytes": limits.memory_bytes,
                "file_bytes": limits.file_bytes,
                "descriptors": limits.descriptors,
                "timeout_s": limits.timeout_s,
            },
        }
        began = time.monotonic()
        ended = run_child(
            _COMMAND, encode(instruction), _environment(temporary, job), limits.timeout_s
        )
        document = _document(ended, job)
    predictor = None if job.materials is None else _predictor(document, job)
    return Outcome(
        head={key: str(document.get(key, "")) for key in HEAD},
        predictor=predictor,
        allowed=allowed,
        landlock_abi=require_landlock(job.abi) if confined else None,
        seconds=time.monotonic() - began,
    )


def allowance(job: Job, temporary: Path) -> tuple[Allowed, ...]:
    """Everything a metric may touch, as a list a person can read. All else is refused."""
    found = [
        *_each(_python_folders(), "read", "Python and its packages"),
        *_each([Path(eps_locked.__file__).resolve().parent], "read", "this package"),
        *_each(map(Path, _SYSTEM_FOLDERS), "read", "system libraries"),
        *_each(map(Path, _SYSTEM_FILES), "read", "system"),
        *_each([Path("/dev/null")], "device", "system"),
        *_each([Path("/proc/self")], "read", "the process itself"),
        *_each((place.resolve() for place in job.plugin.places), "read", "the metric"),
        *_each([temporary], "write", "its temporary folder"),
    ]
    if job.materials is not None:
        found += _each([job.materials.resolve()], "read", "materials")
    if job.model_folder is not None:
        folder = job.model_folder.resolve()
        outside = [path for path in job.model_files if not path.is_relative_to(folder)]
        found += _each([folder, *outside], "read", "base model")
    if job.track == "post_hoc":
        found += _each((path.resolve() for path in job.adapters), "read", "adapter")
    if job.gpu:
        nodes = sorted(p for p in Path("/dev").glob("nvidia*"))
        found += _each(nodes, "device", "GPU")
        found += _each(map(Path, _GPU_FOLDERS), "read", "GPU")
    return tuple(dict.fromkeys(found))


def _python_folders() -> list[Path]:
    """The standard library and site-packages by themselves: never the folder a venv lies in."""
    paths = sysconfig.get_paths()
    folders = {paths[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")}
    base = sysconfig.get_paths(vars={"base": sys.base_prefix, "platbase": sys.base_exec_prefix})
    folders |= {base[key] for key in ("stdlib", "platstdlib")}
    # A Python that was built by itself keeps its shared libraries here, beside its modules.
    folders.add(str(Path(sys.base_prefix) / "lib"))
    return [Path(folder).resolve() for folder in sorted(folders)]


def _each(paths: Any, access: Access, why: str) -> Iterator[Allowed]:
    for path in paths:
        if path.exists():
            yield Allowed(path=path, access=access, why=why)


def _refuse_overlap(allowed: Sequence[Allowed], job: Job) -> None:
    """No allowed folder may hold a protected one, and only adapters may lie inside one."""
    for one in allowed:
        for path in job.protected:
            guarded = path.resolve()
            inside = one.path.is_relative_to(guarded) and one.why != "adapter"
            if inside or guarded.is_relative_to(one.path):
                raise RefusedError(
                    str(one.path),
                    problem=f"would be readable ({one.why}), and "
                    + (f"lies in {guarded}" if inside else f"holds {guarded}"),
                    expected="what a metric may read and what it may not, apart",
                    found="one within the other",
                    next_step="move the one out of the other",
                )


def _environment(temporary: str, job: Job) -> dict[str, str]:
    """The child's whole environment. Nothing is inherited but OMP_* and, for a GPU, which one."""
    prefixes = ("OMP_", "CUDA_VISIBLE_DEVICES") if job.gpu else ("OMP_",)
    inherited = {key: value for key, value in os.environ.items() if key.startswith(prefixes)}
    return {
        **inherited,
        "PATH": "/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "HOME": temporary,
        "TMPDIR": temporary,
        "HF_HUB_OFFLINE": "1",
    }


def _document(ended: Ended, job: Job) -> dict[str, Any]:
    """The child's document; every way of not giving one is an error that names the metric."""
    thing = f"metric {job.plugin.name}"
    if ended.stopped is not None:
        raise BackendError(
            thing,
            problem=f"{ended.stopped} and was stopped",
            next_step="raise the bound (--timeout), or have it do less",
            details=_tail(ended.complaints),
        )
    if ended.status != 0 or not ended.answer:
        raise BackendError(
            thing,
            problem=_manner(ended.status),
            details=_tail(ended.complaints),
        )
    failure: EpsLockedError | None = None
    try:
        reply = decode(ended.answer, thing=thing)
        if reply["schema"] == ANSWER_SCHEMA and reply["status"] == "ok":
            document: dict[str, Any] = reply["document"]
            return document
        if reply["schema"] == ANSWER_SCHEMA:
            failure = _told(reply)
    except (MalformedInputError, KeyError, TypeError, AttributeError) as error:
        failure = MalformedInputError(
            thing,
            problem="gave an answer that the harness did not write",
            expected=f"a document of schema {ANSWER_SCHEMA}",
            found=f"{len(ended.answer)} other bytes ({type(error).__name__})",
            next_step="a metric returns numbers and writes to no descriptor it did not open",
        )
    raise failure or MalformedInputError(f"{thing}: answer", expected=ANSWER_SCHEMA, found="none")


def _predictor(document: Mapping[str, Any], job: Job) -> Predictor:
    """The document read as anybody's predictor is read, and held against the study's cells."""
    predictor = read_predictor(encode(document), "json", thing=f"metric {job.plugin.name}: answer")
    if predictor.track != job.track:
        raise MalformedInputError(
            f"metric {job.plugin.name}: track", expected=job.track, found=predictor.track
        )
    cells: dict[str, list[tuple[str, str]]] = {}
    for behaviour, train, evaluated in job.cells:
        cells.setdefault(behaviour, []).append((train, evaluated))
    require_coverage(predictor, cells)
    return predictor


def _told(reply: Mapping[str, Any]) -> EpsLockedError:
    """The error the child reports, made again here. Its texts are an author's: made printable."""
    kind = {
        one.__name__: one
        for one in (BackendError, EvidenceError, MalformedInputError, RefusedError)
    }.get(reply["error"], BackendError)

    def text(key: str) -> str | None:
        return None if reply[key] is None else _printable(str(reply[key]))

    return kind(
        text("thing") or "metric",
        problem=text("problem"),
        expected=text("expected"),
        found=text("found"),
        next_step=text("next_step"),
        details=tuple(_printable(str(line)) for line in reply["details"]),
    )


def _manner(status: int | None) -> str:
    if status is not None and status < 0 and -status in signal.valid_signals():
        return f"was ended by signal {signal.Signals(-status).name}"
    return f"ended with status {status} and gave no answer"


def _tail(complaints: bytes) -> tuple[str, ...]:
    lines = complaints.decode("utf-8", "replace").splitlines()
    return tuple(_printable(line) for line in lines[-_TAIL_LINES:])


def _printable(line: str) -> str:
    """Without what would move a terminal's cursor or hide a line."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in line)[
        :500
    ]
