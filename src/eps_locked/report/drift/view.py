"""The drift document as the page's sections read it: names, units, words, and a label's text.

Nothing is estimated here. What the document does not have stays None, and its section says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eps_locked.errors import MalformedInputError
from eps_locked.report.html import Child, Html, join, tag
from eps_locked.report.sheets import NOTHING, Column, Remark, Row, figure
from eps_locked.report.units import for_page, interval, percent
from eps_locked.stats.resolution import minimum_detectable_effect

Document = Mapping[str, Any]
SCHEMA = "eps-locked/drift/1"

# How an interval was made, said once where all rows have it.
METHOD = (Remark(of=lambda row: row["method"], every="Every interval"),)
# The verdicts on a comparison: a sign that can be told without colour, and the words.
VERDICTS: Mapping[str, tuple[str, str]] = {
    "drift": ("◆", "drift"),
    "within_margin": ("■", "within the margin"),
    "undetermined": ("○", "undetermined"),
    "too_few_stems": ("×", "too few stems"),
}
# What two arms of a comparison differ in.
KINDS: Mapping[str, str] = {
    "dose": "another dose",
    "seed": "another training seed",
    "fine_tuning": "trained against untouched",
    "exposure": "exposure in context",
    "instance": "another server instance",
    "reasoning": "another reasoning setting",
    "temperature": "another temperature",
    "other": "several differences",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Scale:
    """How drifts and levels are written: percentage points and per cent, or plain score units."""

    unit: str

    @property
    def is_rate(self) -> bool:
        return self.unit == "points"

    @property
    def words(self) -> str:
        return "percentage points" if self.is_rate else "score units"

    @property
    def short(self) -> str:
        """Behind the head of a column."""
        return "pp" if self.is_rate else "score"

    @property
    def level_word(self) -> str:
        return "aligned rate" if self.is_rate else "mean score"

    @property
    def digits(self) -> int:
        return 1 if self.is_rate else 2

    def change(self, value: float | None, *, sign: bool = False) -> str:
        """A drift, or a width where no sign is asked for."""
        return figure(value, self.digits, sign=sign)

    def ends(self, low: float | None, high: float | None) -> str:
        return for_page(interval(low, high, self.digits))

    def level(self, value: float | None) -> str:
        """What one arm shows by itself."""
        if value is None:
            return NOTHING
        return f"{figure(value * 100, 1)} %" if self.is_rate else figure(value, 2)

    def level_ends(self, low: float | None, high: float | None) -> str:
        if low is None or high is None:
            return ""
        return for_page(
            interval(low * 100, high * 100, 1) if self.is_rate else interval(low, high, 2)
        )

    def place(self, level: float) -> float:
        """Where a level stands on a chart's axis: in per cent, or as it is."""
        return level * 100 if self.is_rate else level


