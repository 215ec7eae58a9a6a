"""Reads a page the strict way: every tag closed in order, attributes and text kept."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"br", "meta", "wbr", "col", "hr", "img", "link", "input"}


class PageReader(HTMLParser):
    """``elements`` lists (tag, attributes) in order; ``texts`` the text outside of style."""

    def __init__(self, page: bytes) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: list[str] = []
        self.style = ""
        self._open: list[str] = []
        self.feed(page.decode("utf-8"))
        self.close()
        assert self._open == [], f"never closed: {self._open}"

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.elements if name == tag]

    def heat_cells(self) -> list[dict[str, str]]:
        return [attributes for attributes in self.all("td") if "tabindex" in attributes]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"<{tag}> has an attribute twice"
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        raise AssertionError(f"<{tag}/> is not how HTML is written")

    def handle_endtag(self, tag: str) -> None:
        assert self._open, f"</{tag}> closes nothing"
        assert self._open.pop() == tag, f"</{tag}> out of order"

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] == "style":
            self.style += data
        else:
            self.texts.append(data)


@dataclass(kw_only=True)
class Table:
    """A table as a reader sees it: its attributes, the fields under each head, texts by row."""

    attributes: dict[str, str]
    caption: str = ""
    keys: list[list[str]] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)

    @property
    def filters(self) -> dict[str, str]:
        return filters(self.attributes)


@dataclass(kw_only=True)
class Note:
    """What is said below a table, or instead of one: its sentences, each with its attributes."""

    attributes: dict[str, str]
    text: str = ""
    sentences: list[tuple[dict[str, str], str]] = field(default_factory=list)

    def keys(self, name: str) -> list[str]:
        """The fields that the sentences with this attribute are about."""
        return " ".join(found.get(name, "") for found, _ in self.sentences).split()

    @property
    def left_out(self) -> dict[str, int]:
        """Sentences about rows that are not shown, and how many rows."""
        return {t: int(a["data-left-out"]) for a, t in self.sentences if "data-left-out" in a}


def filters(attributes: dict[str, str]) -> dict[str, str]:
    return {
        name.removeprefix("data-where-").replace("-", "_"): value
        for name, value in attributes.items()
        if name.startswith("data-where-")
    }


class TableReader(HTMLParser):
    """Every table of a page that is no heat map, and every note about one."""

    def __init__(self, page: bytes | str) -> None:
        super().__init__(convert_charrefs=True)
        self.tables: list[Table] = []
        self.notes: list[Note] = []
        self._noting = False
        self._sentence = False
        self._part = ""
        self._inside = False
        self._texts: list[str] = []
        self.feed(page if isinstance(page, str) else page.decode("utf-8"))
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        if tag == "table":
            self._inside = found.get("class") != "heat"
            if self._inside:
                self.tables.append(Table(attributes=found))
        if tag == "p" and "data-about" in found:
            self.notes.append(Note(attributes=found))
            self._noting = True
        elif tag == "span" and self._noting:
            self.notes[-1].sentences.append((found, ""))
            self._sentence = True
        if not self._inside:
            return
        if tag in ("thead", "tbody"):
            self._part = tag
        elif tag == "tr" and self._part == "tbody":
            self.tables[-1].rows.append([])
        elif tag in ("th", "td", "caption"):
            self._texts = []
            if tag == "th" and self._part == "thead":
                self.tables[-1].keys.append(found.get("data-keys", "").split())

    def handle_endtag(self, tag: str) -> None:
        if tag == "p":
            self._noting = False
        elif tag == "span":
            self._sentence = False
        if not self._inside:
            return
        text = " ".join("".join(self._texts).split())
        if tag == "caption":
            self.tables[-1].caption = text
        elif tag in ("th", "td") and self._part == "tbody":
            self.tables[-1].rows[-1].append(text)
        elif tag == "table":
            self._inside, self._part = False, ""

    def handle_data(self, data: str) -> None:
        self._texts.append(data)
        if self._noting:
            note = self.notes[-1]
            note.text += data
            if self._sentence:
                found, text = note.sentences[-1]
                note.sentences[-1] = (found, text + data)
