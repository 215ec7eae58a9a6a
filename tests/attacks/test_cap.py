"""The cap on device time: the next step must fit, over restarts, failures and killed attempts."""

from __future__ import annotations

from typing import Any

import pytest

from eps_locked.engines.scripted import ScriptedEngine
from eps_locked.errors import BackendError, RefusedError
from sim.simulator import COLLEAGUE, StudySimulator

SECOND = 1 / 3600


class Ticks:
    """A monotonic clock that moves by so many seconds at each look."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.now = seconds, 0.0

    def __call__(self) -> float:
        self.now += self.seconds
        return self.now


def spent_ms(study: StudySimulator, phase: str) -> int:
    history = study.audit().history
    assert history is not None
    return history.spent_ms.get(phase, 0)


def test_a_first_step_that_cannot_fit_refuses_before_anything(
    study: StudySimulator, refuses: Any
) -> None:
    study.freeze()
    study.authorize("P0", cap_gpu_hours=0.5 * SECOND)
    with refuses(study) as caught:
        study.run("P0")
    assert "would pass the authorized cap" in str(caught.value)
    assert not study.run_folder.ledger_path.exists()


def test_a_run_stops_before_the_step_that_would_pass_its_cap_and_goes_on_under_a_higher(
    study: StudySimulator, refuses: Any
) -> None:
    study.freeze()
    study.authorize("P0", cap_gpu_hours=4.5 * SECOND)
    with pytest.raises(RefusedError, match="would pass the authorized cap"):
        study.run("P0", monotonic=Ticks(1.0))
    assert len(study.observer.finished) == 4
    assert spent_ms(study, "P0") == 4000
    for _ in range(3):
        with refuses(study) as caught:
            study.run("P0", monotonic=Ticks(1.0))
        assert "0.0011 spent" in str(caught.value)
    study.authorize("P0")
    assert study.run("P0", authorization="P0-0002")


def test_failed_attempts_count_against_the_cap(study: StudySimulator, refuses: Any) -> None:
    study.freeze()
    study.authorize("P0", cap_gpu_hours=12.5 * SECOND)
    for attempt in range(1, 12):
        study.engine = ScriptedEngine(fail_after=0)
        with pytest.raises(BackendError):
            study.run("P0", monotonic=Ticks(1.0))
        assert spent_ms(study, "P0") == attempt * 1000
    study.engine = ScriptedEngine(fail_after=0)
    with pytest.raises(BackendError):
        study.run("P0", monotonic=Ticks(1.0))
    with refuses(study):
        study.run("P0")
    history = study.audit().history
    assert history is not None
    assert {body.reason for body in history.aborted} == {"BackendError"}
    assert len(history.aborted) == 12


def killed(study: StudySimulator) -> None:
    """A process that dies within a step: what it leaves is the note, and no entry."""

    class Dies(ScriptedEngine):
        def attach(self, adapter: Any) -> Any:
            raise MemoryError("the process is gone")

    study.engine = Dies()
    with pytest.raises(MemoryError):
        study.run("P0")
    assert study.run_folder.running_path.exists()
    study.engine = ScriptedEngine()


def test_a_killed_attempt_is_charged_its_estimate_once(study: StudySimulator) -> None:
    study.freeze()
    study.authorize("P0")
    killed(study)
    killed(study)
    assert spent_ms(study, "P0") == 1000, "the first is charged when the second begins"
    assert study.run("P0", monotonic=Ticks(0.0))
    history = study.audit().history
    assert history is not None
    assert [body.compute_ms for body in history.aborted] == [1000, 1000]
    assert {body.reason for body in history.aborted} == {"killed"}
    assert not study.run_folder.running_path.exists()


def test_a_killed_attempt_not_yet_charged_counts_in_the_refusal(
    study: StudySimulator, refuses: Any
) -> None:
    study.freeze()
    study.authorize("P0", cap_gpu_hours=1.5 * SECOND)
    killed(study)
    for _ in range(2):
        with refuses(study) as caught:
            study.run("P0")
        assert "0.0003 spent" in str(caught.value)
    study.authorize("P0", signer=COLLEAGUE, cap_gpu_hours=1)
    assert study.run("P0", authorization="P0-0002")
    assert spent_ms(study, "P0") >= 1000


def test_a_charge_that_was_recorded_is_not_made_again(
    study: StudySimulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between the aborted entry and the removal of the note."""
    from eps_locked import files

    study.freeze()
    study.authorize("P0")
    killed(study)

    def dies(path: Any) -> None:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(files, "remove_file", dies)
        with pytest.raises(MemoryError):
            study.run("P0")
    assert spent_ms(study, "P0") == 1000
    assert study.run("P0", monotonic=Ticks(0.0))
    assert spent_ms(study, "P0") == 1000


def test_a_kind_that_proved_slow_is_expected_to_be_slow_again(study: StudySimulator) -> None:
    study.freeze()
    study.authorize("P0", cap_gpu_hours=100 * SECOND)
    with pytest.raises(RefusedError, match="would pass the authorized cap"):
        study.run("P0", monotonic=Ticks(40.0))
    assert len(study.observer.finished) == 2, "a third of 40 s would end at 120"


@pytest.mark.parametrize("hours", [0.0, -1.0])
def test_a_cap_of_nothing_is_signed_by_nobody(
    half_way: StudySimulator, refuses: Any, hours: float
) -> None:
    from eps_locked.errors import MalformedInputError

    with refuses(half_way, MalformedInputError):
        half_way.authorize("P1", cap_gpu_hours=hours)
