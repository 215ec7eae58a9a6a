"""From the records of a run to the study's document: rates, comparisons, stages, cards.

Run and audit call ``battery_files`` alike; it reads records alone.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from eps_locked.canonical import decode, encode
from eps_locked.domain.execution import StepInputs
from eps_locked.domain.steps import Step
from eps_locked.judges.refusals import Staged, stage_agreement
from eps_locked.lock.freeze import load_plan
from eps_locked.studies.battery.cards import card
from eps_locked.studies.battery.comparing import compare, keys_of, weak_discriminators
from eps_locked.studies.battery.compatibility import compatibility
from eps_locked.studies.battery.outcomes import axis_entry, outcomes_of
from eps_locked.studies.battery.plan import AnalysisSettings, BatteryPlan, ModelPlan
from eps_locked.studies.battery.records import AskRecord, SpeedRecord
from eps_locked.studies.battery.sentences import sentence
from eps_locked.studies.battery.served import (
    changed_names,
    differences,
    server_words,
    template_of,
)
from eps_locked.studies.battery.timing import speed_entry
from eps_locked.studies.battery.verdicts import RefusalRow
from eps_locked.studies.common.rounding import rounded

__all__ = [
    "BATTERY_FILE",
    "BATTERY_SCHEMA",
    "VERDICTS_TABLE",
    "battery_document",
    "battery_files",
    "card_name",
]

BATTERY_SCHEMA: Final = "eps-locked/battery/1"
BATTERY_FILE: Final = "battery.json"
VERDICTS_TABLE: Final = "verdicts.csv"
_COLUMNS: Final = (
    "model",
    "axis",
    "thinking",
    "item",
    "status",
    "verdict",
    "keyword",
    "thinking_verdict",
    "n_completion_tokens",
    "excerpt",
)
_EXCERPT: Final = 200
# Which of the two texts of a reply the stages read.
ANSWER: Final = "answer"
THINKING: Final = "thinking"


def card_name(model: str) -> str:
    """The card of one model, as the last step writes it."""
    return f"card-{model}.md"


def battery_files(
    step: Step, inputs: StepInputs, section: BatteryPlan, *, is_promised: bool
) -> dict[str, bytes]:
    """The document, one line for each reply with an excerpt, one card a model."""
    records = [
        AskRecord.from_files(inputs.artifact(name), name)
        for name in step.inputs
        if name.startswith("answers:")
    ]
    speeds = {
        name.removeprefix("speed:"): SpeedRecord.from_files(inputs.artifact(name), name)
        for name in step.inputs
        if name.startswith("speed:")
    }
    axes = {
        name.removeprefix("axis:"): inputs.frozen(name)
        for name in step.inputs
        if name.startswith("axis:")
    }
    plan = load_plan(inputs.frozen("plan"), thing="frozen/plan.yaml")
    document = battery_document(
        section,
        records,
        speeds,
        axes,
        run=plan.name,
        is_for_publication=plan.publication,
        power=decode(inputs.artifact("power")["power.json"], thing="power.json"),
        label="confirmatory" if is_promised else "exploratory",
    )
    data = encode(document)
    # Cards are made of what is stored, as whoever makes one later has it.
    stored = decode(data, thing=BATTERY_FILE)
    cards = {card_name(model.name): card(stored, model.name).encode() for model in section.models}
    return {BATTERY_FILE: data, VERDICTS_TABLE: _csv(records), **cards}


def battery_document(
    section: BatteryPlan,
    records: Sequence[AskRecord],
    speeds: Mapping[str, SpeedRecord],
    axes: Mapping[str, bytes],
    *,
    run: str,
    is_for_publication: bool,
    power: Mapping[str, Any],
    label: str,
) -> dict[str, Any]:
    """Everything that is said of the models, from their records.

    ``speeds`` by model, ``axes`` frozen documents by axis, ``run`` the name of the plan.
    """
    settings = section.analysis
    shares = {axis.axis: axis.minimum_scored_share for axis in section.rate_axes}
    by_model = {
        model.name: keys_of(
            [
                outcomes_of(record, shares[record.axis] or 0.0)
                for record in records
                if record.model == model.name
            ]
        )
        for model in section.models
    }
    entries = {
        model.name: {
            **_model_entry(section, model, records, speeds.get(model.name), is_for_publication),
            "axes": [axis_entry(one, settings) for one in by_model[model.name].values()],
            "speed": speed_entry(speeds.get(model.name)),
        }
        for model in section.models
    }
    comparisons = []
    for name, base in section.comparisons:
        entry = compare(
            section.model(name), section.model(base), by_model[name], by_model[base], settings
        )
        for row in entry["axes"]:
            row["sentence"] = sentence(name, base, row, settings)
        comparisons.append({**entry, "differs": differences(entries[name], entries[base])})
    document: dict[str, Any] = rounded(
        {
            "schema": BATTERY_SCHEMA,
            "run": run,
            "label": label,
            "settings": {
                "confidence_level": settings.confidence_level,
                "equivalence_level": settings.equivalence_level,
                "alpha": settings.alpha,
                "power": settings.power,
                "margins": dict(settings.margins),
                "n_resamples": settings.n_resamples,
                "minimum_items": settings.minimum_items,
                "seed": settings.seed,
            },
            "compatibility": compatibility(section, axes, records),
            "power": power,
            "models": list(entries.values()),
            "comparisons": comparisons,
            "weak_discriminators": weak_discriminators(by_model, settings, comparisons),
            "stages": [
                _stages(record, part, settings)
                for record in records
                if _is_staged(record)
                for part in (ANSWER, THINKING)
                if part == ANSWER or _has_thinking(record)
            ],
            "thinking": [_thinking(record) for record in records if _has_thinking(record)],
        }
    )
    return document


def _model_entry(
    section: BatteryPlan,
    model: ModelPlan,
    records: Sequence[AskRecord],
    speed: SpeedRecord | None,
    is_for_publication: bool,
) -> dict[str, Any]:
    """What a model is, as the plan says and as its endpoint said.

    Fit for publication is a model that no stand-in served or judged, in a plan that is for it.
    """
    own = [record for record in records if record.model == model.name]
    endpoints = [record.endpoint for record in own]
    endpoints += [] if speed is None else [speed.endpoint]
    endpoint = dict(endpoints[0]) if endpoints else {}
    judges = [one.verdicts.judge for one in own if one.verdicts.judge is not None]
    parts = [*endpoints, *judges]
    answered = sorted({one.model for record in own for one in record.answers if one.is_answered})
    return {
        "model": model.name,
        "route": model.route,
        "family": model.family,
        "base": model.base,
        "quantisation": model.quantisation,
        "context_length": model.context_length,
        "endpoint": endpoint,
        "endpoint_changed": changed_names(endpoints),
        "server": server_words(endpoint),
        "answered_as": answered,
        "template_digest": template_of(endpoint.get("said", {})),
        "system_prompt": section.system_prompt,
        "sampling": {
            "max_tokens": section.decoding.max_tokens,
            "temperature": section.decoding.temperature,
            "top_p": section.decoding.top_p,
            "seed": section.decoding.seed,
        },
        "publishable": is_for_publication
        and bool(endpoints)
        and all(part.get("publishable") is True for part in parts),
    }


def _is_staged(record: AskRecord) -> bool:
    return record.axis == "over_refusal" and record.verdicts.judge is not None


def _stages(record: AskRecord, part: str, settings: AnalysisSettings) -> dict[str, Any]:
    """Keyword rule beside judge on the answers or on the thoughts before them, and the items on
    which they differ."""
    staged = _staged(record, part)
    found = stage_agreement(
        staged.values(),
        rng=np.random.default_rng(settings.seed),
        n_resamples=settings.n_resamples,
        confidence_level=settings.confidence_level,
    ).to_dict()
    return {
        "model": record.model,
        "axis": record.axis,
        "thinking": record.thinking,
        "part": part,
        **found,
        "disagreements": [item for item, one in staged.items() if one.differs],
    }


def _staged(record: AskRecord, part: str) -> dict[str, Staged]:
    """What both stages said of one part of each reply, by item, where it is there."""
    rows = [row for row in record.verdicts.rows if isinstance(row, RefusalRow)]
    found = {row.item: row.answer if part == ANSWER else row.thinking for row in rows}
    return {item: one for item, one in found.items() if one is not None}


def _has_thinking(record: AskRecord) -> bool:
    return any(isinstance(row, RefusalRow) and row.thinking for row in record.verdicts.rows)


def _thinking(record: AskRecord) -> dict[str, Any]:
    """Refused in the thinking and complied in the answer, and the reverse.

    Of replies that were read on both sides; those with a partial refusal on either are counted
    apart, so that the five counts add up.
    """
    rows = [
        (row.item, row.thinking.verdict, row.answer.verdict)
        for row in record.verdicts.rows
        if isinstance(row, RefusalRow) and row.thinking is not None
    ]
    both = [
        (item, one, other) for item, one, other in rows if one is not None and other is not None
    ]
    only_thinking = [item for item, one, other in both if (one, other) == ("refuse", "comply")]
    only_answer = [item for item, one, other in both if (one, other) == ("comply", "refuse")]
    return {
        "model": record.model,
        "axis": record.axis,
        "thinking": record.thinking,
        "n_thought": len(rows),
        "n_both_read": len(both),
        "refused_in_thinking_only": len(only_thinking),
        "refused_in_answer_only": len(only_answer),
        "refused_in_both": sum((one, other) == ("refuse", "refuse") for _, one, other in both),
        "refused_in_neither": sum((one, other) == ("comply", "comply") for _, one, other in both),
        "partial_in_either": sum("partial" in (one, other) for _, one, other in both),
        "items_thinking_only": only_thinking,
        "items_answer_only": only_answer,
    }


def _csv(records: Sequence[AskRecord]) -> bytes:
    """One line a reply. Of axes that are not benign there is none."""
    text = io.StringIO()
    writer = csv.DictWriter(text, _COLUMNS, lineterminator="\n")
    writer.writeheader()
    for record in records:
        for answer, row in record.rows:
            refusal = row if isinstance(row, RefusalRow) else None
            thinking = refusal.thinking if refusal is not None else None
            writer.writerow(
                {
                    "model": record.model,
                    "axis": record.axis,
                    "thinking": record.thinking,
                    "item": answer.item,
                    "status": answer.status,
                    "verdict": row.verdict or "",
                    "keyword": "" if refusal is None else refusal.answer.keyword or "",
                    "thinking_verdict": "" if thinking is None else thinking.verdict or "",
                    "n_completion_tokens": ""
                    if answer.n_completion_tokens is None
                    else answer.n_completion_tokens,
                    "excerpt": " ".join(answer.text.split())[:_EXCERPT],
                }
            )
    return text.getvalue().encode()
