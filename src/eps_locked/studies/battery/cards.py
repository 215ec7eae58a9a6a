"""The card of one model: what it is, its rates, and each difference from its base. Markdown.

It carries no date: the same evidence gives the same card. Whoever files it puts the date into its
name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from eps_locked.errors import MalformedInputError
from eps_locked.studies.battery.sentences import AXIS_WORDS, axis_name

__all__ = ["card", "rate_text"]


def card(document: Mapping[str, Any], model: str) -> str:
    """Raises MalformedInputError for a model that the document does not have."""
    names = [one["model"] for one in document["models"]]
    if model not in names:
        raise MalformedInputError(
            f"card of {model}", expected=" or ".join(names), found="no model of that name"
        )
    entry = document["models"][names.index(model)]
    own = [one for one in document["comparisons"] if one["model"] == model]
    lines = [
        f"# {model}",
        "",
        *_notice(entry, document),
        *_table(("what", "value"), _identity(entry)),
        "",
        "## Rates",
        "",
        *_table(
            ("axis", "thinking", "what is counted", "rate", "scored", "missing"),
            [_rate_row(axis) for axis in entry["axes"]],
        ),
        "",
        *_speed(entry["speed"]),
    ]
    for comparison in own:
        lines += ["", f"## {comparison['title']}", ""]
        lines += [f"- {row['sentence']}" for row in comparison["axes"]]
    if not own:
        lines += ["", "No base to compare with: a rate by itself says little."]
    weak = document["weak_discriminators"]
    if weak:
        lines += ["", "## Weak discriminators in this run", ""]
        lines += [f"- {axis_name(one['axis'], one['thinking'])}: {one['why']}" for one in weak]
    return "\n".join(lines) + "\n"


def rate_text(axis: Mapping[str, Any]) -> str:
    """A rate with its interval, or why there is none."""
    if not axis["measured"]:
        return f"not measured ({axis['n_scored']} of {axis['n_items']} scored)"
    return f"{axis['rate']:.0%} [{axis['low']:.0%}, {axis['high']:.0%}]"


def _notice(entry: Mapping[str, Any], document: Mapping[str, Any]) -> list[str]:
    said = [f"Analysis: {document['label']}."]
    if not entry["publishable"]:
        said.append("Not for publication: a stand-in serves or judges, or the plan says so.")
    return [" ".join(said), ""]


def _identity(entry: Mapping[str, Any]) -> list[tuple[str, str]]:
    endpoint = entry["endpoint"]
    sampling = ", ".join(f"{key} {value}" for key, value in entry["sampling"].items())
    return [
        ("route", entry["route"]),
        ("family", entry["family"]),
        ("base", entry["base"] or "none"),
        ("quantisation", entry["quantisation"]),
        ("context", f"{entry['context_length']} tokens"),
        ("sampling", sampling),
        ("chat template", entry["template_digest"]),
        ("server", endpoint.get("server", "unknown")),
        ("answered as", ", ".join(entry["answered_as"]) or "nothing"),
    ]


def _rate_row(axis: Mapping[str, Any]) -> tuple[str, ...]:
    missing = ", ".join(f"{n} {status}" for status, n in axis["missing"].items())
    return (
        axis["axis"],
        axis["thinking"],
        AXIS_WORDS[axis["axis"]],
        rate_text(axis),
        f"{axis['n_scored']} of {axis['n_items']}",
        missing or "none",
    )


def _speed(speed: Mapping[str, Any] | None) -> list[str]:
    if speed is None or speed["tokens_per_second"] is None:
        return ["Speed: not timed."]
    rate, first = speed["tokens_per_second"], speed["first_token_seconds"]
    until = "not streamed" if first is None else f"{first['median']:.2f} s to the first token"
    return [
        f"Speed: {rate['median']:.1f} tokens/s (median of {rate['n']} requests, "
        f"p10 {rate['p10']:.1f}, p90 {rate['p90']:.1f}), {until}; one request at a time, on the "
        "machine that served."
    ]


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return [*lines, *(f"| {' | '.join(map(_cell, row))} |" for row in rows)]


def _cell(text: str) -> str:
    return " ".join(str(text).split()).replace("|", "\\|")
