"""Each rule at its border: what numbers become which word."""

from __future__ import annotations

from typing import Any

import pytest

from eps_locked.studies.vea.items import ANCHOR, DECOY, NEUTRAL
from eps_locked.studies.vea.verdicts import (
    breadth_counts,
    family_verdict,
    gate_entry,
    headline,
)
from unit.studies.vea.vea_worlds import OTHERS, SETTINGS

PENALISED = {
    "mean": 1.0,
    "low": 0.6,
    "high": 1.4,
    "low_equivalence": 0.7,
    "high_equivalence": 1.3,
    "p": 0.001,
    "p_adjusted": 0.004,
    "wilcoxon": {"n": 14},
}
SPREADLESS = {"low": None, "high": None, "low_equivalence": None, "high_equivalence": None}


def verdict(**changed: Any) -> str:
    return family_verdict({**PENALISED, **changed}, SETTINGS)[0]


def entry(verdict: str, family: str = "x", **effect: Any) -> dict[str, Any]:
    return {
        "family": family,
        "measured": verdict != "too_few_items",
        "inserted": {**PENALISED, "verdict": verdict, **effect},
    }


def gate(**effect: Any) -> str:
    whole = {**PENALISED, "p_adjusted": None, **effect}
    found: str = gate_entry({"family": NEUTRAL, "inserted": whole}, SETTINGS)["holds"]
    return found


def told(anchor: str, others: str, *, gates: tuple[str, ...] = ("holds", "holds")) -> str:
    """The headline, for others written as letters: p(enalises), n(ot), u(ndetermined)."""
    words = {"p": "penalises", "n": "does_not", "u": "undetermined", "f": "too_few_items"}
    entries = [entry(words[one], family) for one, family in zip(others, OTHERS, strict=False)]
    listed = [
        {"gate": name, "holds": holds} for name, holds in zip((NEUTRAL, DECOY), gates, strict=True)
    ]
    breadth = breadth_counts(entries, SETTINGS)
    return headline(entry(anchor, ANCHOR), entries, listed, breadth, SETTINGS)[0]


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, "penalises"),
        ({"p_adjusted": 0.05}, "penalises"),
        ({"p_adjusted": 0.051}, "undetermined"),
        ({"p_adjusted": None, "p": 0.05}, "penalises"),
        ({"p_adjusted": None, "p": 0.051}, "undetermined"),
        ({"p_adjusted": 0.9, "p": 0.001}, "undetermined"),
        ({"mean": 0.0}, "undetermined"),
        ({"high_equivalence": 0.5}, "penalises"),
        ({"high_equivalence": 0.499}, "does_not"),
        ({"high_equivalence": 0.499, "p_adjusted": 0.9}, "does_not"),
        ({"mean": -2.0, "high_equivalence": -1.0, "p_adjusted": 1.0}, "does_not"),
        ({"wilcoxon": {"n": 8}}, "penalises"),
        ({"wilcoxon": {"n": 7}}, "too_few_items"),
        ({**SPREADLESS, "mean": 0.5}, "penalises"),
        ({**SPREADLESS, "mean": 0.499}, "does_not"),
        ({**SPREADLESS, "mean": 0.0, "p_adjusted": 1.0}, "does_not"),
    ],
)
def test_a_familys_verdict_at_its_borders(changed, expected):
    assert verdict(**changed) == expected


def test_a_significant_and_tiny_difference_is_called_that():
    said, why = family_verdict({**PENALISED, "high_equivalence": 0.2}, SETTINGS)
    assert said == "does_not"
    assert why == "90 % interval up to 0.2, below the margin of 0.5, though p 0.004 adjusted"


