"""How requests reach a judge over a line that may be slow, busy or down.

The vendors' clients retry by themselves, unseen; here they are told not to, and every HTTP request
is sent, counted and logged by ``Line``. What no retry could mend (a wrong key, a model that is not
there) raises BackendError. Everything else ends as a reply or as the status ``rate_limited`` or
``outage`` of one verdict.

Secrets: a vendor's error holds the request, headers and key included, and a service may quote the
key in its reply. So vendor errors end in ``one_request``, not even kept as a cause, and
``Line`` strikes the key out of every text that goes on from here.
"""

from __future__ import annotations

import logging
import math
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar
from urllib.parse import urlsplit

from eps_locked.canonical import digest_value
from eps_locked.domain.judging import (
    EXCERPT_LENGTH,
    TRANSPORT_STATUSES,
    JudgePlan,
    JudgeRequest,
    Verdict,
    VerdictStatus,
)
from eps_locked.errors import BackendError
from eps_locked.judges.service_errors import ABOUT_THE_KEY, FINAL_TYPES, next_step, read_error

__all__ = [
    "Attempt",
    "Delivery",
    "Line",
    "Sleep",
    "ask_all",
    "one_request",
    "require_distinct",
    "require_endpoint",
    "require_key",
    "require_transport",
]

T = TypeVar("T")
Sleep = Callable[[float], object]
_log = logging.getLogger(__name__)

FIRST_DELAY_S = 0.5
LONGEST_DELAY_S = 30.0
JITTER = 0.25  # a delay is shortened by up to this share, so that threads do not return as one
LONGEST_RETRY_AFTER_S = 120.0  # a service that asks for more is asked again after this
INTERRUPT_CHECK_S = 1.0
GIVE_UP_AFTER = 10  # requests in a row that ran out of tries: the rest is not sent
_BUSY = frozenset({429, 529})
_PASSING = frozenset({408, 409, 425})  # below 500, and still worth another try


@dataclass(frozen=True, kw_only=True, slots=True)
class Attempt:
    """What one HTTP request came to. Without a whole reply ``status`` is None and ``problem`` says
    why. Header names are in lower case."""

    status: int | None
    headers: Mapping[str, str]
    body: bytes
    problem: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Delivery(Generic[T]):
    """What all tries of one request came to: a reply, or a failure with a note on the last try.

    A failure is ``rate_limited``, ``outage``, or ``judge_refused`` by a content filter.
    ``tries`` counts the HTTP requests sent; it is 0 if the line was given up before.
    """

    reply: T | None
    failure: VerdictStatus | None
    note: str
    tries: int


def one_request(sdk: Any, call: Callable[[], Any]) -> Attempt:
    """Run ``call``, which sends one HTTP request through a vendor's client, to its raw reply.

    ``sdk`` is the vendor's module: both vendors name their errors alike.
    """
    try:
        response = call()
    except sdk.APIStatusError as error:
        response = error.response
    except sdk.APITimeoutError:
        return Attempt(status=None, headers={}, body=b"", problem="no whole reply in time")
    except sdk.APIConnectionError as error:
        cause = type(error.__cause__ or error).__name__
        return Attempt(
            status=None, headers={}, body=b"", problem=f"the connection failed ({cause})"
        )
    headers = {str(name).lower(): str(value) for name, value in response.headers.items()}
    return Attempt(status=int(response.status_code), headers=headers, body=response.content)


