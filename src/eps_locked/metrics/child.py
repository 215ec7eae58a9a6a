"""The process a metric runs in: ``python -I -m eps_locked.metrics.child``, started by sandbox.py.

Instruction: one JSON document on standard input. Answer: one JSON document on what was standard
output when the process began; before any of the author's code is imported that descriptor is moved
away and standard output becomes standard error, so a stray print cannot spoil the answer.

The order of the steps is the safety of it. Until step 5 only modules of this package are imported
that start no thread: Landlock binds threads, and one that ran before would stay free.
"""

from __future__ import annotations

import ctypes
import faulthandler
import json
import os
import resource
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from eps_locked.canonical import encode
from eps_locked.errors import BackendError, EpsLockedError, RefusedError
from eps_locked.metrics import landlock, seccomp

ANSWER_SCHEMA = "eps-locked/metric-answer/1"
_PARTS = ("thing", "problem", "expected", "found", "next_step")
_PR_SET_PDEATHSIG = 1
_CAPABILITY_VERSION_3 = 0x20080522
_libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    # 1. Keep only the three standard descriptors, and take the answer's out of the author's way.
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    instruction = json.loads(sys.stdin.buffer.read())
    answer = _move_answer_away()
    try:
        # 2. Die with the harness; no core file, bounded files, descriptors and memory.
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        _set_limits(instruction["limits"])
        os.umask(0o077)
        os.chdir(instruction["temporary"])
        if instruction["confine"]:
            # 3. to 5. Give up every capability, then every path, call and socket not named.
            _confine(instruction)
        # 6. Only now the author's code, and the numeric libraries with their threads. A crash or
        # a time-out shows where the author's code was.
        faulthandler.enable()
        faulthandler.dump_traceback_later(0.9 * instruction["limits"]["timeout_s"])
        document = _act(instruction)
        reply = {"status": "ok", "document": document}
    except EpsLockedError as error:
        reply = _failed(error)
    except BaseException as error:
        reply = _broken(error)
    faulthandler.cancel_dump_traceback_later()
    _write_all(answer, encode({"schema": ANSWER_SCHEMA, **reply}))
    # The author's threads and exit handlers get no say in how this ends.
    os._exit(0)


def _move_answer_away() -> int:
    answer = os.dup(1)
    os.dup2(2, 1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    return answer


def _set_limits(limits: Mapping[str, Any]) -> None:
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_NOFILE, limits["descriptors"])
    _limit(resource.RLIMIT_FSIZE, limits["file_bytes"])
    if limits["memory_bytes"] is not None:
        _limit(resource.RLIMIT_AS, limits["memory_bytes"])


def _limit(kind: int, value: int) -> None:
    _, hard = resource.getrlimit(kind)
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(kind, (value, value))


def _confine(instruction: Mapping[str, Any]) -> None:
    n_threads = len(os.listdir("/proc/self/task"))
    if n_threads != 1:
        raise BackendError(
            "sandbox",
            problem="cannot be closed around a process that already has threads",
            expected="1 thread",
            found=n_threads,
            next_step="remove what starts one with every Python (a .pth file, sitecustomize)",
        )
    # 3. Capabilities: to root, a file's mode and much else would be no obstacle.
    _drop_capabilities()
    # 4. Files, TCP, signals; then the calls that would lead around that.
    rules = [landlock.Rule(path=path, access=access) for path, access in instruction["rules"]]
    landlock.restrict(rules, abi=instruction["abi"])
    seccomp.deny()
    # 5. Trust is good: a kernel that says yes and does nothing must be noticed before it matters.
    for path in instruction["must_fail"]:
        _require_unreadable(path)


def _drop_capabilities() -> None:
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    nothing = (ctypes.c_uint32 * 6)()
    if _libc.capset(ctypes.byref(header), ctypes.byref(nothing)) != 0:
        raise BackendError("capset", problem=f"was refused ({os.strerror(ctypes.get_errno())})")


def _require_unreadable(path: str) -> None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except PermissionError:
        return
    except FileNotFoundError:
        return
    os.close(descriptor)
    raise RefusedError(
        path,
        problem="can be read from inside the sandbox",
        expected="permission denied",
        found="an open file; this kernel does not enforce what it accepted",
        next_step="run the predictive track on a kernel of 5.13 or newer that enforces Landlock",
    )


def _act(instruction: Mapping[str, Any]) -> dict[str, Any]:
    from eps_locked.metrics.computing import PluginFailure, describe, guarded, predict
    from eps_locked.metrics.loading import Plugin, load
    from eps_locked.metrics.reading import read_materials

    plugin = Plugin.from_dict(instruction["plugin"])
    try:
        metric = guarded(f"import of {plugin.name}", lambda: load(plugin))
        if instruction["act"] == "describe":
            return describe(metric)
        if metric.track != instruction["track"]:
            raise RefusedError(
                f"metric {metric.id}",
                expected=f"a metric of the {instruction['track']} track",
                found=f"one of the {metric.track} track",
                next_step=f"--track {metric.track}",
            )
        folder = instruction["model_folder"]
        materials, model = read_materials(
            Path(instruction["materials"]), None if folder is None else Path(folder)
        )
        return predict(metric, materials, model)
    except PluginFailure as failure:
        raise BackendError(
            f"metric {plugin.name}: {failure.where}", problem="raised", details=failure.tail
        ) from failure


def _failed(error: EpsLockedError) -> dict[str, Any]:
    return {
        "status": "failed",
        "error": type(error).__name__,
        **{key: _text(getattr(error, key)) for key in _PARTS},
        "details": [_text(line) for line in error.details],
    }


def _text(value: object) -> str | None:
    """An author's words as UTF-8 can carry them: a lone surrogate would have no canonical form."""
    return None if value is None else str(value).encode("utf-8", "replace").decode("utf-8")


def _broken(error: BaseException) -> dict[str, Any]:
    """Something that should not have come this far; still an answer, never silence."""
    return _failed(
        BackendError("metric", problem=f"ended in {type(error).__name__}: {str(error)[:300]}")
    )


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


if __name__ == "__main__":
    main()
