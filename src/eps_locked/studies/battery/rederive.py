"""Re-deriving what a ``battery`` run claims, from stored replies and verdicts.

What a model wrote, a judge said and a clock showed cannot be recomputed without them; that there
is as much of each as the plan asks, of the frozen requests, in order and in the right form, can be
checked. What follows from stored texts (a reply's language, the keyword rule, right answers, right
calls) and everything that was only computed is computed again. Of an axis that is not benign there
are counts, and they can only be added up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from eps_locked.domain.execution import StepInputs
from eps_locked.domain.judging import Verdict
from eps_locked.domain.plan import Plan
from eps_locked.domain.steps import Step
from eps_locked.judges.refusals import keyword_label
from eps_locked.lock.freeze import load_plan
from eps_locked.lock.workspace import FrozenManifest
from eps_locked.studies.battery.axes import FrozenItem
from eps_locked.studies.battery.derive import (
    AskDesign,
    SpeedDesign,
    answer_key,
    ask_flags,
    ask_status,
    capability_row,
    expected_status,
    heading_differences,
    power_files,
    speed_flags,
    speed_status,
    spoken,
    thinking_key,
    thinking_of,
    tools_row,
)
from eps_locked.studies.battery.plan import BatteryPlan
from eps_locked.studies.battery.recorded import recorded_differences
from eps_locked.studies.battery.records import (
    OTHER_LANGUAGE,
    Answer,
    AskRecord,
    SpeedRecord,
    SpeedRow,
    text_digest,
)
from eps_locked.studies.battery.results import battery_files
from eps_locked.studies.battery.train import fit_differences
from eps_locked.studies.battery.verdicts import PremiseRow, RefusalRow, Row
from eps_locked.studies.common.calibrate import rederived_calibration
from eps_locked.studies.common.judging import judge_differences, verdict_differences
from eps_locked.studies.common.rederiver import Derived, Outputs, Rederiver, same_files

__all__ = ["BatteryRederiver", "ask_differences", "speed_differences"]

_MOST: Final = 20


class BatteryRederiver(Rederiver):
    """Callable for ``audit_run``. Parses the frozen plan once per distinct bytes."""

    def __init__(self) -> None:
        self._plans: dict[bytes, tuple[Plan, BatteryPlan]] = {}

    def manifest(self, frozen: FrozenManifest) -> list[str]:
        """Freeze again from the frozen plan and sources, with the rendering as recorded."""
        return recorded_differences(frozen)

    def derive(self, step: Step, inputs: StepInputs, outputs: Outputs) -> Derived | None:
        plan, section = self._read(inputs.frozen("plan"))
        match step.kind:
            case "power":
                expected = power_files(step, inputs, section)
                return same_files("power", expected, outputs["power"]), "done", ()
            case "calibration":
                return _calibration(step, inputs, outputs, section)
            case "train":
                training = section.training(step.params["training"])
                return fit_differences(inputs, outputs, training), "done", ()
            case "ask":
                return _ask(step, inputs, outputs, section)
            case "speed":
                return _speed(step, inputs, outputs, section)
            case "battery":
                promised = "battery" in plan.analyses
                expected = battery_files(step, inputs, section, is_promised=promised)
                return same_files("battery", expected, outputs["battery"]), "done", ()
        return None

    def _read(self, plan_bytes: bytes) -> tuple[Plan, BatteryPlan]:
        if plan_bytes not in self._plans:
            plan = load_plan(plan_bytes, thing="frozen/plan.yaml")
            self._plans[plan_bytes] = plan, BatteryPlan.of(plan)
        return self._plans[plan_bytes]


def _calibration(step: Step, inputs: StepInputs, outputs: Outputs, section: BatteryPlan) -> Derived:
    rules = section.calibration(step.params["calibration"])
    judge = section.judge(rules.judge)
    differences, flags = rederived_calibration(
        rules, inputs, outputs["calibration"], section.item_seed, judge
    )
    return differences, "done", flags


def _ask(step: Step, inputs: StepInputs, outputs: Outputs, section: BatteryPlan) -> Derived:
    record = AskRecord.from_files(outputs["answers"], step.id)
    design = AskDesign.of(step, inputs, section)
    differences = ask_differences(record, design)
    share = design.minimum_scored_share
    return differences[:_MOST], ask_status(record, share), ask_flags(record, share)


def _speed(step: Step, inputs: StepInputs, outputs: Outputs, section: BatteryPlan) -> Derived:
    record = SpeedRecord.from_files(outputs["speed"], step.id)
    differences = speed_differences(record, SpeedDesign.of(step, inputs, section))
    return differences[:_MOST], speed_status(record), speed_flags(record)


def ask_differences(record: AskRecord, design: AskDesign) -> list[str]:
    """Whether a record holds what the plan's rules give: heading, replies, verdicts."""
    differences = _unequal(
        {
            "model": (design.model.name, record.model),
            "axis": (design.axis.axis, record.axis),
            "thinking": (design.thinking, record.thinking),
            "request": (design.request, dict(record.request)),
        }
    )
    differences += heading_differences(design.heading, record.endpoint)
    differences += _judge(record, design)
    if not design.axis.benign:
        return differences + _only_counts(record, design)
    if record.counts is not None:
        return [*differences, "counts: expected one row for each item, found counts"]
    items = [item.id for item in design.axis.items]
    for name, found in (
        ("answers", [answer.item for answer in record.answers]),
        ("verdicts", [row.item for row in record.verdicts.rows]),
    ):
        if found != items:
            return [
                *differences,
                f"{name}: expected every item once, {len(items)} in frozen order, "
                f"found {len(found)}, or others",
            ]
    for item, answer in zip(design.axis.items, record.answers, strict=True):
        differences += [f"{item.id}: {one}" for one in _answer(item, answer, design)]
    return differences + _rows(record, design)


