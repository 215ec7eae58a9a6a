"""``replay``: do randomly chosen steps of a checked run again and compare bytes."""

from __future__ import annotations

from pathlib import Path

import click

from eps_locked.canonical import digest_value
from eps_locked.cli.check import audit, print_checks
from eps_locked.cli.common import echo_json, json_option, root_option, workspace_at
from eps_locked.cli.surroundings import ModelFolder
from eps_locked.domain.ledger import engine_to_dict
from eps_locked.errors import EvidenceError
from eps_locked.lock.freeze import load_plan
from eps_locked.lock.gate import verify_model
from eps_locked.lock.provenance import resolved_environment
from eps_locked.runners.replay import draw_steps, replay_steps
from eps_locked.studies.common.wiring import load_judge
from eps_locked.studies.registry import study_of


@click.command("replay")
@click.argument("name")
@click.option("--sample", type=click.IntRange(min=1), required=True, help="How many steps.")
@click.option("--seed", type=click.IntRange(min=0), required=True, help="Which: drawn by it.")
@root_option
@json_option
def replay_command(name: str, sample: int, seed: int, root: Path, as_json: bool) -> int:
    """Execute SAMPLE recorded steps of NAME again, drawn by SEED, and compare with the record.

    Needs the model. Steps that asked a judge over the network are not drawn: asking again is
    another opinion (judge again). Exit code 1 if any step came out otherwise. Writes nothing.
    """
    workspace = workspace_at(root)
    audited = audit(workspace, name)
    if audited.frozen is None or audited.history is None or not audited.checks[8].ok:
        print_checks(audited)
        raise EvidenceError(f"replay of {name}", expected="whole artifacts", found="others (above)")
    frozen, history = audited.frozen, audited.history
    plan = load_plan(frozen.read("frozen/plan.yaml"), thing="frozen/plan.yaml")
    model = ModelFolder(plan, workspace.root)
    verify_model(frozen.manifest, model.records())
    study = study_of(plan)
    executor = study.executor(plan, model.path, load_judge)
    n_asked = sum(study.asks_a_service(plan, step) for step in history.terms.steps.values())
    steps = draw_steps(history, sample, seed, lambda step: not study.asks_a_service(plan, step))
    rows = list(replay_steps(steps, history, frozen, audited.run, executor, lambda text: None))
    engine = engine_to_dict(executor.identity)
    same_world = digest_value(resolved_environment()) in history.allowed_environment and engine in [
        dict(body.engine) for body in history.opens
    ]
    n_same = sum(not row.differences for row in rows)
    if as_json:
        echo_json(
            {
                "name": name,
                "seed": seed,
                "same_engine_and_environment": same_world,
                "n_same": n_same,
                "n_steps_judged_by_a_service": n_asked,
                "steps": [{"step": row.step, "differences": list(row.differences)} for row in rows],
            }
        )
    else:
        for row in rows:
            click.echo(f"  {'same' if not row.differences else 'DIFF'}  {row.step}")
            for difference in row.differences:
                click.echo(f"        {difference}")
        world = "the recorded engine and versions" if same_world else "another engine or versions"
        click.echo(
            f"replay of {name} on {world}: {n_same} of {len(rows)} steps gave the same bytes"
        )
        if n_asked:
            click.echo(f"  {n_asked} steps asked a judge over the network and were not drawn")
    return 0 if n_same == len(rows) else 1
