"""``drift``: what the statistics of study drift say about replies, ours or anybody's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from eps_locked import files
from eps_locked.cli.common import echo_json, json_option, write_folder
from eps_locked.errors import MalformedInputError
from eps_locked.report.drift.page import table_files
from eps_locked.report.marks import plain_text
from eps_locked.studies.drift.analysis import analyse
from eps_locked.studies.drift.claims import claims
from eps_locked.studies.drift.plan import AnalysisSettings
from eps_locked.studies.drift.user_table import TableOptions, UserTable, read_user_table

_PERMUTATIONS = 10_000


@click.group("drift")
def drift() -> None:
    """Drift of a model's dispositions: analyse replies."""


@drift.command("analyse")
@click.argument("table", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--reference", required=True, metavar="ARM", help="The arm that drifts are counted from."
)
@click.option(
    "--aligned",
    multiple=True,
    metavar="CLASS",
    help="A label that counts as aligned. Repeat for more; one option serves all batteries.",
)
@click.option(
    "--no-stance",
    multiple=True,
    metavar="CLASS",
    help="A label of replies that take no position; they are treated both ways.",
)
@click.option("--score", is_flag=True, help="The column score is the outcome, not the label.")
@click.option(
    "--rate",
    is_flag=True,
    help="Scores are shares from 0 to 1, and drifts are percentage points.",
)
@click.option("--seed", type=click.IntRange(min=0), required=True, help="Of the resamples.")
@click.option(
    "--resamples", type=click.IntRange(min=1), default=10_000, show_default=True, help="Of stems."
)
@click.option(
    "--level",
    type=click.FloatRange(0.5, 1, min_open=True, max_open=True),
    default=0.95,
    show_default=True,
    help="Of the intervals; a drift is called one below 1 - LEVEL.",
)
@click.option(
    "--margin",
    type=click.FloatRange(min=0, min_open=True),
    help="Drifts within it are taken for none, in the unit of the drift.  [default: 5 points]",
)
@click.option(
    "--wanted",
    type=click.FloatRange(min=0, min_open=True),
    help="The drift that should be seen; the stems it takes are said.  [default: 5 points]",
)
@click.option(
    "--minimum-stems",
    type=click.IntRange(min=2),
    default=12,
    show_default=True,
    help="With fewer there is no verdict.",
)
@click.option(
    "--rewordings", type=click.IntRange(min=1), help="Promised for every stem; else not checked."
)
@click.option(
    "--no-null",
    is_flag=True,
    help="One sample a probe will do: no null tests and no noise shares, which is said everywhere.",
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for the page, drift.json, claims.txt and CSV tables.",
)
@json_option
def analyse_command(
    table: Path,
    reference: str,
    aligned: tuple[str, ...],
    no_stance: tuple[str, ...],
    score: bool,
    rate: bool,
    seed: int,
    resamples: int,
    level: float,
    margin: float | None,
    wanted: float | None,
    minimum_stems: int,
    rewordings: int | None,
    no_null: bool,
    out: Path | None,
    as_json: bool,
) -> None:
    """Analyse TABLE (CSV, Parquet, JSON or JSON Lines), one reply a row, as the study does.

    Columns: arm, stem, probe, sample, and label or score; docs/drift-tables.md names the optional
    ones. Stems are the independent unit: rewordings and samples of one are resampled with it.
    Nothing here was promised before the replies were known, so all of it is exploratory.
    """
    options = TableOptions(
        reference=reference,
        aligned=aligned,
        no_stance=no_stance,
        use_score=score,
        is_rate=rate,
        n_rewordings=rewordings,
    )
    read = read_user_table(table.name, files.read_bytes(table.absolute()), options)
    settings = AnalysisSettings(
        n_resamples=resamples,
        confidence_level=level,
        # Rounded: 1 - 0.95 is not 0.05 to the last digit, and a document says 0.05.
        equivalence_level=round(1 - 2 * (1 - level), 12),
        alpha=round(1 - level, 12),
        power=0.8,
        margin_points=_in_unit("--margin", margin, read),
        margin_grade=0.3,
        wanted_points=_in_unit("--wanted", wanted, read),
        minimum_stems=minimum_stems,
        n_permutations=_PERMUTATIONS,
        seed=seed,
    )
    document = analyse(
        read.rows, read.arms, read.batteries, settings, unit=read.unit, null_tests=not no_null
    )
    sentences = claims(document)
    if out is not None:
        write_folder(out.absolute(), table_files(document, sentences, f"Drift in {table.name}"))
    if as_json:
        echo_json(document)
        return
    _echo(document, sentences, read)
    if out is not None:
        click.echo(f"{out}: index.html, drift.json, claims.txt and a CSV file for each table")


def _in_unit(option: str, value: float | None, read: UserTable) -> float:
    if value is not None:
        return value
    if read.unit == "points":
        return 5.0
    raise MalformedInputError(
        option,
        expected="a number of score units: nothing else says how large a change matters",
        found="none",
        next_step=f"give {option}, or --rate if scores are shares from 0 to 1",
    )


def _echo(document: Mapping[str, Any], sentences: Sequence[str], read: UserTable) -> None:
    click.echo("exploratory: margin, classes and reference were given after the replies were known")
    if not document["settings"]["null_tests"]:
        click.echo("no null test was made: whether noise alone looks like this is not known")
    if read.ignored_columns:
        click.echo(plain_text(f"not read: column {', '.join(read.ignored_columns)}"))
    for arm in document["arms"]:
        for battery, found in arm["batteries"].items():
            click.echo(plain_text(_arm_line(document, arm["arm"], battery, found)))
    for null in document["null_summary"]:
        click.echo(
            plain_text(
                f"null tests, {null['battery']}: {null['n_excluding']} of {null['n']} intervals of "
                f"an arm against itself leave zero out; typical difference "
                f"{null['typical_absolute']:.2g} {document['unit']}"
            )
        )
    for one in sentences:
        click.echo(plain_text(one))


def _arm_line(document: Mapping[str, Any], arm: str, battery: str, found: Mapping[str, Any]) -> str:
    factor, unit = (100, " %") if document["unit"] == "points" else (1, "")
    said = f"{arm}, {battery}: "
    if found["rate"] is None:
        said += "nothing scored"
    else:
        said += f"{factor * found['rate']:.4g}{unit}"
        if found["low"] is not None:
            said += f" ({factor * found['low']:.4g} to {factor * found['high']:.4g})"
    said += f", {found['n_scored']} of {found['n_replies']} replies scored"
    unscored = ", ".join(f"{status} {n}" for status, n in found["unscored"].items())
    return f"{said} ({unscored})" if unscored else said
