"""Predictors: two doors, canonical bytes back, and coverage by name."""

from __future__ import annotations

import json
from typing import Any

import pytest

from eps_locked.canonical import encode
from eps_locked.errors import MalformedInputError
from eps_locked.scoring.predictor import (
    PREDICTOR_SCHEMA,
    Predictor,
    PredictorOptions,
    predictor_bytes,
    read_predictor,
    require_coverage,
)

CELLS = {"marker": [("a", "a"), ("a", "b")]}


def document(**changes: Any) -> dict[str, Any]:
    return {
        "schema": PREDICTOR_SCHEMA,
        "metric": "output_kl",
        "title": "Output KL",
        "author": "author@example",
        "track": "predictive",
        "polarity": "less",
        "description": "",
        "cells": [
            {"behaviour": "marker", "train": "a", "eval": j, "value": v, "blind": v / 2}
            for j, v in (("a", 0.0), ("b", 1.5))
        ],
        **changes,
    }


def read(value: Any) -> Predictor:
    return read_predictor(encode(value), "json", thing="predictor.json")


def table(text: str, **options: Any) -> Predictor:
    options = {"metric": "kl", "polarity": "less", "behaviour": "marker", **options}
    return read_predictor(text.encode(), "csv", thing="kl.csv", options=PredictorOptions(**options))


def test_a_document_comes_back_as_the_same_bytes_whatever_the_order_of_its_cells() -> None:
    found = read(document())
    assert found.values["marker", "a", "b"] == 1.5
    assert found.blind["marker", "a", "b"] == 0.75
    assert found.sign == -1
    turned = document(cells=document()["cells"][::-1])
    assert predictor_bytes(read(turned)) == predictor_bytes(found) == encode(document())


def test_a_table_says_the_values_and_the_options_the_rest() -> None:
    found = table(
        "from,to,kl\na,a,0\na,b,1.5\n", columns={"train": "from", "eval": "to", "value": "kl"}
    )
    assert found.values == {("marker", "a", "a"): 0.0, ("marker", "a", "b"): 1.5}
    assert (found.metric, found.polarity, found.blind) == ("kl", "less", {})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"metric": "Output KL"}, "metric"),
        ({"metric": "kl\n"}, "metric"),
        ({"polarity": "larger"}, "more or less"),
        ({"track": "secret"}, "predictive or post_hoc"),
        ({"score": 1}, "not a known field"),
        ({"schema": "eps-locked/predictor/2"}, "schema"),
        ({"cells": []}, "holds no values"),
        ({"cells": [{"behaviour": "m", "train": "a", "eval": "b"}]}, "value: is missing"),
        (
            {"cells": [{"behaviour": "m", "train": "a", "eval": "b", "value": True}]},
            "a finite number|a number",
        ),
    ],
)
def test_a_document_of_another_form_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(MalformedInputError, match=words):
        read(document(**changes))


def test_nan_in_a_document_is_refused() -> None:
    data = json.dumps(document()).replace("1.5", "NaN").encode()
    with pytest.raises(MalformedInputError, match="NaN is not JSON"):
        read_predictor(data, "json", thing="predictor.json")


def test_blind_values_for_some_cells_only_are_refused() -> None:
    cells = document()["cells"]
    del cells[0]["blind"]
    with pytest.raises(MalformedInputError, match="blind is given for 1 of 2 cells"):
        read(document(cells=cells))


def test_every_bad_row_of_a_table_is_listed() -> None:
    with pytest.raises(MalformedInputError) as caught:
        table("train,eval,value\na,a,nan\na,b,x\na,c,\na,d,1\na,d,2\n")
    for words in ("row 1", "row 2", "row 3", "a -> d stands twice", "(4 problems)"):
        assert words in str(caught.value)


def test_a_table_without_declared_polarity_is_refused() -> None:
    with pytest.raises(MalformedInputError, match="declare --metric and --polarity"):
        read_predictor(b"train,eval,value\na,b,1\n", "csv", thing="kl.csv")


def test_full_coverage_passes() -> None:
    require_coverage(read(document()), CELLS)


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        ({"marker": [("a", "a"), ("a", "b"), ("a", "c")]}, ["cell a -> c has no value"]),
        ({"marker": [("a", "a")]}, ["b is no eval context of the tensor"]),
        (
            {"marker": [("a", "a"), ("b", "a"), ("b", "b")]},
            ["cell a -> b is not in the tensor", "cell b -> a has no value"],
        ),
        (
            {"fact": [("a", "a"), ("a", "b")]},
            ["behaviour marker is not in the tensor", "behaviour fact has no values"],
        ),
    ],
)
def test_what_coverage_lacks_or_has_too_much_is_named(
    cells: dict[str, list[tuple[str, str]]], words: list[str]
) -> None:
    with pytest.raises(MalformedInputError) as caught:
        require_coverage(read(document()), cells)
    for word in words:
        assert word in str(caught.value)
