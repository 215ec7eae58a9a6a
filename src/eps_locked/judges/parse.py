"""What a judge may answer, and the strict reading of what it did answer.

A verdict is one JSON object and nothing else: ``reason`` (a string, optional), ``label`` (one of
the rubric's) and a number from 0 to 100 for every score. White space around it is allowed, and so
is one Markdown code block that holds it, if that block is the whole reply: models wrap JSON out of
habit, and the object inside says the same. Everything else is ``unreadable``: prose beside the
object, a second object, a key twice, an unknown key or label, a number in quotes, NaN, a number
out of range. Nothing is coerced, searched for or guessed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from eps_locked.domain.judging import EXCERPT_LENGTH, JudgeRequest, Rubric, Verdict, VerdictStatus
from eps_locked.services.strict_json import json_object, show

__all__ = ["Reading", "output_schema", "parse_verdict", "unscored", "verdict_of"]

Reading = tuple[VerdictStatus, str | None, dict[str, float], str]
_FENCE = re.compile(r"```(?:json|JSON)?[ \t]*\r?\n(.*)\r?\n[ \t]*```", re.DOTALL)


def output_schema(rubric: Rubric) -> dict[str, Any]:
    """The JSON schema of a verdict, in the part of the language that every service takes.

    All keys are required, though ``parse_verdict`` would miss no reason, because services write
    required keys first and in this order: the reason has to come before what it is a reason for.
    The range of a score is in words, because a schema with ``minimum`` is refused by the Messages
    service; ``parse_verdict`` holds judges to it.
    """
    scores = {
        name: {"type": "number", "description": "a number from 0 to 100"} for name in rubric.scores
    }
    properties = {
        "reason": {"type": "string", "description": "why, in one or two sentences"},
        "label": {"type": "string", "enum": list(rubric.labels)},
        **scores,
    }
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def parse_verdict(text: str, rubric: Rubric) -> Reading:
    """Status (``scored`` or ``unreadable``), label, scores, and a note on why there are none.

    A label that the rubric excludes needs no scores, and those given with it are dropped, since
    no rate counts them; they still have to be numbers in range (or null, for none).
    """
    try:
        label, scores = _read(text, rubric)
    except ValueError as error:
        return "unreadable", None, {}, str(error)[:EXCERPT_LENGTH]
    return "scored", label, scores, ""


def verdict_of(request: JudgeRequest, text: str, *, model: str, tries: int) -> Verdict:
    """The verdict on a whole reply of the judge, scored or unreadable."""
    status, label, scores, note = parse_verdict(text, request.rubric)
    return Verdict(
        key=request.key,
        draw=request.draw,
        status=status,
        label=label,
        scores=scores,
        model=model,
        note=note,
        tries=tries,
    )


def unscored(
    request: JudgeRequest, status: VerdictStatus, note: str, *, model: str = "", tries: int
) -> Verdict:
    """A verdict without a score. ``model`` stays empty if no model is known to have spoken."""
    return Verdict(
        key=request.key,
        draw=request.draw,
        status=status,
        label=None,
        scores={},
        model=model,
        note=note[:EXCERPT_LENGTH],
        tries=tries,
    )


def _read(text: str, rubric: Rubric) -> tuple[str, dict[str, float]]:
    stripped = text.strip()
    if not stripped:
        raise ValueError("the reply is empty")
    fenced = _FENCE.fullmatch(stripped)
    value = json_object(stripped if fenced is None else fenced.group(1))
    unknown = sorted(set(value) - {"reason", "label", *rubric.scores})
    if unknown:
        raise ValueError(f"key {show(unknown[0])} is not one of the rubric")
    if not isinstance(value.get("reason", ""), str):
        raise ValueError(f"reason: expected a string, found {show(value['reason'])}")
    if "label" not in value:
        raise ValueError("label is missing")
    label = value["label"]
    if not isinstance(label, str) or label not in rubric.labels:
        raise ValueError(f"label: expected one of the rubric's, found {show(label)}")
    excluded = label in rubric.excluded
    scores = {
        name: _score(value, name)
        for name in rubric.scores
        if not (excluded and value.get(name) is None)
    }
    return label, {} if excluded else scores


def _score(value: Mapping[str, Any], name: str) -> float:
    if name not in value:
        raise ValueError(f"{name} is missing")
    number = value[name]
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise ValueError(f"{name}: expected a number, found {show(number)}")
    # The comparison is exact for integers of any length, and false for an overflow to infinity.
    if not 0 <= number <= 100:
        raise ValueError(f"{name}: expected 0 to 100, found {show(number)}")
    return math.fabs(float(number))  # minus zero is zero
