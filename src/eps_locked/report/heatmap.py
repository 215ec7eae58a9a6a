"""The heat map: G by train and eval context, readable without colour, without a mouse, on paper."""

from __future__ import annotations

from itertools import pairwise
from typing import Literal

from eps_locked.report.html import Child, Html, join, scroller, tag
from eps_locked.report.marks import (
    SEALED,
    Cell,
    Tensor,
    cell_marks,
    is_sealed,
    is_taught,
    legend_marks,
    letters,
    mark_counts,
)
from eps_locked.report.measures import (
    Measure,
    measures_of,
    primary_of,
    rates_of,
    second_of,
)
from eps_locked.report.notes import answers_of_cell
from eps_locked.report.reasons import counted_reasons
from eps_locked.report.tables import families, grid
from eps_locked.report.units import RATE, Unit, for_page, percent, unit_of

CELLS_FILE = "cells.csv"
Colour = tuple[int, int, int]
# Blue for less, orange for more, white at 0: told apart under every common colour blindness, and
# by lightness alone towards the ends. Each half is (position from 0 to 1, colour).
_LESS: tuple[tuple[float, Colour], ...] = (
    (0.0, (255, 255, 255)),
    (0.35, (189, 217, 238)),
    (0.7, (94, 158, 208)),
    (1.0, (25, 92, 150)),
)
_MORE: tuple[tuple[float, Colour], ...] = (
    (0.0, (255, 255, 255)),
    (0.35, (254, 222, 176)),
    (0.7, (244, 161, 80)),
    (1.0, (190, 84, 8)),
)
# Black, not the page's ink: on the palette's middle tones only black reaches a ratio of 4.5.
_DARK: Colour = (0, 0, 0)
_LIGHT: Colour = (255, 255, 255)


def heat_map(tensor: Tensor, measure: Measure, *, caption: Child, after: str) -> Html:
    """The table of one measure of a row.

    Every cell can be reached by the Tab key; a link before them, seen when it is reached itself,
    leads past them to the element ``after``.
    """
    scale = colour_scale(tensor, measure.unit)
    cells = grid(tensor)
    by_family = families(tensor, "eval")
    names = [name for group in by_family.values() for name in group]
    starts = {group[0] for group in by_family.values()}
    n_columns = len(names) + 1
    bodies = []
    for family, rows in families(tensor, "train").items():
        lines = [
            tag(
                "tr",
                tag("th", tag("span", family), colspan=n_columns, scope="rowgroup"),
                class_="group",
            )
        ]
        for row in rows:
            lines.append(
                tag(
                    "tr",
                    tag("th", _breakable(row), scope="row"),
                    [
                        _cell(tensor, cells[row, name], measure, scale, first=name in starts)
                        for name in names
                    ],
                )
            )
        bodies.append(tag("tbody", lines))
    head = tag(
        "thead",
        tag(
            "tr",
            tag("th", "trained in ↓", tag("br"), "evaluated in →", rowspan=2, class_="corner"),
            [
                tag("th", family, colspan=len(group), scope="colgroup", class_="family first")
                for family, group in by_family.items()
            ],
        ),
        tag("tr", [_column_head(tensor, name, first=name in starts) for name in names]),
    )
    link = tag("a", "CSV", href=CELLS_FILE, class_="csv", aria_label=f"this table: {CELLS_FILE}")
    return join(
        tag("a", f"Skip the {len(cells)} cells of this map", href=f"#{after}", class_="skip"),
        scroller(
            tag(
                "table",
                tag("caption", tag("span", caption, " ", link)),
                head,
                bodies,
                class_="heat",
                data_csv=CELLS_FILE,
                data_where_behaviour=tensor["behaviour"],
                data_value=measure.column,
            )
        ),
    )


def legend(tensor: Tensor) -> Html:
    """Colour bar and the words for every letter, those that occur with their number of cells."""
    unit, counts = unit_of(tensor), mark_counts(tensor)
    scale = colour_scale(tensor, unit)
    entries = [
        tag(
            "li",
            tag("b", mark.letter, class_="letter"),
            tag("span", tag("b", mark.name), f" ({counts[mark.letter]}): {mark.said(tensor)}"),
            class_=None if counts[mark.letter] else "none",
        )
        for mark in legend_marks(tensor)
    ]
    out = tag("span", f"({unit.short(scale / 4)})", class_="swatch out")
    sealed = tag("span", SEALED, class_="swatch sealed")
    return tag(
        "div",
        tag("p", tag("b", f"Colour, {unit.words}"), class_="small"),
        colour_bar(tensor, unit),
        tag(
            "p",
            out,
            " hatched and in parentheses: not scored. ",
            sealed,
            " crossed (dashed in print) and without a number: sealed. ",
            "Point at a cell, tap it, or reach it with the Tab key to read all of it.",
            class_="small",
        ),
        tag("ul", entries, class_="letters"),
        class_="legend",
    )


