"""A phase runs only while every byte still matches: one changed byte anywhere refuses by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sim.simulator import StudySimulator

from eps_locked.domain.ledger import FileRecord


def flip(path: Path, position: int = -2) -> None:
    """Flip one bit of one byte; the file keeps its length."""
    data = bytearray(path.read_bytes())
    data[position] ^= 0x01
    path.write_bytes(bytes(data))


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
        "manifests/small/frozen/prompts/baker.json",
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
