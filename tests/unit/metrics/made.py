"""Small materials and metrics made by hand, for tests of the metrics room."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from eps_locked.metrics.interface import (
    BaseModel,
    BehaviourMaterials,
    ContextView,
    InstructionPair,
    Item,
    Materials,
    Reading,
    TrainingData,
    TrainingRow,
)

MODEL = BaseModel(name="none", licence="none", folder=None)


def behaviour(name: str) -> BehaviourMaterials:
    return BehaviourMaterials(
        name=name,
        description=f"Does {name}.",
        trait=f"Does {name}.",
        instruction_pairs=(InstructionPair(positive="Do.", negative="Do not."),),
        questions_extract=("What is dew?",),
        questions_evaluate=("What is hail?",),
        marker_text=None,
        marker_ids=(),
        instruction_contexts={},
    )


def context(name: str, *tokens: int) -> ContextView:
    return ContextView(
        id=name,
        family="persona",
        behaviour=None,
        messages=(("user", "{question}"),),
        prompts={"q-1": tokens},
        prefix=tokens[:1],
        identity="blake3:" + "0" * 64,
        alias_of=None,
    )


def materials(*behaviours: str) -> Materials:
    """Two train contexts, three eval contexts, one item, for each behaviour."""
    contexts = {"a": context("a", 1, 2), "b": context("b", 3), "c": context("c", 4, 5, 6)}
    row = TrainingRow(
        key="positive/q-1", token_ids=(1, 2, 3), loss_positions=(2,), question=None, answer=None
    )
    reading = Reading(item="q-1", token_ids=(7,), text="x", stop_reason="stop", log_prob=-2.0)
    cut = replace(reading, log_prob=None, stop_reason="length")
    return Materials(
        study="made",
        behaviours={name: behaviour(name) for name in behaviours},
        contexts={(b, name): one for b in behaviours for name, one in contexts.items()},
        train_items={b: (Item(id="q-1", text="Why?", topic="general"),) for b in behaviours},
        eval_items={b: (Item(id="q-1", text="Why?", topic="general"),) for b in behaviours},
        end_of_turn_id=0,
        base={(b, j): (reading, cut) for b in behaviours for j in contexts},
        answers={},
        training={
            (b, i): (TrainingData(behaviour=b, train=i, seed=11, rows=(row,)),)
            for b in behaviours
            for i in "ab"
        },
        priors={},
        cells=tuple((b, i, j) for b in behaviours for i in "ab" for j in "abc"),
    )


class Made:
    """A metric whose parts a test changes by subclassing."""

    id = "made"
    title = "Made"
    author = "author@example"
    polarity = "more"
    track = "predictive"
    description = "For tests."

    def behaviour_vector(self, behaviour: Any, model: Any, materials: Any) -> Any:
        return [float(len(behaviour.name)), 1.0]

    def score(
        self, vector: Any, train: Any, evaluated: Any, model: Any, data: Any, materials: Any
    ) -> Any:
        return vector[0] + 10 * len(train.prompts["q-1"]) + 100 * len(evaluated.prompts["q-1"])


def plugin_file(folder: Path, body: str, name: str = "plugin.py") -> Path:
    """A metric file: class ``M``, whose methods are given by ``body`` (indented by four)."""
    path = folder / name
    path.write_text(
        "class M:\n"
        "    id = 'm'; title = 'M'; author = 'a@example'; polarity = 'less'\n"
        "    track = 'predictive'; description = 'For tests.'\n"
        "    def behaviour_vector(self, behaviour, model, materials):\n"
        "        return [1.0]\n"
        "    def score(self, vector, train, evaluated, model, data, materials):\n"
        "        return 1.0\n" + body,
        "utf-8",
    )
    return path
