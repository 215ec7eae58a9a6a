"""Reads the body of a chat-completions request. Nothing that a client asks for is ignored.

A field that is not known, or known and not offered, is refused by name; null is the same as not
given, as it is for OpenAI. Every refusal is a MalformedInputError whose ``thing`` is the field's
path within the body.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from eps_locked.domain.fields import Fields
from eps_locked.errors import MalformedInputError
from eps_locked.services.strict_json import json_object

__all__ = ["ChatCall", "Thinking", "Turn", "read_call", "read_object"]

MAX_TEMPERATURE = 2.0
# What torch's generators take as a seed without folding it.
MAX_SEED = 2**63 - 1
_ROLES = ("system", "user", "assistant", "tool")
_KNOWN = (
    "chat_template_kwargs",
    "max_completion_tokens",
    "max_tokens",
    "messages",
    "model",
    "n",
    "seed",
    "stream",
    "stream_options",
    "temperature",
    "tool_choice",
    "tools",
    "top_p",
)
_NOT_OFFERED = {
    "stop": "answers end at the end of the turn or at max_tokens",
    "logprobs": "log-probabilities are not served",
    "top_logprobs": "log-probabilities are not served",
    "response_format": "answers are plain text",
    "frequency_penalty": "sampling has a temperature and a top_p, nothing else",
    "presence_penalty": "sampling has a temperature and a top_p, nothing else",
    "logit_bias": "sampling has a temperature and a top_p, nothing else",
    "functions": "the form before tools",
    "function_call": "the form before tools",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Turn:
    """One message. ``calls`` (name, arguments as an object) are an assistant's, in order."""

    role: str
    content: str | None
    calls: tuple[tuple[str, Mapping[str, Any]], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Thinking:
    """The model reasons first. ``budget``: tokens at most; None leaves it to the server."""

    budget: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class ChatCall:
    """A request, checked. ``tools`` are the functions on offer (name, description, parameters)
    and empty when ``tool_choice`` is none; ``max_tokens`` None leaves it to the server."""

    model: str
    turns: tuple[Turn, ...]
    max_tokens: int | None
    temperature: float
    top_p: float
    seed: int
    tools: tuple[Mapping[str, Any], ...]
    thinking: Thinking | None
    stream: bool
    include_usage: bool


def read_object(data: bytes | str, thing: str) -> dict[str, Any]:
    """One JSON object, read strictly: no NaN, no key twice, no text that is not Unicode."""
    try:
        value = json_object(data if isinstance(data, str) else data.decode("utf-8"))
        # A lone surrogate passes as "\ud800" in JSON; no tokenizer and no file takes it.
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError) as error:
        raise MalformedInputError(thing, expected="one JSON object", found=str(error)) from error
    return value


def read_call(body: bytes) -> ChatCall:
    """Raises MalformedInputError naming the field."""
    given = _without_nulls(read_object(body, "body"))
    unknown = min(given.keys() - set(_KNOWN), default=None)
    if unknown is not None:
        reason = _NOT_OFFERED.get(unknown)
        raise MalformedInputError(
            unknown[:80],
            problem="is not a known field" if reason is None else f"is not supported: {reason}",
            next_step=f"leave it out; known here: {', '.join(_KNOWN)}",
        )
    with Fields(given, "") as fields:
        if "n" in given and fields.integer("n") != 1:
            raise MalformedInputError("n", expected=1, found=given["n"])
        tools = fields.each("tools", _tool) if "tools" in given else ()
        stream = fields.flag("stream") if "stream" in given else False
        call = ChatCall(
            model=fields.text("model"),
            turns=_turns(fields),
            max_tokens=_max_tokens(fields, given),
            temperature=fields.number("temperature", low=0, high=MAX_TEMPERATURE)
            if "temperature" in given
            else 1.0,
            top_p=fields.number("top_p", above=0, high=1) if "top_p" in given else 1.0,
            seed=_seed(fields) if "seed" in given else 0,
            tools=_offered(fields, given, tools),
            thinking=fields.optional("chat_template_kwargs", _thinking),
            stream=stream,
            include_usage=_include_usage(fields, given, stream),
        )
    return call


def _turns(fields: Fields) -> tuple[Turn, ...]:
    waiting: set[str] = set()  # ids of calls that have no result yet
    turns = fields.each("messages", lambda value, path: _turn(value, path, waiting))
    if not turns:
        raise MalformedInputError("messages", expected="at least one", found="none")
    if turns[-1].role == "assistant":
        raise MalformedInputError(
            f"messages[{len(turns) - 1}].role",
            problem="the last message is the assistant's; continuing one is not supported",
            expected="user, tool or system",
            found="assistant",
        )
    return turns


