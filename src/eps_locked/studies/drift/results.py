"""From the records of a run to the study's document: rows, arms and batteries, then the analysis.

Run and audit call ``drift_files`` alike; it reads records alone.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence

from eps_locked.canonical import decode, encode
from eps_locked.domain.execution import StepInputs
from eps_locked.domain.steps import Step
from eps_locked.studies.drift.analysis import analyse
from eps_locked.studies.drift.awareness_analysis import AwarenessGrades
from eps_locked.studies.drift.derive import FrozenBattery, ask_status
from eps_locked.studies.drift.parts import BASE
from eps_locked.studies.drift.plan import Arm, DriftPlan
from eps_locked.studies.drift.power import POWER_FILE
from eps_locked.studies.drift.readout_shifts import ModelReadout, Readouts
from eps_locked.studies.drift.readouts import Projections
from eps_locked.studies.drift.records import AskRecord, Judged, Ratings, Reply
from eps_locked.studies.drift.rows import (
    EMPTY,
    EXHAUSTED,
    ArmInfo,
    BatteryInfo,
    NotMeasured,
    ReplyRow,
)
from eps_locked.studies.drift.table import require_same_judges

__all__ = ["DRIFT_FILE", "REPLIES_FILE", "arm_info", "drift_files", "reply_rows"]

DRIFT_FILE = "drift.json"
REPLIES_FILE = "replies.csv"
_COLUMNS = (
    "arm",
    "battery",
    "stem",
    "probe",
    "sample",
    "label",
    "status",
    "second_label",
    "check_label",
    "grade",
    "reasoned",
    "n_reasoning_tokens",
    "truncated_reasoning",
    "mentions",
    "n_reply_tokens",
    "stop",
    "attempts",
)
_GRADE = "grade_"


def drift_files(
    step: Step, inputs: StepInputs, section: DriftPlan, *, is_promised: bool
) -> dict[str, bytes]:
    """The document, and one line for each reply without its text.

    Raises MalformedInputError for arms of one battery that were judged by different settings.
    """
    records = _records(step, inputs, section)
    require_same_judges(
        {
            battery.name: {
                record.arm: record.judge_settings
                for record in records
                if record.battery == battery.name
            }
            for battery in section.batteries
        }
    )
    not_measured = _not_measured(records, section)
    batteries = {
        battery.name: FrozenBattery.read(inputs.frozen(f"battery:{battery.name}"), battery.name)
        for battery in section.batteries
    }
    replies: list[tuple[ReplyRow, Reply]] = []
    for record in records:
        mode = section.setting(section.arm(record.arm).reasoning).mode
        rows = reply_rows(record, batteries[record.battery], mode)
        replies += zip(rows, record.replies, strict=True)
    without = {(one.arm, one.battery) for one in not_measured}
    kept = [row for row, _ in replies if (row.arm, row.battery) not in without]
    document = analyse(
        kept,
        [arm_info(section, arm) for arm in section.arms],
        [_battery_info(section, one) for one in batteries.values()],
        section.analysis,
        awareness=_awareness(step, inputs, section, {row.battery for row in kept}),
        readouts=_readouts(inputs, section),
        power=decode(inputs.artifact("power")[POWER_FILE], thing=POWER_FILE),
        not_measured=not_measured,
        label="confirmatory" if is_promised else "exploratory",
    )
    return {DRIFT_FILE: encode(document), REPLIES_FILE: _csv(replies)}


def reply_rows(record: AskRecord, battery: FrozenBattery, mode: str) -> tuple[ReplyRow, ...]:
    """One row a reply, in the record's order. ``mode``: how the arm reasons."""
    stems = {probe.id: probe.stem for probe in battery.probes}
    first, second = record.classes.labels(), record.classes.labels(1)
    statuses = {v.key: v.status for v in record.classes.verdicts if v.draw == 0}
    checks = {} if record.checks is None else record.checks.labels()
    grades = {} if record.grades is None else _grades(record.grades)
    return tuple(
        ReplyRow(
            arm=record.arm,
            battery=record.battery,
            stem=stems[reply.probe],
            probe=reply.probe,
            sample=reply.sample,
            label=first.get(reply.key),
            status=_status(reply, statuses),
            # Without a first label there is nothing for a second one to agree with.
            second_label=second.get(reply.key) if reply.key in first else None,
            check_label=checks.get(reply.key),
            grade=grades.get(reply.key),
            mentions=reply.mentions,
            reasoned=mode in ("free", "budget") and reply.n_reasoning_tokens > 0,
            truncated_reasoning=reply.truncated_reasoning,
        )
        for reply in record.replies
    )


