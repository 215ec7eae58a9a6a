"""``demo``: a whole study on the embedded model, from plan to page, with throw-away keys."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from eps_locked.audit.checks import AuditedRun
from eps_locked.canonical import short
from eps_locked.cli.check import audit, print_checks, write_report, write_verdict
from eps_locked.cli.common import now, root_option, workspace_at
from eps_locked.cli.looks import finished_run, look, submit_predictor
from eps_locked.cli.metric import run_metric
from eps_locked.cli.run import execute_phase
from eps_locked.cli.sign import make_custodian_key, make_key
from eps_locked.cli.surroundings import ModelFolder, measure
from eps_locked.domain.plan import Plan
from eps_locked.errors import EvidenceError, RefusedError
from eps_locked.lock.freeze import freeze, read_plan
from eps_locked.lock.gate import read_manifest
from eps_locked.lock.record import RunRecord, terms_of
from eps_locked.lock.signing import authorize
from eps_locked.lock.workspace import Workspace
from eps_locked.metrics.loading import find_file
from eps_locked.metrics.sandbox import Limits, require_landlock
from eps_locked.report.score_text import final_text, score_text
from eps_locked.report.tables import text_table
from eps_locked.scoring.predictor import Predictor
from eps_locked.studies.common.wiring import load_tokenizer
from eps_locked.studies.eps.plan import EpsPlan
from eps_locked.studies.registry import study_of

NAME = "demo"
EXAMPLE_METRIC = "examples/metric_example/metric.py:WordingOverlap"


@click.command("demo")
@root_option
def demo_command(root: Path) -> None:
    """Play plans/demo.yaml from freezing to the final test. Interrupt it and start it again.

    The keys are made for the demonstration and lie in .demo/: whoever has the folder could have
    signed, and could have opened what is sealed. In a real study the signing key lies with a
    person whom the auditor knew beforehand, and the custodian's key with somebody who does not run
    it.
    """
    begun = time.monotonic()
    workspace = workspace_at(root)
    plan, _ = read_plan(workspace, NAME)
    key, custodian = _demo_keys(workspace, plan)
    _freeze_once(workspace, plan)
    for phase in plan.phases:
        _authorize_and_run(workspace, plan, phase, key)
    _mend(workspace, plan)
    audited = _checked(workspace, show=True)
    _show_tensor(audited)
    scores = finished_run(workspace, read_manifest(workspace, NAME)).open_scores()
    click.echo("\nscore (open cells only):\n" + score_text(scores))
    _final_test(workspace, custodian)
    audited = _checked(workspace, show=False)
    page = write_report(workspace, audited)
    _show(workspace, audited, page, time.monotonic() - begun)


def _demo_keys(workspace: Workspace, plan: Plan) -> tuple[Path, Path]:
    """(signing key, custodian's key), made once."""
    key = workspace.root / ".demo" / "signing_key"
    signers = workspace.plans / plan.authorization.allowed_signers
    if not key.exists():
        signers.unlink(missing_ok=True)
        make_key(plan.author, key, signers)
        click.echo("keys: a throw-away signing key was made in .demo/ (demo custody: no secret)")
    custodian = workspace.root / ".demo" / "custodian_key"
    relative = EpsPlan.of(plan).quarantine.recipients
    assert relative is not None, "the demo's plan seals"
    recipients = workspace.plans / relative
    if not custodian.exists():
        recipients.unlink(missing_ok=True)
        make_custodian_key(custodian, recipients)
        click.echo(
            "keys: a throw-away custodian's key was made in .demo/ (demo custody: the runner could "
            "open what is sealed; in a real study somebody else has this key)"
        )
    return key, custodian


def _checked(workspace: Workspace, *, show: bool) -> AuditedRun:
    """Check the evidence and file the verdict. Raises EvidenceError unless every check holds."""
    audited = audit(workspace, NAME)
    verdict = write_verdict(audited)
    if show or not audited.ok:
        click.echo("\ncheck-evidence:")
        print_checks(audited)
    else:
        head = short(audited.ledger_head)
        click.echo(f"check-evidence: every check holds for ledger head {head}")
    click.echo(f"verdict: {verdict.relative_to(workspace.root)}")
    if not audited.ok:
        raise EvidenceError("demo", expected="every check to hold", found="the failures above")
    return audited


def _final_test(workspace: Workspace, custodian: Path) -> None:
    """One submission, one look. Started again, the demo takes no second one."""
    frozen = read_manifest(workspace, NAME)
    history = RunRecord.load(workspace.run(NAME), terms_of(frozen), now).history
    if not history.submissions:
        body = submit_predictor(workspace, NAME, _example(workspace))
        click.echo(f"submit: number {body.number}, {body.metric} by {body.author}, frozen")
    if history.looks:
        click.echo("final-test: the demo's one look was taken before")
        return
    _checked(workspace, show=False)
    number, document, _ = look(workspace, NAME, 1, custodian)
    click.echo(f"\nfinal-test (look {number}, sealed cells):\n{final_text(document)}")


def _example(workspace: Workspace) -> Predictor:
    """The example metric, computed where it can read nothing but the shipped materials.

    Where the kernel has no Landlock nothing runs unprotected: a shipped baseline is submitted under
    the demo's name instead, and the demo says so.
    """
    try:
        require_landlock()
    except RefusedError as error:
        click.echo(f"metric: {error}\n  the demo submits a copy of a shipped baseline instead")
        baselines = finished_run(workspace, read_manifest(workspace, NAME)).baselines()
        copied = next(one for one in baselines if one.metric == "bystander_prior")
        return replace(copied, metric="demo-copy", author="demo@localhost")
    path, _, attribute = EXAMPLE_METRIC.partition(":")
    plugin = find_file(f"{workspace.root / path}:{attribute}")
    outcome = run_metric(workspace, NAME, plugin, limits=Limits(timeout_s=120.0))
    assert outcome.predictor is not None
    click.echo(
        f"metric: {EXAMPLE_METRIC} ran in a sandbox without adapters, results or seals "
        f"({outcome.seconds:.1f} s)"
    )
    return outcome.predictor


def _freeze_once(workspace: Workspace, plan: Plan) -> None:
    if (workspace.root / "manifests" / NAME).is_dir():
        frozen = read_manifest(workspace, NAME)
        click.echo(f"freeze: manifests/{NAME} is frozen, {short(frozen.digest)}")
        return
    model = ModelFolder(plan, workspace.root)
    manifest, digest, contents = freeze(
        workspace,
        NAME,
        study_freezer=study_of(plan).freeze,
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


def _mend(workspace: Workspace, plan: Plan) -> None:
    """What an interrupted submission or look left behind is set aside by a closed phase's run."""
    run = workspace.run(NAME)
    record = RunRecord.load(run, terms_of(read_manifest(workspace, NAME)), now)
    if run.leftovers() or run.torn_end() or record.orphans(allowed=1):
        execute_phase(workspace, NAME, list(plan.phases)[-1])


def _show_tensor(audited: AuditedRun) -> None:
    files = audited.artifact("P1/tensor/marker", "tensor")
    tensor: Mapping[str, Any] = json.loads(files["tensor.json"])
    click.echo("")
    click.echo(text_table(tensor, shutil.get_terminal_size((100, 24)).columns))


def _show(workspace: Workspace, audited: AuditedRun, page: Path, seconds: float) -> None:
    assert audited.history is not None
    artifact = audited.history.done["P1/tensor/marker"].outputs["tensor"]
    folder = audited.run.artifact_folder(artifact.digest)
    click.echo("")
    for what, path in (
        ("tensor ", folder / "tensor.json"),
        ("table  ", folder / "tensor.parquet"),
        ("page   ", page),
    ):
        click.echo(f"{what} {path.relative_to(workspace.root)}")
    click.echo(f"done in {seconds / 60:.1f} minutes; now change one character of any file in")
    click.echo("manifests/demo or plans/demo.yaml and run: ./eps run-phase demo P1")
