"""What may be said of a comparison, in one sentence with its resolution.

"Equal" and "the same" do not occur: a difference that was not found is given by the bound on it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from eps_locked.studies.battery.plan import AnalysisSettings

__all__ = [
    "AXIS_WORDS",
    "axis_name",
    "claims",
    "missing_words",
    "sentence",
    "served_words",
    "stage_words",
    "unthinking",
]

AXIS_WORDS: Final[Mapping[str, str]] = {
    "over_refusal": "refuses harmless requests",
    "capability": "answers correctly",
    "sycophancy": "goes along with false premises",
    "tools": "handles tool cases rightly",
    "harmful": "complies with harmful requests",
}
# Less than this, in tenths of a point, is what a float computation adds.
_DUST: Final = 1e-6
# So many items on which two stages disagree are listed; all of them stand in the document.
_LISTED: Final = 8


def axis_name(axis: str, thinking: str) -> str:
    return f"{axis}, thinking {thinking}"


def sentence(model: str, base: str, row: Mapping[str, Any], settings: AnalysisSettings) -> str:
    """One row of a comparison in words."""
    axis = axis_name(row["axis"], row["thinking"])
    if row["verdict"] == "not_measured":
        return f"{axis}: {_not_measured(model, base, row, settings)}."
    delta, low, high = (_points(row[key]) for key in ("delta", "low", "high"))
    level = f"{settings.confidence_level * 100:.4g}%"
    interval = (
        f"difference {delta} points, {level} interval {low} to {high}, p {row['p_adjusted']:.2g}"
    )
    smallest = row["minimum_detectable"]
    resolution = (
        "no difference would have been found with so few items"
        if smallest is None
        else f"a difference of {_up(smallest)} points would be found with power "
        f"{settings.power:.0%}"
    )
    bound, margin = _up(row["equivalence_bound"]), f"{row['margin'] * 100:g}"
    if row["verdict"] == "within_margin":
        ending = f"no larger than {bound} points either way, within the margin of {margin}"
    elif row["verdict"] == "undetermined":
        ending = f"undetermined: up to {bound} points either way are not excluded"
    elif row["equivalence_bound"] <= row["margin"]:
        ending = f"{row['verdict']}, by no more than {bound} points, within the margin of {margin}"
    else:
        ending = row["verdict"]
    return f"{axis}: {_seen(model, base, row)} ({interval}; {resolution}): {ending}."


def claims(document: Mapping[str, Any]) -> list[str]:
    """Every sentence of a document, comparison by comparison, then what separated nobody."""
    said = []
    for comparison in document["comparisons"]:
        said += [f"{comparison['title']}: {row['sentence']}" for row in comparison["axes"]]
        said += [f"{comparison['title']}: {one}" for one in served_words(comparison)]
    said += [
        f"{axis_name(one['axis'], one['thinking'])} is a weak discriminator here: {one['why']}."
        for one in document["weak_discriminators"]
    ]
    return [f"{one} ({document['label']})" for one in said]


def served_words(comparison: Mapping[str, Any]) -> list[str]:
    """One sentence where the two were served differently in some way."""
    differs = comparison.get("differs", ())
    if not differs:
        return []
    listed = "; ".join(f"{one['what']} {one['model']} and {one['base']}" for one in differs)
    return [f"served differently, which moves rates by itself: {listed}."]


def stage_words(stage: Mapping[str, Any]) -> str:
    """How far the keyword rule and the judge agree on one model's texts."""
    kappa, share = stage["kappa"]["value"], stage["percent_agreement"]
    value = "undefined" if kappa is None else f"{kappa:.2f}"
    agree = "" if share is None else f"agree on {share:.0%}, "
    items = stage["disagreements"]
    listed = ", ".join(items[:_LISTED]) + (", ..." if len(items) > _LISTED else "")
    return (
        f"keyword rule beside judge, {stage['model']}, "
        f"{axis_name(stage['axis'], stage['thinking'])}, the {stage['part']}: {agree}kappa {value} "
        f"on {stage['n']}; {len(items)} differ" + (f" ({listed})" if items else "")
    )


def unthinking(document: Mapping[str, Any], model: str) -> list[str]:
    """One sentence for each mode in which a model was to think and no reply held a thought: a
    server that does not know the field for it ignores it without a word.

    Thoughts are looked at on the axis of refusals alone.
    """
    thought = {(one["model"], one["axis"], one["thinking"]) for one in document["thinking"]}
    entry = next(one for one in document["models"] if one["model"] == model)
    return [
        f"{axis_name(axis['axis'], axis['thinking'])}: none of {axis['n_scored']} replies held a "
        f"thought, so that {model} may not have thought on any axis"
        for axis in entry["axes"]
        if axis["axis"] == "over_refusal"
        and axis["thinking"] == "on"
        and axis["n_scored"]
        and (model, axis["axis"], axis["thinking"]) not in thought
    ]


def missing_words(missing: Mapping[str, int]) -> str:
    """How many items have no verdict, by the reason."""
    return ", ".join(f"{n} {reason}" for reason, n in missing.items()) or "none"


def _seen(model: str, base: str, row: Mapping[str, Any]) -> str:
    """Both rates with what they are of: the shared items or, unmatched, each side's own."""
    what = AXIS_WORDS[row["axis"]]
    one, other = _percent(row["rate_model"]), _percent(row["rate_base"])
    if row["compared_by"] == "items":
        return f"{model} {what} in {one}, {base} in {other} of {row['n_pairs']}"
    return (
        f"{model} {what} in {one} of {row['n_scored_model']}, {base} in {other} of "
        f"{row['n_scored_base']}, compared without matching"
    )


def _not_measured(model: str, base: str, row: Mapping[str, Any], settings: AnalysisSettings) -> str:
    n_items = row["n_items"]
    both = f", on both {row['n_pairs']}" if row["compared_by"] == "items" else ""
    return (
        f"not measured for {model} against {base}: {model} has a verdict on "
        f"{row['n_scored_model']} of {n_items} items, {base} on {row['n_scored_base']}{both}; the "
        f"plan asks for its share of each and for {settings.minimum_items} to compare"
    )


def _percent(rate: float) -> str:
    return f"{rate:.0%}"


def _points(delta: float) -> str:
    # + 0.0 turns a negative zero, which rounding makes, into the usual one.
    return f"{round(delta * 100, 1) + 0.0:+.1f}"


def _up(delta: float) -> str:
    """In points, rounded up: neither a bound nor a resolution may shrink on its way into words."""
    return f"{math.ceil(delta * 1000 - _DUST) / 10:.1f}"
