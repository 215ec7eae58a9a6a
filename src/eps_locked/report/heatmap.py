"""The heat map: G by train and eval context, readable without colour, without a mouse, on paper."""

from __future__ import annotations

from itertools import pairwise

from eps_locked.report.html import Child, Html, join, scroller, tag
from eps_locked.report.marks import (
    ALL_MARKS,
    SEALED,
    Cell,
    Tensor,
    cell_marks,
    interval,
    is_sealed,
    letters,
    mark_counts,
    percent,
    signed,
    typeset,
)
from eps_locked.report.tables import families, grid

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


def heat_map(tensor: Tensor, *, second: bool, caption: Child, after: str) -> Html:
    """The table. ``second`` shows the reading after the base's answer instead of the primary.

    Every cell can be reached by the Tab key; a link before them, seen when it is reached itself,
    leads past them to the element ``after``.
    """
    key = "g_base_answer" if second else "g"
    scale = colour_scale(tensor)
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
                        _cell(tensor, cells[row, name], key, scale, first=name in starts)
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
                data_value=key,
            )
        ),
    )


def legend(tensor: Tensor) -> Html:
    """Colour bar and the words for every letter, those that occur with their number of cells."""
    scale, counts = colour_scale(tensor), mark_counts(tensor)
    steps = [number / 4 for number in range(-4, 5)]
    bar = tag(
        "div",
        [
            tag(
                "span",
                typeset(step * scale),
                style=_style(step * scale, scale),
            )
            for step in steps
        ],
        class_="bar",
        aria_label=f"colours from {signed(-scale)} to {signed(scale)} {tensor['unit']}",
        role="img",
    )
    entries = [
        tag(
            "li",
            tag("b", mark.letter, class_="letter"),
            tag("span", tag("b", mark.name), f" ({counts[mark.letter]}): {mark.meaning}"),
            class_=None if counts[mark.letter] else "none",
        )
        for mark in ALL_MARKS
    ]
    out = tag("span", "(+1.2)", class_="swatch out")
    sealed = tag("span", SEALED, class_="swatch sealed")
    return tag(
        "div",
        tag("p", tag("b", f"Colour, {tensor['unit']}"), class_="small"),
        bar,
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


def colour_scale(tensor: Tensor) -> float:
    """The value, in either reading, at which the palette ends; the same for both heat maps."""
    values = (c.get(key) for c in tensor["cells"] for key in ("g", "g_base_answer"))
    return max([0.1, *(abs(float(value)) for value in values if value is not None)])


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


def hover(tensor: Tensor, cell: Cell) -> str:
    """All of a cell in words, one thing a line."""
    marks = [f"{mark.letter}  {mark.name}: {mark.meaning}" for mark in cell_marks(cell)]
    place = f"families {cell['train_family']} → {cell['eval_family']}; split {cell['split']}"
    if is_sealed(cell):
        return "\n".join([f"{cell['train']} → {cell['eval']}", SEALED, place, *marks])
    level = percent(tensor["intervals"]["confidence_level"])
    seeds = ", ".join(f"{one['seed']}: {signed(one['g'], 2)}" for one in cell["by_seed"])
    cut = f", {cell['n_truncated']} left out: cut short" if cell["n_truncated"] else ""
    lines = [
        f"{cell['train']} → {cell['eval']}",
        f"G {signed(cell['g'], 2)} {tensor['unit']}, {level} interval "
        f"{interval(cell['low'], cell['high'], 2)}"
        if cell["g"] is not None
        else "no value: too few answers ended by themselves",
        f"n = {cell['n']} ({cell['n_items']} questions x {cell['n_seeds']} seeds{cut}); "
        f"by seed {seeds}",
        f"log-probability: base {signed(cell['base_log_prob'], 2)}, "
        f"trained {signed(cell['trained_log_prob'], 2)}",
        f"second reading {signed(cell['g_base_answer'], 2)} "
        f"{interval(cell['low_base_answer'], cell['high_base_answer'], 2)}".rstrip(),
        f"answers with the marker {cell['emission_rate'] * 100:.0f} %",
        place,
        "scored" if cell["scored"] else "not scored",
        *marks,
    ]
    if cell["alias_of"] is not None:
        lines.append(f"same tokens as {cell['alias_of']}")
    return "\n".join(lines)


def _cell(tensor: Tensor, cell: Cell, key: str, scale: float, *, first: bool) -> Html:
    sealed = is_sealed(cell)
    value = typeset(cell.get(key))
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
        style=None if sealed else _style(cell[key], scale),
        title=hover(tensor, cell),
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
