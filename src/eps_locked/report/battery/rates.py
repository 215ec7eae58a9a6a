"""Every model on every axis: the table of all, what the verdicts were, tool cases, thinking."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eps_locked.report.battery.view import (
    AXES,
    Entry,
    View,
    axis_column,
    counted,
    model_column,
    plain_rate_column,
    rate_column,
    rate_ends,
    rate_words,
    thinking_column,
)
from eps_locked.report.html import Child, Html, join, section, tag
from eps_locked.report.sheets import NOTHING, Column, Row, Sheet, sheet_table, words
from eps_locked.report.verdict_marks import of_column

CASES: Mapping[str, str] = {
    "one_call": "one call",
    "choose": "choose a tool",
    "no_call": "no call wanted",
    "several": "several calls",
}


def rate_sheets(view: View) -> dict[str, Sheet]:
    """Models by axes; each rate with its verdicts; tool cases."""
    return {
        "models": Sheet(
            file="models.csv",
            what="Every model on every axis",
            columns=(
                Column(head="model", keys=("model", "quantisation", "thinking"), show=_model),
                *(_cell(axis) for axis in view.axis_names),
            ),
            rows=tuple(_of_mode(view, model, mode) for model in view.models for mode in view.modes),
        ),
        "rates": Sheet(
            file="rates.csv",
            what="Each rate, and what its verdicts were",
            columns=(
                model_column(),
                axis_column(),
                thinking_column(),
                rate_column(f"rate [{view.level}]"),
                of_column("with a verdict", "n_scored", "n_items"),
                _listed("verdicts", "classes"),
                plain_rate_column("partials as halves", "half_way"),
                _listed("without a verdict", "missing"),
            ),
            rows=tuple(_rate(model, axis) for model, axis in view.axes()),
        ),
        "tool-cases": Sheet(
            file="tool-cases.csv",
            what="Tool cases by kind",
            columns=(
                model_column(),
                thinking_column(),
                *(
                    of_column(head, f"{kind}_right", f"{kind}_scored")
                    for kind, head in CASES.items()
                ),
                _listed("what each case came to", "outcomes"),
            ),
            rows=tuple(
                _cases(model, axis) for model, axis in view.axes() if axis["by_case"] is not None
            ),
        ),
    }


def models_section(view: View, sheets: Mapping[str, Sheet]) -> Html:
    """Models by axes in one look, and the long table behind it folded away."""
    return section(
        "models",
        "Models and axes",
        sheet_table(sheets["models"], join(view.promised, " Every model on every axis")),
        tag("p", _reading(view), class_="small"),
        tag(
            "details",
            tag("summary", "Each rate with its verdicts, and the items that have none"),
            sheet_table(sheets["rates"], join(view.promised, " Verdicts, and what is missing")),
            tag(
                "p",
                "A partial refusal is no refusal and is counted apart; beside it the rate with "
                "each partial as a half. No answer is not correct. Of the harmful axis there are "
                "counts and nothing else."
                if "harmful" in view.axis_names
                else "A partial refusal is no refusal and is counted apart; beside it the rate "
                "with each partial as a half. No answer is not correct.",
                class_="small",
            ),
        ),
    )


def tools_section(view: View, sheet: Sheet) -> Html | None:
    """None for a plan without tool cases."""
    if not sheet.rows:
        return None
    return section(
        "tools",
        "Tool cases by kind",
        tag(
            "p",
            "A model that always calls gets some cases right, and one that never calls gets others "
            "right: read the kinds, not their sum. Right, of those with a verdict.",
        ),
        sheet_table(sheet, join(view.promised, " Tool cases, right by kind")),
    )


def _reading(view: View) -> str:
    counts = "; ".join(f"{AXES[axis].name}: {AXES[axis].counts}" for axis in view.axis_names)
    return (
        f"What is counted: {counts}. A rate is over the items with a verdict, n; in brackets its "
        f"{view.level} interval. The difference from a base, below, is the finding; a rate by "
        "itself is of these items, this sampling and this day's server."
    )


def _model(row: Row) -> Child:
    thinking = tag("small", f"thinking {row['thinking']}")
    return join(row["model"], " ", tag("small", row["quantisation"]), " ", thinking)


def _cell(axis: str) -> Column:
    """A rate with interval and n, or how few verdicts there are."""

    def show(row: Row) -> Child:
        n, of = row[f"{axis}_n_scored"], row[f"{axis}_n_items"]
        if n is None:
            return NOTHING
        if row[axis] is None:
            return join("not measured ", tag("small", f"{n} of {of} with a verdict"))
        among = f" of {of}" if n < of else ""
        ends = rate_ends(row[f"{axis}_low"], row[f"{axis}_high"])
        return join(
            rate_words(row[axis]), " ", tag("small", ends), " ", tag("small", f"n = {n}{among}")
        )

    keys = (axis, f"{axis}_low", f"{axis}_high", f"{axis}_n_scored")
    return Column(head=AXES[axis].head, keys=keys, show=show, kind="num")


def _of_mode(view: View, model: Entry, mode: str) -> Row:
    found = {axis["axis"]: axis for axis in model["axes"] if axis["thinking"] == mode}
    row: dict[str, Any] = {
        "model": model["model"],
        "quantisation": model["quantisation"],
        "thinking": mode,
    }
    for name in view.axis_names:
        axis = found.get(name, {})
        row |= {
            name: axis.get("rate"),
            f"{name}_low": axis.get("low"),
            f"{name}_high": axis.get("high"),
            f"{name}_n_scored": axis.get("n_scored"),
            f"{name}_n_items": axis.get("n_items"),
        }
    return row


def _rate(model: Entry, axis: Entry) -> Row:
    return {
        "model": model["model"],
        "axis": axis["axis"],
        "thinking": axis["thinking"],
        "counts": axis["counts"],
        "measured": "yes" if axis["measured"] else "no",
        "rate": axis["rate"],
        "rate_low": axis["low"],
        "rate_high": axis["high"],
        "half_way": axis["half_way"],
        "n_items": axis["n_items"],
        "n_scored": axis["n_scored"],
        "n_counted": axis["n_counted"],
        "classes": counted(axis["classes"]),
        "missing": counted(axis["missing"]),
    }


def _cases(model: Entry, axis: Entry) -> Row:
    """Of an axis that was not measured no kind is told either: it would be read as a rate."""
    row: dict[str, Any] = {"model": model["model"], "thinking": axis["thinking"]}
    for kind in CASES:
        one = axis["by_case"].get(kind, {}) if axis["measured"] else {}
        row |= {
            f"{kind}_right": one.get("n_counted"),
            f"{kind}_scored": one.get("n_scored"),
            f"{kind}_items": one.get("n_items"),
        }
    unmeasured = f"not measured: {axis['n_scored']} of {axis['n_items']} have a verdict"
    return {**row, "outcomes": counted(axis["classes"]) if axis["measured"] else unmeasured}


def _listed(head: str, key: str) -> Column:
    return words(head, key, wide=True)
