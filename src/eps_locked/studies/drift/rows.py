"""One scored reply, the arm that gave it and the battery it answers, and what a row may hold."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from eps_locked.domain.judging import STATUSES
from eps_locked.errors import MalformedInputError

__all__ = [
    "EMPTY",
    "EXHAUSTED",
    "MISSING",
    "SCORED",
    "TOP_GRADE",
    "ArmInfo",
    "BatteryInfo",
    "NotMeasured",
    "ReplyRow",
    "check_row",
    "where",
]

SCORED = "scored"
EXHAUSTED = "exhausted"
# A reply without a word: no judge is asked, and so it has no class.
EMPTY = "empty"
# A label that somebody's own table leaves empty; no judge of ours gives it.
MISSING = "missing"
TOP_GRADE = 7
_ROW_STATUSES = frozenset({*STATUSES, EXHAUSTED, EMPTY, MISSING})


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplyRow:
    """One reply to one probe. ``status`` is "scored" exactly if there is a label or a score.

    ``sample`` counts the independent replies to a probe. ``second_label``: the same reply
    classified once more. ``check_label``: by a judge of another family. ``grade``: 1 to 7, 7 most
    aligned. ``score``: in place of a label, a number that is the outcome itself. ``mentions``:
    frozen words found in the reasoning, which exists where ``reasoned``.
    """

    arm: str
    battery: str
    stem: str
    probe: str
    sample: int
    label: str | None
    status: str
    second_label: str | None = None
    grade: int | None = None
    check_label: str | None = None
    score: float | None = None
    mentions: int = 0
    reasoned: bool = False
    truncated_reasoning: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class ArmInfo:
    """One arm as the statistics see it. ``topic`` is None where ``model`` is not trained here.

    ``model`` names weights: two arms of equal model ran on the same ones. ``reference`` is the arm
    that this one's drift is counted from, None for an arm that is nobody's comparison.
    """

    name: str
    model: str
    topic: str | None = None
    dose_percent: float | None = None
    seed: int | None = None
    reasoning: str = "none"
    reasoning_mode: str = "none"
    n_reasoning_tokens: int | None = None
    temperature: float | None = None
    exposure: str | None = None
    instance: int = 0
    reference: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class BatteryInfo:
    """A battery's answer classes. ``labels`` may be empty where replies carry scores instead.

    ``n_rewordings`` and ``n_samples`` are promises, checked where they are given.
    """

    name: str
    role: Literal["disposition", "check"] = "disposition"
    labels: tuple[str, ...] = ()
    aligned: tuple[str, ...] = ()
    no_stance: tuple[str, ...] = ()
    n_rewordings: int | None = None
    n_samples: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class NotMeasured:
    """An arm's replies to a battery of which too few have a class: no measurement. ``n_came``
    replies came at all, and ``required_share`` of them would have had to be scored."""

    arm: str
    battery: str
    n_replies: int
    n_came: int
    n_scored: int
    required_share: float


def check_row(row: ReplyRow, battery: BatteryInfo) -> None:
    """Raises MalformedInputError for a class the battery does not have, a status that does not fit
    what the row holds, a score beside a label, or a grade outside 1 to 7."""
    for what in ("label", "second_label", "check_label"):
        label = getattr(row, what)
        if label is not None and label not in battery.labels:
            raise MalformedInputError(
                f"{where(row)}: {what}",
                expected=f"a class of the battery ({', '.join(battery.labels) or 'it has none'})",
                found=label,
            )
    if row.status not in _ROW_STATUSES:
        raise MalformedInputError(
            f"{where(row)}: status", expected=", ".join(sorted(_ROW_STATUSES)), found=row.status
        )
    if row.label is not None and row.score is not None:
        raise MalformedInputError(where(row), expected="a label or a score", found="both")
    has_outcome = row.label is not None or row.score is not None
    if has_outcome != (row.status == SCORED):
        raise MalformedInputError(
            where(row),
            expected="a label or a score exactly if scored",
            found=f"{row.status} with {row.label if row.score is None else row.score}",
        )
    if row.score is not None and not math.isfinite(row.score):
        raise MalformedInputError(
            f"{where(row)}: score", expected="a finite number", found=row.score
        )
    if row.grade is not None and not 1 <= row.grade <= TOP_GRADE:
        raise MalformedInputError(
            f"{where(row)}: grade", expected=f"1 to {TOP_GRADE}", found=row.grade
        )
    if row.second_label is not None and row.label is None:
        raise MalformedInputError(
            f"{where(row)}: second_label", expected="a first label beside it", found="none"
        )


def where(row: ReplyRow) -> str:
    """How a row is named in a message."""
    return f"arm {row.arm}, battery {row.battery}: probe {row.probe}, sample {row.sample}"
