"""Internal readouts: how far each model moved along trait directions, beside its behaviour."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from eps_locked.report.absent import Blank
from eps_locked.report.charts import Strip, strip_chart
from eps_locked.report.drift.view import View
from eps_locked.report.html import Child, Html, join, section, tag
from eps_locked.report.sheets import (
    Column,
    Row,
    Sheet,
    figure,
    number,
    per_cent,
    share,
    sheet_table,
    with_interval,
    words,
)


def readout_sheet(view: View) -> Sheet:
    """One row for each trait and model."""
    readouts = view.document["readouts"] or {"traits": []}
    return Sheet(
        file="readouts.csv",
        what="Mean shift along each trait's direction",
        columns=(
            words("model", "model"),
            with_interval("shift", "shift", sign=True, shown=figure),
            Column(
                head="share of the full shift",
                keys=("share_of_full", "share_of_full_low", "share_of_full_high"),
                show=_share,
                kind="num",
            ),
            share("noise floor, seeds", "noise_floor_seeds"),
            share("noise floor, prompts", "noise_floor_prompts"),
            number("benign shift", "benign_shift", sign=True),
            number("shift per benign", "per_benign", sign=True),
        ),
        rows=tuple(
            _row(one["trait"], found) for one in readouts["traits"] for found in one["models"]
        ),
        # A column that no row fills is named below the table.
        blank=Blank(values=("shift",), item=lambda row: str(row["model"]), items="models"),
    )


def readouts_section(view: View, sheet: Sheet) -> Html | None:
    """None where nothing was read."""
    readouts = view.document["readouts"]
    if readouts is None:
        return None
    return section(
        "readouts",
        "Internal readouts",
        tag(
            "p",
            f"Mean projection on a trait's direction at layer {readouts['layer']}, over "
            f"{readouts['n_prompts']} prompts, less that of {readouts['reference']}; the full "
            f"shift is that of {readouts['full']}. The layer was fixed before anything was "
            "measured. A readout is sensitive and not specific: sound advice alone moves it as "
            "well, so each shift stands beside the benign one, which is that of "
            f"{readouts['reference']} from the untouched model.",
        ),
        *_traits(view, sheet),
        tag(
            "p",
            f"In brackets the {view.level} interval, prompts resampled. Noise floor: what two "
            "seeds of one training differ by, and the standard deviation over resampled prompts, "
            "as shares of the full shift; shaded on the charts, ± the floor of the seeds. A share "
            "is given only where the full shift itself is told from 0.",
            class_="small",
        ),
    )


def _traits(view: View, sheet: Sheet) -> Iterator[Child]:
    promised = view.label("readouts")
    for one in view.document["readouts"]["traits"]:
        trait = one["trait"]
        shown = sheet.where(trait=trait)
        yield tag("h3", trait)
        if any(row["share_of_full"] is not None for row in shown.rows):
            yield strip_chart(
                [_strip(view, row) for row in shown.rows],
                label=f"{trait}: shift of each model as a share of the full shift, per cent",
                unit="share of the full shift, %",
                marked=(100.0,),
            )
        yield sheet_table(shown, join(promised, f" {trait}: shift of each model"))


def _strip(view: View, row: Row) -> Strip:
    floor = row["noise_floor_seeds"]
    low, high = row["share_of_full_low"], row["share_of_full_high"]
    value = row["share_of_full"]
    ends = "" if low is None or high is None else f"[{_plain(low)}, {_plain(high)}]"
    n = view.document["readouts"]["n_prompts"]
    return Strip(
        name=str(row["model"]),
        words=join(f"{per_cent(value, 0)} {ends} ", tag("small", f"n = {n} prompts")),
        value=_hundred(value),
        low=_hundred(low),
        high=_hundred(high),
        band=None if floor is None else (-100 * floor, 100 * floor),
    )


def _hundred(value: float | None) -> float | None:
    return None if value is None else 100 * value


def _plain(value: float) -> str:
    return figure(100 * value, 0)


def _row(trait: str, found: Mapping[str, Any]) -> Row:
    return {
        "trait": trait,
        "model": found["model"],
        "shift": found["shift"],
        "shift_low": found["low"],
        "shift_high": found["high"],
        "shift_coverage": None,
        "share_of_full": found["share_of_full"],
        "share_of_full_low": found["share_low"],
        "share_of_full_high": found["share_high"],
        "noise_floor_seeds": found["noise_floor_seeds"],
        "noise_floor_prompts": found["noise_floor_prompts"],
        "benign_shift": found["benign_shift"],
        "per_benign": found["per_benign"],
    }


def _share(row: Row) -> Child:
    low, high = row["share_of_full_low"], row["share_of_full_high"]
    text = per_cent(row["share_of_full"], 0)
    if low is None or high is None:
        return text
    return join(text, " ", tag("small", f"[{_plain(low)}, {_plain(high)}]"))
