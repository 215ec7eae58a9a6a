"""A judge against people's labels as a step of P0: the numbers, and when they stop a study."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from eps_locked.canonical import decode, encode
from eps_locked.domain.judging import (
    JudgeIdentity,
    JudgePlan,
    JudgeRequest,
    Rubric,
    Verdict,
    VerdictStatus,
)
from eps_locked.errors import BackendError, EvidenceError, MalformedInputError
from eps_locked.judges.calibration import read_labelled
from eps_locked.judges.scripted import ScriptedJudge
from eps_locked.studies.common.calibrate import (
    calibration_flags,
    check_labelled,
    derived_calibration,
    run_calibration,
)
from eps_locked.studies.common.judging import VERDICTS_FILE
from eps_locked.studies.eps.plan import CalibrationRules
from sim.simulator import StudySimulator, taught_files, taught_plan


@dataclass
class Opinions:
    """A judge of which a function says what it answers to row n; None is no verdict."""

    plan: JudgePlan
    of: Callable[[int], str | None]
    status: VerdictStatus

    @property
    def identity(self) -> JudgeIdentity:
        return ScriptedJudge(self.plan).identity

    def judge(self, requests: Sequence[JudgeRequest]) -> tuple[Verdict, ...]:
        return tuple(
            Verdict(
                key=one.key,
                draw=one.draw,
                status=self.status if (label := self.of(number)) is None else "scored",
                label=label,
                scores={},
                model="m",
                note="",
                tries=1,
            )
            for number, one in enumerate(requests)
        )


def rules(kind: str = "refusal", **changes: Any) -> dict[str, Any]:
    return {
        "name": "people",
        "judge": "stand_in",
        "row": kind,
        "file": f"material/{kind}/labelled.yaml",
        "minimum_kappa": 0.5,
        **changes,
    }


def rules_of(**changes: Any) -> CalibrationRules:
    return CalibrationRules.from_dict(rules(**changes), "rules")


@dataclass(frozen=True)
class Given:
    """The inputs of the step, from memory."""

    files: dict[str, bytes]

    def frozen(self, name: str) -> bytes:
        return self.files[name]

    def artifact(self, name: str) -> dict[str, bytes]:
        raise AssertionError(name)

    def artifact_digest(self, name: str) -> str:
        raise AssertionError(name)


def given(kind: str) -> Given:
    material = taught_files()
    return Given(
        {
            part: json.dumps(material[f"material/{kind}/{part}.yaml"]).encode()
            for part in ("labelled", "rubric")
        }
    )


def labels_of(kind: str) -> list[str]:
    found = taught_files()[f"material/{kind}/labelled.yaml"]["rows"]
    return [row["label"] for row in found]


def run(
    kind: str,
    of: Callable[[int], str | None],
    status: VerdictStatus = "unreadable",
    **changes: Any,
) -> dict[str, bytes]:
    plan = JudgePlan.from_dict(taught_plan(kind)["eps"]["judges"][0], "judge")
    return run_calibration(
        rules_of(kind=kind, **changes), given(kind), Opinions(plan, of, status), plan, seed=5
    )


def found(files: dict[str, bytes]) -> dict[str, Any]:
    value: dict[str, Any] = decode(files["record.json"], thing="record")["calibration"]
    return value


def kappa(people: Sequence[str], judge: Sequence[str]) -> float:
    """Cohen's, by its definition."""
    n = len(people)
    agreed = sum(a == b for a, b in zip(people, judge, strict=True)) / n
    mine, theirs = Counter(people), Counter(judge)
    by_chance = sum(mine[label] * theirs[label] for label in mine) / n**2
    return (agreed - by_chance) / (1 - by_chance)


def mostly(kind: str, n_wrong: int) -> Callable[[int], str]:
    """The people's labels, the first few of them turned into the other one."""
    right = labels_of(kind)
    return lambda n: right[(n + 1) % len(right)] if n < n_wrong else right[n]


