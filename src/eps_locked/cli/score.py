"""``score``: metrics against a tensor, ours or anyone's; a leaderboard, and a document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from eps_locked.canonical import encode
from eps_locked.cli.common import echo_json, json_option
from eps_locked.errors import MalformedInputError, RefusedError
from eps_locked.files import write_once
from eps_locked.scoring.contexts import ContextFacts, read_contexts
from eps_locked.scoring.leaderboard import leaderboard_lines
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
@click.option(
    "--tensor",
    "tensors",
    type=_FILE,
    multiple=True,
    required=True,
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
@click.option(
    "--seed", type=click.IntRange(min=0), default=1, show_default=True, help="Seed of every stream."
)
@click.option("--resamples", type=int, default=2000, show_default=True, help="Bootstrap resamples.")
@click.option(
    "--permutations",
    type=int,
    default=999,
    show_default=True,
    help="Relabellings behind every null.",
)
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
@json_option
def score_command(
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
    seed: int,
    resamples: int,
    permutations: int,
    processes: int,
    out: Path | None,
    as_json: bool,
) -> None:
    """Score metrics against a tensor G[b, i -> j], open cells only.

    The tensor may be one of ours or any table of cells; docs/scoring.md gives the columns, and what
    each number means. Nothing is written when a file is refused.
    """
    if out is not None and out.exists():
        raise RefusedError(str(out), problem="exists", next_step="choose another name")
    facts = _context_facts(contexts, context_columns)
    options = TableOptions(
        behaviour=behaviour,
        unit=unit,
        columns=columns,
        direction=direction,
        rates=rates,
        room=room,
        implant_threshold=implant_threshold,
        contexts=facts,
    )
    tensor = read_tensor([(path.name, path.read_bytes()) for path in tensors], options)
    only = tensor.behaviours[0] if len(tensor.tables) == 1 else behaviour
    found = _predictors(
        predictors,
        metrics,
        polarities,
        {"track": track, "author": author, "behaviour": only, "columns": predictor_columns},
    )
    document = score_open(
        tensor, found, _settings(seed, resamples, permutations, roles), n_processes=processes
    )
    data = encode(document)
    if out is not None:
        write_once(out, data)
    if as_json:
        echo_json(document)
        return
    for line in leaderboard_lines(document):
        click.echo(line)
    if out is not None:
        click.echo(f"\nwritten: {out}")


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
