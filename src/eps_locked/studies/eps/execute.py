"""The hands of the ``eps`` study: one function per step kind, over an engine and a trainer."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from eps_locked.canonical import decode, digest_value, encode
from eps_locked.domain.execution import Progress, StepInputs, StepResult
from eps_locked.domain.ledger import Status
from eps_locked.domain.model import (
    AdapterFiles,
    ChatTokenizer,
    Completion,
    EngineIdentity,
    LogprobEngine,
    Prompt,
    SlotProbe,
    SlotRequest,
    StepBudget,
    StopReason,
    StrengthProbe,
    TokenIds,
    Trainer,
    TrainingOutcome,
)
from eps_locked.domain.steps import Step
from eps_locked.errors import EvidenceError
from eps_locked.lock.freeze import load_plan
from eps_locked.lock.workspace import describe_artifact
from eps_locked.studies.eps.analysis import (
    TensorInputs,
    answer_flags,
    build_tensor,
    implant_failed,
    tensor_files,
)
from eps_locked.studies.eps.estimates import pair_answers
from eps_locked.studies.eps.freeze import check_marker
from eps_locked.studies.eps.plan import EpsPlan, MarkerBehaviour
from eps_locked.studies.eps.readings import Answer, Readings, answer_of, mean_log_prob
from eps_locked.training.rows import (
    AnsweredPrompt,
    ContrastiveRows,
    choose_rows,
)

RECORD_FILE = "record.json"
DEFERRED_FLAGS = ("band_unreachable",)
MATCHED_FLAGS = ("band_unreachable", "step_matched")


@dataclass(frozen=True, kw_only=True, slots=True)
class Backends:
    """What a study needs loaded: made once, on the first step that calls a model."""

    engine: LogprobEngine
    trainer: Trainer
    tokenizer: ChatTokenizer


@dataclass(kw_only=True, slots=True)
class EpsExecutor:
    """Runs ``eps`` steps. ``load`` brings the model up, once, when it is first needed."""

    load: Callable[[], Backends]
    _backends: Backends | None = None
    _section: EpsPlan | None = None
    _section_bytes: bytes = b""
    _marker_checked: set[str] = field(default_factory=set)

    def execute(self, step: Step, inputs: StepInputs, progress: Progress) -> StepResult:
        section = self._plan_section(inputs.frozen("plan"))
        behaviour = section.behaviour(step.params["behaviour"])
        handler = _HANDLERS[step.kind]
        return handler(self, step, inputs, section, behaviour, progress)

    @property
    def identity(self) -> EngineIdentity:
        return self._loaded().engine.identity

    def backends(self, behaviour: MarkerBehaviour) -> Backends:
        """The loaded model, its tokenizer shown to spell the marker as the plan says."""
        backends = self._loaded()
        if behaviour.name not in self._marker_checked:
            check_marker(behaviour, backends.tokenizer, f"marker of {behaviour.name}")
            self._marker_checked.add(behaviour.name)
        return backends

    def _loaded(self) -> Backends:
        if self._backends is None:
            self._backends = self.load()
        return self._backends

    def _plan_section(self, plan_bytes: bytes) -> EpsPlan:
        if self._section is None or plan_bytes != self._section_bytes:
            plan = load_plan(plan_bytes, thing="frozen/plan.yaml")
            self._section = EpsPlan.from_section(plan.study_section)
            self._section_bytes = plan_bytes
        return self._section


@dataclass(frozen=True, kw_only=True, slots=True)
class Prompts:
    """A context's frozen prompts, by item id."""

    context: str
    by_item: Mapping[str, TokenIds]

    @classmethod
    def read(cls, data: bytes, thing: str) -> Prompts:
        value = decode(data, thing=thing)
        prefix = tuple(value["prefix"])
        return cls(
            context=value["context"],
            by_item={item: (*prefix, *ids) for item, ids in value["suffixes"].items()},
        )


