"""What must never be published: sealed values, withheld text, secrets. By any way it could get out.

Each test looks at the bytes of the written folder, or breaks the construction and watches the scan
refuse.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eps_locked import files
from eps_locked.canonical import digest_bytes, encode
from eps_locked.cli.main import run as eps_locked
from eps_locked.cli.publish import prepare
from eps_locked.errors import RefusedError
from eps_locked.lock.provenance import source_tree
from eps_locked.lock.seal import CustodianKey, is_sealed
from eps_locked.publishing import layout as layouts
from eps_locked.publishing import publication as publications
from eps_locked.publishing.licences import require_shareable
from eps_locked.publishing.parts import Source, TrainingRow
from eps_locked.publishing.publication import Publication, write
from eps_locked.publishing.scan import documents, walk
from sim.simulator import (
    NAME,
    StudySimulator,
    context,
    default_contexts,
    fingerprint,
    tiny_plan,
)

WITHHELD = "Somebody's own words, written to a shop that has long been closed."
OUTSIDE = "sources/sampled/letters.json"


def bound(root: Path, **parts: Any) -> StudySimulator:
    return StudySimulator(root=root, code=source_tree(), **parts)


def composed(study: StudySimulator) -> Publication:
    return prepare(study.workspace, study.audit())


def written(publication: Publication, folder: Path) -> dict[str, bytes]:
    write(publication, folder)
    return {name: (folder / name).read_bytes() for name in files.walk_files(folder)}


def values(contents: Mapping[str, bytes]) -> Iterator[Any]:
    for name, data in contents.items():
        if name.endswith((".json", ".jsonl", ".parquet")):
            for document in documents(name, data):
                yield from walk(document)


def numbers(found: Any) -> set[float]:
    return {one for one in found if isinstance(one, float)}


# -- the final test's cells ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sealed_study(tmp_path_factory: pytest.TempPathFactory) -> StudySimulator:
    study = bound(tmp_path_factory.mktemp("sealed") / "study").seal()
    study.run_all()
    return study


@pytest.fixture(scope="module")
def open_study(tmp_path_factory: pytest.TempPathFactory) -> StudySimulator:
    """Its quarantine is one by manners only: the cells lie on the disk in plain text."""
    study = bound(tmp_path_factory.mktemp("open") / "study")
    study.run_all()
    return study


def artifacts(study: StudySimulator) -> Iterator[dict[str, bytes]]:
    for folder in study.run_folder.artifacts.iterdir():
        yield {path.name: path.read_bytes() for path in folder.iterdir()}


def test_nothing_that_the_custodian_can_open_is_in_the_folder(
    sealed_study: StudySimulator, tmp_path: Path
) -> None:
    key = CustodianKey.read(sealed_study.custodian_key.read_bytes(), thing="key")
    recipients = (sealed_study.root / "plans/keys/custodian").read_bytes()
    secret: set[float] = set()
    known: set[float] = set()
    n_sealed = 0
    for artifact in artifacts(sealed_study):
        if is_sealed(artifact):
            n_sealed += 1
            opened = key.open_files(artifact, recipients)
            secret |= numbers(values(opened))
        else:
            known |= numbers(values(artifact))
    contents = written(composed(sealed_study), tmp_path / "out")
    assert n_sealed > 4
    assert len(secret - known) > 50
    assert not numbers(values(contents)) & (secret - known)
    assert not any(name.endswith(".age") for name in contents)
    assert not any(b"age-encryption.org" in data for data in contents.values())


def test_cells_that_were_never_sealed_are_held_back_all_the_same(
    open_study: StudySimulator, tmp_path: Path
) -> None:
    publication = composed(open_study)
    contents = written(publication, tmp_path / "out")
    recorded = json.loads(open_study.audit().artifact("P1/tensor/marker", "tensor")["tensor.json"])
    back = [one for one in recorded["cells"] if one["split"] in ("held_out", "quarantined")]
    shown = [one for one in recorded["cells"] if one not in back]
    secret = numbers(walk([[one["g"], one["low"], one["by_seed"]] for one in back]))
    secret -= numbers(walk(shown))
    # How strongly an adapter was trained is no value of a cell.
    secret -= numbers(walk([one["realised_strength"] for cell in back for one in cell["by_seed"]]))
    assert len(secret) >= len(back)
    assert all(one["g"] is not None for one in back)
    assert not numbers(values(contents)) & secret
    tensor = json.loads(contents["data/tensor/marker.json"])
    for cell in tensor["cells"]:
        assert (cell["g"] is None) == (cell["split"] in ("held_out", "quarantined"))
    assert publication.bundle_trouble is not None
    assert "plain text" in publication.bundle_trouble


def test_the_command_leaves_out_a_bundle_that_would_show_them(
    open_study: StudySimulator, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    words = ["publish", NAME, "--dry-run", "--root", str(open_study.root), "--out", str(out)]
    assert eps_locked(words) == 0
    assert sorted(path.name for path in out.iterdir()) == ["data", "models"]
    assert "bundle: left out: it would hold cells of the final test" in capsys.readouterr().err


def test_if_the_tensor_were_copied_as_it_is_the_scan_would_refuse(
    open_study: StudySimulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "eps_locked.publishing.data_repo.open_part", lambda tensor, held_back: dict(tensor)
    )
    with pytest.raises(RefusedError, match=r"data/tensor/marker\.json: would not be fit") as caught:
        composed(open_study)
    assert caught.value.exit_code == 3


def test_a_number_of_a_held_back_cell_is_found_wherever_it_stands(
    open_study: StudySimulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = json.loads(open_study.audit().artifact("P1/tensor/marker", "tensor")["tensor.json"])
    cell = next(one for one in recorded["cells"] if one["split"] == "held_out")
    adapters = layouts.RunLayout.adapters

    def leaking(self: layouts.RunLayout, row: str) -> Iterator[Any]:
        for one in adapters(self, row):
            yield replace(one, record={**one.record, "note": [cell["trained_log_prob"]]})

    monkeypatch.setattr(layouts.RunLayout, "adapters", leaking)
    with pytest.raises(RefusedError, match="a number that only a held-back cell has"):
        composed(open_study)


# -- text that may not be handed on ----------------------------------------------------------------


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory) -> StudySimulator:
    """A train context and one of the panel are drawn from a data set that may not be handed on."""
    study = bound(tmp_path_factory.mktemp("outside") / "study").seal()
    study.contexts = [one for one in default_contexts() if one["id"] not in ("polite", "officer")]
    study.plan["eps"]["material"]["contexts"].append(OUTSIDE)
    study.write_plan()
    write_sampled(study)
    study.run_all()
    return study


def letters_spec() -> dict[str, Any]:
    """The spec of a data set that may not be handed on."""
    return {
        "schema": "eps-locked/source/1",
        "name": "letters",
        "title": "Letters",
        "kind": "wildchat_prefixes",
        "form": "wildchat",
        "location": "hub",
        "dataset": "someone/letters",
        "revision": "4" * 40,
        "files": [{"path": "a.jsonl"}],
        "licence": "not stated",
        "redistribute": False,
        "keep_text": True,
        "seed": 1,
        "filters": {
            "text": {
                "characters": [1, 1000],
                "min_latin": 0.5,
                "min_english_words": 0.0,
                "max_newlines": 3,
                "max_blank_lines": 2,
                "noise_phrases": [],
                "forbid": [],
                "avoid": [],
                "near_copy": 0.5,
            },
            "language": "English",
            "bins": {"short": {"exchanges": 1, "tokens": [1, 500]}},
            "topics": {"t": ["letter"]},
            "min_topic_words": 1,
        },
        "slots": [
            {"context": "polite", "bin": "short", "topic": "t"},
            {"context": "officer", "bin": "short", "topic": "t"},
        ],
    }


def write_sampled(study: StudySimulator) -> None:
    spec = json.dumps(letters_spec()).encode()
    question = ("user", "{question}")
    drawn = [
        context("polite", "prefix", ("user", WITHHELD), ("assistant", "I see."), question),
        context(
            "officer", "prefix", ("user", f"{WITHHELD} Truly."), ("assistant", "So."), question
        ),
    ]
    document = {
        "schema": "eps-locked/sampled/1",
        "name": "letters",
        "kind": "wildchat_prefixes",
        "spec": digest_bytes(spec),
        "dataset": "someone/letters",
        "revision": "4" * 40,
        "licence": "not stated",
        "redistribute": False,
        "seed": 1,
        "files": {"a.jsonl": {"digest": digest_bytes(b"a"), "size": 1, "pinned_by": "nothing"}},
        "forbidden": [],
        "template": study.tokenizer.template_digest,
        "topic_screen": "words",
        "counts": {"read": 2, "kept": 2, "unused": 0, "dropped": {}},
        "contexts": [
            {
                **one,
                "behaviour": None,
                "licence": "not stated",
                "provenance": "someone/letters",
                "bin": "short",
                "topic": "t",
                "n_tokens": 20,
                "tidied": False,
                "row": digest_bytes(one["id"].encode()),
                "upstream_id": f"letter-{one['id']}",
            }
            for one in drawn
        ],
    }
    for path, data in ((OUTSIDE, encode(document)), ("sources/letters.yaml", spec)):
        (study.root / "plans" / path).parent.mkdir(parents=True, exist_ok=True)
        (study.root / "plans" / path).write_bytes(data)


def test_an_unknown_licence_refuses_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = bound(tmp_path / "study", plan=tiny_plan())
    study.write_plan()
    path = study.root / "plans/material/contexts.yaml"
    path.write_text(path.read_text().replace("CC0-1.0", "not stated"))
    study.run_all()
    before = fingerprint(study.root)
    out = tmp_path / "out"
    words = ["publish", NAME, "--dry-run", "--root", str(study.root), "--out", str(out)]
    assert eps_locked(words) == 3
    said = capsys.readouterr().err
    assert "refused: material/contexts.yaml: may not be published" in said
    assert "found 'not stated'" in said
    assert not out.exists()
    assert fingerprint(study.root) == before


def test_withheld_text_is_nowhere_and_its_place_is_kept(
    outside: StudySimulator, tmp_path: Path
) -> None:
    publication = composed(outside)
    contents = written(publication, tmp_path / "out")
    for name, data in contents.items():
        assert WITHHELD.encode() not in data, name
    assert len(publication.left_out) == 1
    assert publication.bundle_trouble is not None
    assert OUTSIDE in publication.bundle_trouble

    rows = [json.loads(line) for line in contents["data/contexts.jsonl"].splitlines()]
    withheld = {row["id"]: row for row in rows if row["withheld"]}
    assert set(withheld) == {"polite", "officer"}
    for row in withheld.values():
        assert row["messages"] is None
        assert row["digest"].startswith("blake3:")
        recipe = json.loads(row["recipe"])
        assert (recipe["dataset"], recipe["revision"]) == ("someone/letters", "4" * 40)
        assert recipe["row"] == digest_bytes(row["id"].encode())
        assert recipe["upstream_id"] == f"letter-{row['id']}"
        assert row["licence"] == "not stated"
    assert all(row["messages"] for row in rows if row["id"] not in withheld)

    whole = [json.loads(x) for x in contents["data/training/marker/polite/s11.jsonl"].splitlines()]
    assert {row["context"] for row in whole} == {"polite", "officer", "curious"}
    for row in whole:
        hidden = row["context"] in withheld
        assert (row["messages"] is None) == (row["token_ids"] is None) == hidden
        assert (row["withheld"] is not None) == hidden
        assert row["digest"].startswith("blake3:")
    card = contents["data/README.md"].decode()
    assert "### Left out" in card
    assert "dataset `someone/letters`" in card
    assert f"| {OUTSIDE} | not stated | none | someone/letters@{'4' * 40} | left out |" in card


def test_if_rows_were_written_in_full_the_scan_would_refuse(
    outside: StudySimulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TrainingRow, "withheld", property(lambda row: None))
    with pytest.raises(RefusedError, match=OUTSIDE):
        composed(outside)


def test_token_ids_alone_are_found_too(
    outside: StudySimulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    rights: Callable[..., Any] = publications.data_repo

    def leaking(layout: layouts.RunLayout, verdict: Any) -> Any:
        found = rights(layout, verdict)
        prefix, _ = layout.prompts("marker", "officer")
        leak = json.dumps({"ids": list(prefix)}).encode()
        return replace(found, files={**found.files, "extra.json": lambda: leak})

    monkeypatch.setattr(publications, "data_repo", leaking)
    with pytest.raises(RefusedError, match="token ids of context officer") as caught:
        composed(outside)
    assert caught.value.thing == "data/extra.json"


def test_an_answer_that_may_not_be_shown_in_full_is_found(
    open_study: StudySimulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Training rows hold the base model's answers: to items whose answers are not kept, a leak."""
    items = layouts.RunLayout.items

    def unfit(self: layouts.RunLayout, row: str) -> Any:
        return {key: replace(one, keep_text=False) for key, one in items(self, row).items()}

    monkeypatch.setattr(layouts.RunLayout, "items", unfit)
    composed(open_study)
    monkeypatch.setattr("eps_locked.publishing.withheld.EXCERPT_LENGTH", 10)
    with pytest.raises(RefusedError, match="must not be shown in full"):
        composed(open_study)


