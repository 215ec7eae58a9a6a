"""The whole analysis of study ``drift``: rows of scored replies in, one document out.

Pure: the executor, the check of the evidence and ``drift analyse`` call the same function, and
equal rows in any order give equal bytes. The document's form is described in docs/drift-tables.md.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from eps_locked.studies.common.rounding import rounded
from eps_locked.studies.drift.awareness_analysis import AwarenessGrades, awareness_entry
from eps_locked.studies.drift.effects import comparison_entries
from eps_locked.studies.drift.judging_analysis import judging_entry
from eps_locked.studies.drift.outcomes import (
    Draws,
    Scale,
    Study,
    Unit,
    arm_entries,
    null_entries,
    null_summary,
)
from eps_locked.studies.drift.plan import AnalysisSettings
from eps_locked.studies.drift.readout_shifts import Readouts, readout_entry
from eps_locked.studies.drift.rows import NotMeasured
from eps_locked.studies.drift.series import dose_entries, reasoning_entries
from eps_locked.studies.drift.table import ArmInfo, BatteryInfo, ReplyRow, tabulate
from eps_locked.studies.drift.training_noise import (
    instance_entries,
    pooled_training_noise,
    seed_entries,
)

__all__ = ["SCHEMA", "analyse"]

SCHEMA = "eps-locked/drift/1"


def analyse(
    rows: Iterable[ReplyRow],
    arms: Sequence[ArmInfo],
    batteries: Sequence[BatteryInfo],
    settings: AnalysisSettings,
    *,
    awareness: Sequence[AwarenessGrades] | None = None,
    readouts: Readouts | None = None,
    power: Mapping[str, Any] | None = None,
    not_measured: Sequence[NotMeasured] = (),
    unit: Unit = "points",
    null_tests: bool = True,
    label: Literal["confirmatory", "exploratory"] = "exploratory",
) -> dict[str, Any]:
    """The document ``drift.json``; floats at 10 significant digits, nothing undefined but as None.

    ``label`` is the caller's to know: confirmatory only for what a frozen plan promised. Without
    ``null_tests`` one sample a probe is enough; null tests and noise shares are then absent, and
    ``settings.null_tests`` says so. ``power`` is passed on as the power step wrote it.
    ``not_measured``: what was asked and has too few scores, whose rows are not given; no comparison
    has it on either side, and the document names it.

    Raises MalformedInputError for rows that do not fit (``table.tabulate``), and StatsInputError
    where a statistic is not defined for what is left.
    """
    tables = tabulate(
        rows,
        arms,
        batteries,
        null_tests=null_tests,
        not_measured={(one.arm, one.battery) for one in not_measured},
    )
    study = Study(tables=tables, arms=tuple(arms), draws=Draws(settings), scale=Scale(unit=unit))
    described = arm_entries(study)
    nulls = null_entries(study) if null_tests else []
    noise = pooled_training_noise(study)
    comparisons = comparison_entries(study, noise, null_tests=null_tests)
    document: dict[str, Any] = rounded(
        {
            "schema": SCHEMA,
            "label": label,
            "unit": unit,
            "settings": {**dataclasses.asdict(settings), "null_tests": null_tests},
            "batteries": [
                {
                    "name": name,
                    "role": table.battery.role,
                    "labels": table.battery.labels,
                    "aligned": table.battery.aligned,
                    "no_stance": table.battery.no_stance,
                    "n_stems": len(table.stems),
                    "n_probes": table.n_probes,
                }
                for name, table in tables.items()
            ],
            "arms": described,
            "nulls": nulls,
            "null_summary": null_summary(nulls),
            "comparisons": comparisons,
            "doses": dose_entries(study),
            "seeds": seed_entries(study),
            "training_noise": [one.entry() for one in noise.values()],
            "instances": instance_entries(study),
            "reasoning": reasoning_entries(arms, described, comparisons),
            "judging": judging_entry(study),
            "readouts": None if readouts is None else readout_entry(readouts, study.draws),
            "awareness": None
            if awareness is None
            else awareness_entry(study, awareness, described),
            "power": None if power is None else dict(power),
            "not_measured": [dataclasses.asdict(one) for one in not_measured],
        }
    )
    return document
