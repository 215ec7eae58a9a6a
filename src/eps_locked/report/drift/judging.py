"""How far verdicts can be relied on: asked twice, by another family, beside people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from eps_locked.canonical import short
from eps_locked.report.calibrations import (
    calibrated,
    calibration_sheets,
    identity_columns,
    identity_fields,
    stand_in_notice,
)
from eps_locked.report.drift.evidence import DriftEvidence
from eps_locked.report.drift.view import View
from eps_locked.report.html import Child, Html, code, join, section, tag
from eps_locked.report.sheets import (
    Column,
    Row,
    Sheet,
    count,
    number,
    share,
    sheet_table,
    with_interval,
    words,
)

_BATTERY = ("battery", "battery")


def agreement_sheets(view: View) -> dict[str, Sheet]:
    """The classifier against itself, and against a judge of another family."""
    judging = view.document["judging"]
    checked = judging["checker"] or []
    return {
        "twice": Sheet(
            file="twice.csv",
            what="The classifier asked twice about the same reply",
            columns=_agreement("replies classified twice"),
            rows=tuple(_row(one) for one in judging["twice"]),
        ),
        "checker": Sheet(
            file="checker.csv",
            what="The classifier beside a judge of another family",
            columns=_agreement("replies checked"),
            rows=tuple(_row(one) for one in checked),
        ),
        "checker-classes": Sheet(
            file="checker-classes.csv",
            what="The classifier beside a judge of another family, class by class",
            columns=(
                words("class", "label"),
                count("by the classifier", "n_reference"),
                count("by the checker", "n_judged"),
                share("of the checker's, agreed", "precision"),
                share("of the classifier's, agreed", "recall"),
                number("F1", "f1"),
            ),
            rows=tuple(
                {"battery": one["battery"], **found} for one in checked for found in one["by_class"]
            ),
        ),
    }


def judge_sheets(evidence: DriftEvidence) -> dict[str, Sheet]:
    """Who judged, and how far people agree."""
    return {
        "judges": Sheet(
            file="judges.csv",
            what="Every judge, and what it did",
            columns=(
                *identity_columns(),
                words("what it did", "does", wide=True),
                Column(head="rubrics", keys=(), show=_rubrics),
                words("settings", "settings", wide=True),
            ),
            rows=tuple(
                {
                    **identity_fields(one.judge),
                    "does": one.does,
                    "rubrics": " ".join(one.rubrics),
                }
                for one in evidence.roles
            ),
        ),
        **calibration_sheets(evidence.calibrations, _BATTERY),
    }


def judging_section(
    view: View, sheets: Mapping[str, Sheet], evidence: DriftEvidence | None
) -> Html:
    """Agreement of judges with themselves, with one another and with people."""
    promised = view.label("drift")
    blocks: list[Child] = []
    if evidence is not None:
        blocks += [
            stand_in_notice(evidence, "they are no measurement of a disposition"),
            sheet_table(sheets["judges"], join(promised, " Who judged")),
        ]
    return section(
        "judging",
        "Judging",
        *blocks,
        *_agreements(view, sheets, promised),
        *([] if evidence is None else calibrated(evidence, sheets, promised)),
    )


def _agreements(view: View, sheets: Mapping[str, Sheet], promised: Html) -> Iterator[Child]:
    if sheets["twice"].rows:
        yield sheet_table(
            sheets["twice"], join(promised, " The same judge, asked twice about the same reply")
        )
    else:
        yield _missing("Asked once: ", "no reply was classified twice.")
    if not sheets["checker"].rows:
        yield _missing("Not checked: ", "no judge of another family looked at a subset.")
        return
    yield sheet_table(
        sheets["checker"], join(promised, " The classifier beside a judge of another family")
    )
    for one in sheets["checker"].rows:
        name = str(one["battery"])
        yield sheet_table(
            sheets["checker-classes"].where(battery=name),
            join(promised, f" {name}, class by class"),
        )
    yield tag(
        "p",
        f"Kappa is agreement beyond chance, 1 at best; in brackets the {view.level} interval, "
        "stems resampled. Only replies that both could classify are compared. Two judges that "
        "agree can still be wrong together.",
        class_="small",
    )


def _missing(what: str, why: str) -> Html:
    return tag("p", tag("b", what), why, class_="notice")


def _agreement(head: str) -> tuple[Column, ...]:
    return (
        words("battery", "battery"),
        count(head, "n"),
        share("agreement", "agreement"),
        with_interval("kappa", "kappa"),
    )


def _row(one: Mapping[str, Any]) -> Row:
    return {
        "battery": one["battery"],
        "n": one["n"],
        "agreement": one["agreement"],
        "kappa": one["kappa"],
        "kappa_low": one["low"],
        "kappa_high": one["high"],
        "kappa_coverage": None,
        "kappa_reason": one.get("reason"),
    }


def _rubrics(row: Row) -> Child:
    return join(*(join(code(short(one)), " ") for one in str(row["rubrics"]).split()))
