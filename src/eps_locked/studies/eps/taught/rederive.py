"""Re-deriving what a taught row's steps claim, from stored answers and verdicts.

What a model wrote and a judge said cannot be recomputed without them; that both are of the frozen
items, in order, with as many samples, rounds and draws as the plan's rules give, can be checked,
and everything computed from them is computed again.
"""

from __future__ import annotations

from collections.abc import Mapping

from eps_locked.audit.lineage import safetensors_metadata
from eps_locked.canonical import digest_value
from eps_locked.domain.execution import StepInputs
from eps_locked.domain.judging import EXCERPT_LENGTH, JudgePlan
from eps_locked.domain.ledger import Status
from eps_locked.domain.steps import Step
from eps_locked.lock.seal import require_sealed
from eps_locked.lock.workspace import describe_artifact
from eps_locked.studies.common.calibrate import rederived_calibration
from eps_locked.studies.common.fitting import FIXED_STEPS
from eps_locked.studies.common.judging import (
    VERDICTS_FILE,
    judge_differences,
    verdict_differences,
)
from eps_locked.studies.eps.derive import item_ids, rows_digest, sealed_contexts
from eps_locked.studies.eps.fitting import FIT_SCHEMA
from eps_locked.studies.eps.plan import EpsPlan, TaughtBehaviour
from eps_locked.studies.eps.readings import READINGS_FILE, Answer, Readings
from eps_locked.studies.eps.steplist import n_answered
from eps_locked.studies.eps.taught.analysis import TaughtInputs, build_taught_tensor
from eps_locked.studies.eps.taught.derive import (
    AskedItem,
    Measured,
    as_record,
    judged_flags,
    taught_headroom,
    taught_headroom_flags,
    taught_rows,
    taught_status,
    written_answers,
)
from eps_locked.studies.eps.taught.framing import FrozenFact
from eps_locked.studies.eps.taught.outcomes import is_incoherent, verdicts_by_answer
from eps_locked.studies.eps.taught.records import (
    COMPLETIONS_FILE,
    JudgedAnswers,
    SampledAnswer,
    answers_from_files,
)
from eps_locked.studies.eps.tensor_check import tensor_differences

__all__ = ["derive_taught", "judged_differences", "sealed_files"]

Outputs = Mapping[str, Mapping[str, bytes]]
Derived = tuple[list[str], Status, tuple[str, ...]]


def derive_taught(
    step: Step, inputs: StepInputs, outputs: Outputs, section: EpsPlan
) -> Derived | None:
    """Differences found in a step, and the status and flags that its stored bytes give."""
    if step.kind == "calibration":
        return _calibration(step, inputs, outputs, section)
    behaviour = section.taught(step.params["behaviour"])
    match step.kind:
        case "answers":
            return _answers(step, inputs, outputs, section, behaviour)
        case "base":
            return _base(step, inputs, outputs, section, behaviour)
        case "headroom":
            expected = taught_headroom(step, inputs, section)
            same = expected == dict(outputs["headroom"])
            differences = [] if same else ["headroom: holds other values than its inputs give"]
            return differences, "done", taught_headroom_flags(expected)
        case "train":
            return _train(step, inputs, outputs, section, behaviour), "done", ()
        case "cells":
            return _cells(step, inputs, outputs, section, behaviour)
        case "tensor":
            gathered = TaughtInputs.gather(step, inputs, behaviour)
            tensor = build_taught_tensor(gathered, section, behaviour)
            return tensor_differences(tensor, outputs["tensor"]), "done", ()
    return None


def sealed_files(behaviour: TaughtBehaviour) -> set[str]:
    """The files of a cell, all of which a sealed one holds encrypted."""
    slots = {READINGS_FILE} if behaviour.reads_slots else set()
    return {COMPLETIONS_FILE, VERDICTS_FILE} | slots


