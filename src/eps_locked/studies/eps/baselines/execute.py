"""The hands of P3: one function per step kind, over a base model that no adapter is attached to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from eps_locked.domain.execution import Progress, StepInputs, StepResult
from eps_locked.domain.model import (
    Completion,
    Decoding,
    DivergenceRequest,
    Prompt,
    ReadoutEngine,
    SpanRequest,
    TokenIds,
)
from eps_locked.domain.steps import Step
from eps_locked.studies.common.prompts import Prompts, row_seed
from eps_locked.studies.eps.baselines.arrays import FloatArray
from eps_locked.studies.eps.baselines.cells import CellMeasures
from eps_locked.studies.eps.baselines.derive import (
    answer_with_end,
    elicitation_flags,
    expression_of,
    judged_prompts,
    measured_rows,
    probe_items,
)
from eps_locked.studies.eps.baselines.elicitation import read_elicitation
from eps_locked.studies.eps.baselines.measures import projection
from eps_locked.studies.eps.baselines.predictors import (
    build_predictors,
    predictor_files,
    slots_by_row,
)
from eps_locked.studies.eps.baselines.records import (
    Activations,
    Divergences,
    Elicitation,
    ElicitedAnswer,
    JudgedSample,
    Layer,
    Projection,
    stored_vector,
)
from eps_locked.studies.eps.baselines.rules import BaselineRules, SampleRules
from eps_locked.studies.eps.baselines.steps import compared_with
from eps_locked.studies.eps.plan import Behaviour, EpsPlan

__all__ = ["BaselineTask", "run_baseline"]


class BaselineBackends(Protocol):
    """Of what a study has loaded, the part that reads the base model."""

    @property
    def readout(self) -> ReadoutEngine: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class BaselineTask:
    """One step to do. ``load`` brings the model up; a step that only computes never calls it."""

    load: Callable[[], BaselineBackends]
    step: Step
    inputs: StepInputs
    section: EpsPlan
    rules: BaselineRules
    progress: Progress

    @property
    def behaviour(self) -> Behaviour:
        return self.section.behaviour(self.step.params["behaviour"])

    def base_engine(self) -> ReadoutEngine:
        """The engine, serving the bare base whatever an earlier step had it serve."""
        engine = self.load().readout
        engine.attach(None)
        return engine

    def prompts(self, name: str = "prompts") -> Prompts:
        return Prompts.read(self.inputs.frozen(name), f"frozen {name}")


def run_baseline(task: BaselineTask) -> StepResult:
    """Do one step of P3."""
    return _HANDLERS[task.step.kind](task)


def _activations(task: BaselineTask) -> StepResult:
    """The residual stream at the last token of each prompt of one context."""
    engine, prompts = task.base_engine(), task.prompts().by_item
    items = probe_items(task.inputs, task.rules.geometry.n_items)
    task.progress(f"{len(items)} prompts")
    spans = [
        SpanRequest(
            key=item,
            token_ids=prompts[item],
            start=len(prompts[item]) - 1,
            end=len(prompts[item]),
        )
        for item in items
    ]
    cloud_ND, layer = _read_spans(engine, spans, task.rules)
    record = Activations(
        context=task.step.params["context"],
        layer=layer,
        items=items,
        n_tokens=tuple(len(prompts[item]) for item in items),
        cloud_ND=cloud_ND,
    )
    return StepResult(outputs={"activations": record.to_files()})


def _divergence(task: BaselineTask) -> StepResult:
    """Own answers of one context, and the exact KL from it to every context it must meet."""
    engine, rules = task.base_engine(), task.rules.divergence
    context = task.step.params["context"]
    others = compared_with(task.section.slots.of(task.behaviour), context)
    own, theirs = judged_prompts(task.inputs, others)
    items = probe_items(task.inputs, rules.n_items)
    asked = {item: own[item] for item in items}
    keys, completions = _sample(task, engine, asked, rules.samples)
    task.progress(f"{len(completions)} answers under {len(others)} other contexts")
    end = task.inputs.frozen("contexts")
    requests = [
        DivergenceRequest(
            key=f"{item}/{draw}",
            own_prompt=own[item],
            other_prompts={name: theirs[name][item] for name in others},
            answer=answer_with_end(completion.token_ids, completion.stop_reason, end),
        )
        for (item, draw), completion in zip(keys, completions, strict=True)
    ]
    found = engine.divergences(requests)
    samples = tuple(
        JudgedSample(
            item=item,
            draw=draw,
            token_ids=completion.token_ids,
            text=completion.text,
            stop_reason=completion.stop_reason,
            n_tokens=one.n_tokens,
            log_prob=one.log_prob,
            kl_sum=one.kl_sum,
            log_probs=one.log_probs,
        )
        for (item, draw), completion, one in zip(keys, completions, found, strict=True)
    )
    record = Divergences(context=context, samples=samples)
    return StepResult(outputs={"divergence": record.to_files()})


def _elicitation(task: BaselineTask) -> StepResult:
    """Answers with the behaviour asked for and asked against, and their mean activations."""
    engine, shows = task.base_engine(), expression_of(task.behaviour)
    prompts = read_elicitation(task.inputs.frozen("elicitation"), "frozen elicitation")
    asked = {prompt.key: prompt.token_ids for prompt in prompts}
    sides = {prompt.key: prompt.side for prompt in prompts}
    keys, completions = _sample(task, engine, asked, task.rules.persona.samples)
    answers = tuple(
        ElicitedAnswer(
            prompt=key,
            side=sides[key],
            draw=draw,
            token_ids=completion.token_ids,
            text=completion.text,
            stop_reason=completion.stop_reason,
            expressed=shows(completion.text),
        )
        for (key, draw), completion in zip(keys, completions, strict=True)
    )
    task.progress(f"{len(answers)} answers read")
    spans = [
        answer_span(f"{answer.prompt}/{answer.draw}", asked[answer.prompt], answer.token_ids)
        for answer in answers
        if answer.token_ids
    ]
    means_ND, layer = _read_spans(engine, spans, task.rules)
    record = Elicitation(
        behaviour=task.behaviour.name, layer=layer, answers=answers, means_ND=means_ND
    )
    return StepResult(outputs={"elicitation": record.to_files()}, flags=elicitation_flags(answers))


def _projection(task: BaselineTask) -> StepResult:
    """Training answers less the model's own, at one train context, on the behaviour's direction."""
    engine = task.base_engine()
    rows = measured_rows(task.step, task.inputs, task.section, task.behaviour, task.rules.persona)
    task.progress(f"{len(rows.items)} rows")
    spans = []
    for item in rows.items:
        prompt = rows.prompts[item]
        spans.append(answer_span(f"{item}/trained", prompt, rows.trained[item]))
        spans.append(answer_span(f"{item}/own", prompt, rows.own[item]))
    both_ND, layer = _read_spans(engine, spans, task.rules)
    differences_ND = _as_stored(both_ND[0::2] - both_ND[1::2])
    behaviour = task.behaviour.name
    vector_D = stored_vector(task.inputs.artifact("elicitation"), layer, "elicitation")
    record = Projection(
        behaviour=behaviour,
        context=task.step.params["context"],
        layer=layer,
        rows=rows.digest,
        share=rows.share,
        items=rows.items,
        without_answer=rows.without_answer,
        differences_ND=differences_ND,
        value=projection(differences_ND, vector_D, rows.share, f"vector of {behaviour}"),
    )
    return StepResult(outputs={"projection": record.to_files()})


def _baselines(task: BaselineTask) -> StepResult:
    """Every predictor, for every cell, from what the phase has stored."""
    cells = CellMeasures.read(task.inputs, task.section, task.rules)
    documents = build_predictors(cells, slots_by_row(task.section), task.rules)
    return StepResult(outputs={"baselines": predictor_files(documents)})


def answer_span(key: str, prompt: TokenIds, answer: TokenIds) -> SpanRequest:
    """Mean over the answer's tokens, the end of the turn left out."""
    return SpanRequest(
        key=key, token_ids=prompt + answer, start=len(prompt), end=len(prompt) + len(answer)
    )


