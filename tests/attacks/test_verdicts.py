"""Verdicts are not signed, but one that names a state this ledger never had tells on somebody."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from eps_locked.audit.checks import verdict_payload
from eps_locked.canonical import digest_value
from eps_locked.lock.envelope import seal_document
from sim.forge import carry_on, payloads_of, rebuild
from sim.simulator import StudySimulator

OTHER = "blake3:" + "7" * 64
Payload = dict[str, Any]


def file_verdict(
    study: StudySimulator, change: Callable[[Payload], object] = lambda payload: None
) -> None:
    """What ``check-evidence`` would file now, changed and sealed."""
    payload = verdict_payload(study.audit(), digest_value(study.code))
    change(payload)
    study.run_folder.verdicts.mkdir(exist_ok=True)
    (study.run_folder.verdicts / "000040-0-1.json").write_bytes(seal_document(payload)[0])


LIES: dict[str, tuple[Callable[[Payload], object], str]] = {
    "a head that never was": (lambda p: p.update(ledger_head=OTHER), "ledger_head"),
    "a longer ledger": (lambda p: p.update(n_entries=p["n_entries"] + 1), "ledger_head"),
    "the right head at another length": (lambda p: p.update(n_entries=39), "ledger_head"),
    "no entry at all": (lambda p: p.update(n_entries=0), "n_entries"),
    "another manifest": (lambda p: p.update(manifest=OTHER), "manifest"),
    "another study": (lambda p: p.update(name="other"), "name"),
    "bad, though its checks are good": (lambda p: p.update(ok=False), "ok"),
    "good, though a check is bad": (
        lambda p: p["checks"][9].update(ok=False, failures=["a number"]),
        "ok",
    ),
    "a good check with a failure": (lambda p: p["checks"][9].update(failures=["x"]), "ok"),
    "a bad check without one": (lambda p: p["checks"][9].update(ok=False), "ok"),
    "the bad check left out": (lambda p: p["checks"].pop(9), "checks"),
    "nothing checked": (lambda p: p.update(checks=[]), "checks"),
    "checks in another order": (lambda p: p["checks"].reverse(), "checks"),
    "an unknown field": (lambda p: p.update(note="hello"), "note"),
    "an unknown field in a check": (lambda p: p["checks"][0].update(note="hello"), "note"),
    "a field missing": (lambda p: p.pop("publishable"), "publishable"),
    "a field of another form": (lambda p: p.update(complete="yes"), "complete"),
    "no list of sources": (lambda p: p.update(code="none"), "code"),
    "another kind of document": (lambda p: p.update(schema="eps-locked/head/1"), "schema"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_verdict_that_lies_fails_its_own_check_and_no_other(
    finished: StudySimulator, lie: str
) -> None:
    change, words = LIES[lie]
    file_verdict(finished, change)
    failures = list(finished.audit().failures())
    assert {number for number, _ in failures} == {13}
    assert words in failures[0][1]


def test_a_ledger_cut_behind_an_honest_verdict_is_told_by_it(finished: StudySimulator) -> None:
    """Without the verdict the shorter run would only be incomplete."""
    file_verdict(finished)
    payloads = payloads_of(finished)[:-1]
    carry_on(finished, payloads)
    rebuild(finished, payloads)
    assert {number for number, _ in finished.audit().failures()} == {11, 13}


def test_a_ledger_rebuilt_behind_an_honest_verdict_is_told_by_it(finished: StudySimulator) -> None:
    file_verdict(finished)
    payloads = payloads_of(finished)
    payloads[-1]["at"] = "2026-06-09T12:00:01Z"
    rebuild(finished, payloads)
    assert {number for number, _ in finished.audit().failures()} == {13}


def test_honest_verdicts_stay_good_while_the_run_goes_on(half_way: StudySimulator) -> None:
    """A bad verdict on half a run is no lie once the run is whole, nor a good one once amended."""
    file_verdict(half_way)
    half_way.run("P1")
    assert list(half_way.audit().failures()) == []
    file_verdict(half_way)
    half_way.amend()
    assert list(half_way.audit().failures()) == []
