"""One self-contained page of an audited run, and every table of it as CSV and JSON.

The page names no other host, runs no script and opens from disk. It carries no time of its own:
the same evidence gives the same bytes.
"""

from __future__ import annotations

from eps_locked.audit.checks import AuditedRun
from eps_locked.canonical import encode
from eps_locked.errors import EvidenceError
from eps_locked.report.custody import custody
from eps_locked.report.frame import Line, files_section, framed, run_foot
from eps_locked.report.html import join
from eps_locked.report.judges import judge_sheets, judges_section
from eps_locked.report.ledger import LEDGER_WORDS, ledger_csv
from eps_locked.report.looks import look_sections, look_sheets, looks_in_short
from eps_locked.report.marks import is_taught
from eps_locked.report.measures import second_of
from eps_locked.report.overview import overview_section, overview_sheet
from eps_locked.report.results import detail_sections, result_sheets, transfer_section
from eps_locked.report.score_rows import Scores
from eps_locked.report.score_sections import score_anchors, score_sections
from eps_locked.report.score_sheets import score_sheets
from eps_locked.report.secondary import secondary_section, secondary_sheets
from eps_locked.report.sections import (
    check_yourself,
    checks,
    deviations,
    publication_notice,
    run_sheets,
    this_run,
    verdict,
)
from eps_locked.report.sheets import Row, Sheet, csv_bytes
from eps_locked.report.tables import base_rows, cell_rows
from eps_locked.report.tensors import TensorArtifact, TensorEvidence, gather

_UNPROVED = (
    "That nobody read an open cell early: what lies in plain text can be read.",
    "That the custodian opened no sealed cell aside from the looks: who holds a key can use it.",
)


def report_files(audited: AuditedRun, scores: Scores | None = None) -> dict[str, bytes]:
    """The report's files by name: ``index.html``, CSV tables, and the tensor's own bytes.

    ``scores``: the open score document that was computed from the audited bytes; without it the
    page says that nothing was scored. With several behaviours their documents are
    ``tensor-1.json`` and so on, in the plan's order.
    Raises EvidenceError unless the run is complete and every check holds.
    """
    return files_of(gather(audited), scores)


def files_of(evidence: TensorEvidence, scores: Scores | None) -> dict[str, bytes]:
    """``report_files`` of evidence that has been gathered."""
    require_promised(evidence, scores)
    return {
        "index.html": page(evidence, scores),
        "cells.csv": csv_bytes(row for one in evidence.tensors for row in cell_rows(one.document)),
        "contexts.csv": csv_bytes(context_rows(evidence)),
        "ledger.csv": ledger_csv(evidence.entries),
        **{sheet.file: sheet.csv() for sheet in all_sheets(evidence, scores).values()},
        **({} if scores is None else {"scores.json": encode(scores)}),
        **{
            name: one.data
            for name, one in zip(_tensor_names(evidence), evidence.tensors, strict=True)
        },
    }


def require_promised(evidence: TensorEvidence, scores: Scores | None) -> None:
    """Raises EvidenceError for a score called confirmatory that the frozen plan did not promise."""
    labels = [] if scores is None else [("scores", "scores", scores["label"])]
    for look in evidence.looks:
        if look["result"] is not None:
            labels.append((f"look {look['number']}", "final_test", look["result"]["label"]))
    for thing, analysis, found in labels:
        if found == "confirmatory" and not evidence.is_confirmatory(analysis):
            raise EvidenceError(
                f"report of {evidence.manifest.name}: {thing}",
                expected=f"exploratory, since the plan's analyses do not list {analysis}",
                found=found,
            )


def all_sheets(evidence: TensorEvidence, scores: Scores | None) -> dict[str, Sheet]:
    """Every table of the page but the heat maps; a table without a row is not written."""
    sheets = {
        **_evidence_sheets(evidence),
        **score_sheets(scores),
        **look_sheets(evidence.looks, evidence.submissions),
    }
    return {name: sheet for name, sheet in sheets.items() if sheet.rows}


def _evidence_sheets(evidence: TensorEvidence) -> dict[str, Sheet]:
    """The tables that need no score."""
    return {
        **run_sheets(evidence),
        "rows": overview_sheet(evidence.tensors),
        **result_sheets(evidence.tensors),
        **judge_sheets(evidence),
        **secondary_sheets(evidence.tensors),
    }


