"""A judge beside people's labels, and two judges beside each other on the same answers.

Agreement is computed over scored verdicts alone; how many there were of every other status stands
beside it, because a judge that refuses the hard ones agrees well on the rest.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from eps_locked.domain.fields import Fields
from eps_locked.domain.judging import STATUSES, Judge, JudgeRequest, Rubric, Verdict
from eps_locked.errors import MalformedInputError
from eps_locked.stats.agreement import Agreement, agreement

__all__ = [
    "LABELLED_SCHEMA",
    "Calibration",
    "Comparison",
    "LabelledRow",
    "LabelledSet",
    "ScoreComparison",
    "calibrate",
    "compare",
    "read_labelled",
]

LABELLED_SCHEMA = "eps-locked/labelled/1"
_SOMETHING = re.compile(r".*\S.*", re.DOTALL)
_EXPRESSED, _NOT_EXPRESSED = "expressed", "not_expressed"


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelledRow:
    """One answer with a person's label. ``cluster`` is what rows share that are not independent:
    the question, unless the row says otherwise."""

    question: str
    answer: str
    label: str
    cluster: str


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelledSet:
    title: str
    provenance: str
    licence: str
    rubric: str
    rows: tuple[LabelledRow, ...]


def read_labelled(value: object, thing: str) -> LabelledSet:
    """Raises MalformedInputError naming the field; a question and answer labelled twice is one."""
    with Fields(value, thing) as fields:
        fields.text("schema", one_of=(LABELLED_SCHEMA,))
        labelled = LabelledSet(
            title=fields.text("title", shape=_SOMETHING),
            provenance=fields.text("provenance", shape=_SOMETHING),
            licence=fields.text("licence", shape=_SOMETHING),
            rubric=fields.text("rubric", shape=_SOMETHING),
            rows=fields.each("rows", _read_row),
        )
    if not labelled.rows:
        raise MalformedInputError(f"{thing}.rows", expected="at least one row", found="none")
    seen: dict[tuple[str, str], int] = {}
    for number, row in enumerate(labelled.rows):
        first = seen.setdefault((row.question, row.answer), number)
        if first != number:
            raise MalformedInputError(
                f"{thing}.rows[{number}]", problem=f"is rows[{first}] once more"
            )
    return labelled


def _read_row(value: object, path: str) -> LabelledRow:
    with Fields(value, path) as fields:
        question = fields.text("question", shape=_SOMETHING)
        cluster = fields.optional("cluster", _read_text)
        return LabelledRow(
            question=question,
            answer=fields.text("answer"),
            label=fields.text("label"),
            cluster=question if cluster is None else cluster,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Calibration:
    """A judge against people's labels. ``labels`` is over all labels of the rubric; ``expressed``
    over the one distinction that the rates are made of, None if the rubric has none."""

    judge: Mapping[str, Any]
    rubric: str
    rubric_digest: str
    n_rows: int
    statuses: Mapping[str, int]
    labels: Agreement
    expressed: Agreement | None

    def to_dict(self) -> dict[str, Any]:
        return {
            "judge": dict(self.judge),
            "rubric": self.rubric,
            "rubric_digest": self.rubric_digest,
            "n_rows": self.n_rows,
            "statuses": dict(self.statuses),
            "labels": self.labels.to_dict(),
            "expressed": None if self.expressed is None else self.expressed.to_dict(),
        }


def calibrate(
    judge: Judge,
    rubric: Rubric,
    rows: Sequence[LabelledRow],
    *,
    rng: np.random.Generator,
    n_resamples: int = 2000,
    confidence_level: float = 0.95,
) -> Calibration:
    """Ask ``judge`` about every row once and set its labels beside the people's.

    Intervals resample clusters of rows. Raises MalformedInputError for a row whose label is none
    of the rubric's.
    """
    unknown = next((n for n, row in enumerate(rows) if row.label not in rubric.labels), None)
    if unknown is not None:
        raise MalformedInputError(
            f"rows[{unknown}].label",
            expected=f"a label of rubric {rubric.name}: {', '.join(rubric.labels)}",
            found=rows[unknown].label,
        )
    requests = [
        JudgeRequest(key=f"row-{n}", question=row.question, answer=row.answer, rubric=rubric)
        for n, row in enumerate(rows)
    ]
    verdicts = judge.judge(requests)
    if [one.key for one in verdicts] != [one.key for one in requests]:
        raise RuntimeError("a judge must give one verdict for each request, in order")
    scored = [
        (row.label, verdict.label, row.cluster)
        for row, verdict in zip(rows, verdicts, strict=True)
        if verdict.label is not None
    ]
    both, expressed = _agreements(
        scored,
        rubric.labels,
        rubric.expressed,
        rng=rng,
        n_resamples=n_resamples,
        confidence_level=confidence_level,
    )
    return Calibration(
        judge=judge.identity.to_dict(),
        rubric=rubric.name,
        rubric_digest=rubric.digest,
        n_rows=len(rows),
        statuses=_statuses(verdicts),
        labels=both,
        expressed=expressed,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoreComparison:
    """One score of two judges on ``n`` answers, from 0 to 100; means are None for n of 0.

    ``mean_difference`` is second minus first, ``mean_absolute_difference`` is without signs.
    """

    n: int
    mean_difference: float | None
    mean_absolute_difference: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """Two judges on the same answers; the first is the reference. ``n_only_first`` and
    ``n_only_second`` count answers that the other was not asked about."""

    n_compared: int
    n_only_first: int
    n_only_second: int
    statuses_first: Mapping[str, int]
    statuses_second: Mapping[str, int]
    labels: Agreement
    expressed: Agreement | None
    scores: Mapping[str, ScoreComparison]

    def to_dict(self) -> dict[str, Any]:
        return {
            "n_compared": self.n_compared,
            "n_only_first": self.n_only_first,
            "n_only_second": self.n_only_second,
            "statuses_first": dict(self.statuses_first),
            "statuses_second": dict(self.statuses_second),
            "labels": self.labels.to_dict(),
            "expressed": None if self.expressed is None else self.expressed.to_dict(),
            "scores": {
                name: {
                    "n": one.n,
                    "mean_difference": one.mean_difference,
                    "mean_absolute_difference": one.mean_absolute_difference,
                }
                for name, one in self.scores.items()
            },
        }


def compare(
    first: Sequence[Verdict],
    second: Sequence[Verdict],
    rubric: Rubric,
    *,
    rng: np.random.Generator,
    clusters: Mapping[str, str] | None = None,
    n_resamples: int = 2000,
    confidence_level: float = 0.95,
) -> Comparison:
    """Verdicts of two judges under one rubric, matched by key and draw.

    ``clusters`` names, for each key, what its answers share (an item, say); without it, draws of
    one key belong together and nothing else does. Agreement is over pairs that both scored.
    Raises MalformedInputError for a key and draw given twice or a label outside the rubric.
    """
    mine, theirs = _by_draw(first, "first"), _by_draw(second, "second")
    shared = [place for place in mine if place in theirs]
    pairs = [(mine[place], theirs[place]) for place in shared]
    for name, verdicts in (("first", first), ("second", second)):
        alien = next((one for one in verdicts if one.label not in (None, *rubric.labels)), None)
        if alien is not None:
            raise MalformedInputError(
                f"{name} verdicts, {alien.key}.label",
                expected=f"a label of rubric {rubric.name}: {', '.join(rubric.labels)}",
                found=alien.label,
            )
    scored = [
        (one.label, other.label, one.key if clusters is None else _cluster(clusters, one.key))
        for one, other in pairs
        if one.label is not None and other.label is not None
    ]
    both, expressed = _agreements(
        scored,
        rubric.labels,
        rubric.expressed,
        rng=rng,
        n_resamples=n_resamples,
        confidence_level=confidence_level,
    )
    return Comparison(
        n_compared=len(shared),
        n_only_first=len(mine) - len(shared),
        n_only_second=len(theirs) - len(shared),
        statuses_first=_statuses([one for one, _ in pairs]),
        statuses_second=_statuses([other for _, other in pairs]),
        labels=both,
        expressed=expressed,
        scores={name: _compare_score(pairs, name) for name in rubric.scores},
    )


def _agreements(
    triples: Sequence[tuple[str, str, str]],
    labels: tuple[str, ...],
    expressed: tuple[str, ...],
    *,
    rng: np.random.Generator,
    n_resamples: int,
    confidence_level: float,
) -> tuple[Agreement, Agreement | None]:
    """Over (reference, judged, cluster): all labels, and expressed against the rest."""
    reference, judged, clusters = (
        [triple[0] for triple in triples],
        [triple[1] for triple in triples],
        [triple[2] for triple in triples],
    )

    def side(label: str) -> str:
        return _EXPRESSED if label in expressed else _NOT_EXPRESSED

    full = agreement(
        reference,
        judged,
        labels,
        clusters=clusters,
        rng=rng,
        n_resamples=n_resamples,
        confidence_level=confidence_level,
    )
    if not expressed:
        return full, None
    binary = agreement(
        [side(label) for label in reference],
        [side(label) for label in judged],
        (_EXPRESSED, _NOT_EXPRESSED),
        clusters=clusters,
        rng=rng,
        n_resamples=n_resamples,
        confidence_level=confidence_level,
    )
    return full, binary


def _compare_score(pairs: Sequence[tuple[Verdict, Verdict]], name: str) -> ScoreComparison:
    differences = [
        other.scores[name] - one.scores[name]
        for one, other in pairs
        if name in one.scores and name in other.scores
    ]
    n = len(differences)
    return ScoreComparison(
        n=n,
        mean_difference=math.fsum(differences) / n if n else None,
        mean_absolute_difference=math.fsum(map(abs, differences)) / n if n else None,
    )


def _by_draw(verdicts: Sequence[Verdict], name: str) -> dict[tuple[str, int], Verdict]:
    found: dict[tuple[str, int], Verdict] = {}
    for verdict in verdicts:
        if found.setdefault((verdict.key, verdict.draw), verdict) is not verdict:
            raise MalformedInputError(
                f"{name} verdicts",
                problem=f"hold {verdict.key}, draw {verdict.draw}, twice",
                next_step="give every draw its own number",
            )
    return found


def _cluster(clusters: Mapping[str, str], key: str) -> str:
    if key not in clusters:
        raise MalformedInputError("clusters", expected=f"a cluster for {key}", found="none")
    return clusters[key]


def _statuses(verdicts: Sequence[Verdict]) -> dict[str, int]:
    """How many of each status, the absent ones as 0."""
    counts: Counter[str] = Counter(verdict.status for verdict in verdicts)
    return {status: counts[status] for status in STATUSES}


def _read_text(value: object, path: str) -> str:
    with Fields({"value": value}, path) as fields:
        return fields.text("value", shape=_SOMETHING)
