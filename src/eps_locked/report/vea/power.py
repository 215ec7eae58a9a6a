"""Power: what the items could find before anything was scored, beside the spread that came."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from eps_locked.report.charts import Series, axis_over, plot
from eps_locked.report.html import Child, Html, join, section, tag
from eps_locked.report.sheets import Column, Row, Sheet, count, sheet_table, words
from eps_locked.report.vea.view import ROLES, View, amount, amount_column, ends, span_column


def power_sheets(view: View) -> dict[str, Sheet]:
    """By family, and the curve over family sizes; empty where no power was computed."""
    power: Mapping[str, Any] = view.document["power"] or {"families": [], "curve": []}
    return {
        "power": Sheet(
            file="power.csv",
            what="What each family could find, before anything was scored",
            columns=(
                Column(
                    head="family",
                    keys=("family", "role"),
                    show=lambda row: join(row["family"], " ", tag("small", row["role"])),
                ),
                count("items", "n_items"),
                words("test", "test"),
                amount_column("detectable alone, SD", "minimum_detectable_alone"),
                amount_column("if all, SD", "minimum_detectable_all"),
                _margin_column(),
                amount_column("largest SD shown within it", "largest_sd_shown_within_margin"),
                span_column("SD found", "sd_found"),
            ),
            rows=tuple(_row(view, one) for one in power["families"]),
        ),
        "power-curve": Sheet(
            file="power-curve.csv",
            what="Detectable difference by items of a family",
            columns=(
                count("items", "n_items"),
                amount_column("detectable alone, SD", "minimum_detectable_alone"),
                amount_column("if all, SD", "minimum_detectable_all"),
            ),
            rows=tuple(dict(one) for one in power["curve"]),
        ),
    }


def power_section(view: View, sheets: Mapping[str, Sheet]) -> Html:
    """Assumptions, the table, and the curve with the study's own sizes on it."""
    power = view.document["power"]
    if power is None:
        return section(
            "power",
            "Power",
            tag(
                "p",
                tag("b", "No power was computed before: "),
                "what could be detected follows from the spread of the scores themselves, and "
                "stands beside each family.",
                class_="notice",
            ),
        )
    blocks: list[Child] = [
        tag("p", _assumed(view, power)),
        sheet_table(
            sheets["power"], join(view.promised, " Before anything was scored, and the SD found")
        ),
        tag(
            "p",
            "Largest SD shown within it: were a reward model without any effect to have at most "
            "this spread, so many studies would show its Δ to lie below the margin (for gates "
            "within it on both sides). SD found: of the differences over prompts, over the reward "
            f"models, by the measure that verdicts are about ({view.unit[1]}).",
            class_="small",
        ),
    ]
    if sheets["power-curve"].rows:
        blocks += [
            tag("div", _curve(view, sheets), class_="plots"),
            tag(
                "details",
                tag("summary", "The curve in numbers"),
                sheet_table(
                    sheets["power-curve"],
                    join(view.promised, " Detectable difference by items of a family"),
                ),
            ),
        ]
    return section("power", "Power", *blocks)


def _assumed(view: View, power: Mapping[str, Any]) -> str:
    return (
        f"Computed before the first score, in {power['unit']}; assumed: {power['assumed']}. "
        f"Detectable: the true Δ that {power['power'] * 100:g} of 100 studies would find, at a "
        f"level of {power['alpha']:g}, with {power['n_other_families']} other families tested "
        f"together; from {power['n_simulated']} simulated studies. What it is in "
        f"{view.unit[1]} is known only with the SD."
    )


def _curve(view: View, sheets: Mapping[str, Sheet]) -> Html:
    curve = sheets["power-curve"].rows
    own = sorted({row["n_items"] for row in sheets["power"].rows})
    lines = {
        "assumed": ("minimum_detectable_alone", "in one family alone"),
        "fitted": ("minimum_detectable_all", "if all other families have it"),
    }
    x = axis_over([row["n_items"] for row in curve], n_ticks=6)
    y = axis_over([row[key] for row in curve for key, _ in lines.values()], n_ticks=4)
    said = "; ".join(
        f"{row['n_items']} items, {amount(row['minimum_detectable_alone'])} alone and "
        f"{amount(row['minimum_detectable_all'])} if all"
        for row in curve
    )
    sizes = ", ".join(map(str, own))
    return tag(
        "figure",
        plot(
            [
                Series(points=_points(curve, key), look=look, joined=True, shape=None)
                for look, (key, _) in lines.items()
            ],
            x=x,
            y=y,
            x_words="items of a family",
            stops=[(n, "this study" if len(own) == 1 else str(n)) for n in own],
            height=250,
            label=f"Detectable difference in SD by items of a family: {said}. "
            f"This study has {sizes}.",
        ),
        tag(
            "figcaption",
            tag("b", "Detectable difference, SD, by items of a family"),
            tag(
                "small",
                "Full line: in one family alone. Dashes: if all other families have it. Dashed "
                f"upright: the families of this study ({sizes} items).",
            ),
        ),
        class_="broad",
    )


def _margin_column() -> Column:
    """As the plan wrote it."""
    return Column(
        head="margin", keys=("margin",), show=lambda row: f"{row['margin']:g}", kind="num"
    )


def _points(curve: Sequence[Row], key: str) -> tuple[tuple[float, float], ...]:
    return tuple((row["n_items"], row[key]) for row in curve if row[key] is not None)


def _row(view: View, one: Mapping[str, Any]) -> Row:
    measure = "inserted" if one["role"] == "gate" else view.primary
    spread = [
        family[measure]["sd"] for _, family in view.families() if family["family"] == one["family"]
    ]
    return {
        "family": one["family"],
        "role": ROLES[one["role"]][0],
        "n_items": one["n_items"],
        "enough_items": "yes" if one["enough_items"] else "no",
        "test": one["test"],
        "minimum_detectable_alone": one["minimum_detectable_alone"],
        "minimum_detectable_all": one["minimum_detectable_all"],
        "margin": one["margin"],
        "largest_sd_shown_within_margin": one["largest_sd_shown_within_margin"],
        **ends("sd_found", spread),
    }
