"""Contexts that a plan calls near-duplicates leave every fold together."""

from __future__ import annotations

from typing import Any

import pytest

from eps_locked.errors import MalformedInputError
from eps_locked.scoring.reading import tensor_from_documents
from eps_locked.studies.eps.plan import EpsPlan
from sim.simulator import default_plan


def document(near_duplicates: list[list[str]]) -> dict[str, Any]:
    names = ["a", "b", "c", "d"]
    return {
        "schema": "eps-locked/eps-tensor/1",
        "behaviour": "marker",
        "unit": "nats",
        "train": names[:3],
        "eval": names,
        "near_duplicates": near_duplicates,
        "cells": [
            {
                "train": i,
                "eval": j,
                "train_family": "persona",
                "eval_family": "persona",
                "split": "diagonal" if i == j else "open",
                "flags": ["alias"] if j == "d" else [],
                "alias_of": "c" if j == "d" else None,
                "g": 1.0,
            }
            for i in names[:3]
            for j in names
        ],
    }


def test_groups_are_joined_with_their_aliases() -> None:
    [table] = tensor_from_documents([document([["a", "c"]])]).tables
    assert table.groups["a"] == table.groups["c"] == table.groups["d"]
    assert table.groups["b"] != table.groups["a"]


def test_without_any_only_aliases_share_a_group() -> None:
    [table] = tensor_from_documents([document([])]).tables
    assert len({table.groups[name] for name in "abc"}) == 3
    assert table.groups["d"] == table.groups["c"]


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        ([["baker"]], "two contexts or more"),
        ([["baker", "nowhere"]], "evaluated contexts"),
        ([["baker", "polite"], ["polite", "plain"]], "each in one group at most"),
    ],
)
def test_a_plan_with_other_groups_is_refused(groups: list[list[str]], words: str) -> None:
    section = default_plan()["eps"]
    section["slots"]["near_duplicates"] = groups
    with pytest.raises(MalformedInputError, match=words):
        EpsPlan.from_section(section)
