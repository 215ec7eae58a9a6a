"""The one run loop of all studies: permit in, ledger entries out.

Order of writes for a step: the note that it began; its artifacts; its entry; the head; the note
removed. A crash between any two of them leaves a run that this same function resumes, and whose
results digest is that of an undisturbed run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from eps_locked import files
from eps_locked.canonical import digest_value
from eps_locked.domain.clock import format_time
from eps_locked.domain.execution import RunObserver, StepExecutor, StepResult
from eps_locked.domain.ledger import StepBody, engine_to_dict
from eps_locked.domain.steps import Step
from eps_locked.errors import BackendError, EpsLockedError
from eps_locked.lock.gate import Permit, require_budget
from eps_locked.lock.inputs import RecordedInputs
from eps_locked.lock.record import RunRecord
from eps_locked.lock.workspace import FrozenManifest


def run_phase(
    permit: Permit,
    record: RunRecord,
    frozen: FrozenManifest,
    executor: StepExecutor,
    observer: RunObserver,
    *,
    limit: int | None = None,
    choose: Callable[[Sequence[Step]], Sequence[Step]] | None = None,
    monotonic: Callable[[], float] = time.monotonic,
) -> str | None:
    """Run what is left of a phase. Returns its results digest, or None if steps are left.

    ``limit``: stop after so many steps (smoke runs only). ``choose``: of the steps that are left,
    those to run now, in order; the phase closes when none is left. Raises RefusedError when the
    next step would pass the cap, BackendError when a step fails (recorded as aborted; the same
    command resumes), KeyboardInterrupt likewise.
    """
    if permit.manifest_digest != record.history.terms.manifest_digest:
        raise RuntimeError("this permit was issued for another manifest")
    history, phase = record.history, permit.phase
    recover(record, phase)
    if phase in history.closed:
        return history.closed[phase].results
    _open(permit, record, executor)
    left = history.remaining(phase)
    n_steps = len(history.terms.of_phase(phase))
    chosen = left if choose is None else tuple(choose(left))
    n_chosen = len(chosen) + n_steps - len(left)
    observer.phase_opened(phase, n_chosen, n_steps - len(left), permit.authorization.cap_ms)
    _charge_interrupted(record)
    for number, step in enumerate(chosen[:limit], start=n_steps - len(left) + 1):
        require_budget(history, step, permit.authorization.cap_ms)
        observer.step_started(number, step, history.spent_ms.get(phase, 0))
        result = _run_step(permit, record, frozen, executor, observer, step, monotonic)
        observer.step_finished(step, result, history.spent_ms[phase])
    if history.remaining(phase):
        return None
    results = history.results(phase)
    spent_ms = history.spent_ms.get(phase, 0)
    record.append(
        "close", {"phase": phase, "results": results, "n_steps": n_steps, "compute_ms": spent_ms}
    )
    observer.phase_closed(phase, results, spent_ms)
    return results


def recover(record: RunRecord, phase: str) -> None:
    """Set aside what a crash left half-done: a torn line, half-written files, orphans.

    Also asked of a closed phase: the crash may have come right after its last entry.
    """
    run = record.run
    for leftover in run.leftovers():
        files.set_aside(leftover, run.aside)
    record.settle()
    for orphan in record.orphans(allowed=record.history.most_outputs(phase)):
        files.set_aside(orphan, run.aside)


def _open(permit: Permit, record: RunRecord, executor: StepExecutor) -> None:
    record.append(
        "open",
        {
            "phase": permit.phase,
            "authorization": dict(permit.authorization_digests),
            "cap_ms": permit.authorization.cap_ms,
            "self_authorized": permit.authorization.self_authorized,
            "lock_head": permit.lock_head,
            "code": permit.code,
            "environment": permit.environment,
            "engine": engine_to_dict(executor.identity),
        },
    )


def _charge_interrupted(record: RunRecord) -> None:
    """Charge a killed attempt, once, before anything else is spent."""
    interrupted = record.interrupted_step()
    opened = record.history.opened
    if interrupted is not None and opened is not None and opened.phase == interrupted[1]:
        step_id, phase = interrupted
        record.append(
            "aborted",
            {
                "step": step_id,
                "phase": phase,
                "reason": "killed",
                "compute_ms": record.uncharged_ms(),
            },
        )
    record.clear_running()


def _run_step(
    permit: Permit,
    record: RunRecord,
    frozen: FrozenManifest,
    executor: StepExecutor,
    observer: RunObserver,
    step: Step,
    monotonic: Callable[[], float],
) -> StepResult:
    history = record.history
    inputs = RecordedInputs(step=step, frozen_manifest=frozen, run=record.run, done=history.done)
    record.mark_running(step.id, step.phase)
    started, start = format_time(record.clock()), monotonic()

    def elapsed_ms() -> int:
        return round((monotonic() - start) * 1000)

    try:
        result = executor.execute(step, inputs, observer.step_progress)
        _require_promised_outputs(step, result)
    except (EpsLockedError, KeyboardInterrupt) as error:
        reason = "interrupted" if isinstance(error, KeyboardInterrupt) else type(error).__name__
        record.append(
            "aborted",
            {
                "step": step.id,
                "phase": step.phase,
                "reason": reason,
                "compute_ms": elapsed_ms(),
            },
        )
        record.clear_running()
        raise
    compute_ms = elapsed_ms()
    outputs = {name: record.run.store(contents) for name, contents in result.outputs.items()}
    body = StepBody(
        step=step.id,
        phase=step.phase,
        status=result.status,
        seed=step.seed,
        inputs=history.resolve_inputs(step, where="run"),
        outputs=outputs,
        flags=result.flags,
        code=permit.code,
        environment=permit.environment,
        engine=digest_value(engine_to_dict(executor.identity)),
        started=started,
        ended=format_time(record.clock()),
        compute_ms=compute_ms,
    )
    record.append("step", body.to_dict())
    record.clear_running()
    return result


def _require_promised_outputs(step: Step, result: StepResult) -> None:
    if set(result.outputs) != set(step.outputs):
        raise BackendError(
            f"step {step.id}", expected=sorted(step.outputs), found=sorted(result.outputs)
        )
