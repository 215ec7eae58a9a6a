"""From stored readings to the tensor G[b, i -> j], and from the tensor to tables.

Pure functions of frozen documents and artifacts: the run's last step and the auditor call the same
ones, the auditor on bytes it has hashed itself.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from eps_locked.canonical import decode, encode
from eps_locked.domain.execution import StepInputs
from eps_locked.domain.model import SlotReading
from eps_locked.domain.steps import Step
from eps_locked.errors import EvidenceError
from eps_locked.stats.bootstrap import (
    crossed_bootstrap_interval,
    generator_from_digest,
    standard_error_pooled_over_cells,
)
from eps_locked.stats.resolution import minimum_detectable_effect
from eps_locked.studies.eps.plan import EpsPlan, FlagRules, MarkerBehaviour
from eps_locked.studies.eps.readings import Answer, Readings

TENSOR_FILE = "tensor.json"
PARQUET_FILE = "tensor.parquet"
TENSOR_SCHEMA = "eps-locked/eps-tensor/1"
# Cells carrying one of these take no part in scoring unless a sensitivity table says so.
EXCLUDING_FLAGS = ("floor", "ceiling", "implant_failed", "divergence", "alias")

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True)
class TensorInputs:
    """Everything the tensor is made of, parsed, and the digest of every ancestor.

    Keys: ``base`` by eval context, ``cells`` by (train, eval, seed), ``records`` by (train, seed).
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
        base, cells, records, digests = {}, {}, {}, {}
        for name in step.inputs:
            kind, _, rest = name.partition(":")
            if not rest:
                continue
            digests[name] = inputs.artifact_digest(name)
            files = inputs.artifact(name)
            if kind == "base":
                base[rest] = Readings.from_files(files, name)
            elif kind == "cell":
                i, j, seed = rest.split("/")
                cells[i, j, seed] = Readings.from_files(files, name)
            else:
                i, seed = rest.split("/")
                records[i, seed] = decode(files["record.json"], thing=name)
        return cls(
            contexts=decode(inputs.frozen("contexts"), thing="contexts"),
            split=decode(inputs.frozen("split"), thing="split"),
            headroom=decode(inputs.artifact("headroom")["record.json"], thing="headroom"),
            base=base,
            cells=cells,
            records=records,
            digests=digests,
        )


def build_tensor(
    gathered: TensorInputs, section: EpsPlan, behaviour: MarkerBehaviour
) -> dict[str, Any]:
    """The tensor document. Values in nats; G is trained minus base, each after its own answer."""
    seeds = tuple(dict.fromkeys(seed for _, _, seed in gathered.cells))
    failed = _failed_implants(gathered, section, behaviour, seeds)
    cells = [
        _cell(gathered, section, behaviour, seeds, failed, i, j)
        for i in section.slots.train
        for j in section.slots.eval
    ]
    return {
        "schema": TENSOR_SCHEMA,
        "behaviour": behaviour.name,
        "unit": "nats",
        "primary_reading": "own_answer",
        "second_reading": "base_answer",
        "n_seeds": len(seeds),
        "n_items": section.n_eval_items,
        "train": list(section.slots.train),
        "eval": list(section.slots.eval),
        "held_out": list(section.slots.held_out),
        "bootstrap": {
            "method": "percentile, seeds x questions crossed",
            "n_resamples": section.bootstrap.n_resamples,
            "confidence_level": section.bootstrap.confidence_level,
        },
        "resolution": _resolution(gathered, section, seeds),
        "cells": cells,
    }


def tensor_files(tensor: Mapping[str, Any]) -> dict[str, bytes]:
    """The artifact: the canonical document, and the same cells as a Parquet table."""
    return {TENSOR_FILE: encode(tensor), PARQUET_FILE: parquet_bytes(tensor)}


