"""Power: what was assumed before anything was asked, beside what the replies then gave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from eps_locked.report.absent import Blank
from eps_locked.report.charts import Series, axis_over, plot
from eps_locked.report.drift.view import View, width_column
from eps_locked.report.html import Child, Html, join, section, tag
from eps_locked.report.sheets import (
    Row,
    Sheet,
    count,
    share,
    sheet_table,
    words,
)
from eps_locked.report.verdict_marks import span_column, span_words, whole


def power_sheets(view: View) -> dict[str, Sheet]:
    """Assumed and found by battery, the curve over stems, and the simulated coverage."""
    scale = view.scale
    power = view.document["power"] or {"per_battery": [], "curve": [], "coverage": []}
    assumed = {one["battery"]: one for one in power["per_battery"]}
    wanted = f"{view.settings['wanted_points']:g} {scale.short}"
    return {
        "power": Sheet(
            file="power.csv",
            what="Power as assumed before the run, and as found",
            columns=(
                words("battery", "battery"),
                count("stems", "n_stems"),
                width_column(scale, "detectable as assumed", "minimum_detectable"),
                span_column(f"as found, {scale.short}", "found", scale.change),
                share(f"power for {wanted} as assumed", "power_for_wanted", 0),
                count(f"stems for {wanted} as assumed", "stems_for_wanted"),
                span_column("stems as found", "found_stems_for_wanted", whole),
            ),
            rows=tuple(_row(view, name, assumed.get(name, {})) for name in view.batteries),
            blank=Blank(
                values=("minimum_detectable", "found_low"),
                item=lambda row: str(row["battery"]),
                items="batteries",
            ),
        ),
        "power-curve": Sheet(
            file="power-curve.csv",
            what="Detectable drift by number of stems, as assumed before the run",
            columns=(
                count("stems", "n_stems"),
                width_column(scale, "detectable", "minimum_detectable"),
                share(f"power for {wanted}", "power_for_wanted", 0),
            ),
            rows=tuple(dict(one) for one in power["curve"]),
        ),
        "coverage": Sheet(
            file="coverage.csv",
            what="Simulated with known truth, rewordings of a stem correlated",
            columns=(
                count("stems", "n_stems"),
                count("rewordings", "n_rewordings"),
                share(f"{view.level} interval covers 0", "coverage"),
                share("covers the detectable", "coverage_at_minimum"),
                share("null tests reject", "null_rejection"),
                share("power at the detectable", "power_at_minimum"),
                share("at that for few", "power_at_minimum_few"),
                count("studies", "n_experiments"),
            ),
            rows=tuple(dict(one) for one in power["coverage"]),
        ),
    }


def power_section(view: View, sheets: Mapping[str, Sheet]) -> Html:
    """The table of both, the curve with the study's own place on it, and the simulations."""
    promised, power = view.label("drift"), view.document["power"]
    blocks: list[Child] = []
    if power is None:
        blocks.append(
            tag(
                "p",
                tag("b", "No power was computed before: "),
                "what follows is what the replies gave, known only afterwards.",
                class_="notice",
            )
        )
    else:
        blocks.append(tag("p", _assumptions(view, power["assumed"])))
    blocks.append(
        sheet_table(sheets["power"], join(promised, " Assumed before the run, and found"))
    )
    if sheets["power-curve"].rows:
        blocks += [
            tag("div", _curve(view, sheets), class_="plots"),
            tag(
                "details",
                tag("summary", "The curve in numbers"),
                sheet_table(
                    sheets["power-curve"], join(promised, " Detectable drift by number of stems")
                ),
            ),
        ]
    if sheets["coverage"].rows:
        blocks += [
            sheet_table(sheets["coverage"], join(promised, " Simulated with known truth")),
            tag("p", _simulated(sheets["coverage"].rows), class_="small"),
        ]
    for one in (power or {}).get("not_simulated", ()):
        blocks.append(
            tag(
                "p",
                tag("b", "Not simulated: "),
                f"{one['n_stems']} stems in {one['n_rewordings']} rewordings each. {one['reason']}",
                class_="notice",
            )
        )
    return section("power", "Power", *blocks)


