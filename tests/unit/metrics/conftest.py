"""A finished study on the scripted model, whose materials these tests export and run on."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from eps_locked.cli.metric import study_words
from eps_locked.lock.record import RunRecord, terms_of
from eps_locked.metrics import landlock, seccomp
from eps_locked.metrics.interface import Track
from eps_locked.metrics.materials import export_materials
from sim.simulator import StudySimulator

Export = Callable[..., dict[str, Any]]


@pytest.fixture(scope="session")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StudySimulator]:
    """Its manifest names no model files, as the scripted model has none. Not to be changed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        root = tmp_path_factory.mktemp("scripted") / "study"
        study = StudySimulator(root=root, model_files={})
        study.run_all()
        yield study


@pytest.fixture(scope="session")
def exported(scripted: StudySimulator, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The predictive materials of the finished study. Not to be changed."""
    out = tmp_path_factory.mktemp("exported") / "materials"
    export(scripted, out)
    return out


def export(study: StudySimulator, out: Path, track: Track = "predictive") -> dict[str, Any]:
    frozen = study.load()
    history = RunRecord.load(study.run_folder, terms_of(frozen), study.clock).history
    words = study_words(frozen)
    return export_materials(out, frozen, study.run_folder, history, words, track=track)


needs_landlock = pytest.mark.skipif(
    landlock.abi_version() < 1 or not seccomp.is_known_machine(),
    reason="this kernel offers no Landlock, or the processor's calls are not listed",
)
