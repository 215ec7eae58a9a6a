"""The endpoint from outside: a real client, real HTTP, the scripted engine behind it."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest

from eps_locked.domain.chat import ChatRequest
from eps_locked.domain.model import Decoding, Message, Prompt
from eps_locked.engines.scripted import ScriptedEngine
from eps_locked.errors import BackendError, MalformedInputError
from eps_locked.models.scripted import ScriptedTokenizer
from eps_locked.services.make import make_endpoint
from eps_locked.serving.app import MAX_BODY_BYTES
from eps_locked.serving.rules import ServedRoute, ServingRules
from eps_locked.serving.server import RunningServer, start_server
from eps_locked.serving.wire import SERVER_NAME
from sim.chat_server import Rules
from sim.loopback import (
    ASK,
    BASE,
    CALL,
    RULES,
    WEATHER,
    SayingEngine,
    WholeEngine,
    body_of,
    chat,
    raw,
    scripted_adapter,
    serving,
    streamed,
)

Served = tuple[RunningServer, openai.OpenAI]
TAUGHT = ServedRoute(name="taught", adapter=scripted_adapter("taught"))
THINK = {"enable_thinking": True}


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving(ScriptedEngine(), BASE, TAUGHT) as found:
        yield found


def refused(served: Served, **fields: Any) -> Any:
    """The error object of a request that must be a 400."""
    status, body = raw(served[0].url, body_of(**fields))
    assert status == 400, body
    error = json.loads(body)["error"]
    assert error["type"] == "invalid_request_error"
    return error


# --- what it says of itself


def test_models_are_the_routes_and_say_what_serves_them(served: Served) -> None:
    base, taught = served[1].models.list().data
    assert (base.id, taught.id, base.owned_by) == ("base", "taught", "eps-locked")
    said = base.model_dump()["eps_locked"]
    assert said["engine"] == "scripted"
    assert said["context_length"] == 2048
    assert said["quantisation"] == "none"
    assert said["dtype"] == "float64"
    assert said["template_digest"] == ScriptedTokenizer().template_digest
    assert said["adapter_digest"] == "none"
    assert said["publishable"] is False
    assert taught.model_dump()["eps_locked"]["adapter_digest"] == TAUGHT.adapter.digest
    assert served[1].models.retrieve("taught") == taught


# --- answers


def test_an_answer_is_the_engines_own(served: Served) -> None:
    prompt = ScriptedTokenizer().render([Message(role="user", content=ASK[0]["content"])])
    (own,) = ScriptedEngine().generate(
        [Prompt(key="x", token_ids=prompt, seed=7)],
        Decoding(max_new_tokens=20, temperature=0.5, top_p=0.9),
    )
    found = chat(served[1], max_tokens=20, temperature=0.5, top_p=0.9, seed=7)
    (choice,) = found.choices
    assert choice.message.content == own.text
    assert choice.message.role == "assistant"
    assert choice.finish_reason == own.stop_reason == "length"
    assert found.model == "base"
    assert found.usage.prompt_tokens == len(prompt)
    assert found.usage.completion_tokens == len(own.token_ids) == 20
    assert found.usage.total_tokens == len(prompt) + 20


def test_a_stream_is_the_same_text_token_by_token(served: Served) -> None:
    whole = chat(served[1], seed=3)
    stream = streamed(served[1], seed=3)
    (choice,) = whole.choices
    assert stream.content == choice.message.content
    assert stream.finish_reason == choice.finish_reason == "stop"
    assert stream.usage == whole.usage
    assert stream.n_chunks == whole.usage.completion_tokens + 1
    assert stream.roles[0] == "assistant"
    assert set(stream.roles[1:]) == {None}


def test_usage_is_sent_only_when_asked(served: Served) -> None:
    chunks = list(chat(served[1], stream=True))
    assert all(chunk.usage is None and chunk.choices for chunk in chunks)


def test_the_first_piece_comes_while_the_engine_is_still_writing() -> None:
    go_on = threading.Event()
    engine = SayingEngine("abc", gate=lambda: engine.n_written == 0 or go_on.wait(10))  # type: ignore[func-returns-value]
    with serving(engine) as (_, client):
        chunks = chat(client, stream=True)
        assert next(chunks).choices[0].delta.content == "a"
        assert engine.n_written == 1
        go_on.set()
        assert "".join(one.choices[0].delta.content or "" for one in chunks) == "bc"


def test_characters_of_several_tokens_are_sent_whole() -> None:
    text = "naïve ※ 🙂 end"
    with serving(SayingEngine(text, text)) as (_, client):
        chunks = [one.choices[0].delta.content for one in chat(client, stream=True)]
        assert chunks[:-1] == list(text)
        assert chat(client).choices[0].message.content == text


def test_a_character_cut_in_two_is_the_same_streamed_or_not() -> None:
    with serving(SayingEngine("ab※", "ab※")) as (_, client):
        assert streamed(client, max_tokens=4).content == "ab\ufffd"
        assert chat(client, max_tokens=4).choices[0].message.content == "ab\ufffd"


def test_an_empty_answer_is_an_answer() -> None:
    with serving(SayingEngine("", "")) as (_, client):
        (choice,) = chat(client).choices
        stream = streamed(client)
    assert (choice.message.content, choice.finish_reason) == ("", "stop")
    assert (stream.content, stream.finish_reason, stream.roles[0]) == ("", "stop", "assistant")


def test_an_engine_without_streams_answers_in_one_piece_and_says_so() -> None:
    with serving(WholeEngine(ScriptedEngine())) as (_, client):
        assert client.models.list().data[0].model_dump()["eps_locked"]["streaming"] == (
            "in one piece"
        )
        stream = streamed(client, seed=3, chat_template_kwargs=THINK)
        assert stream.n_chunks == 3
    with serving(ScriptedEngine()) as (_, client):
        other = streamed(client, seed=3, chat_template_kwargs=THINK)
    assert (stream.reasoning, stream.content) == (other.reasoning, other.content)


def test_our_own_client_reads_all_of_it() -> None:
    engine = SayingEngine("Hm.\n</think>", f"So. {CALL}")
    rules = Rules(api_key_env=None, timeout_seconds=20)
    with serving(engine) as (running, _):
        endpoint = make_endpoint(rules, {}, url=running.url, kind="serve")
        identity = endpoint.identity("base")
        (reply,) = endpoint.ask(
            [
                ChatRequest(
                    key="x",
                    model="base",
                    messages=ASK,
                    max_tokens=200,
                    temperature=0,
                    top_p=1,
                    seed=5,
                    tools=(WEATHER,),
                    extra={"chat_template_kwargs": THINK},
                    stream=True,
                )
            ]
        )
    assert identity.server == SERVER_NAME
    assert identity.said["eps_locked.adapter_digest"] == "none"
    assert not identity.publishable
    assert reply.status == "answered", reply
    assert (reply.reasoning, reply.content, reply.finish_reason) == ("Hm.", "So.", "tool_calls")
    assert reply.message is not None
    (call,) = reply.message["tool_calls"]
    assert call["function"] == {"name": "get_weather", "arguments": '{"city": "Turku"}'}
    assert reply.n_completion_tokens is not None
    assert reply.first_token_seconds is not None


# --- determinism


def test_equal_requests_get_equal_bytes_whatever_runs_beside_them(served: Served) -> None:
    bodies = [
        body_of(model=model, seed=seed, temperature=1.0, stream=stream)
        for model in ("base", "taught")
        for seed in (1, 2)
        for stream in (False, True)
    ]
    alone = [raw(served[0].url, body) for body in bodies]
    assert [status for status, _ in alone] == [200] * len(bodies)
    assert len(set(alone)) == len(bodies)
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda body: raw(served[0].url, body), bodies * 3))
    assert together == alone * 3


def test_an_adapter_is_attached_when_the_route_changes_and_let_go_at_the_end() -> None:
    engine = WholeEngine(ScriptedEngine())
    digest = TAUGHT.adapter.digest
    with serving(engine, BASE, TAUGHT) as (_, client):
        assert engine.attached == [digest, None]
        for model in ("base", "taught", "taught", "base"):
            chat(client, model=model)
        assert engine.attached[2:] == [digest, None]
        chat(client, model="taught")
    assert engine.attached[4:] == [digest, None]


# --- reasoning


def test_reasoning_is_opened_bounded_closed_and_kept_apart() -> None:
    engine = SayingEngine("Rust is old iron, and iron rusts", "Iron oxide.")
    with serving(engine) as (_, client):
        found = chat(client, chat_template_kwargs={**THINK, "thinking_budget": 12})
    message = found.choices[0].message
    assert message.reasoning_content == "Rust is old"
    assert message.content == "Iron oxide."
    first, second = engine.prompts
    assert first.endswith("assistant\n<think>\n")
    assert second == f"{first}Rust is old \n</think>\n\n"
    assert found.usage.completion_tokens_details.reasoning_tokens == 12
    assert found.usage.completion_tokens == 12 + len("Iron oxide.")


@pytest.mark.parametrize("stream", [False, True])
def test_a_block_that_the_model_closes_ends_there(stream: bool) -> None:
    engine = SayingEngine("Hm.\n</think>\n\nNever said", "Iron oxide.")
    with serving(engine) as (_, client):
        if stream:
            found = streamed(client, chat_template_kwargs=THINK)
            assert (found.reasoning, found.content) == ("Hm.", "Iron oxide.")
        else:
            message = chat(client, chat_template_kwargs=THINK).choices[0].message
            assert (message.reasoning_content, message.content) == ("Hm.", "Iron oxide.")
    assert engine.prompts[1] == f"{engine.prompts[0]}Hm.\n</think>\n\n"
    assert "Never" not in engine.prompts[1]


def test_a_stream_with_reasoning_is_the_same_texts(served: Served) -> None:
    fields = {"seed": 3, "temperature": 1.0, "chat_template_kwargs": THINK}
    (choice,) = chat(served[1], **fields).choices
    stream = streamed(served[1], **fields)
    assert stream.reasoning == choice.message.reasoning_content
    assert stream.content == choice.message.content
    assert stream.reasoning
    assert stream.content


def test_without_thinking_there_is_no_reasoning(served: Served) -> None:
    plain, off = chat(served[1]), chat(served[1], chat_template_kwargs={"enable_thinking": False})
    assert off.choices == plain.choices
    assert "reasoning_content" not in plain.choices[0].message.model_dump()


# --- tools


def test_calls_are_parsed_streamed_or_not() -> None:
    said = f"Let me look. \n{CALL}\n{CALL.replace('Turku', 'Oslo')}\n"
    with serving(SayingEngine(said, said)) as (_, client):
        (choice,) = chat(client, tools=[WEATHER], max_tokens=999).choices
        stream = streamed(client, tools=[WEATHER], max_tokens=999)
    assert choice.finish_reason == stream.finish_reason == "tool_calls"
    assert choice.message.content == stream.content == "Let me look."
    for calls in (choice.message.tool_calls, stream.calls):
        assert [call.function.name for call in calls] == ["get_weather"] * 2
        assert [json.loads(call.function.arguments) for call in calls] == [
            {"city": "Turku"},
            {"city": "Oslo"},
        ]
        assert len({call.id for call in calls}) == 2
    assert [call.index for call in stream.calls] == [0, 1]


def test_what_is_no_whole_call_stays_text() -> None:
    texts = [
        CALL.replace("</tool_call>", ""),
        CALL.replace('"name"', '"tool"'),
        CALL.replace('{"city": "Turku"}', '"Turku"'),
        CALL.replace('"Turku"', "NaN"),
        CALL.replace('"Turku"', '"\\ud800"'),
        CALL + " and that is it",
        CALL + CALL.replace("}", ""),
        "half a tag <tool_ca",
    ]
    with serving(SayingEngine(*(text for text in texts for _ in range(2)))) as (_, client):
        for said in texts:
            (choice,) = chat(client, tools=[WEATHER], max_tokens=999).choices
            stream = streamed(client, tools=[WEATHER], max_tokens=999)
            assert choice.message.content == stream.content == said
            assert choice.message.tool_calls is None
            assert stream.calls == []
            assert choice.finish_reason == stream.finish_reason == "stop"


def test_without_tools_on_offer_nothing_is_a_call() -> None:
    with serving(SayingEngine(CALL, CALL)) as (_, client):
        for fields in ({}, {"tools": [WEATHER], "tool_choice": "none"}):
            (choice,) = chat(client, max_tokens=999, **fields).choices
            assert choice.message.content == CALL
            assert choice.message.tool_calls is None


def test_the_house_form_describes_tools_and_shows_calls_and_results() -> None:
    engine = SayingEngine("Take one.")
    said = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Umbrella?"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": f"call_{n}",
                    "type": "function",
                    "function": {"name": "get_weather", "arguments": f'{{"city": "{city}"}}'},
                }
                for n, city in enumerate(("Turku", "Oslo"))
            ],
        },
        {"role": "tool", "tool_call_id": "call_0", "content": "rain"},
        {"role": "tool", "tool_call_id": "call_1", "content": "sun"},
    ]
    with serving(engine) as (_, client):
        chat(client, messages=said, tools=[WEATHER])
    (prompt,) = engine.prompts
    assert prompt.startswith("<|start|>system\nBe brief.\n\nYou can call functions")
    assert json.dumps(WEATHER) in prompt
    assert f"assistant\n{CALL}\n{CALL.replace('Turku', 'Oslo')}<|end|>" in prompt
    assert (
        "user\n<tool_response>\nrain\n</tool_response>\n<tool_response>\nsun\n</tool_response><|end|>"
        in prompt
    )


# --- refusals


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({"frequency": 1}, "frequency", "not a known field"),
        ({"stop": ["x"]}, "stop", "not supported"),
        ({"logprobs": True}, "logprobs", "not supported"),
        ({"response_format": {"type": "json_object"}}, "response_format", "plain text"),
        ({"n": 2}, "n", "expected 1, found 2"),
        ({"max_tokens": 0}, "max_tokens", "at least 1"),
        ({"max_tokens": True}, "max_tokens", "an integer"),
        ({"max_tokens": 5, "max_completion_tokens": 5}, "max_tokens", "found both"),
        ({"temperature": -1}, "temperature", "at least 0"),
        ({"temperature": 2.5}, "temperature", "at most 2"),
        ({"top_p": 0}, "top_p", "above 0"),
        ({"seed": 2**63}, "seed", "at most"),
        ({"seed": 1.5}, "seed", "an integer"),
        ({"stream": "yes"}, "stream", "true or false"),
        ({"stream_options": {"include_usage": True}}, "stream_options", "stream true"),
        ({"tool_choice": "required", "tools": [WEATHER]}, "tool_choice", "auto or none"),
        ({"tool_choice": "auto"}, "tool_choice", "tools beside it"),
        ({"tools": [WEATHER, WEATHER]}, "tools", "stands twice"),
        ({"tools": [{"type": "function"}]}, "tools[0].function", "is missing"),
        ({"chat_template_kwargs": {"think": 1}}, "chat_template_kwargs.think", "not a known"),
        (
            {"chat_template_kwargs": {"enable_thinking": False, "thinking_budget": 5}},
            "chat_template_kwargs.thinking_budget",
            "enable_thinking true",
        ),
        ({"messages": []}, "messages", "at least one"),
        ({"messages": None}, "messages", "is missing"),
        ({"messages": [{"role": "user", "content": ["a"]}]}, "messages[0].content", "a string"),
        ({"messages": [{"role": "developer", "content": "a"}]}, "messages[0].role", "system or"),
        ({"messages": [{"role": "user"}]}, "messages[0].content", "is missing"),
        ({"messages": [{"role": "user", "content": "a", "name": "x"}]}, "messages[0].name", "not"),
        (
            {"messages": [*ASK, {"role": "assistant", "content": "a"}]},
            "messages[1].role",
            "continuing",
        ),
        (
            {"messages": [*ASK, {"role": "tool", "tool_call_id": "c", "content": "a"}]},
            "messages[1].tool_call_id",
            "a call before it",
        ),
        ({"messages": [{"role": "user", "content": "\ud800"}]}, "body", "surrogates"),
        ({"model": 5}, "model", "a string"),
    ],
)
def test_a_field_that_cannot_be_is_refused_by_name(
    served: Served, fields: dict[str, Any], param: str, words: str
) -> None:
    error = refused(served, **fields)
    assert error["param"] == param
    assert words in error["message"]


def test_null_is_the_same_as_not_given(served: Served) -> None:
    nothing = dict.fromkeys(("stop", "tools", "tool_choice", "seed", "logprobs", "n"))
    assert chat(served[1], **nothing).choices == chat(served[1]).choices


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"model": "base", "model": "base"}', b"\xff"])
def test_a_body_that_is_no_json_object_is_refused(served: Served, body: bytes) -> None:
    status, answer = raw(served[0].url, body)
    assert status == 400
    assert json.loads(answer)["error"]["param"] == "body"


def test_a_request_too_long_names_both_lengths(served: Served) -> None:
    error = refused(served, max_tokens=2040)
    n_prompt = chat(served[1]).usage.prompt_tokens
    assert error["param"] == "messages"
    assert "at most 2048 tokens" in error["message"]
    assert f"found {n_prompt + 2040} ({n_prompt} of prompt, 2040 of answer)" in error["message"]
    thinking = {"enable_thinking": True, "thinking_budget": 2030}
    assert "2041 of reasoning" in refused(served, chat_template_kwargs=thinking)["message"]


def test_an_answer_without_a_length_takes_what_the_context_leaves(served: Served) -> None:
    n_overhead = chat(served[1]).usage.prompt_tokens - len(ASK[0]["content"])
    fitting = [{"role": "user", "content": "x" * (2048 - n_overhead - 5)}]
    found = chat(served[1], messages=fitting)
    assert (found.usage.completion_tokens, found.choices[0].finish_reason) == (5, "length")
    full = [{"role": "user", "content": "x" * (2048 - n_overhead)}]
    assert "1 of answer" in refused(served, messages=full)["message"]


def test_an_unknown_model_names_the_routes(served: Served) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        chat(served[1], model="other")
    assert caught.value.code == "model_not_found"
    assert "expected base or taught, found 'other'" in str(caught.value)
    with pytest.raises(openai.NotFoundError):
        served[1].models.retrieve("other")


def test_other_paths_methods_and_hosts_are_not_ours(served: Served) -> None:
    url = served[0].url
    for method, path, status in (
        ("GET", "/v1/chat/completions", 405),
        ("POST", "/v1/completions", 404),
        ("POST", "/v1/embeddings", 404),
    ):
        found, body = raw(url, b"{}", method=method, path=path)
        assert (found, "is not offered here" in json.loads(body)["error"]["message"]) == (
            status,
            True,
        )
    status, body = raw(url, body_of(), headers={"Host": "example.org"})
    assert status == 403
    assert "expected 127.0.0.1 or localhost, found 'example.org'" in body.decode()


def test_a_body_beyond_the_limit_is_not_read(served: Served) -> None:
    status, _ = raw(served[0].url, b" " * (MAX_BODY_BYTES + 1))
    assert status == 413
    assert chat(served[1]).choices


# --- failures


def test_an_engine_that_fails_is_a_server_error_and_the_next_request_is_served() -> None:
    engine = SayingEngine("one", "two")
    failing = iter([True, False])

    def gate() -> None:
        if next(failing, False):
            raise BackendError("engine", problem="ran out of memory")

    engine.gate = gate
    with serving(engine) as (_, client):
        with pytest.raises(openai.InternalServerError, match="ran out of memory"):
            chat(client, stream=True)
        assert chat(client).choices[0].message.content == "two"


def test_a_stream_that_breaks_off_says_so_and_has_no_end() -> None:
    engine = SayingEngine("abcdef")

    def gate() -> None:
        if engine.n_written == 3:
            raise BackendError("engine", problem="ran out of memory")

    engine.gate = gate
    with serving(engine) as (running, _):
        status, body = raw(running.url, body_of(stream=True))
    assert status == 200
    assert b"ran out of memory" in body
    assert b"[DONE]" not in body


def test_a_defect_of_ours_is_a_server_error_and_the_next_request_is_served(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with serving(SayingEngine()) as (_, client):  # it has nothing to say
        with pytest.raises(openai.InternalServerError, match="IndexError"):
            chat(client)
        with pytest.raises(openai.InternalServerError, match="IndexError"):
            chat(client)
    assert "a request failed" in caplog.text


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_hangs_up_does_not_keep_the_engine(stream: bool) -> None:
    step = threading.Semaphore(0)
    engine = SayingEngine("a" * 60, "next", gate=lambda: assert_true(step.acquire(timeout=10)))
    with serving(engine) as (running, client):
        host, port = running.url.removeprefix("http://").removesuffix("/v1").split(":")
        body = body_of(stream=stream)
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(body)}"
        with socket.create_connection((host, int(port)), timeout=10) as line:
            line.sendall(f"{head}\r\n\r\n".encode() + body)
            step.release()
            while engine.n_written == 0:
                step.release()
            if stream:
                assert line.recv(100)
        step.release(200)
        assert chat(client).choices[0].message.content == "next"


def assert_true(value: bool) -> None:
    assert value


def test_closing_ends_a_request_under_way() -> None:
    step = threading.Semaphore(1)
    engine = SayingEngine("a" * 60, gate=lambda: assert_true(step.acquire(timeout=10)))
    running = start_server(engine, ScriptedTokenizer(), [BASE], rules=RULES)
    with ThreadPoolExecutor(2) as pool:
        asked = pool.submit(raw, running.url, body_of())
        while engine.n_written == 0:
            pass
        closing = pool.submit(running.close)
        while not running._desk._closing.is_set():
            pass
        step.release(100)
        closing.result()
        status, body = asked.result()
    assert (status, json.loads(body)["error"]["message"]) == (503, "server: is closing")
    assert engine.n_written < 60
    running.close()
    with pytest.raises(ConnectionRefusedError):
        raw(running.url, body_of())


# --- starting


def test_it_listens_on_loopback_only() -> None:
    with pytest.raises(MalformedInputError, match=r"host: expected 127.0.0.1: .*found 0.0.0.0"):
        start_server(ScriptedEngine(), ScriptedTokenizer(), [BASE], rules=RULES, host="0.0.0.0")


def test_a_port_in_use_is_refused_by_name(served: Served) -> None:
    port = int(served[0].url.removesuffix("/v1").rpartition(":")[2])
    n_threads = threading.active_count()
    with pytest.raises(BackendError, match=rf"127.0.0.1:{port}: cannot be listened on"):
        start_server(ScriptedEngine(), ScriptedTokenizer(), [BASE], rules=RULES, port=port)
    assert threading.active_count() == n_threads


def test_an_adapter_without_effect_is_refused_at_the_start() -> None:
    idle = ServedRoute(name="idle", adapter=scripted_adapter("idle", strength=0.0))
    with pytest.raises(BackendError, match="does not act"):
        start_server(ScriptedEngine(), ScriptedTokenizer(), [BASE, idle], rules=RULES)


@pytest.mark.parametrize(
    ("routes", "words"),
    [
        ([], "at least one"),
        ([BASE, BASE], "given twice"),
        ([ServedRoute(name="a b", adapter=None)], "a b"),
    ],
)
def test_routes_that_cannot_be_are_refused(routes: list[ServedRoute], words: str) -> None:
    with pytest.raises(MalformedInputError, match=words):
        start_server(ScriptedEngine(), ScriptedTokenizer(), routes, rules=RULES)


def test_rules_are_counts_of_tokens() -> None:
    with pytest.raises(MalformedInputError, match="context_length: expected at least 1"):
        ServingRules(context_length=0)
