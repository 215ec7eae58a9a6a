"""Two metrics that need no model: the priors that every other metric has to beat.

They are ordinary plug-ins, loaded through the same door and run in the same box as anybody's.
"""

from __future__ import annotations

from typing import Any, ClassVar

from numpy.typing import NDArray

from eps_locked.metrics.interface import (
    BaseModel,
    BehaviourMaterials,
    ContextView,
    Materials,
    Polarity,
    Track,
    TrainingData,
)

# Name: attribute of this module.
SHIPPED = {"bystander-prior": "BystanderPrior", "source-prior": "SourcePrior"}


class _Prior:
    """The base model's mean log-probability (nats) of the behaviour in one context of the cell."""

    author: ClassVar[str] = "eps_locked"
    track: ClassVar[Track] = "predictive"
    polarity: ClassVar[Polarity] = "more"

    def behaviour_vector(
        self, behaviour: BehaviourMaterials, model: BaseModel, materials: Materials
    ) -> Any:
        return [0.0]

    def prior(self, context: ContextView, data: tuple[TrainingData, ...], m: Materials) -> float:
        value = m.base_log_prob(data[0].behaviour, context.id)
        if value is None:
            raise ValueError(f"no answer of the base model in {context.id} has a reading")
        return value


class BystanderPrior(_Prior):
    """log P(behaviour | evaluated context) under the base model."""

    id = "bystander-prior"
    title = "Bystander base prior"
    description = "Mean base log-probability of the behaviour in the evaluated context."

    def score(
        self,
        vector: NDArray[Any],
        train: ContextView,
        evaluated: ContextView,
        model: BaseModel,
        training_data: tuple[TrainingData, ...],
        materials: Materials,
    ) -> float:
        return self.prior(evaluated, training_data, materials)


class SourcePrior(_Prior):
    """log P(behaviour | train context) under the base model."""

    id = "source-prior"
    title = "Source base prior"
    description = "Mean base log-probability of the behaviour in the train context."

    def score(
        self,
        vector: NDArray[Any],
        train: ContextView,
        evaluated: ContextView,
        model: BaseModel,
        training_data: tuple[TrainingData, ...],
        materials: Materials,
    ) -> float:
        return self.prior(train, training_data, materials)
