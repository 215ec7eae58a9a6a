"""One self-contained page of an audited run, and every table of it as CSV and JSON.

The page names no other host, runs no script and opens from disk. It carries no time of its own:
the same evidence gives the same bytes.
"""

from __future__ import annotations

from importlib.resources import files as package_files
from typing import Any

from eps_locked.audit.checks import AuditedRun
from eps_locked.domain.ledger import Entry
from eps_locked.report.evidence import RunEvidence, gather
from eps_locked.report.html import Html, join, section, tag
from eps_locked.report.results import behaviour_sections
from eps_locked.report.sections import check_yourself, checks, deviations, this_run, verdict
from eps_locked.report.tables import base_rows, cell_rows, csv_bytes


def report_files(audited: AuditedRun) -> dict[str, bytes]:
    """The report's files by name: ``index.html``, CSV tables, and the tensor's own bytes.

    With several behaviours their documents are ``tensor-1.json`` and so on, in the plan's order.
    Raises EvidenceError unless the run is complete and every check holds.
    """
    evidence = gather(audited)
    return {
        "index.html": page(evidence),
        "cells.csv": csv_bytes(
            [row for one in evidence.tensors for row in cell_rows(one.document)]
        ),
        "checks.csv": csv_bytes(check_rows(audited)),
        "contexts.csv": csv_bytes(context_rows(evidence)),
        "ledger.csv": csv_bytes([ledger_row(entry) for entry in evidence.entries]),
        **{
            name: one.data
            for name, one in zip(_tensor_names(evidence), evidence.tensors, strict=True)
        },
    }


def page(evidence: RunEvidence) -> bytes:
    """``index.html``."""
    manifest = evidence.manifest
    style = package_files("eps_locked.report").joinpath("page.css").read_text("utf-8")
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light"),
        tag("title", f"{manifest.title} ({manifest.name})"),
        # Ours, and free of "<": the one text that stands unescaped.
        tag("style", Html(style)),
    )
    body = tag(
        "body",
        tag(
            "header",
            tag("p", f"Report of a locked run: {manifest.name}", class_="kicker"),
            tag("h1", manifest.title),
        ),
        tag(
            "main",
            deviations(evidence),
            verdict(evidence),
            _contents(evidence),
            this_run(evidence),
            [
                behaviour_sections(evidence, one, number)
                for number, one in enumerate(evidence.tensors, start=1)
            ],
            checks(evidence),
            check_yourself(evidence),
            _files_section(evidence),
        ),
    )
    return ("<!doctype html>\n" + tag("html", head, body, lang="en") + "\n").encode("utf-8")


def check_rows(audited: AuditedRun) -> list[dict[str, Any]]:
    """The numbered checks, one row each."""
    return [
        {
            "check": f"C{check.number}",
            "title": check.title,
            "n_examined": check.n_examined,
            "n_failures": len(check.failures),
            "ok": check.ok,
        }
        for check in audited.checks.values()
    ]


def context_rows(evidence: RunEvidence) -> list[dict[str, Any]]:
    """Every frozen context with its roles; the base value by behaviour where it is evaluated."""
    slots = evidence.study["slots"]
    base = {
        (one.document["behaviour"], row["eval"]): row["base_log_prob"]
        for one in evidence.tensors
        for row in base_rows(one.document, one.base)
    }
    rows = []
    for name, context in evidence.contexts.items():
        roles = [
            role for role in ("train", "eval", "held_out", "negative_panel") if name in slots[role]
        ]
        row = {
            "context": name,
            "family": context["family"],
            "roles": " ".join(roles),
            "alias_of": context["alias_of"],
            "prefix_tokens": context["prefix_tokens"],
            "longest_prompt_tokens": context["longest_prompt_tokens"],
            "rendered": context["rendered"],
        }
        for one in evidence.tensors:
            behaviour = one.document["behaviour"]
            row[f"base_log_prob_{behaviour}"] = base.get((behaviour, name))
        rows.append(row)
    return rows


def ledger_row(entry: Entry) -> dict[str, Any]:
    """One entry in short."""
    body = entry.body
    return {
        "seq": entry.seq,
        "at": entry.at,
        "kind": entry.kind,
        "phase": body.get("phase"),
        "step": body.get("step"),
        "status": body.get("status"),
        "flags": " ".join(body.get("flags", ())),
        "ms": body.get("compute_ms"),
    }


def _tensor_names(evidence: RunEvidence) -> list[str]:
    if len(evidence.tensors) == 1:
        return ["tensor.json"]
    return [f"tensor-{number}.json" for number in range(1, len(evidence.tensors) + 1)]


def _contents(evidence: RunEvidence) -> Html:
    links = [("run", "This run")]
    for number, one in enumerate(evidence.tensors, start=1):
        several = f" of {one.document['behaviour']}" if len(evidence.tensors) > 1 else ""
        links += [
            (f"tensor-{number}", f"Transfer{several}"),
            (f"contexts-{number}", f"By context{several}"),
            (f"second-{number}", f"Second reading{several}"),
        ]
    links += [("checks", "Checks"), ("yourself", "Check it yourself"), ("files", "Tables")]
    return tag(
        "nav",
        tag("ul", [tag("li", tag("a", text, href=f"#{anchor}")) for anchor, text in links]),
        aria_label="Contents",
    )


def _files_section(evidence: RunEvidence) -> Html:
    names = {
        "cells.csv": "every cell, flat",
        "contexts.csv": "every context with its roles and token counts",
        "checks.csv": "the numbered checks",
        "ledger.csv": "one line an entry",
        **dict.fromkeys(_tensor_names(evidence), "the tensor step's own bytes"),
    }
    return section(
        "files",
        "Tables beside this page",
        tag(
            "ul",
            [
                tag("li", join(tag("a", name, href=name), f": {text}"))
                for name, text in names.items()
            ],
        ),
    )
