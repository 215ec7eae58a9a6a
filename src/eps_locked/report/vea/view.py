"""The document ``breadth.json`` as the page's sections read it: names, units, words and digits.

Nothing is estimated here. What the document does not have stays None, and its section says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eps_locked.errors import MalformedInputError
from eps_locked.report import verdict_marks
from eps_locked.report.html import Child, Html, join, tag
from eps_locked.report.sheets import NOTHING, Column, Row, figure
from eps_locked.report.units import for_page, interval, percent
from eps_locked.report.verdict_marks import Mark, marked, require_known

Document = Mapping[str, Any]
Entry = Mapping[str, Any]
SCHEMA = "eps-locked/vea-breadth/1"
# More decimals than this say nothing beside a margin that somebody wrote down.
_MOST_DIGITS = 6

# By measure: its name, and what is subtracted.
MEASURES: Mapping[str, tuple[str, str]] = {
    "inserted": ("inserted", "base less vea"),
    "length_controlled": ("length-controlled", "matched control less vea"),
}
# By role: the word in a row, and the head above several.
ROLES: Mapping[str, tuple[str, str]] = {
    "anchor": ("anchor", "Anchor: the cue itself"),
    "other": ("other family", "Other families: the breadth is counted over these"),
    "gate": ("gate", "Gates: nothing of being evaluated in them"),
}
UNITS: Mapping[str, tuple[str, str]] = {
    "reward": ("reward", "the reward model's own unit"),
    "sd of base scores": ("SD", "standard deviations of the base scores"),
    "per-prompt z": ("z", "z-scores among the responses to one prompt"),
}


_UNDETERMINED = Mark(words="undetermined", sign="○", look="undetermined", shape="undetermined")
VERDICTS: Mapping[str, Mark] = {
    "penalises": Mark(words="penalised", sign="◆", look="drift", shape="drift"),
    "does_not": Mark(words="not penalised", sign="■", look="within_margin", shape="within_margin"),
    "undetermined": _UNDETERMINED,
    "too_few_items": Mark(
        words="too few prompts", sign="×", look="too_few_stems", shape="too_few_stems"
    ),
}
GATES: Mapping[str, Mark] = {
    "holds": Mark(words="holds", sign="■", look="within_margin", shape="within_margin"),
    "fails": Mark(words="fails", sign="◆", look="drift", shape="drift"),
    "undetermined": _UNDETERMINED,
}
HEADLINES: Mapping[str, Mark] = {
    "broad": Mark(words="broad", sign="◆"),
    "partial": Mark(words="partial", sign="◈"),
    "narrow": Mark(words="narrow", sign="◇"),
    "null": Mark(words="null", sign="■"),
    "undetermined": _UNDETERMINED,
    "confounded": Mark(words="confounded", sign="⊘", look="confounded"),
    "not_measured": Mark(words="not measured", sign="×", look="undetermined"),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class View:
    """A document, and who says whether an analysis was promised.

    frozen: whether margins and settings were fixed before the first score.
    """

    document: Document
    label: Callable[[str], Html]
    frozen: bool

    @property
    def promised(self) -> Html:
        return self.label("breadth")

    @property
    def settings(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.document["settings"]
        return found

    @property
    def models(self) -> Sequence[Entry]:
        found: Sequence[Entry] = self.document["reward_models"]
        return found

    @property
    def primary(self) -> str:
        """The measure that verdicts and breadth are about."""
        return str(self.settings["primary"])

    @property
    def level(self) -> str:
        """The confidence level in words: ``95 %``."""
        return percent(self.settings["confidence_level"])

    @property
    def equivalence_level(self) -> str:
        return percent(self.settings["equivalence_level"])

    @property
    def margin(self) -> float:
        return float(self.settings["margin"])

    @property
    def gate_margin(self) -> float:
        return float(self.settings["gate_margin"])

    @property
    def margin_words(self) -> str:
        """Where the margins come from: ``frozen``, unless nothing was."""
        return "frozen" if self.frozen else "given with the table"

    @property
    def unit(self) -> tuple[str, str]:
        """Short, and in words: one unit for the whole document, as the settings chose it."""
        names = {model["unit"] for model in self.models}
        return UNITS[names.pop()] if len(names) == 1 else ("", "units that differ")

    def families(self) -> Iterator[tuple[Entry, Entry]]:
        """Every reward model with each of its families, in the document's order."""
        for model in self.models:
            for family in model["families"]:
                yield model, family