def arm_info(section: DriftPlan, arm: Arm) -> ArmInfo:
    """An arm as the statistics see it."""
    training = None if arm.model == BASE else section.training(arm.model)
    setting = section.setting(arm.reasoning)
    n_tokens = {"closed": 0, "free": setting.max_tokens}.get(setting.mode, setting.n_tokens)
    return ArmInfo(
        name=arm.name,
        model=arm.model,
        topic=None if training is None else training.topic,
        dose_percent=None if training is None else training.dose_percent,
        seed=None if training is None else training.seed,
        reasoning=setting.name,
        reasoning_mode=setting.mode,
        n_reasoning_tokens=n_tokens,
        temperature=arm.temperature,
        exposure=arm.exposure,
        instance=arm.instance,
        reference=arm.reference,
    )


def _records(step: Step, inputs: StepInputs, section: DriftPlan) -> list[AskRecord]:
    return [
        AskRecord.from_files(inputs.artifact(name), name)
        for arm in section.arms
        for battery in section.batteries
        if (name := f"answers:{arm.name}/{battery.name}") in step.inputs
    ]


def _not_measured(records: Sequence[AskRecord], section: DriftPlan) -> tuple[NotMeasured, ...]:
    """Arms and batteries with too few classes to be a measurement, by the plan's share."""
    return tuple(
        NotMeasured(
            arm=record.arm,
            battery=record.battery,
            n_replies=len(record.replies),
            n_came=sum(not reply.exhausted for reply in record.replies),
            n_scored=len(record.classes.labels()),
            required_share=section.judging.minimum_scored_share,
        )
        for record in records
        if ask_status(record, section) == "unscored"
    )


def _battery_info(section: DriftPlan, frozen: FrozenBattery) -> BatteryInfo:
    return BatteryInfo(
        name=frozen.name,
        role=frozen.role,
        labels=frozen.labels,
        aligned=frozen.aligned,
        no_stance=frozen.no_stance,
        n_rewordings=section.battery(frozen.name).n_rewordings,
        n_samples=section.n_samples,
    )


def _status(reply: Reply, statuses: Mapping[str, str]) -> str:
    if reply.exhausted:
        return EXHAUSTED
    return statuses[reply.key] if reply.is_judged else EMPTY


def _grades(judged: Judged) -> dict[str, int]:
    return {key: int(label.removeprefix(_GRADE)) for key, label in judged.labels().items()}


def _awareness(
    step: Step, inputs: StepInputs, section: DriftPlan, asked: set[str]
) -> tuple[AwarenessGrades, ...] | None:
    """Each judge's grades; of a battery that is missing in every arm there is nothing to hold
    them against."""
    if section.awareness is None:
        return None
    found = []
    for battery in section.dispositions:
        for judge in section.awareness.judges:
            name = f"awareness:{battery.name}/{judge}"
            if battery.name not in asked or name not in step.inputs:
                continue
            judged = Ratings.from_files(inputs.artifact(name), name).judged
            grades = _grades(judged)
            found.append(
                AwarenessGrades(
                    battery=battery.name,
                    judge=judge,
                    grades={one.key: grades.get(one.key) for one in judged.verdicts},
                )
            )
    return tuple(found)


def _readouts(inputs: StepInputs, section: DriftPlan) -> Readouts | None:
    rules = section.readouts
    if rules is None:
        return None
    models = []
    for name in (BASE, *(training.name for training in section.trainings)):
        found = Projections.from_files(inputs.artifact(f"readout:{name}"), f"readout:{name}")
        training = None if name == BASE else section.training(name)
        models.append(
            ModelReadout(
                model=name,
                topic=None if training is None else training.topic,
                dose_percent=None if training is None else training.dose_percent,
                seed=None if training is None else training.seed,
                projections=found.by_trait,
            )
        )
    return Readouts(
        layer=rules.layer, full=rules.full, reference=rules.reference, models=tuple(models)
    )


def _csv(replies: Sequence[tuple[ReplyRow, Reply]]) -> bytes:
    """UTF-8, LF, header first; nothing is an empty field."""
    sink = io.StringIO()
    writer = csv.DictWriter(sink, _COLUMNS, lineterminator="\n")
    writer.writeheader()
    for row, reply in replies:
        writer.writerow(
            {name: getattr(row if hasattr(row, name) else reply, name) for name in _COLUMNS}
        )
    return sink.getvalue().encode("utf-8")