def colour_bar(tensor: Tensor, unit: Unit) -> Html:
    """The palette with its numbers, for all maps of this row in this unit."""
    scale = colour_scale(tensor, unit)
    steps = [number / 4 for number in range(-4, 5)]
    ends = f"colours from {unit.short(-scale)} to {unit.short(scale)} {unit.words}"
    return tag(
        "div",
        [
            tag(
                "span",
                for_page(unit.short(step * scale)),
                style=_style(step * scale, scale),
            )
            for step in steps
        ],
        class_="bar",
        aria_label=ends,
        role="img",
    )


def colour_scale(tensor: Tensor, unit: Unit) -> float:
    """The value, in any measure of this unit, at which the palette ends; one for all their maps."""
    measures = [one for one in measures_of(tensor) if one.unit == unit]
    values = (one.of(cell) for cell in tensor["cells"] for one in measures)
    return max([0.1, *(abs(value) for value in values if value is not None)])


def colour(value: float, scale: float) -> Colour:
    """White at 0, darker with size; beyond the scale the last colour."""
    stops = _MORE if value >= 0 else _LESS
    position = min(abs(value) / scale, 1.0)
    for (start, one), (end, two) in pairwise(stops):
        if position <= end:
            share = (position - start) / (end - start)
            red, green, blue = (round(a + (b - a) * share) for a, b in zip(one, two, strict=True))
            return (red, green, blue)
    return stops[-1][1]


def ink(background: Colour) -> Colour:
    """Dark or light letters, whichever contrasts more (WCAG 2.2 contrast ratio)."""
    return max((_DARK, _LIGHT), key=lambda one: contrast(one, background))


