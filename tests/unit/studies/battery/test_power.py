"""What so many items can show, by the very test that will be used."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from eps_locked.canonical import encode
from eps_locked.stats.paired_rates import power_of_pairs
from eps_locked.studies.battery.power import SHARES, power_document
from unit.studies.battery.world import section


def rows(**counts: int) -> dict[str, dict[str, Any]]:
    document = power_document(section(), counts)  # type: ignore[arg-type]
    encode(document)
    return {row["axis"]: row for row in document["axes"]}


def test_each_difference_is_found_with_the_plans_power_by_the_exact_test() -> None:
    for row in rows(capability=60, tools=24)["capability"]["minimum_detectable"]:
        share = row["discordant_share"]
        assert power_of_pairs(row["delta"], 60, share, 0.05) == pytest.approx(0.8, abs=1e-6)
        # Two axes in two thinking modes are four tests.
        among = row["delta_among_all"]
        assert power_of_pairs(among, 60, share, 0.05 / 4) == pytest.approx(0.8, abs=1e-6)
        assert among > row["delta"]


def test_more_differing_items_and_fewer_items_show_less() -> None:
    found = rows(capability=60, tools=30)
    deltas = [row["delta"] for row in found["capability"]["minimum_detectable"]]
    assert deltas == sorted(deltas)
    assert [row["discordant_share"] for row in found["tools"]["minimum_detectable"]] == list(SHARES)
    assert found["tools"]["minimum_detectable"][0]["delta"] > deltas[0]


def test_so_few_items_that_nothing_would_be_found_say_none() -> None:
    found = rows(capability=4)["capability"]["minimum_detectable"]
    assert {row["delta"] for row in found} == {None}


def test_an_axis_of_which_nothing_is_kept_by_item_has_no_share_of_differing_items() -> None:
    (row,) = rows(harmful=100)["harmful"]["minimum_detectable"]
    assert row["discordant_share"] is None
    # 2.8 standard errors of the difference of two rates near one half.
    assert row["delta"] == pytest.approx(2.8016 * (2 * 0.25 / 100) ** 0.5, rel=1e-3)


def test_what_is_asked_for_stands_beside_what_can_be_shown() -> None:
    plan = replace(section(), thinking_modes=("off",))
    document = power_document(plan, {"capability": 60})
    assert (document["alpha"], document["power"], document["n_tests"]) == (0.05, 0.8, 1)
    (row,) = document["axes"]
    assert (row["n_items"], row["margin"]) == (60, 0.2)
    assert all(one["delta"] == one["delta_among_all"] for one in row["minimum_detectable"])
