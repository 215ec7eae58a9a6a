"""Re-deriving what an ``eps`` run claims, from stored readings: handed to the audit by the CLI.

Steps that called a model (answers, base, cells, fits) cannot be recomputed without one; of those
the parts that must agree with their inputs are checked. Steps that only computed are recomputed
whole and compared byte for byte (Parquet: value for value, since its bytes follow its writer).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from eps_locked.canonical import decode
from eps_locked.domain.execution import StepInputs
from eps_locked.domain.steps import Step
from eps_locked.errors import EpsLockedError
from eps_locked.lock.freeze import load_plan
from eps_locked.studies.eps.analysis import (
    PARQUET_FILE,
    TENSOR_FILE,
    TensorInputs,
    build_tensor,
    flat_rows,
    parquet_rows,
    tensor_files,
)
from eps_locked.studies.eps.execute import RECORD_FILE, derived_headroom, derived_match
from eps_locked.studies.eps.plan import EpsPlan
from eps_locked.studies.eps.readings import Readings

Outputs = Mapping[str, Mapping[str, bytes]]


class EpsRederiver:
    """Callable for ``audit_run``. Parses the frozen plan once per distinct bytes."""

    def __init__(self) -> None:
        self._sections: dict[bytes, EpsPlan] = {}

    def __call__(self, step: Step, inputs: StepInputs, outputs: Outputs) -> Iterable[str] | None:
        section = self._section(inputs.frozen("plan"))
        try:
            match step.kind:
                case "answers" | "base":
                    return self._readings(step, inputs, outputs, step.kind)
                case "cell":
                    return self._readings(step, inputs, outputs, "cell")
                case "headroom":
                    expected = derived_headroom(step, inputs, section)
                    return _same_files("headroom", expected, outputs["headroom"])
                case "match":
                    expected = derived_match(step, inputs, section)
                    return _same_files("match", expected, outputs["match"])
                case "adapter":
                    return _adapter(inputs, outputs)
                case "tensor":
                    return self._tensor(step, inputs, outputs, section)
        except EpsLockedError as error:
            return [str(error)]
        return None

    def _section(self, plan_bytes: bytes) -> EpsPlan:
        if plan_bytes not in self._sections:
            plan = load_plan(plan_bytes, thing="frozen/plan.yaml")
            self._sections[plan_bytes] = EpsPlan.from_section(plan.study_section)
        return self._sections[plan_bytes]

    def _readings(self, step: Step, inputs: StepInputs, outputs: Outputs, output: str) -> list[str]:
        """Items are the frozen ones in order; each log-prob is what its logits and log Z give."""
        readings = Readings.from_files(outputs[output], step.id)
        pool = "train" if step.kind == "answers" else "eval"
        items = [i["id"] for i in decode(inputs.frozen("items"), thing="items.json")[pool]]
        context = step.params["eval" if step.kind == "cell" else "context"]
        differences = []
        if [answer.item for answer in readings.answers] != items:
            differences.append("items: expected the frozen ones in order, found others")
        for name, expected, found in (
            ("context", context, readings.context),
            ("behaviour", step.params["behaviour"], readings.behaviour),
        ):
            if expected != found:
                differences.append(f"{name}: expected {expected}, found {found}")
        return differences

    def _tensor(
        self, step: Step, inputs: StepInputs, outputs: Outputs, section: EpsPlan
    ) -> list[str]:
        behaviour = section.behaviour(step.params["behaviour"])
        tensor = build_tensor(TensorInputs.gather(step, inputs), section, behaviour)
        recomputed, stored = tensor_files(tensor), outputs["tensor"]
        differences = []
        if recomputed[TENSOR_FILE] != stored.get(TENSOR_FILE):
            differences += _tensor_differences(
                tensor, decode(stored[TENSOR_FILE], thing=TENSOR_FILE)
            )
        if flat_rows(tensor) != parquet_rows(stored[PARQUET_FILE]):
            differences.append(f"{PARQUET_FILE}: holds other values than {TENSOR_FILE}")
        return differences


def _tensor_differences(expected: Mapping[str, Any], found: Mapping[str, Any]) -> list[str]:
    """Names the first cells and fields that differ; always at least one sentence."""
    differences = []
    for mine, theirs in zip(expected["cells"], found.get("cells", ()), strict=False):
        for key, value in mine.items():
            if theirs.get(key) != value:
                differences.append(
                    f"cell {mine['train']} -> {mine['eval']}: {key}: "
                    f"expected {value}, found {theirs.get(key)}"
                )
    return differences[:20] or [f"{TENSOR_FILE}: expected {len(expected['cells'])} other cells"]


def _adapter(inputs: StepInputs, outputs: Outputs) -> list[str]:
    """A banded fit is handed on unchanged; a deferred one was trained for the matched steps."""
    fit = dict(inputs.artifact("fit"))
    record = decode(fit.pop(RECORD_FILE), thing="fit record")
    final = decode(outputs["record"][RECORD_FILE], thing="record")
    if not record["deferred"]:
        if dict(outputs["adapter"]) != fit:
            return ["adapter: expected the fit's files, found others"]
        return []
    matched = decode(inputs.artifact("match")[RECORD_FILE], thing="match")["matched_step"]
    if final["stop_step"] != matched:
        return [f"stop_step: expected the matched {matched}, found {final['stop_step']}"]
    return []


def _same_files(thing: str, expected: Mapping[str, bytes], found: Mapping[str, bytes]) -> list[str]:
    return [
        f"{thing}/{name}: holds other values than its inputs give"
        for name in sorted({*expected, *found})
        if expected.get(name) != found.get(name)
    ]
