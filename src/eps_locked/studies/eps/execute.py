"""The hands of the ``eps`` study: one function per step kind, over an engine and a trainer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from eps_locked.canonical import decode, encode
from eps_locked.domain.execution import Progress, StepInputs, StepResult
from eps_locked.domain.judging import Judge, JudgePlan
from eps_locked.domain.model import (
    AdapterFiles,
    Completion,
    EngineIdentity,
    Prompt,
    SlotRequest,
    StepBudget,
    StrengthProbe,
    TokenIds,
    TrainingOutcome,
)
from eps_locked.domain.steps import Step
from eps_locked.lock.freeze import load_plan
from eps_locked.lock.seal import seal_files
from eps_locked.studies.common.backends import Backends
from eps_locked.studies.common.prompts import RECORD_FILE, Prompts, row_seed
from eps_locked.studies.eps.analysis import TensorInputs, answer_flags, build_tensor, tensor_files
from eps_locked.studies.eps.baselines.execute import BaselineTask, run_baseline
from eps_locked.studies.eps.baselines.steps import KINDS as BASELINE_KINDS
from eps_locked.studies.eps.derive import (
    DEFERRED_FLAGS,
    MATCHED_FLAGS,
    cell_status,
    cells_flags,
    derived_headroom,
    derived_match,
    derived_rows,
    final_record,
    headroom_flags,
    item_ids,
    readings_of,
    record_of,
    sealed_contexts,
    stop_flags,
    strength_answers,
)
from eps_locked.studies.eps.fitting import fit_rows
from eps_locked.studies.eps.freeze import check_marker
from eps_locked.studies.eps.plan import EpsPlan, MarkerBehaviour, TaughtBehaviour
from eps_locked.studies.eps.readings import Answer, Readings, answer_of
from eps_locked.studies.eps.task import Task
from eps_locked.studies.eps.taught.execute import run_taught


@dataclass(kw_only=True, slots=True)
class EpsExecutor:
    """Runs ``eps`` steps. ``load`` brings the model up, once, when it is first needed."""

    load: Callable[[], Backends]
    load_judge: Callable[[JudgePlan], Judge]
    _judges: dict[str, Judge] = field(default_factory=dict)
    _backends: Backends | None = None
    _section: EpsPlan | None = None
    _section_bytes: bytes = b""
    _marker_checked: set[str] = field(default_factory=set)

    def execute(self, step: Step, inputs: StepInputs, progress: Progress) -> StepResult:
        section = self._plan_section(inputs.frozen("plan"))
        if section.baselines is not None and step.kind in BASELINE_KINDS:
            return run_baseline(
                BaselineTask(
                    load=self.loaded,
                    step=step,
                    inputs=inputs,
                    section=section,
                    rules=section.baselines,
                    progress=progress,
                )
            )
        task = Task(executor=self, step=step, inputs=inputs, section=section, progress=progress)
        row = step.params.get("behaviour")
        if row is None or isinstance(section.behaviour(row), TaughtBehaviour):
            return run_taught(task)
        return _HANDLERS[step.kind](task)

    @property
    def identity(self) -> EngineIdentity:
        return self.loaded().identity

    def marker_backends(self, behaviour: MarkerBehaviour) -> Backends:
        backends = self.loaded()
        if behaviour.name not in self._marker_checked:
            check_marker(behaviour, backends.tokenizer, f"marker of {behaviour.name}")
            self._marker_checked.add(behaviour.name)
        return backends

    def loaded(self) -> Backends:
        if self._backends is None:
            self._backends = self.load()
        return self._backends

    def judge(self, name: str) -> Judge:
        if name not in self._judges:
            assert self._section is not None
            self._judges[name] = self.load_judge(self._section.judge(name))
        return self._judges[name]

    def _plan_section(self, plan_bytes: bytes) -> EpsPlan:
        if self._section is None or plan_bytes != self._section_bytes:
            plan = load_plan(plan_bytes, thing="frozen/plan.yaml")
            self._section = EpsPlan.of(plan)
            self._section_bytes = plan_bytes
            self._judges.clear()
        return self._section


def _answers(task: Task) -> StepResult:
    """The bare base model's answers under a context, each with its slot reading.

    Kind ``answers`` asks the train items (training text), kind ``base`` the eval items.
    """
    task.marker_backends.engine.attach(None)
    kind, context, prompts = task.step.kind, task.step.params["context"], task.prompts()
    items = item_ids(task.inputs, "train" if kind == "answers" else "eval")
    task.progress(f"{len(items)} answers")
    rows = [_row(task, prompts, item, ()) for item in items]
    completions = task.marker_backends.engine.generate(rows, task.section.decoding, task.probe)
    answers = tuple(
        answer_of(item, completion, None)
        for item, completion in zip(items, completions, strict=True)
    )
    readings = Readings(behaviour=task.marker.name, context=context, answers=answers)
    return StepResult(outputs={kind: readings.to_files()}, flags=tuple(answer_flags(answers)))


def _headroom(task: Task) -> StepResult:
    files = derived_headroom(task.step, task.inputs, task.section)
    return StepResult(outputs={"headroom": files}, flags=headroom_flags(files))


def _fit(task: Task) -> StepResult:
    """Train to the band; a source that cannot reach it waits for the median stop step."""
    if task.step.params["context"] in record_of(task.inputs, "headroom")["unreachable"]:
        record = {"schema": "eps-locked/eps-fit/1", "deferred": True, "stop_step": None}
        return StepResult(outputs={"fit": {RECORD_FILE: encode(record)}}, flags=DEFERRED_FLAGS)
    outcome, record = _train(task, task.marker.budget())
    files = {**outcome.files, RECORD_FILE: encode({**record, "deferred": False})}
    return StepResult(outputs={"fit": files}, flags=stop_flags(outcome.stop))


def _match(task: Task) -> StepResult:
    return StepResult(outputs={"match": derived_match(task.step, task.inputs, task.section)})


def _adapter(task: Task) -> StepResult:
    """The cells' adapter: the banded fit as it is, or now the step-matched one."""
    fit = dict(task.inputs.artifact("fit"))
    record = decode(fit.pop(RECORD_FILE), thing=f"{task.step.id}: fit record")
    flags: tuple[str, ...]
    if record["deferred"]:
        n_steps = record_of(task.inputs, "match")["matched_step"]
        budget = StepBudget(min_steps=n_steps, max_steps=n_steps, check_every=n_steps, band=None)
        outcome, record = _train(task, budget)
        files: Mapping[str, bytes] = outcome.files
        flags = MATCHED_FLAGS
    else:
        files, flags = fit, stop_flags(record["stop"])
    return StepResult(
        outputs={"adapter": files, "record": final_record(record, flags)}, flags=flags
    )


