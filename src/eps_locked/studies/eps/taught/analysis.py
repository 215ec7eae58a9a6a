"""From the records of a taught row to its tensor G[b, i -> j].

For judged behaviours G is a difference of rates; for a fact it is the change of the attribute's
log-probability per token, and the judged rate stands beside it. Pure functions of frozen documents
and artifacts: the run's last step and the auditor call the same ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from eps_locked.canonical import decode
from eps_locked.domain.execution import StepInputs
from eps_locked.domain.steps import Step
from eps_locked.errors import EvidenceError
from eps_locked.stats.rate_interval import (
    RateEstimate,
    minimum_detectable_rate_change,
    rate_change_intervals,
)
from eps_locked.studies.eps.analysis import (
    INTERVAL_METHODS,
    TENSOR_SCHEMA,
    VALUE_FIELDS,
    resolution_of,
)
from eps_locked.studies.eps.cell_record import describe_cell, gather_records, mean_of_known
from eps_locked.studies.eps.estimates import (
    Estimate,
    FloatArray,
    Place,
    mean_change,
    row_estimates,
)
from eps_locked.studies.eps.plan import EpsPlan, TaughtBehaviour
from eps_locked.studies.eps.readings import FRAMINGS
from eps_locked.studies.eps.taught.derive import Measured, ids_of_slice, per_token, unit_of
from eps_locked.studies.eps.taught.outcomes import REASONS, SliceOutcomes
from eps_locked.studies.eps.taught.records import JudgedAnswers

__all__ = ["RATE_FIELDS", "TaughtInputs", "build_taught_tensor"]

# A slice's rates in a cell; the primary slice's stand in the cell itself.
RATE_FIELDS = (
    "rate_g",
    "rate_low",
    "rate_high",
    "base_rate",
    "base_rate_low",
    "base_rate_high",
    "trained_rate",
    "trained_rate_low",
    "trained_rate_high",
    "n_questions",
)
JUDGED_METHOD = "hybrid score and t, seed variance pooled over the row's cells"


@dataclass(frozen=True, kw_only=True, slots=True)
class TaughtInputs:
    """Everything the tensor is made of, parsed, and the digest of every ancestor.

    Keys as in ``analysis.TensorInputs``; a sealed cell stands in ``digests`` but not in ``cells``.
    """

    measured: Measured
    contexts: Mapping[str, Any]
    split: Mapping[str, Any]
    headroom: Mapping[str, Any]
    base: Mapping[str, JudgedAnswers]
    cells: Mapping[tuple[str, str, str], JudgedAnswers]
    records: Mapping[tuple[str, str], Mapping[str, Any]]
    digests: Mapping[str, str]

    @classmethod
    def gather(cls, step: Step, inputs: StepInputs, behaviour: TaughtBehaviour) -> TaughtInputs:
        """Read the inputs of a ``tensor`` step by the names the freeze gave them."""
        base, cells, records, digests = gather_records(step, inputs, JudgedAnswers.from_files)
        return cls(
            measured=Measured.of(inputs, behaviour),
            contexts=decode(inputs.frozen("contexts"), thing="contexts"),
            split=decode(inputs.frozen("split"), thing="split"),
            headroom=decode(inputs.artifact("headroom")["record.json"], thing="headroom"),
            base=base,
            cells=cells,
            records=records,
            digests=digests,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class TaughtRow:
    """A row's readable cells worked out: rates by slice and place, and a fact's slot estimates.

    ``outcomes`` by (slice, train, eval), one a seed; ``base`` by (slice, eval).
    """

    gathered: TaughtInputs
    seeds: tuple[str, ...]
    places: tuple[Place, ...]
    outcomes: Mapping[tuple[str, str, str], tuple[SliceOutcomes, ...]]
    base: Mapping[tuple[str, str], SliceOutcomes]
    rates: Mapping[tuple[str, str, str], RateEstimate | None]
    slots: Mapping[tuple[str, str, str], FloatArray]
    slot_estimates: Mapping[tuple[str, str, str], Estimate]
    frozen_estimates: Mapping[Place, Estimate]

    @classmethod
    def read(
        cls, gathered: TaughtInputs, section: EpsPlan, behaviour: TaughtBehaviour
    ) -> TaughtRow:
        slots = section.slots.of(behaviour)
        seeds = tuple(dict.fromkeys(seed for _, seed in gathered.records))
        places = tuple(
            (i, j) for i in slots.train for j in slots.eval if (i, j, seeds[0]) in gathered.cells
        )
        measured, level = gathered.measured, section.confidence_level
        share = behaviour.thresholds.minimum_scored_share
        outcomes = {
            (name, i, j): tuple(
                measured.outcomes(gathered.cells[i, j, seed], name) for seed in seeds
            )
            for name in behaviour.n_eval
            for i, j in places
        }
        base = {
            (name, j): measured.outcomes(gathered.base[j], name)
            for name in behaviour.n_eval
            for j in slots.eval
        }
        rates: dict[tuple[str, str, str], RateEstimate | None] = {}
        slot_values: dict[tuple[str, str, str], FloatArray] = {}
        slot_estimates: dict[tuple[str, str, str], Estimate] = {}
        frozen_estimates: dict[Place, Estimate] = {}
        adapters = list(dict.fromkeys(i for i, _ in places))
        for name in behaviour.n_eval:
            found = rate_change_intervals(
                np.stack(
                    [np.stack([one.rates_Q for one in outcomes[name, i, j]]) for i, j in places]
                ),
                np.stack([base[name, j].rates_Q for _, j in places]),
                np.asarray([adapters.index(i) for i, _ in places]),
                confidence_level=level,
                minimum_share=share,
            )
            rates |= {(name, i, j): one for (i, j), one in zip(places, found, strict=True)}
            if behaviour.reads_slots:
                own = {
                    place: _slot_changes(gathered, seeds, name, place, "own") for place in places
                }
                slot_values |= {(name, *place): values for place, values in own.items()}
                estimates = row_estimates(own, share, level)
                slot_estimates |= {(name, *place): one for place, one in estimates.items()}
        if behaviour.reads_slots:
            frozen = {
                place: _slot_changes(gathered, seeds, behaviour.primary, place, "frozen")
                for place in places
            }
            frozen_estimates = row_estimates(frozen, share, level)
        return cls(
            gathered=gathered,
            seeds=seeds,
            places=places,
            outcomes=outcomes,
            base=base,
            rates=rates,
            slots=slot_values,
            slot_estimates=slot_estimates,
            frozen_estimates=frozen_estimates,
        )


def build_taught_tensor(
    gathered: TaughtInputs, section: EpsPlan, behaviour: TaughtBehaviour
) -> dict[str, Any]:
    """The tensor document. G is trained minus base, each on its own answers."""
    row = TaughtRow.read(gathered, section, behaviour)
    slots = section.slots.of(behaviour)
    gains = {
        (i, seed): gathered.measured.gain(
            gathered.cells[i, i, seed], gathered.base[i], behaviour.implant
        )
        for i in slots.train
        for seed in row.seeds
    }
    failed = {
        key: gain is None or gain < behaviour.thresholds.implant for key, gain in gains.items()
    }
    cells = [
        _cell(row, behaviour, gains, failed, i, j)
        if (i, j) in row.places
        else _sealed_cell(row, behaviour, gains, failed, i, j)
        for i in slots.train
        for j in slots.eval
    ]
    one = next(iter(gathered.base.values()))
    return {
        "schema": TENSOR_SCHEMA,
        "behaviour": behaviour.name,
        "kind": behaviour.kind,
        "unit": unit_of(behaviour),
        "primary_reading": "own_answer" if behaviour.reads_slots else "judged",
        "second_reading": "base_answer" if behaviour.reads_slots else None,
        "primary_slice": behaviour.primary,
        "implant_slice": behaviour.implant,
        "slices": dict(behaviour.n_eval),
        "n_samples": behaviour.n_samples,
        "judge": dict(one.judge),
        "rubric": one.rubric,
        "n_seeds": len(row.seeds),
        "n_items": behaviour.n_items,
        "train": list(slots.train),
        "eval": list(slots.eval),
        "held_out": list(slots.held_out),
        "near_duplicates": [list(group) for group in slots.near_duplicates],
        "intervals": {
            "method": INTERVAL_METHODS[len(row.seeds) > 1]
            if behaviour.reads_slots
            else JUDGED_METHOD,
            "confidence_level": section.confidence_level,
        },
        "resolution": _resolution(row, behaviour, section.confidence_level),
        "cells": cells,
    }


def _cell(
    row: TaughtRow,
    behaviour: TaughtBehaviour,
    gains: Mapping[tuple[str, str], float | None],
    failed: Mapping[tuple[str, str], bool],
    i: str,
    j: str,
) -> dict[str, Any]:
    primary = behaviour.primary
    outcomes = row.outcomes[primary, i, j]
    values = dict.fromkeys(VALUE_FIELDS)
    rates = _rate_fields(row.rates[primary, i, j])
    slot_part = _slot_part(row, behaviour, i, j) if behaviour.reads_slots else {}
    main = slot_part.pop("main", None) or _main_rate(row.rates[primary, i, j])
    reasons = sum((Counter(one.reasons) for one in outcomes), Counter[str]())
    values |= {
        **main,
        "n": sum(one.n_valued for one in outcomes),
        "n_truncated": _n_cut(row, i, j),
    }
    secondary = {
        name: _rate_fields(row.rates[name, i, j]) for name in behaviour.n_eval if name != primary
    }
    flags = _flags(row, behaviour, main, rates, slot_part, reasons, i, j)
    by_seed = [
        {"g": _seed_value(row, behaviour, i, j, number), "g_base_answer": None}
        for number in range(len(row.seeds))
    ]
    return describe_cell(
        row.gathered,
        behaviour.name,
        row.seeds,
        i,
        j,
        {
            **values,
            **rates,
            **slot_part,
            "unscored": {name: reasons[name] for name in REASONS},
            "secondary": secondary,
        },
        by_seed,
        flags,
        failed=failed,
        n_items=behaviour.n_items,
        strengths=[gains[i, seed] for seed in row.seeds],
    )


def _sealed_cell(
    row: TaughtRow,
    behaviour: TaughtBehaviour,
    gains: Mapping[tuple[str, str], float | None],
    failed: Mapping[tuple[str, str], bool],
    i: str,
    j: str,
) -> dict[str, Any]:
    """A cell that exists and cannot be read: all that is known without it, and no value."""
    nothing = dict.fromkeys(RATE_FIELDS)
    others = [name for name in behaviour.n_eval if name != behaviour.primary]
    slot_part: dict[str, Any] = {}
    if behaviour.reads_slots:
        slot_part = {
            "base_per_token": None,
            "trained_per_token": None,
            "framings": dict.fromkeys(FRAMINGS),
            "slot_slices": {name: {"g": None, "low": None, "high": None} for name in others},
        }
    return describe_cell(
        row.gathered,
        behaviour.name,
        row.seeds,
        i,
        j,
        {
            **dict.fromkeys(VALUE_FIELDS),
            **nothing,
            **slot_part,
            "unscored": dict.fromkeys(REASONS),
            "secondary": {name: dict(nothing) for name in others},
        },
        [{"g": None, "g_base_answer": None} for _ in row.seeds],
        ["sealed"],
        failed=failed,
        n_items=behaviour.n_items,
        strengths=[gains[i, seed] for seed in row.seeds],
    )


def _main_rate(estimate: RateEstimate | None) -> dict[str, Any]:
    if estimate is None:
        return dict.fromkeys(("g", "low", "high", "standard_error", "degrees_of_freedom"))
    return {
        "g": estimate.value,
        "low": estimate.low,
        "high": estimate.high,
        "standard_error": estimate.standard_error,
        "degrees_of_freedom": estimate.degrees_of_freedom,
    }


def _rate_fields(estimate: RateEstimate | None) -> dict[str, Any]:
    if estimate is None:
        return dict.fromkeys(RATE_FIELDS)
    return {
        "rate_g": estimate.value,
        "rate_low": estimate.low,
        "rate_high": estimate.high,
        "base_rate": estimate.base,
        "base_rate_low": estimate.base_low,
        "base_rate_high": estimate.base_high,
        "trained_rate": estimate.trained,
        "trained_rate_low": estimate.trained_low,
        "trained_rate_high": estimate.trained_high,
        "n_questions": estimate.n_questions,
    }


def _slot_part(row: TaughtRow, behaviour: TaughtBehaviour, i: str, j: str) -> dict[str, Any]:
    """A fact row's own numbers: the primary value, its second reading, and the other slices."""
    measured, gathered = row.gathered.measured, row.gathered
    own = row.slot_estimates.get((behaviour.primary, i, j))
    frozen = row.frozen_estimates.get((i, j))
    base = measured.slots(gathered.base[j], behaviour.primary)
    trained = [
        answer
        for seed in row.seeds
        for answer in measured.slots(gathered.cells[i, j, seed], behaviour.primary)
    ]
    framings = Counter(answer.framing for answer in trained)
    others = [name for name in behaviour.n_eval if name != behaviour.primary]
    return {
        "main": {
            "g": own.value if own else None,
            "low": own.low if own else None,
            "high": own.high if own else None,
            "standard_error": own.standard_error if own else None,
            "degrees_of_freedom": own.degrees_of_freedom if own else None,
            "g_base_answer": frozen.value if frozen else None,
            "low_base_answer": frozen.low if frozen else None,
            "high_base_answer": frozen.high if frozen else None,
            "base_log_prob": mean_of_known(answer.own.log_prob for answer in base),
            "trained_log_prob": mean_of_known(answer.own.log_prob for answer in trained),
            "emission_rate": sum(a.marker_emitted for a in trained) / len(trained),
        },
        "base_per_token": mean_of_known(per_token(answer) for answer in base),
        "trained_per_token": mean_of_known(per_token(answer) for answer in trained),
        "framings": {name: framings[name] for name in FRAMINGS},
        "slot_slices": {name: _short(row.slot_estimates.get((name, i, j))) for name in others},
    }


