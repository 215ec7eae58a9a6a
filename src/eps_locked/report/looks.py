"""Looks at the sealed cells: how many, by whom, what they gave, and what several of them are worth.

Pure functions of plain values: submissions and looks as ``evidence`` reads them from the ledger,
and each look's final score document. A look that gave no score counts like any other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from eps_locked.report.absent import Blank
from eps_locked.report.html import Child, Html, code, join, section, tag
from eps_locked.report.score_rows import (
    FINAL_SCHEMA,
    POOLED,
    flat,
    null_column,
    p_value,
    require_scores,
)
from eps_locked.report.score_sections import label_of
from eps_locked.report.sheets import (
    Column,
    Row,
    Sheet,
    count,
    figure,
    score_column,
    score_figure,
    sheet_table,
    with_interval,
    words,
)
from eps_locked.report.units import percent
from eps_locked.stats.multiplicity import holm

Look = Mapping[str, Any]
Submission = Mapping[str, Any]
_SPLITS = {"all": "all held back", "held_out": "held-out columns", "quarantined": "quarantined"}
_SPLIT_CELLS = {
    "all": "all held-back cells",
    "held_out": "held-out columns",
    "quarantined": "quarantined cells",
}
_SIGNS = {"scored": "✓", "failed": "✗", "aborted": "✗"}


def look_sections(looks: Sequence[Look], submissions: Sequence[Submission]) -> Html:
    """The final test: submissions, every look, its scores, and the reading over all looks."""
    sheets = look_sheets(looks, submissions)
    return section(
        "looks",
        "The final test",
        tag("p", looks_in_short(looks, submissions), class_=None if looks else "notice"),
        _table(sheets["submissions"], "Frozen submissions, each before any look at it"),
        _table(sheets["looks"], "Every look at the sealed cells, whatever became of it"),
        *(_look(one, sheets["final"], len(looks)) for one in looks if one["result"] is not None),
        _adjusted(looks, sheets["looks-adjusted"]),
    )


def look_sheets(looks: Sequence[Look], submissions: Sequence[Submission]) -> dict[str, Sheet]:
    """The tables of the final test by name."""
    for one in looks:
        if one["result"] is not None:
            require_scores(one["result"], FINAL_SCHEMA)
    return {
        "submissions": _submission_sheet(looks, submissions),
        "looks": _look_sheet(looks),
        "final": _final_sheet(looks),
        "looks-adjusted": _adjusted_sheet(looks),
    }


def looks_in_short(looks: Sequence[Look], submissions: Sequence[Submission]) -> str:
    """One sentence on how often the sealed cells were opened."""
    frozen = f"{len(submissions)} submission{'' if len(submissions) == 1 else 's'} frozen"
    if not looks:
        return f"No look at the sealed cells was taken; {frozen}."
    most = max(Counter(one["submission"] for one in looks).values())
    informed = sum(one["informed"] for one in looks)
    without = sum(one["result"] is None for one in looks)
    text = f"{len(looks)} look{'' if len(looks) == 1 else 's'} in all; {frozen}"
    text += f", at most {most} look{'' if most == 1 else 's'} at one of them."
    if without:
        text += f" {without} gave no score and count{'s' if without == 1 else ''} all the same."
    if informed:
        text += (
            f" {informed} {'was' if informed == 1 else 'were'} at a submission whose author had "
            "seen a score on these cells before (informed)."
        )
    return text


def _table(sheet: Sheet, caption: str) -> Html | None:
    return sheet_table(sheet, caption) if sheet.rows else None


def _submission_sheet(looks: Sequence[Look], submissions: Sequence[Submission]) -> Sheet:
    taken = Counter(one["submission"] for one in looks)
    return Sheet(
        file="submissions.csv",
        what="Frozen submissions",
        columns=(
            count("no.", "number"),
            words("metric", "metric"),
            words("author", "author"),
            words("track", "track"),
            words("frozen", "at"),
            count("looks at it", "n_looks"),
            count("author's looks before", "looks_before_by_author"),
            count("anybody's before", "looks_before_by_anybody"),
            Column(
                head="digest",
                keys=("digest",),
                show=lambda row: code(row["digest"]),
                kind="wide",
            ),
        ),
        rows=tuple({**one, "n_looks": taken[one["number"]]} for one in submissions),
    )


def _look_sheet(looks: Sequence[Look]) -> Sheet:
    rows = []
    seen: Counter[int] = Counter()
    for one in looks:
        seen[one["submission"]] += 1
        row = {key: value for key, value in one.items() if key != "result"}
        rows.append({**row, "nth_of_submission": seen[one["submission"]]})
    return Sheet(
        file="looks.csv",
        what="Looks at the sealed cells",
        columns=(
            count("look", "number"),
            words("when", "at"),
            count("submission", "submission"),
            count("its look no.", "nth_of_submission"),
            words("metric", "metric"),
            words("author", "author"),
            Column(head="informed", keys=(), show=_informed),
            Column(head="result", keys=("status",), show=_status),
            words("reason", "reason", wide=True, aside=True),
        ),
        rows=tuple(rows),
    )


def _informed(row: Row) -> Child:
    return tag("b", "informed") if row["informed"] else "no"


def _status(row: Row) -> Child:
    status = row["status"]
    return tag("span", f"{_SIGNS[status]} {status}", class_=f"status {status}")


def _groups(result: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The behaviours of a result and, where it could be made, their pool."""
    found = list(result["behaviours"])
    if result["pooled"]["reason"] is None:
        found.append({**result["pooled"], "behaviour": POOLED})
    return found


