"""The transformers engine behind the endpoint: a random three-layer Llama, adapters included."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from eps_locked.domain.model import Decoding, Prompt
from eps_locked.engines.hf import HfEngine
from eps_locked.serving.rules import ServedRoute, ServingRules
from sim.loopback import BASE, body_of, chat, raw, serving, streamed

sys.path.insert(0, str(Path(__file__).parents[1] / "engines"))
import tiny_engine as tiny

RULES = ServingRules(context_length=tiny.POSITIONS, max_tokens=24, thinking_budget=10)
DECODINGS = [
    Decoding(max_new_tokens=24),
    Decoding(max_new_tokens=24, temperature=1.0, top_p=0.9),
]


@pytest.fixture(scope="module")
def engine() -> HfEngine:
    return tiny.make_engine()


@pytest.fixture(scope="module")
def routes(engine: HfEngine) -> list[ServedRoute]:
    host = engine._host
    adapters = [tiny.make_adapter(host, size=size) for size in (0.2, 0.3, 0.4)]
    return [
        BASE,
        *(ServedRoute(name=f"a{n}", adapter=adapter) for n, adapter in enumerate(adapters)),
    ]


@pytest.mark.parametrize("decoding", DECODINGS, ids=["greedy", "sampled"])
def test_a_stream_tells_the_tokens_that_generate_gives(
    engine: HfEngine, decoding: Decoding
) -> None:
    for prompt in tiny.make_prompts(4):
        told: list[int] = []
        streamed_one = engine.stream(prompt, decoding, told.append)
        assert streamed_one == engine.generate([prompt], decoding)[0]
        assert tuple(told) == streamed_one.token_ids


def test_what_the_listener_raises_ends_the_decoding_and_harms_nothing(engine: HfEngine) -> None:
    prompt: Prompt = tiny.make_prompts(1)[0]
    whole = engine.generate([prompt], tiny.GREEDY)

    def stop(_token: int) -> None:
        raise KeyError("enough")

    with pytest.raises(KeyError, match="enough"):
        engine.stream(prompt, tiny.GREEDY, stop)
    assert engine.generate([prompt], tiny.GREEDY) == whole


def test_each_route_answers_with_its_adapter_however_many_there_are(
    engine: HfEngine, routes: Sequence[ServedRoute]
) -> None:
    with serving(engine, *routes, tokenizer=tiny.TinyTokenizer(), rules=RULES) as (running, client):
        bodies = [
            body_of(model=route.name, temperature=0, stream=stream)
            for route in routes
            for stream in (False, True)
        ]
        first = [raw(running.url, body) for body in bodies]
        assert [raw(running.url, body) for body in reversed(bodies)] == first[::-1]
        texts = [json.loads(body)["choices"][0]["message"]["content"] for _, body in first[::2]]
        assert len(set(texts)) == len(routes)
        for route, text in zip(routes, texts, strict=True):
            assert streamed(client, model=route.name, temperature=0).content == text
            usage = chat(client, model=route.name, temperature=0).usage
            assert usage.completion_tokens <= RULES.max_tokens
    assert engine._host.active_digest is None


def test_reasoning_on_real_tokens_is_the_same_streamed_or_not(engine: HfEngine) -> None:
    fields = {"temperature": 1.0, "seed": 4, "chat_template_kwargs": {"enable_thinking": True}}
    with serving(engine, tokenizer=tiny.TinyTokenizer(), rules=RULES) as (_, client):
        whole, stream = chat(client, **fields), streamed(client, **fields)
    (choice,) = whole.choices
    assert stream.reasoning == choice.message.reasoning_content
    assert stream.content == choice.message.content
    assert stream.usage == whole.usage
    assert 0 < whole.usage.completion_tokens_details.reasoning_tokens <= RULES.thinking_budget
