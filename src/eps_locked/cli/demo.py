"""``demo``: a whole study on the embedded model, from plan to page, with throw-away keys."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from eps_locked.audit.checks import AuditedRun
from eps_locked.canonical import short
from eps_locked.cli.check import audit, print_checks, write_report, write_verdict
from eps_locked.cli.common import now, root_option, workspace_at
from eps_locked.cli.run import execute_phase
from eps_locked.cli.sign import make_key
from eps_locked.cli.surroundings import ModelFolder, measure
from eps_locked.domain.plan import Plan
from eps_locked.errors import EvidenceError
from eps_locked.lock.freeze import freeze, read_plan
from eps_locked.lock.gate import read_manifest
from eps_locked.lock.record import RunRecord, terms_of
from eps_locked.lock.signing import authorize
from eps_locked.lock.workspace import Workspace
from eps_locked.report.tables import text_table
from eps_locked.studies.eps.freeze import freeze_eps
from eps_locked.studies.eps.wiring import load_tokenizer

NAME = "demo"


@click.command("demo")
@root_option
def demo_command(root: Path) -> None:
    """Freeze, authorize, run, check and report plans/demo.yaml. Interrupt it and start it again.

    The signing key is made for the demonstration and lies in .demo/: whoever has the folder could
    have signed. A real study's key lies with a person, and its allowed signers are known to the
    auditor beforehand.
    """
    begun = time.monotonic()
    workspace = workspace_at(root)
    plan, _ = read_plan(workspace, NAME)
    key = _demo_key(workspace, plan)
    _freeze_once(workspace, plan)
    for phase in plan.phases:
        _authorize_and_run(workspace, plan, phase, key)
    audited = audit(workspace, NAME)
    click.echo("\ncheck-evidence:")
    print_checks(audited)
    verdict = write_verdict(audited)
    if not audited.ok:
        raise EvidenceError("demo", expected="every check to hold", found="the failures above")
    page = write_report(workspace, audited)
    _show(workspace, audited, verdict, page, time.monotonic() - begun)


def _demo_key(workspace: Workspace, plan: Plan) -> Path:
    key = workspace.root / ".demo" / "signing_key"
    signers = workspace.plans / plan.authorization.allowed_signers
    if not key.exists():
        signers.unlink(missing_ok=True)
        make_key(plan.author, key, signers)
        click.echo("keys: a throw-away signing key was made in .demo/ (demo custody: no secret)")
    return key


def _freeze_once(workspace: Workspace, plan: Plan) -> None:
    if (workspace.root / "manifests" / NAME).is_dir():
        frozen = read_manifest(workspace, NAME)
        click.echo(f"freeze: manifests/{NAME} is frozen, {short(frozen.digest)}")
        return
    model = ModelFolder(plan, workspace.root)
    manifest, digest, contents = freeze(
        workspace,
        NAME,
        study_freezer=freeze_eps,
        tokenizer=load_tokenizer(plan, model.path()),
        surroundings=measure(model),
        now=now(),
        dry_run=False,
    )
    click.echo(
        f"freeze: {len(contents)} files into manifests/{NAME}, {short(digest)}: "
        f"{manifest.summary['adapters']} adapters, {manifest.summary['cells']} cells"
    )


def _authorize_and_run(workspace: Workspace, plan: Plan, phase: str, key: Path) -> None:
    frozen = read_manifest(workspace, NAME)
    run = workspace.run(NAME)
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
        execute_phase(workspace, NAME, phase)
    history = RunRecord.load(run, terms_of(frozen), now).history
    click.echo(f"run: {phase} complete, results {short(history.closed[phase].results)}")


def _show(
    workspace: Workspace, audited: AuditedRun, verdict: Path, page: Path, seconds: float
) -> None:
    files = audited.artifact("P1/tensor/marker", "tensor")
    tensor: Mapping[str, Any] = json.loads(files["tensor.json"])
    assert audited.history is not None
    artifact = audited.history.done["P1/tensor/marker"].outputs["tensor"]
    folder = audited.run.artifact_folder(artifact.digest)
    click.echo("")
    click.echo(text_table(tensor, shutil.get_terminal_size((100, 24)).columns))
    click.echo("")
    for what, path in (
        ("tensor ", folder / "tensor.json"),
        ("table  ", folder / "tensor.parquet"),
        ("verdict", verdict),
        ("page   ", page),
    ):
        click.echo(f"{what} {path.relative_to(workspace.root)}")
    click.echo(f"done in {seconds / 60:.1f} minutes; now change one character of any file in")
    click.echo("manifests/demo or plans/demo.yaml and run: ./eps run-phase demo P1")
