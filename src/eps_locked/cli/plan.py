"""``plan check`` and ``freeze``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from eps_locked import files
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
from eps_locked.data.obtain import obtain_hub, obtain_local
from eps_locked.domain.model import ChatTokenizer
from eps_locked.domain.plan import Plan
from eps_locked.errors import MalformedInputError
from eps_locked.lock.freeze import SourceReader, freeze, read_plan
from eps_locked.lock.workspace import Workspace
from eps_locked.studies.common.sources import draw_sources, is_sampled, write_sources
from eps_locked.studies.common.wiring import load_tokenizer
from eps_locked.studies.registry import study_of


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
    study = study_of(parsed)
    study.check(parsed)
    report = study.cost(parsed)
    if as_json:
        echo_json({"plan": name, **report})
        return
    click.echo(f"plans/{name}.yaml: no problem found")
    _echo_costs(report, study.adapters_words)


@click.command("freeze")
@click.argument("name")
@click.option("--dry-run", is_flag=True, help="Do everything but write.")
@click.option(
    "--sources",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder with local copies of the public sources; without it they come from the hub.",
)
@at_option
@root_option
@json_option
def freeze_command(
    name: str, dry_run: bool, sources: Path | None, at: str | None, root: Path, as_json: bool
) -> None:
    """Freeze plans/NAME.yaml into manifests/NAME: draw, render, list every step, seal.

    Public sources that the plan names are drawn into plans/sources/sampled/ unless they are there.
    """
    workspace = workspace_at(root)
    parsed, _ = read_plan(workspace, name)
    model = ModelFolder(parsed, workspace.root)
    tokenizer = load_tokenizer(parsed, model.path())
    drawn = _draw(workspace, parsed, tokenizer, sources)
    manifest, digest, contents = freeze(
        workspace,
        name,
        study_freezer=study_of(parsed).freeze,
        tokenizer=tokenizer,
        surroundings=measure(model),
        now=moment(at),
        dry_run=True,
        drawn=drawn,
    )
    if not dry_run:
        # Only now that it freezes: a refusal leaves nothing behind.
        write_sources(workspace, drawn)
        files.publish_folder(workspace.manifest_folder(name), contents)
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


def _draw(
    workspace: Workspace, plan: Plan, tokenizer: ChatTokenizer, sources: Path | None
) -> dict[str, bytes]:
    """What the plan takes from public sources and is not drawn yet."""
    reader = SourceReader(
        fetch=lambda relative, thing: workspace.read_source(relative, thing=thing)
    )
    material = study_of(plan).material(plan, reader)
    if not any(map(is_sampled, material.files)):
        return {}
    return draw_sources(
        workspace,
        material.files,
        obtain_hub() if sources is None else obtain_local(sources),
        tokenizer,
        material.forbidden,
    )


def _echo_costs(report: Mapping[str, Any], adapters_words: str) -> None:
    """The table, the adapters behind it, and what each number rests on."""
    columns = (
        ("steps", "steps"),
        ("adapters", "adapters"),
        ("cells", "cells"),
        ("tokens", "new tokens <="),
        ("verdicts", "verdicts <="),
        ("device_hours", "device-hours"),
        ("budget_hours", "budget"),
    )
    total = {key: sum(row[key] for row in report["phases"]) for key, _ in columns}
    rows = [*report["phases"], {"phase": "total", **total}]
    cells = [["", *(title for _, title in columns)]]
    for row in rows:
        cells.append([row["phase"], *(_shown(row[key]) for key, _ in columns)])
    widths = [max(len(line[number]) for line in cells) for number in range(len(cells[0]))]
    for line in cells:
        padded = [text.rjust(width) for text, width in zip(line, widths, strict=True)]
        click.echo(f"  {'  '.join(padded)}")
    per_seed = ", ".join(f"{n} with seed {s}" for s, n in report["adapters_per_seed"].items())
    click.echo(f"  adapters: {per_seed}")
    by_row = ", ".join(
        f"{name} {one['train']} x {one['seeds']}" for name, one in report["adapters_by_row"].items()
    )
    click.echo(f"  {adapters_words}: {by_row}")
    for one in report["kinds"]:
        click.echo(
            f"  {one['phase']} {one['kind']}: {one['steps']} steps of {one['step_seconds']:g} s"
        )
    for name, basis in report["bases"].items():
        click.echo(f"  {name}: {basis}")
    if report["over_budget"]:
        click.echo(f"  over the plan's own budget: {', '.join(report['over_budget'])}")
    limit = report["auto_approve_gpu_hours"]
    if report["parks"]:
        click.echo(
            f"  parks for somebody else's authorization (above {limit:g} device-hours): "
            f"{', '.join(report['parks'])}"
        )
    else:
        click.echo(f"  its author may authorize every phase (up to {limit:g} device-hours each)")


def _shown(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.2f}"


def _workspace_of(path: Path) -> tuple[Workspace, str]:
    resolved = path.absolute()
    if resolved.parent.name != "plans" or resolved.suffix != ".yaml":
        raise MalformedInputError(
            str(path),
            expected="a file plans/NAME.yaml",
            found=f"{resolved.parent.name}/{path.name}",
        )
    return Workspace(root=resolved.parent.parent), resolved.stem