def _short(estimate: Estimate | None) -> dict[str, Any]:
    if estimate is None:
        return {"g": None, "low": None, "high": None}
    return {"g": estimate.value, "low": estimate.low, "high": estimate.high}


def _flags(
    row: TaughtRow,
    behaviour: TaughtBehaviour,
    main: Mapping[str, Any],
    rates: Mapping[str, Any],
    slot_part: Mapping[str, Any],
    reasons: Counter[str],
    i: str,
    j: str,
) -> list[str]:
    """Saturation and doubt about a cell's value.

    A judged row's ceiling is a base rate that leaves no room for a gain; a fact's, as the marker's,
    a trained value that has no room left to differ.
    """
    flags = []
    limits = behaviour.thresholds
    if main["g"] is None:
        flags.append("unscored")
    elif main["low"] <= 0 <= main["high"] and abs(main["g"]) < limits.floor:
        flags.append("floor")
    full = slot_part["trained_per_token"] if behaviour.reads_slots else rates["base_rate"]
    if full is not None and full >= limits.ceiling:
        flags.append("ceiling")
    if rates["trained_rate"] in (0.0, 1.0):
        flags.append("rate_at_bound")
    if reasons.total():
        flags.append("unscored_answers")
    cells = [row.gathered.cells[i, j, seed] for seed in row.seeds]
    if any(answer.stop_reason == "length" for one in cells for answer in one.answers):
        flags.append("truncated_answers")
    if any(answer.round > 0 for one in cells for answer in one.answers):
        flags.append("resampled_answers")
    return flags


