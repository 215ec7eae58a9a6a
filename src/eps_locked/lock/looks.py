"""Submissions and looks: what must hold before sealed cells are opened, once, for one submission.

The rules are numbered in docs/lock.md:

    F1  the manifest, its frozen files, its sources
    F2  chain, head and history; every phase closed
    F3  the submission was frozen before, and its bytes are the recorded ones
    F4  a filed verdict for exactly this ledger head, all checks ok, that checking now confirms
    F5  our own source tree and environment are the allowed ones
    F6  the plan seals, and the key is one of the custodian's

A refusal writes nothing. What a permit allows is written down before anything is opened, so a look
that is interrupted, or that fails, has been taken.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import InitVar, dataclass
from typing import Any

from eps_locked import files
from eps_locked.canonical import decode, digest_bytes, encode
from eps_locked.domain.clock import Clock
from eps_locked.domain.fields import Fields
from eps_locked.domain.ledger import LookStatus, SubmissionBody, Track, digest_field
from eps_locked.errors import EpsLockedError, EvidenceError, MalformedInputError, RefusedError
from eps_locked.lock.envelope import seal_document
from eps_locked.lock.gate import (
    as_refusal,
    require_only_listed_files,
    verify_code,
    verify_environment,
    verify_sources,
)
from eps_locked.lock.record import RunRecord, terms_of, verify_artifact
from eps_locked.lock.seal import CustodianKey, seal_files
from eps_locked.lock.workspace import FrozenManifest, RunFolder, Workspace

SUBMISSION_FILE = "submission.json"
PREDICTOR_FILE = "predictor.json"
SUBMISSION_SCHEMA = "eps-locked/submission/1"
RESULT_FILE = "result.json"
RESULT_SCHEMA = "eps-locked/look-result/1"
DETAILS_FILE = "scores.json"

_ISSUER = object()


@dataclass(frozen=True, kw_only=True, slots=True)
class Submitted:
    """What a submission says of itself."""

    author: str
    metric: str
    title: str
    track: Track
    polarity: str

    @classmethod
    def read(cls, contents: Mapping[str, bytes], frozen: FrozenManifest, thing: str) -> Submitted:
        """From a submission's files. Raises EvidenceError unless whole and of this study."""
        if set(contents) != {SUBMISSION_FILE, PREDICTOR_FILE}:
            raise EvidenceError(
                thing, expected=f"{PREDICTOR_FILE} and {SUBMISSION_FILE}", found=sorted(contents)
            )
        with Fields(decode(contents[SUBMISSION_FILE], thing=thing), thing) as fields:
            fields.text("schema", one_of=(SUBMISSION_SCHEMA,))
            for name, expected, found in (
                ("name", frozen.manifest.name, fields.text("name")),
                ("manifest", frozen.digest, digest_field(fields, "manifest")),
                (
                    "predictor",
                    digest_bytes(contents[PREDICTOR_FILE]),
                    digest_field(fields, "predictor"),
                ),
            ):
                if expected != found:
                    raise EvidenceError(f"{thing}: {name}", expected=expected, found=found)
            track: Any = fields.text("track", one_of=("predictive", "post_hoc"))
            return cls(
                author=fields.text("author"),
                metric=fields.text("metric"),
                title=fields.text("title"),
                track=track,
                polarity=fields.text("polarity", one_of=("more", "less")),
            )

    def to_files(self, frozen: FrozenManifest, predictor: bytes) -> dict[str, bytes]:
        document = {
            "schema": SUBMISSION_SCHEMA,
            "name": frozen.manifest.name,
            "manifest": frozen.digest,
            "author": self.author,
            "metric": self.metric,
            "title": self.title,
            "track": self.track,
            "polarity": self.polarity,
            "predictor": digest_bytes(predictor),
        }
        return {SUBMISSION_FILE: encode(document), PREDICTOR_FILE: predictor}


