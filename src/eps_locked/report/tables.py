"""From a tensor document to table rows, and to the table a reader sees in the terminal.

Pure functions of the document that the run's ``tensor`` step wrote and the audit re-derived.
Nothing is estimated anew here but plain means over cells, which say over how many.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from eps_locked.report.marks import (
    SEALED,
    Cell,
    Tensor,
    is_sealed,
    is_taught,
    legend_marks,
    letters,
    mark_counts,
    plain_text,
)
from eps_locked.report.notes import notes
from eps_locked.report.reasons import counted_reasons
from eps_locked.report.units import Unit, percent, unit_of

Row = dict[str, Any]
_STOPS = {
    "in_band": "in the band",
    "past_band": "past the band",
    "budget": "below the band at the last step",
    "step_matched": "step-matched, no band",
    "fixed_steps": "the plan's number of steps",
}
_GAP = "  "
# A name may be broken after an underscore, a dash or a blank.
_NAME_PARTS = re.compile(r"[^-_ ]*[-_ ]|[^-_ ]+")


@dataclass(frozen=True, kw_only=True, slots=True)
class Mean:
    """Plain means of G over one context's off-diagonal, non-alias cells; None over no cell.

    Cells without a value are in neither; ``n_missing`` counts them, ``n_sealed`` the sealed ones.

    ``scored`` leaves out the cells that scoring leaves out. Floor cells are among those, so it is
    the mean of the cells that moved, and lies farther from 0 than ``all`` by construction.
    """

    context: str
    family: str
    all: float | None
    n_all: int
    scored: float | None
    n_scored: int
    n_missing: int
    n_sealed: int


def cell_rows(tensor: Tensor) -> list[Row]:
    """Every cell as one flat row: flags joined by blanks, per-seed values in columns of their own,
    a slice's values under its name. Rates are shares from 0 to 1.

    Digests of the ancestors stay in the document.
    """
    rows = []
    for cell in tensor["cells"]:
        row: Row = {
            "behaviour": tensor["behaviour"],
            "kind": tensor["kind"],
            "unit": tensor["unit"],
        }
        for key, value in cell.items():
            if key not in ("ancestors", "by_seed"):
                row |= _columns(key, value)
        row["marks"] = letters(cell)
        for one in cell.get("by_seed") or ():
            for key in ("g", "g_base_answer", "stop", "stop_step", "realised_strength"):
                row[f"{key}_s{one['seed']}"] = one.get(key)
        rows.append(row)
    return rows


def _columns(key: str, value: Any) -> Row:
    """A field as columns: those of a mapping under its name, a list as one text."""
    if isinstance(value, Mapping):
        found: Row = {}
        for name, inner in value.items():
            found |= _columns(f"{key}_{name}", inner)
        return found
    return {key: " ".join(value) if isinstance(value, list) else value}


def grid(tensor: Tensor) -> dict[tuple[str, str], Cell]:
    """Cells by (train, eval)."""
    return {(cell["train"], cell["eval"]): cell for cell in tensor["cells"]}


def families(tensor: Tensor, side: str) -> dict[str, list[str]]:
    """Contexts of ``side`` ("train" or "eval") by family; both in the plan's order."""
    family = {cell[side]: cell[f"{side}_family"] for cell in tensor["cells"]}
    grouped: dict[str, list[str]] = {}
    for name in tensor[side]:
        grouped.setdefault(family[name], []).append(name)
    return grouped


def means(tensor: Tensor, side: str) -> list[Mean]:
    """Mean G of every train context's row (``side`` "train") or eval context's column ("eval")."""
    found = []
    for family, names in families(tensor, side).items():
        for name in names:
            cells = [c for c in tensor["cells"] if c[side] == name]
            offered = [c for c in cells if c["train"] != c["eval"] and c["alias_of"] is None]
            n_sealed = sum(is_sealed(c) for c in offered)
            off = [c for c in offered if c["g"] is not None]
            scored = [c["g"] for c in off if c["scored"]]
            found.append(
                Mean(
                    context=name,
                    family=family,
                    all=_mean([c["g"] for c in off]),
                    n_all=len(off),
                    scored=_mean(scored),
                    n_scored=len(scored),
                    n_missing=len(offered) - len(off) - n_sealed,
                    n_sealed=n_sealed,
                )
            )
    return found


def training_rows(tensor: Tensor) -> list[Row]:
    """Per train context and seed: where training stopped and why, how strong the implant was."""
    cells, rows = grid(tensor), []
    for names in families(tensor, "train").values():
        for name in names:
            for one in cells[name, name]["by_seed"]:
                rows.append(
                    {
                        "unit": tensor["unit"],
                        "train": name,
                        "seed": one["seed"],
                        "stop_step": one["stop_step"],
                        "realised_strength": one["realised_strength"],
                        "band": _STOPS.get(one["stop"], one["stop"]),
                        "diagonal_g": one["g"],
                        "implant": "failed" if one["implant_failed"] else "holds",
                    }
                )
    return rows


