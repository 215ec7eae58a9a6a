"""The tables that qualify a score: gates, combiners, sensitivity, covariates, ablation, bounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from eps_locked.report.absent import Blank
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
)
from eps_locked.report.sheets import (
    Column,
    Row,
    Sheet,
    count,
    figure,
    number,
    score_column,
    score_figure,
    share,
    why_not,
    with_interval,
    words,
)

_MEASURED, _ALL_CELLS = "measured G", "all cells"


def control_sheets(scores: Scores) -> tuple[Sheet, ...]:
    """All of them, each over all behaviours."""
    return (
        _gates(scores),
        _combiners(scores),
        _sensitivity(scores),
        _covariates(scores),
        _blind(scores),
        _censoring(scores),
        _scored_cells(scores),
        _replication(scores),
    )


def _gates(scores: Scores) -> Sheet:
    rows: list[Row] = []
    for group in groups(scores):
        if group.get("gates"):
            measured = {"behaviour": group["behaviour"], "metric": "", "title": _MEASURED}
            rows += [{**measured, **row} for row in _gate_rows(group["gates"])]
        for one in best_first(group):
            about = named(scores, group, one["metric"])
            rows += [{**about, **row} for row in _gate_rows(one["gates"])]
    return Sheet(
        file="gates.csv",
        what="Qualitative gates",
        columns=(
            predictor_column("of"),
            words("gate", "gate"),
            Column(head="result", keys=("status",), show=_status),
            with_interval("effect", "effect", sign=True, shown=figure),
            p_value("p", "p"),
            p_value("p, other way", "p_opposite"),
            why_not(),
        ),
        rows=tuple(rows),
        blank=Blank(
            values=("status", "effect", "p", "p_opposite"),
            apart=(_MEASURED,),
            kind=lambda row: str(row["gate"]),
            noun=("gate", "gates"),
        ),
    )


def _gate_rows(gates: Mapping[str, Any] | None) -> Iterator[dict[str, Any]]:
    for name, found in (gates or {}).items():
        counts = {key: value for key, value in found.items() if key.startswith("n_")}
        yield {
            "gate": name,
            "status": found["status"],
            "effect": found["effect"],
            "effect_low": found["low"],
            "effect_high": found["high"],
            "p": found["p"],
            "p_opposite": found["p_opposite"],
            "reason": found["reason"],
            **counts,
        }


_SIGNS = {"passed": "✓", "failed": "✗", "undetermined": "?"}


def _status(row: Row) -> Child:
    status = row["status"]
    return tag("span", f"{_SIGNS.get(status, '–')} {status}", class_=f"status {status}")


def _combiners(scores: Scores) -> Sheet:
    rows = []
    for group in groups(scores):
        for one in group["combiners"]:
            about = {
                "behaviour": group["behaviour"],
                "combiner": one["name"],
                "pooled_fit": one["pooled_fit"],
                "inputs": " ".join(one["inputs"]),
            }
            rows.append(
                {
                    **about,
                    "part": _ALL_CELLS,
                    "n": (one["r2"] or {}).get("n"),
                    "reason": one["reason"],
                    **flat("spearman", one["spearman"]),
                    **flat("r2", one["r2"]),
                    "best_single_r2": ((one["best_single"] or {}).get("r2") or {}).get("value"),
                    "best_single": _chosen(one["best_single"]),
                    "additive_r2": one["additive_r2"],
                    **flat("delta_r2", one["delta_r2"]),
                }
            )
            for part, found in (one["parts"] or {}).items():
                rows.append(
                    {
                        **about,
                        "part": part,
                        "n": found["n"],
                        "reason": found.get("reason"),
                        "r2": found["r2"],
                        "best_single_r2": found["best_single_r2"],
                        "additive_r2": found["additive_r2"],
                        **flat("delta_r2", found["delta_r2"]),
                    }
                )
    return Sheet(
        file="combiners.csv",
        what="Combiners of several predictors",
        columns=(
            Column(head="combiner", keys=("combiner",), show=_combiner_words, kind="wide"),
            words("part", "part"),
            count("n", "n"),
            with_interval("R², out of fold", "r2"),
            Column(
                head="best single",
                keys=("best_single_r2", "best_single"),
                show=_single_words,
                kind="num",
            ),
            score_column("R², additive", "additive_r2"),
            with_interval("gain over the single", "delta_r2", sign=True),
            null_column("gain, permuted", "delta_r2"),
            p_value("p", "delta_r2_p"),
        ),
        rows=tuple(_filled(rows)),
        blank=Blank(
            values=("r2", "best_single_r2", "additive_r2", "delta_r2", "delta_r2_p"),
            reasons=("reason", "r2_reason", "delta_r2_reason"),
            item=lambda row: str(row["combiner"]),
            items="combiners",
            kind=lambda row: row["part"] if row["part"] == _ALL_CELLS else f"{row['part']} part",
        ),
    )


def _filled(rows: list[dict[str, Any]]) -> Iterator[Row]:
    """Every row with every field; None where it has none."""
    names = dict.fromkeys(key for row in rows for key in row)
    return ({name: row.get(name) for name in names} for row in rows)


def _chosen(best: Mapping[str, Any] | None) -> str | None:
    """Which predictor was the best single one, in how many folds."""
    if not best:
        return None
    return ", ".join(f"{metric} in {n}" for metric, n in best["chosen"].items())


def _combiner_words(row: Row) -> Child:
    if row["part"] != _ALL_CELLS:
        return str(row["combiner"])
    text = join(row["combiner"], " ", tag("small", row["inputs"]))
    return text if row["reason"] is None else join(text, " ", tag("small", row["reason"]))


def _single_words(row: Row) -> Child:
    text = score_figure(row["best_single_r2"])
    return (
        join(text, " ", tag("small", row["best_single"], class_="why"))
        if row["best_single"]
        else text
    )


def _sensitivity(scores: Scores) -> Sheet:
    def rows(one: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        yield {
            "included": "nothing: as scored",
            "n": one["spearman"]["n"],
            "spearman": one["spearman"]["value"],
            "r2": one["r2"]["leave_two_out"]["value"],
            "additive_r2": beyond(one)["additive_out_of_fold_r2"],
            "reason": one["r2"]["leave_two_out"]["reason"],
        }
        for found in one["sensitivity"] or ():
            yield {
                "included": ", ".join(found["included"]),
                **{key: found[key] for key in ("n", "spearman", "r2", "additive_r2")},
                "reason": None,
            }

    return Sheet(
        file="sensitivity.csv",
        what="Scores with flagged cells in again",
        columns=(
            predictor_column(),
            words("in again", "included", wide=True),
            count("cells", "n"),
            score_column("Spearman", "spearman", sign=True),
            score_column("R², out of fold", "r2"),
            score_column("R², additive", "additive_r2"),
        ),
        rows=each(scores, rows),
        blank=Blank(
            values=("spearman", "r2", "additive_r2"),
            kind=lambda row: f"“{row['included']}”",
        ),
    )


def _covariates(scores: Scores) -> Sheet:
    def rows(one: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        found = one["over_covariates"] or {}
        yield {
            "covariates": " ".join(found.get("names") or ()),
            "covariates_r2": found.get("covariates_r2"),
            "with_predictor_r2": found.get("with_predictor_r2"),
            **flat("delta_r2", found.get("delta_r2")),
        }

    return Sheet(
        file="covariates.csv",
        what="Gain over implant strength and prefix length",
        columns=(
            predictor_column(),
            words("covariates", "covariates", aside=True),
            score_column("R², covariates", "covariates_r2"),
            score_column("covariates + it", "with_predictor_r2"),
            with_interval("gain in R²", "delta_r2", sign=True),
            null_column("gain, permuted", "delta_r2"),
            p_value("p", "delta_r2_p"),
        ),
        rows=each(scores, rows),
        blank=Blank(
            values=("covariates_r2", "with_predictor_r2", "delta_r2", "delta_r2_p"),
            reasons=("delta_r2_reason",),
        ),
    )


def _blind(scores: Scores) -> Sheet:
    def rows(one: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        found = one["blind"]
        yield {
            "r2": one["r2"]["leave_two_out"]["value"],
            "blind_spearman": found["spearman"],
            **flat("blind_r2", found["r2"]),
            **flat("difference", found["difference"]),
            "beats": found["beats"],
            "reason": found["reason"],
        }

    return Sheet(
        file="behaviour-blind.csv",
        what="Each metric beside its behaviour-blind ablation",
        columns=(
            predictor_column(),
            score_column("own R²", "r2"),
            with_interval("blind R²", "blind_r2"),
            with_interval("difference", "difference", sign=True),
            words("beats it", "beats"),
            why_not(),
        ),
        rows=each(scores, rows),
        # Its own R² is the leaderboard's; without the ablation there is nothing to set beside it.
        blank=Blank(values=("blind_spearman", "blind_r2", "difference", "beats")),
    )


def _censoring(scores: Scores) -> Sheet:
    def rows(one: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        found = one["tobit"]
        yield {
            "n": found["n"],
            "n_low": found["n_low"],
            "n_high": found["n_high"],
            "share_at_a_bound": found["share"],
            "tobit_slope": (found["tobit"] or {}).get("slope"),
            "tobit_converged": (found["tobit"] or {}).get("converged"),
            "ols_slope": (found["ols"] or {}).get("slope"),
            "reason": found["reason"],
        }

    return Sheet(
        file="censoring.csv",
        what="Slopes where cells sit at a bound",
        columns=(
            predictor_column(),
            count("cells", "n"),
            share("at a bound", "share_at_a_bound"),
            number("slope, Tobit", "tobit_slope", 3, sign=True),
            number("slope, least squares", "ols_slope", 3, sign=True),
            why_not(),
        ),
        rows=each(scores, rows),
        blank=Blank(values=("tobit_slope", "ols_slope")),
    )


def _scored_cells(scores: Scores) -> Sheet:
    rows = []
    for group in scores["behaviours"]:
        cells = group["cells"]
        for reason, n in cells["excluded"].items():
            rows.append(
                {
                    "behaviour": group["behaviour"],
                    "reason": reason,
                    "n_cells": n,
                    "n_only_for_this": cells["excluded_only_for"].get(reason),
                }
            )
    return Sheet(
        file="left-out.csv",
        what="Cells left out of scoring, by reason",
        columns=(
            words("reason", "reason"),
            count("cells", "n_cells"),
            count("for this alone", "n_only_for_this"),
        ),
        rows=tuple(rows),
    )


def _replication(scores: Scores) -> Sheet:
    rows = [
        {
            "behaviour": group["behaviour"],
            "seeds": " and ".join(map(str, pair["seeds"])),
            **{key: value for key, value in pair.items() if key != "seeds"},
        }
        for group in scores["behaviours"]
        for pair in group["replication"]["pairs"]
    ]
    return Sheet(
        file="replication.csv",
        what="Agreement between seeds",
        columns=(
            words("seeds", "seeds"),
            count("cells", "n"),
            number("Pearson", "pearson", 3),
            number("RMS difference", "rms", 3),
            count("scored cells", "n_scored"),
            number("Pearson, scored", "pearson_scored", 3),
            number("RMS, scored", "rms_scored", 3),
        ),
        rows=tuple(rows),
    )
