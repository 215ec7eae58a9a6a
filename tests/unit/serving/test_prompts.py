"""Prompts under chat templates that know tools or reasoning, and under those that do not."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import jinja2
import pytest

from eps_locked.domain.model import Message, TokenIds
from eps_locked.errors import BackendError, MalformedInputError
from eps_locked.models.scripted import ScriptedTokenizer
from eps_locked.serving.pieces import Shown, without_half_a_tag
from eps_locked.serving.prompts import PromptWriter
from eps_locked.serving.requests import ChatCall, read_call
from eps_locked.serving.rules import ServingRules, window_of
from eps_locked.serving.tools import parse_calls, takes_tools
from sim.loopback import ASK, CALL, WEATHER, body_of

PLAIN = "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}<assistant>"
TOOLS = (
    "{% if tools %}<tools>{% for t in tools %}{{ t | tojson }}\n{% endfor %}</tools>{% endif %}"
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% for c in m.tool_calls or [] %}"
    '<tool_call>\n{"name": "{{ c.function.name }}", '
    '"arguments": {{ c.function.arguments | tojson }}}\n</tool_call>{% endfor %}\n{% endfor %}'
    "<assistant>"
)
OTHER_CALLS = TOOLS.replace("<tool_call>", "[TOOL_CALLS]").replace("</tool_call>", "")
NO_RESULTS = TOOLS.replace("{{ m.content }}", "{{ m.content if m.role != 'tool' else '' }}")
QWEN = PLAIN + "{% if enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}"
ALWAYS = PLAIN + "{{ '<think>\\n' }}"
REJECTS = "{{ raise_exception('no') }}"


class Templated(ScriptedTokenizer):
    """Bytes as ids, under a chat template."""

    def __init__(self, template: str) -> None:
        environment = jinja2.Environment()
        environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
        self._template = environment.from_string(template)

    def turns_text(
        self,
        turns: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        settings: Mapping[str, Any],
    ) -> str:
        try:
            return self._template.render(messages=turns, tools=list(tools) or None, **settings)
        except jinja2.exceptions.TemplateError as error:
            raise BackendError("chat template", problem=str(error)) from error

    def render(self, messages: Sequence[Message]) -> TokenIds:
        raise AssertionError("the template is asked by turns")


def call_of(**fields: Any) -> ChatCall:
    return read_call(body_of(**fields))


def prompt_of(template: str, **fields: Any) -> str:
    tokenizer = Templated(template)
    writer = PromptWriter(tokenizer, ServingRules(context_length=4096))
    return tokenizer.decode(writer.prepare(call_of(**fields)).token_ids)


@pytest.mark.parametrize(
    ("template", "takes"),
    [(TOOLS, True), (PLAIN, False), (OTHER_CALLS, False), (NO_RESULTS, False), (REJECTS, False)],
)
def test_a_template_is_trusted_with_tools_only_if_it_shows_all_of_them(
    template: str, takes: bool
) -> None:
    assert takes_tools(Templated(template)) is takes
    assert not takes_tools(ScriptedTokenizer())


def test_tools_are_put_by_the_template_if_it_can_and_else_in_the_house_form() -> None:
    described = json.dumps(WEATHER, ensure_ascii=False)
    by_template = prompt_of(TOOLS, tools=[WEATHER])
    assert by_template.startswith(f"<tools>{described}\n</tools><user>")
    house = prompt_of(PLAIN, tools=[WEATHER])
    assert house.startswith("<system>You can call functions")
    assert f"<tools>\n{described}\n</tools>" in house
    assert prompt_of(TOOLS, tools=[WEATHER], tool_choice="none") == prompt_of(TOOLS)


def test_reasoning_is_opened_once_whoever_opens_it() -> None:
    thinking = {"chat_template_kwargs": {"enable_thinking": True}}
    question = f"<user>{ASK[0]['content']}\n<assistant>"
    assert prompt_of(PLAIN) == question
    assert prompt_of(PLAIN, **thinking) == f"{question}<think>\n"
    assert prompt_of(QWEN) == f"{question}<think>\n\n</think>\n\n"
    assert prompt_of(QWEN, **thinking) == f"{question}<think>\n"
    assert prompt_of(ALWAYS, **thinking) == f"{question}<think>\n"


def test_a_template_that_always_reasons_is_not_asked_without() -> None:
    with pytest.raises(MalformedInputError, match=r"enable_thinking: .*always opens"):
        prompt_of(ALWAYS)


def test_a_chat_that_the_template_rejects_is_the_requests_fault() -> None:
    with pytest.raises(MalformedInputError, match="messages: chat template"):
        prompt_of(REJECTS)


@pytest.mark.parametrize(
    ("text", "content", "n_calls"),
    [
        ("plain", "plain", 0),
        (CALL, "", 1),
        (f"so\n\n{CALL}{CALL}\n", "so", 2),
        (f"{CALL}{CALL[:-1]}", f"{CALL}{CALL[:-1]}", 0),
        ("<tool_call>{}</tool_call>", "<tool_call>{}</tool_call>", 0),
    ],
)
def test_calls_are_all_or_none(text: str, content: str, n_calls: int) -> None:
    parsed = parse_calls(text)
    assert (parsed.content, len(parsed.calls)) == (content, n_calls)


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("a b", "a b"),
        ("a \n", "a"),
        ("a <", "a"),
        ("a <to", "a"),
        ("a <tool>", "a <tool>"),
        ("a <tool_call>", "a"),
        ("a <tool_call> b <tool_call>", "a"),
        ("<", ""),
    ],
)
def test_what_could_become_a_tag_is_held_back(text: str, safe: str) -> None:
    assert without_half_a_tag(text, ("<tool_call>",)) == safe


def test_a_text_that_changes_its_beginning_cannot_be_streamed() -> None:
    told: list[str] = []
    shown = Shown(told.append)
    for text in ("ab\ufffd", "abc", "abc"):
        shown.grow(text)
    assert told == ["ab", "c"]
    with pytest.raises(BackendError, match="changed text that had been sent"):
        shown.finish("aXcd")


def test_a_folder_that_does_not_say_its_window_is_refused(tmp_path: Any) -> None:
    (tmp_path / "config.json").write_text('{"max_position_embeddings": 8192}')
    assert window_of(tmp_path) == 8192
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(BackendError, match="max_position_embeddings"):
        window_of(tmp_path)