def _answers(
    executor: EpsExecutor,
    step: Step,
    inputs: StepInputs,
    section: EpsPlan,
    behaviour: MarkerBehaviour,
    progress: Progress,
) -> StepResult:
    """The bare base model's answers under a context, each with its slot reading.

    Kind ``answers`` asks the train items (training text), kind ``base`` the eval items.
    """
    backends = executor.backends(behaviour)
    backends.engine.attach(None)
    prompts = Prompts.read(inputs.frozen("prompts"), "frozen prompts")
    items = _item_ids(inputs, "train" if step.kind == "answers" else "eval")
    progress(f"{len(items)} answers")
    completions = _generate(backends, section, behaviour, prompts, items, step, drafts={})
    answers = tuple(
        answer_of(item, completion, None)
        for item, completion in zip(items, completions, strict=True)
    )
    readings = Readings(behaviour=behaviour.name, context=step.params["context"], answers=answers)
    return StepResult(outputs={step.kind: readings.to_files()}, flags=tuple(answer_flags(answers)))


def derived_headroom(step: Step, inputs: StepInputs, section: EpsPlan) -> dict[str, bytes]:
    """Base value of the behaviour in every context, and which sources cannot reach the band."""
    behaviour = section.behaviour(step.params["behaviour"])
    base = {
        name: mean_log_prob(_readings(inputs, f"base:{name}").answers, f"base in {name}")
        for name in section.slots.eval
    }
    source = {}
    for name in section.slots.train:
        answers = _readings(inputs, f"answers:{name}").answers
        source[name] = mean_log_prob(strength_answers(answers, behaviour), f"source {name}")
    document = {
        "schema": "eps-locked/eps-headroom/1",
        "behaviour": behaviour.name,
        "unreachable_above": behaviour.unreachable_above,
        "base_log_prob": base,
        "source_log_prob": source,
        "unreachable": [n for n, value in source.items() if value > behaviour.unreachable_above],
    }
    return {RECORD_FILE: encode(document)}


