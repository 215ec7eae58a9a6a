"""The judge behind Anthropic's Messages service: single messages for small jobs, batches for large.

The service takes no sampling temperature. What can be locked is: model, API version header,
effort, rubric and output schema; the responding model stands in every verdict, and the judge's
noise is measured by repeated draws.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import anthropic

from eps_locked.domain.judging import JudgeIdentity, JudgePlan, JudgeRequest, Verdict
from eps_locked.judges.anthropic_batches import judge_in_batches
from eps_locked.judges.anthropic_messages import (
    message_params,
    read_message,
    verdict_of_message,
)
from eps_locked.judges.parse import unscored
from eps_locked.judges.transport import (
    JudgeLine,
    ask_all,
    require_distinct,
    require_endpoint,
    require_key,
)
from eps_locked.services.line import Attempt, Sleep, one_request
from eps_locked.services.strict_json import json_reply

__all__ = ["AnthropicJudge"]

_ENDPOINT = "https://api.anthropic.com"


class AnthropicJudge:
    """See Judge. From ``plan.batch_from`` requests on, one call is Message Batches.

    ``base_url`` is for tests; else the plan's endpoint, else the service's own address. ``sleep``
    and ``monotonic`` (both in seconds) are the clock; the default sleep ends early on an interrupt.
    """

    def __init__(
        self,
        plan: JudgePlan,
        api_key: str,
        base_url: str | None = None,
        *,
        sleep: Sleep | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._plan = plan
        self._api_key = require_key(plan, api_key)
        self._base_url = require_endpoint(plan, base_url or plan.endpoint or _ENDPOINT)
        self._sleep = sleep
        self._monotonic = monotonic
        self._n_sent = 0

    @property
    def n_sent(self) -> int:
        """HTTP requests sent by finished calls of ``judge``, retries and polls included."""
        return self._n_sent

    @property
    def identity(self) -> JudgeIdentity:
        plan = self._plan
        settings = {
            "batch_from": "never" if plan.batch_from is None else str(plan.batch_from),
            "effort": plan.effort or "not set",
            "endpoint": plan.endpoint or _ENDPOINT,
            "max_concurrency": str(plan.max_concurrency),
            "max_tries": str(plan.max_tries),
            "output_format": "json_schema",
            "temperature": "not taken by the service",
            "timeout_seconds": f"{plan.timeout_seconds:g}",
        }
        return JudgeIdentity(
            kind=plan.kind,
            model=plan.model,
            family=plan.family,
            version=f"anthropic {anthropic.__version__}, anthropic-version {plan.api_version}",
            settings=settings,
            publishable=True,
        )

    def judge(self, requests: Sequence[JudgeRequest]) -> tuple[Verdict, ...]:
        """Raises BackendError as Judge says, and for a batch whose results contradict it."""
        require_distinct(requests)
        if not requests:
            return ()
        plan = self._plan
        in_batches = plan.batch_from is not None and len(requests) >= plan.batch_from
        # A batch is asked about with patience of its own: it runs whether or not the line does.
        line = JudgeLine(plan, self._api_key, sleep=self._sleep, gives_up=not in_batches)
        try:
            with self._client() as client:
                if in_batches:
                    return judge_in_batches(plan, client, line, requests, monotonic=self._monotonic)
                return ask_all(
                    requests,
                    lambda request: self._ask(client, line, request),
                    max_concurrency=plan.max_concurrency,
                    stop=line.stop,
                )
        finally:
            self._n_sent += line.n_sent

    def _client(self) -> anthropic.Anthropic:
        """A client that does one thing a call: no retries, no redirects, no tracing."""
        return anthropic.Anthropic(
            api_key=self._api_key,
            base_url=self._base_url,
            timeout=self._plan.timeout_seconds,
            max_retries=0,
            default_headers={"anthropic-version": str(self._plan.api_version)},
            open_telemetry=False,
            http_client=anthropic.DefaultHttpxClient(
                timeout=self._plan.timeout_seconds, follow_redirects=False
            ),
        )

    def _ask(self, client: anthropic.Anthropic, line: JudgeLine, request: JudgeRequest) -> Verdict:
        params = message_params(self._plan, request)

        def attempt() -> Attempt:
            return one_request(
                anthropic,
                lambda: (
                    client.messages.with_raw_response.create(
                        **params, timeout=self._plan.timeout_seconds
                    ).http_response
                ),
            )

        sent = line.send(request.identity, attempt, lambda body: read_message(json_reply(body)))
        if sent.reply is None:
            return unscored(request, sent.failure or "outage", sent.note, tries=sent.tries)
        return line.without_key(verdict_of_message(request, sent.reply, sent.tries))
