"""A stream put together is what the reply would have been in one piece, or it is no reply."""

from __future__ import annotations

import json
from typing import Any

import pytest

from eps_locked.services.completion import (
    Completion,
    ErrorInReplyError,
    read_completion,
)
from eps_locked.services.listing import has_route, read_listing, said_of
from eps_locked.services.stream import BrokenOffError, is_done, read_stream
from sim.chat_server import call, chunk, chunks, completion, events

CALLS = [call("find", '{"name": "Anna", "n": 3}', 0), call("stop", "{}", 1)]
WHOLE = [
    completion("Hello, wörld \U0001f600 \u2028 end."),
    completion("a", "length"),
    completion("", "content_filter"),
    completion("x", refusal="I would rather not"),
    completion("Hello.", reasoning_content="because it is polite"),
    completion("Hello.", reasoning="because it is polite"),
    completion(None, "tool_calls", tool_calls=CALLS),
    completion("I look.", "tool_calls", tool_calls=CALLS[:1]),
    completion("Hello.", usage=None),
    completion("Hello.", usage={"prompt_tokens": True, "completion_tokens": -1}),
]


def body_of(values: list[Any], **options: Any) -> bytes:
    return b"".join(events(values, **options))


def without_time(found: Completion) -> tuple[Any, ...]:
    return (
        found.model,
        found.message,
        found.finish_reason,
        found.n_prompt_tokens,
        found.n_completion_tokens,
    )


@pytest.mark.parametrize("whole", WHOLE)
@pytest.mark.parametrize("width", [1, 3, 1000])
def test_stream_put_together_is_the_reply_in_one_piece(whole: dict[str, Any], width: int) -> None:
    in_one_piece = read_completion(json.dumps(whole).encode())
    assert without_time(read_stream(body_of(chunks(whole, width)))) == without_time(in_one_piece)


@pytest.mark.parametrize(
    "change",
    [
        lambda body: body.replace(b"\n", b"\r\n"),
        lambda body: body.replace(b"\n", b"\r"),
        lambda body: body.replace(b"data: ", b"data:"),
        lambda body: body.replace(b"data: ", b": a comment\n\nevent: x\nid: 7\ndata: "),
        lambda body: body + b'data: {"choices": 7}\n\n',
        lambda body: body.removesuffix(b"data: [DONE]\n\n"),
        lambda body: body.removesuffix(b"\n"),
    ],
)
def test_form_of_the_events_does_not_matter(change: Any) -> None:
    body = body_of(chunks(WHOLE[0]))
    assert without_time(read_stream(change(body))) == without_time(read_stream(body))


def test_every_stream_that_ends_before_its_finish_reason_is_broken_off() -> None:
    """At every single byte."""
    whole = completion("Hello ö.", reasoning_content="why", usage=None)
    body = body_of(chunks(whole), done=False)
    assert read_stream(body).finish_reason == "stop"
    for n_bytes in range(len(body)):
        with pytest.raises(BrokenOffError if n_bytes > 4 else ValueError):
            read_stream(body[:n_bytes])


