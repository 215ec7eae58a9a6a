"""Every model against its base: differences with their intervals, bounds and verdicts; and the axes
on which no two models differ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eps_locked.report.battery.view import (
    VERDICTS,
    Entry,
    View,
    axis_column,
    axis_words,
    delta_column,
    marked,
    notice,
    plain_rate_column,
    points,
    points_up,
    thinking_column,
)
from eps_locked.report.charts import Axis, Strip, axis_over, strip_chart, strip_ends
from eps_locked.report.html import Child, Html, join, section, tag
from eps_locked.report.sheets import NOTHING, Column, Row, Sheet, count, sheet_table
from eps_locked.report.verdict_marks import p_column

_UNIT = "difference, percentage points"


def comparison_sheets(view: View) -> dict[str, Sheet]:
    """Differences by comparison, and axes that separate nobody."""
    return {
        "comparisons": Sheet(
            file="comparisons.csv",
            what="Every model against its base, by axis and thinking mode",
            columns=(
                Column(head="axis", keys=("thinking",), show=_place),
                Column(head="compared on", keys=("n_pairs",), show=_compared_on, kind="num"),
                plain_rate_column("model", "rate_model"),
                plain_rate_column("base", "rate_base"),
                Column(head="up, down", keys=("n_up", "n_down"), show=_moved, kind="num"),
                delta_column(f"difference [{view.level}]"),
                Column(
                    head=f"bound [{view.equivalence_level}]",
                    keys=("equivalence_bound", "low_equivalence", "high_equivalence"),
                    show=_bound,
                    kind="num",
                ),
                Column(
                    head="detectable",
                    keys=("minimum_detectable",),
                    show=_detectable,
                    kind="num",
                ),
                Column(
                    head="margin",
                    keys=("margin",),
                    show=lambda row: _margin(row["margin"]),
                    kind="num",
                    aside=True,
                ),
                p_column("p, adjusted", "p_adjusted"),
                Column(head="verdict", keys=("verdict_words",), show=_verdict),
            ),
            rows=tuple(_row(one, axis) for one, axis in view.compared()),
        ),
        "weak": Sheet(
            file="weak-discriminators.csv",
            what="Axes on which no two models differ",
            columns=(
                axis_column(),
                thinking_column(),
                count("models", "n_models"),
                count("pairs tested", "n_pairs"),
                plain_rate_column("lowest rate", "low_rate"),
                plain_rate_column("highest rate", "high_rate"),
                p_column("smallest p, adjusted", "smallest_p_adjusted"),
            ),
            rows=tuple(dict(one) for one in view.document["weak_discriminators"]),
        ),
    }


def comparisons_section(view: View, sheets: Mapping[str, Sheet]) -> Html | None:
    """By comparison: its title, how the two were served, the chart, the table. None without a
    base."""
    if not view.comparisons:
        return None
    # One axis for all, so that two charts can be read beside one another.
    axis = axis_over(strip_ends(_strip(row) for row in sheets["comparisons"].rows))
    return section(
        "comparisons",
        "Models against their base",
        tag("p", _reading(view)),
        _legend(view),
        *(_comparison(view, sheets["comparisons"], one, axis) for one in view.comparisons),
    )


def weak_section(view: View, sheet: Sheet) -> Html | None:
    """None where every axis that could be compared tells some two models apart."""
    if not sheet.rows:
        return None
    return section(
        "weak",
        "Weak discriminators",
        tag(
            "p",
            "On these axes no two models of the run differ by the test, adjusted (Holm) for the "
            "pairs. It means that these items did not separate these models, and not that the "
            "models are alike: the bounds above say what is not excluded.",
        ),
        sheet_table(sheet, join(view.promised, " Axes that separate no two models")),
    )


def _comparison(view: View, sheet: Sheet, one: Entry, axis: Axis) -> Html:
    shown = sheet.where(model=one["model"], base=one["base"])
    title = str(one["title"])
    return join(
        tag("h3", title, class_="comparison"),
        _served(one),
        strip_chart(
            [_strip(row) for row in shown.rows],
            label=f"{title}: differences with their intervals, percentage points",
            unit=_UNIT,
            axis=axis,
        ),
        sheet_table(shown, join(view.promised, f" {title}")),
    )


def _served(one: Entry) -> Html | None:
    """What besides the model itself may have moved the rates."""
    differs = one.get("differs", ())
    if not differs:
        return None
    said = "; ".join(f"{each['what']} {each['model']} and {each['base']}" for each in differs)
    return notice("Served differently, which moves rates by itself", f"{said}.")


def _reading(view: View) -> str:
    settings = view.settings
    return (
        "A difference is the rate of the model minus that of its base, on the items that both have "
        "a verdict on; up and down count the items on which the two differ. Bound: no difference "
        f"larger than this, either way, is compatible with the {view.equivalence_level} interval. "
        f"Detectable: the true difference that {settings['power'] * 100:g} of 100 such runs would "
        "find among all tests of the comparison; none, where so few items can find none. p is "
        f"{_test(view)}, adjusted (Holm) for the axes and modes of one comparison; at most "
        f"{settings['alpha']:g} is higher or lower. Within the margin: no difference found, and "
        "the bound is at most the frozen margin. Neither is undetermined, which is not the "
        "same as no difference."
    )


def _test(view: View) -> str:
    if any(row["compared_by"] != "items" for _, row in view.compared()):
        return "McNemar's, exact, and Fisher's where items cannot be matched"
    return "McNemar's, exact"


def _legend(view: View) -> Html:
    signs: list[Child] = []
    for verdict in VERDICTS:
        signs += ["; " if signs else "", marked(verdict)]
    return tag(
        "p",
        f"On the charts: thin line, {view.level} interval; thick line, {view.equivalence_level} "
        "interval; shaded between dotted edges, the margin; full upright line, 0. ",
        *signs,
        ".",
        class_="small",
    )


def _strip(row: Row) -> Strip:
    mark = VERDICTS[row["verdict"]]
    margin = row["margin"] * 100
    low, high = _points(row["low_equivalence"]), _points(row["high_equivalence"])
    return Strip(
        name=_place(row),
        words=_strip_words(row),
        value=_points(row["delta"]),
        low=_points(row["delta_low"]),
        high=_points(row["delta_high"]),
        inner=None if low is None or high is None else (low, high),
        shape=mark.shape,
        band=(-margin, margin),
    )


def _strip_words(row: Row) -> Html:
    if row["delta"] is None:
        return join(marked(row["verdict"]), " ", tag("small", _few(row)))
    value, ends = points(row["delta"], row["delta_low"], row["delta_high"])
    return join(
        value,
        " ",
        ends,
        " ",
        tag("small", f"n = {_n(row)}, bound {points_up(row['equivalence_bound'])}"),
        " ",
        marked(row["verdict"]),
    )


def _few(row: Row) -> str:
    return (
        f"verdicts on {row['n_scored_model']} and {row['n_scored_base']} of {row['n_items']}, on "
        f"both {row['n_pairs']}"
    )


def _points(value: float | None) -> float | None:
    return None if value is None else value * 100


def _margin(value: float) -> str:
    return f"±{value * 100:g} pp"


def _place(row: Row) -> Html:
    return join(axis_words(row["axis"]), " ", tag("small", f"thinking {row['thinking']}"))


def _n(row: Row) -> str:
    """Shared items; of an axis that keeps nothing by item the numbers of either side."""
    if row["compared_by"] == "items":
        return str(row["n_pairs"])
    return f"{row['n_scored_model']} and {row['n_scored_base']}, unmatched"


def _compared_on(row: Row) -> Child:
    number, _, how = _n(row).partition(", ")
    return join(number, " ", tag("small", how)) if how else number


def _detectable(row: Row) -> str:
    """A comparison that was not made could have found nothing of any size."""
    return NOTHING if row["delta"] is None else points_up(row["minimum_detectable"])


def _moved(row: Row) -> str:
    return NOTHING if row["n_up"] is None else f"{row['n_up']}, {row['n_down']}"


def _bound(row: Row) -> Child:
    """The bound, and the interval that it is read from."""
    if row["equivalence_bound"] is None:
        return NOTHING
    _, ends = points(row["delta"], row["low_equivalence"], row["high_equivalence"])
    return join(points_up(row["equivalence_bound"]), " ", tag("small", ends))


def _verdict(row: Row) -> Child:
    """A difference that was found and is small is both, and both is said."""
    small = row["verdict"] in ("higher", "lower") and row["equivalence_bound"] <= row["margin"]
    also = tag("small", "and within the margin", class_="why") if small else None
    return join(marked(row["verdict"]), " " if small else None, also)


def _row(one: Entry, axis: Entry) -> Row:
    row: dict[str, Any] = {
        "model": one["model"],
        "base": one["base"],
        "title": one["title"],
        "across_quantisation": "yes" if one["across_quantisation"] else "no",
        **{
            key: axis[key]
            for key in (
                *("axis", "thinking", "compared_by", "n_pairs", "n_items", "n_scored_model"),
                *("n_scored_base", "n_up", "n_down", "rate_model", "rate_base", "delta"),
            )
        },
        "delta_low": axis["low"],
        "delta_high": axis["high"],
        **{
            key: axis[key]
            for key in (
                *("p", "p_adjusted", "minimum_detectable", "low_equivalence", "high_equivalence"),
                *("equivalence_bound", "margin", "verdict", "sentence"),
            )
        },
        "verdict_words": VERDICTS[axis["verdict"]].words,
    }
    return row
