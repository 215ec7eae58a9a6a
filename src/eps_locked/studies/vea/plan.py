"""The ``vea`` section of a plan: items, trained arms, reward models, statistics.

Each part is read on its own here; how the parts hang together is checked in ``checks``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from eps_locked.domain.fields import Fields
from eps_locked.domain.plan import Plan
from eps_locked.errors import MalformedInputError, RefusedError
from eps_locked.studies.vea.items import Family
from eps_locked.studies.vea.parts import (
    ClassifierReward,
    GatewayReward,
    HeadTraining,
    ImplicitReward,
    ItemFile,
    RewardModelPlan,
    ScoreHead,
    TableReward,
    Target,
    Truth,
    nullable,
    path_of,
    read_reward_model,
)
from eps_locked.studies.vea.settings import VeaSettings

__all__ = [
    "ClassifierReward",
    "GatewayReward",
    "HeadTraining",
    "ImplicitReward",
    "ItemFile",
    "RewardModelPlan",
    "ScoreHead",
    "TableReward",
    "Target",
    "Truth",
    "VeaPlan",
]


@dataclass(frozen=True, kw_only=True, slots=True)
class VeaPlan:
    """The whole section.

    ``tolerance``: share of a clause's length in characters by which its control's may differ.
    ``words``: the file of words that a control must not use. ``training_pairs``: there exactly if
    something is trained.
    """

    items: ItemFile
    decoys: ItemFile | None
    tolerance: float
    words: str
    training_pairs: str | None
    trainings: tuple[HeadTraining, ...]
    reward_models: tuple[RewardModelPlan, ...]
    analysis: VeaSettings

    @classmethod
    def of(cls, plan: Plan) -> VeaPlan:
        """The section of a plan of this study; raises RefusedError for one of another."""
        if plan.study != "vea":
            raise RefusedError(
                f"plan {plan.name}",
                problem="is of another study",
                expected="a plan of study vea",
                found=plan.study,
                next_step=f"this reads reward models; what speaks of {plan.study} runs stands in "
                "the README",
            )
        return cls.from_section(plan.study_section)

    @classmethod
    def from_section(cls, section: Mapping[str, Any], path: str = "plan.vea") -> VeaPlan:
        """Raises MalformedInputError naming the field. ``checks`` holds the parts together."""
        with Fields(section, path) as fields:
            return cls(
                items=ItemFile.from_dict(fields.raw("items"), fields.path("items")),
                decoys=nullable(
                    fields,
                    "decoys",
                    lambda: ItemFile.from_dict(fields.raw("decoys"), fields.path("decoys")),
                ),
                tolerance=fields.number("tolerance", low=0, below=1),
                words=path_of(fields, "words"),
                training_pairs=nullable(
                    fields, "training_pairs", lambda: path_of(fields, "training_pairs")
                ),
                trainings=fields.each("trainings", HeadTraining.from_dict),
                reward_models=fields.each("reward_models", read_reward_model),
                analysis=VeaSettings.from_dict(fields.raw("analysis"), fields.path("analysis")),
            )

    def training(self, name: str) -> HeadTraining:
        return _named(self.trainings, name, "training")

    def reward_model(self, name: str) -> RewardModelPlan:
        return _named(self.reward_models, name, "reward model")

    @property
    def counts(self) -> dict[Family, int]:
        """Items of each family that has any, in both files together."""
        files = [self.items] if self.decoys is None else [self.items, self.decoys]
        total: dict[Family, int] = {}
        for one in files:
            for family, n in one.counts.items():
                total[family] = total.get(family, 0) + n
        return total

    @property
    def n_items(self) -> int:
        return sum(self.counts.values())

    @property
    def material_files(self) -> tuple[str, ...]:
        """Every file below ``plans/`` that material is read from, in the plan's order, once."""
        paths = [
            self.items.file,
            None if self.decoys is None else self.decoys.file,
            self.words,
            self.training_pairs,
            *(one.file for one in self.reward_models if isinstance(one, TableReward)),
        ]
        return tuple(dict.fromkeys(path for path in paths if path is not None))


class _Named(Protocol):
    @property
    def name(self) -> str: ...


N = TypeVar("N", bound=_Named)


def _named(parts: tuple[N, ...], name: str, what: str) -> N:
    found = next((part for part in parts if part.name == name), None)
    if found is None:
        raise MalformedInputError(
            f"plan.vea: {what} {name}",
            expected=f"a {what} of the plan",
            found="none of that name",
            next_step=f"known: {', '.join(part.name for part in parts) or 'none'}",
        )
    return found
