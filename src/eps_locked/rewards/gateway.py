"""The reward model behind HTTP, asked in one of three documented forms.

Every form sends ``{"model", "messages": [user, assistant]}``, and the service applies the chat
template.

``pooling``   POST <endpoint>/pooling, vLLM's Pooling API. The score is the one number of
              ``data[0].data``, alone or in a list of its own. A model that pools every token
              answers with many numbers; which of them is the reward is not ours to choose.
``classify``  POST <endpoint>/classify, vLLM's (and SGLang's) Classification API. The score is the
              one number of ``data[0].probs``. Sent with ``use_activation: false``, so that a server
              that knows the field leaves the logit as it is.
``plain``     POST <endpoint> itself. The score is ``score``.

Sources: docs.vllm.ai, Pooling API and Classification API of its OpenAI-compatible server.

How a reply becomes a status: one finite number is ``scored``; NaN, infinity, null and what lies
beyond ``LARGEST_SCORE`` are ``not_finite``; HTTP 400 because the exchange is longer than the model
takes is ``truncated`` (we never ask a service to cut it); a content filter is ``refused``; a reply
of the form with no number, or several, is ``unreadable``. What no retry could mend raises
BackendError.
"""

from __future__ import annotations

import ipaddress
import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, cast
from urllib.parse import urlsplit

import httpx2

from eps_locked.canonical import digest_value
from eps_locked.domain.reward import (
    LARGEST_SCORE,
    RewardIdentity,
    RewardRequest,
    RewardScore,
    RewardStatus,
)
from eps_locked.errors import BackendError
from eps_locked.services.errors import read_error
from eps_locked.services.line import Attempt, Line, Sleep, ask_all
from eps_locked.services.rules import (
    LineRules,
    LineWords,
    require_endpoint,
    require_key,
    require_share,
)

__all__ = ["APIS", "SERVICE", "Api", "GatewayReward", "GatewayRules"]

Api = Literal["pooling", "classify", "plain"]
APIS: tuple[Api, ...] = ("pooling", "classify", "plain")
SERVICE = "reward model"
_PATHS: Mapping[Api, str] = {"pooling": "/pooling", "classify": "/classify", "plain": ""}
_MORE: Mapping[Api, Mapping[str, Any]] = {
    "pooling": {"encoding_format": "float"},
    "classify": {"use_activation": False},
    "plain": {},
}
_WORDS: LineWords[RewardStatus] = LineWords(
    service=SERVICE,
    rate_limited="rate_limited",
    outage="outage",
    filtered="refused",
    garbled="outage",
)
_LOST = ("rate_limited", "outage")
# vLLM's words in several versions, and those of servers before it.
_TOO_LONG = (
    "maximum context length",
    "maximum model length",
    "max_model_len",
    "longer than the maximum",
    "context_length_exceeded",
    "input is too long",
)
# Begins what ``_as_answer`` hands on; no JSON begins so.
_CUT = b"\0too long: "
_LONGEST_NOTE = 200
# A score is a few bytes; a reply may be endless.
_MAX_REPLY_BYTES = 1_000_000
_LATE = "no whole reply in time"


class GatewayRules(LineRules, Protocol):
    """What a plan says about a service that scores."""

    @property
    def endpoint(self) -> str: ...
    @property
    def api(self) -> Api: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class _Reply:
    """What a reply of the form says. ``model`` is empty where it does not name one."""

    status: RewardStatus
    value: float | None
    note: str
    model: str
    n_tokens: int | None


