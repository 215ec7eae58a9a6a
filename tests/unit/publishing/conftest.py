"""A finished, sealed study bound to this very program, with scores and a look; and its folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eps_locked.cli.publish import prepare
from eps_locked.lock.provenance import source_tree
from eps_locked.publishing.publication import Publication, write
from sim.simulator import StudySimulator, scored_contexts, scored_plan

Row = dict[str, Any]


@pytest.fixture(scope="session")
def _published(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[StudySimulator, Path, Publication]:
    root = tmp_path_factory.mktemp("published")
    study = StudySimulator(
        root=root / "study",
        plan=scored_plan(),
        contexts=scored_contexts(),
        code=source_tree(),
    ).seal()
    study.run_all()
    study.submit()
    study.check()
    study.look()
    study.check()
    publication = publication_of(study)
    assert write(publication, root / "out")
    return study, root / "out", publication


@pytest.fixture
def published(
    _published: tuple[StudySimulator, Path, Publication],
) -> tuple[StudySimulator, Path]:
    """The study and the folder written from it: shared, to be read only."""
    study, out, _ = _published
    return study, out


@pytest.fixture
def publication(_published: tuple[StudySimulator, Path, Publication]) -> Publication:
    """What was written to that folder."""
    return _published[2]


def publication_of(study: StudySimulator, **options: Any) -> Publication:
    return prepare(study.workspace, study.audit(), **options)


@pytest.fixture(scope="session")
def publish() -> Callable[..., Publication]:
    """``publish(study)`` -> what would be published of it."""
    return publication_of


def rows_of(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


@pytest.fixture(scope="session")
def rows() -> Callable[[Path], list[Row]]:
    """``rows(path)`` -> the rows of a JSON Lines file."""
    return rows_of