@dataclass(frozen=True, kw_only=True, slots=True)
class View:
    """A document, and who says whether an analysis was promised.

    frozen: whether margins and settings were fixed before the first answer.
    """

    document: Document
    label: Callable[[str], Html]
    frozen: bool

    @property
    def scale(self) -> Scale:
        return Scale(unit=self.document["unit"])

    @property
    def settings(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.document["settings"]
        return found

    @property
    def batteries(self) -> list[str]:
        return [one["name"] for one in self.document["batteries"]]

    @property
    def dispositions(self) -> list[str]:
        """Batteries that measure a disposition; the others check what training taught."""
        return [one["name"] for one in self.document["batteries"] if one["role"] == "disposition"]

    def battery(self, name: str) -> Mapping[str, Any]:
        return _named(self.document["batteries"], "name", name)

    def arm(self, name: str) -> Mapping[str, Any]:
        return _named(self.document["arms"], "arm", name)

    @property
    def level(self) -> str:
        """The confidence level in words: ``95 %``."""
        return percent(self.settings["confidence_level"])

    @property
    def equivalence_level(self) -> str:
        return percent(self.settings["equivalence_level"])

    @property
    def margin(self) -> float:
        """The frozen margin, in the unit of a drift."""
        return float(self.settings["margin_points"])

    @property
    def margin_words(self) -> str:
        """What kind of margin it is: ``frozen margin``, unless nothing was."""
        return "frozen margin" if self.frozen else "margin given with the table"

    def effects(self) -> Iterator[tuple[Mapping[str, Any], str, Mapping[str, Any]]]:
        """Every comparison with every battery and what was found there, in the document's order."""
        for one in self.document["comparisons"]:
            for battery, effect in one["batteries"].items():
                yield one, battery, effect

    def arm_words(self, name: str) -> str:
        """What an arm is, in short: its weights, its setting, where it ran."""
        arm = self.arm(name)
        if arm["topic"] is None:
            weights = str(arm["model"])
        else:
            weights = f"{arm['topic']} at {arm['dose_percent']:g} %, seed {arm['seed']}"
        parts = [weights, *setting_words(arm)]
        return ", ".join(parts)


def setting_words(arm: Mapping[str, Any]) -> list[str]:
    """How an arm was asked, where that is not the plain way."""
    found = []
    if arm["reasoning"] != "none":
        found.append(f"reasoning {arm['reasoning']}")
    if arm["exposure"] is not None:
        found.append(f"after {arm['exposure']}")
    return found


def require_document(document: Document) -> None:
    """Raises MalformedInputError for a document of another form or unit."""
    if document.get("schema") != SCHEMA:
        raise MalformedInputError(
            "drift document: schema", expected=SCHEMA, found=document.get("schema")
        )
    if document["unit"] not in ("points", "score units"):
        raise MalformedInputError(
            "drift document: unit",
            expected="points or score units",
            found=document["unit"],
            next_step="use the version of eps_locked that wrote this document",
        )


def verdict_words(verdict: str) -> str:
    """Raises MalformedInputError for a verdict that this page has no words for."""
    if verdict not in VERDICTS:
        raise MalformedInputError(
            "drift document: verdict", expected=", ".join(VERDICTS), found=verdict
        )
    return VERDICTS[verdict][1]


def verdict_mark(verdict: str) -> Html:
    """The verdict with its sign, as on the charts."""
    sign, words = VERDICTS[verdict]
    return tag(
        "span", tag("span", sign, aria_hidden="true"), f" {words}", class_=f"verdict {verdict}"
    )


def change_column(scale: Scale, head: str, key: str) -> Column:
    """A change with its interval, fields ``KEY``, ``KEY_low`` and ``KEY_high``, without the unit:
    the head names it."""
    low, high = f"{key}_low", f"{key}_high"

    def show(row: Row) -> Child:
        text = scale.change(row[key], sign=True)
        ends = scale.ends(row[low], row[high])
        if row[key] is not None and not ends:
            ends = "no interval"
        return join(text, " ", tag("small", ends)) if ends else text

    return Column(head=f"{head}, {scale.short}", keys=(key, low, high), show=show, kind="num")


def level_column(scale: Scale, head: str, key: str, *, ends: bool = True) -> Column:
    """What one arm shows, with its interval."""
    low, high = f"{key}_low", f"{key}_high"

    def show(row: Row) -> Child:
        text = scale.level(row[key])
        inside = scale.level_ends(row[low], row[high]) if ends else ""
        return join(text, " ", tag("small", inside)) if inside else text

    return Column(head=head, keys=(key, low, high) if ends else (key,), show=show, kind="num")


def width_column(scale: Scale, head: str, key: str) -> Column:
    """A size that has no sign."""
    return Column(
        head=f"{head}, {scale.short}",
        keys=(key,),
        show=lambda row: scale.change(row[key]),
        kind="num",
    )


def comparison_column() -> Column:
    """The arm, and below it what it is held against."""
    return Column(
        head="arm",
        keys=("arm", "reference"),
        show=lambda row: join(
            row["arm"], " ", tag("small", f"against {row['reference']}", class_="why")
        ),
    )


def detectable_words(view: View) -> str:
    """What a detectable drift is."""
    alpha, power = view.settings["alpha"], view.settings["power"]
    errors = minimum_detectable_effect(1.0, alpha=alpha, power=power)
    return (
        f"Detectable: {errors:.1f} standard errors, the true drift that {power * 100:g} of 100 "
        f"studies like this one would tell from 0 at a level of {alpha:g}, were its stems many."
    )


def battery_blocks(names: Sequence[str], block: Callable[[str], Iterable[Child]]) -> Iterator[Html]:
    """One block for each battery with something in it, under the battery's name."""
    for name in names:
        parts = [part for part in block(name) if part is not None]
        if parts:
            yield join(tag("h3", name), *parts)


def _named(rows: Iterable[Mapping[str, Any]], key: str, name: str) -> Mapping[str, Any]:
    for row in rows:
        if row[key] == name:
            return row
    raise MalformedInputError(
        f"drift document: {key} {name}", expected="one that the document describes", found="none"
    )
