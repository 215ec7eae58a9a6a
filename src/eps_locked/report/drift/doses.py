"""The aligned rate along known doses: whether the instrument responds to what it should see."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from eps_locked.report.charts import Axis, Series, axis_over, plot
from eps_locked.report.drift.view import View, battery_blocks, change_column, level_column
from eps_locked.report.html import Child, Html, join, section, tag
from eps_locked.report.sheets import Column, Row, Sheet, count, figure, sheet_table, words
from eps_locked.report.verdict_marks import p_column

Trend = Mapping[str, Any]
_PERCENT = Axis(low=0, high=100, ticks=(0, 25, 50, 75, 100))


def dose_sheets(view: View) -> dict[str, Sheet]:
    """Every point, and every trend."""
    scale = view.scale
    series = (
        words("topic", "topic"),
        words("reasoning", "reasoning"),
        count("seed", "seed"),
    )
    return {
        "doses": Sheet(
            file="doses.csv",
            what="The aligned rate at each known dose",
            columns=(
                *series,
                Column(
                    head="dose, %",
                    keys=("dose_percent",),
                    show=lambda row: f"{row['dose_percent']:g}",
                    kind="num",
                ),
                words("arm", "arm"),
                count("stems", "n_stems"),
                level_column(scale, scale.level_word, "rate"),
                level_column(scale, "monotone fit", "fitted", ends=False),
            ),
            rows=tuple(
                {
                    **_of(trend),
                    "dose_percent": point["dose_percent"],
                    "arm": point["arm"],
                    "rate": point["rate"],
                    "rate_low": point["low"],
                    "rate_high": point["high"],
                    "fitted": point["fitted"],
                }
                for trend in view.document["doses"]
                for point in trend["points"]
            ),
        ),
        "trends": Sheet(
            file="trends.csv",
            what="The trend over the doses of each series",
            columns=(
                *series,
                count("doses", "n_doses"),
                count("stems", "n_stems"),
                words("monotone fit", "direction"),
                change_column(scale, "change from lowest to highest dose", "change"),
                p_column("p of the trend", "p"),
            ),
            rows=tuple(_trend(trend) for trend in view.document["doses"]),
        ),
    }


def doses_section(view: View, sheets: Mapping[str, Sheet]) -> Html | None:
    """None where nothing was trained at three doses."""
    if not sheets["doses"].rows:
        return None
    return section(
        "doses",
        "Dose and response",
        tag(
            "p",
            "Training sets of one size, in which only the share of harmful or careless answers "
            f"(the dose) differs. Points with {view.level} intervals; dashes, the monotone fit; "
            "dots and dashes across, the untouched model asked the same way. The trend is the "
            "change along a line over the order of the doses, stem by stem; its p is from flipping "
            "the signs of stems.",
        ),
        *battery_blocks(view.batteries, lambda name: _battery(view, sheets, name)),
    )


def _battery(view: View, sheets: Mapping[str, Sheet], name: str) -> Iterator[Child]:
    trends = [one for one in view.document["doses"] if one["battery"] == name]
    if not trends:
        return
    promised = view.label("doses")
    yield tag("div", [_figure(view, one) for one in trends], class_="plots")
    yield sheet_table(
        sheets["trends"].where(battery=name), join(promised, f" {name}: trend over the doses")
    )
    yield tag(
        "details",
        tag("summary", f"{name}: every dose"),
        sheet_table(
            sheets["doses"].where(battery=name),
            join(promised, f" {name}: {view.scale.level_word} at each dose"),
        ),
    )


def _figure(view: View, trend: Trend) -> Html:
    scale = view.scale
    points = trend["points"]
    control = untouched(view, trend)
    levels = [value for point in points for value in (point["rate"], point["low"], point["high"])]
    control_level = None if control is None else control["rate"]
    axis = _PERCENT if scale.is_rate else axis_over([*levels, control_level], n_ticks=4)
    seed = f", seed {trend['seed']}" if trend["seed"] is not None else ""
    title = f"{trend['topic']}, reasoning {trend['reasoning']}{seed}"
    said = "; ".join(
        f"{point['dose_percent']:g} %: {scale.level(point['rate'])} "
        f"{scale.level_ends(point['low'], point['high'])}".rstrip()
        for point in points
    )
    beside = f"; untouched model {scale.level(control_level)}" if control is not None else ""
    return tag(
        "figure",
        tag(
            "figcaption",
            tag("b", title),
            tag(
                "small",
                f"{scale.level_word}{', %' if scale.is_rate else ''}: "
                f"{figure(trend['change'], scale.digits, sign=True)} {scale.words} "
                f"{scale.ends(trend['low'], trend['high'])} from lowest to highest dose, "
                f"n = {trend['n_stems']} stems",
            ),
        ),
        plot(
            [
                Series(
                    points=_points(view, points, "fitted"),
                    look="fitted",
                    joined=True,
                    shape=None,
                ),
                Series(points=_points(view, points, "rate"), ends=_ends(view, points)),
            ],
            x=_PERCENT,
            y=axis,
            x_words="dose, % of the training set",
            levels=[] if control_level is None else [(scale.place(control_level), "untouched")],
            label=f"{trend['battery']}, {title}: {scale.level_word} at {said}{beside}",
        ),
    )


def untouched(view: View, trend: Trend) -> Mapping[str, Any] | None:
    """What the untouched model shows when it is asked as the arms of a series are."""
    first = view.arm(trend["points"][0]["arm"])
    for arm in view.document["arms"]:
        same = all(arm[key] == first[key] for key in ("reasoning", "temperature", "exposure"))
        found: Mapping[str, Any] | None = arm["batteries"].get(trend["battery"])
        if arm["topic"] is None and same and found is not None and found["rate"] is not None:
            return found
    return None


def _points(
    view: View, points: list[Mapping[str, Any]], key: str
) -> tuple[tuple[float, float], ...]:
    return tuple((point["dose_percent"], view.scale.place(point[key])) for point in points)


def _ends(view: View, points: list[Mapping[str, Any]]) -> tuple[tuple[float, float] | None, ...]:
    place = view.scale.place
    return tuple(
        None
        if point["low"] is None or point["high"] is None
        else (place(point["low"]), place(point["high"]))
        for point in points
    )


def _of(trend: Trend) -> dict[str, Any]:
    return {
        "battery": trend["battery"],
        "topic": trend["topic"],
        "reasoning": trend["reasoning"],
        "seed": trend["seed"],
        "n_stems": trend["n_stems"],
    }


def _trend(trend: Trend) -> Row:
    return {
        **_of(trend),
        "n_doses": len(trend["points"]),
        "direction": trend["direction"],
        "change": trend["change"],
        "change_low": trend["low"],
        "change_high": trend["high"],
        "p": trend["p"],
    }