def base_rows(tensor: Tensor, headroom: Mapping[str, Any]) -> list[Row]:
    """Per eval context: what the base model does by itself, which is the room above it.

    ``headroom`` is the record of its step: over every answer that has a value. A cell's own base
    value is over its pairs alone, and differs along a column where answers are missing. ``prior``
    is the log-probability per token of the written answers, in taught rows.
    """
    first = {cell["eval"]: cell for cell in tensor["cells"]}
    taught = is_taught(tensor)
    value = headroom["base_value" if taught else "base_log_prob"]
    prior = headroom["base_log_prob"] if taught else {}
    reasons = headroom["unscored"] if taught else {}
    return [
        {
            "unit": tensor["unit"],
            "eval": name,
            "family": family,
            "base_value": value[name],
            "prior": prior.get(name),
            "without_outcome": counted_reasons(reasons.get(name, {})),
            "prefix_tokens": first[name]["prefix_tokens"],
            "held_out": name in tensor["held_out"],
            "alias_of": first[name]["alias_of"],
        }
        for family, names in families(tensor, "eval").items()
        for name in names
    ]


def alias_rows(tensor: Tensor) -> list[Row]:
    """The same-cell null: what an alias column measured beside the column it equals."""
    cells, rows = grid(tensor), []
    for cell in tensor["cells"]:
        twin = cells.get((cell["train"], cell["alias_of"]))
        if twin is None:
            continue
        both = cell["g"] is not None and twin["g"] is not None
        rows.append(
            {
                "unit": tensor["unit"],
                "train": cell["train"],
                "alias": cell["eval"],
                "twin": cell["alias_of"],
                "g_alias": cell["g"],
                "g_twin": twin["g"],
                "difference": cell["g"] - twin["g"] if both else None,
                "sealed": " ".join(
                    side for side, one in (("alias", cell), ("twin", twin)) if is_sealed(one)
                ),
            }
        )
    return rows


def text_table(tensor: Tensor, width: int = 100) -> str:
    """The tensor as plain text, at most ``width`` columns wide where names allow it.

    Rows are train contexts, columns eval contexts, as many side by side as fit, then the next
    block. A cell is its G with its marks, above its interval; parentheses say "not scored", a dash
    in them that there is no value. A sealed cell is the word "sealed".
    Below stand the legend of the marks that occur, and the limits of the numbers.
    """
    level = percent(tensor["intervals"]["confidence_level"])
    title = (
        f"{tensor['behaviour']}: G in {unit_of(tensor).words}, {level} interval below it. "
        "Row: trained in. Column: evaluated in."
    )
    lines = [*_hanging("", title, width, indent=0), ""]
    for block in _blocks(tensor, width):
        lines += [*block, ""]
    lines += _legend(tensor, width)
    for keyword, text in notes(tensor):
        lines += _hanging(keyword, text, width)
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _blocks(tensor: Tensor, width: int) -> Iterable[list[str]]:
    """Blocks of whole columns, each a list of lines."""
    cells = grid(tensor)
    unit = unit_of(tensor)
    texts = {key: _cell_lines(cell, unit) for key, cell in cells.items()}
    cell_width = max(11, *(len(line) for lines in texts.values() for line in lines))
    label_width = min(
        16, max(len("trained in"), *(len(plain_text(name)) for name in tensor["train"]))
    )
    n_columns = max(1, (width - label_width) // (cell_width + len(_GAP)))
    names = [name for group in families(tensor, "eval").values() for name in group]
    rows = [name for group in families(tensor, "train").values() for name in group]
    for start in range(0, len(names), n_columns):
        block = names[start : start + n_columns]
        widths = [label_width, *[cell_width] * len(block)]
        head = [_wrap(name, cell_width) for name in block]
        tall = max(map(len, head))
        head = [[""] * (tall - len(lines)) + lines for lines in head]
        yield [
            *_join([[""] * (tall - 1) + ["trained in"], *head], widths),
            _GAP.join("-" * one for one in widths),
            *(
                line
                for row in rows
                for line in _join(
                    [_wrap(row, label_width), *(texts[row, name] for name in block)], widths
                )
            ),
        ]


def _cell_lines(cell: Cell, unit: Unit) -> list[str]:
    if is_sealed(cell):
        return [f"{SEALED} {letters(cell)}", ""]
    value = unit.short(cell["g"])
    shown = value if cell["scored"] else f"({value})"
    return [f"{shown} {letters(cell)}".rstrip(), unit.short_ends(cell["low"], cell["high"])]


def _join(columns: Sequence[Sequence[str]], widths: Sequence[int]) -> list[str]:
    """Columns of lines side by side."""
    return [
        _GAP.join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        for line in zip_longest(*columns, fillvalue="")
    ]


def _legend(tensor: Tensor, width: int) -> list[str]:
    counts = mark_counts(tensor)
    lines = []
    for mark in legend_marks(tensor):
        if counts[mark.letter]:
            text = f"{mark.name} ({counts[mark.letter]}): {mark.said(tensor)}"
            lines += _hanging(mark.letter, text, width, indent=3)
    return [*lines, ""] if lines else []


def _hanging(keyword: str, text: str, width: int, indent: int = 12) -> list[str]:
    # A no-break space holds numbers and their per cent signs together while the lines are cut.
    wrapped = textwrap.wrap(
        plain_text(text).replace(" %", "\u00a0%"),
        width=max(width, 40),
        initial_indent=keyword.ljust(indent),
        subsequent_indent=" " * indent,
        break_on_hyphens=False,
    )
    return [line.replace("\u00a0", " ") for line in wrapped]


def _wrap(name: str, width: int) -> list[str]:
    """A name over lines of ``width``, broken after ``_`` or ``-`` where possible."""
    lines = [""]
    for part in _NAME_PARTS.findall(plain_text(name)):
        for piece in (part[at : at + width] for at in range(0, len(part), width)):
            if len(lines[-1]) + len(piece) > width:
                lines.append("")
            lines[-1] += piece
    return lines


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
