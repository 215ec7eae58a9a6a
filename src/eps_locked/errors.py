"""Every error this package raises on purpose, and the exit code each one ends a command with.

    EpsLockedError
    ├── MalformedInputError   2   a file or an argument is not what its format says
    ├── StatsInputError       2   numbers no statistic may be computed from
    ├── RefusedError          3   the lock said no: bytes, authorization, cap, writer
    ├── EvidenceError         1   the record on disk is wrong or incomplete
    └── BackendError          4   a model, a disk, a network or a subprocess failed

A message names the thing, what was expected, what was found, and the next step. Wrong *use* of a
function (calling out of order) is a ``RuntimeError`` or ``TypeError`` instead: it is our defect,
not the user's. Exit code 130 (interrupted) belongs to ``KeyboardInterrupt`` and has no class here.
"""

from __future__ import annotations

import re
from typing import ClassVar

__all__ = [
    "BackendError",
    "EpsLockedError",
    "EvidenceError",
    "MalformedInputError",
    "RefusedError",
    "StatsInputError",
]


# A PEM or OpenSSH private key, whole or cut off, and an age identity.
_A_KEY = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----[A-Za-z0-9+/=\s]*(\.\.\.|-----END [A-Z ]*-----)?"
    r"|AGE-SECRET-KEY-1[A-Z0-9]*"
)


class EpsLockedError(Exception):
    """Root of the tree. Carries the four parts of a useful message.

    ``thing`` is a path or a dotted field; ``expected`` and ``found`` are short printable values;
    ``next_step`` is an imperative sentence. ``details`` holds further lines (one per problem).
    """

    exit_code: ClassVar[int] = 1

    def __init__(
        self,
        thing: str,
        *,
        expected: object = None,
        found: object = None,
        problem: str | None = None,
        next_step: str | None = None,
        details: tuple[str, ...] = (),
    ) -> None:
        self.thing = thing
        self.expected = expected
        self.found = found
        self.problem = problem
        self.next_step = next_step
        self.details = details
        super().__init__(self._sentence())

    def _sentence(self) -> str:
        """Whatever a value holds, a private key is not repeated: errors end up in logs."""
        text = self._parts()
        return _A_KEY.sub("[a private key, not shown]", text)

    def _parts(self) -> str:
        parts = [self.thing]
        if self.problem:
            parts.append(f": {self.problem}")
        if self.expected is not None or self.found is not None:
            parts.append(f": expected {self.expected}, found {self.found}")
        lines = ["".join(parts), *(f"  {line}" for line in self.details)]
        if self.next_step:
            lines.append(f"  next: {self.next_step}")
        return "\n".join(lines)


class MalformedInputError(EpsLockedError):
    """A file or an argument does not have the form its schema or grammar asks for."""

    exit_code = 2


class StatsInputError(EpsLockedError):
    """Numbers were handed over for which the statistic is not defined."""

    exit_code = 2


class RefusedError(EpsLockedError):
    """The lock refuses. Nothing on disk has changed and no model was called."""

    exit_code = 3


class EvidenceError(EpsLockedError):
    """The record (ledger, artifacts, signatures) does not verify."""

    exit_code = 1


class BackendError(EpsLockedError):
    """Something outside the rules failed: model, tokenizer, disk, subprocess, network."""

    exit_code = 4
