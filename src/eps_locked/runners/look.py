"""One look: written down, then opened, then scored, then written down again."""

from __future__ import annotations

from collections.abc import Callable

from eps_locked.domain.ledger import LookStatus, SubmissionBody
from eps_locked.errors import EpsLockedError, EvidenceError
from eps_locked.lock.looks import LookPermit, Scored, begin_look, end_look
from eps_locked.lock.record import RunRecord
from eps_locked.lock.seal import CustodianKey

# Opens the sealed cells with the key and scores the submission on them.
Scorer = Callable[[SubmissionBody, CustodianKey], Scored]


def take_look(permit: LookPermit, record: RunRecord, score: Scorer) -> int:
    """Take the look a permit allows. Returns its number; the result is in the record.

    Whatever ends it early is recorded, and the look counts. A reason names the kind of error only,
    and so does what is raised: an error's own text might quote a sealed value.
    """
    number = begin_look(permit, record)
    try:
        scored = score(permit.submission, permit.key)
    except KeyboardInterrupt:
        end_look(permit, record, number, None, "aborted", "interrupted")
        raise
    except Exception as error:
        status: LookStatus = "failed" if isinstance(error, EpsLockedError) else "aborted"
        reason = type(error).__name__
        end_look(permit, record, number, None, status, reason)
        raise EvidenceError(
            f"look {number}",
            problem=f"ended early ({reason}); it counts",
            next_step="open the cells with the custodian's key (docs/lock.md, L25.6) to see why",
        ) from None
    end_look(permit, record, number, scored, "scored", "")
    return number
