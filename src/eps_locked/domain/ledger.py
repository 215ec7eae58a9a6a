"""What one line of a ledger says. The rules between lines are in ``lock/ledger.py``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

from eps_locked.canonical import digest_value, is_digest
from eps_locked.domain.clock import time_field
from eps_locked.domain.fields import Fields
from eps_locked.domain.model import EngineIdentity
from eps_locked.errors import MalformedInputError

LEDGER_SCHEMA = "eps-locked/ledger/1"

# Where a run lies: evidence, or a smoke run that can never become any.
Root = Literal["runs", "smoke"]
Kind = Literal["open", "step", "aborted", "amendment", "close", "submission", "look", "score"]
Status = Literal["done", "failed", "implant_failed", "unscored"]
KINDS: tuple[str, ...] = get_args(Kind)
STATUSES: tuple[str, ...] = get_args(Status)
Track = Literal["predictive", "post_hoc"]
TRACKS: tuple[str, ...] = get_args(Track)
LookStatus = Literal["scored", "failed", "aborted"]

# The ending of an encrypted file's name.
ENCRYPTED = ".age"

# A step with one of these is finished and is never run again. ``failed`` is finished too: a
# failure that may be retried is never recorded as a step, but as ``aborted``.
FINISHED = frozenset(STATUSES)


@dataclass(frozen=True, kw_only=True, slots=True)
class FileRecord:
    """A file by digest and size in bytes."""

    digest: str
    size: int

    @classmethod
    def from_dict(cls, value: object, path: str) -> FileRecord:
        with Fields(value, path) as fields:
            return cls(digest=digest_field(fields, "digest"), size=fields.integer("size", low=0))

    def to_dict(self) -> dict[str, Any]:
        return {"digest": self.digest, "size": self.size}


@dataclass(frozen=True, kw_only=True, slots=True)
class Artifact:
    """A content-addressed folder: ``digest`` is that of the canonical JSON of ``files``."""

    digest: str
    files: Mapping[str, FileRecord]

    @property
    def identity(self) -> str:
        """What stands for the artifact in a results digest: ``digest`` without encrypted files.

        Encryption is randomised, so two honest runs never share a ciphertext; the digests of what
        was encrypted stand in ``sealed.json`` beside it and are the same.
        """
        plain = {n: r.to_dict() for n, r in self.files.items() if not n.endswith(ENCRYPTED)}
        return self.digest if len(plain) == len(self.files) else digest_value({"files": plain})

    @classmethod
    def from_dict(cls, value: object, path: str) -> Artifact:
        with Fields(value, path) as fields:
            digest = digest_field(fields, "digest")
            records = fields.mapping("files")
            files = {
                name: FileRecord.from_dict(item, f"{path}.files.{name}")
                for name, item in records.items()
            }
        return cls(digest=digest, files=files)

    def to_dict(self) -> dict[str, Any]:
        return {
            "digest": self.digest,
            "files": {name: record.to_dict() for name, record in self.files.items()},
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One line. ``body`` holds what its ``kind`` asks for; see the readers below."""

    seq: int
    prev: str
    kind: Kind
    at: str
    body: Mapping[str, Any]

    def payload(self) -> dict[str, Any]:
        return {
            "schema": LEDGER_SCHEMA,
            "seq": self.seq,
            "prev": self.prev,
            "kind": self.kind,
            "at": self.at,
            **self.body,
        }

    @classmethod
    def from_payload(cls, value: object, path: str) -> Entry:
        if not isinstance(value, Mapping):
            raise MalformedInputError(path, expected="a mapping", found=type(value).__name__)
        head = {key: value[key] for key in ("schema", "seq", "prev", "kind", "at") if key in value}
        with Fields(head, path) as fields:
            fields.text("schema", one_of=(LEDGER_SCHEMA,))
            entry = cls(
                seq=fields.integer("seq", low=0),
                prev=digest_field(fields, "prev"),
                kind=cast(Kind, fields.text("kind", one_of=KINDS)),
                at=time_field(fields, "at"),
                body={key: item for key, item in value.items() if key not in head},
            )
        entry.check_body(path)
        return entry

    def check_body(self, path: str) -> None:
        _BODY_READERS[self.kind](self.body, path)


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenBody:
    """A session on a phase began, under this authorization, with this code and environment."""

    phase: str
    authorization: Mapping[str, str]
    cap_ms: int
    self_authorized: bool
    lock_head: str
    code: str
    environment: str
    engine: Mapping[str, Any]

    @classmethod
    def from_dict(cls, value: object, path: str) -> OpenBody:
        with Fields(value, path) as fields:
            return cls(
                phase=fields.text("phase"),
                authorization=_digest_map(fields, "authorization"),
                cap_ms=fields.integer("cap_ms", low=0),
                self_authorized=fields.flag("self_authorized"),
                lock_head=digest_field(fields, "lock_head"),
                code=digest_field(fields, "code"),
                environment=digest_field(fields, "environment"),
                engine=fields.mapping("engine"),
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class StepBody:
    """A step ended. ``inputs`` and ``outputs`` are everything it read and wrote, by digest."""

    step: str
    phase: str
    status: Status
    seed: int | None
    inputs: Mapping[str, str]
    outputs: Mapping[str, Artifact]
    flags: tuple[str, ...]
    code: str
    environment: str
    engine: str
    started: str
    ended: str
    compute_ms: int

    @classmethod
    def from_dict(cls, value: object, path: str) -> StepBody:
        with Fields(value, path) as fields:
            outputs = {
                name: Artifact.from_dict(item, f"{path}.outputs.{name}")
                for name, item in fields.mapping("outputs").items()
            }
            return cls(
                step=fields.text("step"),
                phase=fields.text("phase"),
                status=cast(Status, fields.text("status", one_of=STATUSES)),
                seed=fields.integer_or_none("seed"),
                inputs=_digest_map(fields, "inputs"),
                outputs=outputs,
                flags=fields.texts("flags"),
                code=digest_field(fields, "code"),
                environment=digest_field(fields, "environment"),
                engine=digest_field(fields, "engine"),
                started=time_field(fields, "started"),
                ended=time_field(fields, "ended"),
                compute_ms=fields.integer("compute_ms", low=0),
            )

    def to_dict(self) -> dict[str, Any]:
        return {
            "step": self.step,
            "phase": self.phase,
            "status": self.status,
            "seed": self.seed,
            "inputs": dict(self.inputs),
            "outputs": {name: artifact.to_dict() for name, artifact in self.outputs.items()},
            "flags": list(self.flags),
            "code": self.code,
            "environment": self.environment,
            "engine": self.engine,
            "started": self.started,
            "ended": self.ended,
            "compute_ms": self.compute_ms,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class AbortedBody:
    """A step began and did not end; what it may have cost is charged against the cap."""

    step: str
    phase: str
    reason: str
    compute_ms: int

    @classmethod
    def from_dict(cls, value: object, path: str) -> AbortedBody:
        with Fields(value, path) as fields:
            return cls(
                step=fields.text("step"),
                phase=fields.text("phase"),
                reason=fields.text("reason"),
                compute_ms=fields.integer("compute_ms", low=0),
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class AmendmentBody:
    """A signed amendment took effect; ``lock_head`` is what authorizations must name from now.

    ``rebind`` repeats the document's, so that the chain alone tells which code was allowed when.
    """

    number: int
    amendment: str
    signature: str
    lock_head: str
    rebind: Mapping[str, str]

    @classmethod
    def from_dict(cls, value: object, path: str) -> AmendmentBody:
        with Fields(value, path) as fields:
            return cls(
                number=fields.integer("number", low=1),
                amendment=digest_field(fields, "amendment"),
                signature=digest_field(fields, "signature"),
                lock_head=digest_field(fields, "lock_head"),
                rebind=_digest_map(fields, "rebind"),
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class CloseBody:
    """A phase is complete. ``results`` is the digest of its results, free of times and machines."""

    phase: str
    results: str
    n_steps: int
    compute_ms: int

    @classmethod
    def from_dict(cls, value: object, path: str) -> CloseBody:
        with Fields(value, path) as fields:
            return cls(
                phase=fields.text("phase"),
                results=digest_field(fields, "results"),
                n_steps=fields.integer("n_steps", low=0),
                compute_ms=fields.integer("compute_ms", low=0),
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class SubmissionBody:
    """A metric's predictions were frozen, before any look at them.

    ``looks_before`` counts the looks recorded until then: by this author, and by anybody.
    """

    number: int
    submission: Artifact
    author: str
    metric: str
    track: Track
    looks_before: Mapping[str, int]

    @classmethod
    def from_dict(cls, value: object, path: str) -> SubmissionBody:
        with Fields(value, path) as fields:
            with fields.sub("looks_before") as before:
                looks = {name: before.integer(name, low=0) for name in ("author", "any")}
            return cls(
                number=fields.integer("number", low=1),
                submission=Artifact.from_dict(
                    fields.mapping("submission"), fields.path("submission")
                ),
                author=fields.text("author"),
                metric=fields.text("metric"),
                track=cast(Track, fields.text("track", one_of=TRACKS)),
                looks_before=looks,
            )

    def to_dict(self) -> dict[str, Any]:
        return {
            "number": self.number,
            "submission": self.submission.to_dict(),
            "author": self.author,
            "metric": self.metric,
            "track": self.track,
            "looks_before": dict(self.looks_before),
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class LookBody:
    """The sealed cells are about to be opened for one submission. Counts, whatever follows.

    ``verdict`` is the file digest of the evidence verdict it rests on. ``informed``: the
    submission's author had seen a score on these cells before freezing it.
    """

    number: int
    submission: int
    verdict: str
    informed: bool

    @classmethod
    def from_dict(cls, value: object, path: str) -> LookBody:
        with Fields(value, path) as fields:
            return cls(
                number=fields.integer("number", low=1),
                submission=fields.integer("submission", low=1),
                verdict=digest_field(fields, "verdict"),
                informed=fields.flag("informed"),
            )

    def to_dict(self) -> dict[str, Any]:
        return {
            "number": self.number,
            "submission": self.submission,
            "verdict": self.verdict,
            "informed": self.informed,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoreBody:
    """How a look ended. A look without such an entry was cut short and counts all the same."""

    look: int
    status: LookStatus
    result: Artifact | None
    reason: str

    @classmethod
    def from_dict(cls, value: object, path: str) -> ScoreBody:
        with Fields(value, path) as fields:
            result = fields.raw("result")
            body = cls(
                look=fields.integer("look", low=1),
                status=cast(LookStatus, fields.text("status", one_of=get_args(LookStatus))),
                result=None if result is None else Artifact.from_dict(result, f"{path}.result"),
                reason=fields.text("reason"),
            )
        if (body.status == "scored") != (body.result is not None):
            raise MalformedInputError(
                f"{path}.result",
                expected="a result exactly if the look was scored",
                found=f"{body.status}, {'none' if body.result is None else 'a result'}",
            )
        return body

    def to_dict(self) -> dict[str, Any]:
        return {
            "look": self.look,
            "status": self.status,
            "result": None if self.result is None else self.result.to_dict(),
            "reason": self.reason,
        }


_BODY_READERS = {
    "open": OpenBody.from_dict,
    "step": StepBody.from_dict,
    "aborted": AbortedBody.from_dict,
    "amendment": AmendmentBody.from_dict,
    "close": CloseBody.from_dict,
    "submission": SubmissionBody.from_dict,
    "look": LookBody.from_dict,
    "score": ScoreBody.from_dict,
}


def engine_to_dict(identity: EngineIdentity) -> dict[str, Any]:
    """An engine's identity as it stands in an ``open`` entry."""
    return {
        "name": identity.name,
        "version": identity.version,
        "device": identity.device,
        "dtype": identity.dtype,
        "quantisation": identity.quantisation,
        "instance_id": identity.instance_id,
        "flags": dict(identity.flags),
        "publishable": identity.publishable,
    }


def digest_field(fields: Fields, key: str) -> str:
    """A field that must be a digest of an algorithm we know."""
    value = fields.raw(key)
    if not is_digest(value):
        raise MalformedInputError(
            fields.path(key), expected="blake3: and 64 hex digits", found=value
        )
    return str(value)


def _digest_map(fields: Fields, key: str) -> dict[str, str]:
    values = fields.mapping(key)
    for name, value in values.items():
        if not is_digest(value):
            raise MalformedInputError(
                f"{fields.path(key)}.{name}", expected="blake3: and 64 hex digits", found=value
            )
    return dict(values)
