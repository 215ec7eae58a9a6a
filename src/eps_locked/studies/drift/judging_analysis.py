"""How far verdicts can be relied on: the same judge asked twice, and one of another family."""

from __future__ import annotations

from typing import Any

from eps_locked.stats.agreement import Agreement, agreement
from eps_locked.studies.drift.outcomes import Study
from eps_locked.studies.drift.table import BatteryTable

__all__ = ["judging_entry"]

# Kappa's interval is made one resample at a time; more of them would change its third digit.
_MOST_RESAMPLES = 2000


def judging_entry(study: Study) -> dict[str, Any]:
    """``twice``: a judge against itself; ``checker``: against another family, class by class.

    Replies of one stem share what makes them hard to classify, in every arm, so intervals resample
    stems. A reply that either side could not classify takes no part.
    """
    twice, checked = [], []
    for table in study.tables.values():
        found = _agreement(study, table, "second_label")
        if found is not None:
            n_agree = sum(row[place] for place, row in enumerate(found.confusion))
            twice.append({**_summary(table, found), "n_agree": n_agree})
        found = _agreement(study, table, "check_label")
        if found is not None:
            by_class = found.to_dict()["by_label"]
            checked.append({**_summary(table, found), "by_class": by_class})
    return {"twice": twice, "checker": checked or None}


def _agreement(study: Study, table: BatteryTable, other: str) -> Agreement | None:
    pairs = [
        (row.label, getattr(row, other), row.stem)
        for rows in table.rows.values()
        for row in rows
        if row.label is not None and getattr(row, other) is not None
    ]
    if not pairs:
        return None
    first, second, stems = (list(column) for column in zip(*pairs, strict=True))
    return agreement(
        first,
        second,
        table.battery.labels,
        clusters=stems,
        rng=study.draws.rng("judging", other, table.battery.name),
        n_resamples=min(study.settings.n_resamples, _MOST_RESAMPLES),
        confidence_level=study.settings.confidence_level,
    )


def _summary(table: BatteryTable, found: Agreement) -> dict[str, Any]:
    return {
        "battery": table.battery.name,
        "n": found.n,
        "agreement": found.percent_agreement,
        "kappa": found.kappa.value,
        "low": found.interval.low,
        "high": found.interval.high,
        "reason": found.kappa.reason or found.interval.reason,
    }
