"""The gate: the one place that issues a permit. Every rule here is numbered in docs/lock.md.

    G1  the manifest's own digest
    G2  every frozen copy, and no file beside them
    G3  the plan and every source file it was frozen from
    G4  our own source tree
    G5  the resolved environment
    G6  ledger chain, head, and the history rules
    G7  every recorded artifact's bytes, and no other artifact
    G8  amendments
    G9  the authorization: signature, phase, lock head, expiry, self-authorization
    G10 earlier phases closed
    G11 the cap, with the next step's estimate
    G12 the base model's files (late: they may have to be fetched)
    G13 the manifest is what its plan and sources give, frozen again with the model's own tokenizer
    G14 a signed decision on every finding of another phase that waits for one

All of it only reads. The caller holds the run's writer lock and still owes: setting a crash's
leftovers aside, and asking ``require_budget`` again before every step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import InitVar, dataclass
from datetime import datetime
from typing import Any

from eps_locked import files
from eps_locked.canonical import decode, digest_bytes, digest_value
from eps_locked.domain.authorization import AUTHORIZATION_SCHEMA, Authorization
from eps_locked.domain.clock import Clock, format_time
from eps_locked.domain.ledger import FileRecord
from eps_locked.domain.manifest import Manifest
from eps_locked.domain.steps import Step
from eps_locked.errors import EpsLockedError, MalformedInputError, RefusedError
from eps_locked.lock.decisions import require_decisions
from eps_locked.lock.envelope import open_document
from eps_locked.lock.history import History
from eps_locked.lock.record import RunRecord, terms_of, verify_amendments, verify_artifact
from eps_locked.lock.signatures import AUTHORIZATION_NAMESPACE, verify_signature
from eps_locked.lock.workspace import (
    FrozenManifest,
    RunFolder,
    SignedDocument,
    Workspace,
    check_phase,
)

_ISSUER = object()


@dataclass(frozen=True, kw_only=True, slots=True)
class Surroundings:
    """What the caller measured of the world: our sources, the installed versions, the model.

    ``code``: digest by file name. ``environment``: as ``lock.provenance`` resolves it.
    ``model_files`` gives the base model's files as they lie on disk; it is asked only when every
    other rule holds, since it may have to fetch them.
    """

    code: Mapping[str, str]
    environment: Mapping[str, Any]
    model_files: Callable[[], Mapping[str, FileRecord]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Permit:
    """Proof that these manifest bytes may enter this phase. Issued only by ``open_phase``."""

    manifest_digest: str
    phase: str
    authorization: Authorization
    authorization_digests: Mapping[str, str]
    lock_head: str
    code: str
    environment: str
    issuer: InitVar[object]  # no default, so dataclasses.replace() cannot forge one

    def __post_init__(self, issuer: object) -> None:
        if issuer is not _ISSUER:
            raise TypeError("a Permit is issued by gate.open_phase() and by nothing else")


def read_manifest(workspace: Workspace, name: str) -> FrozenManifest:
    """G1: the manifest, whole and its own. Raises RefusedError if it is anything else."""
    try:
        return workspace.load_manifest(name)
    except RefusedError:
        raise
    except EpsLockedError as error:
        raise as_refusal(error) from error


def open_phase(
    workspace: Workspace,
    frozen: FrozenManifest,
    run: RunFolder,
    phase: str,
    *,
    surroundings: Surroundings,
    refreeze: Callable[[FrozenManifest], Sequence[str]],
    clock: Clock,
    authorization_name: str | None = None,
) -> tuple[Permit, RunRecord]:
    """Check G2 to G14 (G1 made ``frozen``) and issue the permit, with the verified record.

    ``refreeze`` names the differences between the manifest and what its own plan and sources give.
    Raises at the first rule that does not hold. A rule that found wrong bytes raises
    RefusedError from the evidence error underneath: here the answer to bad evidence is "no".
    """
    check_phase(phase)
    manifest = frozen.manifest
    if phase not in manifest.phases:
        raise MalformedInputError("phase", expected=" or ".join(manifest.phases), found=phase)
    try:
        verify_frozen_files(frozen)  # G2
        verify_sources(workspace, manifest)  # G3
        record = RunRecord.load(run, terms_of(frozen), clock)  # G6
        history = record.history
        code = verify_code(frozen, history, surroundings.code)  # G4
        environment = verify_environment(frozen, history, surroundings.environment)  # G5
        verify_store(record, phase)  # G7
        uncharged_ms = record.uncharged_ms()
        allowed_signers = frozen.read("frozen/allowed_signers")
        amendments = verify_amendments(run, history, frozen, allowed_signers)  # G8
    except RefusedError:
        raise
    except EpsLockedError as error:
        raise as_refusal(error) from error
    authorization, document = choose_authorization(  # G9
        run, frozen, phase, history, allowed_signers, clock(), authorization_name
    )
    require_order(manifest, history, phase)  # G10
    require_decisions(manifest.name, history, amendments, phase)  # G14
    left = history.remaining(phase)
    if left:
        require_budget(history, left[0], authorization.cap_ms, uncharged_ms)  # G11
    verify_model(manifest, surroundings.model_files())  # G12
    require_derived(refreeze(frozen))  # G13
    permit = Permit(
        manifest_digest=frozen.digest,
        phase=phase,
        authorization=authorization,
        authorization_digests={
            "document": digest_bytes(document.data),
            "signature": digest_bytes(document.signature),
        },
        lock_head=history.lock_head,
        code=code,
        environment=environment,
        issuer=_ISSUER,
    )
    return permit, record


def verify_frozen_files(frozen: FrozenManifest) -> None:
    """G2: every listed file has its bytes, and the folder holds nothing else."""
    for relative in frozen.manifest.files:
        frozen.read(relative)
    require_only_listed_files(frozen)


def require_only_listed_files(frozen: FrozenManifest) -> None:
    """The folder half of G2: nothing lies beside what the manifest lists."""
    listed = {"manifest.json", *frozen.manifest.files}
    for relative in files.walk_files(frozen.folder):
        if relative not in listed:
            raise RefusedError(
                str(frozen.folder / relative),
                expected="only files the manifest lists",
                found="an unlisted file",
                next_step="move it away; a manifest folder is never added to",
            )


def verify_sources(workspace: Workspace, manifest: Manifest) -> None:
    """G3: the plan and its material are still the bytes that were frozen."""
    for relative, record in manifest.sources.items():
        data = workspace.read_source(relative, thing=f"plans/{relative}")
        found = digest_bytes(data)
        if found != record.digest:
            raise RefusedError(
                f"plans/{relative}",
                expected=record.digest,
                found=found,
                next_step=(
                    "put the frozen bytes back (a copy lies in the manifest folder), or freeze "
                    "the changed plan under another name"
                ),
            )


def verify_code(frozen: FrozenManifest, history: History, tree: Mapping[str, str]) -> str:
    """G4: our own source files; names the first that differs from the frozen list."""
    found = digest_value(dict(tree))
    if found not in history.allowed_code:
        listed: dict[str, str] = decode(frozen.read("frozen/code.json"), thing="frozen/code.json")
        odd = sorted(name for name in {*listed, *tree} if listed.get(name) != tree.get(name))
        raise RefusedError(
            f"source file {odd[0]}" if odd else "source tree",
            expected=listed.get(odd[0], "absent") if odd else sorted(history.allowed_code)[0],
            found=tree.get(odd[0], "absent") if odd else found,
            details=tuple(f"also changed: {name}" for name in odd[1:6]),
            next_step="check out the frozen version, or amend with --rebind code",
        )
    return found


def verify_environment(
    frozen: FrozenManifest, history: History, environment: Mapping[str, Any]
) -> str:
    """G5: Python, platform and package versions; names the first that differs."""
    found = digest_value(dict(environment))
    if found not in history.allowed_environment:
        listed = _flat(
            decode(frozen.read("frozen/environment.json"), thing="frozen/environment.json")
        )
        now = _flat(environment)
        odd = sorted(name for name in {*listed, *now} if listed.get(name) != now.get(name))
        name = odd[0] if odd else "environment"
        raise RefusedError(
            f"environment: {name}",
            expected=listed.get(name, "absent") if odd else sorted(history.allowed_environment)[0],
            found=now.get(name, "absent") if odd else found,
            details=tuple(f"also changed: {other}" for other in odd[1:6]),
            next_step="install the frozen versions, or amend with --rebind environment",
        )
    return found


def verify_model(manifest: Manifest, found: Mapping[str, FileRecord]) -> None:
    """G12: the base model's files, by name."""
    for name in sorted({*manifest.model_files, *found}):
        expected_record, found_record = manifest.model_files.get(name), found.get(name)
        if expected_record != found_record:
            raise RefusedError(
                f"model file {name}",
                expected=expected_record.digest if expected_record else "absent",
                found=found_record.digest if found_record else "absent",
                next_step="fetch the frozen model again (move the changed folder away first)",
            )


