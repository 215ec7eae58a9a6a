"""What the Messages service is asked, alone or in a batch, and how its reply becomes a verdict.

``refusal`` is ``judge_refused``; ``max_tokens`` and ``model_context_window_exceeded`` are
``truncated``; ``end_turn`` is read by ``parse_verdict``; any other stop reason is ``unreadable``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eps_locked.domain.judging import JudgePlan, JudgeRequest, Verdict, VerdictStatus
from eps_locked.judges.parse import output_schema, unscored, verdict_of

__all__ = ["message_params", "read_message", "verdict_of_message"]

_STOPPED_SHORT: Mapping[str, VerdictStatus] = {
    "refusal": "judge_refused",
    "max_tokens": "truncated",
    "model_context_window_exceeded": "truncated",
}


def message_params(plan: JudgePlan, request: JudgeRequest) -> dict[str, Any]:
    """The body of one request."""
    schema = {"type": "json_schema", "schema": output_schema(request.rubric)}
    config = (
        {"format": schema} if plan.effort is None else {"effort": plan.effort, "format": schema}
    )
    return {
        "model": plan.model,
        "max_tokens": request.rubric.max_tokens,
        "messages": [
            {"role": "user", "content": request.rubric.ask(request.question, request.answer)}
        ],
        "output_config": config,
    }


def read_message(value: object) -> Mapping[str, Any]:
    """The message, if it is one. Raises ValueError, as ``Line.send`` wants it."""
    if not isinstance(value, Mapping) or value.get("type") != "message":
        raise ValueError("no message in it")
    if not isinstance(value.get("model"), str) or not isinstance(value.get("content"), list):
        raise ValueError("a message without model or content")
    if not all(isinstance(block, Mapping) for block in value["content"]):
        raise ValueError("a message whose content is not made of blocks")
    return value


def verdict_of_message(request: JudgeRequest, message: Mapping[str, Any], tries: int) -> Verdict:
    """The text blocks joined are the reply; thinking is not part of it."""
    model, stop_reason = message["model"], message.get("stop_reason")
    if stop_reason == "end_turn":
        texts = [block.get("text") for block in message["content"] if block.get("type") == "text"]
        if all(isinstance(text, str) for text in texts):
            return verdict_of(request, "".join(texts), model=model, tries=tries)
        return unscored(
            request, "unreadable", "a text block without text", model=model, tries=tries
        )
    status = _STOPPED_SHORT.get(stop_reason) if isinstance(stop_reason, str) else None
    note = f"stop reason {stop_reason!a}{_category(message)}"
    return unscored(request, status or "unreadable", note, model=model, tries=tries)


def _category(message: Mapping[str, Any]) -> str:
    details = message.get("stop_details")
    category = details.get("category") if isinstance(details, Mapping) else None
    return f", category {category!a}" if isinstance(category, str) else ""
