"""One self-contained page of an audited battery, and every table of it as CSV.

Set in the frame that every page shares, from the document of the run's last step.
"""

from __future__ import annotations

from collections.abc import Sequence

from eps_locked.audit.checks import AuditedRun
from eps_locked.report.battery.comparisons import (
    comparison_sheets,
    comparisons_section,
    weak_section,
)
from eps_locked.report.battery.evidence import OUTPUT, STEP, WRITTEN, BatteryEvidence, gather
from eps_locked.report.battery.findings import claims_section, missing_section, missing_sheet
from eps_locked.report.battery.judging import judge_sheets, judged_notice, judging_section
from eps_locked.report.battery.limits import limits_section, power_sheet
from eps_locked.report.battery.rates import models_section, rate_sheets, tools_section
from eps_locked.report.battery.served import (
    served_section,
    served_sheets,
    speed_section,
    training_sheet,
    trainings_section,
)
from eps_locked.report.battery.stages import stage_sheets, stages_section, thinking_section
from eps_locked.report.battery.view import View
from eps_locked.report.composed import page_of_run, sheet_files, sheet_words
from eps_locked.report.frame import files_section
from eps_locked.report.html import tag
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

# Interval charts and verdicts look as in study drift.
_STYLES = ("drift.css", "battery.css")
_CARD = "the card of a model, as the last step wrote it"
_UNPROVED = (
    "Which weights answered behind a service: only what its endpoint said of itself is recorded.",
    "That the replies are what the models would say elsewhere: one reply each to a few short "
    "prompts.",
    "That the times would be the same again: they are of one machine and one hour.",
    "That nobody read the replies early: they lie in plain text, but for the harmful axis.",
)
# Sections by their anchors, in the page's order; one that has nothing to show is left out.
_TITLES = {
    "claims": "In one sentence each",
    "not-measured": "Not measured",
    "models": "Models and axes",
    "comparisons": "Against the base",
    "weak": "Weak discriminators",
    "limits": "What could be seen",
    "verdict": "Evidence",
    "stages": "Refusals",
    "thinking": "Thinking",
    "tools": "Tools",
    "speed": "Speed",
    "served": "Serving",
    "judging": "Judging",
    "trainings": "Trainings",
    "run": "This run",
    "checks": "Checks",
    "yourself": "Check it yourself",
    "files": "Tables",
}


def battery_report_files(audited: AuditedRun, claims: Sequence[str]) -> dict[str, bytes]:
    """The report's files by name: ``index.html``, CSV tables, ``claims.txt``, the last step's own.

    ``claims``: one sentence for each difference and each axis that separates nobody.

    Raises EvidenceError unless the run is complete and every check holds.
    """
    return files_of(gather(audited), claims)


def files_of(evidence: BatteryEvidence, claims: Sequence[str]) -> dict[str, bytes]:
    """``battery_report_files`` of evidence that has been gathered."""
    view = View(document=evidence.document, label=lambda analysis: label(evidence, analysis))
    sheets = _sheets(view, evidence)
    written = {name: WRITTEN.get(name, _CARD) for name in evidence.written}
    listed = {
        **sheet_words(sheets, claims, "difference and each axis"),
        "ledger.csv": LEDGER_WORDS,
        **written,
    }
    parts = [
        deviations(evidence, sheets["decisions"]),
        judged_notice(view, evidence),
        claims_section(view, claims),
        missing_section(view, sheets["not-measured"]),
        models_section(view, sheets),
        comparisons_section(view, sheets),
        weak_section(view, sheets["weak"]),
        limits_section(view, sheets["power"], evidence),
        verdict(evidence),
        stages_section(view, sheets),
        thinking_section(view, sheets),
        tools_section(view, sheets["tool-cases"]),
        speed_section(view, sheets["speed"]),
        served_section(view, sheets),
        judging_section(view, sheets, evidence),
        trainings_section(view, sheets["trainings"]),
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


def _sheets(view: View, evidence: BatteryEvidence) -> dict[str, Sheet]:
    """Every table of the page, by its name."""
    return {
        **run_sheets(evidence),
        "not-measured": missing_sheet(view),
        **rate_sheets(view),
        **comparison_sheets(view),
        "power": power_sheet(view),
        **stage_sheets(view, evidence),
        **served_sheets(view),
        **judge_sheets(evidence),
        "trainings": training_sheet(evidence),
    }
