"""``run-phase`` and ``status``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from eps_locked import files
from eps_locked.canonical import short
from eps_locked.cli.common import echo_json, json_option, now, root_option, workspace_at
from eps_locked.cli.progress import PhaseProgress
from eps_locked.cli.surroundings import ModelFolder, measure
from eps_locked.domain.ledger import Root
from eps_locked.domain.plan import MS_PER_HOUR
from eps_locked.domain.steps import Step
from eps_locked.errors import RefusedError
from eps_locked.lock.freeze import load_plan, manifest_differences
from eps_locked.lock.gate import open_phase, read_manifest
from eps_locked.lock.record import RunRecord, terms_of
from eps_locked.lock.workspace import FrozenManifest, Workspace
from eps_locked.report.marks import plain_text
from eps_locked.runners.loop import run_phase
from eps_locked.runners.subset import chosen_steps
from eps_locked.studies.common.wiring import load_judge, load_tokenizer
from eps_locked.studies.registry import study_of


@click.command("run-phase")
@click.argument("name")
@click.argument("phase")
@click.option("--authorization", help="Which document to use when several are valid.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    help="Smoke run: only so many steps, under smoke/, never evidence.",
)
@click.option(
    "--behaviour", "behaviours", multiple=True, help="Only the steps of this row (repeatable)."
)
@click.option(
    "--cells",
    "contexts",
    multiple=True,
    help="Only the steps of this train context, or of a pattern like 'persona_*' (repeatable).",
)
@root_option
def run_phase_command(
    name: str,
    phase: str,
    authorization: str | None,
    limit: int | None,
    behaviours: tuple[str, ...],
    contexts: tuple[str, ...],
    root: Path,
) -> int:
    """Run PHASE of NAME, or resume it. Does nothing unless every byte matches and it is authorized.

    With --behaviour or --cells a part of it, and what that part needs; the rest stays open for
    another day. A smoke run (--limit) needs its own authorization in its own folder: authorize
    with --smoke.

    Exit code 1 if the phase of a battery is complete and an axis has fewer verdicts than the plan
    asks for.
    """
    results = execute_phase(
        workspace_at(root),
        name,
        phase,
        authorization_name=authorization,
        limit=limit,
        behaviours=behaviours,
        contexts=contexts,
    )
    if results is None and limit is not None:
        click.echo(f"smoke: {limit} steps of {phase} ran under smoke/{name}; this is no evidence")
        return 0
    workspace = workspace_at(root)
    frozen = workspace.load_manifest(name)
    record = RunRecord.load(workspace.run(name), terms_of(frozen), now)
    if results is None:
        n_left = len(record.history.remaining(phase))
        click.echo(f"{phase} of {name}: the chosen part is done, {n_left} steps are left")
    else:
        click.echo(f"{phase} of {name}: complete, results {short(results)}")
    short_of = [] if results is None else _short_of(frozen, record, phase)
    for one in short_of:
        click.echo(plain_text(f"  not measured: {one}"))
    click.echo(f"  next: {_next_command(frozen, record)}")
    return 1 if short_of else 0


def _short_of(frozen: FrozenManifest, record: RunRecord, phase: str) -> list[str]:
    """What a battery's closed phase is short of, by its plan. In other studies a step without a
    score is an outcome like any other."""
    if frozen.manifest.study != "battery":
        return []
    from eps_locked.studies.battery.plan import BatteryPlan
    from eps_locked.studies.battery.shortfalls import short_steps

    done = record.history.done

    def read(step: str, output: str) -> Mapping[str, bytes]:
        artifact = done[step].outputs[output]
        return {name: record.run.artifact_file(artifact, name) for name in artifact.files}

    plan = load_plan(frozen.read("frozen/plan.yaml"), thing="frozen/plan.yaml")
    steps = record.history.terms.of_phase(phase)
    unscored = [step for step in steps if done[step.id].status == "unscored"]
    return short_steps(BatteryPlan.of(plan), unscored, read)


def execute_phase(
    workspace: Workspace,
    name: str,
    phase: str,
    *,
    authorization_name: str | None = None,
    limit: int | None = None,
    behaviours: Sequence[str] = (),
    contexts: Sequence[str] = (),
) -> str | None:
    """Everything ``run-phase`` does, for it and for the demo. Returns the results digest."""
    frozen = read_manifest(workspace, name)
    root: Root = "runs" if limit is None else "smoke"
    run = workspace.run(name, root)
    if not run.folder.is_dir():
        smoke = " --smoke" if root == "smoke" else ""
        raise RefusedError(
            f"authorization for {phase}",
            expected=f"a document in {run.folder / 'authorizations'}",
            found="no run folder",
            next_step=f"just authorize {name} {phase}{smoke}",
        )
    with files.exclusive_lock(run.folder):
        # The frozen plan, verified, chooses the model; the gate then requires everything else.
        plan = load_plan(frozen.read("frozen/plan.yaml"), thing="frozen/plan.yaml")
        model = ModelFolder(plan, workspace.root)
        study = study_of(plan)
        permit, record = open_phase(
            workspace,
            frozen,
            run,
            phase,
            surroundings=measure(model),
            refreeze=lambda one: manifest_differences(
                one, study.freeze, load_tokenizer(plan, model.path())
            ),
            clock=now,
            authorization_name=authorization_name,
        )
        executor = study.executor(plan, model.path, load_judge)

        def choose(left: Sequence[Step]) -> Sequence[Step]:
            whole = record.history.terms.of_phase(phase)
            return chosen_steps(whole, left, behaviours, contexts)

        # Asked before anything is written: a name that no step carries must change nothing.
        steps = choose(record.history.remaining(phase))
        with PhaseProgress(tuple(steps), device=plan.engine.device) as progress:
            return run_phase(permit, record, frozen, executor, progress, limit=limit, choose=choose)


@click.command("status")
@click.argument("name")
@root_option
@json_option
def status_command(name: str, root: Path, as_json: bool) -> None:
    """Say how far NAME has come, by its ledger; verifies the chain, not the artifacts."""
    workspace = workspace_at(root)
    frozen = workspace.load_manifest(name)
    record = RunRecord.load(workspace.run(name), terms_of(frozen), now)
    history = record.history
    phases = []
    for phase in frozen.manifest.phases:
        total = len(history.terms.of_phase(phase))
        phases.append(
            {
                "phase": phase,
                "steps": total,
                "finished": total - len(history.remaining(phase)),
                "closed": phase in history.closed,
                "device_hours": history.spent_ms.get(phase, 0) / MS_PER_HOUR,
                "aborted": sum(body.phase == phase for body in history.aborted),
            }
        )
    document = {
        "name": name,
        "manifest": frozen.digest,
        "ledger_head": record.reader.head,
        "entries": record.reader.n_read,
        "amendments": len(history.amendments),
        "phases": phases,
        "next": _next_command(frozen, record),
    }
    if as_json:
        echo_json(document)
        return
    click.echo(f"{name}: manifest {short(frozen.digest)}, {record.reader.n_read} ledger entries")
    for row in phases:
        state = "closed" if row["closed"] else "open"
        click.echo(
            f"  {row['phase']}: {row['finished']} of {row['steps']} steps, {state}, "
            f"{row['device_hours']:.4f} device-hours, {row['aborted']} aborted attempts"
        )
    click.echo(f"  next: {document['next']}")


def _next_command(frozen: FrozenManifest, record: RunRecord) -> str:
    name = frozen.manifest.name
    for phase in frozen.manifest.phases:
        if phase not in record.history.closed:
            documents = record.run.signed_documents("authorizations")
            has_one = any(document.name.startswith(f"{phase}-") for document in documents)
            verb = "run-phase" if has_one else "authorize"
            return f"just {verb} {name} {phase}"
    return f"just check-evidence {name}"
