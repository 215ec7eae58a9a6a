"""A seccomp filter: system calls by which a process could act around Landlock, answered "no".

Landlock (landlock.py) guards files by name. It does not guard metadata (chmod, times), nor UDP,
nor a Unix socket that lies on disk (a container daemon's, an agent's), nor what privileged kernel
interfaces offer. None of those is needed to compute a number, so their calls fail with EPERM.
A list of what is refused, not of what is allowed: the wall is Landlock, and this closes its known
gaps; calls newer than this list fail with ENOSYS. Source: seccomp(2), linux/seccomp.h.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform

from eps_locked.errors import BackendError
from eps_locked.metrics.landlock import no_new_privileges

__all__ = ["DENIED", "deny", "is_known_machine"]

_PR_SET_SECCOMP, _MODE_FILTER = 22, 2
_ALLOW, _ERRNO, _KILL_PROCESS = 0x7FFF0000, 0x00050000, 0x80000000
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_NUMBER_AT, _ARCHITECTURE_AT = 0, 4
# 64-bit, little endian, and the ELF machine number.
_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7, "riscv64": 0xC00000F3}
_FIRST_UNKNOWN = 470

# Name: number on x86_64, number in the generic table (aarch64, riscv64); None where there is none.
DENIED: dict[str, tuple[int | None, int | None]] = {
    # other programs: none is needed, and none can then misread what it inherits
    "execve": (59, 221), "execveat": (322, 281),
    # the network, and sockets that lie on disk
    "socket": (41, 198), "io_uring_setup": (425, 425),
    # other processes' memory and descriptors
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "process_madvise": (440, 440), "kcmp": (312, 272), "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438), "pidfd_send_signal": (424, 424), "move_pages": (279, 239),
    "migrate_pages": (256, 238), "perf_event_open": (298, 241), "userfaultfd": (323, 282),
    # leaving the group of processes that a time-out ends
    "setsid": (112, 157), "setpgid": (109, 154),
    # metadata of files that may not be opened
    "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452),
    "chown": (92, None), "lchown": (94, None), "fchown": (93, 55), "fchownat": (260, 54),
    "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7), "setxattrat": (463, 463),
    "removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16),
    "removexattrat": (466, 466), "file_setattr": (469, 469), "utime": (132, None),
    "utimes": (235, None), "futimesat": (261, None), "utimensat": (280, 88),
    "truncate": (76, 45),  # by name; Landlock refuses it only from ABI 3
    # being told of other processes' files
    "inotify_init": (253, None), "inotify_init1": (294, 26), "fanotify_init": (300, 262),
    # files by handle, mounts, namespaces
    "open_by_handle_at": (304, 265), "name_to_handle_at": (303, 264), "open_tree": (428, 428),
    "move_mount": (429, 429), "fsopen": (430, 430), "fspick": (433, 433),
    "mount_setattr": (442, 442), "mount": (165, 40), "umount2": (166, 39),
    "pivot_root": (155, 41), "chroot": (161, 51), "unshare": (272, 97), "setns": (308, 268),
    # memory and messages shared by number or by name
    "shmget": (29, 194), "shmat": (30, 196), "msgget": (68, 186), "msgrcv": (70, 188),
    "semget": (64, 190), "mq_open": (240, 180), "add_key": (248, 217),
    "request_key": (249, 218), "keyctl": (250, 219),
    # the kernel itself
    "bpf": (321, 280), "init_module": (175, 105), "finit_module": (313, 273),
    "delete_module": (176, 106), "kexec_load": (246, 104), "kexec_file_load": (320, 294),
    "reboot": (169, 142), "swapon": (167, 224), "swapoff": (168, 225), "acct": (163, 89),
    "quotactl": (179, 60), "syslog": (103, 116), "iopl": (172, None), "ioperm": (173, None),
    "settimeofday": (164, 170), "clock_settime": (227, 112), "sethostname": (170, 161),
}  # fmt: skip

_libc = ctypes.CDLL(None, use_errno=True)


class _Instruction(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_uint16),
        ("if_true", ctypes.c_uint8),
        ("if_false", ctypes.c_uint8),
        ("k", ctypes.c_uint32),
    )


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint16), ("filter", ctypes.POINTER(_Instruction)))


def is_known_machine() -> bool:
    """Whether this processor's system call numbers are listed here."""
    return platform.machine() in _ARCHITECTURES


def deny() -> None:
    """Refuse the listed calls from now on, in this thread and all it starts, for good.

    Raises BackendError if the machine is not a listed one or the kernel refuses the filter.
    """
    machine = platform.machine()
    if machine not in _ARCHITECTURES:
        raise BackendError(
            "seccomp", expected=" or ".join(sorted(_ARCHITECTURES)), found=machine or "unknown"
        )
    instructions = _compile(machine)
    array = (_Instruction * len(instructions))(*(_Instruction(*one) for one in instructions))
    program = _Program(len(instructions), array)
    no_new_privileges()
    if _libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(program), 0, 0) != 0:
        raise BackendError(
            "prctl(PR_SET_SECCOMP)",
            problem=f"was refused ({os.strerror(ctypes.get_errno())})",
        )


def _compile(machine: str) -> list[tuple[int, int, int, int]]:
    """The filter: another architecture's calls end the process, listed ones fail, others pass."""
    column = 0 if machine == "x86_64" else 1
    found = (pair[column] for pair in DENIED.values())
    numbers = sorted(number for number in found if number is not None)
    program = [
        (_LOAD, 0, 0, _ARCHITECTURE_AT),
        (_EQUAL, 1, 0, _ARCHITECTURES[machine]),
        (_RETURN, 0, 0, _KILL_PROCESS),
        (_LOAD, 0, 0, _NUMBER_AT),
        # Also the x32 calls of x86_64, which carry bit 30.
        (_AT_LEAST, len(numbers) + 2, 0, _FIRST_UNKNOWN),
    ]
    for index, number in enumerate(numbers):
        program.append((_EQUAL, len(numbers) - index, 0, number))
    return [
        *program,
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _ERRNO | errno.EPERM),
        (_RETURN, 0, 0, _ERRNO | errno.ENOSYS),
    ]