def _final_sheet(looks: Sequence[Look]) -> Sheet:
    return Sheet(
        file="final.csv",
        what="Scores on the cells that were held back",
        columns=(
            Column(head="metric", keys=("metric", "role"), show=_metric_words),
            Column(head="cells", keys=("cells",), show=_cells_words),
            count("n", "n"),
            with_interval("Spearman", "spearman", sign=True),
            p_value("p", "spearman_p"),
            with_interval("R²", "r2"),
            null_column("R², permuted", "r2"),
            p_value("p", "r2_p"),
            score_column("R², additive", "additive_r2", reason="additive_reason"),
            score_column("additive + it", "with_predictor_r2", reason="additive_reason"),
            with_interval("gain in R²", "delta_r2", sign=True),
        ),
        rows=tuple(row for one in looks if one["result"] for row in _final_rows(one)),
        blank=Blank(
            values=(
                *("spearman", "spearman_p", "r2", "r2_p"),
                *("additive_r2", "with_predictor_r2", "delta_r2"),
            ),
            reasons=("reason", "r2_reason", "spearman_reason"),
            item=lambda row: str(row["metric"]),
            items="metrics",
            kind=lambda row: _SPLIT_CELLS[row["split"]],
        ),
    )


def _level(looks: Sequence[Look]) -> float | None:
    for one in looks:
        if one["result"] is not None:
            level: float = one["result"]["settings"]["confidence_level"]
            return level
    return None


def _metric_words(row: Row) -> Child:
    return join(row["metric"], " ", tag("small", row["role"]))


def _cells_words(row: Row) -> Child:
    if row["reason"] is None:
        return str(row["cells"])
    return join(row["cells"], " ", tag("small", row["reason"]))


def _final_rows(look: Look) -> Iterator[Row]:
    for group in _groups(look["result"]):
        for score in group["scores"]:
            for split, found in score["splits"].items():
                additive = found["additive"] or {}
                gain = additive.get("delta_r2") or {"reason": additive.get("reason")}
                yield {
                    "look": str(look["number"]),
                    "behaviour": group["behaviour"],
                    "metric": score["metric"],
                    "role": score["role"],
                    "split": split,
                    "cells": _SPLITS[split],
                    "n": found["n"],
                    "reason": found["reason"],
                    **flat("spearman", found["spearman"]),
                    **flat("r2", found["r2"]),
                    "additive_r2": additive.get("r2"),
                    "additive_reason": additive.get("reason"),
                    "with_predictor_r2": additive.get("with_predictor_r2"),
                    **flat("delta_r2", gain),
                    "open_r2": score["overfit_gap"]["open_r2"],
                    "open_spearman": score["overfit_gap"]["open_spearman"],
                    "carries_over": score["overfit_gap"]["carries_over"],
                }


def _look(look: Look, sheet: Sheet, n_looks: int) -> Html:
    """The scores of one look, a table for every behaviour, and what carried over."""
    result = look["result"]
    informed = ", informed" if look["informed"] else ""
    blocks: list[Child] = []
    for group in _groups(result):
        name = group["behaviour"]
        shown = sheet.where(look=str(look["number"]), behaviour=name)
        where = name if name == POOLED else f"“{name}”"
        blocks.append(
            sheet_table(
                shown,
                join(
                    label_of(result["label"]), f" Look {look['number']}, {where}: held-back cells"
                ),
            )
        )
        blocks.append(_carried(group))
    count_them = "" if n_looks == 1 else " Not adjusted for the number of looks; see below."
    return join(
        tag("h3", f"Look {look['number']}: {result['submission']['title']}{informed}"),
        tag(
            "p",
            f"Submission {look['submission']} by {look['author']}, {look['track']} track. A line "
            "was fitted on all open scored cells and judged on the cells held back. Everybody may "
            "know these scores coarsely; the exact ones, and the baselines', are sealed to the "
            f"custodian, because they are equations in the sealed values.{count_them}",
        ),
        *blocks,
    )


def _place(group: Mapping[str, Any]) -> str:
    """Where the submission stands among the shipped baselines on the same cells."""
    rank = group["rank"]
    if rank["by_r2"] is None or rank["of"] < 2:
        return ""
    return f"Place {rank['by_r2']} of {rank['of']} by R², the shipped baselines included. "


