"""Freezing: from a plan's bytes to a manifest folder that exists whole or not at all.

What a study freezes beyond the common part (items, rendered contexts, steps) comes from a function
the caller hands in; this module binds it all and seals it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from eps_locked import files
from eps_locked.canonical import decode, digest_bytes, digest_value, encode
from eps_locked.domain.ledger import FileRecord
from eps_locked.domain.manifest import Manifest
from eps_locked.domain.model import ChatTokenizer
from eps_locked.domain.plan import MS_PER_HOUR, Plan
from eps_locked.domain.steps import STEPS_SCHEMA, Step, read_steps
from eps_locked.errors import EpsLockedError, MalformedInputError, RefusedError
from eps_locked.lock.envelope import seal_document
from eps_locked.lock.gate import Surroundings
from eps_locked.lock.provenance import schema_folder
from eps_locked.lock.signatures import public_principals
from eps_locked.lock.strict_yaml import parse_yaml
from eps_locked.lock.workspace import FrozenManifest, Workspace


@dataclass(kw_only=True, slots=True)
class SourceReader:
    """Reads the files a plan names and remembers each, so that all of them get frozen.

    ``fetch`` gives the bytes of a path below ``plans/``: from the workspace when a plan is frozen,
    from the frozen copies when a manifest is derived again.
    """

    fetch: Callable[[str, str], bytes]
    read_files: dict[str, bytes] = field(default_factory=dict)

    def read(self, relative: str, *, thing: str) -> bytes:
        """Bytes of ``plans/relative``; the same bytes however often it is asked for."""
        if relative not in self.read_files:
            self.read_files[relative] = self.fetch(relative, thing)
        return self.read_files[relative]

    def read_yaml(self, relative: str, *, thing: str) -> Any:
        """The strict-YAML value of ``plans/relative``."""
        return parse_yaml(self.read(relative, thing=thing), thing=f"plans/{relative}")


@dataclass(frozen=True, kw_only=True, slots=True)
class FrozenStudy:
    """What a study adds: canonical JSON documents by name below ``frozen/``, and its steps."""

    documents: Mapping[str, Any]
    steps: tuple[Step, ...]
    summary: Mapping[str, int]


StudyFreezer = Callable[[Plan, SourceReader, ChatTokenizer], FrozenStudy]


def load_plan(data: bytes, *, thing: str) -> Plan:
    """A plan from its YAML bytes.

    Raises MalformedInputError with every schema problem, each with its path, then those that only
    the typed reader can see.
    """
    value = parse_yaml(data, thing=thing)
    problems = schema_problems(value)
    if problems:
        raise MalformedInputError(
            thing,
            problem=f"has {len(problems)} problem{'s' if len(problems) > 1 else ''}",
            details=problems,
            next_step="mend each field; schemas/plan.schema.json says what is allowed",
        )
    return Plan.from_dict(value, "plan")


def schema_problems(value: object, *, schema: str = "plan.schema.json") -> tuple[str, ...]:
    """Every way in which a value breaks a shipped JSON Schema, as ``path: problem``."""
    import jsonschema

    document = json.loads(files.read_bytes(schema_folder() / schema))
    validator = jsonschema.Draft202012Validator(document)
    found = sorted(validator.iter_errors(value), key=lambda error: list(map(str, error.path)))
    return tuple(f"{_dotted(error.absolute_path)}: {error.message[:300]}" for error in found)


def _dotted(path: Any) -> str:
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.lstrip(".") or "plan"


def read_plan(workspace: Workspace, name: str) -> tuple[Plan, bytes]:
    """The plan NAME from ``plans/NAME.yaml``, and its bytes."""
    path = workspace.plan_path(name)
    data = workspace.read_source(f"{name}.yaml", thing="plan")
    plan = load_plan(data, thing=f"plans/{path.name}")
    if plan.name != name:
        raise MalformedInputError(
            f"plans/{path.name}: name", expected=name, found=plan.name, next_step="make them equal"
        )
    return plan, data


def freeze(
    workspace: Workspace,
    name: str,
    *,
    study_freezer: StudyFreezer,
    tokenizer: ChatTokenizer,
    surroundings: Surroundings,
    now: datetime,
    dry_run: bool,
    drawn: Mapping[str, bytes] | None = None,
) -> tuple[Manifest, str, dict[str, bytes]]:
    """Freeze ``plans/NAME.yaml`` into ``manifests/NAME/``.

    ``drawn``: sources by path below ``plans/`` that lie in memory, not there.
    Returns the manifest, its digest and the folder's contents. With ``dry_run`` nothing is
    written. Raises RefusedError if the manifest exists already, whatever it holds.
    """
    folder = workspace.manifest_folder(name)
    if folder.exists():
        raise RefusedError(
            str(folder),
            problem="exists; a manifest is frozen once",
            next_step="copy the plan under another name and freeze that",
        )
    plan, plan_bytes = read_plan(workspace, name)

    def fetch(relative: str, thing: str) -> bytes:
        if drawn is not None and relative in drawn:
            return drawn[relative]
        return workspace.read_source(relative, thing=thing)

    manifest, contents = _compose(
        plan,
        plan_bytes,
        SourceReader(fetch=fetch),
        study_freezer,
        tokenizer,
        code=surroundings.code,
        environment=surroundings.environment,
        model_files=surroundings.model_files(),
        now=now,
    )
    data, digest = seal_document(manifest.to_payload())
    contents["manifest.json"] = data
    if not dry_run:
        files.publish_folder(folder, contents)
    return manifest, digest, contents


def manifest_differences(
    frozen: FrozenManifest, study_freezer: StudyFreezer, tokenizer: ChatTokenizer
) -> list[str]:
    """Freeze again from the plan and sources inside a manifest, and compare with what it says.

    A manifest is what its plan gives and nothing else: a document, a count or a rule that somebody
    edited between freezing and signing shows here. What was measured at the time (code,
    environment, model files, the moment) is taken over; the gate compares those with the present.
    Returns one sentence per difference, none if the manifest follows from its plan.
    """
    manifest = frozen.manifest
    plan_bytes = frozen.read("frozen/plan.yaml")

    def fetch(relative: str, thing: str) -> bytes:
        return frozen.read(f"frozen/sources/{relative}")

    try:
        derived, contents = _compose(
            load_plan(plan_bytes, thing="frozen/plan.yaml"),
            plan_bytes,
            SourceReader(fetch=fetch),
            study_freezer,
            tokenizer,
            code=decode(frozen.read("frozen/code.json"), thing="frozen/code.json"),
            environment=decode(
                frozen.read("frozen/environment.json"), thing="frozen/environment.json"
            ),
            model_files=manifest.model_files,
            now=manifest.frozen_at,
        )
    except EpsLockedError as error:
        return [f"{frozen.folder}: cannot be frozen again from its own plan ({error})"]
    differences = [
        f"{frozen.folder / name}: holds other bytes than its plan and sources give"
        for name in sorted({*contents, *manifest.files})
        if manifest.files.get(name) != (_record(contents[name]) if name in contents else None)
    ]
    mine, theirs = derived.to_payload(), manifest.to_payload()
    return differences + [
        f"{frozen.folder / 'manifest.json'}: {field}: expected {mine[field]}, found {theirs[field]}"
        for field in mine
        if field != "files" and mine[field] != theirs[field]
    ]


def _compose(
    plan: Plan,
    plan_bytes: bytes,
    reader: SourceReader,
    study_freezer: StudyFreezer,
    tokenizer: ChatTokenizer,
    *,
    code: Mapping[str, str],
    environment: Mapping[str, Any],
    model_files: Mapping[str, FileRecord],
    now: datetime,
) -> tuple[Manifest, dict[str, bytes]]:
    """The manifest of a plan and the contents of its folder, without ``manifest.json``."""
    signers = _read_signers(plan, reader)
    _check_signers(plan, signers)
    study = study_freezer(plan, reader, tokenizer)
    read_steps(_steps_document(study.steps), "steps")
    documents = {
        **study.documents,
        "steps.json": _steps_document(study.steps),
        "code.json": dict(code),
        "environment.json": dict(environment),
    }
    contents = {f"frozen/{key}": encode(value) for key, value in documents.items()}
    contents["frozen/plan.yaml"] = plan_bytes
    contents["frozen/allowed_signers"] = signers
    for relative, data in reader.read_files.items():
        contents[f"frozen/sources/{relative}"] = data
    manifest = _bind(plan, plan_bytes, reader, contents, study, code, environment, model_files, now)
    return manifest, contents


def _bind(
    plan: Plan,
    plan_bytes: bytes,
    reader: SourceReader,
    contents: Mapping[str, bytes],
    study: FrozenStudy,
    code: Mapping[str, str],
    environment: Mapping[str, Any],
    model_files: Mapping[str, FileRecord],
    now: datetime,
) -> Manifest:
    sources = {f"{plan.name}.yaml": plan_bytes, **reader.read_files}
    return Manifest(
        name=plan.name,
        title=plan.title,
        study=plan.study,
        author=plan.author,
        frozen_at=now,
        plan=digest_bytes(plan_bytes),
        phases=tuple(plan.phases),
        files={key: _record(data) for key, data in contents.items()},
        sources={key: _record(data) for key, data in sources.items()},
        model_files=dict(model_files),
        code=digest_value(dict(code)),
        environment=digest_value(dict(environment)),
        self_authorization=plan.authorization.self_authorization,
        auto_approve_ms=round(plan.authorization.auto_approve_gpu_hours * MS_PER_HOUR),
        publication=plan.publication,
        summary=study.summary,
    )


def _read_signers(plan: Plan, reader: SourceReader) -> bytes:
    relative = plan.authorization.allowed_signers
    try:
        return reader.read(relative, thing="authorization.allowed_signers")
    except MalformedInputError as error:
        raise MalformedInputError(
            error.thing,
            problem=error.problem,
            expected=error.expected,
            found=error.found,
            next_step=f"write it, or: eps-locked keys new {plan.author} --key KEYFILE "
            f"--allowed-signers plans/{relative}",
        ) from error


def _check_signers(plan: Plan, signers: bytes) -> None:
    principals = public_principals(signers, thing=plan.authorization.allowed_signers)
    if principals == (plan.author,) and not plan.authorization.self_authorization:
        raise MalformedInputError(
            "authorization",
            problem="nobody could ever authorize a phase",
            expected="a second allowed signer, or self_authorization: true",
            found=f"only the author {plan.author}",
            next_step="add a colleague's key to the allowed-signers file",
        )


def _steps_document(steps: tuple[Step, ...]) -> dict[str, Any]:
    return {"schema": STEPS_SCHEMA, "steps": [step.to_dict() for step in steps]}


def _record(data: bytes) -> FileRecord:
    return FileRecord(digest=digest_bytes(data), size=len(data))