def _cells(task: Task) -> StepResult:
    """One adapter under every eval context: its own answers and slots, and the base's slots.

    All contexts are one batch. Readings of sealed cells are encrypted here, before anything of
    them leaves this function, and their flags stay inside.
    """
    adapter = task.inputs.artifact("adapter")
    digest = task.inputs.artifact_digest("adapter")
    task.marker_backends.engine.attach(AdapterFiles(digest=digest, files=adapter))
    contexts = [name.removeprefix("cell:") for name in task.step.outputs]
    base = {j: readings_of(task.inputs, f"base:{j}") for j in contexts}
    readings = _read_cells(task, contexts, base)
    sealed = sealed_contexts(task.step)
    outputs: dict[str, Mapping[str, bytes]] = {}
    for j, one in readings.items():
        files = one.to_files()
        if j in sealed:
            recipients = task.inputs.frozen("recipients")
            files = seal_files(files, recipients, at_least=_longest_readings(task))
        outputs[f"cell:{j}"] = files
    i = task.step.params["train"]
    status = cell_status(
        readings[i].answers,
        base[i].answers,
        task.marker,
        task.section.flags.minimum_answered_share,
    )
    return StepResult(outputs=outputs, status=status, flags=cells_flags(task.step, readings))


def _longest_readings(task: Task) -> int:
    """More bytes than the readings of one cell take, however long its answers are.

    An answer's fixed part (two slot readings, ids, names) stays below 2 KiB for markers of up to a
    dozen tokens; a token takes at most 8 bytes as an id and some 24 as text.
    """
    marker = 128 * len(task.marker.marker_ids)
    per_answer = 2048 + marker + 32 * task.section.decoding.max_new_tokens
    return task.section.n_eval_items * per_answer


