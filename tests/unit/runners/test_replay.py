"""Steps of judged rows done again: the same bytes, or the difference by name."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from eps_locked.domain.judging import Judge, JudgePlan
from eps_locked.domain.plan import Plan
from eps_locked.domain.steps import Step
from eps_locked.judges.scripted import ScriptedJudge
from eps_locked.lock.record import RunRecord, terms_of
from eps_locked.runners.replay import Replayed, draw_steps, replay_steps
from eps_locked.studies.eps.execute import EpsExecutor
from eps_locked.studies.eps.plan import EpsPlan
from eps_locked.studies.eps.steplist import asks_a_service, list_steps
from sim.simulator import StudySimulator, fingerprint, judge_plan, taught_plan

ROWS = ("fact", "refusal", "sycophancy", "em")


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> StudySimulator:
    """Every taught kind, run to its end. Not to be changed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        root = tmp_path_factory.mktemp("taught") / "study"
        plan = taught_plan(*ROWS)
        plan["eps"]["calibrations"] = [
            {
                "name": "people",
                "judge": "stand_in",
                "row": "fact",
                "file": "material/fact/labelled.yaml",
                "minimum_kappa": -1,
            }
        ]
        study = StudySimulator(root=root, plan=plan)
        study.run_all()
        return study


def replayed(
    study: StudySimulator,
    load_judge: Callable[[JudgePlan], Judge],
    can_repeat: Callable[[Step], bool] = lambda step: True,
) -> dict[str, Replayed]:
    history = RunRecord.load(study.run_folder, terms_of(study.load()), study.clock).history
    steps = draw_steps(history, 10**6, 1, can_repeat)
    executor = EpsExecutor(load=study.backends, load_judge=load_judge)
    rows = replay_steps(steps, history, study.load(), study.run_folder, executor, lambda text: None)
    return {row.step: row for row in rows}


def test_every_step_of_a_judged_row_gives_its_bytes_again(taught: StudySimulator) -> None:
    before = fingerprint(taught.root)
    found = replayed(taught, ScriptedJudge)
    kinds = {step.split("/")[1] for step in found}
    assert kinds == {"calibration", "answers", "base", "headroom", "train", "cells", "tensor"}
    assert {row.step: row.differences for row in found.values() if row.differences} == {}
    assert fingerprint(taught.root) == before


def test_a_judge_that_changed_its_mind_shows_in_what_it_judged(taught: StudySimulator) -> None:
    def other(plan: JudgePlan) -> Judge:
        return ScriptedJudge(JudgePlan.from_dict(judge_plan(model="unreadable=40"), "judge"))

    found = replayed(taught, other)
    changed = {step for step, row in found.items() if row.differences}
    judged = {step for step in found if step.split("/")[1] in ("calibration", "base", "cells")}
    # What it did not judge is as it was: replay reads the recorded verdicts, not the new ones.
    assert changed == judged
    assert any(
        "verdicts" in line or "base: expected blake3:" in line
        for line in found["P0/base/em/plain"].differences
    )


def test_what_a_service_judged_is_not_done_again() -> None:
    plan = taught_plan("fact", "em", marker=True)
    plan["eps"]["judges"] = [
        judge_plan(),
        judge_plan(
            name="service",
            kind="gateway",
            family="other",
            endpoint="http://127.0.0.1:9/v1",
        ),
    ]
    plan["eps"]["behaviours"][2]["judge"] = "service"
    plan["eps"]["calibrations"] = [
        {
            "name": judge,
            "judge": judge,
            "row": "fact",
            "file": "material/fact/labelled.yaml",
            "minimum_kappa": -1,
        }
        for judge in ("stand_in", "service")
    ]
    section = EpsPlan.from_section(plan["eps"])
    asked = [
        step.id
        for step in list_steps(Plan.from_dict(plan), section)
        if asks_a_service(step, section)
    ]
    assert asked[0] == "P0/calibration/service"
    assert {step.rpartition("/em")[0] for step in asked[1:]} == {"P0/base", "P2/cells"}
    assert len(asked) == 1 + 4 + 4


def test_steps_that_cannot_be_repeated_are_not_drawn(taught: StudySimulator) -> None:
    found = replayed(taught, ScriptedJudge, lambda step: step.kind == "tensor")
    assert set(found) == {f"P2/tensor/{row}" for row in ROWS}
