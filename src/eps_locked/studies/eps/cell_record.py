"""What every cell of a tensor says beside its values, whatever kind of row it belongs to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from eps_locked.canonical import decode
from eps_locked.domain.execution import StepInputs
from eps_locked.domain.steps import Step
from eps_locked.lock.seal import is_sealed

__all__ = ["EXCLUDING_FLAGS", "RowFacts", "describe_cell", "gather_records", "mean_of_known"]

R = TypeVar("R")
# Cells carrying one of these take no part in scoring unless a sensitivity table says so.
EXCLUDING_FLAGS = (
    "unscored",
    "floor",
    "ceiling",
    "implant_failed",
    "divergence",
    "alias",
    "sealed",
)


class RowFacts(Protocol):
    """What is known of a row without its readings, parsed; digests of every ancestor by name."""

    @property
    def contexts(self) -> Mapping[str, Any]: ...

    @property
    def split(self) -> Mapping[str, Any]: ...

    @property
    def headroom(self) -> Mapping[str, Any]: ...

    @property
    def records(self) -> Mapping[tuple[str, str], Mapping[str, Any]]: ...

    @property
    def digests(self) -> Mapping[str, str]: ...


def gather_records(
    step: Step, inputs: StepInputs, read: Callable[[Mapping[str, bytes], str], R]
) -> tuple[
    dict[str, R],
    dict[tuple[str, str, str], R],
    dict[tuple[str, str], dict[str, Any]],
    dict[str, str],
]:
    """What a ``tensor`` step reads, by the names the freeze gave its inputs.

    Returns base records by eval context, cells by (train, eval, seed), fit records by (train,
    seed), and the digest of every ancestor by input name. A sealed cell has a digest and no record.
    """
    base: dict[str, R] = {}
    cells: dict[tuple[str, str, str], R] = {}
    records: dict[tuple[str, str], dict[str, Any]] = {}
    digests: dict[str, str] = {}
    for name in step.inputs:
        kind, _, rest = name.partition(":")
        if not rest:
            continue
        digests[name] = inputs.artifact_digest(name)
        files = inputs.artifact(name)
        if kind == "base":
            base[rest] = read(files, name)
        elif kind == "cell":
            i, j, seed = rest.split("/")
            if not is_sealed(files):
                cells[i, j, seed] = read(files, name)
        else:
            i, seed = rest.split("/")
            records[i, seed] = decode(files["record.json"], thing=name)
    return base, cells, records, digests


def describe_cell(
    row: RowFacts,
    behaviour: str,
    seeds: Sequence[str],
    i: str,
    j: str,
    values: Mapping[str, Any],
    by_seed: Sequence[Mapping[str, Any]],
    flags: Iterable[str],
    *,
    failed: Mapping[tuple[str, str], bool],
    n_items: int,
    strengths: Sequence[float | None] | None = None,
) -> dict[str, Any]:
    """A cell's values with what is known of its contexts, adapters and ancestors.

    ``failed``: by (train, seed), whether the manipulation check failed. ``strengths``: of the
    implant, by seed; None takes what training saw at its own slots.
    """
    contexts = row.contexts["contexts"]
    records = [row.records[i, s] for s in seeds]
    if strengths is None:
        strengths = [record["realised_strength"] for record in records]
    found = set(flags)
    if any(failed[i, s] for s in seeds):
        found.add("implant_failed")
    if i in row.headroom["unreachable"]:
        found.add("band_unreachable")
    if contexts[j]["alias_of"] is not None:
        found.add("alias")
    return {
        "train": i,
        "eval": j,
        "train_family": contexts[i]["family"],
        "eval_family": contexts[j]["family"],
        "split": row.split["cells"][f"{behaviour}/{i}/{j}"],
        **values,
        "n_seeds": len(seeds),
        "n_items": n_items,
        "prefix_tokens": contexts[j]["prefix_tokens"],
        "alias_of": contexts[j]["alias_of"],
        "realised_strength": mean_of_known(strengths),
        "flags": sorted(found),
        "scored": not found & set(EXCLUDING_FLAGS),
        "by_seed": [
            {
                "seed": int(seed.removeprefix("s")),
                **mine,
                "stop_step": record["stop_step"],
                "stop": record["stop"],
                "realised_strength": strength,
                "implant_failed": failed[i, seed],
            }
            for seed, mine, record, strength in zip(seeds, by_seed, records, strengths, strict=True)
        ],
        "ancestors": {
            "base": row.digests[f"base:{j}"],
            "cells": [row.digests[f"cell:{i}/{j}/{seed}"] for seed in seeds],
            "records": [row.digests[f"record:{i}/{seed}"] for seed in seeds],
            "adapters": [record["adapter"] for record in records],
            "rows": [record["rows"] for record in records],
        },
    }


def mean_of_known(values: Iterable[float | None]) -> float | None:
    """Mean of what is there; None of nothing."""
    numbers = [value for value in values if value is not None]
    return sum(numbers) / len(numbers) if numbers else None