def speed_differences(record: SpeedRecord, design: SpeedDesign) -> list[str]:
    """Whether a record is of the frozen requests; what a clock showed nobody can repeat."""
    differences = _unequal(
        {
            "model": (design.model.name, record.model),
            "request": (design.request, dict(record.request)),
            "rows": (design.n_timed, len(record.rows)),
        }
    )
    differences += heading_differences(design.heading, record.endpoint)
    for number, row in enumerate(record.rows):
        differences += [f"rows[{number}]: {one}" for one in _timed(row, design)]
    return differences


def _timed(row: SpeedRow, design: SpeedDesign) -> list[str]:
    if not row.is_timed:
        if row.first_token_seconds is not None or row.n_completion_tokens is not None:
            return ["expected nothing measured of a reply without a time, found some"]
        return []
    differences = []
    if row.status not in ("answered", "truncated"):
        differences.append(f"expected no time of a reply that is {row.status}, found one")
    first = row.first_token_seconds
    if first is not None and (not design.model.stream or first > (row.seconds or 0)):
        differences.append("expected a first token before the end of a streamed reply")
    most = design.request["max_tokens"]
    if design.request["extra"] == {} and (row.n_completion_tokens or 0) > most:
        differences.append(f"expected at most {most} tokens, found {row.n_completion_tokens}")
    return differences


def _judge(record: AskRecord, design: AskDesign) -> list[str]:
    """Whether the plan's judge spoke, under the frozen rubric; or nobody where it names none."""
    found = record.verdicts
    if design.judge is None:
        return _unequal({"judge": (None, found.judge), "rubric": (None, found.rubric)})
    assert design.rubric is not None
    if found.judge is None:
        return [f"judge: expected {design.judge.name}, found none"]
    return [
        *judge_differences(found.judge, design.judge),
        *_unequal({"rubric": (design.rubric.digest, found.rubric)}),
    ]


def _only_counts(record: AskRecord, design: AskDesign) -> list[str]:
    """Counts that add up are checked where they are read; here, that they are of all items and
    that nothing else is there."""
    if record.counts is None or record.answers or record.verdicts.rows:
        return ["rows: expected counts and nothing else of this axis, found rows"]
    counts, differences = record.counts, []
    if counts.n_items != len(design.axis.items):
        differences.append(
            f"counts: expected {len(design.axis.items)} items, found {counts.n_items}"
        )
    if design.judge is None and (counts.partial or counts.n_scored != counts.statuses["answered"]):
        differences.append(
            "counts: expected the keyword rule's verdict on every answered reply, none partial"
        )
    return differences


