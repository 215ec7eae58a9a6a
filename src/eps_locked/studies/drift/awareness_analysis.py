"""How much the probes look like a test, whether the model says so, and whether drift goes with it.

Awareness is measured here, not removed: a model that behaves for the test can defeat every number
of this study. Judges see the probes, never the replies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from eps_locked.errors import MalformedInputError
from eps_locked.stats.agreement import agreement
from eps_locked.stats.checks import FloatArray
from eps_locked.stats.stem_correlation import stem_correlation
from eps_locked.studies.drift.outcomes import (
    Study,
    cell_means,
    drifts_over_stems,
    number_or_none,
)
from eps_locked.studies.drift.table import TOP_GRADE, BatteryTable

__all__ = ["AwarenessGrades", "awareness_entry"]

_GRADES = tuple(str(grade) for grade in range(1, TOP_GRADE + 1))
_MOST_RESAMPLES = 2000
# Decimals at which two stems' values are the same.
_TIES = 9


@dataclass(frozen=True, kw_only=True, slots=True)
class AwarenessGrades:
    """One judge's grades of a battery's probes, 1 to 7 (7 clearly a test); None where unscored."""

    battery: str
    judge: str
    grades: Mapping[str, int | None]


def awareness_entry(
    study: Study, given: Sequence[AwarenessGrades], described: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """By battery: each judge's mean grade, their agreement, and the correlation with drift.

    A stem's grade is the mean over its probes and judges; correlations are Spearman's over stems,
    one for each comparison, with the smallest correlation that so many stems could have shown.
    ``mentions``: how many replies that reasoned named the test in their reasoning.

    Raises MalformedInputError for more than two judges, a judge twice, a battery that was not
    asked, a grade outside 1 to 7, or a probe that is not the battery's.
    """
    by_battery: dict[str, list[AwarenessGrades]] = {}
    for one in given:
        if one.battery not in study.tables:
            raise MalformedInputError(
                f"awareness of {one.battery}",
                expected=f"a battery that was asked ({', '.join(study.tables)})",
                found=one.battery,
            )
        by_battery.setdefault(one.battery, []).append(one)
    return {
        "batteries": [
            _of_battery(study, study.tables[name], judges) for name, judges in by_battery.items()
        ],
        "mentions": [
            {
                "arm": entry["arm"],
                "battery": name,
                "n_reasoned": counts["n_reasoned"],
                "n_mentioning": counts["n_mentioning"],
            }
            for entry in described
            for name, counts in entry["batteries"].items()
            if counts["n_reasoned"]
        ],
    }


def _of_battery(
    study: Study, table: BatteryTable, judges: Sequence[AwarenessGrades]
) -> dict[str, Any]:
    name = table.battery.name
    if len(judges) > 2 or len({one.judge for one in judges}) < len(judges):
        raise MalformedInputError(
            f"awareness of {name}: judges",
            expected="one or two different judges",
            found=", ".join(one.judge for one in judges),
        )
    grades_JSP = np.stack([_grades(table, one) for one in judges])
    by_judge = {
        one.judge: number_or_none(float(cell_means(grades, (0, 1))))
        for one, grades in zip(judges, grades_JSP, strict=True)
    }
    grade_S = cell_means(grades_JSP, (0, 2))
    return {
        "battery": name,
        "judges": [one.judge for one in judges],
        "mean": number_or_none(float(cell_means(grade_S, (0,)))),
        "by_judge": by_judge,
        "agreement": _agreement(study, table, grades_JSP) if len(judges) == 2 else None,
        "correlation": _correlations(study, table, grade_S),
    }


def _grades(table: BatteryTable, given: AwarenessGrades) -> FloatArray:
    """Shape (S, P), NaN without a grade."""
    place = {
        probe: (s, p) for s, of_stem in enumerate(table.probes) for p, probe in enumerate(of_stem)
    }
    found = np.full(table.grade.shape[1:3], np.nan)
    for probe, grade in given.grades.items():
        if probe not in place:
            raise MalformedInputError(
                f"awareness of {given.battery}: probe {probe}",
                expected="a probe of the battery",
                found="another",
            )
        if grade is None:
            continue
        if not 1 <= grade <= TOP_GRADE:
            raise MalformedInputError(
                f"awareness of {given.battery}: grade of {probe}",
                expected=f"1 to {TOP_GRADE}",
                found=grade,
            )
        found[place[probe]] = grade
    return found


def _agreement(study: Study, table: BatteryTable, grades_JSP: FloatArray) -> dict[str, Any] | None:
    """Two judges on the probes both graded: kappa with linear weights, stems resampled."""
    both = ~np.isnan(grades_JSP).any(axis=0)
    if not both.any():
        return None
    stems, _ = np.nonzero(both)
    first, second = ([_GRADES[int(grade) - 1] for grade in one[both]] for one in grades_JSP)
    found = agreement(
        first,
        second,
        _GRADES,
        clusters=[table.stems[s] for s in stems],
        rng=study.draws.rng("awareness", table.battery.name),
        weights="linear",
        n_resamples=min(study.settings.n_resamples, _MOST_RESAMPLES),
        confidence_level=study.settings.confidence_level,
    )
    return {
        "n": found.n,
        "agreement": found.percent_agreement,
        "kappa": found.kappa.value,
        "low": found.interval.low,
        "high": found.interval.high,
        "reason": found.kappa.reason or found.interval.reason,
    }


def _correlations(study: Study, table: BatteryTable, grade_S: FloatArray) -> list[dict[str, Any]]:
    named = {arm.name: arm for arm in table.arms}
    pairs = [
        (arm, named[arm.reference])
        for arm in table.arms
        if arm.reference is not None and arm.reference in named
    ]
    if not pairs:
        return []
    drifts_CS = drifts_over_stems(study, table, pairs, table.outcome)
    entries = []
    for (arm, reference), drift_S in zip(pairs, drifts_CS, strict=True):
        there = ~np.isnan(drift_S) & ~np.isnan(grade_S)
        n_stems = int(there.sum())
        entry: dict[str, Any] = {
            "arm": arm.name,
            "reference": reference.name,
            "r": None,
            "low": None,
            "high": None,
            "n": n_stems,
            "detectable_r": None,
            "reason": "no stem with both a grade and a drift",
        }
        if n_stems:
            found = stem_correlation(
                # Means of the same replies in another order may differ in the last digit, and
                # ranks would take that for a difference.
                np.round(grade_S[there], _TIES),
                np.round(drift_S[there], _TIES),
                study.draws.weights(table.battery.name, n_stems),
                study.settings.confidence_level,
            )
            entry |= {
                "r": found.r,
                "low": found.low,
                "high": found.high,
                "detectable_r": found.detectable,
                "reason": found.reason,
            }
        entries.append(entry)
    return entries
