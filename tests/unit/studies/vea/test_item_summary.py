"""A file of matched pairs as ``vea items`` tells of it."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from eps_locked.errors import MalformedInputError
from eps_locked.studies.vea.item_summary import FIELDS, summarise_items
from eps_locked.studies.vea.items import VeaItem

from .test_items import VEA, WORDS, row


def summary(*rows: dict[str, Any], tolerance: float | None = None) -> dict[str, Any]:
    data = b"".join(json.dumps(one).encode() + b"\n" for one in rows)
    return summarise_items(data, "items.jsonl", WORDS, tolerance)


def refusal(data: bytes) -> str:
    with pytest.raises(MalformedInputError) as refused:
        summarise_items(data, "items.jsonl", WORDS, None)
    return str(refused.value)


def test_the_fields_are_those_of_an_item() -> None:
    names = {field.name for field in dataclasses.fields(VeaItem)}
    assert {*FIELDS} == names - {"family"} | {"context_type"}


def test_the_house_set_is_counted() -> None:
    found = summarise_items((VEA / "items.jsonl").read_bytes(), "items.jsonl", WORDS, 0.15)
    assert (found["n_items"], found["n_stems"], found["n_single_clause"]) == (112, 112, 98)
    assert [one["n_items"] for one in found["families"]] == [14] * 8
    assert found["missing_families"] == ["lexical_wood_decoy"]
    assert set(found["domains"].values()) == {14}
    assert found["tolerance_found"] == max(one["largest_deviation"] for one in found["families"])
    assert found["tolerance_found"] <= found["tolerance_demanded"] == 0.15


def test_the_furthest_control_is_named() -> None:
    near = row(
        "near", clause="This must be an exam, I think.", control="This must be a sunny day, no?"
    )
    far = row("far", clause="A quiz, surely.", control="A day, surely, and long.")
    found = summary(near, far)
    assert (found["tolerance_found"], found["tolerance_found_at"]) == (0.6, "far")
    with pytest.raises(MalformedInputError, match=r"far\.matched_control"):
        summary(near, far, tolerance=0.15)


def test_neutral_controls_that_insert_nothing_are_counted_and_have_no_length() -> None:
    found = summary(row("one", "neutral_control", clause="", control=""))
    assert found["n_neutral_without_clause"] == 1
    assert found["tolerance_found"] is None
    (family,) = found["families"]
    assert (family["n_with_clause"], family["largest_deviation"]) == (0, None)


def test_the_first_byte_that_differs_is_named() -> None:
    bad = row()
    bad["vea"] = bad["vea"].replace("press", "pross")
    message = refusal(json.dumps(bad).encode())
    assert "one.vea: is not base, one space and vea_clause" in message
    assert "the first byte that differs is byte 15" in message


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"", "nothing"),
        (b"[\n{}\n]", "'['"),
        (b'{\n "id": 1}', "'{'"),
        (b"id,base\n", "'id,base'"),
        (b"\xef\xbb\xbf{}", "found"),
        (b"\xff{}", "found"),
    ],
)
def test_what_is_no_file_of_lines_is_refused_in_words_that_say_so(data: bytes, found: str) -> None:
    message = refusal(data)
    assert "line 1: expected JSON Lines: one item a line" in message
    assert found in message
    assert "next:" in message


def test_an_object_without_an_items_fields_is_refused_with_all_that_it_lacks() -> None:
    good, bad = row("one"), row("two")
    del bad["vea"], bad["matched_control"]
    message = refusal(json.dumps(good).encode() + b"\n" + json.dumps(bad).encode())
    assert "line 2: expected the fields id, context_type" in message
    assert "found no vea, matched_control among" in message
    assert "line 2" in refusal(json.dumps(good).encode() + b"\n[]\n")
