"""HTML that is escaped unless it was made here: text goes in as ``str``, markup as ``Html``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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


def table(
    head: Sequence[str],
    rows: Sequence[Sequence[Child]],
    *,
    caption: Child = None,
    numeric: Iterable[int] = (),
    wide: Iterable[int] = (),
) -> Html:
    """A table in a container that scrolls by itself; the first column is each row's header.

    ``numeric`` columns are aligned right; ``wide`` ones hold sentences and may break lines.
    """
    kinds = {**dict.fromkeys(numeric, "num"), **dict.fromkeys(wide, "wide")}

    def cell(number: int, child: Child) -> Html:
        if number == 0:
            return tag("th", child, scope="row", class_=kinds.get(0))
        return tag("td", child, class_=kinds.get(number))

    return scroller(
        tag(
            "table",
            tag("caption", tag("span", caption)) if caption is not None else None,
            tag(
                "thead",
                tag(
                    "tr",
                    [
                        tag("th", text, scope="col", class_=kinds.get(n))
                        for n, text in enumerate(head)
                    ],
                ),
            ),
            tag("tbody", [tag("tr", [cell(n, c) for n, c in enumerate(row)]) for row in rows]),
        )
    )


def scroller(content: Html) -> Html:
    return tag("div", content, class_="scroll")


def pairs(rows: Iterable[tuple[str, Child]]) -> Html:
    """Names and values, one pair a line."""
    return tag("dl", [join(tag("dt", name), tag("dd", value)) for name, value in rows])


def section(identifier: str, title: str, *children: Child) -> Html:
    return tag("section", tag("h2", title), *children, id=identifier)
