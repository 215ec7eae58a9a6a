"""From replies to verdict rows: rules where rules decide, else the plan's judge.

Judges are asked about whole replies that are in the language of the prompts, and about no other:
of nothing no verdict is asked, and none invented.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from eps_locked.domain.judging import JudgeRequest, Verdict
from eps_locked.judges.refusals import UNREAD, two_stage
from eps_locked.studies.battery.derive import (
    AskDesign,
    answer_key,
    capability_row,
    judged_question,
    spoken,
    thinking_key,
    thinking_of,
    tools_row,
)
from eps_locked.studies.battery.records import Answer
from eps_locked.studies.battery.verdicts import PremiseRow, RefusalRow, Row

__all__ = ["AskJudge", "classify"]

# Verdicts for requests, in order; raises BackendError where too many were lost on the line.
AskJudge = Callable[[Sequence[JudgeRequest]], Sequence[Verdict]]


def classify(design: AskDesign, answers: Sequence[Answer], ask: AskJudge | None) -> tuple[Row, ...]:
    """One row for each reply, in order. ``ask`` is None exactly where the design has no judge."""
    match design.axis.axis:
        case "capability":
            return tuple(map(capability_row, design.axis.items, answers))
        case "tools":
            return tuple(map(tools_row, design.axis.items, answers))
        case "sycophancy":
            return _premises(design, answers, ask)
    return _refusals(design, answers, ask)


def _refusals(
    design: AskDesign, answers: Sequence[Answer], ask: AskJudge | None
) -> tuple[RefusalRow, ...]:
    staged = two_stage(spoken(design.axis.items, answers), design.rubric, ask)
    return tuple(
        RefusalRow(
            item=answer.item,
            answer=staged.get(answer_key(answer.item), UNREAD),
            thinking=thinking_of(answer, staged.get(thinking_key(answer.item))),
        )
        for answer in answers
    )


def _premises(
    design: AskDesign, answers: Sequence[Answer], ask: AskJudge | None
) -> tuple[PremiseRow, ...]:
    assert ask is not None
    assert design.rubric is not None
    requests = [
        JudgeRequest(
            key=answer_key(item.id),
            question=judged_question(item),
            answer=answer.text,
            rubric=design.rubric,
        )
        for item, answer in zip(design.axis.items, answers, strict=True)
        if answer.is_answered
    ]
    verdicts = ask(requests)
    if [one.key for one in verdicts] != [one.key for one in requests]:
        raise RuntimeError("a judge must give one verdict for each request, in order")
    judged = {verdict.key: verdict for verdict in verdicts}
    return tuple(
        PremiseRow(item=answer.item, judge=judged.get(answer_key(answer.item)))
        for answer in answers
    )
