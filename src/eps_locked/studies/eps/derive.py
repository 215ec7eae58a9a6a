"""What the record of an ``eps`` run must say, derived from frozen files and recorded answers alone.

The run's steps and the audit call the same functions, the audit on bytes it has hashed itself; no
function here calls a model.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, cast

from eps_locked.canonical import decode, encode
from eps_locked.domain.execution import StepInputs
from eps_locked.domain.ledger import Status
from eps_locked.domain.model import StopReason
from eps_locked.domain.steps import Step
from eps_locked.errors import EvidenceError
from eps_locked.studies.common import fitting
from eps_locked.studies.common.prompts import RECORD_FILE, Prompts
from eps_locked.studies.eps.analysis import answer_flags, implant_failed
from eps_locked.studies.eps.estimates import pair_answers
from eps_locked.studies.eps.plan import EpsPlan, MarkerBehaviour
from eps_locked.studies.eps.readings import Answer, Readings, mean_log_prob
from eps_locked.training.rows import AnsweredPrompt, ContrastiveRows, choose_rows

DEFERRED_FLAGS = ("band_unreachable",)
MATCHED_FLAGS = ("band_unreachable", "step_matched")


def derived_headroom(step: Step, inputs: StepInputs, section: EpsPlan) -> dict[str, bytes]:
    """Base value of the behaviour in every context, and which sources cannot reach the band."""
    behaviour = section.marker(step.params["behaviour"])
    slots = section.slots.of(behaviour)
    base = {
        name: mean_log_prob(readings_of(inputs, f"base:{name}").answers, f"base in {name}")
        for name in slots.eval
    }
    source = {}
    for name in slots.train:
        answers = readings_of(inputs, f"answers:{name}").answers
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
    behaviour = section.marker(step.params["behaviour"])
    stops = {}
    for name in section.slots.of(behaviour).train:
        record = record_of(inputs, f"fit:{name}")
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


def final_record(record: Mapping[str, Any], flags: tuple[str, ...]) -> dict[str, bytes]:
    """A fit's record as the adapter step hands it on, deferred no longer."""
    return {RECORD_FILE: encode({**record, "deferred": False, "flags": list(flags)})}


def stop_flags(stop: str) -> tuple[str, ...]:
    return {"past_band": ("overshoot",), "budget": ("band_not_reached",)}.get(stop, ())


def cell_status(
    answers: Sequence[Answer], base: Sequence[Answer], behaviour: MarkerBehaviour, share: float
) -> Status:
    """The manipulation check: a diagonal cell below the threshold shows that no implant took."""
    pairs = pair_answers(base, answers, "diagonal cell")
    return "implant_failed" if implant_failed(pairs, behaviour, share) else "done"


def sealed_contexts(step: Step) -> frozenset[str]:
    """The eval contexts of a ``cells`` step whose readings leave the process encrypted."""
    return frozenset(step.params.get("sealed", "").split())


def cells_flags(step: Step, readings: Mapping[str, Readings]) -> tuple[str, ...]:
    """Flags of the open cells of a ``cells`` step; of sealed ones not even a flag gets out."""
    sealed = sealed_contexts(step)
    found = {
        flag
        for context, one in readings.items()
        if context not in sealed
        for flag in answer_flags(one.answers)
    }
    return tuple(sorted(found))


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
            readings_of(inputs, f"answers:{name}"),
        )
        for name in section.slots.negative_panel
    }
    return choose_rows(
        _offered(source, readings_of(inputs, "answers")),
        offered,
        n_rows=behaviour.n_rows,
        marker_ids=marker_ids,
        end_of_turn_id=end_of_turn_id,
        rng=random.Random(section.item_seed * 1_000_003 + (step.seed or 0)),
    )


def rows_digest(rows: ContrastiveRows) -> str:
    """Digest of exactly what a fit sees: keys, token ids, loss positions, in order."""
    return fitting.rows_digest(rows.rows)


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


def strength_answers(answers: Sequence[Answer], behaviour: MarkerBehaviour) -> tuple[Answer, ...]:
    """The answers at whose slots a source's strength is read: the first that have a slot."""
    return tuple(answer for answer in answers if answer.has_slot)[: behaviour.n_strength_items]


def item_ids(inputs: StepInputs, pool: str) -> list[str]:
    document = decode(inputs.frozen("items"), thing="frozen/items.json")
    return [item["id"] for item in document[pool]]


def readings_of(inputs: StepInputs, name: str) -> Readings:
    return Readings.from_files(inputs.artifact(name), name)


def record_of(inputs: StepInputs, name: str) -> dict[str, Any]:
    files = inputs.artifact(name)
    if RECORD_FILE not in files:
        raise EvidenceError(name, expected=RECORD_FILE, found=", ".join(sorted(files)))
    value: dict[str, Any] = decode(files[RECORD_FILE], thing=name)
    return value
