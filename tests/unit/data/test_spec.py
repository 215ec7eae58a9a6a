"""A spec says everything, and is refused where it does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sources import COMMIT, PREFIXES, spec_bytes

from eps_locked.canonical import digest_bytes
from eps_locked.data.spec import FORMS, KINDS, read_spec
from eps_locked.errors import MalformedInputError

ROOT = Path(__file__).parents[3]
SHIPPED = sorted((ROOT / "plans/sources").glob("*.yaml"))


def test_a_spec_names_its_source_and_its_own_digest() -> None:
    data = spec_bytes("xstest", "prompts", options={"labels": ["safe"]})
    spec = read_spec(data, "plans/made.yaml")
    assert spec.provenance == f"example.org/some/body@{COMMIT}"
    assert spec.digest == digest_bytes(data)
    assert spec.part == "items"
    assert [file.pinned_by for file in spec.files] == ["nothing"]


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_a_shipped_spec_is_whole(path: Path) -> None:
    spec = read_spec(path.read_bytes(), str(path))
    assert spec.name == path.stem
    assert "※" in spec.screens.forbid or spec.kind == "xstest_answers"


def test_every_kind_has_a_form_and_the_shipped_ones_cover_the_full_plan() -> None:
    assert set(FORMS) == set(KINDS)
    shipped = {read_spec(path.read_bytes(), path.name).kind for path in SHIPPED}
    assert shipped == set(KINDS) - {"elicitation"}


@pytest.mark.parametrize(
    "revision", ["main", None, "v1.0", "0123456", COMMIT.upper(), COMMIT + "0"]
)
def test_an_unpinned_revision_is_refused(revision: object) -> None:
    data = spec_bytes("xstest", "prompts", options={"labels": ["safe"]}, revision=revision)
    with pytest.raises(MalformedInputError, match=r"revision: is not pinned.*40 hex digits"):
        read_spec(data, "plans/made.yaml")


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "unknown kind": ({"kind": "gossip"}, r"kind: expected .*found 'gossip'"),
    "form of another kind": ({"form": "gcd"}, r"form: expected prompts, found 'gcd'"),
    "hub name": ({"location": "hub"}, r"dataset: expected owner/name"),
    "git name": ({"dataset": "owner/name"}, r"dataset: expected host/owner/name"),
    "no files": ({"files": []}, r"files: expected one file or more"),
    "a file twice": ({"files": [{"path": "a.csv"}] * 2}, r"files: expected one file or more"),
    "a path that climbs": ({"files": [{"path": "../a.csv"}]}, r"path: expected text of the form"),
    "an absolute path": ({"files": [{"path": "/a.csv"}]}, r"path: expected text of the form"),
    "a short sha256": ({"files": [{"path": "a.csv", "sha256": "ab"}]}, r"sha256: expected text"),
    "a role nobody has": ({"files": [{"path": "a.csv", "role": "x"}]}, r"role: is not a known"),
    "no licence": ({"licence": " "}, r"licence: expected a licence"),
    "no slots": ({"slots": []}, r"slots: expected one slot or more"),
    "a slice twice": ({"slots": [{"slice": "a", "n": 1, "topics": None}] * 2}, r"each name once"),
    "n of 0": ({"slots": [{"slice": "a", "n": 0, "topics": None}]}, r"n: expected at least 1"),
    "an unread key": ({"comment": "x"}, r"comment: is not a known field"),
    "a bound the wrong way": ({"text": {"characters": [9, 1]}}, r"characters: expected two int"),
    "one bound": ({"text": {"characters": [9]}}, r"characters: expected two integers"),
    "a share over 1": ({"text": {"min_latin": 2}}, r"min_latin: expected a finite number"),
    "no labels": ({"options": {"labels": []}}, r"labels: expected safe, unsafe or both"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_spec_is_refused_by_its_field(case: str) -> None:
    changes, message = BAD[case]
    changes = {"options": {"labels": ["safe"]}, **changes}
    data = spec_bytes("xstest", "prompts", **changes)
    with pytest.raises(MalformedInputError, match=message):
        read_spec(data, "plans/made.yaml")


@pytest.mark.parametrize(
    ("slot", "message"),
    [
        ({"context": "a", "bin": "huge", "topic": "garden"}, r"a\.bin: expected short or long"),
        ({"context": "a", "bin": "short", "topic": "x"}, r"a\.topic: expected garden or kitchen"),
        ({"context": "A b", "bin": "short", "topic": "garden"}, r"context: expected text of"),
    ],
)
def test_a_slot_names_a_bin_and_a_topic_of_the_spec(slot: dict[str, str], message: str) -> None:
    data = spec_bytes("wildchat_prefixes", "wildchat", options=PREFIXES, slots=[slot])
    with pytest.raises(MalformedInputError, match=message):
        read_spec(data, "plans/made.yaml")


def test_requests_to_refuse_are_neither_kept_nor_shipped() -> None:
    columns = {"columns": {"text": "t", "topic": None, "id": None}}
    for keep, ship in ((True, False), (False, True), (True, True)):
        data = spec_bytes(
            "harm_requests", "table", options=columns, keep_text=keep, redistribute=ship
        )
        with pytest.raises(MalformedInputError, match="nobody should answer"):
            read_spec(data, "plans/made.yaml")


@pytest.mark.parametrize(
    ("exclude", "message"),
    [
        ({}, r"exclude: expected one column or more"),
        ({"kind": []}, r"exclude: expected one column or more"),
        ({"kind": "dull"}, r"exclude\.kind: expected a list"),
        ({"kind": [3]}, r"exclude\.kind\[0\]: expected a string"),
        (["kind"], r"exclude: expected a mapping"),
        (None, r"exclude: expected a mapping"),
    ],
)
def test_what_a_table_leaves_out_is_named_by_column_and_value(exclude: Any, message: str) -> None:
    columns = {"text": "t", "topic": None, "id": None}
    data = spec_bytes(
        "harm_requests",
        "table",
        options={"columns": columns, "exclude": exclude},
        keep_text=False,
        redistribute=False,
    )
    with pytest.raises(MalformedInputError, match=message):
        read_spec(data, "plans/made.yaml")


def test_files_that_play_parts_are_named_in_order() -> None:
    files = [{"path": "good.jsonl", "role": "negative"}, {"path": "bad.jsonl", "role": "positive"}]
    with pytest.raises(MalformedInputError, match="in the order positive, negative"):
        read_spec(spec_bytes("em_rows", "messages_pair", files=files), "plans/made.yaml")
