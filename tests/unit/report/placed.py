"""Every place of a page beside the CSV it names, to compare what the two say."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from reader import Note, Table, TableReader, filters

_NUMBER = re.compile(r"[+−]?\d+(?:\.\d+)?(?: %| pp)?")
# A share's interval stands in brackets, without the sign that its value has.
_ENDS = re.compile(r"( %| pp) \[([+−.\d]+), ([+−.\d]+)\]")
# A p value too small for its digits.
_BELOW = re.compile(r"below (0\.\d+)$")
_FAR = re.compile(r"below −99(?![\d.])")
# A row is void where its fields hold nothing but these.
VOID = ("", "undetermined", "not applicable")


@dataclass(frozen=True)
class Place:
    """One place of the page: the rows of a CSV that belong there, the table, the sentences."""

    rows: list[dict[str, str]]
    table: Table | None
    note: Note | None

    def parts(self) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
        """The CSV's rows with something in the fields that the page names, and those without."""
        named = [] if self.note is None else self.note.attributes["data-values"].split()
        out = [bool(named) and all(row[key] in VOID for key in named) for row in self.rows]
        return (
            [row for row, gone in zip(self.rows, out, strict=True) if not gone],
            [row for row, gone in zip(self.rows, out, strict=True) if gone],
        )


def places(files: dict[str, bytes]) -> Iterator[tuple[str, Place]]:
    """Every place of the page with the CSV's name."""
    read = TableReader(files["index.html"])
    found: dict[tuple[str, tuple[tuple[str, str], ...]], dict[str, Any]] = {}
    for kind, thing in [("table", one) for one in read.tables] + [
        ("note", one) for one in read.notes
    ]:
        file = thing.attributes["data-csv" if kind == "table" else "data-about"]
        key = (file, tuple(filters(thing.attributes).items()))
        assert kind not in found.setdefault(key, {}), f"{key}: two of a kind in one place"
        found[key][kind] = thing
    for (file, where), things in found.items():
        rows = list(csv.DictReader(io.StringIO(files[file].decode("utf-8"))))
        rows = [row for row in rows if all(row[k] == v for k, v in where)]
        yield file, Place(rows=rows, table=things.get("table"), note=things.get("note"))


def shown_as(raw: str, text: str) -> bool:
    """Whether a CSV field can be read in the cell's text: a rounded number, or the very words."""
    if raw in ("", "False"):
        return True
    if raw == "True":
        return text != ""
    try:
        value = float(raw)
    except ValueError:
        return raw in text
    below = _BELOW.fullmatch(text)
    if below is not None:
        return 0 <= value < float(below[1])
    text, n_far = _FAR.subn("", _ENDS.sub(r"\1 [\2\1, \3\1]", text))
    if n_far and value < -99:
        return True
    for found in _NUMBER.findall(text.replace("-", "−")):
        plain = found.replace("−", "-").removesuffix(" %").removesuffix(" pp")
        digits = len(plain.partition(".")[2])
        scaled = value * 100 if found.endswith(("%", "pp")) else value
        if round(scaled, digits) == float(plain):
            return True
    return False


def compared(files: dict[str, bytes]) -> int:
    """Require that every table says what its CSV says; how many fields were compared."""
    n_compared = 0
    for file, place in places(files):
        kept, _ = place.parts()
        if place.table is None:
            assert kept == [], file
            continue
        assert len(kept) == len(place.table.rows) > 0, file
        for row, texts in zip(kept, place.table.rows, strict=True):
            assert len(texts) == len(place.table.keys)
            for keys, text in zip(place.table.keys, texts, strict=True):
                for key in (k for k in keys if not k.endswith("_coverage")):
                    assert shown_as(row[key], text), f"{file}: {key}: {row[key]!r} {text}"
                    n_compared += 1
    return n_compared