def submit(
    frozen: FrozenManifest, run: RunFolder, submitted: Submitted, predictor: bytes, *, clock: Clock
) -> SubmissionBody:
    """Freeze a submission: store it, record it. From here on it can be looked at, not changed.

    ``predictor`` must be a document the caller has checked. Raises RefusedError before every phase
    is closed; writes nothing then.
    """
    if not submitted.author.strip():
        raise MalformedInputError("author", expected="a name", found="nothing")
    with files.exclusive_lock(run.folder):
        record = RunRecord.load(run, terms_of(frozen), clock)
        history = record.history
        _require_complete(record)
        _set_aside_leftovers(record)
        artifact = run.store(submitted.to_files(frozen, predictor))
        body = SubmissionBody(
            number=len(history.submissions) + 1,
            submission=artifact,
            author=submitted.author,
            metric=submitted.metric,
            track=submitted.track,
            looks_before={
                "author": history.looks_by(submitted.author),
                "any": len(history.looks),
            },
        )
        record.append("submission", body.to_dict())
        return body


@dataclass(frozen=True, kw_only=True, slots=True)
class Scored:
    """What a look found: what everybody may know, and the exact scores, for the custodian alone."""

    public: Mapping[str, Any]
    details: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class LookPermit:
    """Proof that this submission may be looked at now, with this key. Issued by ``permit_look``."""

    manifest_digest: str
    ledger_head: str
    submission: SubmissionBody
    verdict: str
    key: CustodianKey
    recipients: bytes
    issuer: InitVar[object]  # no default, so dataclasses.replace() cannot forge one

    def __post_init__(self, issuer: object) -> None:
        if issuer is not _ISSUER:
            raise TypeError("a LookPermit is issued by looks.permit_look() and by nothing else")


def permit_look(
    workspace: Workspace,
    frozen: FrozenManifest,
    run: RunFolder,
    number: int,
    *,
    verdict_now: Callable[[], Mapping[str, Any]],
    code: Mapping[str, str],
    environment: Mapping[str, Any],
    recipients: bytes | None,
    key: Callable[[], CustodianKey],
    clock: Clock,
) -> tuple[LookPermit, RunRecord]:
    """Check F1 to F6 and issue the permit, with the verified record.

    ``verdict_now``: what the evidence checker says at this moment, as the payload of a verdict.
    ``recipients``: bytes of the frozen recipients file, None where the plan seals nothing.
    ``key``: reads the custodian's key; asked last, so that no other refusal ever touches it.
    The caller holds the run's writer lock.
    """
    try:
        for relative in frozen.manifest.files:  # F1
            frozen.read(relative)
        require_only_listed_files(frozen)
        verify_sources(workspace, frozen.manifest)
        record = RunRecord.load(run, terms_of(frozen), clock)  # F2
        _require_complete(record)
        _require_settled(record)
        submission = _frozen_submission(record, number)  # F3
        verdict = _filed_verdict(record, verdict_now(), frozen.manifest.name)  # F4
        verify_code(frozen, record.history, code)  # F5
        verify_environment(frozen, record.history, environment)
    except RefusedError:
        raise
    except EpsLockedError as error:
        raise as_refusal(error) from error
    if recipients is None:  # F6
        raise RefusedError(
            "final test",
            expected="a plan that seals its quarantine",
            found="seal: none; every cell was readable all along",
            next_step="such a study has no final test; score its open cells",
        )
    custodian = key()
    custodian.require_among(recipients, thing="frozen recipients")
    permit = LookPermit(
        manifest_digest=frozen.digest,
        ledger_head=record.reader.head,
        submission=submission,
        verdict=verdict,
        key=custodian,
        recipients=recipients,
        issuer=_ISSUER,
    )
    return permit, record


def _require_complete(record: RunRecord) -> None:
    history = record.history
    for phase in history.terms.phases:
        if phase not in history.closed:
            raise RefusedError(
                f"phase {phase}",
                expected="every phase closed",
                found="open",
                next_step=f"just run-phase {record.run.folder.name} {phase}",
            )


def _require_settled(record: RunRecord) -> None:
    """No torn line: the evidence could not be judged with one."""
    if record.run.torn_end():
        name, last = record.run.folder.name, record.history.terms.phases[-1]
        raise RefusedError(
            str(record.run.ledger_path),
            expected="whole lines",
            found="a line torn by a crash",
            next_step=f"just run-phase {name} {last}, which sets it aside",
        )


