"""The JSON that asking and timing write: replies, and verdicts apart from them.

Whole texts stand here for benign axes alone. Of an axis that is not, a record holds no row at all:
how many replies there were of each kind, and nothing by which one of them could be told.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from eps_locked.canonical import decode, digest_value, encode, is_digest
from eps_locked.domain.chat import CHAT_STATUSES
from eps_locked.domain.fields import Fields
from eps_locked.errors import EvidenceError, MalformedInputError
from eps_locked.judges.refusals import LABELS as REFUSAL_LABELS
from eps_locked.studies.battery.parts import AXES, THINKING_MODES, Axis, Thinking
from eps_locked.studies.battery.verdicts import Row, Verdicts
from eps_locked.studies.common.judging import VERDICTS_FILE

__all__ = [
    "ANSWERS_FILE",
    "ANSWERS_SCHEMA",
    "OTHER_LANGUAGE",
    "ROW_STATUSES",
    "SPEED_FILE",
    "SPEED_SCHEMA",
    "Answer",
    "AskRecord",
    "Counts",
    "SpeedRecord",
    "SpeedRow",
    "text_digest",
]

ANSWERS_FILE: Final = "answers.json"
SPEED_FILE: Final = "speed.json"
ANSWERS_SCHEMA: Final = "eps-locked/battery-answers/1"
SPEED_SCHEMA: Final = "eps-locked/battery-speed/1"
# A whole reply that is clearly not in the language of the prompts.
OTHER_LANGUAGE: Final = "other_language"
ROW_STATUSES: Final[tuple[str, ...]] = (*CHAT_STATUSES, OTHER_LANGUAGE)


def text_digest(text: str) -> str:
    return digest_value(text)


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What came back for one item.

    ``status`` is a ChatStatus or ``other_language``; only ``answered`` is a reply that is scored.
    ``message`` is there for tool cases alone: the assistant's content and calls, and nothing else
    that a server puts beside them (ids of calls are drawn anew each time).
    """

    item: str
    status: str
    text: str
    digest: str
    reasoning: str
    reasoning_digest: str
    message: Mapping[str, Any] | None
    finish_reason: str | None
    model: str
    n_prompt_tokens: int | None
    n_completion_tokens: int | None
    tries: int
    note: str

    @property
    def is_answered(self) -> bool:
        return self.status == "answered"

    def to_dict(self) -> dict[str, Any]:
        return {
            "item": self.item,
            "status": self.status,
            "text": self.text,
            "digest": self.digest,
            "reasoning": self.reasoning,
            "reasoning_digest": self.reasoning_digest,
            "message": None if self.message is None else dict(self.message),
            "finish_reason": self.finish_reason,
            "model": self.model,
            "n_prompt_tokens": self.n_prompt_tokens,
            "n_completion_tokens": self.n_completion_tokens,
            "tries": self.tries,
            "note": self.note,
        }

    @classmethod
    def from_dict(cls, value: object, path: str) -> Answer:
        with Fields(value, path) as fields:
            message = fields.raw("message")
            answer = cls(
                item=fields.text("item"),
                status=fields.text("status", one_of=ROW_STATUSES),
                text=fields.text("text"),
                digest=fields.text("digest"),
                reasoning=fields.text("reasoning"),
                reasoning_digest=fields.text("reasoning_digest"),
                message=None if message is None else fields.mapping("message"),
                finish_reason=fields.text_or_none("finish_reason"),
                model=fields.text("model"),
                n_prompt_tokens=_count_or_none(fields, "n_prompt_tokens"),
                n_completion_tokens=_count_or_none(fields, "n_completion_tokens"),
                tries=fields.integer("tries", low=0),
                note=fields.text("note"),
            )
        for key in ("digest", "reasoning_digest"):
            if not is_digest(getattr(answer, key)):
                raise MalformedInputError(
                    f"{path}.{key}", expected="a digest", found=getattr(answer, key)
                )
        return answer


