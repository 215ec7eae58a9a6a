"""The hands of taught rows: one function per step kind, over an engine, a trainer and a judge."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from eps_locked.canonical import encode
from eps_locked.domain.execution import StepResult
from eps_locked.domain.model import AdapterFiles, Prompt, TokenIds
from eps_locked.lock.seal import seal_files
from eps_locked.studies.common.calibrate import calibration_flags, run_calibration
from eps_locked.studies.common.fitting import FIXED_STEPS
from eps_locked.studies.common.prompts import RECORD_FILE, Prompts, row_seed
from eps_locked.studies.eps.analysis import tensor_files
from eps_locked.studies.eps.derive import item_ids, sealed_contexts
from eps_locked.studies.eps.fitting import fit_rows
from eps_locked.studies.eps.steplist import n_answered
from eps_locked.studies.eps.task import Task
from eps_locked.studies.eps.taught.analysis import TaughtInputs, build_taught_tensor
from eps_locked.studies.eps.taught.derive import (
    Measured,
    judged_flags,
    longest_judged,
    taught_headroom,
    taught_headroom_flags,
    taught_rows,
    taught_status,
    written_answers,
)
from eps_locked.studies.eps.taught.framing import FrozenFact
from eps_locked.studies.eps.taught.measure import Asking, read_prior
from eps_locked.studies.eps.taught.records import (
    JudgedAnswers,
    SampledAnswer,
    answers_to_files,
)

__all__ = ["run_taught"]


def run_taught(task: Task) -> StepResult:
    """Do one step of a taught row, or calibrate a judge."""
    return _HANDLERS[task.step.kind](task)


def _answers(task: Task) -> StepResult:
    """The bare base model's answers to the train questions under one context, unjudged."""
    task.backends.engine.attach(None)
    context, prompts = task.step.params["context"], task.prompts()
    items = item_ids(task.inputs, "train")[: n_answered(task.section, task.taught, context)]
    task.progress(f"{len(items)} answers")
    # One draw each: as negatives they are training text, and one text is all that is needed.
    rows = [
        Prompt(key=item, token_ids=prompts.by_item[item], seed=row_seed(task.step, context, item))
        for item in items
    ]
    decoding = replace(task.taught.decoding, temperature=0.0)
    answers = tuple(
        SampledAnswer.of((item, 0, 0), one.token_ids, one.text, one.stop_reason, keep_text=True)
        for item, one in zip(items, task.backends.engine.generate(rows, decoding), strict=True)
    )
    files = answers_to_files(task.taught.name, context, answers)
    cut = any(answer.stop_reason == "length" for answer in answers)
    return StepResult(outputs={"answers": files}, flags=("truncated_answers",) if cut else ())


def _base(task: Task) -> StepResult:
    """The base model in one eval context: answers, verdicts, slots, the behaviour's prior."""
    task.backends.engine.attach(None)
    context = task.step.params["context"]
    prompts = task.prompts()
    record = _asking(task, {context: prompts}).measure({}, None)[context]
    written = written_answers(task.inputs)
    first: dict[str, TokenIds] = {}
    for item, sides in list(written.items())[: task.taught.n_prior_rows]:
        positive = sides["positive"]
        assert positive is not None
        first[item] = positive
    prior = read_prior(task.backends.engine, task.backends.tokenizer, prompts, first)
    record = replace(record, prior=prior)
    return StepResult(outputs={"base": record.to_files()}, flags=judged_flags([record]))


def _headroom(task: Task) -> StepResult:
    files = taught_headroom(task.step, task.inputs, task.section)
    return StepResult(outputs={"headroom": files}, flags=taught_headroom_flags(files))


def _train(task: Task) -> StepResult:
    """A fixed number of optimizer steps on written rows: no band, and so nothing to match."""
    task.backends.engine.attach(None)
    rows = taught_rows(task.step, task.inputs, task.section, task.taught)
    outcome, record = fit_rows(task, task.taught, rows, task.taught.budget(), None)
    document = {**record, "stop": FIXED_STEPS, "deferred": False, "flags": []}
    return StepResult(outputs={"adapter": outcome.files, "record": {RECORD_FILE: encode(document)}})


def _cells(task: Task) -> StepResult:
    """One adapter under every eval context, asked and judged as one batch.

    Judging happens in the process that asks, so that answers and verdicts of sealed cells are
    encrypted before anything of them leaves this function; their flags stay inside.
    """
    adapter = task.inputs.artifact("adapter")
    digest = task.inputs.artifact_digest("adapter")
    task.backends.engine.attach(AdapterFiles(digest=digest, files=adapter))
    contexts = [name.removeprefix("cell:") for name in task.step.outputs]
    base = {
        j: JudgedAnswers.from_files(task.inputs.artifact(f"base:{j}"), f"base:{j}")
        for j in contexts
    }
    prompts = {j: task.prompts(f"prompts:{j}") for j in contexts}
    drafts = {
        (j, answer.item): answer.token_ids
        for j, one in base.items()
        for answer in one.answers
        if answer.sample == answer.round == 0
    }
    slots = {j: one.slots for j, one in base.items() if one.slots is not None}
    records = _asking(task, prompts).measure(drafts, slots)
    sealed = sealed_contexts(task.step)
    outputs: dict[str, Mapping[str, bytes]] = {}
    for j, record in records.items():
        files = record.to_files()
        if j in sealed:
            recipients = task.inputs.frozen("recipients")
            files = seal_files(files, recipients, at_least=longest_judged(task.taught))
        outputs[f"cell:{j}"] = files
    i = task.step.params["train"]
    measured = Measured.of(task.inputs, task.taught)
    return StepResult(
        outputs=outputs,
        status=taught_status(measured, records[i], base[i]),
        flags=judged_flags([one for j, one in records.items() if j not in sealed]),
    )


def _tensor(task: Task) -> StepResult:
    """G[b, i -> j], from stored records alone; the audit calls the same function on its own."""
    gathered = TaughtInputs.gather(task.step, task.inputs, task.taught)
    tensor = build_taught_tensor(gathered, task.section, task.taught)
    return StepResult(outputs={"tensor": tensor_files(tensor)})


def _calibration(task: Task) -> StepResult:
    """A judge against labels that people gave."""
    rules = task.section.calibration(task.step.params["calibration"])
    files = run_calibration(
        rules,
        task.inputs,
        task.executor.judge(rules.judge),
        task.section.judge(rules.judge),
        task.section.item_seed,
    )
    return StepResult(outputs={"calibration": files}, flags=calibration_flags(rules, files))


def _asking(task: Task, prompts: Mapping[str, Prompts]) -> Asking:
    behaviour, backends = task.taught, task.backends
    measured = Measured.of(task.inputs, behaviour)
    written = task.inputs.frozen("written")
    return Asking(
        step=task.step,
        behaviour=behaviour,
        items=measured.items,
        prompts=prompts,
        rubric=measured.rubric,
        engine=backends.engine,
        tokenizer=backends.tokenizer,
        judge=task.executor.judge(behaviour.judge),
        judge_plan=task.section.judge(behaviour.judge),
        fact=FrozenFact.read(written) if behaviour.reads_slots else None,
        progress=task.progress,
    )


_HANDLERS: Mapping[str, Callable[[Task], StepResult]] = {
    "answers": _answers,
    "base": _base,
    "headroom": _headroom,
    "train": _train,
    "cells": _cells,
    "tensor": _tensor,
    "calibration": _calibration,
}
