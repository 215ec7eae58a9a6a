"""``drift label-sheet`` and ``drift labels``: people beside the classifier."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
import numpy as np

from eps_locked import files
from eps_locked.cli.check import audit, print_checks
from eps_locked.cli.common import echo_json, json_option, root_option, workspace_at
from eps_locked.cli.judge import echo_comparison
from eps_locked.errors import EvidenceError
from eps_locked.lock.freeze import load_plan
from eps_locked.studies.drift.derive import FrozenBattery
from eps_locked.studies.drift.human_labels import (
    LabelledReply,
    compared,
    label_sheet,
    labelled_replies,
)
from eps_locked.studies.drift.plan import DriftPlan
from eps_locked.studies.drift.records import AskRecord

F = TypeVar("F", bound=Callable[..., Any])


def _seed_option(purpose: str) -> Callable[[F], F]:
    return click.option("--seed", type=click.IntRange(min=0), required=True, help=purpose)


@click.command("label-sheet")
@click.argument("name")
@click.option("--n", type=click.IntRange(min=1), required=True, help="How many of each battery.")
@_seed_option("Which replies: drawn by it.")
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    help="The sheet, a CSV file that must not exist.",
)
@root_option
def label_sheet_command(name: str, n: int, seed: int, out: Path, root: Path) -> None:
    """Write a CSV sheet of NAME's replies for people to label; it does not tell the arms.

    Replies that are kept as excerpts are not on it. Fill in the column label, then: drift labels.
    """
    replies, n_withheld = _replies(root, name)
    files.write_once(out.absolute(), label_sheet(replies, n, seed))
    click.echo(f"sheet: {out}, {n} replies of each battery; fill in the column label")
    if n_withheld:
        click.echo(f"  not on it: {n_withheld} replies whose texts are kept as excerpts alone")


@click.command("labels")
@click.argument("name")
@click.argument("sheet", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@_seed_option("Of the intervals' resamples.")
@root_option
@json_option
def labels_command(name: str, sheet: Path, seed: int, root: Path, as_json: bool) -> None:
    """Set people's labels in SHEET beside the classifier's, by class. Exploratory, always."""
    replies, _ = _replies(root, name)
    rng = np.random.default_rng(seed)
    found = compared(files.read_bytes(sheet), replies, str(sheet), rng)
    document = {
        "schema": "eps-locked/drift-labels/1",
        "study": name,
        "label": "exploratory",
        "batteries": found,
    }
    if as_json:
        echo_json(document)
        return
    for one in found:
        echo_comparison(f"{name}, {one['battery']}: people against the classifier", one)
        if one["n_without_label"]:
            click.echo(f"  rows without a label: {one['n_without_label']}")


def _replies(root: Path, name: str) -> tuple[tuple[LabelledReply, ...], int]:
    workspace = workspace_at(root)
    audited = audit(workspace, name, quick=True)
    if audited.frozen is None or audited.history is None or not audited.checks[8].ok:
        print_checks(audited, skipped=(10,))
        raise EvidenceError(
            f"replies of {name}", expected="whole artifacts", found="others (above)"
        )
    plan = load_plan(audited.frozen.read("frozen/plan.yaml"), thing="frozen/plan.yaml")
    section = DriftPlan.of(plan)
    batteries = {
        one.name: FrozenBattery.read(
            audited.frozen.read(f"frozen/batteries/{one.name}.json"), one.name
        )
        for one in section.batteries
    }
    records = [
        AskRecord.from_files(audited.artifact(step, "answers"), step)
        for step, body in audited.history.done.items()
        if audited.history.terms.steps[step].kind == "ask" and body.outputs
    ]
    return labelled_replies(records, batteries, audited.frozen.digest)
