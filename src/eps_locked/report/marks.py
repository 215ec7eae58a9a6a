"""What stands beside a number: flag letters, the words for them, and the limits of the numbers.

The terminal table and the page take their sentences from here, so that they cannot say two things.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from eps_locked.errors import EvidenceError, MalformedInputError

Tensor = Mapping[str, Any]
Cell = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Mark:
    """A letter beside a value. ``excludes``: such a cell takes no part in scoring."""

    letter: str
    name: str
    meaning: str
    excludes: bool = False


SEALED = "sealed"
# Farther from 0 than this, how far says nothing more of a score.
FAR = 99
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
    ),
    "ceiling": Mark(
        letter="C",
        name="ceiling",
        meaning="the trained model is almost certain; more transfer could not have shown",
        excludes=True,
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
    ),
    "truncated_answers": Mark(
        letter="T",
        name="truncated answers",
        meaning="some answer ran into the token limit; without the marker in it, it is left out",
    ),
    "later_tokens": Mark(
        letter="L",
        name="later tokens",
        meaning="most of the change lies in the marker's tokens after the first, given the first",
    ),
    "marker_emitted": Mark(
        letter="E", name="marker emitted", meaning="some answer contains the marker itself"
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
# What a number would be read from. A sealed cell carries none of these, neither whole nor by seed.
_VALUES = (
    "g",
    "low",
    "high",
    "standard_error",
    "degrees_of_freedom",
    "g_base_answer",
    "low_base_answer",
    "high_base_answer",
    "base_log_prob",
    "trained_log_prob",
    "first_token_change",
    "margin_change",
    "emission_rate",
    "n",
    "n_truncated",
)
# Flags that are read off a value: beside "sealed" they would tell what the seal hides.
_TELLING = frozenset({"unscored", "ceiling", "floor", "divergence", "later_tokens"})
ALL_MARKS = (*SPLIT_MARKS.values(), *FLAG_MARKS.values())


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
    told = [key for key in _VALUES if cell.get(key) is not None]
    told += [
        key for one in cell.get("by_seed") or () for key in _VALUES if one.get(key) is not None
    ]
    told += sorted(_TELLING & set(cell["flags"]))
    if told or cell["scored"]:
        raise EvidenceError(
            f"cell {cell['train']} -> {cell['eval']}",
            problem="is marked sealed and tells what the seal hides",
            expected="no value",
            found=told[0] if told else "scored",
            next_step="treat the cell as seen; the seal of this run is broken",
        )
    return True


def letters(cell: Cell) -> str:
    """The marks of a cell as letters, such as ``=C``; empty for a plain open cell."""
    return "".join(mark.letter for mark in cell_marks(cell))


def mark_counts(tensor: Tensor) -> Counter[str]:
    """How many cells carry each letter."""
    return Counter(letter for cell in tensor["cells"] for letter in letters(cell))


def signed(value: float | None, digits: int = 1) -> str:
    """A number with its sign; what rounds to zero has none. A dash where there is no number."""
    if value is None:
        return "-"
    text = f"{value:+.{digits}f}"
    return text[1:] if float(text) == 0 else text


def score_signed(value: float) -> str:
    """``signed`` for a score. An R2 has no lower end: far below 0 only that it is far counts."""
    if abs(value) <= FAR:
        return signed(value, 2)
    return f"below -{FAR}" if value < 0 else f"{value:.0f}"


def typeset(value: float | None, digits: int = 1) -> str:
    """``signed`` with a true minus sign, or a true dash, for the page."""
    return "–" if value is None else signed(value, digits).replace("-", "−")


def interval(low: float | None, high: float | None, digits: int = 1) -> str:
    """``[low, high]``; empty where there is none."""
    if low is None or high is None:
        return ""
    ends = (f"{end:.{digits}f}" for end in (low, high))
    return f"[{', '.join(end[1:] if float(end) == 0 and end[0] == '-' else end for end in ends)}]"


def percent(level: float) -> str:
    """``95 %``."""
    return f"{level * 100:g} %"


def plain_text(text: str) -> str:
    """One line fit for a terminal: what would steer it (escape codes) becomes a question mark."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def notes(tensor: Tensor) -> list[tuple[str, str]]:
    """What a reader must know to read the numbers: (keyword, sentences), in order."""
    return [
        ("reading", _reading_note(tensor)),
        ("n", _count_note(tensor)),
        ("interval", _interval_note(tensor)),
        ("seeds", _seed_note(tensor)),
        ("resolution", _resolution_note(tensor)),
        ("scoring", _scoring_note(tensor)),
        ("split", _split_note(tensor)),
    ]


