"""What several commands share: options, the clock, and measuring our surroundings."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import click

from eps_locked.domain.clock import parse_time
from eps_locked.lock.workspace import Workspace

F = TypeVar("F", bound=Callable[..., Any])


def root_option(function: F) -> F:
    """``--root``: the folder that holds plans/, manifests/ and runs/."""
    return click.option(
        "--root",
        type=click.Path(exists=True, file_okay=False, path_type=Path),
        default=Path("."),
        show_default=True,
        help="Folder that holds plans/, manifests/ and runs/.",
    )(function)


def json_option(function: F) -> F:
    """``--json``: print one JSON document instead of text."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")(
        function
    )


def at_option(function: F) -> F:
    """``--at``: the time to act at, so that a repeated run can be byte-identical."""
    return click.option(
        "--at",
        metavar="TIME",
        help="Act at this UTC time (YYYY-MM-DDTHH:MM:SSZ) instead of now.",
    )(function)


def now() -> datetime:
    """The wall clock, whole seconds, UTC."""
    return datetime.now(UTC).replace(microsecond=0)


def moment(at: str | None) -> datetime:
    """The time a command acts at."""
    return now() if at is None else parse_time(at, thing="--at")


def workspace_at(root: Path) -> Workspace:
    return Workspace(root=root.resolve())


def echo_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2, ensure_ascii=False, sort_keys=True))
