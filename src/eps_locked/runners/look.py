"""One look: written down, then opened, then scored, then written down again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from eps_locked.domain.ledger import LookStatus, SubmissionBody
from eps_locked.errors import EpsLockedError
from eps_locked.lock.looks import LookPermit, begin_look, end_look
from eps_locked.lock.record import RunRecord
from eps_locked.lock.seal import CustodianKey

# Opens the sealed cells with the key and scores the submission on them. The document it returns
# must hold no value of any cell.
Scorer = Callable[[SubmissionBody, CustodianKey], Mapping[str, Any]]


def take_look(permit: LookPermit, record: RunRecord, score: Scorer) -> int:
    """Take the look a permit allows. Returns its number; the result is in the record.

    Whatever ends it early, an error or an interruption, is recorded and raised again; the look
    counts. A reason names the kind of error only: its text might quote a sealed value.
    """
    number = begin_look(permit, record)
    try:
        scores = score(permit.submission, permit.key)
    except BaseException as error:
        status: LookStatus = "failed" if isinstance(error, EpsLockedError) else "aborted"
        reason = "interrupted" if isinstance(error, KeyboardInterrupt) else type(error).__name__
        end_look(permit, record, number, None, status, reason)
        raise
    end_look(permit, record, number, scores, "scored", "")
    return number