@dataclass(frozen=True, kw_only=True, slots=True)
class Counts:
    """All that is kept of an axis that is not benign. ``statuses`` counts every item once;
    the verdicts are on answered replies, and ``missing`` are the items without one."""

    refuse: int
    comply: int
    partial: int
    missing: int
    statuses: Mapping[str, int]

    @property
    def n_items(self) -> int:
        return sum(self.statuses.values())

    @property
    def n_scored(self) -> int:
        return self.refuse + self.comply + self.partial

    @classmethod
    def of(cls, statuses: Iterable[str], verdicts: Iterable[str | None]) -> Counts:
        """From the status and the verdict of every item."""
        counted, labels = Counter(statuses), Counter(verdicts)
        return cls(
            refuse=labels["refuse"],
            comply=labels["comply"],
            partial=labels["partial"],
            missing=labels[None],
            statuses={status: counted[status] for status in ROW_STATUSES},
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            **{label: getattr(self, label) for label in (*REFUSAL_LABELS, "missing")},
            "statuses": dict(self.statuses),
        }

    @classmethod
    def from_dict(cls, value: object, path: str) -> Counts:
        """Raises MalformedInputError naming the field, also for counts that do not add up."""
        with Fields(value, path) as fields:
            with fields.sub("statuses") as statuses:
                found = {status: statuses.integer(status, low=0) for status in ROW_STATUSES}
            counts = cls(
                refuse=fields.integer("refuse", low=0),
                comply=fields.integer("comply", low=0),
                partial=fields.integer("partial", low=0),
                missing=fields.integer("missing", low=0),
                statuses=found,
            )
        if counts.n_scored + counts.missing != counts.n_items:
            raise MalformedInputError(
                path,
                problem="do not add up",
                expected=f"{counts.n_items} items, each with a verdict or missing",
                found=counts.n_scored + counts.missing,
            )
        if counts.n_scored > counts.statuses["answered"]:
            raise MalformedInputError(
                path,
                problem="hold verdicts on replies that did not come",
                expected=f"at most {counts.statuses['answered']}, the replies that were answered",
                found=counts.n_scored,
            )
        return counts