def _frozen_submission(record: RunRecord, number: int) -> SubmissionBody:
    submissions = record.history.submissions
    if not 1 <= number <= len(submissions):
        raise RefusedError(
            f"submission {number}",
            expected=f"1 to {len(submissions)}" if submissions else "a submission frozen before",
            found="none of that number",
            next_step=f"just submit {record.run.folder.name} METRIC",
        )
    submission = submissions[number - 1]
    verify_artifact(record.run, submission.submission)
    return submission


def _filed_verdict(record: RunRecord, now: Mapping[str, Any], name: str) -> str:
    """The file digest of the verdict under ``verdicts/`` that says what checking says now.

    A verdict is not signed, so having one proves nothing by itself: it must be what the checker
    gives, byte for byte, and be about this very head.
    """
    again = f"just check-evidence {name}"
    if now["ledger_head"] != record.reader.head:
        raise RefusedError(
            "evidence",
            expected=f"the ledger head {record.reader.head}",
            found=now["ledger_head"],
            next_step=again,
        )
    if not (now["ok"] and now["complete"]):
        failed = [check["number"] for check in now["checks"] if not check["ok"]]
        # Leftovers of a crash; running the last phase again, closed as it is, sets them aside.
        mends = f"just run-phase {name} {record.history.terms.phases[-1]}, then {again}"
        raise RefusedError(
            "evidence",
            expected="all checks ok",
            found=", ".join(f"C{number}" for number in failed),
            next_step=mends if set(failed) <= {6, 8, 12} else again,
        )
    data, _ = seal_document(dict(now))
    folder = record.run.verdicts
    filed = [files.read_bytes(folder / relative) for relative in files.walk_files(folder)]
    if data not in filed:
        raise RefusedError(
            f"verdict on {name}",
            expected=f"one filed for ledger head {record.reader.head}",
            found=f"{len(filed)} on other states" if filed else "none",
            next_step=again,
        )
    return digest_bytes(data)


def _set_aside_leftovers(record: RunRecord) -> None:
    """What an interrupted submission or look left between store and ledger.

    Asks before it acts: a run that is missing entries is refused with nothing moved.
    """
    run = record.run
    try:
        record.orphans(allowed=1)
    except EpsLockedError as error:
        raise as_refusal(error) from error
    for leftover in run.leftovers():
        files.set_aside(leftover, run.aside)
    record.settle()
    for orphan in record.orphans(allowed=1):
        files.set_aside(orphan, run.aside)


def begin_look(permit: LookPermit, record: RunRecord) -> int:
    """Write the look down. Returns its number; from here on it has been taken.

    Raises RuntimeError for a permit issued on another state of the ledger.
    """
    if permit.ledger_head != record.reader.head:
        raise RuntimeError("this permit was issued for another state of the ledger")
    _set_aside_leftovers(record)
    number = len(record.history.looks) + 1
    record.append(
        "look",
        {
            "number": number,
            "submission": permit.submission.number,
            "verdict": permit.verdict,
            "informed": permit.submission.looks_before["author"] > 0,
        },
    )
    return number


def end_look(
    permit: LookPermit,
    record: RunRecord,
    number: int,
    scored: Scored | None,
    status: LookStatus,
    reason: str,
) -> None:
    """Write down how a look ended; a result is stored first, its exact scores sealed."""
    artifact = None
    if scored is not None:
        document = {
            "schema": RESULT_SCHEMA,
            "name": record.run.folder.name,
            "manifest": permit.manifest_digest,
            "look": number,
            "submission": permit.submission.submission.digest,
            "scores": scored.public,
        }
        data = encode(document)
        decode(data, thing=RESULT_FILE)  # what could not be read back is no evidence
        details = seal_files({DETAILS_FILE: encode(scored.details)}, permit.recipients)
        artifact = record.run.store({RESULT_FILE: data, **details}).to_dict()
    record.append("score", {"look": number, "status": status, "result": artifact, "reason": reason})
