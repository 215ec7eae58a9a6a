"""The document in words: one honest sentence for each reward model, family and gate.

A sentence says what was read, how sure that is, and what could not have been seen. None says "no
effect": where nothing was found it gives the bound. "Narrow" never stands without the bounds of
the breadth and of what the other families may hide.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from eps_locked.studies.vea.verdicts import number, probability

__all__ = ["claims"]

Document = Mapping[str, Any]
Entry = Mapping[str, Any]


def claims(document: Document) -> list[str]:
    """The sentences: for each reward model its headline, then its families, gates among them."""
    said = []
    for model in document["reward_models"]:
        said.append(_headline(document, model))
        said += [_family(document, model, family) for family in model["families"]]
        # A gate without a single item has no family to speak of it.
        there = {family["family"] for family in model["families"]}
        said += [
            f"{_prefix(document)}{model['reward_model']}, gate {gate['gate']}: {gate['why']}."
            for gate in model["gates"]
            if gate["gate"] not in there
        ]
    return said


def _headline(document: Document, model: Entry) -> str:
    words = {
        "broad": _broad,
        "partial": _partial,
        "narrow": _narrow,
        "null": _null,
        "undetermined": _undetermined,
        "confounded": _confounded,
        "not_measured": _not_measured,
    }[model["headline"]]
    parts = [
        f"{_prefix(document)}{model['reward_model']}: {words(document, model)}",
        _missing(model),
        _agreement(model),
    ]
    return "; ".join(part for part in parts if part) + "."


def _broad(document: Document, model: Entry) -> str:
    return (
        "broad: it penalises the anchor and other words for being evaluated; "
        f"{_counted(document, model)}"
    )


def _partial(document: Document, model: Entry) -> str:
    return (
        "partial: it penalises the anchor and some of the other families; "
        f"{_counted(document, model)}"
    )


def _narrow(document: Document, model: Entry) -> str:
    return (
        f"narrow: it penalises the anchor and hardly another family; {_counted(document, model)}; "
        f"{_hidden(document, _measured(model, 'other'))}"
    )


def _null(document: Document, model: Entry) -> str:
    return (
        "null: no dislike was found, neither of the anchor nor of any other family; "
        f"{_hidden(document, _measured(model, 'anchor', 'other'))}"
    )


def _undetermined(document: Document, model: Entry) -> str:
    return f"undetermined: {model['why']}; {_counted(document, model)}"


def _confounded(document: Document, model: Entry) -> str:
    return (
        f"confounded: {model['why']}, so it minds more than being evaluated, and its breadth "
        "must not be read"
    )


def _not_measured(document: Document, model: Entry) -> str:
    del document
    return f"not measured: {model['why']}"


def _counted(document: Document, model: Entry) -> str:
    """Counts, the share and its range, and the bounds that undetermined families leave."""
    breadth = model["breadth"]
    if breadth["score"] is None:
        return "no other family has items"
    said = (
        f"{breadth['n_penalising']} of {breadth['n_families']} other families penalised, "
        f"{breadth['n_not']} not, {breadth['n_undetermined']} undetermined; breadth "
        f"{number(breadth['score'])}, between {number(breadth['low_bound'])} and "
        f"{number(breadth['high_bound'])} whatever the undetermined are"
    )
    if breadth["low"] is None:
        return said
    level = 100 * document["settings"]["confidence_level"]
    return (
        f"{said} ({number(breadth['low'])} to {number(breadth['high'])} in {level:.3g} % of "
        "resamples of the prompts)"
    )


def _missing(model: Entry) -> str:
    missing = {name: n for name, n in model["statuses"].items() if name != "scored"}
    if not missing:
        return ""
    listed = ", ".join(f"{n} {name}" for name, n in missing.items())
    n_all = sum(model["statuses"].values())
    return f"{sum(missing.values())} of {n_all} responses have no score ({listed})"


def _agreement(model: Entry) -> str:
    if model["expected"] is None:
        return ""
    if model["agrees"]:
        return f"as known of this arm beforehand ({model['expected']})"
    return f"known of this arm beforehand: {model['expected']}, which is not what was found"


def _family(document: Document, model: Entry, family: Entry) -> str:
    primary = document["settings"]["primary"]
    measure = "inserted" if family["role"] == "gate" else primary
    effect = family[measure]
    role = {"anchor": "anchor", "other": "family", "gate": "gate"}[family["role"]]
    parts = [
        f"{_prefix(document)}{model['reward_model']}, {role} {family['family']}: "
        f"{_verdict(document, model, family, effect)}",
        _reading(document, model, effect, measure),
        _resolution(document, family, effect),
        _share_of_anchor(document, family),
        _left_out(family, measure, primary),
    ]
    return "; ".join(part for part in parts if part) + "."


def _verdict(document: Document, model: Entry, family: Entry, effect: Entry) -> str:
    if family["role"] == "gate":
        gate = next(one for one in model["gates"] if one["gate"] == family["family"])
        holds = "is undetermined" if gate["holds"] == "undetermined" else gate["holds"]
        return f"the gate {holds} ({gate['why']})"
    if effect["verdict"] == "too_few_items":
        return f"no verdict ({effect['why']})"
    if effect["verdict"] == "penalises":
        return "penalised"
    if effect["verdict"] == "undetermined":
        return f"undetermined: no dislike was shown, and {_upper_end(document, effect)}"
    said = f"not penalised: {_upper_end(document, effect)}"
    if _is_found(document, effect):
        return f"{said}; it differs from zero, and by too little to be called a dislike"
    return said


def _upper_end(document: Document, effect: Entry) -> str:
    """How large the mean may still be; equal differences have no interval, but other prompts may
    not agree with these."""
    settings, end = document["settings"], effect["high_equivalence"]
    if end is None:
        n = effect["wilcoxon"]["n"]
        others = 100 * (1 - (1 - settings["confidence_level"]) ** (1 / n))
        return (
            f"all {n} prompts have the same difference, {number(effect['mean'])}, against the "
            f"{_margin(document)}, and up to {others:.2g} % of other prompts may have another "
            f"({100 * settings['confidence_level']:.3g} %)"
        )
    return (
        f"its mean may be up to {number(end)} ({100 * settings['equivalence_level']:.3g} % "
        f"interval), against the {_margin(document)}"
    )


def _is_found(document: Document, effect: Entry) -> bool:
    p = effect["p"] if effect["p_adjusted"] is None else effect["p_adjusted"]
    return bool(p <= document["settings"]["alpha"] and effect["mean"] > 0)


def _reading(document: Document, model: Entry, effect: Entry, measure: str) -> str:
    if effect["mean"] is None:
        return ""
    n = effect["wilcoxon"]["n"]
    what = "base less vea" if measure == "inserted" else "control less vea"
    settings = document["settings"]
    said = f"{what} {number(effect['mean'])} {model['unit']}"
    if effect["low"] is None:
        return f"{said} (no interval, {_p(effect)}, {n} prompt{'s' * (n != 1)})"
    return (
        f"{said} ({100 * settings['confidence_level']:.3g} % interval {number(effect['low'])} to "
        f"{number(effect['high'])}, {_p(effect)}, {n} prompts)"
    )


def _p(effect: Entry) -> str:
    if effect["p_adjusted"] is None:
        return f"signed-rank p {probability(effect['p'])}"
    adjusted = probability(effect["p_adjusted"])
    return f"signed-rank p {adjusted} after Benjamini and Hochberg"


def _resolution(document: Document, family: Entry, effect: Entry) -> str:
    smallest = effect["minimum_detectable_alone"]
    if effect["mean"] is None or family["role"] == "gate":
        return ""
    if smallest is None:
        return "the smallest difference it could have seen is not known"
    power = f"{100 * document['settings']['power']:.3g} % power"
    both = effect["minimum_detectable_all"]
    if both is None:
        return f"the smallest difference it could have seen is {number(smallest)} ({power})"
    return (
        f"the smallest difference it could have seen is {number(smallest)} in this family alone, "
        f"{number(both)} if all have it ({power})"
    )


def _share_of_anchor(document: Document, family: Entry) -> str:
    against = family["against_anchor"]
    if against is None or family["role"] == "gate" or against["share_of_anchor"] is None:
        return ""
    level = 100 * document["settings"]["confidence_level"]
    return (
        f"{100 * against['share_of_anchor']:.3g} % of the anchor's difference ({level:.3g} % "
        f"interval {100 * against['share_low']:.3g} to {100 * against['share_high']:.3g} %)"
    )


def _left_out(family: Entry, measure: str, primary: str) -> str:
    if measure != primary or not family["left_out"]:
        return ""
    listed = ", ".join(f"{n} {reason}" for reason, n in family["left_out"].items())
    return f"{sum(family['left_out'].values())} of {family['n_items']} pairs left out ({listed})"


def _measured(model: Entry, *roles: str) -> list[Entry]:
    return [one for one in model["families"] if one["role"] in roles and one["measured"]]


def _hidden(document: Document, families: Sequence[Entry]) -> str:
    """The largest dislike that a family of these may still hide, with its level."""
    settings = document["settings"]
    effects = [one[settings["primary"]] for one in families]
    ends = [one["high_equivalence"] for one in effects if one["high_equivalence"] is not None]
    if not ends:
        return "within each family all prompts have the same difference, so nothing bounds it"
    level = 100 * settings["equivalence_level"]
    return (
        f"a mean dislike of up to {number(max(0.0, *ends))} in one of them is not excluded "
        f"({level:.3g} % interval, {_margin(document)})"
    )


def _margin(document: Document) -> str:
    frozen = "frozen " * (document["label"] == "confirmatory")
    return f"{frozen}margin of {number(document['settings']['margin'])}"


def _prefix(document: Document) -> str:
    return "Confirmatory. " if document["label"] == "confirmatory" else "Exploratory. "
