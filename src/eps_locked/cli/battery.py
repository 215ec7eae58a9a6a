"""``battery``: what checked batteries say, model by model and beside one another."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import date as calendar_date
from pathlib import Path
from typing import Any

import click

from eps_locked import files
from eps_locked.cli.check import audit
from eps_locked.cli.common import echo_json, json_option, now, root_option, workspace_at
from eps_locked.errors import MalformedInputError, RefusedError
from eps_locked.lock.record import RunRecord, terms_of
from eps_locked.lock.workspace import Workspace
from eps_locked.report.battery.terminal import models_table
from eps_locked.report.marks import plain_text
from eps_locked.studies.battery.cards import card
from eps_locked.studies.battery.finished import (
    FinishedBattery,
    compare_across,
    promised,
    require_compatible,
)
from eps_locked.studies.battery.sentences import (
    axis_name,
    claims,
    served_words,
    stage_words,
    unthinking,
)
from eps_locked.studies.battery.shortfalls import unmet, unmet_of

_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


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
        _echo_missing(unmet(found.document), as_json=True)
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
    exploratory. Runs that differ in items, decoding, judges or rubrics are refused. Exit code 1 if
    an axis could not be compared.
    """
    workspace = workspace_at(root)
    found = finished(workspace, name)
    base_run = found if other in (None, name) else finished(workspace, str(other))
    entry = promised(found, model, base) if base_run is found else None
    entry = entry or compare_across(found, model, base_run, base)
    if as_json:
        echo_json(entry)
    else:
        click.echo(plain_text(f"{entry['title']} ({entry['label']})"))
        for one in (*(row["sentence"] for row in entry["axes"]), *served_words(entry)):
            click.echo(plain_text(f"  {one}"))
    return 1 if any(row["verdict"] == "not_measured" for row in entry["axes"]) else 0


@battery.command("card")
@click.argument("name")
@click.argument("model")
@click.option(
    "--date", required=True, metavar="YYYY-MM-DD", help="The day of the measurement, for the name."
)
@root_option
def card_command(name: str, model: str, date: str, root: Path) -> int:
    """Write cards/MODEL-DATE.md, a page to commit: what MODEL is, its rates, its differences.

    An existing card is never changed. Exit code 1 if an axis of MODEL is not measured; the card
    says so too.
    """
    _require_date(date)
    workspace = workspace_at(root)
    found = finished(workspace, name)
    text = card(found.document, model, found.evidence).encode()
    path = workspace.root / "cards" / f"{model}-{date}.md"
    shown = path.relative_to(workspace.root)
    if path.exists() or path.is_symlink():
        if path.is_symlink() or files.read_bytes(path) != text:
            raise RefusedError(
                str(shown),
                problem="exists and is another card",
                expected=f"no card, or the one of {model} in run {name}",
                found="something else, which stays as it is",
                next_step="give another --date, or look why two runs of one day differ",
            )
    else:
        files.make_folder(path.parent)
        files.write_once(path, text)
    click.echo(f"card: {shown}")
    missing = unmet_of(found.document, model)
    _echo_missing(missing, as_json=False)
    return 1 if missing else 0


@battery.command("table")
@click.argument("names", nargs=-1)
@root_option
@json_option
def table_command(names: tuple[str, ...], root: Path, as_json: bool) -> int:
    """Put every model of the checked runs NAMES into one table; without NAMES, of every battery.

    Without NAMES a run that is not complete is left out, and named. Refuses to mix runs that differ
    in items, decoding, judges or rubrics, and names the difference. Exit code 1 if an axis of any
    of them is not measured.
    """
    workspace = workspace_at(root)
    chosen = dict.fromkeys(names) or _complete_batteries(workspace)
    batteries = [finished(workspace, name) for name in chosen]
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
        click.echo(plain_text(stage_words(stage)))
    for one in document["thinking"]:
        click.echo(
            plain_text(
                f"thinking, {one['model']}, {axis_name(one['axis'], one['thinking'])}: refused in "
                f"the thinking and complied in the answer {one['refused_in_thinking_only']}, the "
                f"reverse {one['refused_in_answer_only']}, of {one['n_both_read']} read on both "
                "sides"
            )
        )
    for model in document["models"]:
        for one in unthinking(document, model["model"]):
            click.echo(plain_text(f"thinking, {model['model']}, {one}"))
    _echo_missing(unmet(document), as_json=False)


def _echo_missing(missing: Sequence[str], *, as_json: bool) -> None:
    for one in missing:
        click.echo(plain_text(f"not measured: {one}"), err=as_json)


def _require_date(date: str) -> None:
    try:
        if not _DATE.fullmatch(date):
            raise ValueError(date)
        calendar_date.fromisoformat(date)
    except ValueError as error:
        raise MalformedInputError(
            "--date",
            expected="a day as YYYY-MM-DD",
            found=repr(date)[:60],
            next_step="give the day on which the run was measured: it becomes part of the name",
        ) from error


def _complete_batteries(workspace: Workspace) -> list[str]:
    """Every complete run of a battery, by name; those under way are named and left out."""
    folder = workspace.root / "runs"
    names = (
        sorted(path.name for path in folder.iterdir() if path.is_dir()) if folder.exists() else []
    )
    found = []
    for name in names:
        if not (workspace.root / "manifests" / name).is_dir():
            continue
        frozen = workspace.load_manifest(name)
        if frozen.manifest.study != "battery":
            continue
        history = RunRecord.load(workspace.run(name), terms_of(frozen), now).history
        if set(frozen.manifest.phases) <= set(history.closed):
            found.append(name)
        else:
            click.echo(f"left out: {name} is not complete (just status {name})", err=True)
    return found