def test_first_piece_is_the_first_that_brings_something() -> None:
    pieces = events([chunk({"role": "assistant", "content": ""}), chunk({"content": "a"})])
    end = len(b"".join(pieces[:2]))
    rest = events([chunk({}, "stop")])
    assert read_stream(b"".join([*pieces[:2], *rest])).first_at == end
    for delta in (
        {"reasoning_content": "a"},
        {"reasoning": "a"},
        {"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": ""}}]},
    ):
        first = events([chunk(delta)], done=False)[0]
        assert read_stream(b"".join([first, *rest])).first_at == len(first)
    assert read_stream(b"".join(rest)).first_at is None


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        (["{broken"], "not one JSON object"),
        (["[1]"], "not one JSON object"),
        ([chunk({"content": "a"}), '{"a": 1, "a": 2}'], "twice"),
        (["<html>"], "not one JSON object"),
        ([chunk({"content": 7}, "stop")], "content is no text"),
        ([chunk({"content": [{"type": "text"}]}, "stop")], "content is no text"),
        ([chunk({"reasoning": {"effort": 1}}, "stop")], "reasoning is no text"),
        ([chunk("text", "stop")], "no object"),
        ([chunk({"content": "a"}, "stop"), chunk({}, "length")], "a second finish reason"),
        ([chunk({}, 7)], "finish reason"),
        ([chunk({}, "stop", model="x"), chunk({"content": "a"}, model="y")], "one model"),
        ([chunk({"content": "a"}, "stop", model=None)], "name its model"),
        ([chunk({"content": "a"}, "stop", model="")], "name its model"),
        ([{**chunk({}), "choices": chunk({})["choices"] * 2}], "more than one choice"),
        ([{**chunk({}), "choices": [{"index": 1, "delta": {}}]}], "another choice"),
        ([{**chunk({}), "choices": {}}, {**chunk({}), "choices": {"a": 1}}], "one choice"),
        ([{**chunk({}), "choices": [7]}], "another choice"),
        ([chunk({"content": "\ud83d"}, "stop")], "no exact JSON form"),
        ([chunk({"tool_calls": {"a": 1}}, "stop")], "no list"),
        ([chunk({"tool_calls": [{"function": {}}]}, "stop")], "without its number"),
        ([chunk({"tool_calls": [{"index": True}]}, "stop")], "without its number"),
        ([chunk({"tool_calls": [{"index": 0}]}, "stop")], "without the name"),
        ([chunk({"tool_calls": [{"index": 0, "function": 7}]}, "stop")], "function is no"),
        ([chunk({"tool_calls": [{**CALLS[0], "index": 1}]}, "stop")], "numbered from 0"),
        (
            [
                chunk({"tool_calls": [{**CALLS[0], "index": 0}]}),
                chunk({"tool_calls": [{**CALLS[1], "index": 0}]}, "tool_calls"),
            ],
            "more than one id",
        ),
        (
            [
                chunk(
                    {"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": {}}}]},
                    "tool_calls",
                )
            ],
            "arguments are no text",
        ),
    ],
)
def test_senseless_stream_is_no_reply(values: list[Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem) as caught:
        read_stream(body_of(values))
    assert not isinstance(caught.value, BrokenOffError | ErrorInReplyError)


def test_what_is_no_text_at_all_is_no_reply() -> None:
    with pytest.raises(ValueError, match="utf-8"):
        read_stream(b'data: {"a": "\xff"}\n\n')
    with pytest.raises(ValueError, match="no piece of a stream"):
        read_stream(b"<html>\n<body>busy</body>\n</html>\n")
    with pytest.raises(BrokenOffError):
        read_stream(b"")


def test_stream_that_names_its_model_once_or_late_is_taken() -> None:
    """As Azure and some gateways do it: pieces about the request come first, without a model."""
    about = {"choices": [], "model": "", "prompt_filter_results": []}
    values = [about, chunk({"content": "a"}, model=""), chunk({}, "stop", model="m"), {"usage": {}}]
    found = read_stream(body_of(values))
    assert (found.model, found.message["content"]) == ("m", "a")


def test_error_among_the_pieces_is_an_error() -> None:
    error = {"error": {"message": "gone", "code": 502}}
    with pytest.raises(ErrorInReplyError) as caught:
        read_stream(body_of([chunk({"content": "a"}), error]))
    assert caught.value.value == error
    with pytest.raises(ErrorInReplyError):
        read_stream(body_of([chunk({"content": "a"}, "stop"), error]))


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({**WHOLE[0], "choices": []}, "one choice"),
        ({**WHOLE[0], "choices": WHOLE[0]["choices"] * 2}, "one choice"),
        ({**WHOLE[0], "choices": [None]}, "without a message"),
        ({**WHOLE[0], "choices": [{"message": "x"}]}, "without a message"),
        ({**WHOLE[0], "model": None}, "name its model"),
        (completion([{"type": "text", "text": "x"}]), "content is no text"),
        (completion("x", tool_calls={}), "tool_calls are no objects"),
        (completion("x", tool_calls=["f"]), "tool_calls are no objects"),
        (completion("x", 7), "finish reason"),
        (completion("x", "\ud800"), "no exact JSON form"),
        (completion("x", audio=2**70), "no exact JSON form"),
        ({"ok": True}, "one choice"),
    ],
)
def test_senseless_completion_is_no_reply(value: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        read_completion(json.dumps(value).encode())


def test_end_of_a_stream_is_seen_only_where_it_is_one() -> None:
    assert is_done(b"data: {}\n\ndata: [DONE]\n\n")
    assert is_done(b"data:[DONE]\r\n")
    assert not is_done(b"data: [DONE]")  # its line may go on
    assert not is_done(b'data: {"content": "data: [DONE]')
    assert not is_done(b"")


# --- the list of models

LIST = {
    "object": "list",
    "data": [
        {
            "id": "m",
            "object": "model",
            "created": 1790000000,
            "owned_by": "vllm",
            "max_model_len": 4096,
            "parent": None,
            "permission": [{"id": "modelperm-8f2c", "created": 1790000000}],
            "meta": {"n_ctx_train": 2048, "created": 1},
            "caps": ["chat"],
        },
        {"id": "vendor/*", "owned_by": "x"},
    ],
}


def test_list_of_models_says_what_does_not_change_from_start_to_start() -> None:
    entries = read_listing(json.dumps(LIST).encode())
    assert said_of(entries, "m") == {
        "caps": '["chat"]',
        "max_model_len": "4096",
        "meta.n_ctx_train": "2048",
        "owned_by": "vllm",
    }
    assert said_of(entries, "vendor/any") == {}
    assert [has_route(entries, one) for one in ("m", "vendor/any", "M", "")] == [
        True,
        True,
        False,
        False,
    ]


def test_route_of_several_servers_says_what_all_of_them_say() -> None:
    entries = [{"id": "m", "owner": "b", "n": 1}, {"id": "m", "owner": "a", "n": 1}]
    assert said_of(entries, "m") == {"n": "1", "owner": "a | b"}


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"{}", b'{"data": [{"name": "m"}]}'])
def test_what_is_no_list_of_models_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError):
        read_listing(body)
