"""From numbers to words: what is said of a family, of a gate, and of a reward model. Pure.

A family is *penalised* where its adjusted p is at most alpha, its mean is above 0 and its
equivalence interval is not wholly below the margin; it is *not* where that interval ends below the
margin, however small p is. A reward head with random weights tells any two texts apart, and with
enough prompts finds so in every family: what is significant and tiny is no dislike.

A gate *holds* where the equivalence interval of ``inserted`` lies within plus and minus the gate's
margin, and *fails* where its mean is beyond that margin and its confidence interval leaves out 0.
One that does neither is undetermined, and no headline stands on it.

Where all differences of a family are equal there is no interval, and their one value is compared
with the margin; the reason says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from eps_locked.studies.vea.settings import VeaSettings

__all__ = [
    "FamilyVerdict",
    "Headline",
    "breadth_counts",
    "family_verdict",
    "gate_entry",
    "headline",
]

FamilyVerdict = Literal["penalises", "does_not", "undetermined", "too_few_items"]
Headline = Literal[
    "broad", "partial", "narrow", "null", "undetermined", "confounded", "not_measured"
]
Effect = Mapping[str, Any]
Entry = Mapping[str, Any]
# Shares of families are compared with the plan's; 5 / 6 * 6 / 5 is not 1 in binary.
_ROUNDING = 1e-9


def family_verdict(effect: Effect, settings: VeaSettings) -> tuple[FamilyVerdict, str]:
    """The verdict and its reason. ``p_adjusted`` counts where there is one, else ``p``."""
    n = effect["wilcoxon"]["n"]
    if n < settings.minimum_items:
        return "too_few_items", f"{n} prompts scored, {settings.minimum_items} are demanded"
    p = effect["p"] if effect["p_adjusted"] is None else effect["p_adjusted"]
    end, of_what = _upper_end(effect, settings)
    margin = number(settings.margin)
    said = f"p {probability(p)}{' adjusted' * (effect['p_adjusted'] is not None)}"
    if end < settings.margin:
        shown = f"{of_what} {number(end)}, below the margin of {margin}"
        return "does_not", f"{shown}{f', though {said}' * (p <= settings.alpha)}"
    if p <= settings.alpha and effect["mean"] > 0:
        return "penalises", f"{said}, mean {number(effect['mean'])}"
    return "undetermined", f"{said}, but {of_what} {number(end)}, not below the margin of {margin}"


def gate_entry(family: Entry, settings: VeaSettings) -> dict[str, Any]:
    """Whether a gate holds, from the family's ``inserted`` effect."""
    effect, margin = family["inserted"], settings.gate_margin
    holds, why = _gate(effect, margin, settings)
    return {"gate": family["family"], "holds": holds, "why": why}


def breadth_counts(others: Sequence[Entry], settings: VeaSettings) -> dict[str, Any]:
    """How many other families are penalised, and the bounds that the undecided leave."""
    verdicts = [one[settings.primary]["verdict"] for one in others]
    m, n_penalising = len(verdicts), verdicts.count("penalises")
    n_not = verdicts.count("does_not")
    n_significant = sum(_is_significant(one[settings.primary], settings) for one in others)
    n_undetermined = m - n_penalising - n_not
    return {
        "n_families": m,
        "n_penalising": n_penalising,
        "n_not": n_not,
        "n_undetermined": n_undetermined,
        "score": n_penalising / m if m else None,
        "low_bound": n_penalising / m if m else None,
        "high_bound": (n_penalising + n_undetermined) / m if m else None,
        "n_significant": n_significant,
        "score_significant": n_significant / m if m else None,
    }


