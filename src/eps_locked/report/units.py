"""How the values of a row are written: the words of its unit, digits, and signs.

A document keeps every rate as a share from 0 to 1. Readers get a level in per cent and a change in
percentage points, so that a change of 5 is never read as one from 100 to 105.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from eps_locked.errors import MalformedInputError

# Farther from 0 than this, how far says nothing more of a score.
FAR = 99


def signed(value: float | None, digits: int = 1) -> str:
    """A number with its sign; what rounds to zero has none. A dash where there is no number."""
    if value is None:
        return "-"
    text = f"{value:+.{digits}f}"
    return text[1:] if float(text) == 0 else text


def score_signed(value: float) -> str:
    """``signed`` for a score. An R2 has no lower end: far below 0 only that it is far counts."""
    if abs(value) <= FAR:
        return signed(value, 2)
    return f"below -{FAR}" if value < 0 else f"{value:.0f}"


def typeset(value: float | None, digits: int = 1) -> str:
    """``signed`` with a true minus sign, or a true dash, for the page."""
    return "–" if value is None else for_page(signed(value, digits))


def for_page(text: str) -> str:
    """A number's text with a true minus sign."""
    return text.replace("-", "−")


def interval(low: float | None, high: float | None, digits: int = 1) -> str:
    """``[low, high]``; empty where there is none."""
    if low is None or high is None:
        return ""
    ends = (f"{end:.{digits}f}" for end in (low, high))
    return f"[{', '.join(end[1:] if float(end) == 0 and end[0] == '-' else end for end in ends)}]"


def percent(level: float) -> str:
    """``95 %``."""
    return f"{level * 100:g} %"


@dataclass(frozen=True, kw_only=True, slots=True)
class Unit:
    """What the values of a row are counted in.

    ``name`` is the document's word, ``words`` the reader's for a change, ``after`` stands behind a
    change in a table and ``after_level`` behind a level. ``factor`` turns the document's number
    into the reader's. ``cell_digits`` is for the narrow cells of a map.
    """

    name: str
    words: str
    after: str
    after_level: str
    factor: int
    cell_digits: int
    digits: int

    def change(self, value: float | None, extra_digits: int = 0) -> str:
        """A change with its sign, the unit left to the words around it."""
        return signed(self._scaled(value), self.digits + extra_digits)

    def short(self, value: float | None) -> str:
        """``change`` as it fits into a cell of a map."""
        return signed(self._scaled(value), self.cell_digits)

    def ends(self, low: float | None, high: float | None) -> str:
        """The interval of a change."""
        return interval(self._scaled(low), self._scaled(high), self.digits)

    def short_ends(self, low: float | None, high: float | None) -> str:
        return interval(self._scaled(low), self._scaled(high), self.cell_digits)

    def size(self, value: float) -> str:
        """How large a change is, with the unit's words: ``8.3 percentage points``."""
        return f"{value * self.factor:.{self.digits}f} {self.words}"

    def level(self, value: float | None) -> str:
        """What a model does by itself: a rate in per cent, or nats with their sign."""
        if value is None:
            return "-"
        if self.after_level:
            return f"{value * self.factor:.{self.digits}f}{self.after_level}"
        return self.change(value)

    def table_change(self, value: float | None, extra_digits: int = 0) -> str:
        """A change in a table of the page."""
        return "–" if value is None else for_page(self.change(value, extra_digits)) + self.after

    def table_level(self, value: float | None) -> str:
        """A level in a table of the page."""
        return "–" if value is None else for_page(self.level(value))

    def _scaled(self, value: float | None) -> float | None:
        return None if value is None else value * self.factor


NATS = Unit(name="nats", words="nats", after="", after_level="", factor=1, cell_digits=1, digits=2)
NATS_PER_TOKEN = Unit(
    name="nats per token",
    words="nats per token",
    after="",
    after_level="",
    factor=1,
    cell_digits=2,
    digits=2,
)
RATE = Unit(
    name="rate",
    words="percentage points",
    after=" pp",
    after_level=" %",
    factor=100,
    cell_digits=0,
    digits=1,
)
UNITS: Mapping[str, Unit] = {unit.name: unit for unit in (NATS, NATS_PER_TOKEN, RATE)}


def unit_named(name: object) -> Unit:
    """Raises MalformedInputError for a unit that this report cannot write."""
    unit = UNITS.get(name) if isinstance(name, str) else None
    if unit is None:
        raise MalformedInputError(
            "tensor: unit",
            expected=f"one of {', '.join(sorted(UNITS))}",
            found=name,
            next_step="use the version of eps_locked that wrote this tensor",
        )
    return unit


def unit_of(tensor: Mapping[str, Any]) -> Unit:
    """The unit of a row's own values."""
    return unit_named(tensor["unit"])