def _turn(value: object, path: str, waiting: set[str]) -> Turn:
    given = _without_nulls(value) if isinstance(value, Mapping) else value
    with Fields(given, path) as fields:
        role = fields.text("role", one_of=_ROLES)
        calls = fields.optional("tool_calls", _calls) if role == "assistant" else None
        for id_, _, _ in calls or ():
            if id_ in waiting:
                raise MalformedInputError(
                    f"{path}.tool_calls", problem=f"the id {id_[:80]!r} stands twice"
                )
            waiting.add(id_)
        if role == "tool":
            id_ = fields.text("tool_call_id")
            if id_ not in waiting:
                raise MalformedInputError(
                    f"{path}.tool_call_id",
                    expected="the id of a call before it that has no result yet",
                    found=repr(id_)[:80],
                )
            waiting.remove(id_)
        content = fields.optional("content", _content)
    if content is None and not calls:
        raise MalformedInputError(f"{path}.content", problem="is missing")
    named = tuple((name, arguments) for _, name, arguments in calls or ())
    return Turn(role=role, content=content, calls=named)


def _content(value: object, path: str) -> str:
    if not isinstance(value, str):
        raise MalformedInputError(
            path,
            expected="a string",
            found=type(value).__name__,
            next_step="join the parts of the content into one text",
        )
    return value


def _calls(value: object, path: str) -> tuple[tuple[str, str, Mapping[str, Any]], ...]:
    """(id, name, arguments) of each call."""
    if not isinstance(value, list) or not value:
        raise MalformedInputError(
            path, expected="a list of at least one call", found=json.dumps(value)[:60]
        )
    return tuple(_call(one, f"{path}[{n}]") for n, one in enumerate(value))


def _call(value: object, path: str) -> tuple[str, str, Mapping[str, Any]]:
    with Fields(value, path) as fields:
        fields.text("type", one_of=("function",))
        id_ = fields.text("id")
        with fields.sub("function") as function:
            name = function.text("name")
            where = f"{path}.function.arguments"
            arguments = read_object(function.text("arguments"), where)
    return id_, name, arguments


def _tool(value: object, path: str) -> Mapping[str, Any]:
    """The function of a tool. Its parameters are a JSON Schema, handed to the model unread."""
    with Fields(value, path) as fields:
        fields.text("type", one_of=("function",))
        with fields.sub("function") as function:
            found: dict[str, Any] = {"name": function.text("name")}
            for key in ("description", "parameters"):
                part = function.optional(key, lambda one, _: one)
                if part is not None:
                    found[key] = part
    for key, kind, words in (
        ("description", str, "a string"),
        ("parameters", dict, "a JSON Schema, an object"),
    ):
        if not isinstance(found.get(key, kind()), kind):
            raise MalformedInputError(
                f"{path}.function.{key}", expected=words, found=type(found[key]).__name__
            )
    return found


def _offered(
    fields: Fields, given: Mapping[str, Any], tools: tuple[Mapping[str, Any], ...]
) -> tuple[Mapping[str, Any], ...]:
    names = [tool["name"] for tool in tools]
    if len(set(names)) != len(names):
        raise MalformedInputError("tools", problem=f"a name stands twice: {', '.join(names)}")
    if "tool_choice" not in given:
        return tools
    choice = fields.raw("tool_choice")
    if choice not in ("auto", "none"):
        raise MalformedInputError(
            "tool_choice",
            expected="auto or none (a call cannot be forced)",
            found=json.dumps(choice)[:60],
        )
    if choice == "auto" and not tools:
        raise MalformedInputError("tool_choice", expected="tools beside it", found="none")
    return tools if choice == "auto" else ()


def _max_tokens(fields: Fields, given: Mapping[str, Any]) -> int | None:
    """Under either of its names; OpenAI's older clients say max_tokens."""
    found = [
        fields.integer(name, low=1)
        for name in ("max_completion_tokens", "max_tokens")
        if name in given
    ]
    if len(found) == 2:
        raise MalformedInputError(
            "max_tokens", expected="one of max_tokens and max_completion_tokens", found="both"
        )
    return found[0] if found else None


def _seed(fields: Fields) -> int:
    seed = fields.integer("seed", low=0)
    if seed > MAX_SEED:
        raise MalformedInputError("seed", expected=f"at most {MAX_SEED}", found=seed)
    return seed


def _thinking(value: object, path: str) -> Thinking | None:
    given = _without_nulls(value) if isinstance(value, Mapping) else value
    with Fields(given, path) as fields:
        enabled = fields.optional("enable_thinking", lambda *_: fields.flag("enable_thinking"))
        budget = fields.optional(
            "thinking_budget", lambda *_: fields.integer("thinking_budget", low=1)
        )
    if budget is not None and not enabled:
        raise MalformedInputError(
            f"{path}.thinking_budget", expected="enable_thinking true beside it", found=enabled
        )
    return Thinking(budget=budget) if enabled else None


def _include_usage(fields: Fields, given: Mapping[str, Any], stream: bool) -> bool:
    if "stream_options" not in given:
        return False
    with fields.sub("stream_options") as options:
        include = options.flag("include_usage")
    if not stream:
        raise MalformedInputError("stream_options", expected="stream true beside it", found="false")
    return include


def _without_nulls(value: Mapping[str, Any]) -> dict[str, Any]:
    return {key: one for key, one in value.items() if one is not None}
