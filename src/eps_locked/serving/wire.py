"""The documents of the chat-completions API, as this server writes them.

No document holds a time or a random id: equal requests to equal servers get equal bytes. What a
client wants to know of the model beyond OpenAI's fields stands under ``eps_locked``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from eps_locked import __version__
from eps_locked.canonical import digest_bytes, digest_value
from eps_locked.domain.model import EngineIdentity
from eps_locked.serving.answering import Answer, Piece
from eps_locked.serving.rules import ServedRoute

__all__ = [
    "SERVER_NAME",
    "Frame",
    "completion",
    "error",
    "model_document",
    "to_bytes",
    "usage",
]

# In the form that the header of this name asks for.
SERVER_NAME = f"eps-locked/{__version__}"
# In place of a time: clients want a number here, and a time would make equal answers differ.
_CREATED = 0


def model_document(
    route: ServedRoute,
    identity: EngineIdentity,
    *,
    context_length: int,
    template_digest: str,
    tool_form: str,
    tool_form_digest: str,
    streams: bool,
) -> dict[str, Any]:
    """One entry of /v1/models."""
    return {
        "id": route.name,
        "object": "model",
        "created": _CREATED,
        "owned_by": "eps-locked",
        "eps_locked": {
            "server": SERVER_NAME,
            "engine": identity.name,
            "engine_version": identity.version,
            "device": identity.device,
            "dtype": identity.dtype,
            "quantisation": identity.quantisation,
            "context_length": context_length,
            "template_digest": template_digest,
            "tool_form": tool_form,
            "tool_form_digest": tool_form_digest,
            "streaming": "token by token" if streams else "in one piece",
            "adapter_digest": "none" if route.adapter is None else route.adapter.digest,
            "publishable": identity.publishable,
        },
    }


@dataclass(frozen=True, kw_only=True, slots=True)
class Frame:
    """What all documents of one answer share."""

    id: str
    model: str
    fingerprint: str

    @classmethod
    def of(cls, body: bytes, model: Mapping[str, Any]) -> Frame:
        """The ids follow from the request's bytes and the model's description."""
        request = digest_bytes(body).removeprefix("blake3:")[:24]
        described = digest_value(dict(model)).removeprefix("blake3:")[:16]
        return cls(id=f"chatcmpl-{request}", model=model["id"], fingerprint=f"fp_{described}")

    def document(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": kind,
            "created": _CREATED,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
            "choices": choices,
        }

    def calls(self, answer: Answer) -> list[dict[str, Any]]:
        return [
            {
                "id": f"call_{self.id[-12:]}_{n}",
                "type": "function",
                "function": {"name": name, "arguments": arguments},
            }
            for n, (name, arguments) in enumerate(answer.calls)
        ]

    def chunk(self, delta: Mapping[str, Any], finish_reason: str | None) -> dict[str, Any]:
        choice = {
            "index": 0,
            "delta": dict(delta),
            "logprobs": None,
            "finish_reason": finish_reason,
        }
        return self.document("chat.completion.chunk", [choice])

    def last_chunks(self, answer: Answer, *, is_first: bool) -> list[dict[str, Any]]:
        """What ends a stream after its texts: calls whole, then why it ended.

        The first chunk of a stream names the role, and no chunk is sent before there is something
        to say, so that its arrival is the first token's.
        """
        deltas: list[dict[str, Any]] = [
            {"tool_calls": [{"index": n, **call}]} for n, call in enumerate(self.calls(answer))
        ]
        if is_first:
            first = deltas[0] if deltas else {"content": ""}
            deltas[:1] = [{"role": "assistant", **first}]
        return [
            *(self.chunk(delta, None) for delta in deltas),
            self.chunk({}, answer.finish_reason),
        ]

    def piece_chunk(self, piece: Piece, *, is_first: bool) -> dict[str, Any]:
        role = {"role": "assistant"} if is_first else {}
        name = "content" if piece.kind == "content" else "reasoning_content"
        return self.chunk({**role, name: piece.text}, None)


def completion(frame: Frame, answer: Answer) -> dict[str, Any]:
    """The answer to a request without stream."""
    calls = frame.calls(answer)
    message: dict[str, Any] = {
        "role": "assistant",
        "content": None if calls and not answer.content else answer.content,
        "refusal": None,
    }
    if answer.reasoning is not None:
        message["reasoning_content"] = answer.reasoning
    if calls:
        message["tool_calls"] = calls
    choice = {
        "index": 0,
        "message": message,
        "logprobs": None,
        "finish_reason": answer.finish_reason,
    }
    return {**frame.document("chat.completion", [choice]), "usage": usage(answer)}


def usage(answer: Answer) -> dict[str, Any]:
    """Tokens. Those that the model wrote count without the one that ended its turn."""
    n_written = answer.n_reasoning + answer.n_answer
    return {
        "prompt_tokens": answer.n_prompt,
        "completion_tokens": n_written,
        "total_tokens": answer.n_prompt + n_written,
        "completion_tokens_details": {"reasoning_tokens": answer.n_reasoning},
    }


def error(message: str, *, kind: str, param: str | None, code: str | None) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def to_bytes(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode("utf-8")
