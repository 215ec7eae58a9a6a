"""What a reader must know to read a row's numbers: what they are, of how many, how sure, how small.

The terminal table and the page take their sentences from here, so that they cannot say two things.
"""

from __future__ import annotations

from collections import Counter

from eps_locked.report.marks import Cell, Tensor, cell_marks, is_sealed, is_taught
from eps_locked.report.units import percent, unit_of


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
    start = f"G is trained minus base, in {unit_of(tensor).words}."
    primary, second = tensor["primary_reading"], tensor["second_reading"]
    if primary == "judged":
        return (
            f"{start} It is a difference of two rates: the share of answers that the judge calls "
            f"an instance of the behaviour, first within a question and then over the questions "
            f"of slice “{tensor['primary_slice']}”, each model on its own answers. There is no "
            "second reading."
        )
    what = "the marker's log-probability"
    places = {
        "own_answer": "after each model's own answer",
        "base_answer": "the same after the base model's answer, for both models",
    }
    if is_taught(tensor):
        what = "the log-probability per token of the taught value"
        places["own_answer"] = (
            "at the place in each model's own answer where the value is due, over the questions "
            f"of slice “{tensor['primary_slice']}”"
        )
    rates = " Judged rates stand beside it, further below." if is_taught(tensor) else ""
    return (
        f"{start} Primary reading ({primary}): {what} {places.get(primary, primary)}. Second "
        f"reading ({second}), kept beside it: {places.get(second, second)}.{rates}"
    )


def answers_of_cell(tensor: Tensor) -> tuple[int, str]:
    """How many answers the value of one cell is made of, and how that number comes about."""
    seeds = tensor["n_seeds"]
    if not is_taught(tensor):
        return tensor["n_items"] * seeds, f"{_number(tensor['n_items'], 'question')} x " + _number(
            seeds, "seed"
        )
    questions, samples = tensor["slices"][tensor["primary_slice"]], tensor["n_samples"]
    words = f"{_number(questions, 'question')} x {_number(seeds, 'seed')}"
    if samples > 1:
        words += f" x {samples} samples"
    return questions * seeds * samples, words


def _count_note(tensor: Tensor) -> str:
    n, words = answers_of_cell(tensor)
    text = f"{n} {'answers' if is_taught(tensor) else 'readings'} a cell: {words}."
    return text + (_without_outcome(tensor) if is_taught(tensor) else _cut_short(tensor))


def _cut_short(tensor: Tensor) -> str:
    short = [cell for cell in _open(tensor) if cell["n_truncated"]]
    text = ""
    if short:
        fewest = min(cell["n"] for cell in short)
        text = (
            f" {_number(len(short), 'cell')} {'has' if len(short) == 1 else 'have'} fewer "
            f"({fewest} at the least): an answer cut at the token limit, the base's or the trained "
            "model's, has no end to be read at, and its pair is left out."
        )
    return text + _no_value(short)


def _without_outcome(tensor: Tensor) -> str:
    short = [cell for cell in _open(tensor) if any(cell["unscored"].values())]
    if not short:
        return " Every one of them has a judged outcome."
    fewest = min(cell["n"] for cell in short)
    return (
        f" In {_number(len(short), 'cell')} fewer have a judged outcome ({fewest} at the least); "
        "the others are in no rate and are counted by reason under Judges. None of them counts "
        f"as 0.{_no_value(short)}"
    )


def _no_value(cells: list[Cell]) -> str:
    without = sum(cell["g"] is None for cell in cells)
    if not without:
        return ""
    return f" {_number(without, 'cell')} {'has' if without == 1 else 'have'} no value at all."


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
    """What a value near 0 leaves open. A null says how small an effect must be, never that there
    is none."""
    found, unit = tensor["resolution"], unit_of(tensor)
    if found is None:
        return f"What one cell could have shown is undefined with {no_resolution(tensor)}."
    error, effect = unit.size(found["standard_error"]), found["minimum_detectable_effect"]
    if "base_rate" in found:
        return _rate_resolution(tensor)
    cells = f"{_number(found['n_cells'], 'cell')} in which every answer could be read"
    if effect is None:
        return (
            f"Pooled standard error of one cell {error}, from the {cells}; with no spread at all "
            "there is no smallest detectable effect to state."
        )
    return (
        f"One cell could have shown an effect of {unit.size(effect)} or more (pooled standard "
        f"error {error}; {found['basis']}; from the {cells}). A smaller one may have been missed: "
        "a value near 0 says that the effect is smaller than this, not that there is none."
    )


def _rate_resolution(tensor: Tensor) -> str:
    found, unit = tensor["resolution"], unit_of(tensor)
    base = unit.level(found["base_rate"])
    rest = (
        f"standard error {unit.size(found['standard_error'])}; {found['basis']}; from the "
        f"{_number(found['n_cells'], 'cell')} with a value"
    )
    effect = found["minimum_detectable_effect"]
    if effect is None:
        return (
            f"From the row's mean base rate of {base} not even a rise to 100 % would have been "
            f"told from 0 often enough ({rest}). A cell without a visible change says nothing here."
        )
    return (
        f"One cell could have shown a rise of {unit.size(effect)} or more above the row's mean "
        f"base rate of {base} ({rest}). A smaller one may have been missed: a value near 0 says "
        "that the change is smaller than this, not that there is none."
    )


def no_resolution(tensor: Tensor) -> str:
    """Why nothing can be said of what one cell could have shown."""
    if tensor["n_seeds"] == 1:
        return "one seed"
    if tensor["primary_reading"] == "judged":
        return "no cell that has a value"
    return "no cell of which every answer was read"


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
