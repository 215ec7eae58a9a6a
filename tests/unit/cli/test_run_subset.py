"""``run-phase --behaviour/--cells``: a part today, the rest another day, the same results."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from eps_locked.errors import MalformedInputError
from eps_locked.runners.subset import chosen_steps
from sim.forge import payloads_of, steps_in
from sim.simulator import NAME, StudySimulator, fingerprint, taught_plan


def new_study(root: Path, *kinds: str) -> StudySimulator:
    """Of the scripted model as commands freeze it: without model files."""
    study = StudySimulator(root=root, plan=taught_plan(*kinds, marker=True), model_files={})
    study.write_plan()
    return study


@pytest.fixture
def begun(tmp_path: Path, typed: Any) -> StudySimulator:
    """A marker row and a taught one, P0 authorized."""
    study = new_study(tmp_path / "study", "sycophancy")
    typed(study, "freeze", NAME)
    typed(study, "authorize", NAME, "P0")
    return study


def status(study: StudySimulator, typed: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(typed(study, "status", NAME, "--json").out)
    return found


def done(study: StudySimulator) -> list[str]:
    """Finished steps in the order of the ledger."""
    return [one["step"] for one in steps_in(payloads_of(study))]


def test_a_row_of_a_phase_runs_alone_and_the_phase_stays_open(
    begun: StudySimulator, typed: Any
) -> None:
    out = typed(begun, "run-phase", NAME, "P0", "--behaviour", "sycophancy").out
    assert "P0 of small: the chosen part is done, 9 steps are left" in out
    assert "next: just run-phase small P0" in out
    assert all("/sycophancy" in step for step in done(begun))
    phase = status(begun, typed)["phases"][0]
    assert phase["phase"] == "P0"
    assert (phase["finished"], phase["steps"], phase["closed"]) == (5, 14, False)
    assert "P0: 5 of 14 steps, open" in typed(begun, "status", NAME).out
    # The later phase is not to be had for a part of the earlier one.
    typed(begun, "authorize", NAME, "P1")
    err = typed(begun, "run-phase", NAME, "P1", "--behaviour", "marker", code=3).err
    assert "P0" in err


def test_the_same_part_again_runs_nothing_and_says_so(begun: StudySimulator, typed: Any) -> None:
    words = ("run-phase", NAME, "P0", "--behaviour", "sycophancy")
    typed(begun, *words)
    before = done(begun)
    assert "the chosen part is done, 9 steps are left" in typed(begun, *words).out
    assert done(begun) == before


def test_a_cell_brings_along_what_it_needs_and_no_more(begun: StudySimulator, typed: Any) -> None:
    typed(begun, "run-phase", NAME, "P0")
    typed(begun, "authorize", NAME, "P1")
    before = len(done(begun))
    typed(begun, "run-phase", NAME, "P1", "--cells", "ba*")
    ran = done(begun)[before:]
    # Adapters wait for the median of every source's fit; cells and adapters of others do not run.
    assert {step for step in ran if "/fit/" in step or "/match/" in step} == {
        f"P1/{name}/s{seed}"
        for name in ("fit/marker/baker", "fit/marker/polite", "match/marker")
        for seed in (11, 12)
    }
    assert {step for step in ran if "/adapter/" in step or "/cells/" in step} == {
        f"P1/{kind}/marker/baker/s{seed}" for kind in ("adapter", "cells") for seed in (11, 12)
    }
    assert "P1/tensor/marker" not in ran
    assert status(begun, typed)["phases"][1]["closed"] is False


def test_both_options_name_what_they_have_in_common(begun: StudySimulator, typed: Any) -> None:
    words = ("--behaviour", "marker", "--cells", "baker", "--cells", "plain")
    typed(begun, "run-phase", NAME, "P0", *words)
    assert set(done(begun)) == {
        "P0/answers/marker/baker",
        "P0/base/marker/baker",
        "P0/base/marker/plain",
    }


@pytest.mark.parametrize(
    ("option", "name", "known"),
    [
        ("--behaviour", "sycophantic", "marker, sycophancy"),
        ("--cells", "butcher", "baker, curious, formal, officer, plain, polite"),
        ("--cells", "persona_*", "baker, curious, formal, officer, plain, polite"),
    ],
)
def test_an_unknown_name_is_malformed_input_and_changes_nothing(
    option: str, name: str, known: str, begun: StudySimulator, typed: Any
) -> None:
    before = fingerprint(begun.root)
    err = typed(begun, "run-phase", NAME, "P0", option, name, code=2).err
    assert err.startswith(f"malformed: {option}: expected one of the phase's {known}, found {name}")
    assert {k: v for k, v in fingerprint(begun.root).items() if k in before} == before
    assert not begun.run_folder.ledger_path.exists()


def test_a_phase_in_parts_closes_with_the_results_of_one_in_one_go(
    begun: StudySimulator, typed: Any, tmp_path: Path
) -> None:
    whole = StudySimulator(root=tmp_path / "whole", plan=begun.plan, model_files={})
    begun.copy_to(whole.root)
    parts: dict[str, Sequence[tuple[str, ...]]] = {
        "P0": [("--cells", "p*"), ("--behaviour", "marker"), ()],
        "P1": [("--cells", "polite"), ()],
        "P2": [("--behaviour", "sycophancy", "--cells", "baker"), ("--cells", "polite"), ()],
    }
    for phase, options in parts.items():
        if phase != "P0":
            typed(begun, "authorize", NAME, phase)
            typed(whole, "authorize", NAME, phase)
        said = [typed(begun, "run-phase", NAME, phase, *one).out for one in options]
        assert all("the chosen part is done" in one for one in said[:-1])
        assert f"{phase} of small: complete, results blake3:" in said[-1]
        # A part of a closed phase is as closed as the phase.
        again = typed(begun, "run-phase", NAME, phase, *options[0]).out
        assert again.splitlines()[0] == said[-1].splitlines()[0]
        assert typed(whole, "run-phase", NAME, phase).out == said[-1]
    assert done(begun) != done(whole)
    assert sorted(done(begun)) == sorted(done(whole))
    typed(begun, "check-evidence", NAME)
    typed(whole, "check-evidence", NAME)


def test_a_smoke_run_takes_a_part_too(begun: StudySimulator, typed: Any) -> None:
    typed(begun, "authorize", NAME, "P0", "--smoke")
    words = ("--limit", "1", "--behaviour", "sycophancy", "--cells", "polite")
    out = typed(begun, "run-phase", NAME, "P0", *words).out
    assert "this is no evidence" in out
    smoke = begun.workspace.run(NAME, "smoke").ledger_path.read_text()
    assert "P0/base/sycophancy/polite" in smoke
    assert not begun.run_folder.ledger_path.exists()


def test_steps_are_chosen_in_the_phases_order(begun: StudySimulator) -> None:
    steps = [one for one in _steps(begun) if one.phase == "P2"]
    chosen = chosen_steps(steps, steps, ["sycophancy"], ["polite", "baker"])
    assert [step for step in steps if step in chosen] == list(chosen)
    assert [step.id for step in steps if step not in chosen] == ["P2/tensor/sycophancy"]
    assert chosen_steps(steps, steps, [], []) == tuple(steps)
    assert chosen_steps(steps, steps[-1:], [], ["polite"]) == ()
    with pytest.raises(MalformedInputError, match="expected one of the phase's none"):
        chosen_steps([], [], ["marker"], [])


def _steps(study: StudySimulator) -> Sequence[Any]:
    from eps_locked.canonical import decode
    from eps_locked.domain.steps import read_steps

    return read_steps(decode(study.load().read("frozen/steps.json"), thing="steps"), "steps")
