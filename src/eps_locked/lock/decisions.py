"""Findings that stop a study until somebody signs for going on.

A step may record a flag that begins with ``decision_needed:``. No later phase opens while an
amendment that lists the flag among its changes is missing: the finding, the decision and what had
been seen by then are all in the record (docs/lock.md, L14.7).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from eps_locked.domain.authorization import Amendment
from eps_locked.domain.ledger import Entry, OpenBody, StepBody
from eps_locked.errors import RefusedError
from eps_locked.lock.history import History

DECISION_PREFIX = "decision_needed:"


def require_decisions(
    name: str, history: History, amendments: Iterable[Amendment], phase: str
) -> None:
    """G14: every finding of an earlier phase is decided. Raises RefusedError naming the first."""
    missing = _undecided(
        ((body.phase, body.flags) for body in history.done.values()), amendments, phase
    )
    if missing:
        raise RefusedError(
            f"phase {phase}",
            problem=f"waits for {len(missing)} signed decision{'s' if len(missing) > 1 else ''}",
            expected="an amendment that lists the finding among its changes",
            found=f"none for {missing[0]}",
            next_step=f"leave the row out in a new plan, or go on with: eps-locked amend {name} "
            f"--change {missing[0]} --reason '...'",
            details=tuple(missing),
        )


def undecided_openings(
    entries: Iterable[Entry], amendments: Iterable[Amendment], where: str
) -> list[str]:
    """One sentence for every session that opened on an undecided finding of another phase."""
    signed = list(amendments)
    flags: list[tuple[str, tuple[str, ...]]] = []
    n_amended, differences = 0, []
    for entry in entries:
        body: Mapping[str, object] = entry.body
        if entry.kind == "step":
            step = StepBody.from_dict(body, where)
            flags.append((step.phase, step.flags))
        elif entry.kind == "amendment":
            n_amended += 1
        elif entry.kind == "open":
            phase = OpenBody.from_dict(body, where).phase
            missing = _undecided(flags, signed[:n_amended], phase)
            differences += [
                f"{where}:{entry.seq + 1}: phase {phase} was opened without a decision on {flag}"
                for flag in missing
            ]
    return differences


def _undecided(
    flags: Iterable[tuple[str, tuple[str, ...]]], amendments: Iterable[Amendment], phase: str
) -> list[str]:
    decided = {change for amendment in amendments for change in amendment.changes}
    return [
        flag
        for recorded_in, found in flags
        for flag in found
        if flag.startswith(DECISION_PREFIX) and recorded_in != phase and flag not in decided
    ]
