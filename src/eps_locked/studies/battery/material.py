"""The study's own files: borderline requests, checkable items, false premises, tool cases. Pure.

Each reader takes the decoded file, checks what the file promises about itself and refuses it by
the name of the field. Bytes, digests and the freeze are not its business.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from eps_locked.domain.fields import Fields
from eps_locked.errors import MalformedInputError
from eps_locked.studies.battery.answers import score_answer
from eps_locked.studies.battery.rules import Choice, Rule, read_rule
from eps_locked.studies.battery.tools import (
    KINDS,
    MOST_CALLS,
    CaseKind,
    ExpectedCall,
    ToolCase,
    read_calls,
    read_expected_call,
)
from eps_locked.studies.common.likeness import require_apart
from eps_locked.studies.common.material import normalise

__all__ = [
    "NEAR_COPY",
    "BorderlineItem",
    "CapabilityFile",
    "CapabilityItem",
    "PremiseItem",
    "read_capability",
    "read_over_refusal",
    "read_sycophancy",
    "read_tools",
]

OVER_REFUSAL_SCHEMA: Final = "eps-locked/battery-over-refusal/1"
CAPABILITY_SCHEMA: Final = "eps-locked/battery-capability/1"
SYCOPHANCY_SCHEMA: Final = "eps-locked/battery-sycophancy/1"
TOOLS_SCHEMA: Final = "eps-locked/battery-tools/1"
# Two texts that share so many of their word triples are nearly one item, and no two observations.
NEAR_COPY: Final = 0.5
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_SOMETHING = re.compile(r"\S(?:.*\S)?", re.DOTALL)


@dataclass(frozen=True, kw_only=True, slots=True)
class BorderlineItem:
    """A harmless request with words that sound otherwise.

    ``surface`` are those words as they stand in the text; ``reference`` says what a helpful reply
    holds. No model under test sees either.
    """

    id: str
    topic: str
    text: str
    surface: tuple[str, ...]
    reference: str


@dataclass(frozen=True, kw_only=True, slots=True)
class CapabilityItem:
    """A question with an answer that can be checked; the reference is right by its own rule."""

    id: str
    topic: str
    text: str
    reference: str
    rule: Rule


@dataclass(frozen=True, kw_only=True, slots=True)
class CapabilityFile:
    """The items, and the sentence that asks for a closing answer line."""

    closing: str
    items: tuple[CapabilityItem, ...]

    def prompt(self, item: CapabilityItem) -> str:
        """What a model is sent: the question, and how to close the reply."""
        return f"{item.text}\n\n{self.closing}"


@dataclass(frozen=True, kw_only=True, slots=True)
class PremiseItem:
    """A question that takes something false for granted.

    ``premise`` says what, ``reference`` is the correction, in one sentence each.
    """

    id: str
    topic: str
    text: str
    premise: str
    reference: str


def read_over_refusal(value: object, thing: str) -> tuple[BorderlineItem, ...]:
    """The borderline requests of one file.

    Raises MalformedInputError for a wrong field, an id given twice, near-copies, and surface
    words that do not stand in the text.
    """
    with Fields(value, thing) as fields:
        _read_head(fields, OVER_REFUSAL_SCHEMA)
        items = fields.each("items", _borderline)
    _require_apart([(item.id, item.text) for item in items], thing)
    return items


def read_capability(value: object, thing: str) -> CapabilityFile:
    """The checkable items of one file.

    Raises MalformedInputError for a wrong field, an id given twice, near-copies, a reference that
    is not right by its own rule, and options that do not stand in the question.
    """
    with Fields(value, thing) as fields:
        _read_head(fields, CAPABILITY_SCHEMA)
        closing = fields.text("closing", shape=_SOMETHING)
        items = fields.each("items", _capability)
    _require_apart([(item.id, item.text) for item in items], thing)
    return CapabilityFile(closing=closing, items=items)


def read_sycophancy(value: object, thing: str) -> tuple[PremiseItem, ...]:
    """The false-premise questions of one file.

    Raises MalformedInputError for a wrong field, an id given twice, near-copies, and a premise or
    a correction that is not one sentence, or is the same as the other.
    """
    with Fields(value, thing) as fields:
        _read_head(fields, SYCOPHANCY_SCHEMA)
        items = fields.each("items", _premise)
    _require_apart([(item.id, item.text) for item in items], thing)
    return items


def read_tools(value: object, thing: str) -> tuple[ToolCase, ...]:
    """The tool cases of one file.

    Raises MalformedInputError for a wrong field, an id given twice, near-copies, a tool that is
    not defined, a conversation that is not of the chat-completions form, expected arguments that
    break the tool's own schema, and a number of calls that is not that of the case's kind.
    """
    with Fields(value, thing) as fields:
        _read_head(fields, TOOLS_SCHEMA)
        tools = fields.each("tools", _tool)
        defined = {str(tool["function"]["name"]): tool for tool in tools}
        _require_distinct((str(tool["function"]["name"]) for tool in tools), f"{thing}.tools")
        cases = fields.each("cases", lambda one, path: _case(one, path, defined))
    _require_apart([(case.id, _asked(case)) for case in cases], thing)
    return cases


def _read_head(fields: Fields, schema: str) -> None:
    fields.text("schema", one_of=(schema,))
    for key in ("title", "provenance", "licence"):
        fields.text(key, shape=_SOMETHING)


def _borderline(value: object, path: str) -> BorderlineItem:
    with Fields(value, path) as fields:
        item = BorderlineItem(
            id=fields.text("id", shape=_NAME),
            topic=fields.text("topic", shape=_NAME),
            text=fields.text("text", shape=_SOMETHING),
            surface=fields.texts("surface", shape=_SOMETHING),
            reference=fields.text("reference", shape=_SOMETHING),
        )
    _require_some(item.surface, f"{path}.surface")
    for number, words in enumerate(item.surface):
        if f" {normalise(words)} " not in f" {normalise(item.text)} ":
            raise MalformedInputError(
                f"{path}.surface[{number}]",
                expected=f"words that stand in {item.text!r}",
                found=repr(words),
            )
    return item


def _capability(value: object, path: str) -> CapabilityItem:
    with Fields(value, path) as fields:
        item = CapabilityItem(
            id=fields.text("id", shape=_NAME),
            topic=fields.text("topic", shape=_NAME),
            text=fields.text("text", shape=_SOMETHING),
            reference=fields.text("reference", shape=_SOMETHING),
            rule=read_rule(fields.raw("rule"), f"{path}.rule"),
        )
    scored = score_answer(item.reference, item.rule)
    if scored.verdict != "correct":
        raise MalformedInputError(
            f"{path}.reference",
            expected="an answer that is right by the item's own rule",
            found=f"{item.reference!r}, which {scored.reason}",
        )
    if isinstance(item.rule, Choice):
        for letter, option in item.rule.texts.items():
            if f"{letter}) {option}" not in item.text:
                raise MalformedInputError(
                    f"{path}.rule.options",
                    expected=f"'{letter}) {option}' in the question",
                    found=repr(item.text),
                )
    return item


def _premise(value: object, path: str) -> PremiseItem:
    with Fields(value, path) as fields:
        item = PremiseItem(
            id=fields.text("id", shape=_NAME),
            topic=fields.text("topic", shape=_NAME),
            text=fields.text("text", shape=_SOMETHING),
            premise=fields.text("premise", shape=_SOMETHING),
            reference=fields.text("reference", shape=_SOMETHING),
        )
    for key, sentence in (("premise", item.premise), ("reference", item.reference)):
        if not re.fullmatch(r"[^\n]*[^.!?\n]\.", sentence) or re.search(r"[.!?]\s", sentence):
            raise MalformedInputError(
                f"{path}.{key}", expected="one sentence with a full stop", found=repr(sentence)
            )
    if normalise(item.premise) == normalise(item.reference):
        raise MalformedInputError(
            path, expected="a correction of the premise", found=f"{item.premise!r} twice"
        )
    return item


def _tool(value: object, path: str) -> Mapping[str, Any]:
    """A tool in the OpenAI form, as it is sent; its parameters are a JSON Schema of an object."""
    with Fields(value, path) as fields:
        fields.text("type", one_of=("function",))
        with fields.sub("function") as function:
            function.text("name", shape=_NAME)
            function.text("description", shape=_SOMETHING)
            parameters = function.mapping("parameters")
    where = f"{path}.function.parameters"
    import jsonschema

    try:
        jsonschema.Draft202012Validator.check_schema(parameters)
    except jsonschema.SchemaError as error:
        raise MalformedInputError(
            where, problem=f"is no JSON Schema ({error.message[:200]})"
        ) from error
    if parameters.get("type") != "object" or parameters.get("additionalProperties") is not False:
        raise MalformedInputError(
            where,
            expected="type: object and additionalProperties: false",
            found=f"type: {parameters.get('type')!r}, "
            f"additionalProperties: {parameters.get('additionalProperties')!r}",
        )
    return cast(Mapping[str, Any], value)


def _case(value: object, path: str, defined: Mapping[str, Mapping[str, Any]]) -> ToolCase:
    with Fields(value, path) as fields:
        names = fields.texts("tools", shape=_NAME)
        for number, name in enumerate(names):
            _require_tool(name, defined, f"{path}.tools[{number}]")
        case = ToolCase(
            id=fields.text("id", shape=_NAME),
            kind=cast(CaseKind, fields.text("case", one_of=KINDS)),
            topic=fields.text("topic", shape=_NAME),
            tools=tuple(defined[name] for name in names),
            messages=fields.each("messages", _message),
            calls=fields.each("calls", read_expected_call),
            reference=fields.text("reference", shape=_SOMETHING),
        )
    _require_some(case.tools, f"{path}.tools")
    _require_distinct(names, f"{path}.tools")
    _check_conversation(case, path)
    for number, call in enumerate(case.calls):
        _check_expected(call, case, f"{path}.calls[{number}]")
    _check_kind(case, path)
    return case


def _message(value: object, path: str) -> Mapping[str, Any]:
    with Fields(value, path) as fields:
        role = fields.text("role", one_of=("system", "user", "assistant", "tool"))
        if role == "assistant" and isinstance(value, Mapping) and "tool_calls" in value:
            if fields.raw("content") is not None:
                raise MalformedInputError(f"{path}.content", expected="null beside tool_calls")
            fields.each("tool_calls", _made_call)
            return cast(Mapping[str, Any], value)
        fields.text("content", shape=_SOMETHING)
        if role == "tool":
            fields.text("tool_call_id", shape=_SOMETHING)
    return cast(Mapping[str, Any], value)


def _made_call(value: object, path: str) -> None:
    with Fields(value, path) as fields:
        fields.text("id", shape=_SOMETHING)
        fields.text("type", one_of=("function",))
        with fields.sub("function") as function:
            function.text("name", shape=_NAME)
            function.text("arguments", shape=_SOMETHING)


def _check_conversation(case: ToolCase, path: str) -> None:
    """An optional system turn, then user and assistant; every call is answered, in order, once."""
    open_ids: list[str] = []
    previous = ""
    for number, message in enumerate(case.messages):
        where, role = f"{path}.messages[{number}]", str(message["role"])
        allowed = {
            "": ("system", "user"),
            "system": ("user",),
            "user": ("assistant",),
            "assistant": ("tool",) if open_ids else ("user",),
            "tool": ("tool",) if open_ids else ("assistant", "user"),
        }[previous]
        if role not in allowed:
            raise MalformedInputError(
                f"{where}.role", expected=" or ".join(allowed), found=role or "nothing"
            )
        if role == "tool" and message["tool_call_id"] != open_ids.pop(0):
            raise MalformedInputError(
                f"{where}.tool_call_id",
                expected="the id of the call that is answered",
                found=repr(message["tool_call_id"]),
            )
        if role == "assistant":
            open_ids = [str(call["id"]) for call in message.get("tool_calls", ())]
            _check_made_calls(message, case, where)
        previous = role
    if previous not in ("user", "tool") or open_ids:
        raise MalformedInputError(
            f"{path}.messages",
            expected="a user's turn or the last result of a tool at the end",
            found=previous or "nothing",
        )


def _check_made_calls(message: Mapping[str, Any], case: ToolCase, where: str) -> None:
    for number, call in enumerate(read_calls(message)):
        at = f"{where}.tool_calls[{number}]"
        tool = _require_tool(call.name, dict(zip(case.tool_names, case.tools, strict=True)), at)
        if call.arguments is None:
            raise MalformedInputError(f"{at}.function.arguments", expected="a JSON object as text")
        _require_valid(call.arguments, tool, f"{at}.function.arguments")


def _check_expected(call: ExpectedCall, case: ToolCase, where: str) -> None:
    """Every acceptable value fits the tool's schema, and so does the call without its options."""
    tool = _require_tool(call.tool, dict(zip(case.tool_names, case.tools, strict=True)), where)
    needed = {name: one.any_of[0] for name, one in call.arguments.items() if one.required}
    _require_valid(needed, tool, f"{where}.arguments")
    for name, argument in call.arguments.items():
        for value in argument.any_of:
            _require_valid({**needed, name: value}, tool, f"{where}.arguments.{name}")


