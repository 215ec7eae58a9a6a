"""How requests reach a service over a line that may be slow, busy or down.

The vendors' clients retry by themselves, unseen; here they are told not to, and every HTTP request
is sent, counted and logged by ``Line``. What no retry could mend (a wrong key, a model that is not
there) raises BackendError. Everything else ends as a reply, or as one of the words that the user of
the line has for its failures.

Secrets: a vendor's error holds the request, headers and key included, and a service may quote the
key in its reply. So vendor errors end in ``one_request``, not even kept as a cause, and
``Line`` strikes the key out of every text that goes on from here.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from eps_locked.canonical import digest_value
from eps_locked.errors import BackendError
from eps_locked.services.errors import ABOUT_THE_KEY, FINAL_TYPES, next_step, read_error
from eps_locked.services.rules import LineRules, LineWords

__all__ = [
    "Attempt",
    "Delivery",
    "Line",
    "LineRules",
    "LineWords",
    "Sleep",
    "ask_all",
    "one_request",
]

T = TypeVar("T")
F = TypeVar("F", bound=str)
Q = TypeVar("Q")
R = TypeVar("R")
Sleep = Callable[[float], object]
_log = logging.getLogger(__name__)

FIRST_DELAY_S = 0.5
LONGEST_DELAY_S = 30.0
JITTER = 0.25  # a delay is shortened by up to this share, so that threads do not return as one
LONGEST_RETRY_AFTER_S = 120.0  # a service that asks for more is asked again after this
INTERRUPT_CHECK_S = 1.0
GIVE_UP_AFTER = 10  # requests in a row that ran out of tries: the rest is not sent
LONGEST_NOTE = 200
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
class Delivery(Generic[T, F]):
    """What all tries of one request came to: a reply, or a failure with a note on the last try.

    ``failure`` is a word of the line's LineWords. ``tries`` counts the HTTP requests sent; it is 0
    if the line was given up before.
    """

    reply: T | None
    failure: F | None
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


class Line(Generic[F]):
    """The way to one service for one call; safe to use from many threads.

    A request is sent until a whole reply came that ``read`` takes, the plan's tries are used up,
    or the service says that another try is no use (``x-should-retry: false``). Between tries the
    wait is what the service asks for (``retry-after-ms``, ``retry-after`` in seconds; a date is not
    understood), up to LONGEST_RETRY_AFTER_S, or else doubles from FIRST_DELAY_S up to
    LONGEST_DELAY_S, with a jitter taken from the request's identity. When GIVE_UP_AFTER requests
    in a row (or two for every thread) ran out of tries, the line is taken for dead, and what is
    left is not sent at all: thousands of requests would otherwise wait out their delays one by one.
    ``timeout_seconds`` of the rules bounds a silence; whether it also bounds a reply that goes on
    and on is up to the attempt.

    ``stop`` set means that the call is over: ``send`` sends no request any more. A refusal that no
    retry could mend sets it, in the thread that met it and before any other may send: whoever waits
    for the threads notices later, and each request until then would be refused and paid for.
    """

    def __init__(
        self,
        rules: LineRules,
        api_key: str | None,
        words: LineWords[F],
        *,
        sleep: Sleep | None = None,
        stop: threading.Event | None = None,
        gives_up: bool = True,
    ) -> None:
        self._rules = rules
        self._api_key = api_key
        self._words = words
        self._lost: frozenset[F] = frozenset({words.rate_limited, words.outage, words.garbled})
        self.stop = threading.Event() if stop is None else stop
        # An event as the clock wakes up at once when the call is over.
        self._sleep: Sleep = self.stop.wait if sleep is None else sleep
        self._gives_up = gives_up
        self._lock = threading.Lock()
        self._n_sent = 0
        self._n_lost_in_a_row = 0
        self._last_failure: F = words.outage

    @property
    def n_sent(self) -> int:
        """HTTP requests sent so far, failed ones included."""
        return self._n_sent

    def send(
        self, identity: str, attempt: Callable[[], Attempt], read: Callable[[bytes], T]
    ) -> Delivery[T, F]:
        """Raises BackendError for a refusal that no retry could mend.

        ``read`` raises ValueError for a body that is no reply at all (a proxy's page, a broken
        transfer); this is tried again like an outage.
        """
        given_up = self._given_up()
        if given_up is not None:
            return given_up
        failure = self._words.outage
        note, tries = "the call was over before it was sent", 0
        while tries < self._rules.max_tries and self._may_send():
            tries += 1
            got = self._logged(identity, tries, attempt)
            failed, note = self._failure_of(got)
            if failed is None:
                try:
                    reply = read(got.body)
                except ValueError as error:
                    failed = self._words.garbled
                    note = self.clean(f"not a reply of the service: {error}")
                else:
                    self._note_end(None)
                    return Delivery(reply=reply, failure=None, note="", tries=tries)
            failure = failed
            if failed not in self._lost or got.headers.get("x-should-retry") == "false":
                break
            if tries < self._rules.max_tries:
                self.pause(_delay(identity, tries, got.headers))
        self._note_end(failure)
        if failure in self._lost:
            _log.warning("%s: request %s lost: %s", self._called, identity[:12], note)
        return Delivery(reply=None, failure=failure, note=note, tries=tries)

    def pause(self, seconds: float) -> None:
        """Wait on this line's clock."""
        self._sleep(seconds)

    def once(self, identity: str, attempt: Callable[[], Attempt]) -> Attempt:
        """One request whose failure is nobody's concern; counted and logged like any other, and
        sent even when the call is over."""
        with self._lock:
            self._n_sent += 1
        return self._logged(identity, 1, attempt)

    def strike(self, text: str) -> str:
        """The text without the key."""
        return text.replace(self._api_key, "[key]") if self._api_key else text

    def clean(self, text: str) -> str:
        """Text that may be recorded or shown: without the key, on one line, and not long."""
        one_line = " ".join(self.strike(text).split())
        return one_line.encode("unicode_escape").decode("ascii")[:LONGEST_NOTE]

    def refused(self, what: str, error_type: str, message: str) -> BackendError:
        """The error for a refusal that no retry could mend, built from a service's own words."""
        return BackendError(
            self._called,
            problem=f"the service refused {what}",
            expected=f"an answer of model {self._rules.model}",
            found=self.clean(error_type),
            next_step=self.next_step(error_type, message),
            # A service that turns a key down may quote parts of it.
            details=(self.clean(message),) if message and error_type not in ABOUT_THE_KEY else (),
        )

    def next_step(self, error_type: str, message: str) -> str:
        """What may be done about a refusal; whoever asks for something special knows better."""
        return next_step(self._rules, error_type)

    @property
    def _called(self) -> str:
        return f"{self._words.service} {self._rules.name}"

    def _may_send(self) -> bool:
        """Count a request, unless the call is over. Under the lock, so that no request is counted
        after a refusal was met."""
        with self._lock:
            if self.stop.is_set():
                return False
            self._n_sent += 1
            return True

    def _over(self, what: str, error_type: str, message: str) -> BackendError:
        with self._lock:
            self.stop.set()
        return self.refused(what, error_type, message)

    def _logged(self, identity: str, tries: int, attempt: Callable[[], Attempt]) -> Attempt:
        got = attempt()
        _log.info(
            "%s: request %s, try %d of %d: %s",
            self._called,
            identity[:12],
            tries,
            self._rules.max_tries,
            got.problem or got.status,
        )
        return got

    def _failure_of(self, got: Attempt) -> tuple[F | None, str]:
        """None if the status is one of success. Raises BackendError for a final refusal."""
        if got.status is None:
            return self._words.outage, self.clean(got.problem)
        if 200 <= got.status < 300:
            return None, ""
        error = read_error(got.body)
        note = self.clean(f"HTTP {got.status} {error.type or error.code}".strip())
        if error.is_spent:
            raise self._over("a request", "billing_error", error.message)
        if got.status in _BUSY:
            return self._words.rate_limited, note
        if got.status >= 500 or got.status in _PASSING:
            return self._words.outage, note
        if error.is_filter:
            return self._words.filtered, self.clean(f"HTTP {got.status} {error.message}")
        if error.is_too_long and self._words.too_long is not None:
            return self._words.too_long, self.clean(f"HTTP {got.status} {error.message}")
        error_type = FINAL_TYPES.get(got.status, f"HTTP {got.status} {error.type}".strip())
        raise self._over("a request", error_type, error.message)

    def _note_end(self, failure: F | None) -> None:
        words = self._words
        with self._lock:
            if failure is None or failure not in self._lost:
                self._n_lost_in_a_row = 0
                return
            self._n_lost_in_a_row += 1
            # What is not sent was not garbled.
            self._last_failure = (
                words.rate_limited if failure == words.rate_limited else words.outage
            )

    def _given_up(self) -> Delivery[Any, F] | None:
        with self._lock:
            lost, failure = self._n_lost_in_a_row, self._last_failure
        if not self._gives_up or lost < max(GIVE_UP_AFTER, 2 * self._rules.max_concurrency):
            return None
        note = f"not sent: {lost} requests in a row before it were lost ({failure})"
        return Delivery(reply=None, failure=failure, note=note, tries=0)


def ask_all(
    requests: Sequence[Q],
    ask: Callable[[Q], R],
    *,
    max_concurrency: int,
    stop: threading.Event,
    called: str = "line",
) -> tuple[R, ...]:
    """One reply per request, in order, from a pool of threads that are ``called`` so.

    At the first error, or an interrupt, ``stop`` is set and nothing more is sent; this returns when
    the requests on their way are answered or timed out.
    """

    def asked(request: Q) -> R:
        try:
            return ask(request)
        except BaseException:
            stop.set()  # here, and not when the pool notices: this thread asks on until then
            raise

    pool = ThreadPoolExecutor(max_workers=max_concurrency, thread_name_prefix=called)
    try:
        futures = [pool.submit(asked, request) for request in requests]
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