def _reading_note(tensor: Tensor) -> str:
    words = {
        "own_answer": "the marker's log-probability after each model's own answer",
        "base_answer": "the same after the base model's answer, for both models",
    }
    primary, second = tensor["primary_reading"], tensor["second_reading"]
    return (
        f"G is trained minus base, in {tensor['unit']}. Primary reading ({primary}): "
        f"{words.get(primary, primary)}. Second reading ({second}), kept beside it: "
        f"{words.get(second, second)}."
    )


def _count_note(tensor: Tensor) -> str:
    questions, seeds = tensor["n_items"], tensor["n_seeds"]
    text = (
        f"{questions * seeds} readings a cell: {_number(questions, 'question')} "
        f"x {_number(seeds, 'seed')}."
    )
    short = [cell for cell in _open(tensor) if cell["n_truncated"]]
    if short:
        fewest = min(cell["n"] for cell in short)
        text += (
            f" {_number(len(short), 'cell')} {'has' if len(short) == 1 else 'have'} fewer "
            f"({fewest} at the least): an answer cut at the token limit, the base's or the trained "
            "model's, has no end to be read at, and its pair is left out."
        )
    without = sum(cell["g"] is None for cell in short)
    if without:
        text += f" {_number(without, 'cell')} {'has' if without == 1 else 'have'} no value at all."
    return text


def _interval_note(tensor: Tensor) -> str:
    rules = tensor["intervals"]
    return (
        f"{percent(rules['confidence_level'])} interval ({rules['method']}), one cell at a time, "
        "not adjusted for their number."
    )


def _seed_note(tensor: Tensor) -> str:
    n_seeds = tensor["n_seeds"]
    if n_seeds == 1:
        return (
            "With one seed the intervals speak of that training run alone: they cannot tell the "
            "context's effect from the seed's luck."
        )
    return (
        f"The {n_seeds} seeds of one cell say little of how far another training run would fall; "
        "the intervals take that spread from all cells of the row together, as if it were the "
        "same in each."
    )


def _resolution_note(tensor: Tensor) -> str:
    found = tensor["resolution"]
    if found is None:
        why = "one seed" if tensor["n_seeds"] == 1 else "no cell of which every answer was read"
        return f"What one cell could have shown is undefined with {why}."
    error, effect = found["standard_error"], found["minimum_detectable_effect"]
    cells = f"{_number(found['n_cells'], 'cell')} in which every answer could be read"
    if effect is None:
        return (
            f"Pooled standard error of one cell {error:.2f} {tensor['unit']}, from the "
            f"{cells}; with no spread at all there is no smallest detectable effect to state."
        )
    return (
        f"One cell could have shown an effect of {effect:.2f} {tensor['unit']} or more (pooled "
        f"standard error {error:.2f}; {found['basis']}; from the {cells}). A smaller one may "
        "have been missed."
    )


def _scoring_note(tensor: Tensor) -> str:
    """The diagonal is never scored: it carries the manipulation check."""
    unsealed = _open(tensor)
    cells = [cell for cell in unsealed if cell["train"] != cell["eval"]]
    n_sealed = len(tensor["cells"]) - len(unsealed)
    later = f" The {n_sealed} sealed ones wait for the final test." if n_sealed else ""
    which = "open cells off the diagonal" if n_sealed else "cells off the diagonal"
    out = [cell for cell in cells if not cell["scored"]]
    if not out:
        return f"All {len(cells)} {which} take part in scoring.{later}"
    reasons = Counter(
        mark.name for cell in out for mark in cell_marks(cell) if mark.excludes
    ).most_common()
    listed = ", ".join(f"{count} {name}" for name, count in reasons)
    several = " (a cell may have more than one reason)" if len(reasons) > 1 else ""
    return (
        f"{len(cells) - len(out)} of {len(cells)} {which} take part in scoring; {len(out)} "
        f"{'is' if len(out) == 1 else 'are'} out, in parentheses: {listed}{several}.{later}"
    )


def _split_note(tensor: Tensor) -> str:
    counts = Counter(cell["split"] for cell in tensor["cells"])
    held, drawn = counts["held_out"], counts["quarantined"]
    if not held and not drawn:
        return "No cell is held out or quarantined."
    n_sealed = len(tensor["cells"]) - len(_open(tensor))
    counted = f"{_number(held, 'cell')} held out and {drawn} quarantined"
    if not n_sealed:
        return f"{counted}: set apart by name only; their values stand here in plain text."
    rest = held + drawn - n_sealed
    which = "all of them" if rest == 0 else f"{n_sealed} of them"
    return (
        f"{counted}, {which} sealed: their values were encrypted where they were made, and stand "
        "neither here nor in any file beside this page."
        + (f" {rest} stand here in plain text." if rest > 0 else "")
    )


def _open(tensor: Tensor) -> list[Cell]:
    """The cells that are not sealed."""
    return [cell for cell in tensor["cells"] if not is_sealed(cell)]


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
