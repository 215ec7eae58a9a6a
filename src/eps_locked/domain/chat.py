"""What a chat endpoint is asked and what it answers. No vendor type appears here.

Messages and tools are in the form of the OpenAI chat API and travel as they are. Only the status
``answered`` is a whole reply: a text that was cut off, a stream that broke, a filter, a service
that was down are each kept apart from the others, and none of them is an answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, get_args

ChatStatus = Literal[
    "answered", "truncated", "filtered", "empty", "unreadable", "rate_limited", "outage"
]
CHAT_STATUSES: tuple[str, ...] = get_args(ChatStatus)


@dataclass(frozen=True, kw_only=True, slots=True)
class ChatRequest:
    """One exchange to continue.

    ``model`` is the route by its name. ``extra`` are further fields of the request's body, as a
    plan gives them (``chat_template_kwargs``, say). ``stream``: ask for the reply piece by piece,
    which alone can tell when its first token came.
    """

    key: str
    model: str
    messages: tuple[Mapping[str, Any], ...]
    max_tokens: int
    temperature: float
    top_p: float
    seed: int | None
    tools: tuple[Mapping[str, Any], ...] = ()
    extra: Mapping[str, Any]
    stream: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class ChatReply:
    """What came back for one request.

    ``content`` is the answer and ``reasoning`` what was thought before it, already apart.
    ``message`` is the assistant's message as it came (None without one), which holds tool calls.
    ``model`` is what the endpoint says it is. ``seconds`` is the last try alone, from sending to
    the end of the reply, ``first_token_seconds`` to its first piece (None unless streamed).
    ``tries`` counts requests sent. ``note`` says in at most 200 characters why there is no answer.
    """

    key: str
    status: ChatStatus
    content: str
    reasoning: str
    message: Mapping[str, Any] | None
    finish_reason: str | None
    model: str
    n_prompt_tokens: int | None
    n_completion_tokens: int | None
    first_token_seconds: float | None
    seconds: float
    tries: int
    note: str

    @property
    def is_answered(self) -> bool:
        return self.status == "answered"


@dataclass(frozen=True, kw_only=True, slots=True)
class EndpointIdentity:
    """What serves, as far as it tells: nothing here is guessed, ``unknown`` is written as such.

    ``model`` is the route, ``said`` what the endpoint's own list of models says of it (texts only).
    """

    kind: str
    model: str
    server: str
    said: Mapping[str, str]
    publishable: bool

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "model": self.model,
            "server": self.server,
            "said": dict(self.said),
            "publishable": self.publishable,
        }


class ChatEndpoint(Protocol):
    """Continues chats. One reply per request, in order; none lost, none invented."""

    def identity(self, model: str) -> EndpointIdentity:
        """What serves the route ``model``. Raises BackendError for a route that is not there."""
        ...

    def ask(self, requests: Sequence[ChatRequest]) -> tuple[ChatReply, ...]:
        """Raises BackendError only for what no retry could mend (no key, a route that is not
        there); everything else is the status of a reply."""
        ...
