"""From stored readings to the tensor G[b, i -> j], and from the tensor to tables.

Pure functions of frozen documents and artifacts: the run's last step and the auditor call the same
ones, the auditor on bytes it has hashed itself.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from eps_locked.canonical import decode, encode
from eps_locked.domain.execution import StepInputs
from eps_locked.domain.steps import Step
from eps_locked.errors import EvidenceError
from eps_locked.stats.bootstrap import standard_error_pooled_over_cells
from eps_locked.stats.resolution import minimum_detectable_effect
from eps_locked.studies.eps.cell_record import describe_cell, gather_records, mean_of_known
from eps_locked.studies.eps.estimates import (
    Estimate,
    FloatArray,
    Pair,
    Place,
    changes,
    mean_change,
    pair_answers,
    row_estimates,
)
from eps_locked.studies.eps.plan import EpsPlan, FlagRules, MarkerBehaviour, Slots
from eps_locked.studies.eps.readings import Answer, Readings

TENSOR_FILE = "tensor.json"
PARQUET_FILE = "tensor.parquet"
TENSOR_SCHEMA = "eps-locked/eps-tensor/1"
# By whether there are two seeds or more.
INTERVAL_METHODS = {
    True: "t, seed variance pooled over the row's cells, Satterthwaite degrees of freedom",
    False: "t over questions, for this one seed alone",
}
# What only the readings tell; null in a sealed cell.
VALUE_FIELDS = (
    "g",
    "low",
    "high",
    "standard_error",
    "degrees_of_freedom",
    "g_base_answer",
    "low_base_answer",
    "high_base_answer",
    "base_log_prob",
    "trained_log_prob",
    "first_token_change",
    "margin_change",
    "emission_rate",
    "n",
    "n_truncated",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class TensorInputs:
    """Everything the tensor is made of, parsed, and the digest of every ancestor.

    Keys: ``base`` by eval context, ``cells`` by (train, eval, seed), ``records`` by (train, seed).
    A sealed cell stands in ``digests`` but not in ``cells``: nobody here can read it.
    """

    contexts: Mapping[str, Any]
    split: Mapping[str, Any]
    headroom: Mapping[str, Any]
    base: Mapping[str, Readings]
    cells: Mapping[tuple[str, str, str], Readings]
    records: Mapping[tuple[str, str], Mapping[str, Any]]
    digests: Mapping[str, str]

    @classmethod
    def gather(cls, step: Step, inputs: StepInputs) -> TensorInputs:
        """Read the inputs of a ``tensor`` step by the names the freeze gave them."""
        base, cells, records, digests = gather_records(step, inputs, Readings.from_files)
        return cls(
            contexts=decode(inputs.frozen("contexts"), thing="contexts"),
            split=decode(inputs.frozen("split"), thing="split"),
            headroom=decode(inputs.artifact("headroom")["record.json"], thing="headroom"),
            base=base,
            cells=cells,
            records=records,
            digests=digests,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """Every readable cell of a behaviour: its differences (S, Q), and what they come to."""

    own: Mapping[Place, FloatArray]
    frozen: Mapping[Place, FloatArray]
    own_estimates: Mapping[Place, Estimate]
    frozen_estimates: Mapping[Place, Estimate]

    @classmethod
    def read(
        cls, gathered: TensorInputs, section: EpsPlan, slots: Slots, seeds: Sequence[str]
    ) -> Row:
        own: dict[Place, FloatArray] = {}
        frozen: dict[Place, FloatArray] = {}
        for i in slots.train:
            for j in slots.eval:
                if (i, j, seeds[0]) in gathered.cells:
                    pairs = [_pairs(gathered, i, j, seed) for seed in seeds]
                    own[i, j], frozen[i, j] = changes(pairs, "own"), changes(pairs, "frozen")
        share, level = section.flags.minimum_answered_share, section.confidence_level
        return cls(
            own=own,
            frozen=frozen,
            own_estimates=row_estimates(own, share, level),
            frozen_estimates=row_estimates(frozen, share, level),
        )


def build_tensor(
    gathered: TensorInputs, section: EpsPlan, behaviour: MarkerBehaviour
) -> dict[str, Any]:
    """The tensor document. Values in nats; G is trained minus base, each after its own answer."""
    seeds = tuple(dict.fromkeys(seed for _, seed in gathered.records))
    slots = section.slots.of(behaviour)
    failed = _failed_implants(gathered, section, behaviour, seeds)
    row = Row.read(gathered, section, slots, seeds)
    cells = [
        _cell(gathered, section, behaviour, seeds, failed, row, i, j)
        if (i, j, seeds[0]) in gathered.cells
        else _sealed_cell(gathered, section, behaviour, seeds, failed, i, j)
        for i in slots.train
        for j in slots.eval
    ]
    return {
        "schema": TENSOR_SCHEMA,
        "behaviour": behaviour.name,
        "kind": behaviour.kind,
        "unit": "nats",
        "primary_reading": "own_answer",
        "second_reading": "base_answer",
        "n_seeds": len(seeds),
        "n_items": section.n_eval_items,
        "train": list(slots.train),
        "eval": list(slots.eval),
        "held_out": list(slots.held_out),
        "near_duplicates": [list(group) for group in slots.near_duplicates],
        "intervals": {
            "method": INTERVAL_METHODS[len(seeds) > 1],
            "confidence_level": section.confidence_level,
        },
        "resolution": resolution_of(row.own.values()),
        "cells": cells,
    }


def tensor_files(tensor: Mapping[str, Any]) -> dict[str, bytes]:
    """The artifact: the canonical document, and the same cells as a Parquet table."""
    return {TENSOR_FILE: encode(tensor), PARQUET_FILE: parquet_bytes(tensor)}


def flat_rows(tensor: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One flat row per cell for tables: lists joined, mappings one column a key, per-seed values
    left to the JSON."""
    rows = []
    for cell in tensor["cells"]:
        row = {"behaviour": tensor["behaviour"]}
        for key, value in cell.items():
            if key not in ("ancestors", "by_seed"):
                row |= _columns(key, value)
        rows.append(row)
    return rows


