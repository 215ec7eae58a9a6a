"""From the records of a run to the study's document: scores by item, then the analysis.

Run and audit call ``breadth_files`` alike; it reads records and frozen files alone.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence

from eps_locked.canonical import decode, encode
from eps_locked.domain.execution import StepInputs
from eps_locked.studies.vea.analysis import ItemScores, analyse
from eps_locked.studies.vea.derive import RESPONSES, FrozenItem, read_frozen_items, score_key
from eps_locked.studies.vea.plan import VeaPlan
from eps_locked.studies.vea.power import power_document
from eps_locked.studies.vea.records import ScoresRecord

__all__ = [
    "BREADTH_FILE",
    "DELTAS_FILE",
    "POWER_FILE",
    "breadth_files",
    "deltas_csv",
    "item_scores",
    "power_files",
]

BREADTH_FILE = "breadth.json"
DELTAS_FILE = "deltas.csv"
POWER_FILE = "power.json"
# What is subtracted from what: the reference of each measure, less vea.
_REFERENCES: Mapping[str, str] = {"inserted": "base", "length_controlled": "control"}
_COLUMNS = (
    "reward_model",
    "item",
    "family",
    "domain",
    "stem",
    *_REFERENCES,
    *(f"{name}_status" for name in RESPONSES),
)


def power_files(section: VeaPlan) -> dict[str, bytes]:
    """What the plan's items can find, before anything is scored."""
    return {POWER_FILE: encode(power_document(section.analysis, section.counts))}


def breadth_files(inputs: StepInputs, section: VeaPlan, *, is_promised: bool) -> dict[str, bytes]:
    """The document, and one line for each item and reward model."""
    items = read_frozen_items(inputs.frozen("items"), "frozen items")
    records = [
        ScoresRecord.from_files(inputs.artifact(name), name)
        for model in section.reward_models
        for name in (f"scores:{model.name}",)
    ]
    rows = [row for record in records for row in item_scores(record, items)]
    document = analyse(
        rows,
        section.analysis,
        decode(inputs.artifact("power")[POWER_FILE], thing=POWER_FILE),
        identities={record.reward_model: record.identity for record in records},
        expected={model.name: model.expected for model in section.reward_models},
        label="confirmatory" if is_promised else "exploratory",
    )
    return {BREADTH_FILE: encode(document), DELTAS_FILE: deltas_csv(rows)}


def item_scores(record: ScoresRecord, items: Sequence[FrozenItem]) -> tuple[ItemScores, ...]:
    """One row an item, in frozen order; a response without a score is None, with its status.

    Raises KeyError for a record that lacks one: it is checked before it is read.
    """
    scores = record.by_key
    rows = []
    for item in items:
        found = {name: scores[score_key(item.id, name)] for name in RESPONSES}
        rows.append(
            ItemScores(
                reward_model=record.reward_model,
                item=item.id,
                family=item.family,
                domain=item.domain,
                stem=item.stem,
                base=found["base"].value,
                vea=found["vea"].value,
                control=found["control"].value,
                statuses={name: one.status for name, one in found.items()},
                same_text=item.vea == item.base,
            )
        )
    return tuple(rows)


def deltas_csv(rows: Sequence[ItemScores]) -> bytes:
    """UTF-8, LF, header first. Differences are in the reward model's own unit, in the shortest form
    that reads back to the same number; where a side has no score, the field is empty."""
    sink = io.StringIO()
    writer = csv.DictWriter(sink, _COLUMNS, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow(
            {
                **{name: getattr(row, name) for name in _COLUMNS[:5]},
                **{name: _delta(row, of) for name, of in _REFERENCES.items()},
                **{f"{name}_status": row.statuses[name] for name in RESPONSES},
            }
        )
    return sink.getvalue().encode("utf-8")


def _delta(row: ItemScores, reference: str) -> str:
    minuend = row.score(reference)
    return "" if minuend is None or row.vea is None else repr(minuend - row.vea)
