"""C15: what was submitted before a look, what the look rests on, and what it says it found.

A score itself is not recomputed here: that takes the custodian's key (docs/lock.md, L26).
"""

from __future__ import annotations

from eps_locked import files
from eps_locked.audit.noting import Check, Noting
from eps_locked.audit.verdicts import VERDICT_SCHEMA
from eps_locked.canonical import decode, digest_bytes
from eps_locked.domain.fields import Fields
from eps_locked.domain.ledger import LookBody, ScoreBody, SubmissionBody, digest_field
from eps_locked.errors import EvidenceError
from eps_locked.lock.envelope import open_document
from eps_locked.lock.freeze import schema_problems
from eps_locked.lock.history import History
from eps_locked.lock.looks import (
    DETAILS_FILE,
    PREDICTOR_FILE,
    RESULT_FILE,
    RESULT_SCHEMA,
    Submitted,
)
from eps_locked.lock.seal import require_sealed
from eps_locked.lock.workspace import FrozenManifest, RunFolder
from eps_locked.scoring.predictor import read_predictor


def check_looks(run: RunFolder, frozen: FrozenManifest, history: History, check: Check) -> None:
    """Every submission, every look and every result. Artifacts were found whole before (C8)."""
    check.n_examined += 1  # the ledger itself: that it has no look is a finding too
    for submission in history.submissions:
        with Noting(check):
            _check_submission(run, frozen, submission)
    verdicts: dict[str, str] = {}
    for relative in files.walk_files(run.verdicts):
        with Noting(check):
            verdicts[digest_bytes(files.read_bytes(run.verdicts / relative))] = relative
        check.n_examined -= 1  # the same run gets the same verdict, however many there are: see C12
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
    predictor = read_predictor(contents[PREDICTOR_FILE], "json", thing=where)
    for name, expected, found in (
        ("author", stated.author, body.author),
        ("metric", stated.metric, body.metric),
        ("track", stated.track, body.track),
        ("predictor.author", stated.author, predictor.author),
        ("predictor.title", stated.title, predictor.title),
        ("predictor.metric", stated.metric, predictor.metric),
        ("predictor.track", stated.track, predictor.track),
        ("predictor.polarity", stated.polarity, predictor.polarity),
    ):
        if expected != found:
            raise EvidenceError(f"{where}: {name}", expected=expected, found=found)
    if not body.author.strip():
        raise EvidenceError(f"{where}: author", expected="a name", found="nothing")
    promised = set(decode(frozen.read("frozen/split.json"), thing="frozen/split.json")["cells"])
    odd = sorted(promised ^ {"/".join(key) for key in predictor.values})
    if odd:
        raise EvidenceError(
            f"{where}: cells",
            expected="one value for each cell of the study",
            found=f"{odd[0]} is {'missing' if odd[0] in promised else 'unknown'}",
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
    contents = {name: run.artifact_file(score.result, name) for name in score.result.files}
    if RESULT_FILE not in contents:
        raise EvidenceError(where, expected=RESULT_FILE, found=sorted(contents))
    sealed = {name: data for name, data in contents.items() if name != RESULT_FILE}
    require_sealed(sealed, None, {DETAILS_FILE})
    document = decode(contents[RESULT_FILE], thing=where)
    with Fields(document, where) as fields:
        fields.text("schema", one_of=(RESULT_SCHEMA,))
        scores = fields.mapping("scores")
        for name, expected, found in (
            ("name", frozen.manifest.name, fields.text("name")),
            ("manifest", frozen.digest, digest_field(fields, "manifest")),
            ("look", score.look, fields.integer("look", low=1)),
            ("submission", submission.submission.digest, digest_field(fields, "submission")),
        ):
            if expected != found:
                raise EvidenceError(f"{where}: {name}", expected=expected, found=found)
    problems = schema_problems(scores, schema="final-scores.schema.json")
    if problems or scores["rounded"] is not True:
        raise EvidenceError(
            f"{where}: scores",
            expected="the public form of eps-locked/final-scores/1",
            found=problems[0] if problems else "exact ones",
        )