@pytest.mark.parametrize("kind", ["refusal", "fact"])
@pytest.mark.parametrize("n_wrong", [0, 1, 3, 5])
def test_agreement_is_what_the_labels_come_to(kind: str, n_wrong: int) -> None:
    one = found(run(kind, mostly(kind, n_wrong)))
    judged = [mostly(kind, n_wrong)(n) for n in range(12)]
    for part in ("labels", "expressed"):
        assert one[part]["kappa"]["value"] == pytest.approx(kappa(labels_of(kind), judged))
        assert one[part]["percent_agreement"] == pytest.approx(1 - n_wrong / 12)
    assert one["n_rows"] == 12
    assert one["statuses"]["scored"] == 12


def test_answers_without_a_verdict_are_counted_and_agree_with_nobody() -> None:
    right = labels_of("refusal")
    one = found(run("refusal", lambda n: None if n < 4 else right[n]))
    assert (one["statuses"]["unreadable"], one["statuses"]["scored"]) == (4, 8)
    assert one["labels"]["kappa"]["value"] == 1.0


def test_a_judge_that_is_mostly_out_of_reach_is_no_calibration() -> None:
    """The plan allows one half of the verdicts to be lost on the line."""
    right = labels_of("refusal")
    one = found(run("refusal", lambda n: None if n < 6 else right[n], "outage"))
    assert (one["statuses"]["outage"], one["statuses"]["scored"]) == (6, 6)
    with pytest.raises(BackendError, match=r"at most 50\.0% of 12, found 7"):
        run("refusal", lambda n: None if n < 7 else right[n], "rate_limited")


def test_expressed_decides_where_the_rubric_has_it_and_labels_where_it_has_not() -> None:
    """Fact: a distractor taken for nothing said is no error about the fact."""
    right = labels_of("fact")
    swapped = {"distractor": "not_mentioned"}
    files = run("fact", lambda n: swapped.get(right[n], right[n]))
    assert found(files)["expressed"]["kappa"]["value"] == 1.0
    assert found(files)["labels"]["kappa"]["value"] < 0.5
    assert calibration_flags(rules_of(kind="fact", minimum_kappa=0.9), files) == ()
    em = run("em", mostly("em", 5))
    assert found(em)["expressed"] is None
    assert calibration_flags(rules_of(kind="em"), em) == ("decision_needed:judge_kappa:people",)


@pytest.mark.parametrize(("above", "flagged"), [(0.0, False), (1e-6, True), (-1e-6, False)])
def test_a_kappa_at_the_minimum_is_enough(above: float, flagged: bool) -> None:
    files = run("refusal", mostly("refusal", 3))
    value = found(files)["expressed"]["kappa"]["value"]
    flags = calibration_flags(rules_of(minimum_kappa=value + above), files)
    assert flags == (("decision_needed:judge_kappa:people",) if flagged else ())


@pytest.mark.parametrize("of", [lambda n: None, lambda n: None if n % 2 else "full_refusal"])
def test_without_a_kappa_somebody_must_decide(of: Callable[[int], str | None]) -> None:
    """Nothing scored, or one label on both sides: agreement beyond chance is not defined."""
    files = run("refusal", of, minimum_kappa=-1)
    assert found(files)["expressed"]["kappa"]["value"] is None
    flags = calibration_flags(rules_of(minimum_kappa=-1), files)
    assert flags == ("decision_needed:judge_kappa:people",)


def test_the_record_follows_from_the_stored_verdicts_alone() -> None:
    files = run("refusal", mostly("refusal", 3))
    again = derived_calibration(rules_of(), given("refusal"), files, seed=5)
    assert again == files["record.json"]
    verdicts = decode(files[VERDICTS_FILE], thing="verdicts")
    verdicts["verdicts"][0]["label"] = labels_of("refusal")[0]
    better = {**files, VERDICTS_FILE: encode(verdicts)}
    assert derived_calibration(rules_of(), given("refusal"), better, seed=5) != again


