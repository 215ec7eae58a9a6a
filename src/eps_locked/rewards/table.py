"""Scores that were made elsewhere, handed in as a CSV table.

Columns ``item``, ``response`` (base, vea or control) and ``score``; a fourth, ``digest``, names
the response that was scored (blake3 of its UTF-8 bytes) and is held against ours where it is given.
A row that is not there is a score that is absent; ``nan``, ``inf`` and an empty cell are no numbers
and no zeros. A row for a response that nobody asks about is refused: the table is of other items
than the plan.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eps_locked.canonical import digest_bytes, is_digest
from eps_locked.domain.reward import LARGEST_SCORE, RewardIdentity, RewardRequest, RewardScore
from eps_locked.errors import MalformedInputError

__all__ = ["RESPONSES", "TableReward", "TableRow", "read_table"]

RESPONSES = ("base", "vea", "control")
_NEEDED = ("item", "response", "score")
_OPTIONAL = ("digest",)


@dataclass(frozen=True, kw_only=True, slots=True)
class TableRow:
    """``score``: None where the cell is empty, and not finite where it says so. ``digest`` is empty
    where the table does not say which text was scored. ``line`` counts the header as 1."""

    key: str
    score: float | None
    digest: str
    line: int


def read_table(data: bytes, thing: str) -> dict[str, TableRow]:
    """Rows by ``<item>/<response>``, in the file's order.

    Raises MalformedInputError naming the line: for bytes that are not UTF-8, a column that is
    missing, unknown or given twice, a row of another length, a response that there is not, a score
    that is no number, and a response that is scored twice.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise MalformedInputError(thing, expected="UTF-8", found=str(error)) from error
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    rows: dict[str, TableRow] = {}
    try:
        columns = _columns(next(reader, []), thing)
        for cells in reader:
            if not cells:
                continue
            row = _row(columns, cells, thing, reader.line_num)
            if row.key in rows:
                raise MalformedInputError(
                    f"{thing}: line {row.line}",
                    expected="one score for each response",
                    found=f"{row.key} again, after line {rows[row.key].line}",
                    next_step="leave one of the two; which one is right is not ours to say",
                )
            rows[row.key] = row
    except csv.Error as error:
        raise MalformedInputError(
            f"{thing}: line {reader.line_num}", problem=f"is not CSV ({error})"
        ) from error
    if not rows:
        raise MalformedInputError(thing, expected="at least one score", found="none")
    return rows


class TableReward:
    """See RewardModel. All requests of a table go into one call of ``score``."""

    def __init__(self, data: bytes, *, name: str, thing: str) -> None:
        """``thing`` is the file as people know it. Raises MalformedInputError as ``read_table``."""
        self._rows = read_table(data, thing)
        self._name = name
        self._thing = thing
        self._digest = digest_bytes(data)

    @property
    def identity(self) -> RewardIdentity:
        return RewardIdentity(
            kind="table",
            model=self._name,
            version=self._digest,
            settings={"made": "elsewhere", "n_rows": str(len(self._rows))},
            publishable=True,
        )

    def score(self, requests: Sequence[RewardRequest]) -> tuple[RewardScore, ...]:
        """Raises MalformedInputError for a row of another response, or of another text."""
        by_key = {request.key: request for request in requests}
        for row in self._rows.values():
            self._require_ours(row, by_key)
        return tuple(_score(request.key, self._rows.get(request.key)) for request in requests)

    def _require_ours(self, row: TableRow, requests: Mapping[str, RewardRequest]) -> None:
        request = requests.get(row.key)
        if request is None:
            raise MalformedInputError(
                f"{self._thing}: line {row.line}",
                expected="an item of the plan",
                found=row.key,
                next_step="leave out what the plan does not ask about, or correct the item's id",
            )
        ours = digest_bytes(request.response.encode("utf-8"))
        if row.digest and row.digest != ours:
            raise MalformedInputError(
                f"{self._thing}: line {row.line}",
                problem=f"is about another text than {row.key}",
                expected=ours,
                found=row.digest,
                next_step="score the frozen responses, byte for byte",
            )


def _columns(header: Sequence[str], thing: str) -> tuple[str, ...]:
    known = {*_NEEDED, *_OPTIONAL}
    if not set(_NEEDED) <= set(header) <= known or len(set(header)) != len(header):
        raise MalformedInputError(
            f"{thing}: line 1",
            expected=f"the columns {', '.join(_NEEDED)}, and {', '.join(_OPTIONAL)} if you like",
            found=", ".join(header) or "nothing",
        )
    return tuple(header)


def _row(columns: Sequence[str], cells: Sequence[str], thing: str, line: int) -> TableRow:
    where = f"{thing}: line {line}"
    if len(cells) != len(columns):
        raise MalformedInputError(where, expected=f"{len(columns)} cells", found=len(cells))
    row = dict(zip(columns, cells, strict=True))
    if not row["item"] or row["response"] not in RESPONSES:
        raise MalformedInputError(
            where,
            expected=f"an item, and one of {', '.join(RESPONSES)}",
            found=f"{row['item']!r} and {row['response']!r}",
        )
    digest = row.get("digest", "")
    if digest and not is_digest(digest):
        raise MalformedInputError(f"{where}: digest", expected="blake3:<64 hex>", found=digest)
    return TableRow(
        key=f"{row['item']}/{row['response']}",
        score=_number(row["score"], where),
        digest=digest,
        line=line,
    )


def _number(cell: str, where: str) -> float | None:
    if not cell.strip():
        return None
    try:
        # Python would also take 1_000, in which others see no number.
        return float(cell.replace("_", "x"))
    except ValueError as error:
        raise MalformedInputError(
            f"{where}: score", expected="a number, nan, or nothing", found=repr(cell)[:60]
        ) from error


def _score(key: str, row: TableRow | None) -> RewardScore:
    if row is None or row.score is None:
        note = "no row in the table" if row is None else f"no score in line {row.line}"
        return RewardScore(key=key, status="absent", value=None, n_tokens=None, note=note, tries=0)
    if not abs(row.score) <= LARGEST_SCORE:
        return RewardScore(
            key=key,
            status="not_finite",
            value=None,
            n_tokens=None,
            note=f"{row.score} in line {row.line}",
            tries=0,
        )
    return RewardScore(key=key, status="scored", value=row.score, n_tokens=None, note="", tries=0)
