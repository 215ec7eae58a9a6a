"""``score``: metrics against a tensor, ours or anyone's; a leaderboard, and a document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from eps_locked.canonical import encode
from eps_locked.cli.common import echo_json, json_option, root_option, workspace_at
from eps_locked.cli.looks import finished_run
from eps_locked.errors import MalformedInputError, RefusedError
from eps_locked.files import write_once
from eps_locked.lock.gate import read_manifest
from eps_locked.report.score_text import score_text
from eps_locked.scoring.contexts import ContextFacts, read_contexts
from eps_locked.scoring.predictor import (
    POLARITIES,
    TRACKS,
    Predictor,
    PredictorOptions,
    read_predictor,
)
from eps_locked.scoring.reading import TableOptions, read_tensor
from eps_locked.scoring.score import score_open
from eps_locked.scoring.settings import ScoreSettings

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


def _pairs(
    click_ctx: click.Context, parameter: click.Parameter, values: Sequence[str]
) -> dict[str, str]:
    """``ours=theirs`` options to a mapping."""
    found: dict[str, str] = {}
    for value in values:
        ours, equals, theirs = value.partition("=")
        if not (ours and equals and theirs) or ours in found:
            raise click.BadParameter(f"{value!r}: expected OURS=THEIRS, each OURS once")
        found[ours] = theirs
    return found


@click.command("score")
@click.argument("name", required=False)
@click.option(
    "--tensor",
    "tensors",
    type=_FILE,
    multiple=True,
    help="tensor.json, or a table (CSV, Parquet, JSON records). Repeat for more behaviours.",
)
@click.option(
    "--predictor",
    "predictors",
    type=_FILE,
    multiple=True,
    help="A predictor document or table. Repeat for more metrics.",
)
@click.option(
    "--column",
    "columns",
    multiple=True,
    callback=_pairs,
    metavar="OURS=THEIRS",
    help="Read the tensor table's column THEIRS as OURS, for example g=delta.",
)
@click.option(
    "--contexts", type=_FILE, help="Table of contexts: id, family, group, split or held_out."
)
@click.option(
    "--context-column",
    "context_columns",
    multiple=True,
    callback=_pairs,
    metavar="OURS=THEIRS",
    help="The same for the table of contexts.",
)
@click.option("--behaviour", help="Behaviour of tables without a behaviour column.")
@click.option("--unit", help="The unit every behaviour must be in.")
@click.option(
    "--direction",
    type=click.Choice(["up", "down"]),
    default="up",
    show_default=True,
    help="Whether more of the behaviour makes the value rise or fall.",
)
@click.option(
    "--rates", is_flag=True, help="base and trained are shares in [0, 1]; flag floors and ceilings."
)
@click.option(
    "--room",
    type=float,
    default=0.9,
    show_default=True,
    help="With --rates: least room the base must leave.",
)
@click.option(
    "--implant-threshold",
    type=float,
    help="Least diagonal change of a row that counts as implanted.",
)
@click.option(
    "--predictor-column",
    "predictor_columns",
    multiple=True,
    callback=_pairs,
    metavar="OURS=THEIRS",
    help="The same for predictor tables.",
)
@click.option(
    "--metric",
    "metrics",
    multiple=True,
    help="Id of each predictor table, in their order; default: the file's name.",
)
@click.option(
    "--polarity",
    "polarities",
    type=click.Choice(POLARITIES),
    multiple=True,
    help="Whether a larger value means more or less transfer: once, or once per predictor table.",
)
@click.option(
    "--track",
    type=click.Choice(TRACKS),
    default="predictive",
    show_default=True,
    help="Track of predictor tables.",
)
@click.option("--author", default="unstated", show_default=True, help="Author of predictor tables.")
@click.option(
    "--role",
    "roles",
    multiple=True,
    callback=_pairs,
    metavar="ROLE=METRIC",
    help="For the multiplicative combiner: source_prior, bystander_prior, gate, write.",
)
@click.option("--seed", type=click.IntRange(min=0), help="Seed of every stream.  [default: 1]")
@click.option("--resamples", type=int, help="Bootstrap resamples.  [default: 2000]")
@click.option("--permutations", type=int, help="Relabellings behind every null.  [default: 999]")
@click.option(
    "--processes",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    help="Processes; changes no number.",
)
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the score document here (canonical JSON); must not exist.",
)
@root_option
@json_option
def score_command(
    name: str | None,
    tensors: tuple[Path, ...],
    predictors: tuple[Path, ...],
    columns: dict[str, str],
    contexts: Path | None,
    context_columns: dict[str, str],
    behaviour: str | None,
    unit: str | None,
    direction: str,
    rates: bool,
    room: float,
    implant_threshold: float | None,
    predictor_columns: dict[str, str],
    metrics: tuple[str, ...],
    polarities: tuple[str, ...],
    track: str,
    author: str,
    roles: dict[str, str],
    seed: int | None,
    resamples: int | None,
    permutations: int | None,
    processes: int,
    out: Path | None,
    root: Path,
    as_json: bool,
) -> None:
    """Score metrics against a tensor G[b, i -> j], open cells only.

    NAME: a finished run, whose shipped baselines stand beside and whose frozen settings hold. With
    --tensor instead: a tensor of ours or any table of cells; docs/scoring.md gives the columns, and
    what each number means. Nothing is written when a file is refused.
    """
    if (name is None) == (not tensors):
        raise click.UsageError("give the NAME of a run, or --tensor FILE: one of the two")
    if out is not None and out.exists():
        raise RefusedError(str(out), problem="exists", next_step="choose another name")
    shared = {"track": track, "author": author, "columns": predictor_columns}
    if name is not None:
        _require_frozen_settings(seed, resamples, permutations, roles)
        workspace = workspace_at(root)
        finished = finished_run(workspace, read_manifest(workspace, name))
        [only] = [one.name for one in finished.section.behaviours][:1]
        found = _predictors(predictors, metrics, polarities, {**shared, "behaviour": only})
        document = finished.open_scores(found, n_processes=processes)
    else:
        options = TableOptions(
            behaviour=behaviour,
            unit=unit,
            columns=columns,
            direction=direction,
            rates=rates,
            room=room,
            implant_threshold=implant_threshold,
            contexts=_context_facts(contexts, context_columns),
        )
        tensor = read_tensor([(path.name, path.read_bytes()) for path in tensors], options)
        alone = tensor.behaviours[0] if len(tensor.tables) == 1 else behaviour
        found = _predictors(predictors, metrics, polarities, {**shared, "behaviour": alone})
        settings = _settings(
            1 if seed is None else seed, resamples or 2000, permutations or 999, roles
        )
        document = score_open(tensor, found, settings, n_processes=processes)
    data = encode(document)
    if out is not None:
        write_once(out, data)
    if as_json:
        echo_json(document)
        return
    click.echo(score_text(document), nl=False)
    if out is not None:
        click.echo(f"\nwritten: {out}")


def _require_frozen_settings(*given: object) -> None:
    """A run's scores are computed with the numbers frozen in its plan, and with no others."""
    if any(given):
        raise click.UsageError(
            "--seed, --resamples, --permutations and --role are frozen in the plan of a run; "
            "use --tensor on its tensor.json to try others"
        )


