"""What goes into a bundle, and what its README says of it. Reads a workspace; writes nothing."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from pathlib import Path, PurePosixPath

from eps_locked import __version__, files
from eps_locked.audit.bundle_readme import (
    LOCK_PAGE,
    SECOND_VERIFIER,
    Facts,
    SealedFact,
    SignedFact,
)
from eps_locked.audit.checksums import name_trouble
from eps_locked.canonical import decode
from eps_locked.domain.authorization import (
    AMENDMENT_SCHEMA,
    AUTHORIZATION_SCHEMA,
    Amendment,
    Authorization,
)
from eps_locked.domain.fields import Fields
from eps_locked.domain.ledger import digest_field
from eps_locked.errors import EvidenceError, RefusedError
from eps_locked.lock.envelope import open_document
from eps_locked.lock.ledger import ChainReader, genesis_digest
from eps_locked.lock.provenance import package_folder, schema_folder
from eps_locked.lock.signatures import AMENDMENT_NAMESPACE, AUTHORIZATION_NAMESPACE
from eps_locked.lock.workspace import FrozenManifest, RunFolder, Workspace, safe_join

README = "README.md"
SEALED_SCHEMA = "eps-locked/sealed/1"
_SEALED = re.compile(r"runs/[^/]+/artifacts/[0-9a-f]{64}/sealed\.json\Z")
_PRIVATE_KEY = re.compile(
    rb"AGE-SECRET-KEY-1[0-9A-Z]{58}|-----BEGIN [A-Z ]*PRIVATE KEY-----\r?\n[A-Za-z0-9+/=]{16}"
)


def study_files(workspace: Workspace, frozen: FrozenManifest) -> dict[str, Path]:
    """Where each file of the study comes from, by its name in the bundle.

    Everything in the folders of manifest and run, whatever it is: what does not belong there is
    for the audit to find, not for a copy to hide. ``aside/`` too: what a crash left of a step
    shows that the step's second attempt gave the same.
    """
    name = frozen.manifest.name
    run = workspace.run(name)
    report = safe_join(workspace.root, f"reports/{name}", thing="report")
    folders = {
        f"manifests/{name}": frozen.folder,
        f"runs/{name}": run.folder,
        f"reports/{name}": report,
    }
    found = {
        f"{prefix}/{relative}": folder / relative
        for prefix, folder in folders.items()
        for relative in files.walk_files(folder)
    }
    for relative in frozen.manifest.sources:
        path = safe_join(workspace.plans, relative, thing=f"plans/{relative}")
        if path.exists():
            found[f"plans/{relative}"] = path
    return found


def shipped_files() -> tuple[dict[str, Path], list[str]]:
    """What explains the evidence, by its name in the bundle; and what of it is not installed.

    In a checkout the page and the verifier lie where they are written; an installed package has
    copies in ``for_auditors``.
    """
    found = {
        f"schemas/{relative}": schema_folder() / relative
        for relative in files.walk_files(schema_folder())
    }
    checkout = package_folder().parents[1]
    missing = []
    for name, source in (
        (LOCK_PAGE, LOCK_PAGE),
        (SECOND_VERIFIER, "tests/conformance/second_verifier.py"),
    ):
        places = (
            package_folder() / "for_auditors" / PurePosixPath(name).name,
            checkout / source,
        )
        path = next((place for place in places if place.is_file()), None)
        if path is None:
            missing.append(name)
        else:
            found[name] = path
    return found, missing


def read_facts(workspace: Workspace, name: str, names: Collection[str]) -> Facts:
    """The README's facts, from a workspace that holds the study (a bundle is one).

    ``names``: the files of the bundle, without README and lists. Raises EpsLockedError at the first
    thing that is not as it should be; run the checks first.
    """
    frozen = workspace.load_manifest(name)
    run = workspace.run(name)
    reader = ChainReader(frozen.digest, run.root, thing=str(run.ledger_path))
    kinds: list[str] = []
    results = []
    for line in run.ledger_lines():
        entry = reader.accept(line).entry
        kinds.append(entry.kind)
        if entry.kind == "close":
            results.append((str(entry.body["phase"]), str(entry.body["results"])))
    return Facts(
        name=name,
        title=frozen.manifest.title,
        author=frozen.manifest.author,
        version=__version__,
        manifest=frozen.digest,
        frozen_at=frozen.manifest.frozen_at,
        genesis=genesis_digest(frozen.digest, run.root),
        head=reader.head,
        n_entries=len(kinds),
        results=tuple(results),
        n_submissions=kinds.count("submission"),
        n_looks=kinds.count("look"),
        signed=tuple(_signed(run, name)),
        sealed=tuple(_sealed(workspace.root, frozen, names)),
        has_sources=any(one.startswith("plans/") for one in names),
        has_report=any(one.startswith(f"reports/{name}/") for one in names),
        has_lock_page=LOCK_PAGE in names,
        has_second_verifier=SECOND_VERIFIER in names,
        n_listed=len(names) + 1,
    )


def _signed(run: RunFolder, name: str) -> Iterator[SignedFact]:
    """Every authorization and amendment, in name order; signatures are checked elsewhere (C5)."""
    for document in run.signed_documents("authorizations"):
        thing = str(document.path)
        payload, _ = open_document(document.data, thing=thing, schema=AUTHORIZATION_SCHEMA)
        leave = Authorization.from_payload(payload, thing)
        yield SignedFact(
            folder=f"runs/{name}/authorizations/{document.name}",
            namespace=AUTHORIZATION_NAMESPACE,
            signer=leave.signer,
            at=leave.issued_at,
        )
    for document in run.signed_documents("amendments"):
        thing = str(document.path)
        payload, _ = open_document(document.data, thing=thing, schema=AMENDMENT_SCHEMA)
        amendment = Amendment.from_payload(payload, thing)
        yield SignedFact(
            folder=f"runs/{name}/amendments/{document.name}",
            namespace=AMENDMENT_NAMESPACE,
            signer=amendment.signer,
            at=amendment.at,
        )


def _sealed(root: Path, frozen: FrozenManifest, names: Collection[str]) -> Iterator[SealedFact]:
    """Every encrypted file, by the ``sealed.json`` beside it, which holds no text of a cell."""
    prefix = f"manifests/{frozen.manifest.name}"
    frozen_files = {one.digest: f"{prefix}/{n}" for n, one in frozen.manifest.files.items()}
    for name in sorted(one for one in names if _SEALED.match(one)):
        data = files.read_bytes(safe_join(root, name, thing="sealed.json"))
        with Fields(decode(data, thing=name), name) as fields:
            fields.text("schema", one_of=(SEALED_SCHEMA,))
            recipients = frozen_files.get(digest_field(fields, "recipients"))
            listed = fields.mapping("files")
        for file, value in sorted(listed.items()):
            with Fields(value, f"{name}.files.{file}") as one:
                plaintext = digest_field(one, "plaintext")
            path = f"{name.removesuffix('sealed.json')}{file}.age"
            if path not in names:
                raise EvidenceError(path, expected="the file that sealed.json names", found="none")
            yield SealedFact(path=path, plaintext=plaintext, recipients=recipients)


def require_portable_names(names: Collection[str]) -> None:
    """Raises RefusedError for a name that the stock tools would not read back as it is."""
    troubled = [f"{name!r} {trouble}" for name in sorted(names) if (trouble := name_trouble(name))]
    if troubled:
        raise RefusedError(
            "bundle",
            problem="would hold files whose names the stock tools cannot list",
            details=tuple(troubled),
            next_step="such a name comes from the plan: give the file another and freeze anew",
        )


def require_no_private_key(name: str, data: bytes) -> None:
    """Raises RefusedError for a file with a private key in it: a bundle is handed to strangers."""
    if _PRIVATE_KEY.search(data):
        raise RefusedError(
            name,
            problem="holds a private key",
            next_step="if it is a real one, consider it known: make a new one, and freeze anew",
        )
