"""The page's section about judges: who they are, what came back, how far people agree with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from eps_locked.canonical import short
from eps_locked.report.absent import listed
from eps_locked.report.calibrations import (
    calibrated,
    calibration_sheets,
    identity_columns,
    identity_fields,
    stand_in_notice,
)
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
    sheet_table,
    words,
)
from eps_locked.report.tensors import TensorArtifact, TensorEvidence


def judges_section(evidence: TensorEvidence, sheets: Mapping[str, Sheet]) -> Html | None:
    """None for a study that asks no judge."""
    if not sheets["judges"].rows:
        return None
    promised = label(evidence, "tensor")
    return section(
        "judges",
        "Judges",
        stand_in_notice(evidence, "they are no measurement of a behaviour"),
        sheet_table(sheets["judges"], join(promised, " Who judged")),
        *_counted(
            sheets["verdicts"], join(promised, " What became of the answers, primary slices")
        ),
        tag("p", _outcome_words(evidence), class_="small"),
        _cells(sheets["unscored"], promised),
        *calibrated(evidence, sheets, promised),
    )


def judge_sheets(evidence: TensorEvidence) -> dict[str, Sheet]:
    """The tables about judges; without rows where no row is judged."""
    tensors = [one for one in evidence.tensors if is_taught(one.document)]
    reasons = tuple(count(head, key) for key, head in REASONS.items())
    return {
        "judges": Sheet(
            file="judges.csv",
            what="The judge of every row",
            columns=(
                words("row", "behaviour"),
                *identity_columns(),
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
        **calibration_sheets(evidence.calibrations),
    }


def _judge_row(evidence: TensorEvidence, tensor: Tensor) -> Row:
    identity = identity_fields(tensor["judge"])
    settings = identity.pop("settings")
    return {
        "behaviour": tensor["behaviour"],
        **identity,
        "draws": evidence.behaviour_plan(tensor["behaviour"]).get("draws"),
        "rubric": tensor["rubric"],
        "settings": settings,
    }


def _outcome_words(evidence: TensorEvidence) -> str:
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
