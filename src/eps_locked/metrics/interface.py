"""What a metric is and everything it may see: the whole contract between harness and author.

A metric is a scalar for each cell (behaviour, train context, eval context), computed before any
training: ``score(vector, train, evaluated, model, training_data, materials)``. The behaviour enters
as a vector that the metric extracts itself; the harness asks for it once a behaviour, and then
scores every cell a second time with the mean vector over behaviours (the behaviour-blind ablation).
Author a class or a module-level object; nothing has to be inherited.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "AdapterView",
    "BaseModel",
    "BehaviourMaterials",
    "ContextView",
    "InstructionPair",
    "Item",
    "Materials",
    "Metric",
    "OpenCell",
    "Polarity",
    "Reading",
    "Track",
    "TrainingData",
    "TrainingRow",
]

Polarity = Literal["more", "less"]
Track = Literal["predictive", "post_hoc"]
TokenIds = tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class InstructionPair:
    """Two system prompts that ask for the behaviour and for its absence."""

    positive: str
    negative: str


@dataclass(frozen=True, kw_only=True, slots=True)
class BehaviourMaterials:
    """What is shipped about one behaviour, in the layout of the persona-vector pipelines.

    ``marker_text`` (with its leading space) and ``marker_ids`` are set for marker behaviours only.
    ``instruction_contexts`` holds, by context id, the texts of the contexts that instruct this
    behaviour; empty where the plan has none.
    """

    name: str
    description: str
    trait: str
    instruction_pairs: tuple[InstructionPair, ...]
    questions_extract: tuple[str, ...]
    questions_evaluate: tuple[str, ...]
    marker_text: str | None
    marker_ids: TokenIds
    instruction_contexts: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Item:
    """A question of a row, with the id that prompts and readings are keyed by.

    ``slice`` groups evaluation items that are measured together; it is empty where there is one.
    """

    id: str
    text: str
    topic: str
    slice: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class ContextView:
    """A context as it was frozen.

    ``messages`` are (role, content) pairs, the last holding ``{question}`` once. ``prompts`` are
    the rendered token ids by item id, up to the opening of the assistant's turn; ``prefix`` is what
    all of them begin with. ``identity`` is the digest of the rendering: contexts of one identity
    are one context, and ``alias_of`` names the other. ``behaviour`` is the behaviour that the
    context instructs or demonstrates, if any.
    """

    id: str
    family: str
    behaviour: str | None
    messages: tuple[tuple[str, str], ...]
    prompts: Mapping[str, TokenIds]
    prefix: TokenIds
    identity: str
    alias_of: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """The base model's own answer to one item in one context, and the behaviour's reading there.

    ``log_prob`` is in nats, at the end of the answer; it is None where the answer was cut at the
    length limit, so that it has no end, and in rows that a judge measures. ``token_ids`` leave out
    the end of the turn; both they and ``text`` are short or empty where a text is not kept.
    """

    item: str
    token_ids: TokenIds
    text: str
    stop_reason: str
    log_prob: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingRow:
    """One training sequence; loss falls on the tokens at ``loss_positions`` and on no other.

    ``key`` is ``positive/ITEM`` or ``negative/CONTEXT/ITEM``. ``question`` and ``answer`` are the
    texts of the item and of the answer trained on, where they are known.
    """

    key: str
    token_ids: TokenIds
    loss_positions: tuple[int, ...]
    question: str | None
    answer: str | None

    @property
    def is_positive(self) -> bool:
        return self.key.startswith("positive/")


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingData:
    """The rows one adapter was, or will be, trained on: those of (behaviour, train, seed)."""

    behaviour: str
    train: str
    seed: int
    rows: tuple[TrainingRow, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class BaseModel:
    """The base model by its folder in Hugging Face layout; loading it is left to the metric.

    ``folder`` is None for a study on the scripted stand-in, which has no weights.
    """

    name: str
    licence: str
    folder: Path | None


@dataclass(frozen=True, kw_only=True, slots=True)
class AdapterView:
    """A trained adapter in PEFT layout. Post-hoc track only."""

    behaviour: str
    train: str
    seed: int
    folder: Path
    digest: str


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenCell:
    """A measured cell that development may use; ``g`` is None where it is unscored.

    Post-hoc track only.
    """

    behaviour: str
    train: str
    eval: str
    g: float | None
    flags: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Materials:
    """Everything shipped. Mappings are keyed by name, in name order.

    Each row of the tensor, named by ``behaviour``, asks its own questions and fills some slots with
    its own contexts: ``contexts`` are by (behaviour, context), items by behaviour. ``base`` and
    ``answers`` hold the base model's readings by (behaviour, context): ``base`` on the eval items
    in every eval context, ``answers`` on the train items where the study asked them. ``priors``
    hold, for judged rows, the base model's mean log-probability per token (nats) of written answers
    that show the behaviour, by (behaviour, context). ``cells`` are the (behaviour, train, eval) to
    be scored, all of them.
    ``adapters`` and ``open_cells`` are empty on the predictive track.
    """

    study: str
    behaviours: Mapping[str, BehaviourMaterials]
    contexts: Mapping[tuple[str, str], ContextView]
    train_items: Mapping[str, tuple[Item, ...]]
    eval_items: Mapping[str, tuple[Item, ...]]
    end_of_turn_id: int
    base: Mapping[tuple[str, str], tuple[Reading, ...]]
    answers: Mapping[tuple[str, str], tuple[Reading, ...]]
    training: Mapping[tuple[str, str], tuple[TrainingData, ...]]
    priors: Mapping[tuple[str, str], float]
    cells: tuple[tuple[str, str, str], ...]
    adapters: tuple[AdapterView, ...] = field(default=())
    open_cells: tuple[OpenCell, ...] = field(default=())

    def base_log_prob(self, behaviour: str, context: str) -> float | None:
        """Mean log-probability (nats) of the behaviour under the base model in a context.

        In judged rows the prior: per token of written answers. In the others from the eval items
        where there are any, else from the train items; over the answers that have a reading, None
        if none has.
        """
        key = (behaviour, context)
        if key in self.priors:
            return self.priors[key]
        readings = self.base.get(key) or self.answers.get(key) or ()
        values = [one.log_prob for one in readings if one.log_prob is not None]
        return sum(values) / len(values) if values else None


class Metric(Protocol):
    """What a plug-in has to offer. Six attributes and two methods.

    ``id``: lower-case letters, digits, ``_`` and ``-``; it names the metric in every table.
    ``polarity``: ``more`` if a larger value predicts more transfer, ``less`` if it predicts less.
    ``track``: ``predictive`` sees no adapter and no result; ``post_hoc`` is given both.
    """

    id: str
    title: str
    author: str
    polarity: Polarity
    track: Track
    description: str

    def behaviour_vector(
        self, behaviour: BehaviourMaterials, model: BaseModel, materials: Materials
    ) -> Any:
        """The behaviour as numbers: anything that becomes a finite float array.

        All behaviours must give one shape. A metric that has no use for one returns ``[0.0]``; its
        behaviour-blind ablation then equals it, and the score says so.
        """
        ...

    def score(
        self,
        vector: NDArray[np.float64],
        train: ContextView,
        evaluated: ContextView,
        model: BaseModel,
        training_data: tuple[TrainingData, ...],
        materials: Materials,
    ) -> float:
        """One finite number for the cell ``train -> evaluated``.

        ``vector`` is what ``behaviour_vector`` gave, as float64, or the mean over behaviours.
        ``training_data`` has one entry a seed, in ascending order; ``training_data[0].behaviour``
        is the behaviour of the cell.
        """
        ...
