"""A demonstration of a study that ends with its page: vea and battery."""

from __future__ import annotations

import time

import click

from eps_locked.audit.checks import AuditedRun
from eps_locked.canonical import decode
from eps_locked.cli.check import write_report
from eps_locked.cli.play import authorize_and_run, checked, freeze_once, signing_key
from eps_locked.lock.freeze import read_plan
from eps_locked.lock.workspace import Workspace
from eps_locked.report.marks import plain_text

__all__ = ["play_to_its_page"]


def play_to_its_page(workspace: Workspace, name: str, begun: float) -> int:
    """Freeze, authorize, run and check plans/NAME.yaml, say what came out, write the page.

    ``begun``: when the command began, on the monotonic clock. Returns the exit code: 1 where an
    axis of a battery has fewer verdicts than its plan asks for, or a reward model of known truth
    was called something else.
    """
    plan, _ = read_plan(workspace, name)
    key = signing_key(workspace, plan)
    freeze_once(workspace, plan)
    for phase in plan.phases:
        authorize_and_run(workspace, plan, phase, key)
    audited = checked(workspace, name, show=True)
    click.echo("")
    code = {"vea": _show_vea, "battery": _show_battery}[plan.study](audited)
    page = write_report(workspace, audited)
    click.echo("")
    click.echo(f"page   {page.relative_to(workspace.root)}")
    click.echo(f"done in {(time.monotonic() - begun) / 60:.1f} minutes; now change one character")
    click.echo(f"of any file in manifests/{name} or of plans/{name}.yaml and run:")
    click.echo(f"  ./eps run-phase {name} P2")
    return code


def _show_vea(audited: AuditedRun) -> int:
    from eps_locked.cli.vea_text import model_text
    from eps_locked.studies.vea.claims import claims
    from eps_locked.studies.vea.results import BREADTH_FILE

    document = decode(audited.artifact("P3/breadth", "breadth")[BREADTH_FILE], thing=BREADTH_FILE)
    sentences = claims(document)
    for model in document["reward_models"]:
        click.echo(model_text(document, model, sentences))
    for model in document["reward_models"]:
        known = ""
        if model["expected"] is not None:
            agrees = "as it should be" if model["agrees"] else "WRONG"
            known = f" (made to be {model['expected']}: {agrees})"
        click.echo(plain_text(f"{model['reward_model']}: {model['headline']}{known}"))
    return 1 if any(model["agrees"] is False for model in document["reward_models"]) else 0


def _show_battery(audited: AuditedRun) -> int:
    from eps_locked.cli.battery import echo_battery
    from eps_locked.studies.battery.finished import FinishedBattery
    from eps_locked.studies.battery.shortfalls import unmet

    found = FinishedBattery.of(audited)
    echo_battery(found.document)
    return 1 if unmet(found.document) else 0
