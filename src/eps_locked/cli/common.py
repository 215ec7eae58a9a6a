"""What several commands share: options, the clock, and measuring our surroundings."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import click

from eps_locked import files
from eps_locked.domain.clock import parse_time
from eps_locked.errors import RefusedError
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


def write_folder(folder: Path, contents: Mapping[str, bytes]) -> None:
    """All files, or none where one exists that would change.

    Raises RefusedError for such a file, naming it.
    """
    missing = {}
    for name, data in contents.items():
        path = folder / name
        if not (path.exists() or path.is_symlink()):
            missing[path] = data
        elif files.read_bytes(path) != data:
            raise RefusedError(
                str(path),
                problem="exists, holds something else and is never overwritten",
                next_step="choose another --out",
            )
    files.make_folder(folder)
    for path, data in missing.items():
        files.write_once(path, data)
