"""What the records of asking must say, from frozen requests and stored replies alone.

The run's steps and the audit call the same functions; none calls a model or a judge.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from eps_locked.canonical import encode
from eps_locked.domain.chat import ChatRequest
from eps_locked.domain.execution import StepInputs
from eps_locked.domain.judging import JudgePlan, Rubric
from eps_locked.domain.ledger import Status
from eps_locked.domain.steps import Step
from eps_locked.judges.language import why_other_language
from eps_locked.judges.refusals import UNREAD, Spoken, Staged
from eps_locked.studies.battery.answers import score_answer
from eps_locked.studies.battery.axes import FrozenAxis, FrozenItem
from eps_locked.studies.battery.parts import Thinking
from eps_locked.studies.battery.plan import BatteryPlan, ModelPlan
from eps_locked.studies.battery.power import power_document
from eps_locked.studies.battery.records import OTHER_LANGUAGE, Answer, AskRecord, SpeedRecord
from eps_locked.studies.battery.tools import score_calls
from eps_locked.studies.battery.verdicts import CapabilityRow, ToolsRow
from eps_locked.studies.common.judging import read_rubric

__all__ = [
    "POWER_FILE",
    "AskDesign",
    "SpeedDesign",
    "answer_key",
    "ask_flags",
    "ask_status",
    "capability_row",
    "expected_status",
    "heading_differences",
    "judged_question",
    "power_files",
    "speed_flags",
    "speed_status",
    "spoken",
    "thinking_key",
    "thinking_of",
    "tools_row",
]


POWER_FILE: Final = "power.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class AskDesign:
    """How one model is asked one axis, and who reads its replies.

    ``heading`` is what the endpoint's identity must say; ``request`` how every item is asked.
    ``rubric`` is None for axes that rules decide, ``judge`` also where the plan has none.
    """

    model: ModelPlan
    heading: Mapping[str, Any]
    axis: FrozenAxis
    thinking: Thinking
    rubric: Rubric | None
    judge: JudgePlan | None
    minimum_scored_share: float
    request: dict[str, Any]

    @classmethod
    def of(cls, step: Step, inputs: StepInputs, section: BatteryPlan) -> AskDesign:
        axis = FrozenAxis.read(inputs.frozen("axis"), "frozen axis")
        model, thinking = section.model(step.params["model"]), step.params["thinking"]
        rubric = read_rubric(inputs.frozen("rubric")) if "rubric" in step.inputs else None
        share = section.axis(step.params["axis"]).minimum_scored_share
        assert share is not None
        return cls(
            model=model,
            heading=_heading(step, inputs, section, model),
            axis=axis,
            thinking=cast(Thinking, thinking),
            rubric=rubric,
            judge=_judge(section, axis.axis),
            minimum_scored_share=share,
            request=_request(section, model, thinking, section.decoding.max_tokens),
        )

    def requests(self) -> tuple[ChatRequest, ...]:
        """One for each frozen item, in its order."""
        return chat_requests(self.axis.items, self.model, self.request)


@dataclass(frozen=True, kw_only=True, slots=True)
class SpeedDesign:
    """What one model is timed on; see AskDesign."""

    model: ModelPlan
    heading: Mapping[str, Any]
    axis: FrozenAxis
    request: dict[str, Any]

    @classmethod
    def of(cls, step: Step, inputs: StepInputs, section: BatteryPlan) -> SpeedDesign:
        model, rules = section.model(step.params["model"]), section.axis("speed")
        assert rules.max_tokens is not None
        return cls(
            model=model,
            heading=_heading(step, inputs, section, model),
            axis=FrozenAxis.read(inputs.frozen("axis"), "frozen axis"),
            request=_request(section, model, section.speed_thinking, rules.max_tokens),
        )

    @property
    def n_timed(self) -> int:
        return len(self.axis.items) - self.axis.n_warmup

    def requests(self) -> tuple[ChatRequest, ...]:
        """The warm-up first."""
        return chat_requests(self.axis.items, self.model, self.request)


def chat_requests(
    items: Sequence[FrozenItem], model: ModelPlan, request: dict[str, Any]
) -> tuple[ChatRequest, ...]:
    return tuple(
        ChatRequest(
            key=item.id,
            model=model.route,
            messages=item.messages,
            max_tokens=request["max_tokens"],
            temperature=request["temperature"],
            top_p=request["top_p"],
            seed=request["seed"],
            tools=item.tools,
            extra=request["extra"],
            stream=model.stream,
        )
        for item in items
    )


def _heading(
    step: Step, inputs: StepInputs, section: BatteryPlan, model: ModelPlan
) -> dict[str, Any]:
    """What the identity of a model's endpoint must say: of our own server also which adapter."""
    kind = section.endpoint(model.endpoint).kind
    heading: dict[str, Any] = {"kind": kind, "model": model.route}
    if kind == "serve":
        worn = inputs.artifact_digest("adapter") if "adapter" in step.inputs else "none"
        heading["said.eps_locked.adapter_digest"] = worn
    return heading


def heading_differences(heading: Mapping[str, Any], endpoint: Mapping[str, Any]) -> list[str]:
    """Whether the endpoint that answered is the one that had to."""
    said = endpoint.get("said")
    found = {
        **{f"said.{name}": text for name, text in dict(said or {}).items()},
        "kind": endpoint.get("kind"),
        "model": endpoint.get("model"),
    }
    return [
        f"endpoint.{name}: expected {expected}, found {found.get(name)}"
        for name, expected in heading.items()
        if found.get(name) != expected
    ]


