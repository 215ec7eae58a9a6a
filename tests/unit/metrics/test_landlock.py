"""The three system calls and the filter, in processes of their own: what they take is gone."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from eps_locked.errors import BackendError
from eps_locked.metrics import landlock, seccomp
from unit.metrics.conftest import needs_landlock

PRELUDE = """
import os, sys
from eps_locked.metrics import landlock, seccomp
from eps_locked.metrics.landlock import Rule
def can(act):
    try:
        act()
        return "yes"
    except OSError as error:
        return error.strerror
"""


def in_process(code: str, *arguments: object) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + code, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@needs_landlock
@pytest.mark.parametrize("abi", range(1, max(landlock.abi_version(), 1) + 1))
def test_only_what_a_rule_names_stays_possible(abi: int, tmp_path: Path) -> None:
    for name in ("given", "kept", "spare"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("words")
    (tmp_path / "one").write_text("words")
    code = """
folder = sys.argv[1]
used = landlock.restrict([
    Rule(path=folder + "/given", access="read"),
    Rule(path=folder + "/kept", access="write"),
    Rule(path=folder + "/spare", access="list"),
    Rule(path=folder + "/one", access="read"),
    Rule(path=folder + "/missing", access="read"),
], abi=int(sys.argv[2]))
print(used)
print(can(lambda: open(folder + "/given/file").read()))
print(can(lambda: open(folder + "/given/file", "a")))
print(can(lambda: os.listdir(folder + "/given")))
print(can(lambda: open(folder + "/kept/new", "w").write("x")))
print(can(lambda: os.listdir(folder + "/spare")))
print(can(lambda: open(folder + "/spare/file").read()))
print(can(lambda: open(folder + "/one").read()))
print(can(lambda: os.listdir(folder)))
"""
    no = "Permission denied"
    assert in_process(code, tmp_path, abi) == [
        str(abi), "yes", no, "yes", "yes", "yes", no, "yes", no
    ]  # fmt: skip


@needs_landlock
def test_what_was_given_up_does_not_come_back(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("words")
    code = """
folder = sys.argv[1]
landlock.restrict([])
landlock.restrict([Rule(path=folder, access="read")])
print(can(lambda: open(folder + "/file")))
"""
    assert in_process(code, tmp_path) == ["Permission denied"]


@needs_landlock
def test_the_filter_refuses_listed_calls_and_lets_others_pass(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("words")
    code = """
import socket, threading, ctypes, errno
seccomp.deny()
path = sys.argv[1] + "/file"
print(can(lambda: socket.socket()))
print(can(lambda: os.execv("/bin/true", ["true"])))
print(can(lambda: os.chmod(path, 0o600)))
print(can(lambda: os.setsid()))
print(can(lambda: os.truncate(path, 0)))
print(can(lambda: open(path).read()))
print(can(lambda: socket.socketpair()))
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall(999)
print(errno.errorcode[ctypes.get_errno()])
thread = threading.Thread(target=lambda: print(can(lambda: socket.socket())))
thread.start(); thread.join()
"""
    no = "Operation not permitted"
    assert in_process(code, tmp_path) == [no, no, no, no, no, "yes", "yes", "ENOSYS", no]


def test_a_machine_whose_calls_are_not_listed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "s390x")
    assert not seccomp.is_known_machine()
    with pytest.raises(BackendError, match="s390x"):
        seccomp.deny()


def test_where_there_is_no_landlock_the_version_is_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert landlock.abi_version() == 0


HEADERS = {
    0: Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    1: Path("/usr/include/asm-generic/unistd.h"),
}


@pytest.mark.parametrize("column", [0, 1], ids=["x86_64", "generic"])
def test_call_numbers_are_those_of_the_kernel_headers(column: int) -> None:
    header = HEADERS[column]
    if not header.is_file():
        pytest.skip(f"{header} is not installed")
    pairs = re.findall(r"^#define __NR(?:3264)?_(\w+)\s+(\d+)$", header.read_text(), re.MULTILINE)
    numbers = {name: int(number) for name, number in pairs}
    n_known = 0
    for name, listed in seccomp.DENIED.items():
        if name in numbers:
            assert listed[column] == numbers[name], name
            n_known += 1
        else:
            # Calls newer than the header, or absent from this table of calls.
            assert listed[column] is None or listed[column] > max(numbers.values()), name
    assert n_known > 50


def test_restricting_needs_a_kernel_that_can(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landlock, "abi_version", lambda: 0)
    with pytest.raises(BackendError, match="not offered"):
        landlock.restrict([])
    assert os.listdir("/")