def flat_rows(tensor: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One flat row per cell for tables: lists joined, per-seed values left to the JSON."""
    rows = []
    for cell in tensor["cells"]:
        row = {"behaviour": tensor["behaviour"]}
        for key, value in cell.items():
            if key == "ancestors" or key == "by_seed":
                continue
            row[key] = " ".join(value) if isinstance(value, list) else value
        rows.append(row)
    return rows


def parquet_bytes(tensor: Mapping[str, Any]) -> bytes:
    """The cells as Parquet. Its bytes depend on the pyarrow version; its values do not."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(flat_rows(tensor)), sink, compression="none")
    return sink.getvalue()


def parquet_rows(data: bytes) -> list[dict[str, Any]]:
    """The rows of a Parquet table, for comparison by value."""
    import pyarrow.parquet as pq

    rows: list[dict[str, Any]] = pq.read_table(io.BytesIO(data)).to_pylist()
    return rows


def _cell(
    gathered: TensorInputs,
    section: EpsPlan,
    behaviour: MarkerBehaviour,
    seeds: Sequence[str],
    failed: Mapping[tuple[str, str], bool],
    i: str,
    j: str,
) -> dict[str, Any]:
    own_SQ = _deltas(gathered, i, j, seeds, reading="own")
    frozen_SQ = _deltas(gathered, i, j, seeds, reading="frozen")
    rules = section.bootstrap
    rng = generator_from_digest(str(rules.seed), "tensor", behaviour.name, i, j)
    interval = crossed_bootstrap_interval(
        own_SQ,
        rng=rng,
        n_resamples=rules.n_resamples,
        confidence_level=rules.confidence_level,
    )
    rng = generator_from_digest(str(rules.seed), "tensor-base-answer", behaviour.name, i, j)
    second = crossed_bootstrap_interval(
        frozen_SQ,
        rng=rng,
        n_resamples=rules.n_resamples,
        confidence_level=rules.confidence_level,
    )
    base = [answer.own for answer in gathered.base[j].answers]
    trained = [answer.own for s in seeds for answer in gathered.cells[i, j, s].answers]
    margin_change = _mean(map(_margin, trained)) - _mean(map(_margin, base))
    g = float(own_SQ.mean())
    contexts = gathered.contexts["contexts"]
    records = [gathered.records[i, s] for s in seeds]
    flags = _flags(
        section.flags, g, interval.low, interval.high, trained, margin_change, own_SQ.shape[1]
    )
    answers = [answer for s in seeds for answer in gathered.cells[i, j, s].answers]
    flags += _answer_flags(answers)
    if any(failed[i, s] for s in seeds):
        flags.append("implant_failed")
    if i in gathered.headroom["unreachable"]:
        flags.append("band_unreachable")
    if contexts[j]["alias_of"] is not None:
        flags.append("alias")
    return {
        "train": i,
        "eval": j,
        "train_family": contexts[i]["family"],
        "eval_family": contexts[j]["family"],
        "split": gathered.split["cells"][f"{behaviour.name}/{i}/{j}"],
        "g": g,
        "low": interval.low,
        "high": interval.high,
        "g_base_answer": float(frozen_SQ.mean()),
        "low_base_answer": second.low,
        "high_base_answer": second.high,
        "base_log_prob": _mean(reading.log_prob for reading in base),
        "trained_log_prob": _mean(reading.log_prob for reading in trained),
        "margin_change": margin_change,
        "emission_rate": sum(answer.marker_emitted for answer in answers) / len(answers),
        "n": int(own_SQ.size),
        "n_seeds": len(seeds),
        "n_items": int(own_SQ.shape[1]),
        "prefix_tokens": contexts[j]["prefix_tokens"],
        "alias_of": contexts[j]["alias_of"],
        "realised_strength": _mean(record["realised_strength"] for record in records),
        "flags": sorted(set(flags)),
        "scored": not set(flags) & set(EXCLUDING_FLAGS),
        "by_seed": [
            {
                "seed": int(seed.removeprefix("s")),
                "g": float(own_SQ[number].mean()),
                "g_base_answer": float(frozen_SQ[number].mean()),
                "stop_step": record["stop_step"],
                "stop": record["stop"],
                "realised_strength": record["realised_strength"],
                "implant_failed": failed[i, seed],
            }
            for number, (seed, record) in enumerate(zip(seeds, records, strict=True))
        ],
        "ancestors": {
            "base": gathered.digests[f"base:{j}"],
            "cells": [gathered.digests[f"cell:{i}/{j}/{seed}"] for seed in seeds],
            "records": [gathered.digests[f"record:{i}/{seed}"] for seed in seeds],
            "adapters": [record["adapter"] for record in records],
            "rows": [record["rows"] for record in records],
        },
    }


def _deltas(
    gathered: TensorInputs, i: str, j: str, seeds: Sequence[str], *, reading: str
) -> FloatArray:
    """Trained minus base, shape (seeds, questions), questions in the frozen order."""
    base = {answer.item: answer.own.log_prob for answer in gathered.base[j].answers}
    rows = []
    for seed in seeds:
        answers = gathered.cells[i, j, seed].answers
        if [answer.item for answer in answers] != list(base):
            raise EvidenceError(
                f"cell {i} -> {j} {seed}", expected="the base's items in order", found="others"
            )
        rows.append([_reading(a, reading).log_prob - base[a.item] for a in answers])
    return np.asarray(rows, dtype=np.float64)


def _reading(answer: Answer, which: str) -> SlotReading:
    if which == "own":
        return answer.own
    if answer.frozen is None:
        raise EvidenceError(f"answer {answer.item}", expected="a second reading", found="none")
    return answer.frozen


def _margin(reading: SlotReading) -> float:
    """Marker logit over end-of-turn logit at the slot: free of log Z."""
    return reading.marker_logits[0] - reading.end_of_turn_logit


def _flags(
    rules: FlagRules,
    g: float,
    low: float,
    high: float,
    trained: Sequence[SlotReading],
    margin_change: float,
    n_items: int,
) -> list[str]:
    flags = []
    if _mean(reading.log_prob for reading in trained) >= rules.ceiling_log_prob:
        flags.append("ceiling")
    if low <= 0 <= high and abs(g) < rules.floor_delta:
        flags.append("floor")
    if abs(g - margin_change) > rules.divergence_nats:
        flags.append("divergence")
    return flags


def _answer_flags(answers: Sequence[Answer]) -> list[str]:
    flags = []
    if any(answer.stop_reason == "length" for answer in answers):
        flags.append("truncated_answers")
    if any(answer.marker_emitted for answer in answers):
        flags.append("marker_emitted")
    return flags


def _failed_implants(
    gathered: TensorInputs, section: EpsPlan, behaviour: MarkerBehaviour, seeds: Sequence[str]
) -> dict[tuple[str, str], bool]:
    """The manipulation check: did the diagonal cell reach the threshold, for each (train, seed)?"""
    failed = {}
    for i in section.slots.train:
        for seed in seeds:
            strength = float(_deltas(gathered, i, i, (seed,), reading="own").mean())
            failed[i, seed] = strength < behaviour.implant_threshold
    return failed


def _resolution(
    gathered: TensorInputs, section: EpsPlan, seeds: Sequence[str]
) -> dict[str, Any] | None:
    """What one cell of this design could have shown; None where one seed leaves it undefined."""
    if len(seeds) < 2:
        return None
    values_CSQ = np.stack(
        [
            _deltas(gathered, i, j, seeds, reading="own")
            for i in section.slots.train
            for j in section.slots.eval
        ]
    )
    pooled = standard_error_pooled_over_cells(values_CSQ)
    error = pooled.standard_error
    return {
        "standard_error": error,
        "minimum_detectable_effect": minimum_detectable_effect(error) if error > 0 else None,
        "seed_variance": pooled.seed_variance,
        "question_variance": pooled.question_variance,
        "residual_variance": pooled.residual_variance,
        "n_cells": pooled.n_cells,
        "basis": "two-sided 5 %, power 80 %, variances pooled over the cells of the row",
    }


def _mean(values: Any) -> float:
    numbers = [float(value) for value in values]
    return sum(numbers) / len(numbers)
