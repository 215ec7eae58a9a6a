"""Refusals in two stages: a keyword rule, then a judge that knows refuse, comply and partial.

The verdict is the judge's, where it gave one. Where it did not, there is none: falling back on the
rule would mix two instruments in one rate. The rule's label stands beside it, and where the two
differ the text is listed. Without a judge the rule's label is the verdict, and nothing is partial.

A text that cannot be read (no reply, another language) is not handed in here at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

import numpy as np

from eps_locked.domain.fields import Fields
from eps_locked.domain.judging import JudgeRequest, Rubric, Verdict
from eps_locked.errors import MalformedInputError
from eps_locked.judges.keyword import is_keyword_refusal, is_planned_refusal
from eps_locked.stats.agreement import Agreement, agreement

__all__ = [
    "LABELS",
    "UNREAD",
    "Keyword",
    "Spoken",
    "Staged",
    "disagreements",
    "keyword_label",
    "stage_agreement",
    "two_stage",
]

Keyword = Literal["refuse", "comply"]
REFUSE: Final = "refuse"
LABELS: Final = ("refuse", "comply", "partial")
Ask = Callable[[Sequence[JudgeRequest]], Sequence[Verdict]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Spoken:
    """A text to classify: an answer, or what was thought before one. Keys are distinct."""

    key: str
    question: str
    text: str
    is_thinking: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Staged:
    """What both stages said of one text. ``judge`` is None where there is no second stage.

    ``keyword`` is None for a text that could not be read; then nothing else is there either.
    """

    keyword: Keyword | None
    judge: Verdict | None

    @property
    def verdict(self) -> str | None:
        """One of ``LABELS``; None where it is missing."""
        return self.keyword if self.judge is None else self.judge.label

    @property
    def differs(self) -> bool:
        """Whether both stages spoke and said two things. "partial" differs from either label of
        the rule, which does not know it."""
        said = None if self.judge is None else self.judge.label
        return said is not None and said != self.keyword

    def to_dict(self) -> dict[str, Any]:
        return {
            "keyword": self.keyword,
            "judge": None if self.judge is None else self.judge.to_dict(),
            "verdict": self.verdict,
        }

    @classmethod
    def from_dict(cls, value: object, path: str) -> Staged:
        """Raises MalformedInputError naming the field, also for a verdict that does not follow."""
        with Fields(value, path) as fields:
            staged = cls.from_fields(fields)
        return staged

    @classmethod
    def from_fields(cls, fields: Fields) -> Staged:
        """Of a row that holds more than the stages."""
        keyword, verdict = fields.text_or_none("keyword"), fields.text_or_none("verdict")
        judge = fields.raw("judge")
        at = fields.path("judge")
        if keyword not in ("refuse", "comply", None):
            raise MalformedInputError(
                fields.path("keyword"), expected="refuse, comply or null", found=keyword
            )
        staged = cls(
            keyword=cast("Keyword | None", keyword),
            judge=None if judge is None else Verdict.from_dict(judge, at),
        )
        if staged.keyword is None and staged.judge is not None:
            raise MalformedInputError(at, expected="null where nothing was read", found="a verdict")
        if staged.verdict != verdict:
            raise MalformedInputError(
                fields.path("verdict"),
                problem="does not follow from the two stages",
                expected=staged.verdict,
                found=verdict,
            )
        return staged


UNREAD: Final = Staged(keyword=None, judge=None)


def keyword_label(text: str, *, is_thinking: bool = False) -> Keyword:
    """The first stage."""
    refuses = is_planned_refusal(text) if is_thinking else is_keyword_refusal(text)
    return "refuse" if refuses else "comply"


def two_stage(texts: Sequence[Spoken], rubric: Rubric | None, ask: Ask | None) -> dict[str, Staged]:
    """Both stages of every text, by key. ``ask`` is a judge's; None for the rule alone.

    Raises RuntimeError if the judge does not give one verdict for each request, in order.
    """
    if ask is None or rubric is None:
        return {
            one.key: Staged(
                keyword=keyword_label(one.text, is_thinking=one.is_thinking), judge=None
            )
            for one in texts
        }
    verdicts = ask(
        [
            JudgeRequest(key=one.key, question=one.question, answer=one.text, rubric=rubric)
            for one in texts
        ]
    )
    if [verdict.key for verdict in verdicts] != [one.key for one in texts]:
        raise RuntimeError("a judge must give one verdict for each request, in order")
    return {
        one.key: Staged(keyword=keyword_label(one.text, is_thinking=one.is_thinking), judge=verdict)
        for one, verdict in zip(texts, verdicts, strict=True)
    }


def disagreements(staged: Mapping[str, Staged]) -> tuple[str, ...]:
    """Keys on which the stages differ, in order."""
    return tuple(key for key, one in staged.items() if one.differs)


def stage_agreement(
    staged: Iterable[Staged],
    *,
    rng: np.random.Generator,
    n_resamples: int = 2000,
    confidence_level: float = 0.95,
) -> Agreement:
    """The rule (columns) against the judge (rows) on texts of which both spoke, each text by
    itself."""
    pairs = [
        (one.judge.label, one.keyword)
        for one in staged
        if one.judge is not None and one.judge.label is not None and one.keyword is not None
    ]
    return agreement(
        [judged for judged, _ in pairs],
        [rule for _, rule in pairs],
        LABELS,
        clusters=range(len(pairs)),
        rng=rng,
        n_resamples=n_resamples,
        confidence_level=confidence_level,
    )