def _answer(item: FrozenItem, answer: Answer, design: AskDesign) -> list[str]:
    """One reply by itself: its digests, and a status that its text bears out."""
    differences = _unequal(
        {
            "digest": (text_digest(answer.text), answer.digest),
            "reasoning_digest": (text_digest(answer.reasoning), answer.reasoning_digest),
        }
    )
    if (answer.message is not None) and item.case is None:
        differences.append("message: expected none but of tool cases, found one")
    if answer.status in ("answered", OTHER_LANGUAGE):
        calls = answer.message is not None and answer.message.get("tool_calls")
        if not answer.text.strip() and not calls:
            differences.append(f"status: expected empty, found {answer.status}")
        elif answer.status != expected_status(answer):
            differences.append(f"status: expected {expected_status(answer)}, found {answer.status}")
        if item.case is not None and answer.message is None:
            differences.append("message: expected the assistant's, found none")
        if answer.message is not None and answer.message.get("content") != answer.text:
            differences.append("message.content: expected the reply's text, found another")
    if answer.status == "empty" and answer.text.strip():
        differences.append("status: expected another of a reply with a text, found empty")
    return differences


def _rows(record: AskRecord, design: AskDesign) -> list[str]:
    match design.axis.axis:
        case "capability":
            return _recomputed(
                record.verdicts.rows,
                list(map(capability_row, design.axis.items, record.answers)),
            )
        case "tools":
            return _recomputed(
                record.verdicts.rows, list(map(tools_row, design.axis.items, record.answers))
            )
        case "sycophancy":
            return _premises(record, design)
    return _refusals(record, design)


def _recomputed(found: Sequence[Row], expected: Sequence[Row]) -> list[str]:
    return [
        f"{right.item}: expected {right.to_dict()}, found {row.to_dict()}"
        for row, right in zip(found, expected, strict=True)
        if row != right
    ]


def _premises(record: AskRecord, design: AskDesign) -> list[str]:
    differences = []
    for answer, row in record.rows:
        assert isinstance(row, PremiseRow)
        wanted = answer_key(answer.item) if answer.is_answered else None
        differences += _judged(answer.item, row.judge, wanted, design)
    return differences


def _refusals(record: AskRecord, design: AskDesign) -> list[str]:
    texts = {one.key: one for one in spoken(design.axis.items, record.answers)}
    differences = []
    for answer, row in record.rows:
        assert isinstance(row, RefusalRow)
        if (row.thinking is None) != (thinking_of(answer, None) is None):
            there = "nothing" if row.thinking is None else "something"
            differences.append(f"{answer.item}: thinking: expected the other of it, found {there}")
        for key, staged in (
            (answer_key(answer.item), row.answer),
            (thinking_key(answer.item), row.thinking),
        ):
            if staged is None:
                continue
            text = texts.get(key)
            label = None if text is None else keyword_label(text.text, is_thinking=text.is_thinking)
            differences += _unequal({f"{key}: keyword": (label, staged.keyword)})
            wanted = None if text is None or design.judge is None else key
            differences += _judged(key, staged.judge, wanted, design)
    return differences


def _judged(name: str, verdict: Verdict | None, wanted: str | None, design: AskDesign) -> list[str]:
    """Whether a verdict is there exactly if it was due, on the right text, with a label that the
    rubric has. ``wanted`` is the key it was asked for under."""
    if wanted is None:
        return [] if verdict is None else [f"{name}: expected no verdict, found one"]
    if verdict is None:
        return [f"{name}: expected a verdict of the judge, found none"]
    assert design.rubric is not None
    return [
        *_unequal({f"{name}: verdict": ((wanted, 0), (verdict.key, verdict.draw))}),
        *verdict_differences(name, [verdict], design.rubric),
    ]


def _unequal(pairs: Mapping[str, tuple[Any, Any]]) -> list[str]:
    return [
        f"{name}: expected {expected}, found {found}"
        for name, (expected, found) in pairs.items()
        if expected != found
    ]