def _sample(
    task: BaselineTask,
    engine: ReadoutEngine,
    asked: Mapping[str, TokenIds],
    rules: SampleRules,
) -> tuple[list[tuple[str, int]], tuple[Completion, ...]]:
    """``n_samples`` answers to each prompt, and the (prompt, draw) of each."""
    keys = [(name, draw) for name in asked for draw in range(rules.n_samples)]
    task.progress(f"{len(keys)} answers")
    decoding: Decoding = rules.decoding()
    prompts = [
        Prompt(
            key=f"{name}/{draw}",
            token_ids=asked[name],
            seed=row_seed(task.step, name, str(draw)),
        )
        for name, draw in keys
    ]
    return keys, engine.generate(prompts, decoding)


def _read_spans(
    engine: ReadoutEngine, spans: Sequence[SpanRequest], rules: BaselineRules
) -> tuple[FloatArray, Layer]:
    """Mean activations, one row per span, at the layer the plan's depth gives in this model.

    Rounded as they will be stored: what is computed from them is computed from the same numbers
    by whoever reads them back.
    """
    number = rules.layer(engine.n_layers)
    rows_ND = _as_stored(np.asarray(engine.activations(spans, number), dtype=np.float64))
    layer = Layer(number=number, of=engine.n_layers, width=engine.width)
    return rows_ND.reshape(len(spans), engine.width), layer


def _as_stored(values_ND: FloatArray) -> FloatArray:
    return values_ND.astype(np.float32).astype(np.float64)


_HANDLERS: Mapping[str, Callable[[BaselineTask], StepResult]] = {
    "activations": _activations,
    "divergence": _divergence,
    "elicitation": _elicitation,
    "projection": _projection,
    "baselines": _baselines,
}
