"""Somebody's own scores: what is read, what is counted, and what is refused by line and column."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eps_locked.errors import MalformedInputError
from eps_locked.studies.vea.analysis import ItemScores, analyse
from eps_locked.studies.vea.claims import claims
from eps_locked.studies.vea.items import FAMILIES, NEUTRAL
from eps_locked.studies.vea.results import deltas_csv
from eps_locked.studies.vea.score_cells import read_score
from eps_locked.studies.vea.user_table import (
    COLUMNS,
    UserTable,
    read_user_table,
    require_controls,
)

from .vea_worlds import BROAD, NARROW, SETTINGS, one_model, settings, without, world

HEAD = "reward_model,item,family,stem,base,vea,control"
ROW = "rm,i1,wood_labs,p1,1.5,0.5,1.25"


def read(*lines: str) -> UserTable:
    return read_user_table("".join(f"{line}\n" for line in lines).encode(), "scores.csv")


def refusal(*lines: str) -> str:
    with pytest.raises(MalformedInputError) as refused:
        read(*lines)
    return str(refused.value)


def as_table(rows: Iterable[ItemScores]) -> bytes:
    """What somebody would write of these scores."""
    sink = io.StringIO()
    writer = csv.writer(sink, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows:
        cells: dict[str, Any] = {name: getattr(row, name) for name in COLUMNS}
        for name, status in row.statuses.items():
            if cells[name] is None:
                cells[name] = {"absent": "", "not_finite": "nan"}.get(status, status)
        writer.writerow(cells.values())
    return sink.getvalue().encode()


def test_a_row_becomes_the_scores_of_an_item() -> None:
    (row,) = read(HEAD, ROW).rows
    assert (row.reward_model, row.item, row.family, row.stem) == ("rm", "i1", "wood_labs", "p1")
    assert (row.base, row.vea, row.control) == (1.5, 0.5, 1.25)
    assert set(row.statuses.values()) == {"scored"}
    assert (row.domain, row.same_text) == ("", False)


def test_columns_may_stand_in_any_order_and_others_are_named() -> None:
    table = read(
        "note,vea,base,stem,same_text,family,item,reward_model,domain",
        "x,1,2,p,TRUE,neutral_control,i,rm,math",
    )
    assert table.ignored_columns == ("note",)
    assert not table.has_control
    (row,) = table.rows
    assert (row.domain, row.same_text, row.control) == ("math", True, None)
    assert row.statuses["control"] == "absent"


def test_rows_give_the_document_that_the_same_scores_give_the_study() -> None:
    rows = [*world(NARROW, name="a"), *world(BROAD, name="b")]
    rows[3] = without(rows[3], "vea", "not_finite")
    rows[40] = without(rows[40], "base", "truncated")
    rows[41] = without(rows[41], "control", "absent")
    table = read_user_table(as_table(rows), "scores.csv")
    assert list(table.rows) == rows
    assert analyse(table.rows, SETTINGS) == analyse(rows, SETTINGS)
    assert [one["headline"] for one in analyse(table.rows, SETTINGS)["reward_models"]] == [
        "narrow",
        "broad",
    ]


def test_what_is_no_score_is_counted_by_its_reason_and_a_tie_is_a_measurement() -> None:
    rows = world({}, sd=0.1, n_items=10, families=("wood_labs",))
    cells = ["nan", "-inf", "", "truncated", "refused"]
    lines = [HEAD]
    for row, cell in zip(rows, [*cells, *[None] * 5], strict=True):
        vea = row.base if cell is None else cell
        lines.append(f"rm,{row.item},wood_labs,{row.stem},{row.base},{vea},")
    document = analyse(read(*lines).rows, SETTINGS)
    model = one_model(document)
    assert model["statuses"] == {
        "absent": 11,
        "not_finite": 2,
        "refused": 1,
        "scored": 15,
        "truncated": 1,
    }
    (family,) = model["families"]
    assert family["left_out"] == {"absent": 1, "not_finite": 2, "refused": 1, "truncated": 1}
    assert (family["n_pairs"], family["n_ties"]) == (5, 5)
    assert "15 of 30 responses have no score" in claims(document)[0]


def test_without_a_gate_there_is_no_headline() -> None:
    families = tuple(family for family in FAMILIES if family != NEUTRAL)
    rows = world(NARROW, families=families)
    model = one_model(analyse(read_user_table(as_table(rows), "scores.csv").rows, SETTINGS))
    assert model["headline"] == "undetermined"
    assert model["why"] == "neutral_control: the gate is undetermined"


def test_items_that_only_some_reward_models_have_are_counted() -> None:
    table = read(HEAD, ROW, "rm,i2,wood_labs,p2,1,1,1", "other,i2,wood_labs,p2,1,1,1")
    assert table.missing_items == {"other": 1}


def test_a_pair_of_equal_texts_is_no_measurement() -> None:
    table = read(f"{HEAD},same_text", f"{ROW},false", "rm,i2,wood_labs,p2,1,1,2,true")
    (family,) = one_model(analyse(table.rows, SETTINGS))["families"]
    assert family["left_out"] == {"same_text": 1}
    assert family["n_ties"] == 0


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("rm,i1,wood_labs,p1,1.5,0.5", "line 2: expected 7 cells, found 6"),
        (",i1,wood_labs,p1,1,1,1", "line 2: reward_model: expected a name, found nothing"),
        ("rm, ,wood_labs,p1,1,1,1", "line 2: item: expected a name, found nothing"),
        ("rm,i1,wood_labs,,1,1,1", "line 2: stem: expected a name, found nothing"),
        ("rm,i1,woodlabs,p1,1,1,1", "line 2: family: expected a family of the schema, found"),
        ('rm,i1,wood_labs,p1,"1,5",1,1', "line 2: base: expected a score, found '1,5'"),
        ("rm,i1,wood_labs,p1,1,1_000,1", "line 2: vea: expected a score"),
        ("rm,i1,wood_labs,p1,1,1,none", "line 2: control: expected a score"),
        ("rm,i1,wood_labs,p1,scored,1,1", "line 2: base: expected a score"),
    ],
)
def test_a_bad_cell_is_refused_with_line_and_column(line: str, said: str) -> None:
    message = refusal(HEAD, line)
    assert said in message
    assert "next: correct the cells" in message
    assert "scores.csv" in message


def test_all_bad_cells_are_listed_and_lines_are_those_of_the_file() -> None:
    message = refusal(HEAD, 'rm,"i\n1",wood_labs,p1,1,1,1', "", "rm,i2,nowhere,p2,x,1,1")
    assert "2 problems" in message
    assert "line 5: family" in message
    assert "line 5: base" in message


def test_an_item_that_stands_twice_is_refused_with_both_lines() -> None:
    assert "line 3: item: expected one row for rm and i1, found a second after line 2" in refusal(
        HEAD, ROW, ROW
    )


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ("b,i1,exam_interview,p1,1,1,1", "family: expected 'wood_labs', as line 2 says of i1"),
        ("b,i1,wood_labs,p9,1,1,1", "stem: expected 'p1', as line 2 says of i1, found 'p9'"),
    ],
)
def test_an_item_is_the_same_to_all_reward_models(other: str, said: str) -> None:
    assert f"line 3: {said}" in refusal(HEAD, ROW, other)


def test_a_flag_is_true_false_or_nothing() -> None:
    assert "line 2: same_text: expected true, false or nothing, found 'yes'" in refusal(
        f"{HEAD},same_text", f"{ROW},yes"
    )


@pytest.mark.parametrize(
    ("head", "said"),
    [
        ("reward_model,item,family,base,vea", "no stem among"),
        (f"{HEAD},base", "base twice among"),
        ("", "found no reward_model"),
    ],
)
def test_wrong_columns_are_refused(head: str, said: str) -> None:
    message = refusal(head, ROW)
    assert said in message
    assert "line 1" in message
    assert "next:" in message


def test_bytes_that_are_no_table_are_refused() -> None:
    with pytest.raises(MalformedInputError, match="line 2: expected UTF-8, found byte 0xff"):
        read_user_table(f"{HEAD}\n".encode() + b"\xff", "scores.csv")
    with pytest.raises(MalformedInputError, match="line 2: is not CSV"):
        read_user_table(f'{HEAD}\nrm,"i1'.encode(), "scores.csv")
    for data in (b"", f"{HEAD}\n\n".encode()):
        with pytest.raises(MalformedInputError, match="expected a header and at least one row"):
            read_user_table(data, "scores.csv")


def test_settings_that_need_controls_are_refused_without_them() -> None:
    table = read("reward_model,item,family,stem,base,vea", "rm,i1,wood_labs,p1,1,1")
    require_controls(table, SETTINGS, "scores.csv")
    for changed, option in (
        ({"primary": "length_controlled"}, "--primary length_controlled"),
        ({"normalise": "per_prompt"}, "--normalise per_prompt"),
    ):
        with pytest.raises(MalformedInputError, match=f"a column control, for {option}"):
            require_controls(table, settings(**changed), "scores.csv")
        require_controls(read(HEAD, ROW), settings(**changed), "scores.csv")


def test_differences_are_written_in_the_order_of_the_table() -> None:
    table = read(HEAD, ROW, "rm,i0,wood_labs,p2,nan,1,")
    assert deltas_csv(table.rows).decode() == (
        "reward_model,item,family,domain,stem,inserted,length_controlled,base_status,vea_status,"
        "control_status\n"
        "rm,i1,wood_labs,,p1,1.0,0.75,scored,scored,scored\n"
        "rm,i0,wood_labs,,p2,,,not_finite,scored,absent\n"
    )


@given(st.floats() | st.integers())
def test_every_number_is_read_back_or_is_not_finite(value: float) -> None:
    for cell in (value, repr(value), f" {value!r} "):
        found, status = read_score(cell)
        try:
            is_finite = math.isfinite(float(value))
        except OverflowError:
            is_finite = False
        assert (status == "scored") == is_finite
        assert found == (float(value) if is_finite else None)


@pytest.mark.parametrize("cell", [True, [1.0], "1 2", "0x10", "half", "1e"])
def test_nothing_else_is_a_score(cell: object) -> None:
    with pytest.raises(ValueError, match="expected a score"):
        read_score(cell)
