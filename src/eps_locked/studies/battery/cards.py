"""The card of one model: what it is, its rates, and each difference from its base. Markdown.

It carries no date: the same evidence gives the same card. Whoever files it puts the date into its
name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from eps_locked.errors import MalformedInputError
from eps_locked.studies.battery.sentences import (
    AXIS_WORDS,
    axis_name,
    missing_words,
    served_words,
    stage_words,
    unthinking,
)

__all__ = ["card", "rate_text"]

_LONGEST: Final = 400
_MARKUP: Final = re.compile(r"[\\`*<>\[\]]")


def card(document: Mapping[str, Any], model: str, evidence: str | None = None) -> str:
    """``evidence``: where the record is, by whose checks the numbers hold; None within the run.

    Raises MalformedInputError for a model that the document does not have.
    """
    names = [one["model"] for one in document["models"]]
    if model not in names:
        raise MalformedInputError(
            f"card of {model}",
            expected=" or ".join(names),
            found="no model of that name",
            next_step=f"battery show {document['run']} lists the models with their rates",
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
            ("axis", "thinking", "what is counted", "rate", "scored", "verdicts", "missing"),
            [_rate_row(axis) for axis in entry["axes"]],
        ),
        "",
        *_cases(entry["axes"]),
        *_speed(entry["speed"]),
    ]
    for comparison in own:
        lines += ["", f"## {_text(comparison['title'])}", ""]
        lines += [f"- {_text(row['sentence'])}" for row in comparison["axes"]]
        lines += [f"- {_text(one)}" for one in served_words(comparison)]
    if not own:
        lines += ["", "No base to compare with in this run: a rate by itself says little."]
    lines += _stages([one for one in document["stages"] if one["model"] == model])
    lines += _thinking(
        [one for one in document["thinking"] if one["model"] == model], unthinking(document, model)
    )
    weak = document["weak_discriminators"]
    if weak:
        lines += ["", "## Weak discriminators in this run", ""]
        lines += [f"- {axis_name(one['axis'], one['thinking'])}: {one['why']}" for one in weak]
    if evidence is not None:
        lines += ["", _text(evidence)]
    return "\n".join(lines) + "\n"


def rate_text(axis: Mapping[str, Any]) -> str:
    """A rate with its interval, or why there is none."""
    if not axis["measured"]:
        return f"not measured ({axis['n_scored']} of {axis['n_items']} scored)"
    half = axis["half_way"]
    halves = "" if half is None or half == axis["rate"] else f", {half:.0%} with partials as halves"
    return f"{axis['rate']:.0%} [{axis['low']:.0%}, {axis['high']:.0%}]{halves}"


def _notice(entry: Mapping[str, Any], document: Mapping[str, Any]) -> list[str]:
    said = [f"Run {document['run']}, {document['label']} analysis."]
    if entry["endpoint_changed"]:
        said.append(
            "The endpoint did not say the same of itself throughout: "
            + ", ".join(map(_text, entry["endpoint_changed"]))
            + "."
        )
    if not entry["publishable"]:
        said.append("Not for publication: a stand-in serves or judges, or the plan says so.")
    return [" ".join(said), ""]


def _identity(entry: Mapping[str, Any]) -> list[tuple[str, str]]:
    said = entry["endpoint"].get("said", {})
    sampling = ", ".join(f"{key} {_number(value)}" for key, value in entry["sampling"].items())
    return [
        ("route", entry["route"]),
        ("family", entry["family"]),
        ("base", entry["base"] or "none"),
        ("quantisation", entry["quantisation"]),
        ("context", f"{entry['context_length']} tokens"),
        ("sampling", sampling),
        ("chat template", entry["template_digest"]),
        ("system prompt", entry["system_prompt"] or "none"),
        ("server", entry["server"]),
        (
            "the server says",
            "; ".join(f"{name} {said[name]}" for name in sorted(said)) or "nothing",
        ),
        ("answered as", ", ".join(one or "nothing" for one in entry["answered_as"]) or "nothing"),
    ]


def _rate_row(axis: Mapping[str, Any]) -> tuple[str, ...]:
    classes = ", ".join(f"{n} {verdict}" for verdict, n in axis["classes"].items())
    return (
        axis["axis"],
        axis["thinking"],
        AXIS_WORDS[axis["axis"]],
        rate_text(axis),
        f"{axis['n_scored']} of {axis['n_items']}",
        classes or "none",
        missing_words(axis["missing"]),
    )


def _speed(speed: Mapping[str, Any] | None) -> list[str]:
    if speed is None or speed["seconds"] is None:
        return ["Speed: not timed."]
    if speed["tokens_per_second"] is None:
        return [f"Speed: {speed['seconds']['median']:.2f} s a request; nobody counted its tokens."]
    rate, first = speed["tokens_per_second"], speed["first_token_seconds"]
    until = "not streamed" if first is None else f"{first['median']:.2f} s to the first token"
    return [
        f"Speed: {rate['median']:.1f} tokens/s (median of {rate['n']} requests, "
        f"p10 {rate['p10']:.1f}, p90 {rate['p90']:.1f}), {until}; one request at a time, on the "
        "machine that served."
    ]


def _cases(axes: Sequence[Mapping[str, Any]]) -> list[str]:
    """The kinds of tool cases apart: a model that always calls gets some of them right."""
    lines = []
    for axis in axes:
        if axis["by_case"] and axis["measured"]:
            kinds = ", ".join(
                f"{kind} {one['n_counted']} of {one['n_scored']}"
                for kind, one in axis["by_case"].items()
            )
            lines.append(f"- {axis_name(axis['axis'], axis['thinking'])}, right by case: {kinds}")
    return [*lines, ""] if lines else []


def _stages(found: Sequence[Mapping[str, Any]]) -> list[str]:
    if not found:
        return []
    lines = ["", "## The two stages of reading refusals", ""]
    return lines + [f"- {_text(stage_words(one))}" for one in found]


def _thinking(found: Sequence[Mapping[str, Any]], without: Sequence[str]) -> list[str]:
    if not (found or without):
        return []
    lines = ["", "## What was thought before the answers", ""]
    lines += [
        f"- {axis_name(one['axis'], one['thinking'])}: of {one['n_both_read']} replies that were "
        f"read on both sides, refused in the thinking and complied in the answer "
        f"{one['refused_in_thinking_only']}, the reverse {one['refused_in_answer_only']}, refused "
        f"in both {one['refused_in_both']}, in neither {one['refused_in_neither']}, partial in "
        f"either {one['partial_in_either']}."
        for one in found
    ]
    return lines + [f"- {one}." for one in without]


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return [*lines, *(f"| {' | '.join(map(_cell, row))} |" for row in rows)]


def _number(value: Any) -> str:
    # A whole float is written as stored documents write it: without a point.
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _cell(text: str) -> str:
    """In one cell, whatever a server called itself, and no longer than anybody reads."""
    one_line = " ".join(str(text).split())
    shown = one_line if len(one_line) <= _LONGEST else one_line[:_LONGEST] + "..."
    return _text(shown).replace("|", "\\|")


def _text(text: str) -> str:
    """As it is: a server's own words are neither markup nor a link nor a steering sequence."""
    printable = "".join(letter if letter.isprintable() else "?" for letter in text)
    return _MARKUP.sub(r"\\\g<0>", printable)
