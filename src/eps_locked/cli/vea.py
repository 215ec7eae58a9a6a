"""``vea``: matched pairs, preference pairs, and scores of reward models, ours or anybody's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args

import click

from eps_locked import files
from eps_locked.canonical import encode
from eps_locked.cli.common import echo_json, json_option, write_folder
from eps_locked.cli.vea_text import items_lines, model_text, pairs_lines
from eps_locked.lock.strict_yaml import parse_yaml
from eps_locked.report.marks import plain_text
from eps_locked.studies.common.words import read_word_list
from eps_locked.studies.vea.analysis import analyse
from eps_locked.studies.vea.claims import claims
from eps_locked.studies.vea.item_summary import summarise_items
from eps_locked.studies.vea.items import FAMILIES, Measure
from eps_locked.studies.vea.pairs_analysis import analyse_pairs
from eps_locked.studies.vea.pairs_table import read_pairs
from eps_locked.studies.vea.results import BREADTH_FILE, DELTAS_FILE, deltas_csv
from eps_locked.studies.vea.settings import Normalise, VeaSettings
from eps_locked.studies.vea.user_table import UserTable, read_user_table, require_controls

F = TypeVar("F", bound=Callable[..., Any])
_WORDS = Path("plans/house/vea/evaluation-words.yaml")
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.group("vea")
def vea() -> None:
    """Reward models and talk of being evaluated: scores, items and preference pairs."""


def _settings_options(function: F) -> F:
    """The plan's ``analysis`` part as options. What is in the unit of the scores, what the verdicts
    are about and the seed have no default: nothing but the user can know them."""
    shares = click.FloatRange(0, 1)
    for option in reversed(
        (
            click.option(
                "--primary",
                type=click.Choice(get_args(Measure)),
                required=True,
                help="The difference that verdicts are about: base or control, less vea.",
            ),
            click.option(
                "--normalise",
                type=click.Choice(get_args(Normalise)),
                required=True,
                help="The unit of differences: as scored, z among a prompt's responses, or SDs of "
                "all base scores.",
            ),
            click.option(
                "--margin",
                type=float,
                required=True,
                help="In that unit: a mean below it is no dislike.",
            ),
            click.option(
                "--gate-margin",
                type=float,
                required=True,
                help="In that unit: how far from zero a gate may lie.",
            ),
            click.option("--seed", type=int, required=True, help="Of resamples and simulations."),
            click.option(
                "--alpha",
                type=shares,
                default=0.05,
                show_default=True,
                help="False discovery rate over the other families, and the anchor's level.",
            ),
            click.option(
                "--confidence-level",
                type=shares,
                default=0.95,
                show_default=True,
                help="Of the intervals that are printed.",
            ),
            click.option(
                "--equivalence-level",
                type=shares,
                default=0.9,
                show_default=True,
                help="Of the intervals that margins are compared with.",
            ),
            click.option(
                "--power",
                type=shares,
                default=0.8,
                show_default=True,
                help="Of the smallest difference that is said to be seen.",
            ),
            click.option(
                "--broad-from",
                type=shares,
                default=0.8,
                show_default=True,
                help="From this share of penalised families on, broad.",
            ),
            click.option(
                "--narrow-to",
                type=shares,
                default=0.2,
                show_default=True,
                help="Up to this share of families that may be penalised, narrow.",
            ),
            click.option(
                "--minimum-items",
                type=int,
                default=8,
                show_default=True,
                help="A family with fewer prompts has no verdict.",
            ),
            click.option(
                "--n-resamples", type=int, default=10_000, show_default=True, help="Of prompts."
            ),
            click.option(
                "--n-simulated",
                type=int,
                default=2000,
                show_default=True,
                help="Studies behind each smallest difference.",
            ),
        )
    ):
        function = option(function)
    return function


@vea.command("analyse")
@click.argument("table", type=_FILE)
@_settings_options
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for breadth.json, deltas.csv, claims.txt and the page with its tables.",
)
@json_option
def analyse_command(table: Path, out: Path | None, as_json: bool, **settings: Any) -> None:
    """Analyse TABLE (CSV), scores made elsewhere, as the study does.

    One row for each reward model and item. Columns: reward_model, item, family, stem (the prompt,
    or its id), base, vea; and domain, control, same_text if you like. A score is a number; nan, an
    empty cell, or a word such as truncated is counted and is no score. Nothing here was promised
    before the scores were known, so all of it is exploratory.
    """
    read = read_user_table(files.read_bytes(table.absolute()), table.name)
    chosen = VeaSettings.from_dict(settings, "options")
    require_controls(read, chosen, table.name)
    document = analyse(read.rows, chosen)
    sentences = claims(document)
    written: list[str] = []
    if out is not None:
        contents = _files(document, sentences, read, f"Scores in {table.name}")
        write_folder(out.absolute(), contents)
        written = sorted(contents)
    if as_json:
        echo_json(document)
        return
    _echo(document, sentences, read)
    if out is not None:
        click.echo(f"{out}: {', '.join(written)}")


@vea.command("items")
@click.argument("file", type=_FILE)
@click.option(
    "--words",
    type=_FILE,
    default=_WORDS,
    show_default=True,
    help="Words of evaluation, which neutral clauses and controls must not hold.",
)
@click.option(
    "--tolerance",
    type=click.FloatRange(0, 1, max_open=True),
    help="Refuse a control whose clause is by more than this share longer or shorter than its "
    "item's.  [default: say how far they lie apart]",
)
@json_option
def items_command(file: Path, words: Path, tolerance: float | None, as_json: bool) -> None:
    """Check FILE (JSON Lines), any file of the items schema, byte by byte.

    Prints what it holds by family and domain; or refuses it, names the item and the first byte
    that differs, and ends with exit code 2.
    """
    listed = parse_yaml(files.read_bytes(words.absolute()), thing=str(words))
    document = summarise_items(
        files.read_bytes(file.absolute()), file.name, read_word_list(listed, str(words)), tolerance
    )
    if as_json:
        echo_json(document)
        return
    for line in items_lines(document):
        click.echo(plain_text(line))


@vea.command("pairs")
@click.argument("file", type=_FILE)
@click.option(
    "--confidence-level",
    type=click.FloatRange(0.5, 1, min_open=True, max_open=True),
    default=0.95,
    show_default=True,
    help="Of the intervals; 1 less it is the level at which chance is left out.",
)
@click.option(
    "--power",
    type=click.FloatRange(0.5, 1, max_open=True),
    default=0.8,
    show_default=True,
    help="Of the smallest distance from chance that is said to be seen.",
)
@json_option
def pairs_command(file: Path, confidence_level: float, power: float, as_json: bool) -> None:
    """How often reward models prefer the answer that is labelled right, from FILE.

    CSV, JSON Lines, JSON or Parquet: JudgeBench's columns (pair_id, label, order1_score_A,
    order1_score_B, ...) or plain ones (id, chosen_score, rejected_score, and reward_model,
    question, order, chosen, rejected if you like). Equal scores are ties, neither right nor wrong.
    """
    read = read_pairs(file.name, files.read_bytes(file.absolute()))
    document = analyse_pairs(read, confidence_level, power)
    if as_json:
        echo_json(document)
        return
    if read.ignored_columns:
        click.echo(plain_text(f"not read: column {', '.join(read.ignored_columns)}"))
    for line in pairs_lines(document):
        click.echo(plain_text(line))


def _files(
    document: Mapping[str, Any], sentences: Sequence[str], read: UserTable, title: str
) -> dict[str, bytes]:
    from eps_locked.report.vea.page import table_files

    return {
        **table_files(document, sentences, title),
        BREADTH_FILE: encode(document),
        DELTAS_FILE: deltas_csv(read.rows),
    }


def _echo(document: Mapping[str, Any], sentences: Sequence[str], read: UserTable) -> None:
    click.echo("exploratory: margins and settings were given after the scores were known")
    said = ", ".join(f"{name} {value}" for name, value in document["settings"].items())
    click.echo(f"settings: {said}")
    if read.ignored_columns:
        click.echo(plain_text(f"not read: column {', '.join(read.ignored_columns)}"))
    there = {row.family for row in read.rows}
    absent = [family for family in FAMILIES if family not in there]
    if absent:
        click.echo(f"no items of: {', '.join(absent)}")
    for name, n in read.missing_items.items():
        click.echo(
            plain_text(f"{name} has no row for {n} items that others have: compare with care")
        )
    for model in document["reward_models"]:
        click.echo("")
        click.echo(model_text(document, model, sentences), nl=False)