def judged_differences(
    record: JudgedAnswers,
    measured: Measured,
    context: str,
    fact: FrozenFact | None,
    base: Readings | None,
    judge: JudgePlan,
) -> list[str]:
    """Whether a record holds what the plan's rules give: heading, answers, rounds, verdicts, slots.

    ``base``: the base model's slots of a fact row's cell; None in the base step itself. ``judge``:
    the one that the plan has the row judged by.
    """
    behaviour = measured.behaviour
    differences = [
        f"{name}: expected {expected}, found {found}"
        for name, expected, found in (
            ("behaviour", behaviour.name, record.behaviour),
            ("context", context, record.context),
            ("rubric", measured.rubric.digest, record.rubric),
        )
        if expected != found
    ]
    differences += judge_differences(record.judge, judge)
    verdicts = verdicts_by_answer(record)
    in_order = [answer.name for answer in record.answers for _ in range(behaviour.draws)]
    if [verdict.key for verdict in record.verdicts] != in_order:
        differences.append("verdicts: expected them in the order of the answers")
    expected_keys = []
    for item in measured.items:
        for sample in range(behaviour.n_samples):
            for round_ in range(behaviour.resample_rounds + 1):
                key = (item.id, sample, round_)
                expected_keys.append(key)
                if not is_incoherent(verdicts.get(key, [])):
                    break
    if [answer.key for answer in record.answers] != expected_keys:
        differences.append(
            f"answers: expected {len(expected_keys)} of the frozen items in order, drawn again "
            f"where judged incoherent, found {len(record.answers)} others"
        )
    by_id = {item.id: item for item in measured.items}
    for answer in record.answers:
        differences += _answer(answer, by_id.get(answer.item))
        found = [verdict.draw for verdict in verdicts[answer.key]]
        if found != list(range(behaviour.draws)):
            differences.append(
                f"{answer.name}: expected verdicts {list(range(behaviour.draws))}, found {found}"
            )
        differences += verdict_differences(answer.name, verdicts[answer.key], measured.rubric)
    differences += _slots(record, measured, fact, base)
    return differences[:20]


def _answer(answer: SampledAnswer, item: AskedItem | None) -> list[str]:
    if item is None:
        return []
    if item.keep_text:
        expected = digest_value(list(answer.token_ids))
        return [] if answer.digest == expected else [f"{answer.name}: digest of other tokens"]
    if answer.token_ids or len(answer.text) > EXCERPT_LENGTH:
        return [f"{answer.name}: expected a digest and an excerpt, found more of the text"]
    return []


def _slots(
    record: JudgedAnswers, measured: Measured, fact: FrozenFact | None, base: Readings | None
) -> list[str]:
    if fact is None:
        return [] if record.slots is None else ["slots: expected none, found some"]
    if record.slots is None:
        return ["slots: expected one reading an item, found none"]
    differences = []
    if [one.item for one in record.slots.answers] != [item.id for item in measured.items]:
        differences.append("slots: expected the frozen items in order, found others")
    answers = {answer.item: answer for answer in record.answers}
    for one in record.slots.answers:
        stated = fact.stated(one.text)
        framing = "bridge" if stated is None else stated[0]
        if one.framing != framing:
            differences.append(f"{one.item}: framing: expected {framing}, found {one.framing}")
        if one.marker_emitted != (one.framing == "taught"):
            differences.append(f"{one.item}: emitted exactly if the answer states the taught value")
        mine = answers.get(one.item)
        if mine is not None and _content(mine) != _content(one):
            differences.append(f"{one.item}: slots are of another answer")
        if len(one.own.log_z) != len(fact.attribute_ids):
            differences.append(f"{one.item}: a reading of another number of tokens")
        if (one.frozen is None) != (base is None):
            differences.append(
                f"{one.item}: a second reading where there is a base, and only there"
            )
    return differences


def _content(answer: SampledAnswer | Answer) -> tuple[tuple[int, ...], str, str]:
    return answer.token_ids, answer.text, answer.stop_reason


def _calibration(step: Step, inputs: StepInputs, outputs: Outputs, section: EpsPlan) -> Derived:
    rules = section.calibration(step.params["calibration"])
    judge = section.judge(rules.judge)
    differences, flags = rederived_calibration(
        rules, inputs, outputs["calibration"], section.item_seed, judge
    )
    return differences, "done", flags


