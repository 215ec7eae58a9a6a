"""Re-deriving what a ``drift`` run claims, from stored replies and verdicts.

What a model wrote, a judge said and an activation was cannot be recomputed without them; that
there is as much of each as the plan asks, of the frozen probes, in order and in the right form,
can be checked. What was only computed is computed again and compared byte for byte.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eps_locked.domain.execution import StepInputs
from eps_locked.domain.judging import EXCERPT_LENGTH, JudgePlan, Rubric
from eps_locked.domain.plan import Plan
from eps_locked.domain.steps import Step
from eps_locked.lock.freeze import load_plan
from eps_locked.lock.workspace import FrozenManifest
from eps_locked.studies.common.calibrate import rederived_calibration
from eps_locked.studies.common.judging import judge_differences, read_rubric, verdict_differences
from eps_locked.studies.common.rederiver import Derived, Outputs, Rederiver, same_files
from eps_locked.studies.common.words import mentions
from eps_locked.studies.drift.derive import (
    AskDesign,
    FrozenBattery,
    FrozenProbe,
    Wanted,
    ask_flags,
    ask_status,
    rating_outcome,
)
from eps_locked.studies.drift.plan import DriftPlan
from eps_locked.studies.drift.power import power_files
from eps_locked.studies.drift.readouts import (
    Directions,
    FrozenReadout,
    Projections,
    directions_differences,
    projections_differences,
)
from eps_locked.studies.drift.recorded import recorded_differences
from eps_locked.studies.drift.records import (
    AskRecord,
    Judged,
    Ratings,
    Reply,
    reasoning_digest,
    reply_digest,
)
from eps_locked.studies.drift.results import drift_files
from eps_locked.studies.drift.task import instance_name
from eps_locked.studies.drift.train import fit_differences

__all__ = ["DriftRederiver", "ask_differences"]

_MOST = 20


class DriftRederiver(Rederiver):
    """Callable for ``audit_run``. Parses the frozen plan once per distinct bytes."""

    def __init__(self) -> None:
        self._plans: dict[bytes, tuple[Plan, DriftPlan]] = {}

    def manifest(self, frozen: FrozenManifest) -> list[str]:
        """Freeze again from the frozen plan and sources, with the rendering as recorded."""
        return recorded_differences(frozen)

    def derive(self, step: Step, inputs: StepInputs, outputs: Outputs) -> Derived | None:
        plan, section = self._read(inputs.frozen("plan"))
        match step.kind:
            case "power":
                return same_files("power", power_files(section), outputs["power"]), "done", ()
            case "calibration":
                return _calibration(step, inputs, outputs, section)
            case "awareness":
                return _awareness(step, inputs, outputs, section)
            case "train":
                training = section.training(step.params["training"])
                return fit_differences(inputs, outputs, section, training), "done", ()
            case "ask":
                return _ask(step, inputs, outputs, section)
            case "directions":
                return _directions(step, inputs, outputs, section), "done", ()
            case "readout":
                return _readout(step, inputs, outputs), "done", ()
            case "drift":
                promised = "drift" in plan.analyses
                expected = drift_files(step, inputs, section, is_promised=promised)
                return same_files("drift", expected, outputs["drift"]), "done", ()
        return None

    def _read(self, plan_bytes: bytes) -> tuple[Plan, DriftPlan]:
        if plan_bytes not in self._plans:
            plan = load_plan(plan_bytes, thing="frozen/plan.yaml")
            self._plans[plan_bytes] = plan, DriftPlan.of(plan)
        return self._plans[plan_bytes]


def _calibration(step: Step, inputs: StepInputs, outputs: Outputs, section: DriftPlan) -> Derived:
    rules = section.calibration(step.params["calibration"])
    judge = section.judge(rules.judge)
    differences, flags = rederived_calibration(
        rules, inputs, outputs["calibration"], section.item_seed, judge
    )
    return differences, "done", flags


def _awareness(step: Step, inputs: StepInputs, outputs: Outputs, section: DriftPlan) -> Derived:
    ratings = Ratings.from_files(outputs["awareness"], step.id)
    battery = FrozenBattery.read(inputs.frozen("battery"), "frozen battery")
    differences = _unequal({"battery": (step.params["battery"], ratings.battery)})
    differences += judged_differences(
        "ratings",
        ratings.judged,
        section.judge(step.params["judge"]),
        read_rubric(inputs.frozen("rubric")),
        [(probe.id, 0) for probe in battery.probes],
    )
    status, flags = rating_outcome(ratings, section)
    return differences[:_MOST], status, flags


def _ask(step: Step, inputs: StepInputs, outputs: Outputs, section: DriftPlan) -> Derived:
    record = AskRecord.from_files(outputs["answers"], step.id)
    design = AskDesign.of(step, inputs, section)
    differences = ask_differences(record, design)
    return differences[:_MOST], ask_status(record, section), ask_flags(record, section)


def ask_differences(record: AskRecord, design: AskDesign) -> list[str]:
    """Whether a record holds what the plan's rules give: heading, replies, verdicts."""
    section, rules = design.section, design.section.judging
    differences = _unequal(
        {
            "arm": (design.arm.name, record.arm),
            "battery": (design.battery.name, record.battery),
            "instance": (instance_name(design.arm.instance), record.instance),
        }
    )
    places = [(probe.id, sample) for probe, sample in design.places]
    if [(reply.probe, reply.sample) for reply in record.replies] != places:
        differences.append(
            f"replies: expected every probe with every sample once, {len(places)} in frozen order, "
            f"found {len(record.replies)}, or others"
        )
        return differences
    for reply in record.replies:
        differences += _reply(reply, design.battery.probe(reply.probe), design)
    parts: list[tuple[str, Judged | None, str | None, Rubric | None, Wanted]] = [
        (
            "classes",
            record.classes,
            rules.classifier,
            design.rubric,
            design.to_classify(record.replies),
        ),
        (
            "grades",
            record.grades,
            rules.grader if design.graded is not None else None,
            design.graded,
            design.to_grade(record.replies),
        ),
        ("checks", record.checks, rules.checker, design.rubric, design.to_check(record.replies)),
    ]
    for name, judged, judge, rubric, wanted in parts:
        if judge is None or rubric is None or judged is None:
            if (judge is None) != (judged is None):
                there = "none" if judged is None else "some"
                differences.append(f"{name}: expected {judge or 'none'}, found {there}")
            continue
        differences += judged_differences(name, judged, section.judge(judge), rubric, wanted)
    return differences


