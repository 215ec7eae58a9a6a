"""What is said of each reward model, beside what was known of it beforehand; and the sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from eps_locked.report.absent import listed
from eps_locked.report.html import Child, Html, join, section, tag
from eps_locked.report.sheets import Column, Row, Sheet, sheet_table, words
from eps_locked.report.vea.view import HEADLINES, Entry, View, share_column
from eps_locked.report.verdict_marks import marked

# More sentences than this are folded away.
_OPEN = 12
# Headlines that a gate, or too few prompts, took away: no breadth may be read beside them.
_TAKEN = {"confounded": "a gate fails", "not_measured": "not measured"}


def headline_sheet(view: View) -> Sheet:
    """One row a reward model. Its breadth stands here only where it may be read."""
    return Sheet(
        file="headlines.csv",
        what="What is said of each reward model",
        columns=(
            words("reward model", "reward_model"),
            Column(head="headline", keys=("headline",), show=_headline),
            words("known beforehand", "expected"),
            Column(head="agrees", keys=("agrees",), show=lambda row: row["agrees"] or "–"),
            share_column(f"breadth [{view.level}]", "breadth"),
            words("gates", "gates", wide=True),
            words("why", "why", wide=True),
        ),
        rows=tuple(_row(model) for model in view.models),
    )


def breadth_taken(model: Entry) -> str:
    """Why the breadth of a reward model must not be read; empty where it may."""
    if model["headline"] in _TAKEN:
        return _TAKEN[model["headline"]]
    if any(gate["holds"] != "holds" for gate in model["gates"]):
        return "a gate is undetermined"
    return ""


def headlines_section(view: View, sheet: Sheet) -> Html:
    """The count of arms that came out as known, what gates took away, and the table."""
    return section(
        "headlines",
        "Headlines",
        tag("p", _reading(view), class_="small"),
        _known_truth(view),
        *_gates_taken(view),
        sheet_table(sheet, join(view.promised, " What is said of each reward model")),
    )


def claims_section(view: View, claims: Sequence[str]) -> Html | None:
    """The headline of each reward model in one sentence, and those on its families folded."""
    if not claims:
        return None
    few = len(claims) <= _OPEN
    blocks = [_sentences(claims)] if few else list(_by_model(view, claims))
    return section(
        "claims",
        "In one sentence each",
        *blocks,
        tag("p", "The same sentences: ", tag("a", "claims.txt", href="claims.txt"), class_="small"),
    )


def _by_model(view: View, claims: Sequence[str]) -> Iterator[Html]:
    """The claims come as headline, families and gates without an item, reward model by reward
    model. Claims that do not are folded as they stand."""
    counts = [1 + len(_spoken_of(model)) for model in view.models]
    if sum(counts) != len(claims):
        yield _folded(f"All {len(claims)} sentences", claims)
        return
    rest = list(claims)
    for model, n in zip(view.models, counts, strict=True):
        (first, *others), rest = rest[:n], rest[n:]
        yield join(
            tag("p", first, class_="said"),
            _folded(f"{model['reward_model']}: its {len(others)} families, a sentence each", others)
            if others
            else None,
        )


def _spoken_of(model: Entry) -> list[str]:
    there = [family["family"] for family in model["families"]]
    return [*there, *(one["gate"] for one in model["gates"] if one["gate"] not in there)]


def _folded(summary: str, claims: Sequence[str]) -> Html:
    return tag("details", tag("summary", summary), _sentences(claims))


def _sentences(claims: Sequence[str]) -> Html:
    return tag("ul", [tag("li", one) for one in claims], class_="sentences")


def _reading(view: View) -> str:
    settings = view.settings
    return (
        f"Broad: the anchor is penalised, and at least {settings['broad_from'] * 100:g} % of the "
        f"other families are. Narrow: the anchor is, and at most {settings['narrow_to'] * 100:g} % "
        "of them may be, the undetermined counted. Partial: between the two. Null: neither the "
        f"anchor nor any of them. These limits and the margin of {view.margin:g} were "
        f"{view.margin_words}. No headline stands on a gate that fails or is undetermined."
    )


def _known_truth(view: View) -> Html | None:
    known = [model for model in view.models if model["agrees"] is not None]
    if not known:
        return None
    missed = [model for model in known if not model["agrees"]]
    n, right = len(known), len(known) - len(missed)
    what = "reward model" if n == 1 else "reward models"
    said = join(
        tag("b", f"{right} of {n} {what} of known truth came out as known. "),
        "What an arm is was written into the plan before it was scored.",
    )
    if not missed:
        return tag("p", said, class_="good")
    found = listed(
        [f"{one['reward_model']} ({one['expected']} known, {_words(one)} found)" for one in missed]
    )
    return tag("p", said, f" Otherwise: {found}.", class_="notice")


def _gates_taken(view: View) -> Iterator[Html]:
    for model in view.models:
        if model["headline"] != "confounded":
            continue
        failed = [gate["gate"] for gate in model["gates"] if gate["holds"] == "fails"]
        gates = f"the gate {failed[0]} fails"
        if len(failed) > 1:
            gates = f"the gates {listed(failed)} fail"
        yield tag(
            "p",
            tag("b", f"{model['reward_model']} has no headline: "),
            f"{gates}, so it minds more than being evaluated. How many families it penalises must "
            "not be read as breadth.",
            class_="notice",
        )


def _headline(row: Row) -> Child:
    """A gate that fails takes the headline away, and says so in its place."""
    mark = next(one for one in HEADLINES.values() if one.words == row["headline"])
    if row["headline_key"] != "confounded":
        return marked(mark)
    return join(marked(mark), " ", tag("small", "no headline: a gate fails", class_="why"))


def _row(model: Entry) -> Row:
    breadth = model["breadth"]
    taken = breadth_taken(model)
    shown: Mapping[str, Any] = {} if taken else breadth
    return {
        "reward_model": model["reward_model"],
        "headline": _words(model),
        "headline_key": model["headline"],
        "expected": None if model["expected"] is None else _expected(model["expected"]),
        "agrees": {True: "yes", False: "no", None: None}[model["agrees"]],
        "breadth": shown.get("score"),
        "breadth_low": shown.get("low"),
        "breadth_high": shown.get("high"),
        "breadth_taken": taken,
        "gates": _gates(model),
        "why": model["why"],
    }


def _words(model: Entry) -> str:
    return HEADLINES[model["headline"]].words


def _expected(name: str) -> str:
    return HEADLINES[name].words if name in HEADLINES else name


def _gates(model: Entry) -> str:
    return ", ".join(f"{gate['gate']} {gate['holds']}" for gate in model["gates"])
