"""``metric``: which metrics there are, what they get to see, and running one in its box."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import click

from eps_locked import files
from eps_locked.canonical import decode, digest_bytes
from eps_locked.cli.common import F, echo_json, json_option, now, root_option, workspace_at
from eps_locked.cli.surroundings import ModelFolder
from eps_locked.domain.execution import StepInputs
from eps_locked.domain.model import TrainingRow
from eps_locked.domain.steps import Step
from eps_locked.errors import EpsLockedError, MalformedInputError, RefusedError
from eps_locked.lock.freeze import SourceReader, load_plan
from eps_locked.lock.gate import verify_model
from eps_locked.lock.record import RunRecord, terms_of
from eps_locked.lock.workspace import FrozenManifest, Workspace
from eps_locked.metrics.interface import Reading, Track
from eps_locked.metrics.loading import Plugin, find, find_file, installed
from eps_locked.metrics.materials import StudyWords, export_materials
from eps_locked.metrics.sandbox import Allowed, Job, Limits, Outcome, require_landlock, run
from eps_locked.models.folder import list_model_files
from eps_locked.report.marks import plain_text
from eps_locked.scoring.predictor import Predictor, predictor_bytes
from eps_locked.studies.common.material import read_written_rows
from eps_locked.studies.common.sources import read_material_value
from eps_locked.studies.eps.derive import derived_rows
from eps_locked.studies.eps.plan import EpsPlan, TaughtBehaviour
from eps_locked.studies.eps.readings import Readings
from eps_locked.studies.eps.taught.derive import mean_prior, taught_rows
from eps_locked.studies.eps.taught.outcomes import last_answers
from eps_locked.studies.eps.taught.records import (
    COMPLETIONS_FILE,
    PRIOR_FILE,
    JudgedAnswers,
    answers_from_files,
)

_DESCRIBE_LIMITS = Limits(timeout_s=60)


def track_option(function: F) -> F:
    """``--track``: what a metric is given besides the base model and the materials."""
    return click.option(
        "--track",
        type=click.Choice(["predictive", "post_hoc"]),
        default="predictive",
        show_default=True,
        help="Predictive: base model and materials. Post-hoc: adapters and open cells besides.",
    )(function)


@click.group("metric")
def metric() -> None:
    """List metrics, export what they may see, run one where it can see nothing else."""


@metric.command("list")
@json_option
def list_command(as_json: bool) -> None:
    """Every installed metric: track, polarity, author, title. Each is asked in its own sandbox."""
    rows = [_described(plugin) for plugin in installed()]
    if as_json:
        echo_json({"metrics": rows})
        return
    width = max(len(row["name"]) for row in rows)
    for row in rows:
        if "error" in row:
            click.echo(plain_text(f"{row['name']:<{width}}  {row['source']}: {row['error']}"))
            continue
        polarity = f"larger: {row['polarity']} transfer"
        line = f"{row['track']:<10}  {polarity:<21}  {row['title']} ({row['author']})"
        click.echo(plain_text(f"{row['name']:<{width}}  {line}"))
        click.echo(plain_text(f"{'':<{width}}  {row['description']} [{row['source']}]"))


def _described(plugin: Plugin) -> dict[str, str]:
    row = {"name": plugin.name, "source": f"{plugin.kind} {plugin.module}:{plugin.attribute}"}
    try:
        head = run(Job(plugin=plugin), _DESCRIBE_LIMITS).head
    except EpsLockedError as error:
        # One broken package must not hide the others.
        return {**row, "error": str(error).split("\n", maxsplit=1)[0]}
    return {**row, **{key: value for key, value in head.items() if key != "metric"}}


@metric.command("materials")
@click.argument("name")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    required=True,
    help="New folder to write; never overwritten.",
)
@track_option
@root_option
@json_option
def materials_command(name: str, out: Path, track: str, root: Path, as_json: bool) -> None:
    """Export what a metric on NAME gets to see: canonical JSON, every file listed by digest."""
    workspace = workspace_at(root)
    frozen = workspace.load_manifest(name)
    index = _export(workspace, frozen, out.absolute(), cast(Track, track))
    if as_json:
        echo_json(index)
        return
    click.echo(
        f"{out}: {len(index['files'])} files of {name}, {track} track; index.json lists them"
    )
    for line in index["licences"]:
        click.echo(plain_text(f"  {line['what']}: {line['licence']}. {line['provenance']}"))


@metric.command("run")
@click.argument("name")
@click.argument("metric_id", metavar="[ID]", required=False)
@click.option("--plugin", metavar="FILE:ATTR", help="A metric under development, not installed.")
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    help="Predictor document to write; never overwritten.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=600.0,
    show_default=True,
    help="Seconds after which the metric is stopped.",
)
@click.option(
    "--memory-gib",
    type=click.FloatRange(min=0, min_open=True),
    help="Bound on the metric's address space.",
)
@click.option("--gpu", is_flag=True, help="Let the metric use the NVIDIA devices of this machine.")
@track_option
@root_option
@json_option
def run_command(
    name: str,
    metric_id: str | None,
    plugin: str | None,
    out: Path,
    timeout: float,
    memory_gib: float | None,
    gpu: bool,
    track: str,
    root: Path,
    as_json: bool,
) -> None:
    """Compute metric ID (or FILE:ATTR) for every cell of NAME and write a predictor document.

    The metric runs in a process of its own. On the predictive track the kernel (Landlock) keeps
    it from adapters, results and sealed cells, and it is refused where the kernel cannot.
    """
    chosen = _chosen(metric_id, plugin)
    if out.exists() or out.is_symlink():
        raise RefusedError(
            str(out), problem="exists and is never overwritten", next_step="choose another --out"
        )
    if track == "predictive":
        require_landlock()
    memory = None if memory_gib is None else int(memory_gib * (1 << 30))
    outcome = run_metric(
        workspace_at(root),
        name,
        chosen,
        track=cast(Track, track),
        limits=Limits(timeout_s=timeout, memory_bytes=memory),
        gpu=gpu,
    )
    assert outcome.predictor is not None
    data = predictor_bytes(outcome.predictor)
    files.write_once(out.absolute(), data)
    if as_json:
        echo_json(_run_document(outcome, data, out))
        return
    _print_sandbox(outcome)
    predictor = outcome.predictor
    blind = ", each with its behaviour-blind value" if predictor.blind else ""
    click.echo(
        plain_text(
            f"{predictor.metric}: {len(predictor.values)} cells of {name}{blind}, "
            f"{outcome.seconds:.1f} s"
        )
    )
    click.echo(f"  {out}: {digest_bytes(data)}")
    click.echo(f"  next: eps-locked score --tensor TENSOR --predictor {out}")


def run_metric(
    workspace: Workspace,
    name: str,
    plugin: Plugin,
    *,
    track: Track = "predictive",
    limits: Limits,
    gpu: bool = False,
) -> Outcome:
    """Export the materials of a run to a temporary folder and run one metric on them."""
    frozen = workspace.load_manifest(name)
    plan = load_plan(frozen.read("frozen/plan.yaml"), thing="frozen/plan.yaml")
    model = ModelFolder(plan, workspace.root)
    verify_model(frozen.manifest, model.records())
    folder = model.path()
    with tempfile.TemporaryDirectory(prefix="eps-locked-materials-") as temporary:
        out = Path(temporary).resolve() / name
        _export(workspace, frozen, out, track)
        job = Job(
            plugin=plugin,
            track=track,
            materials=out,
            cells=tuple((b, i, j) for b, i, j in _read(out, "cells.json")["cells"]),
            model_folder=folder,
            model_files=_real_files(folder),
            adapters=_adapters(out, track),
            protected=protected_folders(workspace),
            must_fail=(frozen.folder / "manifest.json", workspace.run(name).ledger_path),
            gpu=gpu,
        )
        return run(job, limits)


def protected_folders(workspace: Workspace) -> tuple[Path, ...]:
    """Where plans, records and keys lie; nothing a metric may read lies there, or above."""
    below = ("plans", "manifests", "runs", "smoke", ".demo")
    return (*(workspace.root / name for name in below), Path.home() / ".ssh")


def study_words(frozen: FrozenManifest) -> StudyWords:
    """How the ``eps`` study spells readings and training rows."""
    plan = load_plan(frozen.read("frozen/plan.yaml"), thing="frozen/plan.yaml")
    section = EpsPlan.of(plan)

    def rows(step: Step, inputs: StepInputs) -> Sequence[TrainingRow]:
        behaviour = section.behaviour(step.params["behaviour"])
        if isinstance(behaviour, TaughtBehaviour):
            return taught_rows(step, inputs, section, behaviour).rows
        return derived_rows(step, inputs, section, behaviour).rows

    def written(row: str) -> dict[tuple[str, str], str]:
        behaviour = section.behaviour(row)
        if not isinstance(behaviour, TaughtBehaviour):
            return {}
        path = behaviour.written_rows
        reader = SourceReader(fetch=lambda one, thing: frozen.read(f"frozen/sources/{one}"))
        value = read_material_value(reader, path, thing="written_rows", part="rows")
        found = {}
        for one in read_written_rows(value, path):
            found["positive", one.item.id] = one.positive
            if one.negative is not None and behaviour.negatives == "written":
                found["negative", one.item.id] = one.negative
        return found

    return StudyWords(readings=_readings, prior=_prior, rows=rows, written=written)


def _readings(contents: Mapping[str, bytes], thing: str) -> list[Reading]:
    if COMPLETIONS_FILE in contents:
        judged = {COMPLETIONS_FILE: contents[COMPLETIONS_FILE]}
        _, _, answers = answers_from_files(judged, thing)
        return [
            Reading(
                item=answer.item,
                token_ids=answer.token_ids,
                text=answer.text,
                stop_reason=answer.stop_reason,
                log_prob=None,
            )
            for answer in last_answers(answers).values()
        ]
    return [
        Reading(
            item=answer.item,
            token_ids=answer.token_ids,
            text=answer.text,
            stop_reason=answer.stop_reason,
            log_prob=answer.own.log_prob if answer.has_slot else None,
        )
        for answer in Readings.from_files(contents, thing).answers
    ]


def _prior(contents: Mapping[str, bytes], thing: str) -> float | None:
    if PRIOR_FILE not in contents:
        return None
    return mean_prior(JudgedAnswers.from_files(contents, thing))


def _export(
    workspace: Workspace, frozen: FrozenManifest, out: Path, track: Track
) -> dict[str, Any]:
    folder = workspace.run(frozen.manifest.name)
    history = RunRecord.load(folder, terms_of(frozen), now).history
    return export_materials(out, frozen, folder, history, study_words(frozen), track=track)


def _chosen(metric_id: str | None, plugin: str | None) -> Plugin:
    if (metric_id is None) == (plugin is None):
        raise MalformedInputError(
            "metric run",
            expected="either an installed metric's ID or --plugin FILE:ATTR",
            found="both" if plugin else "neither",
            next_step="eps-locked metric list",
        )
    return find(metric_id) if metric_id is not None else find_file(str(plugin))


def _read(folder: Path, name: str) -> dict[str, list[list[str]]]:
    value: dict[str, list[list[str]]] = decode(files.read_bytes(folder / name), thing=name)
    return value


def _adapters(folder: Path, track: Track) -> tuple[Path, ...]:
    if track == "predictive":
        return ()
    listed = decode(files.read_bytes(folder / "adapters.json"), thing="adapters.json")
    return tuple(Path(one["folder"]) for one in listed["adapters"])


def _real_files(folder: Path | None) -> tuple[Path, ...]:
    """Where the base model's bytes really lie: a hub snapshot's files are links to blobs."""
    if folder is None:
        return ()
    return tuple(path for _, path in list_model_files(folder).values())


def _print_sandbox(outcome: Outcome) -> None:
    if outcome.landlock_abi is None:
        click.echo("sandbox: none; the post-hoc track does not need one, and this kernel has none")
        return
    click.echo(f"sandbox: Landlock ABI {outcome.landlock_abi} and seccomp; no network, no programs")
    for access, why, paths in _grouped(outcome.allowed):
        verb = {"read": "reads", "write": "writes", "device": "uses", "list": "lists"}[access]
        click.echo(plain_text(f"  {verb:<6} {why}: {', '.join(paths)}"))
    click.echo("  and nothing else")


def _grouped(allowed: Iterable[Allowed]) -> list[tuple[str, str, list[str]]]:
    groups: dict[tuple[str, str], list[str]] = {}
    for one in allowed:
        groups.setdefault((one.access, one.why), []).append(str(one.path))
    return [(access, why, paths) for (access, why), paths in groups.items()]


def _run_document(outcome: Outcome, data: bytes, out: Path) -> dict[str, object]:
    predictor = cast(Predictor, outcome.predictor)
    return {
        **outcome.head,
        "cells": len(predictor.values),
        "blind": bool(predictor.blind),
        "file": str(out),
        "digest": digest_bytes(data),
        "seconds": outcome.seconds,
        "landlock_abi": outcome.landlock_abi,
        "allowed": [
            {"path": str(one.path), "access": one.access, "why": one.why} for one in outcome.allowed
        ],
    }