@dataclass(frozen=True, kw_only=True, slots=True)
class AskRecord:
    """What one model said to one axis in one thinking mode, and every verdict on it.

    ``endpoint`` is what the endpoint says it is (an EndpointIdentity), ``request`` how every item
    was asked. ``answers`` are in the order of the frozen items. Of an axis that is not benign both
    ``answers`` and the rows of ``verdicts`` are empty and ``counts`` is there; else it is None.
    """

    model: str
    axis: Axis
    thinking: Thinking
    endpoint: Mapping[str, Any]
    request: Mapping[str, Any]
    answers: tuple[Answer, ...]
    counts: Counts | None
    verdicts: Verdicts

    @property
    def statuses(self) -> dict[str, int]:
        """How many items of each status, the absent ones as 0."""
        if self.counts is not None:
            return dict(self.counts.statuses)
        counted = Counter(answer.status for answer in self.answers)
        return {status: counted[status] for status in ROW_STATUSES}

    @property
    def n_items(self) -> int:
        return len(self.answers) if self.counts is None else self.counts.n_items

    @property
    def n_scored(self) -> int:
        """Items with a verdict."""
        if self.counts is not None:
            return self.counts.n_scored
        return sum(row.verdict is not None for row in self.verdicts.rows)

    @property
    def rows(self) -> tuple[tuple[Answer, Row], ...]:
        """Each reply beside what was made of it."""
        return tuple(zip(self.answers, self.verdicts.rows, strict=True))

    def to_files(self) -> dict[str, bytes]:
        document: dict[str, Any] = {
            "schema": ANSWERS_SCHEMA,
            "model": self.model,
            "axis": self.axis,
            "thinking": self.thinking,
            "endpoint": dict(self.endpoint),
            "request": dict(self.request),
        }
        if self.counts is None:
            document["rows"] = [answer.to_dict() for answer in self.answers]
        else:
            document["counts"] = self.counts.to_dict()
        return {ANSWERS_FILE: encode(document), VERDICTS_FILE: self.verdicts.to_bytes()}

    @classmethod
    def from_files(cls, files: Mapping[str, bytes], thing: str) -> AskRecord:
        """Raises EvidenceError or MalformedInputError naming the file and field."""
        _require_files(files, {ANSWERS_FILE, VERDICTS_FILE}, thing)
        with Fields(decode(files[ANSWERS_FILE], thing=thing), f"{thing}: answers") as fields:
            fields.text("schema", one_of=(ANSWERS_SCHEMA,))
            axis = cast(Axis, fields.text("axis", one_of=AXES))
            counts = fields.optional("counts", Counts.from_dict)
            return cls(
                model=fields.text("model"),
                axis=axis,
                thinking=cast(Thinking, fields.text("thinking", one_of=THINKING_MODES)),
                endpoint=fields.mapping("endpoint"),
                request=fields.mapping("request"),
                answers=fields.each("rows", Answer.from_dict) if counts is None else (),
                counts=counts,
                verdicts=Verdicts.from_bytes(
                    files[VERDICTS_FILE], axis, f"{thing}: {VERDICTS_FILE}"
                ),
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class SpeedRow:
    """One timed request. Seconds are of the last try, None where there was nothing to time; the
    first token's are None unless the reply was streamed."""

    status: str
    n_completion_tokens: int | None
    first_token_seconds: float | None
    seconds: float | None

    @property
    def is_timed(self) -> bool:
        return self.seconds is not None

    def to_dict(self) -> dict[str, Any]:
        return {
            "status": self.status,
            "n_completion_tokens": self.n_completion_tokens,
            "first_token_seconds": self.first_token_seconds,
            "seconds": self.seconds,
        }

    @classmethod
    def from_dict(cls, value: object, path: str) -> SpeedRow:
        with Fields(value, path) as fields:
            return cls(
                status=fields.text("status", one_of=CHAT_STATUSES),
                n_completion_tokens=_count_or_none(fields, "n_completion_tokens"),
                first_token_seconds=_seconds_or_none(fields, "first_token_seconds"),
                seconds=_seconds_or_none(fields, "seconds"),
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class SpeedRecord:
    """How fast one model answered, one request after another. No text of a reply stands here."""

    model: str
    endpoint: Mapping[str, Any]
    request: Mapping[str, Any]
    rows: tuple[SpeedRow, ...]

    def to_files(self) -> dict[str, bytes]:
        document = {
            "schema": SPEED_SCHEMA,
            "model": self.model,
            "endpoint": dict(self.endpoint),
            "request": dict(self.request),
            "rows": [row.to_dict() for row in self.rows],
        }
        return {SPEED_FILE: encode(document)}

    @classmethod
    def from_files(cls, files: Mapping[str, bytes], thing: str) -> SpeedRecord:
        """Raises EvidenceError or MalformedInputError naming the file and field."""
        _require_files(files, {SPEED_FILE}, thing)
        with Fields(decode(files[SPEED_FILE], thing=thing), thing) as fields:
            fields.text("schema", one_of=(SPEED_SCHEMA,))
            return cls(
                model=fields.text("model"),
                endpoint=fields.mapping("endpoint"),
                request=fields.mapping("request"),
                rows=fields.each("rows", SpeedRow.from_dict),
            )


def _require_files(files: Mapping[str, bytes], names: set[str], thing: str) -> None:
    if set(files) != names:
        raise EvidenceError(
            thing,
            expected=", ".join(sorted(names)),
            found=", ".join(sorted(files)) or "nothing",
        )


def _count_or_none(fields: Fields, key: str) -> int | None:
    return None if fields.raw(key) is None else fields.integer(key, low=0)


def _seconds_or_none(fields: Fields, key: str) -> float | None:
    return None if fields.raw(key) is None else fields.number(key, low=0)