def _request(
    section: BatteryPlan, model: ModelPlan, thinking: str, max_tokens: int
) -> dict[str, Any]:
    return {
        "max_tokens": max_tokens,
        "temperature": section.decoding.temperature,
        "top_p": section.decoding.top_p,
        "seed": section.decoding.seed,
        "extra": dict(model.extra(thinking)),
    }


def _judge(section: BatteryPlan, axis: str) -> JudgePlan | None:
    rules = section.agreement if axis == "sycophancy" else section.refusal
    if axis in ("capability", "tools") or rules is None or rules.judge is None:
        return None
    return section.judge(rules.judge)


# What a judge or a rule is shown.


def answer_key(item: str) -> str:
    """How a judge's request about an answer is called."""
    return item


def thinking_key(item: str) -> str:
    return f"{item}/thinking"


def judged_question(item: FrozenItem) -> str:
    """What the user said; under a false premise also what is false about it, which the judge may
    not know."""
    if item.premise is None:
        return item.asked
    return f"{item.asked}\n\nTaken for granted: {item.premise}\nTrue instead: {item.reference}"


def expected_status(answer: Answer) -> str:
    """The status of a whole reply by what is stored of it: ``answered`` or ``other_language``.

    A reply that calls tools is read by its calls, whatever it says beside them.
    """
    calls = answer.message is not None and answer.message.get("tool_calls")
    return "answered" if calls or why_other_language(answer.text) is None else OTHER_LANGUAGE


def spoken(items: Sequence[FrozenItem], answers: Sequence[Answer]) -> tuple[Spoken, ...]:
    """Every text that both stages of the refusal reading are asked about: answers, then thoughts.

    Of replies that were not answered neither is read: what was thought on the way to no answer is
    no half of a pair.
    """
    whole = [
        (item, answer) for item, answer in zip(items, answers, strict=True) if answer.is_answered
    ]
    said = [
        Spoken(key=answer_key(item.id), question=judged_question(item), text=answer.text)
        for item, answer in whole
    ]
    thought = [
        Spoken(
            key=thinking_key(item.id),
            question=judged_question(item),
            text=answer.reasoning,
            is_thinking=True,
        )
        for item, answer in whole
        if _is_readable(answer.reasoning)
    ]
    return (*said, *thought)


def thinking_of(answer: Answer, staged: Staged | None) -> Staged | None:
    """What stands beside an answer about the thoughts before it: None where there were none, and
    nothing read of thoughts in another language."""
    if not answer.is_answered or not answer.reasoning.strip():
        return None
    return UNREAD if staged is None else staged


def _is_readable(reasoning: str) -> bool:
    return bool(reasoning.strip()) and why_other_language(reasoning) is None


# Rows that follow from what is stored.


def capability_row(item: FrozenItem, answer: Answer) -> CapabilityRow:
    assert item.rule is not None
    if not answer.is_answered:
        return CapabilityRow(item=item.id, outcome=None, reason=answer.status, stated=None)
    scored = score_answer(answer.text, item.rule)
    return CapabilityRow(
        item=item.id, outcome=scored.verdict, reason=scored.reason, stated=scored.stated
    )


def tools_row(item: FrozenItem, answer: Answer) -> ToolsRow:
    assert item.case is not None
    if not answer.is_answered or answer.message is None:
        return ToolsRow(item=item.id, case=item.case.kind, outcome=None, reason=answer.status)
    scored = score_calls(answer.message, item.case)
    return ToolsRow(item=item.id, case=item.case.kind, outcome=scored.verdict, reason=scored.reason)


def power_files(step: Step, inputs: StepInputs, section: BatteryPlan) -> dict[str, bytes]:
    """What can be told apart with so many items of each axis, before anything is asked."""
    counts = {
        axis.axis: len(FrozenAxis.read(inputs.frozen(name), name).items)
        for axis in section.rate_axes
        if (name := f"axis:{axis.axis}") in step.inputs
    }
    return {POWER_FILE: encode(power_document(section, counts))}


# What the ledger says of a step.


def ask_status(record: AskRecord, minimum_scored_share: float) -> Status:
    """``unscored`` where fewer items than the plan's share have a verdict."""
    share = record.n_scored / record.n_items if record.n_items else 0.0
    return "done" if share >= minimum_scored_share else "unscored"


def ask_flags(record: AskRecord, minimum_scored_share: float) -> tuple[str, ...]:
    """What whoever reads the verdicts must know, in a fixed order."""
    statuses = record.statuses
    flags = {
        f"missing_replies:{record.axis}": any(
            statuses[name] for name in ("empty", "unreadable", "rate_limited", "outage", "filtered")
        ),
        f"truncated_replies:{record.axis}": statuses["truncated"] > 0,
        f"{OTHER_LANGUAGE}:{record.axis}": statuses[OTHER_LANGUAGE] > 0,
        f"unscored_share:{record.axis}": ask_status(record, minimum_scored_share) == "unscored",
    }
    return tuple(name for name, is_set in flags.items() if is_set)


def speed_status(record: SpeedRecord) -> Status:
    """``unscored`` where nothing could be timed."""
    return "done" if any(row.is_timed for row in record.rows) else "unscored"


def speed_flags(record: SpeedRecord) -> tuple[str, ...]:
    return () if all(row.is_timed for row in record.rows) else ("missing_replies:speed",)
