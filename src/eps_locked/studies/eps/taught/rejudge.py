"""Judging a run's recorded answers again with another judge, and how far the two agree.

The recorded verdicts stay what they are: this is a second opinion on fixed texts, exploratory
unless the plan promised it, and no part of the evidence.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from eps_locked.domain.judging import Judge, JudgePlan, JudgeRequest, Rubric, Verdict
from eps_locked.errors import MalformedInputError, RefusedError
from eps_locked.judges.transport import require_transport
from eps_locked.lock.history import History
from eps_locked.lock.seal import is_sealed
from eps_locked.lock.workspace import FrozenManifest, RunFolder
from eps_locked.studies.common.judging import read_rubric
from eps_locked.studies.eps.plan import EpsPlan, TaughtBehaviour
from eps_locked.studies.eps.taught.derive import AskedItem, asked_items
from eps_locked.studies.eps.taught.outcomes import verdicts_by_answer
from eps_locked.studies.eps.taught.records import JudgedAnswers

__all__ = ["RecordedAnswers", "judge_again", "recorded_answers"]


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordedAnswers:
    """A row's open answers with the verdicts on record, by a name that is unique in the run.

    ``n_sealed`` cells could not be read, ``n_withheld`` answers are kept as excerpts only.
    """

    rubric: Rubric
    requests: tuple[JudgeRequest, ...]
    verdicts: tuple[Verdict, ...]
    judge: Mapping[str, object]
    n_sealed: int
    n_withheld: int

    @property
    def clusters(self) -> dict[str, str]:
        """The question of every answer: what answers share that are not independent."""
        return {request.key: request.question for request in self.requests}


def recorded_answers(
    frozen: FrozenManifest, run: RunFolder, history: History, section: EpsPlan, row: str
) -> RecordedAnswers:
    """Every open answer of a row, base and trained, first verdicts beside it.

    Raises MalformedInputError for a row without a judge, RefusedError if nothing is recorded yet.
    """
    behaviour = next((one for one in section.behaviours if one.name == row), None)
    if not isinstance(behaviour, TaughtBehaviour):
        judged = [one.name for one in section.behaviours if isinstance(one, TaughtBehaviour)]
        raise MalformedInputError(
            "--behaviour", expected=f"a judged row: {', '.join(judged) or 'none'}", found=row
        )
    items = {item.id: item for item in asked_items(frozen.read(f"frozen/rows/{row}/items.json"))}
    requests: list[JudgeRequest] = []
    verdicts: list[Verdict] = []
    n_sealed = n_withheld = 0
    judge: Mapping[str, object] = {}
    rubric = read_rubric(frozen.read(f"frozen/sources/{behaviour.rubric}"))
    for name, files in _cells(run, history, row):
        if is_sealed(files):
            n_sealed += 1
            continue
        record = JudgedAnswers.from_files(files, name)
        judge = record.judge
        for key, found in verdicts_by_answer(record).items():
            item = items[key[0]]
            if not item.keep_text:
                n_withheld += 1
                continue
            text = next(one.text for one in record.answers if one.key == key)
            label = "/".join((name, *map(str, key)))
            requests.append(_request(label, item, text, rubric))
            verdicts += [replace(one, key=label) for one in found[:1]]
    if not requests:
        raise RefusedError(
            f"answers of {row}",
            expected="recorded open answers",
            found="none",
            next_step="run P0 or the row's phase first",
        )
    return RecordedAnswers(
        rubric=rubric,
        requests=tuple(requests),
        verdicts=tuple(verdicts),
        judge=judge,
        n_sealed=n_sealed,
        n_withheld=n_withheld,
    )


def judge_again(answers: RecordedAnswers, judge: Judge, plan: JudgePlan) -> tuple[Verdict, ...]:
    """Another judge's verdicts on the same answers, in their order."""
    verdicts = judge.judge(answers.requests)
    require_transport(plan, verdicts)
    return verdicts


def _request(label: str, item: AskedItem, text: str, rubric: Rubric) -> JudgeRequest:
    return JudgeRequest(key=label, question=item.text, answer=text, rubric=rubric)


def _cells(run: RunFolder, history: History, row: str) -> Iterator[tuple[str, dict[str, bytes]]]:
    """(step#output, files) of every recorded base and cell of a row, in the promised order."""
    for step in history.terms.steps.values():
        body = history.done.get(step.id)
        if body is None or step.kind not in ("base", "cells"):
            continue
        if step.params.get("behaviour") != row:
            continue
        for name, artifact in body.outputs.items():
            files = {file: run.artifact_file(artifact, file) for file in artifact.files}
            yield f"{step.id}#{name}", files
