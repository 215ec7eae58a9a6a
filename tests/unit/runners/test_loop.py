"""The run loop: order, resumption, and what is recorded when a step goes wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from eps_locked.domain.execution import StepResult
from eps_locked.domain.model import EngineIdentity
from eps_locked.domain.steps import Step
from eps_locked.engines.scripted import ScriptedEngine
from eps_locked.errors import BackendError, EvidenceError
from eps_locked.runners.loop import run_phase
from sim.forge import find, payloads_of
from sim.simulator import StudySimulator, fingerprint


@dataclass
class Hands:
    """An executor that does what it is told, step by step."""

    act: Callable[[Step], StepResult]
    steps: list[str] = field(default_factory=list)

    @property
    def identity(self) -> EngineIdentity:
        return ScriptedEngine().identity

    def execute(self, step: Step, inputs: Any, progress: Any) -> StepResult:
        self.steps.append(step.id)
        return self.act(step)


def outputs(step: Step) -> StepResult:
    contents = {name: {"a.json": f'"{step.id}/{name}"'.encode()} for name in step.outputs}
    return StepResult(outputs=contents)


def run(study: StudySimulator, hands: Hands, phase: str = "P0") -> str | None:
    frozen, permit, record = study.open(phase)
    return run_phase(permit, record, frozen, hands, study.observer)


@pytest.fixture
def ready(study: StudySimulator) -> StudySimulator:
    study.freeze()
    study.authorize("P0")
    return study


def test_steps_run_in_the_promised_order_once_each(finished: StudySimulator) -> None:
    promised = list(finished.load().steps())
    recorded = [p["step"] for p in payloads_of(finished) if p["kind"] == "step"]
    assert recorded == promised
    assert len(set(recorded)) == 24


def test_a_finished_phase_runs_again_without_model_or_writing(finished: StudySimulator) -> None:
    before = fingerprint(finished.root)
    for phase in ("P0", "P1"):
        results = finished.run(phase)
        assert results == find(payloads_of(finished), "close", phase=phase)["results"]
    assert fingerprint(finished.root) == before
    assert finished.n_model_calls() == 0
    assert finished.observer.started == []


def test_a_resume_skips_what_is_done(ready: StudySimulator) -> None:
    ready.engine = ScriptedEngine(fail_after=6)
    with pytest.raises(BackendError):
        ready.run("P0")
    done = ready.observer.finished[:]
    assert len(done) == 3
    ready.engine = ScriptedEngine()
    ready.observer.started.clear()
    ready.run("P0")
    assert not set(done) & set(ready.observer.started)
    assert len(done) + len(ready.observer.started) == 9


def test_the_model_is_loaded_only_when_it_is_needed(half_way: StudySimulator) -> None:
    loads = 0
    genuine = half_way.backends

    def counting() -> Any:
        nonlocal loads
        loads += 1
        return genuine()

    half_way.backends = counting  # type: ignore[method-assign]
    half_way.run("P0")
    assert loads == 0
    half_way.run("P1")
    assert loads == 1


@pytest.mark.parametrize(
    "result",
    [
        StepResult(outputs={}),
        StepResult(outputs={"answers": {"a": b""}, "more": {"a": b""}}),
        StepResult(outputs={"other": {"a": b""}}),
    ],
)
def test_a_step_that_writes_other_outputs_than_promised_is_aborted(
    ready: StudySimulator, result: StepResult
) -> None:
    with pytest.raises(BackendError, match="P0/answers/marker/baker"):
        run(ready, Hands(lambda step: result))
    assert find(payloads_of(ready), "aborted")["reason"] == "BackendError"
    assert ready.run_folder.stored_artifacts() == []


@pytest.mark.parametrize("error", [EvidenceError("x"), BackendError("y"), KeyboardInterrupt()])
def test_an_error_within_a_step_is_recorded_and_rises(
    ready: StudySimulator, error: BaseException
) -> None:
    def raises(step: Step) -> StepResult:
        raise error

    with pytest.raises(type(error)):
        run(ready, Hands(raises))
    aborted = find(payloads_of(ready), "aborted")
    assert aborted["step"] == "P0/answers/marker/baker"
    assert not ready.run_folder.running_path.exists()
    assert ready.run("P0")


def test_a_defect_of_ours_leaves_the_note_and_is_charged_at_the_next_start(
    ready: StudySimulator,
) -> None:
    def broken(step: Step) -> StepResult:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(ready, Hands(broken))
    assert ready.run_folder.running_path.exists()
    assert ready.run("P0")
    assert find(payloads_of(ready), "aborted")["reason"] == "killed"


def test_equal_outputs_of_two_steps_are_one_artifact(ready: StudySimulator) -> None:
    same = {"a.json": b"{}"}
    run(ready, Hands(lambda s: StepResult(outputs=dict.fromkeys(s.outputs, same))))
    assert len(ready.run_folder.stored_artifacts()) == 1
    assert ready.audit().checks[8].ok


def test_an_artifact_that_is_there_already_must_be_the_same(ready: StudySimulator) -> None:
    """The second step would reuse the folder; somebody changed it in between."""
    same = {"a.json": b"{}"}

    def act(step: Step) -> StepResult:
        for folder in ready.run_folder.artifacts.glob("*"):
            (folder / "a.json").write_bytes(b"[]")
        return StepResult(outputs=dict.fromkeys(step.outputs, same))

    with pytest.raises(EvidenceError, match=r"a\.json"):
        run(ready, Hands(act))
    assert len([p for p in payloads_of(ready) if p["kind"] == "step"]) == 1


def test_results_do_not_know_times_machines_or_interruptions(
    ready: StudySimulator, tmp_path: Any
) -> None:
    other = ready.copy_to(tmp_path / "other")
    first = ready.run("P0")
    other.engine = ScriptedEngine(instance_id="another-machine", fail_after=5)
    with pytest.raises(BackendError):
        other.run("P0", monotonic=iter(range(0, 10**6, 3)).__next__)
    other.engine = ScriptedEngine(instance_id="a-third-machine")
    assert other.run("P0") == first
