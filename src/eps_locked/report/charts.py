"""Charts as inline SVG, without script: rows of intervals on one axis, and points over an axis.

Everything stands at a percentage of the width, so that a chart fits a phone and its letters keep
their size. No colour means anything by itself: each mark has a shape, a dash or words beside it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from eps_locked.report.html import Child, Html, join, tag
from eps_locked.report.units import for_page

Shape = Literal["drift", "within_margin", "undetermined", "too_few_stems", "plain"]
# So far from either edge the axis ends, in per cent: the letters at its ends need room.
_EDGE = 6.0
_TICKS = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class Axis:
    """Values from ``low`` to ``high`` along a line; ``ticks`` stand at round numbers."""

    low: float
    high: float
    ticks: tuple[float, ...]

    def share(self, value: float) -> float:
        """Where a value stands, from 0 to 1."""
        return (value - self.low) / (self.high - self.low)

    def x(self, value: float) -> float:
        """In per cent of the width."""
        return _EDGE + (100 - 2 * _EDGE) * self.share(value)

    def tick_words(self, value: float) -> str:
        step = self.ticks[1] - self.ticks[0]
        digits = max(0, -math.floor(math.log10(step) + 1e-9))
        return for_page(f"{value:.{digits}f}")


def axis_over(values: Iterable[float | None], *, n_ticks: int = _TICKS) -> Axis:
    """An axis with round ends that holds every value, 0 among them."""
    known = [0.0, *(value for value in values if value is not None)]
    low, high = min(known), max(known)
    if low == high:
        high = low + 1.0
    step = _round_step((high - low) / n_ticks)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    ticks = tuple(step * n for n in range(first, last + 1))
    return Axis(low=ticks[0], high=ticks[-1], ticks=ticks)


def _round_step(least: float) -> float:
    """The smallest of 1, 2, 5, 10, ... that is not below ``least``."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(power * n for n in (1, 2, 5, 10) if power * n >= least * (1 - 1e-9))


@dataclass(frozen=True, kw_only=True, slots=True)
class Strip:
    """One row of an interval chart: its name, its numbers in words, and what is drawn.

    inner: a second interval inside the first, drawn thick. band: what counts as nothing here,
    where rows differ in it.
    """

    name: Child
    words: Child
    value: float | None
    low: float | None
    high: float | None
    inner: tuple[float, float] | None = None
    shape: Shape = "plain"
    band: tuple[float, float] | None = None


def strip_chart(
    strips: Sequence[Strip],
    *,
    label: str,
    unit: str,
    band: tuple[float, float] | None = None,
    marked: Sequence[float] = (),
    axis: Axis | None = None,
) -> Html:
    """Rows of intervals on one axis. The words of a row say what its drawing shows, which therefore
    says nothing to a screen reader. ``marked``: values besides 0 that get a line. ``axis``: one
    that holds every value, where it is not to follow from them."""
    axis = axis or axis_over([*strip_ends(strips), *(band or ()), *marked])
    rows = [
        tag(
            "div",
            tag("span", one.name, class_="name"),
            track(one, axis, one.band or band, marked),
            tag("span", one.words, class_="words"),
            class_="strip",
        )
        for one in strips
    ]
    foot = tag(
        "div",
        tag("span", class_="name"),
        ticks(axis),
        tag("span", unit, class_="words"),
        class_="strip axis",
        aria_hidden="true",
    )
    return tag("div", rows, foot, class_="strips", role="group", aria_label=label)


def strip_ends(strips: Iterable[Strip]) -> list[float | None]:
    """Every value that rows of intervals reach."""
    return [
        end
        for one in strips
        for end in (one.value, one.low, one.high, *(one.inner or ()), *(one.band or ()))
    ]


def track(
    one: Strip, axis: Axis, band: tuple[float, float] | None = None, marked: Sequence[float] = ()
) -> Html:
    """What is drawn of a row; as high as the row, so that the lines of all rows meet."""
    marks: list[Html | None] = []
    if band is not None:
        left, right = axis.x(band[0]), axis.x(band[1])
        marks += [
            tag("rect", x=_at(left), y=0, width=_at(right - left), height="100%", class_="band"),
            *(_upright(x, "edge") for x in (left, right)),
        ]
    marks += [_upright(axis.x(value), "goal") for value in marked]
    marks.append(_upright(axis.x(0), "zero"))
    if one.low is not None and one.high is not None:
        marks.append(_level(axis.x(one.low), axis.x(one.high), "outer"))
    if one.inner is not None:
        marks.append(_level(axis.x(one.inner[0]), axis.x(one.inner[1]), "inner"))
    if one.value is not None:
        marks.append(marker(axis.x(one.value), "50%", one.shape))
    return tag("span", tag("svg", marks, class_="drawing"), class_="track", aria_hidden="true")


def _upright(x: float, look: str) -> Html:
    return tag("line", x1=_at(x), y1=0, x2=_at(x), y2="100%", class_=look)


def _level(low: float, high: float, look: str) -> Html:
    return tag("line", x1=_at(low), y1="50%", x2=_at(high), y2="50%", class_=look)


