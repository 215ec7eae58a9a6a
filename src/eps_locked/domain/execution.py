"""What the run loop asks of a study, and what it tells whoever watches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from eps_locked.domain.ledger import Status
from eps_locked.domain.model import EngineIdentity
from eps_locked.domain.steps import Step


class StepInputs(Protocol):
    """A step's inputs as bytes, verified against the digests the ledger will name."""

    def frozen(self, name: str) -> bytes:
        """Bytes of a frozen file, by the name the step gives the reference."""
        ...

    def artifact(self, name: str) -> Mapping[str, bytes]:
        """The files of an earlier step's output, by the name the step gives the reference."""
        ...

    def artifact_digest(self, name: str) -> str:
        """What names that artifact in results: its digest, without encrypted files."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class StepResult:
    """What a step made: the files of each promised output, and how it went.

    Must not depend on time, machine name, or what ran before: the results digest covers it all.
    """

    outputs: Mapping[str, Mapping[str, bytes]]
    status: Status = "done"
    flags: tuple[str, ...] = ()


Progress = Callable[[str], None]


class StepExecutor(Protocol):
    """A study's hands: runs one step. Loads its models on first need, never before."""

    @property
    def identity(self) -> EngineIdentity: ...

    def execute(self, step: Step, inputs: StepInputs, progress: Progress) -> StepResult: ...


class RunObserver(Protocol):
    """Told what happens; must not change it."""

    def phase_opened(self, phase: str, n_steps: int, n_done: int, cap_ms: int) -> None: ...

    def step_started(self, number: int, step: Step, spent_ms: int) -> None: ...

    def step_progress(self, text: str) -> None: ...

    def step_finished(self, step: Step, result: StepResult, spent_ms: int) -> None: ...

    def phase_closed(self, phase: str, results: str, spent_ms: int) -> None: ...
