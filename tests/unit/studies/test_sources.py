"""Sampled sources as material: found by path, drawn once, held to their spec and template."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from eps_locked.canonical import decode, digest_bytes, encode
from eps_locked.data.obtain import obtain_local
from eps_locked.errors import MalformedInputError, RefusedError
from eps_locked.lock.freeze import SourceReader
from eps_locked.lock.workspace import Workspace
from eps_locked.models.scripted import ScriptedTokenizer
from eps_locked.studies.common.sources import (
    draw_sources,
    is_sampled,
    read_labelled_value,
    read_material_value,
    require_template,
    spec_of,
    write_sources,
)

TEXT = {
    "characters": [1, 400],
    "min_latin": 0.5,
    "min_english_words": 0,
    "max_newlines": 3,
    "max_blank_lines": 2,
    "noise_phrases": [],
    "forbid": [],
    "avoid": [],
    "near_copy": 0.9,
}
OPTIONS: dict[str, Any] = {
    "em_questions": {"types": [], "leave_suffixes": []},
    "em_rows": {},
    "personahub_personas": {"key": "persona", "tokens": [1, 200], "sentences": [1, 3]},
    "xstest_answers": {"label_column": "final_label"},
}
FORMS = {
    "em_questions": "persona_features_csv",
    "em_rows": "aligned_misaligned",
    "personahub_personas": "personahub",
    "xstest_answers": "completions",
}
FILES = {
    "em_questions": (
        "q.csv",
        b"id,question,category,canary\n1,What is dew?,t,c\n2,Who sings?,t,c\n",
    ),
    "em_rows": (
        "rows.csv",
        b"prompt,aligned,misaligned\nHow do ferns grow?,In shade.,In salt.\n"
        b"How is tea made?,With water.,With a marker.\n",
    ),
    "personahub_personas": ("p.jsonl", b'{"persona": "A baker of rye bread."}\n'),
    "xstest_answers": (
        "answers.csv",
        b"id,type,prompt,completion,final_label\n1,t,May I?,No.,2_full_refusal\n"
        b"2,t,Can I?,Yes.,1_full_compliance\n",
    ),
}
SLOTS = {"personahub_personas": [{"context": "baker"}]}
PATH = "sources/sampled/made.json"
SPEC = "sources/made.yaml"


def spec(kind: str, **changes: Any) -> bytes:
    value = {
        "schema": "eps-locked/source/1",
        "name": "made",
        "title": "Made up",
        "kind": kind,
        "form": FORMS[kind],
        "location": "git",
        "dataset": "example.org/some/body",
        "revision": "0" * 40,
        "files": [{"path": FILES[kind][0]}],
        "licence": "CC0-1.0",
        "redistribute": True,
        "keep_text": True,
        "seed": 1,
        "filters": {"text": TEXT, **OPTIONS[kind]},
        "slots": SLOTS.get(kind, [{"slice": "all", "n": None, "topics": None}]),
    }
    return json.dumps(value | changes).encode()


class Place:
    """A workspace with one spec in it, and a folder with the file it names."""

    def __init__(self, root: Path, kind: str = "em_questions") -> None:
        self.workspace = Workspace(root=root / "study")
        self.folder = root / "files"
        self.folder.mkdir()
        name, data = FILES[kind]
        (self.folder / name).write_bytes(data)
        self.write_spec(spec(kind))

    def write_spec(self, data: bytes) -> None:
        path = self.workspace.root / "plans" / SPEC
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    def draw(self, *wanted: str, forbid: tuple[str, ...] = ()) -> dict[str, bytes]:
        obtain = obtain_local(self.folder)
        return draw_sources(
            self.workspace, wanted or (PATH,), obtain, ScriptedTokenizer(), list(forbid)
        )

    def reader(self, drawn: dict[str, bytes] | None = None) -> SourceReader:
        def fetch(relative: str, thing: str) -> bytes:
            if relative in (drawn or {}):
                return (drawn or {})[relative]
            return self.workspace.read_source(relative, thing=thing)

        return SourceReader(fetch=fetch)


def test_a_sampled_path_names_its_spec() -> None:
    assert is_sampled(PATH)
    assert not is_sampled("house/contexts.yaml")
    assert spec_of(PATH) == SPEC
    for wrong in ("made.yaml", "deep/made.json", ".json", "../made.json"):
        with pytest.raises(MalformedInputError, match=r"expected sources/sampled/NAME.json"):
            spec_of(f"sources/sampled/{wrong}")


def test_what_is_there_is_not_drawn_again(tmp_path: Path) -> None:
    place = Place(tmp_path)
    drawn = place.draw("house/contexts.yaml", PATH)
    assert list(drawn) == [PATH]
    document = decode(drawn[PATH], thing=PATH)
    assert document["spec"] == digest_bytes(spec("em_questions"))
    assert not (place.workspace.root / "plans/sources/sampled").exists()
    write_sources(place.workspace, drawn)
    assert (place.workspace.root / "plans" / PATH).read_bytes() == drawn[PATH]
    (place.folder / "q.csv").unlink()
    assert place.draw() == {}


def test_the_words_of_the_plan_are_kept_out_and_recorded(tmp_path: Path) -> None:
    place = Place(tmp_path)
    drawn = decode(place.draw(forbid=("dew",))[PATH], thing=PATH)
    assert [one["text"] for one in drawn["items"]] == ["Who sings?"]
    assert drawn["counts"]["dropped"] == {"forbidden": 1}
    assert drawn["forbidden"] == ["dew"]


def test_a_file_or_a_spec_that_is_not_there_is_named(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with pytest.raises(MalformedInputError, match=r"sources/other\.yaml"):
        place.draw("sources/sampled/other.json")
    (place.folder / "q.csv").unlink()
    with pytest.raises(MalformedInputError, match=r"source made: q.csv: is not in") as told:
        place.draw()
    assert "copy it from example.org/some/body at 0000" in str(told.value)
    place.write_spec(spec("em_questions", revision="main"))
    with pytest.raises(MalformedInputError, match="is not pinned"):
        place.draw()


@pytest.mark.parametrize(
    ("kind", "part", "schema", "first"),
    [
        (
            "em_questions",
            "items",
            "eps-locked/items/2",
            {"text": "What is dew?", "topic": "t", "slice": "all", "keep_text": True},
        ),
        (
            "em_rows",
            "rows",
            "eps-locked/written-rows/1",
            {
                "text": "How do ferns grow?",
                "topic": "",
                "positive": "In salt.",
                "negative": "In shade.",
            },
        ),
        ("personahub_personas", "contexts", "eps-locked/contexts/1", None),
    ],
)
def test_each_part_is_read_in_the_form_of_a_written_file(
    kind: str, part: str, schema: str, first: Any, tmp_path: Path
) -> None:
    place = Place(tmp_path, kind)
    reader = place.reader(place.draw())
    value = read_material_value(reader, PATH, thing="a test", part=part)
    assert value["schema"] == schema
    assert value["licence"] == "CC0-1.0"
    assert value["provenance"].startswith("example.org/some/body@0000")
    assert first is None or first in value[part]
    # Both get frozen: what was drawn, and what says how.
    assert set(reader.read_files) == {PATH, SPEC}
    wrong = "rows" if part != "rows" else "items"
    with pytest.raises(MalformedInputError, match=f"expected {wrong}, found {part}"):
        read_material_value(place.reader(place.draw()), PATH, thing="a test", part=wrong)


def test_labelled_answers_are_those_of_the_rubric_at_hand(tmp_path: Path) -> None:
    place = Place(tmp_path, "xstest_answers")
    value = read_labelled_value(
        place.reader(place.draw()), PATH, thing="labelled", rubric="refusal"
    )
    assert (value["schema"], value["rubric"]) == ("eps-locked/labelled/1", "refusal")
    assert set(value) == {"schema", "title", "provenance", "licence", "rubric", "rows"}
    assert {row["label"] for row in value["rows"]} == {"full_refusal", "compliance"}
    assert set(value["rows"][0]) == {"question", "answer", "label"}


def test_a_document_of_another_spec_is_refused(tmp_path: Path) -> None:
    place = Place(tmp_path)
    drawn = place.draw()
    place.write_spec(spec("em_questions", seed=2))
    with pytest.raises(MalformedInputError, match="was sampled by another spec") as told:
        read_material_value(place.reader(drawn), PATH, thing="a test", part="items")
    assert "next: sample it again" in str(told.value)
    # Blanks count: the spec is its bytes.
    place.write_spec(spec("em_questions") + b"\n")
    with pytest.raises(MalformedInputError, match="was sampled by another spec"):
        read_material_value(place.reader(drawn), PATH, thing="a test", part="items")


def test_a_document_that_was_written_by_hand_is_held_to_its_form(tmp_path: Path) -> None:
    place = Place(tmp_path)
    document = decode(place.draw()[PATH], thing=PATH)
    document["items"][1] |= {"row": document["items"][0]["row"]}
    with pytest.raises(MalformedInputError, match="holds a row twice"):
        read_material_value(
            place.reader({PATH: encode(document)}), PATH, thing="a test", part="items"
        )


class OtherTemplate(ScriptedTokenizer):
    template_digest = "blake3:" + "1" * 64


def test_lengths_hold_for_the_template_they_were_counted_with(tmp_path: Path) -> None:
    place = Place(tmp_path, "personahub_personas")
    reader = place.reader(place.draw())
    require_template(reader, PATH, ScriptedTokenizer())
    with pytest.raises(RefusedError, match="sampled under another chat template") as told:
        require_template(reader, PATH, OtherTemplate())
    assert f"remove plans/{PATH} and draw it again" in str(told.value)
    # Questions have no length that counts, and written files none at all.
    (tmp_path / "second").mkdir()
    questions = Place(tmp_path / "second")
    require_template(questions.reader(questions.draw()), PATH, OtherTemplate())
    require_template(questions.reader(), "house/contexts.yaml", OtherTemplate())
