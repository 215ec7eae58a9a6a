"""Every step of a ``vea`` study, in an order in which every input exists before it is read."""

from __future__ import annotations

from collections.abc import Iterator

from eps_locked.domain.plan import Plan
from eps_locked.domain.steps import Step
from eps_locked.studies.common.steps import StepMaker, frozen_file, out, source_file
from eps_locked.studies.vea.plan import (
    ClassifierReward,
    GatewayReward,
    ImplicitReward,
    RewardModelPlan,
    TableReward,
    VeaPlan,
)

__all__ = [
    "ITEMS",
    "PHASES",
    "TRAINING",
    "asks_a_service",
    "list_steps",
    "model_file",
    "phases_of",
    "score_step",
    "train_step",
]

PHASES = ("P0", "P1", "P2", "P3")
# Documents below frozen/, as the freeze names them.
ITEMS = "items.json"
TRAINING = "training.json"


def phases_of(section: VeaPlan) -> tuple[str, ...]:
    """The phases a plan of this section has: P1 trains, and is there if something is trained."""
    return tuple(phase for phase in PHASES if phase != "P1" or section.trainings)


def list_steps(plan: Plan, section: VeaPlan) -> tuple[Step, ...]:
    """The complete step list: power before any score, training, scoring, what it comes to.

    Raises MalformedInputError for a kind of step that the plan gives no cost.
    """
    make = StepMaker(plan)
    items = {"items": frozen_file(ITEMS)}
    return (
        make("P0/power", "power", items, ("power",)),
        *_trainings(section, make),
        *_scoring(section, make),
        make(
            "P3/breadth",
            "breadth",
            {
                "power": out("P0/power", "power"),
                **items,
                **{
                    f"scores:{model.name}": out(score_step(model.name), "scores")
                    for model in section.reward_models
                },
            },
            ("breadth",),
        ),
    )


def train_step(training: str) -> str:
    return f"P1/train/{training}"


def score_step(reward_model: str) -> str:
    return f"P2/score/{reward_model}"


def model_file(reward_model: str) -> str:
    """The document, below ``frozen/``, with the digests of an implicit reward's policy."""
    return f"models/{reward_model}.json"


def asks_a_service(step: Step, section: VeaPlan) -> bool:
    """Whether a step has scores given over the network, which nobody can repeat."""
    return step.kind == "score" and isinstance(
        section.reward_model(step.params["reward_model"]), GatewayReward
    )


def _trainings(section: VeaPlan, make: StepMaker) -> Iterator[Step]:
    """P1: one adapter with its head each."""
    for training in section.trainings:
        yield make(
            train_step(training.name),
            "train",
            {"training": frozen_file(TRAINING)},
            ("adapter", "record"),
            seed=training.seed,
            training=training.name,
        )


def _scoring(section: VeaPlan, make: StepMaker) -> Iterator[Step]:
    """P2: every reward model scores the three responses of every item."""
    for model in section.reward_models:
        yield make(
            score_step(model.name),
            "score",
            {"items": frozen_file(ITEMS), **_own_inputs(model)},
            ("scores",),
            reward_model=model.name,
        )


def _own_inputs(model: RewardModelPlan) -> dict[str, str]:
    """What a reward model of each kind rests on besides the items."""
    if isinstance(model, ClassifierReward) and model.training is not None:
        return {"adapter": out(train_step(model.training), "adapter")}
    if isinstance(model, ImplicitReward):
        return {"policy": frozen_file(model_file(model.name))}
    if isinstance(model, TableReward):
        return {"table": source_file(model.file)}
    return {}
