"""What services say when they refuse: found in their several dialects, and sorted by consequence.

Three refusals do not mean what their HTTP status says. A content filter answers 400, which is else
for requests that no retry and no other request could mend; here it is about this one request. So it
is where one request is too long for the context of the model. And an account that is spent answers
429, which is else for patience.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from eps_locked.services.rules import LineRules
from eps_locked.services.strict_json import json_reply

__all__ = ["ABOUT_THE_KEY", "FINAL_TYPES", "ServiceError", "next_step", "read_error"]

# The names of Anthropic's service, used for all.
FINAL_TYPES: Mapping[int, str] = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
}
ABOUT_THE_KEY = frozenset({"authentication_error", "permission_error"})
# Azure's code; LiteLLM's and Azure's words; Anthropic's words, under invalid_request_error.
_FILTER_CODE = "content_filter"
_FILTER_WORDS = (
    "contentpolicyviolationerror",
    "content management policy",
    "blocked by content filtering policy",
)
# OpenAI's code, and llama.cpp's type.
_TOO_LONG_NAMES = ("context_length_exceeded", "exceed_context_size_error")
# OpenAI's and vLLM's words; LiteLLM's; llama.cpp's; Anthropic's; TGI's (twice); our own server's.
_TOO_LONG_WORDS = (
    "maximum context length",
    "contextwindowexceedederror",
    "exceeds the available context size",
    "prompt is too long",
    "`inputs` must have less than",
    "`inputs` tokens + `max_new_tokens` must be",
    "too long for the context",
)
# OpenAI's code, and the end of three of Anthropic's.
_SPENT = ("insufficient_quota", "spend_limit_reached")


@dataclass(frozen=True, kw_only=True, slots=True)
class ServiceError:
    """Type, code and message as the service gives them, each empty where it gives none."""

    type: str
    code: str
    message: str

    @property
    def is_filter(self) -> bool:
        """Whether a content filter would not let this one request through."""
        words = self.message.lower()
        return self.code == _FILTER_CODE or any(each in words for each in _FILTER_WORDS)

    @property
    def is_too_long(self) -> bool:
        """Whether this one request and its reply have no room in the model's context."""
        words = self.message.lower()
        return bool({self.code, self.type} & {*_TOO_LONG_NAMES}) or any(
            each in words for each in _TOO_LONG_WORDS
        )

    @property
    def is_spent(self) -> bool:
        """Whether the account may spend no more."""
        return self.type.endswith(_SPENT) or self.code.endswith(_SPENT)


def read_error(body: bytes | Mapping[str, object]) -> ServiceError:
    """From a body, or from an object taken out of one. Never raises."""
    try:
        value = json_reply(body) if isinstance(body, bytes) else body
    except ValueError:
        value = {}
    error = value.get("error")
    if isinstance(error, str):
        error = {**value, "message": error}
    elif not isinstance(error, Mapping):
        error = value
    details = error.get("details")
    code = details.get("error_code") if isinstance(details, Mapping) else error.get("code")
    return ServiceError(
        type=_text(error.get("type")),
        code=_text(code),
        message=_text(error.get("message")) or _detail(error.get("detail")),
    )


def next_step(rules: LineRules, error_type: str) -> str:
    """What whoever wrote the plan may do about a refusal of this type."""
    variable = rules.api_key_env or "the environment"
    steps = {
        "invalid_request_error": "read the service's words; correct what the plan asks for",
        "authentication_error": f"set a valid key in {variable}",
        "billing_error": f"see to the account that the key in {variable} belongs to",
        "permission_error": f"ask for the right to use {rules.model}, or set another key in "
        f"{variable}",
        "not_found_error": f"check model {rules.model} and the endpoint in the plan",
    }
    if error_type.startswith("HTTP 3"):
        return "no redirect is followed; write where it leads as the endpoint of the plan"
    return steps.get(error_type, "read the service's words; check the endpoint in the plan")


def _detail(value: object) -> str:
    """A text, or what FastAPI lists of a body that it would not take: places with messages."""
    if not isinstance(value, list):
        return _text(value)
    found = []
    for one in value:
        if isinstance(one, Mapping) and isinstance(one.get("msg"), str):
            place = one.get("loc")
            where = ".".join(map(str, place)) if isinstance(place, list) else ""
            found.append(f"{where}: {one['msg']}" if where else one["msg"])
    return "; ".join(found)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
