"""One HTTP exchange with an OpenAI-compatible service, bounded as a whole, with its times.

A vendor's time-out bounds a silence. A reply that drips would go on for ever, so here a piece that
comes later than ``timeout_seconds`` after sending ends the exchange as well: nothing lasts longer
than twice that time (a piece just before the end, and then a silence), plus the time to connect.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

import httpx2
import openai

from eps_locked.services.line import Attempt
from eps_locked.services.stream import is_done

__all__ = ["Received", "Wire"]

MAX_REPLY_BYTES = 32_000_000  # a stream may be endless and quick as well
# Of an error this much is read: its words are short, and it may be endless like any other reply.
MAX_ERROR_BYTES = 1_000_000
_UNTIL = "eps_locked_until"
_LATE = "no whole reply in time"


@dataclass(frozen=True, kw_only=True, slots=True)
class Received:
    """What came, and when. Of a reply that broke off, ``attempt`` holds what came of it as body.

    ``seconds``: from sending to the end. ``arrivals``: how many bytes had come after how many
    seconds, ascending.
    """

    attempt: Attempt
    seconds: float
    arrivals: tuple[tuple[int, float], ...] = ()

    def seconds_at(self, n_bytes: int | None) -> float | None:
        """When the first ``n_bytes`` of the body had come."""
        if n_bytes is None:
            return None
        return next((after for came, after in self.arrivals if came >= n_bytes), None)


class Wire:
    """A vendor's client that sends one request a call, with nothing in it from the environment but
    a proxy, and none of that for an address of this machine. Use as a context manager."""

    def __init__(
        self,
        base_url: str,
        api_key: str | None,
        *,
        timeout_seconds: float,
        monotonic: Callable[[], float],
    ) -> None:
        self._timeout_s = timeout_seconds
        self._monotonic = monotonic
        left_out: dict[str, Any] = {
            "OpenAI-Organization": openai.Omit(),
            "OpenAI-Project": openai.Omit(),
            # A compressed stream comes in lumps, and its first token late.
            "Accept-Encoding": "identity",
        }
        self._headers = {"Authorization": openai.Omit()} if api_key is None else {}
        self._client = openai.OpenAI(
            api_key=api_key or "none",  # without one the client takes the environment's
            base_url=base_url,
            timeout=timeout_seconds,
            max_retries=0,
            default_headers=left_out,
            http_client=openai.DefaultHttpxClient(
                timeout=timeout_seconds,
                follow_redirects=False,
                trust_env=not _is_loopback(base_url),
                event_hooks={"request": [self._begin], "response": [self._bound]},
            ),
        )

    def __enter__(self) -> Wire:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._client.close()

    def post(self, path: str, body: Mapping[str, Any]) -> Received:
        return self._exchange(
            lambda: self._client.post(
                path,
                body=dict(body),
                cast_to=httpx2.Response,
                options={"headers": self._headers},
                stream=True,
                stream_cls=openai.Stream[Any],
            )
        )

    def get(self, path: str) -> Received:
        return self._exchange(
            lambda: self._client.get(
                path,
                cast_to=httpx2.Response,
                options={"headers": self._headers},
                stream=True,
                stream_cls=openai.Stream[Any],
            )
        )

    def _exchange(self, send: Callable[[], Any]) -> Received:
        """``send`` gives a response whose body is still to come."""
        start = self._monotonic()
        status: int | None = None
        headers: Mapping[str, str] = {}
        body, problem = bytearray(), ""
        arrivals: list[tuple[int, float]] = []
        try:
            response = send()
            headers = _headers(response)
            try:
                for piece in response.iter_bytes():
                    body += piece
                    arrivals.append((len(body), self._monotonic() - start))
                    if is_done(body) or len(body) > MAX_REPLY_BYTES:
                        break
            finally:
                response.close()
            if len(body) > MAX_REPLY_BYTES:
                problem = f"a reply of more than {MAX_REPLY_BYTES} bytes"
            else:
                status = int(response.status_code)
        except openai.APIStatusError as error:
            status, headers = int(error.response.status_code), _headers(error.response)
            body = bytearray(error.response.content)
        except (openai.APITimeoutError, httpx2.TimeoutException):
            problem = _LATE
        except (openai.APIConnectionError, httpx2.HTTPError) as error:
            problem = f"the connection failed ({type(error.__cause__ or error).__name__})"
        return Received(
            attempt=Attempt(status=status, headers=headers, body=bytes(body), problem=problem),
            seconds=self._monotonic() - start,
            arrivals=tuple(arrivals),
        )

    def _begin(self, request: Any) -> None:
        request.extensions[_UNTIL] = self._monotonic() + self._timeout_s

    def _bound(self, response: Any) -> None:
        """Called before the body comes, that of an error too."""
        until = response.request.extensions[_UNTIL]
        is_reply = 200 <= response.status_code < 300
        response.stream = _Bounded(
            response.stream,
            lambda: self._monotonic() > until,
            # What is too long for a reply is told from one that is whole where it is read.
            None if is_reply else MAX_ERROR_BYTES,
        )


class _Bounded(httpx2.SyncByteStream):  # type: ignore[misc]  # untyped for mypy
    """The pieces of a body, while it is not too late for them; no more after ``most`` bytes."""

    def __init__(self, inner: Any, is_late: Callable[[], bool], most: int | None) -> None:
        self._inner = inner
        self._is_late = is_late
        self._most = most

    def __iter__(self) -> Iterator[bytes]:
        n_bytes = 0
        for piece in self._inner:
            if self._is_late():
                raise httpx2.ReadTimeout(_LATE)
            yield piece
            n_bytes += len(piece)
            if self._most is not None and n_bytes >= self._most:
                return

    def close(self) -> None:
        self._inner.close()


def _headers(response: Any) -> dict[str, str]:
    return {str(name).lower(): str(value) for name, value in response.headers.items()}


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
