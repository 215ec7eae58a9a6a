"""Freezing a ``vea`` plan: items to the byte, training pairs, digests of policies, every step."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Final

from eps_locked.domain.model import ChatTokenizer
from eps_locked.domain.plan import Plan
from eps_locked.lock.freeze import FrozenStudy, SourceReader
from eps_locked.studies.vea.checks import check_section
from eps_locked.studies.vea.derive import ITEMS_SCHEMA, RESPONSES
from eps_locked.studies.vea.gather import frozen_item, gather
from eps_locked.studies.vea.plan import ImplicitReward, VeaPlan
from eps_locked.studies.vea.steplist import ITEMS, TRAINING, list_steps, model_file

__all__ = ["MODEL_SCHEMA", "checked_section", "freeze_vea"]

MODEL_SCHEMA: Final = "eps-locked/vea-model/1"


def checked_section(plan: Plan) -> VeaPlan:
    """The plan's ``vea`` section, held together and against the rest of the plan.

    Needs no material. Raises MalformedInputError or RefusedError naming the field.
    """
    section = VeaPlan.of(plan)
    check_section(plan, section)
    return section


def freeze_vea(plan: Plan, reader: SourceReader, tokenizer: ChatTokenizer) -> FrozenStudy:
    """Everything a ``vea`` manifest holds beyond the common part.

    Nothing is rendered: reward models have templates of their own, and whether one shows a response
    whole is checked where it scores. Raises MalformedInputError or RefusedError naming the field,
    file, item or line at fault.
    """
    section = checked_section(plan)
    material = gather(section, reader)
    documents: dict[str, Any] = {
        ITEMS: {
            "schema": ITEMS_SCHEMA,
            "items": [asdict(frozen_item(item)) for item in material.items],
        }
    }
    if material.pairs is not None:
        documents[TRAINING] = material.pairs.to_dict()
    for model in section.reward_models:
        if isinstance(model, ImplicitReward):
            documents[model_file(model.name)] = policy_document(model)
    steps = list_steps(plan, section)
    return FrozenStudy(
        documents=documents,
        steps=steps,
        summary={
            "families": len(section.counts),
            "items": len(material.items),
            "prompts": len({item.stem for item in material.items}),
            "reward_models": len(section.reward_models),
            "scores": len(RESPONSES) * len(material.items) * len(section.reward_models),
            "adapters": len(section.trainings),
            "steps": len(steps),
        },
    )


def policy_document(model: ImplicitReward) -> dict[str, Any]:
    """What must be true of the policy's folder before it is loaded: every file, none besides."""
    return {
        "schema": MODEL_SCHEMA,
        "reward_model": model.name,
        "source": {
            "kind": model.policy.kind,
            "where": model.policy.where,
            "revision": model.policy.revision,
        },
        "files": model.policy_files,
    }