def _columns(key: str, value: Any) -> dict[str, Any]:
    if isinstance(value, Mapping):
        found: dict[str, Any] = {}
        for name, inner in value.items():
            found |= _columns(f"{key}_{name}", inner)
        return found
    return {key: " ".join(value) if isinstance(value, list) else value}


def parquet_bytes(tensor: Mapping[str, Any]) -> bytes:
    """The cells as Parquet. Its bytes depend on the pyarrow version; its values do not."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(flat_rows(tensor)), sink, compression="none")
    return sink.getvalue()


def parquet_rows(data: bytes) -> list[dict[str, Any]]:
    """The rows of a Parquet table, for comparison by value. Raises EvidenceError if it is none."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        rows: list[dict[str, Any]] = pq.read_table(io.BytesIO(data)).to_pylist()
    except (pa.ArrowException, OSError) as error:
        raise EvidenceError(
            PARQUET_FILE, problem=f"is no Parquet table ({' '.join(str(error).split())[:200]})"
        ) from error
    return rows


def _cell(
    gathered: TensorInputs,
    section: EpsPlan,
    behaviour: MarkerBehaviour,
    seeds: Sequence[str],
    failed: Mapping[tuple[str, str], bool],
    row: Row,
    i: str,
    j: str,
) -> dict[str, Any]:
    by_seed = [_pairs(gathered, i, j, seed) for seed in seeds]
    own_SQ, frozen_SQ = row.own[i, j], row.frozen[i, j]
    share = section.flags.minimum_answered_share
    own, frozen = row.own_estimates.get((i, j)), row.frozen_estimates.get((i, j))
    pairs = [pair for pairs in by_seed for pair in pairs]
    counted = [pair for pair in pairs if pair.has_slots("own")]
    trained_log_prob = mean_of_known(pair.trained.own.log_prob for pair in counted)
    first_token_change = mean_of_known(pair.first_token_change() for pair in counted)
    margin_change = mean_of_known(pair.margin_change() for pair in counted)
    flags = _value_flags(section.flags, own, trained_log_prob, first_token_change, margin_change)
    flags += answer_flags([pair.trained for pair in pairs])
    if len(counted) < len(pairs):
        flags.append("truncated_answers")
    values = {
        "g": own.value if own else None,
        "low": own.low if own else None,
        "high": own.high if own else None,
        "standard_error": own.standard_error if own else None,
        "degrees_of_freedom": own.degrees_of_freedom if own else None,
        "g_base_answer": frozen.value if frozen else None,
        "low_base_answer": frozen.low if frozen else None,
        "high_base_answer": frozen.high if frozen else None,
        "base_log_prob": mean_of_known(pair.base.own.log_prob for pair in counted),
        "trained_log_prob": trained_log_prob,
        "first_token_change": first_token_change,
        "margin_change": margin_change,
        "emission_rate": sum(pair.trained.marker_emitted for pair in pairs) / len(pairs),
        "n": len(counted),
        "n_truncated": len(pairs) - len(counted),
    }
    seed_values = [
        {
            "g": mean_change(own_SQ[number : number + 1], share),
            "g_base_answer": mean_change(frozen_SQ[number : number + 1], share),
        }
        for number in range(len(seeds))
    ]
    return describe_cell(
        gathered,
        behaviour.name,
        seeds,
        i,
        j,
        values,
        seed_values,
        flags,
        failed=failed,
        n_items=section.n_eval_items,
    )


