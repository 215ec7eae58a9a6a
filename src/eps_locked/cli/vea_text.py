"""Documents of ``vea`` commands as a terminal shows them. Pure: documents in, text out."""

from __future__ import annotations

import io
import shutil
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from eps_locked.report.marks import plain_text
from eps_locked.studies.vea.verdicts import number, probability

__all__ = ["families_table", "items_lines", "model_text", "pairs_lines", "scores_lines"]

Entry = Mapping[str, Any]
_NARROWEST: Final = 60
# A rule and a space on either side of each cell.
_BORDER: Final = 3
_HEADS: Final = (
    "family",
    "role",
    "pairs",
    "ties",
    "inserted",
    "length_controlled",
    "p",
    "detectable",
    "verdict",
)
_VERDICTS: Final[Mapping[str, str]] = {
    "above_chance": "above chance",
    "below_chance": "below chance",
    "not_told_from_chance": "not told from chance",
    "too_few_questions": "no interval: fewer than two questions",
}


def model_text(document: Entry, model: Entry, sentences: Sequence[str]) -> str:
    """One reward model: what was scored, its families, and the sentence that is its headline.

    ``sentences``: the document's claims.
    """
    start = f"{model['reward_model']}: "
    headline = next(one for one in sentences if one.partition(". ")[2].startswith(start))
    scored = "".join(f"{plain_text(line)}\n" for line in scores_lines(model))
    return f"{scored}{families_table(document, model)}{plain_text(headline)}\n"


def scores_lines(model: Entry) -> Iterator[str]:
    """What was scored of one reward model, and what was not."""
    n_all = sum(model["statuses"].values())
    missing = {name: n for name, n in model["statuses"].items() if name != "scored"}
    said = f"{model['reward_model']}: {model['n_scores']} of {n_all} responses scored"
    if missing:
        said += f" ({', '.join(f'{name} {n}' for name, n in missing.items())})"
    scale = model["scale"]
    if scale["sd_base"] is not None:
        said += f"; base scores {number(scale['mean_base'])}, SD {number(scale['sd_base'])}"
    yield f"{said}; differences in: {model['unit']}"


def families_table(document: Entry, model: Entry, width: int | None = None) -> str:
    """A line for each family: mean differences with their intervals, p and verdict of the primary
    one (of a gate: of ``inserted``), and what it could have seen.

    ``width`` in columns; None: the terminal's. Where the table does not fit without breaking words
    it is a list of the same lines: half a number misleads.
    """
    lines = [
        list(map(plain_text, _family_line(document, model, family))) for family in model["families"]
    ]
    columns = width or max(shutil.get_terminal_size((100, 24)).columns, _NARROWEST)
    longest = [max(len(cell) for cell in column) for column in zip(_HEADS, *lines, strict=True)]
    if sum(one + _BORDER for one in longest) + 1 > columns:
        return "".join(_listed(line) for line in lines)
    table = Table()
    for position, head in enumerate(_HEADS):
        is_word = position in (0, 1, len(_HEADS) - 1)
        table.add_column(head, justify="left" if is_word else "right", no_wrap=True)
    for line in lines:
        table.add_row(*line)
    text = io.StringIO()
    Console(file=text, width=columns, highlight=False, markup=False, no_color=True).print(table)
    return text.getvalue()


def items_lines(document: Entry) -> Iterator[str]:
    """An accepted file: counts, and how far clause and control lie apart."""
    yield (
        f"accepted: {document['n_items']} items of {document['n_stems']} prompts, "
        f"{document['n_single_clause']} of them base, one space and one clause, byte for byte"
    )
    for family in document["families"]:
        apart = family["largest_deviation"]
        said = "" if apart is None else f", control's clause within {apart:.1%} of its length"
        yield f"  {family['family']}: {family['n_items']} items, {family['n_stems']} prompts{said}"
    if document["n_neutral_without_clause"]:
        yield (
            f"  {document['n_neutral_without_clause']} neutral controls insert nothing: they "
            "differ by 0 whatever the reward model, and test no gate"
        )
    if document["missing_families"]:
        yield f"  no items of: {', '.join(document['missing_families'])}"
    yield "  domains: " + ", ".join(f"{name} {n}" for name, n in document["domains"].items())
    found = document["tolerance_found"]
    if found is None:
        yield "  no item has a clause whose length could be matched"
    else:
        demanded = document["tolerance_demanded"]
        said = "none demanded" if demanded is None else f"demanded {demanded:g}"
        yield f"  tolerance found: {found:.4f}, at {document['tolerance_found_at']} ({said})"


