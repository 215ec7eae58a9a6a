"""The numbers a drift study is judged and analysed by, as a plan writes them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from eps_locked.domain.fields import Fields
from eps_locked.domain.plan import SOURCE_PATH_SHAPE
from eps_locked.errors import MalformedInputError

__all__ = [
    "NAME",
    "AnalysisSettings",
    "AwarenessRules",
    "CalibrationRules",
    "JudgingRules",
    "PowerAssumptions",
    "ReadoutRules",
    "nullable",
]

T = TypeVar("T")
# Names of batteries, arms, trainings and so on become file names and parts of step ids.
NAME = re.compile(r"[a-z][a-z0-9_]*")


def nullable(fields: Fields, key: str, read: Callable[[], T]) -> T | None:
    """A field that must be there and may be null: a plan says what it leaves out."""
    return None if fields.raw(key) is None else read()


def path_of(fields: Fields, key: str) -> str:
    """A path below ``plans/``."""
    return fields.text(key, shape=SOURCE_PATH_SHAPE)


@dataclass(frozen=True, kw_only=True, slots=True)
class JudgingRules:
    """Who classifies, who grades, who checks on a subset, and how much is classified twice."""

    classifier: str
    twice_share: float
    grader: str | None
    n_graded_samples: int
    checker: str | None
    checker_share: float
    minimum_scored_share: float
    seed: int

    @classmethod
    def from_dict(cls, value: object, path: str) -> JudgingRules:
        with Fields(value, path) as fields:
            return cls(
                classifier=fields.text("classifier", shape=NAME),
                twice_share=fields.number("twice_share", low=0, high=1),
                grader=nullable(fields, "grader", lambda: fields.text("grader", shape=NAME)),
                n_graded_samples=fields.integer("n_graded_samples", low=0),
                checker=nullable(fields, "checker", lambda: fields.text("checker", shape=NAME)),
                checker_share=fields.number("checker_share", low=0, high=1),
                minimum_scored_share=fields.number("minimum_scored_share", above=0, high=1),
                seed=fields.integer("seed", low=0),
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class CalibrationRules:
    """A judge of the plan against labels that people gave to answers of one battery's kind."""

    name: str
    judge: str
    battery: str
    file: str
    minimum_kappa: float

    @property
    def about(self) -> tuple[str, str]:
        return ("battery", self.battery)

    @classmethod
    def from_dict(cls, value: object, path: str) -> CalibrationRules:
        with Fields(value, path) as fields:
            return cls(
                name=fields.text("name", shape=NAME),
                judge=fields.text("judge", shape=NAME),
                battery=fields.text("battery", shape=NAME),
                file=path_of(fields, "file"),
                minimum_kappa=fields.number("minimum_kappa", low=-1, high=1),
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class AnalysisSettings:
    """Every number of the statistics, frozen. Points are percentage points of the aligned rate."""

    n_resamples: int
    confidence_level: float
    equivalence_level: float
    alpha: float
    power: float
    margin_points: float
    margin_grade: float
    wanted_points: float
    minimum_stems: int
    n_permutations: int
    seed: int

    @classmethod
    def from_dict(cls, value: object, path: str) -> AnalysisSettings:
        with Fields(value, path) as fields:
            return cls(
                n_resamples=fields.integer("n_resamples", low=100),
                confidence_level=_level(fields, "confidence_level"),
                equivalence_level=_level(fields, "equivalence_level"),
                alpha=fields.number("alpha", above=0, below=1),
                power=fields.number("power", above=0, below=1),
                margin_points=fields.number("margin_points", above=0),
                margin_grade=fields.number("margin_grade", above=0),
                wanted_points=fields.number("wanted_points", above=0),
                minimum_stems=fields.integer("minimum_stems", low=2),
                n_permutations=fields.integer("n_permutations", low=19),
                seed=fields.integer("seed", low=0),
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class PowerAssumptions:
    """What power is computed from before anything is asked.

    ``stem_sd_points``: standard deviation over stems of the true drift; ``within_variance``:
    variance of one reply (0/1) around its probe's rate; ``n_experiments`` of the simulation.
    """

    rate: float
    stem_sd_points: float
    within_variance: float
    n_experiments: int

    @classmethod
    def from_dict(cls, value: object, path: str) -> PowerAssumptions:
        with Fields(value, path) as fields:
            return cls(
                rate=fields.number("rate", above=0, below=1),
                stem_sd_points=fields.number("stem_sd_points", low=0),
                # A reply is 0 or 1: no variance of one exceeds a quarter.
                within_variance=fields.number("within_variance", above=0, high=0.25),
                n_experiments=fields.integer("n_experiments", low=100),
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadoutRules:
    """Trait directions, read at one layer that is fixed before anything is measured."""

    traits: str
    layer: int
    prompts: str
    n_prompts: int
    full: str
    reference: str

    @classmethod
    def from_dict(cls, value: object, path: str) -> ReadoutRules:
        with Fields(value, path) as fields:
            return cls(
                traits=path_of(fields, "traits"),
                layer=fields.integer("layer", low=1),
                prompts=path_of(fields, "prompts"),
                n_prompts=fields.integer("n_prompts", low=2),
                full=fields.text("full", shape=NAME),
                reference=fields.text("reference", shape=NAME),
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class AwarenessRules:
    """Which judges rate each probe for looking like a test, and the words counted in reasoning."""

    rubric: str
    judges: tuple[str, ...]
    words: str

    @classmethod
    def from_dict(cls, value: object, path: str) -> AwarenessRules:
        with Fields(value, path) as fields:
            return cls(
                rubric=path_of(fields, "rubric"),
                judges=fields.texts("judges", shape=NAME),
                words=path_of(fields, "words"),
            )


def _level(fields: Fields, key: str) -> float:
    level = fields.number(key)
    if not 0.5 <= level < 1:
        raise MalformedInputError(fields.path(key), expected="0.5 to below 1", found=level)
    return level
