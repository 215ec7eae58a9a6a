"""The second verifier on ``vea`` studies: nothing on honest ones, every forged number found; and on
``battery`` studies, of which it reads no number.

A forger here may write everything: the ledger is rebuilt after each change, so that only what a
file says is wrong.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats

from conformance import second_verifier
from conformance.second_verifier import verify
from eps_locked.stats.signed_rank import signed_rank
from sim.battery import battery_files, battery_plan
from sim.battery_run import BatterySimulator, harmful_files, narrow_plan, reply
from sim.forge import edit_entry, edit_files, edit_output, flip
from sim.simulator import NAME, StudySimulator
from sim.vea import TABLE, table_plan, vea_files, vea_plan

LAST, SCORE = "P3/breadth", "P2/score/narrow"
Change = Callable[[Any], object]


@pytest.fixture(scope="module")
def _done(tmp_path_factory: pytest.TempPathFactory) -> StudySimulator:
    root = tmp_path_factory.mktemp("vea") / "study"
    study = StudySimulator(root=root, plan=vea_plan(), files=vea_files())
    study.run_all()
    return study


@pytest.fixture
def done(_done: StudySimulator, tmp_path: Path) -> StudySimulator:
    return _done.copy_to(tmp_path / "study")


def test_an_honest_study_has_no_failure(done: StudySimulator) -> None:
    assert verify(done.root, NAME) == []


@pytest.mark.parametrize("normalise", ["overall", "per_prompt"])
@pytest.mark.parametrize("primary", ["inserted", "length_controlled"])
def test_so_has_one_of_a_table(tmp_path: Path, normalise: str, primary: str) -> None:
    plan = table_plan()
    plan["vea"]["analysis"].update(normalise=normalise, primary=primary)
    study = StudySimulator(root=tmp_path / "study", plan=plan, files=vea_files())
    study.run_all()
    assert verify(study.root, NAME) == []


def test_so_has_one_of_a_model_that_lies_elsewhere(tmp_path: Path) -> None:
    plan = table_plan()
    plan["base_model"]["source"] = {"kind": "elsewhere", "where": "a service", "checksums": {}}
    plan["engine"]["name"] = "elsewhere"
    study = StudySimulator(root=tmp_path / "study", plan=plan, files=vea_files())
    study.run_all()
    assert verify(study.root, NAME) == []


@pytest.mark.parametrize("normalise", ["none", "overall", "per_prompt"])
def test_so_has_one_in_which_scores_are_missing(tmp_path: Path, normalise: str) -> None:
    """A family of too few pairs has a p and none that is adjusted."""
    plan, files = table_plan(), vea_files()
    plan["vea"]["analysis"]["normalise"] = normalise
    lost = {"exam_interview-1,vea": "", "wood_labs-2,base": "nan"}
    rows = [row.rpartition(",") for row in files[TABLE].splitlines()]
    files[TABLE] = "".join(f"{key},{lost.get(key, score)}\n" for key, _, score in rows)
    study = StudySimulator(root=tmp_path / "study", plan=plan, files=files)
    study.run_all()
    assert verify(study.root, NAME) == []


def test_a_changed_byte_of_an_artifact_is_found(done: StudySimulator) -> None:
    flip(next((done.root / "runs" / NAME).glob("artifacts/*/scores.json")))
    assert any("scores.json" in one for one in verify(done.root, NAME))


def in_model(change: Change) -> Change:
    return lambda document: change(document["reward_models"][0])


def in_family(number: int, change: Change, measure: str = "inserted") -> Change:
    return in_model(lambda model: change(model["families"][number][measure]))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda document: document.update(label="exploratory"), "label"),
        (lambda document: document["settings"].update(margin=0.4), "settings"),
        (lambda document: document["reward_models"].pop(), "reward models"),
        (lambda document: document["power"].update(power=0.7), "power"),
        (in_model(lambda model: model.update(headline="broad", agrees=False)), "headline"),
        (in_model(lambda model: model.update(agrees=False)), "agrees"),
        (in_model(lambda model: model.update(expected=None, agrees=None)), "expected"),
        (in_model(lambda model: model.update(n_scores=1)), "n_scores"),
        (in_model(lambda model: model["families"].pop()), "families"),
        (in_model(lambda model: model["families"][1].update(role="gate")), "role"),
        (in_model(lambda model: model["gates"][0].update(holds="fails")), "gates"),
        (in_model(lambda model: model["breadth"].update(n_penalising=3)), "n_penalising"),
        (in_model(lambda model: model["breadth"].update(n_not=0)), "n_not"),
        (in_model(lambda model: model["breadth"].update(n_undetermined=2)), "n_undetermined"),
        (in_model(lambda model: model["breadth"].update(high_bound=0.5)), "bounds"),
        (in_family(0, lambda effect: effect.update(mean=effect["mean"] + 1e-6)), "mean"),
        (in_family(0, lambda effect: effect.update(sd=effect["sd"] * 1.001)), "sd"),
        (in_family(0, lambda effect: effect.update(cohens_d=9.0)), ": d:"),
        (in_family(0, lambda effect: effect.update(cohens_d_corrected=9.0)), "corrected d"),
        (in_family(0, lambda effect: effect.update(cliffs_delta=-1.0)), "Cliff's delta"),
        (in_family(0, lambda effect: effect.update(p=0.2)), ": p:"),
        (in_family(1, lambda effect: effect.update(p_adjusted=0.01)), "adjusted p"),
        (in_family(0, lambda effect: effect["wilcoxon"].update(w_plus=1)), "w_plus"),
        (in_family(0, lambda effect: effect["wilcoxon"].update(n=99)), ": n:"),
        (in_family(0, lambda effect: effect["wilcoxon"].update(n_zero=1)), "zeros"),
        (in_family(0, lambda effect: effect.update(verdict="does_not")), "verdict"),
        (in_family(1, lambda effect: effect.update(verdict="penalises")), "verdict"),
        (in_family(0, lambda effect: effect.update(low=99.0)), "leaves out its mean"),
    ],
)
def test_every_forged_number_is_found(done: StudySimulator, change: Change, said: str) -> None:
    edit_output(done, LAST, "breadth", "breadth.json", change)
    found = verify(done.root, NAME)
    assert len(found) == 1
    assert said in found[0]


def test_a_forged_difference_is_found(done: StudySimulator) -> None:
    def change(held: dict[str, bytes]) -> None:
        text = held["deltas.csv"].decode()
        held["deltas.csv"] = text.replace(",scored", ",truncated", 1).encode()

    edit_files(done, LAST, "breadth", change)
    [found] = verify(done.root, NAME)
    assert "deltas.csv" in found


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda said: said["scores"].reverse(), "keys"),
        (lambda said: said["scores"].pop(), "keys"),
        (lambda said: said.update(reward_model="broad"), "reward_model"),
        (lambda said: said["scores"][0].update(status="liked"), "status"),
        (lambda said: said["scores"][0].update(status="truncated"), "exactly where"),
        (lambda said: said["scores"][0].update(status="truncated", value=None), "flags"),
        (lambda said: said["scores"][0].update(value=said["scores"][0]["value"] + 1), "deltas.csv"),
    ],
)
def test_a_forged_score_is_found(done: StudySimulator, change: Change, said: str) -> None:
    edit_output(done, SCORE, "scores", "scores.json", change)
    found = verify(done.root, NAME)
    assert found
    assert any(said in one for one in found)


@pytest.mark.parametrize("flag", ["missing:outage", "too_few:wood_labs"])
def test_a_forged_flag_is_found(done: StudySimulator, flag: str) -> None:
    edit_entry(done, SCORE, lambda entry: entry["flags"].append(flag))
    assert any("flags" in one for one in verify(done.root, NAME))


def test_a_forged_status_is_found(done: StudySimulator) -> None:
    edit_entry(done, SCORE, lambda entry: entry.update(status="unscored"))
    assert any("status" in one for one in verify(done.root, NAME))


@pytest.mark.parametrize("n", [1, 2, 5, 9, 14])
@pytest.mark.parametrize("seed", [1, 2])
def test_its_signed_rank_test_is_scipys(n: int, seed: int) -> None:
    values = np.random.default_rng(seed).normal(0.3, 1.0, n)
    w_plus, greater, less = second_verifier.signed_rank_p(values.tolist())
    for tail, found in (("greater", greater), ("less", less)):
        theirs = scipy.stats.wilcoxon(values, alternative=tail, method="exact")
        assert found == pytest.approx(theirs.pvalue, rel=1e-12)
    assert w_plus == scipy.stats.wilcoxon(values, alternative="greater").statistic


@pytest.mark.parametrize("shift", [0.0, 0.1])
def test_above_300_differences_it_is_ours_as_well(shift: float) -> None:
    values = np.round(np.random.default_rng(4).normal(shift, 1.0, 330), 1)
    w_plus, greater, less = second_verifier.signed_rank_p(values.tolist())
    ours = signed_rank(values)
    assert ours.method == "normal"
    assert w_plus == ours.w_plus
    assert (greater, less) == pytest.approx((ours.p_greater, ours.p_less), rel=1e-12)


def test_its_adjustment_is_scipys() -> None:
    values = np.random.default_rng(3).uniform(size=9)
    theirs = scipy.stats.false_discovery_control(values)
    assert second_verifier.false_discovery(values.tolist()) == pytest.approx(theirs, rel=1e-12)


def test_of_a_battery_elsewhere_likewise(tmp_path: Path) -> None:
    plan = narrow_plan("over_refusal", "speed", served=False, harmful=True)
    files = {**battery_files(), **harmful_files()}
    study = BatterySimulator(root=tmp_path / "study", plan=plan, files=files, tell=reply)
    study.run_all()
    assert verify(study.root, NAME) == []


def test_of_a_battery_it_reads_everything_but_the_numbers(tmp_path: Path) -> None:
    study = BatterySimulator(root=tmp_path / "study", plan=battery_plan(), files=battery_files())
    study.run_all()
    assert verify(study.root, NAME) == []
    held = next((study.root / "runs" / NAME).glob("artifacts/*/verdicts.json"))
    held.write_bytes(json.dumps(json.loads(held.read_bytes())).encode() + b" ")
    assert any("verdicts.json" in one for one in verify(study.root, NAME))