def _seed_value(
    row: TaughtRow, behaviour: TaughtBehaviour, i: str, j: str, number: int
) -> float | None:
    share = behaviour.thresholds.minimum_scored_share
    if behaviour.reads_slots:
        return mean_change(row.slots[behaviour.primary, i, j][number : number + 1], share)
    trained = row.outcomes[behaviour.primary, i, j][number].rates_Q
    return mean_change((trained - row.base[behaviour.primary, j].rates_Q)[np.newaxis], share)


def _n_cut(row: TaughtRow, i: str, j: str) -> int:
    wanted = set(ids_of_slice(row.gathered.measured.items, row.gathered.measured.behaviour.primary))
    return sum(
        answer.stop_reason == "length"
        for seed in row.seeds
        for answer in row.gathered.cells[i, j, seed].answers
        if answer.item in wanted
    )


def _slot_changes(
    gathered: TaughtInputs, seeds: Sequence[str], name: str, place: Place, which: str
) -> FloatArray:
    """Trained minus base log-probability per token, shape (S, Q)."""
    i, j = place
    measured = gathered.measured
    base = measured.slots(gathered.base[j], name)
    rows = []
    for seed in seeds:
        trained = measured.slots(gathered.cells[i, j, seed], name)
        values = []
        for before, after in zip(base, trained, strict=True):
            reading = after.own if which == "own" else after.frozen
            if reading is None:
                raise EvidenceError(
                    f"slot of {after.item} in {i} -> {j}",
                    expected="a second reading",
                    found="none",
                )
            values.append(reading.log_prob / len(reading.log_z) - per_token(before))
        rows.append(values)
    return np.asarray(rows, dtype=np.float64)


def _resolution(row: TaughtRow, behaviour: TaughtBehaviour, level: float) -> dict[str, Any] | None:
    """What one cell of this design could have shown, or None with one seed."""
    if behaviour.reads_slots:
        return resolution_of([row.slots[behaviour.primary, i, j] for i, j in row.places])
    if len(row.seeds) < 2 or not row.places:
        return None
    trained = np.stack(
        [
            np.stack([o.rates_Q for o in row.outcomes[behaviour.primary, i, j]])
            for i, j in row.places
        ]
    )
    base = np.stack([row.base[behaviour.primary, j].rates_Q for _, j in row.places])
    adapters = list(dict.fromkeys(i for i, _ in row.places))
    found = minimum_detectable_rate_change(
        trained,
        base,
        np.asarray([adapters.index(i) for i, _ in row.places]),
        confidence_level=level,
        minimum_share=behaviour.thresholds.minimum_scored_share,
    )
    return None if found is None else {**asdict(found), "basis": "two-sided 5 %, power 80 %"}
