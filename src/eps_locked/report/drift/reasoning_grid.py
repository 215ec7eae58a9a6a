"""Drifts by reasoning setting and dose, with what ran out of its budget."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from eps_locked.report.drift.view import View, battery_blocks, change_column, comparison_column
from eps_locked.report.html import Child, Html, join, section, tag
from eps_locked.report.sheets import Column, Remark, Row, Sheet, count, sheet_table, words

_MODES = {
    "none": "as the template renders it",
    "closed": "an empty reasoning block",
    "free": "reasons as long as it likes",
    "budget": "cut off at the budget",
    "filler": "filler in place of reasoning",
}


def reasoning_sheets(view: View) -> dict[str, Sheet]:
    """The grid, one row a setting and series; and every drift in it with its counts."""
    entries = [_entry(view, one) for one in view.document["reasoning"]]
    doses = sorted({one["dose_percent"] for one in entries if one["dose_percent"] is not None})
    return {
        "reasoning-grid": Sheet(
            file="reasoning-grid.csv",
            what="Drift by reasoning setting and dose",
            columns=(
                _setting(),
                words("topic", "topic"),
                count("seed", "seed"),
                *(_dose(view, dose) for dose in doses),
            ),
            rows=tuple(_grid(entries)),
        ),
        "reasoning": Sheet(
            file="reasoning.csv",
            what="Every drift whose arms reason alike, with what ran out",
            columns=(
                _setting(),
                comparison_column(),
                change_column(view.scale, "drift", "drift"),
                count("stems", "n_stems"),
                count("replies", "n_replies"),
                count("reasoning cut off", "n_truncated"),
                count("exhausted", "n_exhausted"),
            ),
            rows=tuple(entries),
        ),
    }


def reasoning_section(view: View, sheets: Mapping[str, Sheet]) -> Html | None:
    """None where every arm was asked under one setting."""
    if not sheets["reasoning"].rows:
        return None
    return section(
        "reasoning",
        "Reasoning",
        tag(
            "p",
            "Each drift against the reference under the same setting, so that what reasoning does "
            "to the untouched disposition is not taken for drift. Cut off: the budget ended the "
            "reasoning, and the reply followed. Exhausted: no reply came within the last try; such "
            "replies are in no rate.",
        ),
        *battery_blocks(view.batteries, lambda name: _battery(view, sheets, name)),
    )


def _battery(view: View, sheets: Mapping[str, Sheet], name: str) -> Iterator[Child]:
    shown = sheets["reasoning"].where(battery=name)
    if not shown.rows:
        return
    promised = view.label("drift")
    grid = sheets["reasoning-grid"].where(battery=name)
    if grid.rows:
        yield sheet_table(grid, join(promised, f" {name}: drift by setting and dose"))
    yield tag(
        "details",
        tag("summary", f"{name}: every arm, with what ran out"),
        sheet_table(shown, join(promised, f" {name}: drifts whose arms reason alike")),
    )


def _setting() -> Column:
    def show(row: Row) -> Child:
        n = row["n_tokens"]
        tokens = "" if n is None else f", {n} tokens"
        return join(
            row["reasoning"],
            " ",
            tag("small", f"{_MODES.get(row['mode'], row['mode'])}{tokens}", class_="why"),
        )

    return Column(head="setting", keys=("reasoning", "n_tokens"), show=show)


def _entry(view: View, one: Mapping[str, Any]) -> dict[str, Any]:
    arm, reference = view.arm(one["arm"]), view.arm(one["reference"])
    # A column of the grid holds what a dose does; the same dose on other weights is no such thing.
    dosed = (
        arm["topic"] is not None
        and arm["topic"] == reference["topic"]
        and arm["dose_percent"] != reference["dose_percent"]
        and arm["exposure"] is None
    )
    n_stems = next(
        effect["n_stems"]
        for found, battery, effect in view.effects()
        if (found["arm"], battery) == (one["arm"], one["battery"])
    )
    return {
        "battery": one["battery"],
        "reasoning": one["reasoning"],
        "mode": one["mode"],
        "n_tokens": one["n_tokens"],
        "arm": one["arm"],
        "reference": one["reference"],
        "topic": arm["topic"],
        "seed": arm["seed"],
        "dose_percent": arm["dose_percent"] if dosed else None,
        "drift": one["drift"],
        "drift_low": one["low"],
        "drift_high": one["high"],
        "n_stems": n_stems,
        "n_replies": one["n_replies"],
        "n_truncated": one["n_truncated"],
        "n_exhausted": one["n_exhausted"],
    }


def _grid(entries: list[dict[str, Any]]) -> Iterator[Row]:
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    doses = sorted({one["dose_percent"] for one in entries if one["dose_percent"] is not None})
    for one in entries:
        if one["dose_percent"] is None:
            continue
        key = tuple(one[name] for name in ("battery", "reasoning", "topic", "seed"))
        if key not in rows:
            same = ("battery", "reasoning", "mode", "n_tokens", "topic", "seed")
            rows[key] = {name: one[name] for name in same}
            for dose in doses:
                rows[key] |= dict.fromkeys(
                    f"drift_{dose:g}{end}" for end in ("", "_low", "_high", "_ran_out")
                )
        dose = f"{one['dose_percent']:g}"
        rows[key] |= {
            f"drift_{dose}": one["drift"],
            f"drift_{dose}_low": one["drift_low"],
            f"drift_{dose}_high": one["drift_high"],
            f"drift_{dose}_ran_out": _ran_out(one),
        }
    yield from rows.values()


def _ran_out(one: Mapping[str, Any]) -> str:
    """What the budget did to an arm's replies, in words; empty where it did nothing."""
    found = [
        f"{one[key]} {said}"
        for key, said in (("n_truncated", "cut off"), ("n_exhausted", "exhausted"))
        if one[key]
    ]
    return f"{', '.join(found)} of {one['n_replies']}" if found else ""


def _dose(view: View, dose: float) -> Column:
    key = f"drift_{dose:g}"

    def ran_out(row: Row) -> str | None:
        return None if row[key] is None else str(row[f"{key}_ran_out"])

    return replace(
        change_column(view.scale, f"{dose:g} % dose", key),
        remarks=(Remark(of=ran_out, again=True),),
    )
