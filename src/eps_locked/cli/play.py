"""What every demonstration does: keys, freeze, authorize, run, check. Each may be interrupted.

The keys are made for the demonstration and lie in ``.demo/``: whoever has the folder could have
signed. In a real study the signing key lies with a person whom the auditor knew beforehand.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import click

from eps_locked.audit.checks import AuditedRun
from eps_locked.canonical import short
from eps_locked.cli.check import audit, print_checks, write_verdict
from eps_locked.cli.common import now
from eps_locked.cli.run import execute_phase
from eps_locked.cli.sign import make_key
from eps_locked.cli.surroundings import ModelFolder, measure
from eps_locked.domain.plan import Plan
from eps_locked.errors import EvidenceError
from eps_locked.lock.freeze import freeze
from eps_locked.lock.gate import read_manifest
from eps_locked.lock.record import RunRecord, terms_of
from eps_locked.lock.signing import authorize
from eps_locked.lock.workspace import Workspace
from eps_locked.studies.common.wiring import load_tokenizer
from eps_locked.studies.registry import study_of

__all__ = ["authorize_and_run", "checked", "freeze_once", "mend", "signing_key"]


def signing_key(workspace: Workspace, plan: Plan) -> Path:
    """The demonstration's key, made once; all of them share it."""
    key = workspace.root / ".demo" / "signing_key"
    signers = workspace.plans / plan.authorization.allowed_signers
    if not key.exists():
        signers.unlink(missing_ok=True)
        make_key(plan.author, key, signers)
        click.echo("keys: a throw-away signing key was made in .demo/ (demo custody: no secret)")
    return key


def freeze_once(workspace: Workspace, plan: Plan) -> None:
    """Freeze the plan unless it is frozen already."""
    name = plan.name
    if (workspace.root / "manifests" / name).is_dir():
        frozen = read_manifest(workspace, name)
        click.echo(f"freeze: manifests/{name} is frozen, {short(frozen.digest)}")
        return
    model = ModelFolder(plan, workspace.root)
    manifest, digest, contents = freeze(
        workspace,
        name,
        study_freezer=study_of(plan).freeze,
        tokenizer=load_tokenizer(plan, model.path()),
        surroundings=measure(model),
        now=now(),
        dry_run=False,
    )
    counted = ", ".join(f"{count} {what}" for what, count in manifest.summary.items())
    click.echo(f"freeze: {len(contents)} files into manifests/{name}, {short(digest)}: {counted}")


def authorize_and_run(workspace: Workspace, plan: Plan, phase: str, key: Path) -> None:
    """Sign one phase and run it, or what is left of it."""
    frozen = read_manifest(workspace, plan.name)
    run = workspace.run(plan.name)
    history = RunRecord.load(run, terms_of(frozen), now).history
    if phase not in history.closed:
        documents = list(run.signed_documents("authorizations"))
        if not any(document.name.startswith(f"{phase}-") for document in documents):
            hours = plan.phases[phase].gpu_hours
            authorize(
                frozen,
                run,
                phase,
                signer=plan.author,
                key=key,
                cap_gpu_hours=hours,
                valid_for=timedelta(days=3),
                clock=now,
            )
            click.echo(f"authorize: {phase}, {hours:g} device-hours, signed by its own author")
        execute_phase(workspace, plan.name, phase)
    history = RunRecord.load(run, terms_of(frozen), now).history
    click.echo(f"run: {phase} complete, results {short(history.closed[phase].results)}")


def mend(workspace: Workspace, plan: Plan) -> None:
    """What an interrupted submission or look left behind is set aside by a closed phase's run."""
    run = workspace.run(plan.name)
    record = RunRecord.load(run, terms_of(read_manifest(workspace, plan.name)), now)
    if run.leftovers() or run.torn_end() or record.orphans(allowed=1):
        execute_phase(workspace, plan.name, list(plan.phases)[-1])


def checked(workspace: Workspace, name: str, *, show: bool) -> AuditedRun:
    """Check the evidence and file the verdict. Raises EvidenceError unless every check holds."""
    audited = audit(workspace, name)
    verdict = write_verdict(audited)
    if show or not audited.ok:
        click.echo("\ncheck-evidence:")
        print_checks(audited)
    else:
        head = short(audited.ledger_head)
        click.echo(f"check-evidence: every check holds for ledger head {head}")
    click.echo(f"verdict: {verdict.relative_to(workspace.root)}")
    if not audited.ok:
        raise EvidenceError(name, expected="every check to hold", found="the failures above")
    return audited