def derived_match(step: Step, inputs: StepInputs, section: EpsPlan) -> dict[str, bytes]:
    """The median stop step of the fits that had a band; the plan's ceiling if there is none."""
    behaviour = section.behaviour(step.params["behaviour"])
    stops = {}
    for name in section.slots.train:
        record = _record(inputs, f"fit:{name}")
        if not record["deferred"]:
            stops[name] = record["stop_step"]
    # The lower of two middle values: a whole number of steps, and no more training than was seen.
    ordered = sorted(stops.values())
    matched = ordered[(len(ordered) - 1) // 2] if ordered else behaviour.max_steps
    document = {
        "schema": "eps-locked/eps-match/1",
        "stop_steps": stops,
        "matched_step": matched,
        "from_ceiling": not stops,
    }
    return {RECORD_FILE: encode(document)}


def headroom_flags(files: Mapping[str, bytes]) -> tuple[str, ...]:
    """One flag for each source whose base value leaves no room for the band."""
    unreachable = decode(files[RECORD_FILE], thing="headroom")["unreachable"]
    return tuple(f"band_unreachable:{name}" for name in unreachable)


def _headroom(
    executor: EpsExecutor,
    step: Step,
    inputs: StepInputs,
    section: EpsPlan,
    behaviour: MarkerBehaviour,
    progress: Progress,
) -> StepResult:
    files = derived_headroom(step, inputs, section)
    return StepResult(outputs={"headroom": files}, flags=headroom_flags(files))


def _fit(
    executor: EpsExecutor,
    step: Step,
    inputs: StepInputs,
    section: EpsPlan,
    behaviour: MarkerBehaviour,
    progress: Progress,
) -> StepResult:
    """Train to the band; a source that cannot reach it waits for the median stop step."""
    if step.params["context"] in _record(inputs, "headroom")["unreachable"]:
        record = {"schema": "eps-locked/eps-fit/1", "deferred": True, "stop_step": None}
        return StepResult(outputs={"fit": {RECORD_FILE: encode(record)}}, flags=DEFERRED_FLAGS)
    outcome, record = _train(
        executor, step, inputs, section, behaviour, behaviour.budget(), progress
    )
    files = {**outcome.files, RECORD_FILE: encode({**record, "deferred": False})}
    return StepResult(outputs={"fit": files}, flags=stop_flags(outcome.stop))


def _match(
    executor: EpsExecutor,
    step: Step,
    inputs: StepInputs,
    section: EpsPlan,
    behaviour: MarkerBehaviour,
    progress: Progress,
) -> StepResult:
    return StepResult(outputs={"match": derived_match(step, inputs, section)})


def _adapter(
    executor: EpsExecutor,
    step: Step,
    inputs: StepInputs,
    section: EpsPlan,
    behaviour: MarkerBehaviour,
    progress: Progress,
) -> StepResult:
    """The cell's adapter: the banded fit as it is, or now the step-matched one."""
    fit = dict(inputs.artifact("fit"))
    record = decode(fit.pop(RECORD_FILE), thing=f"{step.id}: fit record")
    flags: tuple[str, ...]
    if record["deferred"]:
        n_steps = _record(inputs, "match")["matched_step"]
        budget = StepBudget(min_steps=n_steps, max_steps=n_steps, check_every=n_steps, band=None)
        outcome, record = _train(executor, step, inputs, section, behaviour, budget, progress)
        files: Mapping[str, bytes] = outcome.files
        flags = MATCHED_FLAGS
    else:
        files, flags = fit, stop_flags(record["stop"])
    return StepResult(
        outputs={"adapter": files, "record": final_record(record, flags)}, flags=flags
    )


def final_record(record: Mapping[str, Any], flags: tuple[str, ...]) -> dict[str, bytes]:
    """A fit's record as the adapter step hands it on, deferred no longer."""
    return {RECORD_FILE: encode({**record, "deferred": False, "flags": list(flags)})}


def _cell(
    executor: EpsExecutor,
    step: Step,
    inputs: StepInputs,
    section: EpsPlan,
    behaviour: MarkerBehaviour,
    progress: Progress,
) -> StepResult:
    """One adapter under one context: its own answers and slots, and the slot after the base's."""
    backends = executor.backends(behaviour)
    adapter = AdapterFiles(
        digest=inputs.artifact_digest("adapter"), files=inputs.artifact("adapter")
    )
    backends.engine.attach(adapter)
    prompts = Prompts.read(inputs.frozen("prompts"), "frozen prompts")
    items = _item_ids(inputs, "eval")
    base = {answer.item: answer for answer in _readings(inputs, "base").answers}
    progress(f"{len(items)} answers")
    drafts = {item: base[item].token_ids for item in items}
    completions = _generate(backends, section, behaviour, prompts, items, step, drafts)
    # Where the trained model wrote the base's very answer, its own slot is the second reading.
    differing = [
        item
        for item, completion in zip(items, completions, strict=True)
        if completion.token_ids != base[item].token_ids
    ]
    probe = _probe(backends, behaviour)
    requests = [_base_slot(prompts, base[item]) for item in differing]
    second = dict(
        zip(differing, backends.engine.read_slots(requests, probe) if requests else (), strict=True)
    )
    answers = tuple(
        answer_of(item, completion, second.get(item, completion.slot))
        for item, completion in zip(items, completions, strict=True)
    )
    readings = Readings(behaviour=behaviour.name, context=step.params["eval"], answers=answers)
    return StepResult(
        outputs={"cell": readings.to_files()},
        status=cell_status(
            step,
            answers,
            tuple(base.values()),
            behaviour,
            section.flags.minimum_answered_share,
        ),
        flags=tuple(answer_flags(answers)),
    )


def cell_status(
    step: Step,
    answers: Sequence[Answer],
    base: Sequence[Answer],
    behaviour: MarkerBehaviour,
    share: float,
) -> Status:
    """The manipulation check: a diagonal cell below the threshold shows that no implant took."""
    if step.params["train"] != step.params["eval"]:
        return "done"
    pairs = pair_answers(base, answers, step.id)
    return "implant_failed" if implant_failed(pairs, behaviour, share) else "done"


def _tensor(
    executor: EpsExecutor,
    step: Step,
    inputs: StepInputs,
    section: EpsPlan,
    behaviour: MarkerBehaviour,
    progress: Progress,
) -> StepResult:
    """G[b, i -> j], from stored readings alone; the audit calls the same function on its own."""
    gathered = TensorInputs.gather(step, inputs)
    tensor = build_tensor(gathered, section, behaviour)
    return StepResult(outputs={"tensor": tensor_files(tensor)})


def _train(
    executor: EpsExecutor,
    step: Step,
    inputs: StepInputs,
    section: EpsPlan,
    behaviour: MarkerBehaviour,
    budget: StepBudget,
    progress: Progress,
) -> tuple[TrainingOutcome, dict[str, Any]]:
    backends = executor.backends(behaviour)
    backends.engine.attach(None)
    rows = derived_rows(step, inputs, section, behaviour)
    digest_of_rows = rows_digest(rows)
    strength = _strength(inputs, behaviour, backends)
    assert step.seed is not None
    outcome = backends.trainer.fit(
        rows.rows,
        behaviour.recipe,
        budget,
        strength,
        seed=step.seed,
        provenance={
            "behaviour": behaviour.name,
            "context": step.params["context"],
            "seed": str(step.seed),
            "rows": digest_of_rows,
        },
        on_step=lambda number, loss: progress(f"step {number}, loss {loss:.3f}"),
    )
    record = {
        "schema": "eps-locked/eps-fit/1",
        "stop": outcome.stop,
        "stop_step": outcome.stop_step,
        "realised_strength": outcome.checks[-1].delta_nats if outcome.checks else None,
        "checks": [[check.step, check.delta_nats] for check in outcome.checks],
        "losses": list(outcome.losses),
        "scale": outcome.scale,
        "n_trainable": outcome.n_trainable,
        "n_rows_seen": outcome.n_rows_seen,
        "rows": digest_of_rows,
        "n_positives": rows.n_positives,
        "n_negatives": rows.n_negatives,
        "dropped_rows": rows.drop_counts(),
        "adapter": describe_artifact(outcome.files).digest,
    }
    return outcome, record


def derived_rows(
    step: Step, inputs: StepInputs, section: EpsPlan, behaviour: MarkerBehaviour
) -> ContrastiveRows:
    """Positives from the source, negatives dealt evenly over the panel, by the plan's seeds.

    Follows from frozen prompts and recorded answers alone, so the audit derives it again.
    """
    contexts = decode(inputs.frozen("contexts"), thing="contexts.json")
    marker_ids, end_of_turn_id = behaviour.marker_ids, contexts["end_of_turn_id"]
    source = Prompts.read(inputs.frozen("prompts"), "frozen prompts")
    offered = {
        name: _offered(
            Prompts.read(inputs.frozen(f"prompts:{name}"), name),
            _readings(inputs, f"answers:{name}"),
        )
        for name in section.slots.negative_panel
    }
    return choose_rows(
        _offered(source, _readings(inputs, "answers")),
        offered,
        n_rows=behaviour.n_rows,
        marker_ids=marker_ids,
        end_of_turn_id=end_of_turn_id,
        rng=random.Random(section.item_seed * 1_000_003 + (step.seed or 0)),
    )


def rows_digest(rows: ContrastiveRows) -> str:
    """Digest of exactly what a fit sees: keys, token ids, loss positions, in order."""
    return digest_value(
        [[row.key, list(row.token_ids), list(row.loss_positions)] for row in rows.rows]
    )


def _offered(prompts: Prompts, readings: Readings) -> list[AnsweredPrompt]:
    """Every answer of a context as training text, in the frozen items' order."""
    return [
        AnsweredPrompt(
            key=answer.item,
            prompt_ids=prompts.by_item[answer.item],
            answer_ids=answer.token_ids,
            stop_reason=cast(StopReason, answer.stop_reason),
        )
        for answer in readings.answers
    ]


def _strength(inputs: StepInputs, behaviour: MarkerBehaviour, backends: Backends) -> StrengthProbe:
    """Slots at which training watches the implant: after the base's answers, under the source."""
    prompts = Prompts.read(inputs.frozen("prompts"), "frozen prompts")
    answers = strength_answers(_readings(inputs, "answers").answers, behaviour)
    return StrengthProbe(
        requests=tuple(_base_slot(prompts, answer) for answer in answers),
        base_log_probs=tuple(a.own.log_prob for a in answers),
        probe=_probe(backends, behaviour),
    )


def strength_answers(answers: Sequence[Answer], behaviour: MarkerBehaviour) -> tuple[Answer, ...]:
    """The answers at whose slots a source's strength is read: the first that have a slot."""
    return tuple(answer for answer in answers if answer.has_slot)[: behaviour.n_strength_items]


def _base_slot(prompts: Prompts, answer: Answer) -> SlotRequest:
    """The slot at which the base model's answer was read."""
    head = answer.token_ids[: answer.slot_index]
    return SlotRequest(key=answer.item, token_ids=(*prompts.by_item[answer.item], *head))


def _generate(
    backends: Backends,
    section: EpsPlan,
    behaviour: MarkerBehaviour,
    prompts: Prompts,
    items: Sequence[str],
    step: Step,
    drafts: Mapping[str, TokenIds],
) -> tuple[Completion, ...]:
    rows = [
        Prompt(
            key=item,
            token_ids=prompts.by_item[item],
            seed=_row_seed(step, item),
            draft=drafts.get(item, ()),
        )
        for item in items
    ]
    return backends.engine.generate(rows, section.decoding, _probe(backends, behaviour))


def _row_seed(step: Step, item: str) -> int:
    """A sampling seed for one row of one step: no two cells, aliases included, share one."""
    return int(digest_value([step.id, item]).removeprefix("blake3:")[:12], 16)


def _probe(backends: Backends, behaviour: MarkerBehaviour) -> SlotProbe:
    return SlotProbe(
        marker_ids=behaviour.marker_ids, end_of_turn_id=backends.tokenizer.end_of_turn_id
    )


def _item_ids(inputs: StepInputs, pool: str) -> list[str]:
    document = decode(inputs.frozen("items"), thing="frozen/items.json")
    return [item["id"] for item in document[pool]]


def _readings(inputs: StepInputs, name: str) -> Readings:
    return Readings.from_files(inputs.artifact(name), name)


def _record(inputs: StepInputs, name: str) -> dict[str, Any]:
    files = inputs.artifact(name)
    if RECORD_FILE not in files:
        raise EvidenceError(name, expected=RECORD_FILE, found=", ".join(sorted(files)))
    value: dict[str, Any] = decode(files[RECORD_FILE], thing=name)
    return value


def stop_flags(stop: str) -> tuple[str, ...]:
    return {"past_band": ("overshoot",), "budget": ("band_not_reached",)}.get(stop, ())


_Handler = Callable[[EpsExecutor, Step, StepInputs, EpsPlan, MarkerBehaviour, Progress], StepResult]
_HANDLERS: Mapping[str, _Handler] = {
    "answers": _answers,
    "base": _answers,
    "headroom": _headroom,
    "fit": _fit,
    "match": _match,
    "adapter": _adapter,
    "cell": _cell,
    "tensor": _tensor,
}