def contrast(one: Colour, two: Colour) -> float:
    """WCAG 2.2 contrast ratio, from 1 to 21."""
    high, low = sorted((_luminance(one), _luminance(two)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def hover(tensor: Tensor, cell: Cell, measure: Measure) -> str:
    """A cell in words, one thing a line: all of it for G, what differs for another measure."""
    head, place = f"{cell['train']} → {cell['eval']}", _place(cell)
    marks = [f"{mark.letter}  {mark.name}: {mark.said(tensor)}" for mark in cell_marks(cell)]
    if is_sealed(cell):
        return "\n".join([head, SEALED, place, *marks])
    if measure.path == primary_of(tensor).path or not is_taught(tensor):
        lines = [*_value_lines(tensor, cell), place]
    else:
        lines = _measure_lines(tensor, cell, measure)
    lines = [head, *lines, "scored" if cell["scored"] else "not scored", *marks]
    if cell["alias_of"] is not None:
        lines.append(f"same tokens as {cell['alias_of']}")
    return "\n".join(lines)


def _place(cell: Cell) -> str:
    return f"families {cell['train_family']} → {cell['eval_family']}; split {cell['split']}"


def _value_lines(tensor: Tensor, cell: Cell) -> list[str]:
    """G with its interval and its n, what it is the difference of, and the other readings."""
    unit = unit_of(tensor)
    seeds = ", ".join(f"{one['seed']}: {unit.change(one['g'])}" for one in cell["by_seed"])
    lines = [_with_interval(tensor, cell, primary_of(tensor), "G "), _n_line(tensor, cell, seeds)]
    if tensor["primary_reading"] != "judged":
        lines += _slot_lines(tensor, cell)
    if is_taught(tensor):
        lines += _judged_lines(tensor, cell)
    return lines


def _with_interval(tensor: Tensor, cell: Cell, measure: Measure, name: str) -> str:
    value = measure.of(cell)
    if value is None:
        if measure.unit == RATE:
            return f"{name}no value: too few questions with a scored answer".strip()
        return f"{name.replace('G ', '')}no value: too few answers ended by themselves".strip()
    level = percent(tensor["intervals"]["confidence_level"])
    return (
        f"{name}{measure.unit.change(value)} {measure.unit.words}, {level} interval "
        f"{measure.unit.ends(*measure.ends(cell))}"
    )


def _n_line(tensor: Tensor, cell: Cell, seeds: str) -> str:
    n, words = answers_of_cell(tensor)
    if not is_taught(tensor):
        cut = f", {cell['n_truncated']} left out: cut short" if cell["n_truncated"] else ""
        return f"n = {cell['n']} ({words}{cut}); by seed {seeds}"
    if tensor["primary_reading"] != "judged":
        return f"n = {n} ({words}), {cell['n']} of them judged; by seed {seeds}"
    return f"n = {cell['n']} of {n} answers ({words}); by seed {seeds}"


def _slot_lines(tensor: Tensor, cell: Cell) -> list[str]:
    unit, second = unit_of(tensor), second_of(tensor)
    assert second is not None
    what, base, trained = "log-probability", cell["base_log_prob"], cell["trained_log_prob"]
    emitted = "answers with the marker"
    if is_taught(tensor):
        what, emitted = "log-probability per token", "answers that state the value"
        base, trained = cell["base_per_token"], cell["trained_per_token"]
    ends = unit.ends(*second.ends(cell))
    lines = [
        f"{what}: base {unit.level(base)}, trained {unit.level(trained)}",
        f"second reading {unit.change(second.of(cell))} {ends}".rstrip(),
        f"{emitted} {cell['emission_rate'] * 100:.0f} %",
    ]
    if is_taught(tensor):
        places = ", ".join(f"{name} {count}" for name, count in cell["framings"].items())
        lines.append(f"read at: {places}")
    return lines


def _judged_lines(tensor: Tensor, cell: Cell) -> list[str]:
    lines = []
    for measure in rates_of(tensor):
        base, trained = (_level(measure, cell, side) for side in ("base", "trained"))
        change = measure.unit.change(measure.of(cell))
        lines.append(f"{measure.name}: base {base}, trained {trained}, change {change}")
    if any(cell["unscored"].values()):
        lines.append(f"without an outcome: {counted_reasons(cell['unscored'])}")
    return lines


def _measure_lines(tensor: Tensor, cell: Cell, measure: Measure) -> list[str]:
    lines = [_with_interval(tensor, cell, measure, f"{measure.name}: ")]
    if measure.kind == "rate":
        sides = (f"{side} {_level(measure, cell, side)}" for side in ("base", "trained"))
        lines.append(", ".join(sides))
    return lines


def _level(measure: Measure, cell: Cell, side: Literal["base", "trained"]) -> str:
    value, low, high = measure.level(cell, side)
    return f"{measure.unit.level(value)} {measure.unit.ends(low, high)}".rstrip()


def _cell(tensor: Tensor, cell: Cell, measure: Measure, scale: float, *, first: bool) -> Html:
    sealed = is_sealed(cell)
    number = measure.of(cell)
    value = "–" if number is None else for_page(measure.unit.short(number))
    kinds = [
        "first" if first else "",
        SEALED if sealed else "" if cell["scored"] else "out",
        cell["split"] if cell["split"] in ("diagonal", "quarantined") else "",
    ]
    return tag(
        "td",
        tag("span", SEALED if sealed else value if cell["scored"] else f"({value})"),
        tag("i", letters(cell)),
        class_=" ".join(filter(None, kinds)) or None,
        style=None if sealed else _style(number, scale),
        title=hover(tensor, cell, measure),
        tabindex=0,
    )


def _column_head(tensor: Tensor, name: str, *, first: bool) -> Html:
    held = " (held out)" if name in tensor["held_out"] else ""
    return tag(
        "th", tag("span", name + held), scope="col", class_="name first" if first else "name"
    )


def _breakable(name: str) -> Html:
    """A name that may be broken after its underscores, where a column is narrow."""
    parts = name.split("_")
    return join(*(join(part, "_", Html("<wbr>")) for part in parts[:-1]), parts[-1])


def _style(value: float | None, scale: float) -> str | None:
    if value is None:
        return None
    background = colour(value, scale)
    return f"background-color:{_hex(background)};color:{_hex(ink(background))}"


def _hex(colour: Colour) -> str:
    return "#" + "".join(f"{part:02x}" for part in colour)


def _luminance(colour: Colour) -> float:
    parts = [part / 255 for part in colour]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
