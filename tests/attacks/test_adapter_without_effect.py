"""An adapter that is silently not applied gives zeros that look like a finding. It ends the run."""

from __future__ import annotations

import shutil

import pytest

from eps_locked.engines.scripted import ScriptedEngine
from eps_locked.errors import BackendError
from eps_locked.training.scripted import ScriptedTrainer
from sim.forge import find, payloads_of
from sim.simulator import StudySimulator


def cells(study: StudySimulator) -> list[str]:
    history = study.audit().history
    assert history is not None
    return [name for name in history.done if name.startswith("P1/cells/")]


def test_an_adapter_that_the_engine_does_not_apply_is_aborted_and_never_a_cell(
    half_way: StudySimulator,
) -> None:
    half_way.engine = ScriptedEngine(no_effect=True)
    with pytest.raises(BackendError, match="does not act"):
        half_way.run("P1")
    assert cells(half_way) == []
    aborted = find(payloads_of(half_way), "aborted")
    assert aborted["reason"] == "BackendError"
    assert aborted["step"] == "P1/cells/marker/baker/s11"
    with pytest.raises(BackendError):
        half_way.run("P1")
    assert cells(half_way) == []
    half_way.engine = ScriptedEngine()
    undisturbed = half_way.run("P1")
    assert half_way.audit().ok
    assert undisturbed == find(payloads_of(half_way), "close", phase="P1")["results"]


def test_an_adapter_that_was_never_trained_is_aborted_too(half_way: StudySimulator) -> None:
    half_way.trainer = ScriptedTrainer(nats_per_step=0)
    with pytest.raises(BackendError):
        half_way.run("P1")
    assert cells(half_way) == []


def test_an_implant_that_did_not_take_is_recorded_as_failed_and_flagged(
    study: StudySimulator,
) -> None:
    """Acting, but weakly: a result, not an error, and no cell of it counts."""
    study.trainer = ScriptedTrainer(nats_per_step=0.05, jitter=0.0)
    study.freeze()
    for phase in ("P0", "P1"):
        study.authorize(phase)
        study.run(phase)
    audited = study.audit()
    assert audited.ok
    history = audited.history
    assert history is not None
    assert history.done["P1/cells/marker/baker/s11"].status == "implant_failed"
    assert history.done["P1/adapter/marker/baker/s11"].status == "done"
    import json

    tensor = json.loads(audited.artifact("P1/tensor/marker", "tensor")["tensor.json"])
    assert all("implant_failed" in cell["flags"] for cell in tensor["cells"])
    assert not any(cell["scored"] for cell in tensor["cells"])


def test_a_lost_adapter_is_not_trained_again_in_silence(half_way: StudySimulator) -> None:
    from eps_locked.errors import RefusedError

    half_way.run("P1")
    digest = find(payloads_of(half_way), "step", step="P1/adapter/marker/baker/s11")["outputs"][
        "adapter"
    ]["digest"]
    shutil.rmtree(half_way.run_folder.artifact_folder(digest))
    with pytest.raises(RefusedError, match=digest.removeprefix("blake3:")):
        half_way.run("P1")
    assert any(digest.removeprefix("blake3:") in f for f in half_way.audit().checks[8].failures)