def judged_differences(
    name: str, judged: Judged, judge: JudgePlan, rubric: Rubric, wanted: Wanted
) -> list[str]:
    """Whether the plan's judge gave exactly the verdicts that were due, under the frozen rubric."""
    differences = [f"{name}: {one}" for one in judge_differences(judged.judge, judge)]
    differences += _unequal({f"{name}: rubric": (rubric.digest, judged.rubric)})
    found = [(verdict.key, verdict.draw) for verdict in judged.verdicts]
    if found != wanted:
        differences.append(
            f"{name}: expected {len(wanted)} verdicts in the order of the replies, those on the "
            f"frozen share after them, found {len(found)}, or others"
        )
    for verdict in judged.verdicts:
        differences += verdict_differences(f"{name}: {verdict.key}", [verdict], rubric)
    return differences


def _reply(reply: Reply, probe: FrozenProbe, design: AskDesign) -> list[str]:
    """One reply by itself: what is kept of it, and what its arm's reasoning leaves possible."""
    kept = _kept(reply, probe, design) if probe.keep_text else _not_kept(reply)
    return [f"{reply.key}: {one}" for one in [*kept, *_counts(reply, design)]]


def _kept(reply: Reply, probe: FrozenProbe, design: AskDesign) -> list[str]:
    return _unequal(
        {
            "reply_digest": (reply_digest(reply.reply, reply.token_ids), reply.reply_digest),
            "reasoning_digest": (reasoning_digest(reply.reasoning), reply.reasoning_digest),
            "n_reply_tokens": (len(reply.token_ids), reply.n_reply_tokens),
            "mentions": (mentions(reply.reasoning, design.words), reply.mentions),
        }
    )


def _not_kept(reply: Reply) -> list[str]:
    if reply.token_ids or max(len(reply.reply), len(reply.reasoning)) > EXCERPT_LENGTH:
        return ["expected a digest and an excerpt, found more of the text"]
    return []


def _counts(reply: Reply, design: AskDesign) -> list[str]:
    setting, n_tokens = design.setting, reply.n_reasoning_tokens
    longest_reply = design.section.max_new_tokens
    fewest, most, attempts = 0, 0, 1
    if setting.mode == "filler":
        fewest = most = setting.n_tokens or 0
    elif setting.mode == "budget":
        most = setting.n_tokens or 0
    elif setting.mode == "free":
        most, attempts = setting.max_tokens or 0, (setting.retries or 0) + 1
        longest_reply = most - n_tokens
    differences = [
        f"{name}: expected {low} to {high}, found {found}"
        for name, low, high, found in (
            ("n_reasoning_tokens", fewest, most, n_tokens),
            ("n_reply_tokens", 0, longest_reply, reply.n_reply_tokens),
            ("attempts", 1, attempts, reply.attempts),
        )
        if not low <= found <= high
    ]
    own = setting.mode in ("free", "budget") and n_tokens > 0
    if not own and (reply.reasoning or reply.mentions):
        differences.append("expected no reasoning of the model's own, found some")
    cut = setting.mode == "budget" and n_tokens == most > 0
    if reply.truncated_reasoning and not cut:
        differences.append("expected reasoning that was not cut off, found it marked so")
    if reply.exhausted:
        differences += _exhausted(reply, is_free=setting.mode == "free", attempts=attempts)
    return differences


def _exhausted(reply: Reply, *, is_free: bool, attempts: int) -> list[str]:
    if not is_free:
        return ["expected a reply, which only free reasoning can leave no room for, found none"]
    if reply.reply or reply.n_reply_tokens or reply.attempts != attempts:
        return [
            f"exhausted: expected no reply after {attempts} attempts, found {reply.n_reply_tokens} "
            f"tokens after {reply.attempts}"
        ]
    return []


def _directions(step: Step, inputs: StepInputs, outputs: Outputs, section: DriftPlan) -> list[str]:
    assert section.readouts is not None
    found = Directions.from_files(outputs["directions"], step.id)
    frozen = FrozenReadout.read(inputs.frozen("readout"))
    return directions_differences(found, frozen, section.readouts)


def _readout(step: Step, inputs: StepInputs, outputs: Outputs) -> list[str]:
    found = Projections.from_files(outputs["readout"], step.id)
    directions = Directions.from_files(inputs.artifact("directions"), "directions")
    frozen = FrozenReadout.read(inputs.frozen("readout"))
    return projections_differences(found, step.params["model"], directions, frozen)


def _unequal(pairs: Mapping[str, tuple[Any, Any]]) -> list[str]:
    return [
        f"{name}: expected {expected}, found {found}"
        for name, (expected, found) in pairs.items()
        if expected != found
    ]
