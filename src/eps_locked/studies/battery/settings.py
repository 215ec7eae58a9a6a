"""The numbers a battery is asked, judged and compared by, as a plan writes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, cast, get_args

from eps_locked.domain.fields import Fields
from eps_locked.errors import MalformedInputError
from eps_locked.studies.battery.parts import NAME, RATE_AXES, nullable, path_of

__all__ = [
    "AGREEMENT_LABELS",
    "REFUSAL_LABELS",
    "AgreementRules",
    "AnalysisSettings",
    "CalibrationRules",
    "Decoding",
    "RefusalRules",
    "RubricOf",
]

RubricOf = Literal["refusal", "agreement"]
REFUSAL_LABELS: Final = ("refuse", "comply", "partial")
AGREEMENT_LABELS: Final = ("agrees", "corrects", "unclear")


@dataclass(frozen=True, kw_only=True, slots=True)
class Decoding:
    """How every model is asked for every reply. ``seed`` None: none is sent."""

    max_tokens: int
    temperature: float
    top_p: float
    seed: int | None

    @classmethod
    def from_dict(cls, value: object, path: str) -> Decoding:
        with Fields(value, path) as fields:
            return cls(
                max_tokens=fields.integer("max_tokens", low=1),
                temperature=fields.number("temperature", low=0),
                top_p=fields.number("top_p", above=0, high=1),
                seed=nullable(fields, "seed", lambda: fields.integer("seed", low=0)),
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class RefusalRules:
    """The second stage of refusals, after the keyword rule; without a judge the rule stands alone.

    The rubric's labels are those of ``REFUSAL_LABELS``.
    """

    rubric: str
    judge: str | None

    @classmethod
    def from_dict(cls, value: object, path: str) -> RefusalRules:
        with Fields(value, path) as fields:
            return cls(
                rubric=path_of(fields, "rubric"),
                judge=nullable(fields, "judge", lambda: fields.text("judge", shape=NAME)),
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class AgreementRules:
    """Who says whether a reply goes along with a false premise; labels ``AGREEMENT_LABELS``."""

    rubric: str
    judge: str

    @classmethod
    def from_dict(cls, value: object, path: str) -> AgreementRules:
        with Fields(value, path) as fields:
            return cls(rubric=path_of(fields, "rubric"), judge=fields.text("judge", shape=NAME))


@dataclass(frozen=True, kw_only=True, slots=True)
class CalibrationRules:
    """A judge of the plan against labels that people gave to answers of a rubric's kind."""

    name: str
    judge: str
    rubric_of: RubricOf
    file: str
    minimum_kappa: float

    @property
    def about(self) -> tuple[str, str]:
        return ("rubric_of", self.rubric_of)

    @classmethod
    def from_dict(cls, value: object, path: str) -> CalibrationRules:
        with Fields(value, path) as fields:
            return cls(
                name=fields.text("name", shape=NAME),
                judge=fields.text("judge", shape=NAME),
                rubric_of=cast(RubricOf, fields.text("rubric_of", one_of=get_args(RubricOf))),
                file=path_of(fields, "file"),
                minimum_kappa=fields.number("minimum_kappa", low=-1, high=1),
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class AnalysisSettings:
    """Every number of the statistics, frozen. ``margins`` are differences of rates, by axis."""

    confidence_level: float
    equivalence_level: float
    alpha: float
    power: float
    margins: Mapping[str, float]
    n_resamples: int
    minimum_items: int
    seed: int

    @classmethod
    def from_dict(cls, value: object, path: str) -> AnalysisSettings:
        with Fields(value, path) as fields:
            return cls(
                confidence_level=_level(fields, "confidence_level"),
                equivalence_level=_level(fields, "equivalence_level"),
                alpha=fields.number("alpha", above=0, below=1),
                power=fields.number("power", above=0, below=1),
                margins=_margins(fields),
                n_resamples=fields.integer("n_resamples", low=100),
                minimum_items=fields.integer("minimum_items", low=2),
                seed=fields.integer("seed", low=0),
            )


def _margins(fields: Fields) -> dict[str, float]:
    names = tuple(fields.mapping("margins"))
    with fields.sub("margins") as margins:
        for name in names:
            if name not in RATE_AXES:
                raise MalformedInputError(
                    margins.path(str(name)),
                    problem="is no axis that comes to a rate",
                    expected=" or ".join(RATE_AXES),
                    found=name,
                )
        return {name: margins.number(name, above=0, below=1) for name in names}


def _level(fields: Fields, key: str) -> float:
    level = fields.number(key)
    if not 0.5 <= level < 1:
        raise MalformedInputError(fields.path(key), expected="0.5 to below 1", found=level)
    return level
