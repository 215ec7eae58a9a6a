"""From a plan's endpoint to an endpoint. The vendor's library is imported here, and not before."""

from __future__ import annotations

from collections.abc import Mapping

from eps_locked.domain.chat import ChatEndpoint
from eps_locked.errors import BackendError
from eps_locked.services.replies import SERVICE
from eps_locked.services.rules import (
    EndpointRules,
    key_from,
    require_no_headers,
    rules_for,
)

__all__ = ["make_endpoint"]

_EXTRA = "judges"


def make_endpoint(
    rules: EndpointRules,
    environ: Mapping[str, str],
    *,
    url: str | None = None,
    kind: str = "openai",
) -> ChatEndpoint:
    """The endpoint that a plan names, with its key from ``environ``. No request is sent.

    ``url`` is where a server that was started for it listens. Raises BackendError for a key that
    is not set, for headers that no plan names and for an extra that is not installed.
    """
    try:
        from eps_locked.services.chat import OpenAiEndpoint
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] == "eps_locked":
            raise  # our own defect
        raise BackendError(
            f"{SERVICE} {rules.name}",
            problem=f"a chat endpoint needs {error.name}, which is not installed",
            next_step=f"install the extra {_EXTRA}: pip install 'eps-locked[{_EXTRA}]'",
        ) from error
    line_rules = rules_for(rules, "unknown")
    require_no_headers(line_rules, environ, "OPENAI_CUSTOM_HEADERS", service=SERVICE)
    key = key_from(line_rules, environ, service=SERVICE, where=f"{SERVICE} {rules.name}")
    return OpenAiEndpoint(rules, key, url=url, kind=kind)
