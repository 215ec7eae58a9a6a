"""What was asked and what came: who scored, on which scale, and every pair that was left out."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from eps_locked.canonical import short
from eps_locked.report.html import Child, Html, join, section, tag
from eps_locked.report.sheets import NOTHING, Column, Row, Sheet, count, sheet_table, words
from eps_locked.report.vea.view import (
    MEASURES,
    ROLES,
    UNITS,
    Entry,
    View,
    amount_column,
)

# Why there is no score, or no difference, in words.
REASONS: Mapping[str, str] = {
    "not_finite": "not a number (NaN or infinite)",
    "truncated": "truncated",
    "unreadable": "unreadable",
    "refused": "refused",
    "rate_limited": "rate limited",
    "outage": "service down",
    "absent": "missing",
    "same_text": "without any clause",
    "no_scale": "without a scale",
}
_DIGEST = re.compile(r"blake3:[0-9a-f]{64}")


def score_sheets(view: View) -> dict[str, Sheet]:
    """By reward model: who it is, what came, on which scale. By family: what was left out."""
    identities = [one for one in view.models if one["identity"] is not None]
    return {
        "reward-models": Sheet(
            file="reward-models.csv",
            what="Every reward model, as it says of itself",
            columns=(
                words("reward model", "reward_model"),
                words("kind", "kind"),
                words("model", "model", wide=True),
                _with_digests("version", "version"),
                _with_digests("settings", "settings"),
                words("publishable", "publishable"),
            ),
            rows=tuple(_identity(one) for one in identities),
        ),
        "scores": Sheet(
            file="scores.csv",
            what="What was asked of each reward model, what came, and on which scale",
            columns=(
                words("reward model", "reward_model"),
                count("responses", "n_responses"),
                count("scored", "n_scored"),
                words("not scored", "not_scored", wide=True),
                count("pairs", "n_pairs"),
                count("ties", "n_ties"),
                count("left out", "n_left_out"),
                amount_column("mean base score", "mean_base"),
                amount_column("its SD", "sd_base"),
                words("unit of Δ", "unit", wide=True, aside=True),
            ),
            rows=tuple(_scores(one) for one in view.models),
        ),
        "pairs": Sheet(
            file="pairs.csv",
            what="Pairs of each family: scored, equal, left out",
            columns=(
                words("family", "family"),
                words("role", "role"),
                count("items", "n_items"),
                count("prompts", "n_stems"),
                count("pairs", "n_pairs"),
                count("ties", "n_ties"),
                count("left out", "n_left_out"),
                words("because", "left_out", wide=True),
            ),
            rows=tuple(_pairs(model, family) for model, family in view.families()),
        ),
    }


def scores_section(view: View, sheets: Mapping[str, Sheet]) -> Html:
    """Who scored; what came; and by family what was left out, folded where nothing was."""
    name, _ = MEASURES[view.primary]
    blocks: list[Child] = []
    if sheets["reward-models"].rows:
        caption = join(view.promised, " Every reward model, as it says of itself")
        blocks.append(sheet_table(sheets["reward-models"], caption))
    else:
        blocks.append(
            tag(
                "p",
                tag("b", "Unknown: "),
                "nothing says which reward models these are; the names are the table's.",
                class_="notice",
            )
        )
    return section(
        "scores",
        "Scores",
        *blocks,
        sheet_table(sheets["scores"], join(view.promised, " What was asked, and what came")),
        tag(
            "p",
            "Three responses of each item are scored: base, vea, matched control. A score that is "
            "not a number, a response that did not fit and one that never came are no measurement "
            "and never 0: their pairs are left out and counted. A tie, Δ exactly 0, is a "
            f"measurement. Pairs are those of the {name} measure. Mean and SD are of the raw base "
            "scores.",
            class_="small",
        ),
        *(part for model in view.models for part in _by_family(view, sheets["pairs"], model)),
    )


def _by_family(view: View, sheet: Sheet, model: Entry) -> Iterator[Child]:
    shown = sheet.where(reward_model=model["reward_model"])
    if not shown.rows:
        return
    table = sheet_table(shown, join(view.promised, f" {model['reward_model']}: pairs by family"))
    missing = sum(row["n_left_out"] for row in shown.rows)
    ties = sum(row["n_ties"] for row in shown.rows)
    if missing:
        yield table
        return
    name = model["reward_model"]
    said = "no pair left out" + (f", {ties} tie{'' if ties == 1 else 's'}" if ties else "")
    yield tag("details", tag("summary", f"{name}, pairs by family: {said}"), table)


def _identity(model: Entry) -> Row:
    found: Mapping[str, Any] = model["identity"]
    return {
        "reward_model": model["reward_model"],
        "kind": str(found["kind"]).replace("_", " "),
        "model": found["model"],
        "version": found["version"],
        "settings": ", ".join(f"{key} {value}" for key, value in found["settings"].items()),
        "publishable": "yes" if found["publishable"] else "no: a stand-in",
    }


def _scores(model: Entry) -> Row:
    statuses: Mapping[str, int] = model["statuses"]
    families = model["families"]
    return {
        "reward_model": model["reward_model"],
        "n_responses": sum(statuses.values()),
        "n_scored": model["n_scores"],
        "not_scored": _counted({key: n for key, n in statuses.items() if key != "scored"}),
        "n_pairs": sum(one["n_pairs"] for one in families),
        "n_ties": sum(one["n_ties"] for one in families),
        "n_left_out": sum(sum(one["left_out"].values()) for one in families),
        "mean_base": model["scale"]["mean_base"],
        "sd_base": model["scale"]["sd_base"],
        "unit": UNITS[model["unit"]][1],
    }


def _pairs(model: Entry, family: Entry) -> Row:
    left_out: Counter[str] = Counter(family["left_out"])
    return {
        "reward_model": model["reward_model"],
        "family": family["family"],
        "role": ROLES[family["role"]][0],
        "n_items": family["n_items"],
        "n_stems": family["n_stems"],
        "n_pairs": family["n_pairs"],
        "n_ties": family["n_ties"],
        "n_left_out": left_out.total(),
        "left_out": _counted(left_out),
        **{f"n_{reason}": left_out[reason] for reason in REASONS},
    }


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{n} {REASONS.get(key, key)}" for key, n in counts.items() if n)


def _with_digests(head: str, key: str) -> Column:
    """Words with digests among them, which the page cuts short and the CSV keeps."""

    def show(row: Row) -> Child:
        return _DIGEST.sub(lambda found: short(found[0]), str(row[key])) or NOTHING

    return Column(head=head, keys=(), show=show, kind="wide")
