"""A run's record: its ledger read back under all rules, and the only hand that appends to it."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eps_locked import files
from eps_locked.canonical import digest_bytes
from eps_locked.domain.authorization import AMENDMENT_SCHEMA, Amendment, Seen
from eps_locked.domain.clock import Clock, format_time
from eps_locked.domain.fields import Fields
from eps_locked.domain.ledger import AmendmentBody, Artifact, Entry, FileRecord, Kind, digest_field
from eps_locked.errors import EvidenceError, MalformedInputError, RefusedError
from eps_locked.lock.envelope import open_document, seal_document
from eps_locked.lock.history import History, Terms
from eps_locked.lock.ledger import HEAD_SCHEMA, ChainReader, check_head, write_line
from eps_locked.lock.signatures import AMENDMENT_NAMESPACE, verify_signature
from eps_locked.lock.workspace import (
    FrozenManifest,
    RunFolder,
    SignedDocument,
    artifact_digest,
    require_same,
    safe_join,
)

RUNNING_SCHEMA = "eps-locked/running/1"


def terms_of(frozen: FrozenManifest) -> Terms:
    """The rules' view of a manifest; reads (and verifies) the frozen step list."""
    return Terms(
        manifest_digest=frozen.digest,
        phases=frozen.manifest.phases,
        steps=frozen.steps(),
        files=frozen.file_digests(),
        code=frozen.manifest.code,
        environment=frozen.manifest.environment,
    )


@dataclass(kw_only=True, slots=True)
class RunRecord:
    """The verified past of a run, and the place where its next line goes."""

    run: RunFolder
    history: History
    reader: ChainReader
    clock: Clock
    head_is_behind: bool

    @classmethod
    def load(cls, run: RunFolder, terms: Terms, clock: Clock) -> RunRecord:
        """Read and verify ledger and head. Raises at the first broken rule; writes nothing.

        A torn last line is not an error here: it is the mark of a crash, and ``settle`` sets it
        aside. An ended line that does not verify is.
        """
        thing = str(run.ledger_path)
        reader = ChainReader(terms.manifest_digest, run.root, thing=thing)
        history = History(terms=terms)
        last_two: deque[tuple[int, str]] = deque([(-2, ""), (-1, reader.head)], maxlen=2)
        for number, line in enumerate(run.ledger_lines()):
            accepted = reader.accept(line)
            history.accept(accepted.entry, where=f"{thing}:{number + 1}")
            last_two.append((number, accepted.digest))
        names_last = verify_head(run, before_last=last_two[0], last=last_two[1])
        return cls(
            run=run, history=history, reader=reader, clock=clock, head_is_behind=not names_last
        )

    def append(self, kind: Kind, body: Mapping[str, Any]) -> None:
        """Check an entry against every rule, then write it, then move the head."""
        entry = Entry(
            seq=self.reader.n_read,
            prev=self.reader.head,
            kind=kind,
            at=format_time(self.clock()),
            body=body,
        )
        line, digest = write_line(entry)
        where = f"{self.run.ledger_path}:{entry.seq + 1}"
        self.reader.accept(line)
        self.history.accept(entry, where=where)
        files.append_line(self.run.ledger_path, line)
        self._write_head(entry.seq, digest)

    def _write_head(self, seq: int, digest: str) -> None:
        data, _ = seal_document({"schema": HEAD_SCHEMA, "seq": seq, "digest": digest})
        files.replace_file(self.run.head_path, data)

    def settle(self) -> None:
        """Undo what a crash within ``append`` left: a torn last line, a head one entry behind.

        Owed before anything else is appended: a line must begin a line, and a head two entries
        behind could no longer be told from a ledger that was replaced.
        """
        torn = self.run.torn_end()
        if torn:
            number = 1
            while (shelf := self.run.aside / f"{number:04d}-torn-line").exists():
                number += 1
            files.write_once(shelf, torn)
            files.truncate_tail(self.run.ledger_path, len(torn))
        if self.head_is_behind:
            self._write_head(self.reader.n_read - 1, self.reader.head)
            self.head_is_behind = False

    def mark_running(self, step: str, phase: str) -> None:
        """Leave a note that a step has begun, so that a killed attempt is charged for, once.

        The note counts the aborted entries before it: one more means the charge is recorded.
        """
        note = {
            "schema": RUNNING_SCHEMA,
            "step": step,
            "phase": phase,
            "n_aborted": len(self.history.aborted),
        }
        data, _ = seal_document(note)
        files.replace_file(self.run.running_path, data)

    def clear_running(self) -> None:
        if os.path.lexists(self.run.running_path):
            files.remove_file(self.run.running_path)

    def interrupted_step(self) -> tuple[str, str] | None:
        """(step, phase) of an attempt that began and left no entry of its end, or None.

        Raises EvidenceError for a note on a step that was never promised.
        """
        if not os.path.lexists(self.run.running_path):
            return None
        thing = str(self.run.running_path)
        payload, _ = open_document(
            files.read_bytes(self.run.running_path), thing=thing, schema=RUNNING_SCHEMA
        )
        with Fields(payload, thing) as fields:
            fields.text("schema")
            step, phase = fields.text("step"), fields.text("phase")
            n_aborted = fields.integer("n_aborted", low=0)
        promised = self.history.terms.steps.get(step)
        if promised is None or promised.phase != phase:
            raise EvidenceError(
                f"{thing}: step", expected="a promised step of its phase", found=f"{step}, {phase}"
            )
        has_entry = step in self.history.done or len(self.history.aborted) > n_aborted
        return None if has_entry else (step, phase)

    def uncharged_ms(self) -> int:
        """What a killed attempt will be charged: its estimate, since nobody saw how long it ran."""
        interrupted = self.interrupted_step()
        if interrupted is None:
            return 0
        step_id, phase = interrupted
        step = self.history.terms.steps[step_id]
        return self.history.would_spend(step) - self.history.spent_ms.get(phase, 0)

    def orphans(self, *, allowed: int) -> list[Path]:
        """Artifact folders that no entry names: what a crash left between store and ledger.

        One interrupted step explains at most ``allowed`` of them. More means that entries are
        missing: raises EvidenceError, because nothing may be set aside that was once evidence.
        """
        recorded = {artifact.digest for artifact in self.history.artifacts()}
        paths = [
            self.run.artifact_folder(digest)
            for digest in self.run.stored_artifacts()
            if digest not in recorded
        ]
        if len(paths) > allowed:
            raise EvidenceError(
                str(self.run.ledger_path),
                problem="is shorter than the artifacts it should name",
                expected=f"at most {allowed} artifact folders without an entry",
                found=f"{len(paths)}, the first {paths[0].name[:12]}",
                next_step="restore the ledger from a copy that still has their entries",
            )
        return paths


