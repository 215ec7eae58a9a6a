"""How an audit keeps count: numbered checks, and failures that do not stop it."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from eps_locked.errors import BackendError, EpsLockedError

TITLES = {
    1: "manifest is canonical and has its own digest",
    2: "frozen files are the frozen bytes, and no others lie beside them",
    3: "plan and material in plans/ are what was frozen",
    4: "the checker's own sources are the bound ones",
    5: "authorizations and amendments are signed and fit the record",
    6: "ledger chain and head are whole",
    7: "every entry keeps the rules of the history",
    8: "artifacts are the recorded bytes, and no others lie beside them",
    9: "adapters were trained for the cells they serve",
    10: "derived numbers follow from the stored readings",
    11: "every promised step of every phase is there",
    12: "no stray or half-written file",
    13: "earlier verdicts are whole and speak of this run",
    14: "the manifest is what its plan and sources give",
    15: "submissions were frozen before their looks, and looks rest on verdicts",
}


@dataclass(kw_only=True, slots=True)
class Check:
    """One numbered check: how many things it looked at, and what was wrong with any of them."""

    number: int
    n_examined: int = 0
    failures: list[str] = field(default_factory=list)

    @property
    def title(self) -> str:
        return TITLES[self.number]

    @property
    def ok(self) -> bool:
        return not self.failures

    def to_dict(self) -> dict[str, Any]:
        return {
            "number": self.number,
            "title": self.title,
            "ok": self.ok,
            "n_examined": self.n_examined,
            "failures": list(self.failures),
        }


class Noting:
    """Count one examined thing; turn what is wrong with it into a failure and go on.

    A disk that cannot be read is no verdict on the run: a BackendError passes through.
    """

    def __init__(self, check: Check) -> None:
        self._check = check

    def __enter__(self) -> None:
        self._check.n_examined += 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if not isinstance(error, EpsLockedError) or isinstance(error, BackendError):
            return False
        self._check.failures.append(str(error))
        return True