def page(evidence: TensorEvidence, scores: Scores | None = None) -> bytes:
    """``index.html``."""
    manifest = evidence.manifest
    sheets = _evidence_sheets(evidence)
    numbered = list(enumerate(evidence.tensors, start=1))
    return framed(
        title=manifest.title,
        name=manifest.name,
        kicker=f"Report of a locked run: {manifest.name}",
        notice=publication_notice(evidence),
        contents=_contents(evidence, scores),
        parts=[
            deviations(evidence, sheets["decisions"]),
            verdict(evidence, looks_in_short(evidence.looks, evidence.submissions)),
            overview_section(evidence, sheets),
            *(transfer_section(evidence, one, number) for number, one in numbered),
            score_sections(scores),
            look_sections(evidence.looks, evidence.submissions),
            custody(evidence),
            judges_section(evidence, sheets),
            *(
                join(
                    detail_sections(evidence, one, sheets, number),
                    secondary_section(evidence, one, sheets, number),
                )
                for number, one in numbered
            ),
            this_run(evidence, sheets),
            checks(sheets["checks"]),
            check_yourself(evidence, _UNPROVED),
            files_section(_file_words(evidence, scores)),
        ],
        foot=run_foot(evidence),
    )


def context_rows(evidence: TensorEvidence) -> list[Row]:
    """Every frozen context of every row with its roles, and the base value where it is evaluated.

    A row fills some slots with contexts of its own and asks its own questions, so that neither
    lengths nor words need be those of another row.
    """
    rows: list[Row] = []
    for one in evidence.tensors:
        tensor, name = one.document, one.document["behaviour"]
        base = {row["eval"]: row["base_value"] for row in base_rows(tensor, one.headroom)}
        panel = evidence.study["slots"]["negative_panel"]
        if evidence.behaviour_plan(name).get("negatives") == "none":
            panel = []
        roles = {
            "train": tensor["train"],
            "eval": tensor["eval"],
            "held_out": tensor["held_out"],
            "negative_panel": panel,
        }
        rows += [
            {
                "behaviour": name,
                "context": context,
                "family": about["family"],
                "roles": " ".join(role for role, names in roles.items() if context in names),
                "alias_of": about["alias_of"],
                "prefix_tokens": about["prefix_tokens"],
                "longest_prompt_tokens": about["longest_prompt_tokens"],
                "rendered": about["rendered"],
                "unit": tensor["unit"],
                "base_value": base.get(context),
            }
            for context, about in evidence.contexts[name].items()
        ]
    return rows


def _tensor_names(evidence: TensorEvidence) -> list[str]:
    if len(evidence.tensors) == 1:
        return ["tensor.json"]
    return [f"tensor-{number}.json" for number in range(1, len(evidence.tensors) + 1)]


def _contents(evidence: TensorEvidence, scores: Scores | None) -> list[Line]:
    """Links to every section; with several rows, a line for each of them."""
    several = len(evidence.tensors) > 1
    lines = [_row_links(one, number) for number, one in enumerate(evidence.tensors, start=1)]
    head = [("verdict", "Evidence"), ("rows", "Rows")]
    rest = [*score_anchors(scores), ("looks", "Final test"), ("custody", "Custody")]
    if evidence.has_judges:
        rest.append(("judges", "Judges"))
    rest += [("run", "This run"), ("checks", "Checks"), ("yourself", "Check it yourself")]
    rest.append(("files", "Tables"))
    if not several:
        return [(None, [*head, *lines[0][:1], *rest[:-4], *lines[0][1:], *rest[-4:]])]
    names = [one.document["behaviour"] for one in evidence.tensors]
    return [(None, head), *zip(names, lines, strict=True), (None, rest)]


def _row_links(artifact: TensorArtifact, number: int) -> list[tuple[str, str]]:
    tensor = artifact.document
    links = [(f"tensor-{number}", "Transfer"), (f"contexts-{number}", "By context")]
    if second_of(tensor) is not None:
        links.append((f"second-{number}", "Second reading"))
    if is_taught(tensor):
        links.append((f"secondary-{number}", "Secondary measures"))
    return links


def _file_words(evidence: TensorEvidence, scores: Scores | None) -> dict[str, str]:
    return {
        "cells.csv": "every cell, flat; rates as shares from 0 to 1",
        "contexts.csv": "every context of every row with its roles and token counts",
        "ledger.csv": LEDGER_WORDS,
        **{sheet.file: sheet.what for sheet in all_sheets(evidence, scores).values()},
        **({} if scores is None else {"scores.json": "the open score document"}),
        **dict.fromkeys(_tensor_names(evidence), "the tensor step's own bytes"),
    }
