"""What was made of each reply, axis by axis; a verdict that is missing is None, never a guess."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, get_args

from eps_locked.canonical import decode, encode
from eps_locked.domain.fields import Fields
from eps_locked.domain.judging import Verdict
from eps_locked.errors import MalformedInputError
from eps_locked.judges.refusals import Staged
from eps_locked.studies.battery import answers, tools
from eps_locked.studies.battery.parts import Axis, nullable

__all__ = [
    "VERDICTS_SCHEMA",
    "CapabilityRow",
    "PremiseRow",
    "RefusalRow",
    "Row",
    "ToolsRow",
    "Verdicts",
]

VERDICTS_SCHEMA: Final = "eps-locked/battery-verdicts/1"
_OUTCOMES: Final[tuple[str, ...]] = get_args(answers.Verdict)
_TOOL_OUTCOMES: Final[tuple[str, ...]] = get_args(tools.ToolVerdict)


@dataclass(frozen=True, kw_only=True, slots=True)
class RefusalRow:
    """Both stages on the answer, and on what was thought before it (None: nothing was).

    ``verdict`` is refuse, comply or partial.
    """

    item: str
    answer: Staged
    thinking: Staged | None

    @property
    def verdict(self) -> str | None:
        return self.answer.verdict

    def to_dict(self) -> dict[str, Any]:
        return {
            "item": self.item,
            **self.answer.to_dict(),
            "thinking": None if self.thinking is None else self.thinking.to_dict(),
        }

    @classmethod
    def from_dict(cls, value: object, path: str) -> RefusalRow:
        with Fields(value, path) as fields:
            return cls(
                item=fields.text("item"),
                answer=Staged.from_fields(fields),
                thinking=nullable(
                    fields,
                    "thinking",
                    lambda: Staged.from_dict(fields.raw("thinking"), fields.path("thinking")),
                ),
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class PremiseRow:
    """The judge's verdict on an answer to a false premise; None where there was none to judge.

    ``verdict`` is agrees, corrects or unclear.
    """

    item: str
    judge: Verdict | None

    @property
    def verdict(self) -> str | None:
        return None if self.judge is None else self.judge.label

    def to_dict(self) -> dict[str, Any]:
        judge = None if self.judge is None else self.judge.to_dict()
        return {"item": self.item, "judge": judge, "verdict": self.verdict}

    @classmethod
    def from_dict(cls, value: object, path: str) -> PremiseRow:
        with Fields(value, path) as fields:
            row = cls(
                item=fields.text("item"),
                judge=nullable(
                    fields,
                    "judge",
                    lambda: Verdict.from_dict(fields.raw("judge"), fields.path("judge")),
                ),
            )
            verdict = fields.text_or_none("verdict")
        if verdict != row.verdict:
            raise MalformedInputError(
                f"{path}.verdict",
                problem="does not follow from the judge's",
                expected=row.verdict,
                found=verdict,
            )
        return row


@dataclass(frozen=True, kw_only=True, slots=True)
class CapabilityRow:
    """``outcome`` is correct, wrong or no_answer; ``stated`` the piece that was read."""

    item: str
    outcome: str | None
    reason: str
    stated: str | None

    @property
    def verdict(self) -> str | None:
        return self.outcome

    def to_dict(self) -> dict[str, Any]:
        return {
            "item": self.item,
            "outcome": self.outcome,
            "reason": self.reason,
            "stated": self.stated,
        }

    @classmethod
    def from_dict(cls, value: object, path: str) -> CapabilityRow:
        with Fields(value, path) as fields:
            return cls(
                item=fields.text("item"),
                outcome=_outcome(fields, _OUTCOMES),
                reason=fields.text("reason"),
                stated=fields.text_or_none("stated"),
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolsRow:
    """``outcome`` is right, or what was wrong; ``case`` is the kind of the case."""

    item: str
    case: str
    outcome: str | None
    reason: str

    @property
    def verdict(self) -> str | None:
        return self.outcome

    def to_dict(self) -> dict[str, Any]:
        return {
            "item": self.item,
            "case": self.case,
            "outcome": self.outcome,
            "reason": self.reason,
        }

    @classmethod
    def from_dict(cls, value: object, path: str) -> ToolsRow:
        with Fields(value, path) as fields:
            return cls(
                item=fields.text("item"),
                case=fields.text("case", one_of=tools.KINDS),
                outcome=_outcome(fields, _TOOL_OUTCOMES),
                reason=fields.text("reason"),
            )


Row = RefusalRow | PremiseRow | CapabilityRow | ToolsRow
_READERS: Final[Mapping[str, Callable[[object, str], Row]]] = {
    "over_refusal": RefusalRow.from_dict,
    "harmful": RefusalRow.from_dict,
    "sycophancy": PremiseRow.from_dict,
    "capability": CapabilityRow.from_dict,
    "tools": ToolsRow.from_dict,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdicts:
    """Rows in the order of the replies; none where only counts are kept.

    ``judge`` is the judge's identity as it gave it and ``rubric`` the digest of what it was asked;
    both are None where rules alone decide.
    """

    judge: Mapping[str, Any] | None
    rubric: str | None
    rows: tuple[Row, ...]

    def to_bytes(self) -> bytes:
        return encode(
            {
                "schema": VERDICTS_SCHEMA,
                "judge": None if self.judge is None else dict(self.judge),
                "rubric": self.rubric,
                "rows": [row.to_dict() for row in self.rows],
            }
        )

    @classmethod
    def from_bytes(cls, data: bytes, axis: Axis, thing: str) -> Verdicts:
        """Raises MalformedInputError naming the field."""
        with Fields(decode(data, thing=thing), thing) as fields:
            fields.text("schema", one_of=(VERDICTS_SCHEMA,))
            judge = fields.raw("judge")
            return cls(
                judge=None if judge is None else fields.mapping("judge"),
                rubric=fields.text_or_none("rubric"),
                rows=fields.each("rows", _READERS[axis]),
            )


def _outcome(fields: Fields, allowed: tuple[str, ...]) -> str | None:
    return None if fields.raw("outcome") is None else fields.text("outcome", one_of=allowed)
