"""``publish``: write what a hub upload would hold, and push it when told to."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from eps_locked.audit.bundle import audit_bundle
from eps_locked.audit.checks import AuditedRun, verdict_payload
from eps_locked.canonical import digest_value
from eps_locked.cli.bundle import write_bundle
from eps_locked.cli.check import audit, report_contents
from eps_locked.cli.common import root_option, workspace_at
from eps_locked.errors import EvidenceError, MalformedInputError, RefusedError
from eps_locked.lock.provenance import source_tree
from eps_locked.lock.workspace import Workspace
from eps_locked.publishing.hub import (
    Api,
    Target,
    default_api,
    push,
    require_repo,
    require_token,
)
from eps_locked.publishing.publication import BUNDLE, DATA, MODELS, Publication, compose, write
from eps_locked.studies.eps.scores import FinishedRun
from eps_locked.studies.registry import StudyRederiver


@click.command("publish")
@click.argument("name")
@click.option("--dry-run", is_flag=True, help="Only write the folder; no network.")
@click.option("--push", "pushes", is_flag=True, help="Write it, then push both repositories.")
@click.option("--data-repo", metavar="ORG/NAME", help="Hub data set to push to; it must exist.")
@click.option("--model-repo", metavar="ORG/NAME", help="Hub model to push to; it must exist.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="The folder.  [default: bundles/NAME-hub]",
)
@root_option
def publish_command(
    name: str,
    dry_run: bool,
    pushes: bool,
    data_repo: str | None,
    model_repo: str | None,
    out: Path | None,
    root: Path,
) -> None:
    """Write what of the finished run NAME may be shown to everybody, and push it if told to.

    The folder holds a data repository (data/), a model repository (models/) and, where nothing in
    it has to be kept back, the evidence bundle (bundle/). The same run gives the same bytes; a
    folder that lies there already must be exactly that. Sealed cells, texts whose licence does
    not let them be handed on, and secrets are in neither repository: every file is scanned.

    --push needs HF_TOKEN in the environment, and pushes each repository as one commit. The bundle
    is not pushed.
    """
    if dry_run == pushes:
        raise MalformedInputError(
            "publish", expected="--dry-run or --push", found="both" if pushes else "neither"
        )
    repos = _repos(data_repo, model_repo) if pushes else {}
    token = require_token(os.environ) if pushes else None
    workspace = workspace_at(root)
    folder = (out or workspace.root / "bundles" / f"{name}-hub").absolute()
    audited = audit(workspace, name)
    if pushes:
        require_publishable(audited)
    publication = prepare(workspace, audited, secrets=(token,) if token else ())
    is_new = write(publication, folder)
    click.echo(f"{'wrote' if is_new else 'lies there already'}: {folder}")
    _print(publication)
    _bundle(workspace, audited, publication, folder / BUNDLE)
    if token is not None:
        push_all(publication, folder, repos, default_api(), token=token, audited=audited)


def prepare(
    workspace: Workspace, audited: AuditedRun, *, secrets: tuple[str, ...] = ()
) -> Publication:
    """Compose the publication of a run whose checks all hold. Raises EvidenceError if one fails."""
    _require_holds(audited)
    assert audited.frozen is not None
    assert audited.history is not None
    finished = FinishedRun(frozen=audited.frozen, run=audited.run, history=audited.history)
    return compose(
        finished,
        verdict_payload(audited, digest_value(source_tree())),
        machine=(str(workspace.root), str(Path.home()), *secrets),
    )


def _require_holds(audited: AuditedRun) -> None:
    failures = [f"C{number}: {failure}" for number, failure in audited.failures()]
    if failures:
        raise EvidenceError(
            f"publication of {audited.name}",
            expected="a run whose checks all hold",
            found=f"{len(failures)} failures",
            details=tuple(failures),
            next_step=f"just check-evidence {audited.name}",
        )


def require_publishable(audited: AuditedRun) -> None:
    if not audited.publishable:
        raise RefusedError(
            audited.name,
            expected="a run that is for publication",
            found="one that its plan, its engine or a judge marks as not for publication",
            next_step="--dry-run writes the folder all the same; to push, run a plan with "
            "publication: true",
        )


def push_all(
    publication: Publication,
    folder: Path,
    repos: Mapping[str, str],
    api: Api,
    *,
    token: str,
    audited: AuditedRun,
) -> None:
    """Push both repositories, the data first: the models' card points to nothing without it."""
    kinds: dict[str, Any] = {DATA: "dataset", MODELS: "model"}
    for part, kind in kinds.items():
        target = Target(
            repo=repos[part], kind=kind, folder=folder / part, files=publication.of(part)
        )
        message = f"{audited.name}: {part} at ledger head {audited.ledger_head}"
        where = push(target, api, token=token, message=message)
        click.echo(f"pushed: {kind} {repos[part]}, {len(target.files)} files, {where}")


def _repos(data_repo: str | None, model_repo: str | None) -> dict[str, str]:
    found = {}
    for part, option, value in (
        (DATA, "--data-repo", data_repo),
        (MODELS, "--model-repo", model_repo),
    ):
        found[part] = require_repo(value or "", thing=option)
    return found


def _print(publication: Publication) -> None:
    for part in (DATA, MODELS):
        names = publication.of(part)
        click.echo(f"  {part:<8} {len(names)} files, {publication.digest(part)} of SHA256SUMS")
    n_rows = sum(config.n_rows for config in publication.configs)
    n_withheld = sum(config.n_withheld for config in publication.configs)
    click.echo(
        f"  {len(publication.configs)} configurations, {n_rows} rows, {n_withheld} of them "
        f"without text or value; {publication.n_adapters} adapters"
    )
    for line in publication.left_out:
        click.echo(f"  left out: {line}")


def _bundle(
    workspace: Workspace, audited: AuditedRun, publication: Publication, folder: Path
) -> None:
    """The evidence bundle beside the repositories: written once, or verified where it lies."""
    if publication.bundle_trouble is not None:
        click.echo(f"  {BUNDLE}: left out: {publication.bundle_trouble}", err=True)
        return
    if not folder.exists():
        written = write_bundle(workspace, audited.name, folder, check=audit)
        click.echo(f"  {BUNDLE:<8} {written.n_files} files, {written.digest} of SHA256SUMS")
        return
    assert audited.ledger_head is not None
    found = audit_bundle(
        folder,
        code=source_tree(),
        rederive=StudyRederiver(),
        report=report_contents,
        expected_heads=(audited.ledger_head,),
    )
    if not found.ok():
        raise RefusedError(
            str(folder),
            problem="is no bundle of this run that verifies",
            next_step=f"eps-locked audit {folder}; then move it away and publish again",
        )
    click.echo(f"  {BUNDLE:<8} lies there already, {found.digest} of SHA256SUMS")