def verify_artifact(run: RunFolder, artifact: Artifact) -> None:
    """Require that an artifact is what its digest names and its folder holds exactly that."""
    folder = run.artifact_folder(artifact.digest)
    named = artifact_digest(artifact.files)
    if named != artifact.digest:
        raise EvidenceError(
            f"{run.ledger_path}: artifact {artifact.digest}",
            expected="the digest of the files it lists",
            found=named,
        )
    present = set(files.walk_files(folder)) if folder.is_dir() else set()
    if present != set(artifact.files):
        odd = sorted(present ^ set(artifact.files))[0]
        raise EvidenceError(
            str(folder / odd),
            expected="present" if odd in artifact.files else "absent",
            found="present" if odd in present else "absent",
            next_step="restore the artifact folder from a copy",
        )
    for name, record in artifact.files.items():
        digest, size = files.digest_file(safe_join(folder, name, thing="artifact"))
        require_same(str(folder / name), record, FileRecord(digest=digest, size=size))


def verify_amendments(
    run: RunFolder, history: History, frozen: FrozenManifest, allowed_signers: bytes
) -> tuple[Amendment, ...]:
    """Every recorded amendment's document, signature and place in the chain.

    Raises EvidenceError or RefusedError; a document without an entry is refused as well.
    """
    documents = list(run.signed_documents("amendments"))
    if len(documents) != len(history.amendments):
        raise RefusedError(
            str(run.folder / "amendments"),
            expected=f"{len(history.amendments)} documents, as many as the ledger records",
            found=len(documents),
            next_step="run the amend command again; it sets an unrecorded document aside",
        )
    head = frozen.digest
    amendments = []
    rows = zip(documents, history.amendments, history.before_amendments, strict=True)
    for document, body, before in rows:
        amendments.append(_verify_amendment(document, body, before, head, frozen, allowed_signers))
        head = body.lock_head
    return tuple(amendments)


def _verify_amendment(
    document: SignedDocument,
    body: AmendmentBody,
    before: tuple[str, Seen],
    previous: str,
    frozen: FrozenManifest,
    allowed_signers: bytes,
) -> Amendment:
    thing = str(document.path)
    payload, digest = open_document(document.data, thing=thing, schema=AMENDMENT_SCHEMA)
    amendment = Amendment.from_payload(payload, thing)
    for name, expected, found in (
        ("digest", body.amendment, digest),
        ("signature", body.signature, digest_bytes(document.signature)),
        ("name", frozen.manifest.name, amendment.name),
        ("manifest", frozen.digest, amendment.manifest),
        ("ledger_head", before[0], amendment.ledger_head),
        ("seen", before[1], amendment.seen),
        ("number", body.number, amendment.number),
        ("previous_lock_head", previous, amendment.previous_lock_head),
        ("rebind", dict(body.rebind), dict(amendment.rebind)),
    ):
        if expected != found:
            raise EvidenceError(f"{thing}: {name}", expected=expected, found=found)
    verify_signature(
        document.data,
        document.signature,
        allowed_signers=allowed_signers,
        principal=amendment.signer,
        namespace=AMENDMENT_NAMESPACE,
        at=amendment.at,
        thing=thing,
    )
    return amendment


def verify_head(run: RunFolder, *, before_last: tuple[int, str], last: tuple[int, str]) -> bool:
    """Require that the head file names the ledger's last entry (or, after a crash, the one
    before); say whether it is the last. Each pair is (sequence number, digest)."""
    thing = str(run.head_path)
    if not os.path.lexists(run.head_path):
        if last[0] > 0:
            raise MalformedInputError(
                thing, problem="is missing", next_step="restore it beside its ledger"
            )
        return last[0] < 0
    payload, _ = open_document(files.read_bytes(run.head_path), thing=thing, schema=HEAD_SCHEMA)
    with Fields(payload, thing) as fields:
        fields.text("schema")
        stated = (fields.integer("seq", low=0), digest_field(fields, "digest"))
    check_head(stated=stated, last=last, before_last=before_last, thing=thing)
    return stated == last