def _answers(
    step: Step,
    inputs: StepInputs,
    outputs: Outputs,
    section: EpsPlan,
    taught: TaughtBehaviour,
) -> Derived:
    behaviour, context, answers = answers_from_files(outputs["answers"], step.id)
    items = item_ids(inputs, "train")[: n_answered(section, taught, step.params["context"])]
    differences = [
        f"{name}: expected {expected}, found {found}"
        for name, expected, found in (
            ("behaviour", step.params["behaviour"], behaviour),
            ("context", step.params["context"], context),
            ("items", items, [answer.item for answer in answers]),
        )
        if expected != found
    ]
    for answer in answers:
        if answer.digest != digest_value(list(answer.token_ids)):
            differences.append(f"{answer.name}: digest of other tokens")
    cut = any(answer.stop_reason == "length" for answer in answers)
    return differences, "done", ("truncated_answers",) if cut else ()


def _base(
    step: Step,
    inputs: StepInputs,
    outputs: Outputs,
    section: EpsPlan,
    behaviour: TaughtBehaviour,
) -> Derived:
    record = JudgedAnswers.from_files(outputs["base"], step.id)
    measured = Measured.of(inputs, behaviour)
    context = step.params["context"]
    fact, judge = _fact(inputs, behaviour), section.judge(behaviour.judge)
    differences = judged_differences(record, measured, context, fact, None, judge)
    written = written_answers(inputs)
    expected = [
        (item, len(sides["positive"] or ()) + 1)
        for item, sides in list(written.items())[: behaviour.n_prior_rows]
    ]
    if [(one.item, one.n_tokens) for one in record.prior or ()] != expected:
        differences.append(f"prior: expected readings of {len(expected)} written answers")
    return differences, "done", judged_flags([record])


def _cells(
    step: Step,
    inputs: StepInputs,
    outputs: Outputs,
    section: EpsPlan,
    behaviour: TaughtBehaviour,
) -> Derived:
    """Every open cell against its base; of a sealed one, that it is sealed and to whom."""
    differences: list[str] = []
    measured, fact = Measured.of(inputs, behaviour), _fact(inputs, behaviour)
    judge = section.judge(behaviour.judge)
    sealed, records, base = sealed_contexts(step), {}, {}
    for name, files in outputs.items():
        j = name.removeprefix("cell:")
        base[j] = JudgedAnswers.from_files(inputs.artifact(f"base:{j}"), f"base:{j}")
        if j in sealed:
            require_sealed(files, inputs.frozen("recipients"), sealed_files(behaviour))
            continue
        records[j] = JudgedAnswers.from_files(files, f"{step.id}#{name}")
        found = judged_differences(records[j], measured, j, fact, base[j].slots, judge)
        if records[j].prior is not None:
            found.append("prior: expected none in a cell")
        differences += [f"{name}: {one}" for one in found]
    i = step.params["train"]
    status = taught_status(measured, records[i], base[i])
    return differences, status, judged_flags(list(records.values()))


def _train(
    step: Step,
    inputs: StepInputs,
    outputs: Outputs,
    section: EpsPlan,
    behaviour: TaughtBehaviour,
) -> list[str]:
    record, adapter = as_record(outputs["record"], "record"), outputs["adapter"]
    rows = rows_digest(taught_rows(step, inputs, section, behaviour))
    header = safetensors_metadata(adapter["adapter_model.safetensors"], thing=step.id)
    return [
        f"{name}: expected {expected}, found {found}"
        for name, expected, found in (
            ("record.schema", FIT_SCHEMA, record["schema"]),
            ("record.adapter", describe_artifact(adapter).digest, record["adapter"]),
            ("record.rows", rows, record["rows"]),
            ("adapter rows", rows, header.get("rows")),
            ("record.stop", FIXED_STEPS, record["stop"]),
            ("record.stop_step", behaviour.n_steps, record["stop_step"]),
        )
        if expected != found
    ]


def _fact(inputs: StepInputs, behaviour: TaughtBehaviour) -> FrozenFact | None:
    return FrozenFact.read(inputs.frozen("written")) if behaviour.reads_slots else None
