"""What the page of study ``battery`` needs beside what every page needs: its document, who judged,
what was trained, and on which texts two readings differ.

Of replies the page has what the run's own table ``verdicts.csv`` shows of them: the first 200
characters, of benign axes alone. Of the harmful axis no file of a run holds a row, and none is
looked for here.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from eps_locked.audit.checks import AuditedRun
from eps_locked.canonical import decode
from eps_locked.errors import EvidenceError
from eps_locked.report.battery.view import Document, require_document
from eps_locked.report.evidence import Result, RunEvidence, artifact_path, gather_run

STEP, OUTPUT, FILE, TABLE = "P3/battery", "battery", "battery.json", "verdicts.csv"
# What that step writes, and what it holds; beside them a card for each model.
WRITTEN = {
    FILE: "the step's own bytes",
    TABLE: "one line a reply of the benign axes: verdicts, and at most 200 characters of it",
}
_STAGED = "over_refusal"
# Files that say who answered: in which kind of step, in which of its outputs.
_SERVED = (("ask", "answers", "answers.json"), ("speed", "speed", "speed.json"))
# A model, a thinking mode, an item.
ReplyKey = tuple[str, str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Role:
    """A judge, as it says of itself, and the axis that it read. ``rubrics`` are digests."""

    judge: Mapping[str, Any]
    axis: str
    rubrics: tuple[str, ...]

    @property
    def is_stand_in(self) -> bool:
        return self.judge["publishable"] is not True


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """What rule and judge said of one text."""

    keyword: str | None
    verdict: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class BatteryEvidence(RunEvidence):
    """Everything the page needs, parsed. ``written``: the last step's files, their exact bytes.

    ``trainings``: what each training said of itself, in the plan's order. ``excerpts``: of replies
    to harmless requests; ``readings``: of the same, by ``answer`` and ``thinking``.
    ``stand_in_servers``: models whose endpoint says that it is not for publication.
    """

    document: Document
    written: Mapping[str, bytes]
    path: str
    trainings: tuple[Mapping[str, Any], ...]
    roles: tuple[Role, ...]
    excerpts: Mapping[ReplyKey, str]
    readings: Mapping[ReplyKey, Mapping[str, Reading]]
    stand_in_servers: tuple[str, ...]

    @property
    def results(self) -> tuple[Result, ...]:
        return (Result(what="document", step=STEP, output=OUTPUT, file=FILE, path=self.path),)

    @property
    def judges(self) -> tuple[Mapping[str, Any], ...]:
        return (*(one.judge for one in self.roles), *self.calibrated_judges)

    @property
    def stand_in_endpoints(self) -> tuple[str, ...]:
        return self.stand_in_servers


def gather(audited: AuditedRun) -> BatteryEvidence:
    """Raises EvidenceError for a run whose audit failed, is incomplete, or left out a check; for a
    document that calls confirmatory what the frozen plan did not promise."""
    run = gather_run(audited)
    written = audited.artifact(STEP, OUTPUT)
    document = decode(written[FILE], thing=f"{STEP}: {FILE}")
    require_document(document)
    if document["label"] == "confirmatory" and not run.is_confirmatory("battery"):
        raise EvidenceError(
            f"report of {run.manifest.name}: {FILE}",
            expected="exploratory, since the plan's analyses do not list battery",
            found=document["label"],
        )
    asked = tuple(_asked(audited))
    return BatteryEvidence(
        **run.parts(),
        document=document,
        written=written,
        path=artifact_path(audited, STEP, OUTPUT, FILE),
        trainings=tuple(
            decode(audited.artifact(step.id, "record")["record.json"], thing=step.id)
            for step in run.history.terms.steps.values()
            if step.kind == "train"
        ),
        roles=_roles(asked),
        excerpts=_excerpts(written[TABLE]),
        readings=_readings(asked),
        stand_in_servers=_stand_in_servers(audited),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Asked:
    model: str
    axis: str
    thinking: str
    verdicts: Mapping[str, Any]


def _asked(audited: AuditedRun) -> Iterator[_Asked]:
    assert audited.history is not None
    for step in audited.history.terms.steps.values():
        if step.kind == "ask":
            data = audited.artifact(step.id, "answers")["verdicts.json"]
            yield _Asked(
                model=step.params["model"],
                axis=step.params["axis"],
                thinking=step.params["thinking"],
                verdicts=decode(data, thing=f"{step.id}: verdicts.json"),
            )


def _stand_in_servers(audited: AuditedRun) -> tuple[str, ...]:
    assert audited.history is not None
    found: dict[str, None] = {}
    for step in audited.history.terms.steps.values():
        for kind, output, file in _SERVED:
            if step.kind == kind:
                said = decode(audited.artifact(step.id, output)[file], thing=f"{step.id}: {file}")
                if said["endpoint"].get("publishable") is not True:
                    found[step.params["model"]] = None
    return tuple(found)


def _roles(asked: tuple[_Asked, ...]) -> tuple[Role, ...]:
    """Every judge with every axis that it read, in the order of the plan's steps."""
    found: dict[tuple[str, str], tuple[Mapping[str, Any], list[str]]] = {}
    for one in asked:
        judge, rubric = one.verdicts["judge"], one.verdicts["rubric"]
        if judge is None:
            continue
        key = one.axis, repr(sorted(judge.items()))
        _, rubrics = found.setdefault(key, (judge, []))
        if rubric is not None and rubric not in rubrics:
            rubrics.append(rubric)
    return tuple(
        Role(judge=judge, axis=axis, rubrics=tuple(rubrics))
        for (axis, _), (judge, rubrics) in found.items()
    )


def _readings(asked: tuple[_Asked, ...]) -> dict[ReplyKey, dict[str, Reading]]:
    found: dict[ReplyKey, dict[str, Reading]] = {}
    for one in asked:
        if one.axis != _STAGED:
            continue
        for row in one.verdicts["rows"]:
            parts = {"answer": row, "thinking": row["thinking"]}
            found[one.model, one.thinking, row["item"]] = {
                part: Reading(keyword=said["keyword"], verdict=said["verdict"])
                for part, said in parts.items()
                if said is not None
            }
    return found


def _excerpts(table: bytes) -> dict[ReplyKey, str]:
    lines = csv.DictReader(io.StringIO(table.decode("utf-8")))
    return {
        (line["model"], line["thinking"], line["item"]): line["excerpt"]
        for line in lines
        if line["axis"] == _STAGED
    }
