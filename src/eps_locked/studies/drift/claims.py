"""The document in words: one honest sentence for each comparison and battery.

A sentence says what was read, how sure that is, and what the comparison could not have seen. None
says "no change": where nothing was found it gives the bound, and where the bound is too wide it
says so. A total over batteries is never said without its parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["claims"]

Document = Mapping[str, Any]
Effect = Mapping[str, Any]


def claims(document: Document) -> list[str]:
    """The sentences, comparisons in the order of the document, each battery and then the total."""
    said = []
    for one in document["comparisons"]:
        for battery, effect in one["batteries"].items():
            said.append(_sentence(document, one, battery, effect))
        said += _not_measured(document, one)
        if one["total"] is not None:
            said.append(_total(document, one))
    return said


def _sentence(document: Document, one: Mapping[str, Any], battery: str, effect: Effect) -> str:
    parts = [
        f"{_prefix(document)}{one['arm']} against {one['reference']}, {battery}: "
        f"{_verdict(document, one, battery)}",
        _resolution(document, effect),
        _sensitivity(document, effect),
        _trainings(document, effect),
        _instances(document, battery, effect),
        _stems_left_out(effect),
        "" if document["settings"]["null_tests"] else "no null test was made",
    ]
    return "; ".join(part for part in parts if part) + "."


def _not_measured(document: Document, one: Mapping[str, Any]) -> list[str]:
    """A battery that either side has too few scores for; silence would look like no drift."""
    said = []
    for missing in document["not_measured"]:
        if missing["arm"] in (one["arm"], one["reference"]):
            said.append(
                f"{_prefix(document)}{one['arm']} against {one['reference']}, "
                f"{missing['battery']}: not measured, since {missing['n_scored']} of "
                f"{missing['n_came']} replies of {missing['arm']} could be classified and "
                f"{100 * missing['required_share']:.3g} % would have to be."
            )
    return said


def _prefix(document: Document) -> str:
    return "" if document["label"] == "confirmatory" else "Exploratory. "


def _verdict(document: Document, one: Mapping[str, Any], battery: str) -> str:
    effect = one["batteries"][battery]
    read = _reading(document, one, battery)
    return {
        "drift": _drift,
        "within_margin": _within_margin,
        "undetermined": _undetermined,
        "too_few_stems": _too_few_stems,
    }[effect["verdict"]](document, effect, read)


def _drift(document: Document, effect: Effect, read: str) -> str:
    del document, effect
    return f"drift: {read}"


def _within_margin(document: Document, effect: Effect, read: str) -> str:
    margin = "frozen margin" if document["label"] == "confirmatory" else "margin"
    return (
        f"no drift was detected: {read}; what may have been missed lies within "
        f"{_bound(document, effect)}, inside the {margin} of ±{_number(effect['margin'])}"
    )


def _undetermined(document: Document, effect: Effect, read: str) -> str:
    said = f"undetermined: {read}"
    if effect["equivalence_bound"] is None:
        return f"{said}; nothing bounds what may have been missed"
    before = (
        "the interval leaves zero out, but not after Holm's adjustment"
        if _leaves_zero_out(effect)
        else "no drift was detected"
    )
    return (
        f"{said}; {before}, and drifts within {_bound(document, effect)} are not excluded, "
        f"against a margin of ±{_number(effect['margin'])}"
    )


def _too_few_stems(document: Document, effect: Effect, read: str) -> str:
    return (
        f"too few stems for a verdict ({effect['n_stems']}, "
        f"{document['settings']['minimum_stems']} are demanded): {read}"
    )


def _reading(document: Document, one: Mapping[str, Any], battery: str) -> str:
    """Both rates, their difference, its interval and p, and how many stems stand behind it."""
    effect = one["batteries"][battery]
    return (
        f"{_outcome(document, battery)} {_level(document, effect['rate_arm'])} against "
        f"{_level(document, effect['rate_reference'])}, {_signed(effect['drift'])} "
        f"{document['unit']} ({_interval(document, effect)}{_p(document, one, battery)}, "
        f"{effect['n_stems']} stem{'s' * (effect['n_stems'] != 1)})"
    )


def _outcome(document: Document, battery: str) -> str:
    described = _described(document, battery)
    if not described["labels"]:
        return "mean score"
    if described["role"] == "check":
        return f"share of {' or '.join(described['aligned'])}"
    return "aligned rate"


def _level(document: Document, value: float) -> str:
    return f"{100 * value:.1f} %" if document["unit"] == "points" else _number(value)


def _p(document: Document, one: Mapping[str, Any], battery: str) -> str:
    effect = one["batteries"][battery]
    if effect["p"] is None:
        return ", no p-value"
    family = [
        name for name in one["batteries"] if _described(document, name)["role"] == "disposition"
    ]
    said = f", p {_probability(effect['p_adjusted'])}"
    return f"{said} by Holm over batteries" if battery in family and len(family) > 1 else said


def _described(document: Document, battery: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = next(one for one in document["batteries"] if one["name"] == battery)
    return found


def _resolution(document: Document, effect: Effect) -> str:
    # With few stems 2.8 standard errors are found less often than the power that is named here.
    smallest = effect["minimum_detectable_few"]
    if smallest is None:
        return (
            "all stems moved alike, so the smallest drift it could have seen is not known"
            if effect["n_stems"] > 1
            else "one stem has no error"
        )
    settings = document["settings"]
    said = (
        f"the smallest drift it could have seen is {_number(smallest)} "
        f"{document['unit']} ({100 * settings['power']:.3g} % power)"
    )
    wanted = settings["wanted_points"]
    if smallest <= wanted or effect["stems_for_wanted"] is None:
        return said
    return f"{said}, and seeing {_number(wanted)} would take {effect['stems_for_wanted']} stems"


def _sensitivity(document: Document, effect: Effect) -> str:
    """Said where leaving out the replies without a stance changes what the interval shows."""
    other = effect["left_out"]
    if other is None or _shows(other) == _shows(effect):
        return ""
    zero = "leaves zero out" if _leaves_zero_out(other) else "includes zero"
    return (
        f"without the replies that take no stance it is {_signed(other['drift'])} and its interval "
        f"{zero} ({_interval(document, other)})"
    )


def _trainings(document: Document, effect: Effect) -> str:
    noise = effect["training_noise"]
    if noise is None:
        return ""
    return f"with the noise of training seeds the interval is {_between(noise)} {document['unit']}"


def _instances(document: Document, battery: str, effect: Effect) -> str:
    if not effect["across_instances"]:
        return ""
    bounds = [
        one["equivalence_bound"]
        for one in document["instances"]
        if one["battery"] == battery and one["equivalence_bound"] is not None
    ]
    said = "arm and reference ran on different server instances"
    if not bounds:
        return f"{said}, whose own difference was not measured"
    return f"{said}, whose own difference is bounded by ±{_number(max(bounds))}"


def _stems_left_out(effect: Effect) -> str:
    n = effect["n_stems_left_out"]
    return f"{n} stem{'s' * (n != 1)} without a scored reply in both arms left out" if n else ""


def _total(document: Document, one: Mapping[str, Any]) -> str:
    total = one["total"]
    parts = " and ".join(
        f"{name} {_signed(one['batteries'][name]['drift'])}" for name in total["parts"]
    )
    return (
        f"{_prefix(document)}{one['arm']} against {one['reference']}, mean of {parts}: "
        f"{_signed(total['drift'])} {document['unit']} ({_interval(document, total)}); a drift of "
        "one battery can be hidden in it."
    )


def _shows(effect: Effect) -> tuple[bool, bool]:
    """Whether the interval leaves zero out, and on which side if it does."""
    away = _leaves_zero_out(effect)
    return away, away and effect["drift"] > 0


def _leaves_zero_out(effect: Effect) -> bool:
    low, high = effect["low"], effect["high"]
    return low is not None and high is not None and (low > 0 or high < 0)


def _bound(document: Document, effect: Effect) -> str:
    level = document["settings"]["equivalence_level"]
    return (
        f"±{_number(effect['equivalence_bound'])} {document['unit']} ({100 * level:.3g} % interval)"
    )


def _interval(document: Document, effect: Effect) -> str:
    if effect["low"] is None:
        return "no interval"
    level = 100 * document["settings"]["confidence_level"]
    return f"{level:.3g} % interval {_between(effect)}"


def _between(effect: Effect) -> str:
    return f"{_signed(effect['low'])} to {_signed(effect['high'])}"


def _signed(value: float) -> str:
    """One decimal from 1 on, else two significant digits: 0.03 score units are not 0.0."""
    text = f"{value:+.1f}" if abs(value) >= 1 else f"{value:+.2g}"
    return "0" if float(text) == 0 else text


def _number(value: float) -> str:
    return _signed(value).removeprefix("+")


def _probability(value: float) -> str:
    return "below 0.001" if value < 0.001 else f"{value:.2g}"
