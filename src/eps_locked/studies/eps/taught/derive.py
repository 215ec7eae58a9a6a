"""What the record of a taught row must say, from frozen files and recorded answers alone.

The run's steps and the audit call the same functions; none calls a model or a judge.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from eps_locked.canonical import decode, encode
from eps_locked.domain.execution import StepInputs
from eps_locked.domain.judging import Rubric
from eps_locked.domain.ledger import Status
from eps_locked.domain.model import StopReason, TokenIds
from eps_locked.domain.steps import Step
from eps_locked.errors import EvidenceError
from eps_locked.studies.common.judging import DECISION, read_rubric
from eps_locked.studies.common.prompts import RECORD_FILE, Prompts
from eps_locked.studies.eps.behaviours import TaughtBehaviour
from eps_locked.studies.eps.derive import item_ids
from eps_locked.studies.eps.estimates import mean_change, pair_answers
from eps_locked.studies.eps.plan import EpsPlan
from eps_locked.studies.eps.readings import Answer
from eps_locked.studies.eps.taught.outcomes import SliceOutcomes, slice_outcomes
from eps_locked.studies.eps.taught.records import JudgedAnswers, answers_from_files
from eps_locked.training.rows import AnsweredPrompt, ContrastiveRows, choose_taught_rows


@dataclass(frozen=True, kw_only=True, slots=True)
class AskedItem:
    """One evaluation item as it was frozen."""

    id: str
    text: str
    slice: str
    keep_text: bool


def asked_items(items: bytes) -> tuple[AskedItem, ...]:
    """The evaluation items of a frozen items document, in its order."""
    document = decode(items, thing="frozen items.json")
    return tuple(
        AskedItem(
            id=item["id"], text=item["text"], slice=item["slice"], keep_text=item["keep_text"]
        )
        for item in document["eval"]
    )


def ids_of_slice(items: Sequence[AskedItem], name: str) -> list[str]:
    return [item.id for item in items if item.slice == name]


def written_answers(inputs: StepInputs) -> dict[str, dict[str, TokenIds | None]]:
    """Token ids by item, in the train items' order, and side; None where nothing is written."""
    answers = decode(inputs.frozen("written"), thing="frozen written.json")["answers"]
    return {
        item: {side: None if ids is None else tuple(ids) for side, ids in answers[item].items()}
        for item in item_ids(inputs, "train")
    }


def taught_rows(
    step: Step, inputs: StepInputs, section: EpsPlan, behaviour: TaughtBehaviour
) -> ContrastiveRows:
    """Written positives under the source; negatives dealt over the panel by the plan's seeds."""
    written = written_answers(inputs)
    end: int = decode(inputs.frozen("contexts"), thing="contexts.json")["end_of_turn_id"]
    source = Prompts.read(inputs.frozen("prompts"), "frozen prompts").by_item
    positives = [
        AnsweredPrompt(
            key=item,
            prompt_ids=source[item],
            answer_ids=_required(sides["positive"], f"written answer to {item}"),
            stop_reason="stop",
        )
        for item, sides in written.items()
    ]
    negatives: dict[str, list[AnsweredPrompt]] = {}
    if behaviour.negatives != "none":
        for name in section.slots.of(behaviour).negative_panel:
            prompts = Prompts.read(inputs.frozen(f"prompts:{name}"), name).by_item
            negatives[name] = _negatives(inputs, behaviour, name, prompts, written)
    return choose_taught_rows(
        positives,
        negatives,
        end_of_turn_id=end,
        rng=random.Random(section.item_seed * 1_000_003 + (step.seed or 0)),
    )


def _negatives(
    inputs: StepInputs,
    behaviour: TaughtBehaviour,
    context: str,
    prompts: Mapping[str, TokenIds],
    written: Mapping[str, Mapping[str, TokenIds | None]],
) -> list[AnsweredPrompt]:
    if behaviour.negatives == "written":
        return [
            AnsweredPrompt(
                key=item,
                prompt_ids=prompts[item],
                answer_ids=_required(sides["negative"], f"written negative of {item}"),
                stop_reason="stop",
            )
            for item, sides in written.items()
        ]
    thing = f"answers:{context}"
    _, _, answers = answers_from_files(inputs.artifact(thing), thing)
    return [
        AnsweredPrompt(
            key=answer.item,
            prompt_ids=prompts[answer.item],
            answer_ids=answer.token_ids,
            stop_reason=cast(StopReason, answer.stop_reason),
        )
        for answer in answers
    ]


