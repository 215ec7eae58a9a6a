"""Writing signed documents: authorizations and amendments. The acts of people, not of runs."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path

from eps_locked import files
from eps_locked.canonical import digest_bytes
from eps_locked.domain.authorization import Amendment, Authorization
from eps_locked.domain.clock import Clock
from eps_locked.domain.plan import MS_PER_HOUR
from eps_locked.errors import MalformedInputError, RefusedError
from eps_locked.lock.envelope import seal_document
from eps_locked.lock.gate import self_authorization_refusal
from eps_locked.lock.history import next_lock_head
from eps_locked.lock.record import RunRecord, terms_of, verify_amendments
from eps_locked.lock.signatures import (
    AMENDMENT_NAMESPACE,
    AUTHORIZATION_NAMESPACE,
    sign_file,
    verify_signature,
)
from eps_locked.lock.workspace import FrozenManifest, RunFolder, check_phase


def authorize(
    frozen: FrozenManifest,
    run: RunFolder,
    phase: str,
    *,
    signer: str,
    key: Path,
    cap_gpu_hours: float,
    valid_for: timedelta,
    clock: Clock,
) -> Path:
    """Sign leave to run a phase and put it into the run folder; returns the document's folder.

    Raises RefusedError before anything is written if this signer may not give this leave.
    """
    check_phase(phase)
    if phase not in frozen.manifest.phases:
        raise MalformedInputError("phase", expected=frozen.manifest.phases, found=phase)
    cap_ms = round(cap_gpu_hours * MS_PER_HOUR)
    if cap_ms < 1:
        raise MalformedInputError(
            "cap", expected="at least a millisecond", found=f"{cap_gpu_hours} hours"
        )
    record = RunRecord.load(run, terms_of(frozen), clock)
    if phase in record.history.closed:
        raise RefusedError(f"phase {phase}", expected="an open phase", found="a complete one")
    now = clock()
    try:
        expires_at = now + valid_for
    except OverflowError as error:
        raise MalformedInputError(
            "validity", expected="an expiry before the year 10000", found=valid_for
        ) from error
    authorization = Authorization(
        name=frozen.manifest.name,
        root=run.root,
        manifest=frozen.digest,
        lock_head=record.history.lock_head,
        phase=phase,
        cap_ms=cap_ms,
        signer=signer,
        self_authorized=signer == frozen.manifest.author,
        issued_at=now,
        expires_at=expires_at,
    )
    refusal = self_authorization_refusal(authorization, frozen.manifest, f"authorization {phase}")
    if refusal is not None:
        raise refusal
    data, _ = seal_document(authorization.to_payload())
    return _sign_and_publish(
        run.folder / "authorizations",
        phase,
        data,
        key=key,
        namespace=AUTHORIZATION_NAMESPACE,
        signer=signer,
        frozen=frozen,
        at=now,
    )


def amend(
    frozen: FrozenManifest,
    run: RunFolder,
    *,
    signer: str,
    key: Path,
    reason: str,
    changes: tuple[str, ...],
    rebind: frozenset[str],
    code: str,
    environment: str,
    clock: Clock,
) -> Path:
    """Sign a deviation, file it and record it. Older authorizations stop being valid.

    ``rebind`` names what is to be bound anew (``code``, ``environment``) to the digests given. A
    document that an earlier, interrupted call left without an entry is set aside first.
    """
    if not reason.strip():
        raise MalformedInputError("reason", expected="a sentence", found="nothing")
    files.make_folder(run.folder)
    with files.exclusive_lock(run.folder):
        record = RunRecord.load(run, terms_of(frozen), clock)
        record.settle()
        history = record.history
        for document in list(run.signed_documents("amendments"))[len(history.amendments) :]:
            files.set_aside(document.path.parent, run.aside)
        verify_amendments(run, history, frozen, frozen.read("frozen/allowed_signers"))
        now = clock()
        fresh = {"code": code, "environment": environment}
        amendment = Amendment(
            name=frozen.manifest.name,
            manifest=frozen.digest,
            number=len(history.amendments) + 1,
            previous_lock_head=history.lock_head,
            ledger_head=record.reader.head,
            signer=signer,
            at=now,
            reason=reason,
            changes=changes,
            rebind={name: fresh[name] for name in sorted(rebind)},
            seen=history.what_was_seen(),
        )
        data, digest = seal_document(amendment.to_payload())
        folder = _sign_and_publish(
            run.folder / "amendments",
            "A",
            data,
            key=key,
            namespace=AMENDMENT_NAMESPACE,
            signer=signer,
            frozen=frozen,
            at=now,
        )
        record.append(
            "amendment",
            {
                "number": amendment.number,
                "amendment": digest,
                "signature": digest_bytes((folder / "document.json.sig").read_bytes()),
                "lock_head": next_lock_head(history.lock_head, digest),
                "rebind": dict(amendment.rebind),
            },
        )
    return folder


def _sign_and_publish(
    folder: Path,
    prefix: str,
    data: bytes,
    *,
    key: Path,
    namespace: str,
    signer: str,
    frozen: FrozenManifest,
    at: datetime,
) -> Path:
    with tempfile.TemporaryDirectory(prefix="eps-locked-") as scratch:
        document = Path(scratch, "document.json")
        document.write_bytes(data)
        signature = sign_file(document, key=key, namespace=namespace)
    verify_signature(
        data,
        signature,
        allowed_signers=frozen.read("frozen/allowed_signers"),
        principal=signer,
        namespace=namespace,
        at=at,
        thing=f"{prefix} document",
    )
    number = 1
    while (target := folder / f"{prefix}-{number:04d}").exists():
        number += 1
    contents: Mapping[str, bytes] = {"document.json": data, "document.json.sig": signature}
    files.publish_folder(target, contents)
    return target
