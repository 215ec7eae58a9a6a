"""The terminal table says each value with its interval and its marks, and what limits them."""

from __future__ import annotations

import csv
import io
import re
from typing import Any

import pytest
from big import big_tensor, sealed

from eps_locked.errors import EvidenceError, MalformedInputError
from eps_locked.report.marks import legend_marks, letters
from eps_locked.report.notes import notes
from eps_locked.report.sheets import csv_bytes
from eps_locked.report.tables import (
    alias_rows,
    base_rows,
    cell_rows,
    families,
    means,
    text_table,
    training_rows,
)
from eps_locked.report.units import interval, signed


@pytest.fixture(scope="module")
def tensor() -> dict[str, Any]:
    return big_tensor()


def cell(tensor: dict[str, Any], train: str, evaluated: str) -> dict[str, Any]:
    return next(c for c in tensor["cells"] if (c["train"], c["eval"]) == (train, evaluated))


def squeezed(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_the_table_fits_the_width_and_holds_every_cell(tensor: dict[str, Any], width: int) -> None:
    text = text_table(tensor, width)
    assert max(map(len, text.splitlines())) <= width
    assert "\x1b" not in text
    assert all(line == line.rstrip() for line in text.splitlines())
    body = text.partition("reading  ")[0]
    found = sorted(re.findall(r"\[-?[\d.]+, -?[\d.]+\]", body))
    valued = [c for c in tensor["cells"] if c["g"] is not None]
    assert len(valued) == 16 * 28
    assert found == sorted(interval(c["low"], c["high"]) for c in valued)
    assert len(re.findall(r"\(-\) hN[XU]?T", body)) == 16


def test_a_value_stands_above_its_interval_under_its_column(tensor: dict[str, Any]) -> None:
    one = {**tensor, "train": tensor["train"][:1], "eval": tensor["eval"][:1]}
    one["cells"] = [{**cell(tensor, *one["train"], *one["eval"]), "g": 6.149, "low": 5.2}]
    one["cells"][0] |= {"high": 7.04, "flags": ["ceiling", "marker_emitted"], "scored": False}
    lines = text_table(one).splitlines()
    at = next(n for n, line in enumerate(lines) if "(+6.1) =CE" in line)
    assert lines[at].index("(+6.1)") == lines[at + 1].index("[5.2, 7.0]")
    assert lines[at].index("(+6.1)") == lines[at - 2].index("engineer")
    assert lines[at].startswith("persona_ ")


def test_the_legend_explains_the_marks_that_occur_and_no_others(tensor: dict[str, Any]) -> None:
    text, with_seal = text_table(tensor), text_table(sealed(tensor))
    for mark in legend_marks(tensor):
        assert f"\n{mark.letter}  {mark.name} (" in (with_seal if mark.letter == "S" else text)
    assert "\nS  sealed" not in text
    plain = [
        {**c, "flags": [], "scored": True, "split": "open", "n_truncated": 0}
        for c in tensor["cells"]
    ]
    text = text_table({**tensor, "cells": plain})
    assert "ceiling" not in text
    assert "All 448 cells off the diagonal take part in scoring." in text
    assert "fewer (" not in text
    assert "No cell is held out or quarantined." in text


def test_the_notes_name_counts_method_resolution_reading_and_exclusions(
    tensor: dict[str, Any],
) -> None:
    text = squeezed(text_table(tensor))
    for words in (
        "80 readings a cell: 40 questions x 2 seeds.",
        "95 % interval (t, seed variance pooled over the row's cells)",
        "an effect of 0.87 nats or more (pooled standard error 0.31 nats; two-sided 5 %, power",
        "from the 464 cells in which every answer could be read).",
        "Primary reading (own_answer)",
        "Second reading (base_answer)",
        "The 2 seeds of one cell say little of how far another training run would fall",
        "set apart by name only",
    ):
        assert words in text
    out = [c for c in tensor["cells"] if not c["scored"] and c["train"] != c["eval"]]
    floors = sum("floor" in c["flags"] for c in out)
    assert f"{len(out)} are out, in parentheses: {floors} floor" in text
    assert "16 no value" in text


def test_what_was_cut_short_is_counted_and_said(tensor: dict[str, Any]) -> None:
    short = [c for c in tensor["cells"] if c["n_truncated"]]
    words = dict(notes(tensor))["n"]
    assert f"{len(short)} cells have fewer (1 at the least)" in words
    assert "16 cells have no value at all." in words
    one = {**short[0], "g": 1.0, "n": 79, "n_truncated": 1}
    words = dict(notes({**tensor, "cells": [one]}))["n"]
    assert "1 cell has fewer (79 at the least)" in words
    assert "no value" not in words


def test_resolution_that_no_cell_supports_is_called_undefined(tensor: dict[str, Any]) -> None:
    words = dict(notes({**tensor, "resolution": None}))["resolution"]
    assert "undefined with no cell of which every answer was read" in words


def test_one_seed_is_said_to_leave_resolution_and_luck_open() -> None:
    text = squeezed(text_table(big_tensor(n_seeds=1)))
    assert "undefined with one seed" in text
    assert "that training run alone" in text
    assert "40 questions x 1 seed." in text


def test_no_spread_at_all_is_not_called_perfect_resolution(tensor: dict[str, Any]) -> None:
    resolution = {**tensor["resolution"], "standard_error": 0.0, "minimum_detectable_effect": None}
    words = dict(notes({**tensor, "resolution": resolution}))["resolution"]
    assert "no smallest detectable effect" in words


@pytest.mark.parametrize(("key", "value"), [("flags", ["brand_new"]), ("split", "elsewhere")])
def test_a_warning_without_words_is_refused(
    tensor: dict[str, Any], key: str, value: object
) -> None:
    odd = {**tensor["cells"][3], key: value}
    with pytest.raises(MalformedInputError) as caught:
        letters(odd)
    assert odd["eval"] in str(caught.value)
    assert caught.value.found in ("brand_new", "elsewhere")


def test_names_cannot_steer_the_terminal(tensor: dict[str, Any]) -> None:
    assert "\x1b" not in text_table({**tensor, "behaviour": "red\x1b[31m"})


@pytest.mark.parametrize(
    ("value", "text"), [(6.149, "+6.1"), (-0.04, "0.0"), (0.04, "0.0"), (-0.06, "-0.1")]
)
def test_what_rounds_to_zero_has_no_sign(value: float, text: str) -> None:
    assert signed(value) == text


def test_families_keep_the_plans_order_and_lose_nobody(tensor: dict[str, Any]) -> None:
    grouped = families(tensor, "eval")
    assert list(grouped)[:3] == ["persona", "prefix", "examples"]
    assert sorted(name for names in grouped.values() for name in names) == sorted(tensor["eval"])


def test_means_leave_out_diagonal_and_aliases_and_count_what_they_hold(
    tensor: dict[str, Any],
) -> None:
    one = next(mean for mean in means(tensor, "train") if mean.context == "examples_two")
    off = [
        c
        for c in tensor["cells"]
        if c["train"] == "examples_two" != c["eval"] and c["alias_of"] is None
    ]
    off = [c for c in off if c["g"] is not None]
    scored = [c["g"] for c in off if c["scored"]]
    assert (one.n_all, one.n_scored, one.n_missing) == (26, len(scored), 1)
    assert one.all == pytest.approx(sum(c["g"] for c in off) / 26)
    assert one.scored == pytest.approx(sum(scored) / len(scored))


def test_a_mean_over_no_cell_is_no_number(tensor: dict[str, Any]) -> None:
    alias = next(m for m in means(tensor, "eval") if m.context == "instruction_marker_again")
    assert (alias.all, alias.n_all, alias.scored, alias.n_scored) == (None, 0, None, 0)
    empty = next(m for m in means(tensor, "eval") if m.context == "persona_bus_dispatcher")
    assert (empty.all, empty.n_all, empty.n_scored, empty.n_missing) == (None, 0, 0, 16)


def test_each_alias_stands_beside_the_cell_it_repeats(tensor: dict[str, Any]) -> None:
    rows = alias_rows(tensor)
    assert [row["train"] for row in rows] == tensor["train"]
    assert {row["twin"] for row in rows} == {"instruction_marker"}
    assert all(row["difference"] == row["g_alias"] - row["g_twin"] for row in rows)


@pytest.mark.parametrize("name", ["instruction_marker", "instruction_marker_again"])
def test_an_alias_beside_a_cell_without_value_has_no_difference(
    tensor: dict[str, Any], name: str
) -> None:
    cells = [{**c, "g": None} if c["eval"] == name else c for c in tensor["cells"]]
    rows = alias_rows({**tensor, "cells": cells})
    assert len(rows) == 16
    assert {row["difference"] for row in rows} == {None}


def test_training_base_and_cell_rows_cover_the_design(tensor: dict[str, Any]) -> None:
    training = training_rows(tensor)
    assert len(training) == 16 * 2
    assert {row["implant"] for row in training} == {"holds", "failed"}
    assert "step-matched, no band" in {row["band"] for row in training}
    base = {name: -float(number) for number, name in enumerate(tensor["eval"])}
    found = base_rows(tensor, {"base_log_prob": base})
    assert {row["eval"]: row["base_value"] for row in found} == base
    rows = cell_rows(tensor)
    assert len(rows) == 16 * 29
    assert {"g_s11", "g_s12", "marks", "low_base_answer", "n_truncated"} <= set(rows[0])
    text = csv_bytes([row for row in rows if row["eval"] == "persona_bus_dispatcher"]).decode()
    first = next(csv.DictReader(io.StringIO(text)))
    assert (first["g"], first["high"], first["g_s11"], first["g_base_answer"]) == ("", "", "", "")
    assert (first["n"], first["n_truncated"]) == ("1", "79")
    assert not any(isinstance(value, list | dict) for row in rows for value in row.values())


def test_a_sealed_cell_is_the_word_and_its_marks_and_no_number(tensor: dict[str, Any]) -> None:
    document = sealed(tensor)
    text = text_table(document)
    body = text.partition("reading  ")[0]
    assert len(re.findall(r"sealed hS", body)) == 16 * 9
    assert len(re.findall(r"sealed qS", body)) == sum(
        c["split"] == "quarantined" for c in tensor["cells"]
    )
    open_cells = [c for c in document["cells"] if "sealed" not in c["flags"]]
    assert len(re.findall(r"\[-?[\d.]+, -?[\d.]+\]", body)) == len(open_cells)
    assert "all of them sealed: their values were encrypted" in squeezed(text)
    assert "sealed ones wait for the final test" in squeezed(text)
    assert max(map(len, text.splitlines())) <= 100


def test_sealed_cells_are_counted_apart_from_cells_without_value(tensor: dict[str, Any]) -> None:
    document = sealed(tensor)
    held = next(m for m in means(document, "eval") if m.context == "examples_four")
    assert (held.all, held.n_all, held.n_missing, held.n_sealed) == (None, 0, 0, 16)
    rows = [row for row in cell_rows(document) if row["flags"] == "sealed"]
    assert len(rows) == sum("sealed" in c["flags"] for c in document["cells"])
    assert {row["g"] for row in rows} == {None}
    assert {row["marks"] for row in rows} == {"hS", "qS"}
    aliases = alias_rows({**document, "cells": [_as_sealed(c) for c in document["cells"]]})
    of_others = [row for row in aliases if row["train"] != "instruction_marker"]
    assert {row["sealed"] for row in of_others} == {"alias", "alias twin"}
    assert {row["difference"] for row in of_others} == {None}


def _as_sealed(cell: dict[str, Any]) -> dict[str, Any]:
    """The alias column sealed, for once."""
    if cell["eval"] != "instruction_marker_again" or cell["train"] == "instruction_marker":
        return cell
    return sealed({"cells": [{**cell, "split": "held_out"}]})["cells"][0]


@pytest.mark.parametrize(
    "told",
    [
        {"g": 1.0},
        {"trained_log_prob": -3.0},
        {"emission_rate": 0},
        {"by_seed": [{"seed": 11, "g": 0.2}]},
        {"flags": ["floor", "sealed"]},
        {"scored": True},
    ],
)
def test_a_sealed_cell_that_tells_anything_is_refused_everywhere(
    tensor: dict[str, Any], told: dict[str, Any]
) -> None:
    cells = sealed(tensor)["cells"]
    at = next(n for n, c in enumerate(cells) if "sealed" in c["flags"])
    cells[at] = {**cells[at], **told}
    with pytest.raises(EvidenceError, match="what the seal hides"):
        text_table({**tensor, "cells": cells})
    with pytest.raises(EvidenceError):
        cell_rows({**tensor, "cells": cells})
