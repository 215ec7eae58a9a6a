"""A child process that is read with patience and ended without: the mechanics under sandbox.py.

Knows nothing of metrics. What the child writes is bounded, what it starts dies with it.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

__all__ = ["Ended", "run_child"]

MAX_ANSWER_BYTES = 256 << 20
_MAX_COMPLAINTS = 64 << 10
_CHUNK, _CHUNKS_A_TURN = 1 << 16, 64


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    """How the child ended: its exit status, or that it was stopped and why."""

    status: int | None
    answer: bytes
    complaints: bytes
    stopped: str | None = None


def run_child(
    command: Sequence[str],
    instruction: bytes,
    environment: Mapping[str, str],
    timeout_s: float,
) -> Ended:
    """Start the child, read what it writes, and end it together with all it started."""
    deadline = time.monotonic() + timeout_s
    answer, complaints = bytearray(), bytearray()
    with (
        _started(command, instruction, environment) as process,
        selectors.DefaultSelector() as selector,
    ):
        ended = os.pidfd_open(process.pid)
        try:
            selector.register(ended, selectors.EVENT_READ)
            assert process.stdout is not None
            assert process.stderr is not None
            sinks = {process.stdout: answer, process.stderr: complaints}
            for stream in sinks:
                os.set_blocking(stream.fileno(), False)
                selector.register(stream, selectors.EVENT_READ)
            while (left := deadline - time.monotonic()) > 0:
                ready = [key.fileobj for key, _ in selector.select(left)]
                for stream, sink in sinks.items():
                    # After its end, whatever is still in the pipes; before, what there is.
                    if (stream in ready or ended in ready) and not _drain(stream, sink):
                        with suppress(KeyError):
                            selector.unregister(stream)
                del complaints[:-_MAX_COMPLAINTS]
                if len(answer) > MAX_ANSWER_BYTES:
                    stopped = f"wrote more than {MAX_ANSWER_BYTES} bytes"
                    return Ended(status=None, answer=b"", complaints=b"", stopped=stopped)
                if ended in ready:
                    _end(process)
                    return Ended(
                        status=process.wait(), answer=bytes(answer), complaints=bytes(complaints)
                    )
        finally:
            os.close(ended)
    stopped = f"took longer than {timeout_s:g} s"
    return Ended(status=None, answer=b"", complaints=bytes(complaints), stopped=stopped)


@contextmanager
def _started(
    command: Sequence[str], instruction: bytes, environment: Mapping[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """The child in a group of its own, which it cannot leave; nothing of that group outlives us."""
    with tempfile.TemporaryFile() as given:
        given.write(instruction)
        given.seek(0)
        process = subprocess.Popen(
            list(command),
            stdin=given,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(environment),
            close_fds=True,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        _end(process)
        process.wait()
        for stream in (process.stdout, process.stderr):
            assert stream is not None
            stream.close()


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill the child's group. Called before the child is reaped, so that its number is its own."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _drain(stream: Any, sink: bytearray) -> bool:
    """Read what is there, a bounded amount; False once the other end is closed."""
    for _ in range(_CHUNKS_A_TURN):
        try:
            data = os.read(stream.fileno(), _CHUNK)
        except BlockingIOError:
            return True
        if not data:
            return False
        sink += data
    return True
