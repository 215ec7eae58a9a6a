"""How the page of a study with one document is put together, of a locked run or of a user's own
table; and the files that lie beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from eps_locked.report.evidence import RunEvidence
from eps_locked.report.frame import framed, run_foot
from eps_locked.report.html import Html, join, tag
from eps_locked.report.sections import publication_notice
from eps_locked.report.sheets import Sheet

__all__ = ["CLAIMS", "exploratory", "page_of_run", "page_of_table", "sheet_files", "sheet_words"]

CLAIMS = "claims.txt"
Parts = Sequence[Html | None]


def page_of_run(
    evidence: RunEvidence, parts: Parts, titles: Mapping[str, str], styles: Sequence[str]
) -> bytes:
    """``index.html`` of a run. ``titles``: sections by their anchors, in the page's order; those
    that have nothing to show are not listed."""
    manifest = evidence.manifest
    return framed(
        title=manifest.title,
        name=manifest.name,
        kicker=f"Report of a locked run: {manifest.name}",
        notice=publication_notice(evidence),
        contents=[(None, _there(parts, titles))],
        parts=parts,
        foot=run_foot(evidence),
        styles=styles,
    )


def page_of_table(
    title: str, why: str, parts: Parts, titles: Mapping[str, str], styles: Sequence[str]
) -> bytes:
    """``index.html`` of an analysis that no lock stands behind. ``why``: what may have been known
    before what was chosen."""
    return framed(
        title=title,
        name="exploratory",
        kicker="Analysis of a table, outside of any lock",
        notice=tag("p", tag("b", "Exploratory: "), why, class_="notice"),
        contents=[(None, _there(parts, titles))],
        parts=parts,
        foot="Made from one table; the same table gives the same page. It runs no script and asks "
        "no network for anything.",
        styles=styles,
    )


def exploratory(analysis: str) -> Html:
    """The label of every analysis on such a page, whatever its document says of itself."""
    return tag("span", "exploratory", class_="label exploratory")


def sheet_words(sheets: Mapping[str, Sheet], claims: Sequence[str], what: str) -> dict[str, str]:
    """What lies in each file of ``sheet_files``. ``what``: what the sentences are about."""
    said = {CLAIMS: f"one honest sentence for each {what}"} if claims else {}
    return {**said, **{one.file: one.what for one in sheets.values() if one.rows}}


def sheet_files(sheets: Mapping[str, Sheet], claims: Sequence[str]) -> dict[str, bytes]:
    """Every table with a row, and the sentences."""
    said = {CLAIMS: "".join(f"{one}\n" for one in claims).encode()} if claims else {}
    return {**said, **{one.file: one.csv() for one in sheets.values() if one.rows}}


def _there(parts: Parts, titles: Mapping[str, str]) -> list[tuple[str, str]]:
    page = join(parts)
    return [one for one in titles.items() if f'<section id="{one[0]}"' in page]
