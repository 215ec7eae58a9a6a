"""Doing recorded steps again and comparing bytes: the answer to "would it come out the same?".

On a CPU with the same versions every step must give the recorded bytes. Elsewhere a difference is
reported, not excused: it is for the reader to judge, with engine and environment named beside it.
Nothing is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from eps_locked.canonical import digest_bytes, encode
from eps_locked.domain.execution import StepExecutor
from eps_locked.domain.steps import Step
from eps_locked.lock.history import History
from eps_locked.lock.inputs import RecordedInputs
from eps_locked.lock.workspace import FrozenManifest, RunFolder, describe_artifact


@dataclass(frozen=True, kw_only=True, slots=True)
class Replayed:
    """One step done again: what differs from the record, nothing if it came out the same."""

    step: str
    differences: tuple[str, ...]


def draw_steps(
    history: History, n: int, seed: int, can_repeat: Callable[[Step], bool] = lambda step: True
) -> tuple[Step, ...]:
    """``n`` finished steps (all, if there are fewer), drawn by the seed, in the promised order.

    ``can_repeat`` leaves out those that asked a service, whose answers are its own.
    """
    done = [
        step
        for step in history.terms.steps.values()
        if step.id in history.done and can_repeat(step)
    ]
    order = sorted(done, key=lambda step: digest_bytes(encode([seed, step.id])))
    chosen = {step.id for step in order[:n]}
    return tuple(step for step in done if step.id in chosen)


def replay_steps(
    steps: Sequence[Step],
    history: History,
    frozen: FrozenManifest,
    run: RunFolder,
    executor: StepExecutor,
    progress: Callable[[str], None],
) -> Iterator[Replayed]:
    """Execute each step on its recorded inputs and compare outputs, status and flags."""
    for step in steps:
        body = history.done[step.id]
        inputs = RecordedInputs(step=step, frozen_manifest=frozen, run=run, done=history.done)
        result = executor.execute(step, inputs, progress)
        differences = []
        for name in sorted({*body.outputs, *result.outputs}):
            recorded = body.outputs[name].identity if name in body.outputs else "nothing"
            again = (
                describe_artifact(result.outputs[name]).identity
                if name in result.outputs
                else "nothing"
            )
            if recorded != again:
                differences.append(f"{name}: expected {recorded}, found {again}")
        for name, expected, found in (
            ("status", body.status, result.status),
            ("flags", list(body.flags), list(result.flags)),
        ):
            if expected != found:
                differences.append(f"{name}: expected {expected}, found {found}")
        yield Replayed(step=step.id, differences=tuple(differences))
