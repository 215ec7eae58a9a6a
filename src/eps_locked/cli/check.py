"""``check-evidence`` and ``report``."""

from __future__ import annotations

from pathlib import Path

import click

from eps_locked import files
from eps_locked.audit.checks import AuditedRun, audit_run, verdict_payload
from eps_locked.canonical import decode, digest_value, short
from eps_locked.cli.common import echo_json, json_option, root_option, workspace_at
from eps_locked.errors import EvidenceError
from eps_locked.lock.provenance import source_tree
from eps_locked.lock.workspace import Workspace
from eps_locked.studies.registry import StudyRederiver


@click.command("check-evidence")
@click.argument("name")
@click.option("--quick", is_flag=True, help="Leave out the re-derivation (C10); no verdict.")
@click.option("--no-verdict", is_flag=True, help="Only look; write nothing.")
@root_option
@json_option
@click.pass_context
def check_evidence_command(
    ctx: click.Context, name: str, quick: bool, no_verdict: bool, root: Path, as_json: bool
) -> int:
    """Re-hash and re-derive everything NAME claims; list every failure; write a verdict.

    The verdict names the ledger head it was given for. It is written for failures too.
    """
    workspace = workspace_at(root)
    audited = audit(workspace, name, quick=quick)
    path = None
    if not quick and not no_verdict and audited.ledger_head is not None:
        path = write_verdict(audited)
    if as_json:
        echo_json(
            {
                "name": name,
                "ok": audited.ok,
                "complete": audited.complete,
                "publishable": audited.publishable,
                "ledger_head": audited.ledger_head,
                "verdict": str(path.relative_to(workspace.root)) if path else None,
                "checks": [check.to_dict() for check in audited.checks.values()],
            }
        )
    else:
        print_checks(audited, skipped=(10,) if quick else ())
        if path is not None:
            click.echo(f"verdict: {path.relative_to(workspace.root)}")
    return 0 if audited.ok else 1


def audit(workspace: Workspace, name: str, *, quick: bool = False) -> AuditedRun:
    """Audit a run with this installation's own rules."""
    return audit_run(workspace, name, code=source_tree(), rederive=StudyRederiver(), quick=quick)


def print_checks(audited: AuditedRun, skipped: tuple[int, ...] = ()) -> None:
    for check in audited.checks.values():
        word = "skip" if check.number in skipped else "ok" if check.ok else "FAIL"
        click.echo(f"  C{check.number:<3} {word:<5} {check.title} ({check.n_examined} examined)")
        for failure in check.failures:
            click.echo("           " + failure.replace("\n", "\n           "))
    n_failures = sum(len(check.failures) for check in audited.checks.values())
    head = short(audited.ledger_head)
    if n_failures:
        click.echo(f"{audited.name}: {n_failures} failures, ledger head {head}")
    else:
        click.echo(f"{audited.name}: every check holds for ledger head {head}")
    if not audited.publishable:
        click.echo("  not for publication: the plan, the engine or a failed check says so")


def write_verdict(audited: AuditedRun) -> Path:
    """File the verdict under its ledger head; the same verdict twice is one file."""
    return audited.run.file_verdict(verdict_payload(audited, digest_value(source_tree())))


@click.command("report")
@click.argument("name")
@root_option
def report_command(name: str, root: Path) -> None:
    """Write reports/NAME/: one HTML page and every table as CSV and JSON, from audited bytes.

    A run that does not pass its checks gets no report; an incomplete one neither.
    """
    workspace = workspace_at(root)
    audited = audit(workspace, name)
    if not audited.ok:
        print_checks(audited)
        raise EvidenceError(
            f"report of {name}",
            expected="a run whose checks all hold",
            found=f"{sum(1 for _ in audited.failures())} failures (listed above)",
            next_step=f"just check-evidence {name}",
        )
    path = write_report(workspace, audited)
    click.echo(f"report: {path.relative_to(workspace.root)}")


def report_contents(audited: AuditedRun) -> dict[str, bytes]:
    """The report's files by name; of an ``eps`` run also what the open cells score."""
    study = None if audited.frozen is None else audited.frozen.manifest.study
    of_study = {"drift": _drift_report, "vea": _vea_report, "battery": _battery_report}
    return of_study.get(study or "eps", _eps_report)(audited)


def _eps_report(audited: AuditedRun) -> dict[str, bytes]:
    from eps_locked.report.page import report_files
    from eps_locked.studies.eps.scores import FinishedRun

    scores = None
    if audited.complete and audited.frozen is not None and audited.history is not None:
        finished = FinishedRun(frozen=audited.frozen, run=audited.run, history=audited.history)
        if finished.section.scoring is not None:
            scores = finished.open_scores()
    return report_files(audited, scores)


def _drift_report(audited: AuditedRun) -> dict[str, bytes]:
    from eps_locked.report.drift.page import drift_report_files
    from eps_locked.studies.drift.claims import claims
    from eps_locked.studies.drift.results import DRIFT_FILE

    said: list[str] = []
    if audited.complete:
        document = decode(audited.artifact("P3/drift", "drift")[DRIFT_FILE], thing=DRIFT_FILE)
        said = claims(document)
    return drift_report_files(audited, said)


def _vea_report(audited: AuditedRun) -> dict[str, bytes]:
    from eps_locked.report.vea.page import vea_report_files
    from eps_locked.studies.vea.claims import claims
    from eps_locked.studies.vea.results import BREADTH_FILE

    said: list[str] = []
    if audited.complete:
        data = audited.artifact("P3/breadth", "breadth")[BREADTH_FILE]
        said = claims(decode(data, thing=BREADTH_FILE))
    return vea_report_files(audited, said)


def _battery_report(audited: AuditedRun) -> dict[str, bytes]:
    from eps_locked.report.battery.page import battery_report_files
    from eps_locked.studies.battery.results import BATTERY_FILE
    from eps_locked.studies.battery.sentences import claims

    said: list[str] = []
    if audited.complete:
        data = audited.artifact("P3/battery", "battery")[BATTERY_FILE]
        said = claims(decode(data, thing=BATTERY_FILE))
    return battery_report_files(audited, said)


def write_report(workspace: Workspace, audited: AuditedRun) -> Path:
    """The page's path; reports are derived and may be written again."""
    folder = workspace.root / "reports" / audited.name
    for relative, data in report_contents(audited).items():
        files.replace_file(folder / relative, data)
    return folder / "index.html"
