"""What may be said of a comparison, in one sentence with its resolution.

"Equal" and "the same" do not occur: a difference that was not found is given by the bound on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from eps_locked.studies.battery.plan import AnalysisSettings

__all__ = ["AXIS_WORDS", "axis_name", "claims", "sentence"]

AXIS_WORDS: Final[Mapping[str, str]] = {
    "over_refusal": "refuses harmless requests",
    "capability": "answers correctly",
    "sycophancy": "goes along with false premises",
    "tools": "handles tool cases rightly",
    "harmful": "complies with harmful requests",
}


def axis_name(axis: str, thinking: str) -> str:
    return f"{axis}, thinking {thinking}"


def sentence(model: str, base: str, row: Mapping[str, Any], settings: AnalysisSettings) -> str:
    """One row of a comparison in words."""
    axis = axis_name(row["axis"], row["thinking"])
    if row["verdict"] == "not_measured":
        return (
            f"{axis}: not measured for {model} against {base}: {row['n_pairs']} items have a "
            f"verdict on both sides, and the plan asks for {settings.minimum_items} and for its "
            "share of each."
        )
    delta, low, high = (_points(row[key]) for key in ("delta", "low", "high"))
    seen = (
        f"{model} {AXIS_WORDS[row['axis']]} in {_percent(row['rate_model'])}, {base} in "
        f"{_percent(row['rate_base'])} of {row['n_pairs']}"
    )
    interval = (
        f"difference {delta} points, {settings.confidence_level:.0%} interval {low} to {high}, "
        f"p {row['p_adjusted']:.2g}"
    )
    smallest = row["minimum_detectable"]
    resolution = (
        "no difference would have been found with so few items"
        if smallest is None
        else f"a difference of {smallest * 100:.0f} points would be found with power "
        f"{settings.power:.0%}"
    )
    bound, margin = _bound(row["equivalence_bound"]), f"{row['margin'] * 100:.0f}"
    if row["verdict"] == "within_margin":
        ending = f"no larger than {bound} points either way, within the margin of {margin}"
    elif row["verdict"] == "undetermined":
        ending = f"undetermined: up to {bound} points either way are not excluded"
    else:
        ending = row["verdict"]
    return f"{axis}: {seen} ({interval}; {resolution}): {ending}."


def claims(document: Mapping[str, Any]) -> list[str]:
    """Every sentence of a document, comparison by comparison, then what separated nobody."""
    said = [
        f"{comparison['title']}: {row['sentence']}"
        for comparison in document["comparisons"]
        for row in comparison["axes"]
    ]
    said += [
        f"{axis_name(one['axis'], one['thinking'])} is a weak discriminator here: {one['why']}."
        for one in document["weak_discriminators"]
    ]
    return [f"{one} ({document['label']})" for one in said]


def _percent(rate: float) -> str:
    return f"{rate:.0%}"


def _points(delta: float) -> str:
    return f"{delta * 100:+.0f}"


def _bound(bound: float) -> str:
    # Rounded up: a bound must not shrink on its way into a sentence.
    return f"{-(-bound * 1000 // 1) / 10:.1f}"
