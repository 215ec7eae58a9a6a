"""HTML that is escaped unless it was made here: text goes in as ``str``, markup as ``Html``."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape


class Html(str):
    """Markup. Only ``tag`` and ``join`` make it; everything else is text and gets escaped."""

    __slots__ = ()


Child = str | int | None
_VOID = frozenset({"br", "meta", "col"})


def tag(name: str, /, *children: Child | Iterable[Child], **attributes: str | int | None) -> Html:
    """An element. ``class_`` and ``data_x`` spell ``class`` and ``data-x``; None leaves out."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(value), quote=True)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID:
        return Html(f"<{name}{written}>")
    return Html(f"<{name}{written}>{join(*children)}</{name}>")


def join(*children: Child | Iterable[Child]) -> Html:
    """Children one after the other, text escaped, None left out."""
    parts = []
    for child in children:
        if child is None:
            continue
        if isinstance(child, Html):
            parts.append(str(child))
        elif isinstance(child, str | int):
            parts.append(escape(str(child), quote=False))
        else:
            parts.append(str(join(*child)))
    return Html("".join(parts))


def code(text: str) -> Html:
    return tag("code", text)


def scroller(content: Html, label: str | None = None) -> Html:
    """A box that scrolls by itself; with a label, the keyboard reaches and scrolls it too."""
    if label is None:
        return tag("div", content, class_="scroll")
    return tag("div", content, class_="scroll", tabindex=0, role="group", aria_label=label)


def pairs(rows: Iterable[tuple[str, Child]]) -> Html:
    """Names and values, one pair a line."""
    return tag("dl", [join(tag("dt", name), tag("dd", value)) for name, value in rows])


def section(identifier: str, title: str, *children: Child) -> Html:
    """A part of the page with its heading; screen readers list it by that."""
    heading = f"{identifier}-heading"
    return tag(
        "section", tag("h2", title, id=heading), *children, id=identifier, aria_labelledby=heading
    )
