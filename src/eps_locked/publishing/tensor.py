"""The tensor as everybody may have it: cells that are held back keep their place and no value.

A run that seals has no values there to begin with. One that does not has them in plain text on its
own disk; they are taken out here, by a list of what may stay, so that a field nobody thought of
goes too.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from eps_locked.publishing.parts import Cell

# Known without looking at an answer of the cell.
STAYS = frozenset(
    {
        "behaviour",
        "train",
        "eval",
        "train_family",
        "eval_family",
        "split",
        "n_seeds",
        "n_items",
        "prefix_tokens",
        "alias_of",
        "realised_strength",
        "flags",
        "scored",
        "by_seed",
        "ancestors",
    }
)
SEED_STAYS = frozenset({"seed", "stop_step", "stop", "realised_strength", "implant_failed"})
# Flags that follow from the diagonal cell, the base model or the plan.
FLAGS_STAY = frozenset({"sealed", "implant_failed", "band_unreachable", "alias"})
# Of the whole row: what is not an estimate. Estimates pool cells, held-back ones among them.
HEAD_STAYS = frozenset(
    {
        "schema",
        "behaviour",
        "kind",
        "unit",
        "primary_reading",
        "second_reading",
        "n_seeds",
        "n_items",
        "train",
        "eval",
        "held_out",
        "near_duplicates",
        "intervals",
        "judge",
        "rubric",
        "slices",
        "primary_slice",
        "implant_slice",
        "n_samples",
        "cells",
    }
)


def open_part(tensor: Mapping[str, Any], held_back: Collection[Cell]) -> dict[str, Any]:
    """The document without any value of a held-back cell; equal to it if it held none."""
    row = tensor["behaviour"]
    cells = [
        _emptied(cell) if (row, cell["train"], cell["eval"]) in held_back else cell
        for cell in tensor["cells"]
    ]
    whole = cells == tensor["cells"]
    head = {key: value if whole or key in HEAD_STAYS else None for key, value in tensor.items()}
    return {**head, "cells": cells}


def _emptied(cell: Mapping[str, Any]) -> dict[str, Any]:
    kept = {key: value if key in STAYS else _nothing(value) for key, value in cell.items()}
    flags = sorted({"sealed", *(flag for flag in cell["flags"] if flag in FLAGS_STAY)})
    by_seed = [
        {key: value if key in SEED_STAYS else _nothing(value) for key, value in one.items()}
        for one in cell["by_seed"]
    ]
    return {**kept, "flags": flags, "scored": False, "by_seed": by_seed}


def _nothing(value: Any) -> Any:
    """What is left of a value: the names within it, where it has some."""
    return (
        {key: _nothing(one) for key, one in value.items()} if isinstance(value, Mapping) else None
    )


def holds_something(value: Any) -> bool:
    """Whether a value says more than ``_nothing`` leaves of it."""
    if isinstance(value, Mapping):
        return any(holds_something(one) for one in value.values())
    return value not in (None, "")


def values_left(cell: Mapping[str, Any]) -> list[str]:
    """Names of fields of a held-back cell that hold more than ``_emptied`` leaves."""
    return sorted(
        [key for key, value in cell.items() if key not in STAYS and holds_something(value)]
        + [flag for flag in _words(cell.get("flags")) if flag not in FLAGS_STAY]
        + [
            f"by_seed.{key}"
            for one in cell.get("by_seed") or ()
            for key, value in one.items()
            if key not in SEED_STAYS and holds_something(value)
        ]
    )


def _words(flags: object) -> list[str]:
    """Flags are a list in the document and one text, joined by spaces, in the table."""
    return flags.split() if isinstance(flags, str) else list(flags or [])  # type: ignore[call-overload]
