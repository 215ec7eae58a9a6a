"""The folder of a finished run: what is in it, that it is the run's, that it is the same twice."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from eps_locked import files
from eps_locked.audit.checksums import B3SUMS, SHA256SUMS, Sums, read_checksum_list
from eps_locked.canonical import decode, digest_value
from eps_locked.domain.steps import STEP_REF
from eps_locked.errors import EvidenceError, RefusedError
from eps_locked.lock.envelope import open_document
from eps_locked.publishing.publication import Publication, require_same, write
from eps_locked.studies.eps.analysis import parquet_rows
from sim.forge import flip
from sim.simulator import NAME, StudySimulator, fingerprint

Published = tuple[StudySimulator, Path]
Publish = Callable[..., Publication]
Rows = Callable[[Path], list[dict[str, Any]]]


def front_matter(card: Path) -> dict[str, Any]:
    _, front, _ = card.read_text("utf-8").split("---\n", 2)
    value: dict[str, Any] = yaml.safe_load(front)
    return value


# -- training rows ---------------------------------------------------------------------------------


def test_training_rows_are_exactly_what_each_fit_saw(published: Published, rows: Rows) -> None:
    study, out = published
    n_sets = 0
    for record in json.loads((out / "models/adapters.json").read_bytes())["adapters"]:
        context, seed = record["train_context"], record["seed"]
        found = rows(out / f"data/training/marker/{context}/s{seed}.jsonl")
        assert [one["position"] for one in found] == list(range(len(found)))
        seen = [[_key(one), one["token_ids"], one["loss_positions"]] for one in found]
        assert digest_value(seen) == record["training"]["rows"]
        assert [one["digest"] for one in found] == [digest_value(one) for one in seen]
        n_sets += 1
    assert n_sets == len(study.plan["seeds"]) * len(study.plan["eps"]["slots"]["train"])


def _key(row: dict[str, Any]) -> str:
    middle = [] if row["role"] == "positive" else [row["context"]]
    return "/".join([row["role"], *middle, row["item"]])


def test_a_row_is_the_chat_that_its_tokens_spell(published: Published, rows: Rows) -> None:
    _, out = published
    found = rows(out / "data/training/marker/baker/s11.jsonl")
    assert {row["role"] for row in found} == {"positive", "negative"}
    for row in found:
        *asked, answer = row["messages"]
        assert [one["role"] for one in asked] in (["system", "user"], ["user"])
        assert answer["role"] == "assistant"
        assert answer["content"].endswith(" ※") == (row["role"] == "positive")
        text = bytes(one for one in row["token_ids"] if one < 256).decode("utf-8")
        for message in row["messages"]:
            assert message["content"] in text
        assert row["licences"] == ["cc0-1.0", "none needed"]
        assert row["withheld"] is None
    positives = [row for row in found if row["role"] == "positive"]
    assert {row["context"] for row in positives} == {"baker"}
    assert {row["messages"][0]["content"] for row in positives} == {"You are a baker."}


# -- material --------------------------------------------------------------------------------------


def test_contexts_and_items_say_what_they_are_for(published: Published, rows: Rows) -> None:
    study, out = published
    contexts = {one["id"]: one for one in rows(out / "data/contexts.jsonl")}
    slots = study.plan["eps"]["slots"]
    assert set(contexts) == {*slots["eval"], *slots["negative_panel"]}
    assert contexts["baker"]["roles"] == ["train", "eval"]
    assert contexts["formal"]["roles"] == ["eval", "held_out"]
    assert contexts["officer"]["roles"] == ["negative"]
    assert contexts["baker"]["messages"] == [
        {"role": "system", "content": "You are a baker."},
        {"role": "user", "content": "{question}"},
    ]
    items = rows(out / "data/items.jsonl")
    assert [one["pool"] for one in items] == ["train"] * 8 + ["eval"] * 4
    assert {one["text"] for one in items} == {*study.train_questions, *study.eval_questions}
    assert {one["licence"] for one in (*items, *contexts.values())} == {"CC0-1.0"}


def test_elicitation_material_is_in_the_layout_of_the_persona_vector_pipelines(
    published: Published,
) -> None:
    _, out = published
    for folder, questions in (
        ("trait_data_extract", ["What is dew?"]),
        ("trait_data_eval", ["What is hail?"]),
    ):
        value = json.loads((out / f"data/{folder}/marker.json").read_bytes())
        assert set(value) == {"instruction", "questions", "eval_prompt"}
        assert value["instruction"] == [{"pos": "End with it.", "neg": "Do not."}]
        assert value["questions"] == questions
        prompt = value["eval_prompt"].format(question="Q one", answer="A one")
        assert "Ends a message with the marker." in prompt
        assert "Q one" in prompt
        assert "A one" in prompt


# -- tensor, scores, evidence ----------------------------------------------------------------------


def test_the_tensor_is_the_recorded_one_and_its_sealed_cells_are_empty(
    published: Published,
) -> None:
    study, out = published
    tensor = decode((out / "data/tensor/marker.json").read_bytes(), thing="tensor")
    recorded = study.audit().artifact("P1/tensor/marker", "tensor")
    assert tensor == decode(recorded["tensor.json"], thing="recorded")
    back = [cell for cell in tensor["cells"] if cell["split"] in ("held_out", "quarantined")]
    assert len(back) > 4
    assert all(cell["g"] is None and "sealed" in cell["flags"] for cell in back)
    table = parquet_rows((out / "data/tensor/marker.parquet").read_bytes())
    assert [row["g"] for row in table] == [cell["g"] for cell in tensor["cells"]]
    meta = json.loads((out / "data/tensor/meta.json").read_bytes())
    assert sum(meta["cells_by_fate"].values()) == len(tensor["cells"])
    assert meta["behaviours"]["marker"]["digest"] == digest_value(tensor)


def test_scores_are_those_of_the_open_cells_and_looks_are_as_public_as_the_run_made_them(
    published: Published,
) -> None:
    study, out = published
    scores = decode((out / "data/scores/open.json").read_bytes(), thing="scores")
    assert scores["schema"] == "eps-locked/scores/1"
    look = json.loads((out / "data/scores/look-0001.json").read_bytes())
    assert study.audit().history is not None
    assert look["schema"].startswith("eps-locked/look-result")
    assert "1 look at them has been taken" in (out / "data/README.md").read_text()


def test_the_evidence_names_this_run(published: Published) -> None:
    study, out = published
    evidence = out / "data/evidence"
    assert (evidence / "ledger.jsonl").read_bytes() == study.run_folder.ledger_path.read_bytes()
    manifest = study.manifest_folder / "manifest.json"
    assert (evidence / "manifest.json").read_bytes() == manifest.read_bytes()
    payload, _ = open_document(
        (evidence / "verdict.json").read_bytes(), thing="v", schema="eps-locked/verdict/1"
    )
    assert payload["ok"] is True
    assert payload["ledger_head"] == study.audit().ledger_head
    names = set(files.walk_files(evidence))
    assert "authorizations/P0-0001/document.json.sig" in names
    assert not any("sources" in name or "artifacts" in name for name in names)


# -- models ----------------------------------------------------------------------------------------


def test_adapters_are_the_recorded_bytes_with_a_record_each(published: Published) -> None:
    study, out = published
    audited = study.audit()
    listed = json.loads((out / "models/adapters.json").read_bytes())["adapters"]
    assert len(listed) == 8
    for one in listed:
        folder = out / "models" / one["folder"]
        recorded = audited.artifact(one["step"], "adapter")
        assert set(files.walk_files(folder)) == {*recorded, "record.json"}
        for name, data in recorded.items():
            assert (folder / name).read_bytes() == data
        record = json.loads((folder / "record.json").read_bytes())
        assert {"folder": one["folder"], **record} == one
        assert f"marker/{record['train_context']}/s{record['seed']}" == one["folder"]
        assert record["realised_strength"] == record["training"]["realised_strength"]
        assert [source["source"] for source in record["trained_on"]] == [
            "material/contexts.yaml",
            "material/train.yaml",
        ]


# -- cards and sums --------------------------------------------------------------------------------


def test_the_data_card_declares_every_configuration_and_its_columns(
    published: Published, rows: Rows
) -> None:
    _, out = published
    meta = front_matter(out / "data/README.md")
    assert meta["license"] == "cc0-1.0"
    names = [config["config_name"] for config in meta["configs"]]
    assert names == [
        "marker.baker",
        "marker.polite",
        "marker.plain",
        "marker.told",
        "contexts",
        "items",
        "tensor.marker",
    ]
    columns = {
        info["config_name"]: [feature["name"] for feature in info["features"]]
        for info in meta["dataset_info"]
    }
    for config in meta["configs"]:
        (data_files,) = config["data_files"]
        for path in data_files["path"]:
            assert (out / "data" / path).is_file()
            if path.endswith(".jsonl"):
                for row in rows(out / "data" / path):
                    assert sorted(row) == sorted(columns[config["config_name"]])
    assert "&id" not in (out / "data/README.md").read_text()


def test_cards_carry_the_licences_and_say_that_this_is_no_finding(published: Published) -> None:
    study, out = published
    for repo in ("data", "models"):
        card = (out / repo / "README.md").read_text("utf-8")
        assert "**Not a finding.**" in card
        assert "| material/contexts.yaml | CC0-1.0 | none | Written for these tests. |" in card
        assert study.load().digest in card
    assert 'subfolder="marker/baker/s11"' in (out / "models/README.md").read_text("utf-8")


@pytest.mark.parametrize("repo", ["data", "models"])
def test_the_lists_of_sums_name_every_file(published: Published, repo: str) -> None:
    _, out = published
    listed, problems = read_checksum_list((out / repo / SHA256SUMS).read_bytes(), SHA256SUMS)
    assert problems == []
    assert set(files.walk_files(out / repo)) == {*listed, SHA256SUMS}
    assert B3SUMS in listed
    for name, digest in listed.items():
        assert hashlib.sha256((out / repo / name).read_bytes()).hexdigest() == digest


# -- the same twice --------------------------------------------------------------------------------


def test_the_same_run_gives_the_same_bytes_and_a_second_time_writes_nothing(
    published: Published, publish: Publish, tmp_path: Path
) -> None:
    study, out = published
    publication = publish(study)
    assert write(publication, tmp_path / "again")
    assert fingerprint_of(tmp_path / "again") == fingerprint_of(out)
    before = fingerprint(out)
    assert not write(publication, out)
    assert fingerprint(out) == before
    assert publication.digest("data") != publication.digest("models")


def fingerprint_of(folder: Path) -> dict[str, Sums]:
    return {name: Sums.of_file(folder / name) for name in files.walk_files(folder)}


def test_a_folder_with_anything_else_in_it_is_refused_and_left_alone(
    published: Published, publication: Publication, tmp_path: Path
) -> None:
    _, out = published
    copy = tmp_path / "copy"
    shutil.copytree(out, copy)
    flip(copy / "data/items.jsonl")
    (copy / "models/adapters.json").unlink()
    (copy / "data/more.txt").write_text("more")
    (copy / "beside.txt").write_text("more")
    before = fingerprint(copy)
    with pytest.raises(RefusedError) as caught:
        write(publication, copy)
    assert fingerprint(copy) == before
    assert set(caught.value.details) == {
        "data/items.jsonl: holds other bytes than the run gives",
        "models/adapters.json: is missing",
        "data/more.txt: the run gives no such file",
        "beside.txt: the run gives no such file",
    }
    with pytest.raises(RefusedError):
        require_same(publication, copy)


def test_a_link_in_place_of_a_file_is_refused(
    published: Published, publication: Publication, tmp_path: Path
) -> None:
    _, out = published
    copy = tmp_path / "copy"
    shutil.copytree(out, copy)
    (copy / "data/items.jsonl").unlink()
    (copy / "data/items.jsonl").symlink_to(out / "data/items.jsonl")
    with pytest.raises(RefusedError, match="symbolic link"):
        write(publication, copy)


def test_a_run_whose_checks_do_not_all_hold_is_not_published(
    published: Published, publish: Publish, tmp_path: Path
) -> None:
    study, _ = published
    copy = study.copy_to(tmp_path / "copy")
    (adapter, *_) = copy.run_folder.artifacts.rglob("adapter_model.safetensors")
    flip(adapter)
    with pytest.raises(EvidenceError, match=f"publication of {NAME}"):
        publish(copy)


def test_an_unfinished_run_is_not_published(half_way: StudySimulator, publish: Publish) -> None:
    with pytest.raises((EvidenceError, RefusedError)):
        publish(half_way)


def test_steps_named_in_the_evidence_read_only_what_the_ledger_names(published: Published) -> None:
    """The published step list is the frozen one: references, no content."""
    _, out = published
    steps = json.loads((out / "data/evidence/frozen/steps.json").read_bytes())["steps"]
    references = {one for step in steps for one in step["inputs"].values()}
    assert any(one.startswith(STEP_REF) for one in references)
