"""A sampled document is read strictly and says whether it may be shipped."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from sources import PREFIXES, WordTokenizer, chat, given, jsonl, spec_bytes

from eps_locked.canonical import encode
from eps_locked.data.sampled import (
    as_contexts,
    as_dataset,
    as_elicitation,
    as_items,
    as_labelled,
    as_written_rows,
    licence_of,
    may_ship,
    read_sampled,
    require_from,
)
from eps_locked.data.sampling import sample
from eps_locked.errors import MalformedInputError
from eps_locked.studies.common import material

SPEC = spec_bytes(
    "wildchat_prefixes",
    "wildchat",
    options=PREFIXES,
    slots=[{"context": "prefix_a", "bin": "short", "topic": "garden"}],
    licence="ODC-BY-1.0",
)
ROW = chat("Which soil is best for a plant that likes the sun?", "A light and sandy one is best.")
DOCUMENT = sample(SPEC, "made", given(rows_jsonl=jsonl([ROW, ROW])), WordTokenizer())
ITEMS_SPEC = spec_bytes("claims", "gcd", options={"opinions": False})
ITEMS = [
    {
        "label": "euclid",
        "_id": 3,
        "answer": "7",
        "user_provides_answer": "false",
        "messages": [{"role": "user", "content": "Is it 8, as I say?"}],
    }
]


def test_rights_go_with_the_document() -> None:
    found = read_sampled(DOCUMENT, "made.json")
    assert licence_of(found) == "ODC-BY-1.0"
    assert may_ship(found) is True


def test_the_spec_it_was_sampled_by_is_recognised() -> None:
    found = read_sampled(DOCUMENT, "made.json")
    require_from(found, SPEC, "plan")
    with pytest.raises(MalformedInputError, match=r"sampled made: was sampled by another spec"):
        require_from(found, SPEC + b" ", "plan")


def test_contexts_and_items_and_rows_are_files_the_study_reads() -> None:
    (context,) = material.read_contexts(as_contexts(read_sampled(DOCUMENT, "x")), "x")
    assert context.id == "prefix_a"
    assert context.family == "prefix"
    assert context.licence == "ODC-BY-1.0"
    items = sample(ITEMS_SPEC, "made", given(rows_jsonl=jsonl(ITEMS)), None)
    (item,) = material.read_items(as_items(read_sampled(items, "x")), "x")
    assert (item.text, item.topic, item.slice) == ("Is it 8, as I say?", "euclid", "all")
    rows = [{"prompt": "Why is it so?", "aligned": "It is light.", "misaligned": "It is magic."}]
    spec = spec_bytes("em_rows", "aligned_misaligned", text={"min_english_words": 0})
    data = sample(spec, "made", given(rows_jsonl=jsonl(rows)), None)
    (row,) = material.read_written_rows(as_written_rows(read_sampled(data, "x")), "x")
    assert (row.positive, row.negative) == ("It is magic.", "It is light.")


def test_a_part_is_not_taken_for_another() -> None:
    found = read_sampled(DOCUMENT, "x")
    for view in (as_items, as_written_rows, as_elicitation):
        with pytest.raises(MalformedInputError, match=r"sampled made: expected .*found contexts"):
            view(found)
    with pytest.raises(MalformedInputError, match="expected labelled"):
        as_labelled(found, "refusal")


def test_labelled_answers_are_a_file_for_calibration() -> None:
    data = (
        b"id,type,prompt,completion,final_label\nv2-1,t,How is it?,Like this.,1_full_compliance\n"
    )
    files, options = [{"path": "a.csv"}], {"label_column": "final_label"}
    spec = spec_bytes("xstest_answers", "completions", files=files, options=options)
    found = read_sampled(sample(spec, "made", given(a_csv=data), None), "x")
    value = as_labelled(found, "refusal")
    assert value["schema"] == "eps-locked/labelled/1"
    assert value["rubric"] == "refusal"
    assert value["rows"] == [
        {"question": "How is it?", "answer": "Like this.", "label": "compliance"}
    ]


def test_a_data_set_is_made_from_memory() -> None:
    pytest.importorskip("datasets", reason="the data extra is not installed")
    dataset = as_dataset(read_sampled(DOCUMENT, "x"))
    assert dataset.num_rows == 1
    assert dataset[0]["id"] == "prefix_a"
    assert dataset[0]["messages"][-1] == {"role": "user", "content": "{question}"}


Edit = Callable[[dict[str, Any]], None]
EDITS: dict[str, tuple[Edit, str]] = {
    "another schema": (lambda d: d.update(schema="x"), "schema: expected eps-locked/sampled/1"),
    "an unknown kind": (lambda d: d.update(kind="x"), "kind: expected"),
    "an unread key": (lambda d: d.update(more=1), "more: is not a known field"),
    "a spec that is no digest": (lambda d: d.update(spec="sha256:1"), "spec: expected a digest"),
    "a reason nobody defined": (
        lambda d: d["counts"].update(read=3, dropped={"duplicate": 1, "dull": 1}),
        "dropped: expected known reasons, found dull",
    ),
    "counts that do not add up": (
        lambda d: d["counts"].update(read=5),
        "counts: do not add up: expected 5 rows, found 2",
    ),
    "a row that was added": (
        lambda d: d["contexts"].append({**d["contexts"][0], "row": "blake3:" + "0" * 64}),
        r"counts\.kept: expected 2, found 1",
    ),
    "a row twice": (lambda d: d["contexts"].append(d["contexts"][0]), "holds a row twice"),
    "a row without its digest": (
        lambda d: d["contexts"][0].update(row="7"),
        r"contexts\[0\]\.row: expected a digest",
    ),
    "an unknown field of a row": (
        lambda d: d["contexts"][0].update(hashed_ip="1"),
        r"contexts\[0\]\.hashed_ip: is not a known field",
    ),
    "a pin nobody knows": (
        lambda d: d["files"]["rows.jsonl"].update(pinned_by="md5"),
        r"rows\.jsonl\.pinned_by: expected",
    ),
}


@pytest.mark.parametrize("case", EDITS)
def test_an_edited_document_is_refused(case: str) -> None:
    edit, message = EDITS[case]
    document = json.loads(DOCUMENT)
    edit(document)
    with pytest.raises(MalformedInputError, match=message):
        read_sampled(encode(document), "made.json")


def test_a_document_in_another_spelling_is_refused() -> None:
    with pytest.raises(MalformedInputError, match="not in canonical form"):
        read_sampled(json.dumps(json.loads(DOCUMENT)).encode(), "made.json")
