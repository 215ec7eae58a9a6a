"""What so many items could have shown, as it was known before anything was asked; and what nobody
may claim from the run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from eps_locked.report.absent import listed
from eps_locked.report.battery.evidence import BatteryEvidence
from eps_locked.report.battery.view import (
    Entry,
    View,
    axis_column,
    axis_words,
    points_up,
)
from eps_locked.report.html import Child, Html, join, section, tag
from eps_locked.report.sheets import NOTHING, Column, Row, Sheet, count, sheet_table
from eps_locked.report.units import percent


def power_sheet(view: View) -> Sheet:
    """One row an axis; a column for each share of items on which two models may differ."""
    found = view.document["power"].get("axes", ())
    shares = list(
        dict.fromkeys(
            one["discordant_share"] for axis in found for one in axis["minimum_detectable"]
        )
    )
    return Sheet(
        file="power.csv",
        what="The smallest difference that so many items find",
        columns=(
            axis_column(),
            count("items", "n_items"),
            *map(_share_column, shares),
        ),
        rows=tuple(_row(axis) for axis in found),
    )


def limits_section(view: View, sheet: Sheet, evidence: BatteryEvidence) -> Html:
    """The table, where there is one, and the list."""
    blocks: list[Child] = []
    if sheet.rows:
        power = view.document["power"]
        blocks = [
            sheet_table(sheet, join(view.promised, " Smallest difference found, before the run")),
            tag(
                "p",
                f"Found with a power of {percent(power['power'])} at a level of "
                f"{power['alpha']:g}, by the share of items on which the two models differ in both "
                "directions; in the second line the same among the "
                f"{power['n_tests']} tests of one comparison. None: so few items find no "
                "difference at all.",
                class_="small",
            ),
        ]
    claims = [
        tag("li", tag("b", f"{what}: "), why) for what, why in impossible_claims(view, evidence)
    ]
    return section(
        "limits",
        "What this could have seen",
        *blocks,
        tag("h3", "What nobody may claim from it"),
        tag("ul", claims, class_="limits"),
    )


def impossible_claims(view: View, evidence: BatteryEvidence) -> Iterator[tuple[str, str]]:
    """Classes of claims that the replies or the design leave no room for, each with its reason."""
    rows = [row for _, row in view.compared()]
    unclear = sum(row["verdict"] == "undetermined" for row in rows)
    if unclear:
        yield (
            "That a model and its base are alike, or differ, where it says undetermined",
            f"{unclear} of {len(rows)} differences; only the bound says what is ruled out",
        )
    if any(row["verdict"] == "within_margin" for row in rows):
        yield (
            "That a model and its base are alike within a margin",
            "within it means that no more than the bound is compatible, on these items",
        )
    coarse = [row for row in rows if row["delta"] is not None and _is_coarse(row)]
    if coarse:
        missed = round(100 * (1 - view.settings["power"]), 6)
        yield (
            "That a difference as large as the margin would have shown",
            f"in {len(coarse)} of {len(rows)} differences it would be missed more often than in "
            f"{missed:g} runs of 100",
        )
    weak = view.document["weak_discriminators"]
    if weak:
        yield (
            "Which of these models is better or worse where no two differ",
            f"on {_grouped((one['axis'], one['thinking']) for one in weak)}",
        )
    if any(not axis["measured"] for _, axis in view.axes()):
        yield "Anything about an axis that was not measured", "missing is no verdict"
    if "harmful" in view.axis_names:
        yield (
            "On which harmful requests models part",
            "nothing of that axis is kept by item; its rates are compared unmatched",
        )
    if any(one["across_quantisation"] for one in view.comparisons):
        yield (
            "That an adapter or an ablation made the difference",
            "where quantisations differ too, either may have",
        )
    if any(model["endpoint"].get("kind") == "openai" for model in view.models):
        yield "Which weights answered", "a service was asked by a route's name"
    if evidence.stand_in_judges:
        yield (
            "How often a model refuses or agrees",
            f"a stand-in judged ({listed(evidence.stand_in_judges)})",
        )
    yield (
        "The same of other prompts, sampling, template or system prompt",
        "all of these were frozen, and they matter",
    )


def _grouped(places: Iterable[tuple[str, str]]) -> str:
    """``tools (thinking off and on)``."""
    modes: dict[str, list[str]] = {}
    for axis, thinking in places:
        modes.setdefault(axis, []).append(thinking)
    return listed([f"{axis_words(axis)} (thinking {listed(on)})" for axis, on in modes.items()])


def _is_coarse(row: Entry) -> bool:
    smallest = row["minimum_detectable"]
    return smallest is None or bool(smallest > row["margin"])


def _share_column(share: float | None) -> Column:
    name = _name(share)
    alone, among = f"{name}_alone", f"{name}_among_all"

    def show(row: Row) -> Child:
        if not row.get(f"{name}_known"):
            return NOTHING
        return join(points_up(row[alone]), " ", tag("small", points_up(row[among])))

    head = "unmatched" if share is None else f"{share * 100:g} % differ"
    return Column(head=head, keys=(alone, among), show=show, kind="num")


def _name(share: float | None) -> str:
    return "unmatched" if share is None else f"share_{share * 100:g}"


def _row(axis: Entry) -> Row:
    row: dict[str, Any] = {
        "axis": axis["axis"],
        "n_items": axis["n_items"],
        "margin": axis["margin"],
    }
    for one in axis["minimum_detectable"]:
        name = _name(one["discordant_share"])
        row |= {
            f"{name}_alone": one["delta"],
            f"{name}_among_all": one["delta_among_all"],
            f"{name}_known": "yes",
        }
    return row
