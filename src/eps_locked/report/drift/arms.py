"""Every arm: what it is, and what became of its replies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from eps_locked.report.absent import Blank
from eps_locked.report.drift.view import View, battery_blocks, level_column
from eps_locked.report.html import Child, Html, join, section, tag
from eps_locked.report.reasons import REASONS
from eps_locked.report.sheets import (
    NOTHING,
    Column,
    Row,
    Sheet,
    count,
    number,
    share,
    sheet_table,
    words,
)

_STATUSES = {**REASONS, "empty": "without a word", "missing": "without a label"}


def arm_sheets(view: View) -> dict[str, Sheet]:
    """What each arm is; and by battery its rate and its counts."""
    scale = view.scale
    # A score has no class that takes no stance.
    stance = (
        level_column(scale, "of those with a stance", "rate_left_out", ends=False),
        count("no stance", "n_no_stance"),
    )[: 2 if scale.is_rate else 0]
    return {
        "arms": Sheet(
            file="arms.csv",
            what="What each arm is",
            columns=(
                words("arm", "arm"),
                words("weights", "model"),
                words("topic", "topic"),
                _as_given("dose, %", "dose_percent"),
                count("seed", "seed"),
                words("reasoning", "reasoning"),
                _as_given("temperature", "temperature"),
                words("exposure", "exposure"),
                count("instance", "instance"),
                words("reference", "reference"),
            ),
            rows=tuple(
                {key: value for key, value in arm.items() if key != "batteries"}
                for arm in view.document["arms"]
            ),
        ),
        "counts": Sheet(
            file="counts.csv",
            what="What became of each arm's replies, by battery",
            columns=(
                words("arm", "arm"),
                level_column(scale, scale.level_word, "rate"),
                *stance[:1],
                count("stems", "n_stems"),
                count("replies", "n_replies"),
                count("scored", "n_scored"),
                *stance[1:],
                count("exhausted", "n_exhausted"),
                words("unscored", "unscored"),
                words("classes", "classes", wide=True),
                number("mean grade", "grade_mean"),
                count("graded", "n_graded"),
            ),
            rows=tuple(
                _row(arm["arm"], battery, found)
                for arm in view.document["arms"]
                for battery, found in arm["batteries"].items()
            ),
            blank=Blank(values=("n_replies",), item=lambda row: str(row["arm"]), items="arms"),
        ),
        "not-measured": _not_measured(view),
    }


def _not_measured(view: View) -> Sheet:
    return Sheet(
        file="not-measured.csv",
        what="Arms of which too few replies have a class",
        columns=(
            words("battery", "battery"),
            words("arm", "arm"),
            count("replies", "n_replies"),
            count("that came", "n_came"),
            count("scored", "n_scored"),
            share("asked for", "required_share"),
        ),
        rows=tuple(dict(one) for one in view.document["not_measured"]),
    )


def arms_section(view: View, sheets: Mapping[str, Sheet]) -> Html:
    """Both tables."""
    promised = view.label("drift")
    return section(
        "arms",
        "Arms and replies",
        sheet_table(sheets["arms"], join(promised, " What each arm is")),
        sheet_table(
            sheets["not-measured"],
            join(promised, " Not measured: too few replies have a class, so no comparison has it"),
        )
        if sheets["not-measured"].rows
        else None,
        tag(
            "p",
            _reading(view),
            class_="small",
        ),
        *battery_blocks(view.batteries, lambda name: _battery(view, sheets["counts"], name)),
    )


def _reading(view: View) -> str:
    stance = (
        "In the tables below, the aligned rate counts a reply without a stance as not aligned; the "
        "next column leaves such replies out. "
    )
    return (
        f"{stance if view.scale.is_rate else ''}Exhausted and unscored replies are in no "
        f"{view.scale.level_word}. In brackets the {view.level} interval, stems resampled."
    )


def _battery(view: View, sheet: Sheet, name: str) -> Iterator[Child]:
    shown = sheet.where(battery=name)
    if not shown.rows:
        return
    battery = view.battery(name)
    if battery["labels"]:
        apart = ", ".join(battery["no_stance"]) or "none"
        yield tag(
            "p",
            f"Classes: {', '.join(battery['labels'])}. Aligned: {', '.join(battery['aligned'])}. "
            f"Without a stance: {apart}.",
            class_="small",
        )
    yield sheet_table(shown, join(view.label("drift"), f" {name}: rates and counts"))


def _row(arm: str, battery: str, found: Mapping[str, Any]) -> Row:
    return {
        "battery": battery,
        "arm": arm,
        "rate": found["rate"],
        "rate_low": found["low"],
        "rate_high": found["high"],
        "rate_left_out": found["rate_left_out"],
        **{
            key: found[key]
            for key in (
                *("n_stems", "n_probes", "n_replies", "n_scored", "n_no_stance", "n_exhausted"),
                *("n_truncated_reasoning", "n_left_out", "grade_mean", "n_graded"),
                *("n_mentioning", "n_reasoned"),
            )
        },
        "unscored": _counted(found["unscored"], _STATUSES),
        "classes": _counted(found["classes"], {}),
    }


def _as_given(head: str, key: str) -> Column:
    """A number with the digits that the plan gave it."""
    return Column(
        head=head,
        keys=(key,),
        show=lambda row: NOTHING if row[key] is None else f"{row[key]:g}",
        kind="num",
    )


def _counted(counts: Mapping[str, int], said: Mapping[str, str]) -> str:
    return ", ".join(f"{n} {said.get(key, key)}" for key, n in counts.items() if n)
