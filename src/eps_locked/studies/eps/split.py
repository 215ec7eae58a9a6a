"""Which cells are set apart for the final test. Pure; the draw follows from the plan's seed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eps_locked.canonical import digest_bytes, encode
from eps_locked.errors import MalformedInputError
from eps_locked.studies.eps.plan import EpsPlan, Slots

# Fates of cells that nobody may read before the final test.
SEALED = frozenset({"held_out", "quarantined"})


def draw_split(section: EpsPlan) -> dict[str, Any]:
    """Which cell is open, diagonal, held out or quarantined, by behaviour/train/eval.

    Held-out columns go whole. From the other off-diagonal cells units (a mirror pair, or a single
    cell where no mirror exists) are taken in an order drawn from the seed until the fraction is
    reached. All seeds of a cell share its fate; the diagonal stays open.

    An alias is the same context under another name, so its cells share the fate of the cells they
    repeat: an open copy of a sealed cell would give its value away.
    """
    rules = section.quarantine
    fate: dict[str, str] = {}
    for behaviour in section.behaviours:
        slots = section.slots.of(behaviour)
        same = _first_names(slots)
        held_out = _held_out(slots, same)
        units: dict[tuple[str, str], list[str]] = {}
        trained = {same[i] for i in slots.train}
        for i in slots.train:
            for j in slots.eval:
                cell = cell_id(behaviour.name, i, j)
                source, target = same[i], same[j]
                fate[cell] = "open"
                if i == j:
                    fate[cell] = "diagonal"
                elif target in held_out:
                    fate[cell] = "held_out"
                elif source != target:
                    mirrored = target in trained
                    pair = tuple(sorted((source, target))) if mirrored else (source, target)
                    units.setdefault((pair[0], pair[1]), []).append(cell)
        wanted = rules.fraction * sum(len(cells) for cells in units.values())
        order = sorted(
            units, key=lambda unit: digest_bytes(encode([rules.seed, behaviour.name, *unit]))
        )
        taken = 0
        for unit in order:
            if taken >= wanted:
                break
            for cell in units[unit]:
                fate[cell] = "quarantined"
            taken += len(units[unit])
    return {
        "schema": "eps-locked/split/1",
        "seal": rules.seal,
        "fraction": rules.fraction,
        "seed": rules.seed,
        "cells": fate,
    }


def _held_out(slots: Slots, same: Mapping[str, str]) -> set[str]:
    """The held-out contexts by their first names; every alias of one must be held out too."""
    held_out = {same[j] for j in slots.held_out}
    for j in slots.eval:
        if same[j] in held_out and j not in slots.held_out:
            raise MalformedInputError(
                "plan.eps.slots.held_out",
                expected=f"{j}, which is {same[j]} under another name",
                found="only one of the two",
                next_step="hold out both, or neither",
            )
    return held_out


def _first_names(slots: Slots) -> dict[str, str]:
    """Every slot's context by the first name it has in the plan's order; aliases share one."""
    names = list(dict.fromkeys((*slots.eval, *slots.train)))
    first = {name: name for name in names}
    listed = {frozenset(pair) for pair in slots.aliases}
    for number, name in enumerate(names):
        for other in names[:number]:
            if frozenset((name, other)) in listed:
                first[name] = first[other]
                break
    return first


def cell_id(behaviour: str, train: str, evaluated: str) -> str:
    """The name of a cell over all seeds."""
    return f"{behaviour}/{train}/{evaluated}"
