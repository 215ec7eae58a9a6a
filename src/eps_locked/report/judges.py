"""The page's section about judges: who they are, what came back, how far people agree with them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from eps_locked.canonical import short
from eps_locked.report.absent import listed
from eps_locked.report.evidence import RunEvidence, TensorArtifact
from eps_locked.report.html import Child, Html, code, join, section, tag
from eps_locked.report.marks import Tensor, is_sealed, is_taught
from eps_locked.report.notes import answers_of_cell
from eps_locked.report.reasons import REASONS
from eps_locked.report.sections import label
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


def judges_section(evidence: RunEvidence, sheets: Mapping[str, Sheet]) -> Html | None:
    """None for a study that asks no judge."""
    if not sheets["judges"].rows:
        return None
    promised = label(evidence, "tensor")
    return section(
        "judges",
        "Judges",
        _stand_ins(evidence),
        sheet_table(sheets["judges"], join(promised, " Who judged")),
        *_counted(
            sheets["verdicts"], join(promised, " What became of the answers, primary slices")
        ),
        tag("p", _outcome_words(evidence), class_="small"),
        _cells(sheets["unscored"], promised),
        *_calibrations(evidence, sheets),
    )


def judge_sheets(evidence: RunEvidence) -> dict[str, Sheet]:
    """The tables about judges; without rows where no row is judged."""
    tensors = [one for one in evidence.tensors if is_taught(one.document)]
    reasons = tuple(count(head, key) for key, head in REASONS.items())
    return {
        "judges": Sheet(
            file="judges.csv",
            what="The judge of every row",
            columns=(
                words("row", "behaviour"),
                words("judge", "model"),
                words("kind", "kind"),
                words("family", "family"),
                words("version", "version"),
                words("for publication", "publishable"),
                count("verdicts an answer", "draws"),
                Column(
                    head="rubric",
                    keys=(),
                    show=lambda row: code(short(row["rubric"])),
                ),
                words("settings", "settings", wide=True),
            ),
            rows=tuple(_judge_row(evidence, one.document) for one in tensors),
        ),
        "verdicts": Sheet(
            file="verdicts.csv",
            what="What became of the answers, by row",
            columns=(
                words("row", "behaviour"),
                words("answers of", "side"),
                count("cells", "n_cells"),
                count("answers", "n_answers"),
                count("with an outcome", "n_outcomes"),
                *reasons,
            ),
            rows=tuple(row for one in tensors for row in _verdict_rows(one)),
        ),
        "unscored": Sheet(
            file="unscored.csv",
            what="Cells in which some answer has no outcome",
            columns=(
                words("row", "behaviour"),
                words("trained in", "train"),
                words("evaluated in", "eval"),
                count("answers", "n_answers"),
                count("with an outcome", "n_outcomes"),
                *reasons,
            ),
            rows=tuple(row for one in tensors for row in _cell_rows(one.document)),
        ),
        **_calibration_sheets(evidence.calibrations),
    }


def _stand_ins(evidence: RunEvidence) -> Html | None:
    found = evidence.stand_in_judges
    if not found:
        return None
    who = ", ".join(found)
    return tag(
        "p",
        tag("b", "Stand-in judge: "),
        f"{who} says of itself that its verdicts are not for publication. The rates below show "
        "that the study works; they are no measurement of a behaviour.",
        class_="notice",
    )


def _judge_row(evidence: RunEvidence, tensor: Tensor) -> Row:
    judge = tensor["judge"]
    settings = ", ".join(f"{key} {value}" for key, value in judge["settings"].items())
    return {
        "behaviour": tensor["behaviour"],
        "model": judge["model"],
        "kind": judge["kind"],
        "family": judge["family"],
        "version": judge["version"],
        "publishable": "yes" if judge["publishable"] is True else "no: a stand-in",
        "draws": evidence.behaviour_plan(tensor["behaviour"]).get("draws"),
        "rubric": tensor["rubric"],
        "settings": settings,
    }


def _outcome_words(evidence: RunEvidence) -> str:
    n_sealed = sum(
        is_sealed(cell)
        for one in evidence.tensors
        if is_taught(one.document)
        for cell in one.document["cells"]
    )
    sealed = f" The {n_sealed} sealed cells are in no count." if n_sealed else ""
    return (
        "Only an answer with an outcome is in a rate. One that the rubric leaves out, one that is "
        "incoherent, and one without a readable verdict are no zeros: they are missing, and too "
        f"many of them leave a cell without a value.{sealed}"
    )


def _verdict_rows(artifact: TensorArtifact) -> Iterator[Row]:
    tensor = artifact.document
    asked = tensor["slices"][tensor["primary_slice"]] * tensor["n_samples"]
    base = [artifact.headroom["unscored"].get(name, {}) for name in tensor["eval"]]
    yield _totals(tensor, "base model", len(base), asked * len(base), base)
    cells = [cell for cell in tensor["cells"] if not is_sealed(cell)]
    n_answers = answers_of_cell(tensor)[0] * len(cells)
    yield _totals(
        tensor, "trained models", len(cells), n_answers, [cell["unscored"] for cell in cells]
    )


def _totals(
    tensor: Tensor, side: str, n_cells: int, n_answers: int, counts: list[Mapping[str, int]]
) -> Row:
    reasons = {key: sum(one.get(key, 0) for one in counts) for key in REASONS}
    return {
        "behaviour": tensor["behaviour"],
        "side": side,
        "n_cells": n_cells,
        "n_answers": n_answers,
        "n_outcomes": n_answers - sum(reasons.values()),
        **reasons,
    }


def _cell_rows(tensor: Tensor) -> Iterator[Row]:
    for cell in tensor["cells"]:
        if is_sealed(cell) or not any(cell["unscored"].values()):
            continue
        yield {
            "behaviour": tensor["behaviour"],
            "train": cell["train"],
            "eval": cell["eval"],
            "n_answers": cell["n"] + sum(cell["unscored"].values()),
            "n_outcomes": cell["n"],
            **{key: cell["unscored"][key] for key in REASONS},
        }


def _cells(sheet: Sheet, promised: Html) -> Html | None:
    """Cell by cell, folded away: with an excluding rubric it may be all of them."""
    if not sheet.rows:
        return None
    n = len(sheet.rows)
    which = "The cell" if n == 1 else f"The {n} cells"
    return tag(
        "details",
        tag("summary", f"{which} in which some answer has no outcome, one by one"),
        *_counted(sheet, join(promised, " Answers by cell")),
    )


def _counted(sheet: Sheet, caption: Child) -> Iterator[Html]:
    """A table of counts without the reasons that never occur; these are named below it."""
    idle = [key for key in REASONS if not any(row[key] for row in sheet.rows)]
    columns = tuple(column for column in sheet.columns if column.keys[0] not in idle)
    yield sheet_table(replace(sheet, columns=columns), caption)
    if idle:
        never = listed([REASONS[key] for key in idle], last="or")
        yield tag("p", f"No answer was {never}.", class_="small absent")


def _calibration_sheets(calibrations: Iterable[Calibration]) -> dict[str, Sheet]:
    calibrations = tuple(calibrations)
    return {
        "calibrations": Sheet(
            file="calibrations.csv",
            what="Judges beside people's labels",
            columns=(
                words("labelled set", "name"),
                words("row", "behaviour"),
                words("judge", "model"),
                words("over", "over"),
                count("labelled", "n_labelled"),
                count("compared", "n"),
                share("agreement", "agreement"),
                with_interval("kappa", "kappa"),
                number("minimum asked", "minimum_kappa"),
                words("reached", "reached"),
            ),
            rows=tuple(row for one in calibrations for row in _agreement_rows(one)),
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
            rows=tuple(row for one in calibrations for row in _label_rows(one)),
        ),
        "calibration-confusion": Sheet(
            file="calibration-confusion.csv",
            what="Which label the judge gave for which of the people's",
            columns=(),
            rows=tuple(row for one in calibrations for row in _confusion_rows(one)),
        ),
    }


def _deciding(calibration: Calibration) -> str:
    """The agreement that the plan's minimum is about: the distinction that rates are made of."""
    return "expressed" if calibration["calibration"]["expressed"] else "labels"


