"""The chart of one reward model: every family by both measures, on one axis."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from eps_locked.report.charts import Axis, Strip, axis_over, strip_ends, ticks, track
from eps_locked.report.html import Child, Html, join, tag
from eps_locked.report.vea.view import MEASURES, ROLES, Entry, View, delta, mark_of
from eps_locked.report.verdict_marks import marked

# A panel that would fill less than this share of the common axis gets one of its own.
_LEAST_FILLED = 1 / 8


@dataclass(frozen=True, kw_only=True, slots=True)
class Scales:
    """The axis of each reward model's panel; the same one for all, if ``common``."""

    axes: Mapping[str, Axis]
    common: bool


def scales_of(view: View) -> Scales:
    """One axis for all, unless some panel would shrink to a stroke on it."""
    reach = {model["reward_model"]: _reach(view, model) for model in view.models}
    together = axis_over([end for ends in reach.values() for end in ends])
    own = {name: axis_over(ends) for name, ends in reach.items()}
    common = all(
        (axis.high - axis.low) >= _LEAST_FILLED * (together.high - together.low)
        for axis in own.values()
    )
    return Scales(axes=dict.fromkeys(own, together) if common else own, common=common)


def panel(view: View, model: Entry, axis: Axis) -> Html:
    """Rows by role, the primary measure on the left. Words below each drawing say what it shows."""
    measures = sorted(MEASURES, key=lambda one: one != view.primary)
    rows: list[Child] = [_head(view, measures)]
    for role, (_, heading) in ROLES.items():
        families = [one for one in model["families"] if one["role"] == role]
        if families:
            rows.append(tag("div", heading, class_="strip group"))
        rows += [_row(view, model, family, measures, axis) for family in families]
    rows.append(
        tag(
            "div",
            tag("span", class_="name"),
            *(tag("span", ticks(axis), class_="cell") for _ in measures),
            class_="strip pair axis",
            aria_hidden="true",
        )
    )
    return tag(
        "div",
        rows,
        class_="strips",
        role="group",
        aria_label=f"Differences of {model['reward_model']} by family, with their intervals",
    )


def _head(view: View, measures: Iterable[str]) -> Html:
    cells = []
    for measure in measures:
        name, what = MEASURES[measure]
        primary = " (verdicts are about this)" if measure == view.primary else ""
        cells.append(tag("span", tag("b", f"Δ {name}"), f": {what}{primary}", class_="cell"))
    return tag("div", tag("span", class_="name"), cells, class_="strip pair head")


def _row(view: View, model: Entry, family: Entry, measures: Iterable[str], axis: Axis) -> Html:
    return tag(
        "div",
        tag("span", family["family"], class_="name"),
        [_cell(view, model, family, measure, axis) for measure in measures],
        class_="strip pair",
    )


def _cell(view: View, model: Entry, family: Entry, measure: str, axis: Axis) -> Html:
    name, _ = MEASURES[measure]
    return tag(
        "span",
        track(_strip(model, family, measure), axis, *_limits(view, family, measure)),
        tag(
            "span",
            tag("span", f"{name} ", class_="measure"),
            _words(model, family, measure),
            class_="words",
        ),
        class_="cell",
    )


def _limits(
    view: View, family: Entry, measure: str
) -> tuple[tuple[float, float] | None, tuple[float, ...]]:
    """What counts as nothing here, and what else gets a line. Gates are read by ``inserted``."""
    if family["role"] != "gate":
        return (-view.margin, view.margin), ()
    if measure == "inserted":
        return (-view.gate_margin, view.gate_margin), ()
    return None, ()


def _strip(model: Entry, family: Entry, measure: str) -> Strip:
    effect = family[measure]
    low, high = effect["low_equivalence"], effect["high_equivalence"]
    mark, _ = mark_of(model, family, measure)
    return Strip(
        name="",
        words="",
        value=effect["mean"],
        low=effect["low"],
        high=effect["high"],
        inner=None if low is None or high is None else (low, high),
        shape="plain" if mark is None else mark.shape,
    )


def _words(model: Entry, family: Entry, measure: str) -> Html:
    effect = family[measure]
    n = effect["wilcoxon"]["n"]
    mark, _ = mark_of(model, family, measure)
    text, inside = delta(effect["mean"], effect["low"], effect["high"])
    shown: list[Child] = []
    if effect["mean"] is not None:
        shown += [text, " ", inside or "no interval", " "]
    shown.append(tag("small", f"n = {n}"))
    if mark is not None:
        shown += [" ", marked(mark)]
    return join(*shown)


def _reach(view: View, model: Entry) -> list[float | None]:
    """Every value that a panel has to hold, its margins among them."""
    strips = [
        _strip(model, family, measure) for family in model["families"] for measure in MEASURES
    ]
    margin = max(view.margin, view.gate_margin)
    return [*strip_ends(strips), -margin, margin]
