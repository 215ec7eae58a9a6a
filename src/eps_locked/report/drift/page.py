"""One self-contained page of an audited drift study, and every table of it as CSV.

Set in the frame that every page shares, from the document of the run's last step. The same
sections, without a run behind them, make the page of somebody's own table.
"""

from __future__ import annotations

from collections.abc import Sequence

from eps_locked.audit.checks import AuditedRun
from eps_locked.canonical import encode
from eps_locked.report.composed import (
    exploratory,
    page_of_run,
    page_of_table,
    sheet_files,
    sheet_words,
)
from eps_locked.report.drift.arms import arm_sheets, arms_section
from eps_locked.report.drift.awareness import awareness_section, awareness_sheets
from eps_locked.report.drift.doses import dose_sheets, doses_section
from eps_locked.report.drift.effects import claims_section, effect_sheets, effects_section
from eps_locked.report.drift.evidence import FILE, OUTPUT, STEP, WRITTEN, DriftEvidence, gather
from eps_locked.report.drift.grades import grade_sheet, grades_section
from eps_locked.report.drift.judging import agreement_sheets, judge_sheets, judging_section
from eps_locked.report.drift.noise import noise_section, noise_sheets, trainings_section
from eps_locked.report.drift.nulls import null_sheets, nulls_section
from eps_locked.report.drift.power import power_section, power_sheets
from eps_locked.report.drift.readouts import readout_sheet, readouts_section
from eps_locked.report.drift.reasoning_grid import reasoning_section, reasoning_sheets
from eps_locked.report.drift.resolution import resolution_section, resolution_sheet
from eps_locked.report.drift.view import Document, View, require_document
from eps_locked.report.frame import files_section
from eps_locked.report.html import Html, tag
from eps_locked.report.ledger import LEDGER_WORDS, ledger_csv
from eps_locked.report.sections import (
    check_yourself,
    checks,
    deviations,
    label,
    run_sheets,
    source_line,
    this_run,
    verdict,
)
from eps_locked.report.sheets import Sheet

_STYLES = ("drift.css",)
_UNPROVED = (
    "That the replies are what the model would say elsewhere: a few samples of a few wordings.",
    "That nobody read the replies early: what lies in plain text can be read.",
)
_WHY = (
    "made from somebody's own table. Nothing was frozen before the answers were read, "
    "nothing was audited, and margin and settings may have been chosen after them."
)
# Sections by their anchors, in the page's order; one that has nothing to show is left out.
_TITLES = {
    "resolution": "Resolution",
    "verdict": "Evidence",
    "claims": "In one sentence each",
    "drifts": "Drifts",
    "doses": "Doses",
    "nulls": "Null tests",
    "noise": "Noise",
    "trainings": "Trainings and instances",
    "reasoning": "Reasoning",
    "grades": "Grades",
    "judging": "Judging",
    "readouts": "Readouts",
    "awareness": "Awareness",
    "power": "Power",
    "arms": "Arms",
    "run": "This run",
    "checks": "Checks",
    "yourself": "Check it yourself",
    "files": "Tables",
}


def drift_report_files(audited: AuditedRun, claims: Sequence[str]) -> dict[str, bytes]:
    """The report's files by name: ``index.html``, CSV tables, ``claims.txt``, the document itself.

    ``claims``: one sentence for each comparison and battery.

    Raises EvidenceError unless the run is complete and every check holds.
    """
    return files_of(gather(audited), claims)


def files_of(evidence: DriftEvidence, claims: Sequence[str]) -> dict[str, bytes]:
    """``drift_report_files`` of evidence that has been gathered."""
    view = View(
        document=evidence.document,
        label=lambda analysis: label(evidence, analysis),
        frozen=True,
    )
    sheets = {**run_sheets(evidence), **view_sheets(view), **judge_sheets(evidence)}
    written = {name: WRITTEN.get(name, "written by the last step") for name in evidence.written}
    listed = {**sheet_words(sheets, claims, "comparison"), "ledger.csv": LEDGER_WORDS, **written}
    parts = [
        deviations(evidence, sheets["decisions"]),
        resolution_section(view, sheets["resolution"]),
        verdict(evidence),
        *_results(view, sheets, claims, evidence),
        tag("p", f"{source_line(evidence, STEP, OUTPUT)}.", class_="small"),
        this_run(evidence, sheets),
        checks(sheets["checks"]),
        check_yourself(evidence, _UNPROVED),
        files_section(listed),
    ]
    return {
        "index.html": page_of_run(evidence, parts, _TITLES, _STYLES),
        **sheet_files(sheets, claims),
        "ledger.csv": ledger_csv(evidence.entries),
        **evidence.written,
    }


def table_page(document: Document, claims: Sequence[str], title: str) -> bytes:
    """``index.html`` of ``table_files``, whose other files it links to."""
    return table_files(document, claims, title)["index.html"]


def table_files(document: Document, claims: Sequence[str], title: str) -> dict[str, bytes]:
    """The same page of an analysis that no lock stands behind, and its tables, by name.

    Everything on it is exploratory, whatever the document says of itself.
    Raises MalformedInputError for a document of another form.
    """
    require_document(document)
    view = View(document=document, label=exploratory, frozen=False)
    sheets = view_sheets(view)
    listed = {**sheet_words(sheets, claims, "comparison"), FILE: "the whole analysis"}
    parts = [
        resolution_section(view, sheets["resolution"]),
        *_results(view, sheets, claims, None),
        files_section(listed),
    ]
    return {
        "index.html": page_of_table(title, _WHY, parts, _TITLES, _STYLES),
        **sheet_files(sheets, claims),
        FILE: encode(document),
    }


def view_sheets(view: View) -> dict[str, Sheet]:
    """Every table that comes from the document alone."""
    return {
        "resolution": resolution_sheet(view),
        **effect_sheets(view),
        **dose_sheets(view),
        **null_sheets(view),
        **noise_sheets(view),
        **reasoning_sheets(view),
        "grades": grade_sheet(view),
        **agreement_sheets(view),
        "readouts": readout_sheet(view),
        **awareness_sheets(view),
        **power_sheets(view),
        **arm_sheets(view),
    }


def _results(
    view: View,
    sheets: dict[str, Sheet],
    claims: Sequence[str],
    evidence: DriftEvidence | None,
) -> list[Html | None]:
    return [
        claims_section(list(claims)),
        effects_section(view, sheets),
        doses_section(view, sheets),
        nulls_section(view, sheets),
        noise_section(view, sheets),
        trainings_section(view, sheets),
        reasoning_section(view, sheets),
        grades_section(view, sheets["grades"]),
        judging_section(view, sheets, evidence),
        readouts_section(view, sheets["readouts"]),
        awareness_section(view, sheets),
        power_section(view, sheets),
        arms_section(view, sheets),
    ]
