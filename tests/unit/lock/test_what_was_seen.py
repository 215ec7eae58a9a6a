"""An amendment says what could have been known when it was decided, whatever the study."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sim.battery import battery_files, battery_plan
from sim.battery_run import BatterySimulator
from sim.drift import drift_files, small_drift_plan
from sim.forge import document_payload
from sim.simulator import StudySimulator, default_plan
from sim.vea import table_plan, vea_files


@pytest.mark.parametrize(
    ("plan", "files", "asks"),
    [
        (default_plan(), {}, "P1"),
        (small_drift_plan(), drift_files(), "P2"),
        (table_plan(), vea_files(), "P2"),
        (battery_plan(), battery_files(), "P2"),
    ],
    ids=["eps", "drift", "vea", "battery"],
)
def test_outcomes_count_as_seen_as_soon_as_they_are_recorded(
    tmp_path: Path, plan: dict[str, Any], files: dict[str, Any], asks: str
) -> None:
    kind = BatterySimulator if plan["study"] == "battery" else StudySimulator
    study = kind(tmp_path, plan=plan, files=files)
    study.freeze()
    seen = [document_payload(study.amend("before anything ran"))["seen"]]
    for phase in plan["phases"]:
        study.authorize(phase)
        study.run(phase)
        seen.append(document_payload(study.amend(f"after {phase}"))["seen"])
    phases = list(plan["phases"])
    expected = ["nothing_run"] + [
        "run_unseen" if phases.index(phase) < phases.index(asks) else "seen" for phase in phases
    ]
    assert seen == expected


def test_the_kinds_that_show_outcomes_are_steps_of_some_study(tmp_path: Path) -> None:
    from eps_locked.lock.history import OUTCOME_KINDS

    kinds: set[str] = set()
    for name, plan, files in (
        ("eps", default_plan(), {}),
        ("drift", small_drift_plan(), drift_files()),
        ("vea", table_plan(), vea_files()),
        ("battery", battery_plan(), battery_files()),
    ):
        study = StudySimulator(tmp_path / name, plan=plan, files=files)
        study.freeze()
        kinds |= {step.kind for step in study.load().steps().values()}
    assert kinds >= OUTCOME_KINDS


def test_every_kind_of_the_last_two_phases_shows_an_outcome(tmp_path: Path) -> None:
    """Where a study has no training left to do, whatever it records can be read."""
    from eps_locked.lock.history import OUTCOME_KINDS

    for name, plan, files in (
        ("vea", table_plan(), vea_files()),
        ("battery", battery_plan(), battery_files()),
    ):
        study = StudySimulator(tmp_path / name, plan=plan, files=files)
        study.freeze()
        late = {one.kind for one in study.load().steps().values() if one.phase in ("P2", "P3")}
        assert late <= OUTCOME_KINDS
