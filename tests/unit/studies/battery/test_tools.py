"""The verdict on a tool-call reply, and which faults are the model's and which the server's."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eps_locked.errors import MalformedInputError
from eps_locked.studies.battery.tools import (
    Argument,
    ExpectedCall,
    ToolCase,
    read_calls,
    read_expected_call,
    score_calls,
)


def one_of(*values: object, required: bool = True) -> Argument:
    return Argument(any_of=values, required=required)


def tool(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "description": "", "parameters": {}}}


def case(*calls: ExpectedCall, **changes: Any) -> ToolCase:
    parts: dict[str, Any] = {
        "id": "made_up",
        "kind": "several",
        "topic": "made_up",
        "tools": tuple(map(tool, ("weather", "timer", "mail"))),
        "messages": ({"role": "user", "content": "Go."},),
        "calls": calls,
        "reference": "Made up.",
    }
    return ToolCase(**parts | changes)


def call(name: str, arguments: object) -> dict[str, Any]:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"id": "call_1", "type": "function", "function": {"name": name, "arguments": text}}


def reply(*calls: Any, content: object = None) -> dict[str, Any]:
    return {"role": "assistant", "content": content, "tool_calls": list(calls)}


WEATHER = ExpectedCall(
    tool="weather",
    arguments={
        "city": one_of("Oslo", "Oslo, Norway"),
        "days": one_of(3),
        "unit": one_of("c", "f", required=False),
    },
)
EGGS = ExpectedCall(tool="timer", arguments={"minutes": one_of(4)})
BREAD = ExpectedCall(tool="timer", arguments={"minutes": one_of(35)})
MAIL = ExpectedCall(tool="mail", arguments={"to": one_of(["Ines", "Olav"]), "urgent": one_of(True)})
OSLO = {"city": "Oslo", "days": 3}
ONE, NONE, TWO = case(WEATHER), case(), case(EGGS, BREAD)

VERDICTS: list[tuple[str, ToolCase, dict[str, Any]]] = [
    ("right", ONE, reply(call("weather", OSLO))),
    ("right", ONE, reply(call("weather", OSLO), content="Let me look.")),
    ("right", ONE, reply(call("weather", {"city": " oslo,  NORWAY ", "days": 3.0}))),
    ("right", ONE, reply(call("weather", {**OSLO, "unit": "f"}))),
    ("right", TWO, reply(call("timer", {"minutes": 4}), call("timer", {"minutes": 35}))),
    ("right", TWO, reply(call("timer", {"minutes": 35}), call("timer", {"minutes": 4}))),
    ("right", case(MAIL), reply(call("mail", {"to": ["ines", "olav"], "urgent": True}))),
    ("right", NONE, {"role": "assistant", "content": "Geese."}),
    ("right", NONE, {"content": "Geese.", "tool_calls": []}),
    ("right", NONE, {"content": "Geese.", "tool_calls": None}),
    ("wrong_tool", ONE, reply(call("timer", {"minutes": 3}))),
    ("wrong_tool", ONE, reply(call("forecast", OSLO))),
    ("wrong_tool", ONE, reply(call("Weather", OSLO))),
    ("wrong_tool", ONE, reply(call("timer", "{broken"))),
    ("wrong_tool", TWO, reply(call("timer", {"minutes": 4}), call("mail", {}))),
    ("wrong_arguments", ONE, reply(call("weather", {"city": "Bergen", "days": 3}))),
    ("wrong_arguments", ONE, reply(call("weather", {"city": "Oslo"}))),
    ("wrong_arguments", ONE, reply(call("weather", {"city": "Oslo", "days": "3"}))),
    ("wrong_arguments", ONE, reply(call("weather", {"city": "Oslo", "days": True}))),
    ("wrong_arguments", ONE, reply(call("weather", {**OSLO, "unit": "k"}))),
    ("wrong_arguments", ONE, reply(call("weather", {**OSLO, "unit": None}))),
    ("wrong_arguments", ONE, reply(call("weather", {**OSLO, "hour": 3}))),
    ("wrong_arguments", ONE, reply(call("weather", {}))),
    ("wrong_arguments", TWO, reply(call("timer", {"minutes": 4}), call("timer", {"minutes": 4}))),
    ("wrong_arguments", case(MAIL), reply(call("mail", {"to": ["Ines", "Olav"], "urgent": 1}))),
    ("wrong_arguments", case(MAIL), reply(call("mail", {"to": ["Olav", "Ines"], "urgent": True}))),
    ("no_call", ONE, {"role": "assistant", "content": "It will be sunny."}),
    ("no_call", ONE, {"content": '<tool_call>{"name": "weather"}</tool_call>'}),
    ("no_call", TWO, reply(call("timer", {"minutes": 4}))),
    ("no_call", TWO, reply(call("timer", {"minutes": "wrong"}))),
    ("extra_call", NONE, reply(call("weather", OSLO))),
    ("extra_call", NONE, reply(call("weather", OSLO), content="Geese.")),
    ("extra_call", ONE, reply(call("weather", OSLO), call("weather", OSLO))),
    ("extra_call", ONE, reply(call("weather", OSLO), call("timer", {"minutes": 1}))),
    ("extra_call", ONE, reply(call("weather", "{broken"), call("timer", "{broken"))),
    ("unreadable_arguments", ONE, reply(call("weather", '{"city": "Oslo", "days": 3'))),
    ("unreadable_arguments", ONE, reply(call("weather", ""))),
    ("unreadable_arguments", ONE, reply(call("weather", "[]"))),
    ("unreadable_arguments", ONE, reply(call("weather", '"Oslo"'))),
    ("unreadable_arguments", ONE, reply(call("weather", "{'city': 'Oslo', 'days': 3}"))),
    ("unreadable_arguments", ONE, reply(call("weather", '{"city": "Oslo", "days": NaN}'))),
    ("unreadable_arguments", ONE, reply(call("weather", '{"days": 3, "days": 3}'))),
    ("unreadable_arguments", ONE, reply(call("weather", "[" * 100_000))),
    ("unreadable_arguments", ONE, reply(call("weather", '{"days": ' + "9" * 9999 + "}"))),
    ("no_answer", ONE, {"role": "assistant", "content": ""}),
    ("no_answer", ONE, {"role": "assistant", "content": None}),
    ("no_answer", NONE, {"role": "assistant", "content": " \n"}),
    ("no_answer", NONE, {}),
]


@pytest.mark.parametrize(("verdict", "asked", "message"), VERDICTS)
def test_each_reply_has_the_one_verdict(
    verdict: str, asked: ToolCase, message: dict[str, Any]
) -> None:
    scored = score_calls(message, asked)
    assert scored.verdict == verdict, scored
    assert scored.reason


def test_the_table_shows_every_verdict() -> None:
    assert {verdict for verdict, _, _ in VERDICTS} == {
        "right",
        "wrong_tool",
        "wrong_arguments",
        "no_call",
        "extra_call",
        "unreadable_arguments",
        "no_answer",
    }


@pytest.mark.parametrize(
    ("message", "named"),
    [
        (reply("weather"), "message.tool_calls[0]"),
        (reply({"id": "1"}), "message.tool_calls[0]"),
        (reply({"function": {"arguments": "{}"}}), "message.tool_calls[0].function.name"),
        (reply({"function": {"name": "weather"}}), "message.tool_calls[0].function.arguments"),
        (
            reply({"function": {"name": "weather", "arguments": OSLO}}),
            "message.tool_calls[0].function.arguments",
        ),
        ({"tool_calls": {"name": "weather"}}, "message.tool_calls"),
        ({"tool_calls": "weather"}, "message.tool_calls"),
        ({"function_call": {"name": "weather", "arguments": "{}"}}, "message.function_call"),
        ({"role": "user", "content": "Hello."}, "message.role"),
        ({"content": [{"type": "text", "text": "Hello."}]}, "message.content"),
    ],
)
def test_a_message_of_another_form_is_refused_and_gets_no_verdict(
    message: dict[str, Any], named: str
) -> None:
    with pytest.raises(MalformedInputError) as caught:
        score_calls(message, ONE)
    assert caught.value.thing == named


def test_the_reason_names_the_argument_and_both_values() -> None:
    assert score_calls(reply(call("weather", {"city": "Rome", "days": 3})), ONE).reason == (
        'weather.city is "Rome", not "Oslo"'
    )
    assert score_calls(reply(call("weather", {"city": "Oslo"})), ONE).reason == (
        "weather.days is missing"
    )
    assert score_calls(reply(call("weather", {**OSLO, "hour": 1})), ONE).reason == (
        "weather.hour is not expected"
    )
    two = reply(call("timer", {"minutes": 35}), call("timer", {"minutes": 5}))
    assert score_calls(two, TWO).reason == "timer.minutes is 5, not 4"
    assert score_calls(reply(call("timer", {})), ONE).reason == "calls timer instead of weather"


def test_a_reason_can_be_written_to_a_file_whatever_the_reply_holds() -> None:
    for message in (
        reply(call("weather", '{"city": "\\ud800", "days": 3}')),
        reply(call("\ud800", "{}")),
    ):
        score_calls(message, ONE).reason.encode("utf-8")


def test_calls_are_read_in_order() -> None:
    calls = read_calls(reply(call("timer", {"minutes": 4}), call("mail", "{")))
    assert [(one.name, one.arguments) for one in calls] == [
        ("timer", {"minutes": 4}),
        ("mail", None),
    ]


@given(order=st.permutations([4, 35, 50]), n_missing=st.integers(0, 2))
def test_the_order_of_calls_never_matters_and_a_missing_one_always_does(
    order: list[int], n_missing: int
) -> None:
    expected = [
        ExpectedCall(tool="timer", arguments={"minutes": one_of(one)}) for one in (4, 35, 50)
    ]
    made = [call("timer", {"minutes": one}) for one in order][n_missing:]
    verdict = score_calls(reply(*made), case(*expected)).verdict
    assert verdict == ("no_call" if n_missing else "right")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)


@given(value=JSON)
def test_any_json_value_is_the_same_as_itself_after_a_round_trip(value: object) -> None:
    expected = ExpectedCall(tool="timer", arguments={"value": one_of(value)})
    assert score_calls(reply(call("timer", {"value": value})), case(expected)).verdict == "right"


@given(text=st.text(max_size=40))
def test_any_text_as_arguments_gets_a_verdict(text: str) -> None:
    scored = score_calls(reply(call("weather", text)), ONE)
    assert scored.verdict in ("wrong_arguments", "unreadable_arguments")


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({"tool": "timer"}, "call.arguments: is missing"),
        ({"tool": "Timer", "arguments": {}}, "call.tool"),
        ({"tool": "timer", "arguments": []}, "call.arguments: expected a mapping"),
        ({"tool": "timer", "arguments": {"minutes": 4}}, "call.arguments.minutes"),
        ({"tool": "timer", "arguments": {"minutes": {"any_of": [4]}}}, "required: is missing"),
        (
            {"tool": "timer", "arguments": {"minutes": {"any_of": [], "required": True}}},
            "at least one value",
        ),
        ({"tool": "timer", "arguments": {}, "order": 1}, "call.order: is not a known field"),
    ],
)
def test_an_expected_call_is_read_strictly(value: dict[str, Any], problem: str) -> None:
    with pytest.raises(MalformedInputError) as caught:
        read_expected_call(value, "call")
    assert problem in str(caught.value)
