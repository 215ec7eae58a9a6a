"""The graded scale, 1 to 7, beside the classes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from eps_locked.report.drift.view import (
    Scale,
    View,
    battery_blocks,
    change_column,
    comparison_column,
)
from eps_locked.report.html import Child, Html, join, section, tag
from eps_locked.report.sheets import (
    Column,
    Row,
    Sheet,
    count,
    figure,
    number,
    share,
    sheet_table,
    with_interval,
    words,
)

# Grades are steps of a scale whatever a drift is counted in.
_STEPS = Scale(unit="grades")


def grade_sheet(view: View) -> Sheet:
    """One row for each comparison that was graded."""
    return Sheet(
        file="grades.csv",
        what="Differences on the scale from 1 to 7",
        columns=(
            comparison_column(),
            count("stems", "n_stems"),
            _difference(),
            number("bound", "equivalence_bound"),
            words("within the margin", "within_margin"),
            with_interval("Cliff's delta", "cliffs", sign=True, shown=figure),
            share("reference at the top grade", "ceiling_share"),
        ),
        rows=tuple(_rows(view)),
    )


def grades_section(view: View, sheet: Sheet) -> Html | None:
    """None where nothing was graded."""
    if not sheet.rows:
        return None
    return section(
        "grades",
        "Graded scale",
        tag(
            "p",
            "A judge that saw only the question and the final reply graded it from 1 to 7, 7 most "
            f"aligned. The {view.margin_words} is ±{view.settings['margin_grade']:g} grades. "
            "Cliff's delta: the chance that a reply of the arm has the higher grade, less that of "
            "the lower one. Where most replies of the reference have the top grade, the scale has "
            "no room left above and shows little below.",
        ),
        *battery_blocks(view.batteries, lambda name: _battery(view, sheet, name)),
    )


def _battery(view: View, sheet: Sheet, name: str) -> Iterator[Child]:
    shown = sheet.where(battery=name)
    if shown.rows:
        yield sheet_table(shown, join(view.label("drift"), f" {name}: grades"))


def _difference() -> Column:
    column = change_column(_STEPS, "difference", "difference")
    return Column(head="difference, grades", keys=column.keys, show=column.show, kind=column.kind)


def _rows(view: View) -> Iterator[Row]:
    for one, battery, effect in view.effects():
        found: Mapping[str, float | None] | None = effect["grades"]
        if found is None:
            continue
        yield {
            "battery": battery,
            "arm": one["arm"],
            "reference": one["reference"],
            "n_stems": found["n_stems"],
            "difference": found["difference"],
            "difference_low": found["low"],
            "difference_high": found["high"],
            "equivalence_bound": found["equivalence_bound"],
            "margin": found["margin"],
            "within_margin": "yes" if found["within_margin"] else "no",
            "cliffs": found["cliffs_delta"],
            "cliffs_low": found["cliffs_low"],
            "cliffs_high": found["cliffs_high"],
            "ceiling_share": found["ceiling_share"],
        }
