"""Small figures of boxes and lines, without script or image: a whisker, and a bar.

Each stands beside the numbers it draws, so it says nothing to a screen reader.
"""

from __future__ import annotations

from eps_locked.report.html import Html, tag


def whisker(
    value: float | None, low: float | None, high: float | None, null_high: float | None
) -> Html | None:
    """A value and its interval on the line from -1 to 1, with 0 and the null's reach marked."""
    if value is None:
        return None
    marks = [tag("span", class_="zero")]
    if null_high is not None:
        reach = min(1.0, abs(null_high))
        marks.append(tag("span", class_="reach", style=_span(-reach, reach)))
    if low is not None and high is not None:
        marks.append(tag("span", class_="line", style=_span(low, high)))
    marks.append(tag("span", class_="dot", style=f"left:{_place(value):.1f}%"))
    return tag("span", marks, class_="whisker", aria_hidden="true")


def bar(kind: str, share: float | None, corrected: float | None) -> Html | None:
    """A share of a whole as a bar; a tick where it would end with the noise taken off."""
    if share is None:
        return None
    filled = tag("span", class_=f"fill {kind}", style=f"width:{100 * min(1, max(0, share)):.1f}%")
    tick = None
    if corrected is not None:
        left = 100 * min(1, max(0, corrected))
        tick = tag("span", class_="tick", style=f"left:{left:.1f}%")
    return tag("span", filled, tick, class_="share", aria_hidden="true")


def _place(value: float) -> float:
    """Where a value from -1 to 1 stands, in per cent of the line."""
    return 50 * (1 + min(1.0, max(-1.0, value)))


def _span(low: float, high: float) -> str:
    left, right = _place(low), _place(high)
    return f"left:{left:.1f}%;width:{max(right - left, 0.5):.1f}%"
