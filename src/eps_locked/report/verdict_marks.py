"""Verdicts, p values and spans as the pages of documents write them: one form in every study."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from eps_locked.errors import MalformedInputError
from eps_locked.report.charts import Shape
from eps_locked.report.html import Html, tag
from eps_locked.report.sheets import NOTHING, Column, figure

__all__ = [
    "Mark",
    "marked",
    "of_column",
    "p_column",
    "probability",
    "require_known",
    "span_column",
    "span_words",
    "whole",
]

_LEAST_P = 0.0001


@dataclass(frozen=True, kw_only=True, slots=True)
class Mark:
    """A verdict on the page: its words, a sign that can be told without colour, its class in the
    style sheet and its shape on a chart."""

    words: str
    sign: str
    look: str = ""
    shape: Shape = "plain"


def marked(mark: Mark) -> Html:
    """The words with their sign, as on the charts."""
    return tag(
        "span",
        tag("span", mark.sign, aria_hidden="true"),
        f" {mark.words}",
        class_=f"verdict {mark.look}".strip(),
    )


def require_known(found: object, known: Iterable[str], where: str) -> None:
    """A word that nobody can read must not pass as none. Raises MalformedInputError."""
    if found not in (names := list(known)):
        raise MalformedInputError(
            where,
            expected=", ".join(names),
            found=found,
            next_step="use the version of eps_locked that wrote this document",
        )


def probability(p: float | None) -> str:
    """Three decimals, four where three say little; none reads as 0, which no p is."""
    if p is None:
        return NOTHING
    if p < _LEAST_P:
        return f"below {_LEAST_P}"
    return figure(p, 4 if p < 10 * _LEAST_P else 3)


def p_column(head: str, key: str) -> Column:
    return Column(head=head, keys=(key,), show=lambda row: probability(row[key]), kind="num")


def of_column(head: str, part: str, whole: str) -> Column:
    """``5 of 6``."""
    return Column(
        head=head,
        keys=(part, whole),
        show=lambda row: NOTHING if row[part] is None else f"{row[part]} of {row[whole]}",
        kind="num",
    )


def whole(value: float) -> str:
    """A count."""
    return f"{value:.0f}"


def span_words(values: Iterable[float | None], written: Callable[[float], str]) -> str:
    """``3.2 to 6.5``, one number where both ends read alike, a dash where there is none."""
    known = [value for value in values if value is not None]
    if not known:
        return NOTHING
    return " to ".join(dict.fromkeys((written(min(known)), written(max(known)))))


def span_column(head: str, key: str, written: Callable[[float], str]) -> Column:
    """The least and the most of several values, fields ``KEY_low`` and ``KEY_high``."""
    low, high = f"{key}_low", f"{key}_high"
    return Column(
        head=head,
        keys=(low, high),
        show=lambda row: span_words((row[low], row[high]), written),
        kind="num",
    )
