"""A judge's calibration as a step of P0: verdicts on labelled answers, and what they come to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from eps_locked.canonical import decode, encode
from eps_locked.data.sampled import as_labelled, read_sampled
from eps_locked.domain.execution import StepInputs
from eps_locked.domain.fields import Fields
from eps_locked.domain.judging import (
    Judge,
    JudgeIdentity,
    JudgePlan,
    JudgeRequest,
    Rubric,
    Verdict,
)
from eps_locked.errors import EvidenceError, MalformedInputError
from eps_locked.judges.calibration import LabelledSet, calibrate, read_labelled
from eps_locked.judges.transport import require_transport
from eps_locked.lock.strict_yaml import parse_yaml
from eps_locked.studies.common.judging import (
    DECISION,
    VERDICTS_FILE,
    judge_differences,
    read_rubric,
)
from eps_locked.studies.common.prompts import RECORD_FILE
from eps_locked.studies.common.sources import is_sampled

__all__ = [
    "Calibration",
    "calibration_flags",
    "check_labelled",
    "derived_calibration",
    "rederived_calibration",
    "run_calibration",
]

SCHEMA = "eps-locked/eps-calibration/1"


class Calibration(Protocol):
    """A calibration as a plan writes it. ``about`` names what the judge will judge: its kind (a
    row, a battery) and its name."""

    @property
    def name(self) -> str: ...

    @property
    def file(self) -> str: ...

    @property
    def minimum_kappa(self) -> float: ...

    @property
    def about(self) -> tuple[str, str]: ...


def check_labelled(labelled: LabelledSet, rubric: Rubric, thing: str) -> None:
    """Require that a set was labelled under this rubric, with its labels."""
    if labelled.rubric != rubric.name:
        raise MalformedInputError(f"{thing}: rubric", expected=rubric.name, found=labelled.rubric)
    for number, row in enumerate(labelled.rows):
        if row.label not in rubric.labels:
            raise MalformedInputError(
                f"{thing}: rows[{number}].label",
                expected=f"a label of rubric {rubric.name}: {', '.join(rubric.labels)}",
                found=row.label,
            )


def run_calibration(
    rules: Calibration, inputs: StepInputs, judge: Judge, plan: JudgePlan, seed: int
) -> dict[str, bytes]:
    """Judge every labelled answer once; the files of the artifact.

    Raises BackendError if more verdicts were lost on the line than the judge's plan allows.
    """
    heard = _Heard(inner=judge)
    record = _record(rules, inputs, heard, seed)
    require_transport(plan, heard.verdicts)
    verdicts = {
        "schema": "eps-locked/eps-calibration-verdicts/1",
        "judge": judge.identity.to_dict(),
        "verdicts": [verdict.to_dict() for verdict in heard.verdicts],
    }
    return {RECORD_FILE: encode(record), VERDICTS_FILE: encode(verdicts)}


def rederived_calibration(
    rules: Calibration, inputs: StepInputs, files: Mapping[str, bytes], seed: int, plan: JudgePlan
) -> tuple[list[str], tuple[str, ...]]:
    """Differences between a calibration and what its verdicts give, and the flags they give."""
    expected = derived_calibration(rules, inputs, files, seed)
    same = expected == files.get(RECORD_FILE) and set(files) == {RECORD_FILE, VERDICTS_FILE}
    differences = [] if same else ["calibration: holds other values than its verdicts give"]
    judge = decode(expected, thing="calibration")["calibration"]["judge"]
    differences += judge_differences(judge, plan)
    return differences, calibration_flags(rules, {RECORD_FILE: expected})


def derived_calibration(
    rules: Calibration, inputs: StepInputs, files: Mapping[str, bytes], seed: int
) -> bytes:
    """The record that the stored verdicts give."""
    value = decode(files[VERDICTS_FILE], thing="calibration verdicts")
    with Fields(value, "calibration verdicts") as fields:
        fields.text("schema", one_of=("eps-locked/eps-calibration-verdicts/1",))
        identity = JudgeIdentity(**fields.mapping("judge"))
        verdicts = fields.each("verdicts", Verdict.from_dict)
    return encode(_record(rules, inputs, _Recorded(identity=identity, verdicts=verdicts), seed))


def calibration_flags(rules: Calibration, files: Mapping[str, bytes]) -> tuple[str, ...]:
    """A judge that agrees with people too little for the plan waits for a signed decision."""
    found = decode(files[RECORD_FILE], thing="calibration")["calibration"]
    # The distinction that rates are made of, where the rubric has one.
    agreement = found["expressed"] or found["labels"]
    kappa = agreement["kappa"]["value"]
    if kappa is None or kappa < rules.minimum_kappa:
        return (f"{DECISION}:judge_kappa:{rules.name}",)
    return ()


def _record(rules: Calibration, inputs: StepInputs, judge: Judge, seed: int) -> dict[str, Any]:
    rubric = read_rubric(inputs.frozen("rubric"))
    labelled = read_labelled(_labelled_value(rules, inputs, rubric), "frozen labelled")
    kind, name = rules.about
    found = calibrate(judge, rubric, labelled.rows, rng=np.random.default_rng(seed))
    return {
        "schema": SCHEMA,
        "name": rules.name,
        kind: name,
        "minimum_kappa": rules.minimum_kappa,
        "calibration": found.to_dict(),
    }


def _labelled_value(rules: Calibration, inputs: StepInputs, rubric: Rubric) -> Any:
    data = inputs.frozen("labelled")
    if is_sampled(rules.file):
        return as_labelled(read_sampled(data, "frozen labelled"), rubric.name)
    return parse_yaml(data, thing="frozen labelled")


@dataclass(kw_only=True, slots=True)
class _Heard:
    """Passes requests on and keeps what was answered."""

    inner: Judge
    verdicts: list[Verdict] = field(default_factory=list)

    @property
    def identity(self) -> JudgeIdentity:
        return self.inner.identity

    def judge(self, requests: Sequence[JudgeRequest]) -> tuple[Verdict, ...]:
        found = self.inner.judge(requests)
        self.verdicts += found
        return found


@dataclass(frozen=True, kw_only=True, slots=True)
class _Recorded:
    """A judge that only remembers: for whoever checks a record without one."""

    identity: JudgeIdentity
    verdicts: tuple[Verdict, ...]

    def judge(self, requests: Sequence[JudgeRequest]) -> tuple[Verdict, ...]:
        by_key = {(verdict.key, verdict.draw): verdict for verdict in self.verdicts}
        if set(by_key) != {(one.key, one.draw) for one in requests}:
            raise EvidenceError(
                "calibration verdicts",
                expected=f"one for each of {len(requests)} answers",
                found=f"{len(by_key)}, or on others",
            )
        return tuple(replace(by_key[one.key, one.draw]) for one in requests)
