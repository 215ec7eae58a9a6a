"""Lives of a study: each row is a sequence of acts and what comes of it.

An act is a word and its arguments; see ``ACTS``. The last act decides: a row ends in results
(``ran``, ``complete``), or in a refusal of which a part of the text is given.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from eps_locked.engines.scripted import ScriptedEngine
from eps_locked.errors import BackendError, EpsLockedError
from sim.forge import flip
from sim.simulator import COLLEAGUE, StudySimulator, fingerprint, tiny_plan


def edit_plan(study: StudySimulator) -> None:
    study.plan["title"] += " (with more hope)"
    study.write_plan()


def restore_plan(study: StudySimulator) -> None:
    study.plan["title"] = study.plan["title"].replace(" (with more hope)", "")
    study.write_plan()


def edit_material(study: StudySimulator) -> None:
    study.eval_questions[0] = "Why is the sea blue?"
    study.write_plan()


def edit_code(study: StudySimulator, to: str = "c") -> None:
    study.code = {"eps_locked/a.py": "blake3:" + to * 64}


def update_package(study: StudySimulator) -> None:
    study.environment = {"python": "3.11.0", "packages": {"numpy": "2.1"}}


def later(study: StudySimulator, hours: float = 25) -> None:
    study.now += timedelta(hours=hours)


def break_engine(study: StudySimulator, n: int = 1) -> None:
    study.engine = ScriptedEngine(fail_after=n)


def mend_engine(study: StudySimulator) -> None:
    study.engine = ScriptedEngine()


def fails(study: StudySimulator, phase: str) -> None:
    with pytest.raises(BackendError):
        study.run(phase)


def flip_a_frozen_file(study: StudySimulator) -> None:
    flip(study.manifest_folder / "frozen/split.json")


def rebind(study: StudySimulator, *names: str) -> None:
    study.amend("a defect was mended", rebind=frozenset(names))


ACTS: dict[str, Callable[..., object]] = {
    "freeze": lambda study: study.freeze(),
    "dry freeze": lambda study: study.freeze(dry_run=True),
    "authorize": lambda study, phase, **more: study.authorize(phase, **more),
    "run": lambda study, phase, **more: study.run(phase, **more),
    "fails": fails,
    "amend": rebind,
    "edit plan": edit_plan,
    "restore plan": restore_plan,
    "edit material": edit_material,
    "edit code": edit_code,
    "update package": update_package,
    "later": later,
    "break engine": break_engine,
    "mend engine": mend_engine,
    "flip": flip_a_frozen_file,
}

P0 = [("authorize", "P0"), ("run", "P0")]
P1 = [("authorize", "P1"), ("run", "P1")]
FREEZE: list[Any] = ["freeze"]

# (what it is about, the acts, the outcome): "ran": results and an audit that misses only P1;
# "complete": results and an audit that passes; anything else: the text of a refusal.
HISTORIES: list[tuple[str, list[Any], str]] = [
    ("the straight way", [*FREEZE, *P0, *P1], "complete"),
    ("only the first half", [*FREEZE, *P0], "ran"),
    ("nothing frozen", [("authorize", "P0")], "manifest.json: is missing"),
    ("nothing frozen, run", [("run", "P0")], "manifest.json: is missing"),
    ("frozen dry", ["dry freeze", ("run", "P0")], "manifest.json: is missing"),
    ("frozen dry, then wet", ["dry freeze", *FREEZE, *P0], "ran"),
    ("frozen twice", [*FREEZE, "freeze"], "a manifest is frozen once"),
    ("P1 before P0", [*FREEZE, ("authorize", "P1"), ("run", "P1")], "expected phase P0 complete"),
    (
        "P1 with leave for P0",
        [*FREEZE, *P0, ("run", "P1")],
        "authorization for P1",
    ),
    ("a phase nobody promised", [*FREEZE, ("authorize", "P2")], "expected ('P0', 'P1')"),
    (
        "both authorized before either ran",
        [*FREEZE, ("authorize", "P1"), *P0, ("run", "P1")],
        "complete",
    ),
    ("P0 run again", [*FREEZE, *P0, ("run", "P0")], "ran"),
    ("P0 authorized again", [*FREEZE, *P0, ("authorize", "P0")], "an open phase"),
    ("P1 run again", [*FREEZE, *P0, *P1, ("run", "P1")], "complete"),
    (
        "P0 run again after P1, its leave expired",
        [*FREEZE, *P0, *P1, "later", ("run", "P0")],
        "validity",
    ),
    ("expired", [*FREEZE, ("authorize", "P0"), "later", ("run", "P0")], "validity"),
    (
        "expired, authorized again",
        [*FREEZE, ("authorize", "P0"), "later", *P0],
        "ran",
    ),
    (
        "not yet valid",
        [*FREEZE, ("authorize", "P0"), ("later", -1), ("run", "P0")],
        "validity",
    ),
    (
        "two leaves",
        [*FREEZE, ("authorize", "P0"), ("authorize", "P0"), ("run", "P0")],
        "found P0-0001, P0-0002",
    ),
    (
        "two leaves, one named",
        [
            *FREEZE,
            ("authorize", "P0"),
            ("authorize", "P0"),
            ("run", "P0", {"authorization": "P0-0002"}),
        ],
        "ran",
    ),
    ("an edited plan", [*FREEZE, ("authorize", "P0"), "edit plan", ("run", "P0")], "small.yaml"),
    (
        "an edited plan put back",
        [*FREEZE, ("authorize", "P0"), "edit plan", "restore plan", ("run", "P0")],
        "ran",
    ),
    (
        "an edited plan frozen anew",
        [*FREEZE, "edit plan", "freeze"],
        "a manifest is frozen once",
    ),
    (
        "an edited plan between the phases",
        [*FREEZE, *P0, "edit plan", ("authorize", "P1"), ("run", "P1")],
        "small.yaml",
    ),
    (
        "edited material",
        [*FREEZE, *P0, "edit material", ("authorize", "P1"), ("run", "P1")],
        "material/eval.yaml",
    ),
    (
        "an edited plan is not healed by an amendment",
        [*FREEZE, "edit plan", "amend", *P0],
        "small.yaml",
    ),
    ("a frozen file changed", [*FREEZE, ("authorize", "P0"), "flip", ("run", "P0")], "split.json"),
    ("changed code", [*FREEZE, ("authorize", "P0"), "edit code", ("run", "P0")], "a.py"),
    (
        "changed code, amended without binding it",
        [*FREEZE, "edit code", "amend", *P0],
        "a.py",
    ),
    ("changed code, bound anew", [*FREEZE, "edit code", ("amend", "code"), *P0], "ran"),
    (
        "changed code between the phases, bound anew",
        [*FREEZE, *P0, "edit code", ("amend", "code"), *P1],
        "complete",
    ),
    (
        "back to the old code after binding new",
        [*FREEZE, "edit code", ("amend", "code"), ("edit code", "a"), *P0],
        "source tree",
    ),
    (
        "code changed again after binding",
        [*FREEZE, "edit code", ("amend", "code"), ("edit code", "d"), *P0],
        "a.py",
    ),
    (
        "bound anew twice",
        [
            *FREEZE,
            "edit code",
            ("amend", "code"),
            *P0,
            ("edit code", "d"),
            ("amend", "code"),
            *P1,
        ],
        "complete",
    ),
    (
        "another package",
        [*FREEZE, ("authorize", "P0"), "update package", ("run", "P0")],
        "environment: numpy",
    ),
    (
        "another package, bound anew",
        [*FREEZE, "update package", ("amend", "environment"), *P0, *P1],
        "complete",
    ),
    (
        "code bound does not bind the packages",
        [*FREEZE, "update package", ("amend", "code"), *P0],
        "environment: numpy",
    ),
    (
        "an amendment before anything",
        [*FREEZE, "amend", *P0, *P1],
        "complete",
    ),
    (
        "an old leave after an amendment",
        [*FREEZE, ("authorize", "P0"), "amend", ("run", "P0")],
        "lock_head",
    ),
    (
        "a new leave after an amendment",
        [*FREEZE, ("authorize", "P0"), "amend", *P0],
        "ran",
    ),
    (
        "a finished phase is asked for after an amendment",
        [*FREEZE, *P0, "amend", ("run", "P0")],
        "lock_head",
    ),
    ("three amendments", [*FREEZE, "amend", *P0, "amend", "amend", *P1], "complete"),
    (
        "a failure and a resume",
        [
            *FREEZE,
            ("authorize", "P0"),
            "break engine",
            ("fails", "P0"),
            "mend engine",
            ("run", "P0"),
            *P1,
        ],
        "complete",
    ),
    (
        "a failure, an amendment, a resume",
        [
            *FREEZE,
            ("authorize", "P0"),
            ("break engine", 4),
            ("fails", "P0"),
            "mend engine",
            "edit code",
            ("amend", "code"),
            *P0,
            *P1,
        ],
        "complete",
    ),
    (
        "a failure whose leave expires before the resume",
        [
            *FREEZE,
            ("authorize", "P0"),
            ("break engine", 4),
            ("fails", "P0"),
            "mend engine",
            "later",
            ("run", "P0"),
        ],
        "validity",
    ),
    (
        "a cap of less than a step",
        [*FREEZE, ("authorize", "P0", {"cap_gpu_hours": 0.0001}), ("run", "P0")],
        "would pass the authorized cap",
    ),
    (
        "more than the author may sign alone",
        [*FREEZE, ("authorize", "P0", {"cap_gpu_hours": 2})],
        "ask another allowed signer",
    ),
    (
        "more, signed by a colleague",
        [*FREEZE, ("authorize", "P0", {"cap_gpu_hours": 2, "signer": COLLEAGUE}), ("run", "P0")],
        "ran",
    ),
    (
        "a smoke run without its own leave",
        [*FREEZE, ("authorize", "P0"), ("run", "P0", {"limit": 1})],
        "smoke/small",
    ),
]


def play(study: StudySimulator, act: Any) -> object:
    if isinstance(act, str):
        return ACTS[act](study)
    word, *rest = act
    named = rest.pop() if rest and isinstance(rest[-1], dict) else {}
    return ACTS[word](study, *rest, **named)


@pytest.mark.parametrize(
    ("acts", "outcome"),
    [(acts, outcome) for _, acts, outcome in HISTORIES],
    ids=[name for name, _, _ in HISTORIES],
)
def test_history(study: StudySimulator, acts: list[Any], outcome: str) -> None:
    study.plan = tiny_plan()
    study.root.mkdir()
    *before, last = acts
    for act in before:
        play(study, act)
    if outcome not in ("ran", "complete"):
        disk, calls = fingerprint(study.root), study.n_model_calls()
        with pytest.raises(EpsLockedError) as caught:
            play(study, last)
        assert outcome in str(caught.value)
        assert fingerprint(study.root) == disk or last == "freeze"
        assert study.n_model_calls() == calls
        return
    assert str(play(study, last)).startswith("blake3:")
    failing = {number for number, _ in study.audit().failures()}
    assert failing == ({11} if outcome == "ran" else set())
