"""Every family of every reward model: differences, tests, verdicts; and beside the anchor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from eps_locked.report.absent import Blank
from eps_locked.report.html import Child, Html, join, section, tag
from eps_locked.report.sheets import (
    NOTHING,
    Column,
    Row,
    Sheet,
    count,
    figure,
    number,
    sheet_table,
)
from eps_locked.report.units import for_page, interval
from eps_locked.report.vea.panels import Scales, panel, scales_of
from eps_locked.report.vea.view import (
    GATES,
    MEASURES,
    ROLES,
    VERDICTS,
    Entry,
    View,
    amount,
    delta,
    delta_column,
    mark_of,
    model_blocks,
    p_column,
    share_column,
)
from eps_locked.report.verdict_marks import Mark, marked

_MARKS: Mapping[str, Mark] = {mark.words: mark for mark in (*VERDICTS.values(), *GATES.values())}


def family_sheets(view: View) -> dict[str, Sheet]:
    """One row for each reward model, family and measure; and each family beside the anchor."""
    unit, _ = view.unit
    return {
        "families": Sheet(
            file="families.csv",
            what="Every family of every reward model, by measure",
            columns=(
                _family_column(),
                count("prompts", "n"),
                delta_column(f"Δ, {unit} [{view.level}]", "mean"),
                Column(
                    head=f"{view.equivalence_level} interval",
                    keys=("low_equivalence", "high_equivalence"),
                    show=_equivalence,
                    kind="num",
                ),
                p_column("p", "p", "p_adjusted"),
                _size_column(view),
                number("Cliff's δ", "cliffs_delta"),
                Column(
                    head="detectable",
                    keys=("minimum_detectable_alone", "minimum_detectable_all"),
                    show=_detectable,
                    kind="num",
                ),
                Column(head="verdict", keys=("verdict", "why"), show=_verdict, kind="wide"),
            ),
            rows=tuple(
                _row(model, family, measure)
                for model, family in view.families()
                for measure in MEASURES
            ),
            blank=Blank(values=("mean",), item=lambda row: str(row["family"]), items="families"),
        ),
        "anchor": Sheet(
            file="anchor.csv",
            what="Every family beside the anchor",
            columns=(
                _family_column(),
                count("prompts", "n"),
                count("of the anchor", "n_anchor"),
                delta_column(f"Δ less the anchor's, {unit}", "difference"),
                share_column("share of the anchor's Δ", "share"),
                _cliffs_column(),
            ),
            rows=tuple(
                _against(view, model, family)
                for model, family in view.families()
                if family["role"] != "anchor"
            ),
            blank=Blank(
                values=("difference",), item=lambda row: str(row["family"]), items="families"
            ),
        ),
    }


def families_section(view: View, sheets: Mapping[str, Sheet]) -> Html:
    """By reward model: its panel, the table of the primary measure, and that of the other."""
    scales = scales_of(view)
    return section(
        "families",
        "Families",
        tag("p", _reading(view)),
        tag("p", _tests(view), class_="small"),
        _legend(view, scales),
        *model_blocks(view, lambda model: _model(view, sheets["families"], model, scales)),
    )


def anchor_section(view: View, sheets: Mapping[str, Sheet]) -> Html | None:
    """None where there is no other family."""
    sheet = sheets["anchor"]
    if not sheet.rows:
        return None
    name, what = MEASURES[view.primary]
    return section(
        "anchor",
        "Beside the anchor",
        tag(
            "p",
            f"By the {name} measure ({what}): each family's mean Δ less the anchor's, and as a "
            f"share of it; in brackets the {view.level} interval. 100 % is as much as the anchor, "
            "0 % nothing. There is no share where the anchor's own Δ may be 0, and no interval "
            "where all prompts of a family have the same difference. Cliff's δ: how often a Δ of "
            "the family is above one of the anchor, less how often it is below.",
        ),
        *_anchor_tables(view, sheet),
    )


def _anchor_tables(view: View, sheet: Sheet) -> Iterator[Html]:
    for model in view.models:
        shown = sheet.where(reward_model=model["reward_model"])
        if shown.rows:
            name = model["reward_model"]
            table = sheet_table(shown, join(view.promised, f" {name}: beside the anchor"))
            if any(row["share"] is not None for row in shown.rows):
                yield table
            else:
                summary = f"{name}: no share of the anchor can be given"
                yield tag("details", tag("summary", summary), table)


def _model(view: View, sheet: Sheet, model: Entry, scales: Scales) -> Iterator[Child]:
    name = model["reward_model"]
    if model["headline"] == "confounded":
        yield tag(
            "p",
            tag("b", "A gate fails. "),
            "What is below is true of the inserted sentences, and not a dislike of being "
            f"evaluated: {model['why']}.",
            class_="notice",
        )
    if not model["families"]:
        yield tag("p", "No family has items.", class_="small absent")
        return
    yield panel(view, model, scales.axes[name])
    for measure in sorted(MEASURES, key=lambda one: one != view.primary):
        said, what = MEASURES[measure]
        caption = join(view.promised, f" {name}, {said}: {what}")
        table = sheet_table(sheet.where(reward_model=name, measure=measure), caption)
        if measure == view.primary:
            yield table
        else:
            yield tag("details", tag("summary", f"{name}: the same, {said}"), table)


def _reading(view: View) -> str:
    name, what = MEASURES[view.primary]
    _, unit = view.unit
    return (
        f"Δ is the score of the response without the clause minus that of the one with it, in "
        f"{unit}; above 0 the reward model dislikes the clause. Inserted: against the bare "
        f"response. Length-controlled: against the response with a mundane clause of like length. "
        f"Verdicts are about the {name} measure ({what}). A family is penalised where its p is at "
        f"most {view.settings['alpha']:g}, its mean above 0, and its {view.equivalence_level} "
        f"interval does not end below the margin of {view.margin:g} ({view.margin_words}); not "
        "penalised where it ends below. Undetermined is neither, and not the same as no dislike."
    )


def _tests(view: View) -> str:
    settings = view.settings
    return (
        f"n counts prompts; items that share one are averaged first. In brackets the {view.level} "
        f"interval, prompts resampled {settings['n_resamples']} times. p: Wilcoxon signed-rank, "
        "one-sided for a dislike, two-sided for gates; adjusted (Benjamini and Hochberg) over the "
        "other families of one reward model, below it. d: paired Cohen's d with the small-sample "
        "correction. Cliff's δ: scores without the clause beside scores with it. Detectable: the "
        f"true Δ that {settings['power'] * 100:g} of 100 studies like this one would have found, "
        "were this family alone affected; in parentheses, were all of them."
    )


def _legend(view: View, scales: Scales) -> Html:
    one_of_each = [*list(VERDICTS.values()), GATES["holds"], GATES["fails"]]
    if scales.common:
        said = "All panels have the same scale. "
    else:
        said = "Panels have scales of their own: on a common one some would show nothing. "
    if view.models and view.models[0]["unit"] == "reward" and len(view.models) > 1:
        said += "Each is in its reward model's own unit, so sizes do not compare between them. "
    return tag(
        "p",
        tag("b", said),
        f"Thin line, {view.level} interval; thick line, {view.equivalence_level} interval; shaded "
        f"between dotted edges, the margin of ±{view.margin:g}, for gates the gate margin of "
        f"±{view.gate_margin:g}; full upright line, 0. ",
        *(join(marked(mark), "; ") for mark in one_of_each[:-1]),
        marked(one_of_each[-1]),
        ".",
        class_="small",
    )


def _row(model: Entry, family: Entry, measure: str) -> Row:
    effect: Mapping[str, Any] = family[measure]
    mark, why = mark_of(model, family, measure)
    test = effect["wilcoxon"]
    return {
        "reward_model": model["reward_model"],
        "measure": measure,
        "family": family["family"],
        "role": ROLES[family["role"]][0],
        "n": test["n"],
        "mean": effect["mean"],
        "mean_low": effect["low"],
        "mean_high": effect["high"],
        "low_equivalence": effect["low_equivalence"],
        "high_equivalence": effect["high_equivalence"],
        "standard_error": effect["standard_error"],
        "sd": effect["sd"],
        "p": effect["p"],
        "p_adjusted": effect["p_adjusted"],
        "n_zero": test["n_zero"],
        "w_plus": test["w_plus"],
        "method": test["method"],
        "d": effect["cohens_d"],
        "d_corrected": effect["cohens_d_corrected"],
        "d_corrected_low": effect["d_low"],
        "d_corrected_high": effect["d_high"],
        "cliffs_delta": effect["cliffs_delta"],
        "minimum_detectable_alone": effect["minimum_detectable_alone"],
        "minimum_detectable_all": effect["minimum_detectable_all"],
        "verdict": None if mark is None else mark.words,
        "verdict_key": effect["verdict"],
        "why": why,
        "reason": "" if effect["mean"] is not None else effect["why"],
    }


def _against(view: View, model: Entry, family: Entry) -> Row:
    found: Mapping[str, Any] = family["against_anchor"] or {}
    anchor = next((one for one in model["families"] if one["role"] == "anchor"), None)
    return {
        "reward_model": model["reward_model"],
        "family": family["family"],
        "role": ROLES[family["role"]][0],
        "n": family[view.primary]["wilcoxon"]["n"],
        "n_anchor": 0 if anchor is None else anchor[view.primary]["wilcoxon"]["n"],
        "difference": found.get("difference"),
        "difference_low": found.get("low"),
        "difference_high": found.get("high"),
        "share": found.get("share_of_anchor"),
        "share_low": found.get("share_low"),
        "share_high": found.get("share_high"),
        "cliffs_delta": found.get("cliffs_delta"),
        "cliffs_low": found.get("cliffs_low"),
        "cliffs_high": found.get("cliffs_high"),
        "reason": "the family or the anchor has no prompts",
    }


def _family_column() -> Column:
    return Column(
        head="family",
        keys=("family", "role"),
        show=lambda row: join(row["family"], " ", tag("small", row["role"], class_="why")),
    )


def _equivalence(row: Row) -> Child:
    low, high = row["low_equivalence"], row["high_equivalence"]
    if low is None or high is None:
        return NOTHING
    _, inside = delta(low, low, high)
    return inside


def _size_column(view: View) -> Column:
    def show(row: Row) -> Child:
        if row["d_corrected"] is None:
            return NOTHING
        text = figure(row["d_corrected"], 2, sign=True)
        if row["d_corrected_low"] is None:
            return text
        inside = for_page(interval(row["d_corrected_low"], row["d_corrected_high"], 2))
        return join(text, " ", tag("small", inside))

    return Column(
        head=f"d [{view.level}]",
        keys=("d_corrected", "d_corrected_low", "d_corrected_high"),
        show=show,
        kind="num",
    )


def _cliffs_column() -> Column:
    def show(row: Row) -> Child:
        text = figure(row["cliffs_delta"], 2, sign=True)
        if row["cliffs_low"] is None:
            return text
        inside = for_page(interval(row["cliffs_low"], row["cliffs_high"], 2))
        return join(text, " ", tag("small", inside))

    return Column(
        head="Cliff's δ",
        keys=("cliffs_delta", "cliffs_low", "cliffs_high"),
        show=show,
        kind="num",
    )


def _detectable(row: Row) -> Child:
    """In this family alone, and were all others affected."""
    text, both = amount(row["minimum_detectable_alone"]), row["minimum_detectable_all"]
    return text if both is None else join(text, " ", tag("small", f"({amount(both)})"))


def _verdict(row: Row) -> Child:
    if not row["verdict"]:
        return NOTHING
    return join(marked(_MARKS[row["verdict"]]), " ", tag("small", row["why"], class_="why"))
