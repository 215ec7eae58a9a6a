"""Foreign files are read as they are, and refused by file and row when they are not."""

from __future__ import annotations

import csv
import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from eps_locked.data.rows import read_json, read_rows
from eps_locked.errors import MalformedInputError


def values(name: str, data: bytes, **arguments: Any) -> list[dict[str, Any]]:
    return [dict(row) for _, row in read_rows(name, data, **arguments)]


def parquet(rows: list[dict[str, Any]]) -> bytes:
    stream = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), stream)
    return stream.getvalue()


def test_json_lines_are_cut_at_line_feeds_alone() -> None:
    text = '\ufeff{"a": "one\u2028two\x85three"}\r\n\r\n{"a": NaN, "b": null}\n'
    found = list(read_rows("x.jsonl", text.encode()))
    assert found == [
        ("x.jsonl: row 1", {"a": "one\u2028two\x85three"}),
        ("x.jsonl: row 3", {"a": None, "b": None}),
    ]


def test_csv_cells_stay_text_span_lines_and_keep_their_line_ends() -> None:
    data = b'id,text\r\n007,"one\r\ntwo ""quoted"""\r\n8,NA\r\n\r\n9,\r\n'
    assert values("x.csv", data, columns=("id",)) == [
        {"id": "007", "text": 'one\r\ntwo "quoted"'},
        {"id": "8", "text": "NA"},
        {"id": "9", "text": ""},
    ]


def test_a_long_cell_is_read_and_the_limit_of_others_left_alone() -> None:
    before = csv.field_size_limit()
    cell = "x" * (before + 1)
    assert values("x.csv", f"a\n{cell}\n".encode()) == [{"a": cell}]
    assert csv.field_size_limit() == before


def test_parquet_gives_nulls_and_nested_lists_and_only_what_is_asked_for() -> None:
    rows = [{"a": [{"b": "x"}], "secret": "1.2.3.4", "c": None}, {"a": None, "c": "y"}]
    found = values("x.parquet", parquet(rows), columns=("a",), optional=("c", "d"))
    assert found == [{"a": [{"b": "x"}], "c": None}, {"a": None, "c": "y"}]


def test_json_lists_stand_alone_or_under_a_key() -> None:
    assert values("x.json", b'[{"a": 1}]') == [{"a": 1}]
    assert values("x.json", b'{"v": 1, "rows": [{"a": 1}]}', key="rows") == [{"a": 1}]
    assert read_json("x.json", b"[Infinity]") == [None]


def test_yaml_anchors_are_resolved() -> None:
    data = b"- id: one\n  judge: &j {a: b}\n- id: two\n  judge: *j\n"
    assert values("x.yaml", data)[1] == {"id": "two", "judge": {"a": "b"}}


BAD: dict[str, tuple[str, bytes, str]] = {
    "a line that is no JSON": ("x.jsonl", b'{"a": 1}\n{"a": \n', r"x\.jsonl: row 2: expected JSON"),
    "a line that is a list": (
        "x.jsonl",
        b"[1]\n",
        r"x\.jsonl: row 1: expected an object, found a l",
    ),
    "bytes that are no UTF-8": ("x.jsonl", b'{}\n{"a": "\xff"}', r"x\.jsonl: line 2: .*0xff"),
    "an object for a list": ("x.json", b"{}", r"x\.json: expected a list of objects, found a dict"),
    "a missing column": ("x.csv", b"id\n1\n", r"x\.csv: header: .*no text among id"),
    "an empty file": ("x.csv", b"", r"x\.csv: header: .*no text among nothing"),
    "a short row": ("x.csv", b"id,text\n1,a\n2\n", r"x\.csv: row 2: expected 2 cells, found 1"),
    "an open quote": ("x.csv", b'id,text\n1,"a\n', r"x\.csv: line 2: is not CSV"),
    "bytes that are no Parquet": ("x.parquet", b"PAR1", r"x\.parquet: is not Parquet"),
    "a column Parquet lacks": ("x.parquet", parquet([{"a": 1}]), r"x\.parquet: header"),
    "YAML that makes objects": ("x.yaml", b"- !!python/object:os.x {}\n", r"x\.yaml: is not YAML"),
    "YAML that is no list": ("x.yaml", b"a: b\n", r"x\.yaml: expected a list of items"),
    "YAML that is too long": ("x.yaml", b"#" * ((1 << 20) + 1), r"x\.yaml: expected at most"),
    "an unknown kind of file": ("x.xlsx", b"", r"x\.xlsx: .*found \.xlsx"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_file_is_refused_by_name_and_row(case: str) -> None:
    name, data, message = BAD[case]
    with pytest.raises(MalformedInputError, match=message):
        values(name, data, columns=("text",))


def test_aliases_that_multiply_cost_nothing_until_somebody_walks_them() -> None:
    lines = ["- a: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"- a: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 30)]
    assert len(values("x.yaml", "\n".join(lines).encode())) == 30
