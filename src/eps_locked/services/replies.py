"""How what came over the wire becomes one reply of a chat, and how the lost ones are counted.

The finish reasons ``stop`` and ``tool_calls`` are ``answered``, unless nothing but thoughts came:
``empty``. ``length`` is ``truncated``, and so is HTTP 400 for a request that has no room in the
model's context. ``content_filter`` and HTTP 400 from a content filter are ``filtered``. Any other
finish reason is ``unreadable``, and so is a reply that quotes the key, of which nothing is kept.

A filled ``refusal`` is the model's own words and is part of what it said: a battery that left it
out would miss the refusals that it counts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from eps_locked.domain.chat import ChatReply, ChatRequest, ChatStatus
from eps_locked.services.completion import Completion, ErrorInReplyError, read_completion
from eps_locked.services.errors import read_error
from eps_locked.services.line import Attempt, Line
from eps_locked.services.rules import LineRules, require_share
from eps_locked.services.stream import BrokenOffError, read_stream
from eps_locked.services.strict_json import show
from eps_locked.services.thinking import split_thinking

__all__ = ["SERVICE", "read_reply", "reply_of", "require_replies", "settled", "without_answer"]

SERVICE = "endpoint"
_LOST = frozenset({"rate_limited", "outage"})
_WHOLE = frozenset({"stop", "tool_calls"})
_CODES = {"rate_limit_exceeded": 429}  # said in a body in place of a number


def read_reply(body: bytes, *, stream: bool) -> Completion:
    """A completion in the form that was asked for, or in one piece from a service that does not
    stream. Raises ValueError."""
    in_pieces = stream and not body.lstrip().startswith(b"{")
    return read_stream(body) if in_pieces else read_completion(body)


def settled(attempt: Attempt, *, stream: bool) -> Attempt:
    """The attempt as it would be if all services spoke of trouble in the HTTP status.

    A stream that ended before its finish reason is no whole reply, whether or not the transfer
    ended well; one that broke after it is whole. An error in a body of status 200, or among the
    pieces of a stream, counts as if it had come with its code as the status, 500 without one.
    """
    came_well = attempt.status is not None and 200 <= attempt.status < 300
    if not came_well and not (attempt.status is None and stream and attempt.body):
        return attempt
    try:
        read_reply(attempt.body, stream=stream)
    except BrokenOffError as error:
        problem = f"{error} ({attempt.problem})" if attempt.problem else str(error)
        return replace(attempt, status=None, problem=problem)
    except ErrorInReplyError as error:
        body = json.dumps(error.value).encode()
        return replace(attempt, status=_status_of(error.value), body=body)
    except ValueError:
        return attempt  # the line reads it again, and says what is wrong with it
    return replace(attempt, status=200)


def reply_of(
    request: ChatRequest,
    completion: Completion,
    line: Line[ChatStatus],
    *,
    tries: int,
    seconds: float,
    first_token_seconds: float | None,
) -> ChatReply:
    """The reply that a whole completion is."""
    spoken, blocks = split_thinking(completion.text("content"))
    content = "\n\n".join(text for text in (spoken, completion.text("refusal")) if text)
    reasoning = "\n\n".join([*_told_apart(completion), *blocks])
    status, note = _status(completion, content)
    reply = ChatReply(
        key=request.key,
        status=status,
        content=content,
        reasoning=reasoning,
        message=completion.message,
        finish_reason=completion.finish_reason,
        model=completion.model,
        n_prompt_tokens=completion.n_prompt_tokens,
        n_completion_tokens=completion.n_completion_tokens,
        first_token_seconds=first_token_seconds,
        seconds=seconds,
        tries=tries,
        note=line.clean(note),
    )
    return _without_key(request, reply, line)


def without_answer(
    request: ChatRequest, status: ChatStatus, note: str, *, tries: int, seconds: float
) -> ChatReply:
    """A reply that holds none. No model is known to have spoken."""
    return ChatReply(
        key=request.key,
        status=status,
        content="",
        reasoning="",
        message=None,
        finish_reason=None,
        model="",
        n_prompt_tokens=None,
        n_completion_tokens=None,
        first_token_seconds=None,
        seconds=seconds,
        tries=tries,
        note=note,
    )


def require_replies(rules: LineRules, replies: Sequence[ChatReply]) -> None:
    """Raises BackendError if too many replies of one call were lost on the line to be recorded.

    Lost is also what was no reply at all, a proxy's page, say; a reply that merely ended in an
    unknown way is a reply.
    """
    lost = [
        (one.status, one.note)
        for one in replies
        if one.status in _LOST or (one.status == "unreadable" and one.message is None)
    ]
    require_share(rules, lost, len(replies), service=SERVICE, what="replies")


def _told_apart(completion: Completion) -> list[str]:
    """The thoughts that the service itself keeps apart, which some send under both names."""
    texts = [completion.text(name).strip() for name in ("reasoning_content", "reasoning")]
    return [text for text in dict.fromkeys(texts) if text]


def _status(completion: Completion, content: str) -> tuple[ChatStatus, str]:
    reason = completion.finish_reason
    note = f"finish reason {show(reason)}"
    if reason == "content_filter":
        return "filtered", note
    if reason == "length":
        return "truncated", note
    if reason not in _WHOLE:
        return "unreadable", note
    if reason == "tool_calls" and not completion.calls:
        return "unreadable", f"{note}, without a tool call"
    if not content.strip() and not completion.calls:
        return "empty", f"{note}, without a text outside its thoughts"
    return "answered", ""


def _without_key(request: ChatRequest, reply: ChatReply, line: Line[ChatStatus]) -> ChatReply:
    """An answer with the key struck out would be another answer, so there is none."""
    told = [reply.message, reply.model, reply.finish_reason, reply.content, reply.reasoning]
    if all(line.strike(text) == text for text in _texts(told)):
        return reply
    note = "the reply quoted the key, so that nothing of it was kept"
    return without_answer(request, "unreadable", note, tries=reply.tries, seconds=reply.seconds)


def _texts(value: object) -> Iterator[str]:
    """Every text in a JSON value, names included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for name, one in value.items():
            yield name
            yield from _texts(one)
    elif isinstance(value, list):
        for one in value:
            yield from _texts(one)


def _status_of(value: Mapping[str, object]) -> int:
    error = value["error"]
    code = error.get("code") if isinstance(error, Mapping) else None
    if isinstance(code, str) and code.isascii() and code.isdigit():
        code = int(code)
    if type(code) is int and 400 <= code <= 599:
        return code
    said = read_error(value)
    if said.is_filter or said.is_too_long:
        return 400
    return _CODES.get(code, 500) if isinstance(code, str) else 500
