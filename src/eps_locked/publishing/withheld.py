"""Gathers, from a run, what the scan must not find."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

from eps_locked.domain.judging import EXCERPT_LENGTH
from eps_locked.publishing.layout import RunLayout
from eps_locked.publishing.parts import Item
from eps_locked.publishing.scan import LEAST_RUN, Forbidden, joined, walk
from eps_locked.publishing.tensor import STAYS

# Shorter pieces of a withheld text ("Yes.", "Thank you!") stand in other texts too.
_LEAST_PASSAGE = 20
# A text this short is no cell's own; nor is a fraction with a denominator this small.
_LEAST_TEXT = 40
_SIMPLE = 1000
_ROUNDING = 1e-9


def forbidden(layout: RunLayout, *, machine: tuple[str, ...]) -> Forbidden:
    """``machine``: paths and secrets of the process that publishes."""
    items = [one for row in layout.rows() for one in layout.items(row).values()]
    numbers, texts = _held_back_values(layout)
    return Forbidden(
        held_back=layout.held_back(),
        plaintexts=layout.sealed_plaintexts(),
        numbers=numbers,
        texts=texts | _unfit_answers(layout, items),
        passages=dict(_passages(layout)),
        runs=dict(_runs(layout)),
        machine=tuple(one for one in machine if len(one) > 4),
    )


def _passages(layout: RunLayout) -> Iterator[tuple[str, str]]:
    """Pieces of withheld text and the file they are from, but for those that open text holds."""
    shown = "\n".join(layout.shared_texts())
    for text, path in layout.withheld_texts():
        for piece in map(str.strip, text.split("{question}")):
            # One word is an id, a label or a digest.
            if len(piece) >= _LEAST_PASSAGE and " " in piece and piece not in shown:
                yield piece, path


def _runs(layout: RunLayout) -> Iterator[tuple[str, str]]:
    """Token ids that only prompts with withheld text hold: of contexts, and of items."""
    for row in layout.rows():
        contexts = layout.contexts(row)
        prompts = {name: layout.prompts(row, name) for name in contexts}
        shown = [
            joined((*prefix, *ids))
            for name, (prefix, suffixes) in prompts.items()
            if not contexts[name].source.withheld
            for ids in suffixes.values()
        ]
        for name, (prefix, suffixes) in prompts.items():
            # What a prompt begins with may be the template's own words and no more.
            if contexts[name].source.withheld and len(prefix) >= LEAST_RUN:
                run = joined(prefix)
                if not any(run in one for one in shown):
                    yield run, f"context {name}"
            for item, ids in suffixes.items():
                if len(ids) >= LEAST_RUN and layout.is_withheld(row, item):
                    yield joined(ids), f"item {item}"


def _held_back_values(layout: RunLayout) -> tuple[frozenset[float], frozenset[str]]:
    """Numbers and texts that only held-back cells have; nothing where the run sealed them."""
    if not layout.has_held_back_in_plain_text():
        return frozenset(), frozenset()
    back: list[Any] = []
    shown: list[Any] = []
    for is_back, document in layout.recorded_documents():
        (back if is_back else shown).append(document)
    for row in layout.rows():
        tensor = layout.tensor(row)
        for cell in tensor["cells"]:
            is_back = (row, cell["train"], cell["eval"]) in layout.held_back()
            values = {key: value for key, value in cell.items() if key not in STAYS}
            (back if is_back else shown).append(
                [values, [one.get("g") for one in cell["by_seed"]]] if is_back else cell
            )
    return (
        frozenset(_numbers(back) - _numbers(shown)),
        frozenset(_texts(back) - _texts(shown)),
    )


def _numbers(value: Any) -> set[float]:
    """Numbers that are one measurement's own. Simple fractions, as rates are, are anybody's."""
    return {
        one
        for one in walk(value)
        if isinstance(one, float)
        and abs(one - float(Fraction(one).limit_denominator(_SIMPLE))) > _ROUNDING
    }


def _texts(value: Any) -> set[str]:
    return {one for one in walk(value) if isinstance(one, str) and len(one) >= _LEAST_TEXT}


def _unfit_answers(layout: RunLayout, items: list[Item]) -> frozenset[str]:
    """Answers to items whose answers are never shown in full, beyond the length of an excerpt."""
    unfit = {item.id for item in items if not item.keep_text}
    if not unfit:
        return frozenset()
    return frozenset(
        value["text"]
        for _, document in layout.recorded_documents()
        for value in walk(document)
        if isinstance(value, Mapping)
        and value.get("item") in unfit
        and isinstance(value.get("text"), str)
        and len(value["text"]) > EXCERPT_LENGTH
    )
