"""One self-contained page of an audited vea study, and every table of it as CSV.

Set in the frame that every page shares, from the document of the run's last step. The same
sections, without a run behind them, make the page of somebody's own table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from eps_locked.audit.checks import AuditedRun
from eps_locked.canonical import encode
from eps_locked.report.composed import (
    exploratory,
    page_of_run,
    page_of_table,
    sheet_files,
    sheet_words,
)
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
from eps_locked.report.vea.breadth import breadth_section, breadth_sheets, gates_section
from eps_locked.report.vea.evidence import FILE, OUTPUT, STEP, WRITTEN, VeaEvidence, gather
from eps_locked.report.vea.families import anchor_section, families_section, family_sheets
from eps_locked.report.vea.headlines import claims_section, headline_sheet, headlines_section
from eps_locked.report.vea.limits import limits_section, limits_sheet
from eps_locked.report.vea.power import power_section, power_sheets
from eps_locked.report.vea.scores import score_sheets, scores_section
from eps_locked.report.vea.trainings import training_sheet, trainings_section
from eps_locked.report.vea.view import Document, View, require_document

# Interval charts, plots and verdicts look as in study drift.
_STYLES = ("drift.css", "vea.css")
_UNPROVED = (
    "That the scores are what the reward model would say elsewhere; only that they were recorded "
    "so, one for each frozen response.",
    "That nobody read the scores early: they lie in plain text.",
)
_WHY = (
    "made from somebody's own table. Nothing was frozen before the scores were read, "
    "nothing was audited, and margins and settings may have been chosen after them."
)
# Sections by their anchors, in the page's order; one that has nothing to show is left out.
_TITLES = {
    "claims": "In one sentence each",
    "headlines": "Headlines",
    "resolution": "Resolution",
    "verdict": "Evidence",
    "families": "Families",
    "anchor": "Beside the anchor",
    "breadth": "Breadth",
    "gates": "Gates",
    "scores": "Scores",
    "power": "Power",
    "trainings": "Trainings",
    "run": "This run",
    "checks": "Checks",
    "yourself": "Check it yourself",
    "files": "Tables",
}


def vea_report_files(audited: AuditedRun, claims: Sequence[str]) -> dict[str, bytes]:
    """The report's files by name: ``index.html``, CSV tables, ``claims.txt``, the document itself.

    ``claims``: one sentence for each reward model, family and gate.

    Raises EvidenceError unless the run is complete and every check holds.
    """
    return files_of(gather(audited), claims)


def files_of(evidence: VeaEvidence, claims: Sequence[str]) -> dict[str, bytes]:
    """``vea_report_files`` of evidence that has been gathered."""
    view = View(
        document=evidence.document,
        label=lambda analysis: label(evidence, analysis),
        frozen=True,
    )
    trained = training_sheet(evidence)
    sheets = {**run_sheets(evidence), **view_sheets(view), "trainings": trained}
    written = {name: WRITTEN.get(name, "written by the last step") for name in evidence.written}
    listed = {
        **sheet_words(sheets, claims, "reward model and family"),
        "ledger.csv": LEDGER_WORDS,
        **written,
    }
    parts = [
        deviations(evidence, sheets["decisions"]),
        *_findings(view, sheets, claims),
        verdict(evidence),
        *_results(view, sheets),
        trainings_section(view, trained),
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


def table_files(document: Document, claims: Sequence[str], title: str) -> dict[str, bytes]:
    """The same page of an analysis that no lock stands behind, and its tables, by name.

    Everything on it is exploratory, whatever the document says of itself.
    Raises MalformedInputError for a document of another form.
    """
    require_document(document)
    view = View(document=document, label=exploratory, frozen=False)
    sheets = view_sheets(view)
    parts = [
        *_findings(view, sheets, claims),
        *_results(view, sheets),
        files_section(
            {**sheet_words(sheets, claims, "reward model and family"), FILE: "the whole analysis"}
        ),
    ]
    return {
        "index.html": page_of_table(title, _WHY, parts, _TITLES, _STYLES),
        **sheet_files(sheets, claims),
        FILE: encode(document),
    }


def view_sheets(view: View) -> dict[str, Sheet]:
    """Every table that comes from the document alone."""
    return {
        "headlines": headline_sheet(view),
        "resolution": limits_sheet(view),
        **family_sheets(view),
        **breadth_sheets(view),
        **score_sheets(view),
        **power_sheets(view),
    }


def _findings(view: View, sheets: Mapping[str, Sheet], claims: Sequence[str]) -> list[Html | None]:
    return [
        claims_section(view, claims),
        headlines_section(view, sheets["headlines"]),
        limits_section(view, sheets["resolution"]),
    ]


def _results(view: View, sheets: Mapping[str, Sheet]) -> list[Html | None]:
    return [
        families_section(view, sheets),
        anchor_section(view, sheets),
        breadth_section(view, sheets),
        gates_section(view, sheets),
        scores_section(view, sheets),
        power_section(view, sheets),
    ]
