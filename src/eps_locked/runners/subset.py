"""A part of a phase: chosen steps with everything they need, so that a part can be run today."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase

from eps_locked.domain.steps import Step
from eps_locked.errors import MalformedInputError

__all__ = ["chosen_steps"]


def chosen_steps(
    phase: Sequence[Step],
    left: Sequence[Step],
    behaviours: Sequence[str],
    contexts: Sequence[str],
) -> tuple[Step, ...]:
    """The unfinished steps of these rows and train contexts, and the unfinished ones they read.

    ``phase`` are all its steps, ``left`` those unfinished; a part that is done chooses none.
    ``contexts`` are names or patterns such as ``persona_*``; an empty list leaves nothing out.
    Order is that of the phase. Raises MalformedInputError for a name that no step carries.
    """
    for option, names, key in (
        ("--behaviour", behaviours, _behaviour),
        ("--cells", contexts, _context),
    ):
        known = sorted({value for step in phase if (value := key(step))})
        for name in names:
            if not any(fnmatchcase(one, name) for one in known):
                raise MalformedInputError(
                    option,
                    expected=f"one of the phase's {', '.join(known) or 'none'}",
                    found=name,
                )
    by_id = {step.id: step for step in left}
    wanted: set[str] = set()
    todo = [
        step.id
        for step in left
        if _matches(step, behaviours, _behaviour) and _matches(step, contexts, _context)
    ]
    while todo:
        identifier = todo.pop()
        if identifier in by_id and identifier not in wanted:
            wanted.add(identifier)
            todo += [needed for needed, _ in by_id[identifier].needs()]
    return tuple(step for step in left if step.id in wanted)


def _behaviour(step: Step) -> str | None:
    return step.params.get("behaviour") or step.params.get("battery")


def _context(step: Step) -> str | None:
    """The context a step trains in or, before training, asks in; the arm or model it is about."""
    names = ("train", "context", "arm", "training", "model")
    return next((step.params[name] for name in names if name in step.params), None)


def _matches(step: Step, names: Sequence[str], key: Callable[[Step], str | None]) -> bool:
    value = key(step)
    return not names or (value is not None and any(fnmatchcase(value, name) for name in names))
