"""``drift power``: what a plan could see, before anything is frozen or asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from eps_locked.cli.common import echo_json, json_option, root_option, workspace_at
from eps_locked.lock.freeze import read_plan
from eps_locked.studies.drift.plan import DriftPlan
from eps_locked.studies.drift.power import power_document


@click.command("power")
@click.argument("name")
@root_option
@json_option
def power_command(name: str, root: Any, as_json: bool) -> None:
    """Say what plans/NAME.yaml could see, from its own assumptions: power, and how many stems.

    The same numbers are the run's first step; nothing is written here.
    """
    plan, _ = read_plan(workspace_at(root), name)
    section = DriftPlan.of(plan)
    document = power_document(section)
    if as_json:
        echo_json({"plan": name, **document})
        return
    assumed = document["assumed"]
    click.echo(
        f"plans/{name}.yaml assumes: rate {assumed['rate']:g}, true drifts that scatter by "
        f"{assumed['stem_sd_points']:g} points over stems, variance {assumed['within_variance']:g} "
        "of a reply around its probe"
    )
    for row in document["per_battery"]:
        click.echo(f"  {_battery(row, section.analysis.wanted_points)}")
    for row in document["coverage"]:
        click.echo(f"  {_coverage(row)}")
    for row in document["not_simulated"]:
        click.echo(f"  not simulated with {row['n_stems']} stems: {row['reason']}")


def _battery(row: Mapping[str, Any], wanted: float) -> str:
    return (
        f"{row['battery']}: {row['n_stems']} stems, {row['n_probes']} probes x "
        f"{row['n_samples']} samples: smallest detectable drift {row['minimum_detectable']:.1f} "
        f"points ({row['minimum_detectable_few']:.1f} with so few stems); power "
        f"{row['power_for_wanted']:.2f} for {wanted:g} points, which need "
        f"{row['stems_for_wanted']} stems"
    )


def _coverage(row: Mapping[str, Any]) -> str:
    return (
        f"simulated with {row['n_stems']} stems ({row['n_experiments']} experiments): intervals "
        f"cover {row['coverage'] * 100:.1f} %, null tests reject "
        f"{row['null_rejection'] * 100:.1f} %, power {row['power_at_minimum'] * 100:.0f} % at the "
        "smallest detectable drift"
    )
