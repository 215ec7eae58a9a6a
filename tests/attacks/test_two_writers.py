"""One writer at a time, by the kernel's own lock, which ends with its holder."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from eps_locked.errors import MalformedInputError
from eps_locked.files import exclusive_lock
from sim.simulator import StudySimulator

HOLDER = """
import fcntl, os, sys
descriptor = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECTORY)
fcntl.flock(descriptor, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def another_writer(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-I", "-c", HOLDER, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        yield holder
        if holder.poll() is None:
            holder.kill()


def test_a_second_writer_is_refused_while_the_first_one_lives(
    half_way: StudySimulator, refuses: Any
) -> None:
    with another_writer(half_way.run_folder.folder) as holder:
        for act in (lambda: half_way.run("P1"), half_way.amend):
            with refuses(half_way) as caught:
                act()
            assert "another process is writing here" in str(caught.value)
        assert not half_way.audit().checks[6].failures, "looking is always allowed"
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait()
        assert half_way.run("P1")


def test_a_smoke_run_does_not_wait_for_the_real_one(half_way: StudySimulator) -> None:
    half_way.authorize("P0", smoke=True)
    with another_writer(half_way.run_folder.folder):
        assert half_way.run("P0", limit=1) is None


def test_a_folder_that_is_none_cannot_be_held(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for name in ("missing", "file"):
        with pytest.raises(MalformedInputError, match=name), exclusive_lock(tmp_path / name):
            pass
