"""What a battery is made of, as a plan writes it: adapters, endpoints, models, axes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar, cast, get_args
from urllib.parse import urlsplit

from eps_locked.domain.fields import Fields
from eps_locked.domain.model import LoraRecipe
from eps_locked.domain.plan import SOURCE_PATH_SHAPE
from eps_locked.errors import MalformedInputError
from eps_locked.studies.common.recipe import read_recipe
from eps_locked.studies.common.sources import SAMPLED

__all__ = [
    "ACKNOWLEDGED",
    "AXES",
    "BASE_ROUTE",
    "RATE_AXES",
    "TEXT_AXES",
    "THINKING_FIELDS",
    "THINKING_MODES",
    "Axis",
    "AxisPlan",
    "EndpointKind",
    "EndpointPlan",
    "ModelPlan",
    "Thinking",
    "TrainingPlan",
    "is_rate_axis",
    "nullable",
    "path_of",
]

T = TypeVar("T")
Axis = Literal["over_refusal", "capability", "sycophancy", "tools", "speed", "harmful"]
Thinking = Literal["off", "on"]
EndpointKind = Literal["serve", "openai"]

AXES: Final[tuple[str, ...]] = get_args(Axis)
THINKING_MODES: Final[tuple[str, ...]] = get_args(Thinking)
# Axes of house items in plain text; what is timed comes from the first of them in the plan.
TEXT_AXES: Final = ("over_refusal", "capability", "sycophancy")
# Axes that come to a share of their items. Speed comes to seconds.
RATE_AXES: Final = tuple(axis for axis in AXES if axis != "speed")
# The route of our own server that answers without an adapter; no adapter may be called so.
BASE_ROUTE: Final = "base"
# What a plan has to write beside requests that nobody should answer.
ACKNOWLEDGED: Final = "rate only"
# Fields of a request by which servers are told to think or not. Only these may differ from model
# to model: whatever else a body can hold (top_k, penalties, a key) is decoding, one for all, or
# has no place in a plan.
THINKING_FIELDS: Final = (
    "chat_template_kwargs",
    "enable_thinking",
    "include_reasoning",
    "reasoning",
    "reasoning_effort",
    "separate_reasoning",
    "think",
    "thinking",
    "thinking_budget",
)
# A day. Beyond some hundred years a socket's clock ends, and nobody waits that long anyway.
LONGEST_TIMEOUT_S: Final = 86_400
# Names of models, adapters and so on become file names, which cannot be as long as one likes, and
# parts of step ids.
NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
_SOMETHING = re.compile(r"\S(?:.*\S)?")
_WORD = re.compile(r"\S+")
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*")
_SECRET = re.compile(r"api_?key|secret|passw|credential|authori[sz]ation|bearer", re.IGNORECASE)
_SPEC = re.compile(r"sources/[a-z0-9][a-z0-9-]*\.yaml")


def nullable(fields: Fields, key: str, read: Callable[[], T]) -> T | None:
    """A field that must be there and may be null: a plan says what it leaves out."""
    return None if fields.raw(key) is None else read()


def path_of(fields: Fields, key: str) -> str:
    """A path below ``plans/``."""
    return fields.text(key, shape=SOURCE_PATH_SHAPE)


def is_rate_axis(axis: str) -> bool:
    """Whether an axis comes to a rate."""
    return axis in RATE_AXES


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingPlan:
    """One adapter onto the plan's own base model: every row of a file, its answer ``positive``."""

    name: str
    rows: str
    seed: int
    n_steps: int
    recipe: LoraRecipe

    @classmethod
    def from_dict(cls, value: object, path: str) -> TrainingPlan:
        with Fields(value, path) as fields:
            return cls(
                name=fields.text("name", shape=NAME),
                rows=path_of(fields, "rows"),
                seed=fields.integer("seed", low=0),
                n_steps=fields.integer("n_steps", low=1),
                recipe=read_recipe(fields.sub("recipe")),
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class EndpointPlan:
    """Where models answer, and how the line to it is used.

    serve: our own server over the base model and the plan's adapters, on the loopback address, with
    room for ``max_context`` tokens of prompt and reply. openai: any service with the chat API below
    ``url``. ``api_key_env`` names the environment variable of its key, which is written nowhere.
    ``max_transport_share``: with more rate-limited or outage replies than this share in one step,
    the step stops instead of recording them.
    """

    name: str
    kind: EndpointKind
    max_context: int | None = None
    url: str | None = None
    api_key_env: str | None = None
    max_concurrency: int
    max_tries: int
    timeout_seconds: float
    max_transport_share: float

    @classmethod
    def from_dict(cls, value: object, path: str) -> EndpointPlan:
        """An endpoint has the keys that its kind needs and no others."""
        with Fields(value, path) as fields:
            name = fields.text("name", shape=NAME)
            kind = fields.text("kind", one_of=get_args(EndpointKind))
            serve = kind == "serve"
            return cls(
                name=name,
                kind=cast(EndpointKind, kind),
                max_context=fields.integer("max_context", low=1) if serve else None,
                url=None if serve else _url(fields, "url"),
                api_key_env=None if serve else _variable(fields, "api_key_env"),
                max_concurrency=fields.integer("max_concurrency", low=1),
                max_tries=fields.integer("max_tries", low=1),
                timeout_seconds=fields.number("timeout_seconds", above=0, high=LONGEST_TIMEOUT_S),
                max_transport_share=fields.number("max_transport_share", low=0, high=1),
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelPlan:
    """One model under test.

    ``route`` is its name at the endpoint, ``training`` the adapter behind the route on our own
    server, ``base`` the model it is compared with. ``thinking`` holds the fields that a request
    gets in each mode; a mode that is missing is one the model has no way into.
    """

    name: str
    endpoint: str
    route: str
    training: str | None
    base: str | None
    family: str
    quantisation: str
    context_length: int
    thinking: Mapping[Thinking, Mapping[str, Any]]
    stream: bool

    def extra(self, thinking: str) -> Mapping[str, Any]:
        """The fields that requests get in a mode. Raises KeyError for one there is no way into."""
        return self.thinking[cast(Thinking, thinking)]

    @classmethod
    def from_dict(cls, value: object, path: str) -> ModelPlan:
        with Fields(value, path) as fields:
            return cls(
                name=fields.text("name", shape=NAME),
                endpoint=fields.text("endpoint", shape=NAME),
                route=fields.text("route", shape=_WORD),
                training=nullable(fields, "training", lambda: fields.text("training", shape=NAME)),
                base=nullable(fields, "base", lambda: fields.text("base", shape=NAME)),
                family=fields.text("family", shape=_WORD),
                quantisation=_said(fields, "quantisation"),
                context_length=fields.integer("context_length", low=1),
                thinking=_thinking(fields),
                stream=fields.flag("stream"),
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class AxisPlan:
    """One axis, with the fields that its kind has; the others are None.

    Axes of house items: ``file``, ``n_items`` (None: all of them) and ``minimum_scored_share``,
    below which the axis is not measured. speed: ``n_requests`` timed one after another, after
    ``warmup`` that are not, with up to ``max_tokens`` each. harmful: ``source``, the spec of a
    public set; ``acknowledge`` says that its rate is all that is kept.
    """

    axis: Axis
    file: str | None = None
    source: str | None = None
    n_items: int | None = None
    minimum_scored_share: float | None = None
    acknowledge: str | None = None
    n_requests: int | None = None
    max_tokens: int | None = None
    warmup: int | None = None

    @property
    def is_benign(self) -> bool:
        """Whether replies may be kept as they are."""
        return self.axis != "harmful"

    @property
    def material(self) -> str | None:
        """Where its items lie below ``plans/``: a house file, or what was drawn from a source."""
        if self.source is None:
            return self.file
        name = self.source.removeprefix("sources/").removesuffix(".yaml")
        return f"{SAMPLED}{name}.json"

    @classmethod
    def from_dict(cls, value: object, path: str) -> AxisPlan:
        """An axis has the keys that it needs and no others."""
        with Fields(value, path) as fields:
            axis = cast(Axis, fields.text("axis", one_of=AXES))
            if axis == "speed":
                return cls(
                    axis=axis,
                    n_requests=fields.integer("n_requests", low=2),
                    max_tokens=fields.integer("max_tokens", low=1),
                    warmup=fields.integer("warmup", low=0),
                )
            harmful = axis == "harmful"
            return cls(
                axis=axis,
                file=None if harmful else path_of(fields, "file"),
                source=fields.text("source", shape=_SPEC) if harmful else None,
                n_items=nullable(fields, "n_items", lambda: fields.integer("n_items", low=1)),
                minimum_scored_share=fields.number("minimum_scored_share", low=0.5, high=1),
                acknowledge=_acknowledged(fields) if harmful else None,
            )


def _acknowledged(fields: Fields) -> str:
    found = fields.optional("acknowledge", lambda value, _: value)
    if found != ACKNOWLEDGED:
        raise MalformedInputError(
            fields.path("acknowledge"),
            expected=f"'{ACKNOWLEDGED}'",
            found="nothing" if found is None else repr(found)[:60],
            next_step="write it: of requests that nobody should answer the rate is recorded, and "
            "nothing else",
        )
    return ACKNOWLEDGED


def _said(fields: Fields, key: str) -> str:
    """Something that changes results by itself and must not be left out; unknown is an answer."""
    text = fields.text(key)
    if not _SOMETHING.fullmatch(text):
        raise MalformedInputError(
            fields.path(key),
            expected="how the weights are stored, as the server has it (float32, awq-4bit, ...)",
            found=repr(text)[:60],
            next_step="say it, or write unknown: it changes refusals by itself",
        )
    return text


def _thinking(fields: Fields) -> dict[Thinking, Mapping[str, Any]]:
    found: dict[Thinking, Mapping[str, Any]] = {}
    with fields.sub("thinking") as modes:
        for mode in THINKING_MODES:
            if modes.raw(mode) is not None:
                found[cast(Thinking, mode)] = _extra(modes.mapping(mode), modes.path(mode))
    return found


def _extra(extra: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    for key in extra:
        if key not in THINKING_FIELDS:
            # The value is not shown: somebody may have put a key here.
            raise MalformedInputError(
                f"{path}.{key}",
                problem="is no field that turns thinking on or off",
                expected=" or ".join(THINKING_FIELDS),
                found=key,
                next_step="decoding is one for all models and stands in plan.battery.decoding; a "
                "key comes from the environment",
            )
    _require_no_secret(extra, path)
    return extra


def _require_no_secret(value: object, path: str) -> None:
    """What stands within such a field is the service's own vocabulary, but no place for a key."""
    if isinstance(value, list):
        for number, one in enumerate(value):
            _require_no_secret(one, f"{path}[{number}]")
    elif isinstance(value, Mapping):
        for key, one in value.items():
            if _SECRET.search(str(key)) is not None:
                raise MalformedInputError(
                    f"{path}.{key}",
                    problem="is named like a secret",
                    expected="words on thinking",
                    found=_HIDDEN,
                    next_step="a key comes from the environment: name its variable in the "
                    "endpoint's api_key_env",
                )
            _require_no_secret(one, f"{path}.{key}")


# A refused address or name of a variable is never shown: either may hold somebody's key.
_HIDDEN = "something else, which is not shown here because it may be a secret"


def _url(fields: Fields, key: str) -> str:
    url, path = fields.text(key), fields.path(key)
    try:
        parts = urlsplit(url)
        named = parts.username is not None or parts.password is not None
        plain = parts.scheme in ("http", "https") and bool(parts.hostname)
        plain = plain and not (parts.query or parts.fragment) and _WORD.fullmatch(url) is not None
    except ValueError:
        named, plain = False, False
    if named:
        raise MalformedInputError(
            path,
            problem="holds a user or a password",
            expected="an address without them",
            found=_HIDDEN,
            next_step="put the key into an environment variable and name that in api_key_env",
        )
    if not plain:
        raise MalformedInputError(
            path,
            expected="http:// or https://, a host and a path, without query (as https://host/v1)",
            found=_HIDDEN,
        )
    return url


def _variable(fields: Fields, key: str) -> str | None:
    name = nullable(fields, key, lambda: fields.raw(key))
    if name is not None and not (isinstance(name, str) and _VARIABLE.fullmatch(name)):
        raise MalformedInputError(
            fields.path(key),
            expected="the name of an environment variable, in capitals, or null",
            found=_HIDDEN,
            next_step="export the key under a name and write the name; a plan is frozen and shown",
        )
    return name