class GatewayReward:
    """See RewardModel. ``api_key`` None sends no key. ``sleep`` (seconds) is the clock; the default
    ends early on an interrupt."""

    def __init__(
        self, rules: GatewayRules, api_key: str | None, *, sleep: Sleep | None = None
    ) -> None:
        """Raises BackendError for an endpoint or a key that cannot be used. Sends nothing."""
        self._rules = rules
        self._api_key = None if api_key is None else require_key(rules, api_key, service=SERVICE)
        endpoint = require_endpoint(rules, rules.endpoint, service=SERVICE)
        self._url = endpoint.rstrip("/") + _PATHS[rules.api] if _PATHS[rules.api] else endpoint
        self._sleep = sleep
        self._n_sent = 0
        self._answered_by: set[str] = set()

    @property
    def n_sent(self) -> int:
        """HTTP requests sent by finished calls of ``score``, retries included."""
        return self._n_sent

    @property
    def identity(self) -> RewardIdentity:
        rules = self._rules
        return RewardIdentity(
            kind="gateway",
            model=rules.model,
            version=f"httpx2 {httpx2.__version__}, {rules.api}",
            settings={
                "endpoint": rules.endpoint,
                "api": rules.api,
                "max_concurrency": str(rules.max_concurrency),
                "max_tries": str(rules.max_tries),
                "timeout_seconds": f"{rules.timeout_seconds:g}",
                "answered_by": ", ".join(sorted(self._answered_by)) or "not said",
            },
            publishable=True,
        )

    def score(self, requests: Sequence[RewardRequest]) -> tuple[RewardScore, ...]:
        """Raises BackendError for what no retry could mend, for more lost requests than the plan
        allows, and for a service that answers as more than one model."""
        if len({request.key for request in requests}) != len(requests):
            raise RuntimeError("two requests to a reward model have the same key")
        if not requests:
            return ()
        line = Line(self._rules, self._api_key, _WORDS, sleep=self._sleep)
        try:
            with self._client() as client:
                scores = ask_all(
                    requests,
                    lambda request: self._ask(client, line, request),
                    max_concurrency=self._rules.max_concurrency,
                    stop=line.stop,
                    called=SERVICE,
                )
        finally:
            self._n_sent += line.n_sent
        lost = [(one.status, one.note) for one in scores if one.status in _LOST]
        require_share(self._rules, lost, len(scores), service=SERVICE, what="scores")
        self._require_one_model()
        return scores

    def _client(self) -> httpx2.Client:
        headers = {} if self._api_key is None else {"Authorization": f"Bearer {self._api_key}"}
        return httpx2.Client(
            headers=headers,
            timeout=self._rules.timeout_seconds,
            follow_redirects=False,
            # What stays on this machine goes through no proxy, and neither does its key.
            trust_env=not _is_loopback(self._url),
        )

    def _ask(
        self, client: httpx2.Client, line: Line[RewardStatus], request: RewardRequest
    ) -> RewardScore:
        body = _body(self._rules, request)

        def attempt() -> Attempt:
            return _as_answer(_post(client, self._url, body, self._rules.timeout_seconds))

        sent = line.send(
            digest_value([request.key, self._url, body]),
            attempt,
            lambda reply: _read(self._rules.api, reply),
        )
        reply = sent.reply
        if reply is None:
            return _without(request, sent.failure or "outage", sent.note, sent.tries)
        if reply.model:
            self._answered_by.add(line.clean(reply.model))
        if reply.status != "scored":
            return _without(
                request, reply.status, line.clean(reply.note), sent.tries, reply.n_tokens
            )
        return RewardScore(
            key=request.key,
            status="scored",
            value=reply.value,
            n_tokens=reply.n_tokens,
            note="",
            tries=sent.tries,
        )

    def _require_one_model(self) -> None:
        if len(self._answered_by) > 1:
            raise BackendError(
                f"{SERVICE} {self._rules.name}",
                problem="the service answered as more than one model",
                expected=f"one, for {self._rules.model}",
                found=", ".join(sorted(self._answered_by)),
                next_step="ask for a route that leads to one model; a difference between two "
                "models' scores is no Delta",
            )


def _body(rules: GatewayRules, request: RewardRequest) -> dict[str, Any]:
    return {
        "model": rules.model,
        "messages": [
            {"role": "user", "content": request.user_prompt},
            {"role": "assistant", "content": request.response},
        ],
        **_MORE[rules.api],
    }


