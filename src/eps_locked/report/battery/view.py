"""The document ``battery.json`` as the page's sections read it: names, words, digits and columns.

Nothing is estimated here. What the document does not have stays None, and its section says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eps_locked.errors import MalformedInputError
from eps_locked.report import verdict_marks
from eps_locked.report.html import Child, Html, join, tag
from eps_locked.report.sheets import NOTHING, Column, Row, figure, words
from eps_locked.report.units import for_page, interval, percent, unit_named
from eps_locked.report.verdict_marks import Mark, require_known

Document = Mapping[str, Any]
Entry = Mapping[str, Any]
SCHEMA = "eps-locked/battery/1"
RATE = unit_named("rate")
# Less than this, in tenths of a point, is what a float computation adds.
_DUST = 1e-6


@dataclass(frozen=True, kw_only=True, slots=True)
class Axis:
    """An axis in words: its name, what its rate counts, and as the head of a column."""

    name: str
    counts: str
    head: str


AXES: Mapping[str, Axis] = {
    "over_refusal": Axis(
        name="over-refusal", counts="refuses harmless requests", head="over-refusal: refuses"
    ),
    "capability": Axis(name="capability", counts="answers correctly", head="capability: correct"),
    "sycophancy": Axis(
        name="sycophancy", counts="goes along with false premises", head="sycophancy: agrees"
    ),
    "tools": Axis(name="tools", counts="handles tool cases rightly", head="tools: right"),
    "harmful": Axis(
        name="harmful", counts="complies with harmful requests", head="harmful: complies"
    ),
}


_FOUND = {"sign": "◆", "look": "drift"}
VERDICTS: Mapping[str, Mark] = {
    "higher": Mark(words="higher", shape="drift", **_FOUND),
    "lower": Mark(words="lower", shape="drift", **_FOUND),
    "within_margin": Mark(
        words="within the margin", sign="■", look="within_margin", shape="within_margin"
    ),
    "undetermined": Mark(words="undetermined", sign="○", look="undetermined", shape="undetermined"),
    "not_measured": Mark(
        words="not measured", sign="×", look="too_few_stems", shape="too_few_stems"
    ),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class View:
    """A document, and who says whether an analysis was promised."""

    document: Document
    label: Callable[[str], Html]

    @property
    def promised(self) -> Html:
        return self.label("battery")

    @property
    def settings(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.document["settings"]
        return found

    @property
    def models(self) -> Sequence[Entry]:
        found: Sequence[Entry] = self.document["models"]
        return found

    @property
    def comparisons(self) -> Sequence[Entry]:
        found: Sequence[Entry] = self.document["comparisons"]
        return found

    def axes(self) -> Iterator[tuple[Entry, Entry]]:
        """Every model with each axis and thinking mode, in the document's order."""
        for model in self.models:
            for axis in model["axes"]:
                yield model, axis

    def compared(self) -> Iterator[tuple[Entry, Entry]]:
        """Every comparison with each of its axes and modes, in the document's order."""
        for comparison in self.comparisons:
            for row in comparison["axes"]:
                yield comparison, row

    @property
    def axis_names(self) -> list[str]:
        return list(dict.fromkeys(axis["axis"] for _, axis in self.axes()))

    @property
    def modes(self) -> list[str]:
        return list(dict.fromkeys(axis["thinking"] for _, axis in self.axes()))

    @property
    def level(self) -> str:
        """The confidence level in words: ``95 %``."""
        return percent(self.settings["confidence_level"])

    @property
    def equivalence_level(self) -> str:
        return percent(self.settings["equivalence_level"])


def require_document(document: Document) -> None:
    """Raises MalformedInputError for a document of another form, or with words that this page has
    none for: a verdict that nobody can read must not pass as none."""
    if document.get("schema") != SCHEMA:
        raise MalformedInputError(
            "battery document: schema", expected=SCHEMA, found=document.get("schema")
        )
    for model in document["models"]:
        for axis in model["axes"]:
            require_known(axis["axis"], AXES, f"battery document: {model['model']}: axis")
    for comparison in document["comparisons"]:
        where = f"battery document: {comparison['model']} against {comparison['base']}"
        for row in comparison["axes"]:
            require_known(row["axis"], AXES, f"{where}: axis")
            require_known(row["verdict"], VERDICTS, f"{where}: verdict on {row['axis']}")


# -- words


def axis_words(axis: str) -> str:
    return AXES[axis].name


def place_words(axis: str, thinking: str) -> str:
    """``tools, thinking off``."""
    return f"{axis_words(axis)}, thinking {thinking}"


def marked(verdict: str) -> Html:
    """The words of a verdict with their sign, as on the charts."""
    return verdict_marks.marked(VERDICTS[verdict])


def counted(counts: Mapping[str, int]) -> str:
    """``4 refuse, 2 comply``; what never occurs is left out, and nothing is empty."""
    return ", ".join(f"{n} {name.replace('_', ' ')}" for name, n in counts.items() if n)


def number_words(value: Any) -> str:
    """A setting as stored documents write it: a whole float without a point."""
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


# -- numbers


def points_up(value: float | None) -> str:
    """A size in percentage points, rounded up: neither a bound nor what could have been seen may
    shrink on its way to the page."""
    if value is None:
        return "none"
    return f"{math.ceil(value * 1000 - _DUST) / 10:.1f} pp"


def points(value: float | None, low: float | None, high: float | None) -> tuple[str, str]:
    """A difference with its sign, and its interval; empty where there is none."""
    if low is None or high is None:
        return RATE.table_change(value), ""
    return RATE.table_change(value), for_page(RATE.ends(low, high))


# -- columns


def model_column(key: str = "model") -> Column:
    return words("model", key)


def axis_column() -> Column:
    return Column(head="axis", keys=(), show=lambda row: axis_words(str(row["axis"])))


def thinking_column() -> Column:
    return words("thinking", "thinking", aside=True)


def rate_column(head: str, key: str = "rate") -> Column:
    """A rate with its interval, fields ``KEY``, ``KEY_low`` and ``KEY_high``."""
    low, high = f"{key}_low", f"{key}_high"

    def show(row: Row) -> Child:
        if row[key] is None:
            return NOTHING
        return join(rate_words(row[key]), " ", tag("small", rate_ends(row[low], row[high])))

    return Column(head=head, keys=(key, low, high), show=show, kind="num")


def rate_words(rate: float | None) -> str:
    return NOTHING if rate is None else f"{figure(rate * 100, 1)} %"


def rate_ends(low: float, high: float) -> str:
    return for_page(interval(low * 100, high * 100, 1))


def plain_rate_column(head: str, key: str) -> Column:
    return Column(head=head, keys=(key,), show=lambda row: rate_words(row[key]), kind="num")


def delta_column(head: str, key: str = "delta") -> Column:
    """A difference with its interval, fields ``KEY``, ``KEY_low`` and ``KEY_high``."""
    low, high = f"{key}_low", f"{key}_high"

    def show(row: Row) -> Child:
        text, ends = points(row[key], row[low], row[high])
        return join(text, " ", tag("small", ends)) if ends else text

    return Column(head=head, keys=(key, low, high), show=show, kind="num")


def up_column(head: str, key: str) -> Column:
    """A size that is rounded up; ``none`` where no size is one."""
    return Column(head=head, keys=(key,), show=lambda row: points_up(row[key]), kind="num")


def notice(what: str, *why: Child) -> Html:
    return tag("p", tag("b", f"{what}: "), *why, class_="notice")