def _sealed_cell(
    gathered: TensorInputs,
    section: EpsPlan,
    behaviour: MarkerBehaviour,
    seeds: Sequence[str],
    failed: Mapping[tuple[str, str], bool],
    i: str,
    j: str,
) -> dict[str, Any]:
    """A cell that exists and cannot be read: all that is known without it, and no value."""
    values = dict.fromkeys(VALUE_FIELDS)
    by_seed: list[dict[str, Any]] = [{"g": None, "g_base_answer": None} for _ in seeds]
    return describe_cell(
        gathered,
        behaviour.name,
        seeds,
        i,
        j,
        values,
        by_seed,
        ["sealed"],
        failed=failed,
        n_items=section.n_eval_items,
    )


def _pairs(gathered: TensorInputs, i: str, j: str, seed: str) -> tuple[Pair, ...]:
    return pair_answers(
        gathered.base[j].answers, gathered.cells[i, j, seed].answers, f"cell {i} -> {j} {seed}"
    )


def implant_failed(pairs: Sequence[Pair], behaviour: MarkerBehaviour, share: float) -> bool:
    """The manipulation check on a diagonal cell: an implant that cannot be shown has failed."""
    strength = mean_change(changes([pairs], "own"), share)
    return strength is None or strength < behaviour.implant_threshold


def answer_flags(answers: Sequence[Answer]) -> list[str]:
    """What a reader must know about the answers themselves."""
    flags = []
    if any(answer.stop_reason == "length" for answer in answers):
        flags.append("truncated_answers")
    if any(answer.marker_emitted for answer in answers):
        flags.append("marker_emitted")
    return flags


def _value_flags(
    rules: FlagRules,
    own: Estimate | None,
    trained_log_prob: float | None,
    first_token_change: float | None,
    margin_change: float | None,
) -> list[str]:
    """Saturation and doubt about a cell's value.

    Divergence compares like with like: both numbers are of the marker's first token at the slot,
    one with log Z and one without. ``later_tokens`` says that a marker of several tokens gained
    more in the tokens after the first, given the first, than at the slot itself.
    """
    if (
        own is None
        or trained_log_prob is None
        or first_token_change is None
        or margin_change is None
    ):
        return ["unscored"]
    flags = []
    if trained_log_prob >= rules.ceiling_log_prob:
        flags.append("ceiling")
    if own.low <= 0 <= own.high and abs(own.value) < rules.floor_delta:
        flags.append("floor")
    if abs(first_token_change - margin_change) > rules.divergence_nats:
        flags.append("divergence")
    if abs(own.value - first_token_change) > abs(first_token_change):
        flags.append("later_tokens")
    return flags


def _failed_implants(
    gathered: TensorInputs, section: EpsPlan, behaviour: MarkerBehaviour, seeds: Sequence[str]
) -> dict[tuple[str, str], bool]:
    share = section.flags.minimum_answered_share
    return {
        (i, seed): implant_failed(_pairs(gathered, i, i, seed), behaviour, share)
        for i in section.slots.of(behaviour).train
        for seed in seeds
    }


def resolution_of(values: Iterable[FloatArray]) -> dict[str, Any] | None:
    """What one cell of this design could have shown.

    From the cells in which every answer to every question could be read. None with one seed or no
    such cell: the variance between seeds is then unknown.
    """
    complete = [values_SQ for values_SQ in values if not np.isnan(values_SQ).any()]
    if not complete or len(complete[0]) < 2:
        return None
    pooled = standard_error_pooled_over_cells(np.stack(complete))
    error = pooled.standard_error
    return {
        "standard_error": error,
        "minimum_detectable_effect": minimum_detectable_effect(error) if error > 0 else None,
        "seed_variance": pooled.seed_variance,
        "question_variance": pooled.question_variance,
        "residual_variance": pooled.residual_variance,
        "n_cells": pooled.n_cells,
        "basis": "two-sided 5 %, power 80 %, variances pooled over the cells read in full",
    }
