"""Asking an arm a battery and judging what it says, in one process: texts that are not to be kept
are judged whole and leave it as excerpts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from eps_locked.domain.judging import JudgeRequest, Rubric
from eps_locked.domain.model import Decoding
from eps_locked.judges.transport import require_transport
from eps_locked.studies.common.judging import read_rubric
from eps_locked.studies.common.prompts import Prompts, row_seed
from eps_locked.studies.common.words import mentions
from eps_locked.studies.drift.derive import AskDesign, FrozenBattery, Wanted
from eps_locked.studies.drift.reasoning import Asked, Reasoner, Told
from eps_locked.studies.drift.records import AskRecord, Judged, Ratings, Reply
from eps_locked.studies.drift.rendering import ReasoningIds
from eps_locked.studies.drift.task import Task, instance_name

__all__ = ["ask", "rate"]


def ask(task: Task) -> AskRecord:
    """Every probe of the step's battery, every sample, from the step's arm; judged."""
    design = AskDesign.of(task.step, task.inputs, task.section)
    told = _told(task, design)
    replies = tuple(
        Reply.of(
            probe.id,
            sample,
            keep_text=probe.keep_text,
            reply=one.reply,
            token_ids=one.token_ids,
            reasoning=one.reasoning,
            n_reasoning_tokens=one.n_reasoning_tokens,
            stop=one.stop,
            attempts=one.attempts,
            exhausted=one.exhausted,
            truncated_reasoning=one.truncated_reasoning,
            mentions=mentions(one.reasoning, design.words),
        )
        for (probe, sample), one in zip(design.places, told.values(), strict=True)
    )
    questions = {f"{probe.id}/{sample}": probe.text for probe, sample in design.places}
    # The judge sees the whole reply, whatever is kept of it, and nothing of the reasoning.
    texts = {key: (questions[key], one.reply) for key, one in told.items()}
    rules = task.section.judging
    grades = checks = None
    classes = _judged(task, rules.classifier, design.rubric, texts, design.to_classify(replies))
    if design.graded is not None and rules.grader is not None:
        grades = _judged(task, rules.grader, design.graded, texts, design.to_grade(replies))
    if rules.checker is not None:
        checks = _judged(task, rules.checker, design.rubric, texts, design.to_check(replies))
    return AskRecord(
        arm=design.arm.name,
        battery=design.battery.name,
        instance=instance_name(design.arm.instance),
        replies=replies,
        classes=classes,
        grades=grades,
        checks=checks,
    )


def rate(task: Task) -> Ratings:
    """How much each probe of the step's battery looks like a test, to the step's judge.

    The probe is the question; there is no answer, and its place is left empty.
    """
    battery = FrozenBattery.read(task.inputs.frozen("battery"), "frozen battery")
    rubric = read_rubric(task.inputs.frozen("rubric"))
    texts = {probe.id: (probe.text, "") for probe in battery.probes}
    wanted = [(probe.id, 0) for probe in battery.probes]
    judged = _judged(task, task.step.params["judge"], rubric, texts, wanted)
    return Ratings(battery=battery.name, judged=judged)


def _told(task: Task, design: AskDesign) -> dict[str, Told]:
    """By key, in the order of the places."""
    backends = task.hands.loaded(design.arm.instance)
    backends.engine.attach(task.adapter)
    prompts = Prompts.read(task.inputs.frozen("prompts"), "frozen prompts").by_item
    asked = [
        Asked(probe=probe.id, sample=sample, prompt=prompts[probe.id])
        for probe, sample in design.places
    ]
    task.progress(f"{len(asked)} replies, reasoning {design.setting.name}")
    reasoner = Reasoner(
        engine=backends.engine,
        tokenizer=backends.tokenizer,
        ids=ReasoningIds.read(task.inputs.frozen("reasoning"), "frozen reasoning"),
        setting=design.setting,
        decoding=Decoding(
            max_new_tokens=task.section.max_new_tokens,
            temperature=design.arm.temperature,
            top_p=task.section.top_p,
        ),
        seed=partial(row_seed, task.step),
    )
    return {one.key: found for one, found in zip(asked, reasoner.ask(asked), strict=True)}


def _judged(
    task: Task,
    name: str,
    rubric: Rubric,
    texts: Mapping[str, tuple[str, str]],
    wanted: Wanted,
) -> Judged:
    """Verdicts of one judge on (question, answer) by key. Raises BackendError if too many were lost
    on the line to be recorded."""
    judge = task.hands.judge(name)
    task.progress(f"{len(wanted)} verdicts of {name}")
    verdicts = (
        ()
        if not wanted
        else judge.judge(
            [
                JudgeRequest(
                    key=f"{task.step.id}/{key}",
                    question=texts[key][0],
                    answer=texts[key][1],
                    rubric=rubric,
                    draw=draw,
                )
                for key, draw in wanted
            ]
        )
    )
    require_transport(task.section.judge(name), verdicts)
    return Judged(
        judge=judge.identity.to_dict(),
        rubric=rubric.digest,
        verdicts=tuple(
            replace(verdict, key=key) for (key, _), verdict in zip(wanted, verdicts, strict=True)
        ),
    )
