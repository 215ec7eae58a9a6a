"""What every page is set in: head, contents, landmarks, the list of tables, the foot.

A page names no other host, runs no script and opens from disk. It carries no time of its own: the
same evidence gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files as package_files

from eps_locked.report.evidence import RunEvidence
from eps_locked.report.html import Child, Html, join, section, tag

# A line of the contents: whose links they are, if they are not the whole page's, and the links as
# anchor and text.
Line = tuple[str | None, Sequence[tuple[str, str]]]


def framed(
    *,
    title: str,
    name: str,
    kicker: str,
    notice: Html | None,
    contents: Iterable[Line],
    parts: Iterable[Child],
    foot: str,
    styles: Iterable[str] = (),
) -> bytes:
    """The whole page. ``styles``: style sheets of this package that a study adds to the common one.

    notice: stands below the title, above everything else.
    """
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light"),
        tag("title", f"{title} ({name})"),
        # Ours, and free of "<": the one text that stands unescaped.
        tag("style", Html("".join(map(_style, ("page.css", *styles))))),
    )
    body = tag(
        "body",
        tag("a", "Skip to the report", href="#main", class_="skip"),
        tag("header", tag("p", kicker, class_="kicker"), tag("h1", title), notice),
        _navigation(contents),
        tag("main", *parts, id="main", tabindex=-1),
        tag("footer", tag("p", foot, class_="small")),
    )
    return ("<!doctype html>\n" + tag("html", head, body, lang="en") + "\n").encode("utf-8")


def files_section(names: Mapping[str, str]) -> Html:
    """The files beside the page, each with what it holds."""
    return section(
        "files",
        "Tables beside this page",
        tag(
            "ul",
            [
                tag("li", join(tag("a", name, href=name), f": {text}"))
                for name, text in names.items()
            ],
            class_="files",
        ),
    )


def run_foot(evidence: RunEvidence) -> str:
    """The last words of a run's page."""
    return (
        f"Made from audited bytes of the run {evidence.manifest.name}; the same evidence gives the "
        "same page. It runs no script and asks no network for anything."
    )


def _style(name: str) -> str:
    return package_files("eps_locked.report").joinpath(name).read_text("utf-8")


def _navigation(lines: Iterable[Line]) -> Html:
    return tag(
        "nav",
        [
            tag(
                "ul",
                tag("li", tag("b", name)) if name else None,
                [tag("li", tag("a", text, href=f"#{anchor}")) for anchor, text in links],
            )
            for name, links in lines
        ],
        aria_label="Contents",
    )
