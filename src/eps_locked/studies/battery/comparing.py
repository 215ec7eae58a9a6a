"""Every model against its base, axis by axis; and which axes tell no two models apart.

The finding of a battery is the difference, on the items that both answered. Beside it stand the
smallest difference that so many items could have shown and the bound on what was missed; that two
models are alike is never said without that bound.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any, Final, Literal

from eps_locked.stats.equivalence import equivalence_bound
from eps_locked.stats.multiplicity import holm
from eps_locked.stats.paired_rates import (
    PairedRates,
    RateDifference,
    independent_rates,
    minimum_detectable_paired,
    paired_rates,
)
from eps_locked.studies.battery.outcomes import AxisOutcomes, minimum_detectable_rates
from eps_locked.studies.battery.plan import AnalysisSettings, ModelPlan

__all__ = ["Key", "compare", "comparison_title", "keys_of", "weak_discriminators"]

# An axis in a thinking mode.
Key = tuple[str, str]
Verdict = Literal["higher", "lower", "within_margin", "undetermined", "not_measured"]
_PAIRED: Final = "items"
_UNPAIRED: Final = "rates"


def compare(
    model: ModelPlan,
    base: ModelPlan,
    found: Mapping[Key, AxisOutcomes],
    base_found: Mapping[Key, AxisOutcomes],
    settings: AnalysisSettings,
    names: tuple[str, str] | None = None,
) -> dict[str, Any]:
    """One entry: every axis and thinking mode of ``model`` beside the same of ``base``.

    Holm's adjustment is over the rows that have a p, so over the axes and modes of one comparison;
    the smallest detectable difference is at the level of its first step, which finds it whatever
    the other rows say. ``names``: how the two are called in the title, if not by their own names.
    """
    rows = [_row(found[key], base_found[key], settings) for key in found if key in base_found]
    tested = [row for row in rows if row["p"] is not None]
    for row, p in zip(tested, holm([row["p"] for row in tested]), strict=True):
        key = row["axis"], row["thinking"]
        row["p_adjusted"] = float(p)
        row["minimum_detectable"] = _smallest(
            base_found[key], found[key], settings.alpha / len(tested), settings.power
        )
    for row in rows:
        row["verdict"] = _verdict(row, settings)
    return {
        "model": model.name,
        "base": base.name,
        "title": comparison_title(model, base, names),
        "across_quantisation": model.quantisation != base.quantisation,
        "axes": rows,
    }


def comparison_title(
    model: ModelPlan, base: ModelPlan, names: tuple[str, str] | None = None
) -> str:
    """Names both quantisations where they differ: that changes refusals by itself."""
    one, other = names or (model.name, base.name)
    if model.quantisation == base.quantisation:
        return f"{one} against {other} ({model.quantisation})"
    return (
        f"{one} ({model.quantisation}) against {other} ({base.quantisation}): across quantisations"
    )


def weak_discriminators(
    by_model: Mapping[str, Mapping[Key, AxisOutcomes]],
    settings: AnalysisSettings,
    comparisons: Sequence[Mapping[str, Any]] = (),
) -> list[dict[str, Any]]:
    """Axes and modes on which no two of the measured models differ by the test, Holm over pairs.

    An axis without two models that can be compared is none: it had nobody to tell apart. Nor is one
    on which a comparison of the plan (``comparisons``, as ``compare`` gives them) found something.
    """
    keys = dict.fromkeys(key for found in by_model.values() for key in found)
    separated = {
        (row["axis"], row["thinking"])
        for one in comparisons
        for row in one["axes"]
        if row["verdict"] in ("higher", "lower")
    }
    weak = []
    for axis, thinking in (key for key in keys if key not in separated):
        there = {
            name: found[axis, thinking]
            for name, found in by_model.items()
            if (axis, thinking) in found and found[axis, thinking].is_measured
        }
        pairs = [
            (one, other)
            for one, other in combinations(there, 2)
            if _n_compared(there[one], there[other]) >= settings.minimum_items
        ]
        if not pairs:
            continue
        compared = {name for pair in pairs for name in pair}
        ps = [_difference(there[one], there[other], settings).p for one, other in pairs]
        smallest = float(min(holm(ps)))
        if smallest > settings.alpha:
            rates = [one.rate for name, one in there.items() if name in compared]
            weak.append(
                {
                    "axis": axis,
                    "thinking": thinking,
                    "n_models": len(compared),
                    "n_pairs": len(pairs),
                    "smallest_p_adjusted": smallest,
                    "low_rate": min(rates),
                    "high_rate": max(rates),
                    "why": f"no difference was found in {_pairs_words(len(pairs))} (smallest "
                    f"adjusted p {smallest:.3g}): this set did not separate them, which is not "
                    "that they are alike",
                }
            )
    return weak


def _difference(
    base: AxisOutcomes, model: AxisOutcomes, settings: AnalysisSettings
) -> RateDifference:
    pairs = _pairs(base, model)
    if pairs is not None:
        return pairs.difference(settings.confidence_level)
    return independent_rates(
        base.n_scored,
        base.n_counted,
        model.n_scored,
        model.n_counted,
        settings.confidence_level,
    )


def _pairs(base: AxisOutcomes, model: AxisOutcomes) -> PairedRates | None:
    """On the items that both have a verdict on; None where nothing is kept by item, or none is
    shared."""
    first, second = base.scored, model.scored
    shared = [item for item in first if item in second]
    if not shared:
        return None
    return paired_rates([first[item] for item in shared], [second[item] for item in shared])


def _n_compared(base: AxisOutcomes, model: AxisOutcomes) -> int:
    """Items that a comparison rests on: those with a verdict on both sides or, where nothing is
    kept by item, the fewer of the two."""
    if not (model.outcomes and base.outcomes):
        return min(model.n_scored, base.n_scored)
    pairs = _pairs(base, model)
    return 0 if pairs is None else pairs.n


def _pairs_words(n_pairs: int) -> str:
    return "the one pair of models" if n_pairs == 1 else f"any of {n_pairs} pairs of models"


def _smallest(base: AxisOutcomes, model: AxisOutcomes, alpha: float, power: float) -> float | None:
    pairs = _pairs(base, model)
    if pairs is not None:
        return minimum_detectable_paired(pairs.n, pairs.discordant_share, alpha, power)
    return minimum_detectable_rates(
        (base.n_counted, base.n_scored), (model.n_counted, model.n_scored), alpha, power
    )


def _row(model: AxisOutcomes, base: AxisOutcomes, settings: AnalysisSettings) -> dict[str, Any]:
    margin = settings.margins[model.axis]
    pairs, n_pairs = _pairs(base, model), _n_compared(base, model)
    row: dict[str, Any] = {
        "axis": model.axis,
        "thinking": model.thinking,
        "measured": model.is_measured and base.is_measured and n_pairs >= settings.minimum_items,
        "compared_by": _PAIRED if model.outcomes else _UNPAIRED,
        "n_pairs": n_pairs,
        "n_items": model.n_items,
        "n_scored_model": model.n_scored,
        "n_scored_base": base.n_scored,
        "n_up": None if pairs is None else pairs.n_up,
        "n_down": None if pairs is None else pairs.n_down,
        **dict.fromkeys(
            (
                "rate_model",
                "rate_base",
                "delta",
                "low",
                "high",
                "p",
                "p_adjusted",
                "minimum_detectable",
                "low_equivalence",
                "high_equivalence",
                "equivalence_bound",
            )
        ),
        "margin": margin,
    }
    if not row["measured"]:
        return row
    at_confidence = _difference(base, model, settings)
    low, high = _equivalence_ends(pairs, base, model, settings.equivalence_level)
    if pairs is not None:
        first, second = base.scored, model.scored
        shared = [item for item in first if item in second]
        rate_base = sum(first[item] for item in shared) / len(shared)
        rate_model = sum(second[item] for item in shared) / len(shared)
    else:
        rate_base, rate_model = base.rate, model.rate
    return {
        **row,
        "rate_model": rate_model,
        "rate_base": rate_base,
        "delta": at_confidence.delta,
        "low": at_confidence.low,
        "high": at_confidence.high,
        "p": at_confidence.p,
        "low_equivalence": low,
        "high_equivalence": high,
        "equivalence_bound": equivalence_bound(low, high),
    }


def _equivalence_ends(
    pairs: PairedRates | None, base: AxisOutcomes, model: AxisOutcomes, level: float
) -> tuple[float, float]:
    if pairs is not None:
        return pairs.interval(level)
    found = independent_rates(base.n_scored, base.n_counted, model.n_scored, model.n_counted, level)
    return found.low, found.high


def _verdict(row: Mapping[str, Any], settings: AnalysisSettings) -> Verdict:
    """The first that holds: not measured, a difference, within the margin; else undetermined."""
    if row["delta"] is None:
        return "not_measured"
    if row["p_adjusted"] <= settings.alpha:
        return "higher" if row["delta"] > 0 else "lower"
    return "within_margin" if row["equivalence_bound"] <= row["margin"] else "undetermined"


def keys_of(found: Sequence[AxisOutcomes]) -> dict[Key, AxisOutcomes]:
    """By axis and thinking mode, in the order given."""
    return {(one.axis, one.thinking): one for one in found}