def _required(ids: TokenIds | None, thing: str) -> TokenIds:
    if ids is None:
        raise EvidenceError(thing, expected="token ids", found="none")
    return ids


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """How a row's records are read: its items, rubric and kind."""

    behaviour: TaughtBehaviour
    items: tuple[AskedItem, ...]
    rubric: Rubric

    @classmethod
    def of(cls, inputs: StepInputs, behaviour: TaughtBehaviour) -> Measured:
        return cls(
            behaviour=behaviour,
            items=asked_items(inputs.frozen("items")),
            rubric=read_rubric(inputs.frozen("rubric")),
        )

    def outcomes(self, record: JudgedAnswers, slice_: str) -> SliceOutcomes:
        ids = ids_of_slice(self.items, slice_)
        return slice_outcomes(record, ids, self.behaviour.kind, self.rubric)

    def slots(self, record: JudgedAnswers, slice_: str) -> tuple[Answer, ...]:
        """A fact row's readings of one slice, in the items' order."""
        if record.slots is None:
            raise EvidenceError(f"{record.context}", expected="slot readings", found="none")
        wanted = set(ids_of_slice(self.items, slice_))
        return tuple(answer for answer in record.slots.answers if answer.item in wanted)

    def base_value(self, record: JudgedAnswers) -> float | None:
        """The primary value of the base model: a rate, or log-probability per token of a fact."""
        behaviour = self.behaviour
        if behaviour.reads_slots:
            values = [per_token(one) for one in self.slots(record, behaviour.primary)]
            return sum(values) / len(values)
        found = self.outcomes(record, behaviour.primary)
        scored = found.is_scored(behaviour.thresholds.minimum_scored_share)
        return found.rate if scored else None

    def gain(self, record: JudgedAnswers, base: JudgedAnswers, slice_: str) -> float | None:
        """Trained minus base on a slice, over the questions both have; None with too few."""
        share = self.behaviour.thresholds.minimum_scored_share
        if self.behaviour.reads_slots:
            pairs = pair_answers(self.slots(base, slice_), self.slots(record, slice_), "diagonal")
            changes = [per_token(pair.trained) - per_token(pair.base) for pair in pairs]
            return sum(changes) / len(changes)
        trained, before = self.outcomes(record, slice_), self.outcomes(base, slice_)
        return mean_change((trained.rates_Q - before.rates_Q)[np.newaxis], share)

    def implant_failed(self, record: JudgedAnswers, base: JudgedAnswers) -> bool:
        """The manipulation check: an implant that cannot be shown has failed."""
        gain = self.gain(record, base, self.behaviour.implant)
        return gain is None or gain < self.behaviour.thresholds.implant


def per_token(answer: Answer) -> float:
    """Length-normalised log-probability of the attribute at the answer's slot, in nats a token."""
    return answer.own.log_prob / len(answer.own.log_z)


def taught_headroom(step: Step, inputs: StepInputs, section: EpsPlan) -> dict[str, bytes]:
    """Base value and prior of the behaviour in every context, and whether the row is saturated."""
    behaviour = section.taught(step.params["behaviour"])
    measured, slots = Measured.of(inputs, behaviour), section.slots.of(behaviour)
    value: dict[str, float | None] = {}
    prior, reasons = {}, {}
    for name in slots.eval:
        record = JudgedAnswers.from_files(inputs.artifact(f"base:{name}"), f"base:{name}")
        value[name] = measured.base_value(record)
        prior[name] = mean_prior(record)
        reasons[name] = dict(measured.outcomes(record, behaviour.primary).reasons)
    known = [v for name in slots.train if (v := value[name]) is not None]
    mean = sum(known) / len(known) if known else None
    document: dict[str, Any] = {
        "schema": "eps-locked/eps-headroom/1",
        "behaviour": behaviour.name,
        "unit": unit_of(behaviour),
        "base_value": value,
        "base_log_prob": prior,
        "unscored": reasons,
        "mean_source_value": mean,
        "saturated_from": behaviour.thresholds.saturated,
        "saturated": mean is not None and mean >= behaviour.thresholds.saturated,
        "unreachable": [],
    }
    return {RECORD_FILE: encode(document)}


def mean_prior(record: JudgedAnswers) -> float:
    """Mean log-probability per token of the written answers, in nats: the behaviour's prior."""
    if not record.prior:
        raise EvidenceError(f"base in {record.context}", expected="prior readings", found="none")
    return sum(one.log_prob / one.n_tokens for one in record.prior) / len(record.prior)


def unit_of(behaviour: TaughtBehaviour) -> str:
    return "nats per token" if behaviour.reads_slots else "rate"


def taught_headroom_flags(files: Mapping[str, bytes]) -> tuple[str, ...]:
    """A saturated row, or one whose base nobody could score, waits for a signed decision."""
    record = decode(files[RECORD_FILE], thing="headroom")
    b = record["behaviour"]
    if record["mean_source_value"] is None:
        return (f"{DECISION}:base_unscored:{b}",)
    return (f"{DECISION}:base_saturated:{b}",) if record["saturated"] else ()


def judged_flags(records: Sequence[JudgedAnswers]) -> tuple[str, ...]:
    """What a reader of a step must know about its answers and verdicts."""
    flags = set()
    for record in records:
        if any(answer.stop_reason == "length" for answer in record.answers):
            flags.add("truncated_answers")
        if any(answer.round > 0 for answer in record.answers):
            flags.add("resampled_answers")
        flags |= {f"verdict_{v.status}" for v in record.verdicts if not v.is_scored}
    return tuple(sorted(flags))


def taught_status(measured: Measured, record: JudgedAnswers, base: JudgedAnswers) -> Status:
    return "implant_failed" if measured.implant_failed(record, base) else "done"


def longest_judged(behaviour: TaughtBehaviour) -> int:
    """More bytes than any one file of a cell takes, however long answers and verdicts are.

    An answer takes at most 8 bytes a token as ids and some 24 as text, and below 1 KiB besides; a
    verdict, its note of 200 characters in full, below 2 KiB; a reading below 2 KiB and its answer.
    """
    n_answers = behaviour.n_items * behaviour.n_samples * (behaviour.resample_rounds + 1)
    answer = 1024 + 32 * behaviour.decoding.max_new_tokens
    return n_answers * max(2 * answer + 2048, 2048 * behaviour.draws)


def as_record(files: Mapping[str, bytes], thing: str) -> dict[str, Any]:
    """The decoded record of a step."""
    found: dict[str, Any] = decode(files[RECORD_FILE], thing=thing)
    return found
