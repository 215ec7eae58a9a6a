"""The measured tensor as scoring sees it: cells with a value, and why a cell takes no part.

Frozen types and the rules on them; ``reading.py`` makes them from files. Contexts are names, one
name space for the train and the eval side.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

__all__ = [
    "ALWAYS_OUT",
    "RELEASABLE",
    "BehaviourTable",
    "Cell",
    "ScoreTensor",
    "exclusion_counts",
]

# Never scored in development. ``sealed``: no value is known here. ``set_apart``: held out or
# quarantined, with a value (a public matrix, or a study that sealed nothing).
ALWAYS_OUT = ("diagonal", "alias", "sealed", "set_apart", "unscored")
# Out by default; a sensitivity table lets them in again.
RELEASABLE = ("floor", "ceiling", "implant_failed", "divergence")


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """One (train, eval) pair of one behaviour. ``g``: mean over seeds, larger is more behaviour.

    ``se``: standard error of ``g`` from all sources, where known. ``by_seed``: seed -> g.
    """

    train: str
    eval: str
    g: float | None
    by_seed: Mapping[str, float]
    split: str = "open"
    flags: frozenset[str] = frozenset()
    alias_of: str | None = None
    se: float | None = None
    lower: float | None = None
    upper: float | None = None
    prefix_tokens: float | None = None
    realised_strength: float | None = None

    def reasons(self, *, final: bool = False) -> tuple[str, ...]:
        """Why this cell is not scored, in a fixed order; empty when it is.

        final: for the final test, in which being set apart is no reason but the point.
        """
        out = []
        if self.train == self.eval:
            out.append("diagonal")
        if "alias" in self.flags or self.alias_of is not None:
            out.append("alias")
        if "sealed" in self.flags:
            out.append("sealed")
        elif self.split != "open" and not final:
            out.append("set_apart")
        elif "unscored" in self.flags or self.g is None:
            out.append("unscored")
        out += [flag for flag in RELEASABLE if flag in self.flags]
        return tuple(out)


@dataclass(frozen=True, kw_only=True)
class BehaviourTable:
    """All cells of one behaviour: a full grid of its train and eval contexts, in reading order.

    families: context -> family (None unknown). groups: context -> name of the group it leaves with.
    """

    behaviour: str
    unit: str
    direction: str
    cells: tuple[Cell, ...]
    families: Mapping[str, str | None]
    groups: Mapping[str, str]

    @cached_property
    def train(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(cell.train for cell in self.cells))

    @cached_property
    def eval(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(cell.eval for cell in self.cells))

    @cached_property
    def seeds(self) -> tuple[str, ...]:
        return tuple(sorted({seed for cell in self.cells for seed in cell.by_seed}))

    def with_cells(self, cells: Sequence[Cell]) -> BehaviourTable:
        return replace(self, cells=tuple(cells))


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoreTensor:
    """``ignored``: columns that no rule names, as the files had them."""

    tables: tuple[BehaviourTable, ...]
    ignored: tuple[str, ...] = ()

    @property
    def behaviours(self) -> tuple[str, ...]:
        return tuple(table.behaviour for table in self.tables)


def exclusion_counts(
    cells: Sequence[Cell], *, final: bool = False
) -> tuple[dict[str, int], dict[str, int]]:
    """How many cells each reason keeps out, and how many it alone keeps out."""
    found = [cell.reasons(final=final) for cell in cells]
    every = Counter(reason for reasons in found for reason in reasons)
    alone = Counter(reasons[0] for reasons in found if len(reasons) == 1)
    names = (*ALWAYS_OUT, *RELEASABLE)
    return {name: every[name] for name in names}, {name: alone[name] for name in names}