def _carried(group: Mapping[str, Any]) -> Html:
    """Open against held-back, a sentence a metric."""
    return tag(
        "ul",
        [
            tag(
                "li",
                tag("b", f"{one['metric']} ({one['role']}): "),
                f"{one['overfit_gap']['statement']} Carries over: "
                f"{one['overfit_gap']['carries_over']}. {_place(group)}".rstrip(),
            )
            for one in group["scores"]
        ],
        class_="carried",
    )


def _adjusted(looks: Sequence[Look], sheet: Sheet) -> Html | None:
    if len(looks) < 2:
        return None
    k, level = len(looks), _level(looks)
    wide = "" if level is None else f" The intervals are at {percent(_adjusted_level(level, k))}"
    return join(
        tag("h3", "Read over all looks"),
        tag(
            "p",
            f"{k} looks were taken at the same cells, so each result is read for {k}: p values by "
            "Holm over all looks of a behaviour, those without a score standing in with p = 1."
            + (f"{wide} instead of {percent(level)}." if level is not None else ""),
        ),
        _table(
            sheet,
            join(
                label_of(_joint_label(looks)),
                " Adjusted for the number of looks: submissions on all held-back cells",
            ),
        ),
    )


def _joint_label(looks: Sequence[Look]) -> str:
    """Confirmatory if every result it is made of is."""
    labels = {one["result"]["label"] for one in looks if one["result"] is not None}
    return "confirmatory" if labels == {"confirmatory"} else "exploratory"


def _adjusted_level(level: float, k: int) -> float:
    """Confidence of one interval out of ``k`` that all hold together at ``level`` or more."""
    return round(1 - (1 - level) / k, 4)


def _adjusted_sheet(looks: Sequence[Look]) -> Sheet:
    """One row per look, behaviour and measure; empty below two looks."""
    rows = tuple(_adjusted_rows(looks)) if len(looks) > 1 else ()
    return Sheet(
        file="looks-adjusted.csv",
        what="Results adjusted for the number of looks",
        columns=(
            count("look", "look"),
            words("metric", "metric"),
            words("behaviour", "behaviour"),
            words("measure", "measure"),
            with_interval("value", "value", sign=True),
            p_value("p", "p"),
            p_value("Holm p", "holm"),
            Column(
                head="adjusted interval",
                keys=("adjusted_low", "adjusted_high"),
                show=lambda row: _ends(row["adjusted_low"], row["adjusted_high"]),
                kind="num",
            ),
        ),
        rows=rows,
        blank=Blank(
            values=("value", "p", "holm"),
            reasons=("value_reason",),
            item=lambda row: f"look {row['look']}",
            items="looks",
            kind=lambda row: f"{row['measure']} on {row['behaviour']}",
        ),
    )


def _ends(low: float | None, high: float | None) -> str:
    if low is None or high is None:
        return figure(None)
    return f"[{score_figure(low)}, {score_figure(high)}]"


def _adjusted_rows(looks: Sequence[Look]) -> Iterator[Row]:
    names = dict.fromkeys(
        group["behaviour"] for one in looks if one["result"] for group in _groups(one["result"])
    )
    for name in names:
        for measure in ("spearman", "r2"):
            found = [_submitted(one, name, measure) for one in looks]
            p = [((score or {}).get("null") or {}).get("p") for score in found]
            holms = holm([1.0 if value is None else value for value in p])
            for look, score, value, adjusted in zip(looks, found, p, holms, strict=True):
                if score is None:
                    continue
                low, high = _at_level(score, len(looks))
                yield {
                    "look": look["number"],
                    "metric": look["metric"],
                    "informed": look["informed"],
                    "behaviour": name,
                    "measure": "Spearman" if measure == "spearman" else "R2",
                    "value": score["value"],
                    "value_low": score["low"],
                    "value_high": score["high"],
                    "value_reason": score["reason"],
                    "p": value,
                    "holm": None if value is None else float(adjusted),
                    "n_looks": len(looks),
                    "adjusted_low": low,
                    "adjusted_high": high,
                }


def _submitted(look: Look, behaviour: str, measure: str) -> Mapping[str, Any] | None:
    """What a look's submission scored on all held-back cells of a behaviour."""
    if look["result"] is None:
        return None
    for group in _groups(look["result"]):
        for score in group["scores"]:
            if group["behaviour"] == behaviour and score["role"] == "submission":
                found: Mapping[str, Any] | None = score["splits"]["all"][measure]
                return found
    return None


def _at_level(score: Mapping[str, Any], n_looks: int) -> tuple[float | None, float | None]:
    """The interval for this many looks; none where the document stops before."""
    for level in score.get("levels") or ():
        if level["looks"] == n_looks:
            return level["low"], level["high"]
    return None, None