def _agreement_rows(calibration: Calibration) -> Iterator[Row]:
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
            "behaviour": calibration["row"],
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


def _label_rows(calibration: Calibration) -> Iterator[Row]:
    for one in calibration["calibration"]["labels"]["by_label"]:
        yield {"name": calibration["name"], "behaviour": calibration["row"], **one}


def _confusion_rows(calibration: Calibration) -> Iterator[Row]:
    found = calibration["calibration"]["labels"]
    for reference, counts in zip(found["labels"], found["confusion"], strict=True):
        yield {
            "name": calibration["name"],
            "behaviour": calibration["row"],
            "by_people": reference,
            **{f"judged_{key}": n for key, n in zip(found["labels"], counts, strict=True)},
        }


def _calibrations(evidence: RunEvidence, sheets: Mapping[str, Sheet]) -> list[Child]:
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
            join(label(evidence, "tensor"), " Agreement of judge and people"),
        ),
        tag(
            "p",
            f"Kappa is agreement beyond chance, 1 at best; in brackets the {level} interval, "
            "questions resampled. Only scored verdicts are compared. The minimum is the plan's: "
            "below it, training waits for a signed decision.",
            class_="small",
        ),
    ]
    blocks += [_one_calibration(evidence, sheets, one) for one in evidence.calibrations]
    return blocks


def _one_calibration(
    evidence: RunEvidence, sheets: Mapping[str, Sheet], calibration: Calibration
) -> Html:
    name, promised = calibration["name"], label(evidence, "tensor")
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
