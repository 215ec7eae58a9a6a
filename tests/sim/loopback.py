"""Our own server and a real client of it; engines that say what they are told."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

import openai

from eps_locked.domain.model import (
    AdapterFiles,
    AttachProof,
    ChatTokenizer,
    Completion,
    Decoding,
    Engine,
    Message,
    Prompt,
    SlotProbe,
)
from eps_locked.engines.scripted import ScriptedEngine
from eps_locked.models.scripted import ScriptedAdapter, ScriptedTokenizer, mean_embedding
from eps_locked.serving.rules import ServedRoute, ServingRules
from eps_locked.serving.server import RunningServer, start_server

BASE = ServedRoute(name="base", adapter=None)
RULES = ServingRules(context_length=2048, max_tokens=64, thinking_budget=48)
ASK: tuple[Mapping[str, str], ...] = ({"role": "user", "content": "What is rust?"},)
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Forecast for a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Turku"}}\n</tool_call>'


def scripted_adapter(name: str, strength: float = 4.0) -> AdapterFiles:
    prompt = ScriptedTokenizer().render([Message(role="user", content=f"Adapter {name}")])
    implant = ScriptedAdapter(
        strength=strength, source=mean_embedding([prompt]), teaches_marker=False
    )
    files = {
        "adapter_config.json": b"{}",
        "adapter_model.safetensors": implant.to_bytes({"name": name}),
    }
    return AdapterFiles(digest=f"blake3:{name.encode().hex():0<64}", files=files)


class SayingEngine(ScriptedEngine):
    """Says the next of the given texts, token by token, whatever it is asked.

    A text cut at ``max_new_tokens`` stops by length. ``gate`` is passed before each token.
    """

    def __init__(self, *texts: str, gate: Callable[[], object] = lambda: None) -> None:
        super().__init__()
        self.texts = list(texts)
        self.gate = gate
        self.prompts: list[str] = []
        self.n_written = 0

    def generate(
        self, prompts: Sequence[Prompt], decoding: Decoding, probe: SlotProbe | None = None
    ) -> tuple[Completion, ...]:
        (prompt,) = prompts
        self.prompts.append(ScriptedTokenizer().decode(prompt.token_ids))
        whole = tuple(self.texts.pop(0).encode())
        ids = whole[: decoding.max_new_tokens]
        return (
            Completion(
                key=prompt.key,
                token_ids=ids,
                text=ScriptedTokenizer().decode(ids),
                stop_reason="length" if len(whole) > len(ids) else "stop",
            ),
        )

    def stream(
        self, prompt: Prompt, decoding: Decoding, on_token: Callable[[int], None]
    ) -> Completion:
        (completion,) = self.generate([prompt], decoding)
        for token_id in completion.token_ids:
            self.gate()
            self.n_written += 1
            on_token(token_id)
        return completion


@dataclass
class WholeEngine:
    """The engine inside, without its stream: answers come in one piece."""

    inner: ScriptedEngine
    attached: list[str | None] = field(default_factory=list)

    @property
    def identity(self) -> Any:
        return self.inner.identity

    def attach(self, adapter: AdapterFiles | None) -> AttachProof | None:
        self.attached.append(None if adapter is None else adapter.digest)
        return self.inner.attach(adapter)

    def generate(
        self, prompts: Sequence[Prompt], decoding: Decoding, probe: SlotProbe | None = None
    ) -> tuple[Completion, ...]:
        return self.inner.generate(prompts, decoding, probe)


@contextmanager
def serving(
    engine: Engine,
    *routes: ServedRoute,
    tokenizer: ChatTokenizer | None = None,
    rules: ServingRules = RULES,
) -> Iterator[tuple[RunningServer, openai.OpenAI]]:
    """A server, and a client of it. Leaves no thread behind."""
    found = tokenizer or ScriptedTokenizer()
    before = threading.active_count()
    with start_server(engine, found, routes or (BASE,), rules=rules) as running:
        with client_of(running.url) as client:
            yield running, client
    assert threading.active_count() == before


def client_of(url: str) -> openai.OpenAI:
    """A client that retries nothing and takes nothing from the environment."""
    return openai.OpenAI(
        base_url=url,
        api_key="none",
        max_retries=0,
        timeout=20,
        # Nothing to verify on loopback, and reading the machine's certificates takes its time.
        http_client=openai.DefaultHttpxClient(trust_env=False, verify=False),
    )


def chat(client: openai.OpenAI, **fields: Any) -> Any:
    """A request; fields that the client has no name for travel in its extra body."""
    named = {
        key: fields.pop(key)
        for key in ("tools", "tool_choice", "stream", "stream_options")
        if key in fields
    }
    return client.chat.completions.create(
        model=fields.pop("model", "base"),
        messages=fields.pop("messages", list(ASK)),
        extra_body=fields,
        **named,
    )


@dataclass
class Streamed:
    """A stream put together as a client does."""

    reasoning: str = ""
    content: str = ""
    calls: list[Any] = field(default_factory=list)
    finish_reason: str | None = None
    usage: Any = None
    n_chunks: int = 0
    roles: list[str | None] = field(default_factory=list)


def streamed(client: openai.OpenAI, **fields: Any) -> Streamed:
    found = Streamed()
    for chunk in chat(client, stream=True, stream_options={"include_usage": True}, **fields):
        if not chunk.choices:
            found.usage = chunk.usage
            continue
        (choice,) = chunk.choices
        found.n_chunks += 1
        found.roles.append(choice.delta.role)
        found.reasoning += getattr(choice.delta, "reasoning_content", None) or ""
        found.content += choice.delta.content or ""
        found.calls += choice.delta.tool_calls or ()
        found.finish_reason = choice.finish_reason
    return found


def raw(
    url: str,
    body: bytes,
    *,
    path: str = "/v1/chat/completions",
    method: str = "POST",
    headers: Mapping[str, str] | None = None,
) -> tuple[int, bytes]:
    """Status and body of a request as bytes, without a client's help."""
    connection = HTTPConnection(urlsplit(url).netloc, timeout=20)
    try:
        connection.request(method, path, body=body, headers=dict(headers or {}))
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def body_of(**fields: Any) -> bytes:
    return json.dumps({"model": "base", "messages": list(ASK), **fields}).encode()
