"""Aim: a look that nobody counts, or one at something else than what was frozen."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from eps_locked.canonical import decode, encode
from eps_locked.domain.ledger import SubmissionBody
from eps_locked.errors import EvidenceError, MalformedInputError, RefusedError
from eps_locked.lock.looks import Scored, Submitted, begin_look, submit
from eps_locked.lock.record import RunRecord, terms_of
from eps_locked.lock.seal import CustodianKey, new_custodian_key
from eps_locked.runners.look import take_look
from sim.simulator import StudySimulator, no_scores

Refuses = Callable[..., Any]


def never(submission: SubmissionBody, key: CustodianKey) -> Scored:
    raise AssertionError("the cells were opened")


def kinds(study: StudySimulator) -> list[str]:
    lines = study.run_folder.ledger_path.read_bytes().splitlines()
    return [decode(line, thing="line")["payload"]["kind"] for line in lines]


def without_verdict(study: StudySimulator) -> None:
    shutil.rmtree(study.run_folder.verdicts)


def verdict_for_another_head(study: StudySimulator) -> None:
    study.submit(study.predictor("later"))


def verdict_made_up(study: StudySimulator) -> None:
    """One more entry, and a verdict that claims to have checked it, with one number changed."""
    study.submit(study.predictor("later"))
    payload = {**study.verdict_now(), "publishable": True}
    study.run_folder.file_verdict(payload)


def failed_check(study: StudySimulator) -> None:
    stray = study.run_folder.folder / "stray.txt"
    stray.write_text("here")
    study.check()


def changed_submission(study: StudySimulator) -> None:
    history = study.audit().history
    assert history is not None
    folder = study.run_folder.artifact_folder(history.submissions[0].submission.digest)
    path = folder / "predictor.json"
    document = decode(path.read_bytes(), thing="predictor")
    document["cells"][0]["value"] = 99
    path.write_bytes(encode(document))


def wrong_key(study: StudySimulator) -> None:
    study.custodian_key.write_text(new_custodian_key()[0])


def changed_code(study: StudySimulator) -> None:
    study.code["eps_locked/a.py"] = "blake3:" + "c" * 64
    study.check()


def changed_recipients(study: StudySimulator) -> None:
    """The key of another custodian, put into plans/ together with its public half."""
    identity, recipients = new_custodian_key()
    study.custodian_key.write_text(identity)
    (study.root / "plans/keys/custodian").write_text(recipients)


REFUSED: dict[str, tuple[Callable[[StudySimulator], None], str]] = {
    "no verdict": (without_verdict, "verdict on small"),
    "a verdict for another head": (verdict_for_another_head, "verdict on small"),
    "a verdict made up": (verdict_made_up, "verdict on small"),
    "a check that failed": (failed_check, "C12"),
    "a submission changed after freezing": (changed_submission, "predictor.json"),
    "another key": (wrong_key, "custodian key"),
    "other source files": (changed_code, "C4"),
    "another custodian": (changed_recipients, "plans/keys/custodian"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_such_a_look_is_refused_and_nothing_is_opened(
    sealed: StudySimulator, refuses: Refuses, case: str
) -> None:
    change, words = REFUSED[case]
    change(sealed)
    with refuses(sealed) as caught:
        sealed.look(score=never)
    assert words in str(caught.value)
    assert "look" not in kinds(sealed)


@pytest.mark.parametrize("number", [0, 2, -1])
def test_a_submission_that_was_never_frozen_cannot_be_looked_at(
    sealed: StudySimulator, refuses: Refuses, number: int
) -> None:
    with refuses(sealed) as caught:
        sealed.look(number, score=never)
    assert f"submission {number}" in str(caught.value)


def test_nothing_can_be_submitted_before_the_run_is_whole(
    half_way: StudySimulator, refuses: Refuses
) -> None:
    with refuses(half_way) as caught:
        half_way.submit()
    assert "phase P1: expected every phase closed" in str(caught.value)


def test_a_study_without_a_seal_has_no_final_test(
    finished: StudySimulator, refuses: Refuses
) -> None:
    finished.submit()
    finished.check()
    with refuses(finished) as caught:
        finished.look(score=never)
    assert "seal: none" in str(caught.value)


def test_the_look_is_written_down_before_anything_is_opened(sealed: StudySimulator) -> None:
    def score(submission: SubmissionBody, key: CustodianKey) -> Scored:
        assert kinds(sealed)[-1] == "look"
        return no_scores(submission, key)

    assert sealed.look(score=score) == 1
    assert kinds(sealed)[-2:] == ["look", "score"]


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (KeyboardInterrupt(), "aborted", "interrupted"),
        (EvidenceError("cell", expected="a secret", found="12.5"), "failed", "EvidenceError"),
        (ZeroDivisionError("12.5"), "aborted", "ZeroDivisionError"),
    ],
)
def test_a_look_that_ends_early_counts_and_says_how_it_ended_and_nothing_of_a_cell(
    sealed: StudySimulator, error: BaseException, status: str, reason: str
) -> None:
    def score(submission: SubmissionBody, key: CustodianKey) -> Scored:
        raise error

    kind = KeyboardInterrupt if isinstance(error, KeyboardInterrupt) else EvidenceError
    with pytest.raises(kind) as caught:
        sealed.look(score=score)
    assert "12.5" not in str(caught.value)
    assert caught.value.__cause__ is None
    audited = sealed.audit()
    assert list(audited.failures()) == []
    assert audited.history is not None
    assert len(audited.history.looks) == 1
    ended = audited.history.scores[1]
    assert (ended.status, ended.reason, ended.result) == (status, reason, None)
    assert b"12.5" not in sealed.run_folder.ledger_path.read_bytes()


def test_a_look_that_was_killed_counts_and_the_next_one_is_the_second(
    sealed: StudySimulator,
) -> None:
    permit, record = sealed.permit_look()
    begin_look(permit, record)  # and then the process is gone
    assert list(sealed.audit().failures()) == []
    with pytest.raises(RefusedError, match="verdict on small"):
        sealed.look()
    sealed.check()
    assert sealed.look() == 2


def test_one_permit_gives_one_look(sealed: StudySimulator) -> None:
    permit, record = sealed.permit_look()
    take_look(permit, record, no_scores)
    with pytest.raises(RuntimeError, match="another state of the ledger"):
        take_look(permit, record, never)


def test_a_permit_cannot_be_made_by_hand(sealed: StudySimulator) -> None:
    permit, _ = sealed.permit_look()
    with pytest.raises((TypeError, ValueError)):  # which of the two depends on the Python
        replace(permit, verdict="blake3:" + "0" * 64)  # type: ignore[call-arg]


def test_a_second_submission_after_a_look_is_marked_as_informed(sealed: StudySimulator) -> None:
    sealed.look()
    again = sealed.submit(sealed.predictor("again", author=" M.Etric"))
    other = sealed.submit(sealed.predictor("other", author="somebody else"))
    assert again.looks_before == {"author": 1, "any": 1}
    assert other.looks_before == {"author": 0, "any": 1}
    for submission in (again, other):
        sealed.check()
        sealed.look(submission.number)
    history = sealed.audit().history
    assert history is not None
    assert [look.informed for look in history.looks] == [False, True, False]


EDITS: dict[str, tuple[dict[str, Any], str, str]] = {
    "an author who forgets a look": (
        {"looks_before": {"author": 0, "any": 1}},
        "submission",
        "looks_before",
    ),
    "a number left out": ({"number": 3}, "submission", "number"),
    "a look not said to be informed": (
        {"number": 2, "submission": 2, "verdict": "blake3:" + "0" * 64, "informed": False},
        "look",
        "informed",
    ),
    "a look at nothing": (
        {"number": 2, "submission": 9, "verdict": "blake3:" + "0" * 64, "informed": False},
        "look",
        "one of the 2 frozen before",
    ),
    "a second end of one look": (
        {"look": 1, "status": "aborted", "result": None, "reason": "no"},
        "score",
        "has ended before",
    ),
    "the end of no look": (
        {"look": 2, "status": "aborted", "result": None, "reason": "no"},
        "score",
        "look",
    ),
}


@pytest.mark.parametrize("case", EDITS)
def test_an_entry_that_breaks_the_rules_of_looks_is_never_written(
    sealed: StudySimulator, case: str
) -> None:
    body, kind, words = EDITS[case]
    sealed.look()
    second = sealed.submit(sealed.predictor("second"))
    record = RunRecord.load(sealed.run_folder, terms_of(sealed.load()), sealed.clock)
    if kind == "submission":
        third = {**second.to_dict(), "number": 3}
        third["looks_before"] = {"author": 1, "any": 1}
        body = {**third, **({"number": 4} if "number" in body else body)}
    before = sealed.run_folder.ledger_path.read_bytes()
    with pytest.raises(EvidenceError, match=words):
        record.append(kind, body)  # type: ignore[arg-type]
    assert sealed.run_folder.ledger_path.read_bytes() == before


def test_a_result_exists_exactly_for_a_scored_look(sealed: StudySimulator) -> None:
    permit, record = sealed.permit_look()
    begin_look(permit, record)
    with pytest.raises(MalformedInputError, match="exactly if the look was scored"):
        record.append("score", {"look": 1, "status": "scored", "result": None, "reason": ""})


def test_a_removed_verdict_fails_the_looks_check(sealed: StudySimulator) -> None:
    sealed.look()
    shutil.rmtree(sealed.run_folder.verdicts)
    failures = dict(sealed.audit().failures())
    assert list(failures) == [15]
    assert "expected a filed verdict" in failures[15]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda cells: cells.pop(), "missing"),
        (lambda cells: cells.append(cells[0]), "stands twice"),
        (lambda cells: cells[0].update(eval="polite2"), "marker/baker/baker is missing"),
        (lambda cells: cells[0].update(value="high"), "expected a number"),
        (lambda cells: cells[0].update(value=True), "expected a number"),
        (lambda cells: cells[0].update(blind=1.0), "blind"),
        (lambda cells: cells[0].update(more=1.0), "more"),
    ],
)
def test_a_submission_that_does_not_cover_the_cells_is_found_by_the_audit(
    sealed: StudySimulator, change: Callable[[list[dict[str, Any]]], object], words: str
) -> None:
    document = sealed.predictor("partial")
    change(document["cells"])
    sealed.submit(document)
    failures = dict(sealed.audit().failures())
    assert list(failures) == [15]
    assert words in failures[15]


def test_an_orphan_of_a_killed_submission_is_set_aside_by_the_next(
    sealed: StudySimulator,
) -> None:
    sealed.run_folder.store({"submission.json": b"{}", "predictor.json": b"{}"})
    assert [number for number, _ in sealed.audit().failures()] == [8]
    sealed.submit(sealed.predictor("next"))
    assert list(sealed.audit().failures()) == []


@pytest.mark.parametrize(
    "predictor", [b"[]", b"null", b'"text"', b"{}", b'{"schema":"eps-locked/predictor/1"}']
)
def test_a_predictor_that_is_none_is_a_failure_and_no_traceback(
    sealed: StudySimulator, predictor: bytes
) -> None:
    submitted = Submitted(
        author="a", metric="guess", title="t", track="predictive", polarity="more"
    )
    submit(sealed.load(), sealed.run_folder, submitted, predictor, clock=sealed.clock)
    assert [number for number, _ in sealed.audit().failures()] == [15]


def test_an_author_in_the_entry_is_the_predictors(sealed: StudySimulator) -> None:
    """Else an informed author could submit under another's name and keep their own inside."""
    document = sealed.predictor("second", author="the real one")
    submitted = Submitted(
        author="another", metric="second", title="A guess", track="predictive", polarity="more"
    )
    submit(sealed.load(), sealed.run_folder, submitted, encode(document), clock=sealed.clock)
    failures = dict(sealed.audit().failures())
    assert "predictor.author" in failures[15]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rounded": False}, "exact ones"),
        ({"cells": {"baker": 1.25}}, "cells"),
        ({"schema": "eps-locked/scores/1"}, "scores"),
    ],
)
def test_a_result_in_another_form_fails_the_audit(
    sealed: StudySimulator, change: dict[str, Any], words: str
) -> None:
    def score(submission: SubmissionBody, key: CustodianKey) -> Scored:
        honest = no_scores(submission, key)
        return replace(honest, public={**honest.public, **change})

    sealed.look(score=score)
    failures = dict(sealed.audit().failures())
    assert list(failures) == [15]
    assert words in failures[15]


def test_a_link_among_the_verdicts_is_a_failure_like_others(sealed: StudySimulator) -> None:
    sealed.look()
    (sealed.run_folder.verdicts / "link.json").symlink_to("/dev/null")
    failed = {number for number, _ in sealed.audit().failures()}
    assert 13 in failed


def test_a_submission_onto_a_run_that_lacks_entries_is_refused_with_nothing_moved(
    sealed: StudySimulator, refuses: Refuses
) -> None:
    for text in (b"{}", b"[]"):
        sealed.run_folder.store({"submission.json": text})
    with refuses(sealed) as caught:
        sealed.submit(sealed.predictor("next"))
    assert "shorter than the artifacts" in str(caught.value)
