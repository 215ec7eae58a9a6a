"""Where the noise of a drift comes from: classifier, model, items; trainings; server instances."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from eps_locked.report.absent import Blank
from eps_locked.report.charts import Part, stacked
from eps_locked.report.drift.view import (
    View,
    battery_blocks,
    change_column,
    comparison_column,
    width_column,
)
from eps_locked.report.html import Child, Html, join, section, tag
from eps_locked.report.sheets import (
    Column,
    Row,
    Sheet,
    count,
    share,
    sheet_table,
    words,
)

# The parts in the order in which they are stacked.
PARTS: Mapping[str, str] = {
    "classifier": "the classifier, asked again about the same reply",
    "model": "the model, asked again with the same words",
    "item": "the questions: arms differ more on some stems than on others",
}


def noise_sheets(view: View) -> dict[str, Sheet]:
    """The shares, what trainings differ by, and what instances differ by."""
    scale = view.scale
    document = view.document
    return {
        "noise": Sheet(
            file="noise.csv",
            what="Shares of the variance of each drift",
            columns=(
                comparison_column(),
                Column(head="shares", keys=(), show=_bar),
                *(share(part, part, 0) for part in PARTS),
                width_column(scale, "standard error", "standard_error"),
                count("replies classified twice", "n_twice"),
                words("set to 0", "truncated", aside=True),
            ),
            rows=tuple(_shares(view)),
            blank=Blank(values=("model", "item"), item=lambda row: str(row["arm"]), items="arms"),
        ),
        "training-noise": Sheet(
            file="training-noise.csv",
            what="What one training's result varies by",
            columns=(
                words("battery", "battery"),
                count("pairs of seeds", "n_pairs"),
                width_column(scale, "standard deviation", "standard_deviation"),
                words("remark", "note", wide=True, aside=True),
            ),
            rows=tuple(
                {
                    **{key: one[key] for key in ("battery", "n_pairs", "standard_deviation")},
                    "note": "set to 0: sampling alone explains the pairs, which does not say that "
                    "trainings agree"
                    if one["truncated"]
                    else "",
                }
                for one in document["training_noise"]
            ),
        ),
        "seeds": Sheet(
            file="seeds.csv",
            what="The same training with another seed",
            columns=(
                *_pair(),
                change_column(scale, "difference", "drift"),
                width_column(scale, "standard error", "standard_error"),
            ),
            rows=tuple(_pair_row(one, "standard_error") for one in document["seeds"]),
        ),
        "instances": Sheet(
            file="instances.csv",
            what="The same weights on another server instance",
            columns=(
                *_pair(),
                change_column(scale, "difference", "drift"),
                width_column(scale, "bound", "equivalence_bound"),
            ),
            rows=tuple(_pair_row(one, "equivalence_bound") for one in document["instances"]),
        ),
    }


def noise_section(view: View, sheets: Mapping[str, Sheet]) -> Html | None:
    """Bars of shares, each beside its numbers; None without null tests."""
    if not sheets["noise"].rows:
        return None
    return section(
        "noise",
        "Where the noise comes from",
        tag(
            "p",
            "Parts of the variance that a drift has around its truth, from replies classified "
            "twice, from sampling twice, and from what stems differ by. More stems shrink all "
            "three; a better classifier only the first, more samples only the first two.",
        ),
        tag(
            "p",
            join(
                *(
                    join(
                        tag("span", tag("span", class_=f"fill {part}"), class_="key"),
                        f" {part}: {said}. ",
                    )
                    for part, said in PARTS.items()
                )
            ),
            class_="small",
        ),
        *battery_blocks(view.batteries, lambda name: _battery(view, sheets["noise"], name)),
    )


def trainings_section(view: View, sheets: Mapping[str, Sheet]) -> Html | None:
    """What another seed and another server instance change, where a plan asked."""
    promised = view.label("drift")
    blocks: list[Child] = []
    if sheets["seeds"].rows:
        blocks += [
            tag(
                "p",
                "Two trainings on the same rows in the same order, told apart by their seed alone. "
                "The standard deviation is that of one training around the mean of all seeds, with "
                "the sampling noise of the pairs taken off; few pairs leave it uncertain.",
            ),
            sheet_table(sheets["training-noise"], join(promised, " Training noise")),
            sheet_table(sheets["seeds"], join(promised, " The other seed minus the one")),
        ]
    if sheets["instances"].rows:
        blocks += [
            tag(
                "p",
                "The same weights, served by two instances of the engine. What differs here is no "
                "drift; a comparison across instances may be off by as much as the bound.",
            ),
            sheet_table(sheets["instances"], join(promised, " The other instance minus the one")),
        ]
    if not blocks:
        return None
    return section("trainings", "Training noise and instances", *blocks)


def _battery(view: View, sheet: Sheet, name: str) -> Iterator[Child]:
    shown = sheet.where(battery=name)
    if shown.rows:
        yield sheet_table(
            shown, join(view.label("drift"), f" {name}: shares of the variance of each drift")
        )


def _shares(view: View) -> Iterator[Row]:
    for one, battery, effect in view.effects():
        noise = effect["noise"]
        if noise is None:
            continue
        yield {
            "battery": battery,
            "arm": one["arm"],
            "reference": one["reference"],
            **{part: noise[part] for part in PARTS},
            "standard_error": noise["standard_error_squared"] ** 0.5,
            "standard_error_squared": noise["standard_error_squared"],
            "n_stems": effect["n_stems"],
            "n_twice": noise["n_twice"],
            "truncated": ", ".join(noise["truncated"]),
            "reason": "no spread at all",
        }


def _bar(row: Row) -> Html:
    """The stack, and in words what a part without a number means."""
    parts = [Part(kind=part, share=row[part]) for part in PARTS if row[part] is not None]
    missing = tag("small", "classifier not told apart: nothing was classified twice")
    return join(stacked(parts), missing if row["classifier"] is None else None)


def _pair() -> tuple[Column, ...]:
    return (words("battery", "battery"), words("one", "one"), words("other", "other"))


def _pair_row(one: Mapping[str, Any], last: str) -> Row:
    return {
        "battery": one["battery"],
        "one": one["one"],
        "other": one["other"],
        "drift": one["drift"],
        "drift_low": one["low"],
        "drift_high": one["high"],
        last: one[last],
    }