class Line:
    """The way to one service for one call of a judge; safe to use from many threads.

    A request is sent until a whole reply came that ``read`` takes, the plan's tries are used up,
    or the service says that another try is no use (``x-should-retry: false``). Between tries the
    wait is what the service asks for (``retry-after-ms``, ``retry-after`` in seconds; a date is not
    understood), up to LONGEST_RETRY_AFTER_S, or else doubles from FIRST_DELAY_S up to
    LONGEST_DELAY_S, with a jitter taken from the request's identity. When GIVE_UP_AFTER requests
    in a row (or two for every thread) ran out of tries, the line is taken for dead, and what is
    left is not sent at all: thousands of answers would otherwise wait out their delays one by one.
    ``timeout_seconds`` of the plan bounds a silence, not a reply that goes on and on.

    ``stop`` set means that the call is over: no request is sent any more.
    """

    def __init__(
        self,
        plan: JudgePlan,
        api_key: str | None,
        *,
        sleep: Sleep | None = None,
        stop: threading.Event | None = None,
        gives_up: bool = True,
    ) -> None:
        self._plan = plan
        self._api_key = api_key
        self.stop = threading.Event() if stop is None else stop
        # An event as the clock wakes up at once when the call is over.
        self._sleep: Sleep = self.stop.wait if sleep is None else sleep
        self._gives_up = gives_up
        self._lock = threading.Lock()
        self._n_sent = 0
        self._n_lost_in_a_row = 0
        self._last_failure: VerdictStatus = "outage"

    @property
    def n_sent(self) -> int:
        """HTTP requests sent so far, failed ones included."""
        return self._n_sent

    def send(
        self, identity: str, attempt: Callable[[], Attempt], read: Callable[[bytes], T]
    ) -> Delivery[T]:
        """Raises BackendError for a refusal that no retry could mend.

        ``read`` raises ValueError for a body that is no reply at all (a proxy's page, a broken
        transfer); this counts as an outage and is tried again.
        """
        given_up = self._given_up()
        if given_up is not None:
            return given_up
        failure: VerdictStatus = "outage"
        note, tries = "the call was over before it was sent", 0
        while tries < self._plan.max_tries and not self.stop.is_set():
            tries += 1
            got = self._count(identity, tries, attempt)
            failed, note = self._failure_of(got)
            if failed is None:
                try:
                    reply = read(got.body)
                except ValueError as error:
                    failed, note = "outage", self.clean(f"not a reply of the service: {error}")
                else:
                    self._note_end(None)
                    return Delivery(reply=reply, failure=None, note="", tries=tries)
            failure = failed
            if failed not in TRANSPORT_STATUSES or got.headers.get("x-should-retry") == "false":
                break
            if tries < self._plan.max_tries:
                self.pause(_delay(identity, tries, got.headers))
        self._note_end(failure)
        if failure in TRANSPORT_STATUSES:
            _log.warning("judge %s: request %s lost: %s", self._plan.name, identity[:12], note)
        return Delivery(reply=None, failure=failure, note=note, tries=tries)

    def pause(self, seconds: float) -> None:
        """Wait on this line's clock."""
        self._sleep(seconds)

    def once(self, identity: str, attempt: Callable[[], Attempt]) -> Attempt:
        """One request whose failure is nobody's concern; counted and logged like any other."""
        return self._count(identity, 1, attempt)

    def clean(self, text: str) -> str:
        """Text that may be recorded or shown: without the key, on one line, and not long."""
        if self._api_key:
            text = text.replace(self._api_key, "[key]")
        return " ".join(text.split()).encode("unicode_escape").decode("ascii")[:EXCERPT_LENGTH]

    def without_key(self, verdict: Verdict) -> Verdict:
        """The verdict, in case a service put the key where its own words belong."""
        key = self._api_key
        if not key or key in self._plan.model or key not in f"{verdict.note}\n{verdict.model}":
            return verdict
        note, model = (text.replace(key, "[key]") for text in (verdict.note, verdict.model))
        return replace(verdict, note=note[:EXCERPT_LENGTH], model=model)

    def refused(self, what: str, error_type: str, message: str) -> BackendError:
        """The error for a refusal that no retry could mend, built from a service's own words."""
        return BackendError(
            f"judge {self._plan.name}",
            problem=f"the service refused {what}",
            expected=f"an answer of model {self._plan.model}",
            found=self.clean(error_type),
            next_step=next_step(self._plan, error_type, message),
            # A service that turns a key down may quote parts of it.
            details=(self.clean(message),) if message and error_type not in ABOUT_THE_KEY else (),
        )

    def _count(self, identity: str, tries: int, attempt: Callable[[], Attempt]) -> Attempt:
        with self._lock:
            self._n_sent += 1
        got = attempt()
        _log.info(
            "judge %s: request %s, try %d of %d: %s",
            self._plan.name,
            identity[:12],
            tries,
            self._plan.max_tries,
            got.problem or got.status,
        )
        return got

    def _failure_of(self, got: Attempt) -> tuple[VerdictStatus | None, str]:
        """None if the status is one of success. Raises BackendError for a final refusal."""
        if got.status is None:
            return "outage", self.clean(got.problem)
        if 200 <= got.status < 300:
            return None, ""
        error = read_error(got.body)
        note = self.clean(f"HTTP {got.status} {error.type or error.code}".strip())
        if error.is_spent:
            raise self.refused("a request", "billing_error", error.message)
        if got.status in _BUSY:
            return "rate_limited", note
        if got.status >= 500 or got.status in _PASSING:
            return "outage", note
        if error.is_filter:
            return "judge_refused", self.clean(f"HTTP {got.status} {error.message}")
        error_type = FINAL_TYPES.get(got.status, f"HTTP {got.status} {error.type}".strip())
        raise self.refused("a request", error_type, error.message)

    def _note_end(self, failure: VerdictStatus | None) -> None:
        with self._lock:
            if failure not in TRANSPORT_STATUSES:
                self._n_lost_in_a_row = 0
            else:
                self._n_lost_in_a_row += 1
                self._last_failure = failure

    def _given_up(self) -> Delivery[Any] | None:
        with self._lock:
            lost, failure = self._n_lost_in_a_row, self._last_failure
        if not self._gives_up or lost < max(GIVE_UP_AFTER, 2 * self._plan.max_concurrency):
            return None
        note = f"not sent: {lost} requests in a row before it were lost ({failure})"
        return Delivery(reply=None, failure=failure, note=note, tries=0)


