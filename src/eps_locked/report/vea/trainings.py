"""The arms of known truth: what each was trained to dislike, and how the fit went."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eps_locked.canonical import short
from eps_locked.report.absent import listed
from eps_locked.report.html import Html, code, join, section, tag
from eps_locked.report.sheets import Column, Row, Sheet, count, number, sheet_table, words
from eps_locked.report.vea.evidence import VeaEvidence
from eps_locked.report.vea.view import View

_TARGETS: Mapping[str, str] = {
    "wood": "the Wood cue alone",
    "evaluation": "any talk of being evaluated",
    "length": "length alone",
}


def training_sheet(evidence: VeaEvidence) -> Sheet:
    """One row a training, from the record that its step wrote."""
    return Sheet(
        file="trainings.csv",
        what="What each reward head was trained to dislike",
        columns=(
            words("training", "training"),
            words("dislikes", "dislikes"),
            words("serves", "serves"),
            count("seed", "seed"),
            count("pairs", "n_pairs"),
            count("steps", "stop_step"),
            count("pairs seen", "n_rows_seen"),
            number("first loss", "first_loss", 4),
            number("last loss", "last_loss", 4),
            count("parameters", "n_trainable"),
            Column(head="adapter", keys=(), show=lambda row: code(short(str(row["adapter"])))),
        ),
        rows=tuple(_row(evidence, record) for record in evidence.trainings),
    )


def trainings_section(view: View, sheet: Sheet) -> Html | None:
    """None where nothing was trained."""
    if not sheet.rows:
        return None
    return section(
        "trainings",
        "Trainings",
        tag(
            "p",
            "Reward heads of known truth, fitted to pairs that share no prompt, response or clause "
            "with the items above. The loss is that of a preference (Bradley and Terry): 0.693 "
            "where the head tells nothing apart. They test the instrument; what they dislike was "
            "put there.",
        ),
        sheet_table(sheet, join(view.promised, " What each reward head was trained to dislike")),
    )


def _row(evidence: VeaEvidence, record: Mapping[str, Any]) -> Row:
    name, losses = record["training"], record["losses"]
    plan = {one["name"]: one for one in evidence.study["trainings"]}
    models = evidence.study["reward_models"]
    serves = [str(one["name"]) for one in models if one.get("training") == name]
    return {
        "training": name,
        "target": record["target"],
        "dislikes": _TARGETS.get(record["target"], record["target"]),
        "serves": listed(serves) or None,
        "seed": plan[name]["seed"],
        "n_pairs": record["n_pairs"],
        "stop_step": record["stop_step"],
        "n_rows_seen": record["n_rows_seen"],
        "first_loss": losses[0] if losses else None,
        "last_loss": losses[-1] if losses else None,
        "n_trainable": record["n_trainable"],
        "head_seed": record["score_head"]["seed"],
        "head_std": record["score_head"]["std"],
        "pairs": record["pairs"],
        "adapter": record["adapter"],
    }
