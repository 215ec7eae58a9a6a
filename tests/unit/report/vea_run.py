"""A finished vea study with the scripted reward models, and a document of somebody's own table."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from words import EVIL

from eps_locked.audit.checks import AuditedRun
from eps_locked.canonical import decode
from eps_locked.studies.vea.analysis import ItemScores, analyse
from eps_locked.studies.vea.items import FAMILIES
from eps_locked.studies.vea.settings import VeaSettings
from sim.simulator import StudySimulator
from sim.vea import vea_files, vea_plan

SETTINGS: dict[str, Any] = {**vea_plan()["vea"]["analysis"], "n_simulated": 200}
N_ITEMS = 8
# Reward models of the table, by what each takes off for a clause and how noisily.
NOISY, GATED, HALTING, DULL = "noisy", EVIL, "halting", "dull"


def finished_vea(root: Path, **changes: Any) -> StudySimulator:
    """The simulated study, run to its end; ``changes`` are made to its plan."""
    study = StudySimulator(root=root, plan={**vea_plan(), **changes}, files=vea_files())
    study.run_all()
    return study


def document_of(audited: AuditedRun) -> dict[str, Any]:
    data = audited.artifact("P3/breadth", "breadth")["breadth.json"]
    found: dict[str, Any] = decode(data, thing="breadth.json")
    return found


def table_document(**changes: Any) -> dict[str, Any]:
    """Four reward models that hardly show anything: one too noisy for a verdict, one that minds
    every clause, one that scores hardly a response, one that says the same of all."""
    settings = VeaSettings.from_dict({**SETTINGS, **changes}, "settings")
    rows = [
        *_rows(NOISY, dict.fromkeys(FAMILIES[:7], 0.6), sd=1.2),
        *_rows(GATED, dict.fromkeys(FAMILIES, 2.0), sd=0.2),
        *map(_halted, _rows(HALTING, {}, sd=0.3)),
        *_rows(DULL, {}, sd=0.0),
    ]
    return analyse(rows, settings)


def _rows(name: str, dislikes: Mapping[str, float], sd: float) -> list[ItemScores]:
    draws = random.Random(name)
    rows = []
    for family in FAMILIES:
        for number in range(N_ITEMS):
            base = draws.gauss(0, sd)
            rows.append(
                ItemScores(
                    reward_model=name,
                    item=f"{family}-{number}",
                    family=family,
                    domain="math",
                    stem=f"{family} {number}",
                    base=base,
                    vea=base - dislikes.get(family, 0.0) - draws.gauss(0, sd),
                    control=base + draws.gauss(0, sd),
                    statuses=dict.fromkeys(("base", "vea", "control"), "scored"),
                )
            )
    return rows


def _halted(row: ItemScores) -> ItemScores:
    """Only the first items of each family have all their scores."""
    number = int(row.item.rpartition("-")[2])
    if number < 2:
        return row
    status = "truncated" if number < 5 else "not_finite"
    return ItemScores(
        reward_model=row.reward_model,
        item=row.item,
        family=row.family,
        domain=row.domain,
        stem=row.stem,
        base=row.base,
        vea=None,
        control=row.control,
        statuses={"base": "scored", "vea": status, "control": "scored"},
    )
