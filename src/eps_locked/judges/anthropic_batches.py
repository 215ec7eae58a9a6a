"""Judging through Anthropic's Message Batches: create, poll, fetch, and match results to requests.

A result is matched by its ``custom_id``, which is the request's identity; results come in any
order. How one becomes a status:

- ``succeeded``: as the message would alone (one without a message in it: ``outage``)
- ``errored``, overloaded or rate limited: ``rate_limited``
- ``errored`` by a content filter: ``judge_refused``
- ``errored``, invalid request: ``unreadable``, since no retry could mend it and the other answers
  are paid for; but if the service refuses every request of a batch so, the plan is at fault, and
  that is a BackendError, as it is for single messages
- ``errored``, about key, rights, account or model: BackendError
- ``errored`` otherwise, ``canceled``, ``expired``, or no result at all: ``outage``
- a result for an unknown request, or two for one: BackendError, since then no result of that batch
  can be trusted; nothing is picked

A batch that is left before its end (an interrupt, a dead line) is cancelled, as far as it can be:
nobody would read what it goes on to cost.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar
from urllib.parse import urlsplit

import anthropic
import httpx2

from eps_locked.canonical import digest_value, encode
from eps_locked.domain.judging import JudgePlan, JudgeRequest, Verdict, VerdictStatus
from eps_locked.errors import BackendError
from eps_locked.judges.anthropic_messages import (
    message_params,
    read_message,
    verdict_of_message,
)
from eps_locked.judges.parse import unscored
from eps_locked.judges.transport import JudgeLine
from eps_locked.services.errors import FINAL_TYPES, ServiceError, read_error
from eps_locked.services.line import Attempt, Delivery, one_request
from eps_locked.services.strict_json import json_object, json_reply

__all__ = ["judge_in_batches"]

T = TypeVar("T")
Message = Mapping[str, Any]
Results = dict[str, Message]
_log = logging.getLogger(__name__)

# The service's own bounds are 10,000 requests (100,000 in some of its texts), 256 MB and 24 hours.
MAX_REQUESTS = 10_000
MAX_BYTES = 100_000_000
LONGEST_WAIT_S = 25 * 3600.0
FIRST_POLL_S = 5.0
LONGEST_POLL_S = 60.0
PATIENCE = 20  # polls or fetches in a row that may be lost, each with all its tries
_CANCEL_TIMEOUT_S = 10.0
_ID = re.compile(r"[A-Za-z0-9_-]{1,128}")
_BUSY = frozenset({"overloaded_error", "rate_limit_error"})
_INVALID = "invalid_request_error"
_FINAL = frozenset(FINAL_TYPES.values()) - {_INVALID}


def judge_in_batches(
    plan: JudgePlan,
    client: anthropic.Anthropic,
    line: JudgeLine,
    requests: Sequence[JudgeRequest],
    *,
    monotonic: Callable[[], float],
) -> tuple[Verdict, ...]:
    """One verdict per request, in order. Batches run one after the other."""
    verdicts: list[Verdict] = []
    for chunk in _chunks([(request, message_params(plan, request)) for request in requests]):
        batch = _Batch(plan, client, line, [pair[0] for pair in chunk], monotonic)
        created = batch.create([pair[1] for pair in chunk])
        if created.reply is None:
            failure = created.failure or "outage"
            verdicts += [
                unscored(request, failure, created.note, tries=created.tries)
                for request in batch.requests
            ]
            continue
        verdicts += batch.verdicts(created.reply, created.tries)
    return tuple(verdicts)


class _Batch:
    """One batch, from its creation to its verdicts."""

    def __init__(
        self,
        plan: JudgePlan,
        client: anthropic.Anthropic,
        line: JudgeLine,
        requests: Sequence[JudgeRequest],
        monotonic: Callable[[], float],
    ) -> None:
        self.requests = requests
        self._plan = plan
        self._client = client
        self._line = line
        self._monotonic = monotonic
        names: list[str] = [request.identity for request in requests]
        self._name = digest_value(names).removeprefix("blake3:")

    def create(self, params: Sequence[dict[str, Any]]) -> Delivery[str, VerdictStatus]:
        """Its id. A creation that was tried again may have made a second batch; that is logged."""
        body: list[Any] = [
            {"custom_id": request.identity, "params": one}
            for request, one in zip(self.requests, params, strict=True)
        ]
        api = self._client.messages.batches.with_raw_response
        sent = self._line.send(
            self._name,
            lambda: one_request(anthropic, lambda: api.create(requests=body).http_response),
            lambda reply: _batch_id(json_reply(reply)),
        )
        if sent.reply is not None and sent.tries > 1:
            _log.warning(
                "judge %s: a batch was created after %d tries; an earlier one may run unread",
                self._plan.name,
                sent.tries,
            )
        return sent

    def verdicts(self, batch_id: str, tries: int) -> list[Verdict]:
        """Waits for the end and matches the results; every request gets one verdict."""
        _log.info("judge %s: batch %s, %d requests", self._plan.name, batch_id, len(self.requests))
        ended = False
        try:
            url, note = self._wait(batch_id)
            ended = url is not None
        finally:
            if not ended:
                self._cancel(batch_id)
        results = None
        if url is not None:
            results, note = self._fetch(batch_id, url)
        if results is None:
            return [unscored(one, "outage", note, tries=tries) for one in self.requests]
        self._require_not_all_refused(results)
        return [
            self._line.without_key(self._verdict(request, results.get(request.identity), tries))
            for request in self.requests
        ]

    def _wait(self, batch_id: str) -> tuple[str | None, str]:
        """The address of the results; or None and a note, when waiting was given up."""
        api = self._client.messages.batches.with_raw_response
        start, pause = self._monotonic(), FIRST_POLL_S
        while self._monotonic() - start < LONGEST_WAIT_S:
            self._line.pause(pause)
            pause = min(pause * 1.5, LONGEST_POLL_S)
            polled = self._patiently(
                lambda: one_request(anthropic, lambda: api.retrieve(batch_id).http_response),
                lambda body: _results_url(json_reply(body), batch_id),
            )
            if polled.reply is None:
                return None, f"batch {batch_id} was given up: {polled.note}"
            if polled.reply:
                return polled.reply, ""
        return None, f"batch {batch_id} had not ended after {LONGEST_WAIT_S / 3600:g} hours"

    def _fetch(self, batch_id: str, url: str) -> tuple[Results | None, str]:
        """The results by custom_id; or None and a note. Raises BackendError if they contradict
        what was asked."""
        self._require_own_address(batch_id, url)
        fetched = self._patiently(
            lambda: one_request(
                anthropic,
                lambda: self._client.get(
                    url,
                    cast_to=httpx2.Response,
                    options={"headers": {"Accept": "application/binary"}},
                ),
            ),
            _lines,
        )
        if fetched.reply is None:
            return None, f"results of batch {batch_id} could not be fetched: {fetched.note}"
        known = {request.identity for request in self.requests}
        names = [name for name, _ in fetched.reply]
        n_unknown = sum(name not in known for name in names)
        n_double = len(names) - len(set(names))
        if n_unknown or n_double:
            raise BackendError(
                f"batch {batch_id} of judge {self._plan.name}",
                problem="its results contradict what was asked",
                expected=f"one result for each of {len(known)} requests",
                found=f"{n_unknown} for unknown requests, {n_double} doubled",
                next_step="nothing of this step was recorded; report the batch to the service",
            )
        return dict(fetched.reply), ""

    def _verdict(self, request: JudgeRequest, result: Message | None, tries: int) -> Verdict:
        if result is None:
            return unscored(request, "outage", "the batch has no result for it", tries=tries)
        kind = result["type"]
        if kind == "succeeded":
            try:
                return verdict_of_message(request, read_message(result.get("message")), tries)
            except ValueError as problem:
                return unscored(request, "outage", f"a result with {problem}", tries=tries)
        if kind != "errored":
            note = self._line.clean(f"{kind} in the batch")
            return unscored(request, "outage", note, tries=tries)
        error = _error(result)
        if error.is_spent or error.type in _FINAL:
            error_type = "billing_error" if error.is_spent else error.type
            raise self._line.refused("a request of a batch", error_type, error.message)
        note = self._line.clean(f"errored in the batch: {error.type} {error.message}")
        return unscored(request, _status(error), note, tries=tries)

    def _require_not_all_refused(self, results: Results) -> None:
        errors = [_error(results.get(request.identity, {})) for request in self.requests]
        if all(error.type == _INVALID and not error.is_filter for error in errors):
            raise self._line.refused("every request of a batch", _INVALID, errors[0].message)

    def _require_own_address(self, batch_id: str, url: str) -> None:
        """The key goes along with the request, so results are fetched from one place only."""
        ours, theirs = urlsplit(str(self._client.base_url)), urlsplit(url)
        if (ours.scheme, ours.netloc) != (theirs.scheme, theirs.netloc):
            raise BackendError(
                f"batch {batch_id} of judge {self._plan.name}",
                problem="its results lie at another address, to which no key is sent",
                expected=f"{ours.scheme}://{ours.netloc}",
                found=self._line.clean(f"{theirs.scheme}://{theirs.netloc}"),
                next_step="check the endpoint in the plan",
            )

    def _patiently(
        self, attempt: Callable[[], Attempt], read: Callable[[bytes], T]
    ) -> Delivery[T, VerdictStatus]:
        """Asks on for a good while: what is asked about runs, and is paid for, all the same."""
        for _ in range(PATIENCE):
            sent = self._line.send(self._name, attempt, read)
            if sent.reply is not None or self._line.stop.is_set():
                break
            self._line.pause(LONGEST_POLL_S)
        return sent

    def _cancel(self, batch_id: str) -> None:
        api = self._client.messages.batches.with_raw_response
        _log.warning("judge %s: batch %s is cancelled", self._plan.name, batch_id)
        with suppress(Exception):  # what led here is being reported already
            self._line.once(
                self._name,
                lambda: one_request(
                    anthropic,
                    lambda: api.cancel(batch_id, timeout=_CANCEL_TIMEOUT_S).http_response,
                ),
            )


def _chunks(
    pairs: Sequence[tuple[JudgeRequest, dict[str, Any]]],
) -> Iterator[list[tuple[JudgeRequest, dict[str, Any]]]]:
    """As few batches as the service's bounds allow, in order."""
    chunk: list[tuple[JudgeRequest, dict[str, Any]]] = []
    size = 0
    for pair in pairs:
        own = len(encode(pair[1])) + 200  # its custom_id and the braces around it
        if chunk and (len(chunk) >= MAX_REQUESTS or size + own > MAX_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(pair)
        size += own
    if chunk:
        yield chunk


def _batch_id(batch: Message) -> str:
    name = batch.get("id")
    if batch.get("type") != "message_batch" or not isinstance(name, str):
        raise ValueError("no batch in it")
    if not _ID.fullmatch(name):  # it goes into addresses and notes
        raise ValueError("a batch without a proper id")
    return name


def _results_url(batch: Message, batch_id: str) -> str:
    """Empty while the batch runs. Raises ValueError for what is no state of this batch."""
    if _batch_id(batch) != batch_id:
        raise ValueError("another batch than the one asked for")
    state, url = batch.get("processing_status"), batch.get("results_url")
    if state in ("in_progress", "canceling"):
        return ""
    if state != "ended" or not isinstance(url, str) or not url:
        raise ValueError(f"a batch in state {state!a} without an address of its results")
    urlsplit(url)  # raises ValueError for what is no address
    return url


def _lines(body: bytes) -> list[tuple[str, Message]]:
    """Custom id and result of every line. Raises ValueError for a line that is none.

    Split at newlines alone: str.splitlines would also split at separators that JSON texts may hold.
    """
    found = []
    for n, text in enumerate(body.decode("utf-8").split("\n"), start=1):
        if not text.strip():
            continue
        line = json_object(text)
        name, result = line.get("custom_id"), line.get("result")
        if not isinstance(name, str) or not isinstance(result, Mapping):
            raise ValueError(f"line {n} holds no result")
        if not isinstance(result.get("type"), str):
            raise ValueError(f"line {n} holds a result without a type")
        found.append((name, result))
    return found


def _error(result: Message) -> ServiceError:
    """The service nests an error in an error."""
    error = result.get("error") if result.get("type") == "errored" else None
    return read_error(error if isinstance(error, Mapping) else {})


def _status(error: ServiceError) -> VerdictStatus:
    if error.is_filter:
        return "judge_refused"
    if error.type in _BUSY:
        return "rate_limited"
    return "unreadable" if error.type == _INVALID else "outage"
