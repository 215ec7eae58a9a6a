"""A phase runs only while every byte still matches: one changed byte anywhere refuses by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from eps_locked.domain.ledger import FileRecord
from eps_locked.files import walk_files
from eps_locked.lock import provenance
from eps_locked.studies.common.wiring import model_records
from sim.forge import flip, lines_of
from sim.simulator import StudySimulator


def named(study: StudySimulator, pattern: str) -> Path:
    return sorted(study.root.glob(pattern))[0]


@pytest.mark.parametrize(
    "pattern",
    [
        "plans/small.yaml",
        "plans/material/contexts.yaml",
        "plans/keys/allowed_signers",
        "manifests/small/manifest.json",
        "manifests/small/frozen/plan.yaml",
        "manifests/small/frozen/steps.json",
        "manifests/small/frozen/rows/marker/prompts/baker.json",
        "manifests/small/frozen/sources/material/eval.yaml",
        "runs/small/ledger.jsonl",
        "runs/small/head.json",
        "runs/small/artifacts/*/readings.json",
        "runs/small/authorizations/P1-0001/document.json",
        "runs/small/authorizations/P1-0001/document.json.sig",
    ],
)
def test_a_flipped_bit_refuses_the_phase_and_names_the_file(
    half_way: StudySimulator, refuses: Any, pattern: str
) -> None:
    path = named(half_way, pattern)
    flip(path)
    with refuses(half_way) as caught:
        half_way.run("P1")
    assert path.name in str(caught.value)


def test_a_changed_source_file_of_ours_refuses(half_way: StudySimulator, refuses: Any) -> None:
    half_way.code["eps_locked/a.py"] = "blake3:" + "c" * 64
    with refuses(half_way) as caught:
        half_way.run("P1")
    assert "eps_locked/a.py" in str(caught.value)
    assert caught.value.found == "blake3:" + "c" * 64


def test_another_package_version_refuses(half_way: StudySimulator, refuses: Any) -> None:
    half_way.environment = {"python": "3.11.0", "packages": {"numpy": "2.1"}}
    with refuses(half_way) as caught:
        half_way.run("P1")
    assert (caught.value.expected, caught.value.found) == ("2.0", "2.1")


def test_a_changed_model_file_refuses(half_way: StudySimulator, refuses: Any) -> None:
    half_way.model_files["model.safetensors"] = FileRecord(digest="blake3:" + "d" * 64, size=7)
    with refuses(half_way) as caught:
        half_way.run("P1")
    assert "model.safetensors" in str(caught.value)


def frozen_names() -> list[str]:
    """Every file of the manifest folder that ``half_way`` copies, known before it is built."""
    contexts = ("baker", "polite", "plain", "formal", "officer", "curious")
    sources = ("keys/allowed_signers", *(f"material/{n}.yaml" for n in MATERIAL))
    names = ("rows/marker/items", "rows/marker/contexts", "split", "steps", "code", "environment")
    return [
        "manifest.json",
        "frozen/plan.yaml",
        "frozen/allowed_signers",
        *(f"frozen/{name}.json" for name in names),
        *(f"frozen/rows/marker/prompts/{name}.json" for name in contexts),
        *(f"frozen/sources/{name}" for name in sources),
    ]


MATERIAL = ("contexts", "train", "eval", "marker")


def test_the_list_of_frozen_files_is_complete(half_way: StudySimulator) -> None:
    assert sorted(walk_files(half_way.manifest_folder)) == sorted(frozen_names())


@pytest.mark.parametrize("position", [0, -2], ids=["first", "last"])
@pytest.mark.parametrize("name", frozen_names())
def test_every_frozen_file_counts_from_its_first_byte_to_its_last(
    half_way: StudySimulator, refuses: Any, name: str, position: int
) -> None:
    flip(half_way.manifest_folder / name, position)
    with refuses(half_way) as caught:
        half_way.run("P1")
    assert name.rpartition("/")[2] in str(caught.value)


@pytest.mark.parametrize("name", frozen_names())
def test_every_frozen_file_has_to_be_there(
    half_way: StudySimulator, refuses: Any, name: str
) -> None:
    (half_way.manifest_folder / name).unlink()
    with refuses(half_way) as caught:
        half_way.run("P1")
    assert name.rpartition("/")[2] in str(caught.value)


def test_every_artifact_counts(half_way: StudySimulator, refuses: Any) -> None:
    paths = sorted(half_way.run_folder.artifacts.rglob("*.json"))
    assert len(paths) == 9
    for path in paths:
        flip(path)
        with refuses(half_way) as caught:
            half_way.run("P1")
        assert str(path) in str(caught.value)
        flip(path)
    assert half_way.run("P1") is not None


def test_every_line_of_the_ledger_counts(half_way: StudySimulator, refuses: Any) -> None:
    lines = lines_of(half_way)
    position = 0
    for number, line in enumerate(lines, start=1):
        middle = position + len(line) // 2
        flip(half_way.run_folder.ledger_path, middle)
        with refuses(half_way) as caught:
            half_way.run("P1")
        assert f"ledger.jsonl:{number}" in str(caught.value)
        flip(half_way.run_folder.ledger_path, middle)
        position += len(line) + 1


def test_a_changed_byte_in_a_real_model_folder_refuses(refuses: Any, tmp_path: Path) -> None:
    """The rule compares digests; this shows that the digests follow the bytes on the disk."""
    folder = tmp_path / "model"
    folder.mkdir()
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (folder / name).write_bytes(name.encode() * 40)
    fresh = StudySimulator(root=tmp_path / "fresh", model_files=dict(model_records(folder)))
    fresh.freeze()
    fresh.authorize("P0")
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        flip(folder / name)
        fresh.model_files = dict(model_records(folder))
        with refuses(fresh) as caught:
            fresh.run("P0")
        assert name in str(caught.value)
        flip(folder / name)
    (folder / "extra.json").write_text("{}")
    fresh.model_files = dict(model_records(folder))
    with refuses(fresh) as caught:
        fresh.run("P0")
    assert "extra.json" in str(caught.value)
    (folder / "extra.json").unlink()
    (folder / "config.json").unlink()
    fresh.model_files = dict(model_records(folder))
    with refuses(fresh) as caught:
        fresh.run("P0")
    assert "config.json" in str(caught.value)


@pytest.mark.parametrize("act", ["changed", "added", "removed"])
def test_our_own_source_counts(half_way: StudySimulator, refuses: Any, act: str) -> None:
    half_way.code = {
        "changed": {"eps_locked/a.py": "blake3:" + "c" * 64},
        "added": {**half_way.code, "eps_locked/b.py": "blake3:" + "a" * 64},
        "removed": {},
    }[act]
    with refuses(half_way) as caught:
        half_way.run("P1")
    assert ("b.py" if act == "added" else "a.py") in str(caught.value)
    assert half_way.audit().checks[4].failures


def test_the_source_tree_is_measured_from_the_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "eps_locked"
    package.mkdir()
    (package / "a.py").write_text("a = 1\n")
    monkeypatch.setattr(provenance, "package_folder", lambda: package)
    monkeypatch.setattr(provenance, "schema_folder", lambda: package)
    before = provenance.source_tree()
    flip(package / "a.py")
    after = provenance.source_tree()
    assert before["eps_locked/a.py"] != after["eps_locked/a.py"]
    (package / "b.py").write_text("")
    assert "eps_locked/b.py" in provenance.source_tree()


@pytest.mark.parametrize(
    ("package", "found"), [({"numpy": "2.0", "scipy": "1"}, "1"), ({}, "absent")]
)
def test_packages_that_come_or_go_refuse(
    half_way: StudySimulator, refuses: Any, package: dict[str, str], found: str
) -> None:
    half_way.environment = {"python": "3.11.0", "packages": package}
    with refuses(half_way) as caught:
        half_way.run("P1")
    assert caught.value.found == found