def _check_kind(case: ToolCase, path: str) -> None:
    found = f"{len(case.calls)} calls among {len(case.tools)} tools"
    expected = {
        "one_call": "one call, of the one tool on offer",
        "choose": "one call, among three tools or more",
        "no_call": "no calls",
        "several": f"two to {MOST_CALLS} calls, or one call after a tool's result",
    }[case.kind]
    fits = {
        "one_call": len(case.calls) == len(case.tools) == 1 and not case.is_follow_up,
        "choose": len(case.calls) == 1 and len(case.tools) >= 3 and not case.is_follow_up,
        "no_call": not case.calls,
        "several": len(case.calls) == 1
        if case.is_follow_up
        else 2 <= len(case.calls) <= MOST_CALLS,
    }[case.kind]
    if not fits:
        raise MalformedInputError(f"{path}.calls", expected=expected, found=found)


def _require_tool(
    name: str, known: Mapping[str, Mapping[str, Any]], where: str
) -> Mapping[str, Any]:
    if name not in known:
        raise MalformedInputError(where, expected=f"one of {', '.join(sorted(known))}", found=name)
    return known[name]


def _require_valid(arguments: Mapping[str, object], tool: Mapping[str, Any], where: str) -> None:
    import jsonschema

    validator = jsonschema.Draft202012Validator(tool["function"]["parameters"])
    error = next(iter(validator.iter_errors(arguments)), None)
    if error is not None:
        raise MalformedInputError(
            where,
            expected=f"what the parameters of {tool['function']['name']} allow",
            found=error.message[:200],
        )


def _asked(case: ToolCase) -> str:
    """What the user wants: all of the user's turns."""
    return " ".join(str(one["content"]) for one in case.messages if one["role"] == "user")


def _require_apart(texts: Sequence[tuple[str, str]], thing: str) -> None:
    _require_some(texts, thing)
    _require_distinct((id_ for id_, _ in texts), thing)
    require_apart(texts, NEAR_COPY, thing)


def _require_some(found: Sequence[object], path: str) -> None:
    if not found:
        raise MalformedInputError(path, expected="at least one", found="none")


def _require_distinct(keys: Iterable[str], path: str) -> None:
    twice = next((key for key, n in Counter(keys).items() if n > 1), None)
    if twice is not None:
        raise MalformedInputError(
            path,
            expected="distinct names",
            found=f"{twice!r} twice",
            next_step="rename or remove one of the two",
        )
