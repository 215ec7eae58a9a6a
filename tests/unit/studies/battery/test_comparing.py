"""A model against its base: matched by item, never called alike without a bound."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from eps_locked.canonical import encode
from eps_locked.stats.multiplicity import holm
from eps_locked.stats.paired_rates import (
    independent_rates,
    minimum_detectable_paired,
    paired_rates,
)
from eps_locked.studies.battery.comparing import compare, keys_of, weak_discriminators
from eps_locked.studies.battery.outcomes import AxisOutcomes
from eps_locked.studies.battery.plan import ModelPlan
from unit.studies.battery.outcome_worlds import counted, outcomes, settings
from unit.studies.battery.world import section

MODEL, BASE = section().model("cautious"), section().model("untouched")


def compared(model: list[AxisOutcomes], base: list[AxisOutcomes], **changes: Any) -> dict[str, Any]:
    return compare(MODEL, BASE, keys_of(model), keys_of(base), settings(**changes))


def row(model: AxisOutcomes, base: AxisOutcomes, **changes: Any) -> dict[str, Any]:
    (found,) = compared([model], [base], **changes)["axes"]
    encode(found)  # no NaN, no numpy
    return found  # type: ignore[no-any-return]


def test_a_row_holds_the_paired_statistics_of_the_shared_items() -> None:
    model = outcomes([1, 1, 1, 1, 0, 1, None, 1, 0, 1])
    base = outcomes([0, 0, 1, 0, 1, 0, 1, None, 0, 0])
    found = row(model, base)
    pairs = paired_rates([0, 0, 1, 0, 1, 0, 0, 0], [1, 1, 1, 1, 0, 1, 0, 1])
    assert (found["n_pairs"], found["n_up"], found["n_down"]) == (8, 5, 1)
    assert (found["delta"], found["p"]) == (pairs.delta, pairs.p)
    assert (found["low"], found["high"]) == pairs.interval(0.95)
    assert (found["low_equivalence"], found["high_equivalence"]) == pairs.interval(0.9)
    assert found["equivalence_bound"] == max(map(abs, pairs.interval(0.9)))
    assert found["rate_model"] - found["rate_base"] == pytest.approx(found["delta"])
    assert found["rate_base"] == 0.25, "of the shared items, not of all"


def test_holm_is_over_the_axes_and_modes_of_one_comparison_and_the_resolution_at_its_level() -> (
    None
):
    up = [outcomes([1] * 12), outcomes([1] * 6 + [0] * 6, thinking="on")]
    down = [outcomes([0] * 12), outcomes([0] * 12, thinking="on")]
    found = compared(up, down)["axes"]
    assert [one["p_adjusted"] for one in found] == list(holm([one["p"] for one in found]))
    assert found[1]["p_adjusted"] == found[1]["p"] == pytest.approx(0.03125)
    assert found[0]["minimum_detectable"] == minimum_detectable_paired(12, 1.0, 0.025, 0.8)
    alone = compared(up[:1], down[:1])["axes"][0]
    assert alone["minimum_detectable"] == minimum_detectable_paired(12, 1.0, 0.05, 0.8)


def test_verdicts_follow_from_p_then_from_the_bound() -> None:
    n = 60
    assert row(outcomes([1] * n), outcomes([0] * n))["verdict"] == "higher"
    assert row(outcomes([0] * n), outcomes([1] * n))["verdict"] == "lower"
    alike = row(outcomes([1, 0] * 30), outcomes([1, 0] * 30))
    assert (alike["verdict"], alike["delta"], alike["p"]) == ("within_margin", 0, 1)
    assert 0 < alike["equivalence_bound"] <= 0.2
    few = row(outcomes([1, 0] * 3), outcomes([1, 0] * 3))
    assert few["verdict"] == "undetermined"
    assert few["equivalence_bound"] > 0.2


def test_all_ties_have_a_bound_and_never_a_bound_of_nothing() -> None:
    for value in (0, 1):
        found = row(outcomes([value] * 10), outcomes([value] * 10))
        assert (found["n_up"], found["n_down"], found["p"]) == (0, 0, 1)
        assert found["low"] < 0 < found["high"]
        assert found["equivalence_bound"] > 0.1


@pytest.mark.parametrize(
    ("model", "base"),
    [
        ([1, 0, 1, 0, None, None, None, None], [None, None, None, None, 1, 1, 0, 0]),
        ([None] * 8, [1, 0] * 4),
        ([1, 0] * 4, [None] * 8),
        ([1, 0, 1, None, None, None, None, 1], [1, 0, 1, 0, 1, 0, 1, 1]),
    ],
    ids=["none_shared", "model_silent", "base_silent", "one_side_short"],
)
def test_what_is_not_measured_on_both_sides_has_no_number(model: Any, base: Any) -> None:
    found = row(outcomes(model, share=0.6), outcomes(base, share=0.6))
    assert found["verdict"] == "not_measured"
    numbers = ("delta", "low", "high", "p", "p_adjusted", "minimum_detectable", "rate_model")
    assert [found[key] for key in numbers] == [None] * len(numbers)


def test_too_few_shared_items_are_no_comparison_though_both_axes_are_measured() -> None:
    model = outcomes([1, 1, 1, 1, 1, None, None])
    base = outcomes([None, None, 1, 1, 1, 1, 1])
    assert model.is_measured
    assert base.is_measured
    found = row(model, base)
    assert (found["n_pairs"], found["verdict"]) == (3, "not_measured")
    assert row(model, base, minimum_items=3)["verdict"] == "undetermined"


def test_a_row_that_is_not_measured_costs_the_others_nothing() -> None:
    silent = outcomes([None] * 6, thinking="on")
    found = compared([outcomes([1] * 6), silent], [outcomes([0] * 6), silent])["axes"]
    assert found[0]["p_adjusted"] == found[0]["p"] == 0.03125
    assert found[1]["p_adjusted"] is None


def test_what_is_not_kept_by_item_is_compared_by_its_rates() -> None:
    found = row(counted(9, 10), counted(1, 12))
    expected = independent_rates(12, 1, 10, 9, 0.95)
    assert (found["delta"], found["p"]) == (expected.delta, expected.p)
    assert (found["low"], found["high"]) == (expected.low, expected.high)
    assert (found["compared_by"], found["n_up"], found["n_pairs"]) == ("rates", None, 10)
    assert found["verdict"] == "higher"


def test_rates_of_nothing_at_all_still_say_what_they_could_have_seen() -> None:
    found = row(counted(0, 40), counted(0, 40))
    assert found["minimum_detectable"] is not None
    assert 0 < found["minimum_detectable"] < 1
    assert found["equivalence_bound"] > 0


def test_an_axis_that_only_one_of_them_was_asked_is_no_row() -> None:
    found = compared([outcomes([1] * 6), outcomes([1] * 6, "tools")], [outcomes([1] * 6)])
    assert [one["axis"] for one in found["axes"]] == ["capability"]


def test_a_title_names_both_quantisations_where_they_differ() -> None:
    def title(model: ModelPlan) -> str:
        found = compare(model, BASE, {}, {}, settings())
        assert found["across_quantisation"] is (model.quantisation != BASE.quantisation)
        return str(found["title"])

    assert title(MODEL) == "cautious against untouched (float32)"
    assert title(replace(MODEL, quantisation="awq-4bit")) == (
        "cautious (awq-4bit) against untouched (float32): across quantisations"
    )


# -- weak discriminators


def weak(by_name: dict[str, list[AxisOutcomes]], **changes: Any) -> list[dict[str, Any]]:
    by_model = {name: keys_of(found) for name, found in by_name.items()}
    return weak_discriminators(by_model, settings(**changes))


def test_an_axis_that_separates_no_two_models_is_named_with_its_range() -> None:
    (found,) = weak({"a": [outcomes([1, 0] * 6)], "b": [outcomes([1] * 6 + [0, 1] * 3)]})
    assert (found["axis"], found["n_models"], found["n_pairs"]) == ("capability", 2, 1)
    assert (found["low_rate"], found["high_rate"]) == (0.5, 0.75)
    assert "not that they are alike" in found["why"]


def test_an_axis_that_separates_one_pair_is_not_named() -> None:
    high, low = outcomes([1] * 12), outcomes([0] * 12)
    assert weak({"a": [high], "b": [low], "c": [low]}) == []


def test_one_model_alone_separates_nothing_and_blames_no_axis() -> None:
    assert weak({"a": [outcomes([1, 0] * 6)]}) == []
    assert weak({"a": [outcomes([1, 0] * 6)], "b": [outcomes([None] * 12)]}) == []


def test_models_without_a_shared_item_are_no_pair() -> None:
    """Read as unmatched rates they would differ for sure, by which items came back alone."""
    first = outcomes([1] * 12 + [None] * 12)
    second = outcomes([None] * 12 + [0] * 12)
    assert weak({"a": [first], "b": [second]}) == []
    both = outcomes([1, 0] * 12)
    (found,) = weak({"a": [first], "b": [second], "c": [both], "d": [both]})
    assert (found["n_models"], found["n_pairs"]) == (4, 5)


def test_an_axis_on_which_a_comparison_found_something_is_not_called_weak() -> None:
    """Six pairs ask more of a p than the one comparison that the plan promised."""
    up, down = outcomes([1] * 8), outcomes([0] * 6 + [1] * 2)
    middle = [outcomes([1] * 6 + [0] * 2), outcomes([0] * 3 + [1] * 5)]
    by_model = {name: keys_of([one]) for name, one in zip("abcd", [up, down, *middle], strict=True)}
    assert [one["axis"] for one in weak_discriminators(by_model, settings())] == ["capability"]
    promised = compare(MODEL, BASE, keys_of([up]), keys_of([down]), settings())
    assert promised["axes"][0]["verdict"] == "higher"
    assert weak_discriminators(by_model, settings(), [promised]) == []


def test_no_document_of_a_comparison_holds_a_number_that_is_none() -> None:
    for n in (4, 5, 7, 30):
        for up in range(n + 1):
            found = row(outcomes([1] * up + [0] * (n - up)), outcomes([0] * n))
            assert all(
                math.isfinite(found[key])
                for key in ("delta", "low", "high", "p", "equivalence_bound", "p_adjusted")
            )
            assert -1 <= found["low"] <= found["delta"] <= found["high"] <= 1