def _read_cells(
    task: Task, contexts: Sequence[str], base: Mapping[str, Readings]
) -> dict[str, Readings]:
    prompts = {j: task.prompts(f"prompts:{j}") for j in contexts}
    before = {(j, answer.item): answer for j in contexts for answer in base[j].answers}
    items = item_ids(task.inputs, "eval")
    keys = [(j, item) for j in contexts for item in items]
    task.progress(f"{len(keys)} answers in {len(contexts)} contexts")
    engine, probe = task.marker_backends.engine, task.probe
    # The base's answer is a good guess at the trained model's; it changes speed, never a token.
    rows = [_row(task, prompts[j], item, before[j, item].token_ids) for j, item in keys]
    completions = dict(zip(keys, engine.generate(rows, task.section.decoding, probe), strict=True))
    # Where the trained model wrote the base's very answer, its own slot is the second reading.
    differing = [key for key in keys if completions[key].token_ids != before[key].token_ids]
    requests = [_base_slot(prompts[j], before[j, item]) for j, item in differing]
    slots = engine.read_slots(requests, probe) if requests else ()
    second = dict(zip(differing, slots, strict=True))

    def answer(key: tuple[str, str]) -> Answer:
        completion: Completion = completions[key]
        return answer_of(key[1], completion, second.get(key, completion.slot))

    return {
        j: Readings(
            behaviour=task.marker.name,
            context=j,
            answers=tuple(answer((j, item)) for item in items),
        )
        for j in contexts
    }


def _tensor(task: Task) -> StepResult:
    """G[b, i -> j], from stored readings alone; the audit calls the same function on its own."""
    gathered = TensorInputs.gather(task.step, task.inputs)
    tensor = build_tensor(gathered, task.section, task.marker)
    return StepResult(outputs={"tensor": tensor_files(tensor)})


def _train(task: Task, budget: StepBudget) -> tuple[TrainingOutcome, dict[str, Any]]:
    task.marker_backends.engine.attach(None)
    rows = derived_rows(task.step, task.inputs, task.section, task.marker)
    return fit_rows(task, task.marker, rows, budget, _strength(task))


def _strength(task: Task) -> StrengthProbe:
    """Slots at which training watches the implant: after the base's answers, under the source."""
    prompts = task.prompts()
    answers = strength_answers(readings_of(task.inputs, "answers").answers, task.marker)
    return StrengthProbe(
        requests=tuple(_base_slot(prompts, answer) for answer in answers),
        base_log_probs=tuple(a.own.log_prob for a in answers),
        probe=task.probe,
    )


def _base_slot(prompts: Prompts, answer: Answer) -> SlotRequest:
    """The slot at which the base model's answer was read."""
    head = answer.token_ids[: answer.slot_index]
    return SlotRequest(key=answer.item, token_ids=(*prompts.by_item[answer.item], *head))


def _row(task: Task, prompts: Prompts, item: str, draft: TokenIds) -> Prompt:
    return Prompt(
        key=f"{prompts.context}/{item}",
        token_ids=prompts.by_item[item],
        seed=row_seed(task.step, prompts.context, item),
        draft=draft,
    )


_HANDLERS: Mapping[str, Callable[[Task], StepResult]] = {
    "answers": _answers,
    "base": _answers,
    "headroom": _headroom,
    "fit": _fit,
    "match": _match,
    "adapter": _adapter,
    "cells": _cells,
    "tensor": _tensor,
}
