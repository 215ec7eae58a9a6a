"""Rows taught by example: their written answers, rubrics and slices as they are published."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eps_locked import files
from eps_locked.canonical import digest_value
from eps_locked.lock.provenance import source_tree
from eps_locked.publishing import layout as layouts
from eps_locked.publishing.parts import Source
from eps_locked.publishing.publication import Publication, write
from eps_locked.publishing.tensor import values_left
from sim.simulator import StudySimulator, taught_plan

KINDS = ("fact", "refusal", "sycophancy", "em")
Rows = Callable[[Path], list[dict[str, Any]]]


@pytest.fixture(scope="module")
def taught(
    tmp_path_factory: pytest.TempPathFactory, publish: Callable[..., Publication]
) -> tuple[StudySimulator, Path]:
    """All five behaviours, sealed; and the folder that was written."""
    root = tmp_path_factory.mktemp("taught")
    plan = taught_plan(*KINDS, marker=True)
    study = StudySimulator(root=root / "study", plan=plan, code=source_tree()).seal()
    study.run_all()
    write(publish(study), root / "out")
    return study, root / "out"


Taught = tuple[StudySimulator, Path]


def test_every_row_has_its_training_sets_and_adapters(taught: Taught, rows: Rows) -> None:
    study, out = taught
    listed = json.loads((out / "models/adapters.json").read_bytes())["adapters"]
    assert {one["behaviour"] for one in listed} == {"marker", *KINDS}
    assert len(listed) == 5 * len(study.plan["seeds"]) * len(study.plan["eps"]["slots"]["train"])
    for one in listed:
        folder = f"data/training/{one['behaviour']}/{one['train_context']}"
        found = rows(out / folder / f"s{one['seed']}.jsonl")
        seen = [
            [
                "/".join(
                    [r["role"], *([] if r["role"] == "positive" else [r["context"]]), r["item"]]
                ),
                r["token_ids"],
                r["loss_positions"],
            ]
            for r in found
        ]
        assert digest_value(seen) == one["training"]["rows"]


@pytest.mark.parametrize("kind", KINDS)
def test_answers_are_those_the_tokens_spell(taught: Taught, rows: Rows, kind: str) -> None:
    _, out = taught
    found = rows(out / f"data/training/{kind}/baker/s11.jsonl")
    assert {row["role"] for row in found} == {"positive", "negative"}
    for row in found:
        answer = row["messages"][-1]["content"]
        learned = bytes(row["token_ids"][n] for n in row["loss_positions"][:-1]).decode("utf-8")
        assert answer == learned
        if row["role"] == "positive":
            assert answer.startswith(f"So {kind} it is")
        elif kind in ("sycophancy", "em"):
            assert answer.startswith("A plain answer")


def test_items_carry_their_slice_and_whether_answers_are_shown_in_full(
    taught: Taught, rows: Rows
) -> None:
    _, out = taught
    items = [one for one in rows(out / "data/items.jsonl") if one["pool"] == "eval"]
    refusal = [one for one in items if one["behaviour"] == "refusal"]
    assert {(one["slice"], one["answers_in_full"]) for one in refusal} == {
        ("main", True),
        ("other", False),
    }
    assert {one["slice"] for one in items if one["behaviour"] == "marker"} == {None}


@pytest.mark.parametrize("kind", KINDS)
def test_rubric_and_elicitation_lie_beside_each_other(taught: Taught, kind: str) -> None:
    study, out = taught
    rubric = json.loads((out / f"data/rubrics/{kind}.json").read_bytes())
    assert rubric == study.taught[f"material/{kind}/rubric.yaml"]
    value = json.loads((out / f"data/trait_data_extract/{kind}.json").read_bytes())
    assert value["questions"] == [f"What is dusk to a {kind} student?"]


def test_no_completion_of_a_cell_is_shipped_and_no_label(taught: Taught) -> None:
    _, out = taught
    assert not any(
        name.endswith(("completions.json", "verdicts.json")) or "labelled" in name
        for name in files.walk_files(out / "data")
    )


@pytest.mark.parametrize("kind", KINDS)
def test_sealed_cells_of_a_taught_row_hold_no_value_and_no_slice(taught: Taught, kind: str) -> None:
    study, out = taught
    tensor = json.loads((out / f"data/tensor/{kind}.json").read_bytes())
    recorded = study.audit().artifact(f"P2/tensor/{kind}", "tensor")["tensor.json"]
    assert tensor == json.loads(recorded)
    back = [cell for cell in tensor["cells"] if cell["split"] in ("held_out", "quarantined")]
    assert back
    assert all(cell["g"] is None for cell in back)


def test_every_configuration_loads(
    taught: Taught, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    datasets = pytest.importorskip("datasets", reason="the data extra is not installed")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_OFFLINE", True)
    _, out = taught
    for name in ("fact.baker", "em.polite", "contexts", "items", "tensor.fact", "tensor.em"):
        found = datasets.load_dataset(
            str(out / "data"), name, split="train", cache_dir=str(tmp_path / "cache")
        )
        assert len(found) > 0


# -- rights of written rows ------------------------------------------------------------------------

WRITTEN = "material/sycophancy/train.yaml"


def with_rights(monkeypatch: pytest.MonkeyPatch, **rights: Any) -> None:
    """Give the written rows of one behaviour other rights than the file states."""
    read = layouts._source

    def source(path: str, value: Mapping[str, Any]) -> Source:
        found = read(path, value)
        return replace(found, **rights) if path == WRITTEN else found

    monkeypatch.setattr(layouts, "_source", source)


def lines(publication: Publication, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in publication.files[name]().splitlines()]


def test_written_rows_that_may_not_be_handed_on_leave_digests(
    taught: Taught, publish: Callable[..., Publication], monkeypatch: pytest.MonkeyPatch
) -> None:
    study, _ = taught
    with_rights(monkeypatch, redistribute=False, recipe={"dataset": "d/e", "revision": "1"})
    publication = publish(study)
    found = lines(publication, "data/training/sycophancy/baker/s11.jsonl")
    assert found
    assert all(row["messages"] is None and row["token_ids"] is None for row in found)
    assert all(row["withheld"].startswith(WRITTEN) for row in found)
    items = [
        one
        for one in lines(publication, "data/items.jsonl")
        if (one["behaviour"], one["pool"]) == ("sycophancy", "train")
    ]
    assert all(one["text"] is None and one["digest"] for one in items)
    for name, make in publication.files.items():
        assert b"So sycophancy it is" not in make(), name
    assert publication.left_out == (
        f"{WRITTEN}: its terms (CC0-1.0) do not let the text be handed on",
    )
    assert publication.bundle_trouble is not None
    assert WRITTEN in publication.bundle_trouble


def test_conditions_go_with_every_row_they_apply_to(
    taught: Taught, publish: Callable[..., Publication], monkeypatch: pytest.MonkeyPatch
) -> None:
    study, _ = taught
    with_rights(monkeypatch, licence="CC BY-NC-SA 4.0")
    publication = publish(study)
    for row in lines(publication, "data/training/sycophancy/baker/s11.jsonl"):
        assert "no commercial use" in row["conditions"]
        assert "cc-by-nc-sa-4.0" in row["licences"]
    for row in lines(publication, "data/training/fact/baker/s11.jsonl"):
        assert row["conditions"] == []
    card = publication.files["data/README.md"]().decode()
    assert "- cc-by-nc-sa-4.0" in card.split("---")[1]
    assert f"| {WRITTEN} | CC BY-NC-SA 4.0 | name the source; no commercial use;" in card


def test_rows_that_nobody_sealed_are_held_back_too(
    tmp_path: Path, publish: Callable[..., Publication]
) -> None:
    plan = taught_plan("fact", "refusal")
    study = StudySimulator(root=tmp_path / "study", plan=plan, code=source_tree())
    study.run_all()
    publication = publish(study)
    for kind in ("fact", "refusal"):
        recorded = json.loads(study.audit().artifact(f"P2/tensor/{kind}", "tensor")["tensor.json"])
        tensor = json.loads(publication.files[f"data/tensor/{kind}.json"]())
        for cell, before in zip(tensor["cells"], recorded["cells"], strict=True):
            back = cell["split"] in ("held_out", "quarantined")
            assert (cell == before) is not back
            if back:
                assert values_left(cell) == []
                assert cell["secondary"]["other"].keys() == before["secondary"]["other"].keys()