def _context_facts(
    path: Path | None, renamed: Mapping[str, str]
) -> Mapping[str, ContextFacts] | None:
    if path is None:
        if renamed:
            raise click.UsageError("--context-column needs --contexts")
        return None
    kind = path.suffix.lower().removeprefix(".")
    return read_contexts(path.read_bytes(), kind, thing=path.name, renamed=renamed)


def _predictors(
    paths: Sequence[Path],
    metrics: Sequence[str],
    polarities: Sequence[str],
    shared: Mapping[str, Any],
) -> list[Predictor]:
    kinds = {path: path.suffix.lower().removeprefix(".") for path in paths}
    tables = [path for path in paths if kinds[path] != "json"]
    if metrics and len(metrics) != len(tables):
        raise MalformedInputError(
            "--metric",
            expected=f"one for each of {len(tables)} predictor tables",
            found=len(metrics),
        )
    if tables and len(polarities) not in (1, len(tables)):
        raise MalformedInputError(
            "--polarity",
            expected=f"once, or once for each of {len(tables)} predictor tables",
            found=f"{len(polarities)} times",
            next_step="say whether a larger value means more or less transfer",
        )
    found = []
    for path in paths:
        options = None
        if path in tables:
            number = tables.index(path)
            options = PredictorOptions(
                metric=metrics[number] if metrics else path.stem.lower(),
                polarity=polarities[number if len(polarities) > 1 else 0],
                **shared,
            )
        found.append(
            read_predictor(path.read_bytes(), kinds[path], thing=path.name, options=options)
        )
    return found


def _settings(
    seed: int, resamples: int, permutations: int, roles: Mapping[str, str]
) -> ScoreSettings:
    usual = ScoreSettings()
    return ScoreSettings(
        seed=seed,
        n_resamples=resamples,
        n_permutations=permutations,
        n_part_permutations=min(usual.n_part_permutations, permutations),
        n_combiner_permutations=min(usual.n_combiner_permutations, permutations),
        roles={**usual.roles, **roles},
    )
