"""Reading a predictor file, and what its author must declare when it is only a table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from eps_locked import files
from eps_locked.scoring.predictor import Predictor, PredictorOptions, read_predictor

F = TypeVar("F", bound=Callable[..., Any])


def predictor_options(function: F) -> F:
    """``--metric --polarity --track --author --title``: for tables, which say none of it."""
    for option in (
        click.option("--title", help="For a table: a title.  [default: the metric's id]"),
        click.option("--author", help="For a table: whose metric it is."),
        click.option(
            "--track",
            type=click.Choice(["predictive", "post_hoc"]),
            help="For a table: from the base model and shipped materials only, or with adapters.",
        ),
        click.option(
            "--polarity",
            type=click.Choice(["more", "less"]),
            help="For a table: whether a larger value means more or less transfer.",
        ),
        click.option("--metric", help="For a table: the metric's id."),
    ):
        function = option(function)
    return function


def read_predictor_file(
    path: Path,
    *,
    metric: str | None,
    polarity: str | None,
    track: str | None,
    author: str | None,
    title: str | None,
) -> Predictor:
    """A predictor from a file; a document declares everything itself and takes no option."""
    kind = path.suffix.lower().removeprefix(".")
    declared = {
        "--metric": metric,
        "--polarity": polarity,
        "--track": track,
        "--author": author,
    }
    data = files.read_bytes(path, limit=1 << 30)
    if kind == "json" and data.lstrip()[:1] == b"{":
        given = [name for name, value in declared.items() if value is not None]
        if given or title is not None:
            extra = ", ".join(given or ["--title"])
            raise click.UsageError(f"{path.name} declares its metric itself; leave out {extra}")
        return read_predictor(data, "json", thing=str(path))
    missing = [name for name, value in declared.items() if value is None]
    if missing:
        raise click.UsageError(
            f"{path.name} is a table and says nothing of its metric; add {', '.join(missing)}"
        )
    options = PredictorOptions(
        metric=str(metric),
        polarity=str(polarity),
        track=str(track),
        author=str(author),
        title=title,
    )
    return read_predictor(data, kind, thing=str(path), options=options)
