"""Freezing a ``battery`` plan: read material, draw items, complete every request, list steps."""

from __future__ import annotations

from typing import Any

from eps_locked.domain.model import ChatTokenizer
from eps_locked.domain.plan import Plan
from eps_locked.lock.freeze import FrozenStudy, SourceReader
from eps_locked.studies.battery.axes import axis_document, speed_document
from eps_locked.studies.battery.checks import check_section
from eps_locked.studies.battery.gather import gather
from eps_locked.studies.battery.plan import BatteryPlan
from eps_locked.studies.battery.steplist import list_steps
from eps_locked.studies.battery.teaching import rows_document

__all__ = ["checked_section", "freeze_battery"]


def checked_section(plan: Plan) -> BatteryPlan:
    """The plan's ``battery`` section, held together and against the rest of the plan.

    Needs no material. Raises MalformedInputError or RefusedError naming the field.
    """
    section = BatteryPlan.of(plan)
    check_section(plan, section)
    return section


def freeze_battery(plan: Plan, reader: SourceReader, tokenizer: ChatTokenizer) -> FrozenStudy:
    """Everything a ``battery`` manifest holds beyond the common part.

    Requests are frozen as they are sent; only what trains an adapter is rendered, so that a plan
    without trainings never asks for a tokenizer. Raises MalformedInputError or RefusedError naming
    the field, file or row at fault.
    """
    section = checked_section(plan)
    material = gather(section, reader)
    documents: dict[str, Any] = {
        f"axes/{axis.axis}.json": axis_document(
            axis, material.items[axis.axis], section.system_prompt
        )
        for axis in section.rate_axes
    }
    if section.speed is not None:
        documents["axes/speed.json"] = speed_document(
            section.speed, material.items["speed"], section.system_prompt
        )
    for training in section.trainings:
        documents[f"trainings/{training.name}.json"] = rows_document(
            training, material.rows[training.name], tokenizer, section.system_prompt
        )
    steps = list_steps(plan, section)
    n_items = sum(len(material.items[axis.axis]) for axis in section.rate_axes)
    n_timed = len(material.items.get("speed", ()))
    return FrozenStudy(
        documents=documents,
        steps=steps,
        summary={
            "models": len(section.models),
            "comparisons": len(section.comparisons),
            "axes": len(section.axes),
            "items": n_items,
            "requests": len(section.models) * (n_items * len(section.thinking_modes) + n_timed),
            "adapters": len(section.trainings),
            "steps": len(steps),
        },
    )
