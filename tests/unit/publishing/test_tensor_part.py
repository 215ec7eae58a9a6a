"""Held-back cells keep their place in the tensor and lose every value."""

from __future__ import annotations

from typing import Any

from eps_locked.publishing.tensor import open_part, values_left

BACK = frozenset({("marker", "a", "b")})


def cell(train: str, evaluated: str, **more: Any) -> dict[str, Any]:
    return {
        "train": train,
        "eval": evaluated,
        "train_family": "persona",
        "eval_family": "persona",
        "split": "open",
        "g": 1.25,
        "low": 1.0,
        "high": 1.5,
        "n": 4,
        "flags": ["floor", "implant_failed"],
        "scored": True,
        "realised_strength": 5.5,
        "by_seed": [{"seed": 1, "g": 1.25, "stop_step": 7, "implant_failed": True}],
        "ancestors": {"cells": ["blake3:0"]},
        **more,
    }


def tensor(*cells: dict[str, Any]) -> dict[str, Any]:
    return {"schema": "s", "behaviour": "marker", "resolution": {"x": 0.5}, "cells": list(cells)}


def test_a_held_back_cell_keeps_what_is_known_without_its_answers() -> None:
    found = open_part(tensor(cell("a", "a"), cell("a", "b")), BACK)
    assert found["cells"][0] == cell("a", "a")
    assert found["cells"][1] == {
        "train": "a",
        "eval": "b",
        "train_family": "persona",
        "eval_family": "persona",
        "split": "open",
        "g": None,
        "low": None,
        "high": None,
        "n": None,
        "flags": ["implant_failed", "sealed"],
        "scored": False,
        "realised_strength": 5.5,
        "by_seed": [{"seed": 1, "g": None, "stop_step": 7, "implant_failed": True}],
        "ancestors": {"cells": ["blake3:0"]},
    }


def test_a_field_nobody_thought_of_goes_too_and_so_do_estimates_over_all_cells() -> None:
    found = open_part(tensor(cell("a", "b", slices={"direct": {"g": 2.0}}, more=[1.5])), BACK)
    assert found["cells"][0]["slices"] == {"direct": {"g": None}}
    assert found["cells"][0]["more"] is None
    assert found["resolution"] is None


def test_a_tensor_without_such_values_is_what_the_run_recorded() -> None:
    sealed = open_part(tensor(cell("a", "b")), BACK)
    again = {**sealed, "resolution": {"x": 0.5}}
    assert open_part(again, BACK) == again
    assert open_part(tensor(cell("b", "a")), BACK) == tensor(cell("b", "a"))


def test_what_is_left_of_a_cell_is_named() -> None:
    assert values_left(open_part(tensor(cell("a", "b")), BACK)["cells"][0]) == []
    assert values_left(cell("a", "b")) == ["by_seed.g", "floor", "g", "high", "low", "n"]
    assert values_left(cell("a", "b", secondary={"x": {"g": 0}}))[-1] == "secondary"
    # In a table flags are one text and the values per seed are not there.
    assert values_left({"train": "a", "eval": "b", "flags": "floor sealed", "g": None}) == ["floor"]
