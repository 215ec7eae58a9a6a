"""Aim: a score on the sealed cells that was not earned, or that gives the cells away."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eps_locked.canonical import decode
from eps_locked.lock.looks import RESULT_FILE
from eps_locked.lock.seal import CustodianKey
from eps_locked.studies.eps.scores import FinishedRun
from sim.simulator import StudySimulator, scored_contexts, scored_plan


def scored_study(root: Path) -> StudySimulator:
    return StudySimulator(root=root, plan=scored_plan(), contexts=scored_contexts())


@pytest.fixture(scope="module")
def _scored(tmp_path_factory: pytest.TempPathFactory) -> StudySimulator:
    study = scored_study(tmp_path_factory.mktemp("scored") / "study").seal()
    study.run_all()
    return study


@pytest.fixture
def scored(_scored: StudySimulator, tmp_path: Path) -> StudySimulator:
    """A finished, sealed study with baselines; a private copy."""
    return _scored.copy_to(tmp_path / "study")


def finished_run(study: StudySimulator) -> FinishedRun:
    audited = study.audit()
    assert list(audited.failures()) == []
    assert audited.frozen is not None
    assert audited.history is not None
    return FinishedRun(frozen=audited.frozen, run=audited.run, history=audited.history)


def full_values(study: StudySimulator) -> dict[tuple[str, str], Any]:
    """What the custodian could compute: every cell by (train, eval)."""
    key = CustodianKey.read(study.custodian_key.read_bytes(), thing="key")
    [table] = finished_run(study).full_tensor(key).tables
    return {(cell.train, cell.eval): cell for cell in table.cells}


def look(study: StudySimulator, document: dict[str, Any]) -> dict[str, Any]:
    study.submit(document)
    study.check()
    number = study.look(score=finished_run(study).look)
    history = study.audit().history
    assert history is not None
    result = history.scores[number].result
    assert result is not None
    data = study.run_folder.artifact_file(result, RESULT_FILE)
    scores: dict[str, Any] = decode(data, thing=RESULT_FILE)["scores"]
    return scores


def test_a_look_tells_scores_and_not_one_sealed_value(scored: StudySimulator) -> None:
    look(scored, scored.predictor())
    sealed = [c for c in full_values(scored).values() if c.split in ("held_out", "quarantined")]
    assert sealed
    everything = b"".join(
        path.read_bytes() for path in scored.run_folder.folder.rglob("*") if path.is_file()
    )
    for cell in sealed:
        assert cell.g is not None
        assert repr(cell.g).encode() not in everything
    diagonal = full_values(scored)["baker", "baker"]
    assert repr(diagonal.g).encode() in everything, "the search itself is blind"


def test_the_opened_cells_are_those_of_a_run_that_sealed_nothing(
    scored: StudySimulator, tmp_path: Path
) -> None:
    plain = scored_study(tmp_path / "plain")
    plain.plan["analyses"] = ["tensor", "scores"]
    plain.run_all()
    [table] = finished_run(plain).open_tensor().tables
    opened = full_values(scored)
    assert len(table.cells) == len(opened)
    for cell in table.cells:
        assert opened[cell.train, cell.eval].g == cell.g


def test_knowing_the_open_cells_by_heart_does_not_help(scored: StudySimulator) -> None:
    values, noise = full_values(scored), np.random.default_rng(5)
    document = scored.predictor("by-heart")
    for cell in document["cells"]:
        known = values[cell["train"], cell["eval"]]
        is_open = known.split == "open" and known.g is not None
        cell["value"] = known.g if is_open else float(noise.normal())
    [scores] = look(scored, document)["behaviours"]
    [mine] = [one for one in scores["scores"] if one["role"] == "submission"]
    assert mine["open"]["r2"]["value"] > 0.99
    assert mine["splits"]["all"]["r2"]["value"] < 0.5
    assert mine["overfit_gap"]["carries_over"] != "yes"


def test_knowing_the_sealed_cells_shows(scored: StudySimulator) -> None:
    """The other side of the test above: the final score can be reached by who has the answer."""
    values = full_values(scored)
    document = scored.predictor("oracle")
    for cell in document["cells"]:
        cell["value"] = values[cell["train"], cell["eval"]].g or 0.0
    [scores] = look(scored, document)["behaviours"]
    [mine] = [one for one in scores["scores"] if one["role"] == "submission"]
    assert mine["splits"]["all"]["r2"]["value"] > 0.99


def test_the_same_look_twice_gives_the_same_scores_and_counts_twice(
    scored: StudySimulator,
) -> None:
    first = look(scored, scored.predictor())
    scored.check()
    number = scored.look(1, score=finished_run(scored).look)
    history = scored.audit().history
    assert history is not None
    again = history.scores[number].result
    assert again is not None
    document = decode(scored.run_folder.artifact_file(again, RESULT_FILE), thing="result")
    assert document["scores"] == first
    assert len(history.looks) == 2


def test_scores_of_unpromised_metrics_are_exploratory_and_may_not_take_a_baselines_name(
    scored: StudySimulator,
) -> None:
    from eps_locked.canonical import encode
    from eps_locked.errors import MalformedInputError
    from eps_locked.scoring.predictor import read_predictor

    run = finished_run(scored)
    mine = read_predictor(encode(scored.predictor("mine")), "json", thing="mine")
    assert run.open_scores()["label"] == "confirmatory"
    assert run.open_scores([mine])["label"] == "exploratory"
    taken = read_predictor(encode(scored.predictor("gaussian_kl")), "json", thing="taken")
    with pytest.raises(MalformedInputError, match="an id of its own"):
        run.open_scores([taken])
