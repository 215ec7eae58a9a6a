"""``model``: fetch a plan's base model now, and say where it lies and what it is."""

from __future__ import annotations

from pathlib import Path

import click

from eps_locked.cli.common import echo_json, json_option, root_option, workspace_at
from eps_locked.cli.surroundings import ModelFolder
from eps_locked.lock.freeze import read_plan


@click.command("model")
@click.argument("name")
@root_option
@json_option
def model_command(name: str, root: Path, as_json: bool) -> None:
    """Fetch and convert the base model of plans/NAME.yaml, once, and print its files' digests.

    Useful where the machine that runs has no network: run this where there is one, with the cache
    on shared storage (EPS_LOCKED_CACHE, or HF_HOME).
    """
    workspace = workspace_at(root)
    plan, _ = read_plan(workspace, name)
    model = ModelFolder(plan, workspace.root)
    folder = model.path()
    records = {file: record.to_dict() for file, record in model.records().items()}
    if as_json:
        echo_json({"model": plan.base_model.name, "folder": str(folder), "files": records})
        return
    click.echo(f"{plan.base_model.name} ({plan.base_model.licence}): {folder}")
    for file, record in records.items():
        click.echo(f"  {record['digest']}  {record['size']:>11}  {file}")
