"""Measures what a permit depends on: our sources, installed versions, the base model's files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

import click

from eps_locked.domain.ledger import FileRecord
from eps_locked.domain.plan import ModelSource, Plan
from eps_locked.lock.gate import Surroundings
from eps_locked.lock.provenance import resolved_environment, source_tree
from eps_locked.studies.common.wiring import model_records, obtain_model


class ModelFolder:
    """The plan's base model on this disk; fetched and converted at first need, hashed once."""

    def __init__(self, plan: Plan, root: Path) -> None:
        self._plan, self._root = plan, root
        self._base = cache(self._obtain)
        self.records = cache(self._records)

    def path(self, source: ModelSource | None = None) -> Path | None:
        """The base model's folder, or that of another source of the plan, held against nothing."""
        if source is None:
            return self._base()
        base_model = replace(self._plan.base_model, source=source)
        return obtain_model(replace(self._plan, base_model=base_model), self._root, _say)

    def _obtain(self) -> Path | None:
        return obtain_model(self._plan, self._root, _say)

    def _records(self) -> Mapping[str, FileRecord]:
        return model_records(self.path())


def measure(model: ModelFolder) -> Surroundings:
    """Surroundings now."""
    return Surroundings(
        code=source_tree(), environment=resolved_environment(), model_files=model.records
    )


def _say(text: str) -> None:
    click.echo(f"model: {text}", err=True)
