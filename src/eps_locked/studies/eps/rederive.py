"""Re-deriving what an ``eps`` run claims, from stored readings: handed to the audit by the CLI.

Steps that called a model (answers, base, cells, fits) cannot be recomputed without one; of those
the parts that must agree with their inputs are checked. Steps that only computed are recomputed
whole and compared byte for byte (Parquet: value for value, since its bytes follow its writer).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eps_locked.audit.lineage import safetensors_metadata
from eps_locked.canonical import decode
from eps_locked.domain.execution import StepInputs
from eps_locked.domain.steps import Step
from eps_locked.lock.freeze import load_plan
from eps_locked.lock.seal import require_sealed
from eps_locked.lock.workspace import FrozenManifest, describe_artifact
from eps_locked.studies.common.prompts import RECORD_FILE
from eps_locked.studies.common.rederiver import Derived, Outputs, Rederiver, same_files
from eps_locked.studies.eps.analysis import TensorInputs, answer_flags, build_tensor
from eps_locked.studies.eps.baselines.rederive import derive_baseline
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
    rows_digest,
    sealed_contexts,
    stop_flags,
)
from eps_locked.studies.eps.plan import EpsPlan, TaughtBehaviour
from eps_locked.studies.eps.readings import READINGS_FILE, Readings
from eps_locked.studies.eps.recorded import recorded_differences
from eps_locked.studies.eps.taught.rederive import derive_taught
from eps_locked.studies.eps.tensor_check import tensor_differences


class EpsRederiver(Rederiver):
    """Callable for ``audit_run``. Parses the frozen plan once per distinct bytes."""

    def __init__(self) -> None:
        self._sections: dict[bytes, EpsPlan] = {}

    def manifest(self, frozen: FrozenManifest) -> list[str]:
        """Freeze again from the frozen plan and sources, with the rendering as recorded."""
        return recorded_differences(frozen)

    def derive(self, step: Step, inputs: StepInputs, outputs: Outputs) -> Derived | None:
        section = self._section(inputs.frozen("plan"))
        if section.baselines is not None and step.kind in BASELINE_KINDS:
            return derive_baseline(step, inputs, outputs, section, section.baselines)
        row = step.params.get("behaviour")
        if row is None or isinstance(section.behaviour(row), TaughtBehaviour):
            return derive_taught(step, inputs, outputs, section)
        match step.kind:
            case "answers" | "base":
                return self._answers(step, inputs, outputs)
            case "cells":
                return self._cells(step, inputs, outputs, section)
            case "headroom":
                expected = derived_headroom(step, inputs, section)
                differences = same_files("headroom", expected, outputs["headroom"])
                return differences, "done", headroom_flags(expected)
            case "fit":
                return _fit(step, inputs, outputs, section)
            case "match":
                expected = derived_match(step, inputs, section)
                return same_files("match", expected, outputs["match"]), "done", ()
            case "adapter":
                return _adapter(step, inputs, outputs, section)
            case "tensor":
                return self._tensor(step, inputs, outputs, section), "done", ()
        return None

    def _section(self, plan_bytes: bytes) -> EpsPlan:
        if plan_bytes not in self._sections:
            plan = load_plan(plan_bytes, thing="frozen/plan.yaml")
            self._sections[plan_bytes] = EpsPlan.of(plan)
        return self._sections[plan_bytes]

    def _answers(self, step: Step, inputs: StepInputs, outputs: Outputs) -> Derived:
        pool = "train" if step.kind == "answers" else "eval"
        readings = Readings.from_files(outputs[step.kind], step.id)
        differences = _heading(
            readings, step.params["behaviour"], step.params["context"], _items(inputs, pool)
        )
        if any(answer.frozen is not None for answer in readings.answers):
            differences.append("readings: expected one reading an answer, found a second")
        return differences, "done", tuple(answer_flags(readings.answers))

    def _cells(self, step: Step, inputs: StepInputs, outputs: Outputs, section: EpsPlan) -> Derived:
        """Every open cell against its base; of a sealed one, that it is sealed and to whom."""
        differences, readings, base = [], {}, {}
        items, sealed = _items(inputs, "eval"), sealed_contexts(step)
        for name, files in outputs.items():
            j = name.removeprefix("cell:")
            base[j] = Readings.from_files(inputs.artifact(f"base:{j}"), f"base:{j}")
            if j in sealed:
                require_sealed(files, inputs.frozen("recipients"), {READINGS_FILE})
                continue
            readings[j] = Readings.from_files(files, f"{step.id}#{name}")
            behaviour = step.params["behaviour"]
            differences += [
                f"{name}: {one}"
                for one in cell_differences(readings[j], base[j], behaviour, j, items)
            ]
        i = step.params["train"]
        status = cell_status(
            readings[i].answers,
            base[i].answers,
            section.marker(step.params["behaviour"]),
            section.flags.minimum_answered_share,
        )
        return differences, status, cells_flags(step, readings)

    def _tensor(
        self, step: Step, inputs: StepInputs, outputs: Outputs, section: EpsPlan
    ) -> list[str]:
        behaviour = section.marker(step.params["behaviour"])
        tensor = build_tensor(TensorInputs.gather(step, inputs), section, behaviour)
        return tensor_differences(tensor, outputs["tensor"])


def _items(inputs: StepInputs, pool: str) -> list[str]:
    return [item["id"] for item in decode(inputs.frozen("items"), thing="items.json")[pool]]


def cell_differences(
    readings: Readings, base: Readings, behaviour: str, context: str, items: list[str]
) -> list[str]:
    """One reading after the model's own answer and one after the base's, equal where those are."""
    differences = _heading(readings, behaviour, context, items)
    for mine, theirs in zip(readings.answers, base.answers, strict=False):
        if mine.frozen is None:
            differences.append(f"{mine.item}: expected a second reading, found none")
        elif mine.token_ids == theirs.token_ids and mine.frozen != mine.own:
            differences.append(f"{mine.item}: one answer, but two readings of its slot")
    return differences


def _heading(readings: Readings, behaviour: str, context: str, items: list[str]) -> list[str]:
    """Items are the frozen ones in order, under this context and behaviour."""
    differences = []
    if [answer.item for answer in readings.answers] != items:
        differences.append("items: expected the frozen ones in order, found others")
    for name, expected, found in (
        ("context", context, readings.context),
        ("behaviour", behaviour, readings.behaviour),
    ):
        if expected != found:
            differences.append(f"{name}: expected {expected}, found {found}")
    return differences


def _fit(step: Step, inputs: StepInputs, outputs: Outputs, section: EpsPlan) -> Derived:
    """Deferred exactly where the headroom says so; else the record names the adapter beside it."""
    files = dict(outputs["fit"])
    record = decode(files.pop(RECORD_FILE), thing="fit record")
    headroom = decode(inputs.artifact("headroom")[RECORD_FILE], thing="headroom")
    deferred = step.params["context"] in headroom["unreachable"]
    if record["deferred"] is not deferred:
        return [f"deferred: expected {deferred}, found {record['deferred']}"], "done", ()
    if deferred:
        differences = ["fit: expected no adapter yet, found one"] if files else []
        return differences, "done", DEFERRED_FLAGS
    differences = _names_adapter(record, files)
    differences += _rows(step, inputs, outputs["fit"], section)
    return differences, "done", stop_flags(record["stop"])


def _adapter(step: Step, inputs: StepInputs, outputs: Outputs, section: EpsPlan) -> Derived:
    """A banded fit is handed on unchanged; a deferred one was trained for the matched steps."""
    fit = dict(inputs.artifact("fit"))
    record = decode(fit.pop(RECORD_FILE), thing="fit record")
    final = decode(outputs["record"][RECORD_FILE], thing="record")
    differences = _names_adapter(final, outputs["adapter"])
    if record["deferred"]:
        matched = decode(inputs.artifact("match")[RECORD_FILE], thing="match")["matched_step"]
        if final["stop_step"] != matched:
            differences.append(f"stop_step: expected {matched}, found {final['stop_step']}")
        differences += _rows(step, inputs, outputs["adapter"], section, final)
        return differences, "done", MATCHED_FLAGS
    flags = stop_flags(record["stop"])
    differences += same_files("adapter", fit, outputs["adapter"])
    differences += same_files("record", final_record(record, flags), outputs["record"])
    return differences, "done", flags


def _rows(
    step: Step,
    inputs: StepInputs,
    files: Mapping[str, bytes],
    section: EpsPlan,
    record: Mapping[str, Any] | None = None,
) -> list[str]:
    """The rows the record and the adapter name are those that prompts, answers and plan give."""
    if record is None:
        record = decode(files[RECORD_FILE], thing="fit record")
    behaviour = section.marker(step.params["behaviour"])
    expected = rows_digest(derived_rows(step, inputs, section, behaviour))
    header = safetensors_metadata(files["adapter_model.safetensors"], thing=step.id)
    return [
        f"{where}: expected training rows {expected}, found {found}"
        for where, found in (("record.rows", record["rows"]), ("adapter", header.get("rows")))
        if found != expected
    ]


def _names_adapter(record: Mapping[str, Any], files: Mapping[str, bytes]) -> list[str]:
    digest = describe_artifact(files).digest
    if record["adapter"] == digest:
        return []
    return [f"record.adapter: expected {digest}, found {record['adapter']}"]
