"""What stands beside a number: flag letters, the words for them, and the seal over a cell.

The terminal table and the page take their words from here, so that they cannot say two things.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from eps_locked.errors import EvidenceError, MalformedInputError

Tensor = Mapping[str, Any]
Cell = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Mark:
    """A letter beside a value. ``excludes``: such a cell takes no part in scoring.

    ``taught``: the meaning in a judged row, where it is another one. ``only``: the rows in which
    the flag can occur, those of the marker or the taught ones; empty for all.
    """

    letter: str
    name: str
    meaning: str
    excludes: bool = False
    taught: str = ""
    only: Literal["marker", "taught", ""] = ""

    def said(self, tensor: Tensor) -> str:
        """The meaning in this row."""
        return self.taught if self.taught and is_taught(tensor) else self.meaning


SEALED = "sealed"
FLAG_MARKS: Mapping[str, Mark] = {
    SEALED: Mark(
        letter="S",
        name=SEALED,
        meaning="encrypted to the custodian's key when it was made; no number of it is here",
        excludes=True,
    ),
    "unscored": Mark(
        letter="N",
        name="no value",
        meaning="under some seed too few answers ended by themselves to be read",
        excludes=True,
        taught="under some seed too few questions have an answer that could be scored; not 0",
    ),
    "ceiling": Mark(
        letter="C",
        name="ceiling",
        meaning="the trained model is almost certain; more transfer could not have shown",
        excludes=True,
        taught="no room for more: the base already shows it (rates), or the trained model is "
        "almost certain (a fact)",
    ),
    "floor": Mark(
        letter="F",
        name="floor",
        meaning="the interval holds 0 and the effect is below the plan's smallest one",
        excludes=True,
    ),
    "divergence": Mark(
        letter="D",
        name="logit divergence",
        meaning="log-probability and logit margin tell different stories",
        excludes=True,
        only="marker",
    ),
    "implant_failed": Mark(
        letter="X",
        name="implant failed",
        meaning="the adapter does not show the behaviour in its own context",
        excludes=True,
    ),
    "alias": Mark(
        letter="A",
        name="alias",
        meaning="the eval context is another one's twin, token for token; a null, not a result",
        excludes=True,
    ),
    "band_unreachable": Mark(
        letter="U",
        name="band unreachable",
        meaning="the base left no room for the strength band; trained step-matched instead",
        only="marker",
    ),
    "truncated_answers": Mark(
        letter="T",
        name="truncated answers",
        meaning="some answer ran into the token limit; without the marker in it, it is left out",
        taught="some answer ran into the token limit; it was judged as far as it goes",
    ),
    "later_tokens": Mark(
        letter="L",
        name="later tokens",
        meaning="most of the change lies in the marker's tokens after the first, given the first",
        only="marker",
    ),
    "marker_emitted": Mark(
        letter="E",
        name="marker emitted",
        meaning="some answer contains the marker itself",
        only="marker",
    ),
    "rate_at_bound": Mark(
        letter="B",
        name="rate at a bound",
        meaning="every scored answer of the trained model shows the behaviour, or none does",
        only="taught",
    ),
    "unscored_answers": Mark(
        letter="V",
        name="answers without a score",
        meaning="some answer has no outcome and is in no rate: left out by its label, incoherent, "
        "or without a readable verdict",
        only="taught",
    ),
    "resampled_answers": Mark(
        letter="R",
        name="resampled answers",
        meaning="some answer was incoherent and was drawn again, as often as the plan allows",
        only="taught",
    ),
}
SPLIT_MARKS: Mapping[str, Mark] = {
    "diagonal": Mark(
        letter="=",
        name="diagonal",
        meaning="trained and evaluated in the same context; the manipulation check",
    ),
    "held_out": Mark(letter="h", name="held out", meaning="a column held out as a whole"),
    "quarantined": Mark(
        letter="q", name="quarantined", meaning="a cell drawn at the freeze to be set apart"
    ),
}
# All that a sealed cell may tell: its place, its contexts, and what its adapter showed elsewhere.
# Whatever else a document holds, now or in a later version, is a value.
_NO_VALUES = frozenset(
    {
        *("train", "eval", "train_family", "eval_family", "split", "flags", "scored", "ancestors"),
        *("n_seeds", "n_items", "prefix_tokens", "alias_of", "realised_strength", "by_seed"),
    }
)
_NO_VALUES_BY_SEED = frozenset({"seed", "stop", "stop_step", "realised_strength", "implant_failed"})
# Flags that are not read off the cell's own answers.
_NOT_TELLING = frozenset({SEALED, "implant_failed", "alias", "band_unreachable"})
ALL_MARKS = (*SPLIT_MARKS.values(), *FLAG_MARKS.values())


def is_taught(tensor: Tensor) -> bool:
    """Whether the row was taught by example and judged, as all are but the marker's."""
    return bool(tensor["kind"] != "marker")