def verify_store(record: RunRecord, phase: str) -> None:
    """G7: recorded artifacts are whole; at most one step's worth is unrecorded."""
    for artifact in record.history.artifacts():
        verify_artifact(record.run, artifact)
    record.orphans(allowed=record.history.most_outputs(phase))


def require_derived(differences: Sequence[str]) -> None:
    """G13: nobody edited the manifest between freezing and signing. Raises RefusedError."""
    if differences:
        raise RefusedError(
            differences[0],
            details=tuple(differences[1:6]),
            next_step="freeze the plan again under another name; a manifest is never edited",
        )


def choose_authorization(
    run: RunFolder,
    frozen: FrozenManifest,
    phase: str,
    history: History,
    allowed_signers: bytes,
    now: datetime,
    wanted: str | None,
) -> tuple[Authorization, SignedDocument]:
    """G9: the one authorization that opens this phase now.

    Every document for the phase must be genuine. Expired or superseded ones are passed over when
    another is valid; two valid ones must be told apart by name.
    """
    refusals: list[RefusedError] = []
    valid: list[tuple[Authorization, SignedDocument]] = []
    for document in run.signed_documents("authorizations"):
        if wanted is not None and document.name != wanted:
            continue
        authorization = read_authorization(document, allowed_signers)
        if authorization.phase != phase and wanted is None:
            continue
        refusal = _why_not(authorization, document, run, frozen, phase, history, now)
        if refusal is None:
            valid.append((authorization, document))
        else:
            refusals.append(refusal)
    if len(valid) == 1:
        authorization, document = valid[0]
        # A key whose time in the allowed-signers file is over may not open anything by a document
        # that is dated back.
        _verify_signed(authorization, document, allowed_signers, at=now)
        return authorization, document
    if valid:
        raise RefusedError(
            f"authorization for {phase}",
            expected="one valid document",
            found=", ".join(document.name for _, document in valid),
            next_step="name one of them with --authorization",
        )
    if refusals:
        raise refusals[-1]
    raise RefusedError(
        f"authorization for {phase}",
        expected=f"a document in {run.folder / 'authorizations'}",
        found="none" if wanted is None else f"none named {wanted}",
        next_step=f"just authorize {frozen.manifest.name} {phase}",
    )


