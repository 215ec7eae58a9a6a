"""What stands first: the sentences, and everything that was not measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from eps_locked.report.absent import listed
from eps_locked.report.battery.view import (
    VERDICTS,
    Entry,
    View,
    axis_column,
    counted,
    marked,
    model_column,
    notice,
    place_words,
    thinking_column,
)
from eps_locked.report.html import Html, join, section, tag
from eps_locked.report.sheets import Column, Row, Sheet, share, sheet_table
from eps_locked.report.verdict_marks import of_column

# More sentences than this are folded away, but for those that found something.
_OPEN = 8
_FOUND = ("higher", "lower")


def claims_section(view: View, claims: Sequence[str]) -> Html | None:
    """What was found in one sentence each, and all other sentences folded by comparison."""
    if not claims:
        return None
    few = len(claims) <= _OPEN
    blocks = [_sentences(claims)] if few else list(_sorted(view, claims))
    return section(
        "claims",
        "In one sentence each",
        _tally(view),
        *blocks,
        tag("p", "The same sentences: ", tag("a", "claims.txt", href="claims.txt"), class_="small"),
    )


def _tally(view: View) -> Html | None:
    """How often each verdict was given, which is no finding by itself."""
    found = Counter(row["verdict"] for _, row in view.compared())
    if not found:
        return notice(
            "Nothing compared",
            "no model of this run has a base in it, and a rate by itself says little.",
        )
    n = found.total()
    parts: list[Html] = []
    for verdict in VERDICTS:
        if found[verdict]:
            parts.append(join("; " if parts else "", f"{found[verdict]} ", marked(verdict)))
    what = "comparison" if n == 1 else "comparisons"
    return tag("p", f"Of {n} {what} with a base: ", *parts, ".", class_="lead")


def _sorted(view: View, claims: Sequence[str]) -> Iterator[Html]:
    said = {
        f"{one['title']}: {row['sentence']}"
        for one, row in view.compared()
        if row["verdict"] in _FOUND
    }
    found = [one for one in claims if any(one.startswith(sentence) for sentence in said)]
    if found:
        yield _sentences(found)
    rest = [one for one in claims if one not in found]
    for comparison in view.comparisons:
        own = [one for one in rest if one.startswith(f"{comparison['title']}: ")]
        rest = [one for one in rest if one not in own]
        if own:
            yield _folded(f"{comparison['title']}: {len(own)} more", own)
    if rest:
        yield _folded(f"{len(rest)} about axes and models", rest)


def _folded(summary: str, claims: Sequence[str]) -> Html:
    return tag("details", tag("summary", summary), _sentences(claims))


def _sentences(claims: Sequence[str]) -> Html:
    return tag("ul", [tag("li", one) for one in claims], class_="sentences")


# -- not measured


def missing_sheet(view: View) -> Sheet:
    """One row for each axis of a model on which too few items have a verdict."""
    return Sheet(
        file="not-measured.csv",
        what="Axes on which too few items have a verdict",
        columns=(
            model_column(),
            axis_column(),
            thinking_column(),
            of_column("with a verdict", "n_scored", "n_items"),
            share("the plan asks for", "minimum_scored_share"),
            Column(
                head="why the others have none",
                keys=("missing",),
                show=lambda row: row["missing"],
                kind="wide",
            ),
        ),
        rows=tuple(_row(model, axis) for model, axis in view.axes() if not axis["measured"]),
    )


def missing_section(view: View, sheet: Sheet) -> Html:
    """What the plan promised and did not get; where that is nothing, it says so."""
    blocks = list(_missing(view, sheet))
    if not blocks:
        blocks = [
            tag(
                "p",
                tag("b", "Everything was measured. "),
                "Every axis of every model has as many verdicts as the plan asks for. Items "
                "without one are counted beside the rates.",
                class_="good",
            )
        ]
    return section(
        "not-measured",
        "What was not measured",
        *blocks,
        _without_verdict(view),
        *_doubtful(view),
    )


def _missing(view: View, sheet: Sheet) -> Iterator[Html]:
    if sheet.rows:
        n, of = len(sheet.rows), sum(1 for _ in view.axes())
        yield notice(
            f"{n} of {of} rates not measured",
            "fewer items have a verdict than the plan asks for, so there is no rate and no "
            "comparison with it. An item without a verdict is no refusal and no mistake.",
        )
        yield sheet_table(sheet, join(view.promised, " Too few verdicts"))
    untimed = [
        str(model["model"])
        for model in view.models
        if model["speed"] is not None and model["speed"]["n_timed"] == 0
    ]
    if untimed:
        yield notice("Not timed", f"no request to {listed(untimed)} could be timed.")
    few = list(_few_shared(view))
    if few:
        asked = view.settings["minimum_items"]
        yield notice(
            "Not compared",
            f"fewer than {asked} items to compare on, though each rate was measured: "
            f"{'; '.join(few)}.",
        )


def _without_verdict(view: View) -> Html | None:
    """How many replies have no verdict, by the reason, and where most are missing: what is missing
    seldom is so by chance, also of a rate that counts as measured."""
    missing: Counter[str] = Counter()
    for _, axis in view.axes():
        missing.update(axis["missing"])
    n = missing.total()
    if not n:
        return None
    of = sum(axis["n_items"] for _, axis in view.axes())
    by_reason = dict(sorted(missing.items(), key=lambda one: (-one[1], one[0])))
    model, axis = max(view.axes(), key=lambda one: _share_missing(one[1]))
    return notice(
        f"{n} of {of} replies without a verdict",
        f"{counted(by_reason)}. Such replies are in no rate, and they are seldom missing by "
        f"chance. The largest share is that of {model['model']}, "
        f"{place_words(axis['axis'], axis['thinking'])}: {axis['n_items'] - axis['n_scored']} of "
        f"{axis['n_items']}.",
    )


def _share_missing(axis: Entry) -> float:
    return 1 - float(axis["n_scored"] / axis["n_items"])


def _few_shared(view: View) -> Iterator[str]:
    """Rows of comparisons that lack a delta though both rates are there."""
    there = {
        (model["model"], axis["axis"], axis["thinking"])
        for model, axis in view.axes()
        if axis["measured"]
    }
    for comparison, row in view.compared():
        names = comparison["model"], comparison["base"]
        place = row["axis"], row["thinking"]
        if row["verdict"] == "not_measured" and all((name, *place) in there for name in names):
            yield (
                f"{names[0]} against {names[1]}, {place_words(*place)} "
                f"({row['n_pairs']} of {row['n_items']})"
            )


def _doubtful(view: View) -> Iterator[Html]:
    """What was measured, but perhaps not of what its name says."""
    thoughtless = [str(model["model"]) for model in view.models if _is_thoughtless(view, model)]
    if thoughtless:
        yield notice(
            "Perhaps without thinking",
            f"no reply of {listed(thoughtless)} to over-refusal held a thought with thinking on. A "
            "server that does not know the field for it ignores it without a word, so rates with "
            "thinking on may be rates with it off.",
        )
    for model in view.models:
        if model["endpoint_changed"]:
            yield notice(
                f"{model['model']} may be several",
                "its endpoint did not say the same of itself throughout: "
                f"{', '.join(model['endpoint_changed'])}.",
            )


def _is_thoughtless(view: View, model: Entry) -> bool:
    """Thoughts are looked at on the axis of refusals alone."""
    thought = {(one["model"], one["thinking"]) for one in view.document["thinking"]}
    return any(
        axis["axis"] == "over_refusal"
        and axis["thinking"] == "on"
        and axis["n_scored"]
        and (model["model"], "on") not in thought
        for axis in model["axes"]
    )


def _row(model: Entry, axis: Entry) -> Row:
    return {
        "model": model["model"],
        "axis": axis["axis"],
        "thinking": axis["thinking"],
        "n_items": axis["n_items"],
        "n_scored": axis["n_scored"],
        "minimum_scored_share": axis["minimum_scored_share"],
        "missing": counted(axis["missing"]),
    }
