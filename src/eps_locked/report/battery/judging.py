"""Who judged, and how far people would agree."""

from __future__ import annotations

from collections.abc import Mapping

from eps_locked.canonical import short
from eps_locked.report.absent import listed
from eps_locked.report.battery.evidence import BatteryEvidence
from eps_locked.report.battery.view import View, axis_words, notice
from eps_locked.report.calibrations import (
    calibrated,
    calibration_sheets,
    identity_columns,
    identity_fields,
    stand_in_notice,
)
from eps_locked.report.html import Child, Html, code, join, section, tag
from eps_locked.report.sheets import Column, Row, Sheet, sheet_table, words

# A calibration is of one of the plan's two rubrics: the head of its column, and the field.
_RUBRICS = ("rubric of", "rubric_of")
# Axes that rules decide, with no judge in them.
_BY_RULE = ("capability", "tools")


def judge_sheets(evidence: BatteryEvidence) -> dict[str, Sheet]:
    """Every judge with what it read, and its agreement with people."""
    return {
        "judges": Sheet(
            file="judges.csv",
            what="Every judge, and what it read",
            columns=(
                *identity_columns(),
                words("what it did", "does"),
                Column(head="rubrics", keys=(), show=_rubrics),
                words("settings", "settings", wide=True),
            ),
            rows=tuple(
                {
                    **identity_fields(one.judge),
                    "does": f"reads {axis_words(one.axis)}",
                    "rubrics": " ".join(one.rubrics),
                }
                for one in evidence.roles
            ),
        ),
        **calibration_sheets(
            ({**one, _RUBRICS[0]: one[_RUBRICS[1]]} for one in evidence.calibrations), _RUBRICS
        ),
    }


def judging_section(view: View, sheets: Mapping[str, Sheet], evidence: BatteryEvidence) -> Html:
    """Judges beside people's labels, and which axes no judge read."""
    by_rule = [axis_words(axis) for axis in view.axis_names if axis in _BY_RULE]
    blocks: list[Child] = []
    if by_rule:
        verb = "is" if len(by_rule) == 1 else "are"
        blocks.append(
            tag("p", f"{listed(by_rule).capitalize()} {verb} decided by fixed rules, no judge.")
        )
    if not evidence.roles:
        blocks.append(notice("No judge", "rules alone decided every verdict of this run."))
        return section("judging", "Judging", *blocks)
    return section(
        "judging",
        "Judging",
        *blocks,
        sheet_table(sheets["judges"], join(view.promised, " Who judged")),
        *_uncalibrated(evidence),
        *calibrated(evidence, sheets, view.promised),
    )


def judged_notice(view: View, evidence: BatteryEvidence) -> Html | None:
    """Said above all rates: which of them a stand-in decided. None where it decided none."""
    read = {one.axis for one in evidence.roles if one.is_stand_in}
    if not read:
        return None
    judged = listed([axis_words(axis) for axis in view.axis_names if axis in read])
    return stand_in_notice(evidence, f"those of {judged} are no measurement of a model")


def _uncalibrated(evidence: BatteryEvidence) -> list[Html]:
    """Rubrics that a judge used and no labelled set covers, where another one is covered."""
    known = {one["rubric_of"] for one in evidence.calibrations}
    if not known:
        return []
    used = {"agreement" if one.axis == "sycophancy" else "refusal" for one in evidence.roles}
    return [
        notice(
            f"Not calibrated on {what}",
            "the plan names no labelled set for it, so nothing here says how far people would "
            "agree with the judge there.",
        )
        for what in sorted(used - known)
    ]


def _rubrics(row: Row) -> Child:
    return join(*(join(code(short(one)), " ") for one in str(row["rubrics"]).split()))
