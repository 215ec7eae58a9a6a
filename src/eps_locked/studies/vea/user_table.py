"""Somebody's own table of scores, to the rows that the analysis takes.

One row for each reward model and item: the scores of its three responses, made anywhere. Nothing is
guessed: a cell that cannot be read as meant is refused with its line and column, and a score that
is not there is counted by its reason and is never 0.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, cast

from eps_locked.errors import MalformedInputError
from eps_locked.scoring.tables import Problems
from eps_locked.studies.vea.deltas import RESPONSES, ItemScores
from eps_locked.studies.vea.items import FAMILIES, Family
from eps_locked.studies.vea.score_cells import SCORE_FORM, read_score
from eps_locked.studies.vea.settings import VeaSettings

__all__ = ["COLUMNS", "UserTable", "read_user_table", "require_controls"]

_NAMES: Final = ("reward_model", "item", "family", "stem")
_REQUIRED: Final = (*_NAMES, "base", "vea")
_OPTIONAL: Final = ("domain", "control", "same_text")
COLUMNS: Final = (*_REQUIRED, *_OPTIONAL)
_FLAGS: Final = {"": False, "false": False, "true": True}
_NEXT_STEP: Final = (
    f"correct the cells; a score is {SCORE_FORM}, and a family one of {', '.join(FAMILIES)}"
)
# The study's own items are a few hundred bytes; a table may carry texts in columns of its own.
_LARGEST_CELL: Final = 1 << 26


@dataclass(frozen=True, kw_only=True, slots=True)
class UserTable:
    """``rows`` in the order of the file. ``ignored_columns`` were not looked at.

    ``missing_items``: by reward model, how many items of the others it has no row for.
    """

    rows: tuple[ItemScores, ...]
    has_control: bool
    ignored_columns: tuple[str, ...]
    missing_items: Mapping[str, int]


def read_user_table(data: bytes, thing: str) -> UserTable:
    """The CSV table in ``data``.

    Raises MalformedInputError for bytes that are no CSV, columns that are missing or stand twice,
    and, all of them listed with line and column: rows of another length, empty names, families
    that the schema does not have, cells that are no score, an item given twice to one reward model,
    and one whose family, domain or stem is another to another reward model.
    """
    reading = _Reading(thing)
    for line, cells in _lines(data, thing):
        if not reading.columns:
            reading.columns = _header(cells, thing)
        elif cells:
            reading.add(line, cells)
    reading.problems.raise_if_any("cannot be read as meant", next_step=_NEXT_STEP)
    if not reading.rows:
        raise MalformedInputError(
            thing,
            expected="a header and at least one row",
            found="none",
            next_step=f"columns: {', '.join(COLUMNS)}",
        )
    return UserTable(
        rows=tuple(reading.rows),
        has_control="control" in reading.columns,
        ignored_columns=tuple(one for one in reading.columns if one not in COLUMNS),
        missing_items=_missing(reading.rows),
    )


def require_controls(table: UserTable, settings: VeaSettings, thing: str) -> None:
    """Refuse settings that need the control's score of a table that has no such column."""
    needs = [
        said
        for said, needed in (
            ("--primary length_controlled", settings.primary == "length_controlled"),
            ("--normalise per_prompt", settings.normalise == "per_prompt"),
        )
        if needed
    ]
    if needs and not table.has_control:
        raise MalformedInputError(
            thing,
            expected=f"a column control, for {' and '.join(needs)}",
            found="none",
            next_step="score the matched controls too, or choose another setting",
        )