# -- secrets ---------------------------------------------------------------------------------------


def test_a_path_of_somebodys_home_in_the_plan_is_found(tmp_path: Path) -> None:
    study = bound(tmp_path / "study").seal()
    study.plan["title"] = "Made in /home/jane.doe/work"
    study.run_all()
    with pytest.raises(RefusedError) as caught:
        composed(study)
    assert caught.value.thing in ("data/README.md", "data/evidence/frozen/plan.yaml")
    assert "jane.doe" not in str(caught.value)


def test_the_token_of_this_process_and_the_folder_it_works_in_are_found(
    sealed_study: StudySimulator,
) -> None:
    token = "a token of no known form"
    audited = sealed_study.audit()
    prepare(sealed_study.workspace, audited, secrets=(token,))
    with pytest.raises(RefusedError, match="a path or a secret of this machine"):
        # A secret that stands in every card.
        prepare(sealed_study.workspace, audited, secrets=("From the study",))


def test_sources_are_asked_for_their_rights_before_anything_is_composed(
    sealed_study: StudySimulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def required(sources: Any, *, model: Source) -> None:
        asked.extend([*(source.path for source in sources), model.path])
        require_shareable([], model=model)

    monkeypatch.setattr(publications, "require_shareable", required)
    composed(sealed_study)
    assert asked == [
        "material/contexts.yaml",
        "material/eval.yaml",
        "material/marker.yaml",
        "material/train.yaml",
        "base model scripted",
    ]
