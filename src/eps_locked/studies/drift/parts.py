"""What a drift study is made of, as a plan writes it: batteries, reasoning, doses, arms."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, cast

from eps_locked.domain.fields import Fields
from eps_locked.domain.model import LoraRecipe
from eps_locked.errors import MalformedInputError
from eps_locked.studies.common.recipe import read_recipe
from eps_locked.studies.drift.rules import NAME, nullable, path_of

__all__ = [
    "BASE",
    "NO_REASONING",
    "PLAIN",
    "Arm",
    "Battery",
    "Exposure",
    "Reasoning",
    "ReasoningMode",
    "ReasoningSetting",
    "Topic",
    "Training",
]

# The exposure of a probe that stands alone, the reasoning of an arm that names no setting, and the
# model without an adapter: none of these may be the name of anything else.
PLAIN = "plain"
NO_REASONING = "none"
BASE = "base"
ReasoningMode = Literal["none", "closed", "free", "budget", "filler"]
Role = Literal["disposition", "check"]
_SOMETHING = re.compile(r".+", re.DOTALL)


@dataclass(frozen=True, kw_only=True, slots=True)
class Battery:
    """One set of questions. ``role`` "check" asks whether training taught what it teaches.

    ``n_rewordings`` is 1 exactly for a file of single questions. ``aligned`` and ``no_stance`` are
    classes of the rubric.
    """

    name: str
    role: Role
    file: str
    n_stems: int
    n_rewordings: int
    rubric: str
    aligned: tuple[str, ...]
    no_stance: tuple[str, ...]
    graded_rubric: str | None

    @property
    def n_probes(self) -> int:
        return self.n_stems * self.n_rewordings

    @classmethod
    def from_dict(cls, value: object, path: str) -> Battery:
        with Fields(value, path) as fields:
            return cls(
                name=fields.text("name", shape=NAME),
                role=cast(Role, fields.text("role", one_of=("disposition", "check"))),
                file=path_of(fields, "file"),
                n_stems=fields.integer("n_stems", low=2),
                n_rewordings=fields.integer("n_rewordings", low=1),
                rubric=path_of(fields, "rubric"),
                aligned=_some(fields, "aligned"),
                no_stance=fields.texts("no_stance", shape=NAME),
                graded_rubric=nullable(
                    fields, "graded_rubric", lambda: path_of(fields, "graded_rubric")
                ),
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class ReasoningSetting:
    """How an arm reasons before it replies.

    none: the prompt as the template renders it. closed: an empty reasoning block. free: up to
    ``max_tokens`` of reasoning and reply together, asked again up to ``retries`` times when they
    run out. budget: at most ``n_tokens`` of reasoning, cut off where necessary, then the reply
    (0 is the prompt of closed). filler: ``n_tokens`` of ``text`` over and over instead of it.
    """

    name: str
    mode: ReasoningMode
    n_tokens: int | None = None
    max_tokens: int | None = None
    retries: int | None = None
    text: str | None = None

    @classmethod
    def from_dict(cls, value: object, path: str) -> ReasoningSetting:
        """A setting has the keys that its mode needs and no others."""
        with Fields(value, path) as fields:
            name = fields.text("name", shape=NAME)
            mode = fields.text("mode", one_of=("closed", "free", "budget", "filler"))
            return cls(
                name=name,
                mode=cast(ReasoningMode, mode),
                n_tokens=fields.integer("n_tokens", low=int(mode == "filler"))
                if mode in ("budget", "filler")
                else None,
                max_tokens=fields.integer("max_tokens", low=1) if mode == "free" else None,
                retries=fields.integer("retries", low=0) if mode == "free" else None,
                text=fields.text("text", shape=_SOMETHING) if mode == "filler" else None,
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class Reasoning:
    """The template's reasoning block. ``in_template``: the rendered prompt already opens it."""

    open: str
    close: str
    in_template: bool
    settings: tuple[ReasoningSetting, ...]

    @classmethod
    def from_dict(cls, value: object, path: str) -> Reasoning:
        with Fields(value, path) as fields:
            return cls(
                open=fields.text("open", shape=_SOMETHING),
                close=fields.text("close", shape=_SOMETHING),
                in_template=fields.flag("in_template"),
                settings=fields.each("settings", ReasoningSetting.from_dict),
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class Topic:
    """Narrow advice to train on. ``dose_sets``: a file that lists each dose's harmful rows, else
    they are drawn so that a larger dose holds the smaller one's."""

    name: str
    rows: str
    n_rows: int
    dose_sets: str | None
    recipe: LoraRecipe
    n_steps: int

    @classmethod
    def from_dict(cls, value: object, path: str) -> Topic:
        with Fields(value, path) as fields:
            return cls(
                name=fields.text("name", shape=NAME),
                rows=path_of(fields, "rows"),
                n_rows=fields.integer("n_rows", low=1),
                dose_sets=nullable(fields, "dose_sets", lambda: path_of(fields, "dose_sets")),
                recipe=read_recipe(fields.sub("recipe")),
                n_steps=fields.integer("n_steps", low=1),
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class Training:
    """One adapter. ``dose_percent``: share of harmful rows; n_rows times it is a whole number."""

    name: str
    topic: str
    dose_percent: float
    seed: int

    @classmethod
    def from_dict(cls, value: object, path: str) -> Training:
        with Fields(value, path) as fields:
            return cls(
                name=fields.text("name", shape=NAME),
                topic=fields.text("topic", shape=NAME),
                dose_percent=fields.number("dose_percent", low=0, high=100),
                seed=fields.integer("seed", low=0),
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class Exposure:
    """Earlier exchanges of a topic that stand before the probe as the model's own turns."""

    name: str
    topic: str
    dose_percent: float
    n_exchanges: int

    @classmethod
    def from_dict(cls, value: object, path: str) -> Exposure:
        with Fields(value, path) as fields:
            return cls(
                name=fields.text("name", shape=NAME),
                topic=fields.text("topic", shape=NAME),
                dose_percent=fields.number("dose_percent", low=0, high=100),
                n_exchanges=fields.integer("n_exchanges", low=1),
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class Arm:
    """One thing that is asked. ``model`` is "base" or a training; ``reference`` another arm."""

    name: str
    model: str
    reasoning: str
    temperature: float
    exposure: str | None
    instance: int
    reference: str | None

    @property
    def is_untouched(self) -> bool:
        """Nothing was done to the model, by training or by what stands before the probe."""
        return self.model == BASE and self.exposure is None

    @classmethod
    def from_dict(cls, value: object, path: str) -> Arm:
        with Fields(value, path) as fields:
            return cls(
                name=fields.text("name", shape=NAME),
                model=fields.text("model", shape=NAME),
                reasoning=fields.text("reasoning", shape=NAME),
                temperature=fields.number("temperature", low=0),
                exposure=nullable(fields, "exposure", lambda: fields.text("exposure", shape=NAME)),
                instance=fields.integer("instance", low=1),
                reference=nullable(
                    fields, "reference", lambda: fields.text("reference", shape=NAME)
                ),
            )


def _some(fields: Fields, key: str) -> tuple[str, ...]:
    names = fields.texts(key, shape=NAME)
    if not names:
        raise MalformedInputError(fields.path(key), expected="at least one class", found="none")
    return names
