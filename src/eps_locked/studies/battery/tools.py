"""Whether a reply calls the right tool with the right arguments. Pure; no tool is ever run.

A reply is the assistant message of an OpenAI-compatible chat completion: ``tool_calls``, each with
the name of a function and its arguments as JSON text. A call that a server left in ``content`` as
text is no call: an agent would not get it either. A message that is not of that form is refused
rather than scored, because that is the server's fault and says nothing about the model.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any, Literal, NoReturn, cast, get_args

from eps_locked.domain.fields import Fields
from eps_locked.errors import MalformedInputError

__all__ = [
    "Argument",
    "Call",
    "CaseKind",
    "ExpectedCall",
    "ScoredCalls",
    "ToolCase",
    "ToolVerdict",
    "read_calls",
    "read_expected_call",
    "score_calls",
]

CaseKind = Literal["one_call", "choose", "no_call", "several"]
ToolVerdict = Literal[
    "right",
    "wrong_tool",
    "wrong_arguments",
    "no_call",
    "extra_call",
    "unreadable_arguments",
    "no_answer",
]
_NAME = re.compile(r"[a-z][a-z0-9_]*")
# No case expects more than a few calls, and every order of them is tried.
MOST_CALLS = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class Argument:
    """An argument's acceptable values; one that is not ``required`` may also be left out."""

    any_of: tuple[object, ...]
    required: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class ExpectedCall:
    """A call that a right reply makes. An argument that is not listed may not be given."""

    tool: str
    arguments: Mapping[str, Argument]


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolCase:
    """One conversation with the tools on offer, and the calls that have to come next.

    ``messages`` and ``tools`` are sent as they are. The order of ``calls`` does not matter; none
    means that a plain answer is right.
    """

    id: str
    kind: CaseKind
    topic: str
    tools: tuple[Mapping[str, Any], ...]
    messages: tuple[Mapping[str, Any], ...]
    calls: tuple[ExpectedCall, ...]
    reference: str

    @property
    def tool_names(self) -> tuple[str, ...]:
        return tuple(str(tool["function"]["name"]) for tool in self.tools)

    @property
    def is_follow_up(self) -> bool:
        """Whether a tool has already answered."""
        return bool(self.messages[-1]["role"] == "tool")


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """A call of a reply; ``arguments`` is None where their text is no JSON object."""

    name: str
    arguments: Mapping[str, object] | None


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoredCalls:
    verdict: ToolVerdict
    reason: str


def read_expected_call(value: object, path: str) -> ExpectedCall:
    """An expected call of a case. Raises MalformedInputError naming the field."""
    with Fields(value, path) as fields:
        tool = fields.text("tool", shape=_NAME)
        arguments = {
            str(name): _argument(one, f"{path}.arguments.{name}")
            for name, one in fields.mapping("arguments").items()
        }
    return ExpectedCall(tool=tool, arguments=arguments)


def read_calls(message: Mapping[str, Any]) -> tuple[Call, ...]:
    """The calls of an assistant message.

    Raises MalformedInputError where the message is not of the chat-completions form. Arguments
    that are no JSON object are the model's own fault, and are kept as unreadable.
    """
    if message.get("role", "assistant") != "assistant":
        raise MalformedInputError(
            "message.role", expected="assistant", found=repr(message["role"])[:60]
        )
    if message.get("function_call") is not None:
        raise MalformedInputError(
            "message.function_call",
            problem="is the form before tool_calls",
            next_step="have the server answer with tool_calls",
        )
    calls = message.get("tool_calls")
    if calls is None:
        return ()
    if not isinstance(calls, list | tuple):
        raise MalformedInputError("message.tool_calls", expected="a list", found=repr(calls)[:60])
    return tuple(_call(call, f"message.tool_calls[{n}]") for n, call in enumerate(calls))


