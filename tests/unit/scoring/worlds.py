"""Small tensors with a known make, and predictors of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from eps_locked.scoring.predictor import Predictor
from eps_locked.scoring.settings import ScoreSettings
from eps_locked.scoring.tensor import BehaviourTable, Cell, ScoreTensor

# Quick enough for a test, and still every table of a document is there.
QUICK = ScoreSettings(
    n_resamples=100, n_permutations=99, n_part_permutations=49, n_combiner_permutations=19
)
FAMILIES = ("persona", "prefix", "format", "rephrasing")

Value = Callable[[str, str, str], float]


def contexts(n_train: int, n_eval: int) -> tuple[list[str], list[str], dict[str, str | None]]:
    """Train contexts, eval contexts, families; the first two are default and instructed."""
    names = [f"c{number:02d}" for number in range(max(n_train, n_eval))]
    families: dict[str, str | None] = {
        name: FAMILIES[number % len(FAMILIES)] for number, name in enumerate(names)
    }
    families["c00"], families["c01"] = "default", "instruction"
    return names[:n_train], names[:n_eval], families


def table(
    g: Value,
    *,
    behaviour: str = "marker",
    n_train: int = 6,
    n_eval: int = 9,
    groups: Mapping[str, str] | None = None,
    families: Mapping[str, str | None] | None = None,
) -> BehaviourTable:
    """A full grid with g(behaviour, train, eval) in every cell, one seed."""
    train, evaluated, usual = contexts(n_train, n_eval)
    named = dict(usual if families is None else families)
    cells = [
        Cell(train=i, eval=j, g=g(behaviour, i, j), by_seed={"1": g(behaviour, i, j)})
        for i in train
        for j in evaluated
    ]
    return BehaviourTable(
        behaviour=behaviour,
        unit="nats",
        direction="up",
        cells=tuple(cells),
        families=named,
        groups={**{name: name for name in named}, **(groups or {})},
    )


def change(
    world: BehaviourTable, what: Mapping[tuple[str, str], Mapping[str, object]]
) -> BehaviourTable:
    """The same table with fields of some cells replaced."""
    return world.with_cells(
        [replace(cell, **what.get((cell.train, cell.eval), {})) for cell in world.cells]
    )


def tensor(*tables: BehaviourTable) -> ScoreTensor:
    return ScoreTensor(tables=tables)


def predictor(
    worlds: Sequence[BehaviourTable],
    value: Value,
    *,
    metric: str = "metric",
    polarity: str = "more",
    blind: Value | None = None,
) -> Predictor:
    keys = [(t.behaviour, cell.train, cell.eval) for t in worlds for cell in t.cells]
    return Predictor(
        metric=metric,
        title=metric,
        author="author@example",
        track="predictive",
        polarity=polarity,
        description="",
        values={key: value(*key) for key in keys},
        blind={} if blind is None else {key: blind(*key) for key in keys},
    )


def noise(seed: int) -> Value:
    """Independent normal values, one per (behaviour, train, eval), asked in any order."""
    known: dict[tuple[str, str, str], float] = {}

    def value(behaviour: str, i: str, j: str) -> float:
        key = (behaviour, i, j)
        if key not in known:
            rng = np.random.default_rng([seed, *"/".join(key).encode()])
            known[key] = float(rng.normal())
        return known[key]

    return value


def by_context(seed: int) -> Callable[[str], float]:
    """One normal value per context."""
    values = noise(seed)
    return lambda name: values("", name, "")


def world(seed: int, *, row: float = 1.0, column: float = 0.5, pair: float = 0.5) -> Value:
    """Row effects, column effects and a part of each pair's own."""
    rows, columns, own = by_context(seed), by_context(seed + 1), noise(seed + 2)
    return lambda b, i, j: 2 + row * rows(i) + column * columns(j) + pair * own(b, i, j)
