"""The judge behind any OpenAI-compatible chat-completions endpoint, LiteLLM and vLLM included.

Asked at the temperature of the plan (none is sent if the plan gives none) and with the verdict's
JSON schema as ``response_format``; an endpoint that takes no schema is refused instead of being
asked in another way than the plan says. How a reply becomes a status: finish reason ``length`` is
``truncated``; ``content_filter`` or a filled ``refusal`` is ``judge_refused``, and so is HTTP 400
from a content filter; ``stop`` is read by ``parse_verdict``; no content, or any other finish
reason, is ``unreadable``.

The rubric's limit goes out as ``max_tokens``, the name that every such endpoint knows; OpenAI's own
newest models want another and say so in their refusal: ask them through LiteLLM, which translates.

A gateway that caches replies answers repeated draws with one and the same verdict, which would
make the judge's noise look like none: caching must be off there, and cannot be seen from here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import openai

from eps_locked.domain.judging import JudgeIdentity, JudgePlan, JudgeRequest, Verdict
from eps_locked.judges.parse import output_schema, unscored, verdict_of
from eps_locked.judges.transport import (
    JudgeLine,
    ask_all,
    require_distinct,
    require_endpoint,
    require_key,
)
from eps_locked.services.line import Attempt, Sleep, one_request
from eps_locked.services.strict_json import json_reply

__all__ = ["GatewayJudge"]


class GatewayJudge:
    """See Judge. ``api_key`` None sends no key. ``sleep`` (seconds) is the clock; the default ends
    early on an interrupt."""

    def __init__(self, plan: JudgePlan, api_key: str | None, *, sleep: Sleep | None = None) -> None:
        self._plan = plan
        self._api_key = None if api_key is None else require_key(plan, api_key)
        self._base_url = require_endpoint(plan, plan.endpoint or "")
        self._sleep = sleep
        self._n_sent = 0

    @property
    def n_sent(self) -> int:
        """HTTP requests sent by finished calls of ``judge``, retries included."""
        return self._n_sent

    @property
    def identity(self) -> JudgeIdentity:
        plan = self._plan
        settings = {
            "effort": plan.effort or "not set",
            "endpoint": self._base_url,
            "max_concurrency": str(plan.max_concurrency),
            "max_tries": str(plan.max_tries),
            "output_format": "json_schema",
            "temperature": "not sent" if plan.temperature is None else f"{plan.temperature:g}",
            "timeout_seconds": f"{plan.timeout_seconds:g}",
        }
        return JudgeIdentity(
            kind=plan.kind,
            model=plan.model,
            family=plan.family,
            version=f"openai {openai.__version__}, chat completions",
            settings=settings,
            publishable=True,
        )

    def judge(self, requests: Sequence[JudgeRequest]) -> tuple[Verdict, ...]:
        require_distinct(requests)
        if not requests:
            return ()
        line = JudgeLine(self._plan, self._api_key, sleep=self._sleep)
        try:
            with self._client() as client:
                return ask_all(
                    requests,
                    lambda request: self._ask(client, line, request),
                    max_concurrency=self._plan.max_concurrency,
                    stop=line.stop,
                )
        finally:
            self._n_sent += line.n_sent

    def _client(self) -> openai.OpenAI:
        """A client that sends one request a call, with nothing in it from the environment."""
        left_out: dict[str, Any] = {
            "OpenAI-Organization": openai.Omit(),
            "OpenAI-Project": openai.Omit(),
        }
        return openai.OpenAI(
            api_key=self._api_key or "none",  # without one the client takes the environment's
            base_url=self._base_url,
            timeout=self._plan.timeout_seconds,
            max_retries=0,
            default_headers=left_out,
            http_client=openai.DefaultHttpxClient(
                timeout=self._plan.timeout_seconds, follow_redirects=False
            ),
        )

    def _ask(self, client: openai.OpenAI, line: JudgeLine, request: JudgeRequest) -> Verdict:
        params = _params(self._plan, request)
        no_key = {"Authorization": openai.Omit()} if self._api_key is None else {}

        def attempt() -> Attempt:
            return one_request(
                openai,
                lambda: (
                    client.chat.completions.with_raw_response.create(
                        **params, extra_headers=no_key
                    ).http_response
                ),
            )

        sent = line.send(request.identity, attempt, lambda body: _completion(json_reply(body)))
        if sent.reply is None:
            return unscored(request, sent.failure or "outage", sent.note, tries=sent.tries)
        return line.without_key(_verdict(request, sent.reply, sent.tries))


def _params(plan: JudgePlan, request: JudgeRequest) -> dict[str, Any]:
    schema = {"name": "verdict", "strict": True, "schema": output_schema(request.rubric)}
    params: dict[str, Any] = {
        "model": plan.model,
        "max_tokens": request.rubric.max_tokens,
        "messages": [
            {"role": "user", "content": request.rubric.ask(request.question, request.answer)}
        ],
        "response_format": {"type": "json_schema", "json_schema": schema},
    }
    if plan.temperature is not None:
        params["temperature"] = plan.temperature
    if plan.effort is not None:
        params["reasoning_effort"] = plan.effort
    return params


def _completion(value: Mapping[str, Any]) -> Mapping[str, Any]:
    """The completion, if it is one. Raises ValueError, as ``Line.send`` wants it.

    Some gateways send an error with HTTP 200; it ends here too.
    """
    choices = value.get("choices")
    if not isinstance(choices, list) or len(choices) != 1:
        raise ValueError("no completion with one choice in it")
    choice = choices[0]
    if not isinstance(choice, Mapping) or not isinstance(choice.get("message"), Mapping):
        raise ValueError("a choice without a message")
    if not isinstance(value.get("model"), str):
        raise ValueError("a completion that does not name its model")
    return value


def _verdict(request: JudgeRequest, completion: Mapping[str, Any], tries: int) -> Verdict:
    model, choice = completion["model"], completion["choices"][0]
    content, refusal = choice["message"].get("content"), choice["message"].get("refusal")
    reason = choice.get("finish_reason")
    note = f"finish reason {reason!a}"
    if refusal or reason == "content_filter":
        return unscored(request, "judge_refused", note, model=model, tries=tries)
    if reason == "length":
        return unscored(request, "truncated", note, model=model, tries=tries)
    if reason != "stop":
        return unscored(request, "unreadable", note, model=model, tries=tries)
    if not isinstance(content, str):
        return unscored(request, "unreadable", "the reply has no text", model=model, tries=tries)
    return verdict_of(request, content, model=model, tries=tries)