def _assumptions(view: View, assumed: Mapping[str, float]) -> str:
    settings, scale = view.settings, view.scale
    return (
        f"Assumed before the first answer: {scale.level_word} {scale.level(assumed['rate'])}; true "
        f"drifts of stems with a standard deviation of {assumed['stem_sd_points']:g} "
        f"{scale.words}; one reply with variance {assumed['within_variance']:g} around its probe's "
        f"rate. Wanted: to see a drift of {settings['wanted_points']:g} {scale.words} in "
        f"{settings['power'] * 100:g} studies of 100, at a level of {settings['alpha']:g}."
    )


def _simulated(rows: Sequence[Row]) -> str:
    return (
        "Made with the assumptions above: replies of 0 or 1 whose stems and rewordings have rates "
        "of their own, once without a drift and once with one of the detectable size. An interval "
        "that covers less often than it says is too narrow at that number of stems; "
        f"{rows[0]['n_experiments']} studies leave the last digit uncertain."
    )


def _curve(view: View, sheets: Mapping[str, Sheet]) -> Html:
    scale = view.scale
    curve = sheets["power-curve"].rows
    found = [row for row in sheets["power"].rows if row["found_low"] is not None]
    own: dict[int, list[str]] = {}
    for row in sheets["power"].rows:
        own.setdefault(row["n_stems"], []).append(str(row["battery"]))
    x = axis_over([*(row["n_stems"] for row in curve), *own], n_ticks=6)
    known = [row["minimum_detectable"] for row in curve]
    y = axis_over([*known, *(row["found_high"] for row in found)], n_ticks=4)
    said = "; ".join(
        f"{row['n_stems']} stems, {scale.change(row['minimum_detectable'])}" for row in curve
    )
    beside = "; ".join(
        f"{row['battery']} with {row['n_stems']} stems, "
        f"{span_words((row['found_low'], row['found_high']), scale.change)}"
        for row in found
    )
    places = "; ".join(f"{n}: {', '.join(names)}" for n, names in own.items())
    return tag(
        "figure",
        plot(
            [
                Series(
                    points=tuple((row["n_stems"], row["minimum_detectable"]) for row in curve),
                    look="assumed",
                    joined=True,
                    shape=None,
                ),
                Series(
                    points=tuple((row["n_stems"], row["found_middle"]) for row in found),
                    ends=tuple((row["found_low"], row["found_high"]) for row in found),
                    shape="drift",
                ),
            ],
            x=x,
            y=y,
            x_words="stems",
            stops=[(n, "this study" if len(own) == 1 else "") for n in own],
            height=250,
            label=f"Detectable drift in {scale.words} by number of stems, as assumed: {said}. "
            f"Found: {beside or 'nothing'}.",
        ),
        tag(
            "figcaption",
            tag("b", f"Detectable drift, {scale.words}, by number of stems"),
            tag(
                "small",
                "Line: as assumed before the run. Diamonds with lines: median and range over the "
                "comparisons of a battery, as found. Dashed upright: the stems of this study "
                f"({places}).",
            ),
        ),
        class_="broad",
    )


def _row(view: View, name: str, assumed: Mapping[str, Any]) -> Row:
    effects = [effect for _, battery, effect in view.effects() if battery == name]
    sizes = _known(effects, "minimum_detectable")
    stems = _known(effects, "stems_for_wanted")
    return {
        "battery": name,
        "n_stems": view.battery(name)["n_stems"],
        "n_probes": assumed.get("n_probes"),
        "n_samples": assumed.get("n_samples"),
        "standard_error": assumed.get("standard_error"),
        "minimum_detectable": assumed.get("minimum_detectable"),
        "minimum_detectable_few": assumed.get("minimum_detectable_few"),
        "power_for_wanted": assumed.get("power_for_wanted"),
        "stems_for_wanted": assumed.get("stems_for_wanted"),
        "n_comparisons": len(sizes),
        "found_low": min(sizes, default=None),
        "found_middle": _middle(sizes),
        "found_high": max(sizes, default=None),
        "found_stems_for_wanted_low": min(stems, default=None),
        "found_stems_for_wanted_high": max(stems, default=None),
        "reason": "no comparison with stems that differ, and no power computed before",
    }


def _known(effects: Sequence[Mapping[str, Any]], key: str) -> list[float]:
    return sorted(effect[key] for effect in effects if effect[key] is not None)


def _middle(values: Sequence[float]) -> float | None:
    """The median of sorted values."""
    n = len(values)
    return (values[(n - 1) // 2] + values[n // 2]) / 2 if n else None
