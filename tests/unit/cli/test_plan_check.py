"""``plan check``: every problem at once, or a table in which no number stands without its basis."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from eps_locked.cli.main import run
from eps_locked.studies.eps.cost import BASES
from sim.simulator import NAME, StudySimulator, fingerprint, taught_plan

PLANS = Path(__file__).resolve().parents[3] / "plans"


def check(capsys: pytest.CaptureFixture[str], path: Path, *words: str, code: int = 0) -> str:
    assert run(["plan", "check", str(path), *words]) == code
    captured = capsys.readouterr()
    return captured.err if code else captured.out


def columns(line: str) -> list[str]:
    return re.split(r" {2,}", line.strip())


@pytest.mark.parametrize("name", ["demo", "five", "marker-full", "eps-embedded", "eps-v1"])
def test_every_plan_checks_without_a_problem_and_without_a_look_at_anything(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("ANTHROPIC_API_KEY", "HF_TOKEN"):
        monkeypatch.delenv(variable, raising=False)
    out = check(capsys, PLANS / f"{name}.yaml")
    lines = out.splitlines()
    assert lines[0] == f"plans/{name}.yaml: no problem found"
    table = [columns(line) for line in lines[1:] if line.startswith("  ")]
    head = table[0]
    assert head == [
        "steps",
        "adapters",
        "cells",
        "new tokens <=",
        "verdicts <=",
        "device-hours",
        "budget",
    ]
    total = next(row for row in table if row[0] == "total")
    phases = [row for row in table[1:] if re.fullmatch(r"P\d", row[0]) and len(row) == 8]
    assert phases
    for column in range(1, 6):
        numbers = [int(row[column].replace(",", "")) for row in phases]
        assert int(total[column].replace(",", "")) == sum(numbers)
    for words in BASES.values():
        assert words in out


def test_the_full_size_plan_says_84_adapters_a_seed_and_who_must_sign(
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = check(capsys, PLANS / "eps-v1.yaml")
    assert "adapters: 84 with seed 42, 84 with seed 137, 16 with seed 256" in out
    assert "marker 16 x 3, fact 16 x 2" in out
    assert "em_plain 4 x 2" in out
    assert "parks for somebody else's authorization (above 100 device-hours): P2" in out
    document = json.loads(check(capsys, PLANS / "eps-v1.yaml", "--json"))
    assert document["plan"] == "eps-v1"
    assert document["parks"] == ["P2"]
    assert document["adapters_per_seed"] == {"42": 84, "137": 84, "256": 16}
    out = check(capsys, PLANS / "eps-embedded.yaml")
    assert "its author may authorize every phase (up to 100 device-hours each)" in out


def test_a_plan_over_its_own_budget_is_told_so(
    study: StudySimulator, capsys: pytest.CaptureFixture[str]
) -> None:
    study.plan["phases"]["P1"]["step_seconds"]["cells"] = 3600
    study.write_plan()
    before = fingerprint(study.root)
    out = check(capsys, study.root / f"plans/{NAME}.yaml")
    assert "over the plan's own budget: P1" in out
    assert fingerprint(study.root) == before


def test_problems_of_judged_rows_come_with_their_places(
    study: StudySimulator, capsys: pytest.CaptureFixture[str]
) -> None:
    def problems(change: Any) -> str:
        study.plan = taught_plan("fact", "em")
        change(study.plan["eps"])
        study.write_plan()
        return check(capsys, study.root / f"plans/{NAME}.yaml", code=2)

    first = problems(lambda section: section["behaviours"][0].update(judge="nobody"))
    assert "plan.eps.behaviours[0].judge: expected a judge of the plan, found nobody" in first
    second = problems(lambda section: section["behaviours"][1].update(n_seeds=1))
    assert "plan.eps.behaviours[1].n_seeds" in second
    third = problems(lambda section: section["judges"][0].update(max_tries=0, key="sk-secret"))
    assert "max_tries" in third
    fourth = problems(lambda section: section["behaviours"][0].pop("n_steps"))
    assert "n_steps" in fourth


def test_a_plan_elsewhere_or_by_another_name_is_refused(
    study: StudySimulator, capsys: pytest.CaptureFixture[str]
) -> None:
    study.write_plan()
    path = study.root / f"plans/{NAME}.yaml"
    other = path.with_name("other.yaml")
    other.write_bytes(path.read_bytes())
    assert "name: expected other, found small" in check(capsys, other, code=2)
    moved = study.root / f"{NAME}.yaml"
    moved.write_bytes(path.read_bytes())
    assert "expected a file plans/NAME.yaml" in check(capsys, moved, code=2)
