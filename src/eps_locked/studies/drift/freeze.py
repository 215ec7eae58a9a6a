"""Freezing a ``drift`` plan: read material, prove doses and reasoning, render, list every step."""

from __future__ import annotations

from typing import Any

from eps_locked.domain.model import ChatTokenizer
from eps_locked.domain.plan import Plan
from eps_locked.lock.freeze import FrozenStudy, SourceReader
from eps_locked.studies.common.material import Context
from eps_locked.studies.common.prompts import render
from eps_locked.studies.common.sources import require_template
from eps_locked.studies.drift.checks import check_section
from eps_locked.studies.drift.doses import doses_document, exposure_messages
from eps_locked.studies.drift.gather import DriftMaterial, gather
from eps_locked.studies.drift.plan import PLAIN, DriftPlan
from eps_locked.studies.drift.rendering import (
    ReasoningIds,
    battery_document,
    exposure_context,
    probe_items,
    readout_document,
    reasoning_document,
    require_reasoning,
)
from eps_locked.studies.drift.steplist import list_steps

__all__ = ["checked_section", "contexts_of", "freeze_drift"]


def checked_section(plan: Plan) -> DriftPlan:
    """The plan's ``drift`` section, held together and against the rest of the plan.

    Needs no material. Raises MalformedInputError or RefusedError naming the field.
    """
    section = DriftPlan.of(plan)
    check_section(plan, section)
    return section


def freeze_drift(plan: Plan, reader: SourceReader, tokenizer: ChatTokenizer) -> FrozenStudy:
    """Everything a ``drift`` manifest holds beyond the common part.

    Raises MalformedInputError or RefusedError naming the field, file or row at fault.
    """
    section = checked_section(plan)
    material = gather(section, reader)
    for relative in section.material_files:
        require_template(reader, relative, tokenizer)
    reasoning = reasoning_document(section, tokenizer)
    documents: dict[str, Any] = {"reasoning.json": reasoning}
    prompts = {}
    for battery in section.batteries:
        probes = material.probes[battery.name]
        documents[f"batteries/{battery.name}.json"] = battery_document(
            battery, probes, material.labels[battery.name]
        )
        for exposure, context in contexts_of(section, material).items():
            rendered = render(context, probe_items(probes), tokenizer)
            documents[f"prompts/{battery.name}/{exposure}.json"] = rendered.to_dict()
            # The end of a prompt is the template's: one of each battery and exposure shows it.
            prompts[f"{battery.name}/{exposure}"] = rendered.probes[0]
    require_reasoning(section, ReasoningIds.from_dict(reasoning, "reasoning"), prompts, tokenizer)
    for name, topic in material.topics.items():
        documents[f"doses/{name}.json"] = doses_document(topic, tokenizer)
    if section.readouts is not None:
        documents["readout.json"] = readout_document(
            material.readout_prompts, material.traits, tokenizer
        )
    steps = list_steps(plan, section)
    n_probes = sum(len(probes) for probes in material.probes.values())
    return FrozenStudy(
        documents=documents,
        steps=steps,
        summary={
            "batteries": len(section.batteries),
            "stems": sum(battery.n_stems for battery in section.batteries),
            "probes": n_probes,
            "arms": len(section.arms),
            "replies": n_probes * len(section.arms) * section.n_samples,
            "adapters": len(section.trainings),
            "steps": len(steps),
        },
    )


def contexts_of(section: DriftPlan, material: DriftMaterial) -> dict[str, Context]:
    """What a probe can stand behind, by exposure: nothing, or a topic's earlier exchanges."""
    contexts = {PLAIN: exposure_context(PLAIN)}
    for exposure in section.exposures:
        earlier = exposure_messages(section, exposure, material.topics[exposure.topic])
        contexts[exposure.name] = exposure_context(exposure.name, earlier)
    return contexts
