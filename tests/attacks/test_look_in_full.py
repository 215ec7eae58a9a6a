"""Aim: a score on the sealed cells that was not earned, or that gives the cells away."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eps_locked.canonical import decode, encode
from eps_locked.cli.looks import _require_head, submit_predictor
from eps_locked.errors import EvidenceError, MalformedInputError, RefusedError
from eps_locked.lock.looks import RESULT_FILE
from eps_locked.lock.seal import CustodianKey
from eps_locked.scoring.predictor import read_predictor
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


def test_everybody_learns_coarse_scores_of_the_submission_and_the_custodian_exact_ones_of_all(
    scored: StudySimulator,
) -> None:
    """A dozen exact scores are a dozen equations in the sealed values: they give the cells away."""
    public = look(scored, scored.predictor())
    [block] = public["behaviours"]
    assert [one["role"] for one in block["scores"]] == ["submission"]
    assert block["rank"]["of"] > 1
    for number in numbers({**block["scores"][0]["splits"], **block["scores"][0]["overfit_gap"]}):
        assert number == (round(number, 2) if abs(number) < 1 else float(f"{number:.3g}"))
    history = scored.audit().history
    assert history is not None
    result = history.scores[1].result
    assert result is not None
    assert set(result.files) == {RESULT_FILE, "scores.json.age", "sealed.json"}
    key = CustodianKey.read(scored.custodian_key.read_bytes(), thing="key")
    sealed = {
        name: scored.run_folder.artifact_file(result, name)
        for name in ("scores.json.age", "sealed.json")
    }
    recipients = scored.load().read("frozen/sources/keys/custodian")
    opened = key.open_files(sealed, recipients)["scores.json"]
    [exact] = decode(opened, thing="scores")["behaviours"]
    assert len(exact["scores"]) == block["rank"]["of"] >= 10
    mine = exact["scores"][0]["splits"]["all"]["r2"]["value"]
    assert mine == pytest.approx(block["scores"][0]["splits"]["all"]["r2"]["value"], abs=0.01)


def numbers(value: Any) -> Iterator[float]:
    if isinstance(value, dict):
        for one in value.values():
            yield from numbers(one)
    elif isinstance(value, list):
        for one in value:
            yield from numbers(one)
    elif isinstance(value, float):
        yield value


def test_readings_sealed_under_another_cells_name_fail_the_look(
    scored: StudySimulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No auditor without the key can see it; the custodian's program does."""
    run = finished_run(scored)
    key = CustodianKey.read(scored.custodian_key.read_bytes(), thing="key")
    opened = CustodianKey.open_files
    first: list[dict[str, bytes]] = []

    def swapped(self: CustodianKey, files: Any, recipients: bytes) -> dict[str, bytes]:
        first.append(opened(self, files, recipients))
        return first[0]

    monkeypatch.setattr(CustodianKey, "open_files", swapped)
    with pytest.raises(EvidenceError, match="context: expected"):
        run.full_tensor(key)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d: d.update(metric="gaussian_kl"), "an id of its own"),
        (lambda d: [cell.update(value=1e308) for cell in d["cells"]], "a size from"),
        (lambda d: d["cells"][0].update(value=5e-324), "a size from"),
        (lambda d: d.update(author="red\x1b[31m"), "printable words"),
        (lambda d: d.update(author=" "), "printable words"),
        (lambda d: d["cells"].pop(), "has no value"),
    ],
)
def test_what_could_only_burn_a_look_is_not_taken_as_a_submission(
    scored: StudySimulator, change: Any, words: str
) -> None:
    document = scored.predictor("mine")
    change(document)
    before = scored.run_folder.ledger_path.read_bytes()
    predictor = read_predictor(encode(document), "json", thing="mine")
    with pytest.raises(MalformedInputError) as caught:
        submit_predictor(scored.workspace, "small", predictor)
    assert words in str(caught.value)
    assert scored.run_folder.ledger_path.read_bytes() == before


def test_a_custodian_who_noted_the_head_sees_that_a_look_was_cut_off(
    scored: StudySimulator,
) -> None:
    look(scored, scored.predictor())
    run = scored.run_folder
    whole = run.ledger_path.read_bytes().splitlines(keepends=True)
    noted = decode(whole[-1].rstrip(b"\n"), thing="line")["digest"]
    _require_head(run, noted)
    run.ledger_path.write_bytes(b"".join(whole[:-2]))
    with pytest.raises(RefusedError, match="looks perhaps, are gone"):
        _require_head(run, noted)


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
    run = finished_run(scored)
    mine = read_predictor(encode(scored.predictor("mine")), "json", thing="mine")
    assert run.open_scores()["label"] == "confirmatory"
    assert run.open_scores([mine])["label"] == "exploratory"
    taken = read_predictor(encode(scored.predictor("gaussian_kl")), "json", thing="taken")
    with pytest.raises(MalformedInputError, match="an id of its own"):
        run.open_scores([taken])
