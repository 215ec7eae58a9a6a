"""``plan check`` and ``freeze``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from eps_locked.canonical import short
from eps_locked.cli.common import (
    at_option,
    echo_json,
    json_option,
    moment,
    root_option,
    workspace_at,
)
from eps_locked.cli.surroundings import ModelFolder, measure
from eps_locked.errors import MalformedInputError
from eps_locked.lock.freeze import freeze, read_plan
from eps_locked.lock.workspace import Workspace
from eps_locked.studies.eps.cost import cost_table
from eps_locked.studies.eps.freeze import freeze_eps
from eps_locked.studies.eps.wiring import load_tokenizer


@click.group("plan")
def plan() -> None:
    """Look at plans before they are frozen."""


@plan.command("check")
@click.argument("path", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@json_option
def check_command(path: Path, as_json: bool) -> None:
    """List every problem of a plan at once, and what it would cost.

    Nothing is fetched and nothing is written; freezing checks the material and renders it.
    """
    workspace, name = _workspace_of(path)
    parsed, _ = read_plan(workspace, name)
    rows = cost_table(parsed)
    if as_json:
        echo_json({"plan": name, "phases": rows})
        return
    click.echo(f"plans/{name}.yaml: no problem found")
    for row in rows:
        click.echo(
            f"  {row['phase']}: {row['steps']} steps, {row['adapters']} adapters, "
            f"{row['cells']} cells, at most {row['tokens']} new tokens, "
            f"{row['device_hours']:.2f} device-hours by the plan's step_seconds, "
            f"budget {row['budget_hours']:.2f}"
        )


@click.command("freeze")
@click.argument("name")
@click.option("--dry-run", is_flag=True, help="Do everything but write.")
@at_option
@root_option
@json_option
def freeze_command(name: str, dry_run: bool, at: str | None, root: Path, as_json: bool) -> None:
    """Freeze plans/NAME.yaml into manifests/NAME: draw, render, list every step, seal."""
    workspace = workspace_at(root)
    parsed, _ = read_plan(workspace, name)
    model = ModelFolder(parsed, workspace.root)
    tokenizer = load_tokenizer(parsed, model.path())
    manifest, digest, contents = freeze(
        workspace,
        name,
        study_freezer=freeze_eps,
        tokenizer=tokenizer,
        surroundings=measure(model),
        now=moment(at),
        dry_run=dry_run,
    )
    summary: dict[str, Any] = {
        "name": name,
        "digest": digest,
        "written": not dry_run,
        "files": len(contents),
        **manifest.summary,
    }
    if as_json:
        echo_json(summary)
        return
    verb = "would freeze" if dry_run else "frozen"
    counts = ", ".join(f"{n} {what.replace('_', ' ')}" for what, n in manifest.summary.items())
    click.echo(f"{verb}: manifests/{name} ({len(contents)} files), {short(digest)}")
    click.echo(f"  {counts}")
    if not dry_run:
        click.echo(f"  next: just authorize {name} {manifest.phases[0]}")


def _workspace_of(path: Path) -> tuple[Workspace, str]:
    resolved = path.absolute()
    if resolved.parent.name != "plans" or resolved.suffix != ".yaml":
        raise MalformedInputError(
            str(path),
            expected="a file plans/NAME.yaml",
            found=f"{resolved.parent.name}/{path.name}",
        )
    return Workspace(root=resolved.parent.parent), resolved.stem
