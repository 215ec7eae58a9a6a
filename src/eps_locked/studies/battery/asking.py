"""Asking one model one axis, and judging what it says, in one step: texts that are not to be kept
are read here and go no further than counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from eps_locked.domain.chat import ChatReply
from eps_locked.domain.judging import JudgeRequest, Verdict
from eps_locked.errors import MalformedInputError
from eps_locked.judges.transport import require_transport
from eps_locked.studies.battery.axes import FrozenItem
from eps_locked.studies.battery.classify import AskJudge, classify
from eps_locked.studies.battery.derive import AskDesign, expected_status
from eps_locked.studies.battery.endpoints import require_enough
from eps_locked.studies.battery.records import Answer, AskRecord, Counts, text_digest
from eps_locked.studies.battery.task import Task
from eps_locked.studies.battery.tools import read_calls
from eps_locked.studies.battery.verdicts import Verdicts

__all__ = ["answer_of", "ask"]


def ask(task: Task) -> AskRecord:
    """Every item of the step's axis, once, of the step's model; judged.

    Raises BackendError if more replies or verdicts were lost on the line than the plan allows.
    """
    design = AskDesign.of(task.step, task.inputs, task.section)
    requests = design.requests()
    task.progress(f"{len(requests)} requests to {design.model.name}")
    with task.hands.endpoint(design.model, task.adapter) as endpoint:
        identity = endpoint.identity(design.model.route)
        replies = endpoint.ask(requests)
    if [reply.key for reply in replies] != [request.key for request in requests]:
        raise RuntimeError("an endpoint must give one reply for each request, in order")
    require_enough(task.section.endpoint(design.model.endpoint), design.model, replies)
    answers = tuple(map(answer_of, design.axis.items, replies))
    rows = classify(design, answers, _judge(task, design))
    judge = None if design.judge is None else task.hands.judge(design.judge.name)
    kept = design.axis.benign
    return AskRecord(
        model=design.model.name,
        axis=design.axis.axis,
        thinking=design.thinking,
        endpoint=identity.to_dict(),
        request=design.request,
        answers=answers if kept else (),
        counts=None
        if kept
        else Counts.of([one.status for one in answers], [row.verdict for row in rows]),
        verdicts=Verdicts(
            judge=None if judge is None else judge.identity.to_dict(),
            rubric=None if judge is None or design.rubric is None else design.rubric.digest,
            rows=rows if kept else (),
        ),
    )


def answer_of(item: FrozenItem, reply: ChatReply) -> Answer:
    """A reply as it is recorded. Nothing of it is mended: what is not a reply keeps its status."""
    status, note, message = str(reply.status), reply.note, None
    if reply.is_answered and item.case is not None:
        try:
            message = _message(reply)
        except MalformedInputError as error:
            # The server's fault, which says nothing about the model.
            status, note = "unreadable", str(error)[:200]
    answer = Answer(
        item=item.id,
        status=status,
        text=reply.content,
        digest=text_digest(reply.content),
        reasoning=reply.reasoning,
        reasoning_digest=text_digest(reply.reasoning),
        message=message,
        finish_reason=reply.finish_reason,
        model=reply.model,
        n_prompt_tokens=reply.n_prompt_tokens,
        n_completion_tokens=reply.n_completion_tokens,
        tries=reply.tries,
        note=note,
    )
    if not answer.is_answered:
        return answer
    if not answer.text.strip() and not (message and message["tool_calls"]):
        return replace(answer, status="empty", note="a reply of nothing but space")
    return replace(answer, status=expected_status(answer))


def _message(reply: ChatReply) -> dict[str, Any]:
    """The assistant's content and calls in the form of the chat API, and nothing else."""
    calls = read_calls(reply.message or {})
    raw: Sequence[Mapping[str, Any]] = (reply.message or {}).get("tool_calls") or ()
    return {
        "role": "assistant",
        "content": reply.content,
        "tool_calls": [
            {
                "type": "function",
                "function": {"name": call.name, "arguments": one["function"]["arguments"]},
            }
            for call, one in zip(calls, raw, strict=True)
        ],
    }


def _judge(task: Task, design: AskDesign) -> AskJudge | None:
    plan = design.judge
    if plan is None:
        return None
    judge = task.hands.judge(plan.name)

    def ask_judge(requests: Sequence[JudgeRequest]) -> Sequence[Verdict]:
        task.progress(f"{len(requests)} verdicts of {plan.name}")
        if not requests:
            return ()
        # The step's name makes a request distinct in the judge's own books; rows go by item.
        asked = [replace(one, key=f"{task.step.id}/{one.key}") for one in requests]
        verdicts = judge.judge(asked)
        if [one.key for one in verdicts] != [one.key for one in asked]:
            raise RuntimeError("a judge must give one verdict for each request, in order")
        require_transport(plan, verdicts)
        return [replace(v, key=one.key) for v, one in zip(verdicts, requests, strict=True)]

    return ask_judge