def score_calls(message: Mapping[str, Any], case: ToolCase) -> ScoredCalls:
    """The verdict on a reply to a case: what is wrong with its calls, the coarsest fault first.

    - ``no_answer``: neither a call nor a letter or digit of content
    - ``no_call``: a call that is needed is missing (and no other tool is called in its place)
    - ``extra_call``: all that is needed is called and something else too, or a call where none is
    - ``wrong_tool``: a tool that is not needed is called, or not offered, in place of another
    - ``unreadable_arguments``: the right tools, and arguments that are no JSON object
    - ``wrong_arguments``: the right tools, and readable arguments other than expected
    """
    calls = read_calls(message)
    if not calls:
        return _score_silence(message.get("content"), case)
    called, needed = (
        Counter(call.name for call in calls),
        Counter(call.tool for call in case.calls),
    )
    missing, extra = needed - called, called - needed
    if extra and not missing:
        return ScoredCalls(verdict="extra_call", reason=f"calls {_names(extra)} without need")
    if extra:
        return ScoredCalls(
            verdict="wrong_tool", reason=f"calls {_names(extra)} instead of {_names(missing)}"
        )
    if missing:
        return ScoredCalls(verdict="no_call", reason=f"does not call {_names(missing)}")
    unreadable = next((call for call in calls if call.arguments is None), None)
    if unreadable is not None:
        return ScoredCalls(
            verdict="unreadable_arguments",
            reason=f"the arguments of {unreadable.name} are no JSON object",
        )
    return _score_arguments(calls, case.calls)


def _score_silence(content: object, case: ToolCase) -> ScoredCalls:
    if not any(letter.isalnum() for letter in _content_text(content)):
        return ScoredCalls(verdict="no_answer", reason="the reply is empty")
    if case.calls:
        return ScoredCalls(verdict="no_call", reason="answers without a call")
    return ScoredCalls(verdict="right", reason="answers without a call, and none is needed")


def _content_text(content: object) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    raise MalformedInputError("message.content", expected="text or null", found=repr(content)[:60])


def _score_arguments(calls: Sequence[Call], expected: Sequence[ExpectedCall]) -> ScoredCalls:
    """The calls against the expected ones in the order that leaves the fewest faults."""
    orders = [
        [_argument_fault(call, one) for call, one in zip(calls, order, strict=True)]
        for order in permutations(expected)
        if all(call.name == one.tool for call, one in zip(calls, order, strict=True))
    ]
    faults = min(([one for one in order if one] for order in orders), key=len)
    if faults:
        return ScoredCalls(verdict="wrong_arguments", reason=faults[0])
    return ScoredCalls(verdict="right", reason="as expected")


def _argument_fault(call: Call, expected: ExpectedCall) -> str | None:
    given = call.arguments or {}
    for name, argument in expected.arguments.items():
        if name not in given:
            if argument.required:
                return f"{call.name}.{name} is missing"
        elif not any(_same(given[name], value) for value in argument.any_of):
            return f"{call.name}.{name} is {_shown(given[name])}, not {_shown(argument.any_of[0])}"
    unknown = next((name for name in given if name not in expected.arguments), None)
    return None if unknown is None else f"{call.name}.{unknown} is not expected"


def _same(one: object, other: object) -> bool:
    """Equal as JSON; text but for case and spaces, 3 like 3.0, true unlike 1, "3" unlike 3."""
    if isinstance(one, str) and isinstance(other, str):
        return _folded(one) == _folded(other)
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | float) and isinstance(other, int | float):
        return one == other
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    return one is None and other is None


def _folded(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def _shown(value: object) -> str:
    text = _printable(json.dumps(value, ensure_ascii=False))
    return text if len(text) <= 60 else text[:57] + "..."


def _names(counted: Counter[str]) -> str:
    return " and ".join(sorted(_printable(name)[:60] for name in counted.elements()))


def _printable(text: str) -> str:
    """Without the lone surrogates that JSON can hold and no file can."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _argument(value: object, path: str) -> Argument:
    with Fields(value, path) as fields:
        argument = Argument(
            any_of=fields.each("any_of", lambda one, _: one), required=fields.flag("required")
        )
    if not argument.any_of:
        raise MalformedInputError(f"{path}.any_of", expected="at least one value", found="none")
    return argument


def _call(value: object, path: str) -> Call:
    function = value.get("function") if isinstance(value, Mapping) else None
    if not isinstance(function, Mapping):
        raise MalformedInputError(path, expected="a call with a function", found=repr(value)[:60])
    name, arguments = function.get("name"), function.get("arguments")
    for key, part in (("name", name), ("arguments", arguments)):
        if not isinstance(part, str):
            raise MalformedInputError(
                f"{path}.function.{key}", expected="a string", found=repr(part)[:60]
            )
    return Call(name=cast(str, name), arguments=_arguments(cast(str, arguments)))


def _arguments(text: str) -> Mapping[str, object] | None:
    try:
        value = json.loads(text, parse_constant=_refuse, object_pairs_hook=_unique)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _refuse(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a key stands twice")
    return value


KINDS: tuple[str, ...] = get_args(CaseKind)
