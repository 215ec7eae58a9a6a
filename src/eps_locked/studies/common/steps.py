"""How a study lists its steps: what each may cost, and how it names what it reads."""

from __future__ import annotations

from eps_locked.domain.plan import Plan
from eps_locked.domain.steps import FILE_REF, STEP_REF, Step
from eps_locked.errors import MalformedInputError

__all__ = ["StepMaker", "frozen_file", "out", "source_file"]


class StepMaker:
    """Makes steps under the costs that a plan gives each kind in each phase.

    Callable as ``(id, kind, inputs, outputs, seed=None, **params)``; the phase is the first part of
    the id, and every step reads the frozen plan.
    """

    def __init__(self, plan: Plan) -> None:
        self._costs = {phase: budget.step_seconds for phase, budget in plan.phases.items()}

    def __call__(
        self,
        identifier: str,
        kind: str,
        inputs: dict[str, str],
        outputs: tuple[str, ...],
        seed: int | None = None,
        **params: str,
    ) -> Step:
        """Raises MalformedInputError for a kind that the plan gives no cost."""
        phase = identifier.partition("/")[0]
        if kind not in self._costs[phase]:
            raise MalformedInputError(
                f"plan.phases.{phase}.step_seconds.{kind}",
                problem="is missing",
                next_step="say what such a step may cost; the cap is checked against it",
            )
        return Step(
            id=identifier,
            phase=phase,
            kind=kind,
            seed=seed,
            params=params,
            inputs={"plan": frozen_file("plan.yaml"), **inputs},
            outputs=outputs,
            estimate_ms=round(self._costs[phase][kind] * 1000),
        )


def frozen_file(name: str) -> str:
    """A document below ``frozen/``."""
    return f"{FILE_REF}frozen/{name}"


def source_file(relative: str) -> str:
    """The frozen copy of a file below ``plans/``."""
    return frozen_file(f"sources/{relative}")


def out(step_id: str, output: str) -> str:
    """An output of an earlier step."""
    return f"{STEP_REF}{step_id}#{output}"