def _post(
    client: httpx2.Client, url: str, body: Mapping[str, Any], timeout_seconds: float
) -> Attempt:
    """The client's own time-out bounds a silence; a reply that drips or never ends is cut off here,
    and is then no reply."""
    until, found, problem = time.monotonic() + timeout_seconds, bytearray(), ""
    try:
        with client.stream("POST", url, json=body) as response:
            for piece in response.iter_bytes():
                found += piece
                if time.monotonic() > until:
                    problem = _LATE
                elif len(found) > _MAX_REPLY_BYTES:
                    problem = f"a reply of more than {_MAX_REPLY_BYTES} bytes"
                if problem:
                    return Attempt(status=None, headers={}, body=b"", problem=problem)
    except httpx2.TimeoutException:
        return Attempt(status=None, headers={}, body=b"", problem=_LATE)
    except httpx2.HTTPError as error:
        # Neither text nor cause of it goes on from here: it may hold the request's headers.
        problem = f"the connection failed ({type(error).__name__})"
        return Attempt(status=None, headers={}, body=b"", problem=problem)
    headers = {name.lower(): value for name, value in response.headers.items()}
    return Attempt(status=response.status_code, headers=headers, body=bytes(found))


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _as_answer(got: Attempt) -> Attempt:
    """An exchange that the model cannot take is an answer about this response; for the line, 400
    is a refusal of the whole plan."""
    if got.status not in (400, 413, 422):
        return got
    error = read_error(got.body)
    words = f"{error.code} {error.message}".lower()
    if not any(each in words for each in _TOO_LONG):
        return got
    return Attempt(status=200, headers=got.headers, body=_CUT + error.message.encode("utf-8"))


def _read(api: Api, body: bytes) -> _Reply:
    """Raises ValueError for a body that is not a reply of this form, as ``Line.send`` wants it.

    Some gateways send an error with HTTP 200; it ends here too.
    """
    if body.startswith(_CUT):
        note = body.removeprefix(_CUT).decode("utf-8")
        return _Reply(status="truncated", value=None, note=note, model="", n_tokens=None)
    value = _object(body)
    found = _plain(value) if api == "plain" else _pooled(value, api)
    status, number, note = _one_number(found)
    model, usage = value.get("model"), value.get("usage")
    n_tokens = usage.get("prompt_tokens") if isinstance(usage, Mapping) else None
    return _Reply(
        status=status,
        value=number,
        note=note,
        model=model if isinstance(model, str) else "",
        n_tokens=n_tokens if type(n_tokens) is int and n_tokens >= 0 else None,
    )


def _object(body: bytes) -> dict[str, Any]:
    """One JSON object; NaN and infinity are let through, as some servers write them. A key given
    twice is refused: of two scores neither is ours to choose."""
    try:
        value = json.loads(body.decode("utf-8"), object_pairs_hook=_distinct)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError("not one JSON object")
    return cast(dict[str, Any], value)


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a key is there twice")
    return value


def _plain(value: Mapping[str, Any]) -> object:
    if "score" not in value:
        raise ValueError("no score in it")
    return value["score"]


def _pooled(value: Mapping[str, Any], api: Api) -> object:
    data = value.get("data")
    if not isinstance(data, list) or len(data) != 1 or not isinstance(data[0], Mapping):
        raise ValueError("no data with one entry in it")
    name = "data" if api == "pooling" else "probs"
    if name not in data[0]:
        raise ValueError(f"no {name} in its entry")
    found = data[0][name]
    # A list of lists has one for every token that the model pooled.
    if api == "pooling" and isinstance(found, list) and len(found) == 1:
        inner = found[0]
        return inner if isinstance(inner, list) else found
    return found


def _one_number(found: object) -> tuple[RewardStatus, float | None, str]:
    """(status, value, note) of what stands where a score should."""
    if isinstance(found, list):
        if len(found) != 1:
            return "unreadable", None, f"{len(found)} numbers where one is the score"
        found = found[0]
    if found is None:
        return "not_finite", None, "null where the score should be"
    if isinstance(found, bool) or not isinstance(found, int | float):
        return "unreadable", None, f"a {type(found).__name__} where the score should be"
    try:
        number = float(found)
    except OverflowError:
        number = math.inf
    if not abs(number) <= LARGEST_SCORE:
        return "not_finite", None, f"{number} where the score should be"
    return "scored", number, ""


def _without(
    request: RewardRequest,
    status: RewardStatus,
    note: str,
    tries: int,
    n_tokens: int | None = None,
) -> RewardScore:
    return RewardScore(
        key=request.key,
        status=status,
        value=None,
        n_tokens=n_tokens,
        note=note[:_LONGEST_NOTE],
        tries=tries,
    )
