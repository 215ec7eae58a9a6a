"""Vectors once, cells twice, and every number that is none refused by the name of its cell."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from eps_locked.errors import MalformedInputError
from eps_locked.metrics.computing import PluginFailure, describe, predict
from eps_locked.metrics.shipped import BystanderPrior, SourcePrior
from unit.metrics.made import MODEL, Made, materials


def values(document: dict[str, Any], key: str = "value") -> dict[tuple[str, str, str], float]:
    return {(c["behaviour"], c["train"], c["eval"]): c[key] for c in document["cells"]}


def test_every_cell_gets_the_number_its_contexts_give() -> None:
    document = predict(Made(), materials("marker"), MODEL)
    assert document["schema"] == "eps-locked/predictor/1"
    assert values(document) == {
        ("marker", "a", "a"): 6 + 20 + 200,
        ("marker", "a", "b"): 6 + 20 + 100,
        ("marker", "a", "c"): 6 + 20 + 300,
        ("marker", "b", "a"): 6 + 10 + 200,
        ("marker", "b", "b"): 6 + 10 + 100,
        ("marker", "b", "c"): 6 + 10 + 300,
    }
    assert {key: document[key] for key in describe(Made())} == describe(Made())


def test_one_behaviour_has_no_blind_values() -> None:
    assert all("blind" not in cell for cell in predict(Made(), materials("marker"), MODEL)["cells"])


def test_two_behaviours_are_scored_again_with_their_mean_vector() -> None:
    document = predict(Made(), materials("ab", "abcdef"), MODEL)
    value, blind = values(document), values(document, "blind")
    assert value["ab", "b", "b"] == 2 + 110
    assert value["abcdef", "b", "b"] == 6 + 110
    assert blind["ab", "b", "b"] == blind["abcdef", "b", "b"] == 4 + 110


def test_the_vector_is_asked_for_once_a_behaviour() -> None:
    asked = []

    class Counting(Made):
        def behaviour_vector(self, behaviour: Any, model: Any, materials: Any) -> Any:
            asked.append(behaviour.name)
            return [0.0]

    predict(Counting(), materials("x", "y"), MODEL)
    assert asked == ["x", "y"]


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (float("nan"), "nan"),
        (float("inf"), "inf"),
        (None, "NoneType"),
        ("1.0", "'1.0'"),
        (True, "True"),
        ([1.0], "list"),
        (np.zeros(3), "shape (3,)"),
        (np.zeros((1,)), "shape (1,)"),
        (1 + 2j, "(1+2j)"),
        (10**400, "int"),
    ],
)
def test_what_is_no_finite_number_is_refused_by_the_name_of_its_cell(
    value: Any, found: str
) -> None:
    class Wrong(Made):
        def score(self, *arguments: Any) -> Any:
            return value if arguments[1].id == "b" and arguments[2].id == "c" else 0.0

    with pytest.raises(MalformedInputError) as caught:
        predict(Wrong(), materials("marker"), MODEL)
    assert caught.value.thing == "score(marker/b/c)"
    assert found in str(caught.value.found)


@pytest.mark.parametrize("value", [1, 1.0, np.float32(1), np.int64(1), np.array(1.0)])
def test_numbers_of_python_and_numpy_are_numbers(value: Any) -> None:
    class Right(Made):
        def score(self, *arguments: Any) -> Any:
            return value

    document = predict(Right(), materials("marker"), MODEL)
    assert {type(cell["value"]) for cell in document["cells"]} == {float}


@pytest.mark.parametrize("value", [[], [float("nan")], "abc", None, [[1.0], [1.0, 2.0]], object()])
def test_what_is_no_finite_vector_is_refused(value: Any) -> None:
    class Wrong(Made):
        def behaviour_vector(self, *arguments: Any) -> Any:
            return value

    with pytest.raises(MalformedInputError) as caught:
        predict(Wrong(), materials("marker"), MODEL)
    assert caught.value.thing == "behaviour_vector(marker)"


def test_vectors_of_two_shapes_have_no_mean_and_are_refused() -> None:
    class Uneven(Made):
        def behaviour_vector(self, behaviour: Any, model: Any, materials: Any) -> Any:
            return [0.0] * len(behaviour.name)

    with pytest.raises(MalformedInputError, match=r"x \(1,\), yy \(2,\)"):
        predict(Uneven(), materials("x", "yy"), MODEL)


def test_a_metric_cannot_change_the_vector_that_its_cells_share() -> None:
    class Changing(Made):
        def score(self, vector: Any, *arguments: Any) -> Any:
            vector[0] += 1
            return 1.0

    with pytest.raises(PluginFailure) as caught:
        predict(Changing(), materials("marker"), MODEL)
    assert "read-only" in caught.value.tail[-1]


@pytest.mark.parametrize("error", [ZeroDivisionError("here"), SystemExit(3), MemoryError("here")])
def test_what_a_metric_raises_carries_the_cell_and_the_end_of_its_traceback(
    error: BaseException,
) -> None:
    class Raising(Made):
        def score(self, *arguments: Any) -> Any:
            raise error

    with pytest.raises(PluginFailure) as caught:
        predict(Raising(), materials("marker"), MODEL)
    assert caught.value.where == "score(marker/a/a)"
    assert any("raise error" in line for line in caught.value.tail)
    assert type(error).__name__ in caught.value.tail[-1]


def test_the_shipped_priors_read_the_base_model_under_the_context_they_name() -> None:
    made = materials("marker")
    reading, cut = made.base["marker", "a"]
    base = {
        ("marker", name): (replace(reading, log_prob=value), cut)
        for name, value in (("a", -1.0), ("b", -2.0), ("c", -3.0))
    }
    made = replace(made, base=base)
    # One of the two answers was cut and has no reading; the mean is over the other.
    bystander = values(predict(BystanderPrior(), made, MODEL))
    source = values(predict(SourcePrior(), made, MODEL))
    assert (bystander["marker", "a", "c"], source["marker", "a", "c"]) == (-3.0, -1.0)
    assert (bystander["marker", "b", "a"], source["marker", "b", "a"]) == (-1.0, -2.0)


def test_a_prior_that_nobody_could_read_fails_by_the_name_of_its_context() -> None:
    made = materials("marker")
    _, cut = made.base["marker", "a"]
    made = replace(made, base={**made.base, ("marker", "c"): (cut,)})
    with pytest.raises(PluginFailure) as caught:
        predict(BystanderPrior(), made, MODEL)
    assert caught.value.where == "score(marker/a/c)"
    assert "no answer of the base model in c" in caught.value.tail[-1]
