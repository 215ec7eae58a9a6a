"""The page's sections about the open scores: leaderboard, parts, gates, combiners, sensitivity."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eps_locked.report.absent import listed, parted
from eps_locked.report.html import Child, Html, join, pairs, section, tag
from eps_locked.report.score_rows import POOLED, Group, Scores, groups
from eps_locked.report.score_sheets import score_sheets
from eps_locked.report.score_summary import in_short
from eps_locked.report.sheets import Sheet, figure, per_cent, sheet_table
from eps_locked.report.units import percent

# Heading and anchor of every group's section, in the order of the document.
Anchors = list[tuple[str, str]]


def score_sections(scores: Scores | None) -> Html:
    """Everything about the open score document; a sentence that there is none, without one."""
    if scores is None:
        return section(
            "scores-1",
            "Scores",
            tag(
                "p",
                tag("b", "Nothing was scored. "),
                "No predictor was given for this run.",
                class_="notice",
            ),
        )
    sheets = score_sheets(scores)
    return join(
        *(
            _group_section(scores, group, sheets, number)
            for number, group in enumerate(groups(scores), start=1)
        ),
        _methods(scores),
    )


def score_anchors(scores: Scores | None) -> Anchors:
    """The links into these sections."""
    if scores is None:
        return [("scores-1", "Scores")]
    found = groups(scores)
    links = [
        (f"scores-{number}", _heading(group) if len(found) > 1 else "Scores")
        for number, group in enumerate(found, start=1)
    ]
    return [*links, ("score-methods", "How it was scored")]


def label_of(word: str) -> Html:
    """The computed label of a table or figure."""
    return tag("span", word, class_=f"label {word}")


def _heading(group: Group) -> str:
    name = group["behaviour"]
    return f"Scores, {name}" if name == POOLED else f"Scores on “{name}”"


def _group_section(scores: Scores, group: Group, sheets: Mapping[str, Sheet], number: int) -> Html:
    """One behaviour's scores, or the pool's: the same tables, those that have rows."""
    shown = {name: sheet.where(behaviour=group["behaviour"]) for name, sheet in sheets.items()}

    def block(
        name: str, title: str, caption: str, *before: Child, after: Child = None
    ) -> Html | None:
        if not shown[name].rows:
            return None
        rows, _ = parted(shown[name].rows, shown[name].blank)
        return join(
            tag("h3", title),
            *(tag("p", text) if not isinstance(text, Html) else text for text in before if text),
            sheet_table(shown[name], join(label_of(scores["label"]), f" {caption}")),
            tag("p", after, class_="small") if after and rows else None,
        )

    return section(
        f"scores-{number}",
        _heading(group),
        in_short(scores, group),
        _cells(group),
        block(
            "leaderboard",
            "Leaderboard",
            "Predictors against G on open cells",
            after=_leaderboard_note(scores),
        ),
        block(
            "over-additive",
            "Beyond rows and columns",
            "Gain over the additive row + column model",
            "How broadly a source leaks and how readily a context receives explain most of a real "
            "matrix without any metric. What counts is what a metric adds to that.",
        ),
        block("families", "Within and across families", "Scores by kind of cell"),
        block(
            "decomposition",
            "Decomposition of G",
            "Parts of the variation of G between contexts that train and evaluate",
            after=_decomposition_note(group),
        ),
        block(
            "parts",
            "Scores on the parts",
            "Own R² and gain in R² on each part, beside the additive model and the null",
            after="A symmetric metric scores 0 on the antisymmetric part by construction. The gain "
            "is over the additive model alone; permuted figures are the relabelled metric's.",
        ),
        block(
            "gates",
            "Gates",
            "Does it point the right way?",
            "Proximity: more transfer within a family of contexts than across. Inoculation: "
            "trained under an instruction to show the behaviour, less of it elsewhere than trained "
            "under the default context.",
        ),
        block(
            "combiners",
            "Combiners",
            "Several predictors, fitted inside the folds only",
            after="Best single: the one predictor that an inner split chose in each fold, and how "
            "often which. The gain is over that; permuted: all predictors relabelled together, all "
            "refitted.",
        ),
        block(
            "sensitivity",
            "Sensitivity",
            "The same scores with cells let in that scoring leaves out",
        ),
        block(
            "covariates",
            "Strength and prefix length",
            "Gain over implant strength and prefix length",
        ),
        block(
            "behaviour-blind",
            "Behaviour-blind ablation",
            "Each metric beside itself with the cross-behaviour mean vector",
        ),
        block(
            "censoring",
            "Censored cells",
            "Slopes with and without account of the bounds",
        ),
        block("left-out", "Cells left out", "Why not scored"),
        block("replication", "Agreement between seeds", "Pairs of seeds over the same cells"),
    )


def _cells(group: Group) -> Html | None:
    """What the cells behind the scores are."""
    if "cells" not in group:
        text = f"{listed(group['behaviours'])}, every behaviour z-normalised by itself before."
        return tag("p", text, class_="small")
    cells, g = group["cells"], group["g"]
    if not cells["scored"]:
        return None
    down = " Values fall where there is more of the behaviour; they were turned round."
    return tag(
        "p",
        f"Scored cells: {cells['within_family']} within and {cells['cross_family']} across "
        f"families, {cells['train_contexts']} train and {cells['eval_contexts']} eval contexts. "
        f"Their G: mean {figure(g['mean'])}, standard deviation "
        f"{figure(g['standard_deviation'])}, from {figure(g['low'])} to {figure(g['high'])} "
        f"{group['unit']}.{down if group['direction'] == 'down' else ''}",
        class_="small",
    )


def _leaderboard_note(scores: Scores) -> str:
    settings = scores["settings"]
    level = percent(settings["confidence_level"])
    return (
        f"Ordered by R². In brackets: {level} intervals, contexts resampled. The line runs from −1 "
        "to 1, pale where 95 % of permutations lie. Two out: no cell of either context took part "
        "in the fit; one out likewise for one. Permuted: the same metric with its contexts "
        "relabelled. Additive: row + column effects with no metric, out of fold. Holm p: of the "
        "R², over the predictors here. Detectable: the Spearman that would be found with power "
        "80 %."
    )


def _decomposition_note(group: Group) -> str | None:
    found = group.get("decomposition")
    if found is None or found["reason"] is not None:
        return None
    text = (
        f"{found['n_contexts']} contexts, {found['n_cells']} cells, {found['n_pairs']} mirror "
        "pairs. Symmetric and antisymmetric make up the whole, so do additive and interaction. No "
        f"symmetric metric can pass an R² of {figure(found['symmetric_cap'], 3)}. Differences of "
        f"row means alone give {per_cent(found['antisymmetric_additive_r2'])} of the "
        "antisymmetric part."
    )
    noise = found["noise"]
    if noise is None:
        return f"{text} The noise could not be estimated: one seed and no standard errors."
    cut = (
        f" Would have fallen below 0: {', '.join(noise['truncated'])}."
        if noise["truncated"]
        else ""
    )
    return f"{text} Ticks and “noise taken off”: without the noise ({noise['basis']}).{cut}"


def _methods(scores: Scores) -> Html:
    settings = scores["settings"]
    coverages = sorted(_coverages(scores))
    said = "no simulation at this design"
    if coverages:
        low, high = (per_cent(one) for one in (coverages[0], coverages[-1]))
        said = low if low == high else f"{low} to {high}"
    rows: list[tuple[str, Child]] = [
        (name.replace("_", " "), text) for name, text in scores["methods"].items()
    ]
    shown = {k: v for k, v in settings.items() if not isinstance(v, Mapping | list)}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            shown[name] = ", ".join(f"{k}: {v}" for k, v in value.items())
        elif isinstance(value, list):
            shown[name] = ", ".join(map(str, value))
    rows += [
        ("simulated coverage", f"{said}, for a nominal {percent(settings['confidence_level'])}"),
        *((name.replace("_", " "), str(value)) for name, value in shown.items()),
    ]
    reason = scores["pooled"]["reason"]
    if reason is not None:
        rows.append(("pooled", reason))
    left = [
        f"{group['behaviour']}: {group['decomposition']['reason']}"
        for group in scores["behaviours"]
        if group["decomposition"]["reason"] is not None
    ]
    if left:
        rows.append(("no decomposition", "; ".join(left)))
    return section("score-methods", "How it was scored", pairs(rows))


def _coverages(value: Any) -> set[float]:
    """Every simulated coverage in the document."""
    if isinstance(value, Mapping):
        found = {value["simulated_coverage"]} if "simulated_coverage" in value else set()
        return {c for c in found if c is not None}.union(*(_coverages(v) for v in value.values()))
    if isinstance(value, list):
        return set().union(*(_coverages(one) for one in value))
    return set()
