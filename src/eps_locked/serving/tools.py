"""How tools are put before the model, and how its calls are read back.

A chat template that takes tools is used as it is, provided it writes calls the way they are read
here; otherwise the house form says the same things in a system turn. Either way a call is

    <tool_call>
    {"name": "get_weather", "arguments": {"city": "Turku"}}
    </tool_call>

the form of Hermes, Qwen and SmolLM3. Reading is strict: what is not wholly of this form stays
text, as it would for an agent.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from eps_locked.canonical import digest_bytes
from eps_locked.domain.model import ChatTokenizer
from eps_locked.errors import BackendError, MalformedInputError
from eps_locked.serving.requests import Turn, read_object

__all__ = [
    "CALL_OPEN",
    "HOUSE_FORM",
    "Parsed",
    "TurnsTokenizer",
    "house_turns",
    "parse_calls",
    "takes_tools",
    "template_turns",
]

CALL_OPEN, CALL_CLOSE = "<tool_call>", "</tool_call>"
_RESULT_OPEN, _RESULT_CLOSE = "<tool_response>", "</tool_response>"
_HOUSE_TEXT = f"""\
You can call functions to help with the request. They are described here, one JSON object a line:
<tools>
%s
</tools>
To call a function, write its name and its arguments as JSON, one block for each call:
{CALL_OPEN}
{{"name": "function name", "arguments": {{"argument": "value"}}}}
{CALL_CLOSE}
Write nothing after the last block. If no function is needed, answer without one."""
# What stands for the house form in a server's description of itself.
HOUSE_FORM = digest_bytes("\n".join([_HOUSE_TEXT, _RESULT_OPEN, _RESULT_CLOSE]).encode("utf-8"))


@runtime_checkable
class TurnsTokenizer(Protocol):
    """A tokenizer whose chat template can be given turns as it takes them itself."""

    def turns_text(
        self,
        turns: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        settings: Mapping[str, Any],
    ) -> str: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Parsed:
    """An answer apart: what it says, and its calls as (name, arguments as JSON text)."""

    content: str
    calls: tuple[tuple[str, str], ...]


def parse_calls(text: str) -> Parsed:
    """Read the calls at the end of an answer.

    From the first ``<tool_call>`` on there must be nothing but whole blocks, each a JSON object of
    exactly a name and an object of arguments, with white space between. The text before is the
    content, without white space at its end. Otherwise all of it is content and there is no call.
    """
    start = text.find(CALL_OPEN)
    if start < 0:
        return Parsed(content=text, calls=())
    calls = []
    rest = text[start:]
    while rest:
        block, found, after = rest.removeprefix(CALL_OPEN).partition(CALL_CLOSE)
        call = _call(block) if found and rest.startswith(CALL_OPEN) else None
        if call is None:
            return Parsed(content=text, calls=())
        calls.append(call)
        rest = after.lstrip()
    return Parsed(content=text[:start].rstrip(), calls=tuple(calls))


def template_turns(turns: Sequence[Turn]) -> list[dict[str, Any]]:
    """Turns in the words that chat templates have for calls: arguments as objects."""
    found = []
    for turn in turns:
        written: dict[str, Any] = {"role": turn.role, "content": turn.content or ""}
        if turn.calls:
            written["tool_calls"] = [
                {"type": "function", "function": {"name": name, "arguments": dict(arguments)}}
                for name, arguments in turn.calls
            ]
        found.append(written)
    return found


def house_turns(turns: Sequence[Turn], tools: Sequence[Mapping[str, Any]]) -> list[Turn]:
    """The same chat in plain turns: tools in the first system turn, results as a user's turn.

    Results of calls made side by side share one turn. Without tools and calls nothing changes.
    """
    found: list[Turn] = []
    for n, turn in enumerate(turns):
        if turn.role == "tool":
            result = f"{_RESULT_OPEN}\n{turn.content or ''}\n{_RESULT_CLOSE}"
            if n and turns[n - 1].role == "tool":
                result = f"{found.pop().content}\n{result}"
            found.append(Turn(role="user", content=result))
        elif turn.calls:
            blocks = [
                f"{CALL_OPEN}\n{_json({'name': name, 'arguments': arguments})}\n{CALL_CLOSE}"
                for name, arguments in turn.calls
            ]
            said = [turn.content] if turn.content else []
            found.append(Turn(role="assistant", content="\n".join([*said, *blocks])))
        else:
            found.append(turn)
    if not tools:
        return found
    lines = [_json({"type": "function", "function": tool}) for tool in tools]
    described = _HOUSE_TEXT % "\n".join(lines)
    if found[0].role == "system":
        first = found.pop(0).content
        described = f"{first}\n\n{described}" if first else described
    return [Turn(role="system", content=described), *found]


def takes_tools(tokenizer: ChatTokenizer) -> bool:
    """Whether the chat template shows tools, calls and results, and writes calls as we read them.

    Tried on a made-up tool: a template that drops any of it without a word must not be trusted
    with a real one.
    """
    if not isinstance(tokenizer, TurnsTokenizer):
        return False
    arguments = {"probe_argument": "probe value"}
    tool = {
        "name": "probe_tool",
        "description": "A probe description.",
        "parameters": {"type": "object", "properties": {"probe_argument": {"type": "string"}}},
    }
    turns = [
        Turn(role="user", content="A question."),
        Turn(role="assistant", content=None, calls=(("probe_tool", arguments),)),
        Turn(role="tool", content="A probe result."),
    ]
    try:
        text = tokenizer.turns_text(
            template_turns(turns), tools=[{"type": "function", "function": tool}], settings={}
        )
        plain = tokenizer.turns_text(
            template_turns(turns[:1]),
            tools=[{"type": "function", "function": tool}],
            settings={},
        )
    except BackendError:
        return False
    shown = all(word in plain for word in ("probe_tool", "A probe description."))
    # The last block: a template may show the form of a call before the chat begins.
    _, opened, after = text.rpartition(CALL_OPEN)
    block, closed, rest = after.partition(CALL_CLOSE)
    call = _call(block) if opened and closed else None
    wanted = ("probe_tool", _json(arguments))
    return shown and call == wanted and "A probe result." in rest


def _call(block: str) -> tuple[str, str] | None:
    try:
        value = read_object(block, "call")
    except MalformedInputError:
        return None
    if value.keys() != {"name", "arguments"}:
        return None
    name, arguments = value["name"], value["arguments"]
    if not isinstance(name, str) or not name or not isinstance(arguments, dict):
        return None
    return name, _json(arguments)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
