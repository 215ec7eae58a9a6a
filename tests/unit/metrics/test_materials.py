"""What is exported, that it is what the run recorded, and what never is."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eps_locked.canonical import decode, digest_bytes, encode
from eps_locked.domain.model import TrainingRow
from eps_locked.domain.steps import Step
from eps_locked.errors import EvidenceError, MalformedInputError
from eps_locked.lock.inputs import RecordedInputs
from eps_locked.lock.record import RunRecord, terms_of
from eps_locked.metrics.materials import OPEN_FATES, StudyWords, base_inputs_only, export_materials
from eps_locked.metrics.reading import read_materials
from eps_locked.studies.eps.derive import derived_rows
from eps_locked.studies.eps.plan import EpsPlan
from sim.simulator import NAME, StudySimulator
from unit.metrics.conftest import export


def read(folder: Path, name: str) -> Any:
    return decode((folder / name).read_bytes(), thing=name)


def test_the_index_names_every_file_by_its_digest(exported: Path) -> None:
    index = read(exported, "index.json")
    present = {
        path.relative_to(exported).as_posix() for path in exported.rglob("*") if path.is_file()
    }
    assert set(index["files"]) == present - {"index.json"}
    for name, record in index["files"].items():
        data = (exported / name).read_bytes()
        assert record == {"digest": digest_bytes(data), "size": len(data)}


def test_the_index_says_whose_material_it_is_and_under_which_licences(
    exported: Path, scripted: StudySimulator
) -> None:
    index = read(exported, "index.json")
    assert (index["study"], index["track"]) == (NAME, "predictive")
    assert index["manifest"] == scripted.load().digest
    lines = {line["what"]: line["licence"] for line in index["licences"]}
    assert lines["sources/material/contexts.yaml"] == "CC0-1.0"
    assert lines["base model scripted"] == "none needed"
    assert all(line["provenance"] for line in index["licences"])


def test_what_is_read_back_is_what_was_frozen(exported: Path, scripted: StudySimulator) -> None:
    materials, model = read_materials(exported, None)
    section = scripted.plan["eps"]
    assert model.folder is None
    assert materials.study == NAME
    assert {name for _, name in materials.contexts} >= set(section["slots"]["eval"])
    marker = materials.behaviours["marker"]
    assert (marker.marker_text, list(marker.marker_ids)) == (
        " ※",
        section["behaviours"][0]["marker"]["token_ids"],
    )
    assert marker.instruction_pairs[0].positive == "End with it."
    assert len(materials.cells) == 8
    baker = materials.contexts["marker", "baker"]
    assert baker.messages[0] == ("system", "You are a baker.")
    for item in (*materials.train_items["marker"], *materials.eval_items["marker"]):
        rendered = scripted.tokenizer.render(
            tuple(_message(role, text, item.text) for role, text in baker.messages)
        )
        assert baker.prompts[item.id] == rendered
        assert rendered[: len(baker.prefix)] == baker.prefix


def _message(role: str, text: str, question: str) -> Any:
    from eps_locked.domain.model import Message

    return Message(role=role, content=text.replace("{question}", question))  # type: ignore[arg-type]


def test_base_readings_are_the_recorded_ones(exported: Path, scripted: StudySimulator) -> None:
    materials, _ = read_materials(exported, None)
    frozen = scripted.load()
    history = RunRecord.load(scripted.run_folder, terms_of(frozen), scripted.clock).history
    for kind, found in (("base", materials.base), ("answers", materials.answers)):
        steps = [s for s in history.terms.steps.values() if s.kind == kind]
        assert len(found) == len(steps) > 0
        for step in steps:
            artifact = history.done[step.id].outputs[kind]
            recorded = json.loads(scripted.run_folder.artifact_file(artifact, "readings.json"))
            mine = found[step.params["behaviour"], step.params["context"]]
            assert [one.item for one in mine] == [a["item"] for a in recorded["answers"]]
            for one, answer in zip(mine, recorded["answers"], strict=True):
                assert list(one.token_ids) == answer["token_ids"]
                ended = answer["stop_reason"] == "stop" or answer["marker_emitted"]
                assert one.log_prob == (answer["own"]["log_prob"] if ended else None)


def test_training_rows_are_those_the_fits_were_given(
    exported: Path, scripted: StudySimulator
) -> None:
    materials, _ = read_materials(exported, None)
    frozen = scripted.load()
    history = RunRecord.load(scripted.run_folder, terms_of(frozen), scripted.clock).history
    section = EpsPlan.from_section(scripted.plan["eps"])
    fits = [step for step in history.terms.steps.values() if step.kind == "fit"]
    assert len(fits) == 4
    for step in fits:
        inputs = RecordedInputs(
            step=step,
            frozen_manifest=frozen,
            run=scripted.run_folder,
            done=history.done,
        )
        expected = derived_rows(step, inputs, section, section.behaviour("marker")).rows
        data = next(
            one
            for one in materials.training["marker", step.params["context"]]
            if one.seed == step.seed
        )
        assert [(r.key, r.token_ids, r.loss_positions) for r in data.rows] == [
            (r.key, r.token_ids, r.loss_positions) for r in expected
        ]
        assert all(row.question and row.answer for row in data.rows)
    assert [one.seed for one in materials.training["marker", "baker"]] == [11, 12]


def test_the_fate_of_a_cell_that_is_not_open_is_not_told(
    exported: Path, scripted: StudySimulator
) -> None:
    fates = decode(scripted.load().read("frozen/split.json"), thing="split")["cells"]
    told = read(exported, "split.json")
    assert set(told["open"]) == {name for name, fate in fates.items() if fate in OPEN_FATES}
    assert set(told) == {"schema", "open"}
    assert len(told["open"]) < len(fates)
    cells = read(exported, "cells.json")["cells"]
    assert {"/".join(cell) for cell in cells} == set(fates)


def test_before_the_base_phase_is_closed_there_is_nothing_to_export(
    study: StudySimulator, tmp_path: Path, refuses: Any
) -> None:
    study.freeze()
    study.authorize("P0")
    with refuses(study) as caught:
        export(study, tmp_path / "out")
    assert "P0" in str(caught.value)
    assert "run-phase" in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_training_data_are_there_before_any_training(
    half_way: StudySimulator, tmp_path: Path
) -> None:
    export(half_way, tmp_path / "out")
    materials, _ = read_materials(tmp_path / "out", None)
    assert len(materials.training["marker", "baker"][0].rows) > 0
    assert materials.adapters == materials.open_cells == ()


def test_the_export_is_the_same_before_and_after_training(
    half_way: StudySimulator, tmp_path: Path
) -> None:
    """A result that found its way into the predictive materials would make a difference."""
    before = export(half_way, tmp_path / "before")
    half_way.run("P1")
    after = export(half_way, tmp_path / "after")
    assert encode(before) == encode(after)


def test_the_post_hoc_track_waits_for_the_tensor(
    half_way: StudySimulator, tmp_path: Path, refuses: Any
) -> None:
    with refuses(half_way) as caught:
        export(half_way, tmp_path / "out", "post_hoc")
    assert "P1/adapter/" in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_the_post_hoc_track_gets_adapters_and_open_cells_and_no_others(
    scripted: StudySimulator, tmp_path: Path
) -> None:
    export(scripted, tmp_path / "out", "post_hoc")
    materials, _ = read_materials(tmp_path / "out", None)
    fates = decode(scripted.load().read("frozen/split.json"), thing="split")["cells"]
    assert {(one.train, one.seed) for one in materials.adapters} == {
        (train, seed) for train in ("baker", "polite") for seed in (11, 12)
    }
    for one in materials.adapters:
        assert (one.folder / "adapter_model.safetensors").is_file()
    shown = {f"{one.behaviour}/{one.train}/{one.eval}" for one in materials.open_cells}
    assert shown == {name for name, fate in fates.items() if fate in OPEN_FATES}


def test_of_a_sealed_study_the_same_is_exported_and_nothing_of_its_sealed_cells(
    sealed: StudySimulator, tmp_path: Path
) -> None:
    export(sealed, tmp_path / "predictive")
    export(sealed, tmp_path / "post_hoc", "post_hoc")
    fates = decode(sealed.load().read("frozen/split.json"), thing="split")["cells"]
    materials, _ = read_materials(tmp_path / "post_hoc", None)
    shown = {f"{one.behaviour}/{one.train}/{one.eval}": one for one in materials.open_cells}
    assert set(shown) == {name for name, fate in fates.items() if fate in OPEN_FATES}
    assert all(one.g is not None and "sealed" not in one.flags for one in shown.values())
    ciphertexts = {path.name for path in sealed.run_folder.artifacts.rglob("*.age")}
    assert ciphertexts, "the study has nothing sealed"
    for out in ("predictive", "post_hoc"):
        for path in (tmp_path / out).rglob("*"):
            assert path.name not in ciphertexts
            assert path.is_dir() or b"age-encryption.org" not in path.read_bytes()


def test_an_existing_folder_is_never_written_into(
    scripted: StudySimulator, tmp_path: Path, refuses: Any
) -> None:
    (tmp_path / "out").mkdir()
    with refuses(scripted) as caught:
        export(scripted, tmp_path / "out")
    assert "never overwritten" in str(caught.value)


def test_a_changed_artifact_is_not_exported(half_way: StudySimulator, tmp_path: Path) -> None:
    frozen = half_way.load()
    history = RunRecord.load(half_way.run_folder, terms_of(frozen), half_way.clock).history
    artifact = history.done["P0/base/marker/plain"].outputs["base"]
    path = half_way.run_folder.artifact_folder(artifact.digest) / "readings.json"
    path.write_bytes(path.read_bytes().replace(b"stop", b"stpo"))
    with pytest.raises(EvidenceError, match=r"readings\.json"):
        export(half_way, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_fit_is_derived_without_what_later_phases_gave() -> None:
    """Were a fit ever to name a result among its inputs, reading it would fail, not leak."""
    references = {
        "plan": "file:frozen/plan.yaml",
        "answers": "step:P0/answers/marker/baker#answers",
        "cell": "step:P1/cells/marker/baker/s11#cell:plain",
    }
    step = Step(
        id="P1/fit/marker/baker/s11",
        phase="P1",
        kind="fit",
        seed=11,
        params={"behaviour": "marker", "context": "baker"},
        inputs=references,
        outputs=("fit",),
        estimate_ms=1,
    )
    kept = base_inputs_only(step)
    assert kept.inputs == {key: references[key] for key in ("plan", "answers")}
    assert replace(kept, inputs=references) == step


def test_rows_are_derived_from_those_inputs_alone(scripted: StudySimulator, tmp_path: Path) -> None:
    seen = []

    def watching(step: Any, inputs: Any) -> tuple[TrainingRow, ...]:
        seen.extend(inputs.step.inputs.values())
        return ()

    frozen = scripted.load()
    history = RunRecord.load(scripted.run_folder, terms_of(frozen), scripted.clock).history
    for step in history.terms.steps.values():
        if step.kind == "fit":
            assert isinstance(step.inputs, dict)
            step.inputs["result"] = "step:P1/tensor/marker#tensor"
    words = StudyWords(
        readings=lambda files, thing: (),
        prior=lambda files, thing: None,
        rows=watching,
        written=lambda row: {},
    )
    export_materials(tmp_path / "out", frozen, scripted.run_folder, history, words)
    assert seen
    assert not [reference for reference in seen if reference.startswith("step:P1/")]


@pytest.mark.parametrize("act", ["change", "remove", "add"])
def test_an_export_is_read_only_as_it_was_written(
    act: str, scripted: StudySimulator, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    export(scripted, out)
    if act == "change":
        (out / "rows/marker/items.json").write_bytes(
            (out / "rows/marker/items.json").read_bytes() + b" "
        )
    elif act == "remove":
        (out / "base/marker/plain.json").unlink()
    else:
        (out / "base/marker/answer.json").write_bytes(b"{}")
    with pytest.raises(EvidenceError):
        read_materials(out, None)


def test_a_folder_that_is_no_export_is_refused(tmp_path: Path) -> None:
    (tmp_path / "index.json").write_bytes(encode({"schema": "something/1"}))
    with pytest.raises(MalformedInputError, match="metric-materials"):
        read_materials(tmp_path, None)