@dataclass(slots=True)
class _Reading:
    """What was read so far, and what is wrong with it."""

    thing: str
    columns: tuple[str, ...] = ()
    rows: list[ItemScores] = field(default_factory=list)
    problems: Problems = field(init=False)
    _line_of: dict[tuple[str, str], int] = field(default_factory=dict)
    _first: dict[str, tuple[int, dict[str, str]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.problems = Problems(self.thing)

    def add(self, line: int, cells: Sequence[str]) -> None:
        if len(cells) != len(self.columns):
            self._refuse(line, f"expected {len(self.columns)} cells, found {len(cells)}")
            return
        row = dict(zip(self.columns, cells, strict=True))
        before = len(self.problems)
        names = {name: row[name].strip() for name in _NAMES}
        for name, value in names.items():
            if not value:
                self._refuse(line, f"{name}: expected a name, found nothing")
        if names["family"] and names["family"] not in FAMILIES:
            self._refuse(
                line, f"family: expected a family of the schema, found {names['family']!r}"
            )
        names["domain"] = row.get("domain", "").strip()
        scores = {name: self._score(line, name, row.get(name, "")) for name in RESPONSES}
        flag = row.get("same_text", "").strip().lower()
        if flag not in _FLAGS:
            self._refuse(line, f"same_text: expected true, false or nothing, found {flag[:60]!r}")
        if len(self.problems) == before:
            self._require_known(line, names)
        if len(self.problems) == before:
            self.rows.append(_scores(names, scores, is_same=_FLAGS[flag]))

    def _score(self, line: int, column: str, cell: str) -> tuple[float | None, str]:
        try:
            return read_score(cell)
        except ValueError as error:
            self._refuse(line, f"{column}: {error}")
            return None, "absent"

    def _require_known(self, line: int, names: Mapping[str, str]) -> None:
        """One row a reward model and item, and one item to all of them."""
        item = names["item"]
        known = self._line_of.setdefault((names["reward_model"], item), line)
        if known != line:
            self._refuse(
                line,
                f"item: expected one row for {names['reward_model']} and {item}, found a second "
                f"after line {known}",
            )
            return
        about = {name: names[name] for name in ("family", "domain", "stem")}
        first, same = self._first.setdefault(item, (line, about))
        for name, value in about.items():
            if value != same[name]:
                self._refuse(
                    line,
                    f"{name}: expected {same[name]!r}, as line {first} says of {item}, "
                    f"found {value!r}",
                )

    def _refuse(self, line: int, what: str) -> None:
        self.problems.add(f"line {line}: {what}")


def _scores(
    names: Mapping[str, str], scores: Mapping[str, tuple[float | None, str]], *, is_same: bool
) -> ItemScores:
    return ItemScores(
        reward_model=names["reward_model"],
        item=names["item"],
        family=cast(Family, names["family"]),
        domain=names["domain"],
        stem=names["stem"],
        base=scores["base"][0],
        vea=scores["vea"][0],
        control=scores["control"][0],
        statuses={name: status for name, (_, status) in scores.items()},
        same_text=is_same,
    )


def _lines(data: bytes, thing: str) -> Iterator[tuple[int, list[str]]]:
    """Each record with the line it begins in; cells may span lines."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise MalformedInputError(
            f"{thing}: line {line}",
            expected="UTF-8",
            found=f"byte {data[error.start]:#04x}",
            next_step="save the table as UTF-8",
        ) from error
    before = csv.field_size_limit(_LARGEST_CELL)
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    begins = 1
    try:
        for cells in reader:
            yield begins, cells
            begins = reader.line_num + 1
    except csv.Error as error:
        raise MalformedInputError(
            f"{thing}: line {begins}",
            problem=f"is not CSV ({error})",
            next_step="look for a quote that is not closed",
        ) from error
    finally:
        csv.field_size_limit(before)


def _header(cells: Sequence[str], thing: str) -> tuple[str, ...]:
    columns = tuple(cell.strip() for cell in cells)
    missing = [name for name in _REQUIRED if name not in columns]
    twice = sorted({name for name in columns if columns.count(name) > 1})
    if missing or twice:
        wrong = [f"no {name}" for name in missing] + [f"{name} twice" for name in twice]
        raise MalformedInputError(
            f"{thing}: line 1",
            expected=f"the columns {', '.join(_REQUIRED)}, each once; {', '.join(_OPTIONAL)} "
            "if you like",
            found=f"{', '.join(wrong)} among {', '.join(columns)[:200] or 'nothing'}",
            next_step="rename the columns; separate cells by commas",
        )
    return columns


def _missing(rows: Sequence[ItemScores]) -> dict[str, int]:
    n_items = len({row.item for row in rows})
    counts = Counter(row.reward_model for row in rows)
    return {model: n_items - n for model, n in counts.items() if n < n_items}
