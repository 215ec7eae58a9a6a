"""What a closed phase is short of, from its steps, before anything is computed."""

from __future__ import annotations

from collections.abc import Mapping

from eps_locked.studies.battery.records import SpeedRecord, SpeedRow
from eps_locked.studies.battery.shortfalls import short_steps
from sim.battery_run import lost
from unit.studies.battery.outcome_worlds import record
from unit.studies.battery.world import section, step_of


def test_asking_and_timing_that_came_to_too_little_are_told_with_what_is_missing() -> None:
    asked = record("capability", lambda one: lost(one, "filtered"), thinking="on")
    row = SpeedRow(
        status="outage", n_completion_tokens=None, first_token_seconds=None, seconds=None
    )
    timed = SpeedRecord(model="untouched", endpoint={}, request={}, rows=(row, row))

    def read(step: str, output: str) -> Mapping[str, bytes]:
        return {"answers": asked, "speed": timed}[output].to_files()

    steps = [step_of("capability", "on"), step_of("speed")]
    assert short_steps(section(), steps, read) == [
        "untouched, capability, thinking on: 0 of 4 items have a verdict, the plan asks for 50% "
        "(missing: 4 filtered)",
        "untouched, speed: none of 2 requests could be timed",
    ]
    assert short_steps(section(), [], read) == []


def test_of_an_axis_that_is_not_kept_the_counts_are_told() -> None:
    asked = record("harmful", lambda one: lost(one, "filtered"))
    (text,) = short_steps(section(), [step_of("harmful")], lambda step, output: asked.to_files())
    assert "0 of 4 items have a verdict" in text
    assert "(missing: 4 filtered)" in text
