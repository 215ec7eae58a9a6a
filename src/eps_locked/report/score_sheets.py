"""The scores as tables: who predicts G, beyond what, on which part of it.

One function a table, each over all behaviours. ``control_sheets`` has the tables that qualify them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from eps_locked.report.absent import Blank
from eps_locked.report.control_sheets import control_sheets
from eps_locked.report.figures import bar, whisker
from eps_locked.report.html import Child, join, tag
from eps_locked.report.score_rows import (
    Scores,
    best_first,
    beyond,
    each,
    flat,
    groups,
    named,
    null_column,
    p_value,
    predictor_column,
    require_scores,
)
from eps_locked.report.sheets import (
    Column,
    Row,
    Sheet,
    count,
    number,
    score_column,
    share,
    with_interval,
    words,
)

_PARTS = ("symmetric", "antisymmetric", "additive", "interaction", "noise")


def score_sheets(scores: Scores | None) -> dict[str, Sheet]:
    """Every table of the scores by name; none without a document."""
    if scores is None:
        return {}
    require_scores(scores)
    sheets = (
        _leaderboard(scores),
        _over_additive(scores),
        _families(scores),
        _decomposition(scores),
        _parts(scores),
        *control_sheets(scores),
    )
    return {sheet.file.removesuffix(".csv"): sheet for sheet in sheets}


def _leaderboard(scores: Scores) -> Sheet:
    about = {one["metric"]: one for one in scores["predictors"]}
    rows = []
    for group in groups(scores):
        adjusted = {one["metric"]: one for one in group["multiplicity"]}
        for rank, one in enumerate(best_first(group), start=1):
            metric = one["metric"]
            rows.append(
                {
                    **named(scores, group, metric),
                    "rank": rank,
                    **{key: about[metric][key] for key in ("author", "track", "polarity")},
                    "n": one["spearman"]["n"],
                    **flat("spearman", one["spearman"]),
                    "spearman_oriented": one["spearman"]["oriented"],
                    **flat("r2", one["r2"]["leave_two_out"]),
                    **flat("r2_leave_one_out", one["r2"]["leave_one_out"]),
                    "additive_r2": beyond(one)["additive_out_of_fold_r2"],
                    "holm": adjusted.get(metric, {}).get("holm"),
                    "benjamini_hochberg": adjusted.get(metric, {}).get("benjamini_hochberg"),
                    "smallest_significant": one["resolution"]["smallest_significant"],
                    "minimum_detectable": one["resolution"]["minimum_detectable"],
                    "digest": about[metric]["digest"],
                }
            )
    return Sheet(
        file="leaderboard.csv",
        what="Leaderboard of the predictors",
        columns=(
            Column(
                head="predictor",
                keys=("title", "metric", "track"),
                show=lambda row: join(
                    row["title"], " ", tag("small", f"{row['metric']}, {row['track']}")
                ),
            ),
            _whiskered("Spearman"),
            p_value("p", "spearman_p"),
            score_column("detectable", "minimum_detectable"),
            with_interval("R², two out", "r2"),
            null_column("R², permuted", "r2"),
            p_value("p", "r2_p"),
            p_value("Holm p", "holm"),
            with_interval("R², one out", "r2_leave_one_out"),
            score_column("R², additive", "additive_r2"),
        ),
        rows=tuple(rows),
        blank=Blank(
            values=(
                *("spearman", "minimum_detectable", "r2", "r2_leave_one_out", "additive_r2"),
                *("spearman_p", "r2_p", "holm"),
            ),
            reasons=("r2_reason", "spearman_reason"),
        ),
    )


def _over_additive(scores: Scores) -> Sheet:
    def rows(one: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        found = beyond(one)
        yield {
            "r2": one["r2"]["leave_two_out"]["value"],
            "additive_in_sample_r2": found["additive_r2"],
            "additive_r2": found["additive_out_of_fold_r2"],
            "with_predictor_r2": found["with_predictor_r2"],
            **flat("delta_r2", found["delta_r2"]),
        }

    return Sheet(
        file="over-additive.csv",
        what="Gain over the additive row + column model",
        columns=(
            predictor_column(),
            score_column("own R²", "r2"),
            score_column("R², additive, in sample", "additive_in_sample_r2"),
            score_column("R², additive", "additive_r2"),
            score_column("additive + it", "with_predictor_r2"),
            with_interval("gain in R²", "delta_r2", sign=True),
            null_column("gain, permuted", "delta_r2"),
            p_value("p", "delta_r2_p"),
        ),
        rows=each(scores, rows),
        blank=Blank(
            values=(
                *("r2", "additive_in_sample_r2", "additive_r2", "with_predictor_r2"),
                *("delta_r2", "delta_r2_p"),
            ),
            reasons=("delta_r2_reason",),
        ),
    )


def _whiskered(head: str) -> Column:
    plain = with_interval(head, "spearman", sign=True)

    def show(row: Row) -> Child:
        line = whisker(
            row["spearman"], row["spearman_low"], row["spearman_high"], row["spearman_null_high"]
        )
        return join(plain.show(row), line)

    return replace(plain, show=show)


def _families(scores: Scores) -> Sheet:
    def rows(one: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        for side in ("within", "cross"):
            found = one[f"{side}_family"]
            yield {
                "families": side,
                "n": found["n"],
                **flat("spearman", found["spearman"]),
                **flat("r2", found["r2"]),
            }

    return Sheet(
        file="families.csv",
        what="Scores within and across families of contexts",
        columns=(
            predictor_column(),
            words("families", "families"),
            count("cells", "n"),
            with_interval("Spearman", "spearman", sign=True),
            p_value("p", "spearman_p"),
            with_interval("R², out of fold", "r2"),
            null_column("R², permuted", "r2"),
            p_value("p", "r2_p"),
        ),
        rows=each(scores, rows),
        blank=Blank(
            values=("spearman", "spearman_p", "r2", "r2_p"),
            reasons=("r2_reason", "spearman_reason"),
            kind=lambda row: f"{row['families']}-family",
            noun=("cells", "cells"),
        ),
    )


def _decomposition(scores: Scores) -> Sheet:
    """Shares of the off-diagonal variation of the square part, as measured and without noise."""
    rows = []
    for group in scores["behaviours"]:
        found = group["decomposition"]
        if found["reason"] is not None:
            continue
        noise = found["noise"] or {}
        total = found["total"]
        corrected = {
            "symmetric": noise.get("symmetric_cap"),
            "antisymmetric": noise.get("antisymmetric_share"),
            "additive": noise.get("additive_r2"),
            "interaction": _rest(noise.get("additive_r2")),
        }
        for part in _PARTS:
            squares = noise.get("total") if part == "noise" else found[part]
            rows.append(
                {
                    "behaviour": group["behaviour"],
                    "part": part,
                    "sum_of_squares": squares,
                    "share": squares / total if squares is not None and total else None,
                    "share_without_noise": corrected.get(part),
                }
            )
    return Sheet(
        file="decomposition.csv",
        what="Parts of the variation of G in the square part",
        columns=(
            words("part", "part"),
            share("as measured", "share"),
            Column(
                head="share of the variation",
                keys=(),
                show=lambda row: bar(row["part"], row["share"], row["share_without_noise"]),
                kind="wide",
            ),
            share("noise taken off", "share_without_noise"),
            number("sum of squares", "sum_of_squares"),
        ),
        rows=tuple(rows),
    )


def _rest(value: float | None) -> float | None:
    return None if value is None else 1 - value


def _parts(scores: Scores) -> Sheet:
    def rows(one: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        for part, found in one["parts"].items():
            yield {
                "part": part,
                "n": found["n"],
                "zero_by_construction": found["zero_by_construction"],
                "reason": found["reason"],
                **flat("spearman", found["spearman"]),
                **flat("r2", found["r2"]),
                "additive_r2": found["additive_r2"],
                "with_predictor_r2": found["with_predictor_r2"],
                **flat("delta_r2", found["delta_r2"]),
            }

    return Sheet(
        file="parts.csv",
        what="Scores on the parts of G",
        columns=(
            predictor_column(),
            Column(head="part", keys=("part",), show=_part_words),
            count("n", "n"),
            with_interval("own R²", "r2"),
            null_column("R², permuted", "r2"),
            score_column("R², additive", "additive_r2"),
            score_column("additive + it", "with_predictor_r2"),
            with_interval("gain in R²", "delta_r2", sign=True),
            null_column("gain, permuted", "delta_r2"),
            p_value("p", "delta_r2_p"),
        ),
        rows=each(scores, rows),
        blank=Blank(
            values=(
                *("spearman", "r2", "additive_r2", "with_predictor_r2"),
                *("delta_r2", "delta_r2_p"),
            ),
            reasons=("reason", "r2_reason", "delta_r2_reason"),
            kind=lambda row: str(row["part"]),
            noun=("part", "parts"),
        ),
    )


def _part_words(row: Row) -> Child:
    if row["zero_by_construction"]:
        return join(row["part"], " ", tag("small", "0 by construction"))
    if row["reason"] is not None:
        return join(row["part"], " ", tag("small", row["reason"]))
    return str(row["part"])
