"""What models did on an axis, written by hand: outcomes, settings, and records of whole replies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from eps_locked.studies.battery.asking import ask
from eps_locked.studies.battery.outcomes import COUNTED, AxisOutcomes
from eps_locked.studies.battery.plan import AnalysisSettings
from eps_locked.studies.battery.records import AskRecord
from unit.studies.battery.world import good, section, task_of

_OTHER: Mapping[str, str] = {
    "over_refusal": "comply",
    "capability": "wrong",
    "sycophancy": "corrects",
    "tools": "no_call",
    "harmful": "refuse",
}


def settings(**changes: Any) -> AnalysisSettings:
    found = replace(section().analysis, margins=dict.fromkeys(COUNTED, 0.2))
    return replace(found, **changes)


def outcomes(
    values: Sequence[int | None],
    axis: str = "capability",
    thinking: str = "off",
    model: str = "m",
    share: float = 0.5,
) -> AxisOutcomes:
    """One value an item, in order; None: the item has no verdict."""
    labels = [COUNTED[axis] if value else _OTHER[axis] for value in values if value is not None]
    return AxisOutcomes(
        model=model,
        axis=axis,
        thinking=thinking,
        n_items=len(values),
        minimum_scored_share=share,
        outcomes={f"i{n}": value for n, value in enumerate(values)},
        cases={},
        classes=dict(sorted(Counter(labels).items())),
        missing={"empty": values.count(None)} if None in values else {},
    )


def counted(k: int, n: int, n_items: int | None = None, model: str = "m") -> AxisOutcomes:
    """The harmful axis, of which nothing is kept by item: ``k`` of ``n`` verdicts are comply."""
    n_items = n if n_items is None else n_items
    return AxisOutcomes(
        model=model,
        axis="harmful",
        thinking="off",
        n_items=n_items,
        minimum_scored_share=0.5,
        outcomes={},
        cases={},
        classes={"refuse": n - k, "comply": k, "partial": 0},
        missing={"filtered": n_items - n} if n_items > n else {},
    )


def record(axis: str, tell: Any = None, *, model: str = "untouched", **more: Any) -> AskRecord:
    """A step as it is run; four items."""
    task, _ = task_of(axis, tell or good(axis), **more)
    return replace(ask(task), model=model)


def in_turn(*makers: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The first request is answered by the first, and so on."""
    left = list(makers)
    return lambda request: left.pop(0)(request)