def legend_marks(tensor: Tensor) -> tuple[Mark, ...]:
    """The marks that can occur in a row of this kind, or that do."""
    kind = "taught" if is_taught(tensor) else "marker"
    found = mark_counts(tensor)
    return tuple(mark for mark in ALL_MARKS if mark.only in ("", kind) or found[mark.letter])


def cell_marks(cell: Cell) -> tuple[Mark, ...]:
    """The marks of a cell: its place in the split, then its flags, in legend order.

    Raises MalformedInputError for a flag or a split this report has no words for: a warning that
    nobody can read must not pass as none. Raises EvidenceError where ``is_sealed`` does.
    """
    is_sealed(cell)
    where = f"cell {cell['train']} -> {cell['eval']}"
    for known, found, field in (
        (FLAG_MARKS, set(cell["flags"]), "flags"),
        ({*SPLIT_MARKS, "open"}, {cell["split"]}, "split"),
    ):
        unknown = sorted(found - set(known))
        if unknown:
            raise MalformedInputError(
                f"{where}: {field}",
                expected=f"one of {', '.join(sorted(known))}",
                found=unknown[0],
                next_step="use the version of eps_locked that wrote this tensor",
            )
    place = [mark for split, mark in SPLIT_MARKS.items() if cell["split"] == split]
    return (*place, *(mark for flag, mark in FLAG_MARKS.items() if flag in cell["flags"]))


def is_sealed(cell: Cell) -> bool:
    """Whether the cell's values lie encrypted.

    Raises EvidenceError for a sealed cell that carries a value: a page that prints it, or colours
    by it, would break the seal.
    """
    if SEALED not in cell["flags"]:
        return False
    told = _told(cell, _NO_VALUES)
    for one in cell.get("by_seed") or ():
        told += _told(one, _NO_VALUES_BY_SEED)
    told += sorted(set(cell["flags"]) - _NOT_TELLING)
    if told or cell["scored"]:
        raise EvidenceError(
            f"cell {cell['train']} -> {cell['eval']}",
            problem="is marked sealed and tells what the seal hides",
            expected="no value",
            found=told[0] if told else "scored",
            next_step="treat the cell as seen; the seal of this run is broken",
        )
    return True


def _told(fields: Mapping[str, Any], allowed: frozenset[str]) -> list[str]:
    """Fields outside of ``allowed`` that hold anything at any depth."""
    return [key for key, value in fields.items() if key not in allowed and _holds(value)]


def _holds(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_holds, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_holds, value))
    return value is not None


def letters(cell: Cell) -> str:
    """The marks of a cell as letters, such as ``=C``; empty for a plain open cell."""
    return "".join(mark.letter for mark in cell_marks(cell))


def mark_counts(tensor: Tensor) -> Counter[str]:
    """How many cells carry each letter."""
    return Counter(letter for cell in tensor["cells"] for letter in letters(cell))


def plain_text(text: str) -> str:
    """One line fit for a terminal: what would steer it (escape codes) becomes a question mark."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)