def pairs_lines(document: Entry) -> Iterator[str]:
    """How often each reward model was right, and what hides behind the figure."""
    settings = document["settings"]
    yield (
        f"exploratory; {document['form']} form; confidence level "
        f"{settings['confidence_level']:g}, power {settings['power']:g}"
    )
    if document["n_ties_decided"]:
        yield (
            f"{document['n_ties_decided']} decisions name a winner of equal scores; they are ties "
            "here, as no score says so"
        )
    for model in document["reward_models"]:
        yield from _pairs_model(model, settings["power"], document["n_with_texts"])


def _pairs_model(model: Entry, power: float, n_with_texts: int) -> Iterator[str]:
    yield (
        f"{model['reward_model']}: {model['n_pairs']} pairs of {model['n_questions']} questions, "
        f"{model['n_judgements']} judgements"
    )
    yield (
        f"  right {model['n_right']}, wrong {model['n_wrong']}, ties {model['n_ties']}"
        + "".join(f", {status} {n}" for status, n in model["left_out"].items())
    )
    yield (f"  accuracy {_share(model['accuracy'])}, ties left out: {_VERDICTS[model['verdict']]}")
    yield f"  with ties as half {_share(model['half_credit'])}"
    smallest = model["minimum_detectable"]
    found = model["accuracy"]["effective_n"]
    if smallest is not None:
        yield (
            f"  as good as {found:.4g} independent judgements: could tell an accuracy from chance "
            f"that lies {100 * smallest:.3g} points from 50 % ({100 * power:.3g} % power)"
        )
    elif found is not None:
        yield "  so few judgements that no accuracy would be told from chance often enough"
    if n_with_texts:
        yield (
            f"  pairs of two equal texts: {model['n_same_text']} judgements, in no figure above; "
            f"scored apart all the same: {model['n_same_text_told_apart']}"
        )
    if len(model["by_order"]) > 1:
        for one in model["by_order"]:
            yield (
                f"  {one['order']}: right {one['n_right']}, wrong {one['n_wrong']}, ties "
                f"{one['n_ties']}, accuracy {_share(one['accuracy'])}"
            )
    both = model["both_orders"]
    if both is not None:
        yield (
            f"  of {both['n_pairs']} pairs in both orders: right in both {both['n_right']}, wrong "
            f"in both {both['n_wrong']}, tied in both {both['n_ties']}, changed with the order "
            f"{both['n_changed']}"
        )


def _share(share: Entry) -> str:
    if share["value"] is None:
        return "not defined (nothing with a winner)"
    said = f"{100 * share['value']:.1f} %"
    if share["low"] is None:
        return f"{said} (no interval)"
    return f"{said} ({100 * share['low']:.1f} to {100 * share['high']:.1f})"


def _family_line(document: Entry, model: Entry, family: Entry) -> Sequence[str]:
    is_gate = family["role"] == "gate"
    effect = family["inserted" if is_gate else document["settings"]["primary"]]
    gates = {one["gate"]: one["holds"] for one in model["gates"]}
    verdict = gates[family["family"]] if is_gate else effect["verdict"]
    smallest = effect["minimum_detectable_alone"]
    return (
        family["family"],
        family["role"],
        f"{family['n_pairs']}/{family['n_items']}",
        str(family["n_ties"]),
        _mean(family["inserted"]),
        _mean(family["length_controlled"]),
        _p(effect),
        "-" if smallest is None else number(smallest),
        verdict.replace("_", " "),
    )


def _mean(effect: Entry) -> str:
    if effect["mean"] is None:
        return "-"
    if effect["low"] is None:
        return number(effect["mean"])
    return f"{number(effect['mean'])} [{number(effect['low'])}, {number(effect['high'])}]"


def _p(effect: Entry) -> str:
    p = effect["p"] if effect["p_adjusted"] is None else effect["p_adjusted"]
    if p is None:
        return "-"
    return "<0.001" if p < 0.001 else probability(p)


def _listed(line: Sequence[str]) -> str:
    """One family in three lines: its verdict, its differences, what they rest on."""
    cells = dict(zip(_HEADS, line, strict=True))

    def named(*heads: str) -> str:
        return ", ".join(f"{head} {cells[head]}" for head in heads)

    return (
        f"{cells['family']} ({cells['role']}): {cells['verdict']}\n"
        f"  {named('inserted', 'length_controlled')}\n"
        f"  {named('p', 'detectable', 'pairs', 'ties')}\n"
    )