def ask_all(
    requests: Sequence[JudgeRequest],
    ask: Callable[[JudgeRequest], Verdict],
    *,
    max_concurrency: int,
    stop: threading.Event,
) -> tuple[Verdict, ...]:
    """One verdict per request, in order, from a pool of threads.

    At the first error, or an interrupt, ``stop`` is set and nothing more is sent; this returns when
    the requests on their way are answered or timed out.
    """
    pool = ThreadPoolExecutor(max_workers=max_concurrency, thread_name_prefix="judge")
    try:
        futures = [pool.submit(ask, request) for request in requests]
        left = set(futures)
        while left:
            # Woken up now and then, for an interrupt that came just before the wait began.
            done, left = wait(left, timeout=INTERRUPT_CHECK_S, return_when=FIRST_EXCEPTION)
            if any(one.exception() for one in done):
                break
        for one in futures:
            if one.done() and one.exception():
                one.result()
        return tuple(one.result() for one in futures)
    except BaseException:
        stop.set()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def require_transport(plan: JudgePlan, verdicts: Sequence[Verdict]) -> None:
    """Raises BackendError if too many verdicts of one call were lost on the line to be recorded."""
    lost = Counter(one.status for one in verdicts if one.status in TRANSPORT_STATUSES)
    n_lost = sum(lost.values())
    # A quotient of counts rounds to the very number that a plan writes; a product may not.
    if not verdicts or n_lost / len(verdicts) <= plan.max_transport_share:
        return
    notes = Counter(one.note for one in verdicts if one.status in TRANSPORT_STATUSES)
    kinds = ", ".join(f"{count} {status}" for status, count in sorted(lost.items()))
    raise BackendError(
        f"judge {plan.name}",
        problem="too many verdicts were lost on the line",
        expected=f"at most {plan.max_transport_share:.1%} of {len(verdicts)}",
        found=f"{n_lost} ({kinds})",
        next_step="nothing of this step was recorded; when the service answers again, "
        "run the same command once more and it goes on from here",
        details=tuple(f"{count} times: {note}" for note, count in notes.most_common(3)),
    )


def require_distinct(requests: Sequence[JudgeRequest]) -> None:
    """Raises RuntimeError if two requests are one: their verdicts could not be told apart."""
    if len({request.identity for request in requests}) != len(requests):
        raise RuntimeError("two requests to a judge have the same key, draw and content")


def require_key(plan: JudgePlan, api_key: str) -> str:
    """The key, if it can stand in a header. Raises BackendError that does not show it."""
    if not api_key or not all("!" <= character <= "~" for character in api_key):
        raise BackendError(
            f"judge {plan.name}",
            problem=f"the key in {plan.api_key_env} cannot be sent",
            expected="printable ASCII without spaces or line breaks",
            found="something else",
            next_step=f"set {plan.api_key_env} again, without quotes or a newline at its end",
        )
    return api_key


def require_endpoint(plan: JudgePlan, url: str) -> str:
    """The address, if it is one of the web and holds no password. Raises BackendError."""
    try:
        parts = urlsplit(url)
        well_formed = parts.scheme in ("http", "https") and bool(parts.hostname)
        plain = not (parts.username or parts.password or parts.query or parts.fragment)
    except ValueError:
        well_formed = plain = False
    if not well_formed or not plain:
        raise BackendError(
            f"judge {plan.name}",
            problem="the endpoint of the plan cannot be used",
            expected="http:// or https://, a host and a path, with no user, password or query",
            found="something else",
            next_step="correct the endpoint; a key belongs into the variable of api_key_env",
        )
    return url


def _delay(identity: str, tries: int, headers: Mapping[str, str]) -> float:
    """Seconds to wait after this many tries."""
    asked = _seconds(headers, "retry-after-ms", 1000.0)
    if asked is None:
        asked = _seconds(headers, "retry-after", 1.0)
    if asked is not None:
        return min(asked, LONGEST_RETRY_AFTER_S)
    full = min(FIRST_DELAY_S * 2.0 ** min(tries - 1, 16), LONGEST_DELAY_S)
    draw = digest_value([identity, tries]).removeprefix("blake3:")[:8]
    return full * (1.0 - JITTER * int(draw, 16) / 2**32)


def _seconds(headers: Mapping[str, str], name: str, per_second: float) -> float | None:
    try:
        value = float(headers.get(name, "")) / per_second
    except ValueError:
        return None
    return value if math.isfinite(value) and value > 0 else None
