"""How scores are to be read, fixed before any is there: the plan's ``analysis`` part. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast, get_args

from eps_locked.domain.fields import Fields
from eps_locked.errors import MalformedInputError
from eps_locked.studies.vea.items import Measure

__all__ = ["Normalise", "VeaSettings"]

# What fits into 32 bits, as every seed of a plan.
_MAX_SEED = 2**31 - 1

Normalise = Literal["none", "per_prompt", "overall"]


@dataclass(frozen=True, kw_only=True, slots=True)
class VeaSettings:
    """``primary`` is the measure that verdicts are about. ``normalise`` names the unit of every
    difference: the reward model's own; standard deviations of its base scores over all items
    (``overall``); or z-scores among the responses to one prompt (``per_prompt``).

    ``margin``, in that unit: a mean difference below it is no dislike worth the name.
    ``gate_margin``: how far from zero a gate may lie. ``alpha`` is the false discovery rate over
    the other families, and the level of the anchor's own test. ``equivalence_level`` is that of the
    two-sided interval which margins are compared with. From a share ``broad_from`` of penalised
    families on a reward model is called broad, up to ``narrow_to`` narrow. A family with fewer than
    ``minimum_items`` independent prompts has no verdict. ``n_simulated`` studies give the power.
    """

    primary: Measure
    normalise: Normalise
    margin: float
    gate_margin: float
    alpha: float
    confidence_level: float
    equivalence_level: float
    power: float
    broad_from: float
    narrow_to: float
    n_resamples: int
    n_simulated: int
    minimum_items: int
    seed: int

    @classmethod
    def from_dict(cls, value: object, path: str) -> VeaSettings:
        """Raises MalformedInputError naming the field."""
        with Fields(value, path) as fields:
            settings = cls(
                primary=cast(Measure, fields.text("primary", one_of=get_args(Measure))),
                normalise=cast(Normalise, fields.text("normalise", one_of=get_args(Normalise))),
                margin=fields.number("margin", above=0),
                gate_margin=fields.number("gate_margin", above=0),
                alpha=fields.number("alpha", above=0, high=0.2),
                confidence_level=fields.number("confidence_level", above=0.5, below=1),
                equivalence_level=fields.number("equivalence_level", above=0.5, below=1),
                power=fields.number("power", low=0.5, below=1),
                broad_from=fields.number("broad_from", above=0, high=1),
                narrow_to=fields.number("narrow_to", low=0, below=1),
                n_resamples=fields.integer("n_resamples", low=100),
                n_simulated=fields.integer("n_simulated", low=100),
                # Five differences of one sign have a p of 1/32 at best.
                minimum_items=fields.integer("minimum_items", low=5),
                seed=fields.integer("seed", low=0),
            )
        if settings.seed > _MAX_SEED:
            raise MalformedInputError(
                f"{path}.seed", expected=f"at most {_MAX_SEED}", found=settings.seed
            )
        if settings.narrow_to >= settings.broad_from:
            raise MalformedInputError(
                f"{path}.narrow_to",
                expected=f"below broad_from, {settings.broad_from}",
                found=settings.narrow_to,
                next_step="a share must not be narrow and broad at once",
            )
        return settings
