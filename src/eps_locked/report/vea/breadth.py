"""How many other families each reward model penalises, with its bounds; and the gates before it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eps_locked.report.absent import Blank
from eps_locked.report.charts import Axis, Strip, strip_chart
from eps_locked.report.html import Child, Html, join, section, tag
from eps_locked.report.sheets import (
    NOTHING,
    Column,
    Row,
    Sheet,
    count,
    figure,
    per_cent,
    sheet_table,
    words,
)
from eps_locked.report.units import for_page, interval
from eps_locked.report.vea.headlines import breadth_taken
from eps_locked.report.vea.view import (
    GATES,
    HEADLINES,
    Entry,
    View,
    amount_column,
    delta_column,
    share_column,
)
from eps_locked.report.verdict_marks import marked, of_column

_PER_CENT = Axis(low=0, high=100, ticks=(0, 20, 40, 60, 80, 100))
_GATE_MARKS = {mark.words: mark for mark in GATES.values()}


def breadth_sheets(view: View) -> dict[str, Sheet]:
    """One row a reward model; and one for each of its gates."""
    unit, _ = view.unit
    return {
        "breadth": Sheet(
            file="breadth.csv",
            what="The breadth of each reward model",
            columns=(
                words("reward model", "reward_model"),
                share_column(f"breadth [{view.level}]", "score"),
                of_column("penalised", "n_penalising", "n_families"),
                count("not", "n_not"),
                count("undetermined", "n_undetermined"),
                Column(
                    head="bounds",
                    keys=("low_bound", "high_bound"),
                    show=_bounds,
                    kind="num",
                ),
                of_column("significant", "n_significant", "n_families"),
                amount_column(f"detectable alone, {unit}", "minimum_detectable_alone"),
                amount_column("if all", "minimum_detectable_all"),
                words("to be read", "read"),
            ),
            rows=tuple(_row(model) for model in view.models),
            blank=Blank(
                values=("score",), item=lambda row: str(row["reward_model"]), items="reward models"
            ),
        ),
        "gates": Sheet(
            file="gates.csv",
            what="The gates of each reward model",
            columns=(
                words("reward model", "reward_model"),
                words("gate", "gate"),
                count("prompts", "n"),
                delta_column(f"Δ inserted, {unit} [{view.level}]", "mean"),
                Column(
                    head="verdict",
                    keys=("holds", "why"),
                    show=lambda row: join(
                        marked(_GATE_MARKS[row["holds"]]),
                        " ",
                        tag("small", row["why"], class_="why"),
                    ),
                    kind="wide",
                ),
            ),
            rows=tuple(
                _gate(view, model, gate) for model in view.models for gate in model["gates"]
            ),
        ),
    }


def breadth_section(view: View, sheets: Mapping[str, Sheet]) -> Html:
    """The chart and the table."""
    strips = [_strip(model) for model in view.models if model["breadth"]["score"] is not None]
    narrow, broad = view.settings["narrow_to"], view.settings["broad_from"]
    chart = None
    if strips:
        chart = strip_chart(
            strips,
            label="Breadth of each reward model, with its intervals",
            unit="% of the other families",
            marked=(100 * narrow, 100 * broad),
            axis=_PER_CENT,
        )
    return section(
        "breadth",
        "Breadth",
        tag("p", _reading(view)),
        tag(
            "p",
            f"On the chart: thin line, {view.level} interval; thick line, from no undetermined "
            f"family penalised to all of them; dashed upright lines, {narrow * 100:g} % (narrow up "
            f"to here) and {broad * 100:g} % (broad from here on); hollow, a breadth that must "
            "not be read.",
            class_="small",
        ),
        chart,
        sheet_table(sheets["breadth"], join(view.promised, " The breadth of each reward model")),
    )


def gates_section(view: View, sheets: Mapping[str, Sheet]) -> Html:
    """What the gates are, and what each reward model made of them."""
    return section(
        "gates",
        "Gates",
        tag(
            "p",
            "A gate inserts a sentence that says nothing of being evaluated: neutral_control a "
            "mundane remark, lexical_wood_decoy the word Wood in its plain sense. A reward model "
            "that takes off for it dislikes sentences, or letters, and not the idea. A gate holds "
            f"where its {view.equivalence_level} interval lies within ±{view.gate_margin:g}; it "
            "fails where its mean lies beyond and the "
            f"{view.level} interval leaves out 0; else it is undetermined. Gates are read by the "
            "inserted measure whatever the verdicts are about.",
        ),
        sheet_table(sheets["gates"], join(view.promised, " The gates of each reward model")),
    )


def _reading(view: View) -> str:
    return (
        "Breadth is the share of the other families that a reward model penalises; a family "
        f"without a verdict counts as not shown. In brackets the {view.level} interval: prompts "
        "resampled and all families tested again. Bounds: with none of the undetermined families "
        "penalised, and with all of them. Significant: families with a mean above 0 and an "
        f"adjusted p of at most {view.settings['alpha']:g}, those below the margin "
        "too. Detectable: the largest over the families, so none of them could have hidden more."
    )


def _strip(model: Entry) -> Strip:
    breadth = model["breadth"]
    taken = breadth_taken(model)
    low, high = breadth["low_bound"], breadth["high_bound"]
    inside = _ends(breadth["low"], breadth["high"]) or "no interval"
    mark = HEADLINES[model["headline"]]
    return Strip(
        name=join(model["reward_model"], " ", tag("small", f"not to be read: {taken}"))
        if taken
        else model["reward_model"],
        words=join(
            per_cent(breadth["score"]),
            " ",
            inside,
            " ",
            tag("small", f"{breadth['n_penalising']} of {breadth['n_families']}"),
            " ",
            marked(mark),
        ),
        value=100 * breadth["score"],
        low=_hundredfold(breadth["low"]),
        high=_hundredfold(breadth["high"]),
        inner=(100 * low, 100 * high) if high > low else None,
        # A hollow mark where a gate took the breadth away.
        shape="undetermined" if taken else "plain",
    )


def _hundredfold(value: float | None) -> float | None:
    return None if value is None else 100 * value


def _ends(low: float | None, high: float | None) -> str:
    if low is None or high is None:
        return ""
    return for_page(interval(low * 100, high * 100, 1))


def _bounds(row: Row) -> Child:
    low, high = row["low_bound"], row["high_bound"]
    if low is None or high is None:
        return NOTHING
    if low == high:
        return per_cent(low)
    return f"{figure(low * 100, 1)} % to {figure(high * 100, 1)} %"


def _row(model: Entry) -> Row:
    breadth = model["breadth"]
    taken = breadth_taken(model)
    return {
        "reward_model": model["reward_model"],
        **{
            key: breadth[key]
            for key in (
                *("score", "n_families", "n_penalising", "n_not"),
                *("n_undetermined", "low_bound", "high_bound", "n_significant"),
                *("score_significant", "minimum_detectable_alone", "minimum_detectable_all"),
            )
        },
        "score_low": breadth["low"],
        "score_high": breadth["high"],
        "read": f"no: {taken}" if taken else "yes",
        "reason": "no other family has items",
    }


def _gate(view: View, model: Entry, gate: Entry) -> Row:
    family: Mapping[str, Any] = next(
        (one for one in model["families"] if one["family"] == gate["gate"]), {}
    )
    effect: Mapping[str, Any] = family.get("inserted", {})
    return {
        "reward_model": model["reward_model"],
        "gate": gate["gate"],
        "n": effect["wilcoxon"]["n"] if effect else 0,
        "mean": effect.get("mean"),
        "mean_low": effect.get("low"),
        "mean_high": effect.get("high"),
        "low_equivalence": effect.get("low_equivalence"),
        "high_equivalence": effect.get("high_equivalence"),
        "p": effect.get("p"),
        "gate_margin": view.gate_margin,
        "holds": GATES[gate["holds"]].words,
        "why": gate["why"],
    }
