"""What every study's re-derivation has in common: garbage becomes a failure, never a traceback."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping

from eps_locked.domain.execution import StepInputs
from eps_locked.domain.ledger import Status, StepBody
from eps_locked.domain.steps import Step
from eps_locked.errors import EpsLockedError
from eps_locked.lock.workspace import FrozenManifest

__all__ = ["Derived", "Outputs", "Rederiver", "same_files"]

Outputs = Mapping[str, Mapping[str, bytes]]
# Differences found, then the status and the flags that the stored bytes give.
Derived = tuple[list[str], Status, tuple[str, ...]]


class Rederiver(ABC):
    """Callable for ``audit_run``: one sentence for each difference, None for what it cannot see."""

    def __call__(
        self, step: Step, inputs: StepInputs, outputs: Outputs, body: StepBody
    ) -> Iterable[str] | None:
        # The artifacts are canonical and whole, but what stands in them is anybody's: garbage must
        # become a failure that names the step.
        try:
            derived = self.derive(step, inputs, outputs)
        except EpsLockedError as error:
            return [str(error)]
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            return [f"cannot be re-derived from what is stored ({type(error).__name__}: {error})"]
        if derived is None:
            return None
        differences, status, flags = derived
        if body.status != status:
            differences.append(f"status: expected {status}, found {body.status}")
        if body.flags != flags:
            differences.append(f"flags: expected {list(flags)}, found {list(body.flags)}")
        return differences

    @abstractmethod
    def derive(self, step: Step, inputs: StepInputs, outputs: Outputs) -> Derived | None:
        """What a step's inputs give, held against its outputs."""

    @abstractmethod
    def manifest(self, frozen: FrozenManifest) -> list[str]:
        """Freeze again from the frozen plan and sources, with the rendering as recorded."""


def same_files(thing: str, expected: Mapping[str, bytes], found: Mapping[str, bytes]) -> list[str]:
    """One sentence for each file that holds other bytes."""
    return [
        f"{thing}/{name}: holds other values than its inputs give"
        for name in sorted({*expected, *found})
        if expected.get(name) != found.get(name)
    ]
