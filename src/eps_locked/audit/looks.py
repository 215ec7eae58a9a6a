"""C15: what was submitted before a look, what the look rests on, and what it says it found.

A score itself is not recomputed here: that takes the custodian's key (docs/lock.md, L26).
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

from eps_locked import files
from eps_locked.audit.noting import Check, Noting
from eps_locked.audit.verdicts import VERDICT_SCHEMA
from eps_locked.canonical import decode, digest_bytes
from eps_locked.domain.fields import Fields
from eps_locked.domain.ledger import LookBody, ScoreBody, SubmissionBody, digest_field
from eps_locked.errors import EvidenceError
from eps_locked.lock.envelope import open_document
from eps_locked.lock.history import History
from eps_locked.lock.looks import PREDICTOR_FILE, RESULT_FILE, RESULT_SCHEMA, Submitted
from eps_locked.lock.workspace import FrozenManifest, RunFolder


def check_looks(run: RunFolder, frozen: FrozenManifest, history: History, check: Check) -> None:
    """Every submission, every look and every result. Artifacts were found whole before (C8)."""
    check.n_examined += 1  # the ledger itself: that it has no look is a finding too
    for submission in history.submissions:
        with Noting(check):
            _check_submission(run, frozen, submission)
    verdicts = {
        digest_bytes(files.read_bytes(run.verdicts / relative)): relative
        for relative in files.walk_files(run.verdicts)
    }
    for look, head in zip(history.looks, history.before_looks, strict=True):
        with Noting(check):
            _check_verdict(run, look, head, verdicts)
    for score in history.scores.values():
        with Noting(check):
            look = history.looks[score.look - 1]
            _check_result(run, frozen, score, history.submissions[look.submission - 1])


def _check_submission(run: RunFolder, frozen: FrozenManifest, body: SubmissionBody) -> None:
    where = f"submission {body.number}"
    contents = {name: run.artifact_file(body.submission, name) for name in body.submission.files}
    stated = Submitted.read(contents, frozen, where)
    predictor = decode(contents[PREDICTOR_FILE], thing=where)
    for name, expected, found in (
        ("author", stated.author, body.author),
        ("metric", stated.metric, body.metric),
        ("track", stated.track, body.track),
        ("predictor.metric", stated.metric, predictor.get("metric")),
        ("predictor.track", stated.track, predictor.get("track")),
        ("predictor.polarity", stated.polarity, predictor.get("polarity")),
    ):
        if expected != found:
            raise EvidenceError(f"{where}: {name}", expected=expected, found=found)
    _check_coverage(frozen, predictor.get("cells"), where)


def _check_coverage(frozen: FrozenManifest, cells: Any, where: str) -> None:
    """A finite number for every cell of the frozen split, once, and for no other."""
    promised = set(decode(frozen.read("frozen/split.json"), thing="frozen/split.json")["cells"])
    try:
        counts = Counter(f"{c['behaviour']}/{c['train']}/{c['eval']}" for c in cells)
        finite = all(math.isfinite(c["value"]) for c in cells)
    except (KeyError, TypeError) as error:
        raise EvidenceError(
            f"{where}: cells", expected="a list of predicted cells", found=type(cells).__name__
        ) from error
    odd = sorted(promised ^ set(counts)) + [cell for cell, n in counts.items() if n > 1]
    if odd or not finite:
        raise EvidenceError(
            f"{where}: cells",
            expected="one finite value for each cell of the study",
            found=f"{odd[0]} is missing, unknown or doubled" if odd else "a value that is none",
        )


def _check_verdict(run: RunFolder, look: LookBody, head: str, verdicts: dict[str, str]) -> None:
    where = f"look {look.number}: verdict"
    if look.verdict not in verdicts:
        raise EvidenceError(where, expected=f"a filed verdict {look.verdict}", found="none")
    path = run.verdicts / verdicts[look.verdict]
    payload, _ = open_document(files.read_bytes(path), thing=str(path), schema=VERDICT_SCHEMA)
    for name, expected in (("ok", True), ("complete", True), ("ledger_head", head)):
        if payload.get(name) != expected:
            raise EvidenceError(f"{where}: {name}", expected=expected, found=payload.get(name))


def _check_result(
    run: RunFolder, frozen: FrozenManifest, score: ScoreBody, submission: SubmissionBody
) -> None:
    if score.result is None:
        return
    where = f"look {score.look}: result"
    if set(score.result.files) != {RESULT_FILE}:
        raise EvidenceError(where, expected=RESULT_FILE, found=sorted(score.result.files))
    document = decode(run.artifact_file(score.result, RESULT_FILE), thing=where)
    with Fields(document, where) as fields:
        fields.text("schema", one_of=(RESULT_SCHEMA,))
        fields.mapping("scores")
        for name, expected, found in (
            ("name", frozen.manifest.name, fields.text("name")),
            ("manifest", frozen.digest, digest_field(fields, "manifest")),
            ("look", score.look, fields.integer("look", low=1)),
            ("submission", submission.submission.digest, digest_field(fields, "submission")),
        ):
            if expected != found:
                raise EvidenceError(f"{where}: {name}", expected=expected, found=found)