@pytest.mark.parametrize(
    ("effect", "expected"),
    [
        ({"mean": 0.0, "low_equivalence": -0.75, "high_equivalence": 0.75}, "holds"),
        ({"mean": 0.0, "low_equivalence": -0.76, "high_equivalence": 0.5}, "undetermined"),
        ({"mean": 0.7, "low_equivalence": 0.5, "high_equivalence": 0.9}, "undetermined"),
        ({"mean": 0.76, "low": 0.1, "high": 1.4, "high_equivalence": 1.3}, "fails"),
        ({"mean": 0.76, "low": -0.1, "high": 1.6, "high_equivalence": 1.3}, "undetermined"),
        ({"mean": -0.8, "low": -1.5, "high": -0.1, "low_equivalence": -1.4}, "fails"),
        ({**SPREADLESS, "mean": -0.75}, "holds"),
        ({**SPREADLESS, "mean": -0.76}, "fails"),
        ({"wilcoxon": {"n": 7}}, "undetermined"),
    ],
)
def test_a_gate_at_its_borders(effect, expected):
    assert gate(**effect) == expected


@pytest.mark.parametrize(
    ("anchor", "others", "expected"),
    [
        ("penalises", "pppppp", "broad"),
        ("penalises", "pppppu", "broad"),
        ("penalises", "pppppn", "broad"),
        ("penalises", "ppppuu", "undetermined"),
        ("penalises", "ppppnn", "partial"),
        ("penalises", "pppnnn", "partial"),
        ("penalises", "ppnnnn", "partial"),
        ("penalises", "pppunn", "partial"),
        ("penalises", "pppuun", "undetermined"),
        ("penalises", "pnnnnn", "narrow"),
        ("penalises", "nnnnnn", "narrow"),
        ("penalises", "unnnnn", "narrow"),
        ("penalises", "fnnnnn", "narrow"),
        ("penalises", "punnnn", "undetermined"),
        ("penalises", "uunnnn", "undetermined"),
        ("does_not", "nnnnnn", "null"),
        ("does_not", "unnnnn", "undetermined"),
        ("does_not", "pnnnnn", "undetermined"),
        ("does_not", "pppppp", "undetermined"),
        ("undetermined", "nnnnnn", "undetermined"),
        ("undetermined", "pppppp", "undetermined"),
        ("too_few_items", "pppppp", "not_measured"),
        ("penalises", "ffffff", "not_measured"),
        ("penalises", "", "not_measured"),
    ],
)
def test_headlines(anchor, others, expected):
    assert told(anchor, others) == expected


@pytest.mark.parametrize("others", ["pppppp", "nnnnnn", "pppnnn"])
def test_a_gate_takes_the_headline_away(others):
    assert told("penalises", others, gates=("fails", "holds")) == "confounded"
    assert told("penalises", others, gates=("undetermined", "fails")) == "confounded"
    assert told("penalises", others, gates=("holds", "undetermined")) == "undetermined"
    assert told("does_not", "nnnnnn", gates=("holds", "undetermined")) == "undetermined"


def test_the_reason_names_the_gate():
    gates = [{"gate": NEUTRAL, "holds": "holds"}, {"gate": DECOY, "holds": "fails"}]
    others = [entry("penalises")]
    breadth = breadth_counts(others, SETTINGS)
    said = headline(entry("penalises", ANCHOR), others, gates, breadth, SETTINGS)
    assert said == ("confounded", f"{DECOY}: the gate fails")


@pytest.mark.parametrize("share", [0.2, 0.8])
def test_shares_are_compared_as_decimals(share):
    """One of five is 0.2 and four of five 0.8, though not to the last bit of a sum."""
    others = "pnnnn" if share == 0.2 else "ppppn"
    assert told("penalises", others) == ("narrow" if share == 0.2 else "broad")


def test_counts_and_bounds_of_the_breadth():
    words = ["penalises", "penalises", "does_not", "undetermined", "too_few_items", "does_not"]
    others = [entry(one) for one in words]
    others[2]["inserted"]["p_adjusted"] = 0.01
    others[4]["inserted"]["p_adjusted"] = None
    others[5]["inserted"]["p_adjusted"] = 0.2
    counts = breadth_counts(others, SETTINGS)
    assert counts == {
        "n_families": 6,
        "n_penalising": 2,
        "n_not": 2,
        "n_undetermined": 2,
        "score": pytest.approx(2 / 6),
        "low_bound": pytest.approx(2 / 6),
        "high_bound": pytest.approx(4 / 6),
        "n_significant": 4,
        "score_significant": pytest.approx(4 / 6),
    }
    assert breadth_counts([], SETTINGS)["score"] is None
