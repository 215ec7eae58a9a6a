"""Every arm against its reference: drifts, bounds, verdicts, and what they stand on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from eps_locked.report.absent import Blank
from eps_locked.report.charts import Strip, strip_chart
from eps_locked.report.drift.view import (
    KINDS,
    METHOD,
    VERDICTS,
    View,
    battery_blocks,
    change_column,
    comparison_column,
    detectable_words,
    level_column,
    verdict_mark,
    verdict_words,
    width_column,
)
from eps_locked.report.html import Child, Html, join, section, tag
from eps_locked.report.sheets import Column, Row, Sheet, count, sheet_table, words
from eps_locked.report.verdict_marks import p_column

Effect = Mapping[str, Any]
# More sentences than this are folded away.
_OPEN = 12


def effect_sheets(view: View) -> dict[str, Sheet]:
    """Drifts, what they are sensitive to, and totals beside their parts."""
    scale = view.scale
    rows = tuple(_row(view, one, battery, effect) for one, battery, effect in view.effects())
    return {
        "drifts": Sheet(
            file="drifts.csv",
            what="Every arm against its reference, by battery",
            columns=(
                Column(
                    head="arm",
                    keys=("arm", "reference", "kind"),
                    show=lambda row: join(
                        row["arm"],
                        " ",
                        tag("small", f"against {row['reference']}: {row['kind']}", class_="why"),
                    ),
                ),
                Column(head="stems", keys=("n_stems",), show=_stems, kind="num"),
                level_column(scale, "arm", "rate_arm", ends=False),
                level_column(scale, "reference", "rate_reference", ends=False),
                replace(change_column(scale, "drift", "drift"), remarks=METHOD),
                Column(
                    head=f"bound [{view.equivalence_level}], {scale.short}",
                    keys=("equivalence_bound", "low_equivalence", "high_equivalence"),
                    show=lambda row: _bound(view, row),
                    kind="num",
                ),
                Column(
                    head=f"detectable, {scale.short}",
                    keys=("minimum_detectable", "minimum_detectable_few"),
                    show=lambda row: _detectable(view, row),
                    kind="num",
                ),
                p_column("p, adjusted", "p_adjusted"),
                _verdict(),
            ),
            rows=rows,
        ),
        "sensitivity": Sheet(
            file="sensitivity.csv",
            what="The same drifts, treated otherwise",
            columns=(
                comparison_column(),
                change_column(scale, "drift", "drift"),
                change_column(scale, "without no-stance replies", "left_out"),
                count("stems", "left_out_n_stems"),
                change_column(scale, "with training noise", "trainings"),
                width_column(scale, "detectable with it", "trainings_detectable"),
                words("two server instances", "across_instances"),
            ),
            rows=tuple(
                _sensitivity(one, battery, effect) for one, battery, effect in view.effects()
            ),
            # A column that no row fills is named below the table.
            blank=Blank(values=("drift",), item=lambda row: str(row["arm"]), items="arms"),
        ),
        "totals": Sheet(
            file="totals.csv",
            what="The mean drift over disposition batteries, beside its parts",
            columns=(
                comparison_column(),
                change_column(scale, "mean of the batteries", "total"),
                *(change_column(scale, name, f"part_{name}") for name in view.dispositions),
            ),
            rows=tuple(_totals(view)),
        ),
    }


def effects_section(view: View, sheets: Mapping[str, Sheet]) -> Html:
    """By battery: the chart, the table, and the table of other treatments; then the totals."""
    promised = view.label("drift")
    return section(
        "drifts",
        "Drifts and bounds",
        tag("p", _reading(view)),
        _legend(view),
        *battery_blocks(view.batteries, lambda name: _battery(view, sheets, name, promised)),
        _total(view, sheets["totals"], promised),
    )


def claims_section(claims: list[str]) -> Html | None:
    """What can be said, in one sentence a comparison."""
    if not claims:
        return None
    sentences = tag("ul", [tag("li", one) for one in claims], class_="sentences")
    if len(claims) > _OPEN:
        summary = tag("summary", f"All {len(claims)} comparisons, a sentence each")
        sentences = tag("details", summary, sentences)
    return section(
        "claims",
        "In one sentence each",
        sentences,
        tag("p", "The same sentences: ", tag("a", "claims.txt", href="claims.txt"), class_="small"),
    )


def _battery(view: View, sheets: Mapping[str, Sheet], name: str, promised: Html) -> Iterator[Child]:
    shown = sheets["drifts"].where(battery=name)
    if not shown.rows:
        yield tag("p", "No arm was compared with a reference here.", class_="small absent")
        return
    if view.battery(name)["role"] != "disposition":
        yield tag(
            "p",
            "A check battery: it shows whether training taught what it teaches. It is part of no "
            "total and of no adjustment for several batteries.",
            class_="small",
        )
    yield strip_chart(
        [_strip(view, row) for row in shown.rows],
        label=f"Drifts of {name} with their intervals, {view.scale.words}",
        unit=f"drift, {view.scale.words}",
        band=(-view.margin, view.margin),
    )
    yield sheet_table(shown, join(promised, f" {name}: every arm against its reference"))
    yield tag(
        "details",
        tag("summary", f"{name}: the same drifts, treated otherwise"),
        sheet_table(
            sheets["sensitivity"].where(battery=name),
            join(promised, f" {name}: without no-stance replies, and with training noise"),
        ),
    )


def _reading(view: View) -> str:
    settings = view.settings
    return (
        f"Drift is the {view.scale.level_word} of an arm minus that of its reference, in "
        f"{view.scale.words}, over the stems that both answered; negative is less aligned. "
        f"Intervals resample whole stems {settings['n_resamples']} times. Bound: no drift larger "
        f"than this, in either direction, is compatible with the {view.equivalence_level} "
        f"interval. {detectable_words(view)} In parentheses, that for stems as few as these. p is "
        "adjusted (Holm) for the disposition batteries of one comparison; below "
        f"{settings['alpha']:g} the verdict is drift. Within the margin: the bound does not pass "
        f"the {view.margin_words} of ±{view.margin:g}. Neither is undetermined, which is not the "
        "same as no drift."
    )


def _legend(view: View) -> Html:
    signs = join(
        *(join(verdict_mark(verdict), "; ") for verdict in list(VERDICTS)[:-1]),
        verdict_mark(list(VERDICTS)[-1]),
    )
    return tag(
        "p",
        f"On the charts: thin line, {view.level} interval; thick line, {view.equivalence_level} "
        f"interval; shaded between dotted edges, the margin of ±{view.margin:g}; full upright "
        "line, 0. ",
        signs,
        ".",
        class_="small",
    )


def _strip(view: View, row: Row) -> Strip:
    scale = view.scale
    low, high = row["low_equivalence"], row["high_equivalence"]
    n = row["n_stems"]
    return Strip(
        name=join(row["arm"], " ", tag("small", f"against {row['reference']}")),
        words=join(
            scale.change(row["drift"], sign=True),
            " ",
            scale.ends(row["drift_low"], row["drift_high"]) or "no interval",
            " ",
            tag("small", f"n = {n} stem{'' if n == 1 else 's'}"),
            " ",
            verdict_mark(row["verdict_key"]),
        ),
        value=row["drift"],
        low=row["drift_low"],
        high=row["drift_high"],
        inner=None if low is None or high is None else (low, high),
        shape=row["verdict_key"],
    )


def _total(view: View, sheet: Sheet, promised: Html) -> Html | None:
    if not sheet.rows:
        return None
    return join(
        tag("h3", "Over batteries, beside the parts"),
        sheet_table(sheet, join(promised, " Mean drift over disposition batteries, and its parts")),
        tag(
            "p",
            "A mean over batteries hides what moves in one of them alone: read the parts. Stems of "
            "different batteries are independent, and the mean's interval is Student's.",
            class_="small",
        ),
    )


def _row(view: View, one: Mapping[str, Any], battery: str, effect: Effect) -> Row:
    return {
        "battery": battery,
        "arm": one["arm"],
        "reference": one["reference"],
        "kind": KINDS[one["kind"]],
        "arm_is": view.arm_words(one["arm"]),
        "reference_is": view.arm_words(one["reference"]),
        "n_stems": effect["n_stems"],
        "n_left_out": effect["n_stems_left_out"],
        "rate_arm": effect["rate_arm"],
        "rate_reference": effect["rate_reference"],
        "drift": effect["drift"],
        "drift_low": effect["low"],
        "drift_high": effect["high"],
        "standard_error": effect["standard_error"],
        "p": effect["p"],
        "p_adjusted": effect["p_adjusted"],
        "minimum_detectable": effect["minimum_detectable"],
        "minimum_detectable_few": effect["minimum_detectable_few"],
        "power_at_minimum": effect["power_at_minimum"],
        "low_equivalence": effect["low_equivalence"],
        "high_equivalence": effect["high_equivalence"],
        "equivalence_bound": effect["equivalence_bound"],
        "margin": effect["margin"],
        "within_margin": "yes" if effect["within_margin"] else "no",
        "stems_for_wanted": effect["stems_for_wanted"],
        "method": effect["method"],
        "verdict": verdict_words(effect["verdict"]),
        "verdict_key": effect["verdict"],
    }


def _sensitivity(one: Mapping[str, Any], battery: str, effect: Effect) -> Row:
    left_out, noise = effect["left_out"] or {}, effect["training_noise"] or {}
    return {
        "battery": battery,
        "arm": one["arm"],
        "reference": one["reference"],
        "drift": effect["drift"],
        "drift_low": effect["low"],
        "drift_high": effect["high"],
        "left_out": left_out.get("drift"),
        "left_out_low": left_out.get("low"),
        "left_out_high": left_out.get("high"),
        "left_out_n_stems": left_out.get("n_stems"),
        "trainings": effect["drift"] if noise else None,
        "trainings_low": noise.get("low"),
        "trainings_high": noise.get("high"),
        "trainings_standard_error": noise.get("standard_error"),
        "trainings_detectable": noise.get("minimum_detectable"),
        "across_instances": "yes" if effect["across_instances"] else "no",
    }


def _totals(view: View) -> Iterator[Row]:
    for one in view.document["comparisons"]:
        total = one["total"]
        if total is None:
            continue
        row: dict[str, Any] = {
            "arm": one["arm"],
            "reference": one["reference"],
            "n_batteries": total["n_batteries"],
            "total": total["drift"],
            "total_low": total["low"],
            "total_high": total["high"],
            "standard_error": total["standard_error"],
        }
        for name in view.dispositions:
            part = one["batteries"].get(name, {}) if name in total["parts"] else {}
            row |= {
                f"part_{name}": part.get("drift"),
                f"part_{name}_low": part.get("low"),
                f"part_{name}_high": part.get("high"),
                f"part_{name}_n_stems": part.get("n_stems"),
            }
        yield row


def _stems(row: Row) -> Child:
    out = row["n_left_out"]
    return join(str(row["n_stems"]), " ", tag("small", f"{out} left out") if out else None)


def _detectable(view: View, row: Row) -> Child:
    """By standard errors alone, and for stems as few as these."""
    few = row["minimum_detectable_few"]
    text = view.scale.change(row["minimum_detectable"])
    return text if few is None else join(text, " ", tag("small", f"({view.scale.change(few)})"))


def _bound(view: View, row: Row) -> Child:
    """The bound, and the interval that it is read from."""
    ends = view.scale.ends(row["low_equivalence"], row["high_equivalence"])
    text = view.scale.change(row["equivalence_bound"])
    return join(text, " ", tag("small", ends)) if ends else text


def _verdict() -> Column:
    return Column(
        head="verdict", keys=("verdict",), show=lambda row: verdict_mark(row["verdict_key"])
    )
