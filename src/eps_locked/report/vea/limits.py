"""What a study could and could not have seen, and what nobody may claim from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from eps_locked.report.absent import listed
from eps_locked.report.html import Html, join, section, tag
from eps_locked.report.sheets import Row, Sheet, sheet_table, words
from eps_locked.report.vea.view import MEASURES, Entry, View, amount_column, ends, span_column
from eps_locked.report.verdict_marks import of_column, whole

_GATES = {"neutral_control": "an inserted sentence as such", "lexical_wood_decoy": "the word Wood"}


def limits_sheet(view: View) -> Sheet:
    """One row a reward model, over its anchor and other families."""
    unit, _ = view.unit
    return Sheet(
        file="resolution.csv",
        what="What could have been seen of each reward model",
        columns=(
            words("reward model", "reward_model"),
            of_column("families measured", "n_measured", "n_families"),
            span_column("prompts", "n_prompts", whole),
            span_column(f"SD, {unit}", "sd"),
            span_column("detectable alone", "alone"),
            span_column("if all", "all"),
            of_column(f"detectable below {view.margin:g}", "n_fine", "n_known"),
            amount_column("not excluded", "hidden"),
        ),
        rows=tuple(_row(view, model) for model in view.models),
    )


def limits_section(view: View, sheet: Sheet) -> Html:
    """The table, and the list."""
    return section(
        "resolution",
        "What this could have seen",
        sheet_table(sheet, join(view.promised, " What could have been seen, by reward model")),
        tag(
            "p",
            f"Over the anchor and the other families, least to most, in {view.unit[1]}. SD: of "
            "Δ over prompts. Detectable: the true Δ that most studies like this one would have "
            "found, in one family alone, or if all have it. Not excluded: the largest dislike, "
            f"that is, how far the {view.equivalence_level} intervals reach in families that are "
            f"not penalised; the margin is {view.margin:g} ({view.margin_words}). A family of "
            "which all prompts have the same difference has no spread and no detectable size.",
            class_="small",
        ),
        tag("h3", "What nobody may claim from it"),
        tag(
            "ul",
            [
                tag("li", tag("b", f"{what}: "), because)
                for what, because in impossible_claims(view)
            ],
            class_="limits",
        ),
    )


def impossible_claims(view: View) -> Iterator[tuple[str, str]]:
    """Classes of claims that the scores or the design leave no room for, each with its reason."""
    yield from _by_model(view)
    yield from _by_design(view)
    yield (
        "Other words for being evaluated",
        "a dislike that these families do not touch cannot show here",
    )
    yield (
        "What a model trained on such rewards would do",
        "scores of written pairs were read, and nothing was trained on them",
    )


def _by_model(view: View) -> Iterator[tuple[str, str]]:
    """What several reward models share is said once."""
    taken = _named(view, "confounded")
    if taken:
        yield (
            f"A breadth of {listed(taken)}",
            "a gate fails; counts of penalised families stand in the tables and mean something "
            "else",
        )
    unclear = _named(view, "undetermined")
    if unclear:
        yield (
            f"Broad, narrow or null of {listed(unclear)}",
            "undetermined is not a headline in between, and not a null",
        )
    unmeasured = _named(view, "not_measured")
    if unmeasured:
        yield f"Anything about {listed(unmeasured)}", "too few prompts were scored"
    few = _few(view)
    if few:
        yield (
            "A verdict from too few prompts",
            f"{listed(few)}; the settings ask for {view.settings['minimum_items']} prompts",
        )
    coarse = [
        f"{row['reward_model']} (in {row['n_known'] - row['n_fine']} of {row['n_known']} families)"
        for row in (_row(view, model) for model in view.models)
        if row["n_fine"] < row["n_known"]
    ]
    if coarse:
        missed = round(100 * (1 - view.settings["power"]), 6)
        yield (
            f"That a dislike of {view.margin:g} in one family would have shown",
            f"{listed(coarse)} would have missed it more often than in {missed:g} studies of 100; "
            "there only the interval says what is ruled out",
        )


def _by_design(view: View) -> Iterator[tuple[str, str]]:
    there = {family["family"] for _, family in view.families()}
    for gate, what in _GATES.items():
        if gate not in there:
            yield f"That {what} does nothing", f"there is no item of {gate}"
    others = [one for _, one in view.families() if one["role"] != "gate"]
    for measure, (name, _) in MEASURES.items():
        if all(one[measure]["mean"] is None for one in others):
            yield f"Anything by the {name} measure", "no pair of it was scored"
    if len(view.models) > 1 and view.models[0]["unit"] == "reward":
        yield (
            "That one reward model dislikes more than another",
            "each has its own unit; compare shares of the anchor, or normalise",
        )
    if all(model["expected"] is None for model in view.models):
        yield (
            "That the instrument calls reward models rightly here",
            "none of known truth was among them",
        )


def _named(view: View, headline: str) -> list[str]:
    return [str(one["reward_model"]) for one in view.models if one["headline"] == headline]


def _few(view: View) -> list[str]:
    found = []
    for model in view.models:
        n = sum(not family["measured"] for family in model["families"])
        if n:
            found.append(f"{model['reward_model']} ({n} of {len(model['families'])} families)")
    return found


def _row(view: View, model: Entry) -> Row:
    families = [one for one in model["families"] if one["role"] != "gate"]
    effects = [one[view.primary] for one in families]
    alone = _known(effects, "minimum_detectable_alone")
    open_ends = [
        effect["high_equivalence"]
        for effect in effects
        if effect["verdict"] != "penalises" and effect["high_equivalence"] is not None
    ]
    return {
        "reward_model": model["reward_model"],
        "n_measured": sum(one["measured"] for one in families),
        "n_families": len(families),
        **ends("n_prompts", [effect["wilcoxon"]["n"] for effect in effects]),
        **ends("sd", [effect["sd"] for effect in effects]),
        **ends("alone", alone),
        **ends("all", [effect["minimum_detectable_all"] for effect in effects]),
        "margin": view.margin,
        "n_fine": sum(one <= view.margin for one in alone),
        "n_known": len(alone),
        "hidden": max(0.0, *open_ends) if open_ends else None,
    }


def _known(effects: Sequence[Mapping[str, float | None]], key: str) -> list[float]:
    return [value for effect in effects if (value := effect[key]) is not None]
