"""Somebody's own table of replies to the rows, arms and batteries of the analysis.

Columns: arm, stem, probe, sample, and label or score; the others are optional. Nothing is guessed:
a cell that cannot be read as meant is refused with its row, an empty label is a reply without a
score and is counted, and a class that the caller names but no reply has is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from eps_locked.data.rows import read_rows
from eps_locked.errors import MalformedInputError
from eps_locked.scoring.tables import Problems, number_or_none, text_or_none
from eps_locked.studies.drift.outcomes import Unit
from eps_locked.studies.drift.table import MISSING, SCORED, ArmInfo, BatteryInfo, ReplyRow

__all__ = ["COLUMNS", "ONE_BATTERY", "TableOptions", "UserTable", "read_user_table"]

T = TypeVar("T")
ONE_BATTERY = "all"
_REQUIRED = ("arm", "stem", "probe", "sample")
_OF_REPLY = ("battery", "label", "score", "second_label", "check_label", "grade")
_OF_ARM = (
    "model",
    "topic",
    "dose_percent",
    "seed",
    "reasoning",
    "temperature",
    "exposure",
    "instance",
    "reference",
)
# Read only where a label is the outcome.
_OF_LABELS = ("label", "second_label", "check_label")
COLUMNS = (*_REQUIRED, *_OF_REPLY, *_OF_ARM)
# Of arms that have a dose and no topic.
_ONE_TOPIC = "unnamed"


@dataclass(frozen=True, kw_only=True, slots=True)
class TableOptions:
    """How a table is meant. ``use_score``: the column ``score`` is the outcome, else ``label`` is.

    ``is_rate``: scores are shares from 0 to 1, and drifts in percentage points. ``reference``: of
    every arm that names none in a column of that name. ``n_rewordings``: promised for every stem.
    """

    reference: str
    aligned: tuple[str, ...] = ()
    no_stance: tuple[str, ...] = ()
    use_score: bool = False
    is_rate: bool = False
    n_rewordings: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class UserTable:
    """What ``analyse`` takes. ``ignored_columns`` were not looked at."""

    rows: tuple[ReplyRow, ...]
    arms: tuple[ArmInfo, ...]
    batteries: tuple[BatteryInfo, ...]
    unit: Unit
    ignored_columns: tuple[str, ...]


def read_user_table(name: str, data: bytes, options: TableOptions) -> UserTable:
    """The table in ``data``; ``name`` ends in .csv, .parquet, .json or .jsonl.

    Probes belong to their stem: probe 0 of two stems are two probes. Raises MalformedInputError
    for bytes that are no such table, columns that are missing, cells that are not what their column
    says (all of them listed), an arm described in two ways, a class that no reply has, and a
    reference that is not in the table.
    """
    outcome = "score" if options.use_score else "label"
    _require_options(options)
    required = (*_REQUIRED, outcome)
    cells = [row for _, row in read_rows(name, data, columns=required, optional=COLUMNS)]
    if not cells:
        raise MalformedInputError(name, expected="at least one row", found="none")
    columns = list(dict.fromkeys(key for row in cells for key in row))
    missing = [column for column in required if column not in columns]
    if missing:
        raise MalformedInputError(
            name,
            expected=f"columns {', '.join(required)}",
            found=", ".join(columns),
            next_step="rename the columns, or give --score if the outcome is a number"
            if outcome in missing
            else None,
        )
    not_read = _OF_LABELS if options.use_score else ("score",)
    read = [column for column in COLUMNS if column not in not_read]
    problems = Problems(name)
    rows = [_Cells(row, n, problems).reply(options) for n, row in enumerate(cells, start=1)]
    problems.raise_if_any("cannot be read as meant")
    kept = [row for row in rows if row is not None]
    arms = _arms(name, cells, options)
    return UserTable(
        rows=tuple(kept),
        arms=arms,
        batteries=_batteries(name, kept, options),
        unit="points" if not options.use_score or options.is_rate else "score units",
        ignored_columns=tuple(column for column in columns if column not in read),
    )


class _Cells:
    """One row's cells; what is wrong with them goes to ``problems``, with the row's number."""

    def __init__(self, row: Mapping[str, Any], number: int, problems: Problems) -> None:
        self._row, self._number, self._problems = row, number, problems
        self._failed = False

    def reply(self, options: TableOptions) -> ReplyRow | None:
        stem, probe = self._text("stem"), self._text("probe")
        sample = self._whole("sample", 0)
        arm, battery = self._text("arm"), self._read("battery", text_or_none)
        label = None if options.use_score else self._read("label", text_or_none)
        score = self._score(options) if options.use_score else None
        second = None if label is None else self._read("second_label", text_or_none)
        checked = None if label is None else self._read("check_label", text_or_none)
        grade = self._whole("grade", 1)
        if self._failed or arm is None or stem is None or probe is None or sample is None:
            return None
        return ReplyRow(
            arm=arm,
            battery=battery or ONE_BATTERY,
            stem=stem,
            probe=f"{stem}/{probe}",
            sample=sample,
            label=label,
            score=score,
            status=MISSING if label is None and score is None else SCORED,
            second_label=second,
            check_label=checked,
            grade=grade,
        )

    def _score(self, options: TableOptions) -> float | None:
        score = self._read("score", number_or_none)
        if score is not None and options.is_rate and not 0 <= score <= 1:
            self._add(f"score: expected a share from 0 to 1, found {score:g}")
        return score

    def _text(self, column: str) -> str | None:
        if self._is_empty(column):
            self._add(f"{column} is empty")
            return None
        return self._read(column, text_or_none)

    def _whole(self, column: str, low: int) -> int | None:
        if self._is_empty(column):
            if column in _REQUIRED:
                self._add(f"{column} is empty")
            return None
        number = self._read(column, number_or_none)
        if number is not None and (number != int(number) or number < low):
            self._add(f"{column}: expected a whole number of {low} or more, found {number:g}")
            return None
        return None if number is None else int(number)

    def _is_empty(self, column: str) -> bool:
        return self._row.get(column) in (None, "")

    def _read(self, column: str, read: Callable[[object], T | None]) -> T | None:
        try:
            return read(self._row.get(column))
        except ValueError as error:
            self._add(f"{column}: {error}")
            return None

    def _add(self, what: str) -> None:
        self._failed = True
        self._problems.add(f"row {self._number}: {what}")


def _require_options(options: TableOptions) -> None:
    if options.use_score and (options.aligned or options.no_stance):
        raise MalformedInputError(
            "options",
            expected="--score, or classes of labels",
            found="both",
            next_step="leave --aligned and --no-stance out, or --score",
        )
    if not options.use_score and not options.aligned:
        raise MalformedInputError(
            "--aligned",
            expected="at least one class that counts as aligned",
            found="none",
            next_step="name it, or give --score if the outcome is a number",
        )
    if options.is_rate and not options.use_score:
        raise MalformedInputError(
            "--rate", expected="--score beside it", found="labels", next_step="leave --rate out"
        )
    both = sorted({*options.aligned} & {*options.no_stance})
    if both:
        raise MalformedInputError(
            "--no-stance", expected="classes that do not count as aligned", found=both[0]
        )


def _batteries(
    name: str, rows: Sequence[ReplyRow], options: TableOptions
) -> tuple[BatteryInfo, ...]:
    occur: dict[str, set[str]] = {}
    for row in rows:
        given = {row.label, row.second_label, row.check_label}
        occur.setdefault(row.battery, set()).update(one for one in given if one is not None)
    everywhere = sorted(set().union(*occur.values()))
    for what, named in (("--aligned", options.aligned), ("--no-stance", options.no_stance)):
        for one in named:
            if one not in everywhere:
                raise MalformedInputError(
                    f"{what} {one}",
                    expected=f"a class that replies of {name} have ({', '.join(everywhere)})",
                    found="none such",
                )
    found = []
    for battery, classes in occur.items():
        aligned = tuple(one for one in options.aligned if one in classes)
        if not options.use_score and not aligned:
            raise MalformedInputError(
                f"{name}: battery {battery}",
                expected=f"replies of class {' or '.join(options.aligned)}",
                found=", ".join(sorted(classes)) or "no labels",
                next_step="name the aligned class of this battery too",
            )
        found.append(
            BatteryInfo(
                name=battery,
                labels=tuple(sorted(classes)),
                aligned=aligned,
                no_stance=tuple(one for one in options.no_stance if one in classes),
                n_rewordings=options.n_rewordings,
            )
        )
    return tuple(found)


def _arms(
    name: str, cells: Sequence[Mapping[str, Any]], options: TableOptions
) -> tuple[ArmInfo, ...]:
    described: dict[str, dict[str, object]] = {}
    problems = Problems(name)
    for number, row in enumerate(cells, start=1):
        arm = str(row["arm"])
        words = {column: row.get(column) for column in _OF_ARM}
        before = described.setdefault(arm, words)
        for column, value in words.items():
            if value != before[column]:
                problems.add(
                    f"row {number}: {column} of arm {arm}: {before[column]!r} before, "
                    f"{value!r} here"
                )
    problems.raise_if_any("describes an arm in two ways")
    if options.reference not in described:
        raise MalformedInputError(
            f"--reference {options.reference}",
            expected=f"an arm of {name} ({', '.join(described)})",
            found="none such",
            next_step="name the arm that drifts are counted from",
        )
    named = {str(words["reference"]) for words in described.values() if words["reference"]}
    references = {options.reference, *named}
    arms = []
    for arm, words in described.items():
        reference = words["reference"] or (None if arm in references else options.reference)
        arms.append(_arm(name, arm, words, None if reference is None else str(reference)))
    return tuple(arms)


def _arm(name: str, arm: str, words: Mapping[str, object], reference: str | None) -> ArmInfo:
    def read(column: str, reader: Callable[[object], T | None]) -> T | None:
        try:
            return reader(words[column])
        except ValueError as error:
            raise MalformedInputError(f"{name}: {column} of arm {arm}: {error}") from error

    def whole(column: str) -> int | None:
        number = read(column, number_or_none)
        if number is not None and (number != int(number) or number < 0):
            raise MalformedInputError(
                f"{name}: {column} of arm {arm}",
                expected="a whole number of 0 or more",
                found=f"{number:g}",
            )
        return None if number is None else int(number)

    dose, topic = read("dose_percent", number_or_none), read("topic", text_or_none)
    reasoning = read("reasoning", text_or_none)
    return ArmInfo(
        name=arm,
        model=read("model", text_or_none) or arm,
        topic=topic or (None if dose is None else _ONE_TOPIC),
        dose_percent=dose,
        seed=whole("seed"),
        reasoning=reasoning or "none",
        reasoning_mode=reasoning or "none",
        temperature=read("temperature", number_or_none),
        exposure=read("exposure", text_or_none),
        instance=whole("instance") or 0,
        reference=reference,
    )
