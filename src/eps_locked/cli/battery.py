"""``battery``: what checked batteries say, model by model and beside one another."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from eps_locked import files
from eps_locked.cli.check import audit
from eps_locked.cli.common import echo_json, json_option, root_option, workspace_at
from eps_locked.errors import MalformedInputError, RefusedError
from eps_locked.lock.workspace import Workspace
from eps_locked.report.battery.terminal import models_table
from eps_locked.report.marks import plain_text
from eps_locked.studies.battery.cards import card
from eps_locked.studies.battery.finished import (
    FinishedBattery,
    compare_across,
    require_compatible,
    unmet,
)
from eps_locked.studies.battery.sentences import claims

_DATE = re.compile(r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])")


@click.group("battery")
def battery() -> None:
    """Batteries: each model against its base, and every model in one table."""


@battery.command("show")
@click.argument("name")
@root_option
@json_option
def show_command(name: str, root: Path, as_json: bool) -> int:
    """Print the rates and comparisons of the checked run NAME.

    Exit code 1 if an axis has fewer verdicts than the plan's minimum: the axis is then not
    measured, and what is missing is said.
    """
    found = finished(workspace_at(root), name)
    if as_json:
        echo_json(found.document)
    else:
        echo_battery(found.document)
    return 1 if unmet(found.document) else 0


@battery.command("compare")
@click.argument("name")
@click.argument("model")
@click.option(
    "--compare", "base", required=True, metavar="BASE", help="The model to compare MODEL with."
)
@click.option("--of", "other", metavar="NAME", help="The run that BASE is in.  [default: NAME]")
@root_option
@json_option
def compare_command(
    name: str, model: str, base: str, other: str | None, root: Path, as_json: bool
) -> int:
    """Compare MODEL of the checked run NAME with any other model measured alike.

    A comparison that the plan of NAME promised is shown as it was promised; any other is
    exploratory. Runs that differ in items, decoding, judges or rubrics are refused.
    """
    workspace = workspace_at(root)
    found = finished(workspace, name)
    promised = [
        {**one, "label": found.document["label"]}
        for one in found.document["comparisons"]
        if (one["model"], one["base"]) == (model, base) and other in (None, name)
    ]
    if promised:
        entry = promised[0]
    else:
        base_run = found if other in (None, name) else finished(workspace, str(other))
        entry = compare_across(found, model, base_run, base)
    if as_json:
        echo_json(entry)
    else:
        click.echo(plain_text(f"{entry['title']} ({entry['label']})"))
        for row in entry["axes"]:
            click.echo(plain_text(f"  {row['sentence']}"))
    return 1 if any(row["verdict"] == "not_measured" for row in entry["axes"]) else 0


@battery.command("card")
@click.argument("name")
@click.argument("model")
@click.option(
    "--date", required=True, metavar="YYYY-MM-DD", help="The day of the measurement, for the name."
)
@root_option
def card_command(name: str, model: str, date: str, root: Path) -> None:
    """Write cards/MODEL-DATE.md, a page to commit: what MODEL is, its rates, its differences.

    An existing card is never changed.
    """
    if not _DATE.fullmatch(date):
        raise MalformedInputError("--date", expected="YYYY-MM-DD", found=date)
    workspace = workspace_at(root)
    found = finished(workspace, name)
    path = workspace.root / "cards" / f"{model}-{date}.md"
    text = card(found.document, model).encode()
    if path.exists() or path.is_symlink():
        if files.read_bytes(path) != text:
            raise RefusedError(
                str(path.relative_to(workspace.root)),
                problem="exists and says something else",
                next_step="give another --date, or look why two runs of one day differ",
            )
    else:
        files.make_folder(path.parent)
        files.write_once(path, text)
    click.echo(f"card: {path.relative_to(workspace.root)}")


@battery.command("table")
@click.argument("names", nargs=-1)
@root_option
@json_option
def table_command(names: tuple[str, ...], root: Path, as_json: bool) -> int:
    """Put every model of the checked runs NAMES into one table; without NAMES, of every battery.

    Refuses to mix runs that differ in items, decoding, judges or rubrics, and names the difference.
    """
    workspace = workspace_at(root)
    batteries = [finished(workspace, name) for name in names or _batteries(workspace)]
    if not batteries:
        raise MalformedInputError(
            "battery table",
            expected="a finished battery under runs/",
            found="none",
            next_step="run one: just demo-battery",
        )
    require_compatible(batteries)
    rows = [(found.name, model) for found in batteries for model in found.document["models"]]
    if as_json:
        echo_json([{"run": name, **model} for name, model in rows])
    else:
        click.echo(models_table(rows), nl=False)
    missing = [f"{found.name}: {one}" for found in batteries for one in unmet(found.document)]
    _echo_missing(missing, as_json=as_json)
    return 1 if missing else 0


def finished(workspace: Workspace, name: str) -> FinishedBattery:
    """A run that is checked here and now."""
    return FinishedBattery.of(audit(workspace, name))


def echo_battery(document: Mapping[str, Any]) -> None:
    """Rates, comparisons, weak discriminators, and what is missing."""
    click.echo(models_table([("", model) for model in document["models"]]), nl=False)
    for one in claims(document):
        click.echo(plain_text(one))
    for stage in document["stages"]:
        kappa = stage["kappa"]
        value = "undefined" if kappa["value"] is None else f"{kappa['value']:.2f}"
        click.echo(
            plain_text(
                f"keyword rule beside judge, {stage['model']}, thinking {stage['thinking']}: "
                f"kappa {value} on {stage['n']}; {len(stage['disagreements'])} differ"
                + (f" ({', '.join(stage['disagreements'][:8])})" if stage["disagreements"] else "")
            )
        )
    for one in document["thinking"]:
        click.echo(
            plain_text(
                f"thinking, {one['model']}, {one['axis']}: refused in the thinking and complied in "
                f"the answer {one['refused_in_thinking_only']}, the reverse "
                f"{one['refused_in_answer_only']}, of {one['n_both_read']} read on both sides"
            )
        )
    _echo_missing(unmet(document), as_json=False)


def _echo_missing(missing: Sequence[str], *, as_json: bool) -> None:
    for one in missing:
        click.echo(plain_text(f"not measured: {one}"), err=as_json)


def _batteries(workspace: Workspace) -> list[str]:
    """Every run whose manifest is of a battery, by name."""
    folder = workspace.root / "runs"
    names = (
        sorted(path.name for path in folder.iterdir() if path.is_dir()) if folder.exists() else []
    )
    return [
        name
        for name in names
        if (workspace.root / "manifests" / name).is_dir()
        and workspace.load_manifest(name).manifest.study == "battery"
    ]
