"""``demo``: a whole study on the embedded model, from plan to page, with throw-away keys."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from eps_locked.audit.checks import AuditedRun
from eps_locked.cli.check import write_report
from eps_locked.cli.common import now, root_option, workspace_at
from eps_locked.cli.looks import finished_run, look, submit_predictor
from eps_locked.cli.metric import run_metric
from eps_locked.cli.play import authorize_and_run, checked, freeze_once, mend, signing_key
from eps_locked.cli.play_page import play_to_its_page
from eps_locked.cli.sign import make_custodian_key
from eps_locked.domain.plan import Plan
from eps_locked.errors import RefusedError
from eps_locked.lock.freeze import read_plan
from eps_locked.lock.gate import read_manifest
from eps_locked.lock.record import RunRecord, terms_of
from eps_locked.lock.workspace import Workspace
from eps_locked.metrics.loading import find_file
from eps_locked.metrics.sandbox import Limits, require_landlock
from eps_locked.report.score_text import final_text, score_text
from eps_locked.report.tables import text_table
from eps_locked.scoring.predictor import Predictor
from eps_locked.studies.eps.plan import EpsPlan

NAME = "demo"
EXAMPLE_METRIC = "examples/metric_example/metric.py:WordingOverlap"


@click.command("demo")
@click.argument("study", type=click.Choice(["eps", "vea", "battery"]), default="eps")
@root_option
def demo_command(study: str, root: Path) -> int:
    """Play a whole study on the embedded model. Interrupt it and start it again.

    STUDY: eps (the default) plays plans/demo.yaml from freezing to the final test, vea
    plans/demo-vea.yaml, battery plans/demo-battery.yaml, each to its page.

    The keys are made for the demonstration and lie in .demo/: whoever has the folder could have
    signed, and could have opened what is sealed. In a real study the signing key lies with a
    person whom the auditor knew beforehand, and the custodian's key with somebody who does not run
    it.
    """
    begun = time.monotonic()
    workspace = workspace_at(root)
    if study != "eps":
        return play_to_its_page(workspace, f"demo-{study}", begun)
    _play_eps(workspace, begun)
    return 0


def _play_eps(workspace: Workspace, begun: float) -> None:
    plan, _ = read_plan(workspace, NAME)
    key, custodian = signing_key(workspace, plan), _custodian_key(workspace, plan)
    freeze_once(workspace, plan)
    for phase in plan.phases:
        authorize_and_run(workspace, plan, phase, key)
    mend(workspace, plan)
    audited = checked(workspace, NAME, show=True)
    _show_tensor(audited)
    scores = finished_run(workspace, read_manifest(workspace, NAME)).open_scores()
    click.echo("\nscore (open cells only):\n" + score_text(scores))
    _final_test(workspace, custodian)
    audited = checked(workspace, NAME, show=False)
    page = write_report(workspace, audited)
    _show(workspace, audited, page, time.monotonic() - begun)


def _custodian_key(workspace: Workspace, plan: Plan) -> Path:
    """The custodian's key, made once."""
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
    return custodian


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
    checked(workspace, NAME, show=False)
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
