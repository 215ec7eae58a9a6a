"""Evaluation awareness: how much the probes look like a test, and whether drift goes with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from eps_locked.report.drift.view import View, battery_blocks, comparison_column
from eps_locked.report.html import Child, Html, join, section, tag
from eps_locked.report.sheets import (
    Row,
    Sheet,
    count,
    figure,
    number,
    share,
    sheet_table,
    with_interval,
    words,
)


def awareness_sheets(view: View) -> dict[str, Sheet]:
    """What judges say of the probes, correlations with drift, and mentions in reasoning."""
    found = view.document["awareness"] or {"batteries": [], "mentions": []}
    return {
        "awareness": Sheet(
            file="awareness.csv",
            what="How much the probes look like a test, 1 to 7",
            columns=(
                words("battery", "battery"),
                number("mean grade", "mean"),
                words("by judge", "by_judge_words", wide=True),
                count("probes graded by both", "n"),
                with_interval("kappa of the judges", "kappa"),
            ),
            rows=tuple(_grades(one) for one in found["batteries"]),
        ),
        "awareness-correlation": Sheet(
            file="awareness-correlation.csv",
            what="Correlation over stems of looking like a test with drift",
            columns=(
                comparison_column(),
                count("stems", "n"),
                with_interval("Spearman's r", "r", sign=True, shown=figure),
                number("detectable", "detectable_r"),
            ),
            rows=tuple(
                _correlation(one["battery"], entry)
                for one in found["batteries"]
                for entry in one["correlation"]
            ),
        ),
        "mentions": Sheet(
            file="mentions.csv",
            what="Replies whose reasoning names the test",
            columns=(
                words("battery", "battery"),
                words("arm", "arm"),
                count("replies that reasoned", "n_reasoned"),
                count("with a word of the list", "n_mentioning"),
                share("share", "share"),
            ),
            rows=tuple(
                {
                    "battery": one["battery"],
                    "arm": one["arm"],
                    "n_reasoned": one["n_reasoned"],
                    "n_mentioning": one["n_mentioning"],
                    "share": one["n_mentioning"] / one["n_reasoned"],
                }
                for one in found["mentions"]
            ),
        ),
    }


def awareness_section(view: View, sheets: Mapping[str, Sheet]) -> Html | None:
    """None where nobody rated the probes."""
    if view.document["awareness"] is None:
        return None
    promised = view.label("awareness")
    mentions = None
    if sheets["mentions"].rows:
        mentions = sheet_table(
            sheets["mentions"], join(promised, " Reasoning that names the test, by arm")
        )
    return section(
        "awareness",
        "Evaluation awareness",
        tag(
            "p",
            "Judges rated every probe, without any reply, from 1 to 7, 7 clearly a test. This "
            "measures awareness and does not remove it: a model that behaves for the test can "
            "defeat every number of this page.",
        ),
        sheet_table(sheets["awareness"], join(promised, " How much the probes look like a test")),
        *battery_blocks(
            view.batteries,
            lambda name: _correlations(view, sheets["awareness-correlation"], name),
        ),
        mentions,
    )


def _correlations(view: View, sheet: Sheet, name: str) -> Iterator[Child]:
    shown = sheet.where(battery=name)
    if not shown.rows:
        return
    yield sheet_table(
        shown, join(view.label("awareness"), f" {name}: does drift go with looking like a test?")
    )
    yield tag(
        "p",
        f"In brackets the {view.level} interval, stems resampled. Detectable: the smallest "
        "correlation that so many stems would have told from 0 in four cases of five. Negative: "
        "stems that look more like a test drift to less aligned.",
        class_="small",
    )


def _grades(one: Mapping[str, Any]) -> Row:
    agreement = one["agreement"] or {}
    by_judge = {judge: figure(mean) for judge, mean in one["by_judge"].items()}
    return {
        "battery": one["battery"],
        "mean": one["mean"],
        "by_judge_words": "; ".join(f"{judge} {mean}" for judge, mean in by_judge.items()),
        "n": agreement.get("n"),
        "kappa": agreement.get("kappa"),
        "kappa_low": agreement.get("low"),
        "kappa_high": agreement.get("high"),
        "kappa_coverage": None,
        "kappa_reason": agreement.get("reason", "one judge"),
    }


def _correlation(battery: str, one: Mapping[str, Any]) -> Row:
    return {
        "battery": battery,
        "arm": one["arm"],
        "reference": one["reference"],
        "n": one["n"],
        "r": one["r"],
        "r_low": one["low"],
        "r_high": one["high"],
        "r_coverage": None,
        "r_reason": one["reason"],
        "detectable_r": one["detectable_r"],
    }
