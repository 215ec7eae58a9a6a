"""What a plan says about the use of one service, and what must be true before it is asked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar
from urllib.parse import urlsplit

from eps_locked.errors import BackendError

__all__ = [
    "EndpointRules",
    "LineRules",
    "LineWords",
    "key_from",
    "require_endpoint",
    "require_key",
    "require_no_headers",
    "require_share",
    "rules_for",
]

F = TypeVar("F", bound=str)


class LineRules(Protocol):
    """How one service may be used.

    ``name`` is what the plan calls it and ``model`` what is asked of it. ``api_key_env`` names the
    environment variable of its key. ``timeout_seconds`` bounds the wait for an answer, and
    ``max_transport_share`` the share of requests in one call that may be lost on the line.
    """

    @property
    def name(self) -> str: ...
    @property
    def model(self) -> str: ...
    @property
    def api_key_env(self) -> str | None: ...
    @property
    def max_concurrency(self) -> int: ...
    @property
    def max_tries(self) -> int: ...
    @property
    def timeout_seconds(self) -> float: ...
    @property
    def max_transport_share(self) -> float: ...


class EndpointRules(Protocol):
    """How one endpoint may be used; see LineRules. ``url`` ends where /chat/completions begins."""

    @property
    def name(self) -> str: ...
    @property
    def url(self) -> str | None: ...
    @property
    def api_key_env(self) -> str | None: ...
    @property
    def max_concurrency(self) -> int: ...
    @property
    def max_tries(self) -> int: ...
    @property
    def timeout_seconds(self) -> float: ...
    @property
    def max_transport_share(self) -> float: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class _RulesFor:
    """LineRules: an endpoint's, for one model."""

    name: str
    model: str
    api_key_env: str | None
    max_concurrency: int
    max_tries: int
    timeout_seconds: float
    max_transport_share: float


def rules_for(rules: EndpointRules, model: str) -> _RulesFor:
    """The endpoint's rules as LineRules, for what is asked of ``model``."""
    return _RulesFor(
        name=rules.name,
        model=model,
        api_key_env=rules.api_key_env,
        max_concurrency=rules.max_concurrency,
        max_tries=rules.max_tries,
        timeout_seconds=rules.timeout_seconds,
        max_transport_share=rules.max_transport_share,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class LineWords(Generic[F]):
    """What the user of a line calls the service, and the ways in which no reply came.

    ``service`` begins errors and log lines: "judge", "endpoint", "reward model". ``filtered``: a
    content filter would not let the request through. ``garbled``: what came was no reply at all,
    at the last try too. ``too_long``: the request had no room in the model's context; None for a
    user of whom that would be a fault in every request, and ends the call.
    """

    service: str
    rate_limited: F
    outage: F
    filtered: F
    garbled: F
    too_long: F | None = None


def require_key(rules: LineRules, api_key: str, *, service: str) -> str:
    """The key, if it can stand in a header. Raises BackendError that does not show it."""
    if not api_key or not all("!" <= character <= "~" for character in api_key):
        raise BackendError(
            f"{service} {rules.name}",
            problem=f"the key in {rules.api_key_env} cannot be sent",
            expected="printable ASCII without spaces or line breaks",
            found="something else",
            next_step=f"set {rules.api_key_env} again, without quotes or a newline at its end",
        )
    return api_key


def require_endpoint(rules: LineRules, url: str, *, service: str) -> str:
    """The address, if it is one of the web and holds no password. Raises BackendError."""
    try:
        parts = urlsplit(url)
        well_formed = parts.scheme in ("http", "https") and bool(parts.hostname)
        plain = not (parts.username or parts.password or parts.query or parts.fragment)
    except ValueError:
        well_formed = plain = False
    if not well_formed or not plain:
        raise BackendError(
            f"{service} {rules.name}",
            problem="the endpoint of the plan cannot be used",
            expected="http:// or https://, a host and a path, with no user, password or query",
            found="something else",
            next_step="correct the endpoint; a key belongs into the variable of api_key_env",
        )
    return url


def require_share(
    rules: LineRules, lost: Sequence[tuple[str, str]], n_asked: int, *, service: str, what: str
) -> None:
    """Raises BackendError if too many requests of one call were lost on the line to be recorded.

    lost: status and note of each lost one. what: what they were to bring, in the plural.
    """
    # A quotient of counts rounds to the very number that a plan writes; a product may not.
    if not n_asked or len(lost) / n_asked <= rules.max_transport_share:
        return
    statuses = Counter(status for status, _ in lost)
    notes = Counter(note for _, note in lost)
    kinds = ", ".join(f"{count} {status}" for status, count in sorted(statuses.items()))
    raise BackendError(
        f"{service} {rules.name}",
        problem=f"too many {what} were lost on the line",
        expected=f"at most {rules.max_transport_share:.1%} of {n_asked}",
        found=f"{len(lost)} ({kinds})",
        next_step="nothing of this step was recorded; when the service answers again, "
        "run the same command once more and it goes on from here",
        details=tuple(f"{count} times: {note}" for note, count in notes.most_common(3)),
    )


def key_from(
    rules: LineRules, environ: Mapping[str, str], *, service: str, where: str
) -> str | None:
    """The key from the variable that the plan names; None if it names none.

    where: what the key is for, for the error. Raises BackendError for a variable that is not set.
    """
    if rules.api_key_env is None:
        return None
    key = environ.get(rules.api_key_env, "")
    if not key:
        raise BackendError(
            f"{service} {rules.name}",
            problem=f"the environment variable {rules.api_key_env} is not set",
            expected=f"the key for {where}",
            found="nothing",
            next_step=f"export {rules.api_key_env}=..., or take a plan whose {service} "
            "needs no key",
        )
    return key


def require_no_headers(
    rules: LineRules, environ: Mapping[str, str], variable: str, *, service: str
) -> None:
    """Raises BackendError if a vendor's client would add headers of the environment's."""
    if environ.get(variable):
        raise BackendError(
            f"{service} {rules.name}",
            problem=f"the environment variable {variable} would change every request",
            expected="requests that the plan alone shapes",
            found="headers that no plan names",
            next_step=f"unset {variable}",
        )