@pytest.mark.parametrize("change", ["one short", "another row"])
def test_verdicts_on_other_answers_are_no_record(change: str) -> None:
    files = run("refusal", mostly("refusal", 0))
    verdicts = decode(files[VERDICTS_FILE], thing="verdicts")
    if change == "one short":
        verdicts["verdicts"].pop()
    else:
        verdicts["verdicts"][0]["key"] = "row-12"
    with pytest.raises(EvidenceError, match="one for each of 12 answers"):
        derived_calibration(
            rules_of(), given("refusal"), {**files, VERDICTS_FILE: encode(verdicts)}, seed=5
        )


def labelled(kind: str, **changes: Any) -> dict[str, Any]:
    return {**taught_files()[f"material/{kind}/labelled.yaml"], **changes}


def rubric(kind: str) -> Rubric:
    return Rubric.from_dict(taught_files()[f"material/{kind}/rubric.yaml"], "rubric")


def test_a_set_labelled_under_another_rubric_or_with_a_label_of_none_is_refused() -> None:
    other = read_labelled(labelled("refusal", rubric="fact"), "set")
    with pytest.raises(MalformedInputError, match="set: rubric: expected refusal, found fact"):
        check_labelled(other, rubric("refusal"), "set")
    rows = [{"question": "Q?", "answer": "A.", "label": "agrees"}]
    stranger = read_labelled(labelled("refusal", rows=rows), "set")
    with pytest.raises(MalformedInputError, match=r"set: rows\[0\].label"):
        check_labelled(stranger, rubric("refusal"), "set")


# -- in a run


def calibrated(root: Path, **changes: Any) -> StudySimulator:
    study = StudySimulator(root=root, plan=taught_plan("refusal"))
    study.plan["eps"]["calibrations"] = [rules(**changes)]
    return study


def test_the_step_is_recorded_with_its_flag_and_the_audit_agrees(tmp_path: Path) -> None:
    study = calibrated(tmp_path / "study", minimum_kappa=1.0)
    study.freeze()
    study.authorize("P0")
    study.run("P0")
    audited = study.audit()
    # Only that the run is not whole yet.
    assert {number for number, _ in audited.failures()} == {11}
    assert audited.history is not None
    body = audited.history.done["P0/calibration/people"]
    assert body.flags == ("decision_needed:judge_kappa:people",)
    artifact = body.outputs["calibration"]
    files = {name: study.run_folder.artifact_file(artifact, name) for name in artifact.files}
    record = decode(files["record.json"], thing="record")
    assert (record["name"], record["row"], record["minimum_kappa"]) == ("people", "refusal", 1.0)
    verdicts = decode(files[VERDICTS_FILE], thing="verdicts")["verdicts"]
    assert [one["key"] for one in verdicts] == [f"row-{n}" for n in range(12)]
    value = record["calibration"]["labels"]["kappa"]["value"]
    assert value == pytest.approx(kappa(labels_of("refusal"), [one["label"] for one in verdicts]))


def test_two_judges_may_be_calibrated_on_one_set(tmp_path: Path) -> None:
    study = calibrated(tmp_path / "study", minimum_kappa=-1)
    second = {**study.plan["eps"]["judges"][0], "name": "second", "model": "unreadable=50"}
    study.plan["eps"]["judges"].append(second)
    study.plan["eps"]["calibrations"].append(rules(name="other", judge="second", minimum_kappa=-1))
    study.freeze()
    study.authorize("P0")
    study.run("P0")
    history = study.audit().history
    assert history is not None
    counted = {}
    for name in ("people", "other"):
        artifact = history.done[f"P0/calibration/{name}"].outputs["calibration"]
        record = decode(study.run_folder.artifact_file(artifact, "record.json"), thing=name)
        counted[name] = record["calibration"]["statuses"]["unreadable"]
        model = record["calibration"]["judge"]["model"]
        assert model == ("unreadable=50" if name == "other" else "scripted")
    assert counted["people"] == 0
    assert counted["other"] > 0