def ticks(axis: Axis) -> Html:
    """The numbers below an axis."""
    return tag(
        "svg",
        [
            join(
                _line(axis.x(x), 0, axis.x(x), 5, "tick"), _text(axis.x(x), 18, axis.tick_words(x))
            )
            for x in axis.ticks
        ],
        width="100%",
        height=22,
        class_="drawing",
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Series:
    """Points over an axis, from left to right. ``low`` and ``high`` where they have intervals.

    look: which dash and shape it has in the style sheet. joined: by lines.
    """

    points: tuple[tuple[float, float], ...]
    ends: tuple[tuple[float, float] | None, ...] = ()
    look: str = "found"
    joined: bool = False
    shape: Shape | None = "plain"


def plot(
    series: Sequence[Series],
    *,
    x: Axis,
    y: Axis,
    label: str,
    x_words: str,
    levels: Sequence[tuple[float, str]] = (),
    stops: Sequence[tuple[float, str]] = (),
    height: int = 200,
) -> Html:
    """Points, lines and intervals over two axes. ``levels`` are lines from side to side, ``stops``
    from top to bottom, each with its words. ``label`` says all of it to a screen reader."""
    top, bottom = 16, height - 40

    def down(value: float) -> float:
        return round(bottom - (bottom - top) * y.share(value), 1)

    marks: list[Html] = [
        _line(0, down(value), 100, down(value), "grid") for value in y.ticks if value != y.low
    ]
    marks.append(_line(0, bottom, 100, bottom, "zero"))
    for value in x.ticks:
        marks += [
            _line(x.x(value), bottom, x.x(value), bottom + 5, "tick"),
            _text(x.x(value), bottom + 18, x.tick_words(value)),
        ]
    marks.append(_text(50, height - 6, x_words))
    for value, words in levels:
        marks += [
            _line(0, down(value), 100, down(value), "level"),
            _text(99, down(value) - 4, words, "end"),
        ]
    for value, words in stops:
        marks += [
            _line(x.x(value), top, x.x(value), bottom, "stop"),
            _text(x.x(value), top - 3, words),
        ]
    for one in series:
        marks += _series(one, x, down)
    sides = [_text(100, down(value) + 4, y.tick_words(value), "end") for value in y.ticks]
    return tag(
        "div",
        tag("svg", sides, width=44, height=height, class_="drawing side", aria_hidden="true"),
        tag(
            "svg",
            marks,
            width="100%",
            height=height,
            class_="drawing",
            role="img",
            aria_label=label,
        ),
        class_="plot",
    )


def _series(one: Series, x: Axis, down: Callable[[float], float]) -> list[Html]:
    marks: list[Html] = []
    if one.joined:
        marks += [
            _line(x.x(a), down(b), x.x(c), down(d), one.look)
            for (a, b), (c, d) in zip(one.points, one.points[1:], strict=False)
        ]
    for (a, _), ends in zip(one.points, one.ends, strict=False):
        if ends is not None:
            marks.append(_line(x.x(a), down(ends[0]), x.x(a), down(ends[1]), "outer"))
    if one.shape is not None:
        marks += [marker(x.x(a), _px(down(b)), one.shape) for a, b in one.points]
    return marks


_PATHS = {
    "drift": "M0 -6L6 0L0 6L-6 0Z",
    "within_margin": "M-4.5 -4.5H4.5V4.5H-4.5Z",
    "undetermined": "M-4.5 0A4.5 4.5 0 1 0 4.5 0A4.5 4.5 0 1 0 -4.5 0Z",
    "too_few_stems": "M-4.5 -4.5L4.5 4.5M-4.5 4.5L4.5 -4.5",
    "plain": "M-4 0A4 4 0 1 0 4 0A4 4 0 1 0 -4 0Z",
}


def marker(x: float, y: str, shape: Shape) -> Html:
    """A mark at ``x`` per cent of the width; ``y`` as SVG writes it."""
    return tag(
        "svg",
        tag("path", d=_PATHS[shape], class_=f"mark {shape}"),
        x=_at(x),
        y=y,
        class_="point",
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """One part of a whole, with the class that gives it its pattern."""

    kind: str
    share: float


def stacked(parts: Sequence[Part]) -> Html:
    """Parts of a whole side by side, in the order of their numbers in the table."""
    marks, left = [], 0.0
    for one in parts:
        width = 100 * min(1.0, max(0.0, one.share))
        marks.append(
            tag("span", class_=f"fill {one.kind}", style=f"left:{left:.1f}%;width:{width:.1f}%")
        )
        left += width
    return tag("span", marks, class_="share stacked", aria_hidden="true")


def _line(x1: float, y1: float, x2: float, y2: float, look: str) -> Html:
    return tag("line", x1=_at(x1), y1=_px(y1), x2=_at(x2), y2=_px(y2), class_=look)


def _text(x: float, y: float, words: str, look: str | None = None) -> Html:
    return tag("text", words, x=_at(x), y=_px(y), class_=look)


def _at(x: float) -> str:
    return f"{x:.2f}%"


def _px(y: float) -> str:
    return f"{y:g}"
