"""What is particular about asking a judge over a line: its words, its verdicts, its repeated draws.

The line itself, its tries and its patience, is ``services.line``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

from eps_locked.domain.judging import (
    EXCERPT_LENGTH,
    TRANSPORT_STATUSES,
    JudgePlan,
    JudgeRequest,
    Verdict,
    VerdictStatus,
)
from eps_locked.services import line, rules

__all__ = [
    "SERVICE",
    "JudgeLine",
    "ask_all",
    "require_distinct",
    "require_endpoint",
    "require_key",
    "require_transport",
]

SERVICE = "judge"
_WORDS: line.LineWords[VerdictStatus] = line.LineWords(
    service=SERVICE,
    rate_limited="rate_limited",
    outage="outage",
    filtered="judge_refused",
    garbled="outage",
)


class JudgeLine(line.Line[VerdictStatus]):
    """See Line; its failures are statuses of verdicts."""

    def __init__(
        self,
        plan: JudgePlan,
        api_key: str | None,
        *,
        sleep: line.Sleep | None = None,
        stop: threading.Event | None = None,
        gives_up: bool = True,
    ) -> None:
        super().__init__(plan, api_key, _WORDS, sleep=sleep, stop=stop, gives_up=gives_up)
        self._model = plan.model

    def without_key(self, verdict: Verdict) -> Verdict:
        """The verdict, in case a service put the key where its own words belong."""
        key = self._api_key
        if not key or key in self._model or key not in f"{verdict.note}\n{verdict.model}":
            return verdict
        note, model = (self.strike(text) for text in (verdict.note, verdict.model))
        return replace(verdict, note=note[:EXCERPT_LENGTH], model=model)

    def next_step(self, error_type: str, message: str) -> str:
        words = message.lower()
        if error_type != "invalid_request_error":
            return super().next_step(error_type, message)
        if "response_format" in words or "json_schema" in words:
            return (
                "take an endpoint or a model that takes response_format json_schema: "
                "a judge is not asked in two ways"
            )
        return (
            "read the service's words; correct model, effort, temperature or "
            "api_version in the plan"
        )


def ask_all(
    requests: Sequence[JudgeRequest],
    ask: Callable[[JudgeRequest], Verdict],
    *,
    max_concurrency: int,
    stop: threading.Event,
) -> tuple[Verdict, ...]:
    """One verdict per request, in order; see ``services.line.ask_all``."""
    return line.ask_all(requests, ask, max_concurrency=max_concurrency, stop=stop, called=SERVICE)


def require_transport(plan: JudgePlan, verdicts: Sequence[Verdict]) -> None:
    """Raises BackendError if too many verdicts of one call were lost on the line to be recorded."""
    lost = [(one.status, one.note) for one in verdicts if one.status in TRANSPORT_STATUSES]
    rules.require_share(plan, lost, len(verdicts), service=SERVICE, what="verdicts")


def require_distinct(requests: Sequence[JudgeRequest]) -> None:
    """Raises RuntimeError if two requests are one: their verdicts could not be told apart."""
    if len({request.identity for request in requests}) != len(requests):
        raise RuntimeError("two requests to a judge have the same key, draw and content")


def require_key(plan: JudgePlan, api_key: str) -> str:
    """The key, if it can stand in a header. Raises BackendError that does not show it."""
    return rules.require_key(plan, api_key, service=SERVICE)


def require_endpoint(plan: JudgePlan, url: str) -> str:
    """The address, if it is one of the web and holds no password. Raises BackendError."""
    return rules.require_endpoint(plan, url, service=SERVICE)
