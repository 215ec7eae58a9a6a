"""Null tests: each arm against itself, where the truth is no drift at all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from scipy.stats import binom

from eps_locked.report.charts import Strip, strip_chart
from eps_locked.report.drift.view import METHOD, View, battery_blocks, change_column, width_column
from eps_locked.report.html import Child, Html, join, section, tag
from eps_locked.report.sheets import (
    Column,
    Row,
    Sheet,
    count,
    figure,
    sheet_table,
    words,
)

# The range that chance alone keeps a count in, this often.
_RANGE = 0.95


def null_sheets(view: View) -> dict[str, Sheet]:
    """Every null test, and how many of them leave 0 out."""
    scale = view.scale
    return {
        "null-summary": Sheet(
            file="null-summary.csv",
            what="Null tests whose interval leaves 0 out, beside what chance alone would give",
            columns=(
                words("battery", "battery"),
                count("null tests", "n"),
                count("intervals without 0", "n_excluding"),
                Column(
                    head="expected by chance",
                    keys=("expected", "expected_low", "expected_high"),
                    show=_expected,
                    kind="num",
                ),
                Column(
                    head=f"mean, {scale.short}",
                    keys=("mean",),
                    show=lambda row: scale.change(row["mean"], sign=True),
                    kind="num",
                ),
                width_column(scale, "typical size", "typical_absolute"),
            ),
            rows=tuple(_summary(view, one) for one in view.document["null_summary"]),
        ),
        "nulls": Sheet(
            file="nulls.csv",
            what="Each arm against itself",
            columns=(
                words("arm", "arm"),
                words("samples", "samples", aside=True),
                count("stems", "n_stems"),
                replace(change_column(scale, "difference", "difference"), remarks=METHOD),
                width_column(scale, "standard error", "standard_error"),
                words("leaves 0 out", "excludes_zero"),
            ),
            rows=tuple(
                {
                    "battery": one["battery"],
                    "arm": one["arm"],
                    "samples": " and ".join(map(str, one["samples"])),
                    "n_stems": one["n_stems"],
                    "difference": one["difference"],
                    "difference_low": one["low"],
                    "difference_high": one["high"],
                    "standard_error": one["standard_error"],
                    "excludes_zero": "yes" if one["excludes_zero"] else "no",
                    "method": one["method"],
                }
                for one in view.document["nulls"]
            ),
        ),
    }


def nulls_section(view: View, sheets: Mapping[str, Sheet]) -> Html:
    """The count first, then every test."""
    promised = view.label("nulls")
    if not sheets["nulls"].rows:
        return section(
            "nulls",
            "Null tests",
            tag(
                "p",
                tag("b", "None: "),
                "replies were not sampled twice, so nothing here shows what measuring twice does "
                "by itself.",
                class_="notice",
            ),
        )
    chance = (1 - view.settings["confidence_level"]) * 100
    return section(
        "nulls",
        "Null tests",
        tag(
            "p",
            "Two samples of the same arm, taken in the same run: the true difference is 0, and "
            f"about {figure(chance, 0)} in 100 intervals leave it out all the same. Many more "
            "would say that the intervals are too narrow; every drift is to be read beside these "
            "sizes.",
        ),
        sheet_table(sheets["null-summary"], join(promised, " Intervals that leave 0 out")),
        *battery_blocks(view.batteries, lambda name: _battery(view, sheets["nulls"], name)),
    )


def _battery(view: View, sheet: Sheet, name: str) -> Iterator[Child]:
    shown = sheet.where(battery=name)
    if not shown.rows:
        return
    n_tests = len(shown.rows)
    yield tag(
        "details",
        tag("summary", f"{name}: {n_tests} null test{'' if n_tests == 1 else 's'}, one by one"),
        strip_chart(
            [_strip(view, row) for row in shown.rows],
            label=f"Null tests of {name} with their intervals, {view.scale.words}",
            unit=f"difference, {view.scale.words}",
        ),
        sheet_table(shown, join(view.label("nulls"), f" {name}: each arm against itself")),
    )


def _strip(view: View, row: Row) -> Strip:
    scale = view.scale
    out = row["excludes_zero"] == "yes"
    return Strip(
        name=str(row["arm"]),
        words=join(
            scale.change(row["difference"], sign=True),
            " ",
            scale.ends(row["difference_low"], row["difference_high"]) or "no interval",
            " ",
            tag("small", f"n = {row['n_stems']} stems"),
            join(" ", tag("b", "leaves 0 out")) if out else None,
        ),
        value=row["difference"],
        low=row["difference_low"],
        high=row["difference_high"],
        shape="drift" if out else "plain",
    )


def _summary(view: View, one: Mapping[str, float]) -> Row:
    n, chance = int(one["n"]), 1 - view.settings["confidence_level"]
    low, high = chance_range(n, chance)
    return {
        "battery": one["battery"],
        "n": n,
        "n_excluding": one["n_excluding"],
        # 1 - 0.95 is not quite 0.05.
        "expected": round(n * chance, 9),
        "expected_low": low,
        "expected_high": high,
        "mean": one["mean"],
        "typical_absolute": one["typical_absolute"],
    }


def chance_range(n: int, chance: float) -> tuple[int, int]:
    """The counts of ``n`` independent events that chance alone stays within, 95 times in 100."""
    low, high = binom.interval(_RANGE, n, chance)
    return int(low), int(high)


def _expected(row: Row) -> Child:
    return join(
        figure(row["expected"], 1),
        " ",
        tag("small", f"{row['expected_low']} to {row['expected_high']}, 95 times in 100"),
    )
