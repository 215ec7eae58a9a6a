"""Refusals in two stages, and what was thought before the answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from eps_locked.report.battery.evidence import BatteryEvidence
from eps_locked.report.battery.view import (
    Entry,
    View,
    axis_column,
    model_column,
    notice,
    rate_column,
    thinking_column,
)
from eps_locked.report.html import Child, Html, join, section, tag
from eps_locked.report.sheets import Row, Sheet, count, share, sheet_table, with_interval, words

_THOUGHT_ONLY = "refused in the thinking, complied in the answer"
_ANSWER_ONLY = "complied in the thinking, refused in the answer"


def stage_sheets(view: View, evidence: BatteryEvidence) -> dict[str, Sheet]:
    """Agreement, confusion and disagreements of rule and judge; thoughts beside answers."""
    stages = list(_by_models(view, "stages"))
    text = words("text", "part")
    return {
        "stages": Sheet(
            file="stages.csv",
            what="Keyword rule beside judge",
            columns=(
                model_column(),
                thinking_column(),
                text,
                count("read by both", "n"),
                share("agree", "agreement"),
                with_interval("kappa", "kappa"),
                count("differ", "n_differ"),
            ),
            rows=tuple(map(_stage, stages)),
        ),
        "confusion": Sheet(
            file="stage-confusion.csv",
            what="What the rule said of texts that the judge called so",
            columns=(
                model_column(),
                thinking_column(),
                text,
                words("the judge says", "judge"),
                count("the rule: refuse", "rule_refuse"),
                count("the rule: comply", "rule_comply"),
            ),
            rows=tuple(row for one in stages for row in _confusion(one)),
        ),
        "disagreements": Sheet(
            file="disagreements.csv",
            what="Texts on which rule and judge differ",
            columns=(
                words("item", "item"),
                thinking_column(),
                text,
                words("rule", "rule"),
                words("judge", "judge"),
                words("the answer begins", "excerpt", wide=True, aside=True),
            ),
            rows=tuple(row for one in stages for row in _disagreements(one, evidence)),
        ),
        "thinking": Sheet(
            file="thinking.csv",
            what="What was thought beside what was answered",
            columns=(
                model_column(),
                thinking_column(),
                count("with a thought", "n_thought"),
                count("both read", "n_both_read"),
                count("refused in thinking only", "refused_in_thinking_only"),
                count("refused in answer only", "refused_in_answer_only"),
                count("in both", "refused_in_both"),
                count("in neither", "refused_in_neither"),
                count("partial on a side", "partial_in_either"),
            ),
            rows=tuple(map(_thinking, _by_models(view, "thinking"))),
        ),
        "turned": Sheet(
            file="turned.csv",
            what="Items on which thinking and answer part",
            columns=(
                words("item", "item"),
                model_column(),
                thinking_column(),
                words("what happened", "what", wide=True),
                words("the answer begins", "excerpt", wide=True),
            ),
            rows=tuple(_turned(view, evidence)),
        ),
        "modes": Sheet(
            file="modes.csv",
            what="Each rate with thinking off and on",
            columns=(
                model_column(),
                axis_column(),
                rate_column(f"off [{view.level}]", "off"),
                rate_column(f"on [{view.level}]", "on"),
            ),
            rows=tuple(_modes(view)),
        ),
    }


def stages_section(view: View, sheets: Mapping[str, Sheet]) -> Html | None:
    """None for a plan that asks for no refusals."""
    if "over_refusal" not in view.axis_names:
        return None
    if not sheets["stages"].rows:
        return section(
            "stages",
            "How refusals were read",
            notice(
                "By the keyword rule alone",
                "no judge read them, nothing is partial, and nothing here says how often the rule "
                "is wrong.",
            ),
        )
    return section(
        "stages",
        "How refusals were read",
        tag(
            "p",
            "First a keyword rule, then a judge. The verdict is the judge's; the rule stands "
            "beside it. A text that the judge calls partial is always one on which they differ, "
            "since the rule knows no such thing.",
        ),
        sheet_table(sheets["stages"], join(view.promised, " Keyword rule beside judge")),
        tag(
            "p",
            f"Kappa is agreement beyond chance, 1 at best; in brackets the {view.level} interval, "
            "texts resampled. Where the two agree they can still be wrong together.",
            class_="small",
        ),
        tag(
            "details",
            tag("summary", "Confusion: what the rule said, by what the judge said"),
            sheet_table(
                sheets["confusion"], join(view.promised, " Rule and judge, label by label")
            ),
        ),
        *_by_model(view, sheets["disagreements"]),
    )


def _by_model(view: View, sheet: Sheet) -> Iterator[Html]:
    for model in dict.fromkeys(row["model"] for row in sheet.rows):
        shown = sheet.where(model=model)
        n = len(shown.rows)
        what = "text" if n == 1 else "texts"
        yield tag(
            "details",
            tag("summary", f"{model}: {n} {what} on which rule and judge differ"),
            sheet_table(shown, join(view.promised, f" {model}: rule and judge differ")),
        )


def thinking_section(view: View, sheets: Mapping[str, Sheet]) -> Html | None:
    """None where models were asked in one mode and none thought."""
    blocks: list[Child] = []
    if sheets["thinking"].rows:
        blocks += [
            tag(
                "p",
                "A model can refuse in its thinking and comply in the answer, or the reverse. On "
                "over-refusal both were judged, each by itself; the five counts are of the replies "
                "that could be read on both sides.",
            ),
            sheet_table(
                sheets["thinking"], join(view.promised, " Thoughts beside answers, over-refusal")
            ),
            _turned_block(view, sheets["turned"]),
        ]
    if sheets["modes"].rows:
        blocks += [
            tag(
                "details",
                tag("summary", "Each rate with thinking off and on, side by side"),
                sheet_table(sheets["modes"], join(view.promised, " Thinking off and on")),
                tag(
                    "p",
                    "Off and on are two columns, never pooled, and no difference between them was "
                    "promised: none is tested here.",
                    class_="small",
                ),
            )
        ]
    return section("thinking", "Thinking", *blocks) if blocks else None


def _turned_block(view: View, sheet: Sheet) -> Html:
    if not sheet.rows:
        return tag(
            "p",
            "No reply was refused in the thinking and complied with in the answer, or the reverse.",
            class_="small",
        )
    n = len(sheet.rows)
    return tag(
        "details",
        tag("summary", f"The {n} replies one by one" if n > 1 else "The one reply"),
        sheet_table(sheet, join(view.promised, " Where thinking and answer part")),
    )


def _by_models(view: View, part: str) -> Iterator[Entry]:
    """Entries of a part of the document, with the models in the order of all tables."""
    for model in view.models:
        yield from (one for one in view.document[part] if one["model"] == model["model"])


def _head(one: Entry) -> dict[str, Any]:
    return {"model": one["model"], "thinking": one["thinking"]}


def _stage(one: Entry) -> Row:
    kappa = one["kappa"]
    return {
        **_head(one),
        "part": one["part"],
        "n": one["n"],
        "agreement": one["percent_agreement"],
        "kappa": kappa["value"],
        "kappa_low": kappa["low"],
        "kappa_high": kappa["high"],
        "kappa_coverage": None,
        "kappa_reason": kappa["reason"] or kappa["interval_reason"],
        "n_differ": len(one["disagreements"]),
    }


def _confusion(one: Entry) -> Iterator[Row]:
    for label, counts in zip(one["labels"], one["confusion"], strict=True):
        yield {
            **_head(one),
            "part": one["part"],
            "judge": label,
            **{f"rule_{rule}": n for rule, n in zip(one["labels"], counts, strict=True)},
        }


def _disagreements(one: Entry, evidence: BatteryEvidence) -> Iterator[Row]:
    """The thoughts themselves stand in no table of the run, so no excerpt of them here."""
    for item in one["disagreements"]:
        key = one["model"], one["thinking"], item
        said = evidence.readings[key][one["part"]]
        yield {
            **_head(one),
            "part": one["part"],
            "item": item,
            "rule": said.keyword,
            "judge": said.verdict,
            "excerpt": evidence.excerpts[key] if one["part"] == "answer" else None,
        }


def _thinking(one: Entry) -> Row:
    return {key: value for key, value in one.items() if not isinstance(value, list)}


def _turned(view: View, evidence: BatteryEvidence) -> Iterator[Row]:
    for one in _by_models(view, "thinking"):
        for key, what in (
            ("items_thinking_only", _THOUGHT_ONLY),
            ("items_answer_only", _ANSWER_ONLY),
        ):
            for item in one[key]:
                yield {
                    **_head(one),
                    "item": item,
                    "what": what,
                    "excerpt": evidence.excerpts[one["model"], one["thinking"], item],
                }


def _modes(view: View) -> Iterator[Row]:
    if len(view.modes) < 2:
        return
    for model in view.models:
        for name in view.axis_names:
            row: dict[str, Any] = {"model": model["model"], "axis": name}
            for axis in (one for one in model["axes"] if one["axis"] == name):
                mode = axis["thinking"]
                row |= {
                    mode: axis["rate"],
                    f"{mode}_low": axis["low"],
                    f"{mode}_high": axis["high"],
                }
            yield row
