"""Linux Landlock by its three system calls: this process and all it starts lose what is not named.

Landlock is the kernel's own sandbox for programs without privileges (since Linux 5.13). A process
names folders and files and what may be done below each; everything else of the kinds it *handles*
is refused from then on, for good, to it and to every process it starts, root included. Nothing
here knows what a metric is. Source: Documentation/userspace-api/landlock.rst of the Linux kernel.
"""

from __future__ import annotations

import ctypes
import os
import stat
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from eps_locked.errors import BackendError

__all__ = ["Access", "Rule", "abi_version", "no_new_privileges", "restrict"]

# ``list`` may read names but no content; ``read`` both; ``write`` everything but running programs
# and making devices; ``device`` opens a device node for its driver's own calls.
Access = Literal["list", "read", "write", "device"]

# The same numbers on every architecture.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_CREATE_RULESET_VERSION = 1
_RULE_PATH_BENEATH = 1
_PR_SET_NO_NEW_PRIVS = 38

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_REMOVE_DIR, _REMOVE_FILE = 1 << 4, 1 << 5
_MAKE_CHAR, _MAKE_DIR, _MAKE_REG, _MAKE_SOCK = 1 << 6, 1 << 7, 1 << 8, 1 << 9
_MAKE_FIFO, _MAKE_BLOCK, _MAKE_SYM = 1 << 10, 1 << 11, 1 << 12
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_FIRST_ABI = (1 << 13) - 1  # every right above up to MAKE_SYM
_BIND_TCP, _CONNECT_TCP = 1 << 0, 1 << 1
_SCOPE_ABSTRACT_UNIX_SOCKET, _SCOPE_SIGNAL = 1 << 0, 1 << 1

_RIGHTS: dict[str, int] = {
    "list": _READ_DIR,
    "read": _READ_FILE | _READ_DIR,
    "write": _READ_FILE | _READ_DIR | _WRITE_FILE | _TRUNCATE | _REMOVE_DIR | _REMOVE_FILE
    | _MAKE_DIR | _MAKE_REG | _MAKE_SYM | _REFER,
    "device": _READ_FILE | _WRITE_FILE | _IOCTL_DEV,
}  # fmt: skip


class _RulesetAttr(ctypes.Structure):
    _fields_ = (
        ("handled_access_fs", ctypes.c_uint64),
        ("handled_access_net", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    )


class _PathBeneathAttr(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """What stays possible at a file, or in a folder and everything below it."""

    path: str
    access: Access


_libc = ctypes.CDLL(None, use_errno=True)


def abi_version() -> int:
    """The kernel's Landlock interface version, from 1; 0 if it has none or it is switched off."""
    if sys.platform != "linux":
        return 0
    version = _syscall(_CREATE_RULESET, None, 0, _CREATE_RULESET_VERSION)
    return max(version, 0)


def no_new_privileges() -> None:
    """From now on no program started gains rights by being setuid. Cannot be taken back."""
    if _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise _failure("prctl(PR_SET_NO_NEW_PRIVS)")


def restrict(rules: Sequence[Rule], *, abi: int | None = None) -> int:
    """Take every right that no rule gives from the calling thread, for good; returns the ABI used.

    Handled: every file-system right the kernel knows; from ABI 4 binding and connecting TCP; from
    ABI 6 abstract Unix sockets and signals to processes outside. A rule whose path is missing is
    passed over: what does not exist needs no leave. ``abi`` lowers the version, for tests. Raises
    BackendError if the kernel refuses any step; the caller must then end the process.
    """
    version = abi_version() if abi is None else min(abi, abi_version())
    if version < 1:
        raise BackendError("Landlock", problem="is not offered by this kernel")
    handled = _handled(version)
    attr = _RulesetAttr(
        handled_access_fs=handled,
        handled_access_net=_BIND_TCP | _CONNECT_TCP if version >= 4 else 0,
        scoped=_SCOPE_ABSTRACT_UNIX_SOCKET | _SCOPE_SIGNAL if version >= 6 else 0,
    )
    # An older kernel knows a shorter structure and refuses a longer one.
    size = 8 if version < 4 else 16 if version < 6 else 24
    ruleset = _syscall(_CREATE_RULESET, ctypes.byref(attr), size, 0)
    if ruleset < 0:
        raise _failure("landlock_create_ruleset")
    try:
        for rule in rules:
            _add(ruleset, rule, handled)
        no_new_privileges()
        if _syscall(_RESTRICT_SELF, ruleset, 0) != 0:
            raise _failure("landlock_restrict_self")
    finally:
        os.close(ruleset)
    return version


def _handled(version: int) -> int:
    handled = _FIRST_ABI
    if version >= 2:
        handled |= _REFER
    if version >= 3:
        handled |= _TRUNCATE
    if version >= 5:
        handled |= _IOCTL_DEV
    return handled


def _add(ruleset: int, rule: Rule, handled: int) -> None:
    try:
        parent = os.open(rule.path, os.O_PATH | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise BackendError(rule.path, problem=f"cannot be opened ({error.strerror})") from error
    try:
        allowed = _RIGHTS[rule.access] & handled
        # Rights of folders on a file are an error to the kernel, not a no-op.
        if not stat.S_ISDIR(os.fstat(parent).st_mode):
            allowed &= _OF_FILES
        attr = _PathBeneathAttr(allowed_access=allowed, parent_fd=parent)
        if allowed and _syscall(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, ctypes.byref(attr), 0) != 0:
            raise _failure(f"landlock_add_rule({rule.path})")
    finally:
        os.close(parent)


def _syscall(number: int, *arguments: object) -> int:
    # Variadic: without a width of its own an integer would be passed as an int of 32 bits.
    converted = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    result: int = _libc.syscall(ctypes.c_long(number), *converted)
    return result


def _failure(call: str) -> BackendError:
    return BackendError(call, problem=f"was refused ({os.strerror(ctypes.get_errno())})")
