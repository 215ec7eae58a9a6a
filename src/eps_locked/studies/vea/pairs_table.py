"""Labelled preference pairs with the scores of reward models, from somebody's table.

Two forms. *JudgeBench*: one row a pair and reward model, answers A and B, a label that says which
of them is right, and scores in one or both orders of presentation. *Plain*: one row a pair, or two
where it was asked in both orders, with the scores of the chosen and the rejected answer.

Equal scores are a tie, whatever a column of decisions makes of them; nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeVar

from eps_locked.data.rows import read_rows
from eps_locked.domain.reward import RewardStatus
from eps_locked.errors import MalformedInputError
from eps_locked.scoring.tables import Problems, text_or_none
from eps_locked.studies.vea.score_cells import SCORE_FORM, read_score

__all__ = [
    "JUDGEBENCH",
    "PLAIN",
    "UNNAMED",
    "Form",
    "Judgement",
    "Order",
    "PairsTable",
    "read_pairs",
]

T = TypeVar("T")
Form = Literal["judgebench", "plain"]
Order = Literal["chosen_first", "rejected_first", "not_said"]
Side = Literal["A", "B"]
_JUDGEBENCH_NEEDED: Final = ("pair_id", "label", "order1_score_A", "order1_score_B")
_JUDGEBENCH_MORE: Final = (
    "judge_model",
    "original_id",
    "source",
    "order1_decision",
    "order2_score_first",
    "order2_score_second",
    "order2_decision",
    "response_A",
    "response_B",
)
_PLAIN_NEEDED: Final = ("id", "chosen_score", "rejected_score")
_PLAIN_MORE: Final = ("reward_model", "question", "order", "chosen", "rejected")
JUDGEBENCH: Final = (*_JUDGEBENCH_NEEDED, *_JUDGEBENCH_MORE)
PLAIN: Final = (*_PLAIN_NEEDED, *_PLAIN_MORE)
# Of tables that do not name their reward model.
UNNAMED: Final = "unnamed"
_LABELS: Final[Mapping[str, Side]] = {"A>B": "A", "B>A": "B"}
_ORDERS: Final[Mapping[str | None, Order]] = {
    None: "not_said",
    "chosen_first": "chosen_first",
    "rejected_first": "rejected_first",
}
Score = tuple[float | None, RewardStatus]
_ABSENT: Final[Score] = (None, "absent")
_NEXT_STEP: Final = f"correct the cells; a score is {SCORE_FORM}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Judgement:
    """One pair, scored once. ``chosen`` is the answer that is labelled right.

    Both scores are there exactly if ``status`` is "scored"; else it says why not, of the chosen
    answer first. ``same_text``: the two answers are equal byte for byte; False where the table has
    no texts. Pairs of one ``question`` are no independent evidence.
    """

    reward_model: str
    pair: str
    question: str
    order: Order
    chosen: float | None
    rejected: float | None
    status: RewardStatus
    same_text: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class PairsTable:
    """``n_with_texts``: judgements whose two answers stand in the table. ``n_ties_decided``: equal
    scores for which a column of decisions names a winner all the same."""

    form: Form
    judgements: tuple[Judgement, ...]
    n_with_texts: int
    n_ties_decided: int
    ignored_columns: tuple[str, ...]


def read_pairs(name: str, data: bytes) -> PairsTable:
    """The pairs in ``data``; ``name`` ends in .csv, .jsonl, .json or .parquet.

    Raises MalformedInputError for a file that is no such table or of neither form, and, all of them
    listed with row and column: cells that are not what their column says, a decision against the
    scores beside it, a pair given twice to one reward model in one order, or under two questions.
    """
    rows = [row for _, row in read_rows(name, data, optional=(*JUDGEBENCH, *PLAIN))]
    if not rows:
        raise MalformedInputError(
            name, expected="at least one pair", found="none", next_step="add rows"
        )
    columns = tuple(dict.fromkeys(key for row in rows for key in row))
    form = _form(name, columns)
    reading = _Reading(Problems(name))
    for number, row in enumerate(rows, start=1):
        cells = _Cells(row, number, reading)
        for one in _judgebench(cells) if form == "judgebench" else _plain(cells):
            reading.add(number, one)
    reading.problems.raise_if_any("cannot be read as meant", next_step=_NEXT_STEP)
    known = JUDGEBENCH if form == "judgebench" else PLAIN
    return PairsTable(
        form=form,
        judgements=tuple(reading.judgements),
        n_with_texts=reading.n_with_texts,
        n_ties_decided=reading.n_ties_decided,
        ignored_columns=tuple(column for column in columns if column not in known),
    )


@dataclass(slots=True)
class _Reading:
    """What was read so far, and what is wrong with it."""

    problems: Problems
    judgements: list[Judgement] = field(default_factory=list)
    n_with_texts: int = 0
    n_ties_decided: int = 0
    _rows: dict[tuple[str, str, Order], int] = field(default_factory=dict)
    _questions: dict[str, tuple[int, str]] = field(default_factory=dict)

    def add(self, number: int, one: Judgement) -> None:
        first = self._rows.setdefault((one.reward_model, one.pair, one.order), number)
        if first != number:
            self.problems.add(
                f"row {number}: expected one row for {one.pair}, {one.order} and "
                f"{one.reward_model}, found a second after row {first}"
            )
        row, question = self._questions.setdefault(one.pair, (number, one.question))
        if question != one.question:
            self.problems.add(
                f"row {number}: question: expected {question!r}, as row {row} says of {one.pair}, "
                f"found {one.question!r}"
            )
        self.judgements.append(one)


class _Cells:
    """One row's cells; what is wrong with them goes to the reading, with the row's number."""

    def __init__(self, row: Mapping[str, Any], number: int, reading: _Reading) -> None:
        self._row, self._number, self.reading = row, number, reading

    def text(self, column: str) -> str | None:
        return self._read(column, text_or_none, None)

    def name(self, column: str) -> str:
        found = self.text(column)
        if found is None:
            self.refuse(column, "expected a name, found nothing")
        return found or ""

    def score(self, column: str) -> Score:
        return self._read(column, read_score, _ABSENT)

    def is_empty(self, column: str) -> bool:
        return self._row.get(column) in (None, "")

    def one_of(self, column: str, words: Mapping[Any, T], default: T) -> T:
        found = self.text(column)
        if found in words:
            return words[found]
        known = " or ".join(word for word in words if word is not None)
        self.refuse(column, f"expected {known}, found {found!r}"[:160])
        return default

    def same_texts(self, first: str, second: str) -> bool:
        """Whether the row holds both answers, byte for byte the same."""
        one, other = (self._read(column, _whole_text, None) for column in (first, second))
        if one is None or other is None:
            return False
        self.reading.n_with_texts += 1
        return one == other

    def refuse(self, column: str, what: str) -> None:
        self.reading.problems.add(f"row {self._number}: {column}: {what}")

    def _read(self, column: str, read: Callable[[object], T], default: T) -> T:
        try:
            return read(self._row.get(column))
        except ValueError as error:
            self.refuse(column, str(error))
            return default


def _form(name: str, columns: Sequence[str]) -> Form:
    found: list[Form] = []
    if set(_JUDGEBENCH_NEEDED) <= set(columns):
        found.append("judgebench")
    if set(_PLAIN_NEEDED) <= set(columns):
        found.append("plain")
    if len(found) != 1:
        raise MalformedInputError(
            name,
            expected=f"the columns {', '.join(_JUDGEBENCH_NEEDED)} (JudgeBench), or "
            f"{', '.join(_PLAIN_NEEDED)} (plain)",
            found=("both among " if found else "neither among ") + ", ".join(columns)[:200],
            next_step="score the answers first, and rename the columns; docs/vea.md describes both "
            "forms",
        )
    return found[0]


def _judgebench(cells: _Cells) -> Iterator[Judgement]:
    pair, chosen = cells.name("pair_id"), cells.one_of("label", _LABELS, "A")
    original, source = cells.text("original_id"), cells.text("source")
    # Ids of questions begin again in every source.
    question = pair if original is None else f"{source or ''}/{original}"
    model = UNNAMED if cells.is_empty("judge_model") else cells.name("judge_model")
    same_text = cells.same_texts("response_A", "response_B")
    orders: list[tuple[Side, str, str, str]] = [
        ("A", "order1_score_A", "order1_score_B", "order1_decision")
    ]
    second = ("order2_score_first", "order2_score_second", "order2_decision")
    if not all(map(cells.is_empty, second)):
        orders.append(("B", *second))
    for first, first_column, second_column, decision in orders:
        scores = (cells.score(first_column), cells.score(second_column))
        _require_decision(cells, scores, first_column, decision)
        is_first = chosen == first
        yield _judgement(
            model=model,
            pair=pair,
            question=question,
            order="chosen_first" if is_first else "rejected_first",
            scores=scores if is_first else scores[::-1],
            same_text=same_text,
        )


def _plain(cells: _Cells) -> Iterator[Judgement]:
    pair = cells.name("id")
    yield _judgement(
        model=UNNAMED if cells.is_empty("reward_model") else cells.name("reward_model"),
        pair=pair,
        question=cells.text("question") or pair,
        order=cells.one_of("order", _ORDERS, "not_said"),
        scores=(cells.score("chosen_score"), cells.score("rejected_score")),
        same_text=cells.same_texts("chosen", "rejected"),
    )


def _judgement(
    *,
    model: str,
    pair: str,
    question: str,
    order: Order,
    scores: tuple[Score, ...],
    same_text: bool,
) -> Judgement:
    (chosen, first_status), (rejected, second_status) = scores
    status = first_status if first_status != "scored" else second_status
    is_scored = status == "scored"
    return Judgement(
        reward_model=model,
        pair=pair,
        question=question,
        order=order,
        chosen=chosen if is_scored else None,
        rejected=rejected if is_scored else None,
        status=status,
        same_text=same_text,
    )


def _require_decision(
    cells: _Cells, scores: Sequence[Score], first_column: str, column: str
) -> None:
    """A decision is in the order of presentation, and follows from the two scores unless they are
    equal."""
    (one, _), (other, _) = scores
    if cells.is_empty(column) or one is None or other is None:
        return
    winner = cells.one_of(column, {"A>B": "A>B", "B>A": "B>A", "A=B": "A=B"}, "A=B")
    if one == other:
        cells.reading.n_ties_decided += winner != "A=B"
        return
    expected = "A>B" if one > other else "B>A"
    if winner != expected:
        cells.refuse(
            column,
            f"expected {expected} of {first_column} {one:g} before {other:g}, found {winner}",
        )


def _whole_text(value: object) -> str | None:
    """An answer, blanks and all; an empty one is an answer too, a missing one is None."""
    if value is None or isinstance(value, str):
        return value
    raise ValueError(f"expected a text, found {repr(value)[:60]}")