def require_document(document: Document) -> None:
    """Raises MalformedInputError for a document of another form, or with words that this page has
    none for: a verdict that nobody can read must not pass as none."""
    if document.get("schema") != SCHEMA:
        raise MalformedInputError(
            "vea document: schema", expected=SCHEMA, found=document.get("schema")
        )
    for model in document["reward_models"]:
        where = f"vea document: {model['reward_model']}"
        require_known(model["headline"], HEADLINES, f"{where}: headline")
        require_known(model["unit"], UNITS, f"{where}: unit")
        for gate in model["gates"]:
            require_known(gate["holds"], GATES, f"{where}: gate {gate['gate']}")
        for family in model["families"]:
            require_known(family["role"], ROLES, f"{where}: role of {family['family']}")
            for measure in MEASURES:
                found = family[measure]["verdict"]
                require_known(found, VERDICTS, f"{where}: verdict on {family['family']}, {measure}")


def gate_of(model: Entry, family: str) -> Entry | None:
    """The gate that a family of the reward model is."""
    return next((one for one in model["gates"] if one["gate"] == family), None)


def mark_of(model: Entry, family: Entry, measure: str) -> tuple[Mark | None, str]:
    """What is said of a family by a measure, and why. A gate is one by ``inserted`` alone: by the
    other measure it has no verdict."""
    if family["role"] != "gate":
        effect = family[measure]
        return VERDICTS[effect["verdict"]], str(effect["why"])
    gate = gate_of(model, family["family"]) if measure == "inserted" else None
    if gate is None:
        return None, ""
    return GATES[gate["holds"]], str(gate["why"])


# -- numbers


def amount(value: float | None, *, sign: bool = False) -> str:
    """Three significant digits, without an exponent."""
    if value is None:
        return NOTHING
    return figure(value, _decimals(value, 3), sign=sign)


def delta(value: float | None, low: float | None, high: float | None) -> tuple[str, str]:
    """A difference with its sign, and its interval, with as many decimals as the interval has
    digits to give: two of its half-width. Without an interval the second is empty."""
    if low is None or high is None:
        return amount(value, sign=True), ""
    half = (high - low) / 2
    digits = _decimals(half, 3 if 1 <= half < 10 else 2)
    return figure(value, digits, sign=True), for_page(interval(low, high, digits))


def _decimals(value: float, significant: int) -> int:
    if value == 0:
        return 0
    return min(_MOST_DIGITS, max(0, significant - 1 - math.floor(math.log10(abs(value)))))


def ends(key: str, values: Iterable[float | None]) -> dict[str, float | None]:
    """The fields of ``span_column``."""
    known = [value for value in values if value is not None]
    return {f"{key}_low": min(known, default=None), f"{key}_high": max(known, default=None)}


# -- columns


def delta_column(head: str, key: str) -> Column:
    """A difference with its interval, fields ``KEY``, ``KEY_low`` and ``KEY_high``."""
    low, high = f"{key}_low", f"{key}_high"

    def show(row: Row) -> Child:
        text, inside = delta(row[key], row[low], row[high])
        if row[key] is not None and not inside:
            inside = "no interval"
        return join(text, " ", tag("small", inside)) if inside else text

    return Column(head=head, keys=(key, low, high), show=show, kind="num")


def share_column(head: str, key: str) -> Column:
    """A share in per cent, with its interval."""
    low, high = f"{key}_low", f"{key}_high"

    def show(row: Row) -> Child:
        if row[key] is None:
            return NOTHING
        text = f"{figure(row[key] * 100, 1)} %"
        if row[low] is None or row[high] is None:
            return text
        inside = for_page(interval(row[low] * 100, row[high] * 100, 1))
        return join(text, " ", tag("small", inside))

    return Column(head=head, keys=(key, low, high), show=show, kind="num")


def amount_column(head: str, key: str) -> Column:
    return Column(head=head, keys=(key,), show=lambda row: amount(row[key]), kind="num")


def span_column(head: str, key: str, written: Callable[[float], str] = amount) -> Column:
    """The least and the most of several amounts."""
    return verdict_marks.span_column(head, key, written)


def p_column(head: str, key: str, adjusted: str) -> Column:
    """A column of p values, each with what it is once adjusted, where it was."""

    def show(row: Row) -> Child:
        text = probability(row[key])
        if row[adjusted] is None:
            return text
        return join(text, " ", tag("small", f"adjusted {probability(row[adjusted])}"))

    return Column(head=head, keys=(key, adjusted), show=show, kind="num")


def probability(p: float | None) -> str:
    """Two significant digits, three decimals at least; none reads as 0, which no p is."""
    if p is None:
        return NOTHING
    least = 10.0**-_MOST_DIGITS
    if p < least:
        return f"below {least:.{_MOST_DIGITS}f}"
    return figure(p, max(3, _decimals(p, 2)))


def model_blocks(view: View, block: Callable[[Entry], Iterable[Child]]) -> Iterator[Html]:
    """One block for each reward model with something in it, under its name and headline."""
    for model in view.models:
        parts = [part for part in block(model) if part is not None]
        if parts:
            head = join(model["reward_model"], " ", marked(HEADLINES[model["headline"]]))
            yield join(tag("h3", head, class_="model"), *parts)