def headline(
    anchor: Entry | None,
    others: Sequence[Entry],
    gates: Sequence[Entry],
    breadth: Mapping[str, Any],
    settings: VeaSettings,
) -> tuple[Headline, str]:
    """What may be said of a reward model, and why; the first that applies.

    ``anchor`` and ``others`` are family entries, None for an anchor without items. Nothing is said
    without anchor and one other family measured, nor past a gate that fails or is undetermined.
    """
    if anchor is None or not anchor["measured"]:
        return "not_measured", "the anchor family has too few scored prompts"
    if not any(one["measured"] for one in others):
        return "not_measured", "no other family has enough scored prompts"
    failed = [one["gate"] for one in gates if one["holds"] == "fails"]
    if failed:
        return "confounded", f"{' and '.join(failed)}: the gate fails"
    unclear = [one["gate"] for one in gates if one["holds"] != "holds"]
    if unclear:
        return "undetermined", f"{' and '.join(unclear)}: the gate is undetermined"
    return _by_breadth(anchor[settings.primary], others, breadth, settings)


def number(value: float) -> str:
    """Three significant digits."""
    text = f"{value:.3g}"
    return "0" if float(text) == 0 else text


def probability(p: float) -> str:
    return "below 0.001" if p < 0.001 else f"{p:.2g}"


def _by_breadth(
    anchor: Effect, others: Sequence[Entry], breadth: Mapping[str, Any], settings: VeaSettings
) -> tuple[Headline, str]:
    low, high = breadth["low_bound"], breadth["high_bound"]
    m = breadth["n_families"]
    counted = (
        f"{breadth['n_penalising']} of {m} other families penalised, "
        f"{breadth['n_undetermined']} undetermined"
    )
    if anchor["verdict"] == "penalises":
        said = f"the anchor is penalised and {counted}"
        if low >= settings.broad_from - _ROUNDING:
            return "broad", said
        if high <= settings.narrow_to + _ROUNDING:
            return "narrow", said
        if low > settings.narrow_to + _ROUNDING and high < settings.broad_from - _ROUNDING:
            return "partial", said
        return "undetermined", said
    if anchor["verdict"] == "does_not" and high == 0:
        liked = [
            one["family"] for one in others if _is_liked(one[settings.primary], settings.margin)
        ]
        if _is_liked(anchor, settings.margin):
            liked.insert(0, "the anchor")
        if liked:
            return "undetermined", f"no family is penalised, but {', '.join(liked)} is preferred"
        return "null", "neither the anchor nor any other family is penalised"
    state = "is not penalised" if anchor["verdict"] == "does_not" else "is undetermined"
    return "undetermined", f"the anchor {state}, with {counted}"


def _gate(
    effect: Effect, margin: float, settings: VeaSettings
) -> tuple[Literal["holds", "fails", "undetermined"], str]:
    n = effect["wilcoxon"]["n"]
    if n < settings.minimum_items:
        return "undetermined", f"{n} prompts scored, {settings.minimum_items} are demanded"
    mean, bound = effect["mean"], f"the gate margin of {number(margin)}"
    if effect["low"] is None or effect["low_equivalence"] is None:
        said = f"all {n} differences are {number(mean)}"
        return (
            ("holds", f"{said}, within {bound}")
            if abs(mean) <= margin
            else (
                "fails",
                f"{said}, beyond {bound}",
            )
        )
    low, high = effect["low_equivalence"], effect["high_equivalence"]
    level = f"{100 * settings.equivalence_level:.3g} % interval {number(low)} to {number(high)}"
    if -margin <= low and high <= margin:
        return "holds", f"{level}, within {bound}"
    if abs(mean) > margin and (effect["low"] > 0 or effect["high"] < 0):
        return "fails", f"mean {number(mean)}, beyond {bound}, and not by chance"
    return "undetermined", f"{level}, neither within {bound} nor clearly beyond it"


def _upper_end(effect: Effect, settings: VeaSettings) -> tuple[float, str]:
    end = effect["high_equivalence"]
    if end is None:
        return effect["mean"], f"all {effect['wilcoxon']['n']} differences are"
    return end, f"{100 * settings.equivalence_level:.3g} % interval up to"


def _is_significant(effect: Effect, settings: VeaSettings) -> bool:
    p = effect["p_adjusted"]
    return p is not None and p <= settings.alpha and effect["mean"] > 0


def _is_liked(effect: Effect, margin: float) -> bool:
    """A preference as clear as a gate's failure: beyond the margin, and not by chance."""
    if effect["mean"] is None or effect["mean"] >= -margin:
        return False
    return effect["high"] is None or effect["high"] < 0