def read_authorization(document: SignedDocument, allowed_signers: bytes) -> Authorization:
    """Parse a document whose bytes an allowed signer has signed. Raises RefusedError."""
    thing = str(document.path)
    try:
        payload, _ = open_document(document.data, thing=thing, schema=AUTHORIZATION_SCHEMA)
        authorization = Authorization.from_payload(payload, thing)
    except EpsLockedError as error:
        raise as_refusal(error) from error
    _verify_signed(authorization, document, allowed_signers, at=authorization.issued_at)
    return authorization


def _verify_signed(
    authorization: Authorization, document: SignedDocument, allowed_signers: bytes, *, at: datetime
) -> None:
    verify_signature(
        document.data,
        document.signature,
        allowed_signers=allowed_signers,
        principal=authorization.signer,
        namespace=AUTHORIZATION_NAMESPACE,
        at=at,
        thing=str(document.path),
    )


def _why_not(
    authorization: Authorization,
    document: SignedDocument,
    run: RunFolder,
    frozen: FrozenManifest,
    phase: str,
    history: History,
    now: datetime,
) -> RefusedError | None:
    thing = str(document.path)
    again = f"just authorize {frozen.manifest.name} {phase}"
    for field, expected, found in (
        ("phase", phase, authorization.phase),
        ("name", frozen.manifest.name, authorization.name),
        ("root", run.root, authorization.root),
        ("manifest", frozen.digest, authorization.manifest),
        ("lock_head", history.lock_head, authorization.lock_head),
    ):
        if expected != found:
            return RefusedError(
                f"{thing}: {field}", expected=expected, found=found, next_step=again
            )
    if not authorization.issued_at <= now < authorization.expires_at:
        return RefusedError(
            f"{thing}: validity",
            expected=f"a time from {format_time(authorization.issued_at)} "
            f"to before {format_time(authorization.expires_at)}",
            found=format_time(now),
            next_step=again,
        )
    return self_authorization_refusal(authorization, frozen.manifest, thing)


