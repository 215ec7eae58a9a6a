"""Judges of any study: who they are, and how far people agree with them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from eps_locked.report.evidence import RunEvidence
from eps_locked.report.html import Child, Html, join, tag
from eps_locked.report.reasons import REASONS
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
from eps_locked.report.units import percent

Calibration = Mapping[str, Any]
_OVER = {"expressed": "shows the behaviour or not", "labels": "all labels"}


def identity_columns() -> tuple[Column, ...]:
    """Who a judge is, for a table of judges."""
    return (
        words("judge", "model"),
        words("kind", "kind"),
        words("family", "family"),
        words("version", "version"),
        words("for publication", "publishable"),
    )


def identity_fields(judge: Mapping[str, Any]) -> dict[str, Any]:
    """What those columns show, and the settings in words."""
    return {
        "model": judge["model"],
        "kind": judge["kind"],
        "family": judge["family"],
        "version": judge["version"],
        "publishable": "yes" if judge["publishable"] is True else "no: a stand-in",
        "settings": ", ".join(f"{key} {value}" for key, value in judge["settings"].items()),
    }


def stand_in_notice(evidence: RunEvidence, limit: str) -> Html | None:
    """Said above everything that such a judge decided. ``limit``: what its rates are not."""
    found = evidence.stand_in_judges
    if not found:
        return None
    who = ", ".join(found)
    return tag(
        "p",
        tag("b", "Stand-in judge: "),
        f"{who} says of itself that its verdicts are not for publication. The rates below show "
        f"that the study works; {limit}.",
        class_="notice",
    )


def calibration_sheets(
    calibrations: Iterable[Calibration], about: tuple[str, str] = ("row", "behaviour")
) -> dict[str, Sheet]:
    """The tables of agreement; without rows where nothing was compared.

    about: the study's word for what is judged, a key of the record, and the name of its column.
    """
    calibrations = tuple(calibrations)
    return {
        "calibrations": Sheet(
            file="calibrations.csv",
            what="Judges beside people's labels",
            columns=(
                words("labelled set", "name"),
                words(*about),
                words("judge", "model"),
                words("over", "over"),
                count("labelled", "n_labelled"),
                count("compared", "n"),
                share("agreement", "agreement"),
                with_interval("kappa", "kappa"),
                number("minimum asked", "minimum_kappa"),
                words("reached", "reached"),
            ),
            rows=tuple(row for one in calibrations for row in _agreement_rows(one, about)),
        ),
        "calibration-labels": Sheet(
            file="calibration-labels.csv",
            what="Judges beside people's labels, label by label",
            columns=(
                words("label", "label"),
                count("by people", "n_reference"),
                count("by the judge", "n_judged"),
                share("precision", "precision"),
                share("recall", "recall"),
                number("F1", "f1"),
            ),
            rows=tuple(row for one in calibrations for row in _label_rows(one, about)),
        ),
        "calibration-confusion": Sheet(
            file="calibration-confusion.csv",
            what="Which label the judge gave for which of the people's",
            columns=(),
            rows=tuple(row for one in calibrations for row in _confusion_rows(one, about)),
        ),
    }


def _deciding(calibration: Calibration) -> str:
    """The agreement that the plan's minimum is about: the distinction that rates are made of."""
    return "expressed" if calibration["calibration"]["expressed"] else "labels"


def _agreement_rows(calibration: Calibration, about: tuple[str, str]) -> Iterator[Row]:
    found, deciding = calibration["calibration"], _deciding(calibration)
    for over, over_words in _OVER.items():
        one = found[over]
        if one is None:
            continue
        kappa = one["kappa"]
        minimum = calibration["minimum_kappa"] if over == deciding else None
        value = kappa["value"]
        reached = None
        if minimum is not None:
            reached = "yes" if value is not None and value >= minimum else "no"
        yield {
            "name": calibration["name"],
            about[1]: calibration[about[0]],
            "model": found["judge"]["model"],
            "rubric": found["rubric_digest"],
            "over": over_words,
            "n_labelled": found["n_rows"],
            "n": one["n"],
            **{f"n_{status}": n for status, n in found["statuses"].items()},
            "agreement": one["percent_agreement"],
            "kappa": value,
            "kappa_low": kappa["low"],
            "kappa_high": kappa["high"],
            "kappa_coverage": None,
            "kappa_reason": kappa["reason"] or kappa["interval_reason"],
            "confidence_level": kappa["confidence_level"],
            "minimum_kappa": minimum,
            "reached": reached,
        }


def _label_rows(calibration: Calibration, about: tuple[str, str]) -> Iterator[Row]:
    for one in calibration["calibration"]["labels"]["by_label"]:
        yield {"name": calibration["name"], about[1]: calibration[about[0]], **one}


def _confusion_rows(calibration: Calibration, about: tuple[str, str]) -> Iterator[Row]:
    found = calibration["calibration"]["labels"]
    for reference, counts in zip(found["labels"], found["confusion"], strict=True):
        yield {
            "name": calibration["name"],
            about[1]: calibration[about[0]],
            "by_people": reference,
            **{f"judged_{key}": n for key, n in zip(found["labels"], counts, strict=True)},
        }


def calibrated(evidence: RunEvidence, sheets: Mapping[str, Sheet], promised: Html) -> list[Child]:
    """Every labelled set with its agreements, or that there is none."""
    if not evidence.calibrations:
        return [
            tag(
                "p",
                tag("b", "Not calibrated: "),
                "the plan names no labelled set, so nothing here says how far people would agree "
                "with the judge.",
                class_="notice",
            )
        ]
    level = percent(evidence.calibrations[0]["calibration"]["labels"]["kappa"]["confidence_level"])
    blocks: list[Child] = [
        tag("h3", "Calibration against people's labels"),
        sheet_table(
            sheets["calibrations"],
            join(promised, " Agreement of judge and people"),
        ),
        tag(
            "p",
            f"Kappa is agreement beyond chance, 1 at best; in brackets the {level} interval, "
            "questions resampled. Only scored verdicts are compared. The minimum is the plan's: "
            "below it, training waits for a signed decision.",
            class_="small",
        ),
    ]
    blocks += [_one_calibration(sheets, one, promised) for one in evidence.calibrations]
    return blocks


def _one_calibration(sheets: Mapping[str, Sheet], calibration: Calibration, promised: Html) -> Html:
    name = calibration["name"]
    confusion = replace(
        sheets["calibration-confusion"].where(name=name),
        columns=(
            words("by people ↓, by the judge →", "by_people"),
            *(
                count(key, f"judged_{key}")
                for key in calibration["calibration"]["labels"]["labels"]
            ),
        ),
    )
    unscored = {
        key: n for key, n in calibration["calibration"]["statuses"].items() if n and key != "scored"
    }
    missing = ", ".join(f"{n} {REASONS.get(key, key)}" for key, n in unscored.items())
    return tag(
        "div",
        tag(
            "div",
            sheet_table(
                sheets["calibration-labels"].where(name=name),
                join(promised, f" “{name}”, label by label"),
            ),
            tag("p", f"Without a scored verdict: {missing}.", class_="small") if missing else None,
        ),
        tag("div", sheet_table(confusion, join(promised, f" “{name}”, confusion"))),
        class_="columns",
    )