def self_authorization_refusal(
    authorization: Authorization, manifest: Manifest, thing: str
) -> RefusedError | None:
    """Why the author may not authorize this alone, or None. Whether it is the author's own
    signature follows from the signer's name; the document must say the same."""
    is_self = authorization.signer == manifest.author
    if authorization.self_authorized != is_self:
        return RefusedError(
            f"{thing}: self_authorized", expected=is_self, found=authorization.self_authorized
        )
    if not is_self:
        return None
    if not manifest.self_authorization:
        return RefusedError(
            thing,
            expected="a signer other than the author (the plan forbids self-authorization)",
            found=authorization.signer,
            next_step="ask another allowed signer to authorize this phase",
        )
    if authorization.cap_ms > manifest.auto_approve_ms:
        return RefusedError(
            f"{thing}: cap_ms",
            expected=f"at most {manifest.auto_approve_ms} when the author signs alone",
            found=authorization.cap_ms,
            next_step="the plan parks here: ask another allowed signer to authorize this phase",
        )
    return None


def require_order(manifest: Manifest, history: History, phase: str) -> None:
    """G10: phases run in the manifest's order, once."""
    for earlier in manifest.phases[: manifest.phases.index(phase)]:
        if earlier not in history.closed:
            raise RefusedError(
                f"phase {phase}",
                expected=f"phase {earlier} complete",
                found=f"{len(history.remaining(earlier))} of its steps open",
                next_step=f"just run-phase {manifest.name} {earlier}",
            )


def require_budget(history: History, step: Step, cap_ms: int, uncharged_ms: int = 0) -> None:
    """G11: the next step, at its estimate, fits under the cap. Raises RefusedError.

    ``uncharged_ms``: what a killed attempt cost that no entry has charged yet.
    """
    would_spend = history.would_spend(step) + uncharged_ms
    if would_spend > cap_ms:
        spent = history.spent_ms.get(step.phase, 0) + uncharged_ms
        raise RefusedError(
            f"step {step.id}",
            problem="would pass the authorized cap",
            expected=f"at most {cap_ms / 3_600_000:.4f} device-hours for {step.phase}",
            found=f"{spent / 3_600_000:.4f} spent, {would_spend / 3_600_000:.4f} with this step",
            next_step="authorize the phase again with a higher cap",
        )


def as_refusal(error: EpsLockedError) -> RefusedError:
    return RefusedError(
        error.thing,
        expected=error.expected,
        found=error.found,
        problem=error.problem,
        next_step=error.next_step,
        details=error.details,
    )


def _flat(environment: Mapping[str, Any]) -> dict[str, str]:
    flat: dict[str, str] = {}
    for key, value in environment.items():
        if isinstance(value, Mapping):
            flat |= {str(name): str(version) for name, version in value.items()}
        else:
            flat[key] = str(value)
    return flat
